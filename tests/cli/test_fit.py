"""`adacompute fit`, run as a user would: what is learned is saved, told, and read back the same."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from adacompute import open_pool
from adacompute.evaluate.measure import select_problems
from adacompute.policies import load_policy
from adacompute.policies.artefact import read_artefact
from adacompute.policies.chart import read_chart
from adacompute.pool import bundled, export_file
from adacompute.replay import replay
from synthetic import make_ballots

SKIP = "--no-verdict"  # tests/evaluate/test_verdict.py has it


def lines(*, gold: bool = True, problems: int = 40, samples: int = 16) -> str:
    rng, made = random.Random(0), []
    for i in range(problems):
        ease = 0.2 + 0.8 * i / problems
        answers = ["4" if rng.random() < ease else str(rng.randrange(4)) for _ in range(samples)]
        drawn = [{"answer": a, "tokens": 9, "logprob": -rng.uniform(1, 9), "entropy": 0.1} for a in answers]
        made.append(
            {"id": f"p{i}", "question": f"What is {i} + {i}?", "model": "tiny", "samples": drawn}
            | ({"gold": "4"} if gold else {})
        )
    return "".join(json.dumps(one) + "\n" for one in made)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text(lines())
    (tmp_path / "bare.jsonl").write_text(lines(gold=False))
    (tmp_path / "short.jsonl").write_text(lines(samples=5))
    return tmp_path


@pytest.mark.parametrize("kind", ["stopping", "curve", "classifier"])
def test_what_is_saved_is_what_was_told(adacompute, pool, kind: str):
    words = ("fit", "a.jsonl", SKIP, "--policy", kind, "--budget", "2", "-o", "kept")
    body = json.loads(adacompute(*words, "--json").stdout)
    assert (body["policy"], body["folder"], body["problems"], body["samples"]) == (kind, "kept", 40, 640)
    policy = load_policy(pool / "kept")
    assert (policy.kind, policy.dial, policy.source_model) == (kind, body["dial"], "tiny")
    (two,) = (one for one in body["settings"] if one["budget"] == 2)
    with open_pool(pool / "a.jsonl") as samples:
        again = replay(policy, samples, price=two["dial"], orders=50)
    assert again.cost == pytest.approx(two["cost"], rel=0.1)
    assert body["votes"] == "weighted by logprob"
    if policy.dial is not None:
        assert 1 <= two["cost"] <= 2.1  # in steps, never much above
        prices = [one["dial"] for one in body["settings"]]
        assert len(prices) > 2
        assert prices == sorted(prices, reverse=True)  # a dearer budget has a lower one


@pytest.mark.slow
def test_without_labels_stopping_learns_from_agreement_and_says_so(adacompute, pool):
    bare = " ".join(adacompute("fit", "bare.jsonl", SKIP, "-o", "kept").stdout.split())
    refused = adacompute("fit", "a.jsonl", SKIP, "-o", "kept", code=1).stderr
    assert "kept: holds a policy already; give another name, or --overwrite" in refused
    told = " ".join(
        adacompute("fit", "a.jsonl", SKIP, "--no-labels", "-o", "kept", "--overwrite").stdout.split()
    )
    for shown in (bare, told):
        assert "learned agreement with the vote of all samples: no labels" in shown


def test_few_samples_make_a_policy_that_asks_for_no_more(adacompute, pool):
    body = json.loads(adacompute("fit", "short.jsonl", SKIP, "-o", "kept", "--json").stdout)
    assert body["longest"] == 5
    assert all(one["budget"] <= 5 for one in body["settings"])


def test_waves_are_bounded_where_asked_for(adacompute, pool):
    body = json.loads(adacompute("fit", "a.jsonl", SKIP, "--max-waves", "2", "-o", "kept", "--json").stdout)
    assert body["max_waves"] == 2
    assert all(one["waves"] <= 2 for one in body["settings"])


@pytest.mark.slow
def test_votes_are_plain_on_request(adacompute, pool):
    words = ("fit", "a.jsonl", SKIP, "-o", "kept", "--votes", "plain", "--json")
    assert json.loads(adacompute(*words).stdout)["votes"] == "plain"


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--policy", "classifier"), 2, "the classifier is fitted for one budget; give e.g. --budget 2"),
        (("--policy", "asc"), 2, "--policy"),
        (("--budget", "none"), 2, "budget 'none' can't be read"),
        (("--longest", "0"), 2, "--longest"),
        (("--budget", "0.5"), 1, "budget 0.5 can't be spent"),
        (("--policy", "curve", "--max-waves", "3"), 2, "is for --policy stopping, not curve"),
        (("--policy", "bayes", "--features", "text"), 2, "is for --policy curve and classifier, not bayes"),
        (("--policy", "curve", "--no-labels"), 2, "is for --policy stopping, not curve"),
        (("--policy", "curve", "--delta", "0.1"), 2, "is for --policy guarantee, not curve"),
        (("--policy", "guarantee", "--budget", "3"), 2, "the cost of a guarantee follows from --delta"),
        (("--policy", "guarantee", "--delta", "1"), 1, "delta 1.0 can't be used"),
        (("--policy", "bayes", "-o", "no/such/folder"), 1, "no/such/folder"),
        (("--policy", "bayes", "-o", "a.jsonl"), 1, "is a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(adacompute, pool, words, code: int, why: str):
    done = adacompute("fit", "a.jsonl", SKIP, *words, code=code)
    assert why in " ".join(done.stderr.split())
    assert done.stdout == ""
    if code == 1:
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["", " --no-groups", " --group subject"])
def test_groups_are_kept_in_the_commands_to_go_on_with(adacompute, pool, words: str):
    (pool / "sums.jsonl").write_text(lines().replace('"model"', '"subject": "sums", "model"'))
    shown = adacompute("fit", "sums.jsonl", SKIP, "--policy", "bayes", "-o", "kept", *words.split()).stdout
    assert f"adacompute evaluate sums.jsonl --policies fixed,asc,bayes{words}\n" in shown


@pytest.mark.slow
def test_a_chart_is_kept_beside_the_policy_and_says_what_was_told(adacompute, pool):
    body = json.loads(adacompute("fit", "a.jsonl", SKIP, "-o", "kept", "--json").stdout)
    chart = read_chart(pool / "kept", policy=read_artefact(pool / "kept").sha256)
    assert chart is not None
    assert (chart.problems, chart.dial) == (40, "price")
    told = [(one["budget"], one["dial"], one["cost"], one["uniform"]) for one in body["settings"]]
    assert told == [(row.budget, row.price, row.cost, row.uniform) for row in chart.rows]
    assert {one["protocol"] for one in body["settings"]} == {chart.protocol}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ((), "2 of 3 parts"),  # those of the verdict
        (("--no-verdict",), "one half"),
        (("--votes", "weighted"), "one half"),  # which the verdict's policies weigh otherwise
        (("--longest", "24"), "one half"),  # of which the verdict looks at 16
    ],
)
def test_a_chart_is_drawn_from_the_folds_of_the_verdict_where_they_are_the_same_policy(
    adacompute, tmp_path, options: tuple[str, ...], parts: str
):
    with bundled("words") as words:
        export_file(words, tmp_path / "words.jsonl")
    rows = (tmp_path / "words.jsonl").read_text("utf-8").splitlines(keepends=True)[:210]
    (tmp_path / "words.jsonl").write_text("".join(rows), "utf-8")
    body = json.loads(adacompute("fit", "words.jsonl", "-o", "kept", "--json", *options).stdout)
    (protocol,) = {setting["protocol"] for setting in body["settings"]}
    assert protocol.endswith(f"held out: fitted on {parts}, judged on the other")


def test_recorded_traffic_is_learned_from_as_far_as_enough_of_it_goes(adacompute, tmp_path):
    rows = [json.loads(line) for line in lines(problems=130).splitlines()]
    for i, row in enumerate(rows):
        row["samples"] = row["samples"][: (16, 1, 2)[i % 3] if i % 2 else 12]
    (tmp_path / "traffic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = (
        "fit",
        "traffic.jsonl",
        SKIP,
        "--policy",
        "classifier",
        "--budget",
        "2",
        "--overwrite",
        "-o",
        "kept",
    )
    body = json.loads(adacompute(*words, "--json").stdout)
    kept = [len(row["samples"]) for row in rows if len(row["samples"]) >= 12]
    assert (body["longest"], body["problems"], body["left_out"]) == (12, len(kept), 130 - len(kept))
    assert body["samples"] == sum(kept)
    shown = " ".join(adacompute(*words, "--longest", "16").stdout.split())
    assert "with fewer than 16 samples (see --longest)" in shown
    refused = adacompute(*words, "--longest", "17", code=1).stderr
    assert "no problem has 17 samples, the most is 16; give --longest 16 or less" in refused


@pytest.mark.parametrize(
    ("drawn", "longest", "used"),
    [
        ([16] * 40, 16, 40),
        ([64] * 40, 16, 40),
        ([5] * 40, 5, 40),
        ([5] * 200 + [4], 5, 200),
        ([16] * 95 + [12] * 5, 16, 95),
        ([16] * 10 + [1] * 30, 16, 10),  # too few have several: all of those
        ([16] * 49 + [3] * 10 + [1] * 100, 3, 59),
        ([16] * 50 + [3] * 10 + [1] * 100, 16, 50),
        ([16] * 60 + [4] * 90 + [1] * 2850, 4, 150),  # a twentieth of 3,000
        ([1] * 100, 1, 100),
        ([2, 1], 2, 1),
        ([7], 7, 1),
    ],
)
def test_how_far_to_go_is_what_fifty_problems_and_a_twentieth_have(drawn, longest: int, used: int):
    ballots = make_ballots(np.where(np.arange(max(drawn)) < np.array(drawn)[:, None], 0, -2))
    kept, found = select_problems(ballots)
    assert (found, len(kept)) == (longest, used)
    assert kept.drawn.min() >= found


@pytest.mark.parametrize("kind", ["curve", "classifier"])
def test_who_learns_from_grades_refuses_a_pool_without(adacompute, pool, kind: str):
    done = adacompute("fit", "bare.jsonl", SKIP, "--policy", kind, "--budget", "2", code=1)
    assert done.stderr.count("\n") == 1
    assert "grade" in done.stderr or "gold" in done.stderr or "correct" in done.stderr


def test_a_published_rule_that_learns_is_fitted_and_read_back(adacompute, pool):
    words = ("fit", "a.jsonl", SKIP, "--policy", "bayes", "-o", "published", "--json")
    body = json.loads(adacompute(*words).stdout)
    assert (body["policy"], body["dial"]) == ("bayes", "threshold")
    cost = [one["cost"] for one in body["settings"]]
    assert cost == sorted(cost)
    assert cost[-1] > 4
    assert load_policy(pool / "published").kind == "bayes"


def test_a_guarantee_is_saved_with_its_delta_and_what_it_costs_is_measured(adacompute, pool):
    words = ("fit", "a.jsonl", "--policy", "guarantee", "--delta", "0.2", "-o", "certified")
    body = json.loads(adacompute(*words, "--json").stdout)
    certificate = body["certificate"]
    assert (certificate["delta"], body["votes"], body["dial"], body["verdict"]) == (0.2, "plain", None, None)
    assert 0 < certificate["samples"] <= certificate["longest"] == body["longest"]
    assert 0 <= certificate["share"] <= 1
    shown = adacompute(*words, "--overwrite").stdout
    assert "of answers are certified at a delta of 0.2" in shown
    assert "--budget" not in shown


def test_what_scores_are_worth_is_shown_as_evaluate_has_it(adacompute, tmp_path):
    rng, problems = random.Random(1), [json.loads(line) for line in lines(samples=4).splitlines()]
    for sample in (sample for problem in problems for sample in problem["samples"]):
        sample["score"] = rng.gauss(sample["answer"] == "4", 0.5)
    (tmp_path / "scored.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    words = ("fit", "scored.jsonl", "--policy", "bayes", "-o", "own", "--no-groups")
    table = "best of n by score"
    assert table in adacompute(*words).stdout
    told = json.loads(adacompute(*words, "--overwrite", "--json").stdout)["by_score"]
    assert [row["samples"] for row in told] == [2, 4]
    evaluated = adacompute("evaluate", "scored.jsonl", "--policies", "fixed", "--no-groups", "--json")
    assert told == json.loads(evaluated.stdout)["by_score"]


def test_problems_without_recorded_answers_are_left_out_and_counted(adacompute, tmp_path):
    answers = [["4", "4", "5"], ["5", "4", "6"]] * 6 + [[None] * 3]  # the last is right, and nobody knows how
    written = [
        {
            "id": f"p{i}",
            "question": f"{i}?",
            "samples": [{"answer": a, "correct": a in ("4", None)} for a in row],
        }
        for i, row in enumerate(answers)
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    assert "left out: 1 problem" in adacompute("fit", "pool.jsonl", "-o", "own", "--no-verdict").stderr
    told = json.loads(adacompute("evaluate", "pool.jsonl", "--policies", "fixed,asc", "--json").stdout)
    assert (told["problems"], told["dropped"]) == (12, 1)
    refused = adacompute("replay", "pool.jsonl", "--policy", "own", "--price", "0.1", code=1).stderr
    assert "--too-few drop" in refused
