"""The laws of a batch over a menu, against two real HTTP servers whose prices differ twenty times."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batches import Recording, facts, task
from collecting import count, process
from killed_menu import BUDGET, REQUESTS, list_sources
from menu_batches import (
    MAX_TOKENS,
    PRICES,
    PROMPT,
    ask_menu,
    draw_by_policy,
    drawn_modes,
    menu_policy,
    mode_plans,
    two_upstreams,
    unseen,
)

from adacompute.answers import Tally
from adacompute.client import BreakerSettings, Retries
from adacompute.client.verifier import build_verifier
from adacompute.config import EndpointConfig, VerifierConfig
from adacompute.errors import BudgetInvalid, BudgetOutOfRange, CollectError, PolicyError
from adacompute.policies import StoppingPolicy
from adacompute.policies.baselines import FixedPolicy
from adacompute.pool import Mode, open_pool, read_modes
from adacompute.pool.modes import Menu
from adacompute.records import Problem, Sample, TokenPrices
from adacompute.sampling import SourcePlan
from adacompute.sampling.answer import build_answer, estimate_plan_modes
from tiers import leave_to_nightly
from upstream import Reply, Status, Upstream

KILLED = Path(__file__).with_name("killed_menu.py")
WORST = PRICES["large"].cost(2 * PROMPT, MAX_TOKENS)  # that one sample can cost; a prompt is estimated


@pytest.mark.parametrize("thousand", [12, 40, 90])  # USD for 1,000 requests: from 2 small ones to a large one
def test_the_average_in_money_is_within_the_budget_and_is_what_both_upstreams_count(
    tmp_path: Path, thousand: float
):
    recorded = unseen(60)
    with two_upstreams(recorded) as ups:
        done = ask_menu(recorded, tmp_path / "p.sqlite", ups, budget=f"{thousand} USD per 1000")
        served = {name: up.count.requests for name, up in ups.items()}
    assert done.used <= done.limit == pytest.approx(thousand / 1000 * 60)
    assert done.limit - done.used < 2 * WORST, "what is left is less than a dear sample can cost"
    assert done.used == pytest.approx(done.cost) == pytest.approx(sum(use.cost for use in done.modes))
    assert {use.name: use.samples for use in done.modes} == served
    assert {use.name: use.account.calls for use in done.modes} == served
    for use in done.modes:
        prices, drawn = PRICES[use.name], sum(item.modes.get(use.name, 0) for item in done.each)
        assert use.cost == pytest.approx(
            prices.cost(PROMPT * served[use.name], use.account.completion_tokens)
        )
        assert drawn == served[use.name]
        assert sum(item.costs.get(use.name, 0.0) for item in done.each) == pytest.approx(use.cost)
    assert all(item.samples == sum(item.modes.values()) >= 1 for item in done.each)
    assert done.stopped is None
    assert not done.failures
    assert not done.left_out


def test_more_money_buys_more_of_the_dearer_mode_and_more_right_answers(tmp_path: Path):
    recorded, large, right = unseen(60), [], []
    for thousand in (12, 90):
        with two_upstreams(recorded) as ups:
            path = tmp_path / f"{thousand}.sqlite"
            done = ask_menu(recorded, path, ups, budget=f"{thousand} USD per 1000")
            large.append(ups["large"].count.requests)
        assert done.accuracy is not None
        right.append(done.accuracy.mean)
    assert large[0] < 5 < 40 < large[1]
    assert right[0] + 0.2 < right[1]


@pytest.mark.slow
def test_every_request_is_decided_as_the_policy_decides_alone_on_the_same_samples(tmp_path: Path):
    """As in replay: at the price that a request began at; what is left over may add some to it."""
    recorded, policy, path = unseen(120), menu_policy(), tmp_path / "p.sqlite"
    with two_upstreams(recorded) as ups:
        done = ask_menu(recorded, path, ups, budget="50 USD per 1000")
        plans = mode_plans(ups)
    cut_off = 0
    for row, item in enumerate(done.each):
        samples = {name: each[row] for name, each in recorded.items()}
        expected = draw_by_policy(policy, samples, done.prices[row])
        drawn = drawn_modes(path, plans, item.id)
        if drawn != expected:  # the last of the money bought more, or not all
            cut_off += 1
            assert drawn[: len(expected)] == expected[: len(drawn)]
    assert len({tuple(item.modes.items()) for item in done.each}) > 3, "requests differ"
    assert cut_off <= len(done.each) / 6  # rules jump, so at the last price many would have more


def test_what_is_stored_is_not_asked_for_again_and_the_pool_is_a_menu(tmp_path: Path):
    recorded, path = unseen(40), tmp_path / "p.sqlite"
    with two_upstreams(recorded) as ups:
        done = ask_menu(recorded, path, ups, budget="40 USD per 1000")
        served = {name: up.count.requests for name, up in ups.items()}
        again = ask_menu(recorded, path, ups, budget="40 USD per 1000")
        more = ask_menu(recorded, path, ups, budget="80 USD per 1000")
    assert again.used <= again.limit
    assert again.added <= 12, "only cheap ones, where the rest of the money can't pay for a dear one"
    assert more.added > 0
    assert more.used <= more.limit
    assert sum(served.values()) == done.spent
    for before, after in zip(done.each, more.each, strict=True):
        assert all(after.modes[name] >= number for name, number in before.modes.items())
    with open_pool(path) as pool:
        assert pool.verify().ok
        ballots = read_modes(pool, missing="drop")
    assert set(ballots.names) == {"small", "large"}


class Down:
    """A script that refuses some questions; without any, all of them."""

    def __init__(self, script: Any = None, questions: frozenset[str] = frozenset(), code: int = 500) -> None:
        self.script = script
        self.questions = questions
        self.code = code

    def __call__(self, number: int, body: dict[str, Any]) -> Reply | Status:
        if self.script is None or body["messages"][-1]["content"] in self.questions:
            return Status(code=self.code, message="out of order")
        reply: Reply | Status = self.script(number, body)
        return reply


@pytest.mark.slow
@pytest.mark.parametrize(
    ("down", "code"), leave_to_nightly([("large", 0), ("small", 401), ("small", 0), ("large", 400)])
)
def test_with_one_upstream_down_answers_come_from_the_other(tmp_path: Path, down: str, code: int):
    recorded = unseen(40)
    other = {"small": "large", "large": "small"}[down]
    with Upstream(Down()) as closed:
        pass
    with two_upstreams(recorded, **{down: Down(code=code)}) as ups:
        asked = ups if code else {**ups, down: closed}  # nobody listens there any more
        done = ask_menu(recorded, tmp_path / "p.sqlite", asked, budget="120 USD per 1000")
    assert done.stopped is None
    assert len(done.each) == 40
    assert all(set(item.modes) <= {other} for item in done.each)
    assert sum(item.samples > 0 for item in done.each) >= 38, "the rest can't be paid by the other"
    left_out = [item for item in done.each if item.error is not None]
    assert left_out
    assert all(f"mode {down!r} was left out: " in (item.error or "") for item in left_out)
    assert set(done.failures) == {item.id for item in left_out}
    assert done.used <= done.limit


def test_with_both_upstreams_down_it_is_broken_off_and_the_same_call_goes_on(tmp_path: Path):
    recorded, path = unseen(20), tmp_path / "p.sqlite"
    with two_upstreams(recorded, small=Down(code=401), large=Down(code=401)) as ups:
        done = ask_menu(recorded, path, ups, budget="80 USD per 1000")
    assert done.broken_off
    assert done.each == ()
    with two_upstreams(recorded) as ups:
        done = ask_menu(recorded, path, ups, budget="80 USD per 1000")
    assert done.stopped is None
    assert done.answered == 20


def test_upstreams_that_were_never_reached_are_given_up_with_the_cause(tmp_path: Path):
    recorded = unseen(2)
    with two_upstreams(recorded) as ups:
        pass
    patient = Retries(attempts=1000, deadline=20.0, first=0.01, longest=0.02)
    breaker = BreakerSettings(failures=1000, first_contact=0.2)
    plans = [
        replace(plan, endpoint=replace(plan.endpoint, retries=patient, breaker=breaker))
        for plan in mode_plans(ups)
    ]
    done = ask_menu(recorded, tmp_path / "p.sqlite", ups, budget="500 USD per 1000", plans=plans)
    assert done.stopped == "endpoint"
    assert "Connection refused" in str(done.why)


def test_a_mode_that_fails_for_a_request_is_left_out_for_that_request_alone(tmp_path: Path):
    recorded = unseen(30)
    wrong = frozenset(recorded["small"][row].problem.question for row in (3, 7))
    with two_upstreams(recorded, large=Down(Recording(recorded["large"]), wrong, code=400)) as ups:
        done = ask_menu(recorded, tmp_path / "p.sqlite", ups, budget="100 USD per 1000")
        asked = [request.body["messages"][-1]["content"] for request in ups["large"].requests]
    refused = [item for item in done.each if item.error is not None]
    assert {item.id for item in refused} <= {recorded["small"][row].problem.id for row in (3, 7)}
    assert refused
    assert all("large" not in item.modes and item.modes["small"] >= 1 for item in refused)
    assert all(asked.count(question) <= 1 for question in wrong), "it isn't asked for again"
    assert sum("large" in item.modes for item in done.each) > 10


def test_the_text_is_that_of_the_dearest_mode_that_gave_the_winning_answer():
    samples = [
        Sample(answer="4", mode="small", text="a", tokens=1, logprob=-0.1),
        Sample(answer="4", mode="large", text="b", tokens=1, logprob=-3.0),
        Sample(answer="5", mode="large", text="c", tokens=1, logprob=-0.1),
        Sample(answer="4", mode="large", text="d", tokens=1, logprob=-2.0),
    ]
    problem = Problem(id="p", question="?")
    tally = Tally.of(samples)
    built = build_answer(problem, samples, tally, task=task(), error=None, modes=("small", "large"))
    assert (built.answer, built.mode, built.best) == ("4", "large", 2), "the third of the large ones"
    assert built.modes == {"small": 1, "large": 3}


def test_a_menu_of_one_mode_is_answered_as_an_endpoint(tmp_path: Path):
    recorded = facts(20)
    with Upstream(Recording(recorded)) as up:
        plans = mode_plans({"small": up})
        both = {"small": recorded}
        path = tmp_path / "p.sqlite"
        done = ask_menu(both, path, {"small": up}, budget=2, policy=StoppingPolicy(), plans=plans)
        assert up.count.requests == done.spent == 40
    assert [use.name for use in done.modes] == ["small"]
    assert done.unit == "samples"
    assert all(item.modes == {"small": item.samples} for item in done.each)


def test_what_does_not_fit_together_is_said_before_anything_is_sent(tmp_path: Path):
    recorded, path, policy = unseen(1), tmp_path / "p.sqlite", menu_policy()
    with two_upstreams(recorded) as ups:
        plans = mode_plans(ups)
        free = [replace_prices(plan) for plan in plans]
        judge = build_verifier(VerifierConfig(url=ups["small"].url, model="judge"), EndpointConfig())
        scored = [plans[0], replace(plans[1], verifier=judge)]
        for error, words, options in (
            (PolicyError, "several modes, and samples of one model are drawn here; give their menu",
             {"plans": replace(plans[0], asking=replace(plans[0].asking, mode=""))}),
            (PolicyError, "over small, large needs the mode 'large', and the menu has small",
             {"plans": plans[:1]}),
            (PolicyError, "stopping policy draws samples of one mode, and the menu has small, large; fit one",
             {"policy": StoppingPolicy()}),
            (PolicyError, "a fixed policy draws samples of one mode", {"policy": FixedPolicy(2)}),
            (CollectError, "a verifier scores samples of one model", {"plans": scored}),
            (BudgetInvalid, "is in samples, which cost differently in small, large; give money, e.g. '2 USD",
             {"budget": 3}),
            (BudgetInvalid, "is in tokens, which cost differently", {"budget": "500 tokens"}),
            (BudgetInvalid, "needs prices, and no mode of the menu has any", {"plans": free}),
            (BudgetOutOfRange, "below what one sample of 'small' costs on average; give 5.87 USD per 1,000",
             {"budget": "1 USD per 1000"}),
            (BudgetOutOfRange, "one sample of mode 'small' can cost", {"budget": "6 USD per 1000"}),
            (BudgetOutOfRange, "one sample of mode 'large' can cost .* with max_tokens 24", {
                "budget": "6 USD per 1000", "plans": [lengthen(plans[0]), plans[1]]}),
            (BudgetInvalid, "is not in USD", {"budget": "9 EUR per 1000"}),
        ):  # fmt: skip
            with pytest.raises(error, match=words) as raised:
                ask_menu(recorded, path, ups, **{"budget": "80 USD per 1000", "policy": policy, **options})
            assert "\n" not in str(raised.value)
        assert [up.count.requests for up in ups.values()] == [0, 0]


def lengthen(plan: SourcePlan) -> SourcePlan:
    """The same source, but its responses may be so long that one can cost more than the other mode's."""
    return replace(plan, asking=replace(plan.asking, sampling={**plan.asking.sampling, "max_tokens": 9000}))


def replace_prices(plan: SourcePlan) -> SourcePlan:
    return replace(plan, prices=TokenPrices())


def test_the_menu_of_modes_without_recordings_is_estimated_by_their_prices():
    with two_upstreams(unseen(1)) as ups:
        short, long = mode_plans(ups), mode_plans(ups, max_tokens=4000)
    problem = Problem(id="p", question="?" * 276)  # 100 tokens, at three characters a token and 8 a message
    assert estimate_plan_modes(short, [problem]) == Menu(
        modes=(Mode(name="small", cost=0.0196), Mode(name="large", cost=0.392)), unit="money", currency="USD"
    )
    assert estimate_plan_modes(long, [problem])["large"].cost == pytest.approx(
        (100 * 2000 + 300 * 8000) / 1e6
    )


@pytest.mark.slow
def test_a_menu_batch_killed_at_many_points_and_resumed_asks_for_nothing_twice(tmp_path: Path):
    path, kills = tmp_path / "pool.sqlite", 12
    menu_policy().save(tmp_path / "policy")
    options = ("--n", "ignore", "--latency", "0.02")
    with process(*options) as small, process(*options) as large:
        words = [sys.executable, str(KILLED), f"{small} {large} {tmp_path / 'policy'}", str(path)]
        done = subprocess.run(
            [*words, str(kills), "5"], capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        served = {"small": count(small), "large": count(large)}
    assert int(done.stdout) > kills // 2, "it was done before it could be killed"
    cost, texts, calls = 0.0, list[str](), 0
    with open_pool(path) as pool:
        assert pool.verify().ok
        for name, model, parameters in list_sources(pool):
            account = pool.account(model, parameters)
            cost += account.cost(PRICES[name], at_most=True)
            calls += account.calls
            for recorded in pool:
                if recorded.parameters == parameters:
                    texts += [f"{name}: {sample.text}" for sample in recorded.samples]
        ids = {id_ for _, model, parameters in list_sources(pool) for id_, _ in pool.keys(model, parameters)}
    assert len(set(texts)) == len(texts), "a response was stored twice"
    assert len(ids) == REQUESTS
    assert cost <= BUDGET * REQUESTS
    lost = sum(each["requests"] for each in served.values()) - calls
    assert 0 <= lost <= int(done.stdout) * 2 * 3 * 4, (
        "the crash window is three times the concurrency of each"
    )
