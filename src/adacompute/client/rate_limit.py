"""When an attempt may be sent: the send gate, the rate limiter and the circuit breakers."""

import asyncio
import contextlib
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from adacompute.client.settings import BreakerSettings, RateLimits
from adacompute.errors import EndpointResting, SendingStopped

_INITIAL_CONCURRENCY = 8  # calls at the same time, until the endpoint has shown that it can take more
_MAX_MODELS = 256  # that are remembered
_MAX_NAME = 200  # characters of a model's name that are kept
_BURST_SECONDS = 1.0  # a bucket holds this much: in any minute it gives 1/60 more than its rate


class SendGate:
    """Holds back or turns away attempts that aren't sent yet; attempts in flight are never touched."""

    def __init__(self) -> None:
        self._shut = False
        self._on_open: Callable[[], None] | None = None
        self._waiting: set[asyncio.Task[Any]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()
        self.ended = False

    @property
    def is_open(self) -> bool:
        """Whether an attempt may be sent now."""
        return not (self.ended or self._shut)

    def shut(self) -> None:
        """From now on attempts wait."""
        self._shut = True

    def open(self) -> None:
        """From now on attempts pass, including those that waited."""
        if self._shut:
            self._shut = False
            if self._on_open is not None:
                self._on_open()

    def on_open(self, callback: Callable[[], None]) -> None:
        """Sets what is called when the gate opens; the rate limiter keeps the queue meanwhile."""
        self._on_open = callback

    def end(self) -> None:
        """From now on nothing more is sent: everything that comes or waits gets SendingStopped."""
        self.ended = True
        for task in self._waiting:
            self._cancelled.add(task)
            task.cancel()
        self._waiting.clear()

    @asynccontextmanager
    async def interruptible(self) -> AsyncIterator[None]:
        """Any wait inside this block is cut short by `end`, with SendingStopped."""
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
            if task in self._cancelled and task.uncancel() <= cancel_count:  # nobody else wants it cancelled
                raise _build_stopped_error() from None
            raise
        finally:
            self._waiting.discard(task)
            self._cancelled.discard(task)


def _build_stopped_error() -> SendingStopped:
    return SendingStopped("nothing more is sent: it was stopped; ask again to go on")


class TokenBucket:
    """A token bucket that fills steadily.

    It may go into debt, so that an amount above its size passes at all.
    """

    def __init__(self, per_minute: float, *, now: float) -> None:
        self._rate = per_minute / 60.0  # per second
        self._size = max(1.0, self._rate * _BURST_SECONDS)
        self._level = self._size
        self._updated_at = now

    def wait(self, amount: float, *, now: float) -> float:
        """Seconds until that much may be taken; 0: now."""
        self._level = min(self._size, self._level + max(0.0, now - self._updated_at) * self._rate)
        self._updated_at = now
        missing = min(amount, self._size) - self._level
        return missing / self._rate if missing > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        """Takes it, or gives it back where it is below 0."""
        self._level -= amount


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: "asyncio.Future[None]"
    weight: float


class RateLimiter:
    """Admits calls first come, first served: so many at once, so many requests and tokens a minute.

    If it is adaptive, it starts with a few at once and doubles that with each round that succeeds
    (slow start). If the endpoint is overloaded it halves the number, once a round trip, and then
    grows it by one a round. A call that it has admitted waits for the `outer` one next.
    """

    def __init__(
        self,
        limits: RateLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        gate: SendGate | None = None,
        fixed: bool = False,
        outer: "RateLimiter | None" = None,
    ) -> None:
        """`fixed`: it never adapts. With an `outer` one, the rates are that one's."""
        self._loop = loop
        self._outer = outer
        self._gate = gate or SendGate()
        self._gate.on_open(self._admit_waiters)
        now = loop.time()
        self._max_concurrency = limits.concurrency
        self._adaptive = limits.adaptive and not fixed
        self._limit = float(
            min(self._max_concurrency, _INITIAL_CONCURRENCY) if self._adaptive else self._max_concurrency
        )
        self._slow_start_limit = float(self._max_concurrency)  # up to here it doubles
        self._reduced_at = float("-inf")  # when it was last halved
        per_minute = limits.requests_per_minute, limits.tokens_per_minute
        self._requests, self._tokens = (
            None if rate is None or outer is not None else TokenBucket(rate, now=now) for rate in per_minute
        )
        self.paused_until = now  # nobody is let in before this time of the loop
        self._waiting: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0

    @property
    def concurrency(self) -> int:
        """How many calls may run at the same time now."""
        return int(self._limit)

    @property
    def counts_tokens(self) -> bool:
        """Whether there is a limit of tokens, so that it needs an estimate of each call's tokens."""
        return self._tokens is not None or (self._outer is not None and self._outer.counts_tokens)

    def try_enter(self, weight: float = 0.0) -> bool:
        """Takes a turn if one is free now and nobody waits for it."""
        if self._waiting or self._compute_delay(weight) > 0.0:
            return False
        if self._outer is not None and not self._outer.try_enter(weight):
            return False
        self._take_turn(weight)
        return True

    async def enter(self, weight: float = 0.0, *, until: float = float("inf")) -> None:
        """Waits for a turn; TimeoutError where none came in time. Each turn is ended by `leave`."""
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
                self._return_own(weight)  # its turn came while the wait was being cancelled
            else:
                with contextlib.suppress(ValueError):  # it was removed from the queue already
                    self._waiting.remove(waiter)
                self._admit_waiters()  # it may have been the head of the queue
            raise
        if self._outer is not None:
            try:
                await self._outer.enter(weight, until=until)
            except BaseException:
                self._return_own(weight)
                raise

    def leave(self, weight: float = 0.0, *, used: float | None = None) -> None:
        """Ends a turn; `used` is the tokens that it really took, if that is known."""
        if self._outer is not None:
            self._outer.leave(weight, used=used)
        self._end_turn(weight, used)

    def _end_turn(self, weight: float, used: float | None) -> None:
        self.in_flight -= 1
        if self._tokens is not None and used is not None:
            self._tokens.take(used - weight)
        if self._waiting:
            self._admit_waiters()

    def return_unused(self, weight: float = 0.0) -> None:
        """Gives back a turn in which nothing was sent."""
        if self._outer is not None:
            self._outer.return_unused(weight)
        self._return_own(weight)

    def _return_own(self, weight: float) -> None:
        if self._requests is not None:
            self._requests.take(-1.0)
        self._end_turn(weight, 0.0)

    def pause(self, until: float) -> None:
        """Admits nobody before `until`: one caller was told to wait, and that holds for all.

        What the endpoint said isn't kept: it may quote that caller's request.
        """
        self.paused_until = max(self.paused_until, until)

    def report_success(self) -> None:
        """Reports a success, before the call leaves; more are admitted if all turns were taken."""
        if self._limit < self._max_concurrency and self.in_flight >= self.concurrency:
            step = 1.0 if self._limit < self._slow_start_limit else 1.0 / self._limit
            self._limit = min(float(self._max_concurrency), self._limit + step)

    def report_answering(self) -> None:
        """Reports that a call has begun to answer: as `report_success`, but its turn isn't free yet."""
        self.report_success()
        self._admit_waiters()

    def report_overload(self, began_at: float) -> bool:
        """Reports that a call which began then met an overloaded endpoint; returns whether that is news.

        It isn't where the call began before the last halving. Without adaptation, every report is news.
        """
        if began_at < self._reduced_at:
            return False
        if self._adaptive:
            self._reduced_at = self._loop.time()
            self._slow_start_limit = self._limit = max(1.0, self._limit / 2)
        return True

    def restart(self) -> None:
        """Restarts with one call at a time: after a rest, so that waiters don't come all at once."""
        self._limit = 1.0
        self._slow_start_limit = float(self._max_concurrency)
        self._reduced_at = self._loop.time()

    def _compute_delay(self, weight: float) -> float:
        """Seconds until a call of that weight may enter; infinite where another has to leave first."""
        if self.in_flight + 1 > self._limit or not self._gate.is_open:  # all of `concurrency` are taken
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
        """Admits whoever may enter, in order; sets a timer where the next one only waits for the clock."""
        while self._waiting:
            head = self._waiting[0]
            delay = 0.0 if head.turn.done() else self._compute_delay(head.weight)
            if delay > 0.0:
                if delay < float("inf"):
                    self._schedule_wake(delay)
                return
            self._waiting.popleft()
            if not head.turn.done():  # else the wait was cancelled
                self._take_turn(head.weight)
                head.turn.set_result(None)

    def _schedule_wake(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._admit_waiters)


class Limiters:
    """The rate limiters of one endpoint: one for all that is sent, and one for each model.

    The first holds what the operator allows. Those of models adapt: a model that hangs, or asks to slow down,
    takes no turns from others. Clients choose the names of models, so those unused for longest are forgotten.
    """

    def __init__(self, limits: RateLimits, *, loop: asyncio.AbstractEventLoop, gate: SendGate) -> None:
        self._loop = loop
        self._limits = limits
        self._all = RateLimiter(limits, loop=loop, gate=gate, fixed=True)
        self._by_model: OrderedDict[str, RateLimiter] = OrderedDict()
        self.pick()

    def pick(self, model: object = None) -> RateLimiter:
        """Where a call to that model waits for its turn."""
        key = model[:_MAX_NAME] if isinstance(model, str) else ""
        limiter = self._by_model.get(key)
        if limiter is None:
            limiter = RateLimiter(self._limits, loop=self._loop, outer=self._all)
            self._by_model[key] = limiter
            if len(self._by_model) > _MAX_MODELS:
                self._by_model.popitem(last=False)
        self._by_model.move_to_end(key)
        return limiter

    @property
    def concurrency(self) -> int:
        """How many calls to the model that was used last may run at the same time now."""
        return next(reversed(self._by_model.values())).concurrency

    @property
    def in_flight(self) -> int:
        """How many calls have a turn now."""
        return self._all.in_flight

    def restart(self) -> None:
        """Restarts all models with one call at a time: the endpoint is back."""
        for limiter in self._by_model.values():
            limiter.restart()


class CircuitBreaker:
    """Leaves an endpoint, or one model of it, alone that keeps failing.

    Closed: all calls pass. Open: none does. When its rest is over, one call is let through as the
    probe: if it succeeds the breaker closes, if it fails the next rest is twice as long.
    """

    def __init__(
        self, settings: BreakerSettings, *, loop: asyncio.AbstractEventLoop, name: str = "the endpoint"
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._name = name  # what it leaves alone, for messages
        self._failures = 0  # in a row
        self._seconds = settings.seconds
        self._due: float | None = None  # when the next probe may go; None: closed
        self._probing = False
        self._changed: asyncio.Future[None] | None = None
        # Counts openings: a call from before the last one says nothing about the time after it.
        self.generation = 0
        self.opened_at = float("-inf")  # when it last opened, by the loop's clock
        self.remedy = "try again then, or see what is wrong with it"

    @property
    def closed(self) -> bool:
        """Whether all calls pass."""
        return self._due is None

    @property
    def patience(self) -> float:
        """Seconds that a call waits for the end of rests, at most."""
        return self._settings.patience

    async def wait_until_ready(self, until: float, *, probes: int, patience: float | None = None) -> None:
        """Waits while it is open.

        Raises EndpointResting where that takes longer than `until` or `patience` allow (by default the
        settings' patience), or where so many probes have failed meanwhile: as many as a call has
        attempts.
        """
        last = self.generation + probes
        until = min(until, self._loop.time() + (self._settings.patience if patience is None else patience))
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
        """Whether a call may go now.

        True while the breaker is open makes that call the probe, whose end must be reported.
        """
        if self._due is None:
            return True
        if self._probing or self._loop.time() < self._due:
            return False
        self._probing = True
        return True

    def report_failure(self, generation: int) -> bool:
        """Reports a failure of a call that passed in that generation; True where this opened the breaker."""
        if generation != self.generation:
            return False
        self._failures += 1
        if self._due is not None:  # the probe failed
            self._seconds = min(self._settings.longest, self._seconds * 2)
        elif self._failures < self._settings.failures:
            return False
        self._open()
        return True

    def report_success(self, generation: int) -> bool:
        """Reports that the endpoint answered, whatever it said; True where this closed the breaker."""
        if generation != self.generation:
            return False
        self._failures = 0
        if self._due is None:
            return False
        self._due, self._probing, self._seconds = None, False, self._settings.seconds
        self._notify()
        return True

    def report_unknown(self, generation: int) -> None:
        """Reports that a call ended without a verdict, e.g. was cancelled: another may be the probe."""
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


# whose fault a failure is; "both": it may be either's; "": neither's, as it answered
Fault = Literal["endpoint", "model", "both", ""]
_MAX_BREAKERS = 256  # kinds of requests that are remembered: clients choose the names of models
_LONG_PROMPT = (
    32 * 2**10
)  # characters from which a request is of another kind: some servers fail at long ones
_TEXT_PARTS = (None, "text", "input_text", "refusal")  # types of the parts of a message that any model takes
# fields that any model takes, and those that come and go between calls of one request; requests that
# differ in these alone are alike
_EVERYDAY_FIELDS = frozenset(
    {
        "frequency_penalty",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "n",
        "presence_penalty",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_logprobs",
        "top_p",
        "user",
    }
)


def describe_kind(body: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """The model of a request, and what is special about it: requests of one kind fail together.

    >>> describe_kind({"model": "m", "temperature": 1, "tools": []})
    ('m', frozenset({'tools'}))
    """
    special: set[str] = set()
    if not _EVERYDAY_FIELDS.issuperset(body):
        special = {name for name in body.keys() - _EVERYDAY_FIELDS if body[name] is not None}
    contents = _read_contents(body)
    if any(isinstance(content, list) and any(map(_is_media, content)) for content in contents):
        special.add("media")
    if sum([len(content) for content in contents if isinstance(content, str)]) > _LONG_PROMPT:
        special.add("long")
    return str(body.get("model") or "")[:_MAX_NAME], frozenset(special)


def count_text(body: Mapping[str, Any]) -> int:
    """Characters of the messages that are plain texts: pictures take far fewer tokens than characters."""
    return sum(len(content) for content in _read_contents(body) if isinstance(content, str))


def _read_contents(body: Mapping[str, Any]) -> list[object]:
    messages = body.get("messages")
    if not isinstance(messages, (list, tuple)):
        return []
    return [message.get("content") for message in messages if isinstance(message, (dict, Mapping))]


def _is_media(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") not in _TEXT_PARTS


class Breakers:
    """The circuit breakers of one endpoint: its own, and one for each kind of request.

    Its own opens where no connection comes about, whatever the request. A failure after that (a 5xx, a
    connection that breaks off, a timeout) is one of the model, at requests like this one: neither a model
    that fails, nor a request that no model can answer, keeps others from being sent.
    """

    def __init__(self, settings: BreakerSettings, *, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._loop = loop
        self._by_kind: OrderedDict[tuple[str, frozenset[str]], CircuitBreaker] = OrderedDict()
        self.endpoint = CircuitBreaker(settings, loop=loop)
        self.answered_at = float("-inf")  # when any request was last answered, by the loop's clock
        self.is_reached = False  # whether a connection ever came about
        self._give_up_at = math.inf

    def pick(self, body: Mapping[str, Any]) -> "CallBreaker":
        """What a call with that body has to pass."""
        kind = describe_kind(body)
        breaker = self._by_kind.get(kind)
        if breaker is None:
            breaker = CircuitBreaker(self._settings, loop=self._loop, name="the model")
            self._by_kind[kind] = breaker
            if len(self._by_kind) > _MAX_BREAKERS:
                self._by_kind.popitem(last=False)
        self._by_kind.move_to_end(kind)
        return CallBreaker(self, breaker)

    @property
    def resting(self) -> tuple[str, ...]:
        """The models at which requests of some kind are held back now; first "", where all requests are."""
        models = (model for (model, _), breaker in self._by_kind.items() if not breaker.closed)
        return (*(() if self.endpoint.closed else ("",)), *dict.fromkeys(models))

    @property
    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    @property
    def give_up_at(self) -> float:
        """When calls to an endpoint that was never reached are given up; infinite once it was."""
        return math.inf if self.is_reached else self._give_up_at

    def record_unreachable(self, why: str, began_at: float) -> None:
        """Records that an attempt which began then didn't connect."""
        self.endpoint.remedy = f"the last time: {why}"  # our own words: nothing of another request
        self._give_up_at = min(self._give_up_at, began_at + self._settings.first_contact)


class CallBreaker:
    """The two breakers that one call has to pass: the endpoint's, and that of its kind of request."""

    def __init__(self, breakers: Breakers, model: CircuitBreaker) -> None:
        self._breakers = breakers
        self._endpoint = breakers.endpoint
        self._model = model
        self._counted: int | None = None  # the generation in which a failure of this call was counted

    @property
    def closed(self) -> bool:
        """Whether the call passes at once."""
        return self._endpoint.closed and self._model.closed

    @property
    def generation(self) -> tuple[int, int]:
        """Says for a later report when it passed."""
        return self._endpoint.generation, self._model.generation

    @property
    def patience(self) -> float:
        """Seconds that a call waits for the end of rests, at most."""
        return self._endpoint.patience

    async def wait_until_ready(self, until: float, *, probes: int, patience: float) -> None:
        """Waits while one of them is open; EndpointResting as `CircuitBreaker.wait_until_ready`."""
        until = min(until, self._breakers.now + patience)
        await self._endpoint.wait_until_ready(until, probes=probes)
        await self._model.wait_until_ready(until, probes=probes)

    def try_pass(self) -> bool:
        """Whether the call may go now, maybe as a probe, whose end must be reported."""
        if not self._endpoint.try_pass():
            return False
        if self._model.try_pass():
            return True
        self._endpoint.report_unknown(self._endpoint.generation)
        return False

    def report_failure(self, fault: Fault, generation: tuple[int, int]) -> None:
        """Reports a failure of that side.

        All attempts of one call count as one failure of the model: the same request fails again and again,
        which says little about others. A probe's failure always counts.
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
        """Reports an answer; whose rest has ended by it, if nothing else was answered meanwhile."""
        alone = self._breakers.answered_at <= self._model.opened_at
        self._breakers.answered_at = self._breakers.now
        endpoint_closed = self._endpoint.report_success(generation[0])
        model_closed = self._model.report_success(generation[1])
        return "endpoint" if endpoint_closed else "model" if model_closed and alone else ""

    def report_unknown(self, generation: tuple[int, int]) -> None:
        """Reports an end without a verdict: others may be the probes."""
        self._endpoint.report_unknown(generation[0])
        self._model.report_unknown(generation[1])
