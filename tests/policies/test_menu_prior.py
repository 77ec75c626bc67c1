"""A menu policy that nobody has fitted: it decides by the bundled prior, at any price ratio."""

import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from made_menus import make_menu_ballots

from adacompute import Sample, bundled, calibrate, join_pools, load_policy, replay
from adacompute.answers import Tally
from adacompute.errors import PolicyError, PolicyInvalid
from adacompute.evaluate.menu_peers import JointVotes, follow_votes, join_settings, mix_points
from adacompute.policies import MenuPolicy
from adacompute.policies.menu.prior import MenuPrior, PairKind, load_menu_prior, measure_kind
from adacompute.policies.menu.rules import CascadeRule, StoppingRule
from adacompute.policies.menu.votes import draw_menu_paths
from adacompute.pool.menu import Menu, MenuBallots, Mode
from shared import share

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "menu_prior.py"
KINDS = (None, PairKind(0.05, 0.01), PairKind(0.4, 0.14), PairKind(0.6, 0.06), PairKind(1.0, 0.0))
RATIOS = (1.0, 1.1, 2.0, 5.0, 10.0, 30.0, 100.0, 1e4)


def make_menu(*costs: float) -> Menu:
    return Menu(modes=tuple(Mode(name=f"mode {k}", cost=cost) for k, cost in enumerate(costs)))


@share
def read_facts() -> MenuBallots:
    with join_pools({"small": bundled("facts"), "large": bundled("facts-qwen")}) as pool:
        return pool.ballots()


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("kind", KINDS)
def test_at_every_ratio_costs_rise_and_prices_fall_from_rule_to_rule(ratio, kind):
    chosen = load_menu_prior().choose((1.0, ratio), kind)
    assert len(chosen.rules) == len(chosen.cost) == len(chosen.worth) > 1
    assert (np.diff(chosen.cost) > 0).all()
    slopes = np.diff(chosen.worth) / np.diff(chosen.cost)
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_of_costs_makes_no_difference(kind):
    prior = load_menu_prior()
    small, large = prior.choose((1e-6, 1e-5), kind), prior.choose((1e3, 1e4), kind)
    assert small.rules == large.rules
    assert large.cost == pytest.approx(small.cost * 1e9)


def test_the_cheapest_budget_is_one_cheap_sample_and_a_dearer_one_is_a_dear_sample():
    rules = load_menu_prior().choose((0.1, 1.0)).rules
    assert rules[0] == StoppingRule(0, 0.0, 1)
    assert StoppingRule(1, 0.0, 1) in rules
    assert isinstance(rules[-1], StoppingRule)
    assert rules[-1].mode == 1


def test_modes_that_cost_the_same_are_asked_by_the_dear_one_alone():
    rules = load_menu_prior().choose((1.0, 1.0)).rules
    assert {rule.mode for rule in rules if isinstance(rule, StoppingRule)} == {1}


def test_cascades_are_for_known_kinds_and_high_ratios_only():
    prior = load_menu_prior()

    def escalates(ratio: float, kind: PairKind | None) -> bool:
        rules = prior.choose((1.0, ratio), kind).rules
        return any(isinstance(rule, CascadeRule) and rule.draws[1] > 0 for rule in rules)

    good = PairKind(0.55, 0.05)
    assert escalates(50.0, good)
    assert not escalates(10.0, good)
    assert not escalates(50.0, None)


@pytest.mark.parametrize(
    "costs", [(0.1, 1.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (1e-4, 1.0), (0.1, 1.0, math.inf), (1, 2, 5, 9)]
)
def test_an_unfitted_menu_decides_from_the_first_draw_on_at_any_price(costs):
    policy = MenuPolicy(make_menu(*costs))
    ends = {policy.names[0], policy.names[-1]}
    for price in (1e-9, 1e-3, 0.1, 1.0, 1e6):
        tally, drawn = Tally(weigh=policy.weigh), 0
        while (draw := policy.next("How many?", tally, price)) is not None:
            assert draw.mode in ends
            assert draw.count == 1
            tally.add(Sample(answer=f"{drawn}", mode=draw.mode))
            drawn += 1
        assert 1 <= drawn <= policy.longest


def test_agreeing_cheap_samples_are_worth_stopping_at_and_no_answer_is_worth_another_try():
    policy = MenuPolicy(make_menu(0.01, 1.0))
    price = float(policy.prices_[1])  # the second rule
    empty = Tally.of([Sample(answer=None, mode="mode 0")], weigh=policy.weigh)
    again = policy.next("How many?", empty, price)
    assert again is not None
    assert again.mode == "mode 0"
    agreed = Tally.of([Sample(answer="4", mode="mode 0")] * 4, weigh=policy.weigh)
    assert policy.next("How many?", agreed, price) is None


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [3.0, 10.0, 50.0])
def test_cost_never_rises_with_the_price_on_recordings(ratio):
    ballots = read_facts().only(range(0, 353, 4))
    policy = MenuPolicy(Menu.of(ballots, costs={"small": 1 / ratio, "large": 1.0})).settle(ballots)
    prices = policy.prices_[::-1]
    costs = [replay(policy, ballots, price=float(price), orders=8).cost for price in prices]
    for before, after in pairwise(costs):
        assert after <= before * 1.01


def test_a_budget_is_met_and_samples_settle_the_policy_once():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8}, samples=10)
    menu = Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0)))
    policy = MenuPolicy(menu)
    assert policy.origin_ == "prior"
    price = calibrate(policy, ballots, budget=0.5)
    assert policy.origin_ == "settled"
    assert [stopper.longest for stopper in policy.stoppers_] == [8, 10]  # no more than are recorded
    assert replay(policy, ballots, price=price).cost == pytest.approx(0.5, rel=0.1)
    rules = policy.rules_
    other = make_menu_ballots({"small": 0.1, "large": 0.8}, samples=10, seed=3)
    assert policy.settle(other).rules_ == rules


def test_replaying_settles_a_copy():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8})
    menu = Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0)))
    policy = MenuPolicy(menu)
    before = policy.rules_, policy.weigh
    assert replay(policy, ballots, price=0.1).cost > 0
    assert (policy.rules_, policy.weigh, policy.origin_) == (*before, "prior")


def test_labels_make_no_difference():
    known = make_menu_ballots({"small": 0.5, "large": 0.8})
    unknown = make_menu_ballots({"small": 0.5, "large": 0.8}, graded=False)
    menu = Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0)))
    first, second = MenuPolicy(menu).settle(known), MenuPolicy(menu).settle(unknown)
    assert first.rules_ == second.rules_
    assert first.prices_.tolist() == second.prices_.tolist()


def test_fitting_replaces_the_prior():
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
    menu = Menu(modes=(Mode(name="small", cost=0.02), Mode(name="large", cost=1.0)))
    policy = MenuPolicy(menu)
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


def test_an_unfitted_policy_that_was_stored_without_rules_takes_the_prior():
    policy = MenuPolicy(make_menu(0.1, 1.0))
    settings = {**policy.settings(), "rules": [], "points": [], "stoppers": [], "votes": None}
    del settings["origin"]
    assert MenuPolicy.restore(settings, {}).rules_ == policy.rules_
    with pytest.raises(PolicyInvalid, match="origin"):
        MenuPolicy.restore({**policy.settings(), "origin": "heaven"}, policy.arrays())


def test_fewer_samples_than_the_prior_would_draw_are_respected():
    policy = MenuPolicy(make_menu(0.01, 1.0), longest=2)
    for price in policy.prices_:
        tally = Tally(weigh=policy.weigh)
        while (draw := policy.next("How many?", tally, float(price))) is not None:
            tally.add(Sample(answer=f"{tally.drawn}", mode=draw.mode))
        assert max(tally.drawn_by_mode.values()) <= 2


def test_the_kind_of_modes_is_measured_without_labels_and_needs_some_problems():
    menu = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))
    good = measure_kind(make_menu_ballots({"small": 0.7, "large": 0.8}, graded=False), menu, None)
    bad = measure_kind(make_menu_ballots({"small": 0.1, "large": 0.8}, graded=False), menu, None)
    assert good is not None
    assert bad is not None
    assert good.likeness > bad.likeness + 0.2
    assert measure_kind(make_menu_ballots({"small": 0.7, "large": 0.8}, problems=8), menu, None) is None


@pytest.mark.slow
def test_pairs_of_the_same_questions_are_left_out():
    prior, facts = load_menu_prior(), read_facts()
    assert {pair.name for pair in prior.pairs} - {
        pair.name for pair in prior.leave_out(facts.prompts).pairs
    } == {"facts"}
    assert prior.leave_out(["What is new?"]).pairs == prior.pairs
    assert prior.leave_out(facts.prompts[::4]).pairs != prior.pairs


@pytest.mark.slow
def test_on_facts_which_it_has_not_seen_it_is_not_below_the_best_fixed_mix_beyond_noise():
    """Chosen with labels on these very problems, the mix has the advantage; half a point is noise."""
    ballots = read_facts()
    menu = Menu.of(ballots, costs={"small": 1 / 30, "large": 1.0})
    policy = MenuPolicy(menu)
    for budget in (0.3, 0.6):
        price = calibrate(policy, ballots, budget=budget, orders=20)
        result = replay(policy, ballots, price=price, orders=20)
        assert result.accuracy is not None
        paths = draw_menu_paths(
            ballots, menu, weigh=policy.weigh, longest=(16, 16), orders=20, rng=np.random.default_rng(5)
        )
        votes = JointVotes(paths, judged=paths.grade, chosen=paths.grade)
        fixed = join_settings([follow_votes(votes, mode) for mode in (0, 1)])
        mix = mix_points(fixed.cost.mean(axis=1), fixed.accuracy.mean(axis=1), result.cost)
        assert result.accuracy.mean >= mix.apply(fixed.accuracy).mean() - 0.005


def test_a_prior_that_is_not_one_is_refused():
    stored = load_menu_prior().dump()
    assert MenuPrior.load(stored).rules == load_menu_prior().rules
    pair = {**stored["pairs"][0], "points": [[1, 0, 0.5]]}
    with pytest.raises(PolicyInvalid, match="3 numbers a rule"):
        MenuPrior.load({**stored, "pairs": [pair]})
    with pytest.raises(PolicyError, match="is not known"):
        MenuPrior.load({**stored, "rules": [{"rule": "guess"}]})


@pytest.fixture
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("menu_prior", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = sys.path[:]
    sys.path.insert(0, str(SCRIPT.parent))
    sys.modules["menu_prior"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path
    del sys.modules["menu_prior"]


@pytest.mark.slow
def test_the_kept_prior_is_what_the_script_makes(script):
    if not (script.RECORDINGS / "README.md").is_file():
        pytest.skip("the recordings are not beside the checkout")
    kept = json.loads(script.FILE.read_text("utf-8"))
    rules = script.list_rules()
    assert [rule.dump() for rule in rules] == kept["rules"]
    assert [pair["name"] for pair in kept["pairs"]] == list(script.list_pairs())
    for number in (0, 5):  # one with log-probabilities and one without: all of them take a minute
        name, files = list(script.list_pairs().items())[number]
        pair = script.measure_pair(name, script.read_menu_ballots(files), rules)
        made = replace(load_menu_prior(), pairs=(pair,)).dump()["pairs"][0]
        assert made["sketch"] == kept["pairs"][number]["sketch"]
        assert np.allclose(made["kind"], kept["pairs"][number]["kind"], atol=1e-6)
        assert np.allclose(made["points"], kept["pairs"][number]["points"], atol=2e-4)  # rounded to 4 digits
