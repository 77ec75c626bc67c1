"""Finds the price or threshold at which a policy's average cost meets a budget, by bisection on replays.

This needs no labels, because cost doesn't depend on accuracy. If the budget is in tokens or money, each
replay adds up the recorded tokens of its samples. A mean number per sample would be wrong, because hard
problems often get longer responses as well as more samples.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from adacompute.errors import BudgetInvalid, BudgetOutOfRange, PolicyError, PolicyInvalid, format_value
from adacompute.policies.base import Policy, PoolSource, check_choice, parse_finite
from adacompute.policies.paths import grade_by_other_half
from adacompute.policies.quality import MARGIN, Quality, QualityCost
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots
from adacompute.pool.ballots import count_calls
from adacompute.pool.groups import FEWEST_GROUPS, are_enough, count_groups, count_in_groups, number_alike
from adacompute.pool.modes import ModeSet
from adacompute.records import Budget, BudgetUnit, TokenPrices, format_lower_bound, names_quality
from adacompute.replay.matching import PolicyPoints, UniformVotes, compare_qualities, sum_by_group
from adacompute.replay.per_problem import (
    PathBlock,
    ProblemResults,
    compute_mean_tokens,
    count_places,
    decide_first_wave,
    follow_mode,
    place_requests,
    run_policy,
    split_paths,
)
from adacompute.replay.replay import (
    arrange_paths,
    check_memory,
    check_orders,
    check_policy,
    select_replayable,
)
from adacompute.score.grades import BlockMap, grade_samples, mask_graded
from adacompute.score.score import choose_charge, compute_mean_output, count_prompt_tokens

_MILLION = 1e6
_KEPT_BLOCKS = 4  # number of blocks of problems whose random orders stay in memory, up to 100 MB per block
_BRACKET_LOW, _BRACKET_HIGH = 1e-6, 1.0  # price range in which the search starts
_MIN_PRICE, _MAX_PRICE = 1e-18, 1e12  # lowest and highest price to try
_MAX_STEPS = 60
# a parallel replay tries a price together with all prices that this many further bisection steps may need
_STEPS_AHEAD = 2
_RESOLUTION = 1e-9  # bisection stops if the width of its range is at most this share of its upper end


def calibrate(
    policy: Policy,
    source: PoolSource,
    budget: float | str | Budget,
    *,
    prices: TokenPrices | None = None,
    margin: float = 100 * MARGIN,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    tolerance: float = 0.005,
    too_few: Literal["error", "drop"] = "error",
    map_blocks: BlockMap = map,
) -> float | None:
    """Finds the price or threshold (the dial) at which a policy costs `budget` per request on average.

    A plain number means samples or, for a policy over several modes, the modes' unit of cost. "500 tokens"
    counts prompts and responses; "2 USD per 1000" needs `prices` in that currency. Both need recorded token
    counts; the prompts' lengths come from `prices`, recorded calls or an estimate.

    The budget may also be a quality: "as good as 8" means the lowest average cost from which on the recorded
    samples show that the policy is as accurate as a vote of 8 samples for every request. It must be no worse
    on average, and the 95% interval of the difference may reach at most `margin` percentage points below
    zero. The samples must not be the policy's training data.

    Returns the lowest value found for the dial at which the cost is within the budget. `tolerance` is the
    share of the budget that may be left over. All values are tried on the same random orders of the samples.
    Each request's value differs from the returned one by up to 1%. Otherwise, many requests with equal votes
    would all stop at the same value, and some budgets couldn't be met (see `policies.base`).

    The policy object itself is adapted to these samples (`policy.settle`), so run this object, not an earlier
    copy. A policy without a dial is fitted again for this budget, and None is returned. `too_few`, `orders`
    and `map_blocks` mean the same as in `replay`.
    """
    mode_set = check_policy(policy).mode_set
    if isinstance(budget, str) and names_quality(budget):
        rng = check_orders(orders, rng)
        budget = _find_quality_cost(policy, source, budget, margin, orders, rng, too_few)
    if mode_set is not None:
        budget = check_mode_budget(mode_set, budget)
        # a policy over a single mode counts its cost in samples, so the budget is converted to samples
        if len(policy.names) == 1:
            budget = _count_samples(mode_set, policy.names[0], budget)
    average = parse_average(budget, prices)
    amount, tolerance = check_calibration_budget(average.amount, tolerance)
    rng = check_orders(orders, rng)
    recorded = policy.get_ballots(source)
    if len(policy.prices_):
        policy.settle(recorded)
        ballots, _ = select_replayable(recorded, policy.longest_by_mode, too_few=too_few)
        return _find_price(policy, ballots, amount, orders=orders, rng=rng)
    ballots = _select_problems(policy, recorded, too_few)
    if policy.dial is None and average.unit != "samples":
        raise BudgetInvalid(
            f"{policy.kind} is fitted for a number of samples, not for {average}; give samples"
        )
    if policy.dial is None:
        _refit(policy, ballots, amount)
        return None
    if prices is not None and ballots is not recorded and isinstance(prices.prompt_tokens, tuple):
        rows = [recorded.ids.index(id_) for id_ in ballots.ids]
        prices = replace(prices, prompt_tokens=[prices.prompt_tokens[row] for row in rows])
    costs = RequestCosts.of(average, ballots, prices)
    cost = _make_cost(policy.settle(ballots), ballots, orders, rng, costs, map_blocks)
    return find_dial(policy, cost, amount, tolerance, unit=average.currency or average.unit)


def _find_quality_cost(
    policy: Policy,
    source: PoolSource,
    budget: str,
    margin: float,
    orders: int,
    rng: np.random.Generator,
    too_few: Literal["error", "drop"],
) -> float:
    """Finds the average cost at which the policy is as accurate as e.g. votes of 8 samples per request."""
    recorded = policy.get_ballots(source)
    # a policy with several modes adapts to the pool first, because it may then need fewer samples per problem
    if len(policy.names) > 1:
        policy.settle(recorded)
    if not mask_graded(recorded, grade_samples(recorded)).any():
        recorded = grade_by_other_half(recorded)
    ballots = select_replayable(recorded, policy.longest_by_mode, too_few=too_few)[0]
    if len(policy.names) == 1:
        policy.settle(ballots)
    quality = Quality.parse(budget)
    quality_cost = measure_quality(policy, ballots, quality, margin=margin / 100, orders=orders, rng=rng)
    sample = (
        1.0 if policy.mode_set is None or len(policy.names) > 1 else policy.mode_set[policy.names[0]].cost
    )
    return quality_cost.cost * sample


def _count_samples(mode_set: ModeSet, name: str, budget: float) -> float:
    """Converts a budget from the modes' unit to samples of one mode."""
    if not mode_set[name].cost:
        raise BudgetInvalid(f"mode {name!r} is free, so no budget can be spent; give a price")
    return budget / mode_set[name].cost


def check_mode_budget(mode_set: ModeSet, budget: float | str | Budget) -> float:
    """Returns the budget as a number in the modes' unit. Raises BudgetInvalid if it has another unit."""
    if not isinstance(budget, str | Budget):
        amount = float(budget)
    else:
        parsed = Budget.parse(budget, currency=mode_set.currency or None)
        unit = {"money": "money", "tokens": "tokens"}.get(mode_set.unit)
        if parsed.unit != unit:
            own = {"cost": "numbers of its own"}.get(mode_set.unit, mode_set.currency or mode_set.unit)
            raise BudgetInvalid(
                f"{str(budget)!r} is in {parsed.currency or parsed.unit}, and these modes in {own}; "
                "give a number, which counts in that"
            )
        amount = parsed.amount
    if not (math.isfinite(amount) and amount > 0):
        raise BudgetInvalid(f"budget {budget!r} can't be spent; give a number above 0")
    return amount


def _find_price(
    policy: Policy, ballots: Ballots, budget: float, *, orders: int, rng: np.random.Generator
) -> float:
    """Finds the lowest price at which a policy with several modes costs at most the budget on average.

    The policy has rules only for the prices in `prices_`, so only these are replayed. Between two of
    these, a hash of the prompt (0 to 1) selects the price whose rules decide the request.
    """
    reading, costs, modes = policy.read(ballots.prompts), dict[int, Floats](), policy.mode_set
    assert modes is not None
    layout = arrange_paths(policy, ballots, orders)
    blocks = list(split_paths(policy, ballots, reading, layout=layout, rng=rng))

    def cost_of(corner: int) -> Floats:
        if corner not in costs:
            price, parts = float(policy.prices_[corner]), list[Floats]()
            for number, block in enumerate(blocks):
                paths = block.paths if number < _KEPT_BLOCKS else block.draw()
                run = run_policy(policy, paths, dial=price, reading=block.reading)
                parts.append(run.cost)
            costs[corner] = np.concatenate(parts)
        return costs[corner]

    low, high = 0, len(policy.prices_) - 1  # bisect for the lowest price whose cost is within the budget
    if cost_of(low).mean() > budget:
        least = modes.format_least(float(cost_of(low).mean()))
        raise BudgetOutOfRange(
            f"budget {modes.format_cost(budget)} is below what {policy.kind} costs at any price; "
            f"give {least} or more"
        )
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost_of(middle).mean() <= budget else (low, middle - 1)
    if low == len(policy.prices_) - 1:
        return float(policy.prices_[low])
    hashes = policy.repeat_reading(reading, layout.orders)[:, -1]
    order = np.argsort(hashes, kind="stable")
    added = np.cumsum((cost_of(low + 1) - cost_of(low))[order]) / len(order)
    within = int(np.flatnonzero(np.append(0.0, added) <= budget - cost_of(low).mean()).max())
    ends = np.concatenate([[0.0], hashes[order], [1.0]])
    # requests whose hash is below `share` are decided by the rules of the lower price, which cost more
    share = (ends[within] + ends[within + 1]) / 2 if within else 0.0
    return float(policy.prices_[low] ** (1 - share) * policy.prices_[low + 1] ** share)


def parse_average(budget: float | str | Budget, prices: TokenPrices | None) -> Budget:
    """Parses an average budget. Raises BudgetInvalid if it is money in a currency without prices."""
    if not isinstance(budget, str | Budget):
        return Budget(check_calibration_budget(budget, 0.0)[0])
    average = Budget.parse(budget, currency=None if prices is None else prices.currency)
    if average.unit == "money" and not prices:
        raise BudgetInvalid(
            f"budget {average} needs prices in {average.currency}; give input_price and output_price "
            "(--input-price, --output-price; prices= in Python), or a budget in tokens or samples"
        )
    return average


@dataclass(frozen=True, slots=True, eq=False)
class RequestCosts:
    """Computes what requests cost in the budget's unit, from the costs of prompts and response tokens."""

    unit: BudgetUnit
    prompts: Floats  # cost of each problem's prompt
    output: float  # cost of each response token
    choices: int | None  # maximum number of samples per call; each call pays for the prompt once
    once: bool = False  # whether a request pays for its prompt only once, however many calls it makes

    @classmethod
    def of(cls, budget: Budget, ballots: Ballots, prices: TokenPrices | None) -> "RequestCosts":
        """Prepares costs in the budget's unit. Raises NotRecorded if token counts are needed but absent."""
        if budget.unit == "samples":
            return cls("samples", np.ones(len(ballots)), 0.0, 1)
        unit_prices = TokenPrices() if prices is None else prices
        if budget.unit == "tokens":
            unit_prices = replace(unit_prices, input=_MILLION, output=_MILLION)
        compute_mean_output(ballots, np.arange(len(ballots)))  # raises an error if tokens aren't recorded
        prompts = count_prompt_tokens(ballots, unit_prices) * unit_prices.input / _MILLION
        choices, once = choose_charge(ballots, unit_prices).choices, unit_prices.prompts == "once"
        return cls(budget.unit, prompts, unit_prices.output / _MILLION, choices, once)

    def compute(self, drawn: Ints | Floats, waves: Ints | Floats, tokens: Floats, problems: Ints) -> Floats:
        """Computes the cost of each request from its number of samples, rounds of calls and output tokens.

        `problems` has each request's problem, shape (requests,); other arguments have shape (…, requests).
        """
        if self.unit == "samples":
            return drawn.astype(np.float64)
        calls = np.ones(drawn.shape) if self.once else count_calls(drawn, self.choices, waves)
        return np.asarray(self.prompts[problems] * calls + self.output * tokens)


def find_dial(
    policy: Policy,
    cost: Callable[[float], float],
    budget: float,
    tolerance: float = 0.005,
    *,
    unit: str = "samples",
) -> float:
    """Finds the price or threshold that meets a budget. `cost` returns the average cost for each value."""
    threshold = policy.dial == "threshold"
    highest, lowest = cost(0.0), cost(1.0 if threshold else _MAX_PRICE)
    if not lowest <= budget <= highest * (1 + tolerance):
        raise BudgetOutOfRange(
            f"budget {budget:g} can't be reached by {policy.kind} on these samples, whose cost is from "
            f"{format_lower_bound(lowest)} to {highest:.4g} {unit} a request; give a budget within that"
        )
    if highest <= budget:
        return 0.0
    low, high = (0.0, 1.0) if threshold else _bracket(cost, budget)
    return _bisect(cost, budget, low, high, enough=budget * (1 - tolerance), by_ratio=not threshold)


def check_calibration_budget(budget: object, tolerance: object) -> tuple[float, float]:
    """Returns budget and tolerance as floats; raises an error if they can't be used."""
    average, share = parse_finite(budget), parse_finite(tolerance)
    if average is None or average <= 0:
        raise BudgetOutOfRange(
            f"budget {format_value(budget)} can't be an average cost; give samples a request, e.g. 2.0"
        )
    if share is None or not 0 <= share < 1:
        raise PolicyError(
            f"tolerance {format_value(tolerance)} can't be used; give a share of the budget, e.g. 0.005"
        )
    return average, share


def _select_problems(policy: Policy, ballots: Ballots, too_few: Literal["error", "drop"]) -> Ballots:
    """Selects the problems with enough samples for the policy.

    Returns all problems if `too_few` is "error" and the policy has no price or threshold. Such a policy is
    fitted again, and `fit` raises the error.
    """
    check_choice("too_few", too_few, ("error", "drop"))
    if policy.dial is None and too_few == "error":
        return ballots
    return select_replayable(ballots, policy.longest_by_mode, too_few=too_few)[0]


def _bisect(
    cost: Callable[[float], float], budget: float, low: float, high: float, *, enough: float, by_ratio: bool
) -> float:
    """Bisects for the lowest price or threshold in (low, high] whose cost is within the budget.

    Stops as soon as the cost is between `enough` and the budget.
    """
    for _ in range(_MAX_STEPS):
        if cost(high) >= enough or high - low <= _RESOLUTION * high:
            break
        middle = _find_middle(low, high, by_ratio=by_ratio)
        low, high = (middle, high) if cost(middle) > budget else (low, middle)
    return high


def _find_middle(low: float, high: float, *, by_ratio: bool) -> float:
    return math.sqrt(low * high) if by_ratio and low > 0 else (low + high) / 2


def _bracket(cost: Callable[[float], float], budget: float) -> tuple[float, float]:
    """Finds two prices: the cost exceeds the budget at the first one (unless it is 0), not at the second."""
    low, high = _BRACKET_LOW, _BRACKET_HIGH
    while cost(high) > budget and high < _MAX_PRICE:
        low, high = high, high * 2
    while low > _MIN_PRICE and cost(low) <= budget:
        low, high = low / 16, low
    return (low if low > _MIN_PRICE else 0.0), high


def _make_cost(
    policy: Policy,
    ballots: Ballots,
    orders: int,
    rng: np.random.Generator,
    request_costs: RequestCosts,
    map_blocks: BlockMap,
) -> Callable[[float], float]:
    """Returns a function that replays the policy at a price or threshold and returns the mean cost."""
    reading = policy.read(ballots.prompts)
    places = count_places(policy, len(ballots))
    rows = np.repeat(np.arange(len(ballots)), places)
    mean_tokens = compute_mean_tokens(ballots)
    costs: dict[float, float] = {}
    tried: list[float] = []
    layout = arrange_paths(policy, ballots, orders)
    blocks: list[PathBlock] = []
    if not policy.one_shot:
        if map_blocks is map:
            check_memory(ballots, orders, policy)
        blocks = list(split_paths(policy, ballots, reading, layout=layout, rng=rng))

    def cost(dial: float) -> float:
        if dial not in costs and policy.one_shot:
            placed, own = place_requests(policy, dial, ballots.prompts, reading, places)
            counts = decide_first_wave(policy, placed, own).counts
            amounts = request_costs.compute(counts, np.ones_like(counts), counts * mean_tokens[rows], rows)
            costs[dial] = float(amounts.mean())
        elif dial not in costs:
            dials = [dial]
            # a parallel pass over the problems takes long to start, so each one tries several prices or
            # thresholds
            if map_blocks is not map:
                dials += _predict_dials(dial, tried, by_ratio=policy.dial != "threshold")
            sums = map_blocks(partial(_sum_costs, policy, dials, request_costs), blocks)
            requests = len(ballots) * layout.orders
            costs.update(zip(dials, (np.sum(list(sums), axis=0) / requests).tolist(), strict=True))
        tried.append(dial)
        return costs[dial]

    return cost


def _sum_costs(
    policy: Policy, dials: Sequence[float], request_costs: RequestCosts, block: PathBlock
) -> Floats:
    """Replays a block of problems at several prices or thresholds; returns the total cost at each."""
    problems, sums = block.start + block.paths.problems, []
    for dial in dials:
        reading, own = place_requests(policy, dial, block.ballots.prompts, block.reading, block.layout.orders)
        run = run_policy(policy, block.paths, dial=own, reading=reading)
        sums.append(request_costs.compute(run.drawn, run.waves, run.tokens, problems).sum())
    return np.array(sums)


def _predict_dials(dial: float, tried: Sequence[float], *, by_ratio: bool) -> list[float]:
    """Lists the prices or thresholds that the bisection may try in the two steps after `dial`."""
    below, above = [value for value in tried if value < dial], [value for value in tried if value > dial]
    if not below or not above:
        return []
    ends, predicted = [max(below), dial, min(above)], []
    for _ in range(_STEPS_AHEAD):
        middles = [_find_middle(low, high, by_ratio=by_ratio) for low, high in pairwise(ends)]
        predicted += middles
        ends = sorted([*ends, *middles])
    return predicted


def _refit(policy: Policy, source: Ballots, budget: float) -> None:
    """Fits a policy again for this budget, because it has neither a price nor a threshold."""
    fit: Any = policy.fit
    if "budget" in inspect.signature(fit).parameters:
        fit(source, budget=budget)
        return
    settings = policy.settings()
    if "budget" not in settings:
        raise PolicyError(
            f"{policy.kind} has no price, threshold or budget to set; fit it for {budget:g} first"
        )
    try:
        refitted = type(policy).restore(settings | {"budget": budget}, policy.arrays())
    except PolicyInvalid as exc:
        raise BudgetOutOfRange(f"budget {budget:g} is invalid for {policy.kind}: {exc}") from exc
    vars(policy).update(vars(refitted))
    fit(source)


_FEWEST_PROBLEMS = 30
_PRICES, _THRESHOLDS = np.geomspace(1e-5, 1.0, 48), np.linspace(0.0, 1.0, 24)
_ORDERS = 25  # maximum number of random orders per problem


def measure_quality(
    policy: Policy,
    ballots: Ballots,
    quality: Quality,
    *,
    margin: float,
    orders: int,
    rng: np.random.Generator,
) -> QualityCost:
    """Finds the lowest average cost from which on the policy has a quality, such as "as good as 8".

    Raises BudgetInvalid if no cost is enough, or if problems are too few or the policy's training data."""
    if seen := policy.count_in_sample(ballots):
        raise BudgetInvalid(
            f"budget '{quality}': {policy.kind} was fitted on {seen} of these {len(ballots)} problems; give "
            "others, or hold some out by `adacompute fit --budget`"
        )
    if policy.dial is None:
        raise BudgetInvalid(f"budget '{quality}': {policy.kind} has no price or threshold; give an amount")
    mode = _find_rival(policy, quality)
    dials = _THRESHOLDS if policy.dial == "threshold" else policy.convert_price(1.0) * _PRICES
    if len(policy.prices_):
        dials = policy.prices_
    layout, reading = arrange_paths(policy, ballots, min(orders, _ORDERS)), policy.read(ballots.prompts)
    parts = []
    for block in split_paths(policy, ballots, reading, layout=layout, rng=rng):
        runs = [run_policy(policy, block.paths, dial=float(dial), reading=block.reading) for dial in dials]
        runs.append(follow_mode(block.paths, mode, quality.samples))
        each = [ProblemResults.from_run(block.paths, run) for run in runs]
        parts.append(np.array([[one.cost, one.accuracy] for one in each]))
    # each has one row per price or threshold, then one for the vote in `quality`: (dials + 1, problems)
    cost, right = np.concatenate(parts, axis=2).swapaxes(0, 1)
    known = ~np.isnan(right[-1])
    groups = number_alike(ballots.group().groups[known])
    if not are_enough(groups):
        raise BudgetInvalid(
            f"budget '{quality}' needs more than {count_in_groups(len(groups), count_groups(groups))}; give "
            f"{FEWEST_GROUPS} groups or more"
        )
    if known.sum() < _FEWEST_PROBLEMS:
        raise BudgetInvalid(
            f"budget '{quality}' needs more than {known.sum()} problems with a gold answer or grade; give "
            f"{_FEWEST_PROBLEMS} or more"
        )
    cost, right = sum_by_group(cost[:, known], groups), sum_by_group(right[:, known], groups)
    rival = UniformVotes(quality.samples, quality.mode, float(cost[-1].mean()), right[-1])
    points = PolicyPoints(cost=cost[:-1], accuracy=right[:-1])
    (curve,) = compare_qualities(points, [rival], digits=".4g")
    return curve.find_cost(quality, problems=int(known.sum()), margin=margin)


def _find_rival(policy: Policy, quality: Quality) -> int:
    """Returns the index of a quality's mode; raises BudgetInvalid if it is unknown or has too few samples."""
    most = dict(zip(policy.names, policy.longest_by_mode, strict=True))
    name = policy.names[0] if quality.mode is None and len(most) == 1 else quality.mode
    if name not in most or quality.samples > most[name]:
        known = ", ".join(f"{mode} x {count}".removeprefix(" x ") for mode, count in most.items())
        raise BudgetInvalid(f"budget '{quality}' needs samples that aren't here; give {known}, or fewer")
    return list(most).index(name)
