"""Replays a policy over recorded samples, and reports its cost, accuracy and rounds of calls."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from adacompute.answers.vote import describe_votes
from adacompute.errors import NotRecorded, PolicyError, TooFewSamples, format_value
from adacompute.policies.base import Policy, PoolSource, check_choice, check_dial, check_integer
from adacompute.policies.paths import PathLayout
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots
from adacompute.pool.groups import are_enough, count_groups, count_in_groups, number_alike
from adacompute.replay.per_problem import (
    ExactReplay,
    ProblemResults,
    can_replay_exactly,
    count_most,
    count_places,
    place_requests,
    replay_block,
    split_paths,
)
from adacompute.score import MeanEstimate
from adacompute.score.grades import BlockMap, Bools, mask_votable
from adacompute.score.pool_summary import estimate_mean

DEFAULT_SEED = 0  # seed if the caller gives no generator, so that results are reproducible
_MAX_ORDERS = 1_000_000  # maximum number of random orders per problem; a larger number is probably a mistake
# maximum number of samples drawn in all random orders; at 60 bytes per sample, they take 16 GB
_MAX_DRAWS = 1 << 28
RESAMPLES = 2000  # number of bootstrap resamples of the problems
# with more problems than this, only identical questions are grouped, not similar ones
_MOST_COMPARED = 50_000
_TAIL = 0.025  # probability on each side of a 95% interval


def check_policy(policy: object) -> Policy:
    """Returns the argument if it is a policy; raises PolicyError otherwise."""
    if not isinstance(policy, Policy):
        raise PolicyError(f"{format_value(policy)} is not a policy; give one, e.g. StoppingPolicy()")
    return policy


def resolve_dial(policy: Policy, price: float | None) -> float | None:
    """Checks the value of the policy's price or threshold; returns None if the policy has neither."""
    if policy.dial is None:
        if price is not None:
            raise PolicyError(
                f"{policy.kind} takes no price or threshold; leave {format_value(price)} out, "
                "and make or fit it for a budget"
            )
        return None
    if price is None:
        raise PolicyError(
            f"{policy.kind} needs its {policy.dial}; give price=, e.g. calibrate(policy, pool, budget=2)"
        )
    return check_dial(policy.dial, price, high=1.0 if policy.dial == "threshold" else math.inf)


def check_orders(orders: object, rng: np.random.Generator | None) -> np.random.Generator:
    """Raises PolicyError if the number of random orders is invalid; returns the random generator to use."""
    check_integer("orders", orders, high=_MAX_ORDERS)
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise PolicyError(f"rng {format_value(rng)} can't be used; give np.random.default_rng(seed)")
    return np.random.default_rng(DEFAULT_SEED) if rng is None else rng


def check_memory(ballots: Ballots, orders: int, policy: Policy) -> None:
    """Raises PolicyError if drawing `orders` random orders of the samples would need too much memory.

    With several modes, the orders are drawn in parts, which never need too much memory.
    """
    longest = max(policy.longest, ballots.classes.shape[1])
    max_orders = max(1, _MAX_DRAWS // max(1, len(ballots) * longest))
    if len(ballots.modes) == 1 and orders > max_orders:
        raise PolicyError(
            f"orders {orders} of {len(ballots)} problems need more memory than is allowed; "
            f"give at most {max_orders}"
        )


def select_replayable(
    ballots: Ballots, longest: Sequence[int], *, too_few: Literal["error", "drop"] = "error"
) -> tuple[Ballots, tuple[str, ...]]:
    """Returns the problems with answers and enough samples in each mode, and the ids of the others."""
    usable = np.ones(len(ballots), dtype=np.bool_)
    for votes, count in zip(ballots.parts, longest, strict=True):
        usable &= find_replayable(votes.ids, votes.drawn, mask_votable(votes), count, too_few=too_few)
    if usable.all():
        return ballots, ()
    if not usable.any():
        raise TooFewSamples("no problem has enough samples of every mode; collect more")
    return ballots.only(np.flatnonzero(usable)), tuple(ballots.ids[i] for i in np.flatnonzero(~usable))


def arrange_paths(policy: Policy, ballots: Ballots, orders: int) -> PathLayout:
    """Decides how to draw the random orders of samples for a policy. `ballots` hold the recorded answers."""
    if len(policy.names) > 1:
        return PathLayout(longest=policy.longest, windows=1, shuffles=orders, by_mode=policy.longest_by_mode)
    return PathLayout.for_orders(int(ballots.drawn.min()), orders=orders, longest=policy.longest)


def find_replayable(
    ids: Sequence[str],
    drawn: Ints,
    has_votes: Bools,
    longest: int,
    *,
    too_few: Literal["error", "drop"] = "error",
) -> Bools:
    """Marks the problems that have answers to vote on (`has_votes`) and at least `longest` samples.

    Raises an error unless all problems are marked, or some of them are and `too_few` is "drop".
    """
    check_choice("too_few", too_few, ("error", "drop"))
    if not len(ids):
        raise TooFewSamples("no problem has a sample; collect or import some first")
    enough = drawn >= longest
    usable: Bools = has_votes & enough
    if usable.all() or (too_few == "drop" and usable.any()):
        return usable
    remedy = ", or leave them out with too_few='drop' (--too-few drop)" if usable.any() else ""
    if not enough.all():
        worst = int(drawn.argmin())
        raise TooFewSamples(
            f"{int((~enough).sum())} of {len(ids)} problems have fewer than the {longest} samples that "
            f"the policy may draw, e.g. {ids[worst]!r} with {int(drawn[worst])}; collect "
            f"more, give the policy a lower `longest` (fit --longest){remedy}"
        )
    raise NotRecorded(
        f"{int((~has_votes).sum())} of {len(ids)} problems have grades but no recorded answers to vote on, "
        f"e.g. {ids[int(has_votes.argmin())]!r}; record answers{remedy}"
    )


def draw_resamples(problems: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """Draws bootstrap resamples. Returns the weight of each problem in each resample; rows sum to 1.

    `weights @ values` are the resampled means. Use the same weights for all policies that are compared.
    """
    drawn = rng.integers(0, problems, (resamples, problems))
    drawn += np.arange(resamples)[:, None] * problems
    counts = np.bincount(drawn.reshape(-1), minlength=resamples * problems)
    return counts.reshape(resamples, problems) / problems


def resample_groups(groups: Ints, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """Draws resamples like `draw_resamples`, but of whole groups; `groups` has each problem's group."""
    count = int(groups.max(initial=-1)) + 1
    weights = draw_resamples(count, rng, resamples)
    if count == len(groups):
        return weights
    weights = weights[:, groups]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def compute_interval(values: Floats, weights: Floats) -> tuple[float, float]:
    """Computes the 95% interval of the mean of `values` (one per problem), from bootstrap weights."""
    low, high = np.quantile(weights @ values, (_TAIL, 1 - _TAIL))
    return float(low), float(high)


def bootstrap_mean(values: Floats, rng: np.random.Generator, *, groups: Ints | None = None) -> MeanEstimate:
    """Averages `values` (one per problem), with a bootstrap interval, or Wilson's if all are equal.

    Resamples whole `groups`; by default each problem is a group. With too few groups, there is no interval.

    >>> bootstrap_mean(np.array([0.0, 1.0, 1.0, 1.0]), np.random.default_rng(0))
    MeanEstimate(mean=0.75, low=0.25, high=1.0, problems=4)
    """
    if len(values) < 2 or np.ptp(values) == 0:
        return estimate_mean(values)
    groups = np.arange(len(values)) if groups is None else number_alike(groups.tolist())
    low, high = None, None
    if are_enough(groups):
        low, high = compute_interval(values, resample_groups(groups, rng))
    return MeanEstimate(mean=float(values.mean()), low=low, high=high, problems=len(values))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """A policy's results on recorded samples, which it drew as if live, at one price or threshold."""

    policy: str  # kind of the policy, such as "stopping"
    dial: float | None  # the price or threshold; None if the policy has neither
    problems: int
    orders: int  # number of random orders of each problem's samples; 0 if none were needed
    cost: float  # mean cost per request, in `unit`
    accuracy: MeanEstimate  # mean over problems, with its 95% interval; NaN if unknown
    # share of requests whose answer wins a vote of all recorded samples of the most expensive mode
    agreement: float
    waves: float  # mean number of rounds of calls per request
    most_waves: int
    rounds_p95: int  # 95th percentile of the rounds of calls per request
    tokens: float | None  # mean number of output tokens per request; None if unknown
    counts: Ints = field(repr=False)  # number of requests that drew 0, 1, 2, ... samples
    each_cost: Floats = field(repr=False)  # mean cost per request, for each problem
    each_accuracy: Floats = field(repr=False)  # accuracy on each problem; NaN if unknown
    dropped: tuple[str, ...] = ()  # ids of problems left out because they have too few samples
    exact: bool  # whether results are exact means over all subsets of samples, not over random orders
    protocol: str  # description of how the replay was done
    # share of requests whose answer is guaranteed to be the model's most frequent one; None if not measured
    certified: float | None = None
    in_sample: int = 0  # number of the replayed problems that the policy is known to have been fitted on
    unit: str = "samples"  # unit of cost; with several modes, the unit of the modes
    draws: Mapping[str, float] = field(default_factory=dict)  # mode -> mean number of samples

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        accuracy = self.accuracy
        return {
            "policy": self.policy,
            "dial": self.dial,
            "problems": self.problems,
            "orders": self.orders,
            "cost": self.cost,
            "accuracy": accuracy.mean if accuracy.problems else None,
            "low": accuracy.low,
            "high": accuracy.high,
            "agreement": self.agreement,
            "waves": self.waves,
            "most_waves": self.most_waves,
            "rounds": self.waves,
            "rounds_p95": self.rounds_p95,
            "tokens": self.tokens,
            "counts": {str(b): n for b, n in enumerate(self.counts.tolist()) if n},
            "dropped": list(self.dropped),
            "exact": self.exact,
            "protocol": self.protocol,
            "in_sample": self.in_sample,
            **({} if self.certified is None else {"certified": self.certified}),
            **({"unit": self.unit, "draws": dict(self.draws)} if self.draws else {}),
        }


def replay(
    policy: Policy,
    source: PoolSource,
    *,
    price: float | None = None,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    too_few: Literal["error", "drop"] = "error",
    map_blocks: BlockMap = map,
) -> Replayed:
    """Measures a policy's cost and accuracy on recorded samples, drawn in many random orders.

    `price` is the value of the policy's dial: a price, or for some policies a threshold; `calibrate` finds it
    for a budget. The policy sees samples one by one as if live, and its own weights (`policy.weigh`) apply to
    votes. A copy of the policy is adapted to the samples, without labels (`copy_for`), and replayed. A policy
    that decides from the prompt alone and doesn't weigh votes is scored exactly, without random orders.
    Problems without recorded answers, or with fewer samples than the policy may draw, are an error, or left
    out with `too_few="drop"`. The interval is by bootstrap over problems. `map_blocks` maps a function over
    blocks of problems, as `map` does; `scale.stages.open_shards` has one for Ray.

    >>> from adacompute.pool import bundled
    >>> from adacompute.policies import FixedPolicy
    >>> with bundled("words") as pool:
    ...     result = replay(FixedPolicy(budget=4), pool)
    >>> result.cost, round(result.accuracy.mean, 2), result.exact
    (4.0, 0.78, True)
    """
    value = resolve_dial(check_policy(policy), price)
    rng = check_orders(orders, rng)
    ballots = policy.get_ballots(source)
    # a policy with several modes adapts to the pool first, because it may then need fewer samples per problem
    if len(policy.names) > 1:
        policy = policy.copy_for(ballots)
    ballots, dropped = select_replayable(ballots, policy.longest_by_mode, too_few=too_few)
    if len(policy.names) == 1:
        policy = policy.copy_for(ballots)
    reading, order_count = policy.read(ballots.prompts), 0
    if can_replay_exactly(policy):
        places = count_places(policy, len(ballots))
        reading, dials = place_requests(policy, value, ballots.prompts, reading, places)
        results = ExactReplay(ballots, map_blocks=map_blocks).replay(policy, dial=dials, reading=reading)
    else:
        if map_blocks is map:
            check_memory(ballots, orders, policy)
        layout = arrange_paths(policy, ballots, orders)
        blocks = split_paths(policy, ballots, reading, layout=layout, rng=rng)
        results = ProblemResults.merge(list(map_blocks(partial(replay_block, policy, value), blocks)))
        order_count = layout.orders
    result = build_result(policy, value, ballots, results, orders=order_count, dropped=dropped, rng=rng)
    if policy.mode_set is None:
        return result
    draws = dict(zip(policy.names, results.by_mode.mean(axis=0).tolist(), strict=True))
    # with a single mode, `result.cost` is a number of samples, so multiply it by the cost of a sample
    sample = policy.mode_set[policy.names[0]].cost if len(policy.names) == 1 else 1.0
    unit = policy.mode_set.currency or policy.mode_set.unit
    return replace(
        result, unit=unit, draws=draws, cost=result.cost * sample, each_cost=result.each_cost * sample
    )


def build_result(
    policy: Policy,
    dial: float | None,
    ballots: Ballots,
    results: ProblemResults,
    *,
    orders: int,
    dropped: tuple[str, ...],
    rng: np.random.Generator,
) -> Replayed:
    """Builds the result by averaging over problems. From `ballots`, only the prompts are used."""
    known = ~np.isnan(results.accuracy)
    groups = (ballots.group() if len(ballots) <= _MOST_COMPARED else ballots).groups
    tokens, rounds = float(results.tokens.mean()), results.rounds.sum(axis=0)
    counted = count_in_groups(len(groups), count_groups(groups))
    in_sample = policy.count_in_sample(ballots)
    in_sample_words = (
        f"; in-sample: it was fitted on {in_sample} of these {len(ballots)} problems" if in_sample else ""
    )
    return Replayed(
        policy=policy.kind,
        dial=dial,
        problems=len(ballots),
        orders=orders,
        cost=float(results.cost.mean()),
        accuracy=bootstrap_mean(results.accuracy[known], rng, groups=groups[known]),
        agreement=float(results.agreement.mean()),
        waves=float(results.waves.mean()),
        most_waves=count_most(rounds),
        rounds_p95=count_most(rounds, 0.95),
        tokens=None if math.isnan(tokens) else tokens,
        counts=results.counts,
        each_cost=results.cost,
        each_accuracy=results.accuracy,
        dropped=dropped,
        exact=orders == 0,
        protocol=f"{describe_replay_protocol(policy, orders)} over {counted}{in_sample_words}",
        certified=None if results.certified is None else float(results.certified.mean()),
        in_sample=in_sample,
    )


def describe_replay_protocol(policy: Policy, orders: int) -> str:
    """Describes in words how a replay was done; `orders` is 0 if no random orders were needed."""
    if orders:
        method = f"{orders} random orders of each problem's samples, ties to the first seen"
    else:
        method = "mean over all subsets of b of a problem's samples, ties shared"
    votes = describe_votes(policy.weigh)
    return f"{votes}, {method}, abstentions ignored; 95% interval by {RESAMPLES:,} bootstraps"
