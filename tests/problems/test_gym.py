"""Problems that reasoning-gym makes: decided by the seed, checked by its own scorer."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from adacompute.errors import ProblemsInvalid
from adacompute.pool import open_pool
from adacompute.problems import read_problems
from adacompute.problems.dataset_loaders import DEFAULT_SIZE


def test_the_seed_decides_what_is_made():
    first = read_problems("gym:chain_sum", limit=5, seed=3)
    assert first == read_problems("gym:chain_sum", limit=5, seed=3)
    assert first.problems == read_problems("gym:chain_sum", limit=9, seed=3).problems[:5]
    other = read_problems("gym:chain_sum", limit=5, seed=4)
    assert not {problem.id for problem in first} & {problem.id for problem in other}
    assert {problem.question for problem in first} != {problem.question for problem in other}


def test_golds_are_right_and_the_prompt_is_boxed():
    found = read_problems("gym:chain_sum", limit=20, seed=1)
    for problem in found:
        sum_ = re.search(r"[-+ \d]+(?= =)", problem.question)
        assert sum_ is not None
        assert str(eval(sum_[0])) == problem.gold
    assert (found.extract, found.template and found.template.name) == ("boxed", "boxed")


def test_the_limit_is_shared_out_among_datasets():
    found = read_problems("gym:chain_sum+leg_counting+gcd", limit=8)
    assert [problem.subject for problem in found] == ["chain_sum"] * 3 + ["leg_counting"] * 3 + ["gcd"] * 2
    assert len({problem.id for problem in found}) == 8
    assert len(read_problems("gym:gcd")) == DEFAULT_SIZE


@pytest.mark.parametrize(
    "name", ["calendar_arithmetic", "maze", "mini_sudoku", "time_intervals", "knights_knaves"]
)
def test_what_a_dataset_tells_beside_the_question_can_be_stored(tmp_path: Path, name: str):
    found = read_problems(f"gym:{name}", limit=2)
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        for problem in found:
            pool.add_problem(problem)
        assert tuple(pool.problems()) == found.problems
    assert read_problems(tmp_path / "p.sqlite").problems == found.problems


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chainsum", "no dataset 'chainsum' in reasoning-gym; did you mean chain_sum"),
        ("", "no dataset ''"),
        ("gcd+", "no dataset ''"),
        ("zebra_puzzles", "needs pycosat, which isn't installed"),
    ],
)
def test_a_dataset_that_cannot_be_made_is_refused_in_one_line(name: str, said: str):
    if name == "zebra_puzzles" and find_spec("pycosat"):
        assert len(read_problems("gym:zebra_puzzles", limit=2)) == 2  # with pycosat it can be made
        return
    with pytest.raises(ProblemsInvalid) as caught:
        read_problems(f"gym:{name}", limit=2)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_limit_below_the_number_of_datasets_is_refused():
    with pytest.raises(ProblemsInvalid, match="2 datasets don't fit into 1 problems"):
        read_problems("gym:gcd+chain_sum", limit=1)


def test_no_stand_in_is_left_behind_for_the_missing_solver():
    read_problems("gym:gcd", limit=1)
    there = sys.modules.get("pycosat")
    assert there is None or there.__spec__ is not None  # none, or the real one
