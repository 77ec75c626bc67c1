"""One request over HTTP: sent, read within limits, and foreign errors mapped to ours. Doesn't try again."""

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from adacompute.endpoint.faults import failure_of, retry_after
from adacompute.endpoint.reply import complaint, one_line, parsed
from adacompute.endpoint.settings import Endpoint
from adacompute.errors import (
    ConnectionLost,
    EndpointError,
    EndpointTimeout,
    EndpointUnreachable,
    ReplyInvalid,
)

__all__ = ["Answer", "Attempt", "Line"]

_LARGEST = 64 * 2**20  # bytes of a reply
_COMPLAINT = 64 * 2**10  # bytes that are read of a reply that is no success


@dataclass(frozen=True, slots=True)
class Answer:
    """What came, whatever its status; `value` is its JSON, the key masked in it, or its text."""

    status: int
    value: object
    retry_after: float | None = None  # seconds


class Attempt:
    """How far one request has come; readable also where it was cancelled."""

    __slots__ = ("_first_byte", "_loop", "ends", "headers", "impatient", "sent", "timer")

    def __init__(self, endpoint: Endpoint, until: float, loop: asyncio.AbstractEventLoop) -> None:
        own = loop.time() + endpoint.timeouts.total
        self._loop = loop
        self._first_byte = endpoint.timeouts.first_byte
        self.ends = min(own, until)
        self.impatient = until < own  # what would end it is the caller's deadline, not its own timeout
        self.sent = False  # True: from here on the endpoint may have worked
        self.headers = False
        self.timer = asyncio.timeout_at(self.ends)

    def sending(self) -> None:
        """The connection stands and the request goes out: the time to the first byte begins."""
        self.sent = True
        soonest = self._loop.time() + self._first_byte
        if soonest < self.ends and not self.timer.expired():
            self.impatient = False
            self.timer.reschedule(soonest)

    def answering(self) -> None:
        """The headers are here."""
        self.headers = True
        self.timer.reschedule(self.ends)


class _Body(aiohttp.payload.Payload):
    """A request's bytes that say when they go out, and don't warn of being many."""

    _value: bytes

    def __init__(self, value: bytes, attempt: Attempt) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self._attempt = attempt

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:  # noqa: ARG002 - aiohttp's
        return self._value

    async def write(self, writer: AbstractStreamWriter) -> None:
        self._attempt.sending()
        await writer.write(self._value)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002 - aiohttp's
        await self.write(writer)


class Line:
    """The connections to one endpoint: one long-lived session, redirects and cookies off."""

    def __init__(self, endpoint: Endpoint, *, agent: str) -> None:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": agent}
        if endpoint.key is not None:
            headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(  # the pace limits connections; here none waits
                limit=0, keepalive_timeout=30, timeout_ceil_threshold=math.inf
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=endpoint.timeouts.connect, ceil_threshold=math.inf
            ),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._session.close()

    async def post(self, url: URL, data: bytes, attempt: Attempt) -> Answer:
        """Sends JSON; whatever status comes is an Answer, all else one of our errors."""
        return await self._exchange("POST", url, _Body(data, attempt), attempt)

    async def get(self, url: URL, attempt: Attempt) -> Answer:
        """Asks for what costs nothing."""
        return await self._exchange("GET", url, None, attempt)

    async def _exchange(self, method: str, url: URL, data: _Body | None, attempt: Attempt) -> Answer:
        try:
            async with (
                attempt.timer,
                self._session.request(method, url, data=data, allow_redirects=False) as response,
            ):
                attempt.answering()
                raw = await _read(response)
        except (aiohttp.ClientError, OSError) as exc:  # a TimeoutError is an OSError
            error = self._error(exc, url, attempt)
        else:
            return self._answer(response, raw)
        raise error  # out here it has no context: foreign errors hold the headers that were sent

    def _answer(self, response: aiohttp.ClientResponse, raw: bytes) -> Answer:
        status, key = response.status, self._endpoint.key
        try:
            value = parsed(raw, key)
        except ValueError as exc:
            if status == 200:
                kind = one_line(self._hidden(response.headers.get("Content-Type", "no content type")))
                raise ReplyInvalid(
                    f"{response.url}: answered 200 with {len(raw)} bytes of {kind} that are no JSON "
                    f"({one_line(self._hidden(str(exc)))}); is this an OpenAI-compatible endpoint?",
                    status=200,
                    paid=True,
                ) from None
            value = self._hidden(raw.decode("utf-8", "replace"))
        if status == 200:
            return Answer(status, value)
        if 300 <= status < 400:
            value = "it is a redirect to " + self._hidden(response.headers.get("Location", "nowhere"))
        return Answer(status, value, retry_after(response.headers, now=time.time()))

    def refusal(self, url: URL, answer: Answer) -> tuple[EndpointError, str, object]:
        """A status other than 200 as its error; with what was said, and the parameter it was about."""
        said, param = complaint(answer.value)
        remedy = _REMEDIES.get(answer.status, "")
        if 300 <= answer.status < 400:
            remedy = "; redirects are not followed: give the address that it leads to"
        words = one_line(said) or "no reason given"
        return failure_of(answer.status, f"{url}: answered {answer.status}: {words}{remedy}"), said, param

    def _error(self, exc: Exception, url: URL, attempt: Attempt) -> EndpointError:
        """The one place where foreign errors become ours."""
        why = one_line(self._hidden(str(exc) or type(exc).__name__))
        error: EndpointError
        if isinstance(
            exc, aiohttp.ClientResponseError
        ):  # not HTTP; its repr holds the headers that were sent
            return ReplyInvalid(f"{url}: answered what is no HTTP ({why}); check the address", paid=True)
        if isinstance(exc, TimeoutError):
            error = self._timeout(url, attempt)
        elif not attempt.sent:
            error = EndpointUnreachable(
                f"{url}: can't be reached ({why}); is it running, and the address right?"
            )
        else:
            error = ConnectionLost(
                f"{url}: broke off after the request was sent ({why}); try again", paid=True
            )
        error.__cause__ = exc.with_traceback(None)  # its frames hold the headers, too
        return error

    def _timeout(self, url: URL, attempt: Attempt) -> EndpointTimeout:
        timeouts = self._endpoint.timeouts
        if attempt.impatient and self._loop.time() >= attempt.ends:
            what = "gave no answer until the deadline of the call; give more time"
        elif not attempt.sent:
            what = f"took more than {timeouts.connect:.3g} s to connect; is it reachable from here?"
        elif not attempt.headers:
            what = (
                f"gave no first byte within {timeouts.first_byte:.3g} s; raise the timeout if it is only slow"
            )
        else:
            what = f"took more than {timeouts.total:.3g} s in all; raise the timeout if it is only slow"
        return EndpointTimeout(f"{url}: {what}", paid=attempt.sent)

    def _hidden(self, text: str) -> str:
        return text if self._endpoint.key is None else self._endpoint.key.hidden(text)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, within limits: of a success all of it or an error, else its beginning."""
    success = response.status == 200
    largest = _LARGEST if success else _COMPLAINT
    length = response.content_length
    if length is not None and length <= largest and "Content-Encoding" not in response.headers:
        return await response.read()
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > largest:
            response.close()
            if not success:
                break
            raise aiohttp.ClientPayloadError(f"more than {_LARGEST} bytes")
    return b"".join(parts)


_REMEDIES: Mapping[int, str] = {
    401: "; check the key",
    403: "; check the key and what it allows",
    404: "; check the address and the name of the model",
    429: "; ask more slowly",
}
