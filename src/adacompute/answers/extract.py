"""Text -> answer. Doesn't know what answers mean, or which are right."""

import re
from collections.abc import Callable
from functools import partial

from adacompute.answers import markers, statements
from adacompute.answers.choice import choice
from adacompute.answers.fields import field_value
from adacompute.answers.search import last_match
from adacompute.answers.task import PLAIN, Task
from adacompute.answers.trim import trim
from adacompute.errors import TaskError

__all__ = ["LONGEST", "extract_answer"]

LONGEST = 65_536  # characters looked at, from the end: answers come last, and scans stay cheap

Reader = Callable[[str], str | None]
Plan = tuple[tuple[Reader, tuple[Reader, ...]], ...]

# each reader with those for what it gave, which may state its answer once more: "Final Answer: The final
# answer is 5. I hope it is correct."
_WORDED: tuple[Reader, ...] = (statements.line, statements.phrase)
_MARKED: Plan = (
    (statements.tagged, (markers.boxed, *_WORDED)),
    (markers.boxed, ()),
    (markers.hash_not_heading, _WORDED),
)
_FINISHED: Plan = (
    *_MARKED,
    (_WORDED[0], _WORDED[1:]),
    (_WORDED[1], ()),
    (markers.short, ()),
    (markers.value, ()),
)
_CUT_OFF: Plan = (
    *_MARKED,
    (partial(statements.line, finished=False), _WORDED[1:]),
    (partial(statements.phrase, finished=False), ()),
)

# what a phrase or line holds when a box was left open or empty: not an answer
_FRAGMENT = re.compile(r"\\boxed|\\fbox|^[\\()\[\]{}$\s]*$")

_READERS: dict[str, Reader] = {
    "boxed": lambda text: markers.boxed(statements.said_last(text)),  # a box of a thought is a draft
    "phrase": statements.phrase,
    "line": statements.line,
    "hash": markers.hashed,
    "number": markers.number,
    "choice": lambda text: choice(statements.said_last(text)),
}


def extract_answer(text: str, task: Task = PLAIN, *, finished: bool = True) -> str | None:
    r"""The answer a response states, or None; only its last 65,536 characters are looked at.

    A response that was cut off (`finished=False`) counts only where it states its answer; "auto" then
    takes neither a short reply nor the last number for one.

    >>> extract_answer(r"So we get \boxed{42}."), extract_answer("It has 3 or 4", finished=False)
    ('42', None)
    """
    if not isinstance(text, str):
        raise TaskError(f"{text!r} is not a text to extract from; give a string")
    if not isinstance(task.extract, str):
        return _by_function(task.extract, text)
    text = text[-LONGEST:]
    if task.extract == "auto":
        return _auto(text, finished=finished)
    kind, _, argument = task.extract.partition(":")
    if kind == "json":
        found = field_value(text, argument)
    elif kind == "regex":
        found = last_match(argument, text)
    else:
        found = _READERS[kind](text)
    return _trimmed(found)


def _auto(text: str, *, finished: bool) -> str | None:
    text = statements.said_last(text)
    for reader, within in _FINISHED if finished else _CUT_OFF:
        found = reader(text)
        if found is None:
            continue
        for inner in within:
            answer = _whole(inner(found))
            if answer is not None:
                return answer
        answer = _whole(found)
        if answer is not None:
            return answer
    return None


def _whole(found: str | None) -> str | None:
    answer = _trimmed(found)
    return None if answer is None or _FRAGMENT.search(answer) else answer


def _trimmed(found: str | None) -> str | None:
    return trim(found) if found is not None else None


def _by_function(function: Callable[[str], str | None], text: str) -> str | None:
    name = getattr(function, "__qualname__", None) or repr(function)
    try:
        found = function(text)
    except Exception as exc:  # the user's own code may raise anything
        raise TaskError(f"the extractor {name} failed with {exc!r} on the text {text[:60]!r}") from exc
    if found is not None and not isinstance(found, str):
        raise TaskError(
            f"the extractor {name} gave {found!r} on the text {text[:60]!r}; return a string or None"
        )
    return _trimmed(found)
