"""The same policy saves the same share of money wherever it is told: fit, evaluate, report and dashboard."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from behaviours import Reply
from crowd import Visit, crowd
from running import Running

import adacompute as ac
from shared import read_votes
from tiers import leave_to_nightly
from upstream import Upstream
from warm import Warm

PRICES = {"input_price": 1.0, "output_price": 4.0}
PRICE_OPTIONS = ("--input-price", "1", "--output-price", "4")
PROMPT, RESPONSE = 90, 30  # tokens
PROBLEMS = 66  # from 64 on the verdict takes fewer fits


def make_script(*, takes_n: bool) -> Callable[[int, dict[str, Any]], Reply]:
    """Question number i is right with a chance that rises with i; wrong answers are spread over nine."""

    def script(number: int, body: dict[str, Any]) -> Reply:
        rng, count = random.Random(number), (body.get("n") or 1) if takes_n else 1
        index = int((re.findall("[0-9]+", body["messages"][-1]["content"]) or ["0"])[0])
        chance = 0.3 + 0.7 * index / PROBLEMS
        answers = [index if rng.random() < chance else 100 + rng.randrange(9) for _ in range(count)]
        texts = [f"The answer is {answer}." for answer in answers]
        usage = {"prompt_tokens": PROMPT, "completion_tokens": RESPONSE * count}
        usage["total_tokens"] = sum(usage.values())
        return Reply(texts=texts, usage=usage, logprobs=False)

    return script


@pytest.mark.slow
@pytest.mark.timeout(900)  # commands that fit many times, on a busy machine
@pytest.mark.parametrize(
    ("takes_n", "on_page"), leave_to_nightly([(True, False), (True, True), (False, False)])
)
def test_fit_evaluate_report_and_dashboard_tell_the_same_saving(
    tmp_path: Path, warm: Callable[[], Warm], takes_n: bool, on_page: bool
):
    def run(*words: str) -> str:
        done = warm().run(*words, folder=tmp_path, environ=dict(os.environ), timeout=900)
        assert done.returncode == 0, done.stderr
        return done.stdout

    rows = [{"id": f"p{i}", "question": f"What is {i} plus 0?", "gold": str(i)} for i in range(PROBLEMS)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Upstream(make_script(takes_n=takes_n)) as up:
        words = ("problems.jsonl", "--endpoint", up.url, "--model", "m", "--samples", "12")
        run("collect", *words, "--pool", "p.sqlite")
        commands = {
            "fit": ("p.sqlite", "-o", "policy"),
            "evaluate": ("p.sqlite", "--policies", "fixed,stopping"),
        }
        if on_page:
            commands["report"] = ("p.sqlite", "-o", "page", "--quick")
        told = {
            name: json.loads(run(name, *words, *PRICE_OPTIONS, "--json")) for name, words in commands.items()
        }
        with Running(up.url, policy=str(tmp_path / "policy"), budget=3.0, endpoint=PRICES) as gate:
            asked = [rows[i % PROBLEMS]["question"] for i in range(4 * PROBLEMS)]
            crowd(
                gate, [Visit(body={"messages": [{"role": "user", "content": q}]}) for q in asked], at_once=4
            )
            live = gate.get("/dashboard/data").json["savings"]
    savings = {row["budget"]: row["saved"] for row in told["fit"]["savings"]}
    assert len(savings) == 5
    assert {row["budget"]: row["saved"] for row in told["evaluate"]["savings"]} == savings
    if on_page:
        assert {row["budget"]: row["saved"] for row in told["report"]["money"]["rows"]} == savings
    needs = {row["budget"]: row["worth"]["mean"] for row in told["fit"]["verdict"]["rows"]}
    charted = {row["budget"]: row["uniform"] for row in told["fit"]["settings"]}
    assert {budget: charted[budget] for budget in needs} == pytest.approx(needs)
    # where a call gives any number of samples, those asked one by one pay for more prompts
    in_samples = 1 - 3 / needs[3.0]
    assert savings[3.0] < in_samples - 0.1 if takes_n else savings[3.0] == pytest.approx(in_samples)
    expected = np.interp(live["average"], list(savings), list(savings.values()))
    print(f"takes n: {takes_n}; {savings}; live {live['money']} at {live['average']:.2f}: {expected:.1%}")
    assert live["money"]["saved"] / live["money"]["uniform"] == pytest.approx(expected, abs=0.05)


def test_a_pool_without_calls_pays_for_a_prompt_with_each_sample_and_says_so():
    ballots = read_votes("facts")
    assert (ballots.charge.tokens, ballots.charge.choices) == (None, 1)
    assert "no calls are recorded" in str(ballots.charge)
    each = ac.TokenPrices(input=1.0, prompts="each")
    table, stated = (
        ac.score(ballots, budgets=(1, 2), cost=cost) for cost in (ac.TokenPrices(input=1.0), each)
    )
    assert (table.costs == stated.costs).all()
