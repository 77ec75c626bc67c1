"""Charts: prices that meet their budgets; what they give, told by policies that have not seen the problem."""

import copy
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_menus import make_menu_ballots

from adacompute.answers import Tally
from adacompute.errors import PolicyError
from adacompute.evaluate.chart_builder import (
    BUDGETS,
    FoldFit,
    PolicyReplays,
    assemble_chart,
    bracket_dial,
    build_chart,
    build_mode_chart,
    find_prices,
    round_price_up,
)
from adacompute.evaluate.comparison import PolicyPoints
from adacompute.evaluate.parallel import open_threads
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.paths import build_paths, draw_paths
from adacompute.policies.quality import Quality
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots
from adacompute.pool.modes import Menu
from adacompute.replay import replay
from adacompute.replay.matching import UniformVotes, compare_qualities
from shared import read_votes


@functools.cache
def words(count: int = 80) -> Ballots:
    return read_votes("words").only(range(0, 5 * count, 5))


def unlabelled(ballots: Ballots) -> Ballots:
    return replace(
        ballots,
        correct=np.full_like(ballots.correct, np.nan),
        gold_known=np.zeros(len(ballots), dtype=bool),
    )


@pytest.mark.slow
def test_prices_fall_and_costs_rise_to_what_was_asked_for():
    policy = StoppingPolicy().copy_for(words())
    chart = build_chart(policy, words(), orders=8)
    assert chart is not None
    assert [row.budget for row in chart.rows] == list(BUDGETS)
    for one, other in itertools.pairwise(chart.rows):
        assert one.price > other.price
        assert one.cost < other.cost
        assert one.accuracy < other.accuracy + 0.03
    for row in chart.rows:
        assert 0.9 * row.budget <= row.cost <= row.budget
        again = replay(policy, words(), price=row.price, orders=8, rng=np.random.default_rng(0))
        assert (again.cost, again.waves) == pytest.approx((row.cost, row.waves))
        assert again.agreement == pytest.approx(row.stays)
        assert again.accuracy.mean == pytest.approx(row.accuracy, abs=0.02)  # of the budget, met


@pytest.mark.slow
def test_a_budget_within_a_jump_is_met_and_what_to_expect_there_is_that_of_a_mix():
    policy = StoppingPolicy(weigh=None).copy_for(words())
    some = draw_paths(words(), rng=np.random.default_rng(0), orders=8)
    replays = PolicyReplays([(policy, some)])
    chart = assemble_chart(replays, replays, prices=find_prices(replays, (1.5, 2.0)), protocol="")
    assert chart is not None
    _, price = bracket_dial(replays, 2.0)
    cheap, dear = replays.at(price * 1.03), replays.at(price / 1.03)
    assert cheap["cost"] < 1.1  # after one vote nearly all stand alike
    assert dear["cost"] > 2.0
    row = chart.row_at(2.0)
    assert row is not None
    assert row.cost == pytest.approx(2.0, rel=0.01)
    share = (2 - cheap["cost"]) / (dear["cost"] - cheap["cost"])
    assert row.agreement == pytest.approx(
        share * dear["agreement"] + (1 - share) * cheap["agreement"], abs=0.01
    )
    assert row.agreement < 0.98
    assert 0.05 < row.deviation < 0.5


def test_who_judges_has_not_seen_the_problem_and_each_problem_is_judged_once():
    fitted: list[set[str]] = []

    class Spied(AdaptiveConsistency):
        def read(self, prompts):
            asked.append((self, set(prompts)))
            return super().read(prompts)

    asked: list[tuple[Policy, set[str]]] = []

    def refit(some: Ballots) -> Policy:
        fitted.append(set(some.prompts))
        return Spied()

    chart = build_chart(AdaptiveConsistency(), words(), refit=refit, orders=2)
    assert chart is not None
    assert "held out" in chart.protocol
    judged = [prompts for _, prompts in asked]
    assert [prompts & one for one, prompts in zip(fitted, judged, strict=True)] == [set(), set()]
    assert set.union(*judged) == set(words().prompts)


def list_folds(make: Callable[[], Policy], order: Sequence[int] = (0, 1, 2)) -> list[FoldFit]:
    """Policies as of a verdict of three folds, with the prompts that they have seen."""
    part_of = np.arange(len(words())) % 3
    return [(make(), words().only(np.flatnonzero(part_of != part)).prompts) for part in order]


def refuse(_: Ballots) -> Policy:
    raise AssertionError("fitted again")


def test_the_folds_of_a_verdict_are_charted_without_another_fit():
    folds = list_folds(lambda: FixedPolicy(2.0), (2, 0, 1))  # they end in any order
    chart = build_chart(FixedPolicy(2.0), words(), refit=refuse, budgets=(2.0,), orders=2, fits=folds)
    assert chart is not None
    assert chart.protocol.endswith("held out: fitted on 2 of 3 parts, judged on the other")
    rights = []
    for part in range(3):
        test = words().only(range(part, len(words()), 3))
        rights.append(draw_paths(test, rng=np.random.default_rng(1), orders=2, longest=16).grade[1])
    assert chart.rows[0].accuracy == pytest.approx(np.concatenate(rights).mean())


@pytest.mark.parametrize(
    "list_some",
    [
        lambda: list_folds(lambda: FixedPolicy(2.0))[:2],
        lambda: list_folds(lambda: FixedPolicy(2.0), (0, 1, 2, 2)),
        lambda: list_folds(lambda: FixedPolicy(2.0, longest=8)),
        lambda: list_folds(AdaptiveConsistency),
        list,
    ],
    ids=["a problem is missing", "one is there twice", "fewer samples", "another kind", "none"],
)
def test_folds_that_do_not_fit_are_not_charted(list_some: Callable[[], list[FoldFit]]):
    halves: list[int] = []

    def refit(half: Ballots) -> Policy:
        halves.append(len(half))
        return FixedPolicy(2.0)

    chart = build_chart(FixedPolicy(2.0), words(), refit=refit, budgets=(2.0,), orders=2, fits=list_some())
    assert chart is not None
    assert chart.protocol.endswith("held out: fitted on one half, judged on the other")
    assert sum(halves) == len(words())


def test_policies_that_weigh_or_draw_otherwise_are_no_folds():
    for other in ({"weigh": None}, {"max_waves": 2}, {"longest": 8}):
        folds = list_folds(lambda other=other: StoppingPolicy(**other))
        with pytest.raises(AssertionError, match="fitted again"):
            build_chart(StoppingPolicy(), words(), refit=refuse, budgets=(2.0,), orders=2, fits=folds)


@pytest.mark.slow
def test_threads_draw_the_same_chart_from_folds_and_from_halves():
    policy = StoppingPolicy().copy_for(words())
    for fits in (list_folds(lambda: copy.copy(policy)), []):
        alone = build_chart(policy, words(), refit=lambda _: copy.copy(policy), orders=4, fits=fits)
        with open_threads(2) as threads:
            shared = build_chart(
                policy, words(), refit=lambda _: copy.copy(policy), orders=4, fits=fits, threads=threads
            )
        assert alone is not None
        assert alone == shared
        assert "held out" in alone.protocol


@pytest.mark.slow
def test_few_problems_or_halves_that_teach_nothing_are_judged_in_sample_and_it_is_said():
    def refuses(some: Ballots) -> Policy:
        raise PolicyError("too little to learn from")

    for ballots, refit in ((words(59), lambda _: AdaptiveConsistency()), (words(), refuses), (words(), None)):
        chart = build_chart(AdaptiveConsistency(), ballots, refit=refit, orders=2)
        assert chart is not None
        assert chart.protocol.endswith("in-sample: on the problems that it was fitted on")
        assert f"{len(ballots)} problems, 2 orders, plain votes" in chart.protocol


@pytest.mark.slow
def test_agreement_is_that_of_live_tallies():
    ballots, orders = words(12), np.arange(6).reshape(1, 1, 6)
    some = build_paths(ballots, np.repeat(orders, 12, axis=0))
    found = PolicyReplays([(FixedPolicy(5.0, budgets=[5], longest=6), some)]).at(None)
    votes = [[None if one < 0 else str(one) for one in row[:5]] for row in ballots.classes.tolist()]
    live = np.array([Tally.of(row).agreement for row in votes])
    assert found["agreement"] == pytest.approx(live.mean())
    assert found["square"] == pytest.approx((live**2).mean())


@pytest.mark.parametrize("budget", [1, 2, 4, 8])
def test_all_alike_are_as_accurate_as_themselves(budget: int):
    policy = FixedPolicy(float(budget))
    some = draw_paths(words(), rng=np.random.default_rng(0), orders=20)
    replays = PolicyReplays([(policy, some)])
    found = replays.uniform_samples(replays.at(None)["accuracy"])
    assert budget - 1 <= found <= budget + 1e-9  # on the hull, or just below it


def test_what_is_more_accurate_than_all_samples_is_worth_the_most_there_are():
    replays = PolicyReplays([(FixedPolicy(2.0), draw_paths(words(), rng=np.random.default_rng(0), orders=4))])
    assert replays.uniform_samples(1.0) == 16.0
    assert replays.uniform_samples(0.0) == 1.0


def test_without_labels_everything_but_accuracy_is_told():
    chart = build_chart(AdaptiveConsistency(), unlabelled(words()), orders=2)
    assert chart is not None
    assert {(row.accuracy, row.uniform) for row in chart.rows} == {(None, None)}
    assert all(0 < row.agreement <= 1 for row in chart.rows)


@pytest.mark.slow
def test_accuracy_is_that_of_problems_with_labels():
    half, none = words(20), unlabelled(words(40).only(range(20, 40)))
    joined = replace(
        words(40),
        correct=np.concatenate([half.correct, none.correct]),
        gold_known=np.concatenate([half.gold_known, none.gold_known]),
    )
    policy = FixedPolicy(2.0)
    some = draw_paths(joined, rng=np.random.default_rng(0), orders=4)
    found = PolicyReplays([(policy, some)]).at(None)["accuracy"]
    assert found == pytest.approx(some.mean_per_problem(some.grade[1])[:20].mean())


def test_a_policy_without_a_dial_has_one_row():
    chart = build_chart(FixedPolicy(4.0), words(), budgets=(4.0,), orders=2)
    assert chart is not None
    (row,) = chart.rows
    assert (row.budget, row.price, row.cost) == (4.0, None, 4.0)


def test_a_policy_that_reaches_no_budget_has_no_chart():
    assert build_chart(AdaptiveConsistency(longest=1), words(), orders=2) is None


@pytest.mark.parametrize("waves", [1, 2, 3])
def test_few_waves_make_a_chart_too(waves: int):
    policy = StoppingPolicy(max_waves=waves).copy_for(words())
    chart = build_chart(policy, words(), orders=4)
    assert chart is not None
    assert all(row.waves <= waves for row in chart.rows)


def test_a_price_of_tokens_is_told_in_tokens():
    policy = StoppingPolicy(unit="tokens", draw_cost=200.0).copy_for(words())
    plain = StoppingPolicy().copy_for(words())
    some = draw_paths(words(), rng=np.random.default_rng(0), orders=4, weigh=plain.weigh)
    made = [PolicyReplays([(one, some)]) for one in (policy, plain)]
    tokens, samples = (
        assemble_chart(one, one, prices=find_prices(one, (2.0, 4.0)), protocol="") for one in made
    )
    assert tokens is not None
    assert samples is not None
    assert tokens.unit == "tokens"
    for one, other in zip(tokens.rows, samples.rows, strict=True):
        assert 200 * one.price == pytest.approx(other.price, rel=0.1)


def test_the_two_dials_around_a_cost_are_on_its_two_sides():
    replays = PolicyReplays(
        [(AdaptiveConsistency(), draw_paths(words(), rng=np.random.default_rng(0), orders=4))]
    )
    for cost in (2.5, 3.0, 5.0):
        low, high = bracket_dial(replays, cost)
        assert replays.at(high)["cost"] <= cost < replays.at(low)["cost"]
        assert replays.at_cost(cost, 0.1)["cost"] == pytest.approx(cost)


@pytest.mark.parametrize(("price", "shown"), [(0.0, 0.0), (0.0123456789, 0.012346), (1.0, 1.0), (1e-9, 1e-9)])
def test_a_price_is_told_in_five_digits_rounded_up(price: float, shown: float):
    assert round_price_up(price) == shown


def test_a_policy_that_draws_what_its_rival_draws_is_as_good_without_doubt():
    """Few groups leave room for what none of them shows, but not where both are one."""
    right = np.random.default_rng(0).random(34)
    points = PolicyPoints(
        cost=np.outer([2.0, 8.0, 16.0], np.ones(34)),
        accuracy=np.stack([0.9 * right, 1.001 * right, right]),
    )
    same, fewer = (UniformVotes(count, None, float(count), right) for count in (16, 12))
    found, other = compare_qualities(points, [same, fewer], digits=".2f")
    assert found.costs[-1] == 16
    assert found.lows[-1] == 0
    assert found.find_cost(Quality.parse("as good as 16"), problems=441).cost < 9
    assert other.lows[-1] < -0.05  # nothing is known of why 12 would be as good as 16


def test_of_several_modes_each_one_s_votes_are_compared_with_on_problems_held_out():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.9}, problems=60)
    menu = Menu.of(ballots, costs={"small": 0.02, "large": 1.0})
    learned: list[set[str]] = []

    def refit(train: Ballots) -> MenuPolicy:
        learned.append(set(train.prompts))
        return MenuPolicy(menu, longest=4).settle(train)

    chart = build_mode_chart(refit(ballots), ballots, refit=refit)
    assert chart is not None
    assert [len(prompts) for prompts in learned[1:]] == [40, 40, 40]  # each problem is held out once
    assert set.intersection(*learned[1:]) == set()
    known = {(curve.mode, curve.samples): curve for curve in chart.qualities}
    assert set(known) == {(mode, count) for mode in ("small", "large") for count in (1, 2, 3, 4)}
    for mode, cost in (("small", 0.02), ("large", 1.0)):
        one = known[mode, 1]
        assert one.rival_cost == pytest.approx(cost)
        assert one.accuracy == pytest.approx(ballots[mode].correct.mean(), abs=0.03)  # one sample each
        assert known[mode, 4].rival_cost == pytest.approx(4 * cost)
    easy = chart.find_quality(Quality.parse("within 10 points of large"))
    assert 0 < easy.cost < 1.5
    assert build_mode_chart(refit(ballots), ballots.only(range(20)), refit=refit) is None
