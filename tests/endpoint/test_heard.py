"""One call's own attempts are told to who made it; and how much of a prompt was cached."""

import asyncio

import pytest
from asked import BODY, asked

from adacompute.errors import EndpointFailed
from upstream import Reply, Stall, Status


def test_hearing_of_one_call_is_hearing_of_all_its_attempts_and_no_others():
    async def run(client, up):
        mine, other = [], []
        await client.call(BODY, heard=mine.append)
        assert [call.kind for call in mine] == ["server-error", "ok"]
        client.manners.gave(4, 1)
        async for _ in client.draw(BODY, 4, heard=other.append):
            pass
        assert [call.kind for call in other] == ["ok"] * 4
        assert len(mine) == 2
        task = asyncio.create_task(client.call({**BODY, "stall": True}, heard=mine.append))
        while up.count.in_flight == 0:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert mine[-1].kind == "cancelled"

    def script(number, body):
        return Status(code=500) if number == 1 else Stall() if "stall" in body else Reply()

    assert len(asked(script, run).heard) == 7


def test_who_hears_of_an_attempt_may_say_that_there_is_to_be_no_other():
    async def run(client, up):
        with pytest.raises(EndpointFailed):
            await client.call(BODY, heard=lambda _: False)
        with pytest.raises(EndpointFailed):
            await client.stream(BODY, heard=lambda _: False).__aenter__()

    assert asked(Status(code=500), run).up.count.requests == 2


@pytest.mark.parametrize(
    ("cached", "found"),
    [
        (0, 0),
        (64, 64),
        (100, 100),
        (101, None),
        (-1, None),
        (True, None),
        ("9", None),
        (9.0, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_told_where_they_can_be_true(cached, found, stream):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": cached},
    }

    async def run(client, up):
        if stream:
            async with client.stream(BODY) as events:
                assert [event async for event in events]
                assert events.call.cached_tokens == found
        else:
            assert (await client.call(BODY)).calls[0].cached_tokens == found

    asked(Reply(usage=usage), run)
