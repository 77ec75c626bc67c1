"""What is learned of `n` and usage holds for one model, for minutes; no client changes it for others."""

import asyncio

import pytest
from client_runs import BODY, Clock, run_client
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client.server_quirks import ModelQuirks
from upstream import Reply, Status

GREEDY = "n must be 1 when using greedy sampling, got {n}."


async def drawn(client, n: int, **fields) -> int:
    """How many came."""
    events = [event async for event in client.draw({**BODY, **fields}, n)]
    return sum(len(event.responses) for event in events)


def sizes(up) -> list[int]:
    return [request.body.get("n", 1) for request in up.requests]


@pytest.mark.parametrize("message", [GREEDY, "n must be at most 1", "n is too large"])
def test_c05_a_refusal_where_others_got_more_is_that_draws_own_matter(message):
    def script(number, body):
        n = body.get("n", 1)
        return (
            Status(code=400, message=message.format(n=n)) if body["temperature"] == 0 and n > 1 else Reply()
        )

    async def run(client, up):
        for temperature in (1, 0, 1, 0):
            assert await drawn(client, 4, temperature=temperature) == 4

    one = [4, 2] if message == "n is too large" else [4]
    assert sizes(run_client(script, run).up) == [4, *one, 1, 1, 1, 1] * 2


def test_c05_a_greedy_request_that_comes_first_takes_n_from_nobody():
    def script(number, body):
        n = body.get("n", 1)
        return Status(code=400, message=GREEDY.format(n=n)) if body["temperature"] == 0 and n > 1 else Reply()

    async def run(client, up):
        for temperature in (0, 1):
            assert await drawn(client, 4, temperature=temperature) == 4

    assert sizes(run_client(script, run).up) == [4, 1, 1, 1, 1, 4]


def test_c05_what_one_model_does_with_n_and_usage_says_nothing_of_the_others():
    def script(number, body):
        if body["model"] == "one":
            return Reply(usage="one", tokens=30)
        return Reply(choices=1) if body["model"] == "ignores" else Reply(tokens=30)

    async def run(client, up):
        for model in ("ignores", "one", "honest") * 2:
            assert await drawn(client, 4, model=model, logprobs=True) == 4
        assert [client.quirks.get(name).per_choice for name in ("one", "honest")] == [
            True,
            False,
        ]
        before = client.totals.completion_tokens
        assert await drawn(client, 4, model="honest") == 4
        assert client.totals.completion_tokens - before == 120
        assert await drawn(client, 4, model="one") == 4
        assert client.totals.completion_tokens - before == pytest.approx(240, rel=0.1)

    assert sizes(run_client(script, run).up) == [4, 1, 1, 1, 4, 4, 1, 1, 1, 1, 4, 4, 4, 4]


@pytest.mark.parametrize("limited", [Status(code=400, message="n must be at most 1"), Reply(choices=1)])
def test_c05_after_some_minutes_one_call_asks_for_more_again(limited):
    clock, mended = Clock(), []

    def script(number, body):
        return limited if body.get("n", 1) > 1 and not mended else Reply()

    async def run(client, up):
        client.quirks._now = clock
        await drawn(client, 4)
        for more in (1, 2):
            clock.at += 601
            await asyncio.gather(*(drawn(client, 4) for _ in range(3)))
            assert sizes(up).count(4) == 1 + more
        assert client.quirks.max_choices == 1
        clock.at += 601
        mended.append(True)
        asked_before = up.count.requests
        for _ in range(3):
            await drawn(client, 4)
        assert sizes(up)[asked_before:] == [4, 4, 4]
        assert client.quirks.max_choices is None

    run_client(script, run)


def test_how_usage_is_told_is_believed_for_minutes_and_not_for_being_believed():
    clock = Clock()
    habits = ModelQuirks(clock)
    habits.per_choice = True
    habits.record_text(400, 100)
    assert (habits.per_choice, habits.characters_a_token) == (True, 4.0)
    clock.at += 601
    assert (habits.per_choice, habits.characters_a_token) == (None, None)
    habits.record_text(30, 10)
    habits.record_text(210, 70)
    assert habits.characters_a_token == 3.0


def test_characters_a_token_follow_what_comes_in_bounded_numbers():
    habits = ModelQuirks(Clock())
    for ratio in (4, 3):
        for _ in range(3000):
            habits.record_text(ratio * 2000, 2000)
    assert habits.characters_a_token == pytest.approx(3.0, rel=0.15)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.booleans(), st.integers(0, 400))))
def test_whatever_comes_a_portion_is_at_least_one_and_never_more_than_wanted(told):
    clock = Clock()
    manners = ModelQuirks(clock)
    for asked_for, number, refusal, wait in told:
        clock.at += wait
        if refusal:
            fewer = manners.record_refusal(asked_for, f"n must be at most {number}")
            assert (fewer is None) == (asked_for == 1)
            assert fewer is None or 1 <= fewer < asked_for
        else:
            manners.record_choices(asked_for, max(1, number))
        assert all(1 <= manners.pick_n(wanted) <= wanted for wanted in (1, 4, 16))
