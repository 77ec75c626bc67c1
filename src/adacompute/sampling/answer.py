"""`answer`: answers a batch of requests by votes, within one average budget.

A request gets another sample if that is worth the current price. The price falls until the budget is spent.
With several modes, the policy also chooses the mode, and one limit on the cost covers all modes.
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
from adacompute.policies.modes import check_modes
from adacompute.policies.modes.policy import MenuPolicy
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
    SampleRange,
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
# reasons why a run may stop before the batch is done; calling `answer` again then continues the batch
RESUMABLE_STOPS: tuple[StopReason, ...] = ("signal", "endpoint")
# with fewer samples of known confidence, the vote weights aren't adapted to the batch's confidence values
_MIN_SAMPLES = 20
_SEED = 0  # seed for confidence intervals
_NOTHING_LEFT = "not asked: the budget was spent on other requests; raise the budget or the cost"
_GUESSED_PROMPTS = 100  # number of prompts whose mean length is used to guess costs
_UNSTORED = "unstorable: a response could not be stored; the pool has the reason among its failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(RunResult):
    """The result of answering a batch of requests."""

    # the answers in the order of requests; empty if the batch was interrupted
    each: tuple[RequestAnswer, ...] = field(repr=False)
    requests: int
    policy: str  # kind of the policy
    budget: float  # upper bound for the average cost per request, in `unit`
    limit: float  # upper bound for the total cost, in `unit`
    spent: int  # number of samples in total, including those of earlier runs
    rounds: int  # number of waves of samples in this run
    price: float | None  # the policy's price or threshold at the end of the run; None if it has neither
    unsettled: int  # number of requests that the policy would continue at `price` if the budget allowed it
    weigh: VoteWeights | None  # how votes were weighted; None if not weighted
    plain: bool  # whether votes weren't weighted because the samples' confidence is unknown or always equal
    accuracy: MeanEstimate | None  # mean accuracy over requests with a gold answer; None if there are none
    unit: BudgetUnit = "samples"  # unit of the budget
    currency: str = ""  # currency of the budget, if its unit is money
    used: float = 0.0  # amount counted towards `limit`, including failed calls that may be charged
    # tokens of the longest response, if it exceeded max_tokens; None if none did
    excess_tokens: int | None = None
    found: float | None = None  # share of samples with an answer
    modes: tuple[SourceUse, ...] = ()  # samples and cost of each named mode, in the policy's order
    # with several modes: the price at which each request began
    prices: tuple[float, ...] = field(default=(), repr=False)

    @property
    def broken_off(self) -> bool:
        """Whether the batch was interrupted before it had answers, so the same call should be repeated."""
        return self.stopped in RESUMABLE_STOPS

    @property
    def average(self) -> float:
        """Average number of samples per request."""
        return self.spent / self.requests

    @property
    def answered(self) -> int:
        """Number of requests with an answer."""
        return sum(item.answer is not None for item in self.each)

    @property
    def is_over_limit(self) -> bool:
        """Whether more than the limit was used, by earlier runs or by an endpoint that ignores max_tokens."""
        return self.used > self.limit

    @property
    def left_out(self) -> int:
        """Number of requests without a sample because the budget was spent on others."""
        return sum(item.error == _NOTHING_LEFT for item in self.each)

    @property
    def agreement(self) -> float | None:
        """Mean share of votes for the winning answer, over requests with an answer."""
        shares = [item.agreement for item in self.each if item.answer is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def counts(self) -> dict[int, int]:
        """Map: number of samples -> number of requests that got this number of samples."""
        return dict(sorted(Counter(item.samples for item in self.each).items()))

    def to_dict(self) -> dict[str, Any]:
        """Returns the totals as plain data, for JSON."""
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
    """Answers every request by a vote, at an average cost of at most `budget` (samples, tokens or money).

    First, every request gets the samples that the policy asks for at its highest price (or threshold). Then
    the price falls step by step until the budget is spent. At each price, the requests that the policy
    continues get more samples. No calibration is needed. A policy without a price decides by its own rule,
    within the budget. `max_samples` limits the samples per request; 0 means no limit.

    Each sample is stored before its vote counts. So after any interruption, the same call continues the
    batch, and requests no stored sample again. The policy object isn't changed. Raises SourceChanged if the
    pool's samples were drawn with another model, template or parameter, unless `another` is true.

    With a budget in tokens or money, the highest possible cost of a call is reserved before the call, with
    `max_tokens` per sample. So an amount that is too small for another call may be left over. If an endpoint
    ignores `max_tokens`, the few calls that are sent before the first response may exceed the budget. The
    costs of a verifier, and of calls for other problems in the pool, don't count.

    With several plans, `policy` is a `MenuPolicy` over their modes, and the budget is money. Requests begin
    at a price at which the money is expected to last for all of them. Once all have stopped, the price falls.
    If a mode fails for a request, this request doesn't use it again.
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
    """Returns a policy's modes, in the policy's order. Raises PolicyError if one isn't in `modes`."""
    by_name = {mode.name: mode for mode in modes}
    if all(name in by_name for name in policy.names):
        return tuple(by_name[name] for name in policy.names)
    check_modes(policy, [name for name in by_name if name], place, except_fixed=False)
    return tuple(modes)


def _share_patience(plan: SourcePlan, modes: int) -> SourcePlan:
    """Divides the time allowed for a first connection among modes, because they may be tried in turn."""
    if not isinstance(plan.endpoint, Endpoint):
        return plan
    return replace(plan, endpoint=replace(plan.endpoint, breaker=plan.endpoint.breaker.share(modes)))


def parse_batch_budget(budget: float | str | Budget, plans: Sequence[SourcePlan]) -> Budget:
    """Parses a batch's budget. Raises BudgetOutOfRange or BudgetInvalid if it can't be used.

    With several modes, the budget must be money, and a mode must have prices.
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
    """Returns each mode's token prices, by name; for a budget in tokens, each token costs 1."""
    if budget.unit == "samples" or len(plans) > 1:
        return {plan.name: plan.prices for plan in plans}
    return {plan.name: choose_unit_prices(budget, plan.prices) for plan in plans}


def compute_limit(budget: Budget, requests: int) -> float:
    """Computes the cost limit for the whole batch, in the unit of its budget."""
    if budget.unit == "samples" or not requests:
        return compute_sample_limit(budget.amount, requests)
    return budget.amount * requests


def estimate_plan_modes(plans: Sequence[SourcePlan], problems: Sequence[Problem]) -> ModeSet:
    """Builds the descriptions of modes that have no samples yet; their costs are estimated from prices."""
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
    """Returns the lower of a batch's budget and `max_cost` (money); None means no limit."""
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
    """Raises BudgetOutOfRange unless the whole budget certainly pays for a sample of at least one mode."""
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
    least = min(worst)
    if least > limit:
        plan, unit = plans[worst.index(least)], budget.currency or budget.unit
        mode = f" of mode {plan.name!r}" if plan.name else ""
        raise BudgetOutOfRange(
            f"budget {budget} is {limit:.6g} {unit} in all, and one sample{mode} can cost {least:.6g} "
            f"with max_tokens {plan.asking.most_tokens}; raise it, lower max_tokens, or answer more "
            "requests together"
        )


def _guess_costs(problems: Sequence[Problem], policy: Policy, plans: Sequence[SourcePlan]) -> Floats:
    """Guesses each mode's cost per sample, as the policy learned in money or from prices; shape (modes,)."""
    known = policy.mode_set
    if known is None or known.unit != "money":
        known = estimate_plan_modes(plans, problems)
    return np.array([known[plan.name].cost for plan in plans], dtype=np.float64)


@dataclass(eq=False)
class _Batch:
    """Runs a batch of requests, from the first samples to the answers."""

    problems: Sequence[Problem]
    pool: Pool
    plans: Sequence[SourcePlan]
    policy: Policy
    budget: Budget
    limit: float
    budgets: Sequence[CostBudget]
    elsewhere: float  # cost of the calls recorded in the pool for problems that aren't in this batch
    max_samples: int = 0  # maximum number of samples per request; 0 means no limit

    def __post_init__(self) -> None:
        self.cap = self.budgets[0].cap  # the cost limit that all sources share, in the unit of the budget
        self.failures: dict[str, str] = {}
        # modes that failed for a request: row of the request -> {name of the mode -> reason}
        self.left_out: dict[int, dict[str, str]] = {}
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
            self.costs = _guess_costs(self.problems, policy, self.plans)
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
        """Returns the remaining money."""
        assert self.cap.limit is not None
        return self.cap.limit - self.cap.spent

    def _find_room(self) -> int:
        """Returns how many more samples the budget pays for: an estimate, unless the budget is in samples.

        Uses the mean cost so far; before any is known, assumes one sample per request. `CostBudget` enforces
        the limit.
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
        """Cost so far of the calls for this batch's problems, in the budget's unit (tokens or money)."""
        return max(0.0, self.cap.spent - self.elsewhere)

    async def _draw(self, group: SamplerGroup, wave: BatchWave) -> None:
        firsts = self.votes.take_indexes(wave)
        runs: list[list[SampleRange]] = [[] for _ in self.plans]
        for row, count, mode, first in zip(*(part.tolist() for part in (*wave, firsts)), strict=True):
            runs[mode].append(SampleRange(self.problems[row], first, count))
        await group.draw(runs)

    def _begin(self) -> None:
        """Counts all stored votes. With one mode, first adapts the policy to the model's first samples."""
        if len(self.plans) == 1:
            ballots = self.pool.ballots_of(self.pool.source_key(*self.plans[0].asking.source))
            first = select_first_samples(ballots, {problem.id for problem in self.problems})
            self.policy = fit_to_batch(self.policy, first)
        self.votes.weigh = self.policy.weigh
        self.votes.recount(np.flatnonzero(self.votes.next_index))
        self._measure_costs()
        self.planner.begin(self.policy)

    def _measure_costs(self) -> None:
        """Measures the mean cost per sample of several modes; one without samples keeps its guessed cost."""
        if len(self.plans) > 1:
            for mode, plan in enumerate(self.plans):
                account = self.pool.account(*plan.asking.source)
                if account.got:
                    self.costs[mode] = account.cost(plan.prices, at_most=True) / account.got

    def _record_failures(self, group: SamplerGroup) -> None:
        """Handles failed calls: a request keeps its samples, but doesn't use the failed mode again.

        If the remaining money can't pay for a mode, no request uses this mode any more.
        """
        self._measure_costs()
        for mode, sampler in enumerate(group.samplers):
            if sampler.stopped == "max-cost":
                self.planner.mark_unpaid(mode)
        for row, mode in self.planner.record_wave():
            sampler, id_ = group.samplers[mode], self.problems[row].id
            if id_ not in sampler.failures and (group.stopped is not None or sampler.stopped == "max-cost"):
                continue  # the call for this request was never sent
            why = sampler.failures.get(id_) or sampler.why or _UNSTORED
            self.planner.leave_out(row, mode)
            self.left_out.setdefault(row, {})[self.plans[mode].name] = why
            if len(self.plans) > 1:
                reasons = self.left_out[row].items()
                why = "; ".join(f"mode {name!r} was left out: {reason}" for name, reason in reasons)
            self.failures[id_] = why

    def _is_spent(self, group: SamplerGroup) -> bool:
        """Whether the run ended because its budget in tokens or money is spent, not because of `max_cost`."""
        if self.budget.unit == "samples" or group.stopped != "max-cost":
            return False
        return self.cap.limit is not None and self.cap.limit >= self.limit + self.elsewhere

    def _build_result(self, group: SamplerGroup, before: int, seconds: float) -> Answers:
        broken_off = group.stopped in RESUMABLE_STOPS
        counts = self.votes.drawn_by_mode.sum(axis=0).tolist()
        uses = [
            measure_source(self.pool, plan, samples=count)
            for plan, count in zip(self.plans, counts, strict=True)
        ]
        answers = () if broken_off else tuple(self._build_answers(uses))
        right = np.array([item.correct for item in answers if item.correct is not None])
        spent = self._load_votes().spent  # counted again, because abandoned calls may have stored samples
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
    """Computes the cost of some of a source's samples; the cost of prompts is split equally among all."""
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
    """Builds the answer to a request from its votes. `modes` are in order of cost, the cheapest first."""
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
    """Counts the samples of each mode, in the order of `modes`."""
    counts = Counter(sample.mode or modes[0] for sample in samples) if modes else Counter[str]()
    return {mode: counts[mode] for mode in modes if counts[mode]}


def remove_wave_limit(policy: Policy) -> Policy:
    """Copies a policy without its limit on waves, because nobody waits for a single request of a batch."""
    prepared = copy.copy(policy)
    if isinstance(prepared, StoppingPolicy):
        prepared.max_waves = None
    return prepared


def select_first_samples(ballots: Ballots, ids: Collection[str]) -> Ballots:
    """Selects the first sample of each of these requests, so that later runs select the same ones."""
    chosen = ballots.only([row for row, id_ in enumerate(ballots.ids) if id_ in ids])
    return replace(chosen, **{name: getattr(chosen, name)[:, :1] for name in chosen.sample_arrays})


def fit_to_batch(policy: Policy, first: Ballots) -> Policy:
    """Copies a policy and adapts the copy to `first`, the first sample of each request.

    If possible, the copy gets a prior that wasn't fitted on these prompts. If the samples' confidence is
    unknown or always equal, the copy doesn't weight votes by confidence.
    """
    prepared = copy.copy(policy)
    # if this fails, keep the prior, although it may have been fitted on these prompts
    with suppress(PolicyError):
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
    # if all samples are equally certain, there is nothing to weight
    if weights.sharpness == 0 or not math.isfinite(weights.scale):
        return by_score
    return weigh if known_samples < _MIN_SAMPLES else replace(weigh, scale=weights.scale)
