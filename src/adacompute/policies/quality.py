"""Budgets given as a quality: "as good as 8", "as good as large x 4", "within 1 point of 16".

A quality is converted to an average cost. The policy's chart has measurements at several average costs, on
problems that the policy wasn't fitted on. The result is the lowest of these costs such that the policy
reached the quality there and at all higher costs.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Self

from adacompute.errors import BudgetInvalid, format_value
from adacompute.records import format_points

# A policy is "as good as" its rival if its measured accuracy isn't lower, and the 95% interval of the
# difference contains no loss larger than this.
MARGIN: Final = 0.01

_QUALITY = re.compile(
    r"(?:as good as|within\s+(?P<points>\d+(?:\.\d+)?)\s+points?\s+of)\s+(?P<rival>\S.*)", re.I
)
_RIVAL = re.compile(r"(?:(?P<mode>.*\S)\s+[x×*]\s*)?(?P<samples>\d{1,4})(?:\s+samples?)?|(?P<lone>.+)", re.I)
_EXAMPLES = "give e.g. 'as good as 8', 'as good as large x 4' or 'within 1 point of 16'"
_BASES = {"accuracy": "", "agreement": " of agreement with the other half's vote"}
# an error message suggests measuring on more problems if fewer than 100 times as many may be enough
_MOST_NEEDED = 100


@dataclass(frozen=True, slots=True)
class Quality:
    """How good a policy should be, compared with a fixed number of samples of one mode for every request.

    >>> Quality.parse("as good as large x 4")
    Quality(samples=4, mode='large', within=None)
    >>> Quality.parse("within 0.5 points of 16"), Quality.parse("as good as large").samples
    (Quality(samples=16, mode=None, within=0.005), 1)
    """

    samples: int
    mode: str | None = None  # mode to compare with; None if there is only one mode
    within: float | None = None  # largest loss of accuracy allowed in the 95% interval; None for "as good as"

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _QUALITY.fullmatch(text.strip())
        if match is None:
            raise BudgetInvalid(f"budget {format_value(text)} names no quality; {_EXAMPLES}")
        rival = _RIVAL.fullmatch(match["rival"].strip())
        if rival is None or rival["samples"] == "0":
            raise BudgetInvalid(f"budget {format_value(text)} doesn't say what to compare with; {_EXAMPLES}")
        within = None if match["points"] is None else float(match["points"]) / 100
        return cls(int(rival["samples"] or 1), rival["mode"] or rival["lone"], within)

    @property
    def rival(self) -> str:
        """What the policy is compared with, e.g. "16" or "large x 4"."""
        if self.mode is None:
            return str(self.samples)
        return self.mode if self.samples == 1 else f"{self.mode} x {self.samples}"

    def __str__(self) -> str:
        if self.within is None:
            return f"as good as {self.rival}"
        points = f"{100 * self.within:g}"
        return f"within {points} point{'' if points == '1' else 's'} of {self.rival}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCurve:
    """How much better a policy is than a fixed number of samples (its rival), at several average costs.

    Both were measured on problems that the policy wasn't fitted on.
    """

    samples: int  # the rival's number of samples for every request
    mode: str | None = None
    rival_cost: float  # the rival's mean cost per request
    accuracy: float  # the rival's accuracy
    costs: tuple[float, ...]  # mean costs per request at which the policy was measured, ascending
    gains: tuple[float, ...]  # at each cost, the policy's accuracy minus the rival's
    lows: tuple[float, ...]  # lower end of the 95% interval of each gain

    @property
    def is_sound(self) -> bool:
        """Whether the numbers are finite, complete and consistent."""
        costs = self.costs
        return (
            0 < len(costs) == len(self.gains) == len(self.lows)
            and all(map(math.isfinite, (*costs, *self.gains, *self.lows, self.accuracy)))
            and all(low < high for low, high in pairwise((0.0, *costs)))
            and self.samples >= 1
            and 0 < self.rival_cost < math.inf
        )

    def find_cost(self, quality: Quality, *, problems: int, margin: float = MARGIN) -> "QualityCost":
        """Finds the lowest cost such that the quality was reached there and at all higher costs.

        Raises BudgetInvalid if there is no such cost.
        """
        if quality.within is None:
            good = [gain >= 0 and low >= -margin for gain, low in zip(self.gains, self.lows, strict=True)]
        else:
            good = [low >= -quality.within for low in self.lows]
        place = len(good)
        while place and good[place - 1]:
            place -= 1
        if place == len(good):
            raise BudgetInvalid(self._explain_miss(quality, problems, margin))
        return QualityCost(
            quality=quality,
            cost=self.costs[place],
            gain=self.gains[place],
            low=self.lows[place],
            rival_cost=self.rival_cost,
            margin=margin if quality.within is None else quality.within,
            problems=problems,
        )

    def _explain_miss(self, quality: Quality, problems: int, margin: float) -> str:
        gain, low = self.gains[-1], self.lows[-1]
        allowed = -margin if quality.within is None else -quality.within
        measured = (
            f"at {self.costs[-1]:.3g} on average, the most that was measured, the policy gains "
            f"{format_points(gain)} points on {problems:,} problems, at the lower end of the 95% interval "
            f"{format_points(low)}"
        )
        if gain <= allowed or (quality.within is None and gain < 0):
            return f"budget '{quality}' isn't reached: {measured}; ask for less"
        times = ((gain - low) / (gain - allowed)) ** 2
        more = math.ceil(problems * (times - 1))
        needed = f"about {more:,} more problems may show it" if times < _MOST_NEEDED else "ask for less"
        least = f"{math.ceil(-1000 * low) / 10:g}"
        wider = f"--margin {least}" if quality.within is None else f"'within {least} points of …'"
        return f"budget '{quality}' can't be shown to be reached: {measured}; {needed}, or give {wider}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCost:
    """The average cost at which a policy reached a quality when it was measured."""

    quality: Quality
    cost: float  # the policy's mean cost per request
    gain: float  # the policy's accuracy minus the rival's
    low: float  # lower end of the gain's 95% interval
    rival_cost: float
    margin: float  # how far below zero `low` was allowed to be
    problems: int
    basis: str = "accuracy"  # "agreement" (with the other half's vote) if there were no grades
    measured: str = ""  # day of the measurement; "" if unknown
    unit: str = "samples"  # unit of `cost` and `rival_cost`
    currency: str = ""

    @property
    def saved(self) -> float:
        """The share of `rival_cost` that the policy saves; negative if it costs more."""
        return 1 - self.cost / self.rival_cost

    @property
    def budget(self) -> str:
        """The average cost as a budget, such as "2.5 samples". Raises BudgetInvalid if costs lack a unit."""
        if self.unit == "cost":
            raise BudgetInvalid(
                f"budget '{self.quality}' was measured in costs that were given as numbers; to serve it in "
                "money, fit the policy with --prices FILE"
            )
        return f"{self.cost:.10g} {self.currency or self.unit}"

    def __str__(self) -> str:
        many = 1000 if self.unit == "money" else 1  # money is shown per 1,000 requests
        unit = {"money": f" {self.currency} per 1,000 requests", "tokens": " tokens"}.get(self.unit, "")
        change = f"{self.saved:.0%} less" if self.saved >= 0 else f"{-self.saved:.0%} more"
        return (
            f"{self.quality}: {many * self.cost:.3g} on average for {many * self.rival_cost:.3g}{unit}, "
            f"{change}; "
            f"{format_points(self.gain)} points{_BASES[self.basis]}, at least {format_points(self.low)} "
            f"(95%), on {self.problems:,} problems that it hadn't learned from"
            + (f", measured {self.measured}" if self.measured else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        names = ("cost", "rival_cost", "unit", "currency", "saved", "gain", "low", "margin", "problems")
        values = {name: getattr(self, name) for name in (*names, "basis", "measured")}
        return {"quality": str(self.quality), **values}


def check_mode(quality: Quality, names: Sequence[str]) -> None:
    """Raises BudgetInvalid unless the quality names one of several modes; a single one must stay unnamed."""
    if len(names) < 2 and quality.mode is not None:
        raise BudgetInvalid(f"budget '{quality}' names a mode, but there is only one; give 'as good as 8'")
    if len(names) > 1 and quality.mode not in names:
        example = replace(quality, mode=names[-1])
        raise BudgetInvalid(f"budget '{quality}' names no mode of {', '.join(names)}; give '{example}'")


def choose_curve(curves: Sequence[QualityCurve], quality: Quality) -> QualityCurve:
    """Finds the curve that compares the policy with the rival in `quality`.

    If there is none, raises BudgetInvalid with a message that lists the rivals that were measured.
    """
    if not curves:
        raise BudgetInvalid(
            f"budget '{quality}' can't be found: nothing was measured with this policy; fit it with its "
            "verdict, on 30 problems or more"
        )
    for curve in curves:
        if (curve.samples, curve.mode) == (quality.samples, quality.mode):
            return curve
    known = [Quality(curve.samples, curve.mode).rival for curve in curves]
    raise BudgetInvalid(f"budget '{quality}': that wasn't measured; give one of {', '.join(known)}")
