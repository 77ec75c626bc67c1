"""A limit of tokens goes under the name that the model takes, and no higher than it allows."""

import pytest
from client_runs import BODY, run_client
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client import ADDED_LIMIT, LIMIT_NAME, LOGPROBS
from adacompute.client.server_quirks import ServerQuirks, find_refused_limit
from adacompute.errors import EndpointRefused
from upstream import Reply, Status

ADDED = {**BODY, "max_tokens": 32_768}
RENAMED = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)
NAMES = ("max_tokens", "max_completion_tokens")


def refuse(message, param=None):
    return Status(code=400, message=message, param=param)


def limits(done) -> list[tuple[str, int] | None]:
    """What was sent, in order."""
    sent = [
        [(name, request.body[name]) for name in NAMES if name in request.body] for request in done.up.requests
    ]
    assert all(len(names) <= 1 for names in sent)
    return [names[0] if names else None for names in sent]


async def ask(client, body=ADDED, optional=ADDED_LIMIT, times=2):
    for _ in range(times):
        reply = await client.call(body, optional=optional)
        assert reply.responses
        assert all(call.paid == "no" for call in reply.calls[:-1])  # what was refused cost nothing


@pytest.mark.parametrize("param", ["max_tokens", None])
@pytest.mark.parametrize("optional", [ADDED_LIMIT, LIMIT_NAME])
def test_a_model_that_wants_the_other_name_gets_it_and_is_remembered(optional, param):
    def script(number, body):
        return refuse(RENAMED, param) if "max_tokens" in body else Reply()

    done = run_client(script, lambda client, up: ask(client, optional=optional))
    other = ("max_completion_tokens", 32_768)
    assert limits(done) == [("max_tokens", 32_768), other, other]
    assert done.client.totals.kinds == {"token-limit": 1, "ok": 2}


@pytest.mark.parametrize(
    "model", ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5.1-chat", "openai/o3"]
)
def test_reasoning_models_of_openai_are_known_by_their_names(model):
    done = run_client(Reply(), lambda client, up: ask(client, {**ADDED, "model": model}, times=1))
    assert limits(done) == [("max_completion_tokens", 32_768)]


@pytest.mark.parametrize("model", ["gpt-4o", "llama-3", "o", "o10", "foo1", "gpt-50", "qwen3-o3x"])
def test_other_models_are_not(model):
    done = run_client(Reply(), lambda client, up: ask(client, {**ADDED, "model": model}, times=1))
    assert limits(done) == [("max_tokens", 32_768)]


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 32768. This model supports at most 16384 tokens, you provided 32768.",
        "max_tokens 32768 exceeds what is supported; use 16384 instead",
        "max_tokens: 32768 > 16384, which is the maximum allowed number of output tokens for claude-3-5",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 16384]",
        "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens`",
        "max_tokens must be at most 16,384 for gpt-4o-2024-08-06",
    ],
)
def test_a_model_that_allows_less_gets_that_and_is_remembered(message):
    def script(number, body):
        return refuse(message) if body.get("max_tokens", 0) > 16_384 else Reply()

    done = run_client(script, lambda client, up: ask(client))
    lower = ("max_tokens", 16_384)
    assert limits(done) == [("max_tokens", 32_768), lower, lower]


@pytest.mark.parametrize(
    ("message", "learned"),
    [
        ("This model's maximum context length is 4096 tokens. However, you requested 32818 tokens", True),
        ("'max_tokens' is too large: 32768. This model's maximum context length is 4096 tokens", True),
        ("This model's maximum context length is 128000 tokens. However, you requested 130000 tokens", False),
    ],
)
def test_a_context_that_the_limit_does_not_fit_into_is_its_own_limit(message, learned):
    def script(number, body):
        return refuse(message) if "max_tokens" in body else Reply()

    done = run_client(script, lambda client, up: ask(client))
    first = [("max_tokens", 32_768), None]
    assert limits(done) == [*first, None] if learned else first * 2
    assert not done.client.quirks.get("scripted").is_unbounded


def test_where_both_names_are_refused_the_call_does_without():
    def script(number, body):
        name = next((name for name in NAMES if name in body), None)
        return refuse(f"Extra inputs are not permitted: {name}", name) if name else Reply()

    done = run_client(script, lambda client, up: ask(client))
    assert limits(done) == [("max_tokens", 32_768), ("max_completion_tokens", 32_768), None, None]
    assert done.client.quirks.get("scripted").is_unbounded


@pytest.mark.parametrize("optional", [frozenset(), LOGPROBS, LIMIT_NAME])
def test_a_limit_of_the_callers_own_is_neither_lowered_nor_dropped(optional):
    async def run(client, up):
        with pytest.raises(EndpointRefused, match="at most 16384"):
            await client.call(ADDED, optional=optional)

    done = run_client(refuse("max_tokens is too large: 32768. It supports at most 16384 tokens"), run)
    assert {value for _, value in filter(None, limits(done))} == {32_768}
    assert None not in limits(done)


def test_only_a_refusal_of_what_the_caller_asked_for_reaches_it():
    """Log-probabilities and the limit are refused one after the other, and then the temperature."""

    def script(number, body):
        for name, message in (
            ("logprobs", "logprobs are not supported with this model"),
            ("max_tokens", RENAMED),
            ("temperature", "Unsupported value: 'temperature' does not support 0.7"),
        ):
            if name in body:
                return refuse(message, name)
        return Reply()

    async def run(client, up):
        body = {**ADDED, "logprobs": True}
        with pytest.raises(EndpointRefused, match="temperature") as caught:
            await client.call(body, optional=LOGPROBS | ADDED_LIMIT)
        assert caught.value.reply.fields["param"] == "temperature"
        body.pop("temperature")
        await ask(client, body, LOGPROBS | ADDED_LIMIT, times=1)

    done = run_client(script, run)
    assert limits(done)[-1] == ("max_completion_tokens", 32_768)


def test_a_stream_is_limited_alike():
    def script(number, body):
        return refuse(RENAMED, "max_tokens") if "max_tokens" in body else Reply()

    async def run(client, up):
        async with client.stream(ADDED, optional=ADDED_LIMIT) as stream:
            assert [event async for event in stream]

    assert limits(run_client(script, run))[-1] == ("max_completion_tokens", 32_768)


def test_a_server_that_refuses_everything_is_asked_a_few_times_only():
    async def run(client, up):
        with pytest.raises(EndpointRefused):
            await client.call(ADDED, optional=ADDED_LIMIT)

    def script(number, body):
        return refuse(f"max_tokens must be below {body.get('max_tokens', 99) - 1}", "max_tokens")

    assert run_client(script, run).up.count.requests <= 8


def test_what_was_learned_is_believed_for_some_minutes_and_of_few_models():
    clock = [0.0]
    known = ServerQuirks(lambda: clock[0])
    for number in range(1000):
        known.ensure(f"model {number}").record_limit_name("max_completion_tokens")
    assert known.get("model 0").pick_limit(9, "max_tokens") == ("max_tokens", 9)
    assert known.get("model 999").pick_limit(9, "max_tokens") == ("max_completion_tokens", 9)
    known.ensure("model 998").record_refused_limit(bounded=False)
    assert known.get("model 998").pick_limit(9, "max_tokens") is None
    clock[0] += 601
    assert known.get("model 999").pick_limit(9, "max_tokens") == ("max_tokens", 9)
    assert known.get("model 998").pick_limit(9, "max_tokens") == ("max_tokens", 9)


@given(st.text(), st.none() | st.integers() | st.text(), st.text(), st.sets(st.sampled_from(NAMES)))
def test_a_refusal_is_about_the_limit_only_where_there_is_one_that_may_change(message, param, code, names):
    body = dict.fromkeys(names, 100)
    found = find_refused_limit(f"{message} max_tokens", param, code, body, optional=ADDED_LIMIT)
    assert found <= names
    assert not find_refused_limit("max_tokens", None, code, body, optional=LOGPROBS)
