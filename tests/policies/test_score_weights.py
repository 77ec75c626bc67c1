"""Votes by a verifier's score: the same live and replayed, fitted with and without labels."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import adacompute as ac
from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import WEIGHT_UNIT, ScoreWeights, describe_votes
from adacompute.errors import NotRecorded, PolicyError, TaskError
from adacompute.evaluate.measure import uses_weighted_votes
from adacompute.policies import load_policy
from adacompute.policies.paths import build_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.weights import dump_weights, fit_score_weights, join_weights, load_weights
from adacompute.pool import Ballots
from adacompute.records import SIGNAL_NAMES, Sample, Signals
from adacompute.score.aggregates import compute_weight_units
from synthetic import synthetic

COLUMN = SIGNAL_NAMES.index("score")
SCORE = ScoreWeights(beta=0.7, centre=1.0, spread=2.0)


def score_samples(ballots: Ballots, scores: np.ndarray) -> Ballots:
    signals = np.full((*ballots.classes.shape, len(SIGNAL_NAMES)), np.nan)
    signals[:, :, COLUMN] = scores
    return replace(ballots, signals=signals)


def judge(ballots: Ballots, *, strength: float, seed: int = 1) -> Ballots:
    """Scores by a judge that gives right samples more, and a tenth of them none."""
    rng = np.random.default_rng(seed)
    scores = 5.0 + strength * ballots.correct + rng.normal(size=ballots.classes.shape)
    scores[rng.random(scores.shape) < 0.1] = np.nan
    return score_samples(ballots, scores)


def drop_tokens(ballots: Ballots) -> Ballots:
    nothing = np.full(ballots.classes.shape, np.nan)
    return replace(ballots, tokens=nothing, logprob=nothing, entropy=nothing)


def sample(ballots: Ballots, row: int, column: int) -> Sample:
    score, tokens = ballots.signals[row, column, COLUMN], ballots.tokens[row, column]
    return Sample(
        answer=f"answer {ballots.classes[row, column]}",
        tokens=None if np.isnan(tokens) else int(tokens),
        logprob=None if np.isnan(tokens) else float(ballots.logprob[row, column]),
        signals=None if np.isnan(score) else Signals(score=float(score)),
    )


@pytest.mark.parametrize(
    "weigh",
    [
        VoteWeights.by_score(SCORE),
        VoteWeights(signal="logprob", scale=-0.2, sharpness=1.0, score=SCORE),
        VoteWeights(signal="logprob", scale=-1e-3, sharpness=1.0, score=SCORE),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_a_live_sample_weighs_as_a_recorded_one_to_the_last_bit(weigh, bare):
    ballots = judge(synthetic(20, 16), strength=2.0)
    ballots = drop_tokens(ballots) if bare else ballots
    units = compute_weight_units(ballots, weigh)
    live = [[weigh.units(sample(ballots, i, j)) for j in range(16)] for i in range(20)]
    assert units.tolist() == live


def test_a_tally_with_scores_is_the_path_with_scores():
    ballots, weigh = judge(synthetic(12, 16), strength=2.0), VoteWeights.by_score(SCORE)
    paths = build_paths(ballots, np.tile(np.arange(16), (12, 1, 1)), weigh=weigh)
    for row in range(12):
        tally = Tally.of([sample(ballots, row, column) for column in range(16)], weigh=weigh)
        assert (tally.lead, tally.runner, tally.total) == (
            paths.lead[-1, row],
            paths.runner[-1, row],
            paths.total[-1, row],
        )


def test_without_beta_votes_are_plain():
    ballots = judge(drop_tokens(synthetic(8, 8)), strength=2.0)
    units = compute_weight_units(ballots, VoteWeights.by_score(replace(SCORE, beta=0.0)))
    assert (units == WEIGHT_UNIT).all()


@pytest.mark.slow
@pytest.mark.parametrize("bare", [False, True])
def test_where_all_scores_are_equal_decisions_are_as_without(bare):
    ballots = synthetic(40, 16)
    ballots = drop_tokens(ballots) if bare else ballots
    scored = score_samples(ballots, np.full(ballots.classes.shape, 3.25))
    plain, by_score = (StoppingPolicy(longest=8).fit(each) for each in (ballots, scored))
    assert by_score.weigh is not None
    assert by_score.weigh.score is not None
    assert by_score.weigh.score.beta == 0.0
    for row in range(20):
        for drawn in range(1, 8):
            samples = [sample(scored, row, column) for column in range(drawn)]
            tallies = [Tally.of(samples, weigh=policy.weigh) for policy in (plain, by_score)]
            assert tallies[0].leader == tallies[1].leader
            prompt = ballots.prompts[row]
            assert plain.more(prompt, tallies[0], 0.02) == by_score.more(prompt, tallies[1], 0.02)


@pytest.mark.parametrize("labels", [True, False])
def test_beta_grows_with_what_the_score_tells_and_its_scale_does_not_matter(labels):
    ballots = synthetic(80, 16, chance=np.linspace(0.5, 0.95, 80).tolist())
    nothing, some, much = (
        fit_score_weights(judge(ballots, strength=strength), labels=labels) for strength in (0.0, 1.0, 3.0)
    )
    assert nothing.beta < 0.1 < some.beta < much.beta
    judged = judge(ballots, strength=1.0)
    stretched = score_samples(judged, judged.signals[:, :, COLUMN] * 100.0 - 7.0)
    other = fit_score_weights(stretched, labels=labels)
    assert other.beta == pytest.approx(some.beta, rel=1e-6)
    assert other.spread == pytest.approx(100 * some.spread)


def test_a_judge_that_prefers_wrong_answers_weighs_nothing():
    assert fit_score_weights(judge(synthetic(60, 16), strength=-2.0), labels=True).beta == 0.0
    assert fit_score_weights(synthetic(10, 8), labels=True) is None


@pytest.mark.parametrize("bare", [False, True])
def test_a_policy_fitted_on_scores_answers_better_with_them_and_keeps_them_when_saved(bare, tmp_path: Path):
    ballots = synthetic(60, 16, chance=np.linspace(0.3, 0.7, 60).tolist())
    scored = judge(drop_tokens(ballots) if bare else ballots, strength=3.0)
    policy = StoppingPolicy(longest=8).fit(scored)
    assert policy.weigh.reads_tokens is not bare
    order = np.random.default_rng(0).permuted(np.tile(np.arange(16), (60, 20, 1)), axis=2)[:, :, :4]
    better, worse = (
        build_paths(scored, order, weigh=weigh).grade[-1].mean() for weigh in (policy.weigh, None)
    )
    assert better > worse + 0.05
    policy.save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").weigh == policy.weigh


def test_stored_weights_that_cannot_be_are_refused():
    stored = dump_weights(VoteWeights.by_score(SCORE))
    assert load_weights(stored) == VoteWeights.by_score(SCORE)
    for broken in ({"beta": 1.0}, 3, {"beta": -1.0, "centre": 0.0, "spread": 1.0}):
        with pytest.raises((PolicyError, TaskError)):
            load_weights({**stored, "score": broken})


@pytest.mark.parametrize(
    "settings", [{"beta": -1.0}, {"beta": float("nan")}, {"beta": 1.0, "spread": 0.0}, {"beta": "1"}]
)
def test_weights_of_scores_are_checked(settings):
    with pytest.raises(TaskError):
        ScoreWeights(**settings)


@pytest.mark.parametrize("placeholder", [-9999.0, 1e200, -1e308])
def test_a_placeholder_among_scores_moves_their_weight_little(placeholder):
    ballots = judge(synthetic(60, 16), strength=1.0)
    clean = fit_score_weights(ballots, labels=True)
    scores = ballots.signals[:, :, COLUMN].copy()
    scores[::12, 3] = placeholder
    weights = fit_score_weights(score_samples(ballots, scores), labels=True)
    assert weights.centre == pytest.approx(clean.centre, abs=0.3)
    assert weights.spread == pytest.approx(clean.spread, rel=0.8)
    assert weights.beta > clean.beta / 2


def test_what_votes_are_weighted_by_is_said():
    by_tokens = VoteWeights(signal="entropy", scale=1.0, score=SCORE)
    assert describe_votes(by_tokens) == "votes weighted by entropy and score"
    assert describe_votes(VoteWeights.by_score(SCORE)) == "votes weighted by score"
    for weigh, words in ((None, "mode"), (VoteWeights.by_score(SCORE), "mode and score")):
        joined = join_weights(("a", "b"), (weigh, None), np.ones(2))
        assert describe_votes(joined) == f"votes weighted by {words}"


def test_scores_are_compared_with_plain_votes_and_the_best_of_n_on_problems_kept_apart():
    scored = judge(synthetic(60, 6, chance=np.linspace(0.3, 0.9, 60).tolist(), signals=False), strength=3.0)
    scores = scored.signals[:, :, COLUMN]
    scores = np.where(np.isnan(scores), 5.0 + np.arange(6) / 100, scores)
    evaluation = ac.evaluate(score_samples(scored, scores), budgets=(2.0,), policies=("fixed",), orders=2)
    assert (evaluation.votes, evaluation.weighed_by) == ("weighted", ("score",))
    assert [row.samples for row in evaluation.by_score] == [2, 4]
    for row in evaluation.by_score:
        groups = list(combinations(range(6), row.samples))
        best = [
            np.mean([scored.correct[i, max(group, key=lambda j: scores[i, j])] for group in groups])
            for i in range(60)
        ]
        plain = ac.score(scored, (row.samples,)).accuracy
        assert row.best.mean == pytest.approx(np.mean(best))
        assert row.plain == pytest.approx(plain.mean())
        assert row.best_gain.mean == pytest.approx(row.best.mean - row.plain)
        assert row.weighted_gain.low > 0, "such a judge tells right samples from wrong ones"
    assert evaluation.by_score[0].weighted.mean == pytest.approx(evaluation.by_score[0].best.mean), (
        "of two votes the heavier one wins"
    )


@pytest.mark.parametrize("missing", [False, True])
def test_a_score_of_every_answer_is_what_weighted_votes_need(missing: bool):
    ballots = synthetic(12, 6, signals=False)
    scores = np.where(ballots.classes < 0, np.nan, 1.0 + ballots.correct)
    if missing:
        scores[3, 2] = np.nan
        ballots = replace(ballots, classes=np.abs(ballots.classes))
    scored = score_samples(ballots, scores)
    assert uses_weighted_votes(scored, "auto") is not missing
    assert not uses_weighted_votes(scored, "plain")
    if missing:
        with pytest.raises(NotRecorded, match="score"):
            uses_weighted_votes(scored, "weighted")
