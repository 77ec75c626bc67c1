"""JSON, Python literals and calls of tools as answers: one text for all spellings of a value, to vote on.

Canonical JSON has sorted keys and no blanks; 1, 1.0 and 1e0 are one number, and decimals count to 15 digits;
strings are in Unicode's composed form, without blanks at their ends. Nothing else is merged: true is not 1,
and "1" is 1 only where a schema says that the value is a number.

A Python literal is a text, list, tuple, set or dict as Python writes and compares it: 'x' is "x", the order
of keys doesn't count, the last of equal keys holds, True is 1. Blanks inside texts count.

A call of a tool is an object of its name and its arguments, `{"weather":{"city":"Rome"}}`; several calls are
a sorted list. The arguments' schema fills in defaults and says which texts are numbers.

Input may be hostile: lengths, depths and the work of applying a schema are bounded, and what exceeds them
has no canonical form.
"""

import ast
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException
from typing import Any

MAX_LENGTH = 65_536  # characters of a text that is read
_MAX_LEVELS = 50  # nested values, at most
_MAX_ANSWER = 400  # characters of an answer; a longer one ends in a hash of the whole
_MAX_DIGITS = 60  # characters of a number; a longer one is compared as it is written
_MAX_EXPONENT = 40  # digits of a number that is written out
_SCHEMA_WORK = 5_000  # properties and values that are looked at for one sample
_SIGNIFICANT = Context(prec=15, Emin=MIN_EMIN, Emax=MAX_EMAX)  # digits that a double always keeps
_EXACT = Context(prec=2 * _MAX_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)


class RawNumber(str):
    """A number in the text's own digits: 1.50 stays 1.50, and 10,000 digits are not converted."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=RawNumber, parse_float=RawNumber, parse_constant=RawNumber)


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON data
    """The value of a JSON text, with numbers as they are written; ValueError if it is none, or too long."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"longer than {MAX_LENGTH} characters")
    try:
        value, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip()))
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if text[end:].strip():
        raise ValueError("more than one value")
    return value


def write_canonical(value: object) -> str:
    """Canonical JSON of a parsed value; ValueError if it is nested too deeply.

    >>> write_canonical(parse_json('{"b": 1.0, "a": ["x ", 2e1]}'))
    '{"a":["x",20],"b":1}'
    """
    return _write(value, _MAX_LEVELS)


def canonicalise_text(text: str) -> str | None:
    """Canonical JSON of a JSON text; None if it is none.

    >>> canonicalise_text('{"a": 1.0}'), canonicalise_text("{1, 2}")
    ('{"a":1}', None)
    """
    try:
        return write_canonical(parse_json(text))
    except ValueError:
        return None


def bound_answer(canonical: str) -> str:
    """A canonical text as an answer: a long one is cut, and ends in a hash of the whole."""
    if len(canonical) <= _MAX_ANSWER:
        return canonical
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{canonical[: _MAX_ANSWER - 20]}… #{digest}"


def _write(value: object, levels: int, *, is_canonical: bool = True) -> str:
    """A value as JSON, in its canonical form or as it is usually written."""
    if levels == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        if not is_canonical:
            return str(value) if isinstance(value, RawNumber) else json.dumps(value, ensure_ascii=False)
        return write_number(value) if isinstance(value, RawNumber) else _write_string(value)
    comma, colon = (",", ":") if is_canonical else (", ", ": ")
    if isinstance(value, list | tuple):
        return f"[{comma.join([_write(item, levels - 1, is_canonical=is_canonical) for item in value])}]"
    if isinstance(value, Mapping):
        names = _write_names(value) if is_canonical else map(json.dumps, value)
        items = [_write(item, levels - 1, is_canonical=is_canonical) for item in value.values()]
        fields = map(colon.join, zip(names, items, strict=True))
        return "{" + comma.join(sorted(fields) if is_canonical else fields) + "}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return write_number(repr(value))
    return json.dumps(value)


def _write_names(value: Mapping[Any, Any]) -> list[str]:
    """The names of an object's fields as strings are written, or as they are where two would become one."""
    names = [_write_string(str(name)) for name in value]
    return names if len(set(names)) == len(names) else [json.dumps(str(name)) for name in value]


def _write_string(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of a pair
        text = unicodedata.normalize("NFC", text)
    return json.dumps(text.strip(), ensure_ascii=False)


def write_number(text: str) -> str:
    """A number's one spelling.

    >>> write_number("1.0"), write_number("1e0"), write_number("0.30000000000000004"), write_number("-0")
    ('1', '1', '0.3', '0')
    """
    if len(text) > _MAX_DIGITS or (text.isdigit() and len(text) <= _MAX_EXPONENT):
        return text
    try:
        number = Decimal(text)
        if not number.is_finite():
            return text
        if number.adjusted() >= _MAX_EXPONENT or number != number.to_integral_value(context=_EXACT):
            number = _SIGNIFICANT.plus(number)
        number = number.normalize(_EXACT)
    except DecimalException:  # an exponent beyond all bounds
        return text
    if not number:
        return "0"
    return f"{number:f}" if -7 <= number.adjusted() < _MAX_EXPONENT else f"{number:e}"


_LITERAL_STARTS = tuple("'\"[({")
_ODD_ESCAPE = re.compile(r"\\([^xuU\\'\"ntrbfva0])|\\.", re.DOTALL)
_MAX_LITERAL = 1000  # characters


def canonicalise_literal(text: str) -> str | None:
    """One text for all spellings of a Python text, list, tuple, set or dict; None for any other answer.

    >>> canonicalise_literal("{'b': [1.0, (2,)], 'a': \\"x\\"}"), canonicalise_literal("'it\\\\'s'")
    ('{"a":"x","b":[1,(2,)]}', '"it\\'s"')
    """
    text = text.strip()
    if not text.startswith(_LITERAL_STARTS) or len(text) > _MAX_LITERAL:
        return None
    try:
        # Python warns of escapes that it doesn't know, and keeps them
        value = ast.literal_eval(_ODD_ESCAPE.sub(lambda match: "\\" * bool(match[1]) + match[0], text))
        is_plain = value is None or isinstance(value, int | float)  # in round brackets
        return None if is_plain else _write_literal(value, _MAX_LEVELS)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _write_literal(value: object, levels: int) -> str:
    if levels == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return json.dumps(value)
    if value is None:
        return "None"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return write_number(repr(value + 0))
    if isinstance(value, dict):
        fields = [[_write_literal(part, levels - 1) for part in item] for item in value.items()]
        return "{" + ",".join(sorted(map(":".join, fields))) + "}"
    if not isinstance(value, list | tuple | set):
        raise ValueError(f"a {type(value).__name__} is no answer")
    items = [_write_literal(item, levels - 1) for item in value]
    if isinstance(value, set):
        return "{" + ",".join(sorted(set(items))) + "}"
    return f"[{','.join(items)}]" if isinstance(value, list) else f"({','.join(items)},)"


_FENCE = re.compile(r"```[ \t]{0,9}(?:json|JSON|jsonc|json5)?[ \t]{0,9}\r?\n?")
_OBJECT_START = re.compile(r"\{\s{0,1000}[\"}]")  # how a JSON object begins; LaTeX braces rarely do
_SCAN_BUDGET = 80_000  # characters that failed attempts may scan
_ATTEMPT_COST = 80  # characters charged for each attempt on top
_ALWAYS_SCANNED = 400  # characters of the end where objects are still tried when the budget is spent


def find_last_object(text: str, *, strict: bool = False) -> dict[str, Any] | None:
    """The last JSON object in a text that isn't inside another; None if there is none.

    `strict`: also None if something begins like an object and is none: what follows may be a part of it.
    """
    latest: dict[str, Any] | None = None
    end = 0
    budget = _SCAN_BUDGET
    for match in _OBJECT_START.finditer(text):
        start = match.start()
        if start < end or (budget <= 0 and len(text) - start > _ALWAYS_SCANNED):
            continue  # inside an object that was read, or the budget is spent
        try:
            latest, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as exc:
            if strict:
                return None
            unclosed = exc.msg.startswith("Unterminated")  # then `pos` is where the string begins
            budget -= (len(text) if unclosed else exc.pos) - start + _ATTEMPT_COST
        except RecursionError:
            budget -= len(text) - start
    return latest


def read_json_value(text: str) -> Any:  # noqa: ANN401 - JSON data
    """The JSON value of a reply: all of it, or a fenced block, or its last object; None if it has none."""
    stripped = text.strip()
    for candidate in (stripped, *_split_fences(stripped)):
        try:
            return parse_json(candidate)
        except ValueError:
            continue
    return find_last_object(stripped[-MAX_LENGTH:], strict=True)


def _split_fences(text: str) -> Iterator[str]:
    """What is in fenced blocks, the last first; the last may be left open."""
    openings = list(_FENCE.finditer(text[:MAX_LENGTH]))[-8:]
    for opening in reversed(openings):
        yield text[opening.end() :].partition("```")[0]


# What models write on the way to an answer, or about it; no two samples word it alike. Other names, such as
# steps or analysis, may be what was asked for.
FREE_TEXT_FIELDS = frozenset(
    ("reasoning", "rationale", "explanation", "thought", "thoughts", "chain_of_thought", "scratchpad")
)


def convert_to_snake_case(name: str) -> str:
    """The first 60 characters of a field's name in lower case, with low lines between its words.

    >>> convert_to_snake_case("chainOfThought"), convert_to_snake_case("Final-Answer")
    ('chain_of_thought', 'final_answer')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:60]).lower().replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSelection:
    """Which parts of a value count: only `fields`, if there are any, and none of `exclude`.

    Names are paths with dots, "items.price"; they go through lists. Of calls of tools a path is in the
    arguments, or begins with the tool's name.
    """

    fields: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def for_tool(self, name: str) -> "FieldSelection":
        """The selection within one tool's arguments."""
        prefix = f"{name}."
        return FieldSelection(
            fields=tuple(path.removeprefix(prefix) for path in self.fields),
            exclude=tuple(path.removeprefix(prefix) for path in self.exclude),
        )


def select_fields(
    value: Any,  # noqa: ANN401 - JSON data
    selection: FieldSelection,
    schema: object = None,
) -> tuple[Any, list[str]]:
    """The part of an object that counts, and the free-text fields that were left out.

    Free text is left out unless it was asked for by name, or is all there is. A value that is no object
    counts as a whole.
    """
    if not isinstance(value, dict):
        return value, []
    value = _select_named(value, selection)
    free_text = (
        [] if selection.fields else [name for name in value if _is_free_text(name, value[name], schema)]
    )
    if len(free_text) == len(value):
        return value, []
    return {name: item for name, item in value.items() if name not in free_text}, free_text


def _select_named(value: dict[str, Any], selection: FieldSelection) -> dict[str, Any]:
    """An object's parts that a selection names, or all of them, without those that it excludes."""
    if selection.fields:
        picked = {path: _pick(value, path) for path in selection.fields}
        value = {path: item for path, item in picked.items() if item is not _MISSING}
    for path in selection.exclude:
        value = _drop(value, path)
    return value


_MISSING: Any = object()


def _is_free_text(name: str, value: object, schema: object) -> bool:
    """Whether a field holds free text: a string, by its name, for which the schema names no choices."""
    is_string = isinstance(value, str) and not isinstance(value, RawNumber)
    if not is_string or convert_to_snake_case(name) not in FREE_TEXT_FIELDS:
        return False
    properties = schema.get("properties") if isinstance(schema, dict) else None
    rule = properties.get(name) if isinstance(properties, dict) else None
    return not (isinstance(rule, dict) and ("enum" in rule or "const" in rule or "$ref" in rule))


def _pick(value: Any, path: str) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(value, list):
        items = [_pick(item, path) for item in value]
        return [item for item in items if item is not _MISSING]
    if not isinstance(value, dict):
        return _MISSING
    if path in value:
        return value[path]
    head, _, rest = path.partition(".")
    return _pick(value[head], rest) if rest and head in value else _MISSING


def _drop(value: Any, path: str) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(value, list):
        return [_drop(item, path) for item in value]
    if not isinstance(value, dict):
        return value
    if path in value:
        return {name: item for name, item in value.items() if name != path}
    head, _, rest = path.partition(".")
    return {**value, head: _drop(value[head], rest)} if rest and head in value else value


def list_leaves(value: Any, place: str = "", levels: int = 8) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """The values within a value by their paths; those of a list's items have the path of the list."""
    if levels and isinstance(value, dict) and value:
        for name, item in value.items():
            yield from list_leaves(item, f"{place}.{name}" if place else str(name), levels - 1)
    elif levels and isinstance(value, list) and value:
        for item in value[:50]:
            yield from list_leaves(item, place, levels - 1)
    else:
        yield place, value


def find_free_text(value: Any, words: int) -> str:  # noqa: ANN401 - JSON data
    """The path of a string of more than so many words; "" if there is none.

    >>> find_free_text({"to": "me", "note": {"body": "so much to say here"}}, 4)
    'note.body'
    """
    return next(
        (
            path or "text"
            for path, leaf in list_leaves(value)
            if isinstance(leaf, str) and len(leaf[:2000].split(None, words)) > words
        ),
        "",
    )


class _SchemaWalk:
    """Applies one schema to one value, within a bounded amount of work."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _SCHEMA_WORK

    def apply(self, value: Any, schema: object, levels: int = _MAX_LEVELS) -> Any:  # noqa: ANN401 - JSON data
        self._left -= 1
        if self._left < 0 or levels == 0:
            raise ValueError("the schema is too large")
        rule = self._resolve(schema)
        if isinstance(value, dict):
            return self._fill(value, rule, levels)
        if isinstance(value, list):
            items = rule.get("items")
            return [self.apply(item, items, levels - 1) for item in value]
        return _coerce(value, rule.get("type"))

    def _fill(self, value: dict[str, Any], rule: Mapping[str, Any], levels: int) -> dict[str, Any]:
        properties, required = rule.get("properties"), rule.get("required")
        if not isinstance(properties, dict):
            return value
        self._left -= len(properties)
        names = required if isinstance(required, list) else []
        is_required = {name for name in names if isinstance(name, str)}
        full = {}
        for name, item in value.items():
            part = properties.get(name)
            if item is None and name not in is_required and not _has_default(part):
                continue  # null where nothing need be given is the same as nothing
            full[name] = self.apply(item, part, levels - 1)
        for name, part in properties.items():
            if name not in value and _has_default(part):
                full[name] = part["default"]
        return full

    def _resolve(self, schema: object) -> Mapping[str, Any]:
        """The rule itself: references are followed, and of a type or null the type is taken."""
        for _ in range(8):
            if not isinstance(schema, dict):
                return {}
            options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
            if isinstance(schema.get("$ref"), str):
                schema = self._follow(schema["$ref"])
            elif isinstance(options, list):
                others = [part for part in options[:8] if part != {"type": "null"}]
                if len(others) != 1:
                    return schema
                schema = others[0]
            else:
                return schema
        return {}

    def _follow(self, reference: str) -> object:
        if not reference.startswith("#/"):
            return None
        target: object = self._root
        for part in reference[2:].split("/")[:8]:
            target = target.get(part) if isinstance(target, dict) else None
        return target


def apply_schema(value: Any, schema: object) -> Any:  # noqa: ANN401 - JSON data
    """A value with its schema's defaults filled in, and texts as the numbers that the schema says they are.

    ValueError if that is too much work.

    >>> rule = {"properties": {"unit": {"default": "C"}, "days": {"type": "integer"}}}
    >>> write_canonical(apply_schema({"days": "3"}, rule))
    '{"days":3,"unit":"C"}'
    """
    return _SchemaWalk(schema).apply(value, schema) if isinstance(schema, dict) else value


def _has_default(rule: object) -> bool:
    return isinstance(rule, dict) and "default" in rule


_NUMBER = re.compile(r"\s{0,9}-?(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,40})?(?:[eE][-+]?[0-9]{1,3})?\s{0,9}")
_BOOLEANS = {"true": True, "false": False}


def _coerce(value: Any, kind: object) -> Any:  # noqa: ANN401 - JSON data
    """A scalar as the type that the schema says, where that loses nothing."""
    kinds = [part for part in kind if part != "null"] if isinstance(kind, list) else [kind]
    if len(kinds) != 1:
        return value
    is_number = isinstance(value, RawNumber)
    if kinds[0] in ("number", "integer") and isinstance(value, str) and not is_number:
        return RawNumber(value.strip()) if _NUMBER.fullmatch(value) else value
    if kinds[0] == "boolean" and isinstance(value, str) and not is_number:
        return _BOOLEANS.get(value.strip().lower(), value)
    if kinds[0] == "string" and is_number and value.lstrip("-").isdigit():
        return str(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool; `arguments` is a parsed object, or the text of a tool that takes text."""

    name: str
    arguments: Any


def read_tool_calls(message: Mapping[str, Any]) -> list[ToolCall] | None:
    """The calls in a message, [] if there are none; None if one of them can't be read."""
    calls = message.get("tool_calls")
    entries = list(calls) if isinstance(calls, list) else []
    legacy = message.get("function_call")
    if not entries and isinstance(legacy, Mapping):
        entries = [{"function": legacy}]
    parsed = [_read_call(entry) for entry in entries]
    return None if any(call is None for call in parsed) else [call for call in parsed if call is not None]


def _read_call(entry: object) -> ToolCall | None:
    if not isinstance(entry, Mapping):
        return None
    function, custom = entry.get("function"), entry.get("custom")
    if isinstance(custom, Mapping) and isinstance(custom.get("name"), str):
        text = custom.get("input")
        return ToolCall(name=custom["name"], arguments=text) if isinstance(text, str) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        return None
    arguments = _read_arguments(function.get("arguments"))
    return None if arguments is None else ToolCall(name=function["name"], arguments=arguments)


def _read_arguments(arguments: object) -> dict[str, Any] | None:
    """Arguments as an object: a JSON text, or an object as some servers send it; None if they are neither."""
    if arguments is None or arguments == "":
        return {}
    try:  # an object gets its numbers as they would be written
        value = parse_json(arguments if isinstance(arguments, str) else json.dumps(arguments))
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else {} if value is None else None


def format_calls(
    calls: Sequence[ToolCall], schemas: Mapping[str, Any], selection: FieldSelection
) -> str | None:
    """The answer that some calls are; None where they have no canonical form.

    `schemas` has the schema of each tool's arguments by its name. The order of calls doesn't count.
    """
    texts: list[str] = []
    try:
        for call in calls:
            value = select_arguments(call, schemas.get(call.name), selection)
            texts.append(write_canonical({call.name: value}))
    except ValueError:
        return None
    return bound_answer(texts[0] if len(texts) == 1 else f"[{','.join(sorted(texts))}]")


def select_arguments(call: ToolCall, schema: object, selection: FieldSelection) -> Any:  # noqa: ANN401
    """The arguments of a call that count, with defaults filled in: all but what the selection leaves out."""
    if not isinstance(call.arguments, dict):
        return call.arguments
    return _select_named(apply_schema(call.arguments, schema), selection.for_tool(call.name))


def read_json_field(text: str, field: str) -> str | None:
    """The field's value in the last JSON object, or None; what is no string as JSON text."""
    value = (find_last_object(text) or {}).get(field)
    if value is None:
        return None
    try:
        return str(value) if isinstance(value, str) else _write(value, _MAX_LEVELS, is_canonical=False)
    except ValueError:  # too deep for an answer
        return None
