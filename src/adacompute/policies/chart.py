"""Measurements of a policy at each budget, stored as chart.json next to the policy.

The gateway takes from the chart its initial prices, the savings that it reports, and how much a request's
votes usually agree. chart.json contains a hash of its policy and one of its own content, so a damaged chart,
or one that belongs to another policy, is refused.
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
MAX_CHART_BYTES = 1 << 20  # maximum size of chart.json, in bytes

_MAX_ROWS = 64
_MAX_SAMPLES = 1_000_000  # maximum number of samples per request; more is probably a mistake
_MAX_TOKENS = 1e12  # maximum number of tokens; more is probably a mistake
_MAX_PROTOCOL = 1000  # maximum length of the description of the measurement, in characters
_TOLERANCE = 1e-9
Samples = Annotated[float, Meta(ge=1 - _TOLERANCE, le=_MAX_SAMPLES)]
Share = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[float, Meta(ge=0, le=_MAX_TOKENS)]
Price = Annotated[float, Meta(ge=0, le=1e12)]
_MIN_PRICE = 1e-12  # lower prices are raised to this before taking the logarithm
_DAY = r"\A([0-9]{4}-[0-9]{2}-[0-9]{2})?\Z"
_REMEDY = "fit again, or remove it"
_MAX_CURVES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    """Measurements of a policy at one average number of samples.

    `agreement`, `deviation`, `accuracy` and `uniform` are for an average cost of exactly `budget`, reached by
    mixing two prices. The other numbers are measured at `price`.
    """

    budget: Samples  # average number of samples per request that the policy was allowed to draw
    price: Price | None  # lowest price or threshold that meets the budget; None if the policy has neither
    cost: Samples  # mean number of samples per request
    waves: Samples  # mean number of rounds of model calls per request
    stays: Share  # share of requests with the same answer as a vote over all samples recorded for the problem
    agreement: Share  # winner's share of the total weight of votes, averaged over requests
    deviation: Share  # standard deviation, over requests, of the winner's share
    accuracy: Share | None = None  # share of correct answers; None if it isn't known which are correct
    # number of samples per request at which uniform sampling is as accurate; at most the number recorded
    uniform: Samples | None = None
    tokens: Tokens | None = None  # mean number of response tokens per request; None if not recorded
    rounds_p95: Samples | None = None  # 95th percentile of the number of rounds of model calls per request
    # shares of requests with more than 1, 2, 3, … samples; empty if not measured
    above: tuple[Share, ...] = ()

    def find_most(self, share: float) -> int | None:
        """Returns the smallest n such that `share` of requests draw at most n samples; None if not measured.

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
    # unit of cost; a price is the gain in accuracy that one such unit of cost has to buy
    unit: Literal["samples", "tokens", "money"]
    problems: Annotated[int, Meta(ge=1, lt=2**53)]
    protocol: Annotated[str, Meta(max_length=_MAX_PROTOCOL)]  # describes how the policy was measured
    rows: tuple[ChartRow, ...]
    prompt_tokens: Tokens | None = None  # mean number of tokens of a prompt; None if unknown
    # maximum number of samples per call to the model (each call pays for the prompt once); None if unknown
    choices: Annotated[int, Meta(ge=1, le=_MAX_SAMPLES)] | None = None
    # comparisons with fixed numbers of samples per request, on problems that the policy wasn't fitted on
    qualities: tuple[QualityCurve, ...] = ()
    basis: Literal["accuracy", "agreement"] = "accuracy"  # what is compared in `qualities`
    cost_unit: Literal["samples", "tokens", "money", "cost"] = "samples"  # unit of costs in `qualities`
    currency: str = ""  # currency if `cost_unit` is money
    measured: Annotated[str, Meta(pattern=_DAY)] = ""  # day of the measurement, e.g. 2026-11-18

    def __post_init__(self) -> None:
        if fault := _find_fault(self):
            raise PolicyError(f"invalid chart: {fault}")

    def price_at(self, budget: float) -> float | None:
        """Returns the price or threshold that gives an average number of samples; None if not measured."""
        row = self.row_at(budget)
        return None if row is None else row.price

    def find_quality(self, quality: Quality, margin: float = MARGIN) -> QualityCost:
        """Finds the average cost at which the policy reached a quality, such as "as good as 8".

        Raises BudgetInvalid if the policy didn't reach the quality, or if this wasn't measured.
        """
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
        """Estimates the cost of a sample if a request costs about `target`; None if tokens weren't recorded.

        `price(prompt_tokens, response_tokens)` returns the cost of these numbers of tokens.
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
        """Returns the row for a budget, interpolated between measured rows; None outside their range.

        A policy without a price or threshold has one row, which is returned for any budget.
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
    """Reads the chart in the folder of the policy with the hash `policy`; None if there is no chart.

    Raises PolicyInvalid if the chart is damaged, or belongs to another policy.
    """
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
    """Finds, in a policy's chart, the average cost at which it reached a quality, such as "as good as 8".

    Raises BudgetInvalid if the policy didn't reach the quality, or if its folder has no chart.
    """
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
    """Describes a contradiction between fields of a chart; "" if there is none.

    The types and ranges of single fields aren't checked.
    """
    max_rows = _MAX_ROWS if chart.dial is not None else 1
    # a chart needs no rows if its costs aren't in samples, e.g. for a policy over several modes
    fewest = 1 if chart.cost_unit == "samples" else 0
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
