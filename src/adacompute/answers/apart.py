"""Answers read in a process apart, with a time limit: an event loop's thread isn't held by a hostile text.

Doesn't know what answers mean. Threads wouldn't do: a pattern holds the interpreter until it has matched.
"""

import threading

from adacompute.answers.extract import LONGEST, extract_answer
from adacompute.answers.process import Helper
from adacompute.answers.task import PLAIN, Task
from adacompute.answers.trim import trim

__all__ = ["close_apart", "extract_apart", "late", "takes_long", "warm_apart"]

_LIMIT = 0.25  # seconds of processor time: five times what the worst texts take
_SEARCH_LIMIT = 0.06  # of an operator's own pattern, which may never end
_TRIAL_LIMIT = 0.02  # of a pattern that is to run in an event loop: ten times what an ordinary one takes

_extractor = Helper("extract", limit=_LIMIT)
_searcher = Helper("search", limit=_SEARCH_LIMIT)
_counting = threading.Lock()
_late = 0


def extract_apart(text: str, task: Task = PLAIN, *, finished: bool = True) -> str | None:
    """As `extract_answer`, in a process apart; None, and counted, where it takes too long.

    Waits for the process, so an event loop calls it in a thread. Where the process can't be had, a plain
    extractor runs here, and an operator's own pattern finds nothing.
    """
    if not isinstance(task.extract, str):
        return extract_answer(text, task, finished=finished)
    kind, _, pattern = task.extract.partition(":")
    text = text[-LONGEST:]
    if kind == "regex":
        reply = _searcher.ask({"pattern": pattern, "text": text})
    else:
        reply = _extractor.ask({"extract": task.extract, "text": text, "finished": finished})
        if reply is None:
            return extract_answer(text, task, finished=finished)
    if reply is None or "late" in reply:
        _count()
        return None
    found = reply.get("found")
    return trim(found) if isinstance(found, str) else None


def late() -> int:
    """How many texts took too long, and so count as without an answer."""
    return _late


def takes_long(pattern: str, size: int) -> bool:
    """Whether a pattern that compiles is slow on one of some texts of that size that are known to be hard."""
    letters = dict.fromkeys(c for c in pattern if c.isalnum() or c == " ")
    units = ["a", " ", "1", "a ", "aA1_", "a,", "ab ", *list(letters)[:8]]
    helper = Helper("search", limit=_TRIAL_LIMIT)
    try:
        replies = (helper.ask({"pattern": pattern, "text": (unit * size)[:size] + "\0"}) for unit in units)
        return any(reply is not None and "late" in reply for reply in replies)
    finally:
        helper.close()


def warm_apart(task: Task = PLAIN) -> bool:
    """Starts the process that a task needs, so that no text waits for it."""
    regex = isinstance(task.extract, str) and task.extract.startswith("regex:")
    return (_searcher if regex else _extractor).start()


def close_apart() -> None:
    """Ends the processes; the next text starts another."""
    _extractor.close()
    _searcher.close()


def _count() -> None:
    global _late
    with _counting:
        _late += 1
