"""The verdict on a policy over several modes: does it beat each mode alone and their mixes?

The verdict depends on the policy's gain in accuracy at equal cost, averaged over the budgets. At each budget,
the gain is measured over the better of two rivals: the best mix of fixed numbers of samples, and the best mix
of stopping policies.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from adacompute.evaluate.comparison import (
    Decision,
    PolicyResult,
    Verdict,
    VerdictRow,
    find_least_cost,
    join_points,
)
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.measure import EvaluationSetup
from adacompute.evaluate.mode_rivals import ALL_MODES, CASCADES, SINGLES
from adacompute.policies.modes.policy import MIN_PROBLEMS
from adacompute.pool.ballots import TOKEN_CHARACTERS
from adacompute.pool.groups import ADVICE, FEWEST_GROUPS, are_enough, count_groups, count_in_groups
from adacompute.pool.modes import ModeSet
from adacompute.replay.matching import Bootstrap, Interval, MatchedCost, estimate_gain

# a policy whose cost is below the budget by more than this share can't spend the budget
SPENT_TOLERANCE = 0.01
_FEW_SAMPLES = 3  # a mode needs this many samples per problem to show how much voting improves its accuracy
_SMALL_GAIN = 0.005  # using all modes isn't worth it if the accuracy gain's interval is below this
_UNDECIDED = "Whether a menu of these modes is worth it can't be told yet."
_SENTENCES: Mapping[Decision, str] = {
    "pays": "A menu of these modes is worth it.",
    "single modes are as good": "A menu of these modes isn't worth it.",
}


class _Matches:
    """Every policy's result at every budget, by the policy's name and the budget's index."""

    def __init__(self, runs: EvaluationRuns) -> None:
        self.results: dict[str, PolicyResult] = {result.name: result for result in runs.everyone}
        self.mixes = {
            (name, at): result.match(budget, at)
            for name, result in self.results.items()
            for at, budget in enumerate(runs.setup.budgets)
        }

    def pair(self, names: Sequence[str], at: int) -> tuple[MatchedCost, MatchedCost] | None:
        """Returns a budget's results of the policy over all modes, and of the best policy in `names`.

        `at` is the budget's index. Returns None if the first, or all in `names`, always cost more.
        """
        ours = self.mixes[ALL_MODES, at]
        met = [mix for name in names if (mix := self.mixes[name, at]) is not None]
        return None if ours is None or not met else (ours, max(met, key=lambda mix: float(mix.each.mean())))


def judge_modes(runs: EvaluationRuns, boot: Bootstrap) -> Verdict:
    """Decides from all measurements whether using several modes is worth it."""
    setup, matches = runs.setup, _Matches(runs)
    mode_set, numbers = setup.modes, range(len(setup.budgets))
    curve = join_points([matches.results[name].points for name in SINGLES]).curve()
    rows, gains = [], {}
    for kind, names in (("single modes", SINGLES), ("cascades", CASCADES)):
        pairs = [pair for at in numbers if (pair := matches.pair(names, at)) is not None]
        if pairs:
            each = np.mean([ours.each - base.each for ours, base in pairs], axis=0)
            gains[kind] = estimate_gain(each, setup.ballots.groups)
        if names is SINGLES:
            rows = [
                _make_row(*pair, find_least_cost(curve, float(pair[0].each.mean())), boot) for pair in pairs
            ]
    gain = gains.get("single modes")
    decided = _decide(gain) if are_enough(setup.ballots.groups) else "too few problems to tell"
    support = _describe_gain(setup, decided, gain, rows, matches)
    last = matches.mixes[ALL_MODES, len(setup.budgets) - 1]
    most = {name: int(setup.ballots[name].drawn.max()) for name in mode_set.names}
    if few := ", ".join(f"{count} of {name!r}" for name, count in most.items() if count < _FEW_SAMPLES):
        support += f" What more samples are worth can't be told: a problem has at most {few}."
    elif last is not None and last.cost < (1 - SPENT_TOLERANCE) * last.budget:
        support += f" It spends {mode_set.format_cost(last.cost)} at most: more samples didn't help."
    return Verdict(
        decided=decided,
        sentence=_SENTENCES.get(decided, _UNDECIDED),
        support=support,
        policy=ALL_MODES,
        budget=max(rows, key=lambda row: row.gain.mean).budget if rows else None,
        basis=setup.basis,
        problems=len(setup.ballots),
        groups=count_groups(setup.ballots.groups),
        protocol=_describe_protocol(runs),
        rows=tuple(rows),
        gains=gains,
    )


def _make_row(ours: MatchedCost, base: MatchedCost, needed: float, boot: Bootstrap) -> VerdictRow:
    gain = boot.difference(ours.each, base.each)
    return VerdictRow(
        budget=ours.budget,
        cost=ours.cost,
        accuracy=ours.accuracy,
        uniform=base.accuracy,
        gain=gain,
        joint=Interval(mean=gain.mean, low=None, high=None),
        worth=Interval(mean=needed, low=None, high=None),
        rounds=None if ours.rounds is None else ours.rounds.mean,
        rounds_p95=None if ours.rounds is None else ours.rounds.p95,
    )


def _decide(gain: Interval | None) -> Decision:
    """Decides whether using all modes certainly gains accuracy, or certainly gains too little."""
    if gain is None:
        return "nothing to compare"
    if gain.low is None or gain.high is None:
        return "not decided yet"
    if gain.high < _SMALL_GAIN:
        return "single modes are as good"
    return "pays" if gain.low > 0 else "not decided yet"


def _describe_gain(
    setup: EvaluationSetup,
    decided: Decision,
    gain: Interval | None,
    rows: Sequence[VerdictRow],
    matches: _Matches,
) -> str:
    if gain is None:
        return "No budget can be met by both the menu and a single mode; give larger ones."
    mode_set = setup.modes
    numbers = ", ".join(mode_set.format_cost(budget, unit=False) for budget in setup.budgets)
    listed = numbers if mode_set.unit == "cost" else f"{numbers} {mode_set.cost_unit}"
    judges = "the other half of the most expensive mode's samples"
    right = "is right" if setup.basis == "accuracy" else f"agrees with {judges}"
    rivals, mean = "the best of its modes, alone or mixed at random,", f"on the mean of budgets {listed}"
    gained = f"At the same cost the menu {right} more often than {rivals} by {_format_points(gain)}, {mean}."
    if gain.mean < 0:
        gained = f"At the same cost the menu gains {_format_points(gain)} over {rivals} {mean}."
    if decided == "too few problems to tell":
        return (
            f"{gained} {_count_problems(setup)}, held out whole, are too few for an interval, which needs "
            f"{FEWEST_GROUPS} groups at least. {ADVICE}"
        )
    if decided == "pays":
        return gained + _describe_saving(mode_set, rows)
    if decided == "not decided yet":
        return f"{gained} Record more problems, or stay with what is simpler."
    return f"{gained} {_advise(setup, matches)}"


def _describe_saving(mode_set: ModeSet, rows: Sequence[VerdictRow]) -> str:
    """Describes the largest saving among the budgets at which using all modes certainly gains accuracy."""
    clear = [row for row in rows if (row.gain.low or 0.0) > 0]
    if not clear:
        return ""
    row = max(clear, key=lambda row: row.worth.mean / row.budget)
    needed = row.worth.mean
    reached = f" At {mode_set.format_cost(row.budget)} it reaches {100 * row.accuracy:.1f}%"
    if not math.isfinite(needed):
        return f"{reached}, which single modes don't reach at any cost that was recorded."
    if needed <= row.budget:
        return f"{reached}."
    more = 100 * (needed / row.budget - 1)
    return f"{reached}, for which single modes cost {mode_set.format_cost(needed)}, {more:.0f}% more."


def _advise(setup: EvaluationSetup, matches: _Matches) -> str:
    """Recommends the mode on which the mixes of stopping policies spend over 80% of their cost.

    If there is none, recommends to choose the mode of each request at random.
    """
    mode_set, name = setup.modes, SINGLES[-1]
    spent = np.zeros(len(mode_set))
    for at, budget in enumerate(setup.budgets):
        if (mix := matches.mixes[name, at]) is not None:
            spent += matches.results[name].count_draws(mix, at) * mode_set.costs / budget
    if spent.max() > 0.8 * spent.sum():
        name = mode_set.names[int(spent.argmax())]
        stopping = " and stopping" if setup.ballots[name].drawn.max() > 1 else ""
        return f"Stay with mode {name!r}{stopping}."
    return "Mix the modes at random."


def _format_points(gain: Interval) -> str:
    mean = f"{100 * gain.mean:z.1f} points"
    if gain.low is None or gain.high is None:
        return mean
    return f"{mean} (95%: {100 * gain.low:z.1f} to {100 * gain.high:z.1f})"


def _count_problems(setup: EvaluationSetup) -> str:
    return count_in_groups(len(setup.ballots), count_groups(setup.ballots.groups))


def _describe_protocol(runs: EvaluationRuns) -> str:
    """Describes how policies were measured, in words."""
    setup = runs.setup
    tuned = "agreement, without labels" if setup.learns_by_agreement else "labels"
    words = (
        f"{runs.parts} folds over {_count_problems(setup)}; policies fitted and all settings chosen on the "
        f"other folds, by {tuned}; {setup.orders} random orders of each problem's samples; every policy at "
        "exactly the same cost, or the most that it can spend, on its own held-out curve; 95% intervals by "
        "bootstrap, paired"
    )
    if min(len(split.train) for split in runs.splits) < MIN_PROBLEMS:
        words += (
            f"; fitted on fewer than {MIN_PROBLEMS} problems, the menu has cascades and single modes only"
        )
    priced = [mode for mode in setup.modes.modes if mode.prices and mode.prices.input]
    unknown = [mode for mode in priced if mode.prices and mode.prices.prompt_tokens is None]
    if any(setup.ballots[mode.name].charge.tokens is None for mode in unknown):
        words += f"; tokens of prompts are estimated, one for {TOKEN_CHARACTERS} characters of a question"
    return words
