"""Tables from pools: what is in them, what is left out, and what is refused, by name."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_ballots import Draw, made, over_subsets
from pool_lines import line, write

import adacompute as ac
from adacompute.errors import AdacomputeError, NotRecorded, ScoreError, SourceAmbiguous, TooFewSamples
from adacompute.score.aggregates import score_any_correct, score_best_of
from adacompute.score.grades import grade_samples
from adacompute.score.plain_vote import score_window_vote
from tiers import leave_to_nightly

ONE: list[Draw] = [(0, 1.0), (1, 0.0), (0, 1.0), (-1, 0.0)]
TWO: list[Draw] = [(0, 0.0), (1, 1.0), (2, 0.0), (1, 1.0)]
SHORT: list[Draw] = [(0, 1.0), (0, 1.0)]


def signals(ballots: ac.Ballots) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = ballots.classes.shape
    return {"tokens": np.full(shape, 10.0), "logprob": -rng.random(shape), "entropy": rng.random(shape)}


def sure(*problems: list[Draw]) -> ac.Ballots:
    """Ballots with tokens, log-probabilities and entropies."""
    return made(problems, **signals(made(problems)))


def test_a_table_holds_accuracies_errors_ids_costs_and_how_they_were_come_by():
    table = ac.score(made([ONE, TWO]), budgets=(1, 2, 4))
    expected = [[float(over_subsets(drawn, b)) for b in (1, 2, 4)] for drawn in (ONE, TWO)]
    assert table.accuracy == pytest.approx(np.array(expected), abs=1e-10)
    assert table.standard_error is not None
    assert np.isnan(table.standard_error).tolist() == [[False, False, True]] * 2
    assert (table.ids, table.modes, table.unit, table.dropped) == (("p0", "p1"), (1, 2, 4), "samples", ())
    assert table.costs.tolist() == [1, 2, 4]
    assert "plain votes" in table.protocol
    assert "all subsets" in table.protocol
    assert "jackknife" in table.protocol


def test_a_pool_is_scored_by_the_source_that_is_named(tmp_path: Path):
    rows = [line("a", ("4", "5")), line("b", ("4", "4")), line("a", ("5", "5"), model="n")]
    with ac.open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        assert ac.score(pool, (1, 2), model="m").accuracy.tolist() == [[0.5, 0.5], [1, 1]]
        assert ac.score(pool, (1,), model="n", parameters={}).accuracy.tolist() == [[0]]
        with pytest.raises(SourceAmbiguous, match="name one by model="):
            ac.score(pool, (1,))
        with pytest.raises(ScoreError, match="leave them out with ballots"):
            ac.score(pool.ballots("m"), (1,), model="m")


def test_an_empty_pool_is_refused(tmp_path: Path):
    words = r"p\.sqlite: no problem has a sample; collect or import"
    with ac.open_pool(tmp_path / "p.sqlite", create=True) as pool, pytest.raises(TooFewSamples, match=words):
        ac.score(pool)


def test_every_aggregate_is_the_one_that_was_asked_for():
    ballots = sure(ONE, TWO)
    values = grade_samples(ballots)
    budgets = (1, 2, 3)
    table = ac.score(ballots, budgets, aggregate="any-correct")
    assert table.accuracy.tolist() == score_any_correct(ballots, values, budgets).accuracy.tolist()
    assert "any of b" in table.protocol
    for by in ("logprob", "entropy", np.arange(8.0).reshape(2, 4)):
        table = ac.score(ballots, budgets, aggregate="best-of", by=by)
        assert table.accuracy.tolist() == score_best_of(ballots, values, budgets, by=by).accuracy.tolist()
        assert (by if isinstance(by, str) else "scores given") in table.protocol
    windows = ac.score(ballots, budgets, estimator="windows")
    assert windows.accuracy.tolist() == score_window_vote(ballots, values, budgets).accuracy.tolist()
    assert "windows" in windows.protocol


def test_weighted_votes_follow_the_signal_and_one_answer_is_the_plain_vote():
    clear = np.array([[-1.0, -9.0, -9.0]] * 2)  # the first sample is sure, and right in the first problem
    ballots = made(
        [[(0, 1.0), (1, 0.0), (1, 0.0)], [(0, 0.0), (1, 1.0), (1, 1.0)]],
        tokens=np.full((2, 3), 10.0),
        logprob=clear,
        entropy=-clear,
    )
    for by in ("logprob", "entropy", ac.VoteWeights(signal="logprob", scale=-0.3, sharpness=4.0)):
        table = ac.score(ballots, (1, 3), aggregate="weighted", by=by)
        assert table.accuracy[:, 1].tolist() == [1.0, 0.0]
        assert table.accuracy[:, 0] == pytest.approx([1 / 3, 2 / 3])
        assert "weighted by" in table.protocol
    alike = made([ONE, TWO], entropy=np.zeros((2, 4)))  # all are certain, so none is surer
    found = ac.score(alike, (1, 2, 3, 4), aggregate="weighted", by="entropy").accuracy
    assert found == pytest.approx(ac.score(alike, (1, 2, 3, 4)).accuracy)


def test_simulated_votes_say_so_and_repeat_themselves():
    rng = np.random.default_rng(1)
    ballots = sure(*([(int(k), float(k == 0)) for k in rng.integers(0, 4, 32)] for _ in range(3)))
    table = ac.score(ballots, (8,), aggregate="weighted", draws=200)
    assert "simulated with at least 200 subsets" in table.protocol
    again = ac.score(ballots, (8,), aggregate="weighted", draws=200)
    assert table.accuracy.tolist() == again.accuracy.tolist()
    other = ac.score(ballots, (8,), aggregate="weighted", draws=200, rng=np.random.default_rng(5))
    assert table.accuracy.tolist() != other.accuracy.tolist()


def test_costs_are_in_the_unit_that_was_asked_for():
    ballots = sure(ONE, TWO)
    tokens = ac.score(ballots, (1, 2), cost="tokens")
    assert (tokens.costs.tolist(), tokens.unit) == ([[10, 20], [10, 20]], "tokens")
    money = ac.score(ballots, (1, 2), cost=ac.TokenPrices(input=1e6, output=1e6))
    assert (money.costs.tolist(), money.unit) == ([[12, 24], [12, 24]], "USD")
    assert "estimated at 4 characters" in money.protocol


def test_too_few_samples_are_named_or_dropped():
    ballots = made([SHORT, ONE, *[SHORT] * 6])
    with pytest.raises(
        TooFewSamples, match=r"7 of 8 problems have fewer than 4 samples: 'p0' \(2 samples\)"
    ) as at:
        ac.score(ballots, (1, 4))
    assert "'p5' (2 samples) and 2 more" in str(at.value)
    assert "too_few='drop'" in str(at.value)
    table = ac.score(ballots, (1, 4), too_few="drop")
    assert (table.ids, table.dropped) == (("p1",), ("p0", "p2", "p3", "p4", "p5", "p6", "p7"))
    assert table.accuracy.tolist() == ac.score(made([ONE]), (1, 4)).accuracy.tolist()
    with pytest.raises(TooFewSamples, match=r"8 of 8 problems have fewer than 5 .*nothing else to score"):
        ac.score(ballots, (5,), too_few="drop")


def test_what_is_not_known_is_named_or_dropped():
    ballots = made([ONE, [(0, 1.0), (1, math.nan), (0, 1.0), (0, 1.0)]])
    with pytest.raises(
        NotRecorded, match=r"1 of 2 problems has a sample whose correctness .* 'p1'.*gold answers"
    ):
        ac.score(ballots, (1,))
    table = ac.score(ballots, (1,), too_few="drop")
    assert (table.ids, table.dropped) == (("p0",), ("p1",))
    silent = made([ONE, [(-1, 1.0), (-1, 0.0)]])  # graded right without an answer: answers were not kept
    with pytest.raises(NotRecorded, match=r"1 of 2 problems has grades but no recorded answers.*'p1'"):
        ac.score(silent, (1,))
    assert ac.score(silent, (1,), too_few="drop").dropped == ("p1",)
    assert ac.score(silent, (1,), aggregate="any-correct").accuracy.tolist() == [[0.5], [0.5]]


def test_own_scores_and_prompt_tokens_stay_with_their_problems_when_others_are_dropped():
    ballots = sure(SHORT, ONE, TWO)
    scores = np.random.default_rng(3).random((3, 4))
    price = ac.TokenPrices(input=1e6, output=0, prompt_tokens=[1, 2, 3])
    table = ac.score(ballots, (1, 3), aggregate="best-of", by=scores, cost=price, too_few="drop")
    alone = score_best_of(sure(ONE, TWO), grade_samples(sure(ONE, TWO)), (1, 3), by=scores[1:])
    assert table.accuracy.tolist() == alone.accuracy.tolist()
    assert table.costs.tolist() == [[2, 6], [3, 9]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budgets": ()}, r"budgets \(\) can't be used"),
        ({"budgets": (2, 1)}, r"budgets \(2, 1\) .*ascending"),
        ({"budgets": (1, 1)}, r"budgets \(1, 1\)"),
        ({"budgets": (0, 1)}, r"budgets \(0, 1\)"),
        ({"budgets": (1.0, 2)}, r"budgets \(1.0, 2\)"),
        ({"budgets": (True,)}, r"budgets \(True,\)"),
        ({"budgets": 4}, "budgets 4 can't be used"),
        ({"estimator": "best"}, "estimator 'best' is not known; give one of 'exact', 'windows'"),
        ({"aggregate": "mean"}, "aggregate 'mean' is not known; give one of 'vote', 'weighted'"),
        ({"too_few": "keep"}, "too_few 'keep' is not known"),
        ({"cost": "time"}, "cost 'time' is not known"),
        (
            {"estimator": "windows", "aggregate": "best-of"},
            "estimator='windows' works only with aggregate='vote'; give estimator='exact'",
        ),
        ({"aggregate": "best-of", "by": "length"}, "'length' is not known"),
        ({"aggregate": "best-of", "by": np.zeros((2, 2))}, r"scores of shape \(2, 2\).*\(2, 4\)"),
        (
            {"aggregate": "best-of", "by": ac.VoteWeights(signal="entropy", scale=1)},
            "best-of can't rank by VoteWeights",
        ),
        ({"aggregate": "weighted", "by": "length"}, "votes can't be weighted by 'length'"),
        ({"aggregate": "weighted", "by": np.zeros((2, 4))}, "votes can't be weighted by scores"),
        ({"aggregate": "weighted"}, "no sample of these 2 problems has tokens and log-probabilities"),
        ({"aggregate": "best-of"}, "no tokens and log-probability to rank it by"),
        ({"cost": "tokens"}, "problem 'p0' has samples without a number of tokens"),
    ],
)
def test_what_cant_be_scored_so_is_refused_in_one_line(options: dict[str, Any], words: str):
    with pytest.raises(AdacomputeError, match=words) as at:
        ac.score(made([ONE, TWO]), **({"budgets": (1, 2)} | options))
    assert "\n" not in str(at.value)


def test_budgets_may_be_numpys_own_whole_numbers():
    table = ac.score(made([ONE]), np.array([1, 2]))
    assert table.modes == (1, 2)
    assert all(type(mode) is int for mode in table.modes)


@pytest.mark.slow
@pytest.mark.parametrize("name", leave_to_nightly(["facts", "words"]))
def test_pool_summaries_and_tables_show_the_same_numbers(name: str):
    with ac.bundled(name) as pool:
        table, (source,) = ac.score(pool), ac.summarise(pool).sources
    assert table.accuracy.mean(axis=0) == pytest.approx([source.votes[b].mean for b in (1, 2, 4, 8, 16)])


@pytest.mark.parametrize("source", ["words", None, 3])
def test_what_cant_be_scored_is_named(source):
    with pytest.raises(ScoreError, match="can't be scored; give a pool"):
        ac.score(source)
