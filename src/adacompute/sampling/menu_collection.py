"""`collect_menu`: the samples that a pool lacks of every mode of a menu; `check_modes`: one question to each.

The modes are drawn at the same time, each from its own endpoint and into a source of its own, within one cap
in money. A mode that fails doesn't stop the others.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from adacompute.client import LIMIT_NAME, LOGPROBS, Client, Endpoint, Verifier
from adacompute.client.modes import ModeEndpoint
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.errors import CollectError, EndpointError
from adacompute.pool import Pool
from adacompute.pool.menu import MODE_PARAMETER
from adacompute.problems import Template
from adacompute.records import Call, Problem, TokenPrices
from adacompute.sampling.collect import (
    Collected,
    SampleCollection,
    check_arguments,
    check_prices,
    handle_signals,
    make_engine,
    merge_leftover_shards,
    run_coroutine,
)
from adacompute.sampling.plan import Asking, add_problems, check_source
from adacompute.sampling.workers import (
    CollectProgress,
    CostBudget,
    CostCap,
    Sampler,
    StopReason,
    compute_max_cost,
)

__all__ = ["CollectedMenu", "ModeCheck", "ModePlan", "build_mode_plan", "check_modes", "collect_menu"]

_REASONING = ("completion_tokens_details", "reasoning_tokens")  # where usage tells them
_CHECK_ATTEMPTS = 2  # of the question that a check asks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePlan:
    """What is drawn from one mode: how it is asked, and how many samples of each problem."""

    mode: ModeEndpoint
    asking: Asking
    samples: int = 1  # `answer` draws as many as its policy says
    verifier: Verifier | None = None

    def __post_init__(self) -> None:
        if type(self.samples) is not int or self.samples < 1:
            raise CollectError(
                f"mode {self.mode.name!r}: samples {self.samples!r} can't be used; "
                "give a whole number from 1 up"
            )
        check_prices(self.mode.prices)

    @property
    def name(self) -> str:
        """The mode's."""
        return self.mode.name

    @property
    def prices(self) -> TokenPrices:
        """The mode's."""
        return self.mode.prices


def build_mode_plan(
    mode: ModeEndpoint,
    *,
    template: Template,
    sampling: Mapping[str, Any],
    samples: int = 1,
    limit_is_default: bool = False,
    logprobs: bool = True,
    top_logprobs: int = 0,
    verifier: Verifier | None = None,
) -> ModePlan:
    """How a mode is asked: the sampling parameters of all modes, with the mode's own options over them.

    Of two limits of tokens the smaller one holds; but where the common one is only a default
    (`limit_is_default`), the mode's.
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
        mode=mode.name,
        system_suffix=mode.system_suffix,
    )
    return ModePlan(mode=mode, asking=asking, samples=samples, verifier=verifier)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedMenu:
    """The result of a collection from the modes of a menu."""

    modes: Mapping[str, Collected]
    seconds: float

    @property
    def planned(self) -> int:
        """Samples of all modes."""
        return sum(mode.planned for mode in self.modes.values())

    @property
    def stored(self) -> int:
        """Of the planned samples, with those of earlier runs."""
        return sum(mode.stored for mode in self.modes.values())

    @property
    def added(self) -> int:
        """Samples that this run drew."""
        return sum(mode.added for mode in self.modes.values())

    @property
    def cost(self) -> float:
        """Money, of all calls for these modes into this pool."""
        return sum(mode.cost for mode in self.modes.values())

    @property
    def at_most(self) -> float:
        """Money, with what may have been charged."""
        return sum(mode.at_most for mode in self.modes.values())

    @property
    def complete(self) -> bool:
        """Whether the pool holds all that was planned."""
        return self.stored == self.planned

    @property
    def signal(self) -> int | None:
        """The number of the signal that stopped it; None: none did."""
        return next((mode.signal for mode in self.modes.values() if mode.signal is not None), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        names = ("planned", "stored", "added", "complete", "cost", "seconds")
        return {
            **{name: getattr(self, name) for name in names},
            "cost_at_most": self.at_most,
            "modes": {name: mode.to_dict() for name, mode in self.modes.items()},
        }


def collect_menu(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    plans: Sequence[ModePlan],
    max_cost: float | None = None,
    retry_rounds: int = 0,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[str, CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> CollectedMenu:
    """Draws what the pool lacks of every mode's samples, from all modes at the same time.

    As `collect` for each of them: it can be resumed, and a mode whose model, template or options changed
    is refused unless `another`. `max_cost` is the most that the calls of all modes may cost together, each
    at its own prices. `progress` is called with a mode's name and its progress.
    """
    for plan in plans:
        problems = check_arguments(problems, pool, plan.mode.endpoint, plan.asking)
    if type(retry_rounds) is not int or retry_rounds < 0:
        raise CollectError(f"retry rounds {retry_rounds!r} can't be used; give a whole number from 0 up")
    cap = _prepare_menu_pool(pool, problems, plans, max_cost=max_cost, another=another, regrade=regrade)
    collections = {
        plan.name: SampleCollection(
            problems,
            pool,
            make_engine(plan.mode.endpoint, plan.verifier),
            plan.asking,
            plan.samples,
            CostBudget(prices=plan.prices, most_tokens=plan.asking.most_tokens, cap=cap),
            _name_progress(progress, plan.name),
        )
        for plan in plans
    }
    return run_coroutine(_collect_modes(collections, retry_rounds, signals))


def _prepare_menu_pool(
    pool: Pool,
    problems: Sequence[Problem],
    plans: Sequence[ModePlan],
    *,
    max_cost: float | None,
    another: bool,
    regrade: bool,
) -> CostCap:
    """Checks the plans and the pool's sources, adds the problems; returns what all modes may spend."""
    names = [plan.name for plan in plans]
    if not names or len(set(names)) < len(names):
        raise CollectError(f"modes {names!r} can't be collected; give at least one, and each once")
    if max_cost is not None and not any(plan.prices for plan in plans):
        raise CollectError("max cost needs prices; give input_price and output_price in the menu's tables")
    merge_leftover_shards(pool)
    for plan in plans:
        check_source(pool, plan.asking.model, plan.asking.parameters, another=another)
    add_problems(pool, problems, plans[0].asking.template, regrade=regrade)
    return CostCap(limit=max_cost, spent=_compute_menu_spent(pool, plans))


def _compute_menu_spent(pool: Pool, plans: Sequence[ModePlan]) -> float:
    """What all calls into a pool have cost at most: a mode's at its prices, others at the highest ones."""
    prices = {plan.name: plan.prices for plan in plans}
    highest = TokenPrices(
        input=max(price.input for price in prices.values()),
        output=max(price.output for price in prices.values()),
    )
    return sum(
        compute_max_cost(
            pool.account(model, parameters), prices.get(str(parameters.get(MODE_PARAMETER)), highest)
        )
        for model, parameters in pool.models
    )


def _name_progress(
    progress: Callable[[str, CollectProgress], None] | None, name: str
) -> Callable[[CollectProgress], None] | None:
    return None if progress is None else lambda state: progress(name, state)


class _SamplerGroup:
    """The samplers of all modes, which a signal stops together."""

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        self._samplers = samplers

    @property
    def why(self) -> str | None:
        return self._samplers[0].why

    @why.setter
    def why(self, why: str | None) -> None:
        for sampler in self._samplers:
            sampler.why = why

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        for sampler in self._samplers:
            sampler.stop(how, why, number=number)


async def _collect_modes(
    collections: Mapping[str, SampleCollection], rounds: int, signals: Sequence[signal.Signals]
) -> CollectedMenu:
    start = time.monotonic()
    samplers: dict[str, Sampler] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, collection in collections.items():
            samplers[name] = await stack.enter_async_context(collection.open_sampler())
        group = _SamplerGroup(list(samplers.values()))

        def report_all() -> None:
            for name, collection in collections.items():
                collection.report(samplers[name])

        async def draw(name: str) -> None:
            try:
                await collections[name].draw(samplers[name], rounds)
            except Exception as exc:  # the pool can't be written: nothing more is worth paying for
                group.stop("endpoint", str(exc))
                raise

        async with handle_signals(signals, group, on_progress=report_all):
            # with return_exceptions, a cancelled gather waits until every mode has stored what it has
            outcomes = await asyncio.gather(*map(draw, collections), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
    results = {name: collection.build_result(samplers[name]) for name, collection in collections.items()}
    return CollectedMenu(modes=results, seconds=time.monotonic() - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeCheck:
    """What one question to a mode gave."""

    name: str
    model: str
    host: str  # of its upstream, with the port
    error: str | None = None  # None: it answered
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of them; None: the endpoint doesn't say
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None  # of them; None: the endpoint doesn't say
    logprobs: bool | None = None  # whether log-probabilities were given; None: there was no reply
    seconds: float = 0.0
    cost: float = 0.0  # money

    @property
    def ok(self) -> bool:
        """Whether the mode can be used."""
        return self.error is None


def check_modes(
    plans: Sequence[ModePlan], problem: Problem, *, seconds: float = 60.0
) -> tuple[ModeCheck, ...]:
    """Asks every mode one question, all at the same time, as `collect_menu` would ask it."""

    async def check_all() -> tuple[ModeCheck, ...]:
        return tuple(await asyncio.gather(*(_check_mode(plan, problem, seconds) for plan in plans)))

    return run_coroutine(check_all())


async def _check_mode(plan: ModePlan, problem: Problem, seconds: float) -> ModeCheck:
    endpoint, start = _bound_endpoint(plan.mode.endpoint, seconds), time.monotonic()
    blank = ModeCheck(name=plan.name, model=plan.mode.model, host=urlsplit(plan.mode.endpoint.url).netloc)
    async with Client(endpoint) as client:
        try:
            reply = await client.call(
                plan.asking.body(problem), optional=LOGPROBS | LIMIT_NAME, deadline=seconds
            )
        except EndpointError as exc:
            cost = sum(_compute_call_cost(plan.mode, call) for call in exc.calls)
            return replace(blank, error=str(exc), seconds=time.monotonic() - start, cost=cost)
    response, calls = reply.responses[0], [call for call in reply.calls if call.paid == "yes"]
    return replace(
        blank,
        error=None if response.text.strip() else _explain_no_text(response.finished, response.tokens),
        text=response.text.strip(),
        prompt_tokens=_sum_known([call.prompt_tokens for call in calls]),
        cached_tokens=_sum_known([call.cached_tokens for call in calls]),
        completion_tokens=_sum_known([call.completion_tokens for call in calls]),
        reasoning_tokens=_sum_known([_read_reasoning(call) for call in calls]),
        logprobs=response.logprob is not None,
        seconds=time.monotonic() - start,
        cost=sum(_compute_call_cost(plan.mode, call) for call in calls),
    )


def _bound_endpoint(endpoint: Endpoint, seconds: float) -> Endpoint:
    """An endpoint that is waited for no longer than so many seconds."""
    timeouts, retries = endpoint.timeouts, endpoint.retries
    return replace(
        endpoint,
        timeouts=replace(
            timeouts,
            connect=min(timeouts.connect, seconds),
            first_byte=min(timeouts.first_byte, seconds),
            total=min(timeouts.total, seconds),
        ),
        retries=replace(
            retries,
            attempts=min(retries.attempts, _CHECK_ATTEMPTS),
            deadline=min(retries.deadline, seconds),
        ),
    )


def _explain_no_text(finished: bool | None, tokens: int | None) -> str:
    if finished is False:
        return f"no text after {tokens or 0:,} tokens, the limit; raise max_tokens in its options"
    return "no text in its response; check its model and options"


def _read_reasoning(call: Call) -> int | None:
    tokens = call.usage_details.get(_REASONING)
    return None if tokens is None else int(tokens)


def _sum_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _compute_call_cost(mode: ModeEndpoint, call: Call) -> float:
    """Money for one call, with cached prompt tokens at their own price."""
    if call.paid == "no":
        return 0.0
    prompt, cached = call.prompt_tokens or 0, min(call.cached_tokens or 0, call.prompt_tokens or 0)
    full = mode.prices.cost(prompt - cached, call.completion_tokens or 0)
    cached_price = mode.prices.input if mode.cached_price is None else mode.cached_price
    return full + TokenPrices(input=cached_price).cost(cached, 0)
