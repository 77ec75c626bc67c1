"""POST /v1/chat/completions: a request read, served and replied to. Knows HTTP; decides nothing."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.types import Message, Receive, Scope, Send

from adacompute.errors import EndpointError, Overloaded, ServeError
from adacompute.serve.asked import Ask, Route
from adacompute.serve.gateway import Gateway, Request
from adacompute.serve.limits import body_of, check_kind, check_length
from adacompute.serve.reply import chunks, completion, failure, headers_of
from adacompute.serve.route import routed
from adacompute.serve.told import Told
from adacompute.serve.watch import Watch
from adacompute.serve.wire import asked

__all__ = ["Chat", "headers_in", "id_of", "replied"]

_ID = "adacompute.id"  # of the completion, in the scope of its request, once there is one
_JSON = {"content-type": "application/json"}
_EVENTS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a proxy in between would hold it back
}
_ALIVE = 10.0  # seconds of silence in a stream after which a comment says that it goes on
_COMMENT = b": sampling\n\n"
_COMING = 2  # times as many requests as may be under way may still be sent
_BUSY = 1.0  # seconds after which to ask again where there was no room

Who = Callable[[Mapping[str, str]], str]  # headers -> the name of the client's key


class Chat:
    """The route, as an ASGI app."""

    def __init__(self, gateway: Gateway, who: Who) -> None:
        self._gateway = gateway
        self._who = who
        self._coming = 0  # requests whose bodies are still to come
        self._inside = 0  # requests that are worked on, or whose replies go out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Errors before the reply has begun are raised."""
        try:
            ask, route = await self._read(scope, receive)
            self._check_room()  # once more: others were quicker with their bodies
        except ServeError as exc:
            self._gateway.seen.refused(exc.status, exc.code)
            raise
        self._inside += 1
        try:
            await self._serve(ask, route, scope, receive, send)
        finally:
            self._inside -= 1

    async def _serve(self, ask: Ask, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        async with Watch(receive):
            request = self._gateway.begin(ask, route)
            scope[_ID] = request.id
            if not ask.stream:
                told = await self._gateway.complete(request)
                body = completion(told, ask, unit=self._gateway.settings.unit)
                await replied(send, 200, {**_JSON, **headers_of(told)}, body)
                return
            events = self._gateway.stream(request) if request.passed else self._voted(request)
            await (_at_once if scope["http_version"] == "1.0" else _streamed)(send, events)

    async def _read(self, scope: Scope, receive: Receive) -> tuple[Ask, Route]:
        gateway, settings = self._gateway, self._gateway.settings
        headers = headers_in(scope)
        key = self._who(headers)
        if not gateway.ready:
            raise Overloaded("the gateway is closing down; ask again in a moment", retry_after=_BUSY)
        self._check_room()
        if self._coming >= _COMING * settings.max_requests:
            raise _full(f"{self._coming} requests are still being sent")
        check_length(headers, settings.max_body)
        check_kind(headers)
        self._coming += 1
        try:
            raw = await body_of(receive, headers, limit=settings.max_body)
        finally:
            self._coming -= 1
        ask = asked(raw, settings=settings, model=gateway.model, listed=gateway.listing.known)
        shelf = gateway.shelf
        route = routed(ask, headers, settings=settings, key=key, policies=shelf.names, default=shelf.default)
        return ask, route

    def _check_room(self) -> None:
        """Overloaded where there is none; what is still being sent takes none of it, however slow it is."""
        if self._inside >= self._gateway.settings.max_requests:
            raise _full(f"{self._inside} requests are under way")

    async def _voted(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The winner as a stream, once it is known; until then, comments say that it goes on."""
        working = asyncio.ensure_future(self._gateway.complete(request))
        working.add_done_callback(_heeded)
        try:
            while not (await asyncio.wait([working], timeout=_ALIVE))[0]:
                yield _COMMENT
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
        for event in chunks(working.result(), request.sampling.ask, unit=self._gateway.settings.unit):
            yield event


def _full(words: str) -> Overloaded:
    return Overloaded(f"{words}, as many as may be; ask again in a moment", retry_after=_BUSY)


def _heeded(work: asyncio.Future[Told]) -> None:
    """Looks at its error, if it has one: where the client has gone in that moment, nobody else does."""
    if not work.cancelled():
        work.exception()


def headers_in(scope: Scope) -> dict[str, str]:
    """A request's headers, names in lower case; of one that came twice, both, with a comma between them."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def id_of(scope: Scope) -> str:
    """The id of the reply to a request: of its completion, or one made up where there is none."""
    return str(scope.setdefault(_ID, f"req-{os.urandom(16).hex()}"))


async def replied(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """A whole reply."""
    await _begun(send, {**headers, "content-length": str(len(body))}, status=status)
    await _part(send, body, last=True)


async def _streamed(send: Send, events: AsyncGenerator[bytes, None]) -> None:
    """A reply of events. An error before the first is raised; after it, it is an event itself."""
    async with aclosing(events):
        first = await anext(events)
        await _begun(send, _EVENTS)
        await _part(send, first)
        try:
            async for event in events:
                await _part(send, event)
        except (ServeError, EndpointError) as exc:
            await _part(send, b"data: " + failure(exc)[2] + b"\n\n")
    await _part(send, b"", last=True)


async def _at_once(send: Send, events: AsyncGenerator[bytes, None]) -> None:
    """The same for a client of HTTP/1.0, which knows no reply of a length that isn't told."""
    came: list[bytes] = []

    async def kept(message: Message) -> None:
        came.append(message.get("body", b""))

    await _streamed(kept, events)
    await replied(send, 200, _EVENTS, b"".join(came))


async def _begun(send: Send, headers: Mapping[str, str], *, status: int = 200) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _part(send: Send, body: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not last})
