"""Runs a user's own pattern over a text. Doesn't know what it looks for.

Python can't interrupt a match, and a pattern like (a+)+$ may take for ever, so all but plainly cheap
patterns run in a helper process that is killed when it takes too long.
"""

import re

from adacompute.answers.process import Helper

__all__ = ["close_search", "last_match"]

_CHEAP_TEXT = 4096  # characters that one unbounded repeat may pass over twice, so to speak
_LIMIT = 0.06  # seconds of processor time
_ESCAPED = re.compile(r"\\[^\d]|\[(?:\\.|[^\]\\])*\]", re.DOTALL)

_helper = Helper("search", limit=_LIMIT)


def last_match(pattern: str, text: str) -> str | None:
    """Group 1, or the whole, of the pattern's last match; None without one, or when it takes too long."""
    if len(text) > _CHEAP_TEXT or not _is_cheap(pattern):
        reply = _helper.ask({"pattern": pattern, "text": text})
        found = reply.get("found") if reply is not None else None
        return found if isinstance(found, str) else None
    last = None
    for match in re.finditer(pattern, text):
        last = match
    if last is None:
        return None
    return last.group(1) if last.re.groups else last.group()


def close_search() -> None:
    """Ends the helper process; the next risky pattern starts another."""
    _helper.close()


def _is_cheap(pattern: str) -> bool:
    """At most one unbounded repeat, of a single character, and nothing that can multiply it."""
    bare = _ESCAPED.sub("x", pattern)
    if "{" in bare or "\\" in bare or "(?" in bare or bare.count("?") > 4:
        return False
    repeats = bare.count("*") + bare.count("+")
    return repeats == 0 or (repeats == 1 and "|" not in bare and ")*" not in bare and ")+" not in bare)
