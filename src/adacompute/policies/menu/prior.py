"""The prior of menus: what to do with a cheap and a dear mode of which nothing is recorded.

It holds what a few dozen simple rules drew and were worth on recorded pairs of modes. Worth is agreement
with the vote of all samples of the dear mode, so no labels are needed. What a rule costs at any price ratio
follows from its draws, so the rules for a menu are chosen at its own ratio. Where nothing is known of its
modes, every recorded pair counts alike, and each mode is asked by its own stopping. Once samples of the
modes are known, two numbers tell their kind: then pairs of that kind count, and cascades may be used.
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Floats, Ints
from adacompute.policies.menu.rules import CascadeRule, Rule, StoppingRule, load_rule
from adacompute.policies.menu.votes import draw_menu_paths
from adacompute.policies.stopping.prior import fingerprint_prompts
from adacompute.pool.menu import Menu, MenuBallots
from adacompute.solve.hull import find_hull

__all__ = [
    "CHEAP_FACTOR",
    "PRIOR_LONGEST",
    "MenuPrior",
    "PairKind",
    "PriorRules",
    "RecordedPair",
    "limit_rule",
    "load_menu_prior",
    "measure_kind",
    "sketch_prompts",
]

CHEAP_FACTOR = 0.25  # of a cheap vote beside a dear one
PRIOR_LONGEST = (8, 12)  # samples of the cheap and of the dear mode, at most
_FILE = "prior.json"
_SKETCH = 24  # prompts of a recording that it is recognised by
_KIND_DRAWS = 4  # cheap samples whose vote is compared with a single one
_KIND_ORDERS = 8  # a problem
_MIN_PROBLEMS = 20  # with fewer the kind of a pair isn't measured
_GAIN_SCALE = 8.0  # of the gain of a vote, beside the log-odds of likeness
_WIDTH = 0.4  # distance of kinds that makes a pair count for less
_LEAST_WEIGHT = 1e-3  # beside 1: of a pair of quite another kind
_COUNTED = 0.01  # weight from which on a pair has to have rising costs
_CASCADE_RATIO = 25.0  # price ratio from which on cascades are used
_RETRY_RATIO = 5.0  # price ratio from which on a cheap sample without an answer is always drawn again
_RETRY = CascadeRule((0, 1), (4, 0), (1, 1))
_DOUBT = (0.0, 1.0)  # share of a rule's losses on pairs that count against it; with a known kind
_LEAST_STEP = 0.01  # share by which each rule counts as dearer than the one before
_SLOPE_STEP = 1.02  # by which the slope between two rules is above the next one
_TINY = 1e-9
_DIGITS = 10  # that are compared: the last bits of a processor decide nothing


class PairKind(NamedTuple):
    """What samples without labels tell about a cheap and a dear mode."""

    likeness: float  # how often a cheap sample gives the answer of the vote of all dear ones
    vote_gain: float  # how much more often the vote of four cheap samples does

    @property
    def place(self) -> Floats:
        """Coordinates, in which distances between kinds are measured, (2,)."""
        odds = (self.likeness + 0.02) / (1.02 - self.likeness)
        return np.array([math.log(odds), _GAIN_SCALE * self.vote_gain])


def measure_kind(ballots: MenuBallots, menu: Menu, weigh: VoteWeights | None) -> PairKind | None:
    """The kind of the pair of the first and the last mode; None where too little is recorded."""
    pair = ballots.select((ballots.modes[0], ballots.modes[-1]))
    least = [int(votes.drawn.min(initial=_KIND_DRAWS)) for votes in pair.ballots]
    if len(pair) < _MIN_PROBLEMS or min(least) < 1:
        return None
    modes = tuple(mode for mode in menu.modes if mode.name in pair.modes)
    paths = draw_menu_paths(
        pair,
        replace(menu, modes=modes),
        weigh=weigh,
        longest=(min(_KIND_DRAWS, least[0]), 1),
        orders=_KIND_ORDERS,
        rng=np.random.default_rng(0),
    )
    rows = np.arange(len(paths))
    shares = []
    for count in (1, paths.longest[0]):
        drawn = np.tile(np.array([count, 0]), (len(paths), 1))
        leaders = paths.votes_after(rows, drawn).find_leaders()[0]
        shares.append(float(paths.worth_of(rows, leaders, by_agreement=True).mean()))
    return PairKind(shares[0], shares[1] - shares[0])


def sketch_prompts(prompts: Sequence[str]) -> frozenset[int]:
    """The least fingerprints of these prompts: enough to recognise them, or a part of them."""
    return frozenset(np.unique(fingerprint_prompts(prompts))[:_SKETCH].tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedPair:
    """What every rule of the prior drew and was worth on one recorded pair of modes."""

    name: str
    kind: PairKind
    sketch: frozenset[int]  # of its prompts
    draws: Floats  # (rules, 2) mean samples of the cheap and of the dear mode
    worth: Floats  # (rules,) agreement with the vote of all samples of the dear mode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriorRules:
    """The rules for one menu, from the cheapest to the dearest."""

    rules: tuple[Rule, ...]
    cost: Floats  # (rules,) expected, rising
    worth: Floats  # (rules,) expected; its slopes fall


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MenuPrior:
    """Simple rules of a cheap mode (0) and a dear one (1), measured on recorded pairs."""

    rules: tuple[Rule, ...]
    pairs: tuple[RecordedPair, ...]

    def leave_out(self, prompts: Sequence[str]) -> "MenuPrior":
        """The prior without pairs that were recorded on any of these prompts; itself if none is left."""
        known = set(fingerprint_prompts(prompts).tolist())
        pairs = tuple(pair for pair in self.pairs if not pair.sketch & known)
        return replace(self, pairs=pairs) if pairs else self

    def choose(self, costs: tuple[float, float], kind: PairKind | None = None) -> PriorRules:
        """The rules for a cheap and a dear mode whose samples cost so much."""
        if costs[1] <= 0:  # all is free: the most samples of the dear mode
            best = int(np.argmax(np.mean([pair.draws[:, 1] for pair in self.pairs], axis=0)))
            return PriorRules(rules=(self.rules[best],), cost=np.zeros(1), worth=np.ones(1))
        unit = np.array([round(costs[0] / costs[1], _DIGITS), 1.0])
        weights = self._weigh_pairs(kind)
        cost = np.stack([pair.draws @ unit for pair in self.pairs])  # (pairs, rules)
        chain = self._choose_chain(cost, weights, ratio=math.inf if not unit[0] else 1 / unit[0], kind=kind)
        mean_worth = weights @ np.stack([pair.worth for pair in self.pairs])
        return PriorRules(
            rules=tuple(self.rules[k] for k in chain),
            **_make_concave((weights @ cost)[chain] * costs[1], mean_worth[chain]),
        )

    def _weigh_pairs(self, kind: PairKind | None) -> Floats:
        """How much each pair counts, (pairs,)."""
        if kind is None:
            return np.full(len(self.pairs), 1 / len(self.pairs))
        apart = np.stack([pair.kind.place - kind.place for pair in self.pairs])
        weights = np.exp(-0.5 * (apart**2).sum(axis=1) / _WIDTH**2) + _LEAST_WEIGHT
        return np.asarray(weights / weights.sum())

    def _choose_chain(
        self, cost: Floats, weights: Floats, *, ratio: float, kind: PairKind | None
    ) -> list[int]:
        """The rules to use, by number, in rising cost.

        First those of the cheap mode, then cascades, then one dear sample, and last the dear mode's stopping.
        """
        worth = np.stack([pair.worth for pair in self.pairs])
        mean_cost, mean_worth = (weights @ cost).round(_DIGITS), (weights @ worth).round(_DIGITS)
        once, dear = self._find(StoppingRule(0, 0.0, 1)), self._find(StoppingRule(1, 0.0, 1))
        doubted = self._doubt(cost, worth, weights, share=_DOUBT[kind is not None]).round(_DIGITS)
        doubted[[once, dear]] = mean_worth[[once, dear]]
        with_cascades = kind is not None and ratio >= _CASCADE_RATIO
        early = [k for k in self._list_early(with_cascades) if mean_cost[k] < mean_cost[dear] - _TINY]
        first = _find_corners([*early, dear], mean_cost, doubted)
        if ratio >= _RETRY_RATIO and first[0] == once and len(first) > 1:
            retry = self._find(_RETRY)
            first = [once, retry, *(k for k in first[1:] if k != retry)]
        late = [k for k, rule in enumerate(self.rules) if _asks_dear_only(rule) and not _is_fixed(rule)]
        last = [k for k in _find_corners([dear, *late], mean_cost, mean_worth) if k != dear]
        counted = cost[weights > _COUNTED]
        below = np.asarray((counted < counted[:, [dear]] - _TINY).all(axis=0))
        first = [k for k in first if k in (once, dear) or below[k]]
        return self._keep_rising([*first, *last], counted)

    def _list_early(self, with_cascades: bool) -> list[int]:
        """The rules that may be used below the cost of one dear sample, by number."""
        return [
            k
            for k, rule in enumerate(self.rules)
            if _asks_cheap_only(rule) or (with_cascades and not _asks_dear_only(rule))
        ]

    def _keep_rising(self, numbers: Sequence[int], cost: Floats) -> list[int]:
        """The rules that cost more than the one before on every pair, (pairs, rules)."""
        chain: list[int] = []
        for number in numbers:
            rises = not chain or (cost[:, number] > cost[:, chain[-1]] + _TINY).all()
            if rises or self.rules[number] == _RETRY:
                chain.append(number)
        return chain

    def _doubt(self, cost: Floats, worth: Floats, weights: Floats, *, share: float) -> Floats:
        """What rules are worth at their mean cost, less what they lose to fixed mixes on pairs, (rules,).

        A fixed mix is votes of so many samples of one mode for everyone, mixed at random.
        """
        fixed = [k for k, rule in enumerate(self.rules) if _is_fixed(rule)]
        mean_cost, base = weights @ cost, np.zeros(len(self.rules))
        gains = np.empty(cost.shape)
        for pair, weight in enumerate(weights):
            corners = _find_corners(fixed, cost[pair], worth[pair])
            line = cost[pair][corners], worth[pair][corners]
            gains[pair] = worth[pair] - np.interp(cost[pair], *line)
            base += weight * np.interp(mean_cost, *line)
        loss = np.sqrt(weights @ np.minimum(gains, 0.0) ** 2)
        return np.asarray(base + weights @ gains - share * loss)

    def _find(self, rule: Rule) -> int:
        return self.rules.index(rule)

    def dump(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "rules": [rule.dump() for rule in self.rules],
            "pairs": [
                {
                    "name": pair.name,
                    "kind": [round(number, 4) for number in pair.kind],
                    "sketch": [f"{number:016x}" for number in sorted(pair.sketch)],
                    "points": np.column_stack([pair.draws, pair.worth]).round(4).tolist(),
                }
                for pair in self.pairs
            ],
        }

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "MenuPrior":
        """The prior that `dump` wrote; PolicyInvalid where none could have."""
        rules = tuple(load_rule(each, modes=2, actions=iter(())) for each in stored["rules"])
        pairs = []
        for each in stored["pairs"]:
            points = np.array(each["points"], dtype=np.float64)
            if points.shape != (len(rules), 3) or not np.isfinite(points).all():
                raise PolicyInvalid(f"pair {each['name']!r} of a menu prior doesn't have 3 numbers a rule")
            pairs.append(
                RecordedPair(
                    name=each["name"],
                    kind=PairKind(*each["kind"]),
                    sketch=frozenset(int(text, 16) for text in each["sketch"]),
                    draws=points[:, :2],
                    worth=points[:, 2],
                )
            )
        return cls(rules=rules, pairs=tuple(pairs))


@functools.cache
def load_menu_prior() -> MenuPrior:
    """The prior inside the package."""
    text = (files("adacompute.policies.menu") / _FILE).read_text("utf-8")
    return MenuPrior.load(json.loads(text))


def limit_rule(rule: Rule, modes: tuple[int, int], longest: Sequence[int]) -> Rule:
    """A rule of the prior for two modes of a menu, of which so many samples may be drawn."""
    if isinstance(rule, StoppingRule):
        mode = modes[rule.mode]
        return StoppingRule(mode, rule.price, min(rule.longest, longest[mode]))
    assert isinstance(rule, CascadeRule)
    cheap, dear = (min(draws, longest[mode]) for draws, mode in zip(rule.draws, modes, strict=True))
    return CascadeRule(modes, (cheap, dear), rule.agree)


def _is_fixed(rule: Rule) -> bool:
    """Whether everyone gets as many samples."""
    return isinstance(rule, StoppingRule) and rule.price == 0


def _asks_cheap_only(rule: Rule) -> bool:
    return rule.mode == 0 if isinstance(rule, StoppingRule) else _get_dear_draws(rule) == 0


def _asks_dear_only(rule: Rule) -> bool:
    return isinstance(rule, StoppingRule) and rule.mode == 1


def _get_dear_draws(rule: Rule) -> int:
    return rule.draws[1] if isinstance(rule, CascadeRule) else 0


def _find_corners(numbers: Sequence[int], cost: Floats, worth: Floats) -> list[int]:
    """Those of the numbered points that are corners of their upper hull, in rising cost."""
    chosen: Ints = np.array(numbers)
    return [int(chosen[k]) for k in find_hull(cost[chosen], worth[chosen])]


def _make_concave(cost: Floats, worth: Floats) -> dict[str, Floats]:
    """Costs that rise and worth whose slopes fall, as near as can be: prices need both."""
    cost = cost.copy()
    for k in range(1, len(cost)):
        cost[k] = max(cost[k], cost[k - 1] * (1 + _LEAST_STEP), _TINY)
    slopes = np.diff(worth) / np.diff(cost)
    least = _TINY / max(float(cost[-1]), _TINY)
    for k in range(len(slopes) - 1, -1, -1):
        slopes[k] = max(slopes[k], least)
        least = slopes[k] * _SLOPE_STEP
    return {"cost": cost, "worth": np.concatenate([worth[:1], worth[0] + np.cumsum(slopes * np.diff(cost))])}
