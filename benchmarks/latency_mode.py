"""Latency mode of the gateway at an upstream with a heavy tail: how long requests take, and what that costs.

One reply in ten takes ten times as long. Every way has an upstream and a gateway of its own, the same budget
and the same clients, which ask one after another. Samples are counted by the upstream: all that it was asked
for, also those that were cancelled. The first requests, in which the gateway measures, are left out.
"""

import asyncio
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from adacompute.policies import FixedPolicy, StoppingPolicy
from adacompute.policies.base import Policy
from benchmarks.processes import free_port, here, running, upstream
from benchmarks.serving import BODY

SECONDS = 0.25  # of most replies
TAIL = 0.1  # share of replies that take ten times as long
REQUESTS = 800
WARM = 400  # of these
CLIENTS = 12
TARGETS = ("", "p95=2s", "p95=1.4s")
POLICIES: dict[str, tuple[Policy, float]] = {  # with their budgets, in samples
    "stopping, 3 samples on average": (StoppingPolicy(weigh=None), 3.0),
    "always 4 at once": (FixedPolicy(4), 4.0),
}


async def ask(url: str) -> list[float]:
    """Seconds of each request, in the order of their ends, and the samples asked for before the first."""
    seconds: list[float] = []
    left = REQUESTS

    async def client(session: aiohttp.ClientSession) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            async with session.post(f"{url}/v1/chat/completions", json=BODY) as reply:
                assert reply.status == 200, await reply.text()
                await reply.read()
            seconds.append(time.perf_counter() - began)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(session) for _ in range(CLIENTS)))
    return seconds


def fetch(url: str) -> str:
    """The text at an address."""
    with urllib.request.urlopen(url) as reply:
        text: str = reply.read().decode()
    return text


def measure(policy: Policy, budget: float, target: str) -> dict[str, Any]:
    """One way: quantiles of the time, and samples that a request cost."""
    with tempfile.TemporaryDirectory() as name, upstream(latency=SECONDS, most=1, tail=TAIL) as address:
        folder, port = Path(name), free_port()
        policy.save(folder / "policy")
        words = here("-m", "adacompute", "serve", "--upstream", address, "--policy", str(folder / "policy"))
        words += ["--port", str(port), "--budget", str(budget), "--log", "error"]
        words += ["--latency", target] if target else []
        url = f"http://127.0.0.1:{port}"
        with running(words, f"{url}/readyz", folder=folder):
            seconds = asyncio.run(ask(url))[WARM:]
            count = json.loads(fetch(f"{address.removesuffix('/v1')}/count"))
            board = json.loads(fetch(f"{url}/dashboard/data"))
    latency = board["latency"] or {"hedged_requests": 0, "hedged_samples": 0, "unused_samples": 0}
    return {
        "p50": float(np.quantile(seconds, 0.5)),
        "p95": float(np.quantile(seconds, 0.95)),
        "p99": float(np.quantile(seconds, 0.99)),
        "samples": count["requests"] / REQUESTS,
        "hedged": latency["hedged_requests"] / REQUESTS,
        "unused": latency["unused_samples"] / count["requests"],
        "state": latency.get("state", "-"),
    }


def table() -> list[dict[str, str]]:
    """A row for each policy and target."""
    rows = []
    for name, (policy, budget) in POLICIES.items():
        for target in TARGETS:
            row = measure(policy, budget, target)
            rows.append(
                {
                    "policy": name,
                    "target": target or "none",
                    "p50": f"{row['p50']:.2f} s",
                    "p95": f"{row['p95']:.2f} s",
                    "p99": f"{row['p99']:.2f} s",
                    "samples a request": f"{row['samples']:.2f}",
                    "requests hedged": f"{100 * row['hedged']:.0f}%",
                    "samples unused": f"{100 * row['unused']:.0f}%",
                }
            )
    return rows
