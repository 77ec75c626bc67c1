"""Decides when an attempt may be sent, and when it times out: send gate, rate limiter, breakers, deadlines.

`LoopShare` divides the event loop's time among replies.
"""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal

from adacompute.client.server_quirks import RecentlyUsed, describe_kind, model_key
from adacompute.client.settings import BreakerSettings, Endpoint, RateLimits
from adacompute.errors import EndpointResting, SendingStopped

_INITIAL_CONCURRENCY = 8  # number of concurrent calls until the endpoint has shown that it can handle more
# capacity of a token bucket, in seconds of its fill rate; one minute may therefore exceed the limit by 1/60
_BURST_SECONDS = 1.0


class SendGate:
    """Holds back or refuses unsent attempts; attempts in flight aren't affected."""

    def __init__(self) -> None:
        self.is_open = True  # whether attempts may be sent now
        self._on_open: Callable[[], None] | None = None
        self._waiting: set[asyncio.Task[Any]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()
        self.ended = False

    def shut(self) -> None:
        """Makes attempts wait until the gate opens again."""
        self.is_open = False

    def open(self) -> None:
        """Lets attempts pass, including waiting ones; does nothing after `end`."""
        if not self.is_open and not self.ended:
            self.is_open = True
            if self._on_open is not None:
                self._on_open()

    def on_open(self, callback: Callable[[], None]) -> None:
        """Sets the function to run when the gate opens; the rate limiter uses it to admit waiting calls."""
        self._on_open = callback

    def end(self) -> None:
        """Refuses all waiting and future attempts with SendingStopped."""
        self.ended, self.is_open = True, False
        for task in self._waiting:
            self._cancelled.add(task)
            task.cancel()
        self._waiting.clear()

    @asynccontextmanager
    async def interruptible(self) -> AsyncIterator[None]:
        """Lets `end` interrupt any wait inside this `with` block with SendingStopped."""
        if self.ended:
            raise _build_stopped_error()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("waiting needs a task")
        cancel_count = task.cancelling()
        self._waiting.add(task)
        try:
            yield
        except asyncio.CancelledError:
            # the task was cancelled by `end` only, not by its caller
            if task in self._cancelled and task.uncancel() <= cancel_count:
                raise _build_stopped_error() from None
            raise
        finally:
            self._waiting.discard(task)
            self._cancelled.discard(task)


def _build_stopped_error() -> SendingStopped:
    return SendingStopped("nothing more is sent: it was stopped; ask again to go on")


class TokenBucket:
    """A token bucket with a constant fill rate; its level may go below 0, to allow amounts above its size."""

    def __init__(self, per_minute: float, *, now: float) -> None:
        self._rate = per_minute / 60.0  # amount added to the bucket per second
        self._size = max(1.0, self._rate * _BURST_SECONDS)
        self._level = self._size
        self._updated_at = now

    def wait(self, amount: float, *, now: float) -> float:
        """Returns the seconds until `amount` is available; 0 if it is now."""
        self._level = min(self._size, self._level + max(0.0, now - self._updated_at) * self._rate)
        self._updated_at = now
        missing = min(amount, self._size) - self._level
        return missing / self._rate if missing > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        """Takes an amount out of the bucket; a negative amount is put back."""
        self._level -= amount


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: "asyncio.Future[None]"
    weight: float


class RateLimiter:
    """Admits calls in order of arrival; limits concurrency, requests per minute and tokens per minute.

    If adaptive, it starts with a few concurrent calls, and raises this limit while calls succeed: quickly at
    first (slow start), but slowly after an overload, which halves the limit. If there is an `outer` limiter,
    that must then admit the call, too.
    """

    def __init__(
        self,
        limits: RateLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        gate: SendGate | None = None,
        outer: "RateLimiter | None" = None,
        adaptive: bool = True,
    ) -> None:
        """If there is an `outer` limiter, it enforces the rates per minute, and this limiter doesn't."""
        self._loop = loop
        self._outer = outer
        self._gate = gate or SendGate()
        self._gate.on_open(self._admit_waiters)
        now = loop.time()
        self._max_concurrency = limits.concurrency
        self._adaptive = adaptive and limits.adaptive
        self._limit = float(
            min(self._max_concurrency, _INITIAL_CONCURRENCY) if self._adaptive else self._max_concurrency
        )
        # below this number of concurrent calls, the limit doubles in each round of calls
        self._slow_start_limit = float(self._max_concurrency)
        self._reduced_at = float("-inf")  # when the limit was last halved (event loop's clock)
        per_minute = limits.requests_per_minute, limits.tokens_per_minute
        self._requests, self._tokens = (
            None if rate is None or outer is not None else TokenBucket(rate, now=now) for rate in per_minute
        )
        # whether tokens are limited, so that calls need token estimates
        self.counts_tokens: bool = self._tokens is not None if outer is None else outer.counts_tokens
        self.paused_until = now  # no call is admitted before this time (event loop's clock)
        self._waiting: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0

    @property
    def concurrency(self) -> int:
        """How many calls may run at the same time."""
        return int(self._limit)

    def try_enter(self, weight: float = 0.0) -> bool:
        """Admits a call if this is possible now and no other call is waiting; returns whether it did."""
        if self._waiting or self._compute_delay(weight) > 0.0:
            return False
        if self._outer is not None and not self._outer.try_enter(weight):
            return False
        self._take_turn(weight)
        return True

    async def enter(self, weight: float = 0.0, *, until: float = float("inf")) -> None:
        """Waits until a call is admitted; raises TimeoutError after `until`. Must be followed by `leave`."""
        if self.try_enter(weight):
            return
        waiter = _Waiter(self._loop.create_future(), weight)
        self._waiting.append(waiter)
        self._admit_waiters()
        try:
            async with asyncio.timeout_at(until if until < float("inf") else None):
                await waiter.turn
        except BaseException:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._return_own(weight)  # the call was admitted while its wait was being cancelled
            else:
                with contextlib.suppress(ValueError):  # the call may already be removed from the queue
                    self._waiting.remove(waiter)
                self._admit_waiters()  # calls that waited behind this one may be admitted now
            raise
        if self._outer is not None:
            try:
                await self._outer.enter(weight, until=until)
            except BaseException:
                self._return_own(weight)
                raise

    def leave(self, weight: float = 0.0, *, used: float | None = None) -> None:
        """Ends a call that was admitted with an estimate of `weight` tokens; makes room for another call.

        `used` is the call's actual number of tokens; None: unknown, so the estimate still counts.
        """
        if self._outer is not None:
            self._outer._end_turn(weight, used)
        self._end_turn(weight, used)

    def _end_turn(self, weight: float, used: float | None) -> None:
        self.in_flight -= 1
        if self._tokens is not None and used is not None:
            self._tokens.take(used - weight)
        if self._waiting:
            self._admit_waiters()

    def return_unused(self, weight: float = 0.0) -> None:
        """Undoes the admission of a call that wasn't sent."""
        if self._outer is not None:
            self._outer.return_unused(weight)
        self._return_own(weight)

    def _return_own(self, weight: float) -> None:
        if self._requests is not None:
            self._requests.take(-1.0)
        self._end_turn(weight, 0.0)

    def pause(self, until: float) -> None:
        """Admits no call before `until`: if the endpoint tells one caller to wait, all callers wait.

        The endpoint's message isn't kept for the other callers, because it may quote that caller's request.
        """
        self.paused_until = max(self.paused_until, until)

    def report_success(self) -> None:
        """Records a success (before `leave`). Raises the limit of concurrent calls if it is reached."""
        if self._limit < self._max_concurrency and self.in_flight >= self.concurrency:
            step = 1.0 if self._limit < self._slow_start_limit else 1.0 / self._limit
            self._limit = min(float(self._max_concurrency), self._limit + step)

    def report_answering(self) -> None:
        """Records that a reply has begun, which counts as a success; the call is still running."""
        self.report_success()
        self._admit_waiters()

    def report_overload(self, began_at: float) -> bool:
        """Records that a call failed because of overload; if adaptive, halves the limit.

        Does nothing, and returns False, if the call began before the limit was last lowered.
        """
        if began_at < self._reduced_at:
            return False
        if self._adaptive:
            self._reduced_at = self._loop.time()
            self._slow_start_limit = self._limit = max(1.0, self._limit / 2)
        return True

    def restart(self) -> None:
        """Restarts with one concurrent call after an outage, because many calls may be waiting."""
        self._limit = 1.0
        self._slow_start_limit = float(self._max_concurrency)
        self._reduced_at = self._loop.time()

    def _compute_delay(self, weight: float) -> float:
        """Returns the seconds until a call of `weight` tokens may be admitted; infinite if unknown."""
        # the limit of concurrent calls is reached, or nothing may be sent
        if self.in_flight + 1 > self._limit or not self._gate.is_open:
            return math.inf
        now = self._loop.time()
        wait = self.paused_until - now if self.paused_until > now else 0.0
        if self._requests is not None:
            wait = max(wait, self._requests.wait(1.0, now=now))
        if self._tokens is not None:
            wait = max(wait, self._tokens.wait(weight, now=now))
        return wait

    def _take_turn(self, weight: float) -> None:
        self.in_flight += 1
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(weight)

    def _admit_waiters(self) -> None:
        """Admits waiting calls in order; if the next call must wait for a known time, sets a timer."""
        while self._waiting:
            head = self._waiting[0]
            delay = 0.0 if head.turn.done() else self._compute_delay(head.weight)
            if delay > 0.0:
                if delay < float("inf"):
                    self._schedule_wake(delay)
                return
            self._waiting.popleft()
            if not head.turn.done():  # if its future is done, the waiting call was cancelled
                self._take_turn(head.weight)
                head.turn.set_result(None)

    def _schedule_wake(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._admit_waiters)


class Limiters:
    """The rate limiters of one endpoint: one for all calls together, and one per model.

    The limiter for all calls enforces the operator's limits. Each model's limiter adapts to its model, so
    that an overloaded model doesn't hold up calls to others.
    """

    def __init__(self, limits: RateLimits, *, loop: asyncio.AbstractEventLoop, gate: SendGate) -> None:
        self._all = RateLimiter(limits, loop=loop, gate=gate, adaptive=False)
        self._by_model: RecentlyUsed[str, RateLimiter] = RecentlyUsed(
            partial(RateLimiter, limits, loop=loop, outer=self._all)
        )
        self.pick()

    def pick(self, model: object = None) -> RateLimiter:
        """Returns the limiter for calls to this model."""
        return self._by_model.pick(model_key(model))

    @property
    def concurrency(self) -> int:
        """How many calls to the most recently used model may run at the same time."""
        return next(reversed(self._by_model.values())).concurrency

    @property
    def in_flight(self) -> int:
        """Number of calls that were admitted and haven't ended."""
        return self._all.in_flight

    def restart(self) -> None:
        """Restarts each model's limiter with one concurrent call, because the endpoint works again."""
        for limiter in self._by_model.values():
            limiter.restart()


class CircuitBreaker:
    """Stops calls to an endpoint or model for a while if it keeps failing.

    Closed: all calls pass. Open: no call passes for some seconds, then one passes as a test (probe). If the
    test succeeds, the breaker closes; if it fails, the next wait is twice as long.
    """

    def __init__(
        self, settings: BreakerSettings, *, loop: asyncio.AbstractEventLoop, name: str = "the endpoint"
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._name = name  # name of the endpoint or model in error messages
        self._failures = 0  # number of consecutive failures
        self._seconds = settings.seconds
        self._due: float | None = None  # when a test call (probe) may be sent; None: the breaker is closed
        self._probing = False
        self._changed: asyncio.Future[None] | None = None
        # how often the breaker has opened; results of calls that began before it last opened are ignored
        self.generation = 0
        self.opened_at = float("-inf")  # when the breaker last opened (event loop's clock)
        self.remedy = "try again then, or see what is wrong with it"

    @property
    def closed(self) -> bool:
        """Whether the breaker lets all calls pass."""
        return self._due is None

    async def wait_until_ready(self, until: float, *, probes: int) -> None:
        """Waits until calls may be sent, or one call as a test (probe).

        Raises EndpointResting if that won't be before the time `until`, or once `probes` more tests failed.
        """
        last = self.generation + probes
        while self._due is not None:
            now = self._loop.time()
            if not self._probing and now >= self._due:
                return
            if self._due > until or now >= until or self.generation >= last:
                remaining = max(0.0, self._due - now)
                error = EndpointResting(
                    f"{self._name} failed {self._failures} times in a row and is left alone for "
                    f"{remaining:.3g} s more; {self.remedy}"
                )
                error.retry_after = remaining
                raise error
            if self._changed is None:
                self._changed = self._loop.create_future()
            wake = until if self._probing else min(self._due, until)
            await asyncio.wait((self._changed,), timeout=None if wake == float("inf") else wake - now)

    def try_pass(self) -> bool:
        """Whether a call may be sent now; if the breaker is open, as a test, whose end must be reported."""
        if self._due is None:
            return True
        if self._probing or self._loop.time() < self._due:
            return False
        self._probing = True
        return True

    def report_failure(self, generation: int) -> bool:
        """Records a failed call; returns whether this opened the breaker.

        `generation` is how often the breaker had opened when the call began.
        """
        if generation != self.generation:
            return False
        self._failures += 1
        if self._due is not None:  # the breaker was open, so the failed call was a test (probe)
            self._seconds = min(self._settings.longest, self._seconds * 2)
        elif self._failures < self._settings.failures:
            return False
        self._open()
        return True

    def report_success(self, generation: int) -> bool:
        """Records a response, even an error; returns whether this closed the breaker.

        `generation` is how often the breaker had opened when the call began.
        """
        if generation != self.generation:
            return False
        self._failures = 0
        if self._due is None:
            return False
        self._due, self._probing, self._seconds = None, False, self._settings.seconds
        self._notify()
        return True

    def report_unknown(self, generation: int) -> None:
        """Records a call that ended without a result, e.g. by cancellation; another may replace it as a test.

        `generation` is how often the breaker had opened when the call began.
        """
        if generation == self.generation and self._probing:
            self._probing = False
            self._notify()

    def _open(self) -> None:
        self.opened_at = self._loop.time()
        self._due = self.opened_at + self._seconds
        self._probing = False
        self.generation += 1
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None


# which side is blamed for a failure; "": neither, because the endpoint responded
Fault = Literal["endpoint", "model", "both", ""]


class Breakers:
    """The circuit breakers of one endpoint: its own, and one per kind of request.

    The endpoint's breaker counts failures to connect. Later failures (5xx, a broken connection, a timeout)
    count only for one kind of request to one model, so that other requests aren't blocked.
    """

    def __init__(self, settings: BreakerSettings, *, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self.loop = loop
        self._by_kind: RecentlyUsed[tuple[str, frozenset[str]], CircuitBreaker] = RecentlyUsed(
            partial(CircuitBreaker, settings, loop=loop, name="the model")
        )
        self.endpoint = CircuitBreaker(settings, loop=loop)
        self.answered_at = float("-inf")  # time of the last response to any request (event loop's clock)
        self.is_reached = False  # whether a connection ever succeeded
        self._give_up_at = math.inf

    def pick(self, body: Mapping[str, Any]) -> "CallBreaker":
        """Returns the breakers for a call with this body."""
        return CallBreaker(self, self._by_kind.pick(describe_kind(body)))

    @property
    def resting(self) -> tuple[str, ...]:
        """Names of models to which at least one kind of request isn't sent at the moment.

        If no requests are sent to the endpoint at all, "" comes first.
        """
        models = (model for (model, _), breaker in self._by_kind.items() if not breaker.closed)
        return (*(() if self.endpoint.closed else ("",)), *dict.fromkeys(models))

    @property
    def give_up_at(self) -> float:
        """Time after which no call is retried or waits for an open breaker (event loop's clock).

        Infinite if a connection has ever succeeded, or if none has failed yet.
        """
        return math.inf if self.is_reached else self._give_up_at

    def record_unreachable(self, why: str, began_at: float) -> None:
        """Records that an attempt, which began at `began_at`, couldn't connect."""
        # this ends each caller's error message while the breaker is open, so it must not quote any request
        self.endpoint.remedy = f"the last time: {why}"
        self._give_up_at = min(self._give_up_at, began_at + self._settings.first_contact)


class CallBreaker:
    """The two breakers for a call: the endpoint's, and the one for the call's kind of request."""

    def __init__(self, breakers: Breakers, model: CircuitBreaker) -> None:
        self._breakers = breakers
        self._endpoint = breakers.endpoint
        self._model = model
        # how often the model's breaker had opened when it last counted a failure of this call; None: none yet
        self._counted: int | None = None

    @property
    def closed(self) -> bool:
        """Whether both breakers let all calls pass."""
        return self._endpoint.closed and self._model.closed

    @property
    def generation(self) -> tuple[int, int]:
        """How often each breaker has opened; to be read when an attempt starts, and passed to its report."""
        return self._endpoint.generation, self._model.generation

    async def wait_until_ready(self, until: float, *, probes: int) -> None:
        """Waits while either breaker is open; raises EndpointResting if that takes too long."""
        await self._endpoint.wait_until_ready(until, probes=probes)
        await self._model.wait_until_ready(until, probes=probes)

    def try_pass(self) -> bool:
        """Whether the call may be sent now; if it tests an open breaker, its end must be reported."""
        if not self._endpoint.try_pass():
            return False
        if self._model.try_pass():
            return True
        self._endpoint.report_unknown(self._endpoint.generation)
        return False

    def report_failure(self, fault: Fault, generation: tuple[int, int]) -> None:
        """Records a failure of the endpoint, of the model, or of both.

        All attempts of a call count as one failure of the model, because a repeated request says little
        about others. A failed test of an open breaker always counts.
        """
        if fault == "model":
            self._endpoint.report_success(generation[0])
        else:
            self._endpoint.report_failure(generation[0])
        if fault == "endpoint":
            self._model.report_unknown(generation[1])
            return
        if self._model.closed and self._counted == generation[1]:
            return
        self._counted = generation[1]
        self._model.report_failure(generation[1])

    def report_success(self, generation: tuple[int, int]) -> Fault:
        """Records a response; returns whether the endpoint or the model has just recovered ("": neither)."""
        alone = self._breakers.answered_at <= self._model.opened_at
        self._breakers.answered_at = self._breakers.loop.time()
        endpoint_closed = self._endpoint.report_success(generation[0])
        model_closed = self._model.report_success(generation[1])
        return "endpoint" if endpoint_closed else "model" if model_closed and alone else ""

    def report_unknown(self, generation: tuple[int, int]) -> None:
        """Records that the call ended without a result; other calls may then test open breakers."""
        self._endpoint.report_unknown(generation[0])
        self._model.report_unknown(generation[1])


class AttemptTimer:
    """Watches the deadlines of one request, and records whether it was sent and whether a reply has begun.

    A context manager that raises TimeoutError like `asyncio.timeout`. It is entered again for each piece of
    a reply, because the task does other work in between. Its attributes can be read after a cancellation.
    """

    def __init__(self, endpoint: Endpoint, until: float, on_sent: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        own_deadline = self._loop.time() + endpoint.timeouts.total
        self._ends = min(own_deadline, until)
        self._first_byte = endpoint.timeouts.first_byte
        self._on_sent = on_sent
        # whether the caller's deadline comes before the timeout in the settings
        self.caller_deadline_first = until < own_deadline
        self.sent: float | None = None  # when the request was sent; the endpoint may be working since then
        self.headers = False
        self.expired = False

    def mark_sent(self) -> None:
        """Records that the request is being sent; the timeout for the first byte begins."""
        self.sent = self._loop.time()
        if self._on_sent is not None:
            self._on_sent()

    def mark_answering(self) -> None:
        """Records that headers (for a stream, the first event) have arrived."""
        self.headers = True

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task, self._cancelling, self.expired = task, task.cancelling(), False
        self._handle = self._loop.call_at(self._find_due(self._loop.time()), self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        """Cancels the task if a deadline has passed; otherwise checks again later."""
        now = self._loop.time()
        due = self._find_due(now)
        if now < due:
            self._handle = self._loop.call_at(due, self._look)
            return
        self.expired = True
        self.caller_deadline_first = self.caller_deadline_first and due == self._ends
        self._task.cancel()

    def _find_due(self, now: float) -> float:
        """Returns the next deadline; the timeout for the first byte runs only once the request is sent."""
        since = now if self.sent is None else self.sent
        return self._ends if self.headers else min(self._ends, since + self._first_byte)


# seconds from the beginning of an event loop's round in which a task gets a turn at once; after them, tasks
# wait for a later round
_ROUND_SECONDS = 0.004
_TURNS_PER_ROUND = 4  # maximum number of waiting tasks that get a turn per round of the event loop


class LoopShare:
    """Makes tasks take turns in the event loop, so that they don't hold up everything else.

    The event loop runs all ready tasks in one round: if 200 replies arrive at once, nothing else runs until
    all are handled. So a task asks for a turn before each piece of work. It gets one at once in the first
    milliseconds of a round, otherwise in a later round.
    """

    def __init__(self) -> None:
        self._until = 0.0  # until this time, tasks get their turn without waiting
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take_turn(self) -> None:
        """Returns when there is time for one more piece of work, usually at once."""
        if not self._waiting and time.perf_counter() < self._until:
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin_round)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn  # if the task is cancelled during this wait, its turn goes to another task

    def _begin_round(self) -> None:
        self._until = time.perf_counter() + _ROUND_SECONDS
        given = 0
        while self._waiting and given < _TURNS_PER_ROUND:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                given += 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_round)
