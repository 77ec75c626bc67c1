"""Votes: the running tally against a plain count, and the outcome's laws."""

import asyncio
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers import Tally, Vote, VoteWeights, classify, vote
from adacompute.answers.vote import EXPONENT_LIMIT, WEIGHT_UNIT
from adacompute.errors import TaskError
from adacompute.records import Sample

ANSWERS = st.lists(st.sampled_from(["1", "1.0", "2", "3", "b", "B ", None]), max_size=14)
SAMPLES = st.lists(
    st.builds(
        Sample,
        answer=st.sampled_from(["1", "1.0", "2", "3", None]),
        tokens=st.just(10),
        logprob=st.none() | st.floats(-50, 0),
        correct=st.sampled_from([None, 0, 1]),
    ),
    max_size=12,
)
WEIGH = VoteWeights(signal="logprob", scale=-1.0)


@given(ANSWERS)
def test_a_tally_counts_what_classify_says(answers):
    tally = Tally.of(answers)
    numbers = [n for n in classify(answers) if n >= 0]
    counts = Counter(numbers)
    assert list(tally.votes.values()) == [counts[n] for n in sorted(counts)]
    assert tally.drawn == len(answers) == tally.answered + tally.abstained
    assert tally.abstained == answers.count(None)
    best = [*sorted(counts.values(), reverse=True), 0, 0]
    assert (tally.first, tally.second) == (best[0], best[1])
    assert tally.margin == best[0] - best[1]
    assert tally.agreement == (best[0] / len(numbers) if numbers else 0.0)


@given(SAMPLES, st.sampled_from(["first", "share", "abstain"]))
def test_the_leader_is_the_heaviest_class_the_first_seen_of_equals(samples, ties):
    tally = Tally.of(samples, weigh=WEIGH, ties=ties)
    numbers = classify([s.answer for s in samples], [s.correct for s in samples])
    weights = {}
    spellings = {}
    for sample, number in zip(samples, numbers, strict=True):
        if number >= 0:
            weights[number] = weights.get(number, 0.0) + WEIGH.weight(sample)
            spellings.setdefault(number, sample.answer)
    order = sorted(weights, key=lambda n: (-weights[n], n))
    tied = len(order) > 1 and weights[order[0]] == weights[order[1]]
    assert tally.leader == (None if not order or (tied and ties == "abstain") else spellings[order[0]])
    assert tally.winners == [spellings[n] for n in sorted(weights) if weights[n] == weights[order[0]]]
    if order:
        assert tally.agreement == weights[order[0]] / sum(weights.values())
        assert tally.margin == weights[order[0]] - (weights[order[1]] if len(order) > 1 else 0.0)
    assert math.isclose(sum(tally.weights.values()), sum(weights.values()))


@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_only_who_wins_a_tie(samples, random):
    unlabelled = [Sample(answer=s.answer, tokens=s.tokens, logprob=s.logprob) for s in samples]
    shuffled = random.sample(unlabelled, len(unlabelled))
    one, two = (Tally.of(items, weigh=WEIGH) for items in (unlabelled, shuffled))
    assert (one.margin, one.agreement) == (two.margin, two.agreement)


def test_sums_of_many_heavy_and_light_votes_are_exact_in_any_order():
    samples = [Sample(answer="1", tokens=1, logprob=0.0) for _ in range(300)]  # e^2 each, and e^-8 below
    samples += [Sample(answer="2", tokens=1, logprob=-40.0 - n) for n in range(500)]
    heavy = VoteWeights(signal="logprob", scale=-1.0, sharpness=8.0)
    ways = [samples, samples[::-1], sorted(samples, key=lambda s: hash((s.logprob, id(s))))]
    tallies = [Tally.of(way * 12, weigh=heavy) for way in ways]
    exact = {answer: sum(heavy.units(s) for s in samples if s.answer == answer) * 12 for answer in "12"}
    assert exact["1"] > 2**53  # beyond what floats add exactly
    for tally in tallies:
        assert tally.weights == {answer: exact[answer] / WEIGHT_UNIT for answer in tally.weights}
        assert (tally.leader, tally.margin) == ("1", (exact["1"] - exact["2"]) / WEIGHT_UNIT)
        assert tally.agreement == exact["1"] / (exact["1"] + exact["2"])


@pytest.mark.parametrize("turn", [1, -1])
def test_a_lead_of_one_unit_is_seen_beside_any_weight(turn):
    step = VoteWeights(signal="logprob", scale=-1.0, sharpness=8.0)
    many = [Sample(answer=answer, tokens=1, logprob=0.0) for answer in "12" for _ in range(60)] * 100
    least = Sample(answer="2", tokens=1, logprob=-9.0)
    tally = Tally.of([*many, least][::turn], weigh=step)
    assert (tally.leader, tally.margin) == ("2", step.weight(least))


@given(ANSWERS)
def test_adding_one_by_one_or_asynchronously_gives_the_same_tally(answers):
    async def count():
        tally = Tally()
        for answer in answers:
            await tally.add_async(answer)
        return tally

    one, two = Tally.of(answers), asyncio.run(count())
    assert (one.votes, one.leader, one.margin) == (two.votes, two.leader, two.margin)


@given(ANSWERS, st.sampled_from(["first", "share", "abstain"]))
def test_shares_sum_to_one_or_there_are_none(answers, ties):
    outcome = vote(answers, ties=ties)
    assert isinstance(outcome, Vote)
    assert math.isclose(sum(outcome.shares.values()), 1.0) if outcome.shares else outcome.answer is None
    assert outcome.answer is None or outcome.answer in outcome.shares


def test_ties_go_to_the_first_are_shared_or_abstain():
    answers = ["a1", "b2", None, "b2", "a1"]
    assert vote(answers) == Vote(answer="a1", shares={"a1": 1.0}, agreement=0.5, margin=0.0)
    assert vote(answers, ties="share").shares == {"a1": 0.5, "b2": 0.5}
    assert vote(answers, ties="abstain") == Vote(answer=None, shares={}, agreement=0.5, margin=0.0)
    assert vote([None, None]) == Vote(answer=None, shares={}, agreement=0.0, margin=0.0)


def test_one_spelling_with_two_labels_is_two_classes_and_no_vote_is_lost():
    tally = Tally.of([Sample(answer="5", correct=1), Sample(answer="5", correct=0)])
    assert (tally.votes, tally.first, tally.second) == ({"5": 2}, 1, 1)


def test_an_averagely_sure_sample_weighs_one_and_so_does_one_without_the_signal():
    pool = [Sample(answer="1", tokens=10, logprob=-1.0), Sample(answer="2", tokens=10, logprob=-3.0)]
    weigh = VoteWeights.of(pool)
    assert weigh == VoteWeights(signal="logprob", scale=-0.2, sharpness=2.0)
    assert weigh.weight(Sample(answer="1", tokens=10, logprob=-2.0)) == 1.0
    assert weigh.weight(Sample(answer="1")) == 1.0
    assert weigh.weight(pool[0]) == pytest.approx(math.exp(1), rel=1e-9)
    assert weigh.weight(pool[0]) > 1 > weigh.weight(pool[1])


@given(st.floats(allow_nan=True), st.integers(0, 100))
def test_a_weight_is_positive_finite_and_bounded(logprob, tokens):
    weight = WEIGH.weight(Sample(answer="1", tokens=tokens, logprob=logprob))
    assert math.exp(-EXPONENT_LIMIT) * 0.999 < weight < math.exp(EXPONENT_LIMIT) * 1.001


def test_entropy_weighs_too():
    weigh = VoteWeights.of([Sample(entropy=0.1), Sample(entropy=0.3)], "entropy")
    assert weigh.scale == pytest.approx(0.2)
    assert weigh.weight(Sample(entropy=0.1)) > 1 > weigh.weight(Sample(entropy=0.3))


@pytest.mark.parametrize(
    "samples",
    [[], [Sample(answer="1")], [Sample(tokens=3, logprob=0.0)], [Sample(tokens=1, logprob=-math.inf)]],
)
def test_no_scale_is_fitted_where_there_is_no_signal(samples):
    assert VoteWeights.of(samples) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: vote("42"),
        lambda: vote([42]),
        lambda: vote(["42"], ties="last"),
        lambda: vote(["42"], weigh=2.0),
        lambda: VoteWeights(signal="tokens", scale=1.0),
        lambda: VoteWeights(signal="logprob", scale=1.0),
        lambda: VoteWeights(signal="entropy", scale=math.nan),
        lambda: VoteWeights(signal="entropy", scale=1.0, sharpness=-1.0),
        lambda: VoteWeights.of([], "tokens"),
    ],
)
def test_what_can_not_vote_is_refused(make):
    with pytest.raises(TaskError):
        make()
