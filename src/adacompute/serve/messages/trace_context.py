"""The W3C trace context of a request: `traceparent` and `tracestate`, checked, to be passed upstream.

What is not valid is ignored, as the standard says, and never an error. `baggage` is not passed on: it may
hold anything, and is not meant for a third party.
"""

import re
from collections.abc import Mapping

TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"
# version, id of the trace, id of the parent's span, flags; a later version may have more behind them
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?")
_MAX_PARENT = 256  # characters
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[!-+\--<>-~ ]{0,255}[!-+\--<>-~]"
)
_MAX_MEMBERS = 32
_MAX_STATE = 512  # characters that every tracer passes on; of more, whole members are left out
_MAX_RECEIVED_STATE = 8192  # characters of a state that is read at all
_LONG_MEMBER = 128  # characters; those above are left out first


def read_trace_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """The headers of a request's trace context, to be sent upstream; None if it has none that is valid.

    Names in `headers` are in lower case; repeated headers are joined by a comma.
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
    # a later version's other fields aren't known: only the ids, and whether it is sampled
    return text if version == "00" else f"00-{trace}-{span}-{int(flags, 16) & 1:02x}"


def _read_state(text: str) -> str:
    """The state, shortened if it is long; "" if it is not valid."""
    if not text or len(text) > _MAX_RECEIVED_STATE:
        return ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    names = {member.partition("=")[0] for member in members}
    if len(members) > _MAX_MEMBERS or len(names) < len(members):
        return ""
    if not all(map(_MEMBER.fullmatch, members)):
        return ""
    return _shorten_state(members)


def _shorten_state(members: list[str]) -> str:
    """Leaves out long members first, then those at the end, as the standard says."""
    state = ",".join(members)
    if len(state) <= _MAX_STATE:
        return state
    kept = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(state := ",".join(kept)) > _MAX_STATE:
        kept.pop()
    return state
