"""CurvePolicy over a menu: routes prompts to the mode and number of samples that pay, at one price."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from menu_votes import make_menu_votes, make_prompt

from adacompute import Draw, Sample, Tally, VoteWeights, load_policy
from adacompute.errors import NotFitted, PolicyError, PolicyInvalid, RecordNotFound, TooFewSamples
from adacompute.evaluate import uniform_frontier
from adacompute.policies.base import OwnPrice
from adacompute.policies.curve import CurvePolicy, fit_curves
from adacompute.pool import Ballots, Mode
from adacompute.pool.modes import Menu
from adacompute.score import score
from shared import read_votes

MENU = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))
PRICES = [0.0, 0.001, 0.02, 0.1, 0.3, 0.7, 2.0, 100.0]


@cache
def fitted(telling: bool = True) -> CurvePolicy:
    return CurvePolicy(menu=MENU, budgets=(1, 2, 4)).fit(make_menu_votes(telling=telling))


def fresh_prompts(count: int = 40) -> list[str]:
    rng = np.random.default_rng(99)
    return [make_prompt(rng, hard=place % 2 == 1) for place in range(count)]


def test_columns_are_votes_of_one_mode_cheapest_first():
    policy = CurvePolicy(menu=MENU, budgets={"small": (1, 4, 16), "large": (1, 2)})
    names = [str(column) for column in policy.columns]
    assert names == ["small x 1", "small x 4", "large x 1", "small x 16", "large x 2"]
    assert policy.costs == pytest.approx([0.1, 0.4, 1.0, 1.6, 2.0])
    assert CurvePolicy(menu=MENU, longest=4).costs == pytest.approx([0.1, 0.2, 0.4, 1.0, 2.0, 4.0])
    assert CurvePolicy().columns == ()
    assert CurvePolicy().menu is None
    assert not len(CurvePolicy().costs)


def test_easy_prompts_go_to_the_cheap_mode_and_hard_ones_to_the_dear_one():
    policy = fitted()
    modes = [policy.columns[place].draws[0][0] for place in policy.choose(fresh_prompts(), 0.3)]
    assert modes[::2] == ["small"] * 20
    assert modes[1::2] == ["large"] * 20


def test_on_prompts_that_it_has_not_seen_routing_beats_the_best_fixed_mix_at_its_cost():
    unseen = make_menu_votes(seed=1)
    policy, table = fitted(), score(unseen, (1, 2, 4), modes=MENU, mixed=False)
    order = [table.modes.index(str(column)) for column in policy.columns]
    chosen = np.array(order)[policy.choose(unseen.prompts, 0.3)]
    rows = np.arange(len(unseen))
    cost, accuracy = table.cost_matrix[rows, chosen].mean(), table.accuracy[rows, chosen].mean()
    assert accuracy > uniform_frontier(table).at(cost) + 0.05


def test_where_prompts_tell_nothing_all_get_the_same():
    policy = fitted(telling=False)
    assert not policy.uses_features
    for price in PRICES:
        assert len(set(policy.choose(fresh_prompts(), price).tolist())) == 1


@settings(max_examples=50, deadline=None)
@given(price=st.floats(0, 5, allow_nan=False))
def test_the_column_of_highest_accuracy_less_its_price_is_chosen_ties_to_the_cheaper(price: float):
    policy, prompts = fitted(), fresh_prompts(12)
    worth = policy.predict_curve(prompts) - price * policy.costs
    chosen = policy.choose(prompts, price)
    assert worth[np.arange(12), chosen] == pytest.approx(worth.max(axis=1), abs=1e-9)
    for row, column in enumerate(chosen):
        assert (worth[row, :column] <= worth[row, column] + 1e-9).all()


def test_next_draws_the_column_of_its_prompt_and_stops():
    policy = fitted()
    easy, hard = fresh_prompts(2)
    assert policy.next(easy, Tally(), 2.0) == Draw(mode="small", count=1)
    assert policy.next(easy, Tally.of([Sample(answer="4", mode="small")]), 2.0) is None
    assert policy.next(hard, Tally(), 0.3).mode == "large"
    many = policy.next(hard, Tally(), 0.001)
    drawn = Tally.of([Sample(answer="4", mode=many.mode)])
    assert policy.next(hard, drawn, 0.001) == Draw(mode=many.mode, count=many.count - 1)


def test_cost_never_rises_with_the_price():
    policy = fitted()
    costs = np.array([policy.costs[policy.choose(fresh_prompts(), price)] for price in PRICES])
    assert (np.diff(costs, axis=0) <= 0).all()
    assert costs[0].mean() > costs[-1].mean() == pytest.approx(0.1)


def test_a_batch_is_decided_as_one_prompt_is():
    policy, prompts = fitted(), fresh_prompts(10)
    for price in (0.0, 0.1, 0.5):
        assert policy.choose(prompts, price).tolist() == [policy.choose([p], price)[0] for p in prompts]
    assert policy.choose([], 0.1).shape == (0,)


@pytest.mark.slow
def test_over_one_mode_it_predicts_and_buys_as_the_curve_of_that_mode():
    votes = read_votes("words").only(range(0, 440, 4))
    plain = CurvePolicy(features="text").fit(votes)
    ballots = Ballots.join({"qwen": votes})
    router = CurvePolicy(menu=Menu.of(ballots, costs={"qwen": 1.0})).fit(ballots)
    prompts = votes.prompts[:50]
    assert (router.predict_curve(prompts) == plain.predict_curve(prompts)).all()
    for price in (0.0, 0.004, 0.01, 0.02, 0.05):
        budgets = [plain.more(prompt, Tally(), OwnPrice(price)) for prompt in prompts]
        assert [router.columns[k].draws[0][1] for k in router.choose(prompts, price)] == budgets


def test_each_modes_curve_is_trusted_by_itself():
    rng = np.random.default_rng(3)
    rows = rng.random((200, 2))
    targets = np.column_stack([rng.random(200), rng.random(200), rows[:, 0], rows[:, 0] + 0.1])
    owner = np.arange(200)
    trees = fit_curves(rows, targets, owner, groups=[np.arange(2)], seed=0, curves=[slice(0, 2), slice(2, 4)])
    scores = trees.scores(rows)
    assert np.ptp(scores[:, 0]) == np.ptp(scores[:, 1]) == 0  # noise is not believed
    assert np.corrcoef(scores[:, 2], rows[:, 0])[0, 1] > 0.9
    assert scores[:, 3] == pytest.approx(0.1)  # what the second column adds to the first of its own curve


def test_saved_and_loaded_it_chooses_the_same(tmp_path: Path):
    policy = fitted()
    policy.save(tmp_path / "router")
    loaded = load_policy(tmp_path / "router")
    assert isinstance(loaded, CurvePolicy)
    assert loaded.columns == policy.columns
    assert loaded.menu == MENU
    for price in PRICES:
        assert (loaded.choose(fresh_prompts(), price) == policy.choose(fresh_prompts(), price)).all()
    mapped = CurvePolicy(menu=MENU, budgets={"small": (1, 2), "large": (1,)})
    again = CurvePolicy.restore(json.loads(json.dumps(mapped.settings())), mapped.arrays())
    assert again.columns == mapped.columns


def test_a_mode_of_infinite_cost_is_never_chosen(tmp_path: Path):
    menu = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=np.inf)))
    policy = CurvePolicy(menu=menu, budgets=(1, 2, 4)).fit(make_menu_votes())
    assert [str(column) for column in policy.columns] == ["small x 1", "small x 2", "small x 4"]
    policy.save(tmp_path / "router")
    loaded = load_policy(tmp_path / "router")
    assert isinstance(loaded, CurvePolicy)
    assert loaded.columns == policy.columns


def test_policies_of_one_mode_are_stored_as_before():
    assert "menu" not in CurvePolicy().settings()
    assert CurvePolicy().settings()["budgets"] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"menu": "small"}, "menu 'small' is not a menu; give Menu.of"),
        ({"budgets": {"small": (1,)}}, "budgets are for small, and the menu has small, large"),
        ({"budgets": (0,)}, "budgets .* can't be used"),
        ({"budgets": (32,)}, "a mode has no budget up to longest 16"),
        ({"features": "entropy"}, "features 'entropy' can't be used with a menu"),
        ({"weigh": VoteWeights(signal="logprob", scale=-1.0)}, "weigh .* can't be used with a menu"),
    ],
)
def test_what_a_router_cant_use_is_refused(options: dict[str, object], message: str):
    with pytest.raises(PolicyError, match=message):
        CurvePolicy(**({"menu": MENU} | options))  # type: ignore[arg-type]


def test_what_it_cant_learn_from_or_answer_is_refused():
    votes = make_menu_votes(20, samples=2)
    with pytest.raises(NotFitted):
        CurvePolicy(menu=MENU).choose(["?"], 0.1)
    with pytest.raises(TooFewSamples, match="mode 'small': 20 of 20 problems have fewer than 16 samples"):
        CurvePolicy(menu=MENU).fit(votes)
    with pytest.raises(RecordNotFound, match="no mode 'large' in the pool; there are small"):
        CurvePolicy(menu=MENU).fit(votes["small"])
    with pytest.raises(PolicyError, match=r"can't learn from joined pools; give CurvePolicy\(menu=…\)"):
        CurvePolicy().fit(votes)
    with pytest.raises(PolicyError, match=r"chooses a mode and a number of samples; ask choose"):
        fitted().more("?", Tally(), 0.1)
    plain = CurvePolicy(features="text").fit(read_votes("words").only(range(0, 440, 8)))
    with pytest.raises(PolicyError, match="a curve of one mode has no columns to choose"):
        plain.choose(["?"], 0.1)


def test_a_damaged_menu_is_refused_when_it_is_loaded():
    settings_ = fitted().settings()
    with pytest.raises(PolicyInvalid, match="a stored menu 3 can't be read"):
        CurvePolicy.restore({**settings_, "menu": 3}, fitted().arrays())
    with pytest.raises(PolicyInvalid, match="array 'rises' is"):
        CurvePolicy.restore(settings_, {**fitted().arrays(), "rises": np.zeros(7, dtype=np.int64)})
