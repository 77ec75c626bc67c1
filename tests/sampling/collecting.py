"""Collections to make in tests: problems, what is asked, and an upstream in a process of its own."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adacompute.client import BreakerSettings, Endpoint, RateLimits, Retries, Timeouts
from adacompute.pool import Pool
from adacompute.problems import Template
from adacompute.records import Problem
from adacompute.sampling import Asking, Collected, SourcePlan, collect

UPSTREAM = Path(__file__).resolve().parent.parent / "client" / "upstream.py"
QUICK = Retries(attempts=5, deadline=20.0, first=0.01, longest=0.05)


def problems(count: int) -> list[Problem]:
    return [Problem(id=f"p{i}", question=f"What is {i} + {i}?", gold=str(2 * i)) for i in range(count)]


def asking(**fields: Any) -> Asking:
    sampling = {"temperature": 0.7, "max_tokens": 32}
    return Asking(**{"model": "scripted", "template": Template.named("plain"), "sampling": sampling} | fields)


def endpoint(url: str, *, concurrency: int = 4, **fields: Any) -> Endpoint:
    settings = {
        "limits": RateLimits(concurrency=concurrency),
        "retries": QUICK,
        "timeouts": Timeouts(connect=2.0, first_byte=5.0, total=10.0),
        "breaker": BreakerSettings(failures=50, seconds=0.05, longest=0.1),
    }
    return Endpoint(url=url, **settings | fields)


def plan(url: str, **fields: Any) -> SourcePlan:
    """How the upstream is asked; `fields` are those of the plan and of its endpoint."""
    told = {
        name: fields.pop(name)
        for name in ("concurrency", "retries", "key", "breaker", "timeouts")
        if name in fields
    }
    return SourcePlan(**{"endpoint": endpoint(url, **told), "asking": asking()} | fields)


def run(pool: Pool, url: str, *, count: int = 3, samples: int = 5, **fields: Any) -> Collected:
    run_names = ("max_cost", "another", "regrade", "progress", "signals")
    how = {name: fields.pop(name) for name in run_names if name in fields}
    return collect(problems(count), pool, plan(url, samples=samples, **fields), **how)


def stored(pool: Pool) -> dict[tuple[str, int], str]:
    """Every sample of a pool by problem and index, found by reading it through."""
    found = {}
    for recorded in pool:
        for index, sample in zip(sorted_indexes(pool, recorded.problem.id), recorded.samples, strict=True):
            found[recorded.problem.id, index] = sample.text or ""
    return found


def sorted_indexes(pool: Pool, problem_id: str) -> list[int]:
    return sorted(
        index for model, p in pool.models for id_, index in pool.keys(model, p) if id_ == problem_id
    )


def planned(count: int, samples: int) -> set[tuple[str, int]]:
    return {(f"p{i}", j) for i in range(count) for j in range(samples)}


@contextmanager
def process(*options: str) -> Iterator[str]:
    """The scripted upstream as a process; gives its URL."""
    words = [sys.executable, str(UPSTREAM), *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as upstream:
        assert upstream.stdout is not None
        try:
            yield upstream.stdout.readline().strip()
        finally:
            upstream.kill()


def count(url: str) -> dict[str, Any]:
    """The upstream's own count."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/count", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
