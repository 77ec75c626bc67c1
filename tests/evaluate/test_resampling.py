"""Folds are disjoint, cover all and never have one question on both sides; recordings count alike."""

import numpy as np
import pytest

from adacompute.errors import TooFewSamples
from adacompute.evaluate.resampling import kfold, random_split
from adacompute.replay.matching import Bootstrap
from studies.recordings import mean_over_recordings

PROMPTS = [f"What is {i % 37} + {i % 5}?" for i in range(100)]  # some are asked more than once


@pytest.mark.parametrize("folds", [2, 5, 10])
def test_every_problem_is_judged_once_and_never_by_who_has_seen_its_question(folds: int):
    splits = kfold(PROMPTS, folds, np.random.default_rng(0))
    assert len(splits) == folds
    assert sorted(row for split in splits for row in split.test) == list(range(100))
    for split in splits:
        assert sorted([*split.train, *split.test]) == list(range(100))
        assert not {PROMPTS[i] for i in split.train} & {PROMPTS[i] for i in split.test}


def test_folds_are_of_about_one_size_and_the_same_seed_gives_the_same():
    prompts = [f"{i}?" for i in range(103)]
    one, again, other = (kfold(prompts, 5, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert {len(split.test) for split in one} == {20, 21}
    assert all(np.array_equal(a.test, b.test) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a.test, b.test) for a, b in zip(one, other, strict=True))


def test_the_papers_split_learns_from_four_fifths_and_judges_all():
    prompts = [f"{i}?" for i in range(200)]
    split = random_split(prompts, np.random.default_rng(0))
    assert (len(split.train), split.test.tolist()) == (160, list(range(200)))
    assert len(set(split.train.tolist())) == 160


def test_folds_are_as_even_as_whole_groups_allow_and_no_more_than_groups():
    groups = [group for group in range(30) for _ in range(1 + group % 7)]
    sizes = [len(split.test) for split in kfold(groups, 5, np.random.default_rng(2))]
    assert max(sizes) - min(sizes) <= 1
    assert [len(split.test) for split in kfold(["a", "b", "c", "a"], 5, np.random.default_rng(0))] == [
        2,
        1,
        1,
    ]
    large = kfold(["a"] * 9 + list("bcdefg"), 3, np.random.default_rng(0))
    assert sorted(len(split.test) for split in large) == [3, 3, 9]


def test_problems_like_no_other_are_split_by_the_dice_alone():
    dealt = np.array_split(np.random.default_rng(6).permutation(103), 5)
    splits = kfold(range(103), 5, np.random.default_rng(6))
    assert [split.test.tolist() for split in splits] == [sorted(part.tolist()) for part in dealt]


def test_whole_groups_are_resampled_and_of_few_there_is_no_interval():
    shares = Bootstrap.of_groups("aabcccdefghij").shares
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert np.allclose(shares[:, 0], shares[:, 1])
    assert np.allclose(shares[:, 3], shares[:, 5])
    assert not np.allclose(shares[:, 0], shares[:, 2])
    few = Bootstrap.of_groups("aabccc").interval(np.arange(6.0))
    assert (few.mean, few.low, few.high) == (2.5, None, None)
    assert np.array_equal(Bootstrap.of_groups(range(6)).shares, Bootstrap.of(6).shares)  # each its own


@pytest.mark.parametrize("folds", [0, 1])
def test_folds_that_cannot_be_made_are_refused(folds: int):
    with pytest.raises(TooFewSamples, match=f"{folds} folds can't be made"):
        kfold(["a", "b", "c", "a"], folds, np.random.default_rng(0))
    for split in (lambda *given: kfold(given[0], 2, given[1]), random_split):
        with pytest.raises(TooFewSamples, match=r"2 problems are all alike.*--no-groups"):
            split(["a", "a"], np.random.default_rng(0))
        with pytest.raises(TooFewSamples, match="1 problem can't be split"):
            split(["a"], np.random.default_rng(0))


def test_recordings_count_alike_whatever_their_size():
    small, large = np.full(10, 1.0), np.zeros(1000)
    assert mean_over_recordings([small, large]).mean == 0.5


def test_the_interval_is_that_of_independent_means():
    rng = np.random.default_rng(0)
    each = [rng.normal(0.1, 0.5, size) for size in (100, 300, 900)]
    found = mean_over_recordings(each)
    error = np.sqrt(sum(one.var(ddof=1) / len(one) for one in each)) / 3
    assert found.low == pytest.approx(found.mean - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(found.mean + 1.96 * error, abs=0.15 * error)
