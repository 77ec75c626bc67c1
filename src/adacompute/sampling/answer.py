"""`answer`: answers a batch of requests within one average budget, by votes over samples.

The price of a sample falls until the budget is spent. Of several modes the policy also says which one
is asked next, and all of them are paid from one cap.
"""

import asyncio
import copy
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from adacompute.answers import Tally, Task, VoteWeights, grade_answer, pick_representative
from adacompute.client import Endpoint
from adacompute.client.modes import ModeConfig
from adacompute.errors import BudgetInvalid, BudgetOutOfRange, CollectError, NotRecorded, PolicyError
from adacompute.policies.base import Policy, place_orders
from adacompute.policies.modes.policy import MenuPolicy, check_modes
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.votes import Floats
from adacompute.pool import Ballots, Mode, Pool
from adacompute.pool.modes import ModeSet
from adacompute.records import Budget, BudgetUnit, Problem, Sample, TokenPrices
from adacompute.replay.per_problem import decide_first_wave
from adacompute.replay.replay import bootstrap_mean, check_policy
from adacompute.sampling.answer_file import RequestAnswer
from adacompute.sampling.collect import (
    RunResult,
    SamplerGroup,
    SourcePlan,
    SourceUse,
    average_share,
    check_arguments,
    make_budgets,
    measure_source,
    open_samplers,
    prepare_pool,
    run_coroutine,
    summarise_run,
)
from adacompute.sampling.plan import (
    CostBudget,
    CostCap,
    SampleRun,
    choose_unit_prices,
    compute_batch_spent,
    compute_sample_limit,
    compute_spent,
    estimate_prompt_size,
)
from adacompute.sampling.waves import BatchVotes, BatchWave, ModePlanner, WavePlanner, highest_dial
from adacompute.sampling.workers import CollectProgress, StopReason
from adacompute.score import MeanEstimate
from adacompute.score.aggregates import fit_vote_weights

_Mode = TypeVar("_Mode", bound="ModeConfig | SourcePlan")
RESUMABLE_STOPS: tuple[StopReason, ...] = ("signal", "endpoint")  # the same call should be made again
_MIN_SAMPLES = 20  # with fewer samples their mean is worse than the one the policy has
_SEED = 0  # for the interval
_NOTHING_LEFT = "not asked: the budget was spent on other requests; raise the budget or the cost"
_GUESSED_PROMPTS = 100  # whose mean length a guess of costs takes
_UNSTORED = "unstorable: a response could not be stored; the pool has the reason among its failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(RunResult):
    """The result of a batch."""

    # in the order of the requests; none where it was broken off
    each: tuple[RequestAnswer, ...] = field(repr=False)
    requests: int
    policy: str  # its kind
    budget: float  # a request, on average, at most, in `unit`
    limit: float  # in all, at most, in `unit`
    spent: int  # samples in all, with those of earlier runs
    rounds: int  # in this run
    price: float | None  # the dial that the batch came down to; None: the policy has none
    unsettled: int  # requests that the policy would continue at that dial if the budget weren't spent
    weigh: VoteWeights | None  # how votes were weighed; None: plain
    plain: bool  # True: the policy weighs votes, but the samples carry no confidence
    accuracy: MeanEstimate | None  # over requests with a gold answer; None: there are none
    unit: BudgetUnit = "samples"  # the budget's
    currency: str = ""  # where the unit is money
    used: float = 0.0  # counted towards the limit, with what may have been charged
    excess_tokens: int | None = None  # in a response longer than max_tokens
    found: float | None = None  # share of samples in which an answer was found
    modes: tuple[SourceUse, ...] = ()  # those with a name, in the order of the policy
    prices: tuple[float, ...] = field(default=(), repr=False)  # each request's at first, over several modes

    @property
    def broken_off(self) -> bool:
        """Whether it was stopped so that the same call should be made again: there are no answers yet."""
        return self.stopped in RESUMABLE_STOPS

    @property
    def average(self) -> float:
        """Samples a request."""
        return self.spent / self.requests

    @property
    def answered(self) -> int:
        """Requests with an answer."""
        return sum(item.answer is not None for item in self.each)

    @property
    def is_over_limit(self) -> bool:
        """Whether more was used than the limit: by earlier runs, or by an endpoint without max_tokens."""
        return self.used > self.limit

    @property
    def left_out(self) -> int:
        """Requests without a sample, because the budget was spent on others."""
        return sum(item.error == _NOTHING_LEFT for item in self.each)

    @property
    def agreement(self) -> float | None:
        """The leader's mean share of the votes, over requests with an answer."""
        shares = [item.agreement for item in self.each if item.answer is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def counts(self) -> dict[int, int]:
        """Samples -> how many requests got so many."""
        return dict(sorted(Counter(item.samples for item in self.each).items()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: the totals."""
        accuracy = self.accuracy
        return {
            "requests": self.requests,
            "answered": self.answered,
            "policy": self.policy,
            "budget": self.budget,
            "unit": self.unit,
            "limit": self.limit,
            "used": self.used,
            "exceeded": self.is_over_limit,
            "left_out": self.left_out,
            "samples": self.spent,
            "average": self.average,
            "price": self.price,
            "unsettled": self.unsettled,
            "votes": "plain" if self.weigh is None else "weighted",
            "counts": {str(samples): requests for samples, requests in self.counts.items()},
            "agreement": self.agreement,
            "accuracy": None if accuracy is None else accuracy.mean,
            "low": None if accuracy is None else accuracy.low,
            "high": None if accuracy is None else accuracy.high,
            "rounds": self.rounds,
            **self.list_run(),
            "answers_found": self.found,
        } | ({"modes": {use.name: use.to_dict() for use in self.modes}} if self.modes else {})


def answer(
    problems: Sequence[Problem],
    pool: Pool,
    plans: SourcePlan | Sequence[SourcePlan],
    *,
    policy: Policy,
    budget: float | str | Budget,
    max_cost: float | None = None,
    max_samples: int = 0,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> Answers:
    """Answers every request by a vote, with at most `budget` a request on average: samples, tokens or money.

    Every request gets what the policy asks for at the highest value of its dial; then the dial falls,
    step by step, and the requests that the policy continues get more, until the budget is spent. No
    calibration is needed. A policy without a dial runs as it is, under the same limit. No request gets more
    than `max_samples`, if that isn't 0. Each sample is
    in the pool before it counts, so whatever ends this, the same call continues with what is stored,
    and buys none of it again. The policy itself is not changed. Raises SourceChanged where the pool's
    samples are of another model, template or parameter, unless `another`.

    A budget in tokens or money is not exceeded either: before a call is sent, the most that it can cost is
    reserved, with `max_tokens` for each sample. So up to that much of the whole may be left over. An endpoint
    that ignores `max_tokens` can exceed it by a few calls, those before the first response was counted. Calls
    for other problems of the pool don't count, nor does what a verifier costs.

    With several plans, a `MenuPolicy` over their modes says which one is asked next, and the
    budget is money. A mode that fails for a request is left out for it. Requests are begun at the price that
    what is left buys, and the price falls once all have ended.
    """
    problems, plans = check_arguments(problems, pool, plans)
    plans = choose_modes(check_policy(policy), plans)
    plans = tuple(_share_patience(plan, len(plans)) for plan in plans)
    if len(plans) > 1 and any(plan.verifier is not None for plan in plans):
        raise CollectError("a verifier scores samples of one model; leave it out, or give no menu")
    average = parse_batch_budget(budget, plans)
    limit = compute_limit(average, len(problems))
    prices = count_prices(average, plans)
    _check_budget(problems, average, limit, policy, plans, prices)
    prepare_pool(pool, problems, plans, another=another, regrade=regrade)
    spent, elsewhere = compute_spent(pool, prices), 0.0
    if average.unit != "samples":
        ids = {problem.id for problem in problems}
        elsewhere = spent - sum(
            compute_batch_spent(pool, ids, plan.asking, prices[plan.name]) for plan in plans
        )
    cap = CostCap(limit=_find_cost_limit(average, limit + elsewhere, max_cost), spent=spent)
    budgets = make_budgets(plans, prices, cap)
    batch = _Batch(
        problems, pool, plans, remove_wave_limit(policy), average, limit, budgets, elsewhere, max_samples
    )
    return run_coroutine(batch.run(progress, signals))


def choose_modes(policy: Policy, modes: Sequence[_Mode], place: str = "policy") -> tuple[_Mode, ...]:
    """The modes that a policy may draw from, in its order; PolicyError where they don't fit."""
    by_name = {mode.name: mode for mode in modes}
    if all(name in by_name for name in policy.names):
        return tuple(by_name[name] for name in policy.names)
    check_modes(policy, [name for name in by_name if name], place)
    if len(modes) > 1:
        raise PolicyError(
            f"{place}: a {policy.kind} policy draws samples of one mode, and the menu has "
            f"{', '.join(by_name)}; fit one with `adacompute fit --policy menu`, or give a menu of one mode"
        )
    return tuple(modes)


def _share_patience(plan: SourcePlan, modes: int) -> SourcePlan:
    """The plan with its share of the time for a first contact: modes may be tried one after the other."""
    if not isinstance(plan.endpoint, Endpoint):
        return plan
    return replace(plan, endpoint=replace(plan.endpoint, breaker=plan.endpoint.breaker.share(modes)))


def parse_batch_budget(budget: float | str | Budget, plans: Sequence[SourcePlan]) -> Budget:
    """A batch's budget; BudgetOutOfRange for a number that can't be samples, BudgetInvalid for a text.

    Over several modes it is money: BudgetInvalid for anything else.
    """
    if len(plans) == 1 and not isinstance(budget, str | Budget):
        compute_sample_limit(budget, 1)
    currency = plans[0].prices.currency
    average = Budget.parse(budget, currency=currency)
    if len(plans) > 1 and average.unit != "money":
        names = ", ".join(plan.name for plan in plans)
        raise BudgetInvalid(
            f"budget {average} is in {average.unit}, which cost differently in {names}; give money, "
            f"e.g. '2 {currency} per 1000'"
        )
    if len(plans) > 1 and not any(plan.prices for plan in plans):
        raise BudgetInvalid(
            f"budget {average} needs prices, and no mode of the menu has any: nothing would ever count; give "
            "input_price and output_price in its tables"
        )
    return average


def count_prices(budget: Budget, plans: Sequence[SourcePlan]) -> dict[str, TokenPrices]:
    """The prices at which the calls of each mode cost what a budget counts."""
    if budget.unit == "samples" or len(plans) > 1:
        return {plan.name: plan.prices for plan in plans}
    return {plan.name: choose_unit_prices(budget, plan.prices) for plan in plans}


def compute_limit(budget: Budget, requests: int) -> float:
    """What a batch may take in all, in the unit of its budget."""
    if budget.unit == "samples" or not requests:
        return compute_sample_limit(budget.amount, requests)
    return budget.amount * requests


def estimate_plan_modes(plans: Sequence[SourcePlan], problems: Sequence[Problem]) -> ModeSet:
    """The modes that nothing is recorded of: what a sample of each costs, by its prices."""
    asking = plans[0].asking
    sizes = [estimate_prompt_size(asking.messages(problem)) for problem in problems[:_GUESSED_PROMPTS]]
    size = float(np.mean(sizes))
    modes = [
        Mode(
            name=plan.name,
            cost=plan.prices.guess_cost(max_tokens=plan.asking.most_tokens, prompt_tokens=size),
        )
        for plan in plans
    ]
    return ModeSet(modes=tuple(modes), unit="money", currency=plans[0].prices.currency)


def _find_cost_limit(budget: Budget, limit: float, max_cost: float | None) -> float | None:
    """The lower one of a batch's budget and `max_cost`, which is money; None: there is no limit."""
    if budget.unit == "samples" or max_cost is None:
        return max_cost if budget.unit == "samples" else limit
    if budget.unit == "tokens":
        raise CollectError(
            f"max cost {max_cost:g} is money, and the budget is in tokens; give a budget in money"
        )
    return min(limit, max_cost)


def _check_budget(
    problems: Sequence[Problem],
    budget: Budget,
    limit: float,
    policy: Policy,
    plans: Sequence[SourcePlan],
    prices: Mapping[str, TokenPrices],
) -> None:
    """BudgetOutOfRange where not even one sample of any mode is certain to fit into the whole budget."""
    if budget.unit == "samples":
        return
    if len(plans) > 1 and isinstance(policy, MenuPolicy) and policy.origin_ == "fitted":
        cheapest = policy.modes[0]
        if policy.menu.unit == "money" and budget.amount < cheapest.cost:
            raise BudgetOutOfRange(
                f"budget {budget} is below what one sample of {cheapest.name!r} costs on average; give "
                f"{policy.menu.format_least(cheapest.cost)} or more"
            )
    worst = []
    for plan in plans:
        prompt = min(estimate_prompt_size(plan.asking.messages(problem)) for problem in problems)
        worst.append(prices[plan.name].cost(prompt, plan.asking.most_tokens or 0))
    if min(worst) > limit:
        unit = budget.currency or budget.unit
        mode = f" of mode {plans[0].name!r}" if plans[0].name else ""
        raise BudgetOutOfRange(
            f"budget {budget} is {limit:.6g} {unit} in all, and one sample{mode} can cost {worst[0]:.6g} "
            f"with max_tokens {plans[0].asking.most_tokens}; raise it, lower max_tokens, or answer more "
            "requests together"
        )


def _guess_costs(problems: Sequence[Problem], policy: Policy, plans: Sequence[SourcePlan]) -> Floats:
    """What a sample of each mode costs before any was drawn, (modes,).

    It is what the policy learned, where that is money; else an estimate by the prices.
    """
    known = policy.mode_set
    if known is None or known.unit != "money":
        known = estimate_plan_modes(plans, problems)
    return np.array([known[plan.name].cost for plan in plans])


@dataclass(eq=False)
class _Batch:
    """One batch, from its first samples to its answers."""

    problems: Sequence[Problem]
    pool: Pool
    plans: Sequence[SourcePlan]
    policy: Policy
    budget: Budget
    limit: float
    budgets: Sequence[CostBudget]
    elsewhere: float  # what the pool's calls for other problems cost
    max_samples: int = 0  # a request may take; 0: no limit

    def __post_init__(self) -> None:
        self.cap = self.budgets[0].cap  # for all sources together, in the unit of the budget
        self.failures: dict[str, str] = {}
        self.left_out: dict[int, dict[str, str]] = {}  # by request: modes that failed, and why
        self.initial_weigh = self.policy.weigh
        self.votes = self._load_votes()
        self.planner = self._make_planner()

    async def run(
        self,
        progress: Callable[[CollectProgress], None] | None,
        signals: Sequence[signal.Signals],
    ) -> Answers:
        start, before = time.monotonic(), self.votes.spent

        def report(group: SamplerGroup) -> None:
            if progress is not None:
                planned = max(self.votes.spent + self.planner.room, before)
                nothing = [0] * len(self.plans)
                state = group.progress(nothing, nothing)
                progress(replace(state, planned=planned, stored=before + state.added))

        width = sum(plan.engine.width for plan in self.plans)
        async with open_samplers(
            self.plans, self.pool, self.budgets, on_progress=report, signals=signals
        ) as group:
            report(group)
            await self._draw(group, self.planner.plan_first())
            await asyncio.to_thread(self._begin)
            self._record_failures(group)
            while group.stopped is None and (wave := self.planner.plan_next(width)):
                await self._draw(group, wave)
                await asyncio.to_thread(self.votes.recount, wave.rows)
                self._record_failures(group)
        return self._build_result(group, before, time.monotonic() - start)

    def _load_votes(self) -> BatchVotes:
        askings = [plan.asking for plan in self.plans]
        return BatchVotes(self.problems, self.pool, askings, max_samples=self.max_samples)

    def _make_planner(self) -> WavePlanner:
        policy = self.policy
        prompts = [problem.question for problem in self.problems]
        reading = policy.read(prompts)
        if len(self.plans) > 1 and isinstance(policy, MenuPolicy):
            self.guess = self.costs = _guess_costs(self.problems, policy, self.plans)
            return ModePlanner(
                policy,
                self.votes,
                reading,
                budget=self.budget.amount,
                find_money=self._find_money,
                find_costs=lambda: self.costs,
            )
        dial = None if policy.dial is None else highest_dial(policy)
        opening = decide_first_wave(policy, reading, dial).counts
        return WavePlanner(
            policy,
            self.votes,
            reading,
            opening=opening,
            places=place_orders(prompts),
            find_room=self._find_room,
        )

    def _find_money(self) -> float:
        """What is left of a budget in money."""
        assert self.cap.limit is not None
        return self.cap.limit - self.cap.spent

    def _find_room(self) -> int:
        """Samples that are left to draw: of tokens or money as many as the rest pays for at the mean so far.

        Before anything is known that is one for each request. Whatever the estimate is, the cost budget sends
        nothing that could cost more than is left.
        """
        drawn = self.votes.spent
        if self.budget.unit == "samples":
            return int(self.limit) - drawn
        used = self._batch_cost
        if not drawn or used <= 0:
            return len(self.votes) - drawn
        return int((self.limit - used) / (used / drawn))

    @property
    def _batch_cost(self) -> float:
        """What these problems have cost in the unit of the budget, if it isn't samples."""
        return max(0.0, self.cap.spent - self.elsewhere)

    async def _draw(self, group: SamplerGroup, wave: BatchWave) -> None:
        firsts = self.votes.take_indexes(wave)
        runs: list[list[SampleRun]] = [[] for _ in self.plans]
        for row, count, mode, first in zip(*(part.tolist() for part in (*wave, firsts)), strict=True):
            runs[mode].append(SampleRun(self.problems[row], first, count))
        await group.draw(runs)

    def _begin(self) -> None:
        """Counts all votes; the policy of one source is fitted to the model's first samples before."""
        if len(self.plans) == 1:
            ballots = self.pool.ballots_of(self.pool.source_key(*self.plans[0].asking.source))
            first = select_first_samples(ballots, {problem.id for problem in self.problems})
            self.policy = fit_to_batch(self.policy, first)
        self.votes.weigh = self.policy.weigh
        self.votes.recount(np.flatnonzero(self.votes.next_index))
        self._measure_costs()
        self.planner.begin(self.policy)

    def _measure_costs(self) -> None:
        """What a sample of each of several modes costs on average; the guess, for modes without any yet."""
        if len(self.plans) > 1:
            means = [measure_source(self.pool, plan).mean_cost for plan in self.plans]
            pairs = zip(self.guess, means, strict=True)
            self.costs = np.array([guess if mean is None else mean for guess, mean in pairs])

    def _record_failures(self, group: SamplerGroup) -> None:
        """Requests whose calls failed keep what they have, and get no more of that mode in this run.

        A mode that can't be paid any more is left out for all.
        """
        self._measure_costs()
        for mode, sampler in enumerate(group.samplers):
            if sampler.stopped == "max-cost":
                self.planner.mark_unpaid(mode)
        for row, mode in self.planner.record_wave():
            sampler, id_ = group.samplers[mode], self.problems[row].id
            if id_ not in sampler.failures and (group.stopped is not None or sampler.stopped == "max-cost"):
                continue  # its turn didn't come
            why = sampler.failures.get(id_) or sampler.why or _UNSTORED
            self.planner.leave_out(row, mode)
            self.left_out.setdefault(row, {})[self.plans[mode].name] = why
            if len(self.plans) > 1:
                reasons = self.left_out[row].items()
                why = "; ".join(f"mode {name!r} was left out: {reason}" for name, reason in reasons)
            self.failures[id_] = why

    def _is_spent(self, group: SamplerGroup) -> bool:
        """Whether it ended because its own budget, in tokens or money, is spent, and not by `max_cost`."""
        if self.budget.unit == "samples" or group.stopped != "max-cost":
            return False
        return self.cap.limit is not None and self.cap.limit >= self.limit + self.elsewhere

    def _build_result(self, group: SamplerGroup, before: int, seconds: float) -> Answers:
        broken_off = group.stopped in RESUMABLE_STOPS
        counts = self.votes.drawn_by_mode.sum(axis=0).tolist()
        uses = [
            measure_source(self.pool, plan, samples=count, shares=True)
            for plan, count in zip(self.plans, counts, strict=True)
        ]
        answers = () if broken_off else tuple(self._build_answers(uses))
        right = np.array([item.correct for item in answers if item.correct is not None])
        spent = self._load_votes().spent  # what was abandoned in flight may have been stored nevertheless
        run = summarise_run(uses, group, seconds)
        run |= {"added": spent - before, "failures": self.failures or group.failures}
        if self._is_spent(group):
            run |= {"stopped": None, "why": None}
        excess = [budget.excess_tokens for budget in self.budgets]
        return Answers(
            each=answers,
            requests=len(self.problems),
            policy=self.policy.kind,
            budget=self.budget.amount,
            unit=self.budget.unit,
            currency=self.budget.currency,
            limit=self.limit,
            used=float(spent) if self.budget.unit == "samples" else self._batch_cost,
            excess_tokens=max((tokens for tokens in excess if tokens is not None), default=None),
            spent=spent,
            rounds=self.planner.number,
            price=None if broken_off else self.planner.price,
            unsettled=0 if broken_off else self.planner.unfinished,
            weigh=self.policy.weigh,
            plain=self.initial_weigh is not None and self.policy.weigh is None,
            accuracy=bootstrap_mean(right, np.random.default_rng(_SEED)) if len(right) else None,
            found=average_share([(use.answered, use.samples) for use in uses]),
            modes=tuple(uses) if self.plans[0].name else (),
            prices=tuple(self.planner.prices),
            **run,
        )

    def _build_answers(self, uses: Sequence[SourceUse]) -> Iterator[RequestAnswer]:
        names = [plan.name for plan in self.plans if plan.name]
        for row, problem in enumerate(self.problems):
            samples = self.votes.samples(row)
            error = self.failures.get(problem.id, None if samples else _NOTHING_LEFT)
            tally = self.votes.tally(samples)
            plain = build_answer(problem, samples, tally, task=self.pool.task, error=error, modes=names)
            costs = {
                use.name: _cost_samples(
                    [sample for sample in samples if (sample.mode or names[0]) == use.name], use, plan.prices
                )
                for use, plan in zip(uses, self.plans, strict=True)
                if use.name in plain.modes
            }
            yield replace(plain, costs=costs)


def _cost_samples(samples: Sequence[Sample], use: SourceUse, prices: TokenPrices) -> float:
    """Money for some samples of a source; what prompts cost is divided among all of its samples alike."""
    prompt = use.account.prompt_tokens / use.account.got if use.account.got else 0.0
    return sum(prices.cost(prompt, sample.tokens or 0) for sample in samples)


def build_answer(
    problem: Problem,
    samples: Sequence[Sample],
    tally: Tally,
    *,
    task: Task,
    error: str | None,
    modes: Sequence[str] = (),
) -> RequestAnswer:
    """The answer that the tally of these samples gives. `modes` are named cheapest first."""
    known_tokens = [sample.tokens for sample in samples if sample.tokens is not None]
    leader = tally.leader
    best = pick_representative(samples, tally, modes=modes)
    mode = "" if best is None or not modes else samples[best].mode or modes[0]
    if best is not None and mode:
        best = sum((sample.mode or modes[0]) == mode for sample in samples[:best])
    return RequestAnswer(
        id=problem.id,
        answer=leader,
        votes=tally.votes,
        agreement=tally.agreement,
        samples=len(samples),
        tokens=sum(known_tokens) if known_tokens else None,
        best=best,
        correct=None if problem.gold is None else grade_answer(leader, problem.gold, problem.question, task),
        error=error,
        mode=mode,
        modes=_count_modes(samples, modes),
    )


def _count_modes(samples: Sequence[Sample], modes: Sequence[str]) -> dict[str, int]:
    """Samples by mode, in the order of the modes."""
    counts = Counter(sample.mode or modes[0] for sample in samples) if modes else Counter[str]()
    return {mode: counts[mode] for mode in modes if counts[mode]}


def remove_wave_limit(policy: Policy) -> Policy:
    """A copy without a limit on waves: in a batch the dial falls meanwhile, and no request is waited for."""
    prepared = copy.copy(policy)
    if isinstance(prepared, StoppingPolicy):
        prepared.max_waves = None
    return prepared


def select_first_samples(ballots: Ballots, ids: Collection[str]) -> Ballots:
    """The first sample of each of these requests that has one: later runs find the same."""
    chosen = ballots.only([row for row, id_ in enumerate(ballots.ids) if id_ in ids])
    return replace(chosen, **{name: getattr(chosen, name)[:, :1] for name in chosen.sample_arrays})


def fit_to_batch(policy: Policy, first: Ballots) -> Policy:
    """A copy whose weights fit these samples; if possible with a prior that was not fitted on these prompts.

    `weigh` is None, so votes are plain, where the samples carry no confidence.
    """
    prepared = copy.copy(policy)
    with suppress(PolicyError):  # no other prior: that is fine, because this answers and doesn't measure
        prepared = policy.copy_for(first)
    prepared.weigh = _rescale_weights(policy.weigh, first)
    return prepared


def _rescale_weights(weigh: VoteWeights | None, first: Ballots) -> VoteWeights | None:
    if weigh is None:
        return None
    by_score = None if weigh.score is None else VoteWeights.by_score(weigh.score)
    try:
        weights = fit_vote_weights(first, weigh.signal)
    except NotRecorded:
        return by_score
    known_samples = int(np.isfinite(first.signal(weigh.signal)).sum())
    if weights.sharpness == 0 or not math.isfinite(weights.scale):  # all samples are equally certain
        return by_score
    return weigh if known_samples < _MIN_SAMPLES else replace(weigh, scale=weights.scale)
