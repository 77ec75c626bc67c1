"""`collect`: draws a pool's missing samples from one or several endpoints and stores them.

Each mode has an endpoint, whose samples are a separate source in the pool. One limit on money covers all
modes. If an endpoint fails, the others continue. `answer` also uses most of this module.
"""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from adacompute.client import Endpoint, Verifier
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.client.settings import ModeEndpoint
from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.problems import Template
from adacompute.records import Account, Problem, TokenPrices
from adacompute.sampling.plan import (
    Asking,
    CostBudget,
    CostCap,
    RemainingSamples,
    SampleRange,
    add_problems,
    check_source,
    compute_spent,
    find_remaining,
)
from adacompute.sampling.shards import merge_leftover_shards
from adacompute.sampling.workers import (
    CollectProgress,
    LocalEngine,
    Sampler,
    StopReason,
    WorkerEngine,
    handle_signals,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """What to draw from one endpoint: request settings, samples per problem, prices.

    `endpoint` may be an engine that draws the samples elsewhere, such as on a cluster. A `verifier` scores
    each new sample that has an answer, before the sample is stored. The pool doesn't record the verifier's
    cost.
    """

    endpoint: Endpoint | WorkerEngine
    asking: Asking
    samples: int = 48  # samples per problem; ignored by `answer`, whose policy decides
    prices: TokenPrices = field(default_factory=TokenPrices)
    verifier: Verifier | None = None

    def __post_init__(self) -> None:
        for name, value, kind in (
            ("endpoint", self.endpoint, Endpoint | WorkerEngine),
            ("asking", self.asking, Asking),
        ):
            if not isinstance(value, kind):
                raise CollectError(f"{name} is {type(value).__name__}; give an ac.{name.title()}")
        place = f"mode {self.name!r}: " if self.name else ""
        if type(self.samples) is not int or self.samples < 1:
            raise CollectError(
                f"{place}samples {self.samples!r} can't be used; give a whole number from 1 up"
            )
        if self.prices.prompts == "once" or self.prices.prompt_tokens is not None:
            raise CollectError(
                f"{place}prices with prompts='once' or prompt_tokens are for score; leave both out here"
            )
        if self.verifier is not None and not isinstance(self.endpoint, Endpoint):
            raise CollectError(
                f"verifier {self.verifier.url} scores what this process draws; give an endpoint (--engine "
                "local), or leave the verifier out"
            )

    @property
    def name(self) -> str:
        """The mode's name; "" for a single endpoint."""
        return self.asking.mode

    @property
    def engine(self) -> WorkerEngine:
        """The engine that draws the samples: the given one, or one in this process."""
        if isinstance(self.endpoint, Endpoint):
            return LocalEngine(self.endpoint, self.verifier)
        return self.endpoint


def build_plan(
    mode: ModeEndpoint,
    *,
    template: Template,
    sampling: Mapping[str, Any],
    limit_is_default: bool = False,
    logprobs: bool = True,
    top_logprobs: int = 0,
    sent_model: str = "",
    **plan: Any,  # noqa: ANN401 - more of `SourcePlan`
) -> SourcePlan:
    """Plans how to request samples from a mode, whose own options override those in `sampling`.

    If the mode and `sampling` both limit the tokens, the smaller limit applies. With `limit_is_default`, the
    limit in `sampling` applies only if the mode has none.
    """
    if limit_is_default and mode.max_tokens is not None:
        sampling = {name: value for name, value in sampling.items() if name not in LIMIT_NAMES}
    body = mode.build_body({"messages": [], **sampling})
    asking = Asking(
        model=mode.model,
        template=template,
        sampling={name: value for name, value in body.items() if name not in ("model", "messages")},
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        sent_model=sent_model,
        mode=mode.name,
        system_suffix=mode.system_suffix,
    )
    return SourcePlan(**{"endpoint": mode.endpoint, "asking": asking, "prices": mode.prices, **plan})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The fields that `Collected` and `Answers` share.

    `account` and the costs include earlier runs with the same sources.
    """

    added: int  # number of samples drawn in this run
    failures: Mapping[str, str]  # problem id -> why the problem lacks samples
    errors: Mapping[str, int]  # kind of error -> number of this run's attempts that ended with it
    account: Account  # totals over all calls to these sources that are recorded in the pool, from any run
    cost: float  # cost in money of all calls counted in `account`
    at_most: float  # `cost`, plus the cost of failed calls that may be charged
    seconds: float
    stopped: StopReason | None = None  # what stopped the run; None if it finished
    why: str | None = None  # explanation of `stopped` for the user
    signal: int | None = None  # number of the signal that stopped the run
    # share of samples that weren't cut off, among the samples for which this is known
    finished: float | None = None
    # numbers of verifier calls, failed calls and tokens in this run; None if the verifier wasn't called
    verifier: Mapping[str, Any] | None = None

    def list_run(self) -> dict[str, Any]:
        """Returns the fields of this class as plain data, for JSON."""
        return {
            "added": self.added,
            "failures": dict(self.failures),
            "errors": dict(self.errors),
            "calls": self.account.calls,
            "calls_paid": self.account.paid,
            "calls_maybe_paid": self.account.maybe,
            "calls_estimated": self.account.estimated,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "why": self.why,
            "finished": self.finished,
            "verifier": self.verifier,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected(RunResult):
    """The result of a collection, for one source or all modes together."""

    planned: int  # number of planned samples
    stored: int  # number of planned samples in the pool, including those of earlier runs
    model: str | None = None  # name of the model; None if there are several modes
    per_call: int | None = None  # maximum number of samples per call; None if unknown
    logprobs: bool | None = None  # whether the model returns log-probabilities; None if unknown
    answered: float | None = None  # share of the source's samples with an answer
    modes: Mapping[str, "Collected"] = field(default_factory=dict)  # name of a mode -> its result

    @property
    def complete(self) -> bool:
        """Whether the pool has all planned samples."""
        return self.stored == self.planned

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return {
            "model": self.model,
            "planned": self.planned,
            "stored": self.stored,
            "complete": self.complete,
            **self.list_run(),
            "samples_per_call": self.per_call,
            "logprobs": self.logprobs,
            "answered": self.answered,
        } | ({"modes": {name: part.to_dict() for name, part in self.modes.items()}} if self.modes else {})


def collect(
    problems: Sequence[Problem],
    pool: Pool,
    plans: SourcePlan | Sequence[SourcePlan],
    *,
    max_cost: float | None = None,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> Collected:
    """Draws the planned samples that the pool lacks for each problem, and stores each sample on arrival.

    After any interruption, even `kill -9`, the same call continues: stored samples aren't requested again.
    The first of the `signals` ends the run gracefully, the second at once. Raises SourceChanged if the pool's
    samples were drawn with another model, template or parameter, unless `another` is true. A changed problem
    is updated in the pool, but what the model sees of it must be the same, and a changed gold answer needs
    `regrade`. `max_cost` limits the total cost of all calls recorded in the pool, in money.
    """
    problems, plans = check_arguments(problems, pool, plans)
    prepare_pool(pool, problems, plans, another=another, regrade=regrade)
    prices = {plan.name: plan.prices for plan in plans}
    cap = CostCap(limit=max_cost, spent=compute_spent(pool, prices))
    collection = _Collection(problems, pool, plans, make_budgets(plans, prices, cap), progress)
    return run_coroutine(collection.run(signals))


@dataclass(eq=False)
class _Collection:
    """Runs one collection, from its plan to its result."""

    problems: Sequence[Problem]
    pool: Pool
    plans: Sequence[SourcePlan]
    budgets: Sequence[CostBudget]
    progress: Callable[[CollectProgress], None] | None

    def __post_init__(self) -> None:
        self.before = self._find_remaining()

    async def run(self, signals: Sequence[signal.Signals]) -> Collected:
        """Draws the samples that the pool lacks."""
        start = time.monotonic()
        async with open_samplers(
            self.plans, self.pool, self.budgets, on_progress=self._report, signals=signals
        ) as group:
            self._report(group)  # reports at once how many samples are stored already
            await group.draw([left.runs for left in self.before])
        return self._build_result(group, time.monotonic() - start)

    def _find_remaining(self) -> list[RemainingSamples]:
        return [
            find_remaining(self.problems, self.pool, plan.asking, samples=plan.samples) for plan in self.plans
        ]

    def _report(self, group: "SamplerGroup") -> None:
        """Reports progress to the listener, if any."""
        if self.progress is not None:
            planned = [each.planned for each in self.before]
            self.progress(group.progress(planned, [each.stored for each in self.before]))

    def _build_result(self, group: "SamplerGroup", seconds: float) -> Collected:
        """Builds the result from the pool, after the samplers were closed."""
        remaining = self._find_remaining()
        result = self._sum_sources(self.plans, group, remaining, seconds)
        if not self.plans[0].name:
            return result
        modes = {
            plan.name: self._sum_sources(
                [plan], SamplerGroup({plan.name: sampler}, group.cap), [left], seconds
            )
            for plan, sampler, left in zip(self.plans, group.samplers, remaining, strict=True)
        }
        return replace(result, modes=modes)

    def _sum_sources(
        self,
        plans: Sequence[SourcePlan],
        group: "SamplerGroup",
        remaining: Sequence[RemainingSamples],
        seconds: float,
    ) -> Collected:
        """Builds one result for all the given sources."""
        uses = [
            measure_source(self.pool, plan, samples=left.stored)
            for plan, left in zip(plans, remaining, strict=True)
        ]
        run = summarise_run(uses, group, seconds)
        result = Collected(
            planned=sum(left.planned for left in remaining),
            stored=sum(left.stored for left in remaining),
            answered=average_share([(use.answered, use.samples) for use in uses]),
            **run,
        )
        if len(plans) > 1:
            return result
        sampler = group.samplers[0]
        return replace(
            result,
            model=plans[0].asking.model,
            per_call=sampler.per_call,
            logprobs=sampler.logprobs,
            answered=uses[0].answered,
            finished=uses[0].finished,
        )


def check_arguments(
    problems: Iterable[Problem], pool: Pool, plans: SourcePlan | Iterable[SourcePlan]
) -> tuple[tuple[Problem, ...], tuple[SourcePlan, ...]]:
    """Checks the arguments' types; returns the problems and the plans as tuples."""
    if not isinstance(pool, Pool):
        raise CollectError(f"pool is {type(pool).__name__}; give an ac.Pool")
    if isinstance(problems, str | bytes | Problem) or not isinstance(problems, Iterable):
        raise CollectError(f"problems are {type(problems).__name__}; give a list of ac.Problem")
    plans = (plans,) if isinstance(plans, SourcePlan) else tuple(plans)
    for plan in plans:
        if not isinstance(plan, SourcePlan):
            raise CollectError(f"a plan is {type(plan).__name__}; give an ac.SourcePlan")
    names = [plan.name for plan in plans]
    if not names or len(set(names)) < len(names) or (len(names) > 1 and "" in names):
        raise CollectError(
            f"modes {names!r} can't be drawn from; give at least one, and each a name of its own"
        )
    return tuple(problems), plans


def prepare_pool(
    pool: Pool, problems: Sequence[Problem], plans: Sequence[SourcePlan], *, another: bool, regrade: bool
) -> None:
    """Merges shards left by earlier runs, checks the pool's sources, and adds the problems."""
    if pool.shard_folder.is_dir():
        merge_leftover_shards(pool)
    for plan in plans:
        check_source(pool, plan.asking, another=another)
    add_problems(pool, problems, plans[0].asking.template, regrade=regrade)


def make_budgets(
    plans: Sequence[SourcePlan], prices: Mapping[str, TokenPrices], cap: CostCap
) -> list[CostBudget]:
    """Makes a cost budget for each source, all within the same limit `cap`."""
    if cap.limit is not None and not any(prices.values()):
        raise CollectError(
            "max cost needs prices, for a million tokens; give input_price and output_price in each mode's "
            "table, or --input-price and --output-price"
        )
    for plan in plans:
        if cap.limit is not None and prices[plan.name] and plan.asking.most_tokens is None:
            place = f"mode {plan.name!r}: " if plan.name else ""
            raise CollectError(
                f"{place}max cost needs a limit of tokens a response; give max_tokens (--max-tokens)"
            )
    return [
        CostBudget(prices=prices[plan.name], most_tokens=plan.asking.most_tokens, cap=cap) for plan in plans
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUse:
    """The samples drawn from a source, and the cost of all its calls that are recorded in the pool."""

    name: str  # name of the source's mode
    samples: int  # number of samples that belong to this collection or batch
    account: Account  # totals over all calls to this source that are recorded in the pool, from any run
    cost: float  # cost in money of all calls counted in `account`
    at_most: float  # `cost`, plus the cost of failed calls that may be charged
    answered: float | None  # share of the source's samples with an answer
    finished: float | None  # share of samples that weren't cut off, among samples for which this is known

    @property
    def mean_cost(self) -> float | None:
        """Mean cost in money per sample; None without samples."""
        return self.at_most / self.account.got if self.account.got else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return {
            "samples": self.samples,
            "calls": self.account.calls,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "cost_per_sample": self.mean_cost,
        }


def measure_source(pool: Pool, plan: SourcePlan, *, samples: int) -> SourceUse:
    """Measures the cost of a source's calls, and which share of its samples have an answer."""
    account = pool.account(*plan.asking.source)
    totals = pool.totals(pool.source_key(*plan.asking.source))
    return SourceUse(
        name=plan.name,
        samples=samples,
        account=account,
        cost=account.cost(plan.prices),
        at_most=account.cost(plan.prices, at_most=True),
        answered=totals.answered,
        finished=totals.finished,
    )


def summarise_run(uses: Sequence[SourceUse], group: "SamplerGroup", seconds: float) -> dict[str, Any]:
    """Gathers the values for the fields of a `RunResult`."""
    accounts = [asdict(use.account) for use in uses]
    return {
        "added": group.added,
        "failures": group.failures,
        "errors": dict(group.errors),
        "account": Account(**{name: sum(each[name] for each in accounts) for name in accounts[0]}),
        "cost": sum(use.cost for use in uses),
        "at_most": sum(use.at_most for use in uses),
        "seconds": seconds,
        "stopped": group.stopped,
        "why": group.why,
        "signal": group.signal,
        "finished": average_share([(use.finished, use.samples) for use in uses]),
        "verifier": _sum_scores(group.samplers),
    }


def average_share(shares: Sequence[tuple[float | None, int]]) -> float | None:
    """Averages shares, each weighted by its number of samples; ignores unknown shares."""
    known = [(share, count) for share, count in shares if share is not None and count]
    total = sum(count for _, count in known)
    return sum(share * count for share, count in known) / total if total else None


def _sum_scores(samplers: Sequence[Sampler]) -> dict[str, Any] | None:
    """Adds up the calls, failures and tokens of all verifiers; None if no verifier was called."""
    if not any(sampler.scores["calls"] for sampler in samplers):
        return None
    totals = {name: sum(each.scores[name] for each in samplers) for name in ("calls", "failed", "tokens")}
    return {**totals, "why": next((each.verifier_error for each in samplers if each.verifier_error), None)}


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, in another thread if this one has an event loop (as in notebooks)."""
    if not _has_running_loop():
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SamplerGroup:
    """The samplers of all sources, used like a single one. Stops once all have stopped, or at a signal."""

    def __init__(self, samplers: Mapping[str, Sampler], cap: CostCap, *, in_turn: bool = False) -> None:
        self._names = tuple(samplers)
        self.samplers = tuple(samplers.values())
        self.cap = cap
        self._in_turn = in_turn

    @property
    def added(self) -> int:
        """Number of samples drawn in this run."""
        return sum(sampler.added for sampler in self.samplers)

    @property
    def errors(self) -> Counter[str]:
        """Map: kind of error -> number of attempts that ended with it."""
        return sum((sampler.errors for sampler in self.samplers), Counter())

    @property
    def failures(self) -> dict[str, str]:
        """Map: problem id -> the latest reason why the problem lacks samples."""
        return {id_: why for sampler in self.samplers for id_, why in sampler.failures.items()}

    @property
    def stopped(self) -> StopReason | None:
        """What stopped the run; None while some source can continue."""
        reasons = [sampler.stopped for sampler in self.samplers]
        if "signal" in reasons:
            return "signal"
        if None in reasons:
            return None
        return "max-cost" if "max-cost" in reasons else "endpoint"

    @property
    def why(self) -> str | None:
        """Explanation of `stopped` for the user."""
        stopped = self.stopped
        reasons = [sampler.why for sampler in self.samplers if sampler.stopped == stopped is not None]
        return next((why for why in reasons if why is not None), None)

    @property
    def signal(self) -> int | None:
        """The number of the signal that stopped the run, if any."""
        return next((each.signal for each in self.samplers if each.signal is not None), None)

    def stop(self, number: int) -> None:
        """Starts no more calls after a signal, and finishes those in flight."""
        for sampler in self.samplers:
            sampler.stop("signal", number=number)

    def abandon(self) -> None:
        """Records that the calls in flight were abandoned."""
        for sampler in self.samplers:
            sampler.why = "at once: calls in flight were abandoned, and may have been paid for"

    async def draw(self, runs: Sequence[Sequence[SampleRange]]) -> None:
        """Draws the samples in `runs`, which has ranges for each source; after `stop`, only some of them."""
        chosen = [(sampler, part) for sampler, part in zip(self.samplers, runs, strict=True) if part]
        if self._in_turn or len(chosen) == 1:
            for sampler, part in chosen:
                await sampler.draw(iter(part))
            return
        tasks = [asyncio.create_task(sampler.draw(iter(part))) for sampler, part in chosen]
        try:
            await asyncio.gather(*tasks)
        except BaseException:  # all tasks must end before their samplers are closed
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def progress(self, planned: Sequence[int], before: Sequence[int]) -> CollectProgress:
        """Returns the progress of all sources together.

        `planned` and `before` have a number per source: samples planned, and stored before this run.
        """
        parts = [
            sampler.progress(planned=count, before=stored)
            for sampler, count, stored in zip(self.samplers, planned, before, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        joined = CollectProgress.join(parts)
        return replace(
            joined,
            # the cost in each part is already the total over all sources, so it must be counted only once
            cost=joined.cost - (len(parts) - 1) * self.cap.spent,
            stopping=self.stopped is not None,
            modes=dict(zip(self._names, parts, strict=True)),
        )


@contextlib.asynccontextmanager
async def open_samplers(
    plans: Sequence[SourcePlan],
    pool: Pool,
    budgets: Sequence[CostBudget],
    *,
    on_progress: Callable[[SamplerGroup], None],
    signals: Sequence[signal.Signals] = (),
) -> AsyncIterator[SamplerGroup]:
    """Opens a sampler for each plan, which writes to the pool; on exit, every sample that arrived is stored.

    The first signal stops the samplers gracefully; the second one leaves the `with` block at once.
    """
    opened: list[SamplerGroup] = []

    def report() -> None:
        for group in opened:
            on_progress(group)

    def stop(number: int) -> None:
        group.stop(number)
        report()

    async with contextlib.AsyncExitStack() as stack:
        samplers = {
            plan.name: await stack.enter_async_context(
                plan.engine.open_sampler(pool, asking=plan.asking, cost_budget=budget, on_progress=report)
            )
            for plan, budget in zip(plans, budgets, strict=True)
        }
        # on a cluster, one source may use all the remaining money: draw the sources one after the other
        in_turn = not all(isinstance(plan.endpoint, Endpoint) for plan in plans)
        group = SamplerGroup(samplers, budgets[0].cap, in_turn=in_turn)
        opened.append(group)
        async with handle_signals(signals, on_first=stop, on_second=group.abandon):
            yield group
        closing = stack.pop_all()
        # closing may take seconds, so signals must be handled until it is done
        async with handle_signals(signals, on_first=group.stop, on_second=group.abandon):
            await closing.aclose()
