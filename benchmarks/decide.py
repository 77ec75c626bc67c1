"""Deciding for one request beside XGBoost's own call for one row. Knows nothing of pages."""

import random
import timeit
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import adacompute as ac
from adacompute.policies import AdaptiveConsistency, GuaranteePolicy, Policy
from adacompute.records import Signals

LEARNED = 120  # problems of the bundled recording that policies are fitted on
PRICE = 0.02
LONG = 100_000  # characters of a long prompt
PROMPT = "A farmer has 12 cows and 7 goats, and sells 3 of them every week for 4 dollars each. " * 6


def microseconds(work: Callable[[], object], times: int = 200) -> float:
    """Of one call, the best of some runs."""
    return min(timeit.repeat(work, number=times, repeat=15)) / times * 1e6


def long_prompt() -> str:
    """Words, numbers and signs in no order, none of them told apart by where it stands."""
    drawn = random.Random(0)
    words = [*PROMPT.split(), "1,200", "3/4", "50%", "half", "per", "hour?", "then", "remaining"]
    return " ".join(
        f"{drawn.choice(words)}{drawn.randrange(10**6) if drawn.random() < 0.2 else ''}"
        for _ in range(LONG // 4)
    )[:LONG]


def library(rows: int = 300) -> float:
    """XGBoost's own prediction of one row: 100 rounds, depth 5, 5 classes, 16 features."""
    import xgboost as xgb

    rng = np.random.default_rng(0)
    data, labels = rng.random((rows, 16)), rng.integers(0, 5, rows)
    model = xgb.XGBClassifier(n_estimators=100, max_depth=5, learning_rate=0.1, n_jobs=1).fit(data, labels)
    return microseconds(lambda: model.predict(data[:1]), 50)


def speed() -> list[dict[str, Any]]:
    """Microseconds of `more` for prompts of 500 characters and of 100 KB, and a tally of three votes."""
    with ac.bundled("words") as pool:
        ballots = pool.ballots().only(range(LEARNED))
    policies: dict[str, tuple[Policy, float | None]] = {
        "stopping, its prior": (ac.StoppingPolicy(), PRICE),
        "stopping, fitted": (ac.StoppingPolicy().fit(ballots), PRICE),
        "classifier (XGBoost's trees as arrays)": (ac.ClassifierPolicy().fit(ballots, budget=2.0), None),
        "curve": (ac.CurvePolicy().fit(ballots), PRICE),
        "Adaptive-Consistency": (AdaptiveConsistency(), 0.05),
        "guarantee": (GuaranteePolicy(delta=0.05), None),
    }
    samples = [
        ac.Sample(answer=answer, tokens=10, logprob=logprob, entropy=0.3)
        for answer, logprob in (("1", -1.0), ("2", -2.0), ("1", -1.5))
    ]
    other, long = library(), long_prompt()
    found = []
    for name, (policy, dial) in policies.items():
        tally = ac.Tally.of(samples, weigh=policy.weigh)
        prompt = PROMPT[:500]
        ours = microseconds(lambda p=policy, t=tally, d=dial, q=prompt: p.more(q, t, d))
        slow = microseconds(lambda p=policy, t=tally, d=dial, q=long: p.more(q, t, d), 10)
        found.append({"policy": name, "more": ours, "long": slow, "library": other, "ratio": other / ours})
    return [*found, _measure_signals(samples, other), _measure_all_modes(samples, other)]


def _measure_all_modes(samples: list[ac.Sample], library_time: float) -> dict[str, Any]:
    """As `speed`, of a policy over two modes; `next` decides, at the price where it is slowest."""
    with ac.bundled("facts") as small, ac.bundled("facts-qwen") as large:
        ballots = ac.join_pools({"small": small, "large": large}).ballots().only(range(LEARNED))
    policy = ac.MenuPolicy(ac.Menu.of(ballots, costs={"small": 0.1, "large": 1.0})).fit(ballots)
    drawn = [
        replace(sample, mode=mode) for sample, mode in zip(samples, ("small", "small", "large"), strict=True)
    ]
    tally = ac.Tally.of(drawn, weigh=policy.weigh)
    times = [
        max(
            microseconds(lambda q=prompt, p=price: policy.next(q, tally, p), 20)
            for price in policy.prices_.tolist()
        )
        for prompt in (PROMPT[:500], long_prompt())
    ]
    ratio = library_time / times[0]
    return {
        "policy": "menu of two modes, fitted",
        "more": times[0],
        "long": times[1],
        "library": library_time,
        "ratio": ratio,
    }


def _measure_signals(samples: list[ac.Sample], library_time: float) -> dict[str, Any]:
    """As `speed`, of the prior and samples with signals; weighing and counting the three is included."""
    policy = ac.StoppingPolicy()
    signals = Signals(tail=-0.1, answer_sum=-0.02, answer_entropy=0.01, confidence=12.0)
    signalled = [replace(sample, signals=signals) for sample in samples]
    times = [
        microseconds(
            lambda q=prompt: policy.more(q, ac.Tally.of(signalled, weigh=policy.weigh), PRICE), number
        )
        for prompt, number in ((PROMPT[:500], 200), (long_prompt(), 10))
    ]
    name = "stopping, its prior, and counting three samples with signals"
    ratio = library_time / times[0]
    return {"policy": name, "more": times[0], "long": times[1], "library": library_time, "ratio": ratio}
