"""A fleet over a menu: one average and one cap in money, whichever gateway and mode a request comes to."""

from pathlib import Path
from typing import Any

import pytest
from crowd import Visit, until
from fleets import Held, Replica, crowds
from menus import COSTS, MenuUpstreams, list_questions, save_policy

from clusters import RedisServer

BUDGET = 5e-5  # half a sample of the large mode


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_policy(tmp_path_factory.mktemp("policy")))


def join(menu: MenuUpstreams, server: RedisServer, folder: Path, policy: str, **settings: Any) -> Replica:
    return Replica(
        "",
        server,
        menu=str(menu.write(folder)),
        policy=policy,
        budget=f"{BUDGET} USD",
        unit="money",
        vote="always",
        environ={"ADACOMPUTE_ANSWERS_EXTRACT": "line"},
        **settings,
    )


def visit(question: str) -> Visit:
    message = {"role": "user", "content": question}
    return Visit(body={"model": "adacompute", "messages": [message], "max_tokens": 10})


@pytest.mark.nightly
def test_a_fleet_meets_its_average_in_money_over_all_modes_and_its_ledger_is_exact(
    redis_server: RedisServer, policy: str, tmp_path: Path
):
    with (
        MenuUpstreams(seed=1) as menu,
        join(menu, redis_server, tmp_path, policy) as one,
        join(menu, redis_server, tmp_path, policy) as two,
        Held(redis_server) as held,
    ):
        come = [visit(question) for _, question in list_questions(800)]
        answers = [answer for part in crowds([one, two], come, at_once=4) for answer in part]
        assert {answer.status for answer in answers if answer} == {200}
        until(lambda: held.account().reserved.nanos == 0)
        spent, counts = held.account().spent, menu.count_samples()
    extras = [answer.json["adacompute"] for answer in answers if answer]
    assert counts == {
        name: sum(e["modes"].get(name, {"samples": 0})["samples"] for e in extras) for name in COSTS
    }
    assert spent.samples == sum(counts.values())
    assert spent.money == pytest.approx(menu.count_money())
    assert spent.money / len(come) == pytest.approx(BUDGET, rel=0.08)


def test_a_fleets_cap_in_money_holds_over_all_modes(redis_server: RedisServer, policy: str, tmp_path: Path):
    cap = 0.0015
    with (
        MenuUpstreams(seed=1) as menu,
        join(menu, redis_server, tmp_path, policy, cap=cap) as one,
        join(menu, redis_server, tmp_path, policy, cap=cap) as two,
        Held(redis_server) as held,
    ):
        come = [visit(question) for _, question in list_questions(100)]
        answers = [answer for part in crowds([one, two], come, at_once=8) for answer in part]
        until(lambda: held.account().reserved.nanos == 0)
        spent = held.account().spent.money
    assert {answer.status for answer in answers if answer} == {200, 429}
    assert cap / 2 < spent <= cap
    assert spent == pytest.approx(menu.count_money())
