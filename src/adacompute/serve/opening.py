"""The gateway's parts, opened from its settings and closed in turn. Knows nothing of requests."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from adacompute.answers import Task, warm_judge
from adacompute.answers.apart import late, warm_apart
from adacompute.config import Config, ServeConfig, read_key, read_keys
from adacompute.endpoint import Client, Endpoint, Rest
from adacompute.endpoint.configured import configured
from adacompute.errors import ConfigError, EndpointError
from adacompute.serve.books import Books
from adacompute.serve.fleet import USUAL, Fleet, Pulse, joined
from adacompute.serve.gateway import Gateway
from adacompute.serve.keys import Keys
from adacompute.serve.ledger import Caps, Ledger
from adacompute.serve.listing import Listing
from adacompute.serve.pace import paced_here
from adacompute.serve.paces import Paces
from adacompute.serve.recorder import Recorder
from adacompute.serve.sampling import Means
from adacompute.serve.seen import Seen, Standing
from adacompute.serve.shelf import Shelf
from adacompute.serve.spend import Rates
from adacompute.serve.telling import Telling
from adacompute.serve.votable import Votable

__all__ = ["opened"]

_ATTEMPTS, _LONGEST = 3, 4.0  # of one call; seconds between two, and until a dead upstream is tried again
_ASK_AGAIN, _ASK_AT_LEAST = 1.0, 10.0  # seconds until the upstream's models are asked for once more
_NAMING = 0.3  # seconds that the start waits for the upstream to say what its model is called
_REMEMBER = 2.0  # seconds between two notes of the prices: what a kill -9 may lose of them


@asynccontextmanager
async def opened(config: Config, *, pulse: Pulse = USUAL) -> AsyncIterator[Gateway]:
    """The gateway of these settings, ready; AdacomputeError with the remedy where they can't be used.

    `pulse` is that of a fleet, where it is in one.
    """
    settings = config.serve
    endpoint = _hasty(
        configured(replace(config.endpoint, concurrency=settings.concurrency), remedy="give --upstream URL")
    )
    task = Task(extract=config.answers.extract, percent=config.answers.percent)
    keys = Keys.of(read_keys(Path(settings.keys_file))) if settings.keys_file else Keys([])
    caps, rates = _caps(settings, keys), _rates(config)
    _check_prices(caps, rates)
    votable, seen, telling = Votable(settings, task), Seen(settings), Telling()
    shelf = await asyncio.to_thread(Shelf.open, settings)
    _check_explore(settings, shelf.of(shelf.default).policy.longest)
    async with AsyncExitStack() as stack:
        fleet = await _joined(settings, caps, pulse)
        ledger: Books = await Ledger.open(Path(settings.state), caps) if fleet is None else fleet.ledger
        stack.push_async_callback(ledger.close)
        recorder = await Recorder.open(settings, task)
        stack.push_async_callback(recorder.close)
        client = await stack.enter_async_context(Client(endpoint, heard=lambda call: gateway.called(call)))
        means = Means(client=client, ledger=ledger, rates=rates, task=task, votable=votable)
        gateway = Gateway(
            config=config,
            means=means,
            listing=Listing(client.models),
            shelf=shelf,
            paces=Paces([(name, settings.budget) for name in shelf.names]),
            keys=keys,
            seen=seen,
            recorder=recorder,
            new_pace=paced_here if fleet is None else fleet.followed.of,
            telling=telling,
            model=config.endpoint.model,
        )
        _recall(gateway)
        if fleet is not None:
            await _follow(gateway, fleet)
        seen.balances(lambda: _standings(gateway))
        seen.recording(lambda: (recorder.stored, recorder.dropped))
        seen.reading(late)
        remembering = asyncio.create_task(_remembering(gateway))
        naming = asyncio.create_task(_naming(gateway))
        # what the first requests would wait for, meanwhile; a thread that nobody waits for when it is stopped
        threading.Thread(target=_warm, args=(task,), name="adacompute-warming", daemon=True).start()
        gateway.ready = True
        try:
            await asyncio.wait([naming], timeout=_NAMING)
            yield gateway
        finally:
            gateway.ready = False
            remembering.cancel()
            naming.cancel()
            gateway.tell()
            gateway.listing.close()
            _remember(gateway)


async def _joined(settings: ServeConfig, caps: Caps, pulse: Pulse) -> Fleet | None:
    if not settings.redis:
        return None
    file = Path(settings.redis_key_file) if settings.redis_key_file else None
    key = read_key(env=settings.redis_key_env, file=file)
    return await joined(settings.redis, settings.fleet, caps, key=key, pulse=pulse)


async def _follow(gateway: Gateway, fleet: Fleet) -> None:
    """Serves at the fleet's price from the first request on."""
    gateway.seen.fleet(fleet.standing)
    fleet.followed.shown = gateway.seen.paced
    gateway.resume({})
    await fleet.post.through()
    gateway.resume({})


def _check_explore(settings: ServeConfig, longest: int) -> None:
    """ConfigError where exploring alone would spend more than the budget leaves."""
    most = (settings.budget - 1) / max(1, longest - 1)
    if settings.mode == "adaptive" and settings.explore > most:
        raise ConfigError(
            f"explore {settings.explore:g} of requests to {longest} samples each is more than a budget of "
            f"{settings.budget:g} on average allows; give at most {most:.3g}, or a larger budget"
        )


def _hasty(endpoint: Endpoint) -> Endpoint:
    """For people who wait: an upstream that fails is given up after seconds, not after minutes."""
    retries = endpoint.retries
    return replace(
        endpoint,
        retries=replace(retries, attempts=min(retries.attempts, _ATTEMPTS), longest=_LONGEST),
        rest=Rest(seconds=1.0, longest=_LONGEST, patience=1.5),
    )


async def _naming(gateway: Gateway) -> None:
    """Learns what the upstream's models are called: at once, or once it is up, which may take a while."""
    wait = _ASK_AGAIN
    while True:
        with contextlib.suppress(EndpointError):
            await gateway.models(anew=True)
            return
        await asyncio.sleep(wait)
        wait = min(2 * wait, _ASK_AT_LEAST)


def _warm(task: Task) -> None:
    warm_judge()
    warm_apart(task)


def _caps(settings: ServeConfig, keys: Keys) -> Caps:
    return Caps(
        unit=settings.unit,
        total=settings.cap or None,
        each=settings.key_cap or None,
        own={key.name: key.cap for key in keys if key.cap is not None},
        window=settings.window,
    )


def _rates(config: Config) -> Rates:
    cached = config.serve.cached_price
    return Rates(
        input=config.endpoint.input_price,
        cached=None if cached < 0 else cached,
        output=config.endpoint.output_price,
    )


def _check_prices(caps: Caps, rates: Rates) -> None:
    if caps.tokens and caps.unit == "money" and not (rates.input > 0 or rates.output > 0):
        raise ConfigError(
            "caps in money need prices, and input_price and output_price are 0: nothing would ever count; "
            "give them, or unit samples or tokens"
        )
    if rates.cached is not None and rates.cached > rates.input:
        raise ConfigError(
            f"cached_price {rates.cached:g} is above input_price {rates.input:g}; lower it, or leave it out"
        )


def _standings(gateway: Gateway) -> Sequence[Standing]:
    """What was spent, all together first, then by key."""
    ledger, unit = gateway.means.ledger, gateway.settings.unit
    balance = ledger.account()
    return [
        Standing(
            name=name,
            spent=one.spent.of(unit),
            maybe=one.maybe.of(unit),
            reserved=one.reserved.of(unit),
            cap=ledger.caps.of(name),
        )
        for name, one in {"": balance, **balance.keys}.items()
    ]


async def _remembering(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(_REMEMBER)
        _remember(gateway)


def _remember(gateway: Gateway) -> None:
    """Notes the prices and the scales of weights, for a gateway that starts here later."""
    if not gateway.settings.redis:  # else they are the fleet's, and kept there
        gateway.means.ledger.remember("prices", gateway.paces.state())
    gateway.means.ledger.remember("scales", gateway.shelf.state())


def _recall(gateway: Gateway) -> None:
    ledger = gateway.means.ledger
    if (prices := ledger.recall("prices")) is not None:
        gateway.resume(prices)
    if (scales := ledger.recall("scales")) is not None:
        gateway.shelf.restore(scales)
    gateway.expect()
