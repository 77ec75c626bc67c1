"""An hour of made-up traffic, told to an `Observability` as the gateway would: for tests of the dashboard."""

import math
import random
from dataclasses import replace

from adacompute.policies.chart import Chart, ChartRow
from adacompute.records import Call
from adacompute.serve.messages.reply import ModeUse, RequestOutcome, Usage
from adacompute.serve.spending.ledger import Spend
from adacompute.serve.watching.observability import Observability, SpendStatus

PROTOCOL = "5-fold over 1,319 problems, held out"
START = 1_760_000_000.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self, at: float = START) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


class Policy:
    """A policy as the registry holds it."""

    def __init__(self, name: str, version: str, chart: Chart | None) -> None:
        self.name, self.version, self.chart = name, version, chart


def chart(*, agreement: float = 0.9, deviation: float = 0.2, uniform: float | None = 3.9) -> Chart:
    rows = [
        ChartRow(
            budget=budget,
            price=0.08 / budget,
            cost=budget,
            waves=1.5,
            agreement=agreement,
            deviation=deviation,
            stays=0.9,
            accuracy=0.8,
            uniform=uniform and uniform * budget / 2,
        )
        for budget in (1.0, 2.0, 4.0, 8.0)
    ]
    return Chart(dial="price", unit="samples", problems=1319, protocol=PROTOCOL, rows=tuple(rows))


def told(at: float, **fields: object) -> RequestOutcome:
    plain = {
        "id": f"chatcmpl-{int(at * 1000):032x}",
        "seconds": 1.2,
        "key": "alice",
        "model": "scripted",
        "policy": "stopping",
        "mode": "adaptive",
        "budget": 2.0,
        "price": 0.04,
        "samples": 2,
        "waves": 1,
        "answer": "42",
        "votes": {"42": 2},
        "agreement": 1.0,
        "usage": Usage(prompt_tokens=100, completion_tokens=300, cached_tokens=40),
        "spent": Spend(samples=2, tokens=400, nanos=120_000),
        "prompt": "What is 6 times 7?",
    }
    if (samples := fields.get("samples", 2)) != 2:
        plain["spent"] = Spend(samples=samples, tokens=400, nanos=120_000)
    return RequestOutcome(at=at, **(plain | fields))


def request(at: float, rng: random.Random, *, hard: float = 0.28) -> RequestOutcome:
    """One request of ordinary traffic: most are easy, a few are not answered at all."""
    draw = rng.random()
    seconds = rng.lognormvariate(0.2, 0.5)
    if draw < 0.012:
        code = rng.choice(["timeout", "server-error"])
        return told(
            at,
            seconds=seconds * 8,
            status=502,
            error=code,
            samples=0,
            waves=1,
            answer=None,
            votes={},
            agreement=None,
        )
    if draw < 0.06:
        notes = ("no vote: temperature is 0: every sample would be the same",)
        return told(
            at, seconds=seconds, samples=1, answer=None, votes={}, agreement=None, decided=False, notes=notes
        )
    if rng.random() > hard:
        samples = 1 if rng.random() < 0.7 else 2
        return told(at, seconds=seconds, samples=samples, votes={"42": samples}, prompt="What is 6 times 7?")
    samples = rng.choice([3, 4, 4, 5, 6, 8])
    votes: dict[str, int] = {}
    for _ in range(samples):
        answer = rng.choices(["17/4", "4.2", "no solution", "4", None], [6, 2, 1, 1, 0.4])[0]
        if answer is not None:
            votes[answer] = votes.get(answer, 0) + 1
    best = max(votes, key=lambda one: votes[one], default=None)
    return told(
        at,
        seconds=seconds * 1.8,
        samples=samples,
        waves=2,
        answer=best,
        votes=votes,
        agreement=votes[best] / sum(votes.values()) if best is not None else 0.0,
        missing=int(rng.random() < 0.03),
        prompt="A train travels 17 km in 4 minutes. What is its speed in km per minute, as a fraction?",
    )


def price_request(outcome: RequestOutcome, rng: random.Random) -> RequestOutcome:
    """The same request under a budget of 2 USD per 1,000, with replies of uneven length."""
    tokens = sum(100 + int(rng.lognormvariate(6.4, 0.7)) for _ in range(outcome.samples))
    spent = Spend(samples=outcome.samples, tokens=tokens, nanos=tokens * 1100)
    return replace(outcome, budget=0.002, unit="money", spent=spent, cost=spent.amount_in("money"))


def hour(
    seen: Observability,
    clock: Clock,
    *,
    seed: int = 7,
    requests: int = 4000,
    hard_at_end: float = 0.28,
    money: bool = False,
) -> None:
    """An hour of requests from now on: a dial that swings in, upstream errors, and a second budget.

    `money`: their budget is 2 USD per 1,000, and there is no second.
    """
    rng = random.Random(seed)
    end = clock.at + 3600
    own = {"budget": 0.002, "unit": "money"} if money else {"budget": 2.0}
    seen.on_policy(Policy("stopping", "3f9c2a1e", chart()), **own)
    sums = Spend()
    total = n = 0
    for i in range(requests):
        clock.at = end - 3600 * (1 - (i + 1) / requests)
        share = i / requests
        hard = 0.28 if share < 0.6 else hard_at_end
        one = request(clock.at, rng, hard=hard)
        price = 0.04 + 0.03 * math.exp(-share * 9) + 0.002 * math.sin(share * 40) + rng.gauss(0, 0.0004)
        one = replace(one, price=price)
        if money:
            one = price_request(one, rng)
            sums += one.spent
        elif rng.random() < 0.15:
            one = replace(one, budget=4.0, price=price / 2, key="bob")
        seen.on_request_start()
        for _ in range(one.waves):
            kind = one.error or ("rate-limit" if rng.random() < 0.02 else "ok")
            got = one.samples if kind == "ok" else 0
            seen.on_call(
                Call(
                    at=clock.at, seconds=one.seconds, asked=2, got=got, kind=kind, paid="yes" if got else "no"
                )
            )
        if not one.decided:
            pass
        elif money:
            total, n = total + one.budget_cost, n + 1
            seen.on_price("stopping", 0.002, price, total / n, "money")
        elif one.samples and one.budget == 2.0:
            total, n = total + one.samples, n + 1
            seen.on_price("stopping", 2.0, price, total / n)
        elif one.samples:
            seen.on_price("stopping", 4.0, price / 2, 3.1)
        seen.on_request_end(one)
        if rng.random() < 0.004:
            seen.on_refusal(401, "invalid_api_key")
    for _ in range(3):
        seen.on_request_start()
    seen.read_recorder = lambda: (3731, 0)
    clock.at = end
    if money:
        amount = sums.amount_in("money")
        seen.read_spending = lambda: [
            SpendStatus(name="", spent=amount, cap=50.0, tokens=sums.tokens, money=amount)
        ]
        return
    seen.read_spending = lambda: [
        SpendStatus(name="", spent=8134.0, maybe=41.0, reserved=12.0, cap=20_000.0),
        SpendStatus(name="alice", spent=6820.0, maybe=40.0, reserved=12.0, cap=7000.0),
        SpendStatus(name="bob", spent=1314.0, maybe=1.0, cap=5000.0),
    ]


MODES = ("small", "large")
SAMPLE_NANOS = {"small": 100_000, "large": 2_000_000}  # mean cost of a sample: 0.0001 and 0.002 USD


def menu_request(at: float, rng: random.Random, *, agree: float = 0.9, **fields: object) -> RequestOutcome:
    """One request to a menu of two modes: small ones, and where they disagree one large sample.

    `agree`: how often the small mode's answer is the large one's, where there are both.
    """
    small = rng.choice([1, 2, 2, 3])
    large = int(rng.random() < 0.4)
    same = rng.random() < agree
    parts = []
    for name, samples in (("small", small), ("large", large)):
        nanos = sum(int(SAMPLE_NANOS[name] * rng.uniform(0.7, 1.3)) for _ in range(samples))
        usage = Usage(prompt_tokens=90 * samples, completion_tokens=110 * samples)
        answer = "42" if name == "large" or same else "41"
        spent = Spend(samples=samples, tokens=200 * samples, nanos=nanos)
        if samples:
            parts.append(ModeUse(name=name, samples=samples, answer=answer, spent=spent, usage=usage))
    if not large and rng.random() < 0.02:
        parts.append(ModeUse(name="large", missing=1, failed="rate-limit"))
    spent = sum((use.spent for use in parts), Spend())
    votes = {"42": small + large} if same or not large else {"42": large, "41": small}
    return told(
        at,
        policy="menu",
        budget=0.001,
        unit="money",
        cost=spent.money,
        samples=small + large,
        missing=sum(use.missing for use in parts),
        votes=votes,
        agreement=votes["42"] / (small + large),
        modes=tuple(parts),
        answered_by="large" if large else "small",
        spent=spent,
        usage=Usage(prompt_tokens=90 * (small + large), completion_tokens=110 * (small + large)),
        **fields,
    )


def menu_hour(
    seen: Observability, clock: Clock, *, seed: int = 7, requests: int = 2000, agree_at_end: float = 0.9
) -> list[RequestOutcome]:
    """An hour of requests to a menu of two modes; the outcomes."""
    rng, end, outcomes = random.Random(seed), clock.at + 3600, []
    assert seen.modes is not None
    seen.on_policy(Policy("menu", "3f9c2a1e", None), budget=0.001, unit="money")
    for i in range(requests):
        clock.at = end - 3600 * (1 - (i + 1) / requests)
        agree = 0.9 if i < 0.6 * requests else agree_at_end
        outcomes.append(menu_request(clock.at, rng, agree=agree, price=30.0 + 4 * math.exp(-i / 300)))
        cost = sum(outcome.budget_cost for outcome in outcomes) / len(outcomes)
        seen.on_price("menu", 0.001, outcomes[-1].price or 0.0, cost, "money")
        seen.on_request_start()
        seen.on_call(Call(at=clock.at, seconds=1.0, asked=2, got=2, kind="ok", paid="yes"))
        seen.on_request_end(outcomes[-1])
    spent = sum((outcome.spent for outcome in outcomes), Spend())
    seen.read_spending = lambda: [
        SpendStatus(name="", spent=spent.money, tokens=spent.tokens, money=spent.money)
    ]
    return outcomes
