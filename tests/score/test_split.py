"""Halves: every sample in exactly one of them, and nothing else changed."""

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adacompute as ac
from adacompute.errors import TooFewSamples
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots, Mode
from adacompute.score.grades import halves
from shared import read_votes

ARRAYS = ("classes", "correct", "tokens", "logprob", "entropy")


def made(problems: list[list[int]]) -> Ballots:
    """Ballots with these classes; tokens number the samples, and the others follow from the class."""
    shape = (len(problems), max(map(len, problems), default=0))
    classes = np.full(shape, ABSENT, np.int32)
    for i, drawn in enumerate(problems):
        classes[i, : len(drawn)] = drawn
    there = classes != ABSENT
    return Ballots(
        ids=tuple(f"p{i}" for i in range(shape[0])),
        prompts=tuple(f"question {i}" for i in range(shape[0])),
        subjects=tuple(f"subject {i}" for i in range(shape[0])),
        levels=tuple(range(shape[0])),
        gold_known=np.arange(shape[0]) % 2 == 0,
        classes=classes,
        correct=np.where(there, classes == 0, np.nan).astype(np.float32),
        tokens=np.where(there, np.arange(shape[1]), np.nan),
        logprob=np.where(there, -classes / 7.0, np.nan),
        entropy=np.where(there, classes / 5.0, np.nan),
        modes=(Mode(name="m", model="m", parameters={"temperature": 0.7}),),
    )


PROBLEMS = st.lists(st.lists(st.integers(ABSTAINS, 4), min_size=2, max_size=9), min_size=1, max_size=5)


@given(PROBLEMS, st.integers(0, 2**31))
def test_every_sample_is_in_exactly_one_half_with_all_that_it_had(problems: list[list[int]], seed: int):
    ballots = made(problems)
    parts = halves(ballots, np.random.default_rng(seed))
    for i, drawn in enumerate(problems):
        found = []
        for part in parts:
            row = [array[i][part.classes[i] != ABSENT] for array in (getattr(part, a) for a in ARRAYS[1:])]
            assert (np.diff(row[1]) > 0).all()  # in the order drawn
            found += list(zip(*(values.tolist() for values in row), strict=True))
        whole = zip(*(getattr(ballots, a)[i, : len(drawn)].tolist() for a in ARRAYS[1:]), strict=True)
        assert Counter(found) == Counter(whole)


@given(PROBLEMS, st.integers(0, 2**31))
def test_classes_keep_who_is_alike_and_are_numbered_by_first_appearance(problems: list[list[int]], seed: int):
    for part in halves(made(problems), np.random.default_rng(seed)):
        for i, drawn in enumerate(problems):
            there = part.classes[i] != ABSENT
            new = part.classes[i][there].tolist()
            old = [drawn[int(place)] for place in part.tokens[i][there]]
            assert len(set(zip(new, old, strict=True))) == len(set(new)) == len(set(old))
            assert [o == ABSTAINS for o in old] == [n == ABSTAINS for n in new]
            seen = list(dict.fromkeys(n for n in new if n >= 0))
            assert seen == list(range(len(seen)))


@given(PROBLEMS, st.integers(0, 2**31))
def test_halves_differ_by_one_sample_at_most_and_odd_ones_take_turns(problems: list[list[int]], seed: int):
    one, two = halves(made(problems), np.random.default_rng(seed))
    more = one.drawn - two.drawn
    odd = [len(drawn) % 2 == 1 for drawn in problems]
    assert (one.drawn + two.drawn).tolist() == [len(drawn) for drawn in problems]
    assert [abs(d) == 1 for d in more] == odd
    assert abs(more.sum()) <= 1


def test_what_is_known_of_the_problems_is_kept_and_arrays_are_read_only():
    ballots = made([[0, 1, 0], [ABSTAINS, 0]])
    for part in halves(ballots, np.random.default_rng(0)):
        for field in fields(Ballots):
            if field.name not in (*ARRAYS, "mode", "gold_known"):
                assert getattr(part, field.name) is getattr(ballots, field.name)
        assert part.gold_known.tolist() == ballots.gold_known.tolist()
        for name in ARRAYS:
            array = getattr(part, name)
            assert array.dtype == getattr(ballots, name).dtype
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 0


def test_the_same_seed_gives_the_same_halves_and_another_gives_others():
    pool = ac.bundled("facts")
    one, two, other = (halves(pool, np.random.default_rng(seed))[0] for seed in (3, 3, 4))
    for name in ARRAYS:
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    assert one.tokens.tobytes() != other.tokens.tobytes()


def test_means_of_halves_average_to_the_whole():
    ballots = read_votes("words")
    one, two = halves(ballots, np.random.default_rng(5))
    assert set(one.drawn) == set(two.drawn) == {32}
    mean = (np.nanmean(one.correct, axis=1) + np.nanmean(two.correct, axis=1)) / 2
    np.testing.assert_allclose(mean, np.nanmean(ballots.correct, axis=1), atol=1e-6)


def test_any_pair_of_samples_is_parted_as_often_as_chance_says():
    ballots = made([[0, 1, 2, 3]] * 6000)
    one, _ = halves(ballots, np.random.default_rng(0))
    together = (one.tokens == [[0.0, 1.0]]).all(axis=1).mean()
    assert together == pytest.approx(1 / 6, abs=0.02)


def test_problems_with_a_single_sample_are_named():
    with pytest.raises(TooFewSamples, match=r"2 problems \('p1', 'p3'\) can't be halved"):
        halves(made([[0, 1], [0], [1, 1], [0]]), np.random.default_rng(0))
    with pytest.raises(TooFewSamples, match=r"7 problems \('p0', .*, 'p4' and 2 more\)"):
        halves(made([[0]] * 7), np.random.default_rng(0))
