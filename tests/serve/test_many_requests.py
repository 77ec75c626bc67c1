"""Many different requests at the same time: each reaches the upstream as it is, and gets its own reply."""

import asyncio
import json
import random
import re
from collections import defaultdict
from typing import Any

import aiohttp
import pytest
from behaviours import Reply
from running import Running

from upstream import Upstream

REQUESTS = 200
SENT = ("model", "temperature", "top_p", "max_tokens", "stop", "user", "metadata")


def question(number: int) -> dict[str, Any]:
    drawn = random.Random(number)
    body: dict[str, Any] = {
        "model": f"model-{number % 7}",
        "temperature": 0 if number % 5 == 0 else 0.5 + number / 1000,
        "top_p": 0.5 + number / 1000,
        "max_tokens": 100 + number,
        "stop": [f"stop-{number}"],
        "user": f"user-{number}",
        "metadata": {"number": number, "filling": "x" * drawn.randrange(3000)},
        "messages": [
            {"role": "system", "content": f"You are number {number}."},
            {"role": "user", "content": f"What is {number} times 1? " + "Think. " * drawn.randrange(300)},
        ],
    }
    if number % 3 == 0:
        body["seed"] = 1000 * number
    if number % 2 == 0:
        body["stream"] = True
    if number % 11 == 1:
        body["n"] = 2 + number % 3
    return body


def script(_number: int, body: dict[str, Any]) -> Reply:
    """Answers the question, and names the one that it was asked."""
    asked = re.match(r"What is (\d+) times", body["messages"][-1]["content"])
    assert asked is not None
    text = f"{body['model']} for {body['user']}. The answer is {asked[1]}."
    delay = random.Random(asked[1]).random() * 0.05
    return Reply(texts=[text] * body.get("n", 1), delay=delay, gap=delay / 20)


async def reply_to(session: aiohttp.ClientSession, url: str, number: int) -> list[str]:
    """The texts of the choices of a reply."""
    headers = {"x-adacompute-budget": f"{1 + number % 4}"}
    async with session.post(url, json=question(number), headers=headers) as response:
        raw = await response.text()
        assert response.status == 200, raw
    if "stream" not in question(number):
        return [choice["message"]["content"] for choice in json.loads(raw)["choices"]]
    texts: dict[int, str] = defaultdict(str)
    lines = [line.removeprefix("data: ") for line in raw.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    return list(texts.values())


@pytest.mark.slow
def test_c28_concurrent_requests_reach_the_upstream_unmixed_and_get_their_own_replies():
    async def run(url: str) -> list[list[str]]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            return await asyncio.gather(*[reply_to(session, url, number) for number in range(REQUESTS)])

    with Upstream(script) as up, Running(up.url, budget=2.0) as gate:
        replies = asyncio.run(run(f"{gate.url}/chat/completions"))
        assert gate.gateway.under_way == 0
        account = gate.gateway.resources.ledger.account()
    for number, texts in enumerate(replies):
        text = f"model-{number % 7} for user-{number}. The answer is {number}."
        assert texts == [text] * question(number).get("n", 1)
    asked: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for request in up.requests:
        asked[request.body["metadata"]["number"]].append(request.body)
    assert sorted(asked) == list(range(REQUESTS))
    for number, bodies in asked.items():
        sent = question(number)
        for body in bodies:
            assert body["messages"] == sent["messages"]
            assert {name: body[name] for name in SENT} == {name: sent[name] for name in SENT}
            assert ("seed" in body) == ("seed" in sent)
            assert 0 <= body.get("seed", 0) - sent.get("seed", 0) < 64  # each sample has one of its own
            assert set(body) <= {*sent, "n", "logprobs", "top_logprobs", "stream", "stream_options"}
    assert account.spent.samples == up.count.choices
    assert account.reserved.samples == 0
