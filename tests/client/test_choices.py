"""How servers treat `n`, seed and logprobs: learned from paid calls, never by an extra one (c05)."""

import asyncio

import pytest
from client_runs import BODY, run_client, run_draw
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client.server_quirks import ModelQuirks, is_about_n, parse_choice_limit
from adacompute.errors import EndpointRefused
from upstream import Honest, Reply, Status

LOGPROBS = {**BODY, "logprobs": True, "top_logprobs": 2}
MAY = frozenset({"logprobs", "top_logprobs"})


def sizes(done) -> list[int]:
    return [request.body.get("n", 1) for request in done.up.requests]


def test_c05_a_server_that_honours_n_is_asked_once():
    done = run_draw(Honest(), 48)
    assert sizes(done) == [48]
    assert sorted(done.responses) == list(range(48))
    assert done.client.quirks.max_choices is None


def test_c05_where_n_is_ignored_the_rest_is_topped_up_by_single_calls_in_parallel():
    done = run_draw(Honest(n="ignore", latency=0.05), 8)
    assert sizes(done) == [8] + [1] * 7
    assert "n" not in done.up.requests[1].body
    assert sorted(done.responses) == list(range(8))
    assert done.client.quirks.max_choices == 1
    assert done.up.count.peak == 7
    assert len({response.text for response in done.responses.values()}) == 8


def test_c05_what_was_learned_holds_for_the_next_draw():
    async def twice(client, up):
        events = [event async for event in client.draw(BODY, 4)]
        assert up.count.requests == 4
        events += [event async for event in client.draw(BODY, 4, first=4)]
        return events

    done = run_client(Honest(n="ignore"), twice)
    assert sizes(done) == [4] + [1] * 7
    assert sorted(done.responses) == list(range(8))


@pytest.mark.parametrize("most", [1, 3, 8])
def test_c05_a_limit_that_a_refusal_names_is_kept_to(most):
    done = run_draw(Honest(n="refuse", most=most), 16)
    assert done.client.quirks.max_choices == most
    assert max(sizes(done)[1:]) == most
    assert len(sizes(done)) == 1 + -(-16 // most)
    assert sorted(done.responses) == list(range(16))
    assert [call.paid for call in done.heard].count("no") == 1
    assert done.client.totals.kinds["n-limit"] == 1  # a limit that was learned is nothing that went wrong


def test_c05_a_refusal_that_names_no_limit_is_halved_until_it_passes():
    done = run_draw(Honest(n="refuse", most=3, message="n is too large"), 16)
    assert sizes(done)[:4] == [16, 8, 4, 2]
    assert done.client.quirks.max_choices == 2
    assert sorted(done.responses) == list(range(16))
    assert done.client.totals.paid == done.up.count.completions == 8


def test_c05_fewer_than_asked_are_topped_up_and_learned():
    done = run_draw(Honest(n="short", most=3), 8)
    assert sizes(done) == [8, 3, 2]
    assert done.client.quirks.max_choices == 3
    assert sorted(done.responses) == list(range(8))


def test_c05_more_than_asked_are_counted_and_not_used():
    done = run_draw(Reply(choices=5, tokens=12), 2)
    assert sorted(done.responses) == [0, 1]
    assert done.client.totals.completion_tokens == 60
    assert sum(call.surplus for call in done.heard) == 3
    assert done.up.count.requests == 1


def test_c05_one_short_reply_of_a_server_that_gave_more_is_no_limit():
    async def some(client, up):
        events = []
        for i in range(4):
            events += [event async for event in client.draw(BODY, 8, first=8 * i)]
        return events

    done = run_client(lambda number, body: Reply(choices=3) if number == 2 else Reply(), some)
    assert sizes(done) == [8, 8, 3, 2, 8, 8]
    assert done.client.quirks.max_choices is None


def test_c05_a_short_reply_is_not_believed_over_calls_that_were_under_way():
    def script(number, body):
        return Reply(choices=1) if number == 1 else Reply(delay=0.1)

    async def three(client, up):
        async def one(i):
            return [event async for event in client.draw(BODY, 4, first=4 * i)]

        rounds = await asyncio.gather(*(one(i) for i in range(3)))
        assert client.quirks.max_choices is None
        return [event for events in rounds for event in events]

    assert sorted(run_client(script, three).responses) == list(range(12))


def test_calls_under_way_with_the_old_size_do_not_halve_it_again():
    async def three(client, up):
        async def one(i):
            return [event async for event in client.draw(BODY, 8, first=8 * i)]

        rounds = await asyncio.gather(*(one(i) for i in range(6)))
        return [event for events in rounds for event in events]

    done = run_client(Honest(n="refuse", most=4, message="n is too large"), three)
    assert done.client.quirks.max_choices == 4
    assert sizes(done).count(8) == 6
    assert set(sizes(done)) == {8, 4}


def test_a_refusal_of_something_else_is_not_about_n_and_teaches_nothing():
    done = run_draw(Status(code=400, message="This model's maximum context length is 4096 tokens"), 8)
    assert isinstance(done.error, EndpointRefused)
    assert sizes(done) == [8]
    assert done.client.quirks.max_choices is None


def test_a_refusal_that_only_seems_to_be_about_n_ends_and_teaches_nothing():
    done = run_draw(Status(code=400, message="Unexpected token n in JSON"), 8)
    assert {failed.error.status for failed in done.failed} == {400}
    assert sum(failed.count for failed in done.failed) == 8
    assert done.client.quirks.max_choices is None
    assert done.client.totals.paid == done.client.totals.maybe == 0
    assert sizes(done) == [8, 4, 2, 1]


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("Field 'n': Value must be between 1 <= value <= 8, but got 9", 8),
        ("n must be at most 4", 4),
        ("'n' : number must be at most 1", 1),
        ("n must be less than or equal to 16", 16),
        ("n must be less than 5", 4),
        ("Invalid 'n': integer above maximum value. Expected a value <= 128, but got 1000 instead.", 128),
        ("n should be between 1 and 10", 10),
        ("Only one completion choice is allowed", 1),
        ("only n=1 is supported", 1),
        ("n > 1 is not supported", 1),
        ("Unrecognized request argument supplied: n", 1),
        ("n is too large", None),
        ("n must be at most " + "9" * 5000, 999_999_999),
        ("n must be less than " + "1" * 5000, 111_111_110),
    ],
)
def test_refusals_of_n_are_understood(message, limit):
    assert is_about_n(message)
    assert parse_choice_limit(message) == limit


@pytest.mark.parametrize(
    "message",
    [
        "Incorrect API key provided",
        "max_tokens must be at most 4096",
        "The model `gpt-n` does not exist",
        "temperature must be between 0 and 2",
        "messages: at least one message is required\\nsee the docs",
        "can't do that",
    ],
)
def test_refusals_of_other_things_are_not_taken_for_n(message):
    assert not is_about_n(message)
    assert not is_about_n("n must be at most 4", "temperature")
    assert is_about_n("out of range", "n")


@given(
    limit=st.integers(1, 20),
    way=st.sampled_from(["ignore", "refuse", "short"]),
    wanted=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    named=st.booleans(),
)
def test_whatever_the_limit_all_comes_and_the_limit_learned_is_never_above_it(limit, way, wanted, named):
    quirks, most = ModelQuirks(), 1 if way == "ignore" else limit
    for n in wanted:
        calls = 0
        while n:
            asked_for, calls = quirks.pick_n(n), calls + 1
            if way == "refuse" and asked_for > most:
                assert quirks.record_refusal(
                    asked_for, f"n must be at most {most}" if named else "n is too large"
                )
            else:
                came = min(asked_for, most)
                quirks.record_choices(asked_for, came)
                n -= came
        assert calls < 60
    assert quirks.max_choices is None or 1 <= quirks.max_choices <= most


def test_calls_of_one_draw_have_seeds_of_their_own_and_the_first_is_unchanged():
    done = run_draw(Honest(n="ignore"), 4, {**BODY, "seed": 100})
    assert sorted(request.body["seed"] for request in done.up.requests) == [100, 101, 102, 103]
    assert done.up.requests[0].body["seed"] == 100
    again = run_draw(Honest(n="short", most=2), 4, {**BODY, "seed": 100}, first=10)
    assert [request.body["seed"] for request in again.up.requests] == [110, 112]


@pytest.mark.parametrize("bits", [31, 32, 63])
def test_the_largest_seed_that_a_server_takes_is_followed_by_none_that_it_refuses(bits):
    def script(number, body):
        if not 0 <= body["seed"] < 2**bits:
            return Status(code=400, message="seed: integer out of range", param="seed")
        return Reply(choices=1)

    done = run_draw(script, 5, {**BODY, "seed": 2**bits - 2})
    assert sorted(done.responses) == list(range(5))
    assert {r.body["seed"] for r in done.up.requests} == {2**bits - 2, 2**bits - 1, 0, 1, 2}


def test_seeds_below_zero_or_beyond_all_bounds_are_of_their_own_too():
    for seed in (-3, 2**70):
        done = run_draw(Honest(n="ignore"), 5, {**BODY, "seed": seed})
        assert len({r.body["seed"] for r in done.up.requests}) == 5
        assert done.up.requests[0].body["seed"] == seed


@pytest.mark.parametrize("seed", [True, None, "7"])
def test_what_is_no_whole_number_is_no_seed_of_ours(seed):
    done = run_draw(Honest(n="ignore"), 2, {**BODY, "seed": seed})
    assert [request.body["seed"] for request in done.up.requests] == [seed, seed]


def test_logprobs_are_passed_on_and_known_to_be_given():
    done = run_draw(Honest(), 2, LOGPROBS)
    assert done.client.quirks.logprobs is True
    for response in done.responses.values():
        assert response.logprob is not None
        assert response.logprob < 0
        assert response.entropy is not None
        assert response.entropy > 0
        assert response.logprobs is not None


def test_optional_logprobs_that_are_refused_are_dropped_at_the_cost_of_one_unpaid_call():
    async def twice(client, up):
        events = [event async for event in client.draw(LOGPROBS, 2, optional=MAY)]
        return events + [event async for event in client.draw(LOGPROBS, 2, first=2, optional=MAY)]

    done = run_client(Honest(logprobs="refuse"), twice)
    assert done.client.quirks.logprobs is False
    assert ["logprobs" in request.body for request in done.up.requests] == [True, False, False]
    assert "top_logprobs" not in done.up.requests[1].body
    assert [(call.kind, call.paid) for call in done.heard] == [
        ("no-logprobs", "no"),
        ("ok", "yes"),
        ("ok", "yes"),
    ]


def test_logprobs_that_are_not_given_are_still_asked_for():
    async def twice(client, up):
        events = [event async for event in client.draw(LOGPROBS, 2)]
        return events + [event async for event in client.draw(LOGPROBS, 2, first=2)]

    done = run_client(Honest(logprobs="ignore"), twice)
    assert done.client.quirks.logprobs is False
    assert all(request.body["logprobs"] for request in done.up.requests)
    assert done.responses[0].logprob is None


def test_a_call_by_hand_gives_its_reply_as_it_came_and_its_attempts():
    async def one(client, up):
        reply = await client.call(BODY, n=3)
        assert len(reply.responses) == 3
        assert reply.body["id"] == "chatcmpl-2"
        assert [call.kind for call in reply.calls] == ["server-error", "ok"]
        with pytest.raises(EndpointRefused) as caught:
            await client.call(BODY, n=3)
        assert len(vars(caught.value)["calls"]) == 1

    run_client([Status(code=500), Reply(), Status(code=400, message="n is too large")], one)


def test_messages_of_every_shape_become_text():
    bodies = [
        {"content": None, "tool_calls": [{"id": "1"}]},
        {"content": None, "refusal": "I won't"},
        {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
        {"content": "42", "reasoning_content": "6 times 7"},
        {},
    ]
    choices = [{"message": message, "finish_reason": "stop"} for message in bodies]
    done = run_draw(Reply(body={"choices": choices}), 5)
    assert [done.responses[i].text for i in range(5)] == ["", "I won't", "ab", "42", ""]
    assert done.responses[3].message["reasoning_content"] == "6 times 7"


def test_models_are_listed_for_nothing():
    async def ask(client, up):
        assert await client.models() == ["scripted"]
        assert client.totals.calls == 0

    assert run_client(None, ask).up.count.requests == 0
