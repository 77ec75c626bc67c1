"""A menu policy beside everything else that one could do with its modes, at the same average cost.

Problems are divided into folds, or whole families of them. The menu policy, the weights of votes, the
routers and every setting of a cascade or a mix are learned and chosen on the other folds; the fold itself
only judges. On the training problems each policy takes the upper hull of its settings and mixes the two
neighbours of the budget. What that costs on the fold differs a little from the budget, so each policy is
measured at a few neighbouring budgets, and read off its own curve of held-out costs and accuracies at exactly
the budget.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import BudgetInvalid, PolicyError, TooFewSamples
from adacompute.evaluate.comparison import (
    MatchedCost,
    OracleBracket,
    PolicyPoints,
    find_least_cost,
    match_cost,
)
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.menu_peers import (
    JointVotes,
    MenuMix,
    MenuSettings,
    follow_cascades,
    follow_joint_votes,
    follow_router,
    follow_runs,
    follow_stopping,
    follow_votes,
    join_settings,
    mix_by_cost,
    mix_modes,
    mix_points,
    mix_settings,
    shuffle_runs,
)
from adacompute.evaluate.oracle_bounds import bracket_menu_oracle
from adacompute.evaluate.parallel import ProgressCallback, open_workers
from adacompute.evaluate.resampling import Bootstrap, Interval, Split, kfold
from adacompute.policies.base import PoolSource
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.menu import MenuPolicy
from adacompute.policies.menu.policy import MIN_PROBLEMS
from adacompute.policies.paths import MenuPaths, PolicyRun, draw_menu_paths
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots
from adacompute.pool.ballots import TOKEN_CHARACTERS
from adacompute.pool.menu import Menu, read_modes
from adacompute.replay.per_problem import run_policy
from adacompute.score.grades import grade_samples, mask_graded

__all__ = ["SPENT_TOLERANCE", "MenuEvaluation", "MenuRow", "evaluate_menu"]

_NEIGHBOURS = (0.6, 0.8, 0.92, 1.0, 1.08, 1.25, 1.6)  # of a budget, at which every policy is measured
_GRID = 24  # costs at which single modes are measured, for what the menu saves
_ROUTED = (1, 2, 4, 8, 16)  # samples of a mode that the prompt router chooses among
_ORACLE = (1, 2, 4, 8)  # samples of a mode that the oracle chooses among
SPENT_TOLERANCE = 0.01  # of a budget: who costs less than the rest can't spend it
_SMALL_GAIN = 0.005  # of accuracy: a menu that gains less for sure isn't worth it
_MENU = "menu"
_SINGLE = ("best fixed mix", "stopping, mixed")  # what one has without a menu: each mode alone, and mixes
_CASCADES = ("sequential cascade", "threshold cascade")
_BOOTSTRAP = 0xB007
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuRow:
    """One policy at one average cost, on problems that nothing was learned or chosen from."""

    policy: str
    budget: float  # average cost asked for, in the menu's unit
    cost: float  # reached: the budget, or less where even its best setting costs less
    accuracy: Interval  # over problems, or over families
    gain: Interval | None  # of the menu over this policy at the same cost, paired; None for the menu itself
    draws: Mapping[str, float]  # mean samples of each mode

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuEvaluation:
    """A menu policy and its peers at the same average costs, and whether the menu is worth having."""

    menu: Menu
    problems: int
    folds: int
    families: bool  # folds and intervals are over whole families
    basis: Basis  # agreement with all samples of the dearest mode where there are no grades
    budgets: tuple[float, ...]
    rows: tuple[MenuRow, ...]
    oracle: tuple[OracleBracket, ...]
    worth: bool | None  # None: can't tell
    verdict: str
    gain: Interval | None  # over the best of the single modes and their mixes, mean over budgets
    cascade_gain: Interval | None  # over the better kind of cascade, mean over budgets
    savings: Mapping[float, float | None]  # by budget: what single modes cost for the menu's accuracy
    protocol: str

    def get(self, policy: str, budget: float) -> MenuRow:
        """The row of a policy at one of the budgets."""
        for row in self.rows:
            if (row.policy, row.budget) == (policy, budget):
                return row
        names = ", ".join(dict.fromkeys(row.policy for row in self.rows))
        raise PolicyError(
            f"there is no row of {policy!r} at {budget:g}; it took no part or can't cost that little; "
            f"budgets are {', '.join(f'{each:g}' for each in self.budgets)}, policies {names}"
        )

    def find(self, policy: str, budget: float) -> MenuRow | None:
        """The same, or None where the policy took no part or can't cost that little."""
        return next((row for row in self.rows if (row.policy, row.budget) == (policy, budget)), None)

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies with a row, the menu first."""
        return tuple(dict.fromkeys(row.policy for row in self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; null for what isn't known."""
        names = ("problems", "folds", "families", "basis", "worth", "verdict", "protocol")
        return {
            "menu": self.menu.dump(),
            **{name: getattr(self, name) for name in names},
            "budgets": list(self.budgets),
            "rows": [row.to_dict() for row in self.rows],
            "oracle": [asdict(bracket) for bracket in self.oracle],
            "gain": None if self.gain is None else asdict(self.gain),
            "cascade_gain": None if self.cascade_gain is None else asdict(self.cascade_gain),
            "savings": {f"{budget:g}": cost for budget, cost in self.savings.items()},
        }


def evaluate_menu(
    source: PoolSource,
    menu: Menu,
    *,
    budgets: Sequence[float] | None = None,
    folds: int = 5,
    families: bool = False,
    orders: int = 40,
    seed: int = 0,
    workers: int = 1,
    labels: bool | None = None,
    weigh: Literal["auto"] | None = "auto",
    oracle: bool = True,
    fitted: Mapping[str, MenuPolicy] | None = None,
    progress: ProgressCallback | None = None,
) -> MenuEvaluation:
    """Compares `MenuPolicy` with its peers at each average cost, held out by problem or by family.

    `budgets` are in the menu's unit; None: some between the cheapest and the dearest mode. `families=True`
    holds out and resamples whole subjects. `labels` and `weigh` are the policy's: without labels policies are
    fitted and settings chosen by agreement, and judged by grades where there are any. `fitted` are policies
    that were fitted on other recordings, by the names of their rows: they are judged as they are, and of the
    training problems only their costs are used. `progress(done, total, last)` is called before the first step
    and after each.
    """
    modes = tuple(mode for mode in menu.modes if math.isfinite(mode.cost))
    if len(modes) < 2:
        raise PolicyError(
            f"a menu of {len(modes)} mode{'' if len(modes) == 1 else 's'} that may be drawn leaves nothing "
            "to compare; give two or more, or evaluate that mode alone"
        )
    if not modes[-1].cost:
        raise PolicyError("every mode of the menu is free, so there is no cost to compare at; give costs")
    menu = Menu(modes=modes, unit=menu.unit, currency=menu.currency)
    ballots, basis = _select_judged(read_modes(source).select(menu.modes))
    amounts = _check_budgets(menu, budgets)
    groups = _list_groups(ballots, families=families)
    splits = kfold(groups, folds, np.random.default_rng([seed, 0xF01D]))
    job = _Job(
        ballots=ballots,
        menu=menu,
        splits=splits,
        budgets=amounts,
        orders=orders,
        seed=seed,
        labels=labels,
        weigh=weigh,
        basis=basis,
        families=families,
        fitted=_check_fitted(menu, fitted or {}),
    )
    results: list[FoldResults] = [{} for _ in splits]
    has_oracle = oracle and basis == "accuracy"
    tasks: list[tuple[Callable[..., Any], Any]] = [
        *((_measure_fold, k) for k in range(folds)),
        *((_measure_fitted, name) for name in job.fitted),
        *([(_measure_oracle, None)] if has_oracle else []),
    ]
    steps = len(tasks) + (oracle and not has_oracle)
    brackets: tuple[OracleBracket, ...] = ()
    if progress is not None:
        progress(0, steps, "samples read")
    with open_workers(job, workers=workers) as run_tasks:
        for done, (index, result) in enumerate(run_tasks(_call, tasks), start=1):
            is_oracle = tasks[index][0] is _measure_oracle
            if is_oracle:
                brackets = result
            for fold, part in [] if is_oracle else [(index, result)] if index < folds else enumerate(result):
                results[fold] |= part
            if progress is not None:
                other = "oracle" if is_oracle else str(tasks[index][1])
                progress(done, steps, f"fold {index + 1} of {folds}" if index < folds else other)
    if oracle and not has_oracle and progress is not None:
        progress(steps, steps, "oracle")
    held_out = {name: _pool([result[name] for result in results], splits) for name in results[0]}
    boot = Bootstrap.of_groups(groups, rng=np.random.default_rng([seed, _BOOTSTRAP]))
    return _conclude(job, held_out, boot, brackets, families=families)


def _select_judged(ballots: Ballots) -> tuple[Ballots, Basis]:
    """The problems with grades; all of them, to be judged by agreement, where none has any."""
    graded = mask_graded(ballots, grade_samples(ballots))
    if not graded.any():
        return ballots, "agreement"
    return ballots if graded.all() else ballots.only(np.flatnonzero(graded)), "accuracy"


def _check_budgets(menu: Menu, budgets: Sequence[float] | None) -> tuple[float, ...]:
    cheapest, dearest = float(menu.costs[0]), float(menu.costs[-1])
    if budgets is None:
        low = max(cheapest * 1.5, dearest * 0.2)
        between = (float(f"{each:.2g}") for each in (*np.linspace(low, dearest, 3), 2 * dearest))
        return tuple(sorted({max(each, cheapest) for each in between}))
    amounts = tuple(float(budget) for budget in budgets)
    for amount in amounts:
        if not (math.isfinite(amount) and amount > 0 and amount >= cheapest * (1 - _ROUNDING)):
            raise BudgetInvalid(
                f"budget {amount:g} is below what one sample of the cheapest mode costs "
                f"({cheapest:g} for {menu.names[0]!r}), or nothing; give that much or more, above 0"
            )
    if not amounts:
        raise BudgetInvalid("no budget is given; give some average costs in the menu's unit, or None")
    return tuple(sorted(set(amounts)))


def _check_fitted(menu: Menu, fitted: Mapping[str, MenuPolicy]) -> Mapping[str, MenuPolicy]:
    for name, policy in fitted.items():
        if policy.names != menu.names:
            raise PolicyError(
                f"policy {name!r} is for modes {', '.join(policy.names)}, and the menu has "
                f"{', '.join(menu.names)}; give one for modes of these names"
            )
    return fitted


def _list_groups(ballots: Ballots, *, families: bool) -> tuple[str, ...]:
    """What is held out and resampled together: problems of one subject, or of one question."""
    if not families:
        return ballots.prompts
    known = [subject for subject in ballots.subjects if subject is not None]
    if len(known) < len(ballots) or len(set(known)) < 2:
        raise TooFewSamples(
            f"{len(known)} of {len(ballots)} problems have a subject, and they have {len(set(known))} "
            "different ones; families can be held out where every problem has a subject; leave families out"
        )
    return tuple(known)


# ---------------------------------------------------------------------- one fold


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """What every fold needs to know."""

    ballots: Ballots = field(repr=False)
    menu: Menu
    splits: tuple[Split, ...] = field(repr=False)
    budgets: tuple[float, ...]
    orders: int
    seed: int
    labels: bool | None
    weigh: Literal["auto"] | None
    basis: Basis
    families: bool
    fitted: Mapping[str, MenuPolicy] = field(repr=False)

    @property
    def by_agreement(self) -> bool:
        """Whether settings are chosen without labels."""
        return self.labels is False or self.basis == "agreement"

    @property
    def targets(self) -> tuple[float, ...]:
        """Costs that every policy aims at: each budget's neighbours, budget by budget."""
        return tuple(budget * part for budget in self.budgets for part in _NEIGHBOURS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _HeldOut:
    """One policy at several targets, on problems that nothing was chosen from."""

    cost: Floats  # (targets, problems)
    accuracy: Floats  # (targets, problems)
    draws: Floats  # (targets, modes, problems)


FoldResults = dict[str, _HeldOut]


def _call(job: _Job, measure: Callable[..., Any], argument: object) -> Any:  # noqa: ANN401
    """Runs one task in a worker: a fold, or a policy that was fitted elsewhere."""
    return measure(job, argument)


def _measure_oracle(job: _Job, _: None) -> tuple[OracleBracket, ...]:
    """Both bounds of the oracle at each budget."""
    return _bracket(job.ballots, job.menu, job.budgets, seed=job.seed)


def _measure_fold(job: _Job, number: int) -> FoldResults:
    """The menu and its peers on one fold."""
    split = job.splits[number]
    policy = MenuPolicy(job.menu, weigh=job.weigh, families=job.families, seed=job.seed)
    policy.fit(job.ballots.only(split.train), labels=job.labels)
    longest = policy.longest_by_mode
    weighed, plain = (_draw_paths(job, weigh, longest, number) for weigh in (policy.weigh, None))
    results = _measure_menu(job, policy, weighed.only(split.test), split, number)
    results |= _measure_peers(job, policy, weighed, plain, split)
    return results


def _draw_paths(job: _Job, weigh: VoteWeights | None, longest: Sequence[int], number: int) -> MenuPaths:
    """Random orders of every problem's samples: of one fold the same ones, however votes are weighed."""
    rng = np.random.default_rng([job.seed, number, 2])
    return draw_menu_paths(job.ballots, weigh=weigh, longest=longest, orders=job.orders, rng=rng)


def _make_votes(job: _Job, paths: MenuPaths) -> JointVotes:
    judged = paths.agrees if job.basis == "agreement" else paths.grade
    chosen = paths.agrees if job.by_agreement else judged
    return JointVotes(paths, judged=judged, chosen=chosen)


def _measure_menu(job: _Job, policy: MenuPolicy, paths: MenuPaths, split: Split, number: int) -> FoldResults:
    """The menu at the corners of its own hull that the targets need, and the shuffled control."""
    mixes = [mix_points(policy.cost_, policy.accuracy_, target) for target in job.targets]
    corners = sorted({corner for mix in mixes for corner in (mix.low, mix.high)})
    reading = policy.read([job.ballots.prompts[row] for row in split.test])
    runs = [
        run_policy(policy, paths, dial=float(policy.prices_[corner]), reading=reading) for corner in corners
    ]
    place = {corner: at for at, corner in enumerate(corners)}
    mixes = [MenuMix(low=place[mix.low], high=place[mix.high], share=mix.share) for mix in mixes]
    settings = follow_runs(paths, runs, lambda run: _get_judged(job, run))
    shuffled = shuffle_runs(_make_votes(job, paths), runs, np.random.default_rng([job.seed, number, 1]))
    rows = np.arange(len(split.test))
    return {_MENU: _apply(settings, mixes, rows), "shuffled": _apply(shuffled, mixes, rows)}


def _measure_fitted(job: _Job, name: str) -> list[FoldResults]:
    """A policy that was fitted elsewhere, on every fold: its price is chosen by cost on the other folds."""
    policy, ballots = job.fitted[name], job.ballots
    recorded = [int(votes.drawn.min()) for votes in ballots.parts]
    longest = [min(pair) for pair in zip(policy.longest_by_mode, recorded, strict=True)]
    paths = _draw_paths(job, policy.weigh, longest, number=len(job.splits))
    reading = policy.read(ballots.prompts)
    runs = [run_policy(policy, paths, dial=float(price), reading=reading) for price in policy.prices_]
    settings = follow_runs(paths, runs, lambda run: _get_judged(job, run))
    return [
        {
            name: _apply(
                settings,
                [mix_by_cost(settings.cost[:, split.train].mean(axis=1), target) for target in job.targets],
                split.test,
            )
        }
        for split in job.splits
    ]


def _get_judged(job: _Job, run: PolicyRun) -> Floats:
    return run.agrees if job.basis == "agreement" else run.grade


def _measure_peers(
    job: _Job, policy: MenuPolicy, weighed_paths: MenuPaths, plain_paths: MenuPaths, split: Split
) -> FoldResults:
    """Every peer, its settings chosen on the training problems."""
    weighed, plain = _make_votes(job, weighed_paths), _make_votes(job, plain_paths)
    both, names = (weighed, plain), policy.names
    single = [join_settings([follow_votes(votes, mode) for votes in both]) for mode in range(len(names))]
    stopping = [
        follow_stopping(weighed, mode, stopper, job.ballots.prompts)
        for mode, stopper in enumerate(policy.stoppers_)
    ]
    fixed = join_settings(single)
    families: dict[str, MenuSettings] = {
        "best fixed mix": fixed,
        "stopping, mixed": join_settings(stopping),
        "joint fixed vote": join_settings([fixed, *map(follow_joint_votes, both)]),
        "threshold cascade": join_settings(
            [fixed, *(follow_cascades(votes, sequential=False) for votes in both)]
        ),
        "sequential cascade": join_settings(
            [fixed, *(follow_cascades(votes, sequential=True) for votes in both)]
        ),
        **{f"uniform: {name}": own for name, own in zip(names, single, strict=True)},
        **{f"stopping: {name}": own for name, own in zip(names, stopping, strict=True)},
    }
    if not job.by_agreement:
        families["prompt router"] = _follow_prompt_router(job, plain, split)
    targets = (*job.targets, *_list_grid(fixed))
    results = {
        name: _apply(
            settings, [mix_settings(settings, split.train, target) for target in targets], split.test
        )
        for name, settings in families.items()
    }
    most = min(weighed_paths.longest[0], weighed_paths.longest[-1])
    ends = join_settings([follow_votes(weighed, mode, most=most) for mode in (0, len(names) - 1)])
    random = [mix_modes(ends, split.train, target) for target in targets]
    return {**results, "random router": _apply(ends, random, split.test)}


def _follow_prompt_router(job: _Job, plain: JointVotes, split: Split) -> MenuSettings:
    longest = plain.paths.longest
    counts = {
        name: tuple(count for count in _ROUTED if count <= most)
        for name, most in zip(job.menu.names, longest, strict=True)
    }
    router = CurvePolicy(menu=job.menu, budgets=counts, features="text", seed=job.seed, longest=max(longest))
    router.fit(job.ballots.only(split.train))
    single = {name: follow_votes(plain, mode) for mode, name in enumerate(job.menu.names)}
    return follow_router(router, job.ballots.prompts, single)


def _list_grid(fixed: MenuSettings) -> list[float]:
    """Costs from the cheapest setting to the dearest, at which single modes are measured too."""
    costs = fixed.cost.mean(axis=1)
    lowest = max(float(costs.min()), 1e-3 * float(costs.max()))
    return [float(cost) for cost in np.geomspace(lowest, float(costs.max()), _GRID)]


def _apply(settings: MenuSettings, mixes: Sequence[MenuMix], rows: Ints) -> _HeldOut:
    """What the mixes give on some problems."""
    return _HeldOut(
        cost=np.stack([mix.apply(settings.cost)[rows] for mix in mixes]),
        accuracy=np.stack([mix.apply(settings.accuracy)[rows] for mix in mixes]),
        draws=np.stack([mix.apply(settings.draws)[:, rows] for mix in mixes]),
    )


# ---------------------------------------------------------------------- all folds


def _pool(parts: Sequence[_HeldOut], splits: Sequence[Split]) -> _HeldOut:
    """Each problem's numbers are those of the fold that it was judged in."""
    problems = sum(len(split.test) for split in splits)
    pooled = {}
    for name in ("cost", "accuracy", "draws"):
        values = [getattr(part, name) for part in parts]
        pooled[name] = np.empty((*values[0].shape[:-1], problems))
        for split, value in zip(splits, values, strict=True):
            pooled[name][..., split.test] = value
    return _HeldOut(**pooled)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Matched:
    """One policy at exactly one budget."""

    cost: float
    each: Floats  # (problems,) its part in the accuracy at that cost
    draws: Floats  # (modes,)


def _match(result: _HeldOut, budget: float, at: int) -> _Matched | None:
    """Reads a policy's own held-out curve at the budget; None where it can't cost that little."""
    near = slice(at * len(_NEIGHBOURS), (at + 1) * len(_NEIGHBOURS))
    points = PolicyPoints(cost=result.cost[near], accuracy=result.accuracy[near])
    matched: MatchedCost | None = match_cost(points, budget)
    if matched is None:
        return None
    low, high = (result.draws[near][setting].mean(axis=1) for setting in matched.settings)
    draws = (1 - matched.probability) * low + matched.probability * high
    return _Matched(cost=matched.cost, each=matched.each, draws=draws)


def _bracket(
    ballots: Ballots, menu: Menu, budgets: tuple[float, ...], *, seed: int
) -> tuple[OracleBracket, ...]:
    fewest = [int(ballots[name].drawn.min()) for name in menu.names]
    choices = {
        name: tuple(count for count in _ORACLE if 2 * count <= max(2, most))
        for name, most in zip(menu.names, fewest, strict=True)
    }
    return bracket_menu_oracle(ballots, menu, budgets, choices=choices, mixed=len(menu) == 2, seed=seed)


def _conclude(
    job: _Job,
    held_out: Mapping[str, _HeldOut],
    boot: Bootstrap,
    oracle: tuple[OracleBracket, ...],
    *,
    families: bool,
) -> MenuEvaluation:
    matched = {
        (name, budget): _match(result, budget, at)
        for name, result in held_out.items()
        for at, budget in enumerate(job.budgets)
    }
    rows = [
        _make_row(job.menu, name, budget, own, matched[_MENU, budget], boot)
        for name in held_out
        for budget in job.budgets
        if (own := matched[name, budget]) is not None
    ]
    single = _find_best(matched, _SINGLE, job.budgets)
    cascade = _find_best(matched, _CASCADES, job.budgets)
    gain = _average_gain(matched, single, boot)
    savings = _compute_savings(job, matched, held_out)
    clear = [
        row.budget
        for row in rows
        if row.policy == single.get(row.budget) and row.gain and (row.gain.low or 0.0) > 0
    ]
    worth = _judge_worth(gain)
    return MenuEvaluation(
        menu=job.menu,
        problems=len(job.ballots),
        folds=len(job.splits),
        families=families,
        basis=job.basis,
        budgets=job.budgets,
        rows=tuple(rows),
        oracle=oracle,
        worth=worth,
        verdict=_word_verdict(job, worth, gain, {budget: savings[budget] for budget in clear}, matched)
        + _word_unspent(job, matched),
        gain=gain,
        cascade_gain=_average_gain(matched, cascade, boot),
        savings=savings,
        protocol=_describe(job, families=families),
    )


MatchedByBudget = Mapping[tuple[str, float], _Matched | None]


def _make_row(
    menu: Menu, name: str, budget: float, own: _Matched, ours: _Matched | None, boot: Bootstrap
) -> MenuRow:
    return MenuRow(
        policy=name,
        budget=budget,
        cost=own.cost,
        accuracy=boot.interval(own.each),
        gain=None if name == _MENU or ours is None else boot.difference(ours.each, own.each),
        draws={mode: float(count) for mode, count in zip(menu.names, own.draws, strict=True)},
    )


def _find_best(matched: MatchedByBudget, names: Sequence[str], budgets: Sequence[float]) -> dict[float, str]:
    """Which of some policies is best at each budget; budgets that neither meets are left out."""
    best = {}
    for budget in budgets:
        met = {name: own.each.mean() for name in names if (own := matched[name, budget]) is not None}
        if met and matched[_MENU, budget] is not None:
            best[budget] = max(met, key=lambda name: met[name])
    return best


def _average_gain(matched: MatchedByBudget, peers: Mapping[float, str], boot: Bootstrap) -> Interval | None:
    """What the menu gains over the best of some policies, mean over budgets; None: nothing to compare."""
    gains = []
    for budget, name in peers.items():
        ours, own = matched[_MENU, budget], matched[name, budget]
        if ours is not None and own is not None:
            gains.append(ours.each - own.each)
    return boot.interval(np.mean(gains, axis=0)) if gains else None


def _compute_savings(
    job: _Job, matched: MatchedByBudget, held_out: Mapping[str, _HeldOut]
) -> dict[float, float | None]:
    """What single modes and their mixes would cost, on their held-out curve, for the menu's accuracy."""
    curve = PolicyPoints(
        cost=np.concatenate([held_out[name].cost for name in _SINGLE]),
        accuracy=np.concatenate([held_out[name].accuracy for name in _SINGLE]),
    ).curve()
    savings: dict[float, float | None] = {}
    for budget in job.budgets:
        ours = matched[_MENU, budget]
        cost = math.inf if ours is None else find_least_cost(curve, float(ours.each.mean()))
        savings[budget] = cost if math.isfinite(cost) else None
    return savings


def _judge_worth(gain: Interval | None) -> bool | None:
    """Whether the menu gains for sure, or can't gain enough to matter; None: can't tell."""
    if gain is None or gain.low is None or gain.high is None:
        return None
    if gain.high < _SMALL_GAIN:
        return False
    return True if gain.low > 0 else None


def _word_verdict(
    job: _Job,
    worth: bool | None,
    gain: Interval | None,
    savings: Mapping[float, float | None],
    matched: MatchedByBudget,
) -> str:
    if gain is None:
        return "Can't tell: no budget can be met by both the menu and a single mode; give larger ones."
    numbers = ", ".join(job.menu.format_cost(budget, unit=False) for budget in job.budgets)
    listed = numbers if job.menu.unit == "cost" else f"{numbers} {job.menu.cost_unit}"
    right = "is right" if job.basis == "accuracy" else "gives the answer of all samples of the dearest mode"
    peers, mean = "the best of its modes, alone or mixed at random,", f"on the mean of budgets {listed}"
    if gain.mean < 0:
        gained = f"at the same cost the menu gains {_format_points(gain)} over {peers} {mean}"
    else:
        points = _format_points(gain)
        gained = f"at the same cost the menu {right} more often than {peers} by {points}, {mean}"
    if worth is False:
        return f"Not worth it: {gained}. {_advise(job, matched)}"
    if worth is None:
        return f"Can't tell: {gained}. Record more problems, or stay with what is simpler."
    return f"Worth it: {gained}.{_word_savings(job, savings, matched)}"


def _word_unspent(job: _Job, matched: MatchedByBudget) -> str:
    """A sentence where the menu can't spend the largest budget; else nothing."""
    own = matched[_MENU, job.budgets[-1]]
    if own is None or own.cost >= (1 - SPENT_TOLERANCE) * job.budgets[-1]:
        return ""
    return f" It spends {job.menu.format_cost(own.cost)} at most: more samples didn't help."


def _word_savings(job: _Job, savings: Mapping[float, float | None], matched: MatchedByBudget) -> str:
    """One sentence about the budget at which most is saved, of those where the menu gains for sure."""
    saved = {
        budget: math.inf if cost is None else cost / budget - 1
        for budget, cost in savings.items()
        if matched[_MENU, budget] is not None
    }
    if not saved:
        return ""
    budget = max(saved, key=lambda each: saved[each])
    ours, cost = matched[_MENU, budget], savings[budget]
    assert ours is not None
    reached = f" At {job.menu.format_cost(budget)} it reaches {100 * ours.each.mean():.1f}%"
    if cost is None:
        return f"{reached}, which single modes don't reach at any cost that was recorded."
    if cost <= budget:
        return f"{reached}."
    more = 100 * saved[budget]
    return f"{reached}, for which single modes cost {job.menu.format_cost(cost)}, {more:.0f}% more."


def _advise(job: _Job, matched: MatchedByBudget) -> str:
    """Which single mode to stay with: the one that most of the cost goes to without a menu."""
    spent = np.zeros(len(job.menu))
    for budget in job.budgets:
        if (own := matched["stopping, mixed", budget]) is not None:
            spent += own.draws * job.menu.costs / budget
    name = job.menu.names[int(spent.argmax())]
    return (
        f"Stay with mode {name!r} and stopping."
        if spent.max() > 0.8 * spent.sum()
        else "Mix the modes at random."
    )


def _format_points(gain: Interval) -> str:
    low, high = gain.low, gain.high
    assert low is not None
    assert high is not None
    return f"{100 * gain.mean:.1f} points (95%: {100 * low:.1f} to {100 * high:.1f})"


def _describe(job: _Job, *, families: bool) -> str:
    """How it was measured, in words."""
    held = "families (subjects)" if families else "problems"
    tuned = "agreement, without labels" if job.by_agreement else "labels"
    words = (
        f"{len(job.splits)} folds over {held}; policies fitted and all settings chosen on the other folds, "
        f"by {tuned}; {job.orders} random orders of each problem's samples; every policy at exactly the same "
        "cost, or the most that it can spend, on its own held-out curve; 95% intervals by bootstrap over "
        f"{held}, paired"
    )
    if min(len(split.train) for split in job.splits) < MIN_PROBLEMS:
        words += (
            f"; fitted on fewer than {MIN_PROBLEMS} problems, the menu has cascades and single modes only"
        )
    priced = [mode for mode in job.menu.modes if mode.prices and mode.prices.input]
    unknown = [mode for mode in priced if mode.prices and mode.prices.prompt_tokens is None]
    if any(job.ballots[mode.name].charge.tokens is None for mode in unknown):
        words += f"; tokens of prompts are estimated, one for {TOKEN_CHARACTERS} characters of a question"
    return words
