"""Converts JSON, Python literals and tool calls to answers: equal values get the same canonical text.

Canonical JSON has sorted keys and no spaces. 1, 1.0 and 1e0 are the same number; decimals are rounded to 15
digits. Strings are stripped and Unicode-composed. Nothing else is merged: true isn't 1, and "1" is 1 only if
a schema says that the value is a number.

Python literals (str, list, tuple, set, dict) are equal if Python says so: 'x' equals "x", the order of keys
doesn't matter, and True equals 1. Spaces inside strings matter.

A tool call becomes an object of its name and arguments, `{"weather":{"city":"Rome"}}`; several calls become a
sorted list. The schema of the arguments supplies defaults and says which strings are numbers.

Input may be hostile, so lengths, depths and the work per schema are limited. A value that exceeds a limit has
no canonical form.
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

MAX_LENGTH = 65_536  # maximum length of a text that is parsed, in characters
_MAX_LEVELS = 50  # maximum number of levels of nested values
_MAX_ANSWER = 400  # maximum length of an answer, in characters; a longer one is cut and ends in its hash
_MAX_DIGITS = 60  # maximum length of a number, in characters; a longer one is compared as text
_MAX_EXPONENT = 40  # a number with more than this many digits before the point is written with an exponent
# maximum number of properties and values that are visited when a schema is applied to a sample
_SCHEMA_WORK = 5_000
# rounds to 15 significant digits, which a float always keeps
_SIGNIFICANT = Context(prec=15, Emin=MIN_EMIN, Emax=MAX_EMAX)
_EXACT = Context(prec=2 * _MAX_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)


class RawNumber(str):
    """A JSON number kept as text: 1.50 stays 1.50, and a number of 10,000 digits isn't converted."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=RawNumber, parse_float=RawNumber, parse_constant=RawNumber)


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON data
    """Parses a JSON text but keeps numbers as text; raises ValueError if it isn't JSON or is too long."""
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
    """Writes a parsed value as canonical JSON; raises ValueError if it is nested too deeply.

    >>> write_canonical(parse_json('{"b": 1.0, "a": ["x ", 2e1]}'))
    '{"a":["x",20],"b":1}'
    """
    return _write(value, _MAX_LEVELS)


def canonicalise_text(text: str) -> str | None:
    """Rewrites a JSON text as canonical JSON; None if it isn't JSON.

    >>> canonicalise_text('{"a": 1.0}'), canonicalise_text("{1, 2}")
    ('{"a":1}', None)
    """
    try:
        return write_canonical(parse_json(text))
    except ValueError:
        return None


def bound_answer(canonical: str) -> str:
    """Limits the length of a canonical text: a long one is cut and ends in a hash of the whole text."""
    if len(canonical) <= _MAX_ANSWER:
        return canonical
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{canonical[: _MAX_ANSWER - 20]}… #{digest}"


def _write(value: object, levels: int, *, is_canonical: bool = True) -> str:
    """Writes a value as JSON, either canonical or in the usual format of Python's `json`."""
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
    """Returns the names of an object's fields, stripped of spaces unless two would become equal."""
    names = [_write_string(str(name)) for name in value]
    return names if len(set(names)) == len(names) else [json.dumps(str(name)) for name in value]


def _write_string(text: str) -> str:
    if not text.isascii():
        # joins surrogate pairs into characters
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = unicodedata.normalize("NFC", text)
    return json.dumps(text.strip(), ensure_ascii=False)


def write_number(text: str) -> str:
    """Gives equal numbers one spelling.

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
    except DecimalException:  # the exponent is too large for a Decimal
        return text
    if not number:
        return "0"
    return f"{number:f}" if -7 <= number.adjusted() < _MAX_EXPONENT else f"{number:e}"


_LITERAL_STARTS = tuple("'\"[({")
_ODD_ESCAPE = re.compile(r"\\([^xuU\\'\"ntrbfva0])|\\.", re.DOTALL)
_MAX_LITERAL = 1000  # maximum length of a text that is read as a Python literal, in characters


def canonicalise_literal(text: str) -> str | None:
    """Gives equal Python strings, lists, tuples, sets or dicts one spelling; None for other answers.

    >>> canonicalise_literal("{'b': [1.0, (2,)], 'a': \\"x\\"}"), canonicalise_literal("'it\\\\'s'")
    ('{"a":"x","b":[1,(2,)]}', '"it\\'s"')
    """
    text = text.strip()
    if not text.startswith(_LITERAL_STARTS) or len(text) > _MAX_LITERAL:
        return None
    try:
        # double the backslash of an unknown escape, because Python would warn about a single one
        value = ast.literal_eval(_ODD_ESCAPE.sub(lambda match: "\\" * bool(match[1]) + match[0], text))
        # a number in brackets, such as (5), isn't read as a literal
        is_plain = value is None or isinstance(value, int | float)
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
        raise ValueError(f"a {type(value).__name__} can't be an answer")
    items = [_write_literal(item, levels - 1) for item in value]
    if isinstance(value, set):
        return "{" + ",".join(sorted(set(items))) + "}"
    return f"[{','.join(items)}]" if isinstance(value, list) else f"({','.join(items)},)"


_FENCE = re.compile(r"```[ \t]{0,9}(?:json|JSON|jsonc|json5)?[ \t]{0,9}\r?\n?")
# matches where a JSON object may begin; braces in LaTeX rarely look like this
_OBJECT_START = re.compile(r"\{\s{0,1000}[\"}]")
_SCAN_BUDGET = 80_000  # maximum number of characters scanned by failed attempts to parse an object
_ATTEMPT_COST = 80  # each failed attempt also counts as this many scanned characters
# an object that begins within this many characters of the end is parsed even if the budget is spent
_ALWAYS_SCANNED = 400


def find_last_object(text: str, *, strict: bool = False) -> dict[str, Any] | None:
    """Returns the last JSON object in a text that isn't nested in another; None if there is none.

    With `strict`, also None if any object can't be parsed, because later objects may be parts of that object.
    """
    latest: dict[str, Any] | None = None
    end = 0
    budget = _SCAN_BUDGET
    for match in _OBJECT_START.finditer(text):
        start = match.start()
        if start < end or (budget <= 0 and len(text) - start > _ALWAYS_SCANNED):
            continue  # inside an object that was parsed already, or too much was scanned
        try:
            latest, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as exc:
            if strict:
                return None
            # the parser reads an unclosed string to the end of the text, but reports its start as `pos`
            unclosed = exc.msg.startswith("Unterminated")
            budget -= (len(text) if unclosed else exc.pos) - start + _ATTEMPT_COST
        except RecursionError:
            budget -= len(text) - start
    return latest


def read_json_value(text: str) -> Any:  # noqa: ANN401 - JSON data
    """Reads a reply's JSON value: the whole reply, a fenced block or the last object; None if it has none."""
    stripped = text.strip()
    for candidate in (stripped, *_split_fences(stripped)):
        try:
            return parse_json(candidate)
        except ValueError:
            continue
    return find_last_object(stripped[-MAX_LENGTH:], strict=True)


def _split_fences(text: str) -> Iterator[str]:
    """Yields the contents of fenced code blocks, last first; the last may be unclosed."""
    openings = list(_FENCE.finditer(text[:MAX_LENGTH]))[-8:]
    for opening in reversed(openings):
        yield text[opening.end() :].partition("```")[0]


# Names of fields with reasoning, which every sample words differently. Names such as "steps" or "analysis"
# aren't listed, because such a field may be what the prompt requests.
FREE_TEXT_FIELDS = frozenset(
    ("reasoning", "rationale", "explanation", "thought", "thoughts", "chain_of_thought", "scratchpad")
)


def convert_to_snake_case(name: str) -> str:
    """Converts the first 60 characters of a field's name to snake case.

    >>> convert_to_snake_case("chainOfThought"), convert_to_snake_case("Final-Answer")
    ('chain_of_thought', 'final_answer')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:60]).lower().replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSelection:
    """Says which parts of a value count: all parts, or only `fields`, but none in `exclude`.

    Parts are named by dotted paths such as "items.price", which also lead into the items of lists. For tool
    calls, a path leads into the arguments, and may begin with the tool's name.
    """

    fields: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def for_tool(self, name: str) -> "FieldSelection":
        """Returns the selection for one tool's arguments, with the tool's name removed from paths."""
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
    """Returns the part of an object that counts as the answer, and the names of free-text fields left out.

    Free text is kept if the selection names fields, or if nothing else would be left. A value that isn't an
    object counts as a whole.
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
    """Returns the parts of an object that a selection names (or all parts), less those that it excludes."""
    if selection.fields:
        picked = {path: _pick(value, path) for path in selection.fields}
        value = {path: item for path, item in picked.items() if item is not _MISSING}
    for path in selection.exclude:
        value = _drop(value, path)
    return value


_MISSING: Any = object()


def _is_free_text(name: str, value: object, schema: object) -> bool:
    """Whether a field is free text: a string with a name in FREE_TEXT_FIELDS and no choices in the schema."""
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
    """Yields (path, value) for each innermost value; items of a list, at most 50, have the list's path."""
    if levels and isinstance(value, dict) and value:
        for name, item in value.items():
            yield from list_leaves(item, f"{place}.{name}" if place else str(name), levels - 1)
    elif levels and isinstance(value, list) and value:
        for item in value[:50]:
            yield from list_leaves(item, place, levels - 1)
    else:
        yield place, value


def find_free_text(value: Any, words: int) -> str:  # noqa: ANN401 - JSON data
    """Returns the path of the first string of more than `words` words, "text" if that is `value`; "" if none.

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
    """Applies a schema to a value; raises ValueError if that takes too much work."""

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
                continue  # if an optional property is null, it counts as missing
            full[name] = self.apply(item, part, levels - 1)
        for name, part in properties.items():
            if name not in value and _has_default(part):
                full[name] = part["default"]
        return full

    def _resolve(self, schema: object) -> Mapping[str, Any]:
        """Resolves the references in a schema, and reduces "this type or null" to the type."""
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
    """Fills in the defaults of a schema, and converts strings to numbers if the schema says so.

    Raises ValueError if that takes too much work.

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
    """Converts a number or string to the type that a schema names, if nothing is lost."""
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
    """A tool call; `arguments` is a parsed object, or a string if the tool takes plain text."""

    name: str
    arguments: Any


def read_tool_calls(message: Mapping[str, Any]) -> list[ToolCall] | None:
    """Reads the tool calls in a message; None if any of them can't be parsed."""
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
    """Reads a call's arguments: JSON text or, from some servers, an object; None if they can't be parsed."""
    if arguments is None or arguments == "":
        return {}
    try:  # an object is converted to JSON text first, so that its numbers are read like those of a text
        value = parse_json(arguments if isinstance(arguments, str) else json.dumps(arguments))
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else {} if value is None else None


def format_calls(
    calls: Sequence[ToolCall], schemas: Mapping[str, Any], selection: FieldSelection
) -> str | None:
    """Converts tool calls to one answer; None if they have no canonical form.

    `schemas` maps tool names to the schemas of their arguments. The order of calls doesn't matter.
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
    """Returns a call's arguments with defaults filled in, less those that the selection leaves out."""
    if not isinstance(call.arguments, dict):
        return call.arguments
    return _select_named(apply_schema(call.arguments, schema), selection.for_tool(call.name))


def read_json_field(text: str, field: str) -> str | None:
    """Returns a field of the last JSON object, as JSON text unless it is a string; None if it is missing."""
    value = (find_last_object(text) or {}).get(field)
    if value is None:
        return None
    try:
        return str(value) if isinstance(value, str) else _write(value, _MAX_LEVELS, is_canonical=False)
    except ValueError:  # the value is nested too deeply
        return None
