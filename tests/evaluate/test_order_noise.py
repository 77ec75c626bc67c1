"""Fewer orders, the same numbers on average: uniform exactly, the others less noisy."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from adacompute import Ballots
from adacompute.evaluate.comparison import PolicyResult
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.measure import EvaluationSetup, select_policies, stack_sweep, sweep_with_cache
from adacompute.evaluate.protocols import reduce_order_noise, run_policies, score_uniform_exactly
from adacompute.policies.paths import draw_paths, grade_by_other_half
from adacompute.replay.matching import PolicyPoints
from adacompute.score import score
from synthetic import synthetic

LONGEST = 16


@pytest.fixture(scope="module")
def ballots() -> Ballots:
    return synthetic(40, 24)


def run(
    ballots: Ballots, seed: int, *, orders: int = 2, policies: tuple[str, ...] = ("fixed", "asc")
) -> EvaluationRuns:
    return run_policies(
        ballots, budgets=(1.5, 3), policies=policies, parts=2, votes="plain", orders=orders, seed=seed
    )


def test_uniform_by_any_name_is_exact(ballots: Ballots):
    found = run(ballots, 0, policies=("fixed", "heuristic", "random"))
    alias = replace(found.get("fixed"), name="curve")
    made = reduce_order_noise(replace(found, everyone=(*found.everyone, alias)))
    exact = score(ballots, budgets=tuple(range(1, LONGEST + 1))).accuracy.T  # (longest, problems)
    for one in made.everyone:  # whoever decides on the prompt alone gives uniform votes to each problem
        whole = one.points.cost.astype(int)
        assert one.points.accuracy == pytest.approx(exact[whole - 1, np.arange(40)], abs=1e-9), one.name
        rows = one.cost.astype(int)
        assert one.accuracy == pytest.approx(exact[rows - 1, np.arange(40)], abs=1e-9)
    assert (made.get("curve").points.accuracy == made.get("fixed").points.accuracy).all()
    assert made.get("random").points.cost is found.get("random").points.cost


def walked(ballots: Ballots, setup: EvaluationSetup, seed: int, dials: Sequence[float]) -> EvaluationRuns:
    """Uniform, and a rule that looks at the votes, on the same two orders of each problem."""
    way = draw_paths(ballots, rng=np.random.default_rng(seed), orders=2, longest=LONGEST)
    plain, rule = (one.maker for one in select_policies(("fixed", "asc")))
    counts = range(1, LONGEST + 1)
    uniform = [plain(ballots, budget=count, weigh=None, longest=LONGEST) for count in counts]
    seen = np.concatenate([stack_sweep(sweep_with_cache(policy, way, [None])) for policy in uniform], axis=1)
    asc = stack_sweep(sweep_with_cache(rule(ballots, budget=2.0, weigh=None, longest=LONGEST), way, dials))
    everyone = tuple(
        PolicyResult(
            name=name, cost=cost, accuracy=right, waves=waves, tokens=tokens, reached=(True,) * len(cost),
            points=PolicyPoints(cost=cost, accuracy=right),
        )
        for name, (cost, right, waves, tokens) in (("fixed", seen), ("asc", asc))
    )  # fmt: skip
    return EvaluationRuns(setup=setup, everyone=everyone, parts=2, dropped=0, left_out=())


@pytest.mark.nightly
def test_what_is_expected_stays_and_its_noise_shrinks():
    ballots = synthetic(160, 24)
    setup = EvaluationSetup(
        ballots=ballots, budgets=(3.0,), weighted=False, orders=2, longest=LONGEST, seed=0, basis="accuracy"
    )
    before, after = [], []
    for seed in range(30):
        found = walked(ballots, setup, seed, (0.02, 0.1, 0.3))
        before.append(found.get("asc").accuracy.mean(axis=1))
        after.append(reduce_order_noise(found).get("asc").accuracy.mean(axis=1))
    plain, less = np.array(before), np.array(after)  # (seeds, settings)
    taken = plain - less
    assert (np.abs(taken.mean(axis=0)) < 3.5 * taken.std(axis=0, ddof=1) / len(taken) ** 0.5).all()
    assert (less.std(axis=0) < 0.8 * plain.std(axis=0)).all()


def test_few_problems_keep_their_numbers_but_uniform_is_exact():
    few = synthetic(8, 20).group("none")
    found = run(few, 0)
    made = reduce_order_noise(found)
    unlike = found.get("asc").points.accuracy != made.get("asc").points.accuracy
    whole = (found.get("asc").points.cost == np.rint(found.get("asc").points.cost)).all(axis=1)
    assert not unlike[~whole].any()
    assert made.get("fixed").points.accuracy[-1] == pytest.approx(score(few, budgets=(16,)).accuracy[:, 0])


def test_without_grades_agreement_with_the_other_half_is_exact_weighted_or_not(ballots: Ballots):
    blank = replace(
        ballots,
        correct=np.full(ballots.correct.shape, np.nan, dtype=np.float32),
        gold_known=np.zeros(len(ballots), dtype=bool),
    )
    found = run(blank, 0)
    made = reduce_order_noise(found)
    assert made.get("fixed").points.accuracy[0] == pytest.approx(score_uniform_exactly(found.setup)[0])
    one = score(grade_by_other_half(blank), budgets=(1,)).accuracy[:, 0]
    weighted = score_uniform_exactly(replace(found.setup, weighted=True))
    for exact in (score_uniform_exactly(found.setup), weighted):
        assert exact[0] == pytest.approx(one)


def test_weighted_votes_are_those_of_the_table(ballots: Ballots):
    setup = replace(run(ballots, 0).setup, weighted=True)
    found = score_uniform_exactly(setup)
    assert found.shape == (LONGEST, 40)
    assert found[0] == pytest.approx(score(ballots, budgets=(1,)).accuracy[:, 0])
    assert np.abs(found[2:] - score_uniform_exactly(replace(setup, weighted=False))[2:]).max() > 0.01
