"""One gateway with two workers beside one with a single process, on the same upstream.

Knows nothing of `make`. On two cores the client and the upstream need one of them, so what is told is the
processor time of the gateway's processes, and the rate that this allows where they have two cores: processes
that are busy all the time share them evenly, and none of them can use more than one. With four cores or more,
the gateway has two of them to itself, and the rate that its clients saw is told as well.
"""

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT, here, pinned, processor, upstream
from benchmarks.serving import BODY, Way, by, gateway, place

__all__ = ["run", "workers_table"]

CORES = sorted(os.sched_getaffinity(0))
HAS_OWN_CORES = len(CORES) >= 4
GATEWAY_CORES = 2
WORKERS = (1, 2)
CONCURRENCY = (8, 32)
SECONDS, ROUNDS = 2.0, 5
POLICIES = (("single", "one sample"), ("plain", "stopping, plain votes"), ("weighed", "log-probabilities"))


def run(*, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """A row for each policy and number of connections: medians over rounds in which both take turns."""
    rows = []
    with upstream() as url, contextlib.ExitStack() as stack:
        gates = {workers: stack.enter_context(_serve(url, workers)) for workers in WORKERS}
        for policy, name in POLICIES:
            ways = {workers: by(gate, name, policy) for workers, gate in gates.items()}
            for way in ways.values():
                _ask(way, max(CONCURRENCY), seconds)  # the first requests import modules
            for concurrency in CONCURRENCY:
                rows.append(_compare(name, ways, concurrency, seconds=seconds, rounds=rounds))
    return rows


@contextlib.contextmanager
def _serve(url: str, workers: int) -> Iterator[Way]:
    with place() as folder, gateway(url, folder, workers=workers) as way:
        assert way.pid is not None
        if HAS_OWN_CORES:
            _spread(way.pid, set(CORES[:GATEWAY_CORES]))
        yield way


def _spread(pid: int, cores: set[int]) -> None:
    """Lets a process, its threads and all below it use these cores."""
    for member in (pid, *_list_workers(pid)):
        for task in Path(f"/proc/{member}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def _list_workers(pid: int) -> list[int]:
    """The workers of a gateway; none where it is one process."""
    children = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in children if b"run_worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _compare(
    name: str, ways: dict[int, Way], concurrency: int, *, seconds: float, rounds: int
) -> dict[str, Any]:
    turns: dict[int, list[dict[str, float]]] = {workers: [] for workers in ways}
    for _ in range(rounds):
        for workers, way in ways.items():
            turns[workers].append(_measure(way, concurrency, seconds))
    one, two = ({key: statistics.median(turn[key] for turn in turns[n]) for key in turns[n][0]} for n in ways)
    ratios = [later["allowed"] / first["allowed"] for first, later in zip(*turns.values(), strict=True)]
    return {
        "way": name,
        "connections": concurrency,
        "one": one,
        "two": two,
        "ratio": statistics.median(ratios),
        "wall_ratio": two["rate"] / one["rate"],
    }


def _measure(way: Way, concurrency: int, seconds: float) -> dict[str, float]:
    """Processor time a request of each process, and the rate that it allows on two cores."""
    assert way.pid is not None
    members = [way.pid, *_list_workers(way.pid)]
    before = [processor(member) for member in members]
    seen = _ask(way, concurrency, seconds)
    taken = [processor(member) - start for member, start in zip(members, before, strict=True)]
    workers = taken[1:]
    parent = taken[0] - sum(workers)  # the first counts those below it as well
    requests = seen["whole"]
    busiest = max(parent, *workers) if workers else parent
    return {
        "rate": seen["rate"],
        "cpu": taken[0] / requests,
        "parent": parent / requests,
        "evenness": min(workers) / max(workers) if workers else 1.0,
        "allowed": requests / max(busiest, taken[0] / GATEWAY_CORES),
    }


def _ask(way: Way, concurrency: int, seconds: float) -> dict[str, Any]:
    """What clients saw: two processes of them where there are cores for it."""
    cores = CORES[GATEWAY_CORES:-1][:2] if HAS_OWN_CORES else CORES[-1:]
    each = concurrency // len(cores)
    words = here("-m", "benchmarks.load", way.url, "--concurrency", str(each), "--seconds", str(seconds))
    words += [f"--header={name}={value}" for name, value in way.headers.items()]
    body = json.dumps(BODY).encode()
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(
                subprocess.Popen(pinned(core, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
            )
            for core in cores
        ]
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(body)
            client.stdin.close()
            client.stdin = None
        seen = [json.loads(client.communicate()[0]) for client in clients]
    for part in seen:
        if set(part["statuses"]) != {"200"} or part["lost"]:
            raise RuntimeError(f"{way.name} didn't answer all: {part['statuses']}, {part['lost']} lost")
    return {key: sum(part[key] for part in seen) for key in ("rate", "whole")}


def workers_table() -> list[dict[str, str]]:
    """Both beside each other, and how many times the rate of one process two workers allow."""
    return [
        {
            "way": row["way"],
            "connections": str(row["connections"]),
            "one process, processor time a request": f"{1000 * row['one']['cpu']:.2f} ms",
            "two workers": f"{1000 * row['two']['cpu']:.2f} ms",
            "of which the parent": f"{1000 * row['two']['parent']:.2f} ms",
            "the idler worker's share of the busier one's": f"{row['two']['evenness']:.2f}",
            "rate that two cores allow": f"{row['two']['allowed']:,.0f} / s",
            "ratio": f"{row['ratio']:.2f}×",
            **({"ratio as clients saw it": f"{row['wall_ratio']:.2f}×"} if HAS_OWN_CORES else {}),
        }
        for row in run()
    ]
