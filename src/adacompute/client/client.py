"""The client for one OpenAI-compatible endpoint: single calls, many samples, streams, the list of models."""

import asyncio
import math
import random
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Unpack

from yarl import URL

from adacompute.client.error_object import mask_object
from adacompute.client.forward import ForwardCall, ForwardReply, ForwardRequest
from adacompute.client.rate_limit import AttemptTimer, LoopShare, SendGate
from adacompute.client.response_parser import (
    CompletionReply,
    DrawFailure,
    DrawSuccess,
    TooManyChoices,
    build_refusal,
    encode_json,
    replace_surrogates,
)
from adacompute.client.retry import (
    CallContext,
    CallListener,
    CallOptions,
    CallWithRetries,
    CompletionCall,
)
from adacompute.client.server_quirks import ServerQuirks
from adacompute.client.settings import Endpoint
from adacompute.client.streaming import Stream, StreamingCall
from adacompute.client.transport import Transport
from adacompute.errors import EndpointError, EndpointRefused, ReplyInvalid, SendingStopped
from adacompute.records import Call

# once the listed models exceed this size in bytes, only the names of further models are kept
_MAX_LISTING = 4 * 2**20
_LISTING_SECONDS = 30.0  # timeout for fetching the list of models, in seconds
# calls that `draw` prepares, as a multiple of those that may run at once, so that the next one is ready
_CALLS_AHEAD = 2
_SEED_BITS = (31, 32, 63)  # sizes in bits of the integers that servers use for seeds
# HTTP statuses that show, after a call for one response (n = 1), that the request itself is invalid
_REQUEST_FAULTS = (400, 413, 422)


@dataclass(frozen=True, slots=True)
class _Span:
    """Responses still to be received: `count` of them, from index `first` on.

    One call may request at most `most` responses: as many as the last reply had, if it had too few.
    """

    first: int
    count: int
    most: int
    calls: tuple[Call, ...] = ()  # records of the failed calls that requested these responses


@dataclass(eq=False)
class _DrawState:
    """The state of one call of `Client.draw`."""

    context: CallContext
    body: Mapping[str, Any]
    deadline: float
    options: CallOptions

    def __post_init__(self) -> None:
        self._finished_tasks: asyncio.Queue[asyncio.Task[CompletionReply]] = asyncio.Queue()
        self._cancelled_tasks: list[asyncio.Task[CompletionReply]] = []
        # maximum number of responses per call; lowered whenever the server refuses a call as too large
        self._max_choices = sys.maxsize
        self.todo: deque[_Span] = deque()
        # responses that aren't requested until a call shows how many responses the server accepts
        self.held: list[_Span] = []
        self.running: dict[asyncio.Task[CompletionReply], tuple[_Span, CallWithRetries[CompletionReply]]] = {}

    async def run(self, n: int, first: int) -> AsyncGenerator[DrawSuccess | DrawFailure, None]:
        """Yields the outcome of each call as it ends.

        First requests all responses in one call, unless the endpoint is known to return fewer; then requests
        the missing responses in parallel calls.
        """
        if n > 0:
            self.todo.append(_Span(first, n, n))
        try:
            while self.todo or self.held or self.running:
                part, outcome = await self.wait_for_call()
                for event in self.handle_outcome(part, outcome):
                    yield event
        finally:
            await self.close()

    async def wait_for_call(self) -> tuple[_Span, CompletionReply | EndpointError]:
        """Starts as many calls as allowed, and waits for one to end."""
        max_calls = _CALLS_AHEAD * self.context.endpoint.limits.concurrency
        while self.todo and len(self.running) < max_calls:
            part, *rest = self._split_span(self.todo.popleft())
            self.todo.extendleft(rest)
            body = step_seed(self.body, part.first)
            is_only_call = not (self.todo or self.running)
            pending = CompletionCall(self.context, body, part.count, self.deadline, **self.options)
            if is_only_call:  # if there is only one call, await it directly, without a task
                return part, await _await_outcome(pending.run())
            task = asyncio.ensure_future(pending.run())
            self.running[task] = part, pending
            task.add_done_callback(self._finished_tasks.put_nowait)
        while (task := await self._finished_tasks.get()) not in self.running:
            pass  # ignore tasks that were cancelled
        part, _ = self.running.pop(task)
        return part, await _await_outcome(task)

    def handle_outcome(
        self, part: _Span, outcome: CompletionReply | EndpointError
    ) -> list[DrawSuccess | DrawFailure]:
        """Returns the events for a call that ended, and decides what to request next."""
        if isinstance(outcome, TooManyChoices):
            self._max_choices = min(self._max_choices, outcome.fewer)
            smaller, *rest = self._split_span(replace(part, calls=part.calls + outcome.calls))
            self.held += [*rest, *self.todo]
            self.todo = deque([smaller])
            return []
        held, self.held = self.held, []
        if isinstance(outcome, EndpointError):
            return self._record_failure(part, outcome, held)
        received = len(outcome.responses)
        success = DrawSuccess(
            responses=outcome.responses,
            calls=part.calls + outcome.calls,
            first=part.first,
            body=outcome.body,
        )
        self.todo.extend(held)
        if received < part.count:
            self.todo.appendleft(_Span(part.first + received, part.count - received, received))
        return [success]

    def _record_failure(
        self, part: _Span, error: EndpointError, held: list[_Span]
    ) -> list[DrawSuccess | DrawFailure]:
        failed = replace(part, calls=part.calls + error.calls)
        if _is_hopeless(error, part):
            held += self._cancel_unsent()
        elif not isinstance(error, EndpointRefused):
            self.todo.extend(held)
            held = []
        # responses left in `held` fail without being requested, because a call would get the same error
        return [
            DrawFailure(error=error, calls=span.calls, first=span.first, count=span.count)
            for span in [failed, *_join_spans(held)]
        ]

    def _cancel_unsent(self) -> list[_Span]:
        """Cancels all calls that wait to be sent, and empties `todo`; returns the responses not requested.

        Each returned span lists the failed attempts to get its responses.
        """
        spans, self.todo = list(self.todo), deque()
        for task, (span, pending) in list(self.running.items()):
            if pending.idle and not task.done():
                task.cancel()
                self._cancelled_tasks.append(task)
                del self.running[task]
                spans.append(replace(span, calls=(*span.calls, *pending.calls)))
        return spans

    def _split_span(self, span: _Span) -> list[_Span]:
        """Splits a span in two: the responses to request in one call, and the rest, if any."""
        wanted = min(span.count, span.most, self._max_choices)
        size = max(1, self.context.quirks.get(self.body.get("model")).pick_n(wanted))
        if size >= span.count:
            return [span]
        return [replace(span, count=size), _Span(span.first + size, span.count - size, span.most)]

    async def close(self) -> None:
        """Cancels running calls."""
        for task in self.running:
            task.cancel()
        if self.running or self._cancelled_tasks:
            await asyncio.gather(*self.running, *self._cancelled_tasks, return_exceptions=True)


def _is_hopeless(error: EndpointError, part: _Span) -> bool:
    """Whether all calls not sent yet would fail in the same way."""
    if isinstance(error, SendingStopped):
        return True
    return isinstance(error, EndpointRefused) and part.count == 1 and error.status in _REQUEST_FAULTS


async def _await_outcome(reply: Awaitable[CompletionReply]) -> CompletionReply | EndpointError:
    try:
        return await reply
    except EndpointError as error:
        return error


def _join_spans(spans: list[_Span]) -> list[_Span]:
    """Joins adjacent ranges of responses."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.first):
        last = joined[-1] if joined else None
        if last is not None and last.first + last.count == span.first:
            joined[-1] = replace(last, count=last.count + span.count, calls=last.calls + span.calls)
        else:
            joined.append(span)
    return joined


def step_seed(body: Mapping[str, Any], first: int) -> Mapping[str, Any]:
    """Returns the body with `first`, the index of its first response, added to the seed."""
    if first == 0 or not isinstance(seed := body.get("seed"), int) or isinstance(seed, bool):
        return body
    width = next((bits for bits in _SEED_BITS if abs(seed) < 2**bits), _SEED_BITS[-1])
    stepped = seed + first
    return {**body, "seed": stepped if stepped < 2**width else stepped % 2**width}


class Client:
    """A client for one endpoint, with one long-lived session: an async context manager.

    `on_call` is called in the event loop for every attempt, including failed and cancelled ones. `rng`
    randomises the waits between attempts. Clients in one event loop should get the same `share`, so that
    handling many replies doesn't hold up other tasks.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        rng: random.Random | None = None,
        on_call: CallListener | None = None,
        share: LoopShare | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.quirks = ServerQuirks()
        self.share = LoopShare() if share is None else share  # divides the event loop's time among replies
        self.gate = SendGate()  # makes unsent requests wait, or refuses them
        self._rng = rng or random.Random()  # noqa: S311 - only jitters waits
        self._on_call = on_call
        self._context: CallContext | None = None

    async def __aenter__(self) -> "Client":
        self._context = CallContext(
            endpoint=self.endpoint,
            transport=Transport(self.endpoint, share=self.share),
            quirks=self.quirks,
            gate=self.gate,
            rng=self._rng,
            on_call=self._on_call,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            await self._context.transport.close()
            self._context = None

    @property
    def concurrency(self) -> int:
        """How many calls to the most recently used model may run at the same time."""
        limits = self.endpoint.limits if self._context is None else self._context.limiters
        return limits.concurrency

    @property
    def in_flight(self) -> int:
        """Number of attempts in flight."""
        return 0 if self._context is None else self._context.limiters.in_flight

    @property
    def resting(self) -> tuple[str, ...]:
        """Names of models that get no calls for a while because they keep failing; "": the whole endpoint."""
        return () if self._context is None else self._context.breakers.resting

    @property
    def is_unreachable(self) -> bool:
        """Whether connecting failed and has never succeeded."""
        return self._context is not None and self._context.breakers.give_up_at < math.inf

    def call(
        self,
        body: Mapping[str, Any],
        *,
        n: int = 1,
        first: int = 0,
        deadline: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Coroutine[Any, Any, CompletionReply]:
        """Posts the body, with "n" added if it isn't 1, and retries if that may help.

        The reply may have fewer responses than requested. If the call fails, EndpointError is raised: its
        `calls` lists the attempts, and its `paid` says whether one of them may be charged. `first` is the
        index of the first response, as in `draw`. `deadline` is in seconds from now, including the wait in
        the client's own queue; the deadline in the endpoint's settings starts after that wait.

        `on_call` is called for every attempt, in addition to the client's listener. `may_send` is called
        before each attempt. If it returns False, nothing more is sent, and SendingStopped or the previous
        attempt's error is raised. `headers` are sent with every attempt, in addition to the client's. If
        there is a `tracer`, its headers replace `headers`.

        `optional` names the changes that are allowed if the server refuses a field. "logprobs" and
        "top_logprobs" allow omitting the field of that name. "max_tokens" allows renaming, lowering or
        omitting the token limit; "limit_name" allows only renaming it. Other refusals are raised.
        """
        context = self._require_open()
        until = _compute_deadline(context, deadline)
        return CompletionCall(context, step_seed(body, first), n, until, **options).run()

    def draw(
        self,
        body: Mapping[str, Any],
        n: int,
        *,
        first: int = 0,
        deadline: float | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncGenerator[DrawSuccess | DrawFailure, None]:
        """Draws `n` responses, numbered from `first`, in as few calls as the server allows, in parallel.

        Yields the outcome of each call as it ends; never raises EndpointError. Closing the generator cancels
        its calls. An integer "seed" in the body is for the response with index 0: a call whose first response
        has index i sends seed + i, so that no two calls send the same seed. If `may_send` returns False,
        responses not requested yet are yielded as DrawFailures. Other options are as in `call`.
        """
        context = self._require_open()
        return _DrawState(context, body, _compute_deadline(context, deadline), options).run(n, first)

    @asynccontextmanager
    async def stream(
        self,
        body: Mapping[str, Any],
        *,
        deadline: float | None = None,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[Stream]:
        """Makes a call whose reply is a stream of events, and retries it until the first event arrives.

        Entering the `with` block raises the errors of `call`. The attempt is recorded when the stream ends or
        breaks off, or when the block is left, which closes the connection at once. Token usage is always
        requested, unless the endpoint has refused to report it.
        """
        context = self._require_open()
        until = _compute_deadline(context, deadline)
        stream = await StreamingCall(context, body, until, **options).run()
        try:
            yield stream
        finally:
            await stream.close()

    @asynccontextmanager
    async def forward(
        self,
        request: ForwardRequest,
        *,
        deadline: float | None = None,
        on_call: CallListener | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> AsyncIterator[ForwardReply]:
        """Passes on a request to any route, such as embeddings, unchanged and without retries.

        Leaving the `with` block ends the reply, which may have any status. EndpointError is raised only if
        there is no reply. `may_send` is called before sending; if it returns False, nothing is sent.
        `on_call` is called once, unless the request is free (its `samples` is 0) or never gets its turn.
        """
        context = self._require_open()
        call = ForwardCall(context, request, _compute_deadline(context, deadline), on_call)
        reply = await call.open(may_send)
        try:
            yield reply
        except EndpointError as error:
            call.report_failure(error)
            raise
        finally:
            call.report_cancelled()  # no effect if the call has ended
            reply.close()

    async def models(self) -> list[str]:
        """Returns the names of the endpoint's models; this request is free and isn't counted."""
        return [str(model["id"]) for model in await self.list_models()]

    async def list_models(self) -> list[dict[str, Any]]:
        """Returns the models as the endpoint describes them; call `mask_models` before showing them."""
        context, url = self._require_open(), URL(self.endpoint.models)
        timer = AttemptTimer(context.endpoint, context.loop.time() + _LISTING_SECONDS)
        try:
            reply = await context.transport.exchange(url, timer)
            if reply.status != 200:
                raise build_refusal(url, reply, self.endpoint.secret)[0]
        except EndpointError as error:
            error.paid = False
            raise
        data = reply.value.get("data") if isinstance(reply.value, dict) else None
        models = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else None
        if models is None or not all(isinstance(model.get("id"), str) for model in models):
            raise ReplyInvalid(
                f"{url}: doesn't list models as OpenAI-compatible endpoints do; check the address, which "
                "mostly ends in /v1, or name the model yourself",
                status=200,
            )
        return [{**model, "id": replace_surrogates(model["id"])} for model in models]

    def mask_models(self, models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Masks the endpoint's key and address in all fields of the models except their names.

        Once the masked models exceed 4 MiB, only the names of further models are kept.
        """
        masked: list[dict[str, Any]] = []
        size = 0
        for model in models:
            fields = {}
            if size <= _MAX_LISTING:
                fields = mask_object(model, key=self.endpoint.secret, url=self.endpoint.url)
                size += len(encode_json(fields))
            masked.append(fields | {"id": model["id"]})
        return masked

    def _require_open(self) -> CallContext:
        if self._context is None:
            raise EndpointError("the client is not open; use it as `async with Client(endpoint) as client:`")
        return self._context


def _compute_deadline(context: CallContext, deadline: float | None) -> float:
    return float("inf") if deadline is None else context.loop.time() + deadline


_LIST_SECONDS = 60.0  # how long a list of models is cached
_FAILURE_SECONDS = 5.0  # how long an empty list is cached, or the error if it can't be fetched


class ModelList:
    """The upstream's list of models, which is cached, and fetched only once for concurrent callers."""

    def __init__(self, fetch: Callable[[], Coroutine[Any, Any, list[dict[str, Any]]]]) -> None:
        # name of a model -> its entry in the most recent list; empty before the first fetch
        self.known: dict[str, dict[str, Any]] = {}
        self._fetch = fetch
        self._task: asyncio.Task[dict[str, dict[str, Any]]] | None = None
        self._expires = 0.0  # when the cached list expires (event loop's clock)

    async def get_models(self, *, refresh: bool = False) -> dict[str, dict[str, Any]]:
        """Returns the models by name; raises EndpointError if fetching fails.

        With `refresh`, a cached error is ignored, and the list is fetched again.
        """
        now, task = asyncio.get_running_loop().time(), self._task
        expired = task is None or (task.done() and now >= self._expires)
        if task is None or expired or (refresh and task.done() and _has_failed(task)):
            task = self._task = asyncio.create_task(self._fetch_models())
            # `_has_failed` reads the task's exception; asyncio would log an exception that nobody has read
            task.add_done_callback(_has_failed)
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancels a fetch in progress."""
        if self._task is not None:
            self._task.cancel()

    async def _fetch_models(self) -> dict[str, dict[str, Any]]:
        seconds = _FAILURE_SECONDS
        try:
            models = self.known = {model["id"]: model for model in await self._fetch()}
            seconds = _LIST_SECONDS if models else _FAILURE_SECONDS
        finally:
            self._expires = asyncio.get_running_loop().time() + seconds
        return models


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
