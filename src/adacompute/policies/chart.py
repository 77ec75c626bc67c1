"""What calibration saw of a policy, budget by budget, kept beside it. Knows nothing of how it was seen.

The gateway starts at its prices, expects its agreement, and says by it what is saved. chart.json names the
policy that it belongs to by hash and is itself hashed: a damaged one, or one of another policy, is refused.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from adacompute.errors import PolicyError, PolicyInvalid
from adacompute.policies.artefact import DOCUMENT, MOST_TEXT
from adacompute.policies.base import Dial
from adacompute.policies.folder import CHART, folder_of, place
from adacompute.policies.sealed import FOLDER, content_of, digest, plain_json

__all__ = ["Chart", "Row", "read_chart", "write_chart"]

SCHEMA, VERSION = "adacompute.chart", 1
MOST = 1 << 20  # bytes of chart.json

_ROWS = 64
_SAMPLES = 1e6  # a request: more is a slip
_WORDS = 1000  # characters of the protocol
_SLIP = 1e-9
_LOWEST = 1e-12  # prices below are taken for it, where their logarithm is
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_REMEDY = "fit again, or remove it"
_FIELDS = {"schema", "version", "policy", "dial", "unit", "problems", "protocol", "rows", "sha256"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one average number of samples took, and gave.

    Cost, waves and `stays` are of that one price. Where many requests stand alike it may cost less than the
    budget; the rest is told for the budget met, by two prices in turn.
    """

    budget: float  # samples a request on average that were asked for
    price: float | None  # the dial, the lowest that costs no more; None: the policy has none
    cost: float  # samples a request
    waves: float  # rounds a request
    stays: float  # share of requests whose answer is that of the vote of all recorded samples
    agreement: float  # the winner's share of a vote's weight, mean over requests
    deviation: float  # of that, the standard deviation over requests
    accuracy: float | None = None  # None: correctness is not known
    uniform: float | None = (
        None  # samples for all alike that are as accurate; the most there are where none is
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Rows by rising budget.

    >>> row = dict(waves=1.5, agreement=0.9, deviation=0.2, stays=0.9)
    >>> rows = (Row(budget=2, price=0.04, cost=2, **row), Row(budget=4, price=0.01, cost=4, **row))
    >>> chart = Chart(dial="price", unit="samples", problems=300, protocol="replay", rows=rows)
    >>> round(chart.price(3), 6), chart.price(5)
    (0.02, None)
    """

    dial: Dial | None
    unit: str  # of the price: accuracy per sample, token or money
    problems: int
    protocol: str  # how it was made, in words
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if wrong := _wrong(self):
            raise PolicyError(f"such a chart can't be: {wrong}")

    def price(self, budget: float) -> float | None:
        """The dial for an average number of samples; None outside of the rows, or without a dial."""
        found = self.at(budget)
        return None if found is None else found.price

    def at(self, budget: float) -> Row | None:
        """What to expect at a budget, between its two neighbours; the price is so by its logarithm.

        None outside of the rows. A policy without a dial has one row, whatever the budget.
        """
        if self.dial is None:
            return self.rows[0] if self.rows else None
        for row in self.rows:
            if row.budget == budget:
                return row
        for one, other in pairwise(self.rows):
            if one.budget < budget < other.budget:
                return _between(one, other, (budget - one.budget) / (other.budget - one.budget))
        return None


def write_chart(folder: str | Path, chart: Chart) -> None:
    """Puts the chart beside the policy that is in a folder: the one that it was made for."""
    path = folder_of(folder)
    policy = _policy_of(path)
    document: dict[str, Any] = {"schema": SCHEMA, "version": VERSION, "policy": policy, **asdict(chart)}
    document["rows"] = [asdict(row) for row in chart.rows]
    document["sha256"] = digest(document)
    text = (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
    if not place(path, CHART, text, fits=lambda found: _policy_of(found) == policy):
        raise PolicyError(f"{path}: another policy was saved there meanwhile; fit again")


def read_chart(folder: str | Path, *, policy: str) -> Chart | None:
    """The chart of the policy with this hash; None: there is none. PolicyInvalid: another's, or damaged."""
    path = folder_of(folder) / CHART
    try:
        path.lstat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise PolicyInvalid(f"{path}: can't be read: {exc}") from exc
    text = content_of(path, MOST, remedy=_REMEDY)
    found = _document(plain_json(text, path, remedy=_REMEDY), path)
    if found["policy"] != policy:
        raise PolicyInvalid(f"{path}: is of another policy than the one beside it; {_REMEDY}")
    try:
        return Chart(
            dial=found["dial"],
            unit=found["unit"],
            problems=found["problems"],
            protocol=found["protocol"],
            rows=tuple(Row(**row) for row in found["rows"]),
        )
    except (PolicyError, TypeError) as exc:
        raise PolicyInvalid(f"{path}: {exc}; {_REMEDY}") from exc


def _document(found: object, path: Path) -> Mapping[str, Any]:
    """chart.json, its fields and its hash checked."""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise PolicyInvalid(f"{path}: is no chart of adacompute's; {_REMEDY}")
    written = found.get("version")
    if type(written) is int and written > VERSION:
        raise PolicyInvalid(
            f"{path}: is of format {written}, newer than this version reads ({VERSION}); upgrade adacompute"
        )
    names = {field.name for field in fields(Row)}
    rows = found.get("rows")
    fine = (
        type(written) is int
        and written == VERSION
        and set(found) == _FIELDS
        and isinstance(found["policy"], str)
        and _HEX.fullmatch(found["policy"])
        and isinstance(rows, list)
        and len(rows) <= _ROWS
        and all(isinstance(row, dict) and set(row) == names for row in rows)
    )
    if not fine:
        raise PolicyInvalid(f"{path}: its fields are not those of format {VERSION}; {_REMEDY}")
    if found["sha256"] != digest(found):
        raise PolicyInvalid(f"{path}: is not what was written (its hash differs); {_REMEDY}")
    return found


def _policy_of(folder: Path) -> str:
    """The hash of the policy that is in a folder, as it says itself."""
    path = folder / DOCUMENT
    found = plain_json(content_of(path, MOST_TEXT), path)
    told = found.get("sha256") if isinstance(found, dict) else None
    if not isinstance(told, str) or not _HEX.fullmatch(told):
        raise PolicyInvalid(f"{path}: is no policy of adacompute's; {FOLDER}")
    return told


def _between(one: Row, other: Row, share: float) -> Row:
    """`other` by its share, else `one`."""

    def mean(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else (1 - share) * a + share * b

    found = {field.name: mean(getattr(one, field.name), getattr(other, field.name)) for field in fields(Row)}
    if one.price is not None and other.price is not None:
        low, high = (math.log(max(_LOWEST, price)) for price in (one.price, other.price))
        found["price"] = math.exp((1 - share) * low + share * high)
    return Row(**found)  # type: ignore[arg-type] # only what may be None in a row is None here


def _wrong(chart: Any) -> str:  # noqa: ANN401 - its fields may be anything yet
    """What can't be about a chart; "" where it can."""
    if chart.dial is not None and chart.dial not in get_args(Dial):
        return f"dial {chart.dial!r:.60}"
    if not isinstance(chart.unit, str) or chart.unit not in ("samples", "tokens", "money"):
        return f"unit {chart.unit!r:.60}"
    if type(chart.problems) is not int or not 1 <= chart.problems < 2**53:
        return f"{chart.problems!r:.60} problems"
    if not isinstance(chart.protocol, str) or len(chart.protocol) > _WORDS:
        return f"a protocol that is no text of at most {_WORDS} characters"
    most = _ROWS if chart.dial is not None else 1
    if not isinstance(chart.rows, tuple) or not 1 <= len(chart.rows) <= most:
        return f"not 1 to {most} rows"
    for row in chart.rows:
        if wrong := _wrong_row(row, chart.dial):
            return wrong
    for one, other in pairwise(chart.rows):
        if not one.budget < other.budget or one.cost > other.cost + _SLIP:
            return f"budgets and costs that don't rise, at {other.budget:g}"
        if one.price is not None and other.price is not None and one.price < other.price:
            return f"prices that rise with the budget, at {other.budget:g}"
    return ""


def _wrong_row(row: object, dial: Dial | None) -> str:
    if not isinstance(row, Row):
        return f"row {row!r:.60}"
    most = 1.0 if dial == "threshold" else 1e12
    bounds = {
        "budget": (1, _SAMPLES),
        "price": (0, most),
        "cost": (1 - _SLIP, _SAMPLES),
        "waves": (1 - _SLIP, _SAMPLES),
        "agreement": (0, 1),
        "deviation": (0, 1),
        "stays": (0, 1),
        "accuracy": (0, 1),
        "uniform": (1 - _SLIP, _SAMPLES),
    }
    for name, (low, high) in bounds.items():
        value = getattr(row, name)
        if value is None and (name in ("accuracy", "uniform") or (name == "price" and dial is None)):
            continue
        number = type(value) in (int, float) and (name != "price" or dial is not None)
        if not number or not low <= value <= high:
            return f"{name} {value!r:.60} in a row"
    return ""
