"""Fields that a model refuses: one refused request doesn't change how other requests are served."""

import asyncio

import pytest
from client_runs import BODY, Clock, run_client
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client import LOGPROBS
from adacompute.client.server_quirks import ModelQuirks, ServerQuirks, find_refused_fields
from adacompute.errors import ConnectionLost, EndpointError, EndpointFailed, EndpointRefused
from upstream import Break, Drop, Garbage, Honest, Reply, Status

WEIGHED = {**BODY, "logprobs": True}
FULL = {**WEIGHED, "top_logprobs": 5}
STREAMED = {"stream_options": {"include_usage": True}}


async def drained(client, body) -> None:
    async with client.stream(body, optional=LOGPROBS) as stream:
        async for _ in stream:
            pass


def sent(done, field) -> list[bool]:
    return [field in request.body for request in done.up.requests]


@pytest.mark.parametrize("name", ["my_logprob", "x_include_usage", "logprobs2", "stream_options_x"])
@pytest.mark.parametrize("by_param", [True, False])
def test_a_clients_own_unknown_field_changes_nothing_for_anybody(name, by_param):
    def script(number, body):
        if name not in body:
            return Reply()
        if by_param:
            return Status(code=422, message="Extra inputs are not permitted", param=name)
        return Status(code=422, message=f"unknown field '{name}'")

    async def run(client, up):
        for body in (FULL, {**FULL, name: 1}, FULL):
            for ask in (client.call(body, optional=LOGPROBS), drained(client, body)):
                try:
                    await ask
                except EndpointRefused:
                    assert name in body
        assert client.quirks.logprobs is True

    done = run_client(script, run)
    assert len(done.up.requests) == 6  # none was tried again
    assert all(sent(done, "logprobs"))
    assert sent(done, "stream_options") == [False, True] * 3


@pytest.mark.parametrize("in_event", [False, True])
def test_a_refusal_in_a_list_is_learned_from_as_any_other(in_event):
    refusal = b'[{"error": {"code": 400, "message": "Logprobs is not enabled", "status": "INVALID"}}]'

    def script(number, body):
        if "logprobs" not in body:
            return Reply()
        if in_event:
            return Break(after=0, how=b"data: " + refusal + b"\n\n")
        return Garbage(raw=refusal, code=400)

    async def run(client, up):
        for _ in range(2):
            await (drained(client, FULL) if in_event else client.call(FULL, optional=LOGPROBS))

    assert sent(run_client(script, run), "logprobs") == [True, False, False]


@pytest.mark.parametrize("field", ["logprobs", "stream_options"])
def test_a_refusal_that_stays_without_the_field_blames_what_was_asked_for_and_teaches_nothing(field):
    def script(number, body):
        if "bad" not in body:
            return Reply()
        return Status(code=400, message=f"bad {field}" if field in body else "bad without it")

    async def run(client, up):
        with pytest.raises(EndpointRefused, match="bad without it") as caught:
            await drained(client, {**WEIGHED, "bad": 1})
        assert (caught.value.kind, caught.value.status, len(caught.value.calls)) == ("refused", 400, 2)
        await drained(client, WEIGHED)

    done = run_client(script, run)
    assert sent(done, field) == [True, False, True]


@pytest.mark.parametrize(("then", "error"), [(Status(code=500), EndpointFailed), (Drop(), ConnectionLost)])
def test_what_fails_without_the_field_for_another_reason_is_told_so_and_teaches_nothing(then, error):
    answers = [True, True, False]

    async def twice(_choices):
        return answers.pop(0)

    async def run(client, up):
        with pytest.raises(error):
            await client.call(WEIGHED, optional=LOGPROBS, may_send=twice)
        await client.call(WEIGHED, optional=LOGPROBS)

    done = run_client([Status(code=400, message="no logprobs"), then, Reply()], run)
    assert sent(done, "logprobs") == [True, False, True]


def test_what_one_model_refuses_is_still_asked_of_the_others():
    def script(number, body):
        if body["model"] == "b" and body.get("logprobs"):
            return Status(code=400, message="logprobs are not supported by this model", param="logprobs")
        return Reply()

    async def run(client, up):
        for model in "abab":
            await client.call({**WEIGHED, "model": model}, optional=LOGPROBS)
        assert [client.quirks.get(model).gives_logprobs for model in "abc"] == [True, False, None]

    done = run_client(script, run)
    asked_for = [(request.body["model"], "logprobs" in request.body) for request in done.up.requests]
    assert asked_for == [("a", True), ("b", True), ("b", False), ("a", True), ("b", False)]


@pytest.mark.parametrize("stream", [False, True])
def test_after_some_minutes_one_request_asks_again_and_a_mended_upstream_is_noticed(stream):
    field, clock = "stream_options" if stream else "logprobs", Clock()
    refusing = Honest(logprobs="refuse", stream_options="refuse")

    async def run(client, up):
        client.quirks._now = clock

        async def once() -> None:
            await (drained(client, BODY) if stream else client.call(WEIGHED, optional=LOGPROBS))

        for _ in range(2):
            await once()
        clock.at += 601
        await asyncio.gather(*(once() for _ in range(4)))  # one of them asks, and is refused
        assert sum(sent_so_far(up)) == 2
        clock.at += 601
        up.script = Honest()
        for _ in range(3):
            await once()

    def sent_so_far(up):
        return [field in request.body for request in up.requests]

    done = run_client(refusing, run)
    assert sent(done, field)[-3:] == [True] * 3
    assert len(done.up.requests) == 3 + 5 + 3


@pytest.mark.parametrize(
    "refusal",
    [
        Status(code=400, message="top_logprobs must be at most 3", param="top_logprobs"),
        Status(code=400, message="logprobs: top_logprobs is above 3"),
        Status(code=400, message="Requested sample logprobs of 5, which is greater than max allowed: 3"),
    ],
)
def test_alternatives_that_are_too_many_are_no_reason_to_do_without_logprobs(refusal):
    def script(number, body):
        return refusal if body.get("top_logprobs", 0) > 3 else Reply()

    async def run(client, up):
        for _ in range(2):
            (response,) = (await client.call(FULL, optional=LOGPROBS)).responses
            assert response.logprob is not None
        assert client.quirks.get("scripted").gives_logprobs is True

    done = run_client(script, run)
    assert all(sent(done, "logprobs"))
    assert sent(done, "top_logprobs") == [True, False, False]


def test_log_probabilities_that_the_caller_asked_for_are_never_dropped():
    async def run(client, up):
        await client.call(FULL, optional=LOGPROBS)  # who can do without has taught it
        for ask in (client.call(FULL), client.stream(FULL).__aenter__()):
            with pytest.raises(EndpointRefused, match="logprobs are not supported") as caught:
                await ask
            assert caught.value.kind == "refused"
        events = [event async for event in client.draw(FULL, 2)]
        assert [event.error.status for event in events] == [400]
        (response,) = (await client.call(FULL, optional=LOGPROBS)).responses
        assert response.text

    done = run_client(Honest(logprobs="refuse"), run)
    assert sent(done, "logprobs") == [True, False, True, True, True, False]


def test_only_our_own_alternatives_are_dropped_where_the_caller_asked_for_the_rest():
    def script(number, body):
        return Status(code=400, message="logprobs with alternatives") if "top_logprobs" in body else Reply()

    async def run(client, up):
        (response,) = (await client.call(FULL, optional=frozenset({"top_logprobs"}))).responses
        assert response.logprob is not None

    assert sent(run_client(script, run), "logprobs") == [True, True]


def test_a_request_that_is_refused_where_others_pass_makes_no_rule():
    def script(number, body):
        if "tools" in body and "logprobs" in body:
            return Status(code=400, message="logprobs is not supported with tools")
        return Reply()

    async def run(client, up):
        for body in (WEIGHED, {**WEIGHED, "tools": []}, WEIGHED):
            await client.call(body, optional=LOGPROBS)

    assert sent(run_client(script, run), "logprobs") == [True, True, False, True]


def test_no_more_models_are_remembered_than_there_is_room_for_and_those_in_use_stay():
    learned = ServerQuirks(Clock())
    for number in range(2000):
        learned.ensure("in use").record_refused_fields(["logprobs"])
        learned.ensure(f"model {number}").record_refused_fields(["logprobs"])
        learned.ensure(f"x{number}" * 100_000 if number < 5 else number).record_logprobs(logprobs=True)
    assert learned.get("in use").find_fields_to_skip(["logprobs", "stream_options"]) == {"logprobs"}
    assert learned.get("in use").gives_logprobs is False
    assert learned.get("model 0").gives_logprobs is None


def test_replies_without_logprobs_are_believed_for_a_minute_and_one_that_has_some_at_once():
    clock = Clock()
    learned = ModelQuirks(clock)
    learned.record_logprobs(logprobs=False)
    assert learned.gives_logprobs is None  # one is a chance
    assert learned.ever_gave_logprobs is False
    learned.record_logprobs(logprobs=False)
    assert learned.gives_logprobs is False
    clock.at += 61
    assert learned.gives_logprobs is None
    learned.record_logprobs(logprobs=False)  # no chance any more
    assert learned.gives_logprobs is False
    assert learned.ever_gave_logprobs is False  # of who asks one model, to the end
    learned.record_logprobs(logprobs=True)
    learned.record_logprobs(logprobs=False)  # a chance
    assert learned.gives_logprobs is True
    clock.at += 601
    for _ in range(2):
        assert learned.gives_logprobs is None
        learned.record_logprobs(logprobs=False)
    assert learned.gives_logprobs is False


@pytest.mark.parametrize(
    ("message", "param", "left_out"),
    [
        ("no", "logprobs", {"logprobs", "top_logprobs"}),
        ("no", "top_logprobs", {"top_logprobs"}),
        ("no", "stream_options", {"stream_options"}),
        ("no", "stream_options.include_usage", {"stream_options"}),
        ("no", "include_usage", {"stream_options"}),  # as FastAPI names it
        ("logprobs, stream_options", "temperature", set()),
        ("Unrecognized request argument supplied: stream_options", None, {"stream_options"}),
        ("Unsupported parameter: 'logprobs' is not supported with this model.", None, set(LOGPROBS)),
        ("You are not allowed to request logprobs.", None, set(LOGPROBS)),
        ("Logprobs is not supported", "", set(LOGPROBS)),
        ("max_logprobs is 3", None, set()),
        ("my-logprobs", None, set()),
        ("my.logprobs", None, set()),
        ("logprobs.mine", None, set()),
        ("logprobs-mine", None, set()),
        ("include_usages", None, set()),
    ],
)
def test_a_refusal_is_about_a_field_only_where_it_names_it(message, param, left_out):
    optional = LOGPROBS | {"stream_options"}
    body = {**FULL, **STREAMED}
    assert find_refused_fields(message, param, body, optional=optional) == left_out
    assert find_refused_fields(message, param, body, optional=()) == set()
    assert find_refused_fields(message, param, BODY, optional=optional) == set()


@given(st.text(), st.none() | st.integers() | st.text(), st.sets(st.sampled_from(sorted(FULL | STREAMED))))
def test_only_what_is_there_and_optional_is_ever_left_out(message, param, names):
    optional = LOGPROBS | {"stream_options"}
    body = {name: value for name, value in (FULL | STREAMED).items() if name in names}
    assert (
        find_refused_fields(f"logprobs {message} stream_options", param, body, optional=optional)
        <= names & optional
    )


def test_errors_of_a_draw_whose_field_is_refused_are_told_once_each():
    def script(number, body):
        return Status(code=400, message="logprobs" if "logprobs" in body else "the prompt is too long")

    async def run(client, up):
        return [event async for event in client.draw(WEIGHED, 3, optional=LOGPROBS)]

    done = run_client(script, run)
    assert sum(failed.count for failed in done.failed) == 3
    assert all(isinstance(failed.error, EndpointError) for failed in done.failed)
