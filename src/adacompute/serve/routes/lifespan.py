"""Opens the parts of a gateway as its settings say, and closes them in reverse order."""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adacompute.answers import Task
from adacompute.answers.extract import count_timeouts, start_sandbox
from adacompute.client import BreakerSettings, Client, Endpoint, ModeEndpoint, ModelList
from adacompute.client.modes import ModeConfigs, build_mode_endpoint, read_mode_list
from adacompute.client.rate_limit import LoopShare
from adacompute.client.settings import build_endpoint
from adacompute.client.verifier import Verifier, build_verifier
from adacompute.config import (
    MODES_KEY,
    Config,
    KeyConfig,
    ServeConfig,
    VerifierConfig,
    average_budget,
    read_key,
    read_keys,
)
from adacompute.errors import ConfigError, EndpointError, needs_extra
from adacompute.policies.base import Policy
from adacompute.records import GUESSED_PROMPT, BudgetUnit, TokenPrices
from adacompute.serve.pricing.fleet import Fleet, join_fleet
from adacompute.serve.pricing.pacer import Pacers, check_budget
from adacompute.serve.pricing.policy_registry import (
    EXPLORED_SAMPLES,
    PolicyRegistry,
    make_cascades,
    settle_quality,
)
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.spending.ledger import Caps, LedgerProtocol, Rates, SpendStatus, parse_cap
from adacompute.serve.spending.local_ledger import Ledger
from adacompute.serve.spending.redis_client import DEFAULT_TIMING, FleetTiming
from adacompute.serve.voting.request_votes import GatewayResources, VoteEligibility, VoteSource
from adacompute.serve.voting.scorer import Scorer
from adacompute.serve.watching.logs import Reporter
from adacompute.serve.watching.observability import Observability
from adacompute.serve.watching.recorder import Recorder, RecordQueue

if TYPE_CHECKING:
    from adacompute.serve.watching.telemetry import Telemetry

_log = logging.getLogger("adacompute.serve")
# (maximum number of attempts per call; maximum number of seconds before the next attempt, and before a
# failing upstream is called again)
_MAX_ATTEMPTS, _MAX_BACKOFF = 3, 4.0
# first and longest pause between attempts to list the upstream's models, in seconds
_MODELS_RETRY, _MODELS_MAX_RETRY = 1.0, 10.0
_MODELS_WAIT = 2.0  # seconds that the gateway's start waits for the list of the upstream's models
_FLUSH_SECONDS = 2.0  # at shutdown, seconds to wait for the telemetry collector
_TOKEN_BYTES = 4  # mean bytes per token of a prompt
# (share of requests that get the maximum number of samples as an experiment, maximum share of the budget that
# they may cost); if they would cost more, the first share is reduced
_EXPLORE, _EXPLORE_COST = 0.02, 0.1
# seconds between saves of the prices; after kill -9, only the changes since the last save are lost
_SAVE_SECONDS = 2.0


@asynccontextmanager
async def open_gateway(
    config: Config,
    *,
    timing: FleetTiming = DEFAULT_TIMING,
    endpoint: Endpoint | None = None,
    policy: Policy | None = None,
    in_memory: bool = False,
    breaker: BreakerSettings | None = None,
    limit: Callable[[Endpoint], Endpoint] | None = None,
    recorder: RecordQueue | None = None,
    keys: Sequence[KeyConfig] | None = None,
) -> AsyncIterator[Gateway]:
    """Opens the gateway with these settings; raises AdacomputeError with the remedy if they are invalid.

    `endpoint`, `policy`, `recorder` (closed by the caller) and `keys` (of clients) replace those in the
    settings. If gateways share a budget through Redis, `timing` says how often they call it, and how long
    they wait. With `in_memory`, spending isn't kept in the file `state`. `breaker` says for how long a
    failing mode isn't called; without it, failing modes are given up after seconds, not minutes. A given
    `endpoint` keeps its own retries. `limit` is called with each endpoint, and returns it with other rate
    limits.
    """
    config, listed = (config, None) if endpoint is not None else read_mode_list(config)
    config, quality = settle_quality(config)
    settings, budget = config.serve, average_budget(config)
    modes = _list_modes(config, listed, endpoint, breaker)
    if limit is not None:
        modes = [replace(mode, endpoint=limit(mode.endpoint)) for mode in modes]
    task = Task(extract=config.answers.extract, percent=config.answers.percent)
    if keys is None:
        keys = read_keys(Path(settings.keys_file)) if settings.keys_file else ()
    caps = _build_caps(settings, keys, config.endpoint.currency, in_memory=in_memory)
    _check_prices(caps, modes)
    verifier = _build_verifier(config.verifier, modes) if config.verifier.url else None
    is_unfitted = len(modes) > 1 and policy is None and not settings.policy
    if is_unfitted:
        policy = make_cascades({mode.name: _guess_cost(mode, budget.unit) for mode in modes})
    names = [mode.name for mode in modes if mode.name]
    registry = await asyncio.to_thread(PolicyRegistry.open, settings, policy, modes=names)
    _sort_by_policy(modes, registry)
    names = [mode.name for mode in modes if mode.name]
    explores_freely = is_unfitted and settings.explore < 0
    explore = max(0.0, settings.explore)
    if explores_freely:
        explore = choose_explore(budget.amount, [_guess_cost(mode, budget.unit) for mode in modes])
    eligibility = VoteEligibility(settings, task)
    observability = Observability(replace(settings, explore=explore), config.endpoint, modes=names)
    observability.cap_unit = caps.unit
    check_budget(budget, settings, longest=registry.get(registry.default).policy.longest, modes=names)
    async with AsyncExitStack() as stack:
        telemetry = _open_telemetry(settings)
        # telemetry is opened first, so that it is closed last, after paid samples have been stored
        if telemetry is not None:
            stack.push_async_callback(telemetry.close, min(settings.grace, _FLUSH_SECONDS))
        fleet = await _join_fleet(settings, caps, timing)
        file = None if in_memory else Path(settings.state)
        ledger: LedgerProtocol = await Ledger.open(file, caps) if fleet is None else fleet.ledger
        stack.push_async_callback(ledger.close)
        if recorder is None and settings.record:
            recorder = await Recorder.open(Path(settings.record), task)
            stack.push_async_callback(recorder.close)
        reporter = Reporter(observability, recorder)
        sources, share = dict[str, VoteSource](), LoopShare()
        for mode in modes:
            client = Client(mode.endpoint, on_call=reporter.on_call, share=share)
            sources[mode.name] = VoteSource(client=await stack.enter_async_context(client), mode=mode)
        scorer = None
        if verifier is not None:
            opened = await stack.enter_async_context(verifier)
            verifier_rates = _build_verifier_rates(config, modes)
            scorer = Scorer(opened, verifier_rates, beta=config.verifier.beta)
        resources = GatewayResources(
            sources=sources,
            default="" if listed is None else _find_default(listed, names),
            ledger=ledger,
            task=task,
            eligibility=eligibility,
            scorer=scorer,
            max_rounds=settings.max_rounds,
            max_samples=settings.max_samples,
        )
        gateway = Gateway(
            config=config,
            quality_of_settings=quality,
            resources=resources,
            model_list=ModelList(_list_as_models(names) if len(modes) > 1 else resources.client.list_models),
            policy_registry=registry,
            pacers=Pacers(
                [(name, budget.amount) for name in registry.names],
                unit=budget.unit,
                average=settings.average,
                currency=config.endpoint.currency,
            ),
            keys=keys,
            observability=observability,
            reporter=reporter,
            telemetry=telemetry,
            make_fleet_pacer=None if fleet is None else fleet.pacers.get,
            model=config.endpoint.model,
            explore=explore,
        )
        if telemetry is not None:
            telemetry.models.list_known = lambda: gateway.model_list.known
        _load_state(gateway)
        update: Callable[[], None] | None = None
        if is_unfitted:
            update = functools.partial(_update_cascades, gateway, explores_freely=explores_freely)
            update()
        if fleet is not None:
            await _follow_fleet(gateway, fleet)
        observability.read_spending = lambda: _read_spending(gateway)
        observability.read_recorder = lambda: (recorder.stored, recorder.dropped) if recorder else (0, 0)
        observability.watch_late_answers(count_timeouts)
        observability.describe_shortfall = gateway.find_shortfall
        observability.describe_quality = lambda: str(gateway.quality or "")
        observability.list_resting = lambda: _list_resting(resources)
        if observability.modes is not None:
            observability.modes.find_cost = lambda mode, unit: gateway.costs[mode].estimate(unit)
            observability.modes.list_resting = observability.list_resting
        saving = asyncio.create_task(_save_regularly(gateway, update))
        listing = asyncio.create_task(gateway.list_models())
        discovery = asyncio.create_task(_discover_models(gateway, listing))
        # An Asker without a state file starts the sandbox if needed; a main process of workers needs none.
        if settings.workers == 1 and not in_memory:
            # Starts the sandbox process, which reads answers from long responses, before it is needed. The
            # process for math-verify only starts when a formula needs it, because it takes much memory.
            threading.Thread(
                target=start_sandbox, args=(task,), name="adacompute-warming", daemon=True
            ).start()
        gateway.ready = True
        try:
            await asyncio.wait([listing], timeout=_MODELS_WAIT)
            yield gateway
        finally:
            gateway.ready = False
            saving.cancel()
            discovery.cancel()
            gateway.learn()
            reporter.report()
            gateway.model_list.close()
            gateway.guard(_save_state, gateway)


def _list_modes(
    config: Config, listed: ModeConfigs | None, endpoint: Endpoint | None, breaker: BreakerSettings | None
) -> list[ModeEndpoint]:
    """Lists the sources of samples, cheapest first: the listed modes, or the endpoint as the only mode."""
    most = config.serve.concurrency
    if listed is not None:
        modes = map(build_mode_endpoint, listed.by_cost)
        return [replace(mode, endpoint=_adapt_endpoint(mode.endpoint, breaker, most)) for mode in modes]
    if endpoint is None:
        upstream = replace(config.endpoint, concurrency=most)
        endpoint = _shorten_retries(
            build_endpoint(upstream, remedy=f"give --upstream URL, or --{MODES_KEY} FILE")
        )
    cached = None if config.serve.cached_price < 0 else config.serve.cached_price
    prices = config.endpoint.prices
    return [ModeEndpoint(name="", endpoint=endpoint, model="", prices=prices, cached_price=cached)]


def _sort_by_policy(modes: list[ModeEndpoint], registry: PolicyRegistry) -> None:
    """Sorts modes in place by the costs with which the policy was fitted, if the policy knows all modes."""
    names = registry.get(registry.default).names
    if all(mode.name in names for mode in modes):
        modes.sort(key=lambda mode: names.index(mode.name))


def _guess_cost(mode: ModeEndpoint, unit: BudgetUnit) -> float:
    """Guesses a mode's cost per sample, in a budget's unit, before there are any data."""
    prompt = GUESSED_PROMPT + mode.added_tokens / _TOKEN_BYTES
    return mode.prices.guess_cost(max_tokens=mode.max_tokens, prompt_tokens=prompt, unit=unit)


def choose_explore(budget: float, costs: Sequence[float]) -> float:
    """Chooses the share of requests that get the maximum number of samples, to learn from.

    `costs` are the modes' costs per sample. These requests together cost at most a tenth of the budget.

    >>> choose_explore(0.5, [0.1, 1.0]) < choose_explore(100.0, [0.1, 1.0]) == 0.02
    True
    """
    whole = EXPLORED_SAMPLES * sum(costs)
    return min(_EXPLORE, _EXPLORE_COST * budget / whole) if whole else _EXPLORE


def _update_cascades(gateway: Gateway, *, explores_freely: bool) -> None:
    """Adapts the built-in policy for several modes to their costs per sample, if all are known.

    With `explores_freely` (the setting `explore` isn't given), also updates the gateway's `explore`.
    """
    unit = gateway.budget.unit
    known = {name: gateway.costs[name].find(unit) for name in gateway.resources.modes}
    costs = {name: cost for name, cost in known.items() if cost is not None}
    if len(costs) < len(known):
        return
    if explores_freely:
        gateway.explore = choose_explore(gateway.budget.amount, list(costs.values()))
    if gateway.policy_registry.update_cascades(costs):
        gateway.announce_policies()


def _find_default(listed: ModeConfigs, modes: Sequence[str]) -> str:
    """Finds the mode for requests that can't be voted on: the one marked as default, else the last."""
    return next((mode.name for mode in listed.modes if mode.is_default), modes[-1])


def _list_as_models(names: Sequence[str]) -> Callable[[], Coroutine[Any, Any, list[dict[str, Any]]]]:
    """Returns a function that lists the modes as models."""

    async def list_models() -> list[dict[str, Any]]:
        return [{"id": name, "object": "model", "created": 0, "owned_by": MODES_KEY} for name in names]

    return list_models


def _list_resting(resources: GatewayResources) -> tuple[str, ...]:
    """Lists the modes that failed and aren't called for a while.

    With a single endpoint, lists its failing models; "" means that the whole endpoint isn't called.
    """
    if not resources.modes:
        return resources.client.resting
    return tuple(name for name, source in resources.sources.items() if source.client.resting)


def _build_verifier(settings: VerifierConfig, modes: Sequence[ModeEndpoint]) -> Verifier | None:
    """Builds the verifier. If a mode's endpoint has the verifier's address, that mode's headers are used."""
    address = settings.url.rstrip("/")
    mode = next((mode for mode in modes if mode.endpoint.url == address), modes[-1])
    return build_verifier(settings, mode.endpoint)


def _build_verifier_rates(config: Config, modes: Sequence[ModeEndpoint]) -> Rates:
    """Returns the verifier's prices; if none are set, those of a mode's endpoint at the same address."""
    settings = config.verifier
    prices = TokenPrices(input=settings.input_price, output=settings.output_price)
    address = settings.url.rstrip("/")
    there = [mode for mode in modes if mode.endpoint.url.rstrip("/") == address]
    if there and not (prices.input or prices.output):
        there.sort(key=lambda mode: mode.model != settings.model)  # prefers modes with the verifier's model
        prices = there[0].prices
    return Rates(input=prices.input, output=prices.output, gives_samples=False)


def _open_telemetry(settings: ServeConfig) -> "Telemetry | None":
    if not settings.otel:
        return None
    with needs_extra("otel"):
        # imported here, because it needs an optional dependency
        from adacompute.serve.watching.telemetry import Telemetry
    return Telemetry(settings)


async def _join_fleet(settings: ServeConfig, caps: Caps, timing: FleetTiming) -> Fleet | None:
    if not settings.redis:
        return None
    file = Path(settings.redis_key_file) if settings.redis_key_file else None
    key = read_key(env=settings.redis_key_env, file=file)
    return await join_fleet(
        settings.redis, settings.fleet, caps, key=key, timing=timing, average=settings.average
    )


async def _follow_fleet(gateway: Gateway, fleet: Fleet) -> None:
    """Makes the gateway use the fleet's budget and price from the first request on."""

    def set_budget(text: str) -> None:
        try:
            gateway.set_budget(text)
        except ConfigError as exc:
            _log.warning("the fleet's budget is not used here: %s; it stays %s", exc, gateway.budget)

    fleet.on_budget, gateway.share_budget = set_budget, fleet.share_budget
    set_budget(fleet.budget)
    gateway.observability.read_fleet = fleet.status
    # also reports prices set by other gateways of the fleet; pages show whichever price was reported last
    fleet.pacers.on_price = gateway.reporter.on_price
    gateway.restore_prices({})
    await fleet.client.flush()
    gateway.restore_prices({})


def _adapt_endpoint(endpoint: Endpoint, breaker: BreakerSettings | None, concurrency: int) -> Endpoint:
    """Limits an endpoint's concurrent calls; sets its breaker. Without `breaker`, shortens its retries."""
    limits = replace(endpoint.limits, concurrency=min(endpoint.limits.concurrency, concurrency))
    endpoint = replace(endpoint, limits=limits)
    return _shorten_retries(endpoint) if breaker is None else replace(endpoint, breaker=breaker)


def _shorten_retries(endpoint: Endpoint) -> Endpoint:
    """Shortens retries for interactive use: gives up on a failing upstream after seconds, not minutes."""
    retries = endpoint.retries
    return replace(
        endpoint,
        retries=replace(retries, attempts=min(retries.attempts, _MAX_ATTEMPTS), longest=_MAX_BACKOFF),
        breaker=BreakerSettings(seconds=1.0, longest=_MAX_BACKOFF, patience=1.5),
    )


async def _discover_models(gateway: Gateway, listing: Awaitable[Any]) -> None:
    """Learns the names of the upstream's models; tries again later if the upstream isn't up yet."""
    wait = _MODELS_RETRY
    while True:
        with contextlib.suppress(EndpointError):
            await listing
            if note := gateway.find_foreign_model():
                _log.warning("%s", note)
            return
        await asyncio.sleep(wait)
        listing = gateway.list_models(refresh=True)
        wait = min(2 * wait, _MODELS_MAX_RETRY)


def _build_caps(settings: ServeConfig, keys: Sequence[KeyConfig], currency: str, *, in_memory: bool) -> Caps:
    given = {"cap": settings.cap, "key_cap": settings.key_cap}
    given |= {f"cap of key {key.name!r}": key.cap for key in keys if key.cap is not None}
    caps = {place: parse_cap(place, value, settings.unit, currency) for place, value in given.items()}
    (total, per_key, *_), units = caps.values(), {cap.unit for cap in caps.values() if cap is not None}
    if len(units) > 1:
        listed = ", ".join(f"{place} in {cap.unit}" for place, cap in caps.items() if cap is not None)
        raise ConfigError(f"caps are in several units: {listed}; give all in one")
    # whether error messages may name the state file: if there are keys, only operators should know its path
    is_shown = not in_memory and not keys and not settings.redis
    return Caps(
        unit=units.pop() if units else settings.unit,
        total=None if total is None else total.amount,
        per_key=None if per_key is None else per_key.amount,
        by_key={
            key.name: cap.amount for key in keys if (cap := caps.get(f"cap of key {key.name!r}")) is not None
        },
        window=settings.window,
        place=settings.state if is_shown else "",
        currency=currency,
    )


_MAX_PRICE = 1e12  # maximum price per million tokens; higher prices would make costs inexact


def _check_prices(caps: Caps, modes: Sequence[ModeEndpoint]) -> None:
    is_priced = any(mode.prices.input > 0 or mode.prices.output > 0 for mode in modes)
    if caps.counts_tokens and caps.unit == "money" and not is_priced:
        raise ConfigError(
            "caps in money need prices, and input_price and output_price are 0: nothing would ever count; "
            "give them, or unit samples or tokens"
        )
    for mode in modes:
        if (price := max(mode.prices.input, mode.prices.output)) > _MAX_PRICE:
            raise ConfigError(
                f"a price of {price:g} for a million tokens can't be counted; give at most {_MAX_PRICE:g}"
            )
        if mode.cached_price is not None and mode.cached_price > mode.prices.input:
            raise ConfigError(
                f"cached_price {mode.cached_price:g} is above input_price {mode.prices.input:g}; "
                "lower it, or leave it out"
            )


def _read_spending(gateway: Gateway) -> Sequence[SpendStatus]:
    """Lists spending in total, then by key."""
    ledger, unit = gateway.resources.ledger, gateway.resources.ledger.caps.unit
    balance = ledger.account()
    return [
        SpendStatus(
            name=name,
            spent=part.spent.amount_in(unit),
            maybe=part.maybe.amount_in(unit),
            reserved=part.reserved.amount_in(unit),
            cap=ledger.caps.for_key(name),
            tokens=part.spent.amount_in("tokens"),
            money=part.spent.amount_in("money"),
        )
        for name, part in {"": balance, **balance.keys}.items()
    ]


async def _save_regularly(gateway: Gateway, update: Callable[[], None] | None) -> None:
    while True:
        await asyncio.sleep(_SAVE_SECONDS)
        gateway.guard(_save_state, gateway)
        if update is not None:
            gateway.guard(update)


def _save_state(gateway: Gateway) -> None:
    """Saves prices, averages, costs per sample, and how votes are weighted, for the next start."""
    currency = gateway.config.endpoint.currency
    if not gateway.settings.redis:  # with Redis, these values are the fleet's, and Redis keeps them
        gateway.resources.ledger.remember("prices", gateway.pacers.state())
        gateway.resources.ledger.remember("averages", gateway.observability.state())
        by_mode = {name: costs.state() for name, costs in gateway.costs.items()}
        gateway.resources.ledger.remember("costs", {"currency": currency, "modes": by_mode})
    gateway.resources.ledger.remember("scales", gateway.policy_registry.state())


def _load_state(gateway: Gateway) -> None:
    ledger, is_alone = gateway.resources.ledger, not gateway.settings.redis
    if is_alone and (costs := ledger.recall("costs")) is not None:
        _restore_costs(gateway, costs)
    if (prices := ledger.recall("prices")) is not None:
        gateway.restore_prices(prices)
    if is_alone and (averages := ledger.recall("averages")) is not None:
        gateway.observability.restore(averages)
    if (scales := ledger.recall("scales")) is not None:
        gateway.policy_registry.restore(scales)
    gateway.announce_policies()


def _restore_costs(gateway: Gateway, stored: Mapping[str, Any]) -> None:
    """Restores the stored mean cost per sample: of all modes together, and of each mode that still exists."""
    modes = stored.get("modes")
    if stored.get("currency") != gateway.config.endpoint.currency or not isinstance(modes, Mapping):
        return
    for name, state in modes.items():
        if name in ("", *gateway.resources.modes) and isinstance(state, Mapping):
            gateway.costs[name].restore(state)
