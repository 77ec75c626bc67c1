"""Default budgets fit themselves to the samples there are; named ones are taken at their word."""

import json
from pathlib import Path

import pytest

# the README's own example: two samples
README = (
    '{"id": "p1", "question": "2 + 2?", "gold": "4", '
    '"samples": [{"text": "It is 4."}, {"text": "The answer is 5."}]}'
)


def write(folder: Path, *counts: int) -> None:
    """Problems with so many samples each."""
    answers = [{"answer": "1" if i % 3 else "2"} for i in range(max(counts))]
    made = [
        {"id": f"p{i}", "question": "?", "gold": "1", "samples": answers[:count]}
        for i, count in enumerate(counts)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in made))


def test_two_samples_a_problem_are_scored_at_one_and_two(adacompute, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text(README)
    done = adacompute("solve", "a.jsonl", "--budget", "2", "--json")
    assert json.loads(done.stdout)["budgets"] == [1, 2]
    said = "scored at 1, 2: the problem with fewest samples has 2; --budgets chooses others\n"
    assert done.stderr == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "budgets"), [((12, 12, 13), [1, 2, 4, 8]), ((16, 30, 31), [1, 2, 4, 8, 16]), ((1, 1), [1])]
)
def test_the_defaults_go_up_to_the_fewest_samples(adacompute, tmp_path: Path, counts, budgets):
    write(tmp_path, *counts)
    done = adacompute("solve", "a.jsonl", "--budget", "1", "--json")
    assert json.loads(done.stdout)["budgets"] == budgets
    assert done.stderr.count("\n") == (budgets[-1] < 16)


def test_one_short_problem_does_not_decide_for_all_and_the_remedy_can_be_typed(adacompute, tmp_path: Path):
    write(tmp_path, 12, 3, 12)
    refused = adacompute("solve", "a.jsonl", "--budget", "2", code=1).stderr
    assert "'p1' has 3 samples" in refused
    assert "give --budgets 1,2 or --too-few drop, or collect more" in refused
    few = adacompute("solve", "a.jsonl", "--budget", "2", "--budgets", "1,2", "--json")
    assert json.loads(few.stdout)["problems"] == 3
    kept = adacompute("solve", "a.jsonl", "--budget", "2", "--too-few", "drop", "--json")
    assert (json.loads(kept.stdout)["dropped"], json.loads(kept.stdout)["budgets"]) == (["p1"], [1, 2, 4, 8])
    assert "of those kept has 12" in kept.stderr


def test_named_budgets_are_not_changed(adacompute, tmp_path: Path):
    write(tmp_path, 12, 12)
    words = ("solve", "a.jsonl", "--budget", "2")
    assert "fewer than 16" in adacompute(*words, "--budgets", "1,16", code=1).stderr
    assert "fewer than 16" in adacompute(*words, code=1, ADACOMPUTE_SCORE_BUDGETS="1,16").stderr
