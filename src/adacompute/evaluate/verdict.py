"""The verdict: does an adaptive number of samples per request beat the same number for all?

All commands get their verdict from `judge_pool`. Its protocol is fixed, so the same samples always get the
same verdict, whatever folds, orders or seed are used for tables.

- The policy is chosen beforehand (`stopping`, or the requested one), never by its result.
- Cross-fitting: a problem is always tested with a policy that was fitted on other problems. Results are
  averaged over several random assignments to folds, so that the verdict doesn't depend on one of them.
- The policy mixes the two settings whose costs are just below and above the budget. Uniform sampling uses the
  best mix of two numbers of samples, so the comparison never favours the policy. Uniform sampling is called
  better only if its numbers just below and above the cost also beat the policy.
- Intervals are studentised ("bootstrap-t"), which is more accurate for small samples than percentiles.
  Decisions use intervals that are joint over all budgets (bootstrap distribution of the largest |t|).
- The default budgets are always evaluated, because leaving some out would make the result look more certain.
- Decisions use the ends of intervals as they are printed: rounded to a tenth of a percentage point.
- Groups of similar problems are held out and resampled whole.
- With fewer than 30 problems or fewer than 10 groups, there is no verdict.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import TooFewSamples, format_count
from adacompute.evaluate.comparison import (
    OTHER_HALF,
    Decision,
    PolicyResult,
    RequestUse,
    UniformCurves,
    Verdict,
    VerdictRow,
    find_least_cost,
    format_samples,
    match_cost,
    pool_folds,
    uniform_equivalent,
)
from adacompute.evaluate.measure import (
    AVERAGE_BUDGETS,
    NEED_GRADES,
    ORACLE,
    OURS,
    UNIFORM,
    Basis,
    ComparedPolicy,
    PolicyMaker,
    Votes,
    leave_out_short,
    prepare_setup,
    select_graded,
    select_policies,
    select_problems,
)
from adacompute.evaluate.parallel import ProgressCallback, Threads, call_with_one_thread, measure_all
from adacompute.evaluate.resampling import kfold
from adacompute.policies.base import Policy, get_ballots
from adacompute.pool import Ballots, Pool
from adacompute.pool.ballots import ABSENT, PromptCharge, count_calls
from adacompute.pool.groups import ADVICE, FEWEST_GROUPS, are_enough, count_groups, count_in_groups
from adacompute.records import format_points
from adacompute.replay.matching import (
    LEAST_SPREAD,
    RULE_OF_THREE,
    Bootstrap,
    Interval,
    MatchedCost,
    PolicyPoints,
    draw_bootstrap,
    estimate_intervals,
    match_neighbours,
    mix_cost,
    sum_by_group,
)
from adacompute.score.score import compute_mean_output

Floats = npt.NDArray[np.float64]
# called with each fitted policy and the problems that it was fitted on
KeepFit = Callable[[Policy, Ballots], None]

FEWEST_PROBLEMS = 30  # minimum number of different questions for a verdict
SMALLEST_GAIN = 0.01  # uniform sampling counts as equally good if the accuracy gain is certainly below this
MOST_NEEDED = 10_000  # a verdict says how many more problems are needed, up to this number
FOLDS, ORDERS = 3, 100
# pairs (questions, repeats): with fewer than `questions` questions, results are averaged over `repeats`
# random assignments of problems to folds; the first pair that applies is used
REPEATS = ((64, 4), (200, 2))
_SEED = 17
_POWER = 0.8416  # quantile of the normal distribution for a power of 80%
_DEFAULT_BUDGET = 3.0  # the verdict's sentence is about this average number of samples, if it was evaluated
_TOLERANCE = 1e-9
_MANY_QUESTIONS = 100  # with fewer questions, starting several processes takes longer than it saves


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenUsage:
    """How many tokens and prompts each setting of a policy uses, and how many a single sample uses."""

    tokens: Floats  # mean number of output tokens per request; shape (settings, groups)
    # prompt tokens paid for per request, divided by the mean length of a prompt; shape (settings, groups)
    prompts: Floats
    sample_tokens: float  # mean number of output tokens per sample
    prompt_tokens: float  # mean length of a prompt in tokens
    charge: PromptCharge

    def measure(self, own: MatchedCost, samples: float) -> RequestUse:
        """Computes the tokens and prompts per request: with the policy, and with uniform sampling.

        `samples` is the number of samples that uniform sampling gives each request.
        """
        (low, high), share = own.settings, own.probability
        tokens, prompts = (
            float(((1 - share) * values[low] + share * values[high]).mean())
            for values in (self.tokens, self.prompts)
        )
        return RequestUse(
            tokens=tokens,
            prompts=prompts,
            uniform_tokens=samples * self.sample_tokens,
            uniform_prompts=float(count_calls(samples, self.charge.choices)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedResults:
    """Results of a policy and of uniform sampling on the same problems and random orders of the samples."""

    policy: str
    # the policy's cost and accuracy, for each setting and group of problems
    points: PolicyPoints = field(repr=False)
    uniform: PolicyPoints = field(repr=False)
    budgets: tuple[float, ...]
    basis: Basis
    votes: str  # kind of votes: "plain" or "weighted"
    problems: int  # number of different questions
    repeats: int = 1  # results are averages over this number of random assignments of problems to folds
    # tokens and prompts per request; None if tokens aren't recorded
    usage: TokenUsage | None = field(default=None, repr=False)

    def find_need(self, budget: float) -> tuple[float, float] | None:
        """Returns the policy's accuracy at a budget, and how many uniform samples reach it."""
        pair = _match_budget(self, budget)
        if pair is None:
            return None
        accuracy, curve = pair[0].accuracy, self.uniform.curve()
        return accuracy, min(find_least_cost(curve, accuracy), float(curve[0][-1]))


@dataclass(frozen=True, slots=True)
class _KeepingMaker:
    """Calls another maker, and passes each policy that it makes to `keep_fit`."""

    maker: PolicyMaker
    keep_fit: KeepFit

    def __call__(self, train: Ballots, *, budget: float, weigh: VoteWeights | None, longest: int) -> Policy:
        policy = self.maker(train, budget=budget, weigh=weigh, longest=longest)
        self.keep_fit(policy, train)
        return policy


def judge_pool(
    pool: Pool | Ballots,
    *,
    policy: str | tuple[str, PolicyMaker] | None = OURS,
    budgets: Sequence[float] = AVERAGE_BUDGETS,
    votes: Votes = "auto",
    workers: int = 1,
    threads: Threads | None = None,
    progress: ProgressCallback | None = None,
    keep_fit: KeepFit | None = None,
    keep_results: Callable[[PairedResults], None] | None = None,
) -> Verdict:
    """Decides whether a policy beats uniform sampling on recorded samples.

    `policy` is a name, or a name with a maker (`adacompute.evaluate.measure.PolicyMaker`); None: no policy.
    `budgets` are evaluated in addition to the default ones. Budgets that allow all recorded samples are left
    out, because no policy can differ from uniform sampling there. Problems with fewer samples than others are
    left out as in `fit`. Equal questions count once; similar questions are held out and resampled together
    (`Ballots.group`). Without grades, half of a problem's samples take no part, and agreement with their vote
    replaces accuracy. If `threads` of this process are given, `workers` is ignored. `keep_fit` is called with
    each policy fitted for the verdict and its training problems; `keep_results`, with the results that the
    verdict is based on.
    """
    recorded = get_ballots(pool).group()
    name = policy if policy is None or isinstance(policy, str) else policy[0]
    try:
        graded, basis = select_graded(recorded)
    except TooFewSamples as exc:
        return refuse_comparison(str(exc), "agreement", policy=name)
    ballots, longest = select_problems(graded)
    questions = len(set(ballots.prompts))
    if name is None or name in (UNIFORM, ORACLE):
        return refuse_comparison("no policy took part beside uniform sampling", basis)
    if longest < 2:
        reason = "no problem has two samples or more; record more samples per problem"
        return refuse_comparison(reason, basis, policy=name)
    if basis == "agreement" and name in NEED_GRADES:
        reason = f"{name} learns from gold answers or grades, and there are none"
        return refuse_comparison(reason, basis, policy=name, problems=questions)
    if questions < FEWEST_PROBLEMS:
        ungraded = len(graded) < len(recorded)
        return _judge_too_few(
            questions, name, basis, recorded=len(set(recorded.prompts)) if ungraded else None
        )
    if not are_enough(ballots.groups):
        return _judge_few_groups(ballots, name, basis)
    results = measure_paired(
        leave_out_short(recorded)[0],
        policy=name if isinstance(policy, str) else policy or name,
        budgets=tuple(sorted(budget for budget in {*AVERAGE_BUDGETS, *budgets} if budget < longest)),
        votes=votes,
        workers=workers if questions >= _MANY_QUESTIONS else 1,
        threads=threads,
        progress=progress,
        keep_fit=keep_fit,
    )
    if keep_results is not None:
        keep_results(results)
    return call_with_one_thread(judge, results)


def count_verdict_steps(ballots: Ballots) -> int:
    """Counts how many times `judge_pool` will report progress for this pool."""
    questions = len(set(ballots.prompts))
    is_judged = questions >= FEWEST_PROBLEMS and are_enough(ballots.group().groups)
    return 2 * FOLDS * count_repeats(questions) if is_judged else 0


def count_repeats(questions: int) -> int:
    """Returns over how many random assignments to folds to average: more if there are fewer questions."""
    return next((repeats for below, repeats in REPEATS if questions < below), 1)


def choose_candidate(
    policies: Sequence[str | tuple[str, PolicyMaker]],
) -> str | tuple[str, PolicyMaker] | None:
    """Chooses the policy for the verdict: `stopping` if it is among the policies, or else the first one.

    Uniform sampling and the oracle don't count; returns None if there is no other policy.

    >>> choose_candidate(("fixed", "asc", "stopping")), choose_candidate(("fixed", "asc", "esc"))
    ('stopping', 'asc')
    """
    named = [(item if isinstance(item, str) else item[0], item) for item in policies]
    others = [item for name, item in named if name not in (UNIFORM, ORACLE)]
    return next((item for name, item in named if name == OURS), others[0] if others else None)


def measure_paired(
    ballots: Ballots,
    *,
    policy: str | tuple[str, PolicyMaker] | ComparedPolicy,
    budgets: tuple[float, ...] = AVERAGE_BUDGETS,
    votes: Votes = "auto",
    workers: int = 1,
    threads: Threads | None = None,
    progress: ProgressCallback | None = None,
    keep_fit: KeepFit | None = None,
    repeats: int | None = None,
    seed: int = _SEED,
) -> PairedResults:
    """Runs a policy and uniform sampling according to the verdict's protocol.

    Sorts problems by question first, so that their order in a file doesn't matter. Only studies that vary the
    protocol set `repeats` and `seed`.
    """
    by_question = sorted(range(len(ballots)), key=lambda row: (ballots.prompts[row], ballots.ids[row]))
    setup, _ = prepare_setup(
        ballots.only(np.array(by_question)),
        budgets,
        votes=votes,
        orders=ORDERS,
        seed=seed,
        calibrates=False,
    )
    groups, questions = setup.ballots.groups, len(set(setup.ballots.prompts))
    repeats = count_repeats(questions) if repeats is None else repeats
    candidate = policy if isinstance(policy, ComparedPolicy) else select_policies((policy,), setup.ballots)[0]
    if keep_fit is not None:
        candidate = replace(candidate, maker=_KeepingMaker(candidate.maker, keep_fit))
    compared = (*select_policies((UNIFORM,)), candidate)
    rounds = [kfold(groups, FOLDS, np.random.default_rng([seed, number])) for number in range(repeats)]
    splits = [split for assigned in rounds for split in assigned]
    measured, _ = measure_all(setup, splits, compared, workers=workers, threads=threads, progress=progress)

    def pool(name: str) -> list[PolicyResult]:
        pooled = []
        for number, assigned in enumerate(rounds):
            parts = {(at, name): measured[number * FOLDS + at, name] for at in range(FOLDS)}
            pooled.append(pool_folds(parts, name, assigned))
        return pooled

    def average(pooled: Sequence[PolicyResult]) -> PolicyPoints:
        return PolicyPoints(
            cost=sum_by_group(np.mean([each.points.cost for each in pooled], axis=0), groups),
            accuracy=sum_by_group(np.mean([each.points.accuracy for each in pooled], axis=0), groups),
            rounds=np.mean([own for each in pooled if (own := each.points.rounds) is not None], axis=0),
        )

    own = pool(candidate.name)
    return PairedResults(
        policy=candidate.name,
        points=average(own),
        uniform=average(pool(UNIFORM)),
        budgets=setup.budgets,
        basis=setup.basis,
        votes="weighted" if setup.weighted else "plain",
        problems=questions,
        repeats=repeats,
        usage=_measure_usage(own, setup.ballots, groups),
    )


def _measure_usage(
    pooled: Sequence[PolicyResult], ballots: Ballots, groups: npt.NDArray[np.int64]
) -> TokenUsage | None:
    """Averages a policy's tokens and prompts over all assignments of problems to folds.

    Returns None if tokens aren't recorded.
    """
    if np.isnan(ballots.tokens[ballots.classes != ABSENT]).any():
        return None
    prompts = ballots.count_prompt_tokens()
    shares = prompts / (prompts.mean() or 1.0)  # each prompt's length, relative to the average prompt
    tokens, waves = (
        np.mean([getattr(each, name) for each in pooled], axis=0) for name in ("point_tokens", "point_waves")
    )
    calls = count_calls(np.mean([each.points.cost for each in pooled], axis=0), ballots.charge.choices, waves)
    return TokenUsage(
        tokens=sum_by_group(tokens, groups),
        prompts=sum_by_group(calls * shares, groups),
        sample_tokens=float(compute_mean_output(ballots, np.arange(len(ballots))).mean()),
        prompt_tokens=float(prompts.mean()),
        charge=ballots.charge,
    )


def judge(results: PairedResults) -> Verdict:
    """Computes the verdict from results, with intervals for each budget alone and for all at once."""
    if results.problems < FEWEST_PROBLEMS:
        return _judge_too_few(results.problems, results.policy, results.basis)
    matches = [_match_budget(results, budget) for budget in results.budgets]
    pairs = [pair for pair in matches if pair is not None]
    if not pairs:
        listed = ", ".join(f"{budget:g}" for budget in results.budgets)
        reason = f"{results.policy} can't cost as little as {format_count(listed, 'sample')} on average"
        return refuse_comparison(
            reason,
            results.basis,
            policy=results.policy,
            problems=results.problems,
        )
    gains = np.stack([own.each - base.each for own, base in pairs], axis=1)  # shape (groups, budgets)
    boot = draw_bootstrap(len(gains))
    alone, joint, critical = estimate_intervals(gains, boot)
    joint = _raise_upper_ends(joint, results, pairs, boot)
    curves, usage = UniformCurves.of(results.uniform, boot), results.usage
    rows = tuple(
        VerdictRow(
            budget=own.budget,
            cost=own.cost,
            accuracy=own.accuracy,
            uniform=base.accuracy,
            gain=_clip_interval(alone[at], base.accuracy),
            joint=_clip_interval(joint[at], base.accuracy),
            worth=(worth := uniform_equivalent(own, curves, boot=boot)),
            use=None if usage is None else usage.measure(own, min(worth.mean, curves.most)),
            rounds=None if own.rounds is None else own.rounds.mean,
            rounds_p95=None if own.rounds is None else own.rounds.p95,
        )
        for at, (own, base) in enumerate(pairs)
    )
    decided = decide(rows)
    needed, row = None, _choose_row(rows, decided)
    if decided == "not decided yet":
        deviations = gains.std(axis=0, ddof=1)
        needed = count_needed(gains.mean(axis=0), deviations, critical, len(gains), spoken_of=rows.index(row))
        # convert the number of groups to a number of problems
        needed = min(MOST_NEEDED, needed * results.problems // len(gains))
    draft = Verdict(
        decided=decided,
        sentence="",
        policy=results.policy,
        budget=row.budget,
        basis=results.basis,
        problems=results.problems,
        groups=len(gains),
        problems_needed=needed,
        protocol=_describe_protocol(results, len(rows)),
        rows=rows,
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        charge="" if usage is None else str(usage.charge),
    )
    longest = int(results.uniform.cost.mean(axis=1).max())
    return replace(draft, sentence=_write_sentence(draft, row, longest), support=_write_support(draft, row))


def _raise_upper_ends(
    joint: list[Interval],
    results: PairedResults,
    pairs: Sequence[tuple[MatchedCost, MatchedCost]],
    boot: Bootstrap,
) -> list[Interval]:
    """Raises the upper ends of intervals below zero, because uniform sampling's best mix may be best by luck.

    The gain over another mix is computed, too: of the two numbers of samples that are just below and above
    the cost. An interval below zero gets the higher one of the two upper ends.
    """
    plain = [match_neighbours(results.uniform, own.cost) for own, _ in pairs]
    gains = [own.each - base.each for (own, _), base in zip(pairs, plain, strict=True) if base is not None]
    if len(gains) < len(pairs):
        return joint
    _, others, _ = estimate_intervals(np.stack(gains, axis=1), boot)
    return [
        replace(ends, high=max(ends.high, other.high))
        if ends.high is not None and other.high is not None and ends.high < 0
        else ends
        for ends, other in zip(joint, others, strict=True)
    ]


def _clip_interval(interval: Interval, uniform: float) -> Interval:
    """Limits an interval to possible gains: the resulting accuracy can't be below 0 or above 1."""
    low, high = interval.low, interval.high
    return replace(
        interval,
        low=None if low is None else min(interval.mean, max(low, -uniform)),
        high=None if high is None else max(interval.mean, min(high, 1 - uniform)),
    )


def _match_budget(results: PairedResults, budget: float) -> tuple[MatchedCost, MatchedCost] | None:
    """Finds the policy's mix of settings for a budget, and uniform sampling's mix for the same cost.

    Returns None if all settings cost more than the budget.
    """
    own = match_neighbours(results.points, budget)
    base = None if own is None else match_cost(results.uniform, own.cost)
    if own is None or base is None:
        return None
    if own.cost < budget - _TOLERANCE:  # the policy can't spend the budget, so compare at its highest cost
        own = replace(own, each=own.each - base.price * (mix_cost(results.points, own) - own.cost))
    return own, base


def decide(rows: Sequence[VerdictRow]) -> Decision:
    """Decides from the intervals that are joint over all budgets, rounded as in the printed verdict."""
    ends = [(_round_points(row.joint.low), _round_points(row.joint.high)) for row in rows]
    if any(low > 0 for low, _ in ends):
        return "pays"
    if any(high < 0 for _, high in ends):
        return "uniform is better"
    if all((row.joint.high or 0.0) < SMALLEST_GAIN for row in rows):
        return "uniform is as good"
    return "not decided yet"


def count_needed(
    gain: Floats, deviation: Floats, critical: float, problems: int, *, spoken_of: int = 0
) -> int:
    """Estimates how many more problems are needed for a decision with 80% power, if gains stay the same.

    `gain` and `deviation` have a value for each budget; `spoken_of` is the index of the budget that the
    verdict's sentence is about. (Choosing the budget with the best result would exploit luck.) There is a
    decision if the interval at this budget excludes zero, or if the intervals at all budgets are below
    `SMALLEST_GAIN`. The estimate is for the one that needs fewer problems; 10,000 means 10,000 or more.
    """
    reach = (critical + _POWER) * deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        clear = np.where(reach > 0, (reach / np.abs(gain)) ** 2, np.inf)
        small = np.where(gain < SMALLEST_GAIN, (reach / (SMALLEST_GAIN - gain)) ** 2, np.inf)
    # number of problems needed at a budget if all problems have the same gain there
    if_equal = RULE_OF_THREE / SMALLEST_GAIN
    small = np.where(deviation > LEAST_SPREAD, small, if_equal)
    wanted = min(float(clear[spoken_of]), float(small.max()))
    if not math.isfinite(wanted) or wanted - problems >= MOST_NEEDED:
        return MOST_NEEDED
    return max(1, math.ceil(wanted) - problems)


def _choose_row(rows: Sequence[VerdictRow], decided: Decision) -> VerdictRow:
    """Chooses the row of the budget that the verdict's sentence is about.

    By default, this is three samples, or the middle budget if three wasn't evaluated. If a gain or a loss
    isn't certain there, it is the budget at which it is most certain. If uniform sampling is as good, it is
    the budget at which the gain's interval reaches highest.
    """
    default = next((row for row in rows if row.budget == _DEFAULT_BUDGET), rows[len(rows) // 2])
    if decided == "pays" and not _round_points(default.joint.low) > 0:
        return max(rows, key=lambda row: row.joint.low or 0.0)
    if decided == "uniform is better" and not _round_points(default.joint.high) < 0:
        return min(rows, key=lambda row: row.joint.high or 0.0)
    if decided == "uniform is as good":
        return max(rows, key=lambda row: row.joint.high or 0.0)
    return default


def _judge_too_few(problems: int, policy: str, basis: Basis, *, recorded: int | None = None) -> Verdict:
    """Makes the verdict that there are too few problems to tell.

    `recorded` is the number of all questions; None if all problems have grades.
    """
    needed = FEWEST_PROBLEMS - problems
    here = f"here {'is 1 problem' if problems == 1 else f'are {problems} different problems'}"
    if recorded is not None:
        verb = "has" if problems == 1 else "have"
        here = f"{problems} of {recorded:,} problems {verb} gold answers or grades"
    return Verdict(
        decided="too few problems to tell",
        sentence=f"Too few problems to tell: {here}, and a verdict needs {FEWEST_PROBLEMS} at least, "
        f"{needed} more.",
        support="What few problems show is mostly chance; 100 to 300 usually decide it.",
        policy=policy,
        basis=basis,
        problems=problems,
        problems_needed=needed,
    )


def _judge_few_groups(ballots: Ballots, policy: str, basis: Basis) -> Verdict:
    questions, groups = len(set(ballots.prompts)), count_groups(ballots.groups)
    return Verdict(
        decided="too few problems to tell",
        sentence=f"Too few groups to tell: here are {count_in_groups(questions, groups)} of similar ones, "
        f"and a verdict needs {FEWEST_GROUPS} groups at least.",
        support=ADVICE,
        policy=policy,
        basis=basis,
        problems=questions,
        groups=groups,
    )


def refuse_comparison(reason: str, basis: Basis, *, policy: str | None = None, problems: int = 0) -> Verdict:
    """Makes a verdict that says why there is nothing to compare."""
    sentence = f"Nothing to compare: {reason}."
    return Verdict(
        decided="nothing to compare", sentence=sentence, basis=basis, policy=policy, problems=problems
    )


def _describe_protocol(results: PairedResults, budgets: int) -> str:
    rounds = "" if results.repeats == 1 else f" assigned {results.repeats} times and averaged"
    problems = count_in_groups(results.problems, results.points.cost.shape[1])
    intervals = "95% interval" if budgets == 1 else f"joint 95% intervals over {budgets} budgets"
    return (
        f"held-out, {FOLDS} folds{rounds}, {ORDERS} orders of the samples each, {results.votes} votes; at "
        f"the same cost, paired over {problems}; {intervals} by bootstrap-t"
    )


def _write_sentence(verdict: Verdict, row: VerdictRow, longest: int) -> str:
    adaptive = "adaptive sampling" if verdict.policy == OURS else f"adaptive sampling by {verdict.policy}"
    unit = "points" if verdict.basis == "accuracy" else "points of agreement"
    at = f"at {_count_samples(row)} on average"
    match verdict.decided:
        case "pays":
            return f"{_capitalise(adaptive)} pays here: {at} {_describe_saving(verdict, row, longest)}."
        case "uniform is as good":
            return (
                f"Uniform sampling is as good here: {adaptive} gains {format_points(row.joint.high or 0.0)} "
                f"{unit} at most, at any average budget looked at."
            )
        case "uniform is better":
            return (
                f"Uniform sampling is better here: {adaptive} loses {-100 * row.gain.mean:z.1f} {unit} {at}."
            )
        case _:
            low, high = format_points(row.joint.low or 0.0), format_points(row.joint.high or 0.0)
            return (
                f"Not decided yet: {at} {adaptive} gains between {low} and {high} {unit}; "
                f"{_describe_needed(verdict.problems_needed)} may decide it, if the gain stays what it seems."
            )


def _describe_saving(verdict: Verdict, row: VerdictRow, longest: int) -> str:
    """Describes how many samples uniform sampling needs to be as accurate as the policy.

    Describes a lower bound if it needs more samples than were recorded.
    """
    verb = "you get" if verdict.basis == "accuracy" else f"you agree with {OTHER_HALF} as often as"
    gives = "give" if verdict.basis == "accuracy" else "do"
    worth = row.worth
    if math.isfinite(worth.mean):
        what = "what " if verdict.basis == "accuracy" else ""
        text = f"{verb} {what}{format_samples(worth.mean)} {gives} uniformly"
        return f"{text}, {max(0.0, 1 - row.cost / worth.mean):.0%} less"
    low = worth.low if worth.low is not None and math.isfinite(worth.low) else float(longest)
    what = "at least what " if verdict.basis == "accuracy" else ""
    saved = f"{max(0.0, 1 - row.cost / low):.0%}"
    return f"{verb} {what}{format_samples(low)} {gives} uniformly, at least {saved} less"


def _write_support(verdict: Verdict, row: VerdictRow) -> str:
    verb = "is right on" if verdict.basis == "accuracy" else f"agrees with {OTHER_HALF} on"
    text = (
        f"{_capitalise(verdict.policy or '')} at {_count_samples(row)} on average {verb} "
        f"{row.accuracy:.1%}, uniform sampling {row.uniform:.1%} at the same cost: "
        f"{format_points(row.gain.mean)} points ({format_points(row.joint.low or 0.0)} to "
        f"{format_points(row.joint.high or 0.0)}, 95% for {_count_budgets(len(verdict.rows))})."
    )
    sure = verdict.sure_budgets
    if verdict.decided == "pays" and len(sure) < len(verdict.rows):
        rest = ", ".join(f"{each.budget:g}" for each in verdict.rows if each.budget not in sure)
        text += f" Sure at {', '.join(f'{budget:g}' for budget in sure)}; not at {rest}."
    return f"{text} {_capitalise(verdict.protocol)}."


def _count_samples(row: VerdictRow) -> str:
    return format_count(format_samples(row.cost), "sample")


def _count_budgets(count: int) -> str:
    return "this budget" if count == 1 else f"all {count} budgets at once"


def _describe_needed(needed: int | None) -> str:
    if needed is None or needed >= MOST_NEEDED:
        return f"{MOST_NEEDED:,} more problems or more"
    digits = max(0, len(str(needed)) - 2)
    rounded = math.ceil(needed / 10**digits) * 10**digits
    return f"about {format_count(rounded, 'more problem')}"


def _round_points(value: float | None) -> float:
    """Converts a share to percentage points, rounded to a tenth; never -0.0."""
    return round(100 * (value or 0.0), 1) + 0.0


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
