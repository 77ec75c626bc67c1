"""How the samples of one request are read: the shape that it asks for, and who is a candidate."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers import Task, classify
from adacompute.client import Response
from adacompute.config import ServeConfig
from adacompute.errors import RequestInvalid
from adacompute.records import Sample
from adacompute.serve.messages.request_parser import ChatRequest, RequestOptions, build_request
from adacompute.serve.voting.answer_reader import (
    AnswerReader,
    FieldMemory,
    Reading,
    choose_shape,
    select_candidates,
    split_sections,
)
from sandboxes import close_sandbox
from timing import find_least, measure_longest_turn

JSON_FORMAT = {"response_format": {"type": "json_object"}}
MARKS = "Respond with `[[ ## answer ## ]]`, and then `[[ ## completed ## ]]`."


@pytest.fixture(autouse=True, scope="module")
def apart():
    yield
    close_sandbox()


def ask(prompt: str = "What is 6 times 7?", **fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **fields}
    return build_request(body, settings=ServeConfig())


def read(request: ChatRequest, *texts: str, task: Task | None = None, finish: str = "stop") -> AnswerReader:
    reader = AnswerReader(request, task or Task())

    async def run() -> None:
        for text in texts:
            message = {"role": "assistant", "content": text}
            await reader.read([Response(text=text, finish_reason=finish, message=message)])

    asyncio.run(run())
    return reader


def answers(reader: AnswerReader) -> list[str | None]:
    return [reading.sample.answer for reading in reader.readings]


@pytest.mark.parametrize(
    ("request_", "operator", "shape"),
    [
        (ask(), "auto", "text"),
        (ask(**JSON_FORMAT), "auto", "json"),
        (ask(**JSON_FORMAT), "boxed", "json"),
        (ask(**JSON_FORMAT), "json:total", "text"),
        (ask(**JSON_FORMAT, adacompute={"extract": "number"}), "auto", "text"),
        (ask(**JSON_FORMAT, adacompute={"extract": "auto"}), "json:total", "json"),
        (ask(adacompute={"fields": ["a"]}), "json:total", "json"),
        (ask(guided_json={"type": "object"}), "auto", "json"),
        (ask(MARKS), "auto", "sections"),
        (ask(MARKS, adacompute={"fields": ["answer"]}), "auto", "sections"),
        (ask(MARKS, **JSON_FORMAT), "auto", "json"),
        (ask("What is 6 times 7? Reply in JSON."), "auto", "maybe_json"),
        (ask("How many? Return the correct JSON response within a ```json codeblock."), "auto", "maybe_json"),
        (
            ask("Respond with a JSON object in the following order of fields: `reasoning`."),
            "auto",
            "maybe_json",
        ),
        (ask("Who created JSON?"), "auto", "text"),
        (ask("Write an example of a JSON object for a test."), "auto", "text"),
        (ask("json " * 100 + "What is 6 times 7?"), "auto", "text"),
    ],
)
def test_the_shape_is_what_the_request_asks_for(request_: ChatRequest, operator: str, shape: str):
    assert choose_shape(request_, Task(operator)) == shape


def test_json_is_read_whole_or_by_fields_and_what_is_none_is_broken():
    reader = read(
        ask(**JSON_FORMAT), '{"b": 2.0, "a": "x y"}', '{"a": "x y", "b": 2}', '{"a": {"b": 1}, "c"', "no"
    )
    assert answers(reader) == ['{"a":"x y","b":2}', '{"a":"x y","b":2}', None, None]
    assert [reading.is_broken for reading in reader.readings] == [False, False, True, True]
    assert select_candidates(reader.readings) == [True, True, False, False]


def test_an_answer_alone_is_read_as_a_text_and_a_number_is_not():
    reader = read(ask(**JSON_FORMAT), '{"answer": "Hanoi."}', '{"answer": 42}', '{"answer": "42"}')
    assert answers(reader) == ["Hanoi", '{"answer":42}', "42"]
    reader = read(ask(**JSON_FORMAT), '{"reasoning": "why", "finalAnswer": "Hanoi."}', '{"Result": "Hanoi"}')
    assert answers(reader) == ["Hanoi", "Hanoi"]


STRINGS_APART = [
    ({"version": "1.10"}, {"version": "1.1"}),
    ({"zip": "02134"}, {"zip": "2134"}),
    ({"code": "1e3"}, {"code": "1000"}),
    ({"date": "01/02"}, {"date": "0.5"}),
    ({"id": "aB3"}, {"id": "Ab3"}),
    ({"list": "Rock, Paper"}, {"list": "Paper, Rock"}),
    ({"error": "Paris"}, {"city": "Paris"}),
    ({"reasoning": "because", "version": "1.10"}, {"reasoning": "because", "version": "1.1"}),
]


@pytest.mark.parametrize(("a", "b"), STRINGS_APART)
def test_one_string_alone_counts_with_its_name_and_character_by_character(
    a: dict[str, str], b: dict[str, str]
):
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in (*a, *b)}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for request in (ask(**JSON_FORMAT), ask(response_format=form), ask("Which? Reply in JSON.")):
        read_a, read_b, again = answers(read(request, json.dumps(a), json.dumps(b), json.dumps(a, indent=1)))
        assert read_a is not None
        assert read_b is not None
        assert classify([read_a, read_b, again]) == [0, 1, 0]


def test_a_string_that_the_request_names_is_read_as_a_text_unless_it_may_be_a_code():
    cities = read(ask(adacompute={"fields": ["city"]}), '{"city": "Hanoi.", "id": 1}', '{"city": "Hanoi"}')
    assert answers(cities) == ["Hanoi", "Hanoi"]
    versions = read(ask(adacompute={"fields": ["v"]}), '{"v": "1.10"}', '{"v": "1.1"}')
    assert answers(versions) == ['{"v":"1.10"}', '{"v":"1.1"}']
    inner = read(ask(adacompute={"fields": ["x.answer"]}), '{"x": {"answer": "1/2"}}')
    assert answers(inner) == ["1/2"]


def call(reader: AnswerReader, name: str, **arguments: Any) -> Reading:
    entry = {"function": {"name": name, "arguments": json.dumps(arguments)}}
    reader.read_blocking([Response(text="", message={"content": None, "tool_calls": [entry]})])
    return reader.readings[-1]


def test_every_argument_of_a_tool_counts_unless_it_is_excluded():
    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
    reader = AnswerReader(ask(tools=[tool]), Task())
    readings = [call(reader, "run", id=1, steps=[step]) for step in ("delete", "keep")]
    assert [reading.sample.answer for reading in readings] == [
        '{"run":{"id":1,"steps":["delete"]}}',
        '{"run":{"id":1,"steps":["keep"]}}',
    ]
    thought = call(reader, "think", thought="Let me see")
    assert (thought.sample.answer, thought.left_out) == ('{"think":{"thought":"Let me see"}}', ())
    without = AnswerReader(ask(tools=[tool], adacompute={"exclude": ["thought"]}), Task())
    assert call(without, "think", thought="word " * 30).sample.answer == '{"think":{}}'


def test_json_that_is_asked_for_in_words_may_be_a_text():
    reader = read(ask("What is 6 times 7? Reply in JSON."), '{"x": 42, "y": 1}', "The answer is 42.")
    assert answers(reader) == ['{"x":42,"y":1}', "42"]
    off = AnswerReader(ask("What is 6 times 7? Reply in JSON."), Task(), finds_json=False)
    assert off.shape == "text"


def test_thinking_before_json_does_not_count():
    reader = read(ask(**JSON_FORMAT), '<think>{"x": 1}</think>\n{"x": 42, "y": 1}')
    assert answers(reader) == ['{"x":42,"y":1}']


def test_sections_end_at_their_marker():
    text = (
        "Sure.\n[[ ## reasoning ## ]]\nWhy.\n\n[[ ## answer ## ]]\n42\n\n[[ ## completed ## ]]\n[[ ## x ## ]]"
    )
    assert split_sections(text) == [("reasoning", "Why."), ("answer", "42")]
    assert answers(read(ask(MARKS), text, "42", "[[ ## reasoning ## ]]\nonly")) == ["42", None, "only"]


def test_the_question_of_a_prompt_in_sections_is_its_last_input():
    prompt = "[[ ## context ## ]]\nLong ago.\n\n[[ ## question ## ]]\nWho?\n\n"
    end = "Respond with the corresponding output fields, then `[[ ## completed ## ]]`."
    assert AnswerReader(ask(prompt + end), Task()).question == "Who?"


@pytest.mark.parametrize(
    ("kinds", "candidates"),
    [
        ("", ""),
        ("t", "1"),
        ("a", "1"),
        ("ttt", "111"),
        ("ta", "10"),  # a tie goes to what came first
        ("at", "10"),
        ("taa", "011"),
        ("tab", "010"),
        ("abb", "011"),
        ("abab", "1010"),
        ("aabbb", "00111"),
        ("x", "0"),
        ("xxa", "001"),
        ("ttx", "110"),
    ],
)
def test_most_samples_decide_who_is_a_candidate(kinds: str, candidates: str):
    """t is a text, a and b call different tools, x makes a call that can't be read."""
    readings = [
        Reading(
            sample=Sample(answer=None if kind == "x" else kind),
            form="text" if kind == "t" else "calls",
            tools=() if kind in "tx" else (kind,),
            is_broken=kind == "x",
        )
        for kind in kinds
    ]
    assert "".join(str(int(is_candidate)) for is_candidate in select_candidates(readings)) == candidates


def mail(memory: FieldMemory, *sent: tuple[str, str]) -> AnswerReader:
    """Reads calls of one tool, each with its own confidence, and has the memory learn from them."""
    reader = AnswerReader(ask(), Task(), memory=memory)
    for number, (to, body) in enumerate(sent):
        call(reader, "send", to=to, body=body, how={"sure": number / 7})
    reader.teach()
    return reader


def test_what_never_repeats_is_left_out_of_the_vote_once_its_route_has_shown_so():
    memory = FieldMemory()
    for number in range(4):  # of three samples each, two of which could have repeated something
        drawn = mail(memory, *(("ann", f"Dear Ann {number}{letter}") for letter in "abc"))
        assert "all differ" in drawn.check_different()
    voted = mail(memory, ("ann", "Hi"), ("ann", "Hello"), ("bob", "Hi"))
    assert answers(voted) == ['{"send":{"how":{},"to":"ann"}}'] * 2 + ['{"send":{"how":{},"to":"bob"}}']
    assert voted.left_out == ["send.body", "send.how.sure"]
    assert (voted.check_first_sample(), voted.check_different()) == ("", "")


def test_a_route_on_which_nothing_else_differs_is_not_voted_on_and_is_learned_anew_after_a_while():
    memory = FieldMemory()
    for number in range(12):
        mail(memory, *(("ann", f"Dear Ann {number}{letter}") for letter in "abc"))
    reasons = [mail(memory, ("ann", "Hi")).check_first_sample() for _ in range(101)]
    assert "free text (send.body" in str(reasons[0])
    assert reasons[-1] == ""


def test_fields_that_repeat_now_and_then_are_voted_on():
    memory = FieldMemory()
    for number in range(8):
        mail(memory, *((name, name) for name in ("ann", "bob", "ann" if number % 2 else "eve")))
    assert mail(memory, ("ann", "x")).left_out == ["send.how.sure"]


def test_a_long_text_is_left_out_at_once_and_alone_is_not_voted_on():
    long = "word " * 30
    reader = mail(FieldMemory(), ("ann", "short"), ("ann", long))
    assert answers(reader) == [
        '{"send":{"how":{"sure":0},"to":"ann"}}',
        '{"send":{"how":{"sure":0.142857142857143},"to":"ann"}}',
    ]
    assert "free text (summary)" in str(
        read(ask(**JSON_FORMAT), json.dumps({"summary": long})).check_first_sample()
    )


def test_c12_long_replies_and_patterns_do_not_hold_the_event_loop():
    replies = [
        json.dumps({"x": [{"a": i, "b": "y"} for i in range(2_000)]}),
        "[" * 60_000,
        '{"a":' * 12_000,
        "```json\n" * 8_000,
        "[[ ## a ## ]]\n" * 8_000,
        "x" * 400_000,
    ]
    requests = [ask(**JSON_FORMAT), ask(MARKS), ask(adacompute={"extract": r"regex:(\w+) x"})]

    async def main() -> float:
        for request in requests:  # starts the processes
            reader = AnswerReader(request, Task())
            await reader.prepare()
            await reader.read([Response(text="warm " * 1_000, message={"content": "x"})])
        return await measure_longest_turn(read_all([AnswerReader(request, Task()) for request in requests]))

    async def read_all(readers: list[AnswerReader]) -> None:
        for text in replies:
            call = {"function": {"name": "f", "arguments": text}}
            for message in ({"content": text}, {"content": None, "tool_calls": [call]}):
                await asyncio.gather(
                    *(reader.read([Response(text=text, message=message)]) for reader in readers)
                )

    assert find_least(lambda: asyncio.run(main()), 0.02) < 0.02


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["function", "custom", "name", "arguments", "input", "x"]), inner)
    ),
    max_leaves=8,
)
schemas = st.dictionaries(
    st.sampled_from(["properties", "required", "anyOf", "$ref", "default", "items", "type", "enum"]), values
)
json_texts = st.dictionaries(st.sampled_from(["a", "reasoning", "x"]), values).map(
    lambda value: json.dumps(value, default=str)
)


@pytest.mark.slow
@given(
    message=st.fixed_dictionaries(
        {},
        optional={"content": values, "tool_calls": values, "function_call": values, "refusal": values},
    ),
    text=st.text(max_size=20) | json_texts,
    arguments=values | json_texts,
    schema=schemas,
    fields=st.fixed_dictionaries(
        {}, optional={"exclude": st.just(["f.a", "x.y"]), "fields": st.just(["a", "x.y"])}
    ),
)
def test_c05_any_message_is_read_or_abstains(
    message: Any, text: str, arguments: Any, schema: Any, fields: Any
):
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    body = {"model": "m", "messages": [{"role": "user", "content": MARKS}], "tools": [tool]}
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    for more in ({}, {"response_format": form}):
        request = ChatRequest(
            body={**body, **more},
            prompt=MARKS,
            json=bool(more),
            tools="may",
            options=RequestOptions(**fields),
        )
        reader = AnswerReader(request, Task())
        for came in (message, call, {"content": text}):
            sample = reader.read_blocking([Response(text=text, finish_reason="stop", message=came)])[-1]
            assert sample.answer is None or sample.answer.encode()
            assert len(sample.answer or "") <= 70_000
            (sample.text or "").encode()
        reader.check_first_sample()
        reader.check_different()
        reader.teach()
        assert len(select_candidates(reader.readings)) == 3


async def test_a_pattern_is_checked_once_and_refused_by_name():
    for pattern in (r"(\d+) EUR", r"(?i)total\W+([\d.,]+)\s*(?:EUR|USD)?", r"\b(yes|no)\b", r"^#+ (.*)$"):
        await AnswerReader(ask(adacompute={"extract": f"regex:{pattern}"}), Task()).prepare()
    for _ in range(2):
        with pytest.raises(RequestInvalid, match="takes too long") as caught:
            await AnswerReader(ask(adacompute={"extract": "regex:(b+)+$"}), Task()).prepare()
        assert caught.value.param == "extract"
