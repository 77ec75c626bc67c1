"""A menu policy that nobody has fitted: plain cascades decide, from each mode to the next dearer one."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from made_menus import make_menu_ballots

from adacompute import Sample, bundled, calibrate, join_pools, load_policy, replay
from adacompute.answers import Tally
from adacompute.errors import BudgetOutOfRange, PolicyInvalid
from adacompute.policies import MenuPolicy
from adacompute.policies.modes.rules import CascadeRule, list_plain_cascades
from adacompute.pool import Ballots, Mode
from adacompute.pool.modes import Menu
from shared import share

COSTS = [
    (0.1, 1.0),
    (1.0, 1.0),
    (0.0, 1.0),
    (0.0, 0.0),
    (1e-4, 1.0),
    (5e-6, 1e-4),
    (0.1, 1.0, math.inf),
    (1, 2, 5, 9),
    (0.01, 0.1, 1.0),
]


def make_menu(*costs: float) -> Menu:
    return Menu(modes=tuple(Mode(name=f"mode {k}", cost=cost) for k, cost in enumerate(costs)))


@share
def read_facts() -> Ballots:
    with join_pools({"small": bundled("facts"), "large": bundled("facts-qwen")}) as pool:
        return pool.ballots()


def draw_all(policy: MenuPolicy, price: float, answers: dict[str, list[str | None]]) -> list[str]:
    """The modes that a request draws from, one after the other; each gives these answers in turn."""
    tally, drawn = Tally(weigh=policy.weigh), list[str]()
    while (draw := policy.next("How many?", tally, price)) is not None:
        assert draw.count == 1
        given = answers[draw.mode]
        tally.add(Sample(answer=given[drawn.count(draw.mode) % len(given)], mode=draw.mode))
        drawn.append(draw.mode)
    return drawn


@pytest.mark.parametrize("most", [2, 3, 4])
def test_no_cascade_is_expected_to_cost_more_than_the_samples_that_it_may_draw(most: int):
    rules, expected = list_plain_cascades(np.array([0.1, 1.0]), [most, most])
    for rule, cost in zip(rules, expected, strict=True):
        cheap, dear = rule.draws
        assert cost <= 0.1 * cheap + dear + 1e-12


@pytest.mark.parametrize("costs", COSTS)
def test_costs_rise_and_prices_fall_from_cascade_to_cascade(costs):
    policy = MenuPolicy(make_menu(*costs))
    assert all(isinstance(rule, CascadeRule) for rule in policy.rules_)
    assert len(policy.rules_) == len(policy.cost_) == len(policy.prices_)
    assert (np.diff(policy.cost_) > 0).all()
    assert (np.diff(policy.prices_) < 0).all()
    assert len(policy.rules_) > 1 or not any(costs)


def test_the_unit_of_costs_makes_no_difference():
    small, large = MenuPolicy(make_menu(1e-6, 1e-5)), MenuPolicy(make_menu(1e3, 1e4))
    assert small.rules_ == large.rules_
    assert large.cost_ == pytest.approx(small.cost_ * 1e9)
    assert large.prices_ == pytest.approx(small.prices_ / 1e9)


@pytest.mark.parametrize("costs", COSTS)
def test_it_decides_from_the_first_draw_on_at_any_price(costs):
    policy = MenuPolicy(make_menu(*costs))
    other = {name: [f"{k}" for k in range(policy.longest)] for name in policy.names}
    for price in (1e-9, 1e-3, 0.1, 1.0, 1e6):
        assert 1 <= len(draw_all(policy, price, other)) <= policy.longest


def test_cheap_samples_that_disagree_are_followed_by_a_dear_one_and_those_that_agree_by_none():
    policy = MenuPolicy(make_menu(0.02, 1.0))
    seen = set()
    for rule, price in zip(policy.rules_, policy.prices_.tolist(), strict=True):
        assert isinstance(rule, CascadeRule)
        if min(rule.draws) == 0:
            continue
        agreeing = draw_all(policy, price, {"mode 0": ["4"], "mode 1": ["4"]})
        assert agreeing == ["mode 0"] * rule.agree[0]
        cheap = [None] if rule.agree[0] == 1 else [None, "1", "2", "3"]
        split = draw_all(policy, price, {"mode 0": cheap, "mode 1": ["4"]})
        assert split == [*["mode 0"] * rule.draws[0], "mode 1"]
        seen.add(rule.agree[0])
    assert seen == {1, 2, 3, 4}


def test_a_dear_answer_is_worth_more_than_cheap_ones_that_disagree():
    policy = MenuPolicy(make_menu(0.001, 0.02, 1.0))
    for cheap, dear in pairwise(policy.names):
        samples = [Sample(answer=answer, mode=cheap) for answer in ("3", "3", "3", "5")]
        tally = Tally.of([*samples, Sample(answer="4", mode=dear)], weigh=policy.weigh)
        assert tally.leader == "4"


def test_of_a_very_cheap_mode_several_vote_before_a_dear_one_is_asked():
    policy = MenuPolicy(make_menu(0.001, 1.0))
    answers: dict[str, list[str | None]] = {"mode 0": ["1", "2"], "mode 1": ["3"]}
    drawn = [draw_all(policy, float(price), answers) for price in policy.prices_[:3]]
    assert drawn == [["mode 0"], ["mode 0"], ["mode 0"] * 5]


def test_the_cheapest_asks_one_cheap_sample_and_the_dearest_the_dear_mode_alone():
    policy = MenuPolicy(make_menu(0.1, 1.0))
    answers: dict[str, list[str | None]] = {"mode 0": ["1"], "mode 1": ["2"]}
    assert draw_all(policy, 1e6, answers) == ["mode 0"]
    assert draw_all(policy, 1e-9, answers) == ["mode 1"] * 4


def test_every_mode_of_a_menu_is_asked_at_some_price():
    policy = MenuPolicy(make_menu(0.001, 0.05, 1.0))
    answers: dict[str, list[str | None]] = {name: ["1", "2", "3", "4"] for name in policy.names}
    drawn = {mode for price in policy.prices_.tolist() for mode in draw_all(policy, price, answers)}
    assert drawn == set(policy.names)


def test_modes_that_cost_the_same_are_asked_by_the_last_one_alone():
    policy = MenuPolicy(make_menu(1.0, 1.0))
    answers: dict[str, list[str | None]] = {name: ["1", "2", "3", "4"] for name in policy.names}
    assert {mode for price in policy.prices_.tolist() for mode in draw_all(policy, price, answers)} == {
        "mode 1"
    }


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [3.0, 10.0, 50.0])
def test_cost_never_rises_with_the_price_on_recordings(ratio):
    ballots = read_facts().only(range(0, 353, 4))
    policy = MenuPolicy(Menu.of(ballots, costs={"small": 1 / ratio, "large": 1.0})).settle(ballots)
    prices = policy.prices_[::-1]
    costs = [replay(policy, ballots, price=float(price), orders=8).cost for price in prices]
    for before, after in pairwise(costs):
        assert after <= before * 1.01


@pytest.mark.parametrize("budget", [0.1, 0.5, 0.9, 2.0])
def test_a_budget_is_met_by_a_mix_of_two_cascades(budget):
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8}, samples=10)
    policy = MenuPolicy(Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0))))
    price = calibrate(policy, ballots, budget=budget)
    assert policy.origin_ == "settled"
    assert replay(policy, ballots, price=price).cost == pytest.approx(budget, rel=0.1)


@pytest.mark.parametrize("ratio", [1_000, 100_000])
def test_where_a_dear_sample_costs_thousands_of_cheap_ones_one_cheap_sample_may_be_all(ratio):
    policy = MenuPolicy(make_menu(1.0, float(ratio)))
    assert policy.cost_[0] == 1.0  # else budgets of less than three samples of the cheap mode can't be met
    assert (policy.cost_ < 4).sum() >= 2
    silent: dict[str, list[str | None]] = {"mode 0": [None], "mode 1": ["7"]}
    assert draw_all(policy, float(policy.prices_[0]) * 2, silent) == ["mode 0"]


def test_a_budget_below_the_cheapest_cascade_is_refused():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8}, samples=10)
    policy = MenuPolicy(Menu(modes=(Mode(name="small", cost=0.2), Mode(name="large", cost=1.0))))
    with pytest.raises(BudgetOutOfRange, match=r"budget 0\.1 is below what menu costs at any price"):
        calibrate(policy, ballots, budget=0.1)


def test_samples_settle_the_policy_once_and_no_more_are_drawn_than_are_recorded():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8}, samples=5)
    policy = MenuPolicy(Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0))))
    assert policy.settle(ballots).origin_ == "settled"
    assert [stopper.longest for stopper in policy.stoppers_] == [5, 5]
    before = policy.rules_, policy.cost_.tolist()
    other = make_menu_ballots({"small": 0.1, "large": 0.8}, samples=10, seed=3)
    policy.settle(other)
    assert (policy.rules_, policy.cost_.tolist()) == before


def test_replaying_settles_a_copy():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8})
    policy = MenuPolicy(Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0))))
    before = policy.rules_, policy.weigh
    assert replay(policy, ballots, price=0.1).cost > 0
    assert (policy.rules_, policy.weigh, policy.origin_) == (*before, "cascades")


def test_labels_make_no_difference():
    known = make_menu_ballots({"small": 0.5, "large": 0.8})
    unknown = make_menu_ballots({"small": 0.5, "large": 0.8}, graded=False)
    menu = Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0)))
    first, second = MenuPolicy(menu).settle(known), MenuPolicy(menu).settle(unknown)
    assert first.rules_ == second.rules_
    assert first.prices_.tolist() == second.prices_.tolist()


def test_fitting_replaces_the_cascades():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8})
    menu = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))
    policy = MenuPolicy(menu, longest=6).fit(ballots)
    assert policy.origin_ == "fitted"
    rules = policy.rules_
    assert policy.copy_for(ballots).rules_ == rules
    assert "origin" not in policy.settings()


@pytest.mark.parametrize("settled", [False, True])
def test_a_stored_unfitted_policy_decides_as_before(settled, tmp_path):
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8})
    policy = MenuPolicy(Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0))))
    if settled:
        policy.settle(ballots)
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, MenuPolicy)
    assert (loaded.origin_, loaded.rules_, loaded.weigh) == (policy.origin_, policy.rules_, policy.weigh)
    for price in (0.001, 0.03, 0.3, 3.0):
        first, second = (replay(each, ballots, price=price, orders=5) for each in (policy, loaded))
        assert first.each_cost.tolist() == second.each_cost.tolist()
        assert first.each_accuracy.tolist() == second.each_accuracy.tolist()


def test_a_stored_policy_without_rules_or_of_another_origin_is_refused():
    policy = MenuPolicy(make_menu(0.1, 1.0))
    with pytest.raises(PolicyInvalid, match="points"):
        MenuPolicy.restore({**policy.settings(), "rules": [], "points": []}, policy.arrays())
    with pytest.raises(PolicyInvalid, match="origin"):
        MenuPolicy.restore({**policy.settings(), "origin": "heaven"}, policy.arrays())


def test_fewer_samples_than_the_cascades_would_draw_are_respected():
    policy = MenuPolicy(make_menu(0.01, 1.0), longest=2)
    answers: dict[str, list[str | None]] = {name: ["1", "2", "3", "4"] for name in policy.names}
    for price in policy.prices_.tolist():
        drawn = draw_all(policy, price, answers)
        assert max(map(drawn.count, drawn)) <= 2


def test_cascades_that_cost_as_much_as_a_dear_sample_on_the_samples_are_left_out():
    menu = Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0)))
    useless = make_menu_ballots({"small": 0.02, "large": 0.9}, graded=False)
    classes = np.where(useless.mode == 0, np.arange(len(useless.mode)), useless.classes)
    useless = replace(useless, classes=classes.astype(np.int32))  # no two samples of the small one agree
    assert {rule.agree[0] for rule in MenuPolicy(menu).rules_} == {1, 2, 3, 4}
    assert {rule.agree[0] for rule in MenuPolicy(menu).settle(useless).rules_ if rule.draws[1]} == {1}
