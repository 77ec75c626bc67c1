"""`adacompute ask`: the text, one line about the vote, and errors that say what to do."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from behaviours import Reply, Stall

from tiers import leave_to_nightly
from upstream import Upstream
from warm import COMMAND

CANARY = "sk-canary-4711-0815"
QUESTION = "What is the capital of Vietnam?"


def sure(_number: int, body: dict[str, Any]) -> Reply:
    return Reply(texts=["The capital of Vietnam is Hanoi."] * body.get("n", 1))


def split(number: int, body: dict[str, Any]) -> Reply:
    texts = ["Answer: Hue", "Answer: Hanoi", "Answer: Hanoi", "Answer: Hanoi"]
    return Reply(texts=[texts[(number - 1) % 4]] * body.get("n", 1))


def test_the_text_comes_first_then_one_line_about_the_vote(adacompute, tmp_path: Path):
    with Upstream(sure) as up:
        done = adacompute("ask", QUESTION, "--endpoint", up.url, "--budget", "3")
        samples = up.count.choices
    assert done.stdout.startswith("The capital of Vietnam is Hanoi.\n\n")
    votes = "1 of 1 vote" if samples == 1 else f"{samples} of {samples} votes"
    count = "1 sample" if samples == 1 else f"{samples} samples"
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"Hanoi: {votes}, {count}, ")
    assert last.endswith(" tokens")
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []  # no file is left behind


def test_a_vote_that_was_split_names_the_others(adacompute):
    with Upstream(split) as up:
        done = adacompute("ask", QUESTION, "--endpoint", up.url, "--budget", "8")
    text, _, line = done.stdout.splitlines()
    assert text == "Answer: Hanoi"
    assert " votes (Hue: " in line


def test_as_json_it_has_all_that_a_reply_has(adacompute):
    with Upstream(sure) as up:
        words = ("--input-price", "1", "--output-price", "2", "--json", "--system", "Be brief.")
        done = adacompute("ask", QUESTION, "--endpoint", up.url, *words, "--max-tokens", "9")
        body = up.requests[0].body
    reply = json.loads(done.stdout)
    assert set(reply) == {
        *("text", "answer", "votes", "samples", "tokens", "cost", "agreement", "notes", "model", "message"),
        *("modes", "error", "usage"),
    }
    assert reply["message"]["content"] == reply["text"]
    assert (reply["answer"], reply["model"], reply["error"]) == ("Hanoi", "scripted", None)
    assert reply["cost"] > 0
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["max_tokens"] == 9


def test_a_budget_may_be_money(adacompute):
    with Upstream(sure) as up:
        words = ("--endpoint", up.url, "--budget", "2 USD per 1000")
        prices = ("--input-price", "1", "--output-price", "2")
        done = adacompute("ask", QUESTION, *words, *prices)
        assert done.stdout.splitlines()[-1].endswith(" USD")
        rich = up.count.choices
        small = (*words[:-1], "0.0001 USD per 1000", *prices)
        assert ": 1 of 1 vote, 1 sample, " in adacompute("ask", QUESTION, *small).stdout
        assert rich > 1
        assert "needs prices" in adacompute("ask", QUESTION, *words, code=1).stderr


def test_what_cannot_be_voted_on_says_why(adacompute):
    with Upstream(Reply(texts=["Line one of the poem.\n\nLine two."])) as up:
        done = adacompute("ask", "Write a poem about rain.", "--endpoint", up.url)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["Line one of the poem.", "", "Line two."]
    assert lines[-1].startswith("1 sample, ")
    assert "; no vote: " in lines[-1]


def test_control_characters_of_a_model_do_not_reach_the_terminal(adacompute):
    with Upstream(lambda _number, body: Reply(texts=["Answer: \x1b[31mred"] * body.get("n", 1))) as up:
        done = adacompute("ask", QUESTION, "--endpoint", up.url)
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_a_prompt_may_come_from_stdin(tmp_path: Path):
    with Upstream(sure) as up:
        words = [COMMAND, "ask", "-", "--endpoint", up.url]
        done = subprocess.run(
            words, input=f"{QUESTION}\n", capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert up.requests[0].body["messages"] == [{"role": "user", "content": QUESTION}]
        empty = subprocess.run(words, input=" \n", capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Hanoi" in done.stdout
    assert empty.returncode == 2
    assert "stdin has no prompt" in empty.stderr


def test_a_prompt_that_begins_with_a_dash_goes_after_two(adacompute):
    with Upstream(sure) as up:
        adacompute("ask", "--endpoint", up.url, "--", "-5 + 3 = ?")
        assert up.requests[0].body["messages"][0]["content"] == "-5 + 3 = ?"
    assert "Put -- before a prompt" in " ".join(adacompute("ask", "--help").stdout.split())


def test_settings_name_the_endpoint_the_policy_and_the_budget(adacompute, tmp_path: Path):
    with Upstream(sure) as up:
        settings = f'[endpoint]\nurl = "{up.url}"\ninput_price = 1.0\n[serve]\nbudget = "3 samples"\n'
        (tmp_path / "adacompute.toml").write_text(settings)
        assert adacompute("ask", QUESTION).stdout.endswith(" USD\n")
        (tmp_path / "adacompute.toml").write_text(settings.replace('"3 samples"', "17\nmax_budget = 20"))
        assert "budget 17 is above 16 samples" in adacompute("ask", QUESTION, code=1).stderr
        (tmp_path / "adacompute.toml").write_text(f'{settings}policy = "nowhere"\n')
        assert "nowhere" in adacompute("ask", QUESTION, code=1).stderr


@pytest.mark.parametrize(
    ("section", "samples", "said"),
    [
        ("[serve]\nprice = 0.9\n", 1, ""),
        ('[serve]\nvote = "never"\n', 1, "no vote: "),
        ("[serve]\nprice = 0.0\nmin_agreement = 0.99\n", 16, "the vote is weak: "),
        ('[serve]\nprice = 0.0\n[answers]\npercent = "fraction"\n', 16, ": 16 of 16 votes, "),
    ],
    ids=["price", "vote", "min_agreement", "percent"],
)
def test_it_decides_as_a_gateway_with_the_same_settings(
    adacompute, tmp_path: Path, section: str, samples: int, said: str
):
    def half(number: int, body: dict[str, Any]) -> Reply:
        texts = ("Answer: 50%", "Answer: 0.5" if "percent" in section else "Answer: 7")
        return Reply(texts=[texts[(number + at) % 2] for at in range(body.get("n", 1))])

    (tmp_path / "adacompute.toml").write_text(section)
    with Upstream(half) as up:
        line = adacompute("ask", "How much is half of it?", "--endpoint", up.url, "--budget", "8").stdout
    assert f"{samples} sample" in line
    assert said in line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("x",), 1, "give --endpoint URL (or [endpoint] url in adacompute.toml); `adacompute local` serves"),
        (("x", "--endpoint", "http://127.0.0.1:9/v1"), 1, "can't be reached"),
        (("x", "--endpoint", "127.0.0.1"), 1, "is not an address"),
        (("x", "--endpoint", "URL", "--budget", "much"), 2, "budget 'much' can't be read"),
        (("x", "--endpoint", "URL", "--temperature", "3"), 2, "--temperature"),
        ((), 2, "PROMPT"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_with_the_remedy(adacompute, words, code: int, said: str):
    with Upstream(sure) as up:
        done = adacompute("ask", *(word.replace("URL", up.url) for word in words), code=code)
    assert done.stdout == ""
    assert said in done.stderr
    if code == 1:
        assert done.stderr.count("\n") == 1


def test_a_key_that_is_refused_or_missing_says_where_it_comes_from_and_is_not_shown(adacompute):
    with Upstream(sure, key="another") as up:
        done = adacompute("ask", QUESTION, "--endpoint", up.url, code=1, ADACOMPUTE_KEY=CANARY)
        assert "answered 401" in done.stderr
        assert "ADACOMPUTE_KEY was refused" in done.stderr
        assert CANARY not in done.stderr + done.stdout
        missing = adacompute("ask", QUESTION, "--endpoint", up.url, code=1).stderr
        assert "set the environment variable ADACOMPUTE_KEY, or give --key-file FILE" in missing
    with Upstream(sure, key=CANARY) as up:
        assert "Hanoi" in adacompute("ask", QUESTION, "--endpoint", up.url, ADACOMPUTE_KEY=CANARY).stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", leave_to_nightly([signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_it_with_one_line_whatever_is_under_way(number: signal.Signals, tmp_path: Path):
    with Upstream(Stall()) as up:
        process = subprocess.Popen(
            [COMMAND, "ask", QUESTION, "--endpoint", up.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        try:
            while not up.count.in_flight and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err.count("\n")) == (128 + number, "", 1)
