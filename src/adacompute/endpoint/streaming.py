"""One call whose reply comes as a stream of events: begun with retries, counted however it ends.

Doesn't know who reads it, nor how it is passed on.
"""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from adacompute.endpoint.attempt import Answer
from adacompute.endpoint.caller import Caller, Heard
from adacompute.endpoint.calling import Asking
from adacompute.endpoint.chunks import Gathered, chunks_of, error_of
from adacompute.endpoint.events import DONE, Event, Events, is_events
from adacompute.endpoint.habits import Habits
from adacompute.endpoint.outcome import Reply, Response
from adacompute.endpoint.reply import (
    choices_of,
    encoded,
    masked,
    one_line,
    prompt_tokens,
    read,
    responses_of,
)
from adacompute.endpoint.trial import Trial
from adacompute.endpoint.understand import understood
from adacompute.endpoint.usage import whole
from adacompute.errors import ConnectionLost, EndpointError, EndpointTimeout, ReplyInvalid
from adacompute.records import Call

if TYPE_CHECKING:
    from adacompute.endpoint.line import Wire

__all__ = ["Stream", "Streaming"]


class Streaming(Asking["Stream"]):
    """A call whose reply comes in pieces; over when the first of them is here."""

    __slots__ = ()

    def __init__(
        self,
        caller: Caller,
        body: Mapping[str, Any],
        patience: float,
        heard: Heard | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        options = body.get("stream_options")
        asked = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
        n = whole(body.get("n")) or 1
        body = {**body, "stream": True, "stream_options": asked}
        super().__init__(caller, body, n, patience, heard, optional=optional | {"stream_options"})

    def understood(self, trial: Trial, answer: Answer) -> Reply:
        """What an answer means; learned from, as that to any call."""
        caller, question = self.caller, self.question(trial)
        return understood(question, answer, line=caller.line, url=caller.url, manners=caller.manners)

    async def _try(self, tries: int) -> "Stream":
        caller = self.caller
        trial = Trial(self, tries, self._until)
        opened: Wire | Answer | None = None
        try:
            opened = await caller.line.open(caller.url, trial.attempt, self._data)
            if isinstance(opened, Answer):
                self.understood(trial, opened)
                raise AssertionError("a status other than 200 is an error")
            stream = Stream(self, trial, opened)
            await stream.begin()
        except Exception as exc:  # noqa: BLE001 - whatever a server sends, it breaks one call and no more
            error = self.error_of(exc)
        except BaseException:
            _close(opened)
            trial.cancelled()
            raise
        else:
            return stream
        _close(opened)
        trial.failed(error)
        raise error.with_traceback(None)

    def error_of(self, exc: Exception) -> EndpointError:
        """The error that this is, without what led to it: that holds what was read, where a key may be."""
        error = exc
        if not isinstance(error, EndpointError):
            why = one_line(self.caller.line.unsaid(f"{type(exc).__name__}: {exc}"))
            error = ReplyInvalid(
                f"{self.caller.url}: streamed what can't be read ({why}); try again", status=200, paid=True
            )
        error.__cause__ = error.__context__ = None
        return error


def _close(opened: "Wire | Answer | None") -> None:
    if opened is not None and not isinstance(opened, Answer):
        opened.close()


class Stream:
    """The events of one reply, as they come, up to [DONE], which is always the last.

    Raises EndpointError where it breaks off. A read that is cancelled loses nothing.
    """

    def __init__(self, asking: Streaming, trial: Trial, wire: "Wire") -> None:
        self.call: Call | None = None  # what it took, once it has ended or was left
        self._asking = asking
        self._trial = trial
        self._wire = wire
        self._key = asking.caller.line.key
        self._url = asking.caller.url
        self._events = Events()
        self._gathered = Gathered()
        self._ready: deque[Event] = deque()
        self._payloads: deque[bytes] = deque()
        self._ended = False  # nothing more comes
        self._reply: Reply | None = None  # all of it, where it has ended well

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Event:
        if self._ready:
            return self._ready.popleft()
        if self.call is not None:
            raise StopAsyncIteration
        try:
            return await self._next()
        except Exception as exc:  # noqa: BLE001 - as above
            error = self._asking.error_of(exc)
        self._broke(error)
        raise error.with_traceback(None)

    @property
    def calls(self) -> tuple[Call, ...]:
        """All attempts that have ended, this one too once it has."""
        return tuple(self._asking.calls)

    @property
    def response(self) -> Response:
        """The first choice, as far as it has come."""
        return next(iter(self.responses), Response(text=""))

    @property
    def responses(self) -> tuple[Response, ...]:
        """All choices, as far as they have come; put together anew until the stream has ended well."""
        return self._so_far()[0] if self._reply is None else self._reply.responses

    async def begin(self) -> None:
        """Waits for the first event; or for all of a plain completion, which is made into events."""
        head, wire = b"", self._wire
        while (events := is_events(head, declared=wire.declared)) is None:
            chunk = await wire.read()
            if not chunk:
                break
            head = (head + chunk).lstrip()
        if not (events or (wire.declared and not head)):
            await self._plain(head)
            return
        self._feed(head)
        self._ready.append(await self._next())
        self._trial.answering()
        self._trial.attempt.answering()

    async def close(self) -> None:
        """Breaks off at once what hasn't ended, and counts it."""
        if self._reply is not None:
            await self._wire.release()
        elif self.call is None:
            self._wire.close()
            self._trial.cancelled(self._so_far()[1])
            self.call = self._asking.calls[-1]

    async def _plain(self, head: bytes) -> None:
        self._trial.attempt.answering()
        parts = [head]
        while chunk := await self._wire.read():
            parts.append(chunk)
        reply = self._asking.understood(self._trial, self._wire.answer(b"".join(parts)))
        self._ready.extend(Event(encoded(chunk), chunk) for chunk in chunks_of(reply.body))
        self._ready.append(Event(DONE, None))
        self._settle(reply)

    async def _next(self) -> Event:
        while not self._payloads:
            if self._ended:
                return self._over()
            try:
                chunk = await self._wire.read()
            except (ConnectionLost, EndpointTimeout):
                if not self._gathered.finished:
                    raise
                chunk = b""  # all has been said but the end
            self._feed(chunk)
            if not chunk:
                self._ended = True
                self._payloads.extend(filter(_sound, self._events.end()))
        return self._event(self._payloads.popleft())

    def _feed(self, chunk: bytes) -> None:
        try:
            self._payloads.extend(self._events.feed(chunk))
        except ValueError as exc:
            raise self._invalid(str(exc)) from None

    def _event(self, payload: bytes) -> Event:
        if payload.strip() == DONE:
            return self._done()
        try:
            value, as_it_is = read(payload, self._key)
        except ValueError as exc:
            why = one_line(self._asking.caller.line.unsaid(str(exc)))
            raise self._invalid(f"an event of {len(payload)} bytes that is no JSON ({why})") from None
        if not isinstance(value, dict):
            raise self._invalid("an event that is JSON, but no object")
        status = error_of(value)
        if status is not None:
            self._asking.understood(self._trial, Answer(status, value))
        if not as_it_is or b"\n" in payload:
            payload = encoded(value)
            value = cast("dict[str, Any]", read(payload, None)[0])  # NaN is null by now
        self._gathered.add(value)
        return Event(payload, value)

    def _over(self) -> Event:
        """It has ended without [DONE]: that is well where all choices have."""
        if self._gathered.finished:
            return self._done()
        raise ConnectionLost(f"{self._url}: its stream ended before the response did; try again", paid=True)

    def _done(self) -> Event:
        body = masked(self._gathered.body(), self._key)  # a key may have come in pieces
        self._settle(self._asking.understood(self._trial, Answer(200, body)))
        return Event(DONE, None)

    def _settle(self, reply: Reply) -> None:
        (self.call,) = reply.calls
        self._reply = reply
        self._trial.worked(self.call)

    def _broke(self, error: EndpointError) -> None:
        self._wire.close()
        error.paid = True  # whatever it says, it has worked
        self._trial.failed(error, self._so_far()[1])
        self._asking.blame(error)
        self.call = self._asking.calls[-1]

    def _so_far(self) -> tuple[tuple[Response, ...], tuple[int, int]]:
        """The responses, and the tokens of prompt and responses."""
        question = self._asking.question(self._trial)
        body, usage = self._gathered.body(), self._gathered.usage or {}
        prompt = whole(usage.get("prompt_tokens"))
        prompt = prompt_tokens(question.body) if prompt is None else prompt
        try:
            choices, _ = choices_of(masked(body, self._key))
        except (ReplyInvalid, RecursionError):
            return (), (prompt, 0)
        responses, counted = responses_of(choices, body, asked=question.n, cap=question.cap, habits=Habits())
        return responses, (prompt, counted.total)

    def _invalid(self, what: str) -> ReplyInvalid:
        return ReplyInvalid(f"{self._url}: sent {what}; try again", status=200, paid=True)


def _sound(payload: bytes) -> bool:
    """May what was left at the end, and nothing ended, be an event? Else it was cut off."""
    if payload.strip() == DONE:
        return True
    try:
        read(payload, None)
    except ValueError:
        return False
    return True
