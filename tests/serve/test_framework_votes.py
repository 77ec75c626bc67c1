"""Votes on calls of tools, on JSON, and on what DSPy and instructor ask for, through the whole gateway."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from behaviours import Behaviour, Reply
from menus import write_menu
from openai import OpenAI
from pydantic import BaseModel
from running import Running

from adacompute.pool import open_pool
from upstream import Upstream

CHEAP = 0.01  # a price at which the policy draws several samples
ASKED: Any = [{"role": "user", "content": "What will the weather be in Rome?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "default": 1},
                "note": {"type": "string"},
            },
            "required": ["city"],
        },
    },
}
TIME: Any = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}

Choice = str | list[tuple[str, str]]  # a text, or calls: names and arguments


def message(choice: Choice, place: int) -> dict[str, Any]:
    if isinstance(choice, str):
        return {"role": "assistant", "content": choice}
    calls = [
        {
            "id": f"call_{place}_{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(choice)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def give(*choices: Choice) -> Callable[[int, dict[str, Any]], Behaviour]:
    """An upstream that gives these choices, one after the other, and then again."""
    endless = itertools.cycle(enumerate(choices))

    def script(_number: int, body: dict[str, Any]) -> Behaviour:
        entries = []
        for index in range(body.get("n", 1)):
            place, choice = next(endless)
            entries.append(
                {
                    "index": index,
                    "message": message(choice, place),
                    "finish_reason": "stop" if isinstance(choice, str) else "tool_calls",
                }
            )
        return Reply(
            body={"object": "chat.completion", "model": "scripted", "choices": entries, "usage": USAGE}
        )

    return script


@contextmanager
def serve(*choices: Choice, **settings: Any) -> Iterator[tuple[OpenAI, Upstream]]:
    with (
        Upstream(give(*choices)) as up,
        Running(up.url, **{"price": CHEAP, **settings}) as gate,
        OpenAI(base_url=gate.url, api_key="any", max_retries=0) as client,
    ):
        yield client, up


def ask(client: OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "scripted", "messages": ASKED, "temperature": 0.7, **fields}
    )


def extra(reply: Any) -> dict[str, Any]:
    return reply.model_extra["adacompute"]


RIGHT = [("weather", '{"city": "Rome"}')]
SAME = [("weather", '{"days": 1.0, "city": "Rome"}')]  # a default, a decimal, another order
WRONG = [("weather", '{"city": "Paris"}')]


def test_calls_are_voted_on_by_tool_and_arguments_and_come_back_as_they_were():
    with serve(WRONG, RIGHT, SAME, RIGHT, SAME) as (client, up):
        reply = ask(client, tools=[WEATHER, TIME])
    (call,) = reply.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)["city"]) == ("weather", "Rome")
    assert call.function.arguments in (RIGHT[0][1], SAME[0][1])
    assert call.id.startswith("call_")
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.choices[0].message.content is None
    told = extra(reply)
    assert told["answer"] == '{"weather":{"city":"Rome","days":1}}'
    assert told["votes"]['{"weather":{"city":"Paris","days":1}}'] >= 1
    assert told["samples"] == up.count.requests >= 3


def test_a_tool_that_is_called_wrongly_three_times_in_ten_is_called_rightly():
    pattern = [RIGHT, WRONG, SAME, RIGHT, [("time", "{}")], SAME, RIGHT, WRONG, SAME, RIGHT]
    with serve(*pattern, price=0.003) as (client, _):
        replies = [ask(client, tools=[WEATHER, TIME]) for _ in range(20)]
    cities = [
        json.loads(reply.choices[0].message.tool_calls[0].function.arguments).get("city") for reply in replies
    ]
    assert cities.count("Rome") >= 18  # 14 single samples would be right


@pytest.mark.parametrize("stream_mode", ["wait", "first"])
def test_a_stream_of_voted_calls_is_whole(stream_mode: str):
    both = [("weather", '{"city": "Rome"}'), ("time", '{"zone": "CET"}')]
    with serve(both, both, both, both) as (client, _):
        options = {"adacompute": {"stream_mode": stream_mode}}
        chunks = list(ask(client, tools=[WEATHER, TIME], stream=True, extra_body=options))
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or ():
            entry = calls.setdefault(call.index, {"name": "", "arguments": ""})
            entry["name"] += call.function.name or ""
            entry["arguments"] += call.function.arguments or ""
    assert [(calls[i]["name"], calls[i]["arguments"]) for i in sorted(calls)] == both
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == [
        "tool_calls"
    ]
    told = chunks[-1].model_extra["adacompute"]
    assert told["answer"] == '[{"time":{"zone":"CET"}},{"weather":{"city":"Rome","days":1}}]'
    assert told["samples"] > 1


def test_where_most_samples_call_a_tool_the_texts_are_no_candidates():
    with serve("Paris", RIGHT, RIGHT, "Paris", RIGHT, RIGHT, price=0.001) as (client, _):
        reply = ask(client, tools=[WEATHER])
    assert reply.choices[0].message.tool_calls[0].function.arguments == RIGHT[0][1]
    assert list(extra(reply)["votes"]) == ['{"weather":{"city":"Rome","days":1}}']


def test_where_most_samples_are_texts_the_vote_is_among_those():
    question: Any = [{"role": "user", "content": "What is 6 times 7?"}]
    texts = ["The answer is 42.", RIGHT, "The answer is 42.", "The answer is 41.", "The answer is 42."]
    with serve(*texts, price=0.001) as (client, _):
        reply = ask(client, messages=question, tools=[WEATHER])
    assert reply.choices[0].message.content == "The answer is 42."
    assert extra(reply)["answer"] == "42"


def test_the_tool_is_decided_before_its_arguments():
    rome, oslo, kiev = ([("weather", json.dumps({"city": city}))] for city in ("Rome", "Oslo", "Kiev"))
    with serve(rome, [("time", "{}")], oslo, [("time", "{}")], kiev, policy="", price=0.0001) as (client, _):
        reply = ask(client, tools=[WEATHER, TIME])
    assert reply.choices[0].message.tool_calls[0].function.name == "weather"


def test_broken_arguments_abstain():
    broken = [("weather", '{"city": "Ro')]
    with serve(broken, RIGHT, broken, RIGHT, RIGHT, price=0.001) as (client, _):
        reply = ask(client, tools=[WEATHER])
    assert reply.choices[0].message.tool_calls[0].function.arguments == RIGHT[0][1]
    assert extra(reply)["abstained"] >= 1


def test_arguments_of_free_text_are_excluded_by_the_request():
    notes = [
        [("weather", json.dumps({"city": "Rome", "note": note}))] for note in ("a b", "b c", "c d", "d e")
    ]
    with serve(*notes) as (client, _):
        voted = ask(client, tools=[WEATHER], extra_body={"adacompute": {"exclude": ["note"]}})
        named = ask(client, tools=[WEATHER], extra_headers={"x-adacompute-exclude": "weather.note"})
        plain = client.chat.completions.with_raw_response.create(
            model="scripted", messages=ASKED, tools=[WEATHER]
        )
    for reply in (voted, named):
        assert extra(reply)["votes"] == {'{"weather":{"city":"Rome","days":1}}': extra(reply)["samples"]}
    told = extra(plain.parse())
    assert told["samples"] == 3  # that all differ: which arguments repeat isn't known yet
    assert told["answer"] is None
    assert "all differ; name the fields that count" in plain.headers["x-adacompute-note"]


def test_a_call_with_a_text_in_it_is_voted_on_without_it_and_costs_one_sample_if_that_is_all():
    body = "word " * 30
    with serve([("mail", json.dumps({"to": "a@b.c", "body": body}))]) as (client, _):
        told = extra(ask(client, tools=[TIME]))
    assert told["votes"] == {'{"mail":{"to":"a@b.c"}}': told["samples"]}
    with serve([("mail", json.dumps({"body": body}))]) as (client, up):
        told = extra(ask(client, tools=[TIME]))
    assert up.count.requests == told["samples"] == 1
    assert told["notes"][0].startswith("no vote: the first sample calls a tool with free text (mail.body)")


def test_no_tools_is_text_and_the_operator_may_switch_votes_on_tools_off():
    with serve("The answer is 42.") as (client, _):
        assert extra(ask(client, tools=[WEATHER], tool_choice="none"))["answer"] == "42"
        raw = client.chat.completions.with_raw_response.create(
            model="scripted", messages=ASKED, tools=[WEATHER], temperature=0
        )
        assert raw.headers["x-adacompute-note"] == "no vote: temperature is 0: every sample would be the same"
    with serve(RIGHT, vote_tools=False) as (client, _):
        told = extra(ask(client, tools=[WEATHER]))
        assert (told["samples"], told["answer"]) == (1, None)
    with serve(RIGHT, vote="never") as (client, _):
        assert extra(ask(client, tools=[WEATHER]))["samples"] == 1


class Invoice(BaseModel):
    reasoning: str
    total: float
    currency: Literal["EUR", "USD"] = "EUR"


def test_structured_output_is_voted_on_without_its_reasoning_and_parses():
    replies = [
        '{"reasoning": "the sum", "total": 41, "currency": "EUR"}',
        '{"reasoning": "add them", "total": 42, "currency": "EUR"}',
        '{"reasoning": "let me see", "total": 42.0}',
        '{"total": "42", "reasoning": "again", "currency": "EUR"}',
    ]
    with serve(*replies, price=0.001) as (client, _):
        reply = client.chat.completions.parse(
            model="scripted", messages=ASKED, temperature=0.7, response_format=Invoice
        )
    assert reply.choices[0].message.parsed is not None
    assert reply.choices[0].message.parsed.total == 42
    told = extra(reply)
    assert told["answer"] == '{"currency":"EUR","total":42}'
    assert told["notes"] == ["free text isn't compared: reasoning"]


def test_fields_of_json_are_chosen_by_the_request():
    replies = ['{"city": "Rome", "id": 1}', '{"city": "Rome", "id": 2}', '{"city": "Oslo", "id": 3}', "{}"]
    with serve(*replies, price=0.001) as (client, _):
        told = extra(
            ask(
                client,
                response_format={"type": "json_object"},
                extra_body={"adacompute": {"fields": ["city"]}},
            )
        )
        assert told["answer"] == "Rome"
        assert told["abstained"] >= 1
        told = extra(ask(client, extra_headers={"x-adacompute-extract": "json:city"}))
        assert told["answer"] == "Rome"


def test_votes_on_json_can_be_switched_off():
    with serve('{"a": 1}', vote_json=False) as (client, _):
        told = extra(ask(client, response_format={"type": "json_object"}))
        assert (told["samples"], told["answer"]) == (1, None)
        assert extra(ask(client, extra_body={"adacompute": {"fields": ["a"]}}))["answer"] == '{"a":1}'


def test_json_with_a_text_in_it_costs_one_sample():
    with serve(json.dumps({"summary": "word " * 40})) as (client, up):
        told = extra(ask(client, response_format={"type": "json_object"}))
    assert up.count.requests == 1
    assert "free text (summary)" in told["notes"][0]


DSPY_SYSTEM = """Your input fields are:
1. `question` (str):
Your output fields are:
1. `reasoning` (str):
2. `answer` (str):
All interactions will be structured in the following way, with the appropriate values filled in.

[[ ## question ## ]]
{question}

[[ ## reasoning ## ]]
{reasoning}

[[ ## answer ## ]]
{answer}

[[ ## completed ## ]]
In adhering to this structure, your objective is:
        Given the fields `question`, produce the fields `answer`."""
DSPY_USER = (
    "[[ ## question ## ]]\nWhat is the capital of Vietnam?\n\n"
    "Respond with the corresponding output fields, starting with the field `[[ ## reasoning ## ]]`, "
    "then `[[ ## answer ## ]]`, and then ending with the marker for `[[ ## completed ## ]]`."
)
DSPY: Any = [{"role": "system", "content": DSPY_SYSTEM}, {"role": "user", "content": DSPY_USER}]


def sections(**fields: str) -> str:
    return (
        "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items())
        + "\n\n[[ ## completed ## ]]"
    )


def test_dspys_sections_are_voted_on_by_the_last_that_is_no_reasoning():
    replies = [
        sections(reasoning="Ho Chi Minh City is large: 9 million.", answer="Ho Chi Minh City"),
        sections(reasoning="The capital is Hanoi.", answer="Hanoi"),
        sections(reasoning="It has been Hanoi since 1976.", answer="Hanoi."),
        sections(reasoning="Of course.", answer="hanoi"),
    ]
    with serve(*replies, price=0.001) as (client, _):
        reply = ask(client, messages=DSPY)
    told = extra(reply)
    assert told["answer"] == "Hanoi"
    assert "[[ ## completed ## ]]" in reply.choices[0].message.content
    assert "anoi" in reply.choices[0].message.content.partition("[[ ## answer ## ]]")[2]
    assert told["votes"]["Hanoi"] >= 2


def test_several_sections_are_one_answer():
    replies = [
        sections(reasoning="a", city="Rome", days="3"),
        sections(reasoning="b", city="Rome", days="3"),
        sections(reasoning="c", city="Rome", days="4"),
    ]
    with serve(*replies, price=0.001) as (client, _):
        assert extra(ask(client, messages=DSPY))["answer"] == '{"city":"Rome","days":3}'
        picked = extra(ask(client, messages=DSPY, extra_body={"adacompute": {"fields": ["city"]}}))
        assert picked["votes"] == {"Rome": picked["samples"]}


def test_instructors_modes_get_votes():
    schema = json.dumps({"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
    system = (
        "As a genius expert, your task is to understand the content and provide the parsed objects in json "
        f"that match the following json_schema:\n\n{schema}\n\n"
        "Make sure to return an instance of the JSON, not the schema itself"
    )
    markdown: Any = [
        {"role": "system", "content": system},
        *ASKED,
        {
            "role": "user",
            "content": "Return the correct JSON response within a ```json codeblock. not the JSON_SCHEMA",
        },
    ]
    replies = [
        '```json\n{"city": "Oslo", "days": 3}\n```',
        '```json\n{"city": "Rome", "days": 3}\n```',
        '{"days": 3, "city": "Rome"}',
        'Here:\n```json\n{"city": "Rome",\n "days": 3.0}\n```',
    ]
    with serve(*replies, price=0.001) as (client, _):
        assert extra(ask(client, messages=markdown))["answer"] == '{"city":"Rome","days":3}'
        told = extra(ask(client, messages=markdown[:2], response_format={"type": "json_object"}))
        assert told["answer"] == '{"city":"Rome","days":3}'
    forced = {"type": "function", "function": {"name": "weather"}}
    with serve(WRONG, RIGHT, RIGHT, RIGHT, price=0.001) as (client, _):
        told = extra(ask(client, tools=[WEATHER], tool_choice=forced))
        assert told["answer"] == '{"weather":{"city":"Rome","days":1}}'


def test_older_functions_get_votes():
    def script(number: int, _body: dict[str, Any]) -> Behaviour:
        city = "Paris" if number == 1 else "Rome"
        call = {"name": "weather", "arguments": json.dumps({"city": city})}
        entry = {"index": 0, "message": {"role": "assistant", "content": None, "function_call": call}}
        return Reply(body={"choices": [entry | {"finish_reason": "function_call"}], "usage": USAGE})

    with (
        Upstream(script) as up,
        Running(up.url, price=0.001, endpoint={"attempts": 1}) as gate,
        OpenAI(base_url=gate.url, api_key="any") as client,
    ):
        reply = ask(client, functions=[WEATHER["function"]], function_call={"name": "weather"})
    assert json.loads(reply.choices[0].message.function_call.arguments) == {"city": "Rome"}


def test_extraction_is_chosen_by_the_request():
    replies = ["Total: 42 EUR (VAT 7)", "Total: 42 EUR (VAT 8)", "Total: 41 EUR (VAT 7)"]
    with serve(*replies, price=0.001) as (client, _):
        told = extra(ask(client, extra_body={"adacompute": {"extract": r"regex:Total: (\d+)"}}))
        assert (told["answer"], set(told["votes"])) == ("42", {"42", "41"})
        told = extra(ask(client, extra_headers={"x-adacompute-extract": "boxed"}))
        assert told["notes"] == ["no vote: the first sample has no answer as the request has it read"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a+)+$", "takes too long on long texts"),
        (r"(\w+\s?)*!$", "takes too long"),
        ("(", "is not a regular expression"),
        ("(?i)[\\x00-\\U0010ffff]{99999999999}", "is not a regular expression"),
    ],
)
def test_c12_a_clients_pattern_that_is_slow_or_none_is_refused_unsent(pattern: str, words: str, stream: bool):
    with Upstream(give("x")) as up, Running(up.url) as gate:
        answer = gate.ask(adacompute={"extract": f"regex:{pattern}"}, stream=stream)
        assert (answer.status, answer.error["param"]) == (400, "extract")
        assert words in answer.error["message"]
        assert up.count.requests == 0
        assert gate.ask().status == 200


def test_the_note_is_ascii_and_bounded():
    name = "gründe" + "x" * 250
    value = json.dumps({name: "word " * 40, "a": 1})
    with Upstream(give(value)) as up, Running(up.url) as gate:
        answer = gate.ask(response_format={"type": "json_object"})
        assert answer.headers["x-adacompute-note"].isascii()
        assert len(answer.headers["x-adacompute-note"]) <= 310
        assert "x-adacompute-note" not in gate.ask(adacompute={"extract": "json:a"}).headers
        stream = gate.ask(stream=True, temperature=0)
        assert "temperature is 0" in stream.headers["x-adacompute-note"]
        stream = gate.ask(stream=True, response_format={"type": "json_object"})
        assert "free text" in stream.headers["x-adacompute-note"]


def test_recorded_calls_and_json_keep_their_answers(tmp_path: Any):
    pool_file = tmp_path / "traffic.sqlite"
    with (
        Upstream(give(RIGHT, SAME, WRONG)) as up,
        Running(up.url, price=0.001, record=str(pool_file)) as gate,
    ):
        told = gate.ask(messages=ASKED, tools=[WEATHER]).json["adacompute"]
    with open_pool(pool_file) as pool:
        (record,) = list(pool)
    answers = [sample.answer for sample in record.samples]
    assert {answer: answers.count(answer) for answer in answers} == told["votes"]
    assert all('"name":"weather"' in (sample.text or "") for sample in record.samples)
    with Upstream(give('{"a": 1, "reasoning": "x"}', '{"a": 2, "reasoning": "y"}')) as up:
        other = tmp_path / "json.sqlite"
        with Running(up.url, price=0.001, record=str(other)) as gate:
            gate.ask(messages=ASKED, response_format={"type": "json_object"})
    with open_pool(other) as pool:
        (record,) = list(pool)
    assert {sample.answer for sample in record.samples} == {'{"a":1}', '{"a":2}'}


def test_a_stream_with_tools_passes_prose_on_and_holds_calls_back_for_the_vote():
    prose = "Let me tell you what I know about the weather in Rome, which is a long story of sun and rain."
    question: Any = [{"role": "user", "content": "Tell me about the weather, and look it up."}]
    with (
        Upstream(Reply(texts=[prose], pieces=6)) as up,
        Running(up.url, price=CHEAP) as gate,
        OpenAI(base_url=gate.url, api_key="any") as client,
    ):
        chunks = list(ask(client, messages=question, tools=[WEATHER], stream=True))
        assert up.count.requests == 1
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == prose
    assert len([chunk for chunk in chunks if chunk.choices[0].delta.content]) > 1
    with serve(WRONG, RIGHT, RIGHT, RIGHT, price=0.001) as (client, _):
        chunks = list(ask(client, messages=question, tools=[WEATHER], stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert "".join(call.function.arguments or "" for call in calls) == RIGHT[0][1]
    assert chunks[-1].model_extra["adacompute"]["samples"] > 1


def test_broken_json_is_no_reply_where_another_is_whole():
    replies = ['{"a": 1, "b"', '{"a": 1, "b": 2}', '{"a": 1, "b', '{"b": 2, "a": 1}']
    with serve(*replies, price=0.001) as (client, _):
        reply = ask(client, response_format={"type": "json_object"})
    assert json.loads(reply.choices[0].message.content) == {"a": 1, "b": 2}
    assert extra(reply)["agreement"] == 1.0


def test_sections_that_do_not_come_are_no_answer():
    with serve("I can't say.") as (client, _):
        told = extra(ask(client, messages=DSPY))
    assert told["answer"] is None
    assert told["samples"] <= 3


@pytest.mark.parametrize("number", ["1e1000000", "-1e-1000000", "9" * 5_000, "NaN"])
def test_f6_a_number_of_any_size_costs_no_client_its_reply(number: str):
    arguments = f'{{"city": "Rome", "days": {number}}}'
    with serve([("weather", arguments)], arguments) as (client, _):
        for fields in ({"tools": [WEATHER]}, {"response_format": {"type": "json_object"}}):
            assert extra(ask(client, **fields))["samples"] >= 1


# One call as models write it: in another order, with blanks, 2 as 2.0 or as a text, by the schema a number.
SPELLINGS = ['{"city": "Rome", "days": 2}', '{ "days":2.0,"city":"Rome" }', '{"days": "2", "city": "Rome"}']
OTHERS = ['{"city": "Rome", "days": 3}', '{"city": "Rome  East", "days": 2}', '{"city": "rome", "days": 2}']


@contextmanager
def serve_menu(
    folder: Path, small: Sequence[Choice], large: Sequence[Choice], *, explore: float
) -> Iterator[OpenAI]:
    with Upstream(give(*small)) as one, Upstream(give(*large)) as other:
        menu = write_menu(folder, {"small": one.url, "large": other.url})
        budget = "0.5 USD per 1000"
        with (
            Running("", folder=folder, menu=str(menu), budget=budget, explore=explore) as gate,
            OpenAI(base_url=gate.url, api_key="any", max_retries=0) as client,
        ):
            yield client


def test_calls_of_several_modes_are_one_answer_however_their_arguments_are_written(tmp_path: Path):
    small = [[("weather", text)] for text in (OTHERS[0], SPELLINGS[1])]
    large = [[("weather", text)] for text in (SPELLINGS[0], SPELLINGS[2])]
    with serve_menu(tmp_path, small, large, explore=1.0) as client:
        reply = ask(client, tools=[WEATHER], model="adacompute")
    told = extra(reply)
    rome, wrong = (
        json.dumps({"weather": {"city": "Rome", "days": n}}, separators=(",", ":")) for n in (2, 3)
    )
    assert {name: mode["samples"] for name, mode in told["modes"].items()} == {"small": 8, "large": 8}
    assert told["votes"] == {rome: 12, wrong: 4}
    assert (told["answer"], told["answered_by"]) == (rome, "large")
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.arguments in (SPELLINGS[0], SPELLINGS[2]), "as the most expensive mode wrote it"


@pytest.mark.parametrize("other", OTHERS)
def test_calls_of_several_modes_differ_in_any_value_of_an_argument(tmp_path: Path, other: str):
    small, large = [[("weather", other)]], [[("weather", SPELLINGS[0])]]
    with serve_menu(tmp_path, small, large, explore=1.0) as client:
        told = extra(ask(client, tools=[WEATHER], model="adacompute"))
    assert sorted(told["votes"].values()) == [8, 8]
    assert told["modes"]["small"]["answer"] != told["modes"]["large"]["answer"]


def test_a_call_of_nothing_but_text_is_answered_by_the_default_of_several_modes_unvoted(tmp_path: Path):
    words = "let us meet then and talk it over, as we did the last time, and bring the figures along with you"
    mails: list[Choice] = [[("send", json.dumps({"body": f"Dear {n}, {words}"}))] for n in range(40)]
    send: Any = {"type": "function", "function": {"name": "send", "parameters": {"type": "object"}}}
    with serve_menu(tmp_path, mails[:20], mails[20:], explore=0.0) as client:
        told = [extra(ask(client, tools=[send], model="adacompute")) for _ in range(6)]
    for each in told:
        assert each["answered_by"] == "large"
        assert each["modes"]["large"]["samples"] == 1
        assert each["modes"].get("small", {"samples": 0})["samples"] <= 1, "that shows what it is"
