"""Rules among which a policy over several modes chooses by price.

A rule decides which mode a request draws from next, or that it stops. It is a table of learned decisions
(`LatticeRule`), a cascade of two modes, a stopping rule for a single mode, or a choice among such rules by
the prompt (`RoutedRule`). The policy keeps the rules on the upper hull of mean cost and accuracy, so at every
price it is as good as the best rule.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from adacompute.errors import PolicyError
from adacompute.policies.base import MAX_SAMPLES, Criterion, check_number
from adacompute.policies.modes.lattice import STOP, Actions, Lattice, average_paths
from adacompute.policies.votes import Floats, Ints, VotesByMode
from adacompute.solve.hull import find_hull

Count = Annotated[int, Meta(ge=0, le=MAX_SAMPLES)]

_CASCADE_DEAR = 6  # maximum number of samples of a cascade's second mode
_AGREEMENTS = (1, 2, 3, 4)  # numbers of equal answers from its second mode that can end a cascade
# Cascades that need no training: (maximum number of samples of a mode, number of equal answers that end the
# cascade, number of samples of the next more expensive mode if fewer answers are equal). _PLAIN_DEAR is for
# the most expensive mode, _PLAIN_CHEAP for all others.
_PLAIN_CHEAP = ((4, 1, 1), (5, 3, 0), (2, 2, 1), (3, 3, 1), (4, 4, 1))
_PLAIN_DEAR = ((1, 1, 0), (3, 2, 0), (5, 3, 0), (7, 4, 0))
# (maximum number of samples of a mode, number of equal answers that end the cascade) -> (mean number of
# samples drawn, share of requests with fewer equal answers); rough means over recorded modes
_GUESSED_ENDS = {
    (1, 1): (1.0, 0.03),
    (2, 2): (2.0, 0.55),
    (3, 2): (2.4, 0.2),
    (3, 3): (3.0, 0.65),
    (4, 1): (1.05, 0.002),
    (4, 4): (4.0, 0.7),
    (5, 3): (3.9, 0.3),
    (7, 4): (5.2, 0.25),
}
_STOPPING_PRICES = np.geomspace(0.0015, 0.4, 24)  # prices per sample at which stopping rules are measured
_CONFIDENCE_SHARES = np.linspace(0, 1, 25)  # shares of requests that ask both modes, one per `ConfidenceRule`
_DOUBT = 1.0  # number of standard errors by which a rule's gain over simpler rules is reduced
# The cheapest rule's price is the gain in accuracy per cost from it to the next rule, times this number. The
# most expensive rule's price is this gain from the rule before it, divided by this number.
_END_RATIO = 1.5
_LEAST_STEP = 0.01  # minimum relative difference in cost between cascades that need no training
# a single cheap sample is also a rule if every cascade costs more than 1.5 times as much
_FAR_ABOVE = 1.5
# a cascade that needs several equal answers isn't used if its cheap samples cost more than this share of a
# sample of the next mode
_CHEAP_SHARE = 0.125


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateInputs:
    """The inputs from which a rule decides for several requests."""

    votes: VotesByMode
    # logarithm of the highest price at which another sample of a mode pays, NaN before the mode's first
    # sample; shape (requests, modes)
    critical: Floats
    leaf: Ints | None  # for each request, the index of its decision in `LatticeRule.actions`; None if unused
    # for `RoutedRule`, predicted from each prompt: the values of its rules, then their costs;
    # shape (requests, 2 * rules); None if unused
    forecast: Floats | None = None

    def select(self, rows: np.ndarray[Any, Any]) -> "StateInputs":
        """Returns the inputs of some of the requests."""
        return StateInputs(
            votes=self.votes.select(rows),
            critical=self.critical[rows],
            leaf=None if self.leaf is None else self.leaf[rows],
            forecast=None if self.forecast is None else self.forecast[rows],
        )


class _PlainRule(msgspec.Struct, frozen=True, tag_field="rule", forbid_unknown_fields=True):
    """Base class of rules that consist of a few numbers, which are stored in policy.json."""


@dataclass(frozen=True, slots=True, eq=False)
class LatticeRule:
    """Learned decisions for every group of states (leaf), at one price."""

    actions: Actions = field(repr=False)  # for each leaf, the mode to draw from; -1 means stop

    def decide(self, inputs: StateInputs) -> Ints:
        """Returns the index of the mode that each request draws from; -1 means stop."""
        assert inputs.leaf is not None
        return self.actions[inputs.leaf].astype(np.int64)

    def find_criterion(self, inputs: StateInputs, names: Sequence[str]) -> Criterion | None:  # noqa: ARG002
        """Returns None, because a decision learned for a group of states doesn't compare two numbers."""
        return None


class StoppingRule(_PlainRule, frozen=True, tag="stopping"):
    """Draws from one mode as long as the next sample is worth more than `price`."""

    mode: Count
    price: Annotated[float, Meta(ge=0)]
    longest: Annotated[int, Meta(ge=1, le=MAX_SAMPLES)]  # maximum number of samples per request

    def decide(self, inputs: StateInputs) -> Ints:
        """Returns the index of the mode that each request draws from; -1 means stop."""
        drawn = inputs.votes.drawn[:, self.mode]
        log = math.log(self.price) if self.price > 0 else -math.inf
        goes_on = (drawn == 0) | (np.nan_to_num(inputs.critical[:, self.mode]) > log)
        return np.where(goes_on & (drawn < self.longest), self.mode, STOP)

    def find_criterion(self, inputs: StateInputs, names: Sequence[str]) -> Criterion | None:  # noqa: ARG002
        """Returns what the next sample of a request is worth, and its price; None before the first sample."""
        worth = float(np.exp(inputs.critical[0, self.mode]))
        return None if math.isnan(worth) else Criterion("worth", worth, self.price)


class CascadeRule(_PlainRule, frozen=True, tag="cascade"):
    """Draws from one mode until enough answers are equal; if too few are, does the same with a costlier mode.

    A vote over both modes decides the final answer. If `draws[0]` is 0, only the second mode is used.
    """

    modes: tuple[Count, Count]
    draws: tuple[Count, Count]  # maximum number of samples of each mode
    agree: tuple[Count, Count]  # for each mode, how many equal answers are enough

    def decide(self, inputs: StateInputs) -> Ints:
        """Returns the index of the mode that each request draws from; -1 means stop."""
        (cheap, dear), votes = self.modes, inputs.votes
        cheap_agrees = votes.count_first(cheap) >= self.agree[0]
        dear_agrees = votes.count_first(dear) >= self.agree[1]
        in_second = (votes.drawn[:, dear] > 0) | (
            (votes.drawn[:, cheap] >= self.draws[0]) & ~(cheap_agrees & (self.draws[0] > 0))
        )
        second = np.where(dear_agrees | (votes.drawn[:, dear] >= self.draws[1]), STOP, dear)
        return np.where(in_second, second, np.where(cheap_agrees, STOP, cheap))

    def find_criterion(self, inputs: StateInputs, names: Sequence[str]) -> Criterion:
        """Returns how many equal answers the current mode has given to a request, and how many it needs."""
        second = int(inputs.votes.drawn[0, self.modes[1]] > 0 or self.draws[0] == 0)
        mode = self.modes[second]
        agree = float(inputs.votes.count_first(mode)[0])
        return Criterion("agreement", agree, float(self.agree[second]), names[mode])


class ConfidenceRule(_PlainRule, frozen=True, tag="confidence"):
    """Draws a sample of one mode, and of a more expensive one if the first vote weighs less than `least`.

    A vote weighs less if the model is less confident. A vote over both modes decides the final answer.
    """

    modes: tuple[Count, Count]
    least: Annotated[int, Meta(ge=0)]  # minimum weight of a confident vote, in units of 2^-36

    def decide(self, inputs: StateInputs) -> Ints:
        """Returns the index of the mode that each request draws from; -1 means stop."""
        (cheap, dear), votes = self.modes, inputs.votes
        ends = (votes.drawn[:, dear] > 0) | (votes.weights[:, cheap].sum(axis=1) >= self.least)
        return np.where(votes.drawn[:, cheap] == 0, cheap, np.where(ends, STOP, dear))

    def find_criterion(self, inputs: StateInputs, names: Sequence[str]) -> Criterion | None:  # noqa: ARG002
        """Returns None, because the weight of a vote, by which this rule decides, tells users little."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class RoutedRule:
    """Follows, for each prompt, the rule with the highest value minus `price` times cost, as predicted."""

    price: float
    rules: "tuple[Rule, ...]" = field(repr=False)

    def choose(self, forecast: Floats) -> Ints:
        """Returns the index of the rule that each request follows."""
        worth, cost = forecast[:, : len(self.rules)], forecast[:, len(self.rules) :]
        return np.asarray((worth - self.price * cost).argmax(axis=1))

    def decide(self, inputs: StateInputs) -> Ints:
        """Returns the index of the mode that each request draws from; -1 means stop."""
        assert inputs.forecast is not None
        rules, chosen = self.choose(inputs.forecast), np.full(len(inputs.votes), STOP, dtype=np.int64)
        for number in np.unique(rules):
            rows = rules == number
            chosen[rows] = self.rules[number].decide(inputs.select(rows))
        return chosen

    def find_criterion(self, inputs: StateInputs, names: Sequence[str]) -> Criterion | None:
        """Returns the criterion of the rule that the request follows."""
        assert inputs.forecast is not None
        return self.rules[int(self.choose(inputs.forecast)[0])].find_criterion(inputs, names)


Rule = LatticeRule | StoppingRule | CascadeRule | ConfidenceRule | RoutedRule


def dump_rule(rule: Rule) -> dict[str, Any]:
    """Converts a rule to plain data for JSON, without a lattice rule's `actions` or a router's rules."""
    if isinstance(rule, LatticeRule):
        return {"rule": "lattice"}
    if isinstance(rule, RoutedRule):
        return {"rule": "routed", "price": rule.price}
    return dict(msgspec.to_builtins(rule))


def load_rule(
    stored: object, *, modes: int, actions: Iterator[Actions], routed: tuple[Rule, ...] | None = None
) -> Rule:
    """Restores a rule from the result of `dump_rule`, stored `actions` and a router's rules (`routed`)."""
    values = stored if isinstance(stored, Mapping) else {}
    kind = values.get("rule")
    if kind == "lattice" and (own := next(actions, None)) is not None:
        return LatticeRule(own)
    if kind == "routed" and routed:
        return RoutedRule(check_number("price", values.get("price"), low=0), routed)
    try:
        rule = msgspec.convert(stored, StoppingRule | CascadeRule | ConfidenceRule)
    except msgspec.ValidationError as exc:
        raise PolicyError(f"rule {stored!r} of a policy can't be read: {exc}") from exc
    named = (rule.mode,) if isinstance(rule, StoppingRule) else rule.modes
    if max(named) >= modes or len(set(named)) < len(named):
        raise PolicyError(f"rule {stored!r} of a policy needs other modes than it has")
    return rule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RulePoint:
    """A rule with its mean cost and value on each recorded problem."""

    rule: Rule
    cost: Floats  # for each problem, the mean cost of a request
    worth: Floats  # for each problem, the mean value of the answer
    doubt: float = 0.0  # how much lower the mean value is expected to be on other problems
    # Mean cost of `rule` on all problems; None if it is the mean of `cost`. The two differ if `cost` was
    # measured, on each problem, with a rule learned without this problem (cross-fitting).
    full_cost: float | None = None

    @property
    def mean_cost(self) -> float:
        """The mean cost per request."""
        return float(self.cost.mean())

    @property
    def rule_cost(self) -> float:
        """The mean cost per request of `rule` itself, even if `cost` is that of cross-fitted rules."""
        return self.mean_cost if self.full_cost is None else self.full_cost

    @property
    def likely_worth(self) -> float:
        """The mean value of a request's answer that is expected on other problems."""
        return float(self.worth.mean()) - self.doubt


def _list_stopping_points(
    mode: int, critical: Floats, worth: Floats, cost: float, prices: Sequence[float], *, problems: int
) -> list[RulePoint]:
    """Measures rules that draw from one mode until the next sample isn't worth the price; one rule per price.

    `critical` has logarithms of the highest price at which another sample pays; `worth` has the leading
    answer's value. Both have a row for 0, 1, … draws, and a column for each random order of samples.
    """
    longest = len(worth) - 1
    paths = np.arange(worth.shape[1])
    points = []
    for price in prices:
        goes_on = critical[1:longest] > math.log(price)  # whether drawing continues after 1, 2, … draws
        drawn = 1 + np.cumprod(goes_on, axis=0).sum(axis=0)
        points.append(
            RulePoint(
                rule=StoppingRule(mode, float(price), longest),
                cost=average_paths(drawn * cost, problems),
                worth=average_paths(worth[drawn, paths], problems),
            )
        )
    return points


def list_honest_points(
    mode: int,
    critical: Floats,
    prior_critical: Floats,
    worth: Floats,
    cost: float,
    *,
    problems: int,
    believed: float,
) -> list[RulePoint]:
    """Measures the rules of `_list_stopping_points`; sets `doubt`, as values are lower on other problems.

    `critical` comes from a model trained on these problems, `prior_critical` from a prior that wasn't. Only a
    share (`believed`) of the model's gain over the prior is expected on other problems.
    """
    prices = _STOPPING_PRICES.tolist()
    own = _list_stopping_points(mode, critical, worth, cost, prices, problems=problems)
    of_prior = _list_stopping_points(mode, prior_critical, worth, cost, prices, problems=problems)[::-1]
    unseen = np.interp(
        [point.mean_cost for point in own],
        [point.mean_cost for point in of_prior],  # ascending, as `np.interp` requires
        [point.likely_worth for point in of_prior],
    )
    return [
        replace(point, doubt=(1 - believed) * (point.likely_worth - float(other)))
        for point, other in zip(own, unseen, strict=True)
    ]


def doubt_by_error(points: Sequence[RulePoint], simple: Sequence[RulePoint], groups: Ints) -> list[RulePoint]:
    """Raises each rule's `doubt` by one standard error of its gain over the best mix of the rules `simple`.

    The best of many rules looks better on these problems than it is on others, so it must gain more than this
    error to be preferred. `groups` has the index of each problem's group of similar problems.
    """
    corners = find_corners(simple)
    cost = np.array([point.mean_cost for point in corners])
    doubted = []
    for point in points:
        above = (
            int(np.clip(np.searchsorted(cost, point.mean_cost), 1, len(corners) - 1)) if len(cost) > 1 else 0
        )
        left, right = corners[max(0, above - 1)], corners[above]
        width = right.mean_cost - left.mean_cost
        share = float(np.clip((point.mean_cost - left.mean_cost) / width, 0, 1)) if width > 0 else 0.0
        price = (right.likely_worth - left.likely_worth) / width if width > 0 else 0.0
        gain = (
            point.worth
            - ((1 - share) * left.worth + share * right.worth)
            - price * (point.cost - ((1 - share) * left.cost + share * right.cost))
        )
        sums = np.bincount(groups, gain - gain.mean())
        error = math.sqrt(float((sums**2).sum())) / len(gain)
        doubted.append(replace(point, doubt=point.doubt + _DOUBT * error))
    return doubted


def find_corners(points: Sequence[RulePoint]) -> list[RulePoint]:
    """Returns the rules at the corners of the upper hull of cost and value, cheapest first."""
    cost = np.array([point.mean_cost for point in points])
    corners = [points[k] for k in find_hull(cost, np.array([point.likely_worth for point in points]))]
    rising = corners[:1]
    for point in corners[1:]:  # `mean_cost` rises; if `rule_cost` doesn't, the rule is left out
        if point.rule_cost > rising[-1].rule_cost:
            rising.append(point)
    return rising


def compute_corner_prices(cost: Floats, accuracy: Floats) -> Floats:
    """Computes, for each rule, the price at which all requests follow it; prices descend.

    The arguments have each rule's mean cost and accuracy, cheapest rule first. Raises PolicyError unless the
    rules are the corners of an upper hull of cost and accuracy.
    """
    if len(cost) == 1:
        return np.ones(1)
    slopes = np.diff(accuracy) / np.diff(cost)  # descending, because the points lie on a hull
    if not (np.isfinite(slopes).all() and (slopes > 0).all() and (np.diff(slopes) < 0).all()):
        raise PolicyError("the points of rules are not the corners of a hull")
    inner = np.sqrt(slopes[:-1] * slopes[1:])
    return np.concatenate([[slopes[0] * _END_RATIO], inner, [slopes[-1] / _END_RATIO]])


def list_cascade_points(lattice: Lattice, costs: Floats) -> list[RulePoint]:
    """Measures all cascades of two modes that ask the cheaper mode first."""
    points = []
    modes = len(lattice.caps)
    for cheap in range(modes):
        for dear in range(cheap + 1, modes):
            points += _list_pair_points(lattice, cheap, dear, costs)
    return points


def list_confidence_points(lattice: Lattice, weights: Sequence[Ints], costs: Floats) -> list[RulePoint]:
    """Measures rules that draw a cheap sample, and an expensive one if the cheap one's vote weighs little.

    `weights` has, for each mode, the weight of the first vote in each random order of samples. A mode whose
    weights are all equal gets no rules.
    """
    points = []
    for cheap, dear in itertools.combinations(range(len(costs)), 2):
        limits = np.unique(np.quantile(weights[cheap], _CONFIDENCE_SHARES, method="higher"))
        cell = lattice.strides[cheap]
        for least in limits[1:].tolist():
            unsure = weights[cheap] < least
            worth = np.where(unsure, lattice.worth[cell + lattice.strides[dear]], lattice.worth[cell])
            points.append(
                RulePoint(
                    rule=ConfidenceRule((cheap, dear), int(least)),
                    cost=average_paths(costs[cheap] + unsure * costs[dear], lattice.problems),
                    worth=average_paths(worth, lattice.problems),
                )
            )
    return points


def list_plain_cascades(
    costs: Floats, longest: Sequence[int], firsts: Sequence[Ints] | None = None
) -> tuple[tuple[Rule, ...], Floats]:
    """Lists cascades that need no training, cheapest first, and their expected costs per request.

    `_PLAIN_CHEAP` and `_PLAIN_DEAR` define the cascades. A cascade is left out if its cheap samples would
    cost much, or if it isn't cheaper than all later ones; those of expensive modes are last. `longest` has
    the maximum number of samples of each mode. `firsts` has, for each mode, the votes for its most common
    answer after 0, 1, … draws; shape (draws + 1, paths). If it is None, how often samples agree is guessed.
    """
    last, points = len(costs) - 1, list[tuple[float, Rule]]()
    for mode, most in enumerate(longest):
        cost, dearer = float(costs[mode]), float(costs[min(mode + 1, last)])
        modes = (mode, mode + 1) if mode < last else (last - 1, last)
        for allowed, agree, more in _PLAIN_CHEAP if mode < last else _PLAIN_DEAR:
            draws = min(allowed, most)
            if agree > draws:
                continue
            drawn, missed = _GUESSED_ENDS.get((draws, agree), _GUESSED_ENDS[allowed, agree])
            if firsts is not None:
                ends, agrees = _find_end(firsts[mode], draws, agree)
                drawn, missed = float(ends.mean()), 1 - float(agrees.mean())
            if mode == last:
                points.append((drawn * cost, CascadeRule(modes, (0, draws), (1, agree))))
            elif agree == 1 or drawn * cost <= _CHEAP_SHARE * dearer:
                expected = drawn * cost + missed * more * dearer
                points.append((expected, CascadeRule(modes, (draws, more), (agree, 1))))
    kept = points[-1:]
    for point in points[-2::-1]:
        if 0 < point[0] < (1 - _LEAST_STEP) * kept[0][0]:
            kept.insert(0, point)
    # Even rare expensive samples can be most of a cascade's mean cost. If so for the cheapest cascade, adds a
    # cheaper rule: one sample of the cheapest mode, and no others.
    if last and kept[0][0] > _FAR_ABOVE * float(costs[0]) > 0:
        kept.insert(0, (float(costs[0]), CascadeRule((0, 1), (1, 0), (1, 1))))
    return tuple(rule for _, rule in kept), np.array([expected for expected, _ in kept])


def _list_pair_points(lattice: Lattice, cheap: int, dear: int, costs: Floats) -> list[RulePoint]:
    strides, paths = lattice.strides, np.arange(lattice.worth.shape[1])
    cheap_first = lattice.first[np.arange(lattice.caps[cheap] + 1) * strides[cheap], :, cheap]
    dear_first = lattice.first[np.arange(lattice.caps[dear] + 1) * strides[dear], :, dear]
    most = min(lattice.caps[dear], _CASCADE_DEAR)
    points = []
    for draws in range(1, lattice.caps[cheap] + 1):
        for agree in range(1, draws + 1):
            ends, agrees = _find_end(cheap_first, draws, agree)
            for dear_draws in range(1, most + 1):
                for dear_agree in _AGREEMENTS:
                    if dear_agree > dear_draws:
                        continue
                    second = np.where(agrees, 0, _find_end(dear_first, dear_draws, dear_agree)[0])
                    worth = lattice.worth[ends * strides[cheap] + second * strides[dear], paths]
                    points.append(
                        RulePoint(
                            rule=CascadeRule((cheap, dear), (draws, dear_draws), (agree, dear_agree)),
                            cost=average_paths(ends * costs[cheap] + second * costs[dear], lattice.problems),
                            worth=average_paths(worth, lattice.problems),
                        )
                    )
    return points


def _find_end(first: np.ndarray[Any, Any], draws: int, agree: int) -> tuple[Ints, np.ndarray[Any, Any]]:
    """Returns how many samples of a mode a cascade draws, and whether enough of their answers are equal.

    Both results have one element per random order of samples (path). `first` has the votes for the mode's
    most common answer after 0, 1, … draws; shape (draws + 1, paths).
    """
    reached = first[1 : draws + 1] >= agree
    agrees = reached.any(axis=0)
    return np.where(agrees, reached.argmax(axis=0) + 1, draws), np.asarray(agrees)
