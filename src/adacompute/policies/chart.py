"""Measurements of a policy at each budget, stored as chart.json next to the policy.

The gateway takes its first prices, the expected agreement and the savings from the chart. chart.json contains
its policy's hash and its own hash, so a damaged chart or one of another policy is refused.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adacompute.errors import BudgetInvalid, PolicyError, PolicyInvalid
from adacompute.policies.artefact import (
    CHART_FILE,
    check_folder,
    compute_digest,
    parse_document,
    publish_beside,
    read_artefact,
    read_content,
    read_hash,
)
from adacompute.policies.base import Dial
from adacompute.policies.quality import MARGIN, Quality, QualityCost, QualityCurve, choose_curve
from adacompute.pool.ballots import count_calls

SCHEMA, VERSION = "adacompute.chart", 3
MAX_CHART_BYTES = 1 << 20  # most bytes of chart.json

_MAX_ROWS = 64
_MAX_SAMPLES = 1_000_000  # most samples per request: more is probably a mistake
_MAX_TOKENS = 1e12  # most tokens: more is probably a mistake
_MAX_PROTOCOL = 1000  # most characters of the description of the measurement
_TOLERANCE = 1e-9
Samples = Annotated[float, Meta(ge=1 - _TOLERANCE, le=_MAX_SAMPLES)]
Share = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[float, Meta(ge=0, le=_MAX_TOKENS)]
Price = Annotated[float, Meta(ge=0, le=1e12)]
_MIN_PRICE = 1e-12  # lowest price of which a logarithm is taken
_DAY = r"\A([0-9]{4}-[0-9]{2}-[0-9]{2})?\Z"
_REMEDY = "fit again, or remove it"
_MAX_CURVES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    """Measurements of a policy at one average number of samples.

    `cost`, `waves` and `stays` are measured at `price`. The other numbers hold if the budget is met exactly,
    by mixing two prices.
    """

    budget: Samples  # requested average samples per request
    price: Price | None  # lowest price (or threshold) within the budget; None: it has neither
    cost: Samples  # mean samples per request
    waves: Samples  # mean rounds of calls per request
    stays: Share  # share of requests with the same answer as the vote over all recorded samples
    agreement: Share  # mean share of a vote's weight that the winner has
    deviation: Share  # standard deviation of `agreement` over requests
    accuracy: Share | None = None  # None if correctness is unknown
    # same number of samples for every request that would be as accurate; at most the number recorded
    uniform: Samples | None = None
    tokens: Tokens | None = None  # mean response tokens per request; None if not recorded
    rounds_p95: Samples | None = None  # 95th percentile of rounds of calls per request
    # shares of requests with more than 1, 2, 3, … samples; empty if not measured
    above: tuple[Share, ...] = ()

    def find_most(self, share: float) -> int | None:
        """Returns how many samples a share of the requests doesn't exceed; None if not measured.

        >>> ChartRow(budget=2, price=0.04, cost=2, waves=2, agreement=0.9, deviation=0.2, stays=0.9,
        ...     above=(0.4, 0.04, 0.0)).find_most(0.95)
        2
        """
        within = (number for number, above in enumerate(self.above, 1) if above <= 1 - share + _TOLERANCE)
        return next(within, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Measurements of a policy, one row per budget, in ascending order.

    >>> row = dict(waves=1.5, agreement=0.9, deviation=0.2, stays=0.9)
    >>> low = ChartRow(budget=2, price=0.04, cost=2, **row)
    >>> high = ChartRow(budget=4, price=0.01, cost=4, **row)
    >>> chart = Chart(dial="price", unit="samples", problems=300, protocol="replay", rows=(low, high))
    >>> round(chart.price_at(3), 6), chart.price_at(5)
    (0.02, None)
    """

    dial: Dial | None
    # unit of cost: the price is accuracy per sample, per token or per unit of money
    unit: Literal["samples", "tokens", "money"]
    problems: Annotated[int, Meta(ge=1, lt=2**53)]
    protocol: Annotated[str, Meta(max_length=_MAX_PROTOCOL)]  # how it was measured, in words
    rows: tuple[ChartRow, ...]
    prompt_tokens: Tokens | None = None  # mean number of tokens of a prompt; None if unknown
    # most samples per call to the model; each call pays for the prompt once; None if unknown
    choices: Annotated[int, Meta(ge=1, le=_MAX_SAMPLES)] | None = None
    qualities: tuple[QualityCurve, ...] = ()  # comparisons with fixed numbers of samples on unseen problems
    basis: Literal["accuracy", "agreement"] = "accuracy"  # what `qualities` compares
    cost_unit: Literal["samples", "tokens", "money", "cost"] = "samples"  # unit of costs in `qualities`
    currency: str = ""  # currency if `cost_unit` is money
    measured: Annotated[str, Meta(pattern=_DAY)] = ""  # day of the measurement, e.g. 2026-11-18

    def __post_init__(self) -> None:
        if fault := _find_fault(self):
            raise PolicyError(f"invalid chart: {fault}")

    def price_at(self, budget: float) -> float | None:
        """Returns the price or threshold for an average number of samples; None if it wasn't measured."""
        row = self.row_at(budget)
        return None if row is None else row.price

    def find_quality(self, quality: Quality, margin: float = MARGIN) -> QualityCost:
        """Finds the average cost for a quality; raises BudgetInvalid if the quality wasn't reached."""
        curve = choose_curve(self.qualities, quality)
        found = curve.find_cost(quality, problems=self.problems, margin=margin)
        return replace(
            found,
            basis=self.basis,
            measured=self.measured,
            unit=self.cost_unit,
            currency=self.currency,
        )

    def sample_cost(self, target: float, price: Callable[[float, float], float]) -> float | None:
        """Estimates the cost of a sample, if a request costs about `target`, from recorded token counts.

        `price` returns the cost of some prompt and response tokens. None if token counts are unknown.
        """
        if self.prompt_tokens is None:
            return None
        calls = [float(count_calls(row.cost, self.choices, row.waves)) for row in self.rows]
        costs = [
            (price(self.prompt_tokens * count, row.tokens), row.cost)
            for row, count in zip(self.rows, calls, strict=True)
            if row.tokens is not None
        ]
        nearest = min(costs, key=lambda pair: abs(pair[0] - target), default=None)
        return None if nearest is None else nearest[0] / nearest[1]

    def row_at(self, budget: float) -> ChartRow | None:
        """Returns the row at a budget, interpolated between two measured rows; None outside of them.

        A policy that has neither price nor threshold has one row, which is returned for any budget.
        """
        if self.dial is None:
            return self.rows[0] if self.rows else None
        for row in self.rows:
            if row.budget == budget:
                return row
        for lower, upper in pairwise(self.rows):
            if lower.budget < budget < upper.budget:
                return _interpolate(lower, upper, (budget - lower.budget) / (upper.budget - lower.budget))
        return None


def write_chart(folder: str | Path, chart: Chart) -> None:
    """Writes the chart to its policy's folder; raises PolicyError if another policy was saved there."""
    path = check_folder(folder)
    policy = read_hash(path)
    document: dict[str, Any] = {"schema": SCHEMA, "version": VERSION, "policy": policy, **asdict(chart)}
    try:
        msgspec.convert(document, Chart)
    except msgspec.ValidationError as exc:
        raise PolicyError(f"invalid chart: {exc}") from exc
    document["sha256"] = compute_digest(document)
    text = (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
    if not publish_beside(path, CHART_FILE, text, is_current=lambda found: read_hash(found) == policy):
        raise PolicyError(f"{path}: another policy was saved there meanwhile; fit again")


def read_chart(folder: str | Path, *, policy: str) -> Chart | None:
    """Reads the chart of the policy with this hash; None if there is none; PolicyInvalid if it is damaged."""
    path = check_folder(folder) / CHART_FILE
    try:
        path.lstat()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise PolicyInvalid(f"{path}: can't be read: {exc}") from exc
    text = read_content(path, MAX_CHART_BYTES, remedy=_REMEDY)
    document = parse_document(text, path, SCHEMA, VERSION, remedy=_REMEDY, foreign=_REMEDY)
    if document.get("policy") != policy:
        raise PolicyInvalid(f"{path}: is of another policy than the one beside it; {_REMEDY}")
    try:
        return msgspec.convert(document, Chart)
    except (PolicyError, msgspec.ValidationError) as exc:
        raise PolicyInvalid(f"{path}: {exc}; {_REMEDY}") from exc


def find_quality_cost(quality: str, folder: str, *, margin: float = MARGIN) -> QualityCost:
    """Finds the average cost for a quality, from the chart of the policy in a folder."""
    wanted = Quality.parse(quality)
    chart = read_chart(folder, policy=read_artefact(Path(folder)).sha256) if folder else None
    if chart is None:
        raise BudgetInvalid(
            f"budget '{wanted}' needs a policy that was measured: give the folder of one that was fitted on "
            f"your own recorded samples, `adacompute fit POOL --budget '{wanted}'`"
        )
    return chart.find_quality(wanted, margin)


def _interpolate(lower: ChartRow, upper: ChartRow, share: float) -> ChartRow:
    """Interpolates between two rows: a share of 0 gives `lower`, 1 gives `upper`."""

    def mean(a: Any, b: Any) -> Any:  # noqa: ANN401 - a number, several or none
        if isinstance(a, tuple):
            return tuple(map(mean, a, b))
        return None if a is None or b is None else (1 - share) * a + share * b

    values = {
        field.name: mean(getattr(lower, field.name), getattr(upper, field.name)) for field in fields(ChartRow)
    }
    if lower.price is not None and upper.price is not None:
        low, high = (math.log(max(_MIN_PRICE, price)) for price in (lower.price, upper.price))
        values["price"] = math.exp((1 - share) * low + share * high)
    return ChartRow(**values)


def _find_fault(chart: Chart) -> str:
    """Describes which parts of a chart don't fit together; "" if all do. `write_chart` checks each part."""
    max_rows = _MAX_ROWS if chart.dial is not None else 1
    fewest = 1 if chart.cost_unit == "samples" else 0  # charts of policies over several modes have no rows
    if not fewest <= len(chart.rows) <= max_rows:
        return f"not {fewest} to {max_rows} rows"
    for row in chart.rows:
        beyond = chart.dial == "threshold" and (row.price or 0) > 1
        if (row.price is None) != (chart.dial is None) or beyond:
            return f"price {row.price!r:.60} in a row"
    if len(chart.qualities) > _MAX_CURVES or not all(curve.is_sound for curve in chart.qualities):
        return "qualities whose numbers don't fit together"
    for lower, upper in pairwise(chart.rows):
        if not lower.budget < upper.budget or lower.cost > upper.cost + _TOLERANCE:
            return f"budgets and costs that don't rise, at {upper.budget:g}"
        if lower.price is not None and upper.price is not None and lower.price < upper.price:
            return f"prices that rise with the budget, at {upper.budget:g}"
    return ""
