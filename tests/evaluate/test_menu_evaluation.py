"""A menu policy and its peers at the same cost, on held-out problems, and whether it is worth having."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from menu_modes import make_modes

from adacompute.errors import BudgetInvalid, PolicyError, TooFewSamples
from adacompute.evaluate import Bootstrap, evaluate_menu
from adacompute.evaluate.menu_evaluation import MenuEvaluation
from adacompute.policies.menu import MenuPolicy
from adacompute.pool import Mode, join_pools
from adacompute.pool.menu import Menu

COSTS = {"small": 0.1, "large": 1.0}
BUDGETS = (0.4, 0.7)
PEERS = {
    "menu",
    "shuffled",
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
    "transferred",
}


def evaluate_modes(
    *,
    problems: int = 60,
    skills: tuple[float, ...] = (),
    budgets: Sequence[float] = BUDGETS,
    graded: bool = True,
    **options: object,
) -> MenuEvaluation:
    ballots = make_modes(problems=problems, samples=6, skills=skills, graded=graded)
    options = {"folds": 2, "orders": 6, "oracle": False, **options}
    return evaluate_menu(ballots, Menu.of(ballots, costs=COSTS), budgets=budgets, **options)


@pytest.fixture(scope="module")
def evaluation() -> MenuEvaluation:
    """With so few problems that no lattice is learned: the other rules decide."""
    taught = make_modes(problems=20, samples=8, seed=3)
    policy = MenuPolicy(Menu.of(taught, costs=COSTS)).fit(taught)
    return evaluate_modes(problems=42, budgets=(*BUDGETS, 1.5), oracle=True, fitted={"transferred": policy})


def test_everyone_is_compared_at_the_same_cost(evaluation: MenuEvaluation):
    assert set(evaluation.policies) == PEERS
    assert evaluation.policies[0] == "menu"
    for row in evaluation.rows:
        assert row.cost <= row.budget * (1 + 1e-6)
        assert 0.0 <= row.accuracy.mean <= 1.0
        spent = sum(COSTS[name] * count for name, count in row.draws.items())
        assert spent == pytest.approx(row.cost)


def test_a_gain_is_the_difference_at_equal_cost(evaluation: MenuEvaluation):
    for row in evaluation.rows:
        ours = evaluation.get("menu", row.budget)
        if row.policy == "menu":
            assert row.gain is None
        else:
            assert row.gain is not None
            assert row.gain.mean == pytest.approx(ours.accuracy.mean - row.accuracy.mean)


def test_a_mode_that_costs_more_than_the_budget_has_no_row(evaluation: MenuEvaluation):
    assert evaluation.find("uniform: large", 0.4) is None
    assert evaluation.get("uniform: large", 1.5).draws["small"] == 0.0
    with pytest.raises(
        PolicyError, match=r"no row of 'uniform: large' at 0\.4; .* budgets are 0\.4, 0\.7, 1\.5"
    ):
        evaluation.get("uniform: large", 0.4)


def test_looking_at_the_votes_beats_handing_the_same_draws_to_others(evaluation: MenuEvaluation):
    row = evaluation.get("shuffled", 0.7)
    assert row.gain is not None
    assert row.gain.low is not None
    assert row.gain.low > 0.0


def test_a_fixed_mix_is_no_better_than_joint_votes_can_be(evaluation: MenuEvaluation):
    mixed, single = (evaluation.get(name, 0.7) for name in ("best fixed mix", "random router"))
    assert mixed.accuracy.mean >= single.accuracy.mean - 0.05
    high = {bracket.budget: bracket.high for bracket in evaluation.oracle}
    assert list(high) == list(evaluation.budgets)
    assert high[0.7] > mixed.accuracy.mean


def test_an_evaluation_is_plain_data(evaluation: MenuEvaluation):
    stored = json.loads(json.dumps(evaluation.to_dict()))
    assert Menu.load(stored["menu"]) == evaluation.menu
    assert len(stored["rows"]) == len(evaluation.rows)
    assert set(stored["savings"]) == {"0.4", "0.7", "1.5"}
    assert "2 folds over problems" in stored["protocol"]


def test_a_policy_fitted_elsewhere_is_judged_beside_the_others(evaluation: MenuEvaluation):
    row = evaluation.get("transferred", 0.7)
    assert row.cost == pytest.approx(
        0.7
    )  # its price is chosen by cost, though its costs elsewhere were others
    assert row.accuracy.mean > evaluation.get("shuffled", 0.7).accuracy.mean


def test_the_verdict_agrees_with_its_interval(evaluation: MenuEvaluation):
    gain = evaluation.gain
    assert gain is not None
    assert gain.low is not None
    assert gain.high is not None
    expected = False if gain.high < 0.005 else (True if gain.low > 0 else None)
    assert evaluation.worth is expected
    assert evaluation.verdict.startswith(
        {True: "Worth it", False: "Not worth it", None: "Can't tell"}[expected]
    )
    assert f"{100 * gain.mean:.1f} points" in evaluation.verdict


def test_savings_are_what_single_modes_cost_for_the_same(evaluation: MenuEvaluation):
    saved = evaluation.savings[0.7]
    assert saved is None or saved > 0.1


@pytest.mark.nightly
def test_a_saving_is_told_only_where_the_menu_gains_for_sure():
    evaluation = evaluate_modes(budgets=(0.3, 0.7, 6.0), problems=200)
    (sentence,) = [part for part in evaluation.verdict.split(". ") if part.startswith("At ")]
    budget = float(sentence.split()[1])
    gains = [evaluation.get(policy, budget).gain for policy in ("best fixed mix", "stopping, mixed")]
    assert all(gain is not None and gain.low is not None and gain.low > 0 for gain in gains)
    assert not all(row.gain is None or (row.gain.low or 0) > 0 for row in evaluation.rows)


def test_a_mode_that_is_never_right_is_not_worth_having():
    evaluation = evaluate_modes(skills=(0.0, 0.7), budgets=(2.0, 3.0), families=True)
    assert evaluation.worth is not True
    assert evaluation.families
    assert "families" in evaluation.protocol


def test_without_grades_agreement_with_the_dearest_mode_is_judged():
    evaluation = evaluate_modes(graded=False)
    assert evaluation.basis == "agreement"
    assert evaluation.find("prompt router", 0.7) is None
    assert "the answer of all samples of the dearest mode" in evaluation.verdict


@pytest.mark.nightly
def test_several_processes_give_the_same_numbers():
    assert evaluate_modes(workers=2).to_dict() == evaluate_modes().to_dict()


@pytest.mark.nightly
def test_two_models_on_facts_are_worth_having_together():
    with join_pools({"smol": "facts", "qwen": "facts-qwen"}) as pool:
        menu = Menu.of(pool, costs={"smol": 0.1, "qwen": 1.0})
        evaluation = evaluate_menu(pool, menu, budgets=[0.5, 0.7], folds=2, orders=8, oracle=False)
    assert evaluation.worth is True
    assert evaluation.get("menu", 0.7).accuracy.mean > 0.76
    cascade = evaluation.get("sequential cascade", 0.7).gain
    assert cascade is not None
    assert cascade.mean > 0.0


def test_whole_families_are_resampled():
    families = ["a", "a", "b", "c", "c", "c"]
    shares = Bootstrap.of_groups(families).shares
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert np.allclose(shares[:, 0], shares[:, 1])
    assert np.allclose(shares[:, 3], shares[:, 5])
    assert not np.allclose(shares[:, 0], shares[:, 2])


def test_a_policy_of_other_modes_is_refused():
    ballots = make_modes(problems=12, samples=4)
    menu = Menu.of(ballots, costs=COSTS)
    other = Menu(modes=(Mode(name="tiny", cost=0.1), Mode(name="large", cost=1.0)))
    with pytest.raises(
        PolicyError, match="policy 'other' is for modes tiny, large, and the menu has small, large"
    ):
        evaluate_menu(ballots, menu, budgets=[0.5], fitted={"other": MenuPolicy(other)})


def test_budgets_and_menus_that_cannot_be_compared_are_refused():
    ballots = make_modes(problems=12, samples=4)
    menu = Menu.of(ballots, costs=COSTS)
    with pytest.raises(BudgetInvalid, match=r"budget 0.05 is below .* \(0.1 for 'small'\)"):
        evaluate_menu(ballots, menu, budgets=[0.05])
    with pytest.raises(BudgetInvalid, match="no budget is given"):
        evaluate_menu(ballots, menu, budgets=[])
    with pytest.raises(PolicyError, match="a menu of 1 mode that may be drawn leaves nothing to compare"):
        evaluate_menu(ballots, Menu.of(ballots, costs={"small": 0.1, "large": np.inf}))
    with pytest.raises(TooFewSamples, match="20 folds can't be made of 2"):
        evaluate_menu(ballots, menu, budgets=[0.5], folds=20, families=True)
