"""Responses read as samples: the same answers here and apart, and the event loop is never held."""

import asyncio

import pytest

from adacompute.answers import Task, extract_answer
from adacompute.answers.extract import (
    check_pattern,
    count_timeouts,
    read_in_sandbox,
    start_sandbox,
)
from adacompute.client import Response
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.voting.answer_reader import AnswerReader
from sandboxes import close_sandbox
from timing import find_least, measure_longest_turn

LONG = "We add them up, step by step, and look at each once more. " * 100


@pytest.fixture(autouse=True, scope="module")
def apart():
    yield
    close_sandbox()


def response(text, finish_reason="stop", **more):
    return Response(text=text, finish_reason=finish_reason, **more)


async def read_sample(came, task):
    (sample,) = await AnswerReader(ChatRequest(body={"messages": []}, prompt=""), task).read([came])
    return sample


def test_a_sample_has_the_answer_and_the_signals_of_its_response():
    came = response("The answer is 42.", tokens=7, logprob=-1.5, entropy=0.2)
    sample = asyncio.run(read_sample(came, Task()))
    assert (sample.answer, sample.tokens, sample.logprob, sample.entropy, sample.finished) == (
        *("42", 7, -1.5, 0.2),
        True,
    )


def test_a_response_that_was_cut_off_counts_only_where_it_states_its_answer():
    assert asyncio.run(read_sample(response("She has 3 or 4", "length"), Task())).answer is None
    assert asyncio.run(read_sample(response("\\boxed{3} or", "length"), Task())).answer == "3"
    assert asyncio.run(read_sample(response(LONG + "She has 3 or 4", "length"), Task())).answer is None


@pytest.mark.parametrize(
    ("extract", "end"),
    [
        ("auto", "The answer is 42."),
        ("auto", "That makes 42"),
        ("boxed", "\\boxed{42}"),
        ("number", "about 42 or so"),
        ("hash", "#### 42"),
        ("line", "Answer: **42**"),
        ("choice", "The answer is (B)."),
        ("json:total", '{"total": 42}'),
        ("regex:total (\\d+)", "total 42"),
        ("regex:(?:sum|total) (\\d+)", "total 42"),
        ("auto", "答案是 42。"),
        ("auto", "nothing to see"),
    ],
)
def test_answers_are_the_same_read_here_and_apart(extract, end):
    task = Task(extract)
    for text in (end, LONG + end):
        wanted = extract_answer(text, task)
        assert read_in_sandbox([text], None, task, finished=[True])[0].answer == wanted
        assert asyncio.run(read_sample(response(text), task)).answer == wanted


def test_no_answer_is_kept_as_none_so_that_a_pool_does_not_read_the_text_again():
    assert asyncio.run(read_sample(response("nothing to see in this text"), Task())).extra["answer"] is None


def test_a_function_reads_here():
    task = Task(lambda text: text[:2])
    assert asyncio.run(read_sample(response("ab" * 3_000), task)).answer == "ab"


def test_c12_a_pattern_that_takes_for_ever_abstains_and_is_counted():
    before = count_timeouts()
    sample = asyncio.run(read_sample(response("a" * 3_000 + "!"), Task("regex:(a+)+$")))
    assert sample.answer is None
    assert count_timeouts() == before + 1
    assert "too long" in check_pattern("(a+)+$", 20_000)
    assert check_pattern(r"(?i)\banswer\b.{0,20}\d+", 20_000) == ""


def test_c12_hostile_texts_do_not_hold_the_event_loop():
    texts = [(unit * 100_000)[:100_000] for unit in ("1/", "answer" + " " * 20, "\\boxed{}", "$1 $ ", "(A) ")]
    tasks = [Task(), Task("number"), Task("choice"), Task("regex:(a|a)*b")]

    async def main():
        for task in tasks:
            await asyncio.to_thread(start_sandbox, task)
        reading = asyncio.gather(*(read_sample(response(text), task) for text in texts for task in tasks))
        return await measure_longest_turn(reading)

    # reading one of these texts in the loop's own thread takes 40 ms
    assert find_least(lambda: asyncio.run(main()), 0.02) < 0.02


@pytest.mark.slow
def test_a_helper_that_was_killed_is_replaced():
    assert start_sandbox()
    close_sandbox()
    assert read_in_sandbox([LONG + "\\boxed{7}"], None, finished=[True])[0].answer == "7"
