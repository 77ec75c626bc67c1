"""Connects a gateway of a fleet to Redis. A call may carry many ledger actions; calls are made one at a time.

Each call that changes data has a number, and is repeated until Redis replies. If only the reply was lost,
Redis recognises the number, and sends the reply again without changing anything. If Redis has lost data that
it had confirmed, its reply says so. This process then sends its own reservations again, before anything else.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from adacompute.errors import ConfigError
from adacompute.records import Secret
from adacompute.serve.spending.ledger import WindowClock, count_elapsed

if TYPE_CHECKING:
    from redis.asyncio import Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTiming:
    """How often a gateway of a fleet (a replica) calls Redis, and time limits. All times are in seconds."""

    # if a gateway hasn't called Redis for this time, its reservations count as possibly spent
    lease: float = 10.0
    # if the gateway that sets prices hasn't called Redis for this time, another one takes over
    beat: float = 2.0
    poll: float = 0.1  # maximum interval between calls to Redis, so prices are at most this old
    retry: float = 0.2  # interval before a failed call to Redis is repeated
    timeout: float = 2.0  # timeout for one call to Redis
    account: float = 1.0  # interval between reads of all balances
    close_timeout: float = 5.0  # maximum time for writing pending data when closing
    clock_offset: float = 0.0  # seconds added to Redis's time; 0 except in tests


DEFAULT_TIMING = FleetTiming()

_DEFAULT_PORT = 6379


def connect_redis(url: str, *, key: Secret | None, timeout: float) -> "Redis":
    """Makes a Redis client; `key` holds the password. ConfigError if the library isn't installed."""
    try:
        from redis.asyncio import Redis  # imported late, because gateways without a fleet don't need it
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError(
            f"redis {url} can't be used: the client isn't installed; pip install 'adacompute[redis]', or "
            "leave redis out"
        ) from None
    parts = urlsplit(url)
    return Redis(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or _DEFAULT_PORT,
        db=int(parts.path.strip("/") or 0),
        username=parts.username or None,
        password=None if key is None else key.reveal(),
        ssl=parts.scheme == "rediss",
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),  # `FleetClient` repeats failed calls itself
        decode_responses=True,
    )


def redis_errors() -> tuple[type[Exception], ...]:
    """Returns all types of exceptions that calls to Redis may raise."""
    from redis.exceptions import RedisError

    return RedisError, OSError, TimeoutError


def describe_error(url: str, exc: Exception) -> str:
    """Describes in one line what is wrong with Redis and what to do; never shows a password."""
    from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, ResponseError

    reason = str(exc) or type(exc).__name__
    if isinstance(exc, AuthenticationError | AuthorizationError | NoPermissionError):
        return (
            f"{url}: refuses us ({reason}); put its password into the variable that redis_key_env names, "
            "or the file that redis_key_file does"
        )
    if isinstance(exc, ResponseError):
        return f"{url}: refuses a command ({reason}); see its log, and check that it is Redis 6.2 or later"
    return f"{url}: can't be reached ({reason}); check that it runs, and the address in redis"


def find_durability_risks(info: dict[str, Any]) -> list[str]:
    """Returns reasons why Redis may forget spending, so that caps may be exceeded; `info` is Redis's INFO."""
    risks = []
    if not int(info.get("aof_enabled", 0)):
        risks.append(
            "it keeps no append-only file: where it stops, what was spent since its last snapshot is "
            "forgotten; set appendonly yes"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        risks.append(
            f"it may forget balances when its memory is full ({policy}); set maxmemory-policy noeviction"
        )
    return risks


_SCRIPT = Path(__file__).with_name("batch.lua").read_text("utf-8")
_SHA = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()  # Redis's name for the script
_MAX_ACTIONS = 500  # maximum number of ledger actions per call to Redis
_MAX_COSTS = 2_000  # maximum number of requests whose cost is sent in one call to Redis
_MAX_WAITING_COSTS = 100_000  # maximum number of requests' costs that wait to be sent, per policy and budget
_log = logging.getLogger("adacompute.serve.fleet")

# (kind, number of the reservation, client's key, limit or hour, amounts, possibly spent amounts). Kind "r"
# makes a reservation if the key's limit (-1: none) allows it. "g" adds amounts to a reservation. "e" ends a
# reservation made in the given hour: the amounts were spent. Amounts are [samples, tokens, billionths of the
# currency].
LedgerAction = tuple[str, str, str, Any, list[int], list[int]]


class ForeignLedger(Exception):
    """Raised if Redis no longer has the ledger that was opened, or has a different one."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What Redis did with one ledger action."""

    done: bool
    # if Redis refused a reservation: amounts spent, possibly spent and reserved by the key, then by all keys
    taken: list[int]
    hour: str  # the current hour by Redis's clock
    now: float  # time by Redis's clock, in seconds since 1970


@dataclass(slots=True)
class _Batch:
    """The content of one call to Redis, kept until Redis replies."""

    number: int  # number of the call to Redis; 0 if the call changes nothing there
    body: dict[str, Any]
    # for each action in the call, the future that gets its result; None if nobody waits for it
    waiting: list["asyncio.Future[ActionResult] | None"] = field(default_factory=list)


class FleetClient:
    """Connects one gateway of a fleet to Redis.

    `build_query` returns which data the next call to Redis should read. `handle_answer` gets Redis's replies.
    `list_reservations` returns this gateway's reservations, in case Redis has lost them.
    """

    def __init__(
        self,
        redis: "Redis",
        *,
        url: str,
        base: str,
        replica: str,
        script_settings: Mapping[str, Any],
        timing: FleetTiming,
        build_query: Callable[[], dict[str, Any]],
        handle_answer: Callable[[dict[str, Any]], None],
        list_reservations: Callable[[], dict[str, str]],
    ) -> None:
        self.trouble = ""  # why calls to Redis fail at present; "" if they work
        self.answered_at = time.monotonic()  # time of Redis's last reply
        self.done_count = 0  # number of actions queued by `enqueue` that Redis has done
        self._enqueued_count = 0
        self._redis, self._url, self._base = redis, url, base
        self._script_settings = dict(script_settings, me=replica, most=_MAX_WAITING_COSTS) | {
            name: round(1000 * seconds)
            for name, seconds in (
                ("lease", timing.lease),
                ("beat", timing.beat),
                ("ahead", timing.clock_offset),
            )
        }
        self._timing = timing
        self._build_query, self._handle_answer, self._list_reservations = (
            build_query,
            handle_answer,
            list_reservations,
        )
        self._id = ""
        self._clock = WindowClock()  # checks Redis's clock against the time that has elapsed in this process
        # numbers of the latest call that changes data (`_number`), and of the latest such call with a reply
        self._number = self._last = 0
        self._actions: deque[tuple[LedgerAction, asyncio.Future[ActionResult] | None]] = deque()
        # lane (a policy at a budget) -> (initial price or threshold, requests' costs still to be sent)
        self._costs: dict[str, tuple[str, list[str]]] = {}
        self._notes: dict[str, str] = {}
        self._paced: list[dict[str, Any]] = []
        self._batch: _Batch | None = None  # content of the current call, until Redis has replied
        self._is_foreign = False  # whether Redis no longer has the ledger that this gateway opened
        self._closing = self._ending = False
        self._wake = asyncio.Event()
        self._failures = redis_errors()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, new: str) -> dict[str, Any]:
        """Makes the first call; raises Redis's errors. A missing ledger is created, with the id `new`."""
        answer = await self._send(_Batch(0, {"id": "", "new": new, "recalls": True, **self._build_query()}))
        self._id = answer["id"]
        # "now" is the time that all gateways use; it ignores a jump of Redis's clock that isn't trusted yet
        self._clock.read(int(answer["now"]) / 1000, count_elapsed())
        self._deliver(answer)
        self._task = asyncio.create_task(self._run())
        return answer

    def enqueue(self, action: LedgerAction) -> int:
        """Queues an action whose result isn't needed; returns its number.

        When Redis has done the action, `done_count` is at least this number.
        """
        self._actions.append((action, None))
        self._wake.set()
        self._enqueued_count += 1
        return self._enqueued_count

    def submit(self, action: LedgerAction) -> "asyncio.Future[ActionResult]":
        """Queues an action; returns a future for its result.

        Awaiting the future raises OSError if the call to Redis fails. Redis may still do the action later.
        """
        future: asyncio.Future[ActionResult] = asyncio.get_running_loop().create_future()
        self._actions.append((action, future))
        self._wake.set()
        return future

    def add_cost(self, lane: str, start: str, cost: str) -> None:
        """Queues a request's cost for Redis. If over 100,000 costs wait for a lane, drops the oldest half.

        `lane` names the request's policy and budget. `start` is the policy's first price or threshold at that
        budget. `cost` is a text with two numbers: the request's cost, and its price or threshold.
        """
        _, costs = self._costs.setdefault(lane, (start, []))
        costs.append(cost)
        if len(costs) > _MAX_WAITING_COSTS:
            del costs[: _MAX_WAITING_COSTS // 2]

    def add_note(self, name: str, text: str) -> None:
        """Stores text under a name in Redis, with the next call."""
        self._notes[name] = text

    def publish(self, paced: list[dict[str, Any]]) -> None:
        """Sends new prices to the fleet with the next call; does nothing while this gateway is closing."""
        if not self._closing:
            self._paced = paced
            self._wake.set()

    async def flush(self) -> None:
        """Waits until everything queued is sent, or until sending fails."""
        previous = self.answered_at
        self._wake.set()
        while not self.trouble and (self.answered_at == previous or self._batch is not None or self._actions):
            await asyncio.sleep(0.001)

    async def close(self) -> bool:
        """Sends pending data and leaves the fleet; returns whether all spending could be sent in time."""
        self._closing = True
        if self._task is not None:
            until = time.monotonic() + self._timing.close_timeout
            while self._has_pending() and time.monotonic() < until and not self._is_foreign:
                self._wake.set()
                await asyncio.sleep(0.01)
            self._ending = True
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        complete = not self._actions and (self._batch is None or "deeds" not in self._batch.body)
        if not self.trouble:
            # If this call fails, the lease expires by itself.
            with contextlib.suppress(ForeignLedger, *self._failures):
                await self._send(_Batch(0, {"leaves": True}))
        self.trouble = self.trouble or f"{self._url}: the gateway is closing down"
        for _, future in self._actions:
            if future is not None and not future.done():
                future.set_exception(OSError(self.trouble))
        await self._redis.aclose()
        return complete

    def _has_pending(self) -> bool:
        batch = self._batch  # while Redis is down, a batch that changes nothing isn't worth waiting for
        in_progress = batch is not None and (batch.number > 0 or not self.trouble)
        return bool(in_progress or self._actions or self._costs or self._notes or self._paced)

    async def _run(self) -> None:
        task = asyncio.current_task()
        # checks `cancelling`, because the Redis client may swallow the CancelledError
        while not self._ending and not (task and task.cancelling()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timing.poll):  # `wait_for` may swallow a cancellation
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # lets other tasks add actions to this batch
            try:
                self._batch = self._batch or self._next_batch()
                self._on_answer(self._batch, await self._send(self._batch))
            except ForeignLedger as exc:
                self._is_foreign = True
                self._on_failure(str(exc))
                await asyncio.sleep(self._timing.lease / 4)
            except self._failures as exc:
                self._on_failure(describe_error(self._url, exc))
                await asyncio.sleep(self._timing.retry)
            except Exception as exc:  # noqa: BLE001 - on any error the ledger is closed, and the call repeated
                self._on_failure(f"{self._url}: answers what can't be read ({type(exc).__name__}: {exc})")
                await asyncio.sleep(self._timing.retry)

    def _next_batch(self) -> _Batch:
        body: dict[str, Any] = self._build_query()
        waiting: list[asyncio.Future[ActionResult] | None] = []
        if self._actions:
            actions = [self._actions.popleft() for _ in range(min(_MAX_ACTIONS, len(self._actions)))]
            body["deeds"] = [action for action, _ in actions]
            waiting = [future for _, future in actions]
            if self._actions:
                self._wake.set()
        if self._costs:
            body["costs"] = self._take_costs()
        if self._notes:
            body["notes"], self._notes = self._notes, {}
        if self._paced:
            body["paced"], self._paced = self._paced, []
        changes = any(name in body for name in ("deeds", "costs", "notes", "paced"))
        self._number += changes
        return _Batch(self._number if changes else 0, body, waiting)

    def _take_costs(self) -> dict[str, Any]:
        lanes: dict[str, Any] = {}
        room = _MAX_COSTS
        while self._costs and room:
            lane, (start, costs) = next(iter(self._costs.items()))
            del self._costs[lane]
            if len(costs) > room:
                self._costs[lane] = (start, costs[room:])
            lanes[lane] = {"start": start, "costs": costs[:room]}
            room -= len(lanes[lane]["costs"])
        if self._costs:
            self._wake.set()
        return lanes

    async def _send(self, batch: _Batch) -> dict[str, Any]:
        from redis.exceptions import NoScriptError

        header: dict[str, Any] = {"id": self._id, "seq": batch.number, "last": self._last}
        if (expected := self._clock.estimate(count_elapsed())) is not None:
            header["expects"] = round(1000 * expected)
        text = orjson.dumps({**header, **self._script_settings, **batch.body})
        try:
            async with asyncio.timeout(self._timing.timeout):
                try:
                    raw = await self._redis.evalsha(_SHA, 1, self._base, text)
                except NoScriptError:  # Redis was restarted and has lost the script
                    raw = await self._redis.eval(_SCRIPT, 1, self._base, text)
        except BaseException:
            with contextlib.suppress(*self._failures):
                # closes the connection, so that a late reply isn't taken for the reply to the next call
                await self._redis.connection_pool.disconnect()
            raise
        answer: dict[str, Any] = orjson.loads(raw)
        if "foreign" in answer:
            raise ForeignLedger(_explain_foreign(self._url, self._base, answer["foreign"]))
        return answer

    def _on_answer(self, batch: _Batch, answer: dict[str, Any]) -> None:
        if "behind" in answer:
            self._resend_reservations(batch)
            return
        hour, now = answer["hour"], int(answer["now"]) / 1000
        self._clock.read(int(answer["clock"]) / 1000, count_elapsed())
        for future, result in zip(batch.waiting, answer["said"] or [], strict=True):
            if future is not None and not future.done():
                taken = [int(amount) for amount in result] if isinstance(result, list) else []
                future.set_result(ActionResult(result == 1, taken, hour, now))
        self.done_count += batch.waiting.count(None)
        self._batch = None
        self._last = batch.number or self._last
        if self.trouble:
            _log.warning("the ledger is open again")
        self.trouble, self._is_foreign = "", False
        self._deliver(answer)

    def _resend_reservations(self, batch: _Batch) -> None:
        """Sends this process's reservations again, because Redis lost data that it had confirmed."""
        _log.error(
            "%s: it has lost the last calls; reservations held here are restored, and what was settled then "
            "counts in full",
            self._url,
        )
        actions = [action for action, _ in self._actions] + batch.body.get("deeds", [])
        batch.body["known"] = dict.fromkeys((action[1] for action in actions), "") | self._list_reservations()
        if not batch.number:
            self._number += 1
            batch.number = self._number
        self._wake.set()

    def _deliver(self, answer: dict[str, Any]) -> None:
        self.answered_at = time.monotonic()
        self._handle_answer(answer)

    def _on_failure(self, trouble: str) -> None:
        if trouble != self.trouble:
            _log.error("the ledger is closed: %s", trouble)
        self.trouble = trouble
        # Redis may have executed the failed call, so exactly this call will be repeated. Every waiting future
        # gets an error now. Queued actions with a future are dropped; queued actions without one stay.
        waiting = [] if self._batch is None else self._batch.waiting
        unsent = [future for _, future in self._actions]
        self._actions = deque(item for item in self._actions if item[1] is None)
        for future in (*waiting, *unsent):
            if future is not None and not future.done():
                future.set_exception(OSError(trouble))


def _explain_foreign(url: str, base: str, holder: str) -> str:
    content = "another ledger than was opened" if holder else "the ledger no more"
    return (
        f"{url}: it holds {content} ({base}), so what was spent isn't known there; restore Redis's data, or "
        "restart all gateways of the fleet to begin again at 0"
    )
