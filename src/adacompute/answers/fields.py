"""Reads one field of the JSON a text holds. Doesn't know which field is the answer."""

import json
import re

__all__ = ["field_value"]

_OPENING = re.compile(r"\{\s{0,1000}[\"}]")  # how a JSON object begins; LaTeX braces rarely do
_BUDGET = 80_000  # characters that may be scanned in vain
_ATTEMPT = 80  # what an attempt costs besides, in characters
_TAIL = 400  # characters of the end where objects are still tried when the budget is spent
_DEEPEST = 50  # levels of a value that is given as text


class _Raw(str):
    """A number in the text's own digits: 1.50 stays 1.50, and 10,000 digits are not converted."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Raw, parse_float=_Raw, parse_constant=_Raw)


def field_value(text: str, field: str) -> str | None:
    """The field's value in the last JSON object, or None; numbers and booleans as JSON text."""
    value: object = None
    end = 0
    left = _BUDGET
    for match in _OPENING.finditer(text):
        start = match.start()
        if start < end or (left <= 0 and len(text) - start > _TAIL):
            continue  # inside an object that was read, or too much was read in vain
        try:
            found, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as exc:
            unclosed = exc.msg.startswith("Unterminated")  # it tells where the string begins
            left -= (len(text) if unclosed else exc.pos) - start + _ATTEMPT
        except RecursionError:
            left -= len(text) - start
        else:
            value = found.get(field)
    return _as_text(value)


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    try:
        return _dump(value, _DEEPEST)
    except RecursionError:  # deeper than anyone's answer, or than the caller's stack has room for
        return None


def _dump(value: object, levels: int) -> str:
    if levels == 0:
        raise RecursionError
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join([_dump(item, levels - 1) for item in value]) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join([f"{json.dumps(key)}: {_dump(item, levels - 1)}" for key, item in value.items()])
            + "}"
        )
    return json.dumps(value, ensure_ascii=False)
