"""A menu policy and its peers at the same cost, on held-out problems, and whether it is worth having."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from menu_modes import make_modes

from adacompute.errors import BudgetInvalid, PolicyError, TooFewSamples
from adacompute.evaluate import Evaluation, Match, evaluate
from adacompute.pool import join_pools
from adacompute.pool.modes import Menu

COSTS = {"small": 0.1, "large": 1.0}
BUDGETS = (0.4, 0.7)
PEERS = {
    "menu",
    "shuffled draws",
    "best fixed mix",
    "stopping, mixed",
    "joint fixed vote",
    "threshold cascade",
    "sequential cascade",
    "uniform: small",
    "uniform: large",
    "stopping: small",
    "stopping: large",
    "prompt router",
    "random router",
    "C3PO",
}


def evaluate_modes(
    *,
    problems: int = 60,
    skills: tuple[float, ...] = (),
    budgets: Sequence[float] = BUDGETS,
    graded: bool = True,
    **options: object,
) -> Evaluation:
    ballots = make_modes(problems=problems, samples=6, skills=skills, graded=graded)
    options = {"folds": 2, "orders": 6, "policies": (), **options}
    return evaluate(ballots, modes=Menu.of(ballots, costs=COSTS), budgets=budgets, **options)


def get(evaluation: Evaluation, policy: str, budget: float) -> Match:
    match = evaluation.match(policy, budget)
    assert match is not None
    return match


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    """With so few problems that no lattice is learned: the other rules decide."""
    return evaluate_modes(problems=42, budgets=(*BUDGETS, 1.5), policies=("oracle",))


def test_everyone_is_compared_at_the_same_cost(evaluation: Evaluation):
    assert set(evaluation.policies) == PEERS
    assert evaluation.policies[0] == "menu"
    for row in evaluation.matched:
        assert row.cost <= row.budget * (1 + 1e-6)
        assert 0.0 <= row.accuracy <= 1.0
        spent = sum(COSTS[name] * count for name, count in row.draws.items())
        assert spent == pytest.approx(row.cost)


def test_a_lead_is_the_difference_at_equal_cost(evaluation: Evaluation):
    for row in evaluation.matched:
        ours = get(evaluation, "menu", row.budget)
        if row.policy == "menu":
            assert row.lead is None
        else:
            assert row.lead is not None
            assert row.lead.mean == pytest.approx(ours.accuracy - row.accuracy)


def test_a_mode_that_costs_more_than_the_budget_has_no_row(evaluation: Evaluation):
    assert evaluation.match("uniform: large", 0.4) is None
    assert get(evaluation, "uniform: large", 1.5).draws["small"] == 0.0


def test_looking_at_the_votes_beats_handing_the_same_draws_to_others(evaluation: Evaluation):
    row = get(evaluation, "shuffled draws", 0.7)
    assert row.lead is not None
    assert row.lead.low is not None
    assert row.lead.low > 0.0


def test_a_fixed_mix_is_no_better_than_joint_votes_can_be(evaluation: Evaluation):
    mixed, single = (get(evaluation, name, 0.7) for name in ("best fixed mix", "random router"))
    assert mixed.accuracy >= single.accuracy - 0.05
    high = {bracket.budget: bracket.high for bracket in evaluation.oracle}
    assert list(high) == list(evaluation.budgets)
    assert high[0.7] > mixed.accuracy


def test_an_evaluation_is_plain_data(evaluation: Evaluation):
    stored = json.loads(json.dumps(evaluation.to_dict()))
    assert Menu.load(stored["menu"]) == evaluation.mode_set
    assert len(stored["matched"]) == len(evaluation.matched)
    assert [row["budget"] for row in stored["verdict"]["rows"]] == [0.4, 0.7, 1.5]
    assert "2 folds over 42 problems" in stored["verdict"]["protocol"]


def test_the_verdict_agrees_with_its_interval(evaluation: Evaluation):
    verdict = evaluation.verdict
    gain = verdict.gains["single modes"]
    assert gain.low is not None
    assert gain.high is not None
    expected = "pays" if gain.low > 0 else "not decided yet"
    assert verdict.decided == ("single modes are as good" if gain.high < 0.005 else expected)
    assert verdict.pays == (verdict.sentence == "A menu of these modes is worth it.")
    assert f"{100 * gain.mean:.1f} points" in verdict.support


def test_savings_are_what_single_modes_cost_for_the_same(evaluation: Evaluation):
    row = evaluation.verdict.row(0.7)
    assert row is not None
    assert row.worth.mean > 0.1


@pytest.mark.nightly
def test_a_saving_is_told_only_where_the_menu_gains_for_sure():
    evaluation = evaluate_modes(budgets=(0.3, 0.7, 6.0), problems=200)
    (sentence,) = [part for part in evaluation.verdict.support.split(". ") if part.startswith("At 0")]
    budget = float(sentence.split()[1])
    leads = [get(evaluation, policy, budget).lead for policy in ("best fixed mix", "stopping, mixed")]
    assert all(lead is not None and lead.low is not None and lead.low > 0 for lead in leads)
    assert not all(row.lead is None or (row.lead.low or 0) > 0 for row in evaluation.matched)


def test_a_mode_that_is_never_right_is_not_worth_having():
    evaluation = evaluate_modes(skills=(0.0, 0.7), budgets=(2.0, 3.0), groups="subject")
    assert not evaluation.verdict.pays
    assert evaluation.groups == evaluation.verdict.groups == 10
    assert "60 problems in 10 groups" in evaluation.verdict.protocol


def test_of_few_groups_no_interval_is_shown():
    evaluation = evaluate_modes(problems=48, groups="subject")
    assert evaluation.verdict.decided == "too few problems to tell"
    assert "48 problems in 8 groups" in evaluation.verdict.support
    assert all(match.low is None and match.lead in (None, match.lead) for match in evaluation.matched)
    assert all(row.gain.low is None for row in evaluation.verdict.rows)


def test_without_grades_agreement_with_the_dearest_mode_is_judged():
    evaluation = evaluate_modes(graded=False)
    assert evaluation.basis == "agreement"
    assert evaluation.match("prompt router", 0.7) is None
    assert "agrees with the other half of the most expensive mode's samples" in evaluation.verdict.support


@pytest.mark.nightly
def test_several_processes_give_the_same_numbers():
    assert evaluate_modes(workers=2).to_dict() == evaluate_modes().to_dict()


@pytest.mark.nightly
def test_two_models_on_facts_are_worth_having_together():
    with join_pools({"smol": "facts", "qwen": "facts-qwen"}) as pool:
        menu = Menu.of(pool, costs={"smol": 0.1, "qwen": 1.0})
        evaluation = evaluate(
            pool, modes=menu, budgets=[0.5, 0.7], folds=2, orders=8, policies=(), groups="none"
        )
    assert evaluation.verdict.pays
    assert get(evaluation, "menu", 0.7).accuracy > 0.76
    cascade = get(evaluation, "sequential cascade", 0.7).lead
    assert cascade is not None
    assert cascade.mean > 0.0


def test_budgets_and_menus_that_cannot_be_compared_are_refused():
    ballots = make_modes(problems=12, samples=4)
    menu = Menu.of(ballots, costs=COSTS)
    with pytest.raises(BudgetInvalid, match=r"budget 0.05 is too small: .* 'small', costs 0.1"):
        evaluate(ballots, modes=menu, budgets=[0.05])
    with pytest.raises(BudgetInvalid, match="no budget is given"):
        evaluate(ballots, modes=menu, budgets=[])
    with pytest.raises(PolicyError, match="there is nothing to compare: of the modes, 1 may be drawn"):
        evaluate(ballots, modes=Menu.of(ballots, costs={"small": 0.1, "large": np.inf}))
    with pytest.raises(TooFewSamples, match="12 problems are all alike, so none can be held out"):
        evaluate(replace(ballots, subjects=("sums",) * 12), modes=menu, budgets=[0.5], groups="subject")
