"""What a reply says of its tokens and its model: the sum of all samples, and the upstream's own name."""

from typing import Any

import pytest
from behaviours import Reply
from openai import OpenAI
from running import Running

from upstream import Upstream

ASKED: Any = [{"role": "user", "content": "What is 6 times 7?"}]
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 30,
    "total_tokens": 50,
    "completion_tokens_details": {
        "reasoning_tokens": 12,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 1,
        "audio_tokens": None,
    },
    "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0, "cache_write_tokens": 3},
    "prompt_cache_hit_tokens": 8,
    "cost": 0.25,
    "note": "none",
    "is_byok": False,
}
DETAILS = {"reasoning_tokens": 12, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 1}
PROMPT_DETAILS = {"cached_tokens": 8, "audio_tokens": 0, "cache_write_tokens": 3}
VOTED = {"price": 0.01}


def answer(_number: int, body: dict[str, Any]) -> Reply:
    """One choice a call, each with the same usage, of a dated model."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "The answer is 42."},
        "finish_reason": "stop",
    }
    head = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{body['model']}-2026-11-16",
    }
    return Reply(body={**head, "choices": [choice], "usage": USAGE})


def scaled(details: dict[str, float], factor: int) -> dict[str, float]:
    return {name: factor * value for name, value in details.items()}


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}], ids=["voted", "passed on"])
@pytest.mark.parametrize("stream", [False, True])
def test_details_of_usage_are_summed_over_all_samples(stream: bool, fields: dict[str, Any]):
    with (
        Upstream(answer) as up,
        Running(up.url, **VOTED) as gate,
        OpenAI(base_url=gate.url, api_key="any", max_retries=0) as client,
    ):
        options = {"stream_options": {"include_usage": True}} if stream else {}
        reply: Any = client.chat.completions.create(
            model="m", messages=ASKED, stream=stream, extra_body=fields, **options
        )
        chunks = list(reply) if stream else [reply]
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    samples = up.count.requests
    assert (samples == 1) == bool(fields)
    assert (usage.prompt_tokens, usage.completion_tokens) == (20 * samples, 30 * samples)
    details = usage.completion_tokens_details.model_dump(exclude_none=True)
    assert details == scaled(DETAILS, samples)
    assert usage.prompt_tokens_details.model_dump(exclude_none=True) == scaled(PROMPT_DETAILS, samples)
    assert usage.model_extra["cost"] == pytest.approx(0.25 * samples)
    assert usage.model_extra["prompt_cache_hit_tokens"] == 8 * samples


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}], ids=["voted", "passed on"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_model_is_what_the_upstream_says_and_the_asked_one_stands_beside(
    stream: bool, fields: dict[str, Any]
):
    with (
        Upstream(answer) as up,
        Running(up.url, **VOTED) as gate,
        OpenAI(base_url=gate.url, api_key="any", max_retries=0) as client,
    ):
        reply: Any = client.chat.completions.create(
            model="m@2", messages=ASKED, stream=stream, extra_body=fields
        )
        chunks = list(reply) if stream else [reply]
    assert {chunk.model for chunk in chunks} == {"m-2026-11-16"}
    (own,) = [chunk.adacompute for chunk in chunks if "adacompute" in (chunk.model_extra or {})]
    assert own["model"] == "m"


def test_a_model_that_the_upstream_does_not_name_is_the_asked_one():
    body = {"choices": [{"index": 0, "message": {"content": "The answer is 42."}}]}
    with Upstream(Reply(body=body)) as up, Running(up.url) as gate:
        assert gate.ask(model="m").json["model"] == "m"


def test_hostile_usage_is_bounded_and_no_error():
    many = {f"key_{number}": number for number in range(10_000)}
    odd = {"a": -1, "b": "7", "c": 2**60, "d": True, "e": {"f": 1}, "g" * 500: 1, "prompt_tokens": 3, "h": 2}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18, "x_details": many, "y": odd}
    choice = {"index": 0, "message": {"content": "The answer is 42."}, "finish_reason": "stop"}
    for value in (usage, {**usage, "x_details": odd}, {"prompt_tokens": odd}, [], "many", {"": {"": 1}}):
        with Upstream(Reply(body={"choices": [choice], "usage": value})) as up, Running(up.url) as gate:
            reply = gate.ask()
        assert reply.status == 200
        assert len(reply.raw) < 10_000
        assert reply.json["usage"]["total_tokens"] >= 0
