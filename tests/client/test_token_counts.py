"""Tokens are counted correctly, whatever `usage` says, and estimates are marked."""

import random

import pytest
from client_runs import BODY, run_client, run_draw
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client.response_parser import Choice, count_tokens
from adacompute.client.server_quirks import ModelQuirks
from upstream import Honest, Reply, text_of

LOGPROBS = {**BODY, "logprobs": True}


def choice(length: int, *, tokens: int | None = None, finish: str = "stop") -> Choice:
    listed = None if tokens is None else [{}] * tokens
    return Choice(text="x" * length, finish_reason=finish, message={}, logprobs=None, tokens=listed)


def test_usage_of_one_choice_is_seen_by_the_logprobs_and_corrected():
    done = run_draw(Honest(usage="one", tokens=20), 6, LOGPROBS)
    (call,) = done.heard
    assert call.completion_tokens == done.up.count.completion_tokens == 120
    assert call.estimated
    assert [(r.tokens, r.estimated) for r in done.responses.values()] == [(20, False)] * 6
    assert done.client.quirks.get("scripted").per_choice is True


def test_usage_of_all_choices_is_taken_as_said():
    done = run_draw(Honest(usage="total", tokens=20), 6, LOGPROBS)
    (call,) = done.heard
    assert (call.completion_tokens, call.estimated) == (120, False)
    assert done.client.quirks.get("scripted").per_choice is False


def test_the_end_token_that_llama_cpp_lists_is_no_difference():
    done = run_draw(Reply(tokens=20, end_token=True), 1, LOGPROBS)
    assert (done.responses[0].tokens, done.heard[0].estimated) == (20, False)
    done = run_draw(Reply(tokens=20, end_token=True), 4, LOGPROBS)
    assert [(r.tokens, r.estimated) for r in done.responses.values()] == [(20, False)] * 4
    done = run_draw(Reply(tokens=20, end_token=True, usage="one"), 4, LOGPROBS)
    assert done.heard[0].estimated
    assert 80 <= done.heard[0].completion_tokens <= 84


def test_usage_of_one_choice_is_seen_by_the_characters_a_token_learned_from_single_calls():
    async def run(client, up):
        for _ in range(4):
            await client.call(BODY)
        reply = await client.call(BODY, n=2)
        call = reply.calls[-1]
        assert call.estimated
        assert call.completion_tokens == pytest.approx(80, rel=0.1)
        assert all(response.estimated for response in reply.responses)

    done = run_client(Honest(usage="one", tokens=40), run)
    assert done.client.quirks.get("scripted").per_choice is True
    assert done.client.totals.completion_tokens == pytest.approx(done.up.count.completion_tokens, rel=0.05)


def test_usage_of_one_choice_is_seen_by_a_ratio_that_no_text_has():
    done = run_draw(Honest(usage="one", tokens=30), 8)
    assert done.heard[0].completion_tokens == pytest.approx(240, rel=0.1)
    assert done.heard[0].estimated


def test_one_odd_text_is_no_habit_of_the_server():
    habits = ModelQuirks()
    ruler = choice(4000)  # a line of dashes has many characters a token
    count_tokens([ruler, ruler], 200, cap=None, quirks=habits)
    assert habits.per_choice is None
    assert count_tokens([choice(400), choice(400)], 200, cap=None, quirks=habits).total == 200


def test_a_choice_that_ended_at_something_sooner_than_the_cap_is_not_taken_for_the_cap():
    cut = choice(100, finish="length")
    assert count_tokens([cut, cut], 50, cap=1000, quirks=ModelQuirks()).per_choice == ((25, True), (25, True))


def test_a_total_is_split_by_length_and_marked():
    texts = ["x" * 300, "x" * 100]
    usage = {"prompt_tokens": 7, "completion_tokens": 100}
    done = run_draw(Reply(texts=texts, usage=usage), 2)
    assert [(r.tokens, r.estimated) for r in done.responses.values()] == [(75, True), (25, True)]
    assert (done.heard[0].completion_tokens, done.heard[0].prompt_tokens) == (100, 7)
    assert not done.heard[0].estimated


def test_choices_that_were_cut_off_have_as_many_tokens_as_were_allowed():
    usage = {"prompt_tokens": 7, "completion_tokens": 64}
    done = run_draw(Reply(texts=["a" * 90] * 3, finish="length", usage=usage), 3)
    assert [(r.tokens, r.estimated) for r in done.responses.values()] == [(64, False)] * 3
    assert (done.heard[0].completion_tokens, done.heard[0].estimated) == (192, True)
    assert done.client.quirks.get("scripted").per_choice is True
    assert all(response.finished is False for response in done.responses.values())


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"completion_tokens": None, "prompt_tokens": None},
        {"completion_tokens": -1, "prompt_tokens": "7"},
        {"completion_tokens": 1.5, "prompt_tokens": True},
        {"completion_tokens": 0},
        [],
    ],
)
def test_c05_usage_that_is_missing_or_nonsense_is_estimated_by_length_and_marked(usage):
    done = run_draw(Reply(texts=["x" * 400, "x" * 40], usage=usage), 2)
    assert [(r.tokens, r.estimated) for r in done.responses.values()] == [(100, True), (10, True)]
    (call,) = done.heard
    assert call.estimated
    assert call.completion_tokens == 110
    assert call.prompt_tokens
    assert done.responses[0].to_sample().extra == {"tokens_estimated": True}


def test_an_empty_response_may_have_no_tokens():
    done = run_draw(Reply(texts=[""], usage={"prompt_tokens": 3, "completion_tokens": 0}), 1)
    assert (done.responses[0].tokens, done.heard[0].estimated) == (0, False)


def test_tokens_that_are_not_shown_are_shared_out_and_marked():
    counted = count_tokens(
        [choice(10, tokens=10), choice(30, tokens=30)], 400, cap=None, quirks=ModelQuirks()
    )
    assert counted.per_choice == ((100, True), (300, True))
    assert (counted.total, counted.estimated) == (400, False)


def test_reasoning_counts_as_written():
    thinking = Choice(
        text="x" * 10,
        finish_reason="stop",
        message={"reasoning_content": "x" * 190},
        logprobs=None,
        tokens=None,
    )
    counted = count_tokens([thinking, choice(200)], 100, cap=None, quirks=ModelQuirks())
    assert counted.per_choice == ((50, True), (50, True))


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[int], float, bool]:
    return (
        draw(st.lists(st.integers(20, 400), min_size=2, max_size=8)),  # true tokens
        draw(st.floats(2.5, 5.0)),  # characters a token
        draw(st.booleans()),  # are there logprobs?
    )


@given(replies(), st.booleans())
def test_with_logprobs_the_total_is_right_whichever_way_usage_is_told(reply, one):
    tokens, ratio, _ = reply
    choices = [choice(round(t * ratio), tokens=t) for t in tokens]
    said = tokens[0] if one else sum(tokens)
    counted = count_tokens(choices, said, cap=None, quirks=ModelQuirks())
    assert counted.total == sum(tokens)
    assert counted.estimated == one
    assert counted.per_choice == tuple((t, False) for t in tokens)


@given(replies())
def test_a_total_is_never_lost_nor_made_when_it_is_split(reply):
    tokens, ratio, listed = reply
    choices = [choice(round(t * ratio), tokens=t if listed else None) for t in tokens]
    habits = ModelQuirks()
    habits.record_text(round(1000 * ratio), 1000)
    counted = count_tokens(choices, sum(tokens), cap=None, quirks=habits)
    assert counted.total == sum(tokens) == sum(t for t, _ in counted.per_choice)
    assert not counted.estimated


@given(
    lengths=st.lists(st.integers(0, 2000), min_size=1, max_size=9),
    said=st.none() | st.integers(0, 10**6),
    cap=st.none() | st.integers(1, 500),
    listed=st.none() | st.integers(1, 300),
    finish=st.sampled_from(["stop", "length"]),
)
def test_whatever_is_said_counts_are_whole_and_none_is_negative(lengths, said, cap, listed, finish):
    choices = [choice(length, tokens=listed, finish=finish) for length in lengths]
    habits = ModelQuirks()
    for _ in range(2):
        counted = count_tokens(choices, said, cap=cap, quirks=habits)
        assert len(counted.per_choice) == len(lengths)
        assert all(type(t) is int and t >= 0 for t, _ in counted.per_choice)
        assert counted.total >= 0


def test_the_texts_of_the_upstream_have_about_four_characters_a_token():
    rng = random.Random(0)
    for _ in range(50):
        tokens = rng.randrange(10, 100)
        assert 3.5 < len(text_of(0, rng.randrange(999), 0, tokens)) / tokens < 4.9
