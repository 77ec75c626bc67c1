"""Cross-origin requests: which web pages may use the API, by the Origin that their browser sends.

Only paths under /v1 are open to other origins, never the dashboard or metrics. No credentials of the browser
are allowed: a page gives its key itself.
"""

import re
from collections.abc import Collection, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adacompute.serve.chat import read_headers, send_reply

__all__ = ["CorsMiddleware"]

_API_PATH = re.compile(r"/+v1(?:/|$)")
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_ALLOWED_HEADER = re.compile(
    r"authorization|content-type|accept|idempotency-key|traceparent|tracestate|user-agent|http-referer|x-title"
    r"|(?:x-adacompute|x-stainless|openai|anthropic)-[a-z0-9-]{1,60}"
)
_EXPOSED_HEADER = re.compile(rb"x-adacompute-.*|x-request-id|retry-after|openai-processing-ms")
_MAX_HEADERS = 64  # that a page may ask for
_MAX_AGE = "600"  # seconds that a browser may keep an answer


class CorsMiddleware:
    """An ASGI app around the gateway's, which tells browsers what pages of these origins may do."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a browser's question whether it may send a request, and marks the replies."""
        if scope["type"] != "http" or not _API_PATH.match(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = read_headers(scope)
        allowed = self._find_allowed(headers.get("origin", ""))
        if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await send_reply(send, 204, _answer_preflight(allowed, headers), b"")
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_mark_reply(allowed, message)]}
            await send(message)

        await self._app(scope, receive, send_marked)

    def _find_allowed(self, origin: str) -> str:
        """What is allowed to a request of an origin: itself, any, or "" for nothing."""
        if not origin:
            return ""
        return "*" if "*" in self._origins else origin if origin in self._origins else ""


def _answer_preflight(allowed: str, headers: Mapping[str, str]) -> dict[str, str]:
    wanted = headers.get("access-control-request-headers", "").lower().split(",")[:_MAX_HEADERS]
    names = [name for name in map(str.strip, wanted) if _ALLOWED_HEADER.fullmatch(name)]
    answer = {
        "access-control-allow-origin": allowed,
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": ", ".join(names),
        "access-control-max-age": _MAX_AGE,
        "vary": "Origin, Access-Control-Request-Headers",
    }
    if headers.get("access-control-request-private-network") == "true":
        answer["access-control-allow-private-network"] = "true"
    return answer


def _mark_reply(allowed: str, message: Message) -> list[tuple[bytes, bytes]]:
    marks = [(b"vary", b"Origin")]
    if allowed:
        exposed = [name for name, _ in message["headers"] if _EXPOSED_HEADER.fullmatch(name)]
        marks.append((b"access-control-allow-origin", allowed.encode("latin-1")))
        marks.append((b"access-control-expose-headers", b", ".join(exposed)))
    return marks
