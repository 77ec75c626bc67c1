"""One request over HTTP: sent, read within limits, and foreign errors mapped to ours. Doesn't try again.

The only file that knows aiohttp, but for the resolver. It is loaded when a client is opened, for that takes
a tenth of a second.
"""

import asyncio
import math
import time
from collections.abc import Mapping

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from adacompute.endpoint.attempt import Answer, Attempt
from adacompute.endpoint.faults import Untrusted, failure_of, retry_after
from adacompute.endpoint.reply import complaint, one_line, parsed
from adacompute.endpoint.resolver import Resolver
from adacompute.endpoint.settings import Endpoint
from adacompute.errors import (
    ConnectionLost,
    EndpointError,
    EndpointTimeout,
    EndpointUnreachable,
    ReplyInvalid,
)
from adacompute.records import Secret

__all__ = ["Line", "Wire"]

_LARGEST = 64 * 2**20  # bytes of a reply
_IDLE = 4.0  # seconds; many servers hang up after 5, and a request that meets that may have been paid
_LAST = 0.1  # seconds that a stream has to end in after its last event, or its connection is given up
_EVENTS = {"Accept": "text/event-stream, application/json"}
_COMPLAINT = 64 * 2**10  # bytes that are read of a reply that is no success


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
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(  # the pace limits connections; here none waits
                limit=0, keepalive_timeout=_IDLE, timeout_ceil_threshold=math.inf, resolver=Resolver()
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

    async def exchange(self, url: URL, attempt: Attempt, data: bytes | None = None) -> Answer:
        """Posts JSON, or asks for what costs nothing; any status is an Answer, all else one of our errors.

        An error has no cause and no frames below this one: they hold the headers that were sent, with the
        key in them. What a foreign error said is in its message.
        """
        body = None if data is None else _Body(data, attempt)
        try:
            async with attempt:
                return await self._answered(url, attempt, body)
        except EndpointError as exc:
            error = exc
        except Exception as exc:  # noqa: BLE001 - whatever a server sends, it breaks one call and no more
            error = self._error(exc, url, attempt)
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)

    async def open(self, url: URL, attempt: Attempt, data: bytes) -> "Wire | Answer":
        """Posts JSON, and gives a success to read as it comes; errors as above."""
        try:
            async with attempt:
                response = await self._session.post(
                    url, data=_Body(data, attempt), allow_redirects=False, headers=_EVENTS
                )
                if response.status == 200:
                    return Wire(self, url, attempt, response)
                return self._answer(response, await _whole(response))
        except EndpointError as exc:
            error = exc
        except Exception as exc:  # noqa: BLE001 - as above
            error = self._error(exc, url, attempt)
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)

    async def _answered(self, url: URL, attempt: Attempt, body: _Body | None) -> Answer:
        if body is None:
            attempt.sending()
            response = await self._session.get(url, allow_redirects=False)
        else:
            response = await self._session.post(url, data=body, allow_redirects=False)
        attempt.answering()
        return self._answer(response, await _whole(response))

    def _answer(self, response: aiohttp.ClientResponse, raw: bytes) -> Answer:
        status, key = response.status, self._endpoint.key
        try:
            value = parsed(raw, key)
        except ValueError as exc:
            if status == 200:
                kind = one_line(self.unsaid(response.headers.get("Content-Type", "no content type")))
                raise ReplyInvalid(  # noqa: B904 - the cause holds the body, and is dropped in `exchange`
                    f"{response.url}: answered 200 with {len(raw)} bytes of {kind} that are no JSON "
                    f"({one_line(self.unsaid(str(exc)))}); is this an OpenAI-compatible endpoint?",
                    status=200,
                    paid=True,
                )
            plain = raw.decode("utf-8", "replace").replace("\0", "")  # in UTF-16 a key would pass
            value = self.unsaid(plain)
        if status == 200:
            return Answer(status, value)
        if 300 <= status < 400:
            value = "it is a redirect to " + self.unsaid(response.headers.get("Location", "nowhere"))
        return Answer(status, value, retry_after(response.headers, now=time.time()))

    def refusal(self, url: URL, answer: Answer) -> tuple[EndpointError, str, object]:
        """A status other than 200 as its error; with what was said, and the parameter it was about."""
        said, param = complaint(answer.value)
        remedy = _REMEDIES.get(answer.status, "")
        if 300 <= answer.status < 400:
            remedy = "; redirects are not followed: give the address that it leads to"
        words = one_line(self.unsaid(said)) or "no reason given"
        return failure_of(answer.status, f"{url}: answered {answer.status}: {words}{remedy}"), said, param

    def _error(self, exc: Exception, url: URL, attempt: Attempt) -> EndpointError:
        """The one place where foreign errors become ours."""
        why = one_line(self.unsaid(str(exc) or type(exc).__name__)).replace(" ssl:default", "")
        if isinstance(exc.__cause__, ContentEncodingError):
            return ReplyInvalid(
                f"{url}: answered with a body that can't be unpacked ({why}); try again", paid=True
            )
        if isinstance(exc, aiohttp.ClientResponseError):
            return ReplyInvalid(f"{url}: answered what is no HTTP ({why}); check the address", paid=True)
        if attempt.expired or isinstance(exc, aiohttp.ServerTimeoutError):
            return self._timeout(url, attempt)
        if isinstance(exc, aiohttp.ClientConnectorCertificateError):
            return Untrusted(f"{url}: its certificate can't be trusted ({why}); check the address")
        if attempt.sent is None or isinstance(exc, aiohttp.ClientConnectorError):
            return EndpointUnreachable(
                f"{url}: can't be reached ({why}); is it running, and the address right?"
            )
        if isinstance(exc, aiohttp.ClientError | OSError):
            return ConnectionLost(
                f"{url}: broke off after the request was sent ({why}); try again", paid=True
            )
        return ReplyInvalid(
            f"{url}: answered what can't be read ({type(exc).__name__}: {why}); try again", paid=True
        )

    def _timeout(self, url: URL, attempt: Attempt) -> EndpointTimeout:
        timeouts = self._endpoint.timeouts
        if attempt.expired and attempt.impatient:
            what = "gave no answer until the deadline of the call; give more time"
        elif attempt.sent is None or not attempt.expired:
            what = f"took more than {timeouts.connect:.3g} s to connect; is it reachable from here?"
        elif not attempt.headers:
            what = (
                f"gave no first byte within {timeouts.first_byte:.3g} s; raise the timeout if it is only slow"
            )
        else:
            what = f"took more than {timeouts.total:.3g} s in all; raise the timeout if it is only slow"
        return EndpointTimeout(f"{url}: {what}", paid=attempt.expired and attempt.sent is not None)

    @property
    def key(self) -> Secret | None:
        """The key that is sent, to be masked in what comes."""
        return self._endpoint.key

    def unsaid(self, text: str) -> str:
        """A message of the endpoint, the key masked in it."""
        return text if self._endpoint.key is None else self._endpoint.key.unsaid(text)


class Wire:
    """A reply that is read as it comes. `close` ends it at any time; nothing else does."""

    __slots__ = ("_attempt", "_line", "_response", "_size", "_url")

    def __init__(self, line: Line, url: URL, attempt: Attempt, response: aiohttp.ClientResponse) -> None:
        self._line, self._url, self._attempt, self._response = line, url, attempt, response
        self._size = 0  # bytes read

    @property
    def declared(self) -> bool:
        """Does it say that it is a stream of events?"""
        return "event-stream" in self._response.headers.get("Content-Type", "").lower()

    async def read(self) -> bytes:
        """What has come since, at least one byte; b"" at the end. A read that is cancelled loses nothing."""
        try:
            async with self._attempt:
                chunk = await self._response.content.readany()
            self._size += len(chunk)
            if self._size <= _LARGEST:
                return chunk
            error: EndpointError = _too_much(self._response)
        except Exception as exc:  # noqa: BLE001 - as in `exchange`
            error = self._line._error(exc, self._url, self._attempt)
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)

    def answer(self, raw: bytes) -> Answer:
        """All that was read as the answer that it is; ReplyInvalid where it is no JSON."""
        return self._line._answer(self._response, raw)

    def close(self) -> None:
        """Breaks off at once where the end hasn't come."""
        self._response.close()

    async def release(self) -> None:
        """Keeps the connection for the next request where the end comes now; else closes it."""
        try:
            async with asyncio.timeout(_LAST):
                while not self._response.content.at_eof():
                    await self._response.content.readany()
        except (aiohttp.ClientError, OSError):  # what matters has come
            pass
        finally:
            self._response.release()


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await _read(response)
    except BaseException:
        response.close()
        raise


def _too_much(response: aiohttp.ClientResponse) -> ReplyInvalid:
    return ReplyInvalid(
        f"{response.url}: answered with more than {_LARGEST // 2**20} MiB; ask for less at once",
        status=response.status,
        paid=True,
    )


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
            raise _too_much(response)
    return b"".join(parts)


_REMEDIES: Mapping[int, str] = {
    401: "; check the key",
    403: "; check the key and what it allows",
    404: "; check the address and the name of the model",
    429: "; ask more slowly",
}
