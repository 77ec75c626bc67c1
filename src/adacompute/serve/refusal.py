"""An error -> status, headers and body of the reply, as OpenAI shapes them.

Clients learn what they can do about it; of the upstream neither its address nor what it says about the
operator's key.
"""

import math
import re
from typing import Any

import orjson

from adacompute.endpoint.outcome import sound
from adacompute.errors import (
    CapReached,
    EndpointError,
    EndpointRefused,
    EndpointResting,
    EndpointTimeout,
    EndpointUnreachable,
    RateLimited,
    ReplyInvalid,
    SendingStopped,
    ServeError,
    Unauthorized,
    WeakVote,
)

__all__ = ["failure"]

Headers = dict[str, str]

# browsers ask for the key then; Chromium can't read it where a second scheme stands in the same line
_CHALLENGE = 'Basic realm="adacompute", charset="UTF-8"'
_LONGEST = 500  # characters of a message
_LATEST = 86_400  # seconds; nobody plans a retry for later
_OURS = {400, 404, 409, 413, 415, 422}  # statuses of an upstream that are about the client's own request
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>)\],;]+", re.IGNORECASE)


def failure(error: ServeError | EndpointError) -> tuple[int, Headers, bytes]:
    """Status, headers and body of the reply that tells an error."""
    if isinstance(error, ServeError):
        headers = {} if error.retry_after is None else _later(error.retry_after)
        if isinstance(error, CapReached | WeakVote):
            headers |= _never()  # SDKs would try a 429 again, and pay for a weak vote once more
        if isinstance(error, Unauthorized) and error.status == 401:
            headers["www-authenticate"] = _CHALLENGE
        return _told(error.status, headers, str(error), error.kind, error.code, error.param)
    return _upstream(error)


def _upstream(error: EndpointError) -> tuple[int, Headers, bytes]:
    if isinstance(error, EndpointRefused):
        return _refused(error)
    kind = "server_error"
    wait = _later(1.0 if error.retry_after is None else error.retry_after)
    if isinstance(error, RateLimited):
        message = f"the upstream takes no more requests now; try again in {wait['retry-after']} s"
        return _told(429, wait, message, "rate_limit_error", "upstream_rate_limited")
    if isinstance(error, EndpointTimeout):
        message = (
            "no answer came before the deadline, the gateway's or the request's own (x-adacompute-deadline); "
            "try again, give more time, or ask for fewer tokens"
        )
        return _told(504, {}, message, kind, "upstream_timeout")
    if isinstance(error, EndpointResting):
        message = f"the upstream fails, and is left alone for a while; try again in {wait['retry-after']} s"
        return _told(503, wait, message, kind, "upstream_resting")
    if isinstance(error, SendingStopped):
        return _told(503, wait, "the gateway is closing down; try again", kind, "stopping")
    if isinstance(error, EndpointUnreachable):
        return _told(502, {}, "the upstream can't be reached; try again later", kind, "upstream_unreachable")
    if isinstance(error, ReplyInvalid) and error.status in (None, 200):
        message = "the upstream answered what is no chat completion in JSON; try again, or tell the operator"
        return _told(502, {}, message, kind, "upstream_failed")
    said = "" if error.status in (None, 200) else f" (it answered {error.status})"
    return _told(502, {}, f"the upstream failed{said}; try again", kind, "upstream_failed")


def _refused(error: EndpointRefused) -> tuple[int, Headers, bytes]:
    if error.status in _OURS:
        return _told(error.status, {}, _words(str(error)), "invalid_request_error", "upstream_refused")
    if error.status in (401, 402, 403):
        message = "the upstream doesn't accept the gateway's own key; tell the operator"
        return _told(502, _never(), message, "server_error", "upstream_credentials")
    said = "" if error.status is None else f" (it answered {error.status})"
    message = f"the upstream refused what the gateway sent{said}; tell the operator"
    return _told(502, _never(), message, "server_error", "upstream_failed")


def _words(message: str) -> str:
    """An endpoint's message without its address, which it begins with.

    >>> _words("http://10.0.0.7:8000/v1/chat/completions: answered 400: too long for 10.0.0.7:8000")
    'the upstream answered 400: too long for the upstream'
    """
    found = _ADDRESS.match(message)
    if found is not None:
        address = found[0].rstrip(":")
        host = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
        rest = message[len(address) :].removeprefix(":").strip()
        message = f"the upstream {rest.replace(host, 'the upstream') if host else rest}"
    return _ADDRESS.sub("the upstream", message)


def _later(seconds: float) -> Headers:
    return {"retry-after": str(math.ceil(min(max(1.0, seconds), _LATEST)))}


def _never() -> Headers:
    return {"x-should-retry": "false"}


def _told(
    status: int, headers: Headers, message: str, kind: str, code: str, param: str | None = None
) -> tuple[int, Headers, bytes]:
    line = " ".join(sound(message).split())
    line = line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
    about: dict[str, Any] = {"message": line, "type": kind, "param": param and sound(param), "code": code}
    return status, {"content-type": "application/json"} | headers, orjson.dumps({"error": about})
