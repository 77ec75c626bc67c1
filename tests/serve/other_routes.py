"""An upstream with other routes than chat completions, for tests of what the gateway passes on.

    with OtherRoutes() as up, Running(up.url) as gate:
        gate.ask({"input": "x", "model": "m"}, path="/v1/embeddings")
    assert up.requests[0].path == "/v1/embeddings"

It is a real HTTP server in a thread of its own. `up.script` maps a path to what answers there: a function
(the request, its body) -> a reply; a path without one gets a reply that fits it, or 404.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KEY_HEADER = "authorization"


@dataclass
class Received:
    """One request as it came."""

    method: str
    path: str  # as it was written, without the query
    query: str
    headers: dict[str, str]  # lower-case names
    body: bytes = b""
    times: list[float] = field(default_factory=list)  # when its parts came
    aborted: bool = False
    sent: int = 0  # parts of a stream that were sent


Script = Callable[[web.Request, Received], Any]


class OtherRoutes:
    """Serves on loopback until it is left."""

    def __init__(self, **script: Script) -> None:
        self.script: dict[str, Script] = {f"/v1/{path}": how for path, how in script.items()}
        self.requests: list[Received] = []
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "OtherRoutes":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def of(self, path: str) -> list[Received]:
        """The requests to a path, without those of the gateway's own."""
        return [one for one in self.requests if one.path == path]

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        runner = web.ServerRunner(web.Server(self._answer, handler_cancellation=True), shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self._ready.set()
        await self._over.wait()
        await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.method, path, query, headers)
        self.requests.append(received)
        try:
            while part := await request.content.readany():
                received.times.append(time.monotonic())
                received.body += part
            how = self.script.get(path, usual)
            reply = how(request, received)  # type: ignore[arg-type]
            return await reply if asyncio.iscoroutine(reply) else reply
        except (asyncio.CancelledError, ConnectionError):
            received.aborted = True
            raise


def usual(request: web.Request, received: Received) -> web.StreamResponse:
    """A reply that fits the path."""
    path = received.path
    if path == "/v1/models":
        return web.json_response({"object": "list", "data": [{"id": "m"}]})
    if path == "/v1/embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}
        return web.json_response(
            {
                "object": "list",
                "data": [vector],
                "model": "m",
                "usage": {"prompt_tokens": 5, "total_tokens": 5},
            }
        )
    if path == "/v1/completions":
        body = json.loads(received.body)
        return web.json_response(completion(body.get("n", 1)))
    if path.startswith("/v1/files"):
        return web.json_response({"id": "file-1", "object": "file", "bytes": len(received.body)})
    error = {"message": f"no route {path}", "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=404)


def completion(n: int = 1) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": i, "text": "done", "finish_reason": "stop", "logprobs": None} for i in range(n)
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3 * n, "total_tokens": 7 + 3 * n},
    }


def stream(*parts: bytes, gap: float = 0.0, kind: str = "text/event-stream") -> Script:
    """A reply of these parts, so many seconds apart."""

    async def answer(request: web.Request, received: Received) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"content-type": kind})
        await reply.prepare(request)
        for part in parts:
            await reply.write(part)
            received.sent += 1
            await asyncio.sleep(gap)
        await reply.write_eof()
        return reply

    return answer


def status(code: int, value: Any = None, **headers: str) -> Script:
    """A reply of that status."""

    def answer(_request: web.Request, _received: Received) -> web.StreamResponse:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        given = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        return web.Response(status=code, body=body, headers=given)

    return answer
