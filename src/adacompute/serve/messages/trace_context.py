"""The W3C trace context of a request: `traceparent` and `tracestate`, validated, to be sent upstream.

Invalid values are ignored, as the standard says. `baggage` isn't sent, because it may contain private data.
"""

import re
from collections.abc import Mapping

TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"
# version, trace id, parent span id, flags; later versions may append fields
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?")
_MAX_PARENT = 256  # maximum length of `traceparent`, in characters
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[!-+\--<>-~ ]{0,255}[!-+\--<>-~]"
)
_MAX_MEMBERS = 32
# maximum length of a `tracestate` to send, in characters; a longer one loses some of its members
_MAX_STATE = 512
# maximum length of a received `tracestate`, in characters; a longer one is ignored
_MAX_RECEIVED_STATE = 8192
_LONG_MEMBER = 128  # length of a `tracestate` member, in characters, above which it is dropped first


def read_trace_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Returns a request's trace headers to send upstream; None without a valid `traceparent`.

    Names in `headers` are lower case; repeated headers are joined by a comma.
    """
    parent = _read_parent(headers.get(TRACE_PARENT, ""))
    if parent is None:
        return None
    state = _read_state(headers.get(TRACE_STATE, ""))
    return {TRACE_PARENT: parent, TRACE_STATE: state} if state else {TRACE_PARENT: parent}


def _read_parent(text: str) -> str | None:
    text = text.strip(" \t")
    match = _PARENT.fullmatch(text) if len(text) <= _MAX_PARENT else None
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    if version == "ff" or not trace.strip("0") or not span.strip("0") or (version == "00" and rest):
        return None
    # other fields of later versions are unknown: keep only the ids and the sampled flag
    return text if version == "00" else f"00-{trace}-{span}-{int(flags, 16) & 1:02x}"


def _read_state(text: str) -> str:
    """Returns a valid `tracestate`, shortened if it is long; "" if it is invalid."""
    if not text or len(text) > _MAX_RECEIVED_STATE:
        return ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    names = {member.partition("=")[0] for member in members}
    is_valid = len(names) == len(members) <= _MAX_MEMBERS and all(map(_MEMBER.fullmatch, members))
    return _shorten_state(members) if is_valid else ""


def _shorten_state(members: list[str]) -> str:
    """Drops long members first, then the last ones, as the standard says."""
    if len(",".join(members)) > _MAX_STATE:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(state := ",".join(members)) > _MAX_STATE:
        members.pop()
    return state
