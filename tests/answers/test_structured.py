"""Canonical JSON and calls of tools: all spellings of a value are one answer, and no two values are."""

import json
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adacompute.answers import Tally, classify, same_answer
from adacompute.answers.structured import (
    FieldSelection,
    ToolCall,
    apply_schema,
    bound_answer,
    canonicalise_text,
    find_free_text,
    format_calls,
    parse_json,
    read_json_value,
    read_tool_calls,
    select_fields,
    write_canonical,
)
from timing import find_least, measure_work

ALL = FieldSelection()
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.integers(-999, 999).map(lambda n: n / 8)
    | words
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


def shuffle(value: Any, rng: Any) -> Any:
    """The same value with its keys in another order."""
    if isinstance(value, dict):
        items = [(name, shuffle(item, rng)) for name, item in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffle(item, rng) for item in value] if isinstance(value, list) else value


def key(value: Any) -> Any:
    """What two values share exactly if they are the same: types count, except whole and decimal numbers."""
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, int | float):
        return ("number", Decimal(value))
    if isinstance(value, str):
        return ("text", unicodedata.normalize("NFC", value).strip())
    if isinstance(value, list):
        return ("list", tuple(map(key, value)))
    return ("object", frozenset((key(name), key(item)) for name, item in value.items()))


def has_repeated_keys(value: Any) -> bool:
    """Whether two keys of an object are the same once they are canonical."""
    if isinstance(value, dict):
        return len(set(map(key, value))) < len(value) or any(map(has_repeated_keys, value.values()))
    return isinstance(value, list) and any(map(has_repeated_keys, value))


@given(values, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_order_blanks_and_escapes_do_not_count(value: Any, rng: Any, escapes: bool, indent: Any):
    other = json.dumps(shuffle(value, rng), ensure_ascii=escapes, indent=indent)
    assert canonicalise_text(other) == canonicalise_text(json.dumps(value))


@given(values, values)
@example({"a": 1}, {"a": True})
@example({"a": 1}, {"a": "1"})
@example({"a": None}, {})
@example(["a"], "a")
@example({"a": {"b": 1}}, {"a.b": 1})
def test_two_values_have_one_canonical_form_only_if_they_are_the_same(a: Any, b: Any):
    if not has_repeated_keys(a) and not has_repeated_keys(b):
        same = canonicalise_text(json.dumps(a)) == canonicalise_text(json.dumps(b))
        assert same == (key(a) == key(b))


@given(values)
@example({"": None, "\r": None})
@example({"a": 1, "a ": 2, "\u00e9": 3, "e\u0301": 4})
def test_canonical_json_is_json_of_the_same_value_and_its_own_canonical_form(value: Any):
    text = canonicalise_text(json.dumps(value))
    assert text is not None
    assert canonicalise_text(text) == text
    if not has_repeated_keys(value):
        assert key(json.loads(text)) == key(value)


@pytest.mark.parametrize(
    "spellings",
    [
        ["1", "1.0", "1e0", "10e-1", "1.000", "0.1e1"],
        ["0", "-0", "0.0", "-0.0", "0e9"],
        ["1500", "1.5e3", "1500.0"],
        ["0.3", "0.30", "0.30000000000000004", "3e-1"],
        ["-2.5", "-25e-1"],
        ["1e400", "10e399"],
        ["1e1000000", "10e999999"],
        ["123456789012345678901234567890", "123456789012345678901234567890.0"],
    ],
)
def test_all_spellings_of_a_number_are_one(spellings: list[str]):
    assert len({canonicalise_text(f'{{"n": {text}}}') for text in spellings}) == 1


def test_numbers_that_differ_stay_apart():
    texts = [
        "1",
        "2",
        "-1",
        "1.5",
        "1.05",
        "1e1",
        "1700000000.123",
        "1700000000.124",
        str(10**30),
        str(10**30 + 1),
        *("0", "1e1000000", "1e-1000000", "1e9999999999999999999", "1e-9999999999999999999"),
    ]
    assert len({canonicalise_text(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": }', "{1, 2}", "nothing", '{"a":1} {"b":2}', "[" * 30_000, "[" * 60 + "]" * 60]
)
def test_what_is_no_json_has_no_canonical_form(text: str):
    assert canonicalise_text(text) is None


def test_names_that_differ_in_blanks_alone_keep_their_values():
    texts = ['{"a": 1, "a ": 2}', '{"a": 2, "a ": 1}', '{"a": 2}', '{"a ": 2}']
    forms = [canonicalise_text(text) for text in texts]
    assert len(set(forms)) == 3
    assert forms[2] == forms[3]
    twins = canonicalise_text('{"\\ud800": 1, "\\ud801": 2}')
    assert twins is not None
    assert twins.encode()
    assert canonicalise_text(twins) == twins


def test_halves_of_surrogate_pairs_can_be_stored():
    text = canonicalise_text('{"a": "\\ud800x"}')
    assert text is not None
    text.encode("utf-8")


def test_the_vote_keeps_json_apart_that_text_would_merge():
    answers = [
        '{"city":"Rome"}',
        '{"city":"rome"}',
        '{"city":"1/2"}',
        '{"city":"0.5"}',
        '{"city":1}',
        '{"city":true}',
    ]
    assert classify(answers) == list(range(len(answers)))
    assert same_answer('{"a": 1.0, "b": 2}', '{"b":2,"a":1}')
    assert not same_answer('[{"a":{}},{"b":{}}]', '[{"a":{}},{"c":{}}]')


def test_a_long_answer_is_bounded_and_stays_itself():
    long = [bound_answer(canonicalise_text(json.dumps({"text": "x" * 5_000 + end})) or "") for end in "ab"]
    assert long[0] != long[1]
    assert all(len(answer) <= 400 for answer in long)
    assert classify([*long, long[0]]) == [0, 1, 0]
    assert Tally.of([*long, long[0]]).leader == long[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 42}',
        ' {"answer": 42.0}\n',
        '```json\n{"answer": 42}\n```',
        'Here it is:\n```json\n{"answer": 42}\n```\nI hope it helps.',
        '```\n{"answer": 42}\n```',
        '```json\n{"answer": 42}',  # stopped at the closing fence, as instructor asks for
        'First {"answer": 1}, then {"answer": 42}.',
        '```python\nprint(1)\n```\n```json\n{"answer": 42}```',
    ],
)
def test_json_is_found_as_models_wrap_it(text: str):
    assert write_canonical(read_json_value(text)) == '{"answer":42}'


def test_a_text_without_json_has_no_value():
    assert read_json_value("The answer is 42 {really}.") is None


def test_fields_and_exclude_are_paths_through_objects_and_lists():
    value = parse_json('{"id": 7, "items": [{"price": 1, "note": "x"}, {"price": 2, "note": "y"}], "a.b": 3}')
    picked, _ = select_fields(value, FieldSelection(fields=("items.price", "a.b")))
    assert write_canonical(picked) == '{"a.b":3,"items.price":[1,2]}'
    rest, _ = select_fields(value, FieldSelection(exclude=("items.note", "id", "missing.name")))
    assert write_canonical(rest) == '{"a.b":3,"items":[{"price":1},{"price":2}]}'
    assert select_fields(value, FieldSelection(fields=("missing",))) == ({}, [])


def test_free_text_is_left_out_unless_it_is_asked_for_or_all_there_is():
    value = parse_json('{"reasoning": "because", "chainOfThought": "so", "answer": 42}')
    rest, names = select_fields(value, ALL)
    assert write_canonical(rest) == '{"answer":42}'
    assert names == ["reasoning", "chainOfThought"]
    assert (
        write_canonical(select_fields(value, FieldSelection(fields=("reasoning",)))[0])
        == '{"reasoning":"because"}'
    )
    assert select_fields({"explanation": "all"}, ALL) == ({"explanation": "all"}, [])
    only = FieldSelection(exclude=("answer", "chainOfThought"))
    assert select_fields(value, only) == ({"reasoning": "because"}, [])
    chosen = {"properties": {"rationale": {"type": "string", "enum": ["late", "lost"]}}}
    assert select_fields({"rationale": "late", "id": "1"}, ALL, chosen)[1] == []


@pytest.mark.parametrize(
    "field",
    [
        '"steps": ["delete"]',
        '"steps": "delete all"',
        '"analysis": "positive"',
        '"reasoning": ["a", "b"]',
        '"thoughts": {"first": "a"}',
        '"explanation": 5',
        '"rationale": null',
        '"confidence": 0.9',
    ],
)
def test_what_is_no_string_or_has_another_name_counts(field: str):
    value = parse_json(f'{{"id": 1, {field}}}')
    assert select_fields(value, ALL) == (value, [])


def test_a_schema_fills_defaults_and_says_what_is_a_number():
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["C", "F"], "default": "C"},
            "days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "place": {"$ref": "#/$defs/Place"},
            "tags": {"type": "array", "items": {"type": "integer"}},
            "zip": {"type": ["string", "null"]},
            "quiet": {"type": "boolean"},
        },
        "required": ["city"],
        "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"default": 0}}}},
    }
    for text in (
        '{"city": "Rome"}',
        '{"city": "Rome", "unit": "C", "days": null, "zip": null}',
        '{"unit": "C", "city": " Rome "}',
    ):
        assert (
            write_canonical(apply_schema(parse_json(text), schema))
            == '{"city":"Rome","days":null,"unit":"C"}'
        )
    text = (
        '{"city": "Rome", "days": "3", "place": {"x": "1.50"}, "tags": ["1", 2], "zip": 123, "quiet": "true"}'
    )
    assert json.loads(write_canonical(apply_schema(parse_json(text), schema))) == {
        "city": "Rome",
        "unit": "C",
        "days": 3,
        "place": {"x": 1.5, "y": 0},
        "tags": [1, 2],
        "zip": "123",
        "quiet": True,
    }
    assert '"1"' in write_canonical(apply_schema({"city": "1"}, schema))


def test_null_is_nothing_only_where_nothing_need_be_given():
    schema = {"properties": {"a": {"type": "string"}, "b": {"default": 5}}, "required": ["a"]}
    assert write_canonical(apply_schema({"a": None, "b": None}, schema)) == '{"a":null,"b":null}'
    assert write_canonical(apply_schema({"c": None}, {"properties": {"a": {}}})) == "{}"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"$ref": "https://example.com/schema"},
        {"properties": [1], "required": 3},
        {"properties": {"a": 3}, "anyOf": "x"},
        {"type": ["x", 3], "required": [[], {}]},
    ],
)
def test_a_schema_that_says_nothing_changes_nothing(schema: Any):
    assert apply_schema({"a": "1"}, schema) == {"a": "1"}


def test_c12_hostile_schemas_and_values_take_bounded_time():
    schema = {"items": {"properties": {f"p{i}": {"default": "x"} for i in range(5_000)}}}
    value = parse_json("[" + ",".join(["{}"] * 5_000) + "]")

    def work() -> None:
        with pytest.raises(ValueError, match="too large"):
            apply_schema(value, schema)
        call = ToolCall(name="f", arguments={"x": value})
        assert format_calls([call], {"f": {"properties": {"x": schema}}}, ALL) is None

    assert find_least(lambda: measure_work(work), 1.0) < 1.0


def message(*calls: tuple[str, Any]) -> dict[str, Any]:
    entries = [
        {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": entries}


def answer(*calls: tuple[str, Any], schemas: Any = None, selection: FieldSelection = ALL) -> str | None:
    parsed = read_tool_calls(message(*calls))
    return None if parsed is None else format_calls(parsed, schemas or {}, selection)


def test_calls_are_compared_by_tool_and_arguments_whatever_their_ids_and_spelling():
    assert answer(("weather", '{"city": "Rome", "days": 2}')) == '{"weather":{"city":"Rome","days":2}}'
    assert answer(("weather", '{"days": 2.0,"city":"R\\u006fme"}')) == '{"weather":{"city":"Rome","days":2}}'
    assert answer(("weather", {"city": "Rome", "days": 2})) == '{"weather":{"city":"Rome","days":2}}'
    assert answer(("forecast", '{"city": "Rome", "days": 2}')) != answer(
        ("weather", '{"city": "Rome", "days": 2}')
    )


def test_calls_at_the_same_time_are_a_multiset():
    a, b = ("weather", '{"city": "Rome"}'), ("weather", '{"city": "Oslo"}')
    assert answer(a, b) == answer(b, a) == '[{"weather":{"city":"Oslo"}},{"weather":{"city":"Rome"}}]'
    assert answer(a, a) != answer(a)
    assert answer(a, a, b) != answer(a, b, b)


def test_calls_that_cannot_be_read_are_no_answer():
    for arguments in ('{"city": "Ro', "[1]", "rome", 3, "[" * 5_000):
        assert answer(("weather", arguments)) is None
        assert answer(("weather", "{}"), ("weather", arguments)) is None
    assert read_tool_calls({"tool_calls": ["x"]}) is None
    assert read_tool_calls({"tool_calls": [{"function": {"name": ""}}]}) is None
    assert read_tool_calls({"content": "text"}) == read_tool_calls({"tool_calls": None}) == []


def test_no_arguments_are_empty_arguments():
    assert (
        answer(("now", ""))
        == answer(("now", None))
        == answer(("now", "{}"))
        == answer(("now", "null"))
        == '{"now":{}}'
    )


def test_older_function_calls_and_custom_tools_are_calls():
    parsed = read_tool_calls({"function_call": {"name": "weather", "arguments": '{"city": "Rome"}'}})
    assert parsed == [ToolCall(name="weather", arguments={"city": "Rome"})]
    custom = read_tool_calls(
        {"tool_calls": [{"type": "custom", "custom": {"name": "sql", "input": "select 1"}}]}
    )
    assert custom is not None
    assert format_calls(custom, {}, ALL) == '{"sql":"select 1"}'


def test_defaults_of_the_tools_schema_are_filled_in():
    schemas = {"weather": {"properties": {"city": {}, "unit": {"default": "C"}}}}
    assert answer(("weather", '{"city": "Rome"}'), schemas=schemas) == answer(
        ("weather", '{"unit": "C", "city": "Rome"}'), schemas=schemas
    )
    assert answer(("weather", '{"city": "Rome"}'), schemas=schemas) != answer(
        ("weather", '{"unit": "F", "city": "Rome"}'), schemas=schemas
    )


def test_arguments_are_excluded_by_name_or_by_tool_and_name():
    calls = [("mail", f'{{"to": "a", "body": "{text}"}}') for text in ("Hi", "Hello")]
    assert answer(calls[0]) != answer(calls[1])
    for path in ("body", "mail.body"):
        selection = FieldSelection(exclude=(path,))
        assert (
            answer(calls[0], selection=selection)
            == answer(calls[1], selection=selection)
            == '{"mail":{"to":"a"}}'
        )
    assert answer(calls[0], selection=FieldSelection(exclude=("post.body",))) == answer(calls[0])
    assert answer(calls[0], selection=FieldSelection(fields=("to",))) == '{"mail":{"to":"a"}}'


def test_a_tool_is_called_with_all_its_arguments_whatever_their_names():
    assert answer(("think", '{"thought": "Let me see"}')) == '{"think":{"thought":"Let me see"}}'
    assert answer(("plan", '{"steps": ["a", "b"]}')) == '{"plan":{"steps":["a","b"]}}'
    delete, keep = (answer(("run", json.dumps({"id": 1, "steps": [step]}))) for step in ("delete", "keep"))
    assert delete != keep
    without = FieldSelection(exclude=("thought",))
    assert answer(("think", '{"thought": "Let me see"}'), selection=without) == '{"think":{}}'


def test_free_text_is_found_by_its_length():
    assert find_free_text({"a": ["one two", "one two three"]}, 2) == "a"
    assert find_free_text({"a": ["one two"], "b": parse_json("12")}, 2) == ""
