"""Several processes behind one port, `adacompute serve --workers N`: workers serve for one gateway.

The process that is started opens the gateway as usual: the ledger in its file (or its place in a fleet), the
pacers, metrics, the dashboard, the recorder and a menu's cascades. It serves no request itself. It
starts N workers, accepts connections and hands each to the worker that has the fewest. A worker parses
requests, asks the upstream and votes. What it needs of the gateway it asks for over a pair of sockets:
reservations before anything is sent, settled when it is paid for; the price of each lane; pages that show the
whole. What has ended it reports, and the gateway counts it as it would count its own.

So there is one ledger and one price, caps are as exact as those of one process, and a gateway with workers is
one gateway to its fleet and to whoever reads its metrics.

In this order: `MessageChannel`, which both ends use; the worker's end, `WorkerLink`, with what stands in for
observability and the recorder (`ledger` and `fleet` have the ledger's and the pacers'); the gateway's end,
`WorkerHub`. `server` starts, watches and stops the processes, and hands them connections.

A worker that dies is started again. What it had reserved counts as maybe spent, as after a restart. One that
doesn't answer heartbeats is killed, which comes to the same. If the gateway itself dies, its workers see
their sockets close and end at once.
"""

import asyncio
import logging
import os
import pickle
import socket
import struct
import subprocess
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, cast

import orjson

from adacompute.client import Endpoint, RateLimits
from adacompute.config import Config, KeyConfig, MenuConfig
from adacompute.errors import CapReached, LedgerUnavailable
from adacompute.records import BudgetUnit, Call, Paid, Secret
from adacompute.serve.chat import Gateway
from adacompute.serve.fleet.membership import LanePrices, WorkerPacers, name_lane, parse_lane, parse_lane_unit
from adacompute.serve.ledger import (
    NO_PROMPT_COST,
    NO_SPEND,
    Amounts,
    LedgerProtocol,
    Reservation,
    Spend,
    WorkerLedger,
    to_amounts,
)
from adacompute.serve.observability import Observability
from adacompute.serve.pacer import EARLY_REQUESTS, PacerProtocol, round_budget
from adacompute.serve.policy_registry import SharedPolicies
from adacompute.serve.recorder import QueuedRequest, Recorder, WorkerRecorder
from adacompute.serve.reply import NO_VERIFICATIONS, ForwardOutcome, RequestOutcome, Usage

__all__ = [
    "MessageChannel",
    "WorkerHub",
    "WorkerLink",
    "WorkerObservability",
    "WorkerSetup",
    "WorkerState",
]

_log = logging.getLogger("adacompute.serve")
_HEAD = struct.Struct(">I")  # the length of a frame
_TICK_SECONDS = 0.1  # between two looks at what changes without a message
_POST_SECONDS = 0.005  # that a message which isn't urgent waits for others, at most
_PRICE_SECONDS = 0.01  # that a new price waits for others before it is sent to the workers
_REPORT_SECONDS = 1.0  # that workers have to report before a page is made without what they have left
_SCALE_SECONDS = 2.0  # between two reports of the scale of votes' weights
_MAX_LANES = 256  # whose pacers are held for workers; others continue from the state of `Pacers`


def _to_spend(amounts: Amounts) -> Spend:
    if amounts == (0, 0, 0):
        return NO_SPEND
    return Spend(samples=amounts[0], tokens=amounts[1], nanos=amounts[2])


def divide_count(count: int, workers: int, index: int) -> int:
    """One worker's part of a limit; the first ones have the remainder.

    >>> [divide_count(5, 3, index) for index in range(3)]
    [2, 2, 1]
    """
    return max(1, count // workers + (index < count % workers))


class MessageChannel(asyncio.Protocol):
    """One end of a pair of sockets: messages are tuples, pickled, and those of one round go together."""

    def __init__(self, on_message: Callable[..., None], on_closed: Callable[[], None]) -> None:
        self._on_message = on_message  # called with each message's parts
        self._on_closed = on_closed
        self._buffer = bytearray()
        self._waiting: list[tuple[Any, ...]] = []
        self._is_flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()

    async def open(self, sock: socket.socket) -> None:
        """Begins, over one end of a pair."""
        sock.setblocking(False)
        await self._loop.create_unix_connection(lambda: self, sock=sock)

    def send(self, *message: Any) -> None:  # noqa: ANN401 - whatever can be pickled
        """Sends a message at the end of this round of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        self._waiting.append(message)

    def post(self, *message: Any) -> None:  # noqa: ANN401 - whatever can be pickled
        """Sends a message with the next that is urgent, or a few milliseconds later."""
        if not self._waiting and self._timer is None:
            self._timer = self._loop.call_later(_POST_SECONDS, self._flush)
        self._waiting.append(message)

    async def close(self) -> None:
        """Sends what waits, and closes."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
            await self._lost.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's isn't a subclass

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start, size = 0, len(buffer)
        while size - start >= _HEAD.size:
            (length,) = _HEAD.unpack_from(buffer, start)
            end = start + _HEAD.size + length
            if end > size:
                break
            messages = pickle.loads(memoryview(buffer)[start + _HEAD.size : end])  # noqa: S301 - our own process
            start = end
            for message in messages:
                self._handle(message)
        if start:
            del buffer[:start]

    def _handle(self, message: tuple[Any, ...]) -> None:
        try:
            self._on_message(*message)
        except Exception:  # noqa: BLE001 - a bad message mustn't close the channel
            _log.exception("the message %.40r between a gateway and its worker failed", message[0])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own
        self._transport = None
        self._lost.set()
        self._on_closed()

    def _flush(self) -> None:
        messages, self._waiting, self._is_flushing = self._waiting, [], False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not messages or self._transport is None:
            return
        try:
            body = pickle.dumps(messages, protocol=5)
        except Exception:  # noqa: BLE001 - one that can't be pickled mustn't take the others along
            body = pickle.dumps([message for message in messages if _can_pickle(message)], protocol=5)
        self._transport.write(_HEAD.pack(len(body)) + body)


def _can_pickle(message: tuple[Any, ...]) -> bool:
    try:
        pickle.dumps(message, protocol=5)
    except Exception:  # noqa: BLE001 - whatever it is
        _log.exception("the message %.40r between a gateway and its worker can't be sent", message[0])
        return False
    return True


# What has ended is sent as plain numbers and texts: pickling the records themselves takes four times as long.

_LEFT_OUT = ("responses", "server_info", "prompt", "usage", "spent", "maybe", "prompt_cost", "verified")
_OUTCOME_FIELDS = tuple(item.name for item in fields(RequestOutcome) if item.name not in _LEFT_OUT)
_read_outcome = attrgetter(*_OUTCOME_FIELDS)
_read_usage = attrgetter("prompt_tokens", "completion_tokens", "cached_tokens", "details")


def pack_outcome(outcome: RequestOutcome, *, texts: bool) -> tuple[Any, ...]:
    """An outcome without its responses; its prompt only where `texts` are shown."""
    return (
        _read_outcome(outcome),
        _read_usage(outcome.usage),
        to_amounts(outcome.spent),
        to_amounts(outcome.maybe),
        None if outcome.prompt_cost is NO_PROMPT_COST else outcome.prompt_cost,
        None if outcome.verified is NO_VERIFICATIONS else outcome.verified,
        outcome.prompt if texts else "",
    )


def unpack_outcome(packed: tuple[Any, ...]) -> RequestOutcome:
    """The outcome that was packed."""
    values, usage, spent, maybe, prompt_cost, verified, prompt = packed
    prompt_tokens, completion_tokens, cached_tokens, details = usage
    return RequestOutcome(
        **dict(zip(_OUTCOME_FIELDS, values, strict=True)),
        usage=Usage(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            details=details,
        ),
        spent=_to_spend(spent),
        maybe=_to_spend(maybe),
        prompt_cost=NO_PROMPT_COST if prompt_cost is None else prompt_cost,
        verified=NO_VERIFICATIONS if verified is None else verified,
        prompt=prompt,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """All that a worker is told at its start: nothing that it could read from a file which has changed."""

    index: int  # from 0
    config: Config  # max_requests is this worker's part
    keys: tuple[tuple[str, str, str, float | str | None, bool], ...]  # name, key, its source, cap, operator
    menu: MenuConfig | None
    policies: SharedPolicies
    scales: Mapping[str, Any]
    prices: LanePrices
    costs: Mapping[str, Any]
    mode_costs: Mapping[str, Any]
    explore: float
    records: bool  # traffic is recorded

    def list_keys(self) -> tuple[KeyConfig, ...]:
        """The keys of clients, as `read_keys` gives them."""
        return tuple(
            KeyConfig(name=name, key=Secret(text, source=source), cap=cap, operator=operator)
            for name, text, source, cap, operator in self.keys
        )

    def divide(self, endpoint: Endpoint) -> Endpoint:
        """An endpoint with this worker's part of its limits."""
        workers, limits = self.config.serve.workers, endpoint.limits
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        own = RateLimits(
            concurrency=divide_count(limits.concurrency, workers, self.index),
            requests_per_minute=None if requests is None else requests / workers,
            tokens_per_minute=None if tokens is None else tokens / workers,
            adaptive=limits.adaptive,
        )
        return replace(endpoint, limits=own)


class WorkerLink:
    """A worker's end: the ledger and the pacers of its gateway, and where its reports go."""

    def __init__(self) -> None:
        self.channel = MessageChannel(self._on_message, self._on_closed)
        self.setup: WorkerSetup  # that came with the first message
        self.ledger: WorkerLedger
        self.pacers: WorkerPacers
        self.gateway: Gateway | None = None  # once it is open
        self.opening, self.stopping = asyncio.Event(), asyncio.Event()
        self.immediately, self.closing = asyncio.Event(), asyncio.Event()
        self.list_resting: Callable[[], Sequence[str]] = tuple
        self.count_late: Callable[[], int] = int
        self._told: tuple[Sequence[str], int] = ((), 0)  # what is resting, late answers: as reported last
        self._scales: Mapping[str, Any] = {}
        self._began = asyncio.Event()
        self._numbers = 0
        self._pages: dict[int, asyncio.Future[bytes]] = {}
        self._closed_connections = 0  # not reported yet

    @classmethod
    async def open(cls, sock: socket.socket) -> "WorkerLink":
        """The link of this process, once its setup is here."""
        link = cls()
        await link.channel.open(sock)
        await link._began.wait()
        return link

    def join(self, gateway: Gateway) -> None:
        """This worker's gateway takes its prices, costs and pages from here."""
        setup, self.gateway = self.setup, gateway
        gateway.make_pacer, gateway.fetch_page = self.pacers.get, self.fetch_page
        gateway.share_budget = self.share_budget
        gateway.policy_registry.restore(setup.scales)
        gateway.has_warned_of_shortfall = True  # the gateway itself warns
        self._on_costs(setup.costs, setup.mode_costs)

    def make_recorder(self) -> WorkerRecorder | None:
        """What hands traffic to the gateway's recorder; None: it isn't recorded."""
        return WorkerRecorder(self.channel.post) if self.setup.records else None

    def report_closed(self) -> None:
        """A client's connection is closed."""
        if not self._closed_connections:
            asyncio.get_running_loop().call_later(_PRICE_SECONDS, self._send_closed)
        self._closed_connections += 1

    def report_state(self) -> None:
        """Reports what is left alone upstream, and how many answers were read too late."""
        state = (tuple(self.list_resting()), self.count_late())
        if state != self._told:
            self._told = state
            self.channel.send("state", *state)

    def report_scales(self) -> None:
        """Reports the scale of votes' weights, as this worker's samples have it."""
        if self.gateway is not None:
            scales = self.gateway.policy_registry.state()
            if scales != self._scales:
                self._scales = scales
                self.channel.send("scales", scales)

    async def run(self) -> None:
        """Reports regularly, until it is cancelled."""
        next_scales = 0.0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.report_state()
            if time.monotonic() >= next_scales:
                next_scales = time.monotonic() + _SCALE_SECONDS
                self.report_scales()

    async def close(self) -> None:
        """Sends what is left; the worker ends."""
        self.closing.set()
        await self.channel.close()

    async def share_budget(self, text: str) -> None:
        """Has the gateway, its other workers and its fleet serve at an operator's budget, too."""
        await self._fetch("budget", text)

    async def fetch_page(self, name: str) -> bytes:
        """A page of the whole gateway."""
        return await self._fetch("page", name)

    async def _fetch(self, kind: str, text: str) -> bytes:
        self._numbers += 1
        number, future = self._numbers, asyncio.get_running_loop().create_future()
        self._pages[number] = future
        self.channel.send(kind, number, text)
        try:
            body: bytes = await future
        finally:
            del self._pages[number]
        return body

    def _send_closed(self) -> None:
        count, self._closed_connections = self._closed_connections, 0
        self.channel.send("closed", count)

    def _on_message(self, kind: str, *parts: Any) -> None:  # noqa: ANN401 - of any kind
        getattr(self, f"_on_{kind}")(*parts)

    def _on_setup(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.ledger = WorkerLedger(self.channel.send, self.channel.post)
        average = setup.config.serve.average
        self.pacers = WorkerPacers(self.channel.post, setup.prices, average=average)
        self._began.set()

    def _on_reserved(self, number: int, result: Any) -> None:  # noqa: ANN401 - a reservation's hour, or why not
        self.ledger.on_reserved(number, result)

    def _on_extended(self, number: int, done: bool) -> None:
        self.ledger.on_extended(number, done)

    def _on_ledger(self, available: bool, blocked: Mapping[str, tuple[str, float | None]]) -> None:
        self.ledger.available, self.ledger.blocked = available, blocked

    def _on_prices(self, prices: LanePrices) -> None:
        self.pacers.update(prices)

    def _on_costs(self, costs: Mapping[str, Any], mode_costs: Mapping[str, Any]) -> None:
        if self.gateway is not None:
            self.gateway.costs.restore(costs)
            for name, state in mode_costs.items():
                self.gateway.find_costs(name).restore(state)

    def _on_policies(
        self, number: int, policies: SharedPolicies, explore: float, patched: str, budgets: Mapping[str, Any]
    ) -> None:
        if self.gateway is not None:
            self.gateway.policy_registry.adopt(policies)
            self.gateway.explore = explore
            self.gateway.set_budget(patched, **budgets)
        self.channel.send("done", number)

    def _on_report(self, number: int) -> None:
        if self.gateway is not None:
            self.gateway.learn()  # a reply may be answered before its request was learned from
            self.gateway.reporter.report()
        self.report_state()
        self.channel.send("done", number)

    def _on_page(self, number: int, body: bytes) -> None:
        if (future := self._pages.get(number)) is not None and not future.done():
            future.set_result(body)

    def _on_beat(self) -> None:
        self.channel.send("beat")

    def _on_signal(self, name: str) -> None:
        event: asyncio.Event = getattr(self, name)  # opening, stopping, immediately or closing
        event.set()

    def _on_closed(self) -> None:
        if not self.closing.is_set():
            os._exit(1)  # the gateway is gone: nothing can be paid for any more


class WorkerObservability(Observability):
    """Observability of a worker: it counts nothing, and reports everything to the gateway."""

    def __init__(self, link: WorkerLink) -> None:
        super().__init__(link.setup.config.serve)
        self._link, self._send = link, link.channel.post
        self._texts = link.setup.config.serve.show_texts

    def on_request_start(self, count: int = 1) -> None:  # noqa: ARG002 - always one here
        """A request starts sampling."""
        self._send("begun")

    def on_request_end(self, outcome: RequestOutcome) -> None:
        """A request has ended, successfully or not."""
        self._send("request", pack_outcome(outcome, texts=self._texts))

    def on_refusal(self, status: int, code: str) -> None:
        """A request was refused before sampling."""
        self._send("refusal", status, code)

    def on_forward_end(self, outcome: ForwardOutcome) -> None:
        """A request that was passed on has ended."""
        self._send("forward", replace(outcome, calls=()))

    def on_call(self, call: Call) -> None:
        """One attempt upstream has ended."""
        self._send("call", call.kind, call.seconds, call.paid)

    def on_price(
        self, policy: str, budget: float, price: float, average: float, unit: BudgetUnit = "samples"
    ) -> None:
        """Does nothing: the gateway sets the prices."""

    def watch_breakers(self, read: Callable[[], Sequence[str]]) -> None:
        """Sets the source of what is left alone for a moment."""
        self._link.list_resting = read

    def watch_late_answers(self, read: Callable[[], int]) -> None:
        """Sets the source of how many answers took too long to read."""
        self._link.count_late = read


class WorkerState:
    """One worker, as its gateway sees it: its process, its channel, and what it has reserved."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: MessageChannel | None = None
        self.handover: socket.socket | None = None  # over which it gets connections
        self.ready, self.ended = asyncio.Event(), asyncio.Event()
        self.drained = asyncio.Event()
        self.error = ""  # why it can't serve, in its own words
        self.cancelled = 0  # requests, at its end
        self.connections = 0  # that it holds
        self.is_serving = False  # it takes connections
        self.unanswered_beats = 0  # in a row
        self.in_flight = 0  # requests
        self.resting: Sequence[str] = ()
        self.late = 0  # answers that took too long to read
        self.reserving: dict[int, asyncio.Task[None]] = {}
        self.open: dict[int, Reservation] = {}  # by the worker's number
        self.started = time.monotonic()


class WorkerHub:
    """The gateway's end: does for its workers what their links ask for."""

    def __init__(self, gateway: Gateway) -> None:
        self.workers: list[WorkerState] = []
        self._gateway = gateway
        self._ledger: LedgerProtocol = gateway.resources.ledger
        self._lanes: OrderedDict[str, PacerProtocol] = OrderedDict()
        self._prices: LanePrices = {}  # as the workers know them
        self._changed_lanes: set[str] = set()
        self._blocked: dict[str, tuple[str, float | None]] = {}
        self._available = True
        self._served = gateway.policy_registry.export()
        self._explore, self._settings = gateway.explore, gateway.settings
        self._costs: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
        self._late_before = 0  # of workers that have ended
        self._numbers = 0
        self._asked: dict[int, asyncio.Future[None]] = {}
        self._price_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        if (pacer := gateway.find_pacer()) is not None:
            self._hold_default(pacer)
        gateway.observability.watch_breakers(self._list_resting)
        gateway.observability.watch_late_answers(self._count_late)
        if gateway.observability.menu is not None:
            gateway.observability.menu.watch(
                find_cost=lambda mode, unit: gateway.find_costs(mode).estimate(unit),
                list_resting=self._list_resting,
            )

    def build_setup(self, index: int, menu: MenuConfig | None) -> WorkerSetup:
        """What a worker that starts now has to know."""
        gateway, config = self._gateway, self._gateway.config
        own = divide_count(config.serve.max_requests, config.serve.workers, index)
        costs, mode_costs = self._read_costs()
        keys = [
            (key.name, key.secret.reveal(), key.secret.source, key.cap, key.operator) for key in gateway.keys
        ]
        return WorkerSetup(
            index=index,
            config=replace(config, serve=replace(config.serve, max_requests=own)),
            keys=tuple(keys),
            menu=menu,
            policies=gateway.policy_registry.export(),
            scales=gateway.policy_registry.state(),
            prices=dict(self._prices),
            costs=costs,
            mode_costs=mode_costs,
            explore=gateway.explore,
            records=gateway.reporter.recorder is not None,
        )

    async def run(self) -> None:
        """Looks regularly at what changes without a message, until it is cancelled."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._gateway.guard(self._look)
            policies, explore = self._gateway.policy_registry.export(), self._gateway.explore
            is_new = self._gateway.settings is not self._settings or explore != self._explore
            if is_new or any(policies[name][0] is not policy for name, (policy, *_) in self._served.items()):
                await self.share_policies()

    def _look(self) -> None:
        self._check_blocked()
        if self._gateway.settings.redis:
            self._changed_lanes |= set(self._lanes)
            self._send_prices()
        costs = self._read_costs()
        if costs != self._costs:
            self._costs = costs
            self._send_all("costs", *costs)

    async def share_policies(self) -> None:
        """Has all workers serve the policies that the gateway has now, and waits until they do."""
        gateway = self._gateway
        self._served, self._explore = gateway.policy_registry.export(), gateway.explore
        self._settings = gateway.settings
        await self._ask_all("policies", *self._list_shared())

    def _list_shared(self) -> tuple[SharedPolicies, float, str, dict[str, float | str]]:
        """What workers serve by: the policies, the share that is explored, and the budgets."""
        settings = self._gateway.config.serve
        budgets = {"budget": settings.budget, "max_budget": settings.max_budget}
        return self._served, self._explore, self._gateway.patched_budget, budgets

    async def reload(self) -> list[str]:
        """Reads the policies again, for all; a line for each that changed or was refused."""
        lines = await self._gateway.reload()
        await self.share_policies()
        return lines

    async def build_page(self, name: str) -> bytes:
        """A page of the whole: `metrics`, or `hour` or `day` of the dashboard."""
        await self._ask_all("report")
        self._gateway.reporter.report()
        observability = self._gateway.observability
        if name == "metrics":
            return observability.render_metrics()
        return orjson.dumps(observability.dashboard_data(name))

    def on_message(self, worker: WorkerState, kind: str, *parts: Any) -> None:  # noqa: ANN401 - of any kind
        """Handles a message of a worker."""
        getattr(self, f"_on_{kind}")(worker, *parts)

    def on_end(self, worker: WorkerState) -> None:
        """A worker is gone: what it had reserved may have been spent."""
        for task in worker.reserving.values():
            task.cancel()
        lost_amount = NO_SPEND
        for reservation in worker.open.values():
            self._ledger.settle(reservation, NO_SPEND, reservation.amount)
            lost_amount += reservation.amount
        if worker.open:
            _log.warning(
                "%d reservations of worker %d, which died, count as spent in full: at most %d samples, "
                "%d tokens",
                len(worker.open),
                worker.index + 1,
                lost_amount.samples,
                lost_amount.tokens,
            )
        worker.open = {}
        self._gateway.observability.on_request_start(-worker.in_flight)
        self._late_before += worker.late
        worker.in_flight, worker.late, worker.resting = 0, 0, ()
        worker.drained.set()
        worker.ended.set()

    def _on_reserve(self, worker: WorkerState, number: int, key: str, amounts: Amounts) -> None:
        task = asyncio.get_running_loop().create_task(self._reserve(worker, number, key, _to_spend(amounts)))
        worker.reserving[number] = task

    async def _reserve(self, worker: WorkerState, number: int, key: str, amount: Spend) -> None:
        """Answers with the hour of the reservation; with why not; or with None: the ledger is closed."""
        result: str | tuple[str, float | None, int] | None = None
        try:
            reservation = await self._ledger.reserve(key, amount)
            worker.open[number] = reservation
            result = reservation.hour
        except CapReached as exc:
            result = (str(exc), exc.retry_after, exc.left)
        except LedgerUnavailable:
            self._check_blocked()
        finally:
            worker.reserving.pop(number, None)
        self.send(worker, "reserved", number, result)

    def _on_extend(self, worker: WorkerState, number: int, amounts: Amounts) -> None:
        reservation, more = worker.open.get(number), _to_spend(amounts)
        if reservation is None:
            self.send(worker, "extended", number, False)
            return
        granted = self._ledger.extend(reservation, more)
        if isinstance(granted, bool):
            self._finish_extension(worker, number, more, granted)
        else:
            self._start(self._await_extension(worker, number, more, granted))

    async def _await_extension(
        self, worker: WorkerState, number: int, more: Spend, granted: Awaitable[bool]
    ) -> None:
        self._finish_extension(worker, number, more, await granted)

    def _finish_extension(self, worker: WorkerState, number: int, more: Spend, granted: bool) -> None:
        if granted:
            self._enlarge(worker, number, more)
        self.send(worker, "extended", number, granted)

    def _on_grow(self, worker: WorkerState, number: int, amounts: Amounts) -> None:
        if (reservation := worker.open.get(number)) is not None:
            more = _to_spend(amounts)
            self._ledger.grow(reservation, more)
            self._enlarge(worker, number, more)
            self._check_blocked()

    def _enlarge(self, worker: WorkerState, number: int, more: Spend) -> None:
        if (reservation := worker.open.get(number)) is not None:
            worker.open[number] = replace(reservation, amount=reservation.amount + more)

    def _on_settle(self, worker: WorkerState, number: int, spent: Amounts, maybe: Amounts) -> None:
        if (task := worker.reserving.pop(number, None)) is not None:
            task.cancel()  # nobody waits for it any more: the ledger takes it back
            return
        if (reservation := worker.open.pop(number, None)) is not None:
            self._ledger.settle(reservation, _to_spend(spent), _to_spend(maybe))
            total = _to_spend(spent) + _to_spend(maybe)
            if total.beyond(reservation.amount) is not NO_SPEND:
                self._check_blocked()

    def _check_blocked(self) -> None:
        """Tells the workers whether the ledger is open, and whose requests may not be sent any more."""
        blocked: dict[str, tuple[str, float | None]] = {}
        for worker in self.workers:
            for reservation in worker.open.values():
                if reservation.key not in blocked and (error := self._ledger.check_send(reservation)):
                    blocked[reservation.key] = (str(error), error.retry_after)
        available = self._ledger.available
        if (available, blocked) != (self._available, self._blocked):
            self._available, self._blocked = available, blocked
            self._send_all("ledger", available, blocked)

    def _on_lane(self, worker: WorkerState, name: str, start: str) -> None:
        self._hold_lane(name, start)
        if name in self._prices:
            self.send(worker, "prices", {name: self._prices[name]})

    def _on_cost(self, _worker: WorkerState, name: str, start: str, text: str) -> None:
        pacer = self._hold_lane(name, start)
        policy, budget, *_ = parse_lane(name)
        unit = parse_lane_unit(name)
        cost, price = map(float, text.split())
        early = unit != "samples" and pacer.requests < EARLY_REQUESTS
        begin = float(start) if early else None
        self._gateway.pacers.settle(policy, budget, pacer, cost, price, unit=unit, start=begin)
        self._changed_lanes.add(name)
        if self._price_timer is None:
            loop = asyncio.get_running_loop()
            self._price_timer = loop.call_later(_PRICE_SECONDS, self._send_prices)

    def _hold_lane(self, name: str, start: str) -> PacerProtocol:
        pacer = self._lanes.get(name)
        if pacer is None:
            policy, budget, dial, low, high = parse_lane(name)
            unit, make = parse_lane_unit(name), self._gateway.make_pacer
            pacer = self._gateway.pacers.get(
                policy,
                budget,
                lambda target: make(
                    policy, target, dial=dial, start=float(start), low=low, high=high, unit=unit
                ),
                bounds=(dial, low, high),
                unit=unit,
            )
            self._hold(name, pacer)
        self._lanes.move_to_end(name)
        return pacer

    def _hold_default(self, pacer: PacerProtocol) -> None:
        """The lane of the operator's own budget is known to every worker from its start."""
        gateway = self._gateway
        lane = (gateway.policy_registry.default, round_budget(gateway.budget.amount, gateway.budget.unit))
        self._hold(name_lane((*lane, *pacer.bounds), gateway.settings.average, gateway.budget.unit), pacer)

    def _hold(self, name: str, pacer: PacerProtocol) -> None:
        self._lanes[name] = pacer
        self._prices[name] = (pacer.price, pacer.average, pacer.requests)
        if len(self._lanes) > _MAX_LANES:
            dropped, _ = self._lanes.popitem(last=False)
            self._prices.pop(dropped, None)

    def _send_prices(self) -> None:
        """Sends new prices to all workers, and shows them."""
        self._price_timer = None
        prices: LanePrices = {}
        for name in self._changed_lanes:
            if (pacer := self._lanes.get(name)) is None:
                continue
            values = (pacer.price, pacer.average, pacer.requests)
            if values != self._prices.get(name):
                prices[name] = values
                policy, budget, *_ = parse_lane(name)
                self._gateway.reporter.on_price(policy, budget, *values[:2], parse_lane_unit(name))
        self._changed_lanes = set()
        if prices:
            self._prices |= prices
            self._send_all("prices", prices)

    def _on_begun(self, worker: WorkerState) -> None:
        worker.in_flight += 1
        self._gateway.observability.on_request_start()

    def _on_request(self, worker: WorkerState, packed: tuple[Any, ...]) -> None:
        worker.in_flight -= 1
        outcome = unpack_outcome(packed)
        if outcome.counts_as_voted:
            self._gateway.learn_cost(outcome)
        self._gateway.observability.on_request_end(outcome)

    def _on_refusal(self, _worker: WorkerState, status: int, code: str) -> None:
        self._gateway.observability.on_refusal(status, code)

    def _on_forward(self, _worker: WorkerState, outcome: ForwardOutcome) -> None:
        self._gateway.observability.on_forward_end(outcome)

    def _on_call(self, _worker: WorkerState, kind: str, seconds: float, paid: Paid) -> None:
        call = Call(at=0.0, seconds=seconds, asked=1, got=1, kind=kind, paid=paid)
        self._gateway.observability.on_call(call)

    def _on_record(self, _worker: WorkerState, items: list[QueuedRequest]) -> None:
        if isinstance(recorder := self._gateway.reporter.recorder, Recorder):
            for item in items:
                recorder.enqueue(item)

    def _on_scales(self, _worker: WorkerState, scales: Mapping[str, Any]) -> None:
        self._gateway.policy_registry.restore(scales)

    def _on_state(self, worker: WorkerState, resting: Sequence[str], late: int) -> None:
        worker.resting, worker.late = resting, late

    def _on_ready(self, worker: WorkerState) -> None:
        worker.ready.set()
        self.send(worker, "policies", 0, *self._list_shared())  # they may have changed since its setup
        self.send(worker, "ledger", self._available, self._blocked)
        self.send(worker, "prices", self._prices)

    def _on_beat(self, worker: WorkerState) -> None:
        worker.unanswered_beats = 0

    def _on_failed(self, worker: WorkerState, text: str) -> None:
        worker.error = text

    def _on_drained(self, worker: WorkerState, cancelled: int) -> None:
        worker.cancelled = cancelled
        worker.drained.set()

    def _on_closed(self, worker: WorkerState, connections: int) -> None:
        worker.connections -= connections

    def _on_page(self, worker: WorkerState, number: int, name: str) -> None:
        self._start(self._send_page(worker, number, name))

    async def _send_page(self, worker: WorkerState, number: int, name: str) -> None:
        self.send(worker, "page", number, await self.build_page(name))

    def _on_budget(self, worker: WorkerState, number: int, text: str) -> None:
        self._start(self._change_budget(worker, number, text))

    async def _change_budget(self, worker: WorkerState, number: int, text: str) -> None:
        gateway = self._gateway
        try:
            gateway.set_budget(text)
            await self.share_policies()
            if gateway.share_budget is not None:
                await gateway.share_budget(text)
        finally:
            self.send(worker, "page", number, b"")

    def _on_done(self, _worker: WorkerState, number: int) -> None:
        if (future := self._asked.get(number)) is not None and not future.done():
            future.set_result(None)

    async def _ask_all(self, kind: str, *parts: Any) -> None:  # noqa: ANN401 - of any kind
        """Sends a message to all workers that are ready, and waits until they have done it, for a second."""
        futures = []
        for worker in self.workers:
            if worker.ready.is_set() and not worker.ended.is_set():
                self._numbers += 1
                futures.append(asyncio.get_running_loop().create_future())
                self._asked[self._numbers] = futures[-1]
                self.send(worker, kind, self._numbers, *parts)
        if futures:
            await asyncio.wait(futures, timeout=_REPORT_SECONDS)
            self._asked = {number: future for number, future in self._asked.items() if future not in futures}

    def _read_costs(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        gateway = self._gateway
        return gateway.costs.state(), {name: costs.state() for name, costs in gateway.mode_costs.items()}

    def _list_resting(self) -> tuple[str, ...]:
        """What keeps failing, as any worker has it."""
        return tuple(dict.fromkeys(name for worker in self.workers for name in worker.resting))

    def _count_late(self) -> int:
        return self._late_before + sum(worker.late for worker in self.workers)

    def send(self, worker: WorkerState, kind: str, *parts: Any) -> None:  # noqa: ANN401 - of any kind
        """Sends a message to a worker, unless it has ended."""
        if worker.channel is not None and not worker.ended.is_set():
            worker.channel.send(kind, *parts)

    def _send_all(self, kind: str, *parts: Any) -> None:  # noqa: ANN401 - of any kind
        for worker in self.workers:
            if worker.ready.is_set():
                self.send(worker, kind, *parts)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
