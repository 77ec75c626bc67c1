"""Costs in words: enough digits, never an exponent, tiny ones by the thousand. Knows nothing of plans."""

import math
from dataclasses import dataclass

__all__ = ["Scale", "amount", "fixed", "scale_of"]

_TINY = 0.01  # of money: below it, what a thousand problems cost is easier to read
_MANY = 1000
_COUNTED = ("samples", "tokens")  # units that are no money


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How costs of one unit are shown: of one problem, or of a thousand where those are tiny sums."""

    unit: str
    problems: int

    def number(self, cost: float, *, digits: int = 4) -> str:
        return fixed(cost * self.problems, digits=digits)

    def words(self, cost: float, *, digits: int = 4) -> str:
        """`1 sample`, `1.998 samples`, `612 tokens`, `0.12 dollars per 1,000 problems`."""
        shown = self.number(cost, digits=digits)
        return f"{shown} {self._noun(shown)}{self.per}"

    def more(self, cost: float) -> str:
        """`100 more tokens`, `1 more sample`."""
        shown = self.number(cost)
        return f"{shown} more {self._noun(shown)}{self.per}"

    @property
    def per(self) -> str:
        return "" if self.problems == 1 else f" per {self.problems:,} problems"

    def _noun(self, shown: str) -> str:
        return self.unit[:-1] if shown == "1" and self.unit.endswith("s") else self.unit


def scale_of(unit: str, largest: float) -> Scale:
    """How to show costs of which this is the largest."""
    tiny = unit not in _COUNTED and 0 < largest < _TINY
    return Scale(unit=unit, problems=_MANY if tiny else 1)


def amount(cost: float, unit: str) -> str:
    """One cost by itself: `1 sample`, `612 tokens`, `0.12 dollars per 1,000 problems`.

    >>> amount(1, "samples"), amount(0.0000564, "dollars"), amount(1234.5, "tokens")
    ('1 sample', '0.0564 dollars per 1,000 problems', '1,234 tokens')
    """
    return scale_of(unit, cost).words(cost)


def fixed(value: float, *, digits: int = 4) -> str:
    """A number with so many digits that count, trailing zeros left off, never with an exponent.

    >>> fixed(0.0000564), fixed(2.0), fixed(1234567.0), fixed(1.99773)
    ('0.0000564', '2', '1,234,567', '1.998')
    """
    if value == 0 or abs(value) >= _MANY:
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
