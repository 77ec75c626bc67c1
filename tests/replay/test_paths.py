"""A path's tallies are those of live ones, to the last bit, and its orders are fair."""

import sys
from dataclasses import fields, replace

import numpy as np
import pytest
from drawn_ballots import WORDS, drawn, samples
from made_ballots import made

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import TooFewSamples
from adacompute.policies.paths import grade_by_other_half
from adacompute.policies.votes import VoteState
from adacompute.pool import Ballots
from adacompute.replay import Paths, build_paths, draw_paths
from adacompute.score.grades import grade_samples, measure_classes

WEIGHS = {
    "plain": None,
    "logprob": VoteWeights(signal="logprob", scale=-1.0),
    "entropy": VoteWeights(signal="entropy", scale=1.0, sharpness=7.0),
    "equal": VoteWeights(signal="logprob", scale=-1.0, sharpness=0.0),
}


def orders(ballots, count: int, longest: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([[rng.permutation(n)[:longest] for _ in range(count)] for n in ballots.drawn])


def same(one: VoteState, other: VoteState) -> None:
    for field in fields(VoteState):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), field.name


@pytest.mark.parametrize("weigh", WEIGHS.values(), ids=WEIGHS)
@pytest.mark.parametrize("kinds", [1, 2, 5])
def test_every_prefix_of_a_path_stands_as_the_live_tally_does(weigh, kinds):
    ballots = drawn(kinds, kinds=kinds)
    order = orders(ballots, 5, 8)
    found = build_paths(ballots, order, weigh=weigh)
    worth = measure_classes(ballots.classes, grade_samples(ballots))[1]
    ties = 0
    for row in range(len(found)):
        problem, drawn_samples = row // 5, samples(ballots, row // 5, order[row // 5, row % 5])
        full = Tally.of(samples(ballots, problem, np.arange(ballots.drawn[problem])), weigh=weigh).winners
        tally = Tally(weigh=weigh)
        for step, sample in enumerate(drawn_samples, start=1):
            tally.add(sample)
            same(found.state_after(np.array([row]), np.array([step])), VoteState.from_tallies([tally]))
            at = (step - 1, row)
            leader = tally.leader
            right = 0.0 if leader is None else worth[problem, WORDS.index(leader)]
            assert np.array_equal(found.grade[at], np.nan if problem == 1 else right, equal_nan=True)
            assert found.agrees[at] == (1 / len(full) if leader in full else 0.0)
            assert found.tokens[at] == sum(s.tokens for s in drawn_samples[:step])
            ties += len(tally.winners) > 1
    assert ties > 0 or kinds == 1 or weigh not in (None, WEIGHS["equal"])


def test_classes_that_never_come_and_problems_that_always_abstain_are_no_answer():
    ballots = made([[(-1, 0.0)] * 4, [(-1, 0.0)] * 4])
    found = draw_paths(ballots, rng=np.random.default_rng(0), orders=3, longest=4)
    for name in ("answered", "first", "second", "kinds", "run", "lead", "total", "grade", "agrees"):
        assert not getattr(found, name).any()


def test_half_of_the_samples_judge_and_the_other_half_is_graded_by_them():
    ballots = drawn(4, samples=20, least=5)
    marked = replace(ballots, tokens=np.broadcast_to(np.arange(20.0), (12, 20)))
    found = grade_by_other_half(marked)
    assert found.drawn.tolist() == (ballots.drawn // 2).tolist()
    for row in range(len(ballots)):
        own = found.tokens[row, : found.drawn[row]].astype(int)
        others = np.setdiff1d(np.arange(ballots.drawn[row]), own)
        votes = [int(number) for number in ballots.classes[row, others] if number >= 0]
        counts = {number: votes.count(number) for number in votes}
        best = [number for number, count in counts.items() if count == max(counts.values())]
        right = [1 / len(best) if number in best else 0.0 for number in ballots.classes[row, own]]
        assert found.correct[row, : len(own)].tolist() == pytest.approx(right)
    # each problem's halves depend on no other problem
    alone = grade_by_other_half(marked.only([3]))
    assert alone.tokens[0, : alone.drawn[0]].tolist() == found.tokens[3, : found.drawn[3]].tolist()


def test_of_several_modes_only_the_dearest_is_halved():
    cheap, dear = drawn(5, samples=6, least=6), drawn(6, samples=9, least=9)
    dear = replace(dear, ids=cheap.ids, prompts=cheap.prompts)
    found = grade_by_other_half(Ballots.join({"cheap": cheap, "dear": dear}))
    assert (found["cheap"].drawn == 6).all()
    assert (found["dear"].drawn == 4).all()
    assert not np.isnan(found.correct[found.classes != -2]).any()


def test_a_path_draws_each_sample_once_and_only_those_that_are_there():
    ballots = drawn(3, samples=20, least=5)
    numbered = replace(ballots, tokens=np.broadcast_to(2.0 ** np.arange(20), (12, 20)))
    found = draw_paths(numbered, rng=np.random.default_rng(0), orders=50, longest=5)
    for row, problem in enumerate(found.problems.tolist()):
        bits = int(found.tokens[-1, row])
        assert bits.bit_count() == 5
        assert bits < 2 ** int(ballots.drawn[problem])


def test_windows_of_one_shuffle_share_no_sample():
    ballots = drawn(3, samples=20, least=20)
    numbered = replace(ballots, tokens=np.broadcast_to(2.0 ** np.arange(20), (12, 20)))
    found = draw_paths(numbered, rng=np.random.default_rng(0), orders=7, longest=5)
    assert found.orders == 8  # two whole shuffles of four windows
    assert found.tokens[-1].reshape(12, 2, 4).sum(axis=2).tolist() == [[2.0**20 - 1] * 2] * 12


def test_every_sample_comes_first_equally_often():
    ballots = replace(drawn(0, problems=2, samples=10, least=10), entropy=np.tile(np.arange(10.0), (2, 1)))
    found = draw_paths(ballots, rng=np.random.default_rng(0), orders=20_000, longest=2)
    for problem in range(2):
        counts = np.bincount(found.entropy[found.problems == problem].astype(int), minlength=10)
        assert (abs(counts / 2000 - 1) < 0.1).all()  # some four standard deviations


def test_the_same_seed_gives_the_same_paths():
    one, other = (draw_paths(drawn(), rng=np.random.default_rng(5), orders=9, longest=8) for _ in range(2))
    for field in fields(Paths):
        if field.name not in ("ballots", "weigh", "orders", "longest"):
            assert np.array_equal(getattr(one, field.name), getattr(other, field.name), equal_nan=True)


def test_paths_are_the_same_whether_walked_together_or_in_parts(monkeypatch):
    ballots, order = drawn(), orders(drawn(), 6, 8)
    whole = build_paths(ballots, order, weigh=WEIGHS["logprob"])
    monkeypatch.setattr(sys.modules["adacompute.policies.paths"], "_CELLS", 40)
    parts = build_paths(ballots, order, weigh=WEIGHS["logprob"])
    rows, step = np.arange(len(whole)), np.full(len(whole), 8)
    same(whole.state_after(rows, step), parts.state_after(rows, step))


def test_votes_without_the_signal_weigh_one_as_they_do_live():
    ballots = made([[(0, 1.0), (1, 0.0), (0, 1.0)]])
    found = draw_paths(ballots, rng=np.random.default_rng(0), orders=2, longest=3, weigh=WEIGHS["logprob"])
    assert found.total[-1].tolist() == [3.0, 3.0]


def test_too_few_samples_are_named_in_one_line():
    with pytest.raises(
        TooFewSamples, match=r"up to 9 samples .* problem 'p\d+' has 8; collect more"
    ) as error:
        draw_paths(drawn(least=8), rng=np.random.default_rng(0), longest=9)
    assert "\n" not in str(error.value)


def test_the_state_of_all_paths_at_a_step_is_that_of_each():
    paths = draw_paths(drawn(3), rng=np.random.default_rng(0), orders=4, longest=6)
    rows, picked = np.arange(len(paths)), np.array([7, 2, 2])
    for step in (1, 4, 6):
        each = paths.state_after(rows, np.full(len(rows), step))
        same(paths.state_at(step), each)
        same(paths.state_at(step).select(picked), paths.state_after(picked, np.full(3, step)))
        same(each.select(picked), paths.state_after(picked, np.full(3, step)))
