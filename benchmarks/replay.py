"""Replaying a policy beside the plain loop over tallies, one request at a time. Knows nothing of pages."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import adacompute as ac
from adacompute.answers import Tally, VoteWeights
from adacompute.evaluate.rivals import DoublingPolicy
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.pool import Ballots
from adacompute.records import Sample
from adacompute.replay.calibrate import calibrate
from adacompute.replay.replay import replay

PROBLEMS, SAMPLES, ORDERS = 600, 64, 200
PART = 600  # requests asked one by one; their time is scaled up to all
WEIGH = VoteWeights(signal="logprob", scale=-0.2)

POLICIES: dict[str, tuple[Policy, float | None]] = {
    "Adaptive-Consistency": (AdaptiveConsistency(), 0.05),
    "Adaptive-Consistency, weighted votes": (AdaptiveConsistency(weigh=WEIGH), 0.05),
    "doubling": (DoublingPolicy(), 0.25),
    "always 4, weighted votes": (FixedPolicy(4, weigh=WEIGH), None),
    "stopping, its prior (about 3 samples)": (ac.StoppingPolicy(), 0.05),
    "stopping, its prior (about 6 samples)": (ac.StoppingPolicy(), 0.01),
}


def recorded(problems: int = PROBLEMS) -> Ballots:
    """So many problems of the bundled recordings, 64 samples each, some of them twice."""
    with ac.bundled("words") as pool:
        found = pool.ballots()
    return found.only(np.arange(problems) % len(found))


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The best of some: what else the machine does only ever adds to it."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def loop(
    policy: Policy, ballots: Ballots, dial: float | None, rng: np.random.Generator, requests: int
) -> float:
    """The mean cost of some requests, each sample added to a real tally."""
    spent = 0
    for k in range(requests):
        problem = k % len(ballots)
        order = rng.permutation(int(ballots.drawn[problem]))[: policy.longest]
        tally = Tally(weigh=policy.weigh)
        while more := policy.more(ballots.prompts[problem], tally, dial):
            for j in order[tally.drawn : tally.drawn + more]:
                tally.add(_sample(ballots, problem, int(j)))
        spent += tally.drawn
    return spent / requests


def _sample(ballots: Ballots, problem: int, j: int) -> Sample:
    number = int(ballots.classes[problem, j])
    return Sample(
        answer=f"answer {chr(97 + number % 26)}{chr(97 + number // 26)}" if number >= 0 else None,
        tokens=int(ballots.tokens[problem, j]),
        logprob=float(ballots.logprob[problem, j]),
    )


def speed(problems: int = PROBLEMS, orders: int = ORDERS, part: int = PART) -> list[dict[str, Any]]:
    """Seconds to replay each policy, with its paths and interval, and how long the loop would take."""
    ballots = recorded(problems)
    found = []
    for name, (policy, dial) in POLICIES.items():
        ours = seconds(lambda policy=policy, dial=dial: replay(policy, ballots, price=dial, orders=orders))
        rng = np.random.default_rng(0)
        plain = seconds(lambda policy=policy, dial=dial, rng=rng: loop(policy, ballots, dial, rng, part), 1)
        plain *= problems * orders / part
        row = {"policy": name, "replay": ours, "loop": plain, "ratio": plain / ours, "calibrate": None}
        if dial is not None:
            row["calibrate"] = seconds(lambda policy=policy: calibrate(policy, ballots, 3.0), 1)
        found.append(row)
    return found
