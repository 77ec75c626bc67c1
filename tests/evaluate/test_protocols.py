"""Evaluations that can be believed: nothing judged was learned from, and the same question has one answer."""

from dataclasses import replace

import numpy as np
import pytest
from spies import Spy, lengths, margin, remember, spy

from adacompute import Ballots, score
from adacompute.errors import BudgetOutOfRange, NotRecorded, PolicyError, PoolError, TooFewSamples
from adacompute.evaluate import Evaluation, evaluate
from adacompute.evaluate.measure import (
    ComparedPolicy,
    EvaluationSetup,
    SplitData,
    interpolate_dial,
    select_policies,
)
from adacompute.evaluate.resampling import Split
from adacompute.evaluate.verdict import count_repeats, count_verdict_steps
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import count_known
from shared import read_votes

FEW = {"orders": 8, "folds": 3}
PAIR = ("fixed", ("margin", margin))


@pytest.fixture(scope="module")
def words() -> Ballots:
    return read_votes("words").only(range(0, 441, 7))  # 63 problems


@pytest.fixture(scope="module")
def found(words: Ballots) -> Evaluation:
    return evaluate(words, budgets=(2, 4), policies=(*PAIR, "asc", "oracle"), votes="plain", **FEW)


def without(ballots: Ballots, **arrays: np.ndarray) -> Ballots:
    for array in arrays.values():
        array.setflags(write=False)
    return replace(ballots, **arrays)


@pytest.mark.slow
def test_no_judged_problem_was_learned_from_and_each_is_judged_once(words: Ballots):
    Spy.shown.clear()
    evaluate(words, budgets=(2,), policies=(("spy", spy),), **FEW)
    rounds = 1 + count_repeats(len(words))  # the table's folds, then those of the verdict
    assert len(Spy.shown) == 3 * rounds
    for number in range(rounds):
        judged = [prompt for shown in Spy.shown[3 * number : 3 * number + 3] for prompt in shown]
        assert sorted(judged) == sorted(set(words.prompts))


@pytest.mark.slow
def test_whole_groups_are_held_out_of_tables_and_of_the_verdict(words: Ballots):
    grouped = replace(words, subjects=tuple(f"family {row % 12}" for row in range(len(words))))
    Spy.shown.clear()
    made = evaluate(grouped, budgets=(2,), policies=("fixed", ("spy", spy)), groups="subject", **FEW)
    family = dict(zip(grouped.prompts, grouped.subjects, strict=True))
    for judged in Spy.shown:
        inside = {family[prompt] for prompt in judged}
        assert len(judged) == sum(subject in inside for subject in grouped.subjects)  # none is split
    assert made.groups == made.verdict.groups == 12
    assert "63 problems in 12 groups" in made.verdict.protocol


def make_series(templates: int = 14, each: int = 8) -> Ballots:
    """Every second template is easy; of the others, half of the samples are right and the rest disagree."""
    rng, count = np.random.default_rng(3), templates * each
    kind = np.repeat(np.arange(templates), each)
    wrong = rng.integers(1, 7, (count, 16))
    classes = np.where((kind % 2 == 0)[:, None] | (rng.random((count, 16)) < 0.5), 0, wrong)
    letters = [chr(ord("a") + number) for number in kind]
    made = read_votes("words").only(range(count))
    return without(
        replace(
            made,
            ids=tuple(f"p{row}" for row in range(count)),
            prompts=tuple(f"{a}a {row} {a}b {a}c {row + 7} {a}d" for row, a in enumerate(letters)),
        ),
        classes=classes.astype(np.int32),
        correct=(classes == 0).astype(np.float32),
        **{name: np.full((count, 16), np.nan) for name in ("tokens", "logprob", "entropy")},
    )


def test_what_was_learned_of_a_template_is_a_gain_only_if_its_questions_are_split():
    series = make_series()
    options = {"budgets": (3,), "policies": ("fixed", ("remember", remember)), **FEW}
    leaky, honest = (evaluate(series, groups=groups, **options) for groups in ("none", None))
    gains = [made.match("remember", 3).gain for made in (leaky, honest)]
    assert gains[0].low > 0.02
    assert abs(gains[1].mean) < 0.005  # it knows none of the templates that it is asked about
    assert (leaky.groups, honest.groups) == (112, 14)
    assert leaky.verdict.pays
    assert not honest.verdict.pays


def test_problems_with_one_sample_are_evaluated_and_what_cannot_be_told_is_said(words: Ballots):
    arrays = {name: getattr(words, name)[:, :1] for name in words.sample_arrays}
    made = evaluate(replace(words, **arrays), budgets=(1,), **FEW)
    assert made.verdict.decided == "nothing to compare"
    assert made.match("fixed", 1).accuracy == pytest.approx(float(words.correct[:, 0].mean()))
    assert [row.policy for row in made.rows if row.policy not in ("oracle", "peers")] == ["fixed"]


def test_intervals_are_over_groups(words: Ballots):
    """Copies of a problem are one group: they make an interval over groups no narrower."""
    once = words.only(np.tile(np.arange(12), 4))
    ids = tuple(f"{row} {name}" for row, name in enumerate(once.ids))
    many = replace(once, ids=ids, prompts=ids, subjects=once.ids)
    options = {"budgets": (2,), "policies": ("fixed",), "votes": "plain", **FEW}
    by_group, by_problem = (evaluate(many, groups=groups, **options) for groups in ("subject", "none"))
    wide, narrow = by_group.match("fixed", 2), by_problem.match("fixed", 2)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    with pytest.raises(PoolError, match=r"1 of 48 problems have no 'subject'"):
        evaluate(replace(many, subjects=(None, *many.subjects[1:])), groups="subject", **options)
    with pytest.raises(PoolError, match=r"no 'subjekt'.*did you mean subject\? columns are 'subject'"):
        evaluate(many, groups="subjekt", **options)


@pytest.mark.slow
def test_the_prior_that_comes_with_the_package_has_not_seen_what_is_judged(words: Ballots):
    (one,) = select_policies(("stopping",), words)
    other = replace(words, prompts=tuple(f"Something else, {i}?" for i in range(len(words))))
    made = one.maker(other, budget=2, weigh=None, longest=16)  # not even where only judged problems tell
    assert isinstance(made, StoppingPolicy)
    assert count_known(StoppingPolicy().prior_, words) == len(words)
    assert count_known(made.prior_, words) == 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_by_any_number_of_processes_and_another_does_not(words: Ballots):
    told: list[tuple[int, int, str]] = []

    def run(seed: int, **given: object) -> Evaluation:
        return evaluate(words, budgets=(3,), policies=("fixed", "asc"), seed=seed, **FEW, **given)

    made = run(5, progress=lambda *at: told.append(at))
    assert made == run(5, workers=2)
    assert made.rows != run(6).rows
    steps = 6 + count_verdict_steps(words)
    assert [at[0] for at in told] == list(range(1, steps + 1))  # every part of the work
    assert {at[1] for at in told} == {steps}


def test_the_dial_is_set_on_the_training_problems_alone(words: Ballots):
    """Whatever the judged problems' samples are, the dials stay the same."""
    split = Split(train=np.arange(40), test=np.arange(40, 63))
    shuffled = words.classes.copy()
    shuffled[40:] = np.random.default_rng(0).integers(0, 9, shuffled[40:].shape)
    dials = []
    for ballots in (words, without(words, classes=shuffled)):
        setup = EvaluationSetup(
            ballots=ballots,
            budgets=(2.0, 4.0),
            weighted=False,
            orders=8,
            longest=16,
            seed=1,
            basis="accuracy",
        )
        dials.append(
            ComparedPolicy(name="margin", maker=margin).measure(SplitData(setup, split, 0))["margin"].dials
        )
    assert dials[0] == dials[1]


@pytest.mark.slow
def test_a_calibrated_run_costs_about_the_budget(found: Evaluation):
    for row in found.rows:
        if row.policy in ("margin", "asc"):
            assert row.cost == pytest.approx(row.budget, rel=0.15)
            assert row.reached


def test_all_alike_is_what_the_score_of_all_subsets_says(words: Ballots, found: Evaluation):
    table = score(words, (2, 4)).accuracy.mean(axis=0)
    for budget, accuracy in zip((2, 4), table, strict=True):
        row = found.row("fixed", budget)
        assert row is not None
        assert row.cost == budget
        assert row.accuracy == pytest.approx(accuracy, abs=0.03)  # 8 orders of 63 problems
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.accuracy < row.high


def test_rows_have_what_the_design_says_and_every_row_its_protocol(found: Evaluation):
    rows = found.to_dict()["rows"]
    assert {"policy", "budget", "cost", "accuracy", "low", "high", "protocol"} <= set(rows[0])
    protocols = {(row["policy"], row["protocol"].split(":")[0].split(",")[0]) for row in rows}
    assert protocols == {
        ("fixed", "held-out"),
        ("margin", "held-out"),
        ("asc", "held-out"),
        ("peers", "held-out"),
        ("oracle", "cross-fitted"),
        ("oracle", "in-sample"),
    }


def test_peers_are_never_below_any_of_them_and_gains_are_differences(found: Evaluation):
    for budget in (2.0, 4.0):
        peers, base = found.match("peers", budget), found.match("fixed", budget)
        assert peers is not None
        assert base is not None
        for name in ("fixed", "margin", "asc"):
            one = found.match(name, budget)
            assert one is not None
            assert one.accuracy <= peers.accuracy + 1e-12
            if one.gain is not None:
                assert one.gain.mean == pytest.approx(one.accuracy - base.accuracy)
                assert one.gain.low is not None
                assert one.gain.low <= one.gain.mean


def test_the_share_of_the_oracles_gain_is_of_both_ends(found: Evaluation):
    bracket = next(one for one in found.oracle if one.budget == 4)
    base, one = found.match("fixed", 4), found.match("margin", 4)
    assert base is not None
    assert one is not None
    assert bracket.low is not None
    assert bracket.low.mean < bracket.high
    low, high = one.recovered
    assert low == pytest.approx((one.accuracy - base.accuracy) / (bracket.low.mean - base.accuracy))
    assert high == pytest.approx((one.accuracy - base.accuracy) / (bracket.high - base.accuracy))


@pytest.mark.slow
def test_the_papers_protocol_is_labelled_in_sample_with_its_spread_over_seeds(words: Ballots):
    made = evaluate(words, budgets=(2,), policies=PAIR, protocol="paper", seeds=2, orders=8)
    row = made.row("margin", 2)
    assert row is not None
    assert row.protocol.startswith("in-sample")
    assert row.accuracy_std is not None
    assert row.cost_std is not None
    assert (made.protocol, made.folds) == ("paper", 2)
    assert made.verdict.protocol.startswith("held-out")  # whatever the tables around it are


def test_a_policy_without_a_dial_is_made_for_each_budget(words: Ballots):
    made = evaluate(words, budgets=(2, 3), policies=(("lengths", lengths),), **FEW)
    assert [row.cost for row in made.rows if row.policy == "lengths"] == [2.0, 3.0]
    assert made.verdict.policy == "lengths"
    assert [row.budget for row in made.verdict.rows] == [1.5, 2, 3, 4, 6]  # the usual ones, always


def test_votes_are_weighed_where_everything_is_recorded_and_said_so(words: Ballots):
    given = {"budgets": (2,), "policies": ("fixed",), **FEW}
    assert evaluate(words, **given).votes == "weighted"
    assert evaluate(words, votes="plain", **given).votes == "plain"
    gap = words.logprob.copy()
    gap[5, 5] = np.nan
    lacking = without(words, logprob=gap)
    assert evaluate(lacking, **given).votes == "plain"
    with pytest.raises(NotRecorded, match="votes='plain'"):
        evaluate(lacking, votes="weighted", **given)


@pytest.mark.slow
def test_without_grades_agreement_stands_in_and_what_needs_them_is_left_out(words: Ballots):
    bare = without(words, correct=np.full(words.correct.shape, np.nan, np.float32))
    made = evaluate(bare, budgets=(2, 6), policies=(*PAIR, "shuffled", "oracle"), **FEW)
    assert (made.basis, made.left_out, made.oracle) == ("agreement", ("shuffled",), ())
    two, six = made.row("fixed", 2), made.row("fixed", 6)
    assert two is not None
    assert six is not None
    assert 0.5 < two.accuracy < six.accuracy < 1


def test_problems_without_grades_are_left_out_where_others_have_them(words: Ballots):
    some = words.correct.copy()
    some[:10] = np.nan
    made = evaluate(without(words, correct=some), budgets=(2,), policies=("fixed",), **FEW)
    assert (made.problems, made.dropped) == (53, 10)


def test_fewer_samples_allow_smaller_budgets_only(words: Ballots):
    short = words.classes.copy()
    short[:, 4:] = -2
    made = evaluate(without(words, classes=short), budgets=(2,), policies=("fixed",), **FEW)
    assert made.longest == 4
    with pytest.raises(BudgetOutOfRange, match=r"budget 6 can.t be spent.* give 1 to 4"):
        evaluate(without(words, classes=short), budgets=(6,), policies=("fixed",), **FEW)


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"policies": ("nonsense",)}, PolicyError, "there is no policy 'nonsense'"),
        ({"policies": ("fixed", "fixed")}, PolicyError, "named twice"),
        ({"policies": ("peers",)}, PolicyError, "best mix of other policies"),
        ({"policies": ("oracle",)}, PolicyError, "no policy to evaluate"),
        ({"budgets": ()}, BudgetOutOfRange, "no budget was given"),
        ({"budgets": (0.5,)}, BudgetOutOfRange, "0.5 can.t be spent"),
        ({"orders": 0}, PolicyError, "0 orders"),
        ({"folds": 1}, TooFewSamples, "1 folds"),
        ({"protocol": "paper", "seeds": 0}, PolicyError, "0 seeds"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_line(words: Ballots, given, error, why: str):
    with pytest.raises(error, match=why) as caught:
        evaluate(words, **({"policies": ("fixed",), "budgets": (2,)} | given))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("budget", "place"), [(9, (0, 0.0, False)), (8, (0, 0.0, True)), (1, (3, 0.0, True))]
)
def test_budgets_beyond_the_dial_are_told(budget: float, place: tuple):
    assert interpolate_dial(np.array([8.0, 4.0, 2.0, 1.0]), budget) == place


def test_a_mix_of_neighbouring_dials_meets_the_budget():
    costs = np.array([8.0, 4.0, 4.0, 2.5, 1.0])
    for budget in np.linspace(1, 8, 50):
        at, share, reached = interpolate_dial(costs, float(budget))
        then = min(at + 1, 4)
        assert reached
        assert (1 - share) * costs[at] + share * costs[then] == pytest.approx(budget)
