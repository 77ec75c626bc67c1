"""A gateway over a menu in earnest: real processes, 2,000 requests, faults, and kill -9 of either side."""

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from menus import COSTS, ModeProcess, list_questions, make_menu, read_ballots, read_recorded, write_menu
from running import Process

import adacompute as ac
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.pool import Ballots
from adacompute.serve.spending.ledger import Caps
from adacompute.serve.spending.local_ledger import Ledger

BUDGET = 5e-5  # half a sample of the large mode
REQUESTS = 2000
WORKERS = 8


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learned on every second problem; requests are of the others."""
    ballots = read_ballots()
    policy = MenuPolicy(make_menu(), weigh=None).fit(_select(range(0, len(ballots), 2)))
    folder = tmp_path_factory.mktemp("policy") / "menu-policy"
    policy.save(folder)
    return folder


def _select(rows: range) -> Ballots:
    return read_ballots().only(rows)


class Traffic:
    """Asks a gateway from several threads, each on a connection of its own."""

    def __init__(self, gate: Process) -> None:
        self._gate = gate
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def __enter__(self) -> "Traffic":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def ask(self, question: str) -> tuple[int, dict[str, Any]]:
        where = urlsplit(self._gate.base)
        body = {
            "model": "adacompute",
            "messages": [{"role": "user", "content": question}],
            "temperature": 0.7,
            "max_tokens": 10,
        }
        for attempt in range(2):  # a kept connection may have been closed meanwhile
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
                self._local.connection = connection
                self._connections.append(connection)
            try:
                connection.request(
                    "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
                )
                reply = connection.getresponse()
                return reply.status, json.loads(reply.read())
            except (http.client.HTTPException, OSError):
                connection.close()
                self._local.connection = None
                if attempt:
                    raise
        raise AssertionError

    def ask_all(
        self, questions: list[str], on_done: Callable[[int], None] = lambda _: None
    ) -> list[tuple[int, dict[str, Any]]]:
        done = 0

        def ask(question: str) -> tuple[int, dict[str, Any]]:
            nonlocal done
            reply = self.ask(question)
            done += 1
            on_done(done)
            return reply

        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(ask, questions))


@pytest.fixture
def modes(tmp_path: Path) -> Iterator[dict[str, ModeProcess]]:
    """Two upstreams: the large one is slower, and the small one fails now and then."""
    with (
        ModeProcess("small", tmp_path, "--seed", "1", "--delay", "0.002", "--error-rate", "0.01") as small,
        ModeProcess("large", tmp_path, "--seed", "2", "--delay", "0.01") as large,
    ):
        yield {"small": small, "large": large}


def serve(folder: Path, modes: dict[str, ModeProcess], policy: Path, **settings: Any) -> Process:
    menu = write_menu(folder, {name: mode.url for name, mode in modes.items()})
    options = {"vote": "always", "unit": "money", "log": "warning", **settings}
    return Process(
        "",
        folder=folder,
        menu=str(menu),
        policy=str(policy),
        budget=f"{BUDGET} USD",
        environ={"ADACOMPUTE_ANSWERS_EXTRACT": "line"},
        **options,
    )


def held_out_questions(count: int, seed: int = 0) -> list[tuple[int, str]]:
    everything = [(row, each.problem.question) for row, each in enumerate(read_recorded()["small"])]
    others = [each for each in everything if each[0] % 2]
    order = np.random.default_rng(seed).permutation(np.resize(np.arange(len(others)), count))
    return [others[k] for k in order]


def read_ledger(folder: Path) -> tuple[float, float]:
    """What the ledger's file says was spent, and what more may have been, in money."""

    async def read() -> tuple[float, float]:
        ledger = await Ledger.open(folder / "adacompute-gateway.sqlite", Caps(unit="money"))
        try:
            balance = ledger.account()
            return balance.spent.money, balance.maybe.money
        finally:
            await ledger.close()

    return asyncio.run(read())


def test_the_average_is_met_in_money_and_the_ledger_equals_what_the_upstreams_gave(
    policy: Path, modes: dict[str, ModeProcess], tmp_path: Path
):
    asked = held_out_questions(REQUESTS)
    with serve(tmp_path, modes, policy) as gate, Traffic(gate) as traffic:
        replies = traffic.ask_all([question for _, question in asked])
    assert {status for status, _ in replies} == {200}
    extras = [reply["adacompute"] for _, reply in replies]
    counts = {name: sum(e["modes"].get(name, {"samples": 0})["samples"] for e in extras) for name in COSTS}
    assert counts == {name: mode.given for name, mode in modes.items()}
    assert min(counts.values()) > REQUESTS / 20, "both modes are used"
    money = sum(COSTS[name] * count for name, count in counts.items())
    spent, maybe = read_ledger(tmp_path)
    assert spent == pytest.approx(money, rel=1e-6)
    assert maybe < 0.02 * spent, "calls that failed may be charged for"
    assert money / REQUESTS == pytest.approx(BUDGET, rel=0.03)
    live, replayed = measure_accuracy(asked, extras), measure_replay(policy, money / REQUESTS)
    assert live > replayed - 0.03


def measure_accuracy(asked: list[tuple[int, str]], extras: list[dict[str, Any]]) -> float:
    """By the recording's own grades, as replay counts: they take i for I."""
    grades: dict[tuple[int, str], float] = {}
    for recorded in read_recorded().values():
        for row, each in enumerate(recorded):
            grades |= {(row, str(sample.answer)): float(sample.correct or 0.0) for sample in each.samples}
    return float(
        np.mean([grades.get((row, str(e["answer"])), 0.0) for (row, _), e in zip(asked, extras, strict=True)])
    )


def measure_replay(policy: Path, cost: float) -> float:
    """What the same policy reaches in replay, on the same problems at the same cost."""
    held_out = _select(range(1, len(read_ballots()), 2))
    loaded = ac.load_policy(policy)
    price = ac.calibrate(loaded, held_out, budget=cost, orders=8)
    accuracy = ac.replay(loaded, held_out, price=price, orders=8).accuracy
    assert accuracy is not None
    return accuracy.mean


def test_with_one_upstream_killed_midway_requests_go_on_and_the_cap_holds(
    policy: Path, modes: dict[str, ModeProcess], tmp_path: Path
):
    cap, requests = 0.05, 400

    def kill(done: int) -> None:
        if done == requests // 2:
            modes["large"].kill()

    with serve(tmp_path, modes, policy, cap=cap) as gate, Traffic(gate) as traffic:
        replies = traffic.ask_all([question for _, question in held_out_questions(requests, seed=3)], kill)
    assert {status for status, _ in replies} == {200}
    late = [reply["adacompute"] for _, reply in replies[-100:]]
    assert {extra["answered_by"] for extra in late} == {"small"}
    assert any("mode large failed" in note for extra in late for note in extra.get("notes", ()))
    spent, maybe = read_ledger(tmp_path)
    money = sum(COSTS[name] * mode.given for name, mode in modes.items())
    assert spent - 1e-9 <= money <= spent + maybe + 1e-9
    assert spent + maybe <= cap


def test_killing_the_gateway_loses_nothing_that_was_paid_for(
    policy: Path, modes: dict[str, ModeProcess], tmp_path: Path
):
    questions = [question for _, question in list_questions(600, seed=4)]
    with serve(tmp_path, modes, policy) as gate, Traffic(gate) as traffic:
        count = iter(range(1, 10**6))

        def ask(question: str) -> int:
            try:
                status, _ = traffic.ask(question)
            except (OSError, http.client.HTTPException):
                return 0
            if next(count) == 300:
                gate.kill()
            return status

        with ThreadPoolExecutor(WORKERS) as pool:
            statuses = list(pool.map(ask, questions))
    assert statuses.count(200) >= 300
    assert 0 in statuses, "it was killed amid requests"
    given = {name: mode.given for name, mode in modes.items()}
    money = sum(COSTS[name] * count for name, count in given.items())
    spent, maybe = read_ledger(tmp_path)
    assert spent - 1e-9 <= money <= spent + maybe + 1e-9, "every sample is in the ledger, none of them twice"
    with serve(tmp_path, modes, policy) as gate, Traffic(gate) as traffic:
        status, _ = traffic.ask(questions[0])
    assert status == 200
    again, maybe_again = read_ledger(tmp_path)
    more = sum(COSTS[name] * (mode.given - given[name]) for name, mode in modes.items())
    assert again == pytest.approx(spent + more)
    assert maybe_again == pytest.approx(maybe)
