"""One call with retries: waiting for a turn, sending, interpreting the reply, trying again.

Every attempt is counted once, and reported to the rate limiter and the circuit breaker.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from yarl import URL

from adacompute.client.error_object import CertificateUntrusted
from adacompute.client.large_json import MAX_MARKS, MAX_PLAIN_MARKS
from adacompute.client.rate_limit import AttemptTimer, Breakers, Fault, Limiters, SendGate
from adacompute.client.response_parser import (
    SPENDING_STOPPED,
    CompletionReply,
    FieldsRefused,
    HttpReply,
    SentRequest,
    encode_json,
    estimate_prompt_tokens,
    interpret_reply,
    read_token_cap,
    run_by_size,
)
from adacompute.client.server_quirks import LIMIT_NAMES, OMITTABLE, LimitSearch, ServerQuirks, read_limit
from adacompute.client.settings import Endpoint, Retries
from adacompute.client.transport import MAX_REPLY, ReplyLimits, Transport
from adacompute.errors import (
    ConnectionLost,
    EndpointError,
    EndpointFailed,
    EndpointRefused,
    EndpointResting,
    EndpointTimeout,
    EndpointUnreachable,
    RateLimited,
    ReplyInvalid,
    SendingStopped,
)
from adacompute.records import Call, Paid

T = TypeVar("T")
# tokens reserved for a response without a token limit, until their actual number is known
_DEFAULT_RESERVATION = 512
CallListener = Callable[[Call], object]  # called with the record of an attempt when the attempt ends
# called before each attempt with the number of responses to request; returns whether they may be requested
SendPermission = Callable[[int], Awaitable[bool]]


class AttemptTrace(Protocol):
    """An observer of one attempt, e.g. a tracing span. Its methods must be fast and must not raise."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Headers to send in addition to the client's."""

    def mark_answering(self) -> None:
        """Called when the first event of a stream arrives."""

    def end(self, call: Call, body: Mapping[str, Any] | None) -> None:
        """Called when the attempt ends; `body` is the completion, if there is one."""


# called when an attempt begins, with the number of earlier attempts; may return None
AttemptTracer = Callable[[int], AttemptTrace | None]


class CallOptions(TypedDict, total=False):
    """Options of a call besides body and deadline; see `Client.call`."""

    on_call: CallListener | None
    may_send: SendPermission | None
    optional: frozenset[str]
    headers: Mapping[str, str] | None
    tracer: AttemptTracer | None


@dataclass(eq=False, kw_only=True)
class CallContext:
    """What all calls of a client share, such as rate limiters and what was learned about the server."""

    endpoint: Endpoint
    transport: Transport
    quirks: ServerQuirks
    gate: SendGate
    rng: random.Random
    on_call: CallListener | None

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.url = URL(self.endpoint.chat)
        self.limiters = Limiters(self.endpoint.limits, loop=self.loop, gate=self.gate)
        self.breakers = Breakers(self.endpoint.breaker, loop=self.loop)


class CallAttempt:
    """One attempt of a call, from its admission by the rate limiter to its end.

    The first report (of success, failure or cancellation) ends the attempt, and makes room for another call.
    Later reports are ignored.
    """

    def __init__(self, owner: "CallWithRetries[Any]", tries: int, until: float) -> None:
        context = owner.context
        self._owner = owner
        self._tries = tries
        self._generation = owner.breaker.generation
        self._ended = self._answer_began = False
        self.began_at, self.sent_at = context.loop.time(), time.time()
        self.trace = None if owner.tracer is None else owner.tracer(len(owner.calls))
        # headers to send in addition to the client's
        self.headers = owner.headers if self.trace is None else self.trace.headers
        self.timer = AttemptTimer(context.endpoint, until, owner.mark_reached)

    @property
    def seconds(self) -> float:
        """Duration so far."""
        return self._owner.context.loop.time() - self.began_at

    def mark_answering(self) -> None:
        """Tells the breaker and the rate limiter that a response has begun; it may take long to end."""
        self._answer_began = True
        if self.trace is not None:
            self.trace.mark_answering()
        breaker = self._owner.breaker
        if not breaker.closed:
            self._end_rest()
        self._owner.limiter.report_answering()

    def report_success(self, call: Call, body: Mapping[str, Any]) -> None:
        """Records a success; `call` has the token counts, and `body` is the completion."""
        if self._ended:
            return
        self._end_rest()
        if not self._answer_began:
            self._owner.limiter.report_success()
        self._finish(call, used=float((call.prompt_tokens or 0) + (call.completion_tokens or 0)), body=body)

    def report_failure(self, error: EndpointError, so_far: tuple[int, int] | None = None) -> None:
        """Records a failure; `so_far` holds the numbers of prompt and response tokens until then."""
        if self._ended:
            return
        self._inform_limits(error)
        self._set_backoff(error)  # before `_finish` admits other calls: after a 429 they must wait, too
        paid: Paid = "maybe" if error.paid else "no"
        call = self._build_call(error.kind, paid, so_far, status=error.status)
        self._finish(call, used=None if error.paid else 0.0)

    def report_cancelled(self, so_far: tuple[int, int] | None = None) -> None:
        """Records a cancellation; `so_far` holds the numbers of prompt and response tokens until then."""
        if self._ended:
            return
        self._owner.breaker.report_unknown(self._generation)
        paid: Paid = "maybe" if self.timer.sent is not None else "no"
        self._finish(self._build_call("cancelled", paid, so_far, status=None), used=None)

    def _inform_limits(self, error: EndpointError) -> None:
        owner = self._owner
        caller_gave_up = (
            owner.caller_deadline_first and self.timer.expired and self.timer.caller_deadline_first
        )
        is_news = caller_gave_up or not is_overload(error) or owner.limiter.report_overload(self.began_at)
        if caller_gave_up or (error.status == 503 and not is_news):
            # nothing new about the endpoint: the caller gave up, or the limiter knows of this overload
            owner.breaker.report_unknown(self._generation)
        elif fault := find_fault(error):
            owner.breaker.report_failure(fault, self._generation)
            if fault != "model":
                owner.context.breakers.record_unreachable(str(error), self.began_at)
        else:
            self._end_rest()

    def _end_rest(self) -> None:
        """Records a response; if this closes a breaker, the rate limiter restarts with one call at a time."""
        rest = self._owner.breaker.report_success(self._generation)
        if rest == "endpoint":
            self._owner.context.limiters.restart()
        elif rest:
            self._owner.limiter.restart()

    def _set_backoff(self, error: EndpointError) -> None:
        """Sets the wait before the next try; after a 429, all calls to the model wait."""
        context, retries = self._owner.context, self._owner.context.endpoint.retries
        requested = error.retry_after
        wait = self._owner.backoff = compute_backoff(self._tries, retries, context.rng, requested=requested)
        if isinstance(error, RateLimited):
            is_bearable = requested is not None and requested <= retries.deadline
            longest = retries.deadline if is_bearable else retries.longest
            self._owner.limiter.pause(context.loop.time() + min(wait, longest))

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

    def _finish(self, call: Call, *, used: float | None, body: Mapping[str, Any] | None = None) -> None:
        self._ended = True
        if self.trace is not None:
            self.trace.end(call, body)
        try:
            self._owner.record_attempt(call)
        finally:
            self._owner.limiter.leave(self._owner.weight, used=used)


class CallWithRetries(Generic[T]):
    """A call, retried until an attempt succeeds. Subclasses define what an attempt does and returns."""

    def __init__(
        self,
        context: CallContext,
        body: Mapping[str, Any],
        n: int,
        deadline: float,
        *,
        on_call: CallListener | None = None,
        may_send: SendPermission | None = None,
        optional: frozenset[str] = frozenset(),
        headers: Mapping[str, str] | None = None,
        tracer: AttemptTracer | None = None,
    ) -> None:
        """The options are those of `Client.call`."""
        self.context = context
        self.calls: list[Call] = []
        self.idle = True  # True while no attempt is running, i.e. while the call waits to be sent
        self.n = n
        self.headers = headers  # sent with every attempt unless a tracer provides headers
        self.tracer = tracer
        self.backoff = 0.0  # seconds to wait before the next attempt
        self._on_call = on_call
        self._may_send = may_send
        # names of the fields that may be omitted if the server refuses them
        self._optional = optional
        self._removed_fields: set[str] = set()  # fields omitted after a refusal
        self._deadline = deadline
        self._until = min(deadline, context.loop.time() + context.endpoint.retries.deadline)
        self._body = dict(body)
        if n > 1 or "n" in body:
            self._body["n"] = n
        self._data = b""
        self.weight = 0.0  # number of tokens that the rate limiter reserves for an attempt
        self._limit_search: LimitSearch | None = None  # None: the token limit can't be changed
        if optional and (limit := read_limit(body, optional)) is not None:
            quirks = context.quirks.get(body.get("model"))
            self._limit_search = LimitSearch(quirks, body, limit, may_drop="max_tokens" in optional)
            self._replace_limit()
        self._cap = read_token_cap(self._body)
        self.breaker = context.breakers.pick(body)
        self.limiter = context.limiters.pick(body.get("model"))

    @property
    def caller_deadline_first(self) -> bool:
        """Whether the caller's deadline comes before the settings' deadline."""
        return self._deadline <= self._until

    async def run(self) -> T:
        """Returns the result, or raises an error that lists all attempts."""
        tries, context = 0, self.context
        failure: EndpointError | None = None  # error of the last attempt
        try:
            while True:
                self._prepare_body()
                try:
                    await self._wait_for_turn(tries)
                except (EndpointResting, SendingStopped) as error:
                    is_resting = isinstance(error, EndpointResting)
                    if failure is None or (is_resting and failure.reply is None):
                        raise
                    if is_resting:
                        failure.retry_after = error.retry_after
                    try:
                        raise failure from None  # the endpoint's earlier error, which is more informative
                    finally:
                        failure = None  # otherwise the error and this stack frame would keep each other alive
                tries += 1
                try:
                    self.idle = False
                    try:
                        result = await self._attempt_once(tries)
                    finally:
                        self.idle = True
                except FieldsRefused as error:
                    self._drop_refused_fields(error)
                    tries -= 1  # not a failure: resend at once without the refused fields
                except EndpointError as error:
                    wait = self._compute_wait(error, tries)
                    if wait is None:
                        raise
                    failure = error.with_traceback(None)
                    async with context.gate.interruptible():
                        await asyncio.sleep(wait)
                else:
                    self._learn_fields()
                    return result
        except EndpointError as error:
            self.attach_calls(error)
            raise

    def attach_calls(self, error: EndpointError) -> None:
        """Attaches the attempts to the error."""
        error.calls = tuple(self.calls)
        error.paid = any(call.paid != "no" for call in self.calls)

    def record_attempt(self, call: Call) -> None:
        """Counts an attempt that ended, and informs listeners."""
        self.calls.append(call)
        if self.context.on_call is not None:
            self.context.on_call(call)
        if self._on_call is not None:
            self._on_call(call)

    def mark_reached(self) -> None:
        """Records that a connection succeeded."""
        self.context.breakers.is_reached = True

    async def _attempt_once(self, tries: int) -> T:
        """Makes one attempt, and reports its end to a CallAttempt."""
        raise NotImplementedError

    def describe_request(self, attempt: CallAttempt) -> SentRequest:
        """Describes the request of an attempt, with its duration so far."""
        return SentRequest(self._body, self.n, self._cap, attempt.sent_at, attempt.seconds, self._optional)

    def find_limits(self) -> ReplyLimits:
        """Computes the size limits for the reply."""
        return find_reply_limits(self._body, self.n, self._cap)

    def interpret(self, attempt: CallAttempt, http_reply: HttpReply) -> CompletionReply:
        """Interprets the reply to an attempt, and updates the quirks."""
        context, request = self.context, self.describe_request(attempt)
        return interpret_reply(
            request, http_reply, key=context.endpoint.secret, url=context.url, quirks=context.quirks
        )

    def _drop_refused_fields(self, error: FieldsRefused) -> None:
        """Prepares the next try: removes the refused fields, or changes the token limit.

        Raises EndpointRefused if the token limit can't be changed any further.
        """
        refusal = EndpointRefused(str(error), status=error.status).copy_reply(error)
        if self._limit_search is None or not error.fields.issubset(LIMIT_NAMES):
            self._removed_fields |= error.fields
            self._remove_fields(error.fields)
        elif self._limit_search.handle_refusal(error):
            self._replace_limit()
        else:
            raise refusal from None

    def _replace_limit(self) -> None:
        """Sets the token limit in the body to the next name and value to try."""
        assert self._limit_search is not None
        for name in LIMIT_NAMES:
            self._body.pop(name, None)
        if self._limit_search.current is not None:
            name, self._body[name] = self._limit_search.current
        self._data, self._cap = b"", read_token_cap(self._body)

    def _learn_fields(self) -> None:
        """Records, after a success, which optional fields were accepted and which had to be removed."""
        has_removed = self._removed_fields or self._limit_search is not None
        if not has_removed and OMITTABLE.isdisjoint(self._body):
            return
        quirks = self.context.quirks.ensure(self._body.get("model"))
        quirks.record_accepted(self._body)
        if self._limit_search is not None:
            self._limit_search.learn(quirks)
        if self._removed_fields:
            quirks.record_refused_fields(self._removed_fields)

    def _remove_fields(self, fields: frozenset[str]) -> None:
        if "logprobs" in fields:
            fields |= {"top_logprobs"}  # meaningless without logprobs
        for name in fields & self._body.keys():
            del self._body[name]
            self._data = b""

    def _prepare_body(self) -> None:
        context = self.context
        if self._optional and (fields := self._optional & self._body.keys()):
            self._remove_fields(context.quirks.get(self._body.get("model")).find_fields_to_skip(fields))
        if not self._data:
            self._data = encode_json(self._body)
            if self.limiter.counts_tokens:
                per_response = _DEFAULT_RESERVATION if self._cap is None else self._cap
                self.weight = float(estimate_prompt_tokens(self._body) + self.n * per_response)

    async def _wait_for_turn(self, tries: int) -> None:
        """Waits for the gate, the breakers and the rate limiter, and then asks `may_send`.

        The settings' deadline starts only after the first of these waits, which isn't the endpoint's fault.
        The caller's deadline starts with the call.
        """
        context = self.context
        if not (context.gate.is_open and self.breaker.closed and self.limiter.try_enter(self.weight)):
            async with context.gate.interruptible():
                await self._wait_in_queue(tries)
        now = context.loop.time()
        if tries == 0:
            self._until = min(self._deadline, now + context.endpoint.retries.deadline)
        try:
            if now >= self._until:
                raise self._build_no_turn_error()
            if self._may_send is not None and not await self._may_send(self.n):
                raise SendingStopped(f"{context.url}: {SPENDING_STOPPED}")
        except BaseException:  # the call was admitted, but nothing was sent
            self.breaker.report_unknown(self.breaker.generation)
            self.limiter.return_unused(self.weight)
            raise

    async def _wait_in_queue(self, tries: int) -> None:
        context, limiter, retries = self.context, self.limiter, self.context.endpoint.retries
        latest, patience = self._until if tries else self._deadline, context.endpoint.breaker.patience
        while True:
            now = context.loop.time()
            until = self._until if tries else min(self._deadline, now + retries.deadline)
            until = min(until, context.breakers.give_up_at, now + patience)
            await self.breaker.wait_until_ready(until, probes=retries.attempts - tries)
            patience -= context.loop.time() - now  # a wait for the limiter doesn't count
            if limiter.paused_until > latest:
                raise self._build_too_late_error(limiter.paused_until - context.loop.time())
            try:
                await limiter.enter(self.weight, until=latest)
            except TimeoutError:
                raise self._build_no_turn_error() from None
            if context.gate.is_open and self.breaker.try_pass():
                return
            limiter.return_unused(self.weight)

    def _compute_wait(self, error: EndpointError, tries: int) -> float | None:
        """Returns the seconds until the next try; None if there is no further try."""
        retries = self.context.endpoint.retries
        if not is_retryable(error, after_timeout=retries.after_timeout):
            return None
        requested, wait, now = error.retry_after, self.backoff, self.context.loop.time()
        if isinstance(error, RateLimited) and requested is not None and now + requested > self._until:
            raise self._build_too_late_error(requested, error) from None
        # don't try again just before the deadline: the attempt would be cut off, but may be charged
        useful_until = now + wait + min(wait, 1.0)
        until = min(self._until, self.context.breakers.give_up_at)
        return wait if tries < retries.attempts and useful_until < until else None

    def _build_too_late_error(self, requested: float, error: EndpointError | None = None) -> RateLimited:
        remaining = max(0.0, self._until - self.context.loop.time())
        prefix = f"{error}; " if error is not None else f"{self.context.url}: is rate-limited; "
        late = RateLimited(
            f"{prefix}it asks to wait {requested:.3g} s, beyond the deadline of this call in "
            f"{remaining:.3g} s",
            status=429,
        )
        late.reply = None if error is None else error.reply
        late.retry_after = requested
        return late

    def _build_no_turn_error(self) -> EndpointError:
        url = self.context.url
        if self.limiter.paused_until > self.context.loop.time():
            return RateLimited(f"{url}: is rate-limited beyond the deadline of this call; ask more slowly")
        return EndpointTimeout(
            f"{url}: no turn came before the deadline of the call; give more time, or ask less"
        )


_BASE_SIZE = 8 * 2**20  # size in bytes that any reply may have, e.g. with an image or sound
_TOKEN_SIZE = 1024  # bytes allowed per token, as each token may be sent in a separate event
_TOKEN_SIZE_LOGPROBS = 8192  # bytes allowed per token with log-probabilities
_TOKEN_CONTENT = 64  # bytes allowed for a token's text, JSON-escaped


def find_reply_limits(body: Mapping[str, Any], n: int, max_tokens: int | None) -> ReplyLimits:
    """Computes size limits for a reply with `n` choices of `max_tokens` each; None: the model's maximum."""
    has_logprobs = bool(body.get("logprobs"))
    marks = MAX_MARKS if has_logprobs else MAX_PLAIN_MARKS
    if max_tokens is None:
        return ReplyLimits(MAX_REPLY, MAX_REPLY if has_logprobs else MAX_REPLY // 4, marks)
    tokens = n * max_tokens
    size = min(MAX_REPLY, _BASE_SIZE + tokens * (_TOKEN_SIZE_LOGPROBS if has_logprobs else _TOKEN_SIZE))
    content = size if has_logprobs else min(size, _BASE_SIZE + tokens * _TOKEN_CONTENT)
    return ReplyLimits(size, content, marks)


class CompletionCall(CallWithRetries[CompletionReply]):
    """A call whose reply arrives in one piece."""

    async def _attempt_once(self, tries: int) -> CompletionReply:
        context = self.context
        attempt = CallAttempt(self, tries, self._until)
        try:
            http_reply = await context.transport.exchange(
                context.url, attempt.timer, self._data, attempt.headers, self.find_limits()
            )
            reply = await run_by_size(http_reply.size, self.interpret, attempt, http_reply)
        except EndpointError as error:
            attempt.report_failure(error)
            raise
        except BaseException:
            attempt.report_cancelled()
            raise
        attempt.report_success(reply.calls[0], reply.body)
        return reply if len(self.calls) == 1 else replace(reply, calls=tuple(self.calls))


def is_retryable(error: EndpointError, *, after_timeout: bool) -> bool:
    """Whether to retry the call after this error.

    A request that timed out after it was sent is retried only if `after_timeout`, as both may be charged.
    """
    if isinstance(error, EndpointTimeout):
        return after_timeout or not error.paid or error.status is not None
    if isinstance(error, CertificateUntrusted) or (error.reply and error.reply.code == "insufficient_quota"):
        return False  # a retry fixes neither an invalid certificate nor an empty account
    return isinstance(
        error, EndpointUnreachable | RateLimited | EndpointFailed | ConnectionLost | ReplyInvalid
    )


def find_fault(error: EndpointError) -> Fault:
    """Returns which breaker counts the error: the endpoint's if connecting failed, else the model's.

    A timeout while connecting counts for both. A reply other than a 5xx counts for neither ("").
    """
    # any response, even a 408, shows that connecting works
    if error.status is not None and error.status < 500:
        return ""
    if isinstance(error, EndpointUnreachable):
        return "endpoint"
    if isinstance(error, EndpointTimeout) and not error.paid:
        return "both"
    return "model" if isinstance(error, EndpointTimeout | ConnectionLost | EndpointFailed) else ""


def is_overload(error: EndpointError) -> bool:
    """Whether the error means that the endpoint is overloaded."""
    return error.status in (429, 503) or isinstance(error, EndpointTimeout | EndpointUnreachable)


def compute_backoff(
    attempt: int, retries: Retries, rng: random.Random, *, requested: float | None = None
) -> float:
    """Computes the seconds to wait after an attempt (numbered from 1).

    `requested` is Retry-After in seconds. It never makes the wait shorter, because some servers request 0
    seconds. The wait is partly random, so that calls that failed together don't retry together.
    """
    longest = min(retries.longest, retries.first * 2.0 ** min(attempt - 1, 30))
    delay = rng.uniform(longest / 2, longest)
    return delay if requested is None else max(delay, requested + rng.uniform(0.0, min(1.0, 0.1 * requested)))
