"""One call with its retries: waiting for a turn, sending, interpreting the reply, trying again.

Every attempt is counted once, reported to the rate limiter and the circuit breaker, and learned from.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from orjson import Fragment
from yarl import URL

from adacompute.client.attempt import (
    AttemptTimer,
    HttpReply,
    compute_backoff,
    is_overload,
    is_retryable,
    is_transport_failure,
)
from adacompute.client.rate_limit import CircuitBreaker, RateLimiter, SendGate
from adacompute.client.response_parser import (
    Reply,
    build_responses,
    encode_json_with,
    estimate_prompt_tokens,
    one_line,
    parse_cached_tokens,
    parse_choices,
    parse_count,
    read_token_cap,
)
from adacompute.client.server_quirks import ServerQuirks, find_refused_fields, is_about_n
from adacompute.client.settings import Endpoint
from adacompute.errors import (
    EndpointError,
    EndpointRefused,
    EndpointTimeout,
    RateLimited,
    ReplyInvalid,
    SendingStopped,
)
from adacompute.records import Call, Paid

__all__ = [
    "SPENDING_STOPPED",
    "CallAttempt",
    "CallListener",
    "CallTotals",
    "CallWithRetries",
    "Caller",
    "CompletionCall",
    "SentRequest",
    "TooManyChoices",
    "interpret_reply",
]

if TYPE_CHECKING:
    from adacompute.client.transport import Transport


class TooManyChoices(EndpointRefused):
    """The server refused that many choices at once, and may give fewer."""

    kind = "n-limit"

    def __init__(self, message: str, fewer: int, *, status: int) -> None:
        super().__init__(message, status=status)
        self.fewer = fewer  # that may pass


class FieldsRefused(EndpointRefused):
    """The server refused fields that may be left out, so the call is tried again without them."""

    def __init__(self, message: str, fields: frozenset[str], *, status: int) -> None:
        super().__init__(message, status=status)
        self.fields = fields
        self.kind = "no-stream-options" if "stream_options" in fields else "no-logprobs"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as it was sent: its body, for `n` choices of at most `cap` tokens each."""

    body: Mapping[str, Any]
    n: int
    cap: int | None
    at: float  # seconds since 1970, when it was sent
    seconds: float  # until it was answered
    optional: frozenset[str] = frozenset()  # fields that may be left out where they are refused


def interpret_reply(
    request: SentRequest, http_reply: HttpReply, *, transport: "Transport", url: URL, quirks: ServerQuirks
) -> Reply:
    """The reply, with its one call, or its error raised. The quirks learn from either.

    Whatever the server sends may break one call only: anything unforeseen is ReplyInvalid.
    """
    try:
        if http_reply.status == 200:
            return _build_reply(request, http_reply, transport, quirks)
        error = _build_refusal(request, http_reply, transport, url, quirks)
    except EndpointError:
        raise
    except Exception as exc:  # noqa: BLE001 - see above
        why = one_line(transport.redact(f"{type(exc).__name__}: {exc}"))
        error = ReplyInvalid(
            f"{url}: answered {http_reply.status} with what can't be read ({why}); try again",
            status=http_reply.status,
            paid=True,
        )
    raise error


def _build_reply(
    request: SentRequest, http_reply: HttpReply, transport: "Transport", quirks: ServerQuirks
) -> Reply:
    choices, received = parse_choices(http_reply.value, redact=transport.redact)
    body: dict[str, Any] = http_reply.value  # type: ignore[assignment] # choices_of has seen that it is one
    model = request.body.get("model")
    quirks.record_choices(request.n, received, model)
    if request.body.get("logprobs"):
        has_logprobs = any(choice.tokens is not None for choice in choices)
        quirks.models.record_logprobs(model, logprobs=has_logprobs)
    model_quirks = quirks.models.ensure_quirks(model)
    responses, token_count = build_responses(
        choices, body, requested=request.n, cap=request.cap, quirks=model_quirks
    )
    usage = body.get("usage")
    prompt = parse_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    call = Call(
        at=request.at,
        seconds=request.seconds,
        asked=request.n,
        got=len(responses),
        surplus=received - len(responses),
        status=200,
        prompt_tokens=estimate_prompt_tokens(request.body) if prompt is None else prompt,
        cached_tokens=parse_cached_tokens(usage, prompt),
        completion_tokens=token_count.total,
        estimated=token_count.estimated or prompt is None,
    )
    return Reply(responses=responses, calls=(call,), body=body)


def _build_refusal(
    request: SentRequest, http_reply: HttpReply, transport: "Transport", url: URL, quirks: ServerQuirks
) -> EndpointError:
    """The error for a status; learns from it how many choices are too many."""
    error, message, param = transport.build_refusal(url, http_reply)
    if http_reply.status in (400, 422):
        fields = find_refused_fields(message, param, request.body, optional=request.optional)
        if fields:
            return FieldsRefused(str(error), fields, status=http_reply.status)
        if is_about_n(message, param) and (
            fewer := quirks.record_refusal(request.n, message, request.body.get("model"))
        ):
            return TooManyChoices(str(error), fewer, status=http_reply.status)
    error.retry_after = http_reply.retry_after
    return error


@dataclass(slots=True)
class CallTotals:
    """Running totals over all attempts of a client; every attempt is in exactly one kind."""

    calls: int = 0  # attempts, also failed and cancelled ones
    kinds: Counter[str] = field(default_factory=Counter)  # "ok", or the kind of the error
    paid: int = 0  # calls that were paid for
    maybe: int = 0  # calls that may have been
    responses: int = 0  # choices that could be used
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 0  # now

    def add(self, call: Call) -> None:
        """Counts one attempt."""
        self.calls += 1
        self.kinds[call.kind] += 1
        self.paid += call.paid == "yes"
        self.maybe += call.paid == "maybe"
        self.responses += call.got
        self.prompt_tokens += call.prompt_tokens or 0
        self.completion_tokens += call.completion_tokens or 0


if TYPE_CHECKING:
    from adacompute.client.transport import Transport

# Called with every attempt that has ended. The listener of one call or draw may return False: nothing more
# is sent for it. It may return a future: nothing is sent until that is done, and then only if not False.
CallListener = Callable[[Call], object]


class Caller:
    """What all calls of one client share: transport, rate limiter, breaker, quirks and totals."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        transport: "Transport",
        quirks: ServerQuirks,
        totals: CallTotals,
        gate: SendGate,
        rng: random.Random,
        on_call: CallListener | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.endpoint = endpoint
        self.transport = transport
        self.quirks = quirks
        self.totals = totals
        self.gate = gate
        self.rng = rng
        self.on_call = on_call
        self.url = URL(endpoint.chat)
        self.limiter = RateLimiter(endpoint.limits, loop=self.loop, gate=gate)
        self.breaker = CircuitBreaker(endpoint.rest, loop=self.loop)


class AttemptOwner(Protocol):
    """The call that an attempt belongs to."""

    caller: Caller
    n: int
    backoff: float

    @property
    def caller_deadline_first(self) -> bool:
        """Whether the caller's deadline comes first."""

    def record_attempt(self, call: Call) -> None:
        """Counts an attempt that has ended, and tells the listeners."""

    def release_turn(self, used: float | None) -> None:
        """Gives back the turn of the attempt."""


class CallAttempt:
    """One attempt of a call, from its turn to its end.

    Ended by the first of the three reports (success, failure, cancelled), which counts it and gives its
    turn back.
    """

    __slots__ = (
        "_answer_began",
        "_ended",
        "_generation",
        "_owner",
        "_tries",
        "began_at",
        "sent_at",
        "timer",
    )

    def __init__(self, owner: AttemptOwner, tries: int, until: float) -> None:
        caller = owner.caller
        self._owner = owner
        self._tries = tries
        self._generation = caller.breaker.generation
        self._ended = self._answer_began = False
        self.began_at, self.sent_at = caller.loop.time(), time.time()
        self.timer = AttemptTimer(caller.endpoint, until, caller.loop)
        caller.totals.in_flight += 1

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._owner.caller.loop.time() - self.began_at

    def mark_answering(self) -> None:
        """It has begun to answer. Its end may be far off, so the breaker and the limiter are informed
        now.
        """
        caller, self._answer_began = self._owner.caller, True
        if not caller.breaker.closed and caller.breaker.report_success(self._generation):
            caller.limiter.restart()
        caller.limiter.report_answering()

    def report_success(self, call: Call) -> None:
        """It succeeded, and used the tokens that `call` says."""
        if self._ended:
            return
        caller = self._owner.caller
        if caller.breaker.report_success(self._generation):
            caller.limiter.restart()
        if not self._answer_began:
            caller.limiter.report_success()
        self._finish(call, used=float((call.prompt_tokens or 0) + (call.completion_tokens or 0)))

    def report_failure(self, error: EndpointError, so_far: tuple[int, int] | None = None) -> None:
        """It failed, or broke off after so many tokens of prompt and response."""
        if self._ended:
            return
        self._inform_limits(error)
        self._set_backoff(error)  # before it leaves, or another would be let in at once
        paid: Paid = "maybe" if error.paid else "no"
        call = self._build_call(error.kind, paid, so_far, status=error.status)
        self._finish(call, used=None if error.paid else 0.0)

    def report_cancelled(self, so_far: tuple[int, int] | None = None) -> None:
        """The caller cancelled it, after so many tokens."""
        if self._ended:
            return
        self._owner.caller.breaker.report_unknown(self._generation)
        paid: Paid = "maybe" if self.timer.sent is not None else "no"
        self._finish(self._build_call("cancelled", paid, so_far, status=None), used=None)

    def _inform_limits(self, error: EndpointError) -> None:
        owner, caller = self._owner, self._owner.caller
        caller_gave_up = (
            owner.caller_deadline_first and self.timer.expired and self.timer.caller_deadline_first
        )
        is_news = caller_gave_up or not is_overload(error) or caller.limiter.report_overload(self.began_at)
        if caller_gave_up or (error.status == 503 and not is_news):
            # a deadline that the caller set says nothing about the endpoint; nor does another "overloaded" in
            # the round trip in which the rate limiter was told so already
            caller.breaker.report_unknown(self._generation)
        elif is_transport_failure(error):
            caller.breaker.report_failure(self._generation)
        elif caller.breaker.report_success(self._generation):
            caller.limiter.restart()

    def _set_backoff(self, error: EndpointError) -> None:
        """Sets how long to wait; where the endpoint asks to slow down, that holds for all callers."""
        caller, retries = self._owner.caller, self._owner.caller.endpoint.retries
        requested = error.retry_after
        wait = self._owner.backoff = compute_backoff(self._tries, retries, caller.rng, requested=requested)
        if isinstance(error, RateLimited):
            longest = (
                retries.deadline
                if requested is not None and requested <= retries.deadline
                else retries.longest
            )
            caller.limiter.pause(caller.loop.time() + min(wait, longest))

    def _build_call(
        self, kind: str, paid: Paid, so_far: tuple[int, int] | None, *, status: int | None
    ) -> Call:
        prompt, completion = so_far or (None, None)
        return Call(
            at=self.sent_at,
            seconds=self.seconds,
            asked=self._owner.n,
            got=0,
            kind=kind,
            paid=paid,
            status=status,
            prompt_tokens=prompt,
            completion_tokens=completion,
            estimated=so_far is not None,
        )

    def _finish(self, call: Call, *, used: float | None) -> None:
        self._ended = True
        try:
            self._owner.record_attempt(call)
        finally:
            self._owner.caller.totals.in_flight -= 1
            self._owner.release_turn(used)


T = TypeVar("T")

SPENDING_STOPPED = "nothing more is sent for this request, for no more may be spent on it; ask for less"
_DEFAULT_RESERVATION = 512  # tokens reserved for a response without a limit, until its real number is known


class CallWithRetries(Generic[T]):
    """One call and its progress. Subclasses define what one attempt is, and what it returns."""

    __slots__ = (
        "_body",
        "_cap",
        "_data",
        "_deadline",
        "_encoded_fields",
        "_first_refusal",
        "_on_call",
        "_optional",
        "_removed_fields",
        "_until",
        "_weight",
        "backoff",
        "caller",
        "calls",
        "idle",
        "n",
        "permission",
        "stopped",
    )

    def __init__(
        self,
        caller: Caller,
        body: Mapping[str, Any],
        n: int,
        deadline: float,
        on_call: CallListener | None = None,
        encoded_fields: Mapping[str, Fragment] | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self.caller = caller
        self.calls: list[Call] = []
        self.idle = True  # no attempt is running: it waits for its turn, or before a retry
        self.stopped = False  # True: nothing more is to be sent
        self.permission: asyncio.Future[Any] | None = (
            None  # whether more may be sent; until it is done nothing is
        )
        self.n = n
        self.backoff = 0.0  # seconds to wait after the last attempt
        self._on_call = on_call
        self._encoded_fields = encoded_fields  # fields of the body that are encoded already
        self._optional = optional  # fields that may be left out where they are refused
        self._removed_fields: set[str] = set()  # fields that were removed because they were refused
        self._first_refusal: EndpointRefused | None = None  # the first refusal of a field
        self._deadline = deadline
        self._until = min(deadline, caller.loop.time() + caller.endpoint.retries.deadline)
        self._body = dict(body)
        if n > 1 or "n" in body:
            self._body["n"] = n
        self._cap = read_token_cap(body)
        self._data = b""
        self._weight = 0.0

    @property
    def caller_deadline_first(self) -> bool:
        """Whether the caller's deadline comes first."""
        return self._deadline <= self._until

    async def run(self) -> T:
        """The result, or the error, with all attempts that were made."""
        try:
            return await self._run_attempts()
        except EndpointError as error:
            self.attach_calls(error)
            raise

    def attach_calls(self, error: EndpointError) -> None:
        """Attaches the attempts that were made to the error."""
        error.calls = tuple(self.calls)
        error.paid = any(call.paid != "no" for call in self.calls)

    def record_attempt(self, call: Call) -> None:
        """Counts an attempt that has ended, and tells the listeners."""
        self.calls.append(call)
        self.caller.totals.add(call)
        if self.caller.on_call is not None:
            self.caller.on_call(call)
        answer = None if self._on_call is None else self._on_call(call)
        if isinstance(answer, asyncio.Future):
            self.permission = answer
        elif answer is False:
            self.stopped = True

    def release_turn(self, used: float | None) -> None:
        """Gives back the turn of the attempt; `used` is the tokens that it took, where that is known."""
        self.caller.limiter.leave(self._weight, used=used)

    async def _attempt_once(self, tries: int) -> T:
        """One attempt, ended by a report to its CallAttempt."""
        raise NotImplementedError

    def describe_request(self, attempt: CallAttempt) -> SentRequest:
        """What is asked in that attempt, and how long it has taken so far."""
        return SentRequest(self._body, self.n, self._cap, attempt.sent_at, attempt.seconds, self._optional)

    async def _run_attempts(self) -> T:
        tries, caller = 0, self.caller
        while True:
            self._prepare_body()
            await self._wait_for_turn(tries)
            tries += 1
            try:
                result = await self._run_one_attempt(tries)
            except FieldsRefused as error:
                await self._wait_for_permission()
                self._drop_refused_fields(error)
                tries -= 1  # nothing failed: it is sent again at once, without the refused fields
            except EndpointError as error:
                await self._wait_for_permission()
                self._raise_first_refusal(error)
                wait = self._compute_wait(error, tries)
                if wait is None:
                    raise
                async with caller.gate.interruptible():
                    await asyncio.sleep(wait)
            else:
                self._learn_fields()
                return result

    async def _run_one_attempt(self, tries: int) -> T:
        self.idle = False
        try:
            return await self._attempt_once(tries)
        finally:
            self.idle = True

    def _drop_refused_fields(self, error: FieldsRefused) -> None:
        """Removes the refused fields; whether they were the reason is known when the rest succeeds."""
        refusal = EndpointRefused(str(error), status=error.status)
        if self.stopped:
            raise refusal from None
        self._first_refusal = self._first_refusal or refusal
        self._removed_fields |= error.fields
        self._remove_fields(error.fields)

    def _raise_first_refusal(self, error: EndpointError) -> None:
        """Refused without the fields as well: they weren't the reason, so the first refusal is raised."""
        is_refusal = isinstance(error, EndpointRefused) and not isinstance(error, TooManyChoices)
        if self._first_refusal is not None and is_refusal:
            raise self._first_refusal from None

    def _learn_fields(self) -> None:
        """The call succeeded with the fields in it, and without those that were removed."""
        models = self.caller.quirks.models
        models.record_accepted(self._body)
        if self._removed_fields:
            models.record_refused_fields(self._body.get("model"), self._removed_fields)

    def _remove_fields(self, fields: frozenset[str]) -> None:
        if "logprobs" in fields:
            fields |= {"top_logprobs"}  # which mean nothing without logprobs
        for name in fields & self._body.keys():
            del self._body[name]
            self._data = b""

    def _prepare_body(self) -> None:
        caller = self.caller
        if self._optional and (fields := self._optional & self._body.keys()):
            self._remove_fields(caller.quirks.models.find_fields_to_skip(self._body.get("model"), fields))
        if not self._data:
            self._data = encode_json_with(self._body, self._encoded_fields)
            if caller.limiter.counts_tokens:
                per_response = _DEFAULT_RESERVATION if self._cap is None else self._cap
                self._weight = float(estimate_prompt_tokens(self._body) + self.n * per_response)

    async def _wait_for_turn(self, tries: int) -> None:
        """Waits for the gate, the breaker and the rate limiter.

        The settings' deadline runs from the first turn on, because our own queue is no fault of the
        endpoint. The caller's deadline runs all the time.
        """
        caller = self.caller
        while True:
            await self._wait_for_permission()
            self._check_stopped()
            if not (caller.gate.is_open and caller.breaker.closed and caller.limiter.try_enter(self._weight)):
                async with caller.gate.interruptible():
                    await self._wait_in_queue(tries)
            if self.permission is None:
                break
            self._return_turn()  # permission is pending for its draw: nobody waits while holding a turn
        now = caller.loop.time()
        if tries == 0:
            self._until = min(self._deadline, now + caller.endpoint.retries.deadline)
        if now >= self._until or self.stopped:
            self._return_turn()
            self._check_stopped()
            raise self._build_no_turn_error()

    async def _wait_for_permission(self) -> None:
        """Waits until it is known whether more may be sent."""
        while (permission := self.permission) is not None:
            answer = await asyncio.shield(permission)  # others may wait for it too
            if self.permission is permission:
                self.permission = None
            self.stopped = self.stopped or answer is False

    def _return_turn(self) -> None:
        """Returns the turn without sending anything in it."""
        caller = self.caller
        caller.breaker.report_unknown(caller.breaker.generation)
        caller.limiter.return_unused(self._weight)

    async def _wait_in_queue(self, tries: int) -> None:
        caller, limiter, retries = self.caller, self.caller.limiter, self.caller.endpoint.retries
        latest, patience = self._until if tries else self._deadline, caller.breaker.patience
        while True:
            now = caller.loop.time()
            until = self._until if tries else min(self._deadline, now + retries.deadline)
            await caller.breaker.wait_until_ready(until, probes=retries.attempts - tries, patience=patience)
            patience -= caller.loop.time() - now  # waiting for a turn doesn't use it up
            if limiter.paused_until > latest:
                raise self._build_too_late_error(limiter.paused_until - caller.loop.time())
            try:
                await limiter.enter(self._weight, until=latest)
            except TimeoutError:
                raise self._build_no_turn_error() from None
            if self._confirm_turn():
                return

    def _confirm_turn(self) -> bool:
        """With a turn taken, checks that nothing else is in the way; if something is, returns the turn."""
        if self.caller.gate.is_open and self.caller.breaker.try_pass():
            return True
        self.caller.limiter.return_unused(self._weight)
        return False

    def _compute_wait(self, error: EndpointError, tries: int) -> float | None:
        """Seconds until the next try; None where there is none."""
        retries = self.caller.endpoint.retries
        if self.stopped or not is_retryable(error, after_timeout=retries.after_timeout):
            return None
        requested, wait, now = error.retry_after, self.backoff, self.caller.loop.time()
        if isinstance(error, RateLimited) and requested is not None and now + requested > self._until:
            raise self._build_too_late_error(requested, error) from None
        useful_until = (
            now + wait + min(wait, 1.0)
        )  # one cut off by the deadline at once may still be paid for
        return wait if tries < retries.attempts and useful_until < self._until else None

    def _build_too_late_error(self, requested: float, error: EndpointError | None = None) -> RateLimited:
        remaining = max(0.0, self._until - self.caller.loop.time())
        prefix = f"{error}; " if error is not None else f"{self.caller.url}: is rate-limited; "
        return RateLimited(
            f"{prefix}it asks to wait {requested:.3g} s, beyond the deadline of this call in {remaining:.3g} s",
            status=429,
        )

    def _check_stopped(self) -> None:
        if self.stopped:
            raise SendingStopped(f"{self.caller.url}: {SPENDING_STOPPED}")

    def _build_no_turn_error(self) -> EndpointError:
        url = self.caller.url
        if self.caller.limiter.paused_until > self.caller.loop.time():
            return RateLimited(f"{url}: is rate-limited beyond the deadline of this call; ask more slowly")
        return EndpointTimeout(
            f"{url}: no turn came before the deadline of the call; give more time, or ask less"
        )


class CompletionCall(CallWithRetries[Reply]):
    """A call whose reply arrives as a whole."""

    __slots__ = ()

    async def _attempt_once(self, tries: int) -> Reply:
        caller = self.caller
        attempt = CallAttempt(self, tries, self._until)
        try:
            http_reply = await caller.transport.exchange(caller.url, attempt.timer, self._data)
            request = self.describe_request(attempt)
            reply = interpret_reply(
                request, http_reply, transport=caller.transport, url=caller.url, quirks=caller.quirks
            )
        except EndpointError as error:
            attempt.report_failure(error)
            raise
        except BaseException:
            attempt.report_cancelled()
            raise
        attempt.report_success(reply.calls[0])
        return reply if len(self.calls) == 1 else replace(reply, calls=tuple(self.calls))
