"""One verdict: the same in every command, steady, and never surer than the samples allow."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spies import margin

from adacompute import Ballots
from adacompute.evaluate import Interval, judge_pool
from adacompute.evaluate.comparison import Verdict, VerdictRow
from adacompute.evaluate.verdict import (
    FEWEST_PROBLEMS,
    FOLDS,
    MOST_NEEDED,
    PairedResults,
    choose_candidate,
    count_needed,
    decide,
    judge,
)
from adacompute.policies.base import Policy
from adacompute.replay.matching import Bootstrap, PolicyPoints, estimate_intervals, match_neighbours
from shared import read_votes
from synthetic import make_ballots, synthetic
from tiers import leave_to_nightly

MARGIN = ("margin", margin)
COSTS = np.arange(1.0, 17.0)
BUDGETS = (2.0, 3.0, 4.0)


def lines(problems: int, *, gold: bool = True, samples: int = 4) -> str:
    rng, made = random.Random(1), []
    for i in range(problems):
        ease = 0.2 + 0.8 * i / problems
        answers = ["4" if rng.random() < ease else str(rng.randrange(4)) for _ in range(samples)]
        made.append(
            {"id": f"p{i}", "question": f"What is {i} + {i}?", "samples": [{"answer": a} for a in answers]}
            | ({"gold": "4"} if gold else {})
        )
    return "".join(json.dumps(one) + "\n" for one in made)


def made_of(gains: np.ndarray, *, basis: str = "accuracy", policy: str = "stopping") -> PairedResults:
    """A policy whose every problem gains so much at any cost, (problems,)."""
    uniform = np.repeat((0.6 - 0.3 / COSTS)[:, None], len(gains), axis=1)
    cost = np.repeat(COSTS[:, None], len(gains), axis=1)
    return PairedResults(
        policy=policy,
        points=PolicyPoints(cost=cost, accuracy=uniform + gains),
        uniform=PolicyPoints(cost=cost, accuracy=uniform),
        budgets=BUDGETS,
        basis=basis,  # type: ignore[arg-type]
        votes="plain",
        problems=len(gains),
    )


def spread(count: int, mean: float, deviation: float) -> np.ndarray:
    """Values with exactly this mean and standard deviation."""
    values = np.random.default_rng(5).normal(size=count)
    return mean + deviation * (values - values.mean()) / values.std(ddof=1)


def skewed(count: int, budgets: int, rng: np.random.Generator) -> np.ndarray:
    """Gains as recordings have them, of mean 0: most problems gain next to nothing, few much."""
    rare = rng.random((count, 1)) < 0.15
    values = np.where(rare, rng.exponential(0.3, (count, budgets)), rng.normal(0, 0.01, (count, budgets)))
    return values - 0.15 * 0.3


@pytest.mark.parametrize(
    ("gains", "decided"),
    [
        (spread(60, 0.04, 0.05), "pays"),
        (spread(60, -0.04, 0.05), "uniform is better"),
        (spread(900, 0.0, 0.05), "uniform is as good"),
        (spread(60, 0.01, 0.1), "not decided yet"),
        (spread(FEWEST_PROBLEMS - 1, 0.3, 0.001), "too few problems to tell"),
    ],
)
def test_the_verdict_follows_the_joint_interval(gains: np.ndarray, decided: str):
    verdict = judge(made_of(gains))
    assert verdict.decided == decided
    assert (verdict.problems_needed is None) == (
        decided in ("pays", "uniform is better", "uniform is as good")
    )
    assert verdict.sentence.endswith(".")
    assert "\n" not in verdict.sentence
    assert "nan" not in verdict.sentence
    assert "inf" not in verdict.sentence


def test_what_is_saved_is_said_in_one_sentence():
    uniform = np.repeat((0.6 - 0.3 / COSTS)[:, None], 40, axis=1) + spread(40, 0.0, 0.1)
    cost = np.repeat(COSTS[:, None], 40, axis=1)
    halved = replace(
        made_of(np.zeros(40)),
        points=PolicyPoints(cost=cost[1:] / 2, accuracy=uniform[1:] + spread(40, 0.0, 0.001)),
        uniform=PolicyPoints(cost=cost, accuracy=uniform),
    )
    verdict = judge(halved)
    assert verdict.sentence == (
        "Adaptive sampling pays here: at 3 samples on average you get what 6 give uniformly, 50% less."
    )
    assert (verdict.policy, verdict.budget, verdict.sure_budgets) == ("stopping", 3.0, BUDGETS)
    agreed = judge(replace(halved, basis="agreement", policy="curve")).sentence
    assert agreed == (
        "Adaptive sampling by curve pays here: at 3 samples on average you agree with the vote of the other "
        "half of the samples as often as 6 do uniformly, 50% less."
    )


def test_more_uniform_samples_than_there_are_is_never_claimed_beyond_the_interval():
    sentence = judge(made_of(spread(60, 0.3, 0.05))).sentence
    assert sentence.endswith("you get at least what 16 give uniformly, at least 81% less.")


def test_three_samples_are_spoken_of_unless_only_another_budget_is_sure():
    def row(budget: float, low: float, high: float) -> VerdictRow:
        return row_of(budget, Interval(mean=(low + high) / 2, low=low, high=high))

    assert decide([row(2, 0.01, 0.05), row(3, -0.02, 0.03)]) == "pays"
    assert decide([row(2, -0.05, -0.01), row(3, 0.001, 0.03)]) == "pays"
    assert decide([row(2, -0.05, -0.01), row(3, -0.02, 0.03)]) == "uniform is better"
    assert decide([row(2, -0.05, 0.009), row(3, -0.02, 0.011)]) == "not decided yet"
    assert decide([row(2, -0.05, 0.03), row(3, 0.0004, 0.04)]) == "not decided yet"  # printed: +0.0 to +4.0
    assert decide([row(2, -0.05, 0.03), row(3, 0.0006, 0.04)]) == "pays"
    points = made_of(spread(60, 0.0, 0.01))
    only_two = points.points.accuracy.copy()
    only_two[1] += 0.2
    verdict = judge(replace(points, points=replace(points.points, accuracy=only_two)))
    assert (verdict.budget, verdict.sure_budgets) == (2.0, (2.0,))
    assert "Sure at 2; not at 3, 4." in verdict.support


@pytest.mark.parametrize("count", [30, 60])
def test_joint_intervals_of_skewed_gains_cover_and_nothing_seldom_pays(count: int):
    budgets, rounds = 5, 200
    covered = pays = percentile_pays = 0
    for number in range(rounds):
        values = skewed(count, budgets, np.random.default_rng([count, number]))
        boot = Bootstrap.of(count, draws=500, rng=np.random.default_rng(number))
        alone, joint, critical = estimate_intervals(values, boot)
        assert critical > 2
        covered += all(ends.low <= 0 <= ends.high for ends in joint)  # type: ignore[operator]
        pays += any(ends.low > 0 for ends in joint)  # type: ignore[operator]
        percentile_pays += any(boot.interval(column).low > 0 for column in values.T)  # type: ignore[operator]
        assert all(
            one.low >= both.low and one.high <= both.high  # type: ignore[operator]
            for one, both in zip(alone, joint, strict=True)
        )
    assert covered / rounds > 0.9
    assert pays / rounds <= 0.05
    assert pays <= percentile_pays


def test_problems_that_are_all_alike_are_not_taken_for_certainty():
    (alone,), (joint,), _ = estimate_intervals(np.zeros((30, 1)), Bootstrap.of(30))
    assert (joint.low, joint.high) == pytest.approx((-0.1, 0.1))  # the rule of three
    assert alone == joint
    assert judge(made_of(np.zeros(30))).decided == "not decided yet"
    assert judge(made_of(np.zeros(30))).problems_needed == 270
    assert judge(made_of(np.zeros(301))).decided == "uniform is as good"


@pytest.mark.parametrize(("mean", "deviation"), [(0.03, 0.1), (-0.02, 0.2), (0.0, 0.05)])
def test_as_many_problems_as_are_needed_decide_it_four_times_in_five(mean: float, deviation: float):
    first = judge(made_of(spread(40, mean, deviation)))
    assert first.decided == "not decided yet"
    assert first.problems_needed is not None
    wanted, rounds, rng = 40 + first.problems_needed, 100, np.random.default_rng(2)
    boot = Bootstrap.of(wanted, draws=500)
    decided = 0
    for _ in range(rounds):
        (_,), (joint,), _ = estimate_intervals(rng.normal(mean, deviation, (wanted, 1)), boot)
        decided += decide([row_of(3.0, joint)]) != "not decided yet"
    assert 0.65 <= decided / rounds <= 0.95


def row_of(budget: float, joint: Interval) -> VerdictRow:
    return VerdictRow(
        budget=budget, cost=budget, accuracy=0.6, uniform=0.5, gain=joint, joint=joint, worth=joint
    )


def test_how_many_more_is_of_the_budget_that_the_sentence_names_not_of_the_luckiest():
    gain, deviation = np.array([0.08, 0.02]), np.array([0.1, 0.1])
    lucky, named = (count_needed(gain, deviation, 2.5, 10, spoken_of=at) for at in (0, 1))
    assert (lucky, named) == (8, 270)
    sentence = judge(made_of(spread(60, 0.01, 0.1))).sentence
    assert sentence.endswith("more problems may decide it, if the gain stays what it seems.")


def test_a_gain_on_the_edge_needs_more_problems_than_anyone_has():
    edge = count_needed(np.array([0.0099, 0.0001]), np.array([0.3, 0.3]), 2.5, 100)
    assert edge == MOST_NEEDED
    assert "10,000 more problems or more" in judge(made_of(spread(40, 0.0099, 1.0))).sentence


def test_a_budget_is_met_by_cost_alone():
    lucky = PolicyPoints(
        cost=np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
        accuracy=np.array([[0.5, 0.7], [0.1, 0.1], [0.8, 1]]),
    )
    mix = match_neighbours(lucky, 2.0)
    assert mix is not None
    assert (mix.accuracy, mix.cost) == pytest.approx((0.1, 2.0))  # on the hull it would be 0.75
    assert match_neighbours(lucky, 0.5) is None
    beyond = match_neighbours(lucky, 9.0)
    assert beyond is not None
    assert beyond.cost == 3.0


@pytest.fixture(scope="module")
def varied() -> Ballots:
    easy = np.repeat([0.97, 0.62], 33)  # half of the problems need no second sample, half need many
    return synthetic(66, 16, chance=easy, signals=False, seed=3)


@pytest.mark.slow
def test_the_order_of_the_problems_does_not_matter_and_twice_is_the_same(varied: Ballots):
    first = judge_pool(varied, policy=MARGIN)
    assert first.decided == "pays"
    assert judge_pool(varied.only(np.arange(66)[::-1]), policy=MARGIN) == first
    assert [row.budget for row in first.rows] == [1.5, 2, 3, 4, 6]


@pytest.mark.slow
def test_what_a_verdict_was_made_with_is_handed_on_with_the_problems_it_has_seen(varied: Ballots):
    fits: list[tuple[Policy, Ballots]] = []
    verdict = judge_pool(varied, policy=MARGIN, keep_fit=lambda *fit: fits.append(fit))
    assert verdict == judge_pool(varied, policy=MARGIN)
    assert {policy.kind for policy, _ in fits} == {"margin"}
    unseen = [set(varied.prompts) - set(train.prompts) for _, train in fits]
    assert len(fits) == 2 * FOLDS  # two assignments, because the problems are few
    for assigned in (unseen[:FOLDS], unseen[FOLDS:]):
        assert sum(map(len, assigned)) == len(varied)
        assert set.union(*assigned) == set(varied.prompts)


@pytest.mark.nightly
def test_budgets_asked_for_are_judged_beside_the_usual_ones_so_none_can_be_picked(varied: Ballots):
    usual = judge_pool(varied, policy=MARGIN)
    assert judge_pool(varied, policy=MARGIN, budgets=(1.5,)) == usual
    more = judge_pool(varied, policy=MARGIN, budgets=(2.5, 99))
    assert [row.budget for row in more.rows] == [1.5, 2, 2.5, 3, 4, 6]
    wide, narrow = more.row(3.0), usual.row(3.0)
    assert wide is not None
    assert narrow is not None
    assert wide.gain.mean == pytest.approx(narrow.gain.mean)
    assert width(wide.joint) >= width(narrow.joint) > width(narrow.gain)


def keep_samples(ballots: Ballots, count: int) -> Ballots:
    names = ("classes", "correct", "tokens", "logprob", "entropy")
    return replace(
        ballots, **{name: np.ascontiguousarray(getattr(ballots, name)[:, :count]) for name in names}
    )


def test_a_budget_of_all_recorded_samples_is_not_judged_for_nothing_can_be_gained_there(varied: Ballots):
    assert [row.budget for row in judge_pool(keep_samples(varied, 4), policy=MARGIN).rows] == [1.5, 2, 3]
    single = judge_pool(keep_samples(varied, 2), policy=MARGIN)
    assert [row.budget for row in single.rows] == [1.5]
    assert "; 95% interval by bootstrap-t" in single.protocol


def test_where_every_answer_is_right_nothing_is_left_to_gain(varied: Ballots):
    right = replace(varied, classes=np.zeros_like(varied.classes), correct=np.ones_like(varied.correct))
    verdict = judge_pool(right, policy=MARGIN)
    assert verdict.decided == "uniform is as good"
    assert {row.joint.high for row in verdict.rows} == {0.0}


def test_where_few_problems_have_gold_both_numbers_are_said(varied: Ballots):
    known = np.arange(66) < 5
    few = replace(
        varied,
        correct=np.where(known[:, None], varied.correct, np.nan).astype(np.float32),
        gold_known=known,
    )
    assert judge_pool(few).sentence == (
        "Too few problems to tell: 5 of 66 problems have gold answers or grades, and a verdict needs 30 at "
        "least, 25 more."
    )


def width(interval: Interval) -> float:
    assert interval.low is not None
    assert interval.high is not None
    return interval.high - interval.low


def test_problems_with_the_same_question_count_as_one(varied: Ballots):
    paired = replace(varied, prompts=tuple(varied.prompts[row // 3] for row in range(66)))
    verdict = judge_pool(paired, policy=MARGIN)
    assert (verdict.decided, verdict.problems, verdict.problems_needed) == ("too few problems to tell", 22, 8)


def test_where_nothing_can_be_compared_the_reason_is_said(varied: Ballots):
    def sentence(verdict: Verdict) -> str:
        assert verdict.decided == "nothing to compare"
        return verdict.sentence

    assert "no policy took part beside uniform" in sentence(judge_pool(varied, policy=None))
    assert "no policy took part beside uniform" in sentence(judge_pool(varied, policy="fixed"))
    alone = sentence(judge_pool(keep_samples(varied, 1)))
    assert "no problem has two samples or more; record more samples per problem" in alone
    bare = replace(
        varied, correct=np.full(varied.correct.shape, np.nan, np.float32), gold_known=np.zeros(66, dtype=bool)
    )
    assert "learns from gold answers" in sentence(judge_pool(bare, policy="curve"))
    few = sentence(judge_pool(keep_samples(bare, 3)))
    assert "without grades a problem needs 4 samples" in few
    assert "record more samples, or gold answers" in few


def test_coin_flips_without_grades_are_not_said_to_pay():
    flips = [np.random.default_rng([77, seed]).integers(0, 2, (60, 16)) for seed in range(6)]
    verdicts = [judge_pool(make_ballots(each).group("none"), policy="asc") for each in flips]
    assert {verdict.basis for verdict in verdicts} == {"agreement"}
    budgets = [row.budget for row in verdicts[0].rows]
    assert budgets == [1.5, 2, 3, 4, 6]  # of the 8 samples that don't judge
    assert sum(verdict.pays for verdict in verdicts) <= 1  # 95% intervals let one pool in forty through


def test_what_pays_is_found_without_grades_from_problems_that_none_were_shown_of():
    words = read_votes("words")
    bare = make_ballots(words.classes, prompts=words.prompts, ids=words.ids)
    fits = []
    verdict = judge_pool(bare, policy="asc", keep_fit=lambda policy, train: fits.append(train))
    assert (verdict.basis, verdict.pays) == ("agreement", True)
    assert "agree with the vote of the other half of the samples as often as" in verdict.sentence
    assert all(np.isnan(train.correct).all() and not train.gold_known.any() for train in fits)


def test_the_candidate_is_ours_or_else_the_first_one_named():
    assert choose_candidate(("fixed", "asc", "stopping", "oracle")) == "stopping"
    assert choose_candidate(("oracle", "fixed", "asc", "esc")) == "asc"
    assert choose_candidate(("fixed", MARGIN)) == MARGIN
    assert choose_candidate(("fixed", "oracle")) is None


@pytest.mark.slow
@pytest.mark.parametrize("gold", leave_to_nightly([True, False]))
def test_few_problems_are_judged_by_no_command_and_no_seed(adacompute, tmp_path: Path, gold: bool):
    (tmp_path / "a.jsonl").write_text(lines(12, gold=gold))
    few = ("--policies", "fixed,stopping", "--folds", "2", "--orders", "2", "--workers", "1")
    verdicts = [
        json.loads(adacompute("evaluate", "a.jsonl", *few, "--seed", str(seed), "--json").stdout)["verdict"]
        for seed in range(3)
    ]
    verdicts.append(json.loads(adacompute("fit", "a.jsonl", "-o", "kept", "--json").stdout)["verdict"])
    assert verdicts[0]["decided"] == "too few problems to tell"
    assert verdicts[0]["problems_needed"] == 18
    assert all(verdict == verdicts[0] for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(("problems", "short"), leave_to_nightly([(12, 0), (40, 1)]))
def test_every_command_gives_the_same_verdict(adacompute, tmp_path: Path, problems: int, short: int):
    """Of a pool with a problem of a single sample, too, which all of them leave out."""
    single = lines(problems + short, samples=1).splitlines(keepends=True)[problems:]
    (tmp_path / "a.jsonl").write_text(lines(problems) + "".join(single))
    evaluated = json.loads(
        adacompute(
            "evaluate", "a.jsonl", "--policies", "asc,fixed,stopping", "--folds", "2", "--orders", "2",
            "--seed", "5", "--workers", "1", "--budgets", "1.5", "--json",
        ).stdout
    )  # fmt: skip
    assert (evaluated["problems"], evaluated["short"]) == (problems, short)
    evaluated = evaluated["verdict"]
    fitted = json.loads(adacompute("fit", "a.jsonl", "-o", "kept", "--json").stdout)["verdict"]
    shown = adacompute("report", "a.jsonl", "-o", "page", "--quick", "--seed", "3", "--workers", "1")
    reported = json.loads((tmp_path / "page" / "results.json").read_text())
    assert evaluated == fitted == reported["verdict"]
    assert reported["headline"] == evaluated["sentence"]
    assert ("1 problem with fewer than 4 samples is left out." in " ".join(shown.stdout.split())) == (
        short > 0
    )
    assert evaluated["sentence"] in " ".join(shown.stdout.split())
    assert (evaluated["decided"] == "too few problems to tell") == (problems < FEWEST_PROBLEMS)
    if problems >= FEWEST_PROBLEMS:
        table = reported["sections"]["verdict"]["tables"]["budgets"]
        assert len(table) == len(evaluated["rows"]) == 3  # 4 samples were recorded
        assert all(math.isfinite(row["joint"]["low"]) for row in evaluated["rows"])
