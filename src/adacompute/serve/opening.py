"""The gateway's parts, opened from its settings and closed in turn. Knows nothing of requests."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from adacompute.answers import Task, warm_judge
from adacompute.answers.apart import warm_apart
from adacompute.config import Config, ServeConfig, read_keys
from adacompute.endpoint import Client
from adacompute.endpoint.configured import configured
from adacompute.errors import EndpointError
from adacompute.serve.gateway import Gateway
from adacompute.serve.keys import Keys
from adacompute.serve.ledger import Caps, Ledger
from adacompute.serve.paces import Paces
from adacompute.serve.recorder import Recorder
from adacompute.serve.sampling import Means
from adacompute.serve.seen import Seen, Standing
from adacompute.serve.shelf import Shelf
from adacompute.serve.spend import Rates
from adacompute.serve.votable import Votable

__all__ = ["opened"]

_REMEMBER = 2.0  # seconds between two notes of the prices: what a kill -9 may lose of them


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[Gateway]:
    """The gateway of these settings, ready; AdacomputeError with the remedy where they can't be used."""
    settings = config.serve
    endpoint = configured(
        replace(config.endpoint, concurrency=settings.concurrency), remedy="give --upstream URL"
    )
    task = Task(extract=config.answers.extract, percent=config.answers.percent)
    keys = Keys.of(read_keys(Path(settings.keys_file))) if settings.keys_file else Keys([])
    votable, seen = Votable(settings, task), Seen(settings)
    shelf = await asyncio.to_thread(Shelf.open, settings)
    async with AsyncExitStack() as stack:
        ledger = await Ledger.open(Path(settings.state), _caps(settings, keys))
        stack.push_async_callback(ledger.close)
        recorder = await Recorder.open(settings, task)
        stack.push_async_callback(recorder.close)
        client = await stack.enter_async_context(Client(endpoint, heard=seen.called))
        means = Means(client=client, ledger=ledger, rates=_rates(config), task=task, votable=votable)
        gateway = Gateway(
            config=config,
            means=means,
            shelf=shelf,
            paces=Paces((shelf.default, settings.budget)),
            keys=keys,
            seen=seen,
            recorder=recorder,
            model=config.endpoint.model,
        )
        _recall(gateway)
        seen.balances(lambda: _standings(gateway))
        seen.recording(lambda: (recorder.stored, recorder.dropped))
        remembering = asyncio.create_task(_remembering(gateway))
        naming = asyncio.create_task(_naming(gateway))
        # what the first requests would wait for, meanwhile; a thread that nobody waits for when it is stopped
        threading.Thread(target=_warm, args=(task,), name="adacompute-warming", daemon=True).start()
        gateway.ready = True
        try:
            yield gateway
        finally:
            gateway.ready = False
            remembering.cancel()
            naming.cancel()
            _remember(gateway)


async def _naming(gateway: Gateway) -> None:
    """Learns what the upstream's only model is called, if it says so."""
    with contextlib.suppress(EndpointError):  # it may not be up yet, and needn't be
        await gateway.models()


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
    gateway.means.ledger.remember("prices", gateway.paces.state())
    gateway.means.ledger.remember("scales", gateway.shelf.state())


def _recall(gateway: Gateway) -> None:
    ledger = gateway.means.ledger
    if (prices := ledger.recall("prices")) is not None:
        gateway.resume(prices)
    if (scales := ledger.recall("scales")) is not None:
        gateway.shelf.restore(scales)
    gateway.expect()
