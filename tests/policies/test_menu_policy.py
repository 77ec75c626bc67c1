"""A policy over a menu: what it decides live and in replay, its laws, and what it refuses."""

import functools
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_menus import make_menu_ballots

from adacompute import Sample, StoppingPolicy, calibrate, load_policy, replay
from adacompute.answers import Tally
from adacompute.errors import PolicyError, PolicyInvalid, RecordNotFound, TooFewSamples
from adacompute.policies import Draw, FixedPolicy, MenuPolicy
from adacompute.policies.modes.rules import dump_rule
from adacompute.policies.paths import _shuffle, draw_paths_by_mode
from adacompute.policies.votes import VotesByMode
from adacompute.pool import Mode
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.pool.modes import Menu
from adacompute.records import TokenPrices
from adacompute.replay import run_policy
from shared import share
from tiers import leave_to_nightly

PRICES = (0.01, 0.1, 0.3, 1.0)
LONGEST = 4  # samples of a mode: to fit on more takes as many times as long
NAMES = {"small": 0.45, "large": 0.8}
MENU = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))


@functools.cache
def recorded(logprobs: bool = True, graded: bool = True, problems: int = 80) -> Ballots:
    return make_menu_ballots(NAMES, logprobs=logprobs, graded=graded, problems=problems)


@share
def fitted(logprobs: bool = True, graded: bool = True, problems: int = 80) -> MenuPolicy:
    return MenuPolicy(MENU, longest=LONGEST).fit(recorded(logprobs, graded, problems))


def draw_live(policy: MenuPolicy, ballots: Ballots, problem: int, orders: list[np.ndarray], price: float):
    """Draws as a gateway would: a tally of samples with modes, and `next`."""
    tally, counts = Tally(weigh=policy.weigh), dict.fromkeys(policy.names, 0)
    while (draw := policy.next(ballots.prompts[problem], tally, price)) is not None:
        mode = policy.names.index(draw.mode)
        for _ in range(draw.count):
            votes, at = ballots.parts[mode], orders[mode][problem, 0, counts[draw.mode]]
            number = int(votes.classes[problem, at])
            answer = None if number == ABSTAINS else f"answer {number}"
            logprob = float(votes.logprob[problem, at])
            tally.add(
                Sample(
                    answer=answer,
                    mode=draw.mode,
                    tokens=int(votes.tokens[problem, at]),
                    logprob=None if math.isnan(logprob) else logprob,
                )
            )
            counts[draw.mode] += 1
    return tally, counts


@pytest.mark.parametrize("unfitted", [False, True])
@pytest.mark.parametrize("logprobs", leave_to_nightly([True, False]))
def test_live_and_replayed_requests_draw_the_same_samples_and_give_the_same_answer(logprobs, unfitted):
    ballots = recorded(logprobs)
    policy = MenuPolicy(MENU, longest=LONGEST).settle(ballots) if unfitted else fitted(logprobs)
    assert (policy.model_ is None) == unfitted
    longest = [stopper.longest for stopper in policy.stoppers_]
    for price in PRICES:
        rng = np.random.default_rng(7)
        orders = [_shuffle(votes, 1, count, rng) for votes, count in zip(ballots.parts, longest, strict=True)]
        paths = draw_paths_by_mode(
            ballots.select(MENU.modes),
            weigh=policy.weigh,
            longest=longest,
            orders=1,
            rng=np.random.default_rng(7),
        )
        run = run_policy(policy, paths, dial=price)
        for problem in range(len(ballots)):
            tally, counts = draw_live(policy, ballots, problem, orders, price)
            assert list(counts.values()) == run.by_mode[problem].tolist()
            assert (tally.leader == "answer 0") == bool(run.grade[problem])
    own = np.resize(PRICES, len(paths))
    mixed = run_policy(policy, paths, dial=own).by_mode
    for price in PRICES:
        alone = run_policy(policy, paths, dial=price).by_mode
        assert (mixed[own == price] == alone[own == price]).all()


def test_a_menu_of_one_mode_decides_as_stopping_does():
    votes = recorded().parts[1]
    menu = Menu(modes=(Mode(name="large", cost=2.0),))
    policy = MenuPolicy(menu, longest=8).fit(votes)
    stopping = StoppingPolicy(longest=8, unit="money", draw_cost=2.0).fit(votes)
    rng = np.random.default_rng(0)
    for _ in range(300):
        count = int(rng.integers(0, 8))
        samples = [
            Sample(answer=str(answer), mode="large", tokens=10, logprob=float(-rng.exponential(3)))
            for answer in rng.integers(0, 3, count)
        ]
        tally, price = Tally.of(samples, weigh=policy.weigh), float(np.exp(rng.uniform(-7, -1)))
        more = stopping.more("question 1 of 80", tally, price)
        assert policy.next("question 1 of 80", tally, price) == (
            Draw(mode="large", count=more) if more else None
        )
        assert policy.more("question 1 of 80", tally, price) == more


def test_a_menu_of_one_mode_is_replayed_in_the_unit_of_its_menu():
    votes = recorded().parts[1]
    policy = MenuPolicy(Menu(modes=(Mode(name="large", cost=2.0),)), longest=8).fit(votes)
    price = calibrate(policy, votes, 5.0)
    result = replay(policy, votes, price=price)
    assert result.cost == pytest.approx(5.0, rel=0.05)
    assert result.draws["large"] * 2.0 == pytest.approx(result.cost)


@pytest.mark.slow
@pytest.mark.nightly  # `replay/test_budgets.py` has another
def test_a_budget_between_two_rules_is_met_by_dividing_requests():
    policy, ballots = fitted(), recorded()
    for budget in (0.3, 0.6, 1.2):
        result = replay(policy, ballots, price=calibrate(policy, ballots, budget, tolerance=0.02))
        assert result.cost == pytest.approx(budget, rel=0.08)
        spent = sum(result.draws[name] * cost for name, cost in zip(policy.names, policy.costs, strict=True))
        assert spent == pytest.approx(result.cost)
        assert result.unit == "cost"


@pytest.mark.nightly
@given(seed=st.integers(0, 10**6), small=st.floats(0.2, 0.6), cost=st.floats(0.02, 0.9))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_cost_never_rises_with_the_price_in_the_mean(seed, small, cost):
    ballots = make_menu_ballots({"small": small, "large": 0.8}, problems=84, samples=8, seed=seed)
    menu = Menu(modes=(Mode(name="small", cost=cost), Mode(name="large", cost=1.0)))
    policy = MenuPolicy(menu, longest=LONGEST).fit(ballots)
    assert policy.model_ is not None
    assert (np.diff(policy.cost_) > 0).all()
    assert (np.diff(policy.prices_) < 0).all()
    prices = policy.prices_[::-1]
    between = np.sqrt(prices[1:] * prices[:-1])
    ascending = np.sort(np.concatenate([prices, between]))
    costs = [replay(policy, ballots, price=float(price), orders=40).cost for price in ascending]
    for before, after in pairwise(costs):  # of other orders than it was fitted on
        assert after <= before * 1.03 + 0.01


@pytest.mark.nightly
def test_every_rule_costs_about_what_it_was_kept_for():
    """Its cost is of cross-fitted decisions; those that are kept cost about as much."""
    ballots = make_menu_ballots({"small": 0.45, "large": 0.8}, problems=80, logprobs=False, seed=5)
    policy = MenuPolicy(MENU, longest=LONGEST).fit(ballots)
    for cost, price in zip(policy.cost_, policy.prices_, strict=True):
        assert replay(policy, ballots, price=float(price), orders=20).cost == pytest.approx(
            cost, rel=0.3, abs=0.15
        )


@pytest.mark.slow
def test_a_mode_of_infinite_cost_is_never_drawn():
    ballots = make_menu_ballots({**NAMES, "best": 0.95})
    menu = Menu(modes=(*MENU.modes, Mode(name="best", cost=math.inf)))
    policy = MenuPolicy(menu, longest=6).fit(ballots)
    assert policy.names == ("small", "large")
    without = MenuPolicy(MENU, longest=6).fit(ballots.select(MENU.names))
    assert policy.cost_.tolist() == without.cost_.tolist()  # what it can't draw tells it nothing
    assert policy.accuracy_.tolist() == without.accuracy_.tolist()
    for price in (0.0, *PRICES):
        assert set(replay(policy, ballots, price=price).draws) == {"small", "large"}


@pytest.mark.nightly
def test_two_copies_of_a_mode_are_worth_no_less_than_one():
    ballots = make_menu_ballots({"one": 0.6, "two": 0.6}, problems=84, samples=8, seed=3)
    both = Menu(modes=(Mode(name="one", cost=1.0), Mode(name="two", cost=1.0)))
    policy = MenuPolicy(both, longest=LONGEST).fit(ballots)
    stopping = StoppingPolicy(longest=LONGEST).fit(ballots.parts[0])
    for budget in (2.0, 3.0):
        single = replay(
            stopping, ballots.parts[0], price=calibrate(stopping, ballots.parts[0], budget)
        ).accuracy.mean
        double = replay(policy, ballots, price=calibrate(policy, ballots, budget)).accuracy.mean
        assert double >= single - 0.02


def test_a_cheap_mode_that_is_as_good_takes_all_requests():
    ballots = make_menu_ballots({"small": 0.8, "large": 0.8})
    policy = MenuPolicy(MENU, longest=6).fit(ballots)
    result = replay(policy, ballots, price=0.3)
    assert result.draws["small"] >= 1.0
    assert result.draws["large"] < 0.1


@pytest.mark.nightly
def test_it_is_as_good_as_one_mode_where_the_other_is_useless():
    ballots = make_menu_ballots({"small": 0.02, "large": 0.7}, problems=84)
    policy = MenuPolicy(MENU, longest=LONGEST).fit(ballots)
    stopping = StoppingPolicy(longest=LONGEST).fit(ballots.parts[1])
    for budget in (1.5, 2.5):
        alone = replay(
            stopping, ballots.parts[1], price=calibrate(stopping, ballots.parts[1], budget)
        ).accuracy.mean
        assert replay(policy, ballots, price=calibrate(policy, ballots, budget)).accuracy.mean >= alone - 0.02


@pytest.mark.parametrize("graded", [True, False])
def test_with_few_problems_it_decides_by_cascades_and_single_modes(graded):
    policy = fitted(graded=graded, problems=12)
    assert policy.model_ is None
    assert {dump_rule(rule)["rule"] for rule in policy.rules_} <= {"cascade", "confidence", "stopping"}
    assert replay(policy, recorded(graded=graded, problems=12), price=0.1).cost > 0


@pytest.mark.nightly
def test_without_labels_agreement_with_the_dearest_mode_stands_in_for_them():
    policy = fitted(graded=False)
    assert policy.labels_ is False
    cheap, dear = (replay(policy, recorded(graded=False), price=price) for price in (1.0, 0.05))
    assert math.isnan(cheap.accuracy.mean)
    assert dear.agreement > cheap.agreement
    with pytest.raises(PolicyError, match="labels were asked for"):
        MenuPolicy(MENU, longest=6).fit(recorded(graded=False), labels=True)


@pytest.mark.nightly
def test_for_new_families_rules_are_compared_on_groups_they_were_not_learned_on():
    """The same problems give other estimates, as folds are of whole groups; of few no lattice is learned."""
    ballots = make_menu_ballots({"small": 0.5, "large": 0.8}, problems=84, samples=8, logprobs=False, seed=4)
    families = tuple(f"family {number % 7}" for number in range(84))
    known = replace(ballots, subjects=families).group("subject")
    policy = MenuPolicy(MENU, longest=LONGEST, families=True).fit(known)
    assert policy.model_ is not None
    assert policy.settings()["families"] is True
    plain = MenuPolicy(MENU, longest=LONGEST).fit(known)
    assert policy.cost_.tolist() != plain.cost_.tolist()
    assert replay(policy, known, price=0.2).cost > 0
    two = replace(ballots, subjects=tuple(f"{number % 2}" for number in range(84))).group("subject")
    assert MenuPolicy(MENU, longest=LONGEST, families=True).fit(two).model_ is None


def test_problems_with_too_few_samples_are_refused_or_left_out():
    ballots, policy = recorded(), fitted()
    short = Ballots.join({"small": ballots["small"], "large": _cut(ballots["large"], row=3, samples=2)})
    with pytest.raises(TooFewSamples, match=f"fewer than the {LONGEST} samples"):
        replay(policy, short, price=0.3)
    result = replay(policy, short, price=0.3, too_few="drop", orders=5)
    assert result.dropped == (ballots.ids[3],)
    assert result.problems == 79
    assert calibrate(policy, short, 0.5, too_few="drop", orders=5) > 0
    with pytest.raises(PolicyError, match="too_few"):
        replay(policy, short, price=0.3, too_few="some")
    with pytest.raises(TooFewSamples, match="no problem has a sample"):
        replay(policy, ballots.only([]), price=0.3)


def _cut(ballots: Ballots, *, row: int, samples: int) -> Ballots:
    """The ballots with fewer samples of one problem."""
    classes = ballots.classes.copy()
    classes[row, samples:] = ABSENT
    return replace(ballots, classes=classes)


def test_a_mode_costs_the_mean_over_problems():
    """Problems with many samples don't count for more: a request is of any problem."""
    long = _cut(make_menu_ballots({"a": 0.5, "b": 0.5}, problems=2, samples=8).parts[0], row=0, samples=1)
    tokens = np.where(long.classes == ABSENT, np.nan, np.array([[90.0], [10.0]]))
    ballots = Ballots.join({"a": replace(long, tokens=tokens), "b": long})
    prices = {"a": TokenPrices(input=0, output=1e6), "b": TokenPrices(input=0, output=0)}
    assert Menu.of(ballots, prices=prices)["a"].cost == pytest.approx(50.0)


def test_a_tally_that_weighs_votes_otherwise_is_refused():
    policy = fitted()
    assert policy.next("What?", Tally(weigh=policy.weigh), 0.1) is not None
    with pytest.raises(PolicyError, match=r"make it with Tally\(weigh=policy.weigh\)"):
        policy.next("What?", Tally(), 0.1)


def test_a_saved_menu_decides_as_before(tmp_path):
    policy, ballots = fitted(), recorded()
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert loaded.settings() == policy.settings()
    for price in PRICES:
        assert (
            replay(loaded, ballots, price=price).each_cost.tolist()
            == replay(policy, ballots, price=price).each_cost.tolist()
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rules", [{"rule": "guess"}]),
        ("rules", [{"rule": "cascade", "modes": [0, 5], "draws": [1, 1], "agree": [1, 1]}]),
        ("points", [[1.0, 2.0]]),
        ("caps", [3]),
        ("votes", [{"mode": "other", "factor": 1.0, "weigh": None}]),
        ("stoppers", []),
    ],
)
def test_a_stored_menu_that_no_policy_wrote_is_refused(name, value):
    policy = fitted()
    with pytest.raises(PolicyInvalid):
        MenuPolicy.restore({**policy.settings(), name: value}, policy.arrays())


@pytest.mark.nightly
def test_four_modes_can_be_drawn():
    accuracies = {"a": 0.3, "b": 0.45, "c": 0.6, "d": 0.85}
    ballots = make_menu_ballots(accuracies, problems=40, samples=6)
    menu = Menu(
        modes=tuple(
            Mode(name=name, cost=cost) for name, cost in zip("abcd", (0.02, 0.1, 0.4, 1.0), strict=True)
        )
    )
    policy = MenuPolicy(menu, longest=6).fit(ballots)
    cheap, dear = (replay(policy, ballots, price=price) for price in (2.0, 0.02))
    assert dear.cost > cheap.cost
    assert dear.accuracy.mean > cheap.accuracy.mean


def test_every_policy_says_what_to_draw_next():
    policy = FixedPolicy(4)
    assert policy.next("2 + 2?", Tally.of(["4"])) == Draw(mode=None, count=3)
    assert policy.next("2 + 2?", Tally.of(["4"] * 4)) is None


def test_what_a_menu_policy_cannot_use_is_refused_in_one_line():
    policy = fitted()
    with pytest.raises(PolicyError, match="give every Sample its mode"):
        policy.next("question", Tally.of([Sample(answer="4")], weigh=policy.weigh), 0.1)
    with pytest.raises(PolicyError, match="'medium'"):
        policy.next("question", Tally.of([Sample(answer="4", mode="medium")], weigh=policy.weigh), 0.1)
    with pytest.raises(PolicyError, match=r"call next\(prompt, tally, price\)"):
        policy.more("question", Tally(), 0.1)
    with pytest.raises(RecordNotFound, match="no mode 'large' in the pool; there are small"):
        MenuPolicy(MENU).fit(recorded().parts[0])
    with pytest.raises(PolicyError, match="costs infinitely much"):
        MenuPolicy(Menu(modes=(Mode(name="a", cost=math.inf),)))
    with pytest.raises(PolicyError, match="is not a menu"):
        MenuPolicy({"small": 0.1})
    with pytest.raises(PolicyError, match="or a policy over several modes"):
        StoppingPolicy().fit(recorded())


def test_votes_of_a_tally_are_kept_by_mode():
    tally = Tally.of(
        [
            Sample(answer="4", mode="small"),
            Sample(answer="5", mode="small"),
            Sample(answer="4.0", mode="large"),
            Sample(answer=None, mode="large"),
        ]
    )
    assert tally.drawn_by_mode == {"small": 2, "large": 2}
    votes = VotesByMode.from_tallies([tally], ("small", "large"))
    assert votes.counts.tolist() == [[[1, 1], [1, 0]]]
    assert votes.drawn.tolist() == [[2, 2]]
