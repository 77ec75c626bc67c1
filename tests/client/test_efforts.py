"""Efforts as modes: the options that docs/menus.md has for each provider arrive as that provider has them.

What must arrive is written down here from the providers' own documentation, not from ours.
"""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import Running

from upstream import Reply, Upstream

DOCS = Path(__file__).parents[2] / "docs" / "menus.md"
ARRIVES: dict[str, dict[str, Any]] = {
    "openai-low": {"reasoning_effort": "low", "temperature": 1, "max_completion_tokens": 8000},
    "claude-2000": {
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "temperature": 1,
        "max_tokens": 6000,
    },
    "gemini-low": {"reasoning_effort": "low"},
    "gemini-1024": {"extra_body": {"google": {"thinking_config": {"thinking_budget": 1024}}}},
    "vllm-1000": {"thinking_token_budget": 1000, "max_tokens": 4000},
    "sglang-1000": {"custom_params": {"thinking_budget": 1000}, "max_tokens": 4000},
    "qwen3-direct": {"chat_template_kwargs": {"enable_thinking": False}},
    "qwen3-cloud": {"enable_thinking": True, "thinking_budget": 1000},
}
THOUGHT = {
    "told": {"completion_tokens": 100, "completion_tokens_details": {"reasoning_tokens": 80}},
    "in the total alone": {"completion_tokens": 20, "total_tokens": 120},
    "in the text alone": None,
}


def write_menu(folder: Path, url: str) -> list[str]:
    """The docs' menu with one scripted upstream in the place of every provider's; the names of its modes."""
    text = DOCS.read_text().partition("### Efforts as modes")[2].partition("```toml")[2].partition("```")[0]
    modes = tomllib.loads(text)
    lines = []
    for line in text.splitlines():
        kept = [] if line.startswith("key_env") else [line]
        lines += [f'upstream = "{url}"'] if line.startswith("upstream") else kept
        lines += ["input_price = 1.0", "output_price = 10.0"] if line.startswith("model") else []
    (folder / "menu.toml").write_text("\n".join(lines))
    return list(modes)


def read_bodies(up: Upstream) -> list[dict[str, Any]]:
    return [dict(request.body) for request in up.requests]


def holds(body: dict[str, Any], fields: dict[str, Any]) -> bool:
    return all(body.get(name) == value for name, value in fields.items())


def test_what_the_docs_have_for_each_provider_arrives_by_check_and_collect(
    adacompute: Callable, tmp_path: Path
):
    (tmp_path / "problems.jsonl").write_text('{"id": "p", "question": "What is 2 + 3?", "gold": "5"}\n')
    with Upstream() as up:
        assert write_menu(tmp_path, up.url) == list(ARRIVES)
        adacompute("menu", "check", "menu.toml")
        checked = read_bodies(up)
        up.requests.clear()
        adacompute(
            *("collect", "problems.jsonl", "--menu", "menu.toml", "--samples", "1", "--pool", "p.sqlite")
        )
        collected = read_bodies(up)
    models = [table["model"] for table in tomllib.loads((tmp_path / "menu.toml").read_text()).values()]
    for model, fields in zip(models, ARRIVES.values(), strict=True):
        for bodies in (checked, collected):
            assert any(body["model"] == model and holds(body, fields) for body in bodies)
    assert len(collected) == len(ARRIVES)


def test_what_the_docs_have_for_each_provider_arrives_by_the_gateway(tmp_path: Path):
    with Upstream() as up:
        write_menu(tmp_path, up.url)
        menu = str(tmp_path / "menu.toml")
        with Running("", folder=tmp_path, menu=menu, budget="1 USD per 1000") as gate:
            for name, fields in ARRIVES.items():
                assert gate.ask(model=name).status == 200
                assert holds(dict(up.requests[-1].body), fields)


def think(_number: int, body: dict[str, Any]) -> Reply:
    """Thinks 800 tokens, or 64 at low effort, whatever else it is asked."""
    thought = 64 if body.get("reasoning_effort") == "low" else 800
    usage = {"prompt_tokens": 20, "completion_tokens": thought + 5}
    return Reply(texts=["45"], usage={**usage, "completion_tokens_details": {"reasoning_tokens": thought}})


def check_menu(adacompute: Callable, folder: Path, script: Any, options: str) -> tuple[list[str], dict]:
    with Upstream(script) as up:
        (folder / "menu.toml").write_text(
            f'[own]\nupstream = "{up.url}"\nmodel = "m"\noptions = {options}\n'
            "input_price = 0\noutput_price = 10\n"
        )
        lines = adacompute("menu", "check", "menu.toml").stdout.splitlines()
        found = json.loads(adacompute("menu", "check", "menu.toml", "--json").stdout)
    return [line for line in lines if line.startswith("mode own")], found


@pytest.mark.parametrize(
    ("options", "said", "changed"),
    [
        (
            '{ reasoning_effort = "low" }',
            "64 tokens of thought with reasoning_effort, 800 without",
            True,
        ),
        (
            "{ thinking_token_budget = 9 }",
            "800 tokens of thought with thinking_token_budget, 800 without: they change nothing",
            False,
        ),
    ],
)
def test_check_says_what_an_effort_changes_and_that_it_changes_nothing(
    adacompute: Callable, tmp_path: Path, options: str, said: str, changed: bool
):
    lines, found = check_menu(adacompute, tmp_path, think, options)
    assert lines == [f"mode own: {said}"]
    assert [effort["changed"] for effort in found["efforts"]] == [changed]
    tokens = (64 if changed else 800) * 2 + 800 + 15  # the answer, the puzzle with the option and without
    assert found["cost"] == pytest.approx(tokens * 10 / 1e6)


def test_without_options_of_effort_nothing_more_is_asked(adacompute: Callable, tmp_path: Path):
    lines, found = check_menu(adacompute, tmp_path, think, "{ max_tokens = 2000 }")
    assert (lines, found["efforts"]) == ([], [])


def test_answers_that_are_cut_off_tell_nothing_of_an_effort(adacompute: Callable, tmp_path: Path):
    script = Reply(texts=["45"], finish="length", usage={"prompt_tokens": 9, "completion_tokens": 16})
    (line,), found = check_menu(adacompute, tmp_path, script, '{ reasoning_effort = "low", max_tokens = 16 }')
    assert line.endswith("16 tokens out with reasoning_effort, 16 without: what they change can't be told; "
                         "give more max_tokens")  # fmt: skip
    assert found["efforts"][0]["changed"] is None


def reply_thinking(kind: str) -> Reply:
    """20 tokens of an answer and 80 of thought, told in one of three ways; a token has 4 characters."""
    message = {"role": "assistant", "content": "The answer is 42.".ljust(80), "reasoning_content": "x" * 320}
    told = THOUGHT[kind]
    usage = {} if told is None else {"usage": {"prompt_tokens": 20, **told}}
    return Reply(
        body={"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": "m", **usage}
    )


@pytest.mark.parametrize("kind", list(THOUGHT))
def test_tokens_of_thought_are_counted_and_priced_once_by_collect_answer_and_gateway(
    adacompute: Callable, tmp_path: Path, kind: str
):
    (tmp_path / "problems.jsonl").write_text('{"id": "p", "question": "What is 6 times 7?", "gold": "42"}\n')
    prices = ("--input-price", "0", "--output-price", "10", "--json", "--model", "m")
    with Upstream(reply_thinking(kind)) as up:
        url = ("--endpoint", up.url, *prices)
        done = adacompute("collect", "problems.jsonl", "--samples", "1", "--pool", "p.sqlite", *url)
        collected = json.loads(done.stdout)
        done = adacompute("answer", "problems.jsonl", "--budget", "1", "-o", "answers.jsonl", *url)
        answered = json.loads(done.stdout)
        with Running(up.url, endpoint={"output_price": 10.0}, cap=10_000, unit="money") as gate:
            reply = gate.ask(model="m", temperature=0).json
            spent = gate.gateway.resources.ledger.account().spent.money
    assert collected["completion_tokens"] == 100
    assert collected["cost"] == pytest.approx(100 * 10 / 1e6)
    assert answered["cost"] == pytest.approx(answered["samples"] * 100 * 10 / 1e6)
    assert reply["usage"]["completion_tokens"] == 100
    assert spent == pytest.approx(100 * 10 / 1e6)
