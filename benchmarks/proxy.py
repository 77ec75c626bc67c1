"""The least a proxy in Python does: Starlette takes a request, aiohttp passes it on, the reply goes back.

`python -m benchmarks.proxy URL PORT`. Knows nothing of what it passes on: no checks, no account, no vote.
"""

import contextlib
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def proxy(url: str) -> Starlette:
    """The application."""

    async def passed(request: Request) -> Response:
        body = await request.body()
        session: aiohttp.ClientSession = request.app.state.session
        async with session.post(
            url + request.url.path.removeprefix("/v1"),
            data=body,
            headers={"content-type": "application/json"},
        ) as reply:
            return Response(await reply.read(), reply.status, media_type=reply.content_type)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            app.state.session = session
            yield

    routes = [
        Route("/v1/chat/completions", passed, methods=["POST"]),
        Route("/v1/embeddings", passed, methods=["POST"]),
        Route("/healthz", lambda _: Response("ok")),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        proxy(sys.argv[1]),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
