"""A gateway whose budget is a quality paces on the cost that was measured for it, and says so everywhere."""

from dataclasses import replace
from pathlib import Path

import pytest
from running import Running

import adacompute as ac
from adacompute.config import Config, EndpointConfig, ServeConfig
from adacompute.errors import BudgetInvalid, ConfigError
from adacompute.policies.chart import write_chart
from adacompute.policies.quality import QualityCurve
from adacompute.policies.stopping.prior import load_bundled_chart
from adacompute.serve.pricing.policy_registry import settle_quality
from harness import Run
from upstream import Upstream

CURVE = QualityCurve(
    samples=8,
    rival_cost=8.0,
    accuracy=0.8,
    costs=(2.0, 3.0, 4.0),
    gains=(-0.02, 0.001, 0.002),
    lows=(-0.03, -0.015, -0.004),
)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """A folder with a policy that was measured to be as good as 8 from 4 samples on."""
    folder = tmp_path / "policy"
    ac.StoppingPolicy().save(folder)
    chart = load_bundled_chart()
    assert chart is not None
    write_chart(folder, replace(chart, qualities=(CURVE,), measured="2026-11-18"))
    return str(folder)


def test_a_quality_is_served_at_its_cost_and_every_reply_says_so(policy: str):
    with Upstream() as upstream, Running(upstream.url, policy=policy, budget="as good as 8") as gateway:
        reply = gateway.ask().json["adacompute"]["quality"]
        own_budget = gateway.ask(headers={"x-adacompute-budget": "2"}).json["adacompute"]
        board = gateway.get("/dashboard/data").json
        assert gateway.gateway.budget.amount == 4.0
    assert (reply["quality"], reply["cost"], reply["saved"]) == ("as good as 8", 4.0, 0.5)
    assert reply["measured"] == "2026-11-18"
    assert "quality" not in own_budget
    assert board["budget"] == 4.0
    assert board["quality"].startswith("as good as 8: 4 on average for 8, 50% less")


def test_a_wider_margin_is_a_lower_cost(policy: str):
    with Upstream() as upstream:
        settings = {"policy": policy, "budget": "as good as 8", "margin": 2.0}
        with Running(upstream.url, **settings) as gateway:
            assert gateway.gateway.budget.amount == 3.0


def test_an_operator_who_sets_an_amount_ends_the_quality(policy: str, tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text('[boss]\nkey = "an-operators-key-of-24-letters"\noperator = true\n')
    headers = {"authorization": "Bearer an-operators-key-of-24-letters"}
    with (
        Upstream() as upstream,
        Running(upstream.url, policy=policy, budget="as good as 8", keys_file=str(keys)) as gateway,
    ):
        assert gateway.patch("/admin/budget", {"budget": 2}, headers).status == 200
        changed = gateway.ask(headers=headers).json["adacompute"]
        assert gateway.patch("/admin/budget", {"budget": None}, headers).json["amount"] == 4.0
        back = gateway.ask(headers=headers).json["adacompute"]
    assert "quality" not in changed
    assert back["quality"]["quality"] == "as good as 8"


def test_a_check_says_what_the_budget_stands_for(policy: str, adacompute: Run):
    with Upstream() as upstream:
        words = ("--upstream", upstream.url, "--policy", policy, "--budget", "as good as 8", "--port", "0")
        checked = adacompute("serve", "--check", *words)
    assert "as good as 8: 4 on average for 8, 50% less" in checked.stdout


def test_an_asker_keeps_the_cost_of_a_quality(policy: str):
    with (
        Upstream() as upstream,
        ac.Asker(upstream.url, model="m", policy=policy, budget="as good as 8") as asker,
    ):
        assert asker.ask("What is 6 times 7?").answer is not None
        assert asker.budget.amount == 4.0


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("as good as 16", "wasn't measured; give one of 8"),
        ("as good as large", "wasn't measured; give one of 8"),
        ("as good as", "give e.g. 'as good as 8'"),
        ("within 0.1 points of 8", "can't be shown to be reached"),
    ],
)
def test_a_quality_that_was_not_shown_is_refused_at_the_start(policy: str, budget: str, words: str):
    config = Config(
        serve=ServeConfig(policy=policy, budget=budget), endpoint=EndpointConfig(url="http://[::1]:9/v1")
    )
    with pytest.raises(BudgetInvalid) as refused:
        settle_quality(config)
    assert words in str(refused.value)


def test_the_policy_in_the_package_was_measured_for_no_quality():
    with pytest.raises(BudgetInvalid, match="needs a policy that was measured"):
        settle_quality(Config(serve=ServeConfig(budget="as good as 8")))


def test_a_margin_is_in_points():
    with pytest.raises(ConfigError, match="margin"):
        ServeConfig(margin=-1.0)
