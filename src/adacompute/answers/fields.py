"""Reads one field of the JSON a text holds. Doesn't know which field is the answer."""

import json
import re

__all__ = ["field_value"]

_OPENING = re.compile(r"\{\s{0,1000}[\"}]")  # how a JSON object begins; LaTeX braces rarely do
_ATTEMPTS = 256  # objects tried, from the end: failing ones may each cost a scan


class _Raw(str):
    """A number in the text's own digits: 1.50 stays 1.50, and 10,000 digits are not converted."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Raw, parse_float=_Raw, parse_constant=_Raw)


def field_value(text: str, field: str) -> str | None:
    """The field's value in the last JSON object, or None; numbers and booleans as JSON text."""
    starts = [match.start() for match in _OPENING.finditer(text)][-_ATTEMPTS:]
    value: str | None = None
    end = 0
    for start in starts:
        if start < end:
            continue  # inside an object that was read
        try:
            found, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        value = _as_text(found.get(field))
    return value


def _as_text(value: object) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, str) else _dump(value)


def _dump(value: object) -> str:
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(_dump(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_dump(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
