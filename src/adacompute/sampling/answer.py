"""`answer`: answers a batch of requests within one average budget, by votes over samples.

The price of a sample falls until the budget is spent.
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
from typing import Any, NamedTuple

import numpy as np

from adacompute.answers import Tally, Task, VoteWeights, grade_answer, pick_representative
from adacompute.client import Endpoint, Verifier
from adacompute.client.modes import estimate_menu
from adacompute.errors import BudgetInvalid, BudgetOutOfRange, CollectError, NotRecorded, PolicyError
from adacompute.policies.base import Floats, Ints, Policy, check_one_mode
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, Menu, Pool
from adacompute.records import Account, Budget, BudgetUnit, Problem, Sample, TokenPrices
from adacompute.replay.per_problem import decide_first_wave
from adacompute.replay.replay import adapt_policy, bootstrap_mean, check_policy
from adacompute.sampling.answer_file import ANSWER_COLUMNS, RequestAnswer, check_output, write_answers
from adacompute.sampling.collect import (
    check_arguments,
    make_engine,
    merge_leftover_shards,
    prepare_pool,
    run_coroutine,
    summarise_scores,
)
from adacompute.sampling.menu_batch import (
    BatchMode,
    BatchSampler,
    MenuBatchVotes,
    MenuPlanner,
    ModeChoices,
    ModeDraws,
    add_accounts,
    choose_modes,
    measure_mode,
    open_samplers,
)
from adacompute.sampling.menu_collection import ModePlan
from adacompute.sampling.plan import (
    Asking,
    SampleRun,
    add_problems,
    check_source,
    choose_unit_prices,
    compute_sample_limit,
    estimate_prompt_size,
)
from adacompute.sampling.waves import BatchVotes, Rows, Wave, WavePlanner, highest_dial
from adacompute.sampling.workers import (
    CollectProgress,
    CostBudget,
    CostCap,
    SamplingEngine,
    StopReason,
    compute_batch_spent,
    compute_max_cost,
)
from adacompute.score import MeanEstimate
from adacompute.score.aggregates import fit_vote_weights

__all__ = [
    "ANSWER_COLUMNS",
    "Answers",
    "RequestAnswer",
    "answer",
    "check_output",
    "check_single_mode",
    "compute_limit",
    "estimate_plan_menu",
    "fit_to_batch",
    "parse_batch_budget",
    "parse_money_budget",
    "remove_wave_limit",
    "select_first_samples",
    "write_answers",
]

RESUMABLE_STOPS: tuple[StopReason, ...] = ("signal", "endpoint")  # the same call should be made again
_MIN_SAMPLES = 20  # with fewer samples their mean is worse than the one the policy has
_SEED = 0  # of the interval
_NOTHING_LEFT = "not asked: the budget was spent on other requests; raise the budget or the cost"
_GUESSED_PROMPTS = 100  # whose mean length a guess of costs takes
_NO_OPENING = np.zeros(0, dtype=np.int64)
_UNSTORED = "unstorable: a response could not be stored; the pool has the reason among its failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The result of a batch."""

    # in the order of the requests; none where it was broken off
    each: tuple[RequestAnswer, ...] = field(repr=False)
    requests: int
    policy: str  # its kind
    budget: float  # a request, on average, at most, in `unit`
    limit: float  # in all, at most, in `unit`
    spent: int  # samples in all, with those of earlier runs
    added: int  # samples of this run
    rounds: int  # of this run
    price: float | None  # the dial that the batch came down to; None: the policy has none
    unsettled: int  # requests that the policy would continue at that dial if the budget weren't spent
    weigh: VoteWeights | None  # how votes were weighed; None: plain
    plain: bool  # True: the policy weighs votes, but the samples carry no confidence
    accuracy: MeanEstimate | None  # over requests with a gold answer; None: there are none
    failures: Mapping[str, str]  # request id -> why it lacks samples
    errors: Mapping[str, int]  # attempts of this run that gave nothing, by kind
    account: Account  # of all calls into this pool for this source
    cost: float  # money, of all of them
    at_most: float  # money, with what may have been charged
    seconds: float
    stopped: StopReason | None = None  # None: it came to its end
    why: str | None = None  # it was stopped
    signal: int | None = None  # its number, where it was one
    unit: BudgetUnit = "samples"  # of the budget
    currency: str = ""  # of money
    used: float = 0.0  # of the limit, with what may have been charged
    excess_tokens: int | None = None  # of a response, where the endpoint sent more than max_tokens
    found: float | None = None  # share of samples in which an answer was found
    finished: float | None = None  # share that was not cut off, of those where it is known
    verifier: Mapping[str, Any] | None = None  # what a verifier was asked by this run; None: nothing
    modes: tuple[ModeDraws, ...] = ()  # of a menu, in the order of the policy
    prices: tuple[float, ...] = field(default=(), repr=False)  # that each request began at, over a menu

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
            "added": self.added,
            "rounds": self.rounds,
            "failures": dict(self.failures),
            "errors": dict(self.errors),
            "calls": self.account.calls,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "seconds": self.seconds,
            "answers_found": self.found,
            "finished": self.finished,
            "stopped": self.stopped,
            "why": self.why,
            "verifier": self.verifier,
        } | ({"modes": {use.name: use.to_dict() for use in self.modes}} if self.modes else {})


def answer(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    policy: Policy,
    budget: float | str | Budget,
    endpoint: Endpoint | SamplingEngine | None = None,
    asking: Asking | None = None,
    menu: Sequence[ModePlan] = (),
    engines: Mapping[str, SamplingEngine] | None = None,
    prices: TokenPrices | None = None,
    max_cost: float | None = None,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
    verifier: Verifier | None = None,
) -> Answers:
    """Answers every request by a vote, with at most `budget` a request on average: samples, tokens or money.

    Every request gets what the policy asks for at the highest value of its dial; then the dial falls,
    step by step, and the requests that the policy continues get more, until the budget is spent. No
    calibration is needed. A policy without a dial runs as it is, under the same limit. Each sample is
    in the pool before it counts, so whatever ends this, the same call continues with what is stored,
    and buys none of it again. The policy itself is not changed. Raises SourceChanged where the pool's
    samples are of another model, template or parameter, unless `another`. Instead of an endpoint, an
    engine may draw elsewhere.

    A budget in tokens or money is not exceeded either: before a call is sent, the most that it can cost is
    reserved, with `max_tokens` for each sample. So up to that much of the whole may be left over. An endpoint
    that ignores `max_tokens` can exceed it by a few calls, those before the first response was counted. Calls
    for other problems of the pool don't count, nor does what a `verifier` costs, which scores new samples.

    With a `menu` instead of an endpoint, a `MenuPolicy` over its modes says which one is asked next, and the
    budget is money. Each mode is asked as its plan says (`build_mode_plan`), so `asking` and `prices` are
    left out. `engines` draw the samples of some modes elsewhere. A mode that fails for a request is left out
    for it. Requests are begun at the price that what is left buys, and the price falls once all have ended.
    """
    modes = choose_modes(check_policy(policy), menu) if menu else ()
    if menu and (endpoint is not None or asking is not None):
        raise CollectError("an endpoint and a menu were given; give one of them")
    if modes:
        asking, prices = modes[0].asking, modes[0].prices
        endpoint = (engines or {}).get(modes[0].name, modes[0].mode.endpoint)
    if endpoint is None or asking is None:
        raise CollectError(
            "there is nothing to ask; give endpoint= and asking=, or the modes of a menu, menu="
        )
    problems = check_arguments(problems, pool, endpoint, asking)
    options = _PoolOptions(max_cost, another, regrade)
    batch: _Batch
    if len(modes) > 1:
        if verifier is not None:
            raise CollectError("a verifier scores samples of one model; leave it out, or give no menu")
        batch = _prepare_menu_batch(problems, pool, policy, budget, modes, engines or {}, options)
    else:
        check_single_mode(policy)
        engine = make_engine(endpoint, verifier)
        prices = TokenPrices() if prices is None else prices
        batch = _prepare_batch(problems, pool, policy, budget, asking, engine, prices, options)
    return run_coroutine(batch.run(progress, signals))


class _PoolOptions(NamedTuple):
    """What a batch may do to its pool."""

    max_cost: float | None
    another: bool
    regrade: bool


def check_single_mode(policy: Policy, place: str = "") -> None:
    """PolicyError where a policy over several modes is to ask one endpoint."""
    if isinstance(policy, MenuPolicy) and len(policy.names) > 1:
        raise PolicyError(
            f"{place and f'{place}: '}a menu policy over {', '.join(policy.names)} asks several modes, and "
            "there is one endpoint; give the menu that says how each is asked (--menu menu.toml), or another "
            "policy"
        )


def _prepare_batch(
    problems: Sequence[Problem],
    pool: Pool,
    policy: Policy,
    budget: float | str | Budget,
    asking: Asking,
    engine: SamplingEngine,
    prices: TokenPrices,
    options: _PoolOptions,
) -> "_Batch":
    """Checks everything before anything is sent, and adds the problems to the pool."""
    average = parse_batch_budget(budget, prices)
    limit = compute_limit(average, len(problems))
    prepared = remove_wave_limit(check_one_mode(check_policy(policy)))
    reading = prepared.read([problem.question for problem in problems])
    opening = decide_first_wave(prepared, reading, None if prepared.dial is None else highest_dial(prepared))
    counted_prices = prices
    if average.unit != "samples":
        counted_prices = choose_unit_prices(average, prices)
        _check_one_sample(problems, average, limit, asking, counted_prices)
    cost_budget = prepare_pool(
        pool,
        problems,
        asking,
        prices=counted_prices,
        max_cost=options.max_cost
        if average.unit == "samples"
        else _find_cost_limit(average, limit, options.max_cost),
        another=options.another,
        regrade=options.regrade,
    )
    elsewhere = 0.0
    if average.unit != "samples":
        ids = {problem.id for problem in problems}
        elsewhere = cost_budget.spent - compute_batch_spent(
            pool, ids, counted_prices, model=asking.model, parameters=asking.parameters
        )
        cost_budget.limit = _find_cost_limit(average, limit + elsewhere, options.max_cost)
    mode = BatchMode(name=asking.mode, engine=engine, asking=asking, prices=prices, cost_budget=cost_budget)
    return _Batch(problems, pool, prepared, average, limit, (mode,), elsewhere, reading, opening)


def _prepare_menu_batch(
    problems: Sequence[Problem],
    pool: Pool,
    policy: Policy,
    budget: float | str | Budget,
    menu: Sequence[ModePlan],
    engines: Mapping[str, SamplingEngine],
    options: _PoolOptions,
) -> "_MenuBatch":
    """As `_prepare_batch`, over several modes, which are paid from one cap."""
    assert isinstance(policy, MenuPolicy)  # no other draws from several modes
    if not problems:
        raise CollectError("there is no request to answer; give at least one")
    average = parse_money_budget(budget, menu)
    limit = compute_limit(average, len(problems))
    choices = ModeChoices(policy, [problem.question for problem in problems])
    _check_menu_budget(problems, average, limit, policy, menu)
    merge_leftover_shards(pool)
    for plan in menu:
        check_source(pool, plan.asking.model, plan.asking.parameters, another=options.another)
    add_problems(pool, problems, menu[0].asking.template, regrade=options.regrade)
    ids, spent, elsewhere = {problem.id for problem in problems}, 0.0, 0.0
    for plan in menu:
        model, parameters = plan.asking.model, plan.asking.parameters
        paid = compute_max_cost(pool.account(model, parameters), plan.prices)
        own = compute_batch_spent(pool, ids, plan.prices, model=model, parameters=parameters)
        spent, elsewhere = spent + paid, elsewhere + paid - own
    cap = CostCap(limit=_find_cost_limit(average, limit + elsewhere, options.max_cost), spent=spent)
    modes = tuple(
        BatchMode(
            name=plan.name,
            engine=make_engine(
                engines.get(plan.name)
                or replace(plan.mode.endpoint, breaker=plan.mode.endpoint.breaker.share(len(menu)))
            ),
            asking=plan.asking,
            prices=plan.prices,
            cost_budget=CostBudget(prices=plan.prices, most_tokens=plan.asking.most_tokens, cap=cap),
        )
        for plan in menu
    )
    guess = _guess_costs(problems, policy, menu)
    return _MenuBatch(problems, pool, policy, average, limit, modes, elsewhere, choices, guess)


def parse_money_budget(budget: float | str | Budget, menu: Sequence[ModePlan]) -> Budget:
    """A batch's budget over several modes: money; BudgetInvalid for anything else."""
    currency = menu[0].prices.currency
    average = Budget.parse(budget, currency=currency)
    if average.unit != "money":
        names = ", ".join(plan.name for plan in menu)
        raise BudgetInvalid(
            f"budget {average} is in {average.unit}, which cost differently in {names}; give money, "
            f"e.g. '2 {currency} per 1000'"
        )
    if not any(plan.prices for plan in menu):
        raise BudgetInvalid(
            f"budget {average} needs prices, and no mode of the menu has any: nothing would ever count; give "
            "input_price and output_price in its tables"
        )
    return average


def _guess_costs(problems: Sequence[Problem], policy: MenuPolicy, menu: Sequence[ModePlan]) -> Floats:
    """What a sample of each mode costs before any was drawn, (modes,).

    It is what the policy learned, where that is money; else an estimate by the prices.
    """
    known = policy.menu
    if known.unit != "money":
        known = estimate_plan_menu(menu, problems)
    return np.array([known[plan.name].cost for plan in menu])


def estimate_plan_menu(menu: Sequence[ModePlan], problems: Sequence[Problem]) -> Menu:
    """The menu of modes that nothing is recorded of: what a sample of each costs, by its prices."""
    asking = menu[0].asking
    sizes = [estimate_prompt_size(asking.messages(problem)) for problem in problems[:_GUESSED_PROMPTS]]
    return estimate_menu([plan.mode for plan in menu], prompt_tokens=float(np.mean(sizes)))


def _check_menu_budget(
    problems: Sequence[Problem], budget: Budget, limit: float, policy: MenuPolicy, menu: Sequence[ModePlan]
) -> None:
    """BudgetOutOfRange where not even the cheapest mode can be paid."""
    cheapest = policy.modes[0]
    if policy.origin_ == "fitted" and policy.menu.unit == "money" and budget.amount < cheapest.cost:
        raise BudgetOutOfRange(
            f"budget {budget} is below what one sample of {cheapest.name!r} costs on average; give "
            f"{policy.menu.format_least(cheapest.cost)} or more"
        )
    for plan in menu:
        if plan.prices and plan.asking.most_tokens is None:
            raise CollectError(
                f"mode {plan.name!r} has no limit of tokens a response, so what a call can cost isn't known; "
                "give max_tokens among its options (--max-tokens)"
            )
    reasons = []
    for plan in menu:
        try:
            _check_one_sample(problems, budget, limit, plan.asking, plan.prices)
        except BudgetOutOfRange as exc:
            reasons.append(exc)
    if len(reasons) == len(menu):
        raise reasons[0]


def parse_batch_budget(budget: float | str | Budget, prices: TokenPrices) -> Budget:
    """A batch's budget; BudgetOutOfRange for a number that can't be samples, BudgetInvalid for a text."""
    if not isinstance(budget, str | Budget):
        compute_sample_limit(budget, 1)
    return Budget.parse(budget, currency=prices.currency)


def compute_limit(budget: Budget, requests: int) -> float:
    """What a batch may take in all, in the unit of its budget."""
    if budget.unit == "samples" or not requests:
        return compute_sample_limit(budget.amount, requests)
    return budget.amount * requests


def _find_cost_limit(budget: Budget, limit: float, max_cost: float | None) -> float:
    """The lower one of a batch's budget and `max_cost`, which is money."""
    if max_cost is None:
        return limit
    if budget.unit == "tokens":
        raise CollectError(
            f"max cost {max_cost:g} is money, and the budget is in tokens; give a budget in money"
        )
    return min(limit, max_cost)


def _check_one_sample(
    problems: Sequence[Problem], budget: Budget, limit: float, asking: Asking, prices: TokenPrices
) -> None:
    """BudgetOutOfRange where not even one sample is certain to fit into the whole budget."""
    prompt = min(estimate_prompt_size(asking.body(problem)["messages"]) for problem in problems)
    worst = prices.cost(prompt, asking.most_tokens or 0)
    if worst > limit:
        unit = budget.currency or budget.unit
        mode = f" of mode {asking.mode!r}" if asking.mode else ""
        raise BudgetOutOfRange(
            f"budget {budget} is {limit:.6g} {unit} in all, and one sample{mode} can cost {worst:.6g} with "
            f"max_tokens {asking.most_tokens}; raise it, lower max_tokens, or answer more requests together"
        )


class _Batch:
    """One batch, from its first samples to its answers."""

    def __init__(
        self,
        problems: Sequence[Problem],
        pool: Pool,
        policy: Policy,
        budget: Budget,
        limit: float,
        modes: tuple[BatchMode, ...],
        elsewhere: float,
        reading: Floats,
        opening: Ints,
    ) -> None:
        self._problems = problems
        self._pool = pool
        self._policy = policy
        self._budget = budget
        self._limit = limit
        self._modes = modes
        self._elsewhere = elsewhere  # of what the pool's calls cost, what is not for these problems
        self._opening = opening
        self._cost_budget = modes[0].cost_budget  # its limit and what was spent are those of all modes
        self._failures: dict[str, str] = {}
        self._initial_weigh = policy.weigh
        self._votes = self._load_votes()
        self._planner = WavePlanner(policy, self._votes, reading, find_room=self._find_room)

    async def run(
        self,
        progress: Callable[[CollectProgress], None] | None,
        signals: Sequence[signal.Signals],
    ) -> Answers:
        start, before = time.monotonic(), self._votes.spent

        def report(sampler: BatchSampler) -> None:
            if progress is not None:
                planned = max(self._votes.spent + self._find_room(), before)
                progress(sampler.progress(planned=planned, before=before))

        width = sum(mode.engine.width for mode in self._modes)
        async with open_samplers(self._modes, self._pool, on_progress=report, signals=signals) as sampler:
            report(sampler)
            await self._draw_first(sampler)
            while sampler.stopped is None and (wave := self._planner.plan_next(width)):
                await self._draw(sampler, wave)
                await asyncio.to_thread(self._votes.recount, wave.rows)
                self._record_failures(sampler, wave.rows)
        return self._build_result(sampler, before, time.monotonic() - start)

    def _find_room(self) -> int:
        """Samples that are left to draw: of tokens or money as many as the rest pays for at the mean so far.

        Before anything is known that is one for each request. Whatever the estimate is, the cost budget sends
        nothing that could cost more than is left.
        """
        drawn = self._votes.spent
        if self._budget.unit == "samples":
            return int(self._limit) - drawn
        used = self._batch_cost
        if not drawn or used <= 0:
            return len(self._votes) - drawn
        return int((self._limit - used) / (used / drawn))

    @property
    def _batch_cost(self) -> float:
        """What these problems have cost in the unit of the budget, if it isn't samples."""
        return max(0.0, self._cost_budget.spent - self._elsewhere)

    def _load_votes(self) -> BatchVotes:
        asking = self._modes[0].asking
        return BatchVotes(self._problems, self._pool, model=asking.model, parameters=asking.parameters)

    async def _draw_first(self, sampler: BatchSampler) -> None:
        """Draws the first wave, and fits the policy to it."""
        await self._draw(sampler, self._planner.plan_first(self._opening))
        await asyncio.to_thread(self._fit_policy)
        self._record_failures(sampler, np.arange(len(self._problems)))

    async def _draw(self, sampler: BatchSampler, wave: Wave) -> None:
        firsts = self._votes.take_indexes(wave)
        runs: list[list[SampleRun]] = [[] for _ in self._modes]
        for row, count, mode, first in zip(*(part.tolist() for part in (*wave, firsts)), strict=True):
            runs[mode].append(SampleRun(self._problems[row], first, count))
        await sampler.draw(runs)

    def _fit_policy(self) -> None:
        """Fits the policy to the model's first samples, and recounts all votes."""
        asking = self._modes[0].asking
        ballots = self._pool.ballots_of(self._pool.source_key(asking.model, asking.parameters))
        first = select_first_samples(ballots, {problem.id for problem in self._problems})
        self._policy = fit_to_batch(self._policy, first)
        self._votes.weigh = self._policy.weigh
        self._votes.recount(np.arange(len(self._votes)))
        self._planner.set_policy(self._policy)

    def _record_failures(self, sampler: BatchSampler, rows: Rows) -> None:
        """Requests whose calls failed keep what they have, and get no more in this run."""
        for row in self._planner.record_wave(rows):
            id_ = self._problems[row].id
            if id_ in sampler.failures or sampler.stopped is None:
                self._failures[id_] = sampler.failures.get(id_, _UNSTORED)

    def _is_spent(self, sampler: BatchSampler) -> bool:
        """Whether it ended because its own budget, in tokens or money, is spent, and not by `max_cost`."""
        if self._budget.unit == "samples" or sampler.stopped != "max-cost":
            return False
        return (
            self._cost_budget.limit is not None and self._cost_budget.limit >= self._limit + self._elsewhere
        )

    def _build_result(self, sampler: BatchSampler, before: int, seconds: float) -> Answers:
        broken_off = sampler.stopped in RESUMABLE_STOPS
        uses = self._measure_modes()
        answers = () if broken_off else tuple(self._build_answers(uses))
        right = np.array([item.correct for item in answers if item.correct is not None])
        spent = self._load_votes().spent  # what was abandoned in flight may have been stored nevertheless
        stopped, why = (None, None) if self._is_spent(sampler) else (sampler.stopped, sampler.why)
        excess = [mode.cost_budget.excess_tokens for mode in self._modes]
        return Answers(
            each=answers,
            requests=len(self._problems),
            policy=self._policy.kind,
            budget=self._budget.amount,
            unit=self._budget.unit,
            currency=self._budget.currency,
            limit=self._limit,
            used=float(spent) if self._budget.unit == "samples" else self._batch_cost,
            excess_tokens=max((tokens for tokens in excess if tokens is not None), default=None),
            spent=spent,
            added=spent - before,
            rounds=self._planner.number,
            price=None if broken_off else self._planner.price,
            unsettled=0 if broken_off else self._planner.unfinished,
            weigh=self._policy.weigh,
            plain=self._initial_weigh is not None and self._policy.weigh is None,
            accuracy=bootstrap_mean(right, np.random.default_rng(_SEED)) if len(right) else None,
            failures=dict(self._failures) or dict(sampler.failures),
            errors=dict(sampler.errors),
            account=add_accounts([use.account for use in uses]),
            cost=sum(use.cost for use in uses),
            at_most=sum(use.at_most for use in uses),
            stopped=stopped,
            why=why,
            signal=sampler.signal,
            verifier=summarise_scores(sampler.samplers[0]),
            seconds=seconds,
            found=_average_share([(use.answered, use.samples) for use in uses]),
            finished=_average_share([(use.finished, use.samples) for use in uses]),
            modes=tuple(uses) if self._modes[0].name else (),
            prices=tuple(getattr(self._planner, "prices", ())),
        )

    def _measure_modes(self) -> list[ModeDraws]:
        """What each mode gave to this batch, and what its calls have cost, in all runs into this pool."""
        return [measure_mode(self._pool, self._modes[0], samples=self._votes.spent, shares=True)]

    def _build_answers(self, uses: Sequence[ModeDraws]) -> Iterator[RequestAnswer]:
        names = [mode.name for mode in self._modes if mode.name]
        prices = {mode.name: mode.prices for mode in self._modes}
        for row, problem in enumerate(self._problems):
            samples = self._votes.samples(row)
            error = self._failures.get(problem.id, None if samples else _NOTHING_LEFT)
            tally = self._votes.tally(samples)
            plain = build_answer(problem, samples, tally, task=self._pool.task, error=error, modes=names)
            costs = {
                use.name: use.cost_samples(
                    [sample for sample in samples if (sample.mode or names[0]) == use.name], prices[use.name]
                )
                for use in uses
                if use.name in plain.modes
            }
            yield replace(plain, costs=costs)


class _MenuBatch(_Batch):
    """A batch over several modes: a `MenuPolicy` says which one is asked next, at one falling price."""

    _votes: MenuBatchVotes  # type: ignore[assignment]
    _planner: MenuPlanner
    _policy: MenuPolicy

    def __init__(
        self,
        problems: Sequence[Problem],
        pool: Pool,
        policy: MenuPolicy,
        budget: Budget,
        limit: float,
        modes: tuple[BatchMode, ...],
        elsewhere: float,
        choices: ModeChoices,
        guess: Floats,
    ) -> None:
        """`guess` is what a sample of each mode costs, (modes,), until some were drawn."""
        super().__init__(
            problems, pool, policy, budget, limit, modes, elsewhere, np.zeros((len(problems), 0)), _NO_OPENING
        )
        self._guess = guess
        self._costs = guess
        self._votes.weigh = policy.weigh
        self._left_out: dict[int, dict[str, str]] = {}  # by request: modes that failed, and why
        self._planner = MenuPlanner(
            choices,
            self._votes,
            budget=budget.amount,
            find_money=self._find_money,
            find_costs=lambda: self._costs,
        )

    def _load_votes(self) -> MenuBatchVotes:  # type: ignore[override]
        askings = {mode.name: mode.asking for mode in self._modes}
        return MenuBatchVotes(self._problems, self._pool, askings)

    def _find_money(self) -> float:
        """What is left of the budget."""
        limit = self._cost_budget.limit
        return (self._limit + self._elsewhere if limit is None else limit) - self._cost_budget.spent

    def _find_room(self) -> int:
        return self._planner.room

    async def _draw_first(self, sampler: BatchSampler) -> None:  # noqa: ARG002 - nothing is drawn
        """Counts what is stored; the planner decides what is drawn first."""
        stored = np.flatnonzero(self._votes.drawn > 0)
        if len(stored):
            await asyncio.to_thread(self._votes.recount, stored)
        self._measure_costs()
        self._planner.resume()

    def _measure_modes(self) -> list[ModeDraws]:
        drawn = self._votes.drawn_by_mode.sum(axis=0).tolist()
        return [
            measure_mode(self._pool, mode, samples=count, shares=True)
            for mode, count in zip(self._modes, drawn, strict=True)
        ]

    def _measure_costs(self) -> None:
        """What a sample of each mode costs on average; the guess, for modes without any yet."""
        means = [measure_mode(self._pool, mode).mean_cost for mode in self._modes]
        self._costs = np.array(
            [guess if mean is None else mean for guess, mean in zip(self._guess, means, strict=True)]
        )

    def _record_failures(self, sampler: BatchSampler, rows: Rows) -> None:  # noqa: ARG002 - those of the wave
        """A mode that gave no sample is left out for its request; one that can't be paid, for all."""
        self._measure_costs()
        for mode, part in enumerate(sampler.samplers):
            if part.stopped == "max-cost":
                self._planner.mark_unpaid(mode)
        for row, mode in self._planner.record_modes():
            part, id_ = sampler.samplers[mode], self._problems[row].id
            if id_ not in part.failures and part.stopped in ("max-cost", "signal"):
                continue
            why = part.failures.get(id_) or part.why or _UNSTORED
            self._planner.leave_out(row, mode)
            self._left_out.setdefault(row, {})[self._modes[mode].name] = why
            self._failures[id_] = "; ".join(
                f"mode {name!r} was left out: {reason}" for name, reason in self._left_out[row].items()
            )


def build_answer(
    problem: Problem,
    samples: Sequence[Sample],
    tally: Tally,
    *,
    task: Task,
    error: str | None,
    modes: Sequence[str] = (),
) -> RequestAnswer:
    """The answer that the tally of these samples gives. `modes` are those of a menu, cheapest first."""
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


def _average_share(shares: Sequence[tuple[float | None, int]]) -> float | None:
    """The mean of shares of so many samples each, of those that are known."""
    known = [(share, count) for share, count in shares if share is not None and count]
    total = sum(count for _, count in known)
    return sum(share * count for share, count in known) / total if total else None


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
        prepared = copy.copy(adapt_policy(policy, first))
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
