"""What a quality costs on a pool: replayed beside so many samples for every request, paired by problem.

`adacompute fit` holds problems out for this. Here they must be problems that the policy hasn't learned from.
"""

import numpy as np

from adacompute.errors import BudgetInvalid
from adacompute.policies.base import Policy
from adacompute.policies.menu import MenuPolicy
from adacompute.policies.paths import ModePaths, Paths, PolicyRun, draw_paths, draw_paths_by_mode
from adacompute.policies.quality import Quality, QualityCost, QualityCurve
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots
from adacompute.pool.groups import FEWEST_GROUPS, are_enough, count_groups, count_in_groups, number_alike
from adacompute.replay.per_problem import run_policy
from adacompute.replay.replay import RESAMPLES, check_memory, resample_groups

_FEWEST_PROBLEMS = 30
_PRICES, _THRESHOLDS = np.geomspace(1e-5, 1.0, 48), np.linspace(0.0, 1.0, 24)
_COSTS = 60  # average costs that are compared
_ORDERS = 25  # random orders of each problem, at most
_LOW = 2.5  # percentile at the lower end of a 95% interval


def measure_quality(
    policy: Policy,
    ballots: Ballots,
    quality: Quality,
    *,
    margin: float,
    orders: int,
    rng: np.random.Generator,
) -> QualityCost:
    """The average cost that a quality stands for, in samples or the menu's unit; BudgetInvalid if none."""
    if seen := policy.count_in_sample(ballots):
        raise BudgetInvalid(
            f"budget '{quality}': {policy.kind} was fitted on {seen} of these {len(ballots)} problems; give "
            "others, or hold some out by `adacompute fit --budget`"
        )
    if policy.dial is None:
        raise BudgetInvalid(f"budget '{quality}': {policy.kind} has no dial; give an amount")
    _check_rival(policy, quality)
    orders = min(orders, _ORDERS)
    paths: Paths | ModePaths
    if isinstance(policy, MenuPolicy) and len(policy.names) > 1:
        paths = draw_paths_by_mode(
            ballots, weigh=policy.weigh, longest=policy.longest_by_mode, orders=orders, rng=rng
        )
        dials, rival, rival_cost = policy.prices_, *_follow_mode(policy, paths, quality)
    else:
        check_memory(ballots, orders, policy)
        paths = draw_paths(ballots, rng=rng, orders=orders, longest=policy.longest, weigh=policy.weigh)
        dials = _THRESHOLDS if policy.dial == "threshold" else policy.convert_price(1.0) * _PRICES
        ends = np.full(len(paths), quality.samples)
        rival, rival_cost = PolicyRun.of(paths, ends, ends), float(quality.samples)
    reading = policy.read(ballots.prompts)
    runs = [run_policy(policy, paths, dial=float(dial), reading=reading) for dial in dials]
    known = ~np.isnan(paths.mean_per_problem(rival.grade))
    basis = "grade" if known.any() else "agrees"
    known |= not known.any()
    groups = number_alike(ballots.group().groups[known])
    if not are_enough(groups):
        raise BudgetInvalid(
            f"budget '{quality}' can't be told on {count_in_groups(len(groups), count_groups(groups))}; give "
            f"{FEWEST_GROUPS} groups or more"
        )
    if known.sum() < _FEWEST_PROBLEMS:
        raise BudgetInvalid(
            f"budget '{quality}' can't be told on {known.sum()} problems with a gold answer or grade; give "
            f"{_FEWEST_PROBLEMS} or more"
        )
    cost = np.stack([paths.mean_per_problem(run.cost) for run in runs])[:, known]
    right = np.stack([paths.mean_per_problem(getattr(run, basis)) for run in runs])[:, known]
    gains = right - paths.mean_per_problem(getattr(rival, basis))[known]
    costs, gains = _match_costs(cost, gains)
    lows = np.percentile(resample_groups(groups, rng, RESAMPLES) @ gains.T, _LOW, axis=0)
    curve = QualityCurve(
        samples=quality.samples,
        mode=quality.mode,
        rival_cost=rival_cost,
        accuracy=float(paths.mean_per_problem(getattr(rival, basis))[known].mean()),
        costs=tuple(costs.tolist()),
        gains=tuple(gains.mean(axis=1).tolist()),
        lows=tuple(lows.tolist()),
    )
    return curve.find_cost(quality, problems=int(known.sum()), margin=margin)


def _check_rival(policy: Policy, quality: Quality) -> None:
    """BudgetInvalid, with what can be compared, if the policy has no such samples."""
    most = dict(zip(policy.names, policy.longest_by_mode, strict=True))
    name = policy.names[0] if quality.mode is None and len(most) == 1 else quality.mode
    if name not in most or quality.samples > most[name]:
        known = ", ".join(f"{mode} x {count}".removeprefix(" x ") for mode, count in most.items())
        raise BudgetInvalid(f"budget '{quality}' can't be compared with here; give {known}, or fewer samples")


def _follow_mode(policy: MenuPolicy, paths: ModePaths, quality: Quality) -> tuple[PolicyRun, float]:
    """So many samples of one mode for every request, and what they cost on average."""
    rows, drawn = np.arange(len(paths)), np.zeros((len(paths), len(policy.names)), dtype=np.int64)
    drawn[:, policy.names.index(quality.mode or "")] = quality.samples
    leader: Ints = paths.votes_after(rows, drawn).find_leaders()[0]
    cost = paths.cost_after(rows, drawn)
    run = PolicyRun(
        drawn=drawn.sum(axis=1),
        waves=np.ones(len(paths), dtype=np.int64),
        grade=paths.worth_of(rows, leader),
        agrees=paths.worth_of(rows, leader, by_agreement=True),
        tokens=np.full(len(paths), np.nan),
        cost=cost,
        by_mode=drawn,
    )
    return run, float(cost.mean())


def _match_costs(cost: Floats, gains: Floats) -> tuple[Floats, Floats]:
    """Costs from the least to the most, and each problem's gain there, by mixing the two settings around it.

    Both are (settings, problems).
    """
    order = np.argsort(cost.mean(axis=1), kind="stable")
    means = cost[order].mean(axis=1)
    targets = np.geomspace(means[0], means[-1], _COSTS) if means[-1] > means[0] else means[:1]
    above = np.clip(np.searchsorted(means, targets), 1, max(1, len(means) - 1))
    spread = np.maximum(means[above] - means[above - 1], np.finfo(float).tiny)
    share = np.clip((targets - means[above - 1]) / spread, 0, 1)[:, None]
    return targets, (1 - share) * gains[order[above - 1]] + share * gains[order[above]]
