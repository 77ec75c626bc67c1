"""The gateway in front of a real model: llama.cpp's own server, asked by the official client."""

import json
import math
import re
import shlex
import time
import urllib.request
from typing import Any

import pytest
from openai import OpenAI
from running import Running

from adacompute.cli.serve import gather_facts, show_started
from adacompute.cli.terminal import EXAMPLE_QUESTION
from adacompute.client.local import LocalModel
from shared import read_recorded

SUMS = ("What is 2 + 2?", "What is 3 + 4?")


def asked(question: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{question} Answer with the number only."}]
    return {
        "model": "default",
        "messages": messages,
        "max_tokens": 12,
        "temperature": 0.8,
        "seed": 1,
        **fields,
    }


@pytest.fixture(scope="module")
def gate(local_model: LocalModel) -> Any:
    model = {"model": "SmolLM2-135M-Instruct"}
    with Running(local_model.url, endpoint=model, budget=3.0, price=0.005, vote="always") as running:
        yield running


def test_a_real_model_is_voted_on_streamed_and_paid_for(gate: Running):
    ledger = gate.gateway.resources.ledger
    with OpenAI(base_url=gate.url, api_key="any", timeout=120.0) as client:
        create = client.chat.completions.create
        drawn = 0
        for question in SUMS:
            reply = create(**asked(question))
            told = reply.model_extra["adacompute"]
            assert reply.choices[0].message.content
            assert told["samples"] >= sum(told["votes"].values())
            assert reply.usage.completion_tokens <= 13 * told["samples"]
            drawn += told["samples"]
        assert drawn > len(SUMS)  # some were asked more than once
        chunks = list(create(**asked(SUMS[0], stream=True, stream_options={"include_usage": True})))
        (told,) = [chunk.model_extra["adacompute"] for chunk in chunks if "adacompute" in chunk.model_extra]
        drawn += told["samples"]
        (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
        assert 0 < usage.completion_tokens <= 13 * told["samples"]
        balance = ledger.account()
        assert (balance.spent.samples, balance.maybe.samples, balance.reserved.samples) == (drawn, 0, 0)


def test_a_real_model_at_temperature_0_is_passed_on_the_same_in_one_piece_and_as_a_stream(gate: Running):
    with OpenAI(base_url=gate.url, api_key="any", timeout=120.0) as client:
        create = client.chat.completions.create
        plain = create(**asked(SUMS[1], temperature=0))
        chunks = list(create(**asked(SUMS[1], temperature=0, stream=True)))
        several = create(**asked(SUMS[1], n=2))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == plain.choices[0].message.content
    assert plain.model_extra is not None
    assert plain.model_extra["adacompute"]["samples"] == 1
    assert all(chunk.choices for chunk in chunks)
    assert len(several.choices) == 2


@pytest.mark.nightly
def test_a_story_of_a_real_model_comes_as_it_is_written(local_model: LocalModel):
    story = {
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": "Write a short story about a lighthouse."}],
        "max_tokens": 60,
        "temperature": 0.8,
        "seed": 7,
        "stream": True,
    }

    def tell(url: str) -> tuple[list[float], str, list[Any]]:
        """Seconds at which pieces of the text came, the text, and the chunks."""
        began, times, text, chunks = time.monotonic(), [], "", []
        with OpenAI(base_url=url, api_key="any", timeout=120.0) as client:
            for chunk in client.chat.completions.create(**story):
                chunks.append(chunk)
                piece = chunk.choices[0].delta.content if chunk.choices else None
                if piece:
                    times.append(time.monotonic() - began)
                    text += piece
        return times, text, chunks

    with Running(local_model.url, budget=3.0) as gate:
        tell(local_model.url)  # its prompt is in the model's cache from now on
        direct, written, _ = tell(local_model.url)
        through, passed_on, chunks = tell(gate.url)
    print(f"first of {len(through)} pieces after {through[0]:.3f} s, directly {direct[0]:.3f} s")
    assert passed_on == written
    assert len(through) == len(direct) > 30
    assert through[0] < through[-1] / 2
    assert chunks[-1].model_extra["adacompute"]["samples"] == 1


FACTS = {  # a question, and what a right reply holds
    "What is the capital of Australia? Be brief.": "canberra",
    "What is the capital of Vietnam? Be brief.": "hanoi",
    "What is the capital of Italy? Be brief.": "rome",
    "What is the largest planet in the solar system?": "jupiter",
    "What is the chemical symbol for gold?": "au",
    "How many continents are there?": "seven|7",
    "What is the opposite of hot?": "cold",
    "In what year did World War II end?": "1945",
    "Is a whale a mammal?": "yes|is a mammal|are mammals",
    "What is the currency of Japan?": "yen",
    "Is the Earth flat? Answer yes or no.": "no",
    "How many days are in a week?": "seven|7",
}
ROUNDS = 2


def ask_facts(url: str) -> tuple[float, list[dict[str, Any]]]:
    """How often the replies to all the questions are right, and what the gateway says of each."""
    right, told = 0, []
    with OpenAI(base_url=url, api_key="any", timeout=600.0) as client:
        for seed in range(1, ROUNDS + 1):
            for question, gold in FACTS.items():
                reply = client.chat.completions.create(
                    model="default",
                    messages=[{"role": "user", "content": question}],
                    max_tokens=24,
                    temperature=0.8,
                    seed=seed,
                )
                content = (reply.choices[0].message.content or "").casefold()
                right += re.search(rf"\b(?:{gold})\b", content) is not None
                told.append((reply.model_extra or {}).get("adacompute", {}))
    return right / (ROUNDS * len(FACTS)), told


@pytest.mark.nightly
def test_a_real_model_s_sentences_are_voted_on_and_are_no_less_often_right_than_one_sample(
    local_model: LocalModel,
):
    model = {"model": "SmolLM2-135M-Instruct"}
    single, _ = ask_facts(local_model.url)
    with Running(local_model.url, endpoint=model, budget=3.0, price=0.02) as gate:
        voted, told = ask_facts(gate.url)
    # the noise: two standard errors of the difference of two shares of 24
    noise = 2 * math.sqrt((single * (1 - single) + voted * (1 - voted)) / (ROUNDS * len(FACTS)))
    assert voted >= single - noise, (single, voted)
    assert sum(bool(outcome["votes"]) for outcome in told) > len(told) / 2  # most are voted on
    assert all(outcome["samples"] <= 2 for outcome in told if outcome["agreement"] is None)


def test_the_request_to_try_is_one_that_the_recorded_model_never_got_wrong():
    (recorded,) = [row for row in read_recorded("facts") if row.problem.question == EXAMPLE_QUESTION]
    assert {sample.correct for sample in recorded.samples} == {1.0}


def test_the_request_that_serve_prints_is_answered_right_by_a_real_model(
    local_model: LocalModel, capsys: pytest.CaptureFixture[str]
):
    with Running(local_model.url, budget=3.0) as gate:
        show_started(gather_facts(gate.gateway, gate.base))
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  curl "))
        words = shlex.split(line)
        body = words[words.index("-d") + 1].encode()
        request = urllib.request.Request(words[1], body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            completion = json.load(reply)
    assert re.search(r"\bCl\b", completion["choices"][0]["message"]["content"]), completion
