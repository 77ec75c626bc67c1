"""A menu's router: prompts decide the first mode where they tell it, and nothing where they don't."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute import load_policy, replay
from adacompute.answers import Tally
from adacompute.answers.vote import WEIGHT_UNIT
from adacompute.errors import PolicyError, PolicyInvalid
from adacompute.policies import MenuPolicy
from adacompute.policies.modes.router import fit_router, read_hints
from adacompute.policies.modes.rules import (
    CascadeRule,
    ConfidenceRule,
    RoutedRule,
    RulePoint,
    StateInputs,
    dump_rule,
    load_rule,
)
from adacompute.policies.votes import VotesByMode
from adacompute.pool import Ballots, Mode
from adacompute.pool.modes import Menu
from shared import share

MENU = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))
PLAIN, FOREIGN = "a e i l n o r s t", "j k u w y z x q"  # syllables of two languages
PROBLEMS = 160
PRICES = (0.05, 0.2, 0.6)


def write_question(rng: np.random.Generator, *, foreign: bool) -> str:
    letters = (FOREIGN if foreign else PLAIN).split()
    return (
        " ".join("".join(rng.choice(letters, rng.integers(2, 8))) for _ in range(rng.integers(6, 12))) + "?"
    )


def make_ballots(*, telling: bool = True, seed: int = 0) -> Ballots:
    """The small mode is wrong in the foreign language, always in the same way, so that votes don't tell."""
    rng = np.random.default_rng(seed)
    hard = np.arange(PROBLEMS) % 2 == 1
    shown = hard if telling else rng.permutation(hard)
    skills = {"small": np.where(hard, 0.05, 0.95), "large": np.full(PROBLEMS, 0.9)}
    prompts = tuple(write_question(rng, foreign=bool(each)) for each in shown)
    parts = {}
    for name, skill in skills.items():
        right = rng.random((PROBLEMS, 4)) < skill[:, None]
        nothing = np.full(right.shape, np.nan)
        parts[name] = Ballots(
            ids=tuple(f"p{row}" for row in range(PROBLEMS)),
            prompts=prompts,
            subjects=(None,) * PROBLEMS,
            levels=(None,) * PROBLEMS,
            gold_known=np.ones(PROBLEMS, dtype=bool),
            classes=np.where(right, 0, 1).astype(np.int32),
            correct=right.astype(np.float32),
            tokens=np.full(right.shape, 20.0),
            logprob=nothing,
            entropy=nothing,
        )
    return Ballots.join(parts)


@share
def fitted(telling: bool = True) -> MenuPolicy:
    return MenuPolicy(MENU, longest=2).fit(make_ballots(telling=telling))


def test_a_prompt_that_tells_which_mode_fails_decides_the_first_mode():
    policy, rng = fitted(), np.random.default_rng(5)
    fresh = {foreign: [write_question(rng, foreign=foreign) for _ in range(20)] for foreign in (False, True)}
    first = {
        foreign: [policy.next(prompt, Tally(weigh=policy.weigh), 0.3) for prompt in prompts]
        for foreign, prompts in fresh.items()
    }
    assert [draw.mode for draw in first[False]].count("small") >= 18
    assert [draw.mode for draw in first[True]].count("large") >= 18
    others = make_ballots(seed=1)
    result = replay(policy, others, price=0.3, orders=5)
    assert result.cost < 0.75
    assert result.accuracy.mean > 0.87  # a cascade that asks large for half of all: 0.7


def test_hints_that_tell_nothing_change_nothing():
    policy = fitted(telling=False)
    assert policy.router_ is None or _compute_gain(policy) < 0.03


def _compute_gain(policy: MenuPolicy) -> float:
    """What routed rules are worth above the line between their neighbours that don't look at prompts."""
    plain = [not isinstance(rule, RoutedRule) for rule in policy.rules_]
    line = np.interp(policy.cost_, policy.cost_[plain], policy.accuracy_[plain])
    return float((policy.accuracy_ - line).max())


def test_prompts_unlike_all_others_are_forecast_about_the_mean():
    router = fitted().router_
    assert router is not None
    rng = np.random.default_rng(6)
    known = router.predict(read_hints([write_question(rng, foreign=bool(row % 2)) for row in range(20)]))
    unlike = router.predict(read_hints(["១២៣ សួស្តី 7 + 8 = ? " * 400, "%" * 9000, "数学 问题。" * 1000]))
    usual = np.abs(known - router.mean).max(axis=1).mean()
    assert np.abs(unlike - router.mean).max() < 0.5 * usual


def test_a_group_of_alike_problems_is_no_evidence_for_another_one():
    """Of as many groups as there are languages, none tells anything about the others."""
    ballots = make_ballots()
    language = np.arange(PROBLEMS) % 2
    assert MenuPolicy(MENU, longest=2).fit(replace(ballots, grouped=language)).router_ is None


def test_live_and_replayed_requests_are_read_alike():
    policy, rng = fitted(), np.random.default_rng(7)
    prompts = [write_question(rng, foreign=bool(row % 2)) for row in range(12)]
    prompts += [*make_ballots().prompts[:6], "", "\ud800 ½", "1" * 30_000]
    together = policy.read(prompts)
    assert together.tolist() == [policy.read([prompt])[0].tolist() for prompt in prompts]
    assert np.isfinite(together).all()


def test_what_leads_to_a_decision_is_that_of_the_rule_chosen_for_the_prompt():
    policy, prompt = fitted(), make_ballots().prompts[1]
    reading, tally = policy.read([prompt]), Tally(weigh=policy.weigh)
    for price in policy.prices_:
        policy.find_criterion(tally, float(price), reading=reading)
        assert policy.next(prompt, tally, float(price), reading=reading) == policy.next(
            prompt, tally, float(price)
        )


def test_a_saved_router_decides_as_before(tmp_path):
    policy, ballots = fitted(), make_ballots(seed=2)
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert any(isinstance(rule, RoutedRule) for rule in loaded.rules_)
    assert loaded.settings() == policy.settings()
    for price in PRICES:
        runs = [replay(each, ballots, price=price, orders=3).each_cost.tolist() for each in (policy, loaded)]
        assert runs[0] == runs[1]


def test_a_menu_of_an_earlier_version_has_no_router_and_loads():
    policy = fitted(telling=False)
    plain = MenuPolicy.restore(_without_router(policy), policy.arrays())
    assert plain.router_ is None
    assert plain.next("What?", Tally(weigh=plain.weigh), 0.3) is not None


def _without_router(policy: MenuPolicy) -> dict:
    stored = policy.settings()
    kept = [number for number, rule in enumerate(stored["rules"]) if rule["rule"] != "routed"]
    points = [stored["points"][number] for number in kept]
    rules = [stored["rules"][number] for number in kept]
    return {
        name: value
        for name, value in {**stored, "rules": rules, "points": points}.items()
        if name != "router"
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("router", None), ("router", [{"rule": "routed", "price": 1.0}]), ("router", [{"rule": "guess"}])],
)
def test_a_stored_router_that_no_policy_wrote_is_refused(name, value):
    policy = fitted()
    with pytest.raises(PolicyInvalid):
        MenuPolicy.restore({**policy.settings(), name: value}, policy.arrays())
    arrays = dict(policy.arrays())
    arrays["router_taught"] = arrays["router_taught"][::-1]
    with pytest.raises(PolicyInvalid, match="router_taught"):
        MenuPolicy.restore(policy.settings(), arrays)


def test_a_sample_that_is_not_sure_is_followed_by_one_of_the_dearer_mode():
    rule = ConfidenceRule((0, 1), least=WEIGHT_UNIT)
    weights = np.array([[[0.0], [0]], [[0.9], [0]], [[1], [0]], [[0.9], [2]]])  # (requests, modes, classes)
    drawn, weights = (weights > 0).sum(axis=2), (weights * WEIGHT_UNIT).astype(np.int64)
    votes = VotesByMode(
        drawn=drawn,
        counts=(weights > 0).astype(np.int64),
        weights=weights,
        joint=weights.sum(axis=1),
        seen=drawn,
    )
    inputs = StateInputs(votes=votes, critical=np.full((4, 2), np.nan), leaf=None)
    assert rule.decide(inputs).tolist() == [0, 1, -1, -1]
    assert load_rule(dump_rule(rule), modes=2, actions=iter(())) == rule
    for wrong in ({"least": -1}, {"modes": [0, 2]}, {"modes": [1, 1]}):
        with pytest.raises(PolicyError):
            load_rule({**dump_rule(rule), **wrong}, modes=2, actions=iter(()))


def test_few_groups_or_one_rule_leave_nothing_to_route():
    rule = CascadeRule((0, 1), (1, 1), (1, 1))
    points = [
        RulePoint(rule=rule, cost=np.full(6, float(cost)), worth=np.full(6, 0.1 * cost)) for cost in (1, 2)
    ]
    prompts = [f"question {letter}" for letter in "abcdef"]
    assert fit_router(points, prompts, np.arange(6), seed=0) == (None, [])
    assert fit_router(points[:1], prompts, np.arange(6), seed=0) == (None, [])
