"""Caps in tokens or money, and models that take other parameters than the gateway adds."""

from typing import Any

import pytest
from behaviours import Reply, Status
from openai import OpenAI
from running import Running

from upstream import Upstream

ASKED: Any = [{"role": "user", "content": "What is 6 times 7?"}]
CAPS = [
    {"unit": "tokens", "cap": 1_000_000},
    {"unit": "money", "cap": 1_000, "endpoint": {"output_price": 1.0}},
]
NAMES = ("max_tokens", "max_completion_tokens")
UNSUPPORTED = "Unsupported parameter: '{0}' is not supported with this model."


def unsupported(name: str) -> Status:
    hint = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
    return Status(code=400, message=UNSUPPORTED.format(name) + hint, param=name)


def reasoning(_number: int, body: dict[str, Any]) -> Any:
    """As OpenAI's reasoning models do: no max_tokens, no log-probabilities, no temperature but 1."""
    for name in ("max_tokens", "logprobs", "top_logprobs"):
        if name in body:
            return unsupported(name)
    if body.get("temperature", 1) != 1:
        return unsupported("temperature")
    if body.get("max_completion_tokens", 0) > 16_384:
        text = (
            f"max_completion_tokens is too large: {body['max_completion_tokens']}. This model supports 16384"
        )
        return Status(code=400, message=text, param="max_completion_tokens")
    return Reply(texts=["The answer is 42."] * body.get("n", 1))


def sent(up: Upstream) -> list[tuple[str, int]]:
    return [(name, request.body[name]) for request in up.requests for name in NAMES if name in request.body]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("caps", CAPS, ids=["tokens", "money"])
@pytest.mark.parametrize("model", ["o3", "my-reasoner"])
def test_a_cap_serves_a_reasoning_model(model: str, caps: dict[str, Any], stream: bool):
    with Upstream(reasoning) as up, Running(up.url, price=0.01, **caps) as gate:
        with OpenAI(base_url=gate.url, api_key="any", max_retries=0) as client:
            for _ in range(3):
                reply = client.chat.completions.create(model=model, messages=ASKED, stream=stream)
                text = (
                    "".join(chunk.choices[0].delta.content or "" for chunk in reply)
                    if stream
                    else reply.choices[0].message.content
                )
                assert text == "The answer is 42."
        account = gate.gateway.resources.ledger.account()
    assert sent(up)[-1] == ("max_completion_tokens", 16_384)
    assert (account.reserved.tokens, account.maybe.tokens) == (0, 0)
    assert account.spent.tokens == up.count.prompt_tokens + up.count.completion_tokens
    if model == "o3":
        assert "max_tokens" not in dict(sent(up))
    refused = up.count.statuses[400]
    assert refused <= 6  # each thing is learned once, by each of the parallel calls at most


def test_a_model_that_takes_no_limit_at_all_is_served_with_a_note():
    def script(_number: int, body: dict[str, Any]) -> Any:
        name = next((name for name in NAMES if name in body), None)
        return unsupported(name) if name else Reply(texts=["The answer is 42."] * body.get("n", 1))

    with Upstream(script) as up, Running(up.url, max_tokens=500, **CAPS[0]) as gate:
        for _ in range(2):
            reply = gate.ask(temperature=0)
            assert reply.status == 200
            assert any("takes no limit of tokens" in note for note in reply.json["adacompute"]["notes"])
    assert dict(sent(up)) == {"max_tokens": 500, "max_completion_tokens": 500}
    assert up.count.statuses == {400: 2, 200: 2}


def test_without_a_cap_on_tokens_no_limit_is_added():
    with Upstream(reasoning) as up, Running(up.url, cap=100) as gate:
        assert gate.ask(model="o3", temperature=1).status == 200
    assert sent(up) == []
