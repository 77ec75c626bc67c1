"""The canonical form of an answer. Doesn't know how one is found."""

from typing import NamedTuple

__all__ = ["Form"]


class Form(NamedTuple):
    """What an answer means: a kind, a key shared by equal answers of that kind, and a unit ("" for none)."""

    kind: str  # "number", "set", ..., "text"; "open": a formula that another judge must compare
    key: object
    unit: str = ""
    places: int = 0  # decimals of a number written as a decimal of ten digits or more, else 0
