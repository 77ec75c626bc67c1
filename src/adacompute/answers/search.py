"""Runs a user's own pattern over a text. Doesn't know what it looks for.

Python can't interrupt a match, and a pattern like (a+)+$ may take for ever, so all but plainly cheap
patterns run in a helper process that is stopped when it takes too long.
"""

import re

from adacompute.answers.process import Helper

__all__ = ["close_search", "last_match"]

_STEPS = 400_000  # a bound on the work of a pattern that runs here: milliseconds
_LIMIT = 0.06  # seconds of processor time
_CLASS = re.compile(r"\\[^\d]|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_BRANCHES = re.compile(r"[|?{\\]|\)[*+]")  # either-or, optional or lazy, counted, reference, repeated group
_REPEAT_LAST = re.compile(r"[*+]\)*")

_helper = Helper("search", limit=_LIMIT)


def last_match(pattern: str, text: str) -> str | None:
    """Group 1, or the whole, of the pattern's last match; None without one, or when it takes too long."""
    if not _is_cheap(pattern, len(text)):
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


def _is_cheap(pattern: str, size: int) -> bool:
    """Whether it can't take long: no branches, and one repeat at most, so the steps can be told before.

    Without a repeat, or with one that ends the pattern and so can't fail, every character is passed once
    for each part of the pattern; with a repeat elsewhere, once more for each character.
    """
    bare = _CLASS.sub("x", pattern)
    if _BRANCHES.search(bare) or bare.count("*") + bare.count("+") > 1:
        return False
    repeat = re.search(r"[*+]", bare)
    linear = repeat is None or _REPEAT_LAST.fullmatch(bare, repeat.start())
    return len(bare) * size * (1 if linear else size) <= _STEPS
