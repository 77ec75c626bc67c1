"""`adacompute solve`, run as a user would: what hand counting gives, what it says, what it refuses."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

import adacompute as ac
from tiers import leave_to_nightly

# p1: right, right, wrong, none; p2: right, right, wrong, right
ANSWERS = {"p1": ["42", "42", "41", None], "p2": ["42", "42", "41", "42"]}
SMALL = ("solve", "a.jsonl", "--budget", "2", "--budgets", "1,4")
EUROS = ("--currency", "euros")


def lines(**change: object) -> str:
    made = []
    for name, answers in ANSWERS.items():
        samples = [{"answer": answer, "tokens": 10} for answer in answers]
        made.append({"id": name, "question": "?" * 40, "gold": "42", "samples": samples} | change)
    return "".join(json.dumps(one) + "\n" for one in made)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text(lines())
    return tmp_path


def strict(text: str) -> dict:
    """One JSON object, without what JSON has no word for."""

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} in JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def test_a_small_pool_gives_what_hand_counting_gives(adacompute, pool):
    body = strict(adacompute(*SMALL, "--json").stdout)
    # one sample is right 1/2 and 3/4 of the time, four always are; p1 comes first
    assert (body["budget"], body["budgets"], body["counts"]) == (2.0, [1, 4], [2, 0])
    assert (body["cost"], body["accuracy"], body["unit"]) == (1.0, pytest.approx(5 / 8), "samples")
    assert body["price"] == pytest.approx(1 / 6)
    assert body["bound"] == pytest.approx(5 / 8 + 2 / 3 / 2 * 1 / 2)
    assert body["gap"] == pytest.approx(body["bound"] - body["accuracy"])
    assert body["mix"] == [{"problem": "p1", "mode": 4, "probability": pytest.approx(2 / 3)}]
    # alike: 5/8 and 1, so one in three gets 4
    assert body["uniform"]["accuracy"] == pytest.approx(5 / 8 + 3 / 8 / 3)
    assert (body["uniform"]["budgets"], body["uniform"]["cost"]) == ([1, 4], pytest.approx(2))
    assert body["uniform"]["probability"] == pytest.approx(1 / 3)
    assert "needs 8 of each problem" in body["crossfitted_why"]
    assert (body["difference"]["low_end"], body["difference"]["interval"]) == (None, None)
    assert body["difference"]["high_end"] == pytest.approx(body["bound"] - body["uniform"]["accuracy"])
    assert body["crossfitted"] is None  # 4 samples can't be halved and voted on by 4
    assert (body["problems"], body["dropped"], body["pool"]) == (2, [], "a.jsonl")
    assert "oracle" in body["protocol"]


def test_the_curve_rises_at_falling_prices_and_stays_above_all_alike(adacompute):
    curve = strict(adacompute("solve", "facts", "--budget", "2", "--json").stdout)["curve"]
    assert [curve[0]["cost"], curve[-1]["cost"]] == [1, 16]
    for before, after in pairwise(curve):
        assert before["accuracy"] <= after["accuracy"]
        assert before["price"] >= after["price"]
    assert all(point["uniform"] <= point["accuracy"] for point in curve)


@pytest.mark.slow
def test_the_command_says_what_python_gives(adacompute):
    body = strict(adacompute("solve", "words", "--budget", "2", "--json").stdout)
    plan = ac.solve(ac.score(ac.bundled("words")), budget=2)
    assert body["counts"] == list(plan.counts)
    for name in ("price", "cost", "accuracy", "bound", "gap"):
        assert body[name] == getattr(plan, name)
    assert body["uniform"]["accuracy"] < body["crossfitted"]["accuracy"] < body["accuracy"]
    assert body["crossfitted"]["splits"] == 5
    assert body["crossfitted_why"] is None
    low, high = body["difference"]["interval"]
    assert low < body["difference"]["low_end"] < high
    assert body["difference"]["low_end"] < body["difference"]["high_end"]


@pytest.mark.nightly
def test_a_budget_that_does_not_bind_has_no_price_and_costs_that_differ_are_told(adacompute):
    done = adacompute("solve", "words", "--budget", "20")
    assert "0: more would buy nothing, 13.2 samples on average is all that pays" in done.stdout
    assert "85.4% at 16 samples: 16 samples for every problem" in done.stdout
    assert "at the same average cost" not in done.stdout
    assert "+0.4 to +1.1 points, at 11.2 to 13.2 samples instead of 16 (lower" in done.stdout
    assert strict(adacompute("solve", "words", "--budget", "20", "--json").stdout)["price"] == 0


def test_where_halves_are_too_small_the_lower_end_is_said_to_be_untold(adacompute, pool):
    shown = " ".join(adacompute(*SMALL).stdout.split())
    assert "lower end can't be known: choosing on half of the samples needs 8 of each problem" in shown
    assert "p1' given 4 samples 66.7% of the time, else 1, spends all of it: 79.2%" in shown
    assert "up to +4.2 points (upper end only) at the same average cost" in shown


def test_samples_without_any_answer_are_said_to_be_so(adacompute, pool):
    (pool / "a.jsonl").write_text(lines(samples=[{"text": ""}] * 4))
    done = adacompute(*SMALL, "--json")
    assert done.stderr.startswith("a.jsonl: no answer was found in any of 8 samples; answers are read from")
    assert strict(done.stdout)["accuracy"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "unit", "words"),
    leave_to_nightly(
        [
            (
                ("--cost", "tokens", "--budget", "600"),
                "tokens",
                "100 more tokens must buy at least 2.2 points",
            ),
            (
                ("--cost", "money", "--input-price", "0.5", "--output-price", "1.5", "--budget", "0.001"),
                "USD",
                "0.1 more USD per 1,000 problems must buy at least 1.3 points",
            ),
            (
                (
                    "--cost",
                    "money",
                    "--input-price",
                    "0.05",
                    "--output-price",
                    "0.1",
                    "--budget",
                    "0.00009",
                    *EUROS,
                ),
                "euros",
                "words: 441 problems, 0.09 euros per 1,000 problems on average",
            ),
        ]
    ),
)
def test_tokens_and_money_are_costs_too(adacompute, options, unit: str, words: str):
    body = strict(adacompute("solve", "words", *options, "--json").stdout)
    assert body["unit"] == unit
    assert body["cost"] <= body["budget"]
    assert sum(body["counts"]) == 441
    assert body["crossfitted"]["cost"] == pytest.approx(body["budget"], rel=0.02)
    shown = adacompute("solve", "words", *options).stdout
    assert words in shown
    assert not re.search(r"\de[-+]?\d", shown)  # nobody reads 5e-05


def test_money_is_what_tokens_and_prices_come_to(adacompute, pool):
    # a sample is 10 tokens at 3 a million, and a prompt of 40 characters, about 10 tokens at 2 a million
    options = ("--cost", "money", "--input-price", "2", "--output-price", "3", "--budget", "1", "--json")
    body = strict(adacompute("solve", "a.jsonl", "--budgets", "1,2,4", *options).stdout)
    assert [body["curve"][0]["cost"], body["cost"]] == [pytest.approx(50e-6), pytest.approx(200e-6)]


def test_problems_with_too_few_samples_are_an_error_or_left_out_by_name(adacompute, pool):
    short = {"id": "p3", "question": "?", "gold": "1", "samples": [{"answer": "1"}]}
    (pool / "a.jsonl").write_text(lines() + json.dumps(short) + "\n")
    refused = adacompute(*SMALL, code=1).stderr
    assert "'p3' (1 sample)" in refused
    body = strict(adacompute(*SMALL, "--too-few", "drop", "--json").stdout)
    assert (body["problems"], body["dropped"]) == (2, ["p3"])
    assert "2 problems (1 left out" in adacompute(*SMALL, "--too-few", "drop").stdout


def test_of_several_models_or_parameters_one_is_named(adacompute, pool):
    both = lines(model="m") + lines(model="n", samples=[{"answer": "42"}] * 4)
    (pool / "a.jsonl").write_text(both + lines(model="n", parameters={"t": 1}, samples=[{"answer": "0"}] * 4))
    assert "--model m" in adacompute(*SMALL, code=1).stderr
    assert strict(adacompute(*SMALL, "--model", "m", "--json").stdout)["accuracy"] == pytest.approx(5 / 8)
    assert "2 sources" in adacompute(*SMALL, "--model", "n", code=1).stderr
    named = ("--model", "n", "--parameters", '{"t": 1}', "--json")
    assert strict(adacompute(*SMALL, *named).stdout)["accuracy"] == 0
    assert "'x'" in adacompute(*SMALL, "--model", "x", code=1).stderr


@pytest.mark.slow
def test_a_file_wins_over_the_recording_of_its_name(adacompute, pool):
    assert "facts: 353 problems" in adacompute("pool", "facts").stdout
    assert "353 problems" in adacompute("export", "facts", "out.jsonl.gz").stdout
    (pool / "facts").mkdir()
    adacompute("export", "a.jsonl", "facts/a.parquet")
    assert "facts: 2 problems" in adacompute("pool", "facts").stdout
    (pool / "words").write_text("hello\n")
    assert "not a pool" in adacompute("solve", "words", "--budget", "2", code=1).stderr


@pytest.mark.slow
def test_a_recording_is_not_read_in_another_way(adacompute):
    assert "'facts'" in adacompute("pool", "facts", "--extract", "boxed", code=1).stderr
    adacompute("pool", "facts", "--extract", "auto")


def test_extraction_and_budgets_come_from_options_settings_and_environment(adacompute, tmp_path: Path):
    line = {"id": "p", "question": "?", "gold": "7", "samples": [{"text": "so 8 [[7]]"}] * 4}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    words = ("solve", "a.jsonl", "--budget", "1", "--json", "--extract", r"regex:\[\[(\d)\]\]")
    body = strict(adacompute(*words, ADACOMPUTE_SCORE_BUDGETS="1,3").stdout)
    assert (body["accuracy"], body["budgets"]) == (1.0, [1, 3])


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (("solve", "a.jsonl", "--budget", "0.5", "--budgets", "1,2"), 1, ["0.5", "cheapest", "give 1 to 2"]),
        (("solve", "a.jsonl", "--budget", "-1", "--budgets", "1,99"), 2, ["-1", "--budget"]),
        (("solve", "a.jsonl", "--budget", "0"), 2, ["budget 0", "above 0"]),
        (("solve", "a.jsonl", "--budget", "2", "--budgets", "16"), 1, ["fewer than 16", "'p1' (4 samples)"]),
        (("solve", "fact", "--budget", "2"), 1, ["did you mean the recording 'facts'?"]),
        (("solve", "no.sqlite", "--budget", "2"), 1, ["no.sqlite", "no such"]),
        (("solve", "bare.jsonl", "--budget", "1", "--budgets", "1"), 1, ["correctness is not known", "gold"]),
        (("solve", "none.jsonl", "--budget", "1"), 1, ["none.jsonl", "no problem has a sample"]),
        ((*SMALL[:-1], "4,2"), 2, ["[4, 2]", "ascending", "--budgets"]),
        ((*SMALL[:-1], "1,two"), 2, ["'1,two'", "--budgets"]),
        ((*SMALL, "--aggregate", "weighted"), 1, ["log-probabilities", "--aggregate vote"]),
        ((*SMALL, "--cost", "money", "--input-price", "-2", "--output-price", "1"), 2, ["-2", "from 0 up"]),
        (("solve", "a.jsonl"), 2, ["--budget"]),
        (("solve", "--budget", "2"), 2, ["POOL"]),
        (("solve", "a.jsonl", "--budget", "two"), 2, ["two"]),
        (("solve", "a.jsonl", "--budget", "nan"), 2, ["nan", "--budget"]),
        (("solve", "a.jsonl", "--budget", "inf"), 2, ["inf", "--budget"]),
        ((*SMALL, "--aggregate", "median"), 2, ["median"]),
        ((*SMALL, "--by", "entropy"), 2, ["entropy", "--by", "weighted"]),
        ((*SMALL, "--aggregate", "weighted", "--by", "length"), 2, ["length"]),
        ((*SMALL, "--cost", "time"), 2, ["time"]),
        ((*SMALL, "--cost", "money"), 2, ["--input-price", "--output-price"]),
        ((*SMALL, "--input-price", "1"), 2, ["--cost money"]),
        ((*SMALL, "--currency", "euros"), 2, ["--cost money", "--currency"]),
        (
            (*SMALL, "--cost", "money", "--input-price", "1", "--output-price", "1", "--currency", "tokens"),
            2,
            ["'tokens'", "--currency"],
        ),
        ((*SMALL, "--too-few", "skip"), 2, ["skip"]),
        ((*SMALL, "--parameters", "{t"), 2, ["{t", "JSON"]),
        ((*SMALL, "--parameters", "[1]"), 2, ["[1]", "temperature"]),
    ],
)
def test_what_cannot_be_solved_is_said_in_one_line(adacompute, pool, words, code, parts):
    (pool / "bare.jsonl").write_text(json.dumps({"id": "p", "question": "?", "samples": [{"answer": "1"}]}))
    (pool / "none.jsonl").write_text(json.dumps({"id": "p", "question": "?", "samples": []}))
    done = adacompute(*words, code=code)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1, done.stderr
    assert all(part in " ".join(done.stderr.split()) for part in parts), done.stderr


def test_a_budget_says_its_unit_as_everywhere(adacompute, pool):
    prices = ("--input-price", "0.5", "--output-price", "1.5", "--json")
    in_words = adacompute("solve", "a.jsonl", "--budget", "0.05 USD per 1000", *prices)
    assert strict(in_words.stdout) == strict(
        adacompute("solve", "a.jsonl", "--cost", "money", "--budget", "0.00005", *prices).stdout
    )
    tokens = adacompute("solve", "a.jsonl", "--budget", "20 tokens", "--json").stdout
    assert tokens == adacompute("solve", "a.jsonl", "--cost", "tokens", "--budget", "20", "--json").stdout
    wrong = adacompute("solve", "a.jsonl", "--budget", "20 tokens", "--cost", "samples", code=2)
    assert "is not in samples" in wrong.stderr
