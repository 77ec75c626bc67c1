"""Measures a policy over several modes, and its rivals, on one split.

The rivals are each mode alone (votes and stopping), mixes, joint votes, routers and cascades. A rival has
many settings. Each setting determines how many samples of each mode a request gets; some look at the votes so
far. A request is a random order of a problem's recorded samples. For each budget, the best mix of two
settings is chosen on the training problems. On the test problems, its cost differs slightly from the budget.
So each rival is measured at several costs near the budget, and the results are interpolated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from math import log

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.evaluate.measure import EvaluationSetup, SplitData, SplitResult
from adacompute.evaluate.resampling import Split
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.paths import ModePaths, PolicyRun, draw_paths_by_mode
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.votes import Floats, Ints
from adacompute.pool import Ballots
from adacompute.pool.groups import resemble
from adacompute.replay.per_problem import run_policy
from adacompute.score.grades import keep_first
from adacompute.solve.hull import find_hull

ALL_MODES = "menu"  # name of the policy over all modes
# table headings for the best single mode or mix of modes: its accuracy at the same cost, and its cost at the
# same accuracy as the policy over all modes
WITHOUT, NEEDED = "without a menu", "no menu needs"
# names of rivals that use one mode per request: mixes of fixed numbers of samples, and of stopping policies
SINGLES = ("best fixed mix", "stopping, mixed")
CASCADES = ("sequential cascade", "threshold cascade")
NEIGHBOURS = (0.6, 0.8, 0.92, 1.0, 1.08, 1.25, 1.6)  # rivals are measured at each budget times these factors

Bools = npt.NDArray[np.bool_]
Halves = npt.NDArray[np.float32]  # 32-bit, to take half the memory of Floats
Ends = tuple[Ints, ...]  # one array per mode: the number of samples that each request gets from it
# the numbers of samples that each request gets from each mode, and each request's number of rounds
Setting = tuple[Ends, Ints | int]

_CHEAP, _DEAR = 8, 12  # maximum number of samples from a cascade's first mode, and from its last
_DEAR_DRAWS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
# rules to try: sampling from a cascade's last mode stops after this number of equal answers
_AGREEMENTS = (1, 2, 3, 4, 5)
# rules for cascades of all modes: (maximum number of samples from a mode, equal answers that stop sampling
# it); all modes before the last have the same rule
_CHAIN = ((1, 1), (2, 2), (3, 2), (3, 3), (4, 3), (5, 4))
# rules for the modes before the last, tried in all combinations: (maximum number of samples from a mode,
# equal answers that stop sampling it)
_CHAIN_STEPS = ((2, 2), (3, 2), (3, 3))
_CHAIN_SHARES = (0.5, 0.6, 0.75, 1.0)
_CHAIN_DRAWS = (1, 2, 3, 5)
_STOPPING_PRICES = np.geomspace(0.001, 0.5, 28)  # prices per sample to try for stopping policies
_ROUTER_PRICES = 40
# number of additional costs at which rivals are measured, to find where they are as accurate as the policy
# over all modes
_GRID = 24
_ROUTED = (1, 2, 4, 8, 16)  # numbers of samples that the prompt router can choose
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """The results of each setting of a policy on the same problems."""

    cost: Floats = field(repr=False)  # mean cost; shape (settings, problems)
    accuracy: Floats = field(repr=False)  # the accuracy that is reported; shape (settings, problems)
    # the accuracy or agreement by which settings are chosen; shape (settings, problems)
    worth: Floats = field(repr=False)
    # mean number of samples from each mode; shape (settings, modes, problems)
    draws: Floats = field(repr=False)
    # share of test requests with 0, 1, ... rounds; shape (settings, rounds + 1)
    rounds: Floats = field(repr=False)

    def __len__(self) -> int:
        return len(self.cost)


def join_settings(parts: Sequence[Settings]) -> Settings:
    """Returns the settings of several policies as if they were the settings of a single policy."""
    names = ("cost", "accuracy", "worth", "draws", "rounds")
    return Settings(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingMix:
    """Indices of two settings: a request gets `high` with the probability `share`, and otherwise `low`."""

    low: int
    high: int
    share: float

    def apply(self, values: Floats) -> Floats:
        """Returns the mix's expected values; `values` has a row for each setting."""
        return np.asarray((1 - self.share) * values[self.low] + self.share * values[self.high])


def mix_settings(settings: Settings, train: Ints, budget: float) -> SettingMix:
    """Finds the best mix of two settings at a budget, on the training problems.

    Below the cost of the cheapest setting, returns the cheapest; above the cost of the best setting, the
    best.
    """
    return mix_points(settings.cost[:, train].mean(axis=1), settings.worth[:, train].mean(axis=1), budget)


def mix_points(cost: Floats, worth: Floats, budget: float) -> SettingMix:
    """Finds the best mix of two settings at a budget; `cost` and `worth` have a value for each setting.

    >>> mix_points(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.5, 0.8]), 2.5)
    SettingMix(low=0, high=2, share=0.5)
    """
    corners = find_hull(cost, worth)
    above = int(np.searchsorted(cost[corners], budget))
    if above in (0, len(corners)):
        corner = int(corners[min(above, len(corners) - 1)])
        return SettingMix(low=corner, high=corner, share=0.0)
    low, high = int(corners[above - 1]), int(corners[above])
    return SettingMix(low=low, high=high, share=float((budget - cost[low]) / (cost[high] - cost[low])))


def mix_modes(settings: Settings, train: Ints, budget: float) -> SettingMix:
    """Mixes the cheapest and the most expensive mode at random, with equal numbers of samples.

    The first half of `settings` are votes of 1, 2, ... samples from the cheapest mode; the second half, from
    the most expensive one. The number of samples is chosen on the training problems. The budget determines
    the probability of the expensive mode.
    """
    cost, worth = settings.cost[:, train].mean(axis=1), settings.worth[:, train].mean(axis=1)
    most = len(settings) // 2
    mixes = []
    for cheap, dear in zip(range(most), range(most, 2 * most), strict=True):
        gap = cost[dear] - cost[cheap]
        if gap > _TOLERANCE * cost[cheap]:
            share = float(np.clip((budget - cost[cheap]) / gap, 0.0, 1.0))
        else:  # if both modes cost the same, choose the more accurate one
            share = float(worth[dear] > worth[cheap])
        mixes.append(SettingMix(low=cheap, high=dear, share=share))
    affordable = [mix for mix in mixes if mix.apply(cost) <= budget * (1 + _TOLERANCE)]
    return max(affordable or mixes[:1], key=lambda mix: float(mix.apply(worth)))


class JointVotes:
    """Measures votes that combine samples from several modes, with any number of samples from each."""

    def __init__(self, paths: ModePaths, *, by_agreement: bool = False, test: Ints | None = None) -> None:
        """Takes random orders. Settings are chosen by grades, or by agreement with the full vote.

        Rounds are counted only for problems whose indices are in `test`; None: all problems.
        """
        self.paths = paths
        self._tested = slice(None) if test is None else np.isin(paths.problems, test)
        self._judged, self._chosen = paths.grade, paths.agrees if by_agreement else paths.grade
        self._rows = np.arange(len(paths))
        # cost of 0, 1, ... samples: one array per mode, of shape (samples + 1, requests)
        self._costs = [np.ascontiguousarray(mode.cost) for mode in paths.modes]
        self._tables: dict[tuple[int, ...], tuple[Halves, Halves]] = {}

    @property
    def modes(self) -> int:
        """The number of modes."""
        return len(self.paths.modes)

    @cached_property
    def first(self) -> list[npt.NDArray[np.int16]]:
        """One array per mode: how many votes the most common answer has after 0, 1, ... samples."""
        return [mode.counts.max(axis=2) for mode in self.paths.modes]

    def measure(
        self, group: tuple[int, ...], settings: Iterator[Setting], *, by_table: bool = True
    ) -> Settings:
        """Measures settings that draw from the modes in `group`.

        With `by_table`, the winning answers of one or two modes are looked up in tables. Tables of two modes
        end at 8 samples of the first and 12 of the second.
        """
        by_table = by_table and len(group) <= 2
        rows: list[tuple[Floats, Floats, Floats, Floats, Floats]] = []
        for ends, rounds in settings:
            judged, chosen = self._look_up(group, ends, by_table=by_table)
            costs = [
                self._costs[k].take(end * len(self.paths) + self._rows)
                for k, end in zip(group, ends, strict=True)
            ]
            cost = sum(costs[1:], start=costs[0])
            draws = np.zeros((self.modes, len(self.paths.ballots)))
            for mode, end in zip(group, ends, strict=True):
                draws[mode] = self.paths.mean_per_problem(end)
            accuracy = self.paths.mean_per_problem(judged)
            worth = accuracy if chosen is judged else self.paths.mean_per_problem(chosen)
            rows.append(
                (self.paths.mean_per_problem(cost), accuracy, worth, draws, self.share_rounds(rounds))
            )
        cost, accuracy, worth, draws, shares = (np.stack(column) for column in zip(*rows, strict=True))
        return Settings(cost=cost, accuracy=accuracy, worth=worth, draws=draws, rounds=shares)

    def share_rounds(self, rounds: Ints | int) -> Floats:
        """Returns the share of test requests with 0, 1, ... rounds, given each request's number of rounds."""
        counted = np.broadcast_to(rounds, len(self.paths))[self._tested]
        shares = np.bincount(counted, minlength=sum(self.paths.longest) + 1) / len(counted)
        return np.asarray(shares)

    def _look_up(self, group: tuple[int, ...], ends: Ends, *, by_table: bool) -> tuple[Floats, Floats]:
        """Returns two arrays of the winning answers' worth: to report, and to choose settings by."""
        if not by_table:
            joint = np.sum(
                [self.paths.modes[k].joint[end, self._rows] for k, end in zip(group, ends, strict=True)],
                axis=0,
            )
            return self._find_worth(joint)
        judged, chosen = self._get_tables(group)
        place = np.ravel_multi_index((*ends, self._rows), judged.shape)
        values = judged.take(place).astype(np.float64)
        return values, values if chosen is judged else chosen.take(place).astype(np.float64)

    def _get_tables(self, group: tuple[int, ...]) -> tuple[Halves, Halves]:
        """Returns two tables of the winning answers' worth: to report, and to choose settings by.

        The axes are the numbers of samples from each of the one or two modes, then the requests.
        """
        if group not in self._tables:
            longest = self.paths.longest
            counts = [min(longest[group[0]], _CHEAP), min(longest[group[-1]], _DEAR)]
            shape = (longest[group[0]],) if len(group) == 1 else tuple(counts)
            judged = np.zeros((*(count + 1 for count in shape), len(self.paths)), dtype=np.float32)
            chosen = judged.copy()
            for cell in product(*(range(count + 1) for count in shape)):
                joint = sum(self.paths.modes[k].joint[count] for k, count in zip(group, cell, strict=True))
                judged[cell], chosen[cell] = self._find_worth(np.asarray(joint))
            self._tables[group] = judged, chosen if self._chosen is not self._judged else judged
        return self._tables[group]

    def _find_worth(self, joint: Ints) -> tuple[Floats, Floats]:
        """Returns two arrays of the winning answers' worth: to report, and to choose settings by.

        The answer whose votes weigh most wins; in a tie, the first one. Without votes, the worth is 0.
        """
        leader = joint.argmax(axis=1)
        has_leader = joint[self._rows, leader] > 0
        judged = np.where(has_leader, self._judged[self._rows, leader], 0.0)
        if self._chosen is self._judged:
            return judged, judged
        return judged, np.where(has_leader, self._chosen[self._rows, leader], 0.0)

    def fill(self, count: int) -> Ints:
        """Returns an array that gives every request `count` samples."""
        return np.full(len(self.paths), count, dtype=np.int64)


def follow_votes(votes: JointVotes, mode: int, *, most: int | None = None) -> Settings:
    """Measures votes of 1, 2, ... up to `most` samples of one mode; all requests get the same number."""
    most = votes.paths.longest[mode] if most is None else most
    return votes.measure((mode,), (((votes.fill(count),), 1) for count in range(1, most + 1)))


def follow_joint_votes(votes: JointVotes) -> Settings:
    """Measures votes over fixed numbers of samples from two modes, and over equal numbers from all modes."""
    parts = []
    for pair in combinations(range(votes.modes), 2):
        counts = product(*(range(1, cap + 1) for cap in _find_caps(votes, pair)))
        parts.append(votes.measure(pair, (((votes.fill(a), votes.fill(b)), 1) for a, b in counts)))
    if votes.modes > 2:
        whole = tuple(range(votes.modes))
        most = min(*votes.paths.longest, _CHEAP)
        parts.append(
            votes.measure(whole, (((votes.fill(count),) * len(whole), 1) for count in range(1, most + 1)))
        )
    return join_settings(parts)


def follow_cascades(votes: JointVotes, *, sequential: bool) -> Settings:
    """Measures cascades of two modes, the cheaper one first, and of all modes if there are three or more.

    A threshold cascade draws k samples from a mode; it stops if the most common answer's share reaches a
    threshold. A sequential cascade draws at most k samples, and stops as soon as m of them agree; it may have
    a single mode. Otherwise the next mode is sampled. The final answer is a vote over all samples.
    """
    steps = _step_sequentially if sequential else _step_by_share
    parts = [votes.measure(pair, steps(votes, pair)) for pair in combinations(range(votes.modes), 2)]
    if votes.modes > 2:
        chain = _chain_sequentially if sequential else _chain_by_share
        parts.append(votes.measure(tuple(range(votes.modes)), chain(votes)))
    if sequential:
        for mode in range(votes.modes):
            parts.append(
                votes.measure(
                    (mode,),
                    (
                        ((end,), rounds)
                        for end, rounds in _list_ends(votes, mode, min(votes.paths.longest[mode], _DEAR))
                    ),
                )
            )
    return join_settings(parts)


def _find_caps(votes: JointVotes, pair: tuple[int, ...]) -> tuple[int, int]:
    longest = votes.paths.longest
    return min(longest[pair[0]], _CHEAP), min(longest[pair[-1]], _DEAR)


def _step_by_share(votes: JointVotes, pair: tuple[int, ...]) -> Iterator[Setting]:
    cheap, dear = _find_caps(votes, pair)
    for count in range(1, cheap + 1):
        first = votes.first[pair[0]][count]
        for least in range(1, count + 1):
            stops = first >= least
            for draws in (each for each in _DEAR_DRAWS if each <= dear):
                yield (votes.fill(count), np.where(stops, 0, draws)), np.where(stops, 1, 2)


def _step_sequentially(votes: JointVotes, pair: tuple[int, ...]) -> Iterator[Setting]:
    cheap, dear = _find_caps(votes, pair)
    last = list(_list_ends(votes, pair[-1], dear))
    for count in range(1, cheap + 1):
        for agree in range(1, count + 1):
            ends, stops, rounds = _find_end(votes.first[pair[0]], count, agree)
            for dear_ends, dear_rounds in last:
                yield (ends, np.where(stops, 0, dear_ends)), rounds + np.where(stops, 0, dear_rounds)


def _list_ends(votes: JointVotes, mode: int, most: int) -> Iterator[tuple[Ints, Ints | int]]:
    """Yields each request's numbers of samples and of rounds, for each rule that stops sampling a mode.

    A rule stops after a fixed number of samples, or earlier if enough answers are equal.
    """
    for draws in (each for each in _DEAR_DRAWS if each <= most):
        for agree in (each for each in _AGREEMENTS if each < draws):
            ends, _, rounds = _find_end(votes.first[mode], draws, agree)
            yield ends, rounds
        yield votes.fill(draws), 1


def _find_end(first: npt.NDArray[np.int16], draws: int, agree: int) -> tuple[Ints, Bools, Ints]:
    """Finds how many samples a request needs until `agree` of them agree; at most `draws`.

    Returns each request's number of samples, whether enough of them agreed, and its number of rounds. Each
    round draws only as many samples as are needed if all agree.
    """
    reached = first[1 : draws + 1] >= agree
    agrees = np.asarray(reached.any(axis=0))
    ends = np.where(agrees, reached.argmax(axis=0) + 1, draws)
    drawn, rounds, rows = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64), np.arange(len(ends))
    while (going := drawn < ends).any():
        missing = np.maximum(agree - first[drawn, rows], 1)
        drawn = np.where(going, np.minimum(drawn + missing, draws), drawn)
        rounds += going
    return ends, agrees, rounds


def _chain_sequentially(votes: JointVotes) -> Iterator[Setting]:
    """Yields settings that sample one mode after another, until enough samples from one mode agree."""
    longest, early = votes.paths.longest, votes.modes - 1
    steps = [(step,) * early for step in _CHAIN] + list(product(_CHAIN_STEPS, repeat=early))
    for chosen in dict.fromkeys(steps):
        if any(draws > longest[mode] for mode, (draws, _) in enumerate(chosen)):
            continue
        stages = [_find_end(votes.first[mode], *step) for mode, step in enumerate(chosen)]
        for draws, agree in _CHAIN:
            if draws <= longest[-1]:
                yield _chain([*stages, _find_end(votes.first[-1], draws, agree)])


def _chain_by_share(votes: JointVotes) -> Iterator[Setting]:
    """Yields settings that sample one mode after another, until an answer's share is large enough."""
    longest, early = votes.paths.longest, votes.modes - 1
    for draws, share, last in product(_CHAIN_DRAWS, _CHAIN_SHARES, _CHAIN_DRAWS):
        if draws <= min(longest[:-1]) and last <= longest[-1]:
            stages = [
                (votes.fill(draws), votes.first[mode][draws] >= share * draws, votes.fill(1))
                for mode in range(early)
            ]
            yield _chain([*stages, (votes.fill(last), votes.first[-1][last] >= 0, votes.fill(1))])


def _chain(stages: Sequence[tuple[Ints, Bools, Ints]]) -> Setting:
    """Chains stages into a cascade: a request that stops at one stage draws nothing at later stages."""
    going, rounds = np.ones(len(stages[0][0]), dtype=bool), np.zeros(len(stages[0][0]), dtype=np.int64)
    ends = []
    for count, stops, own_rounds in stages:
        ends.append(np.where(going, count, 0))
        rounds += np.where(going, own_rounds, 0)
        going &= ~stops
    return tuple(ends), rounds


def follow_stopping(
    votes: JointVotes, mode: int, stopper: StoppingPolicy, prompts: Sequence[str]
) -> Settings:
    """Measures one mode with its fitted stopping policy, at many prices per sample."""
    paths, longest = votes.paths, votes.paths.longest[mode]
    rows, reading = np.arange(len(paths)), np.repeat(stopper.read(prompts), paths.orders, axis=0)
    goes_on = np.empty((longest - 1, len(paths)))
    drawn = np.zeros((len(paths), votes.modes), dtype=np.int64)
    for count in range(1, longest):
        drawn[:, mode] = count
        state = paths.votes_after(rows, drawn).state_of(mode)
        goes_on[count - 1] = stopper.estimate_critical_prices(reading, state)
    ends = (
        1 + np.cumprod(goes_on > log(price), axis=0).sum(axis=0, dtype=np.int64) for price in _STOPPING_PRICES
    )
    # each round draws one sample, so `end` is also the number of rounds
    return votes.measure((mode,), (((end,), end) for end in ends))


def follow_router(router: CurvePolicy, prompts: Sequence[str], single: Mapping[str, Settings]) -> Settings:
    """Measures a router that chooses a mode and a number of samples for each prompt, at many prices.

    `single` maps each mode's name to the results of votes of 1, 2, ... of its samples.
    """
    names = list(single)
    sizes = np.cumsum([0, *(len(single[name]) for name in names)])
    every = join_settings([single[name] for name in names])
    draws = [column.draws[0] for column in router.columns]
    place = np.array([sizes[names.index(name)] + count - 1 for name, count in draws])
    dearest = float(router.costs.max())
    problems = np.arange(len(prompts))
    chosen = [
        place[router.choose(prompts, price)]
        for price in np.geomspace(
            1e-4 / dearest, 10 / max(float(router.costs.min()), 1e-3 * dearest), _ROUTER_PRICES
        )
    ]
    return Settings(
        cost=np.stack([every.cost[rows, problems] for rows in chosen]),
        accuracy=np.stack([every.accuracy[rows, problems] for rows in chosen]),
        worth=np.stack([every.worth[rows, problems] for rows in chosen]),
        draws=np.stack([every.draws[rows, :, problems].T for rows in chosen]),
        rounds=every.rounds[[0] * len(chosen)],  # all samples are drawn in one round
    )


def follow_runs(paths: ModePaths, runs: Sequence[PolicyRun]) -> Settings:
    """Computes the results of a policy's runs; each run is one setting.

    `worth` is a copy of the accuracy; nothing is chosen by it.
    """
    accuracy = np.stack([paths.mean_per_problem(run.grade) for run in runs])
    return Settings(
        cost=np.stack([paths.mean_per_problem(run.cost) for run in runs]),
        accuracy=accuracy,
        worth=accuracy,
        draws=np.stack([[paths.mean_per_problem(column) for column in run.by_mode.T] for run in runs]),
        rounds=np.stack(
            [np.bincount(run.waves, minlength=sum(paths.longest) + 1) / len(run.waves) for run in runs]
        ),
    )


def shuffle_runs(votes: JointVotes, runs: Sequence[PolicyRun], rng: np.random.Generator) -> Settings:
    """Measures a control: each request gets the numbers of samples of another request, chosen at random."""
    problems = len(votes.paths.ballots)
    orders = np.arange(votes.paths.orders)
    group = tuple(range(votes.modes))
    settings: list[Setting] = []
    for run in runs:
        order = rng.permutation(problems)
        donor = np.empty(problems, dtype=np.int64)
        # rotating a random order gives each problem the numbers of samples of another one, never its own
        donor[order] = np.roll(order, 1)
        rows = (donor[:, None] * votes.paths.orders + orders).reshape(-1)
        settings.append((tuple(run.by_mode[rows].T), run.waves[rows]))
    return votes.measure(group, iter(settings), by_table=False)


@dataclass(frozen=True, slots=True)
class ModeRivals:
    """Fits and measures the policy over all modes and its rivals on one split."""

    name: str = "every policy"

    def measure(self, data: SplitData) -> dict[str, SplitResult]:
        """Measures the policy and its rivals on one split; returns results by name."""
        setup, split, mode_set = data.setup, data.split, data.setup.modes
        policy = MenuPolicy(
            mode_set,
            weigh="auto" if setup.weighted else None,
            families=resemble(setup.ballots.groups),
            seed=setup.seed,
        )
        policy.fit(cut_to_common(data.train, setup.ballots), labels=setup.labels)
        weighed, plain = (
            draw_mode_paths(setup, weigh, policy.longest_by_mode, data.number)
            for weigh in (policy.weigh, None)
        )
        results = _measure_all_modes(setup, policy, weighed.only(split.test), split, data.number)
        return results | _measure_rivals(setup, policy, weighed, plain, split)


def cut_to_common(train: Ballots, ballots: Ballots) -> Ballots:
    """Cuts `train` to the number of samples of each mode that every problem in `ballots` has.

    Without this, the fitted policy could draw more samples than a problem in `ballots` has. Returns `train`
    unchanged if, for each mode, it has a problem with no more samples than that.
    """
    counts = [int(votes.drawn.min()) for votes in ballots.parts]
    if all(votes.drawn.min() <= count for votes, count in zip(train.parts, counts, strict=True)):
        return train
    return keep_first(train, counts)


def draw_mode_paths(
    setup: EvaluationSetup, weigh: VoteWeights | None, longest: Sequence[int], number: int
) -> ModePaths:
    """Draws random orders of every problem's samples, the same ones for all vote weights."""
    rng = np.random.default_rng([setup.seed, number, 2])
    return draw_paths_by_mode(setup.ballots, weigh=weigh, longest=longest, orders=setup.orders, rng=rng)


def list_targets(setup: EvaluationSetup) -> tuple[float, ...]:
    """Lists the average costs at which every rival is measured: for each budget, several costs near it."""
    return tuple(budget * part for budget in setup.budgets for part in NEIGHBOURS)


def _measure_all_modes(
    setup: EvaluationSetup, policy: MenuPolicy, paths: ModePaths, split: Split, number: int
) -> dict[str, SplitResult]:
    """Measures the policy over all modes at every target cost, and a control.

    In the control, each request gets the numbers of samples that the policy draws for another one.
    """
    mixes = [mix_points(policy.cost_, policy.accuracy_, target) for target in list_targets(setup)]
    corners = sorted({corner for mix in mixes for corner in (mix.low, mix.high)})
    reading = policy.read([setup.ballots.prompts[row] for row in split.test])
    runs = [
        run_policy(policy, paths, dial=float(policy.prices_[corner]), reading=reading) for corner in corners
    ]
    place = {corner: at for at, corner in enumerate(corners)}
    mixes = [SettingMix(low=place[mix.low], high=place[mix.high], share=mix.share) for mix in mixes]
    settings = follow_runs(paths, runs)
    shuffled = shuffle_runs(JointVotes(paths), runs, np.random.default_rng([setup.seed, number, 1]))
    rows = np.arange(len(split.test))
    return {
        ALL_MODES: apply_mixes(setup, settings, mixes, rows),
        "shuffled draws": apply_mixes(setup, shuffled, mixes, rows),
    }


def _measure_rivals(
    setup: EvaluationSetup,
    policy: MenuPolicy,
    weighed_paths: ModePaths,
    plain_paths: ModePaths,
    split: Split,
) -> dict[str, SplitResult]:
    """Measures every rival, with settings chosen on the training problems."""
    by_agreement, names = setup.learns_by_agreement, policy.names
    orders = weighed_paths, plain_paths
    both = [JointVotes(paths, by_agreement=by_agreement, test=split.test) for paths in orders]
    weighed, plain = both
    single = [join_settings([follow_votes(votes, mode) for votes in both]) for mode in range(len(names))]
    stopping = [
        follow_stopping(weighed, mode, stopper, setup.ballots.prompts)
        for mode, stopper in enumerate(policy.stoppers_)
    ]
    fixed = join_settings(single)
    cascades = {
        sequential: [follow_cascades(votes, sequential=sequential) for votes in both]
        for sequential in (False, True)
    }
    rivals: dict[str, Settings] = {
        "best fixed mix": fixed,
        "stopping, mixed": join_settings(stopping),
        "joint fixed vote": join_settings([fixed, *map(follow_joint_votes, both)]),
        "threshold cascade": join_settings([fixed, *cascades[False]]),
        "sequential cascade": join_settings([fixed, *cascades[True]]),
        **{f"uniform: {name}": own for name, own in zip(names, single, strict=True)},
        **{f"stopping: {name}": own for name, own in zip(names, stopping, strict=True)},
    }
    if not setup.learns_by_agreement:
        rivals["prompt router"] = _follow_prompt_router(setup, plain, split)
    targets = (*list_targets(setup), *_list_grid(fixed))
    results = {
        name: apply_mixes(
            setup, settings, [mix_settings(settings, split.train, target) for target in targets], split.test
        )
        for name, settings in rivals.items()
    }
    most = min(weighed_paths.longest[0], weighed_paths.longest[-1])
    ends = join_settings([follow_votes(weighed, mode, most=most) for mode in (0, len(names) - 1)])
    random = [mix_modes(ends, split.train, target) for target in targets]
    return {**results, "random router": apply_mixes(setup, ends, random, split.test)}


def _follow_prompt_router(setup: EvaluationSetup, plain: JointVotes, split: Split) -> Settings:
    longest, mode_set = plain.paths.longest, setup.modes
    counts = {
        name: tuple(count for count in _ROUTED if count <= most)
        for name, most in zip(mode_set.names, longest, strict=True)
    }
    router = CurvePolicy(
        menu=mode_set, budgets=counts, features="text", seed=setup.seed, longest=max(longest)
    )
    router.fit(setup.ballots.only(split.train))
    single = {name: follow_votes(plain, mode) for mode, name in enumerate(mode_set.names)}
    return follow_router(router, setup.ballots.prompts, single)


def _list_grid(fixed: Settings) -> list[float]:
    """Lists average costs at which to measure rivals, from the cheapest to the most expensive setting."""
    costs = fixed.cost.mean(axis=1)
    lowest = max(float(costs.min()), 1e-3 * float(costs.max()))
    return [float(cost) for cost in np.geomspace(lowest, float(costs.max()), _GRID)]


def apply_mixes(
    setup: EvaluationSetup, settings: Settings, mixes: Sequence[SettingMix], rows: Ints
) -> SplitResult:
    """Returns the results of mixes of settings on the problems `rows`.

    `mixes` begins with one for each cost in `list_targets`. Those for exactly a budget give the results by
    budget.
    """
    cost = np.stack([mix.apply(settings.cost)[rows] for mix in mixes])
    accuracy = np.stack([mix.apply(settings.accuracy)[rows] for mix in mixes])
    unknown = np.full(cost.shape, np.nan)
    points = np.stack([cost, accuracy, unknown, unknown])
    at = [place * len(NEIGHBOURS) + NEIGHBOURS.index(1.0) for place in range(len(setup.budgets))]
    return SplitResult(
        rows=points[:, at],
        points=points,
        dials=(None,) * len(at),
        draws=np.stack([mix.apply(settings.draws)[:, rows] for mix in mixes]),
        rounds=np.stack([mix.apply(settings.rounds) for mix in mixes]),
    )
