"""`adacompute evaluate`, run as a user would: what it gives, what it says, what it refuses."""

import json
import random
from pathlib import Path

import pytest

from adacompute.cli.evaluation_tables import show_evaluation
from adacompute.evaluate import evaluate as run_evaluate
from adacompute.pool import open_pool
from adacompute.records import TokenPrices

QUICK = (
    "--policies",
    "fixed,adaptive-consistency",
    "--budgets",
    "2,3",
    "--orders",
    "4",
    "--folds",
    "2",
    "--workers",
    "1",
)


def lines(*, gold: bool = True, problems: int = 24, samples: int = 16) -> str:
    """Problems from easy to hopeless, answers 0 to 4, the gold one more often where it is easy."""
    rng, made = random.Random(0), []
    for i in range(problems):
        ease = i / problems
        answers = ["4" if rng.random() < ease else str(rng.randrange(4)) for _ in range(samples)]
        one = {"id": f"p{i}", "question": f"What is {i} + {i}?", "samples": [{"answer": a} for a in answers]}
        made.append(one | ({"gold": "4"} if gold else {}))
    return "".join(json.dumps(one) + "\n" for one in made)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text(lines())
    (tmp_path / "bare.jsonl").write_text(lines(gold=False))
    (tmp_path / "short.jsonl").write_text(lines(samples=3))
    return tmp_path


def test_the_json_is_the_designs_and_says_what_was_done(adacompute, pool):
    body = json.loads(adacompute("evaluate", "a.jsonl", *QUICK, "--json").stdout)
    assert (body["problems"], body["folds"], body["protocol"], body["votes"]) == (24, 2, "held-out", "plain")
    rows = [row for row in body["rows"] if row["policy"] != "peers"]
    assert [(row["policy"], row["budget"]) for row in rows] == [
        ("fixed", 2), ("fixed", 3), ("asc", 2), ("asc", 3)
    ]  # fmt: skip
    for row in rows:
        assert {"policy", "budget", "cost", "accuracy", "low", "high", "protocol"} <= set(row)
        assert 0 <= row["low"] <= row["accuracy"] <= row["high"] <= 1
        assert row["protocol"] == "held-out"
    assert body["budgets"] == [2, 3]
    assert (body["verdict"]["decided"], body["verdict"]["problems_needed"]) == ("too few problems to tell", 6)


def test_a_person_is_told_the_verdict_the_tables_and_what_they_mean(adacompute, pool):
    done = adacompute("evaluate", "a.jsonl", *QUICK[:3], "2,3", *QUICK[4:])
    shown = " ".join(done.stdout.split())
    for part in (
        "a.jsonl: 24 problems, held-out (2 folds), plain votes, 4 orders of the samples",
        "accuracy at exactly so many samples on average",
        "gain over fixed at the same cost, points: 95% interval of each alone, paired over problems",
        "calibrated beforehand on other problems: accuracy at its cost",
        "Too few problems to tell: here are 24 different problems, and a verdict needs 30 at least, 6 more.",
        "upper concave hull of a policy's own settings",
    ):
        assert part in shown, part
    assert "evaluating a.jsonl: 4 of 4" in done.stderr


@pytest.mark.slow
def test_twice_the_same_command_gives_the_same_and_another_seed_does_not(adacompute, installed, pool):
    one, again, other = (  # the second in a Python of its own, which has its own seed of hashes
        start("evaluate", "a.jsonl", *QUICK, "--seed", seed, "--json").stdout
        for start, seed in ((adacompute, "1"), (installed, "1"), (adacompute, "2"))
    )
    assert one == again
    assert one != other


def test_the_papers_protocol_is_said_to_be_in_sample(adacompute, pool):
    words = ("evaluate", "a.jsonl", *QUICK, "--protocol", "paper", "--seeds", "2")
    shown = " ".join(adacompute(*words).stdout.split())
    assert "in-sample, the paper's way (2 seeds: fitted on 80%, judged on all)" in shown
    assert "judged on problems that they have learned from, which flatters them" in shown
    rows = json.loads(adacompute(*words, "--json").stdout)["rows"]
    assert all(row["protocol"].startswith("in-sample") for row in rows)
    assert all(row["accuracy_std"] is not None for row in rows if row["policy"] != "peers")


def test_without_gold_answers_agreement_is_shown_and_said_to_be(adacompute, pool):
    words = ("evaluate", "bare.jsonl", *QUICK[2:], "--policies", "fixed,asc,shuffled,oracle")
    shown = " ".join(adacompute(*words).stdout.split())
    assert "so accuracy can't be known" in shown
    basis = "agreement with the vote of the other half of the samples"
    assert f"Shown instead is {basis}, which no policy draws." in shown
    assert f"{basis} at exactly so many samples on average" in shown
    assert "Left out, because they learn from grades: shuffled." in shown
    assert "is right on" not in shown
    assert json.loads(adacompute(*words, "--json").stdout)["basis"] == "agreement"


def test_the_oracle_is_a_bracket_of_two_rows(adacompute, pool):
    (pool / "long.jsonl").write_text(lines(samples=32))
    words = ("evaluate", "long.jsonl", *QUICK[2:], "--policies", "fixed,asc,oracle", "--json")
    body = json.loads(adacompute(*words).stdout)
    rows = [row for row in body["rows"] if row["policy"] == "oracle" and row["budget"] == 2]
    assert [row["protocol"].split(":")[0] for row in rows] == ["cross-fitted", "in-sample"]
    assert rows[0]["accuracy"] < rows[1]["accuracy"]


def test_budgets_that_the_samples_do_not_allow_are_left_out_and_named(adacompute, pool):
    done = adacompute("evaluate", "short.jsonl", *QUICK[:2], *QUICK[4:], "--json")
    assert "evaluated at 1.5, 2, 3: the problem with fewest samples has 3 samples" in done.stderr
    assert {row["budget"] for row in json.loads(done.stdout)["rows"]} == {1.5, 2, 3}


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--policies", "nonsense"), 2, "there is no policy 'nonsense'; the policies are"),
        (("--policies", "adaptive"), 2, "adaptive-consistency (asc), early-stopping (esc)"),
        (("--policies", "fixed,fixed"), 2, "names no policy, or one twice"),
        (("--budgets", "two"), 2, "'two': budget 'two' can't be read; give e.g. 3"),
        (("--budgets", "0.5"), 1, "give 1 to 16"),
        (("--budgets", "nan"), 2, "'nan': budget 'nan' can't be read"),
        (("--folds", "1"), 2, "--folds"),
        (("--votes", "loud"), 2, "--votes"),
        (("--votes", "weighted"), 1, "--votes plain"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(adacompute, pool, words, code: int, why: str):
    done = adacompute("evaluate", "a.jsonl", *QUICK[6:], *words, code=code)
    assert why in " ".join(done.stderr.split())
    assert done.stdout == ""
    if code == 1:
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("budget", ["0.5", "4", "20"])
def test_every_command_states_the_same_range_of_budgets_for_a_pool(adacompute, pool, budget: str):
    for words in (
        ("evaluate", "short.jsonl", "--budgets"),
        ("fit", "short.jsonl", "-o", "policy", "--budget"),
    ):
        assert "give 1 to 3\n" in adacompute(*words, budget, code=1).stderr


def test_the_table_of_the_verdict_comes_first_and_alone_unless_others_are_asked_for(pool, capsys):
    (pool / "more.jsonl").write_text(lines(problems=40))
    with open_pool(pool / "more.jsonl") as opened:
        made = run_evaluate(opened.ballots(), budgets=(2,), policies=("fixed", "asc"), folds=2, orders=4)
    show_evaluation(made, name="more", prices=TokenPrices(), tables=False)
    alone = capsys.readouterr().out
    show_evaluation(made, name="more", prices=TokenPrices(), tables=True)
    all_tables = capsys.readouterr().out
    assert "joint 95%" in alone
    assert "at exactly so many samples" not in alone
    assert all_tables.index("joint 95%") < all_tables.index("at exactly so many samples")


def test_a_pool_that_is_not_there_is_named(adacompute):
    assert "none.sqlite" in adacompute("evaluate", "none.sqlite", code=1).stderr
