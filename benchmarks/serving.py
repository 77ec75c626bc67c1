"""The gateway beside a bare proxy, the LiteLLM proxy and its_hub's server, all on one upstream.

Knows nothing of `make`. The server that is measured has a core to itself, and what asks it and what it asks
share another; servers that are not being asked are idle. Ways take turns, round after round, and ratios are
of one round each: a machine that is slow for a while is so for all of them. Medians over rounds are told.
"""

import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adacompute.answers import VoteWeights
from adacompute.policies import FixedPolicy, StoppingPolicy
from benchmarks import peers
from benchmarks.processes import OTHERS, ROOT, free_port, here, pinned, processor, running, upstream

PROMPT = (
    "A farmer has 12 cows and 7 goats. Every week she sells 3 of the cows for 45 dollars each and buys 2 "
    "goats for 15 dollars each. Her neighbour has half as many cows and twice as many goats, and does the "
    "same every second week. After five weeks, how many animals do the two of them have together, and how "
    "many dollars has the farmer earned if feeding one animal for a week costs her 2 dollars and 50 cents? "
    "Think step by step, and put the final answer into a box: \\boxed{...}. Round to whole dollars."
)
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": PROMPT}],
    "temperature": 0.7,
    "max_tokens": 512,
}
EMBEDDED = {"model": "m", "input": PROMPT}
WEIGH = VoteWeights(signal="logprob", scale=-0.25)
POLICIES = {
    "plain": StoppingPolicy(weigh=None),
    "weighed": StoppingPolicy(),  # asks for log-probabilities, as does the default
    "one": FixedPolicy(1),
    "eight": FixedPolicy(8),
    "one-weighed": FixedPolicy(1, weigh=WEIGH),
    "eight-weighed": FixedPolicy(8, weigh=WEIGH),
}
# seconds that the upstream takes, clients, seconds of a turn, whether LiteLLM, which draws one, is asked too
LOADS = ((0.0, 32, 3.0, True), (0.5, 128, 10.0, False))
NEAR_ONE = 1.01  # samples a request on average: the policy is asked, and stops after the first
SECONDS = 0.8  # of one turn: short, so that the turns of a round are near each other
ROUNDS = 15


Rounds = dict[str, list[dict[str, float]]]  # by the way's name
KEYS = ("p50", "p99", "rate", "cpu")


@dataclass(frozen=True)
class Way:
    """A server, or one of its ways of answering."""

    name: str
    url: str  # of chat completions
    upstream: str  # its address, which counts what was drawn
    pid: int | None = None  # None: nothing that is measured
    headers: Mapping[str, str] = field(default_factory=dict)
    logprobs: bool = False  # whether the client asks for log-probabilities itself
    samples: int = 1  # that every request is to draw
    body: Mapping[str, Any] = field(default_factory=lambda: BODY)
    aim: float | None = None  # the most that it should add, in times of what the bare proxy adds


def host(url: str) -> str:
    """Host and port of an address."""
    return urlsplit(url).netloc


@contextlib.contextmanager
def bare(url: str, folder: Path) -> Iterator[Way]:
    """The proxy that only passes on."""
    port = free_port()
    words = here("-m", "benchmarks.proxy", url, str(port))
    with running(words, f"http://127.0.0.1:{port}/healthz", folder=folder, environ=PATHS) as pid:
        yield Way(
            "bare Starlette + aiohttp proxy", f"http://127.0.0.1:{port}/v1/chat/completions", host(url), pid
        )


@contextlib.contextmanager
def gateway(url: str, folder: Path, **settings: object) -> Iterator[Way]:
    """The gateway as it is served: ledger on disk, prices, metrics and logs; policies by their names."""
    port = free_port()
    named = []
    for name, policy in POLICIES.items():
        policy.save(folder / name)
        named.append(f"{name}={folder / name}")
    serve = {
        "port": port,
        "policies": named,
        "budget": NEAR_ONE,
        "state": str(folder / "state.sqlite"),
        **settings,
    }
    stages = {"endpoint": {"url": url, "model": "m", "concurrency": 256}, "serve": serve}
    lines = []
    for stage, values in stages.items():
        lines += [f"[{stage}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "adacompute.toml").write_text("\n".join(lines))
    words = [str(Path(sys.executable).parent / "adacompute"), "serve"]
    with running(words, f"http://127.0.0.1:{port}/readyz", folder=folder, environ=PATHS) as pid:
        yield Way("gateway", f"http://127.0.0.1:{port}/v1/chat/completions", host(url), pid)


PATHS = {"PYTHONPATH": str(ROOT)}


def by(way: Way, name: str, policy: str, samples: int = 1) -> Way:
    """The same gateway, with another of its policies."""
    headers = {"x-adacompute-policy": policy}
    return replace(way, name=f"gateway, {name}", headers=headers, samples=samples)


def loaded(way: Way, concurrency: int, seconds: float) -> dict[str, Any]:
    """What clients saw, whatever it was."""
    words = here("-m", "benchmarks.load", way.url, "--concurrency", str(concurrency))
    words += ["--seconds", str(seconds), *(f"--header={k}={v}" for k, v in way.headers.items())]
    body = json.dumps({**way.body, **({"logprobs": True} if way.logprobs else {})}).encode()
    done = subprocess.run(pinned(OTHERS, words), check=True, capture_output=True, cwd=ROOT, input=body)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def asked(way: Way, concurrency: int, seconds: float = SECONDS) -> dict[str, Any]:
    """The same, all well, and the seconds of processor time that each request took of the server."""
    before, had = 0.0 if way.pid is None else processor(way.pid), drawn(way)
    found = loaded(way, concurrency, seconds)
    if not found["requests"] or set(found["statuses"]) != {"200"} or found["lost"]:
        raise RuntimeError(f"{way.name} didn't answer all: {found['statuses']}, {found['lost']} lost")
    if way.pid is not None:
        found["cpu"] = (processor(way.pid) - before) / found["whole"]
    each = (drawn(way) - had) / found["whole"]
    if abs(each - way.samples) > 0.15 * max(1, way.samples):  # one that paces may still be on its way
        raise RuntimeError(f"{way.name} drew {each:.2f} samples a request, and should draw {way.samples}")
    return found


def drawn(way: Way) -> int:
    """Samples that the upstream has given so far, by its own count."""
    line = http.client.HTTPConnection(way.upstream, timeout=10)
    line.request("GET", "/count")
    count: int = json.loads(line.getresponse().read()).get("choices", 0)
    line.close()
    return count


def turns(ways: Sequence[Way], concurrency: int, *, seconds: float, rounds: int) -> Rounds:
    """What each way showed in each round."""
    seen: Rounds = {way.name: [] for way in ways}
    for way in ways:  # the first requests of some import modules for seconds
        loaded(way, 4, 1.5)
    for _ in range(rounds):
        for way in ways:
            found = asked(way, concurrency, seconds)
            seen[way.name].append({key: found.get(key, 0.0) for key in KEYS})
    return seen


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    """Of each number, over rounds."""
    return {key: statistics.median(one[key] for one in found) for key in KEYS}


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """The median of ratios, one a round, and between what the middle half of them lies."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"ratio": middle, "low": low, "high": high}


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def added(*, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Latency at one request at a time, and how much of it each server adds to the upstream's own.

    A policy that weighs votes asks for log-probabilities, ten times the bytes: beside it, the bare proxy is
    asked for them, too.
    """
    with upstream() as url, place() as a, place() as b, bare(url, a) as proxy, gateway(url, b) as ours:
        direct = Way("the upstream itself", f"{url}/chat/completions", host(url))
        through, voted = replace(ours, aim=2.5), replace(ours, aim=3.0)
        single = by(through, "one sample (`single`)", "single")
        plain = by(voted, "stopping after one, plain votes", "plain")
        weighed = by(voted, "stopping after one, log-probabilities asked for", "weighed")
        passed = replace(
            through, name="gateway, passed through (`pass`)", headers={"x-adacompute-mode": "pass"}
        )
        groups = [
            (direct, proxy, passed, single, plain),
            (_sure(direct), _sure(proxy), weighed),
            (_embed(direct), _embed(proxy), _embed(through)),
        ]
        seen = turns([way for group in groups for way in group], 1, seconds=seconds, rounds=rounds)
    rows = []
    for group in groups:
        floor, base = ([one["p50"] for one in seen[way.name]] for way in group[:2])
        for way in group:
            own = [one["p50"] for one in seen[way.name]]
            more = [mine - least for mine, least in zip(own, floor, strict=True)]
            of_base = [m / (b - least) for m, b, least in zip(more, base, floor, strict=True)]
            added_p50 = statistics.median(more)
            row = {"way": way.name, **medians(seen[way.name]), "added": added_p50, "aim": way.aim}
            rows.append({**row, **spread(of_base)})
    return rows


def _sure(way: Way) -> Way:
    """The same, asked for log-probabilities by the client."""
    return replace(way, name=f"{way.name}, with log-probabilities", logprobs=True)


def _embed(way: Way) -> Way:
    """The same, asked for an embedding, which draws no sample."""
    url = way.url.replace("/chat/completions", "/embeddings")
    return replace(way, name=f"{way.name}, an embedding", url=url, body=EMBEDDED, samples=0)


def widths(*, seconds: float = SECONDS, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Processor time of a request of eight samples beside that of one."""
    found = []
    with upstream() as url, place() as folder, gateway(url, folder) as ours:
        for what, suffix in (("plain votes", ""), ("weighed by log-probabilities", "-weighed")):
            ways = [by(ours, "b = 1", "one" + suffix), by(ours, "b = 8", "eight" + suffix, 8)]
            seen = turns(ways, 8, seconds=seconds, rounds=rounds)
            one, eight = ([turn["cpu"] for turn in seen[way.name]] for way in ways)
            ratios = [more / less for more, less in zip(eight, one, strict=True)]
            middle = {"one": statistics.median(one), "eight": statistics.median(eight)}
            found.append({"what": what, **middle, **spread(ratios)})
    return found


def rates(*, rounds: int = 3) -> list[dict[str, Any]]:
    """Requests a second of each: on an upstream that answers at once, and on one that takes a while."""
    found = []
    for latency, clients, seconds, passing in LOADS:
        with upstream(latency=latency) as url, contextlib.ExitStack() as stack:
            groups = _groups(stack, url, passing=passing)
            ways = [way for group in groups for way in group if isinstance(way, Way)]
            seen = turns(ways, clients, seconds=seconds, rounds=rounds)
        for row in _beside(groups, seen):
            found.append(row | {"latency": latency, "clients": clients})
    return found


def _groups(stack: contextlib.ExitStack, url: str, *, passing: bool) -> list[list[Way | str]]:
    """Servers that do the same, the peer last; a text where it can't be had."""
    folders = [stack.enter_context(place()) for _ in range(5)]
    ours = stack.enter_context(gateway(url, folders[0]))
    voting: list[list[Way | str]] = [
        [by(ours, "always 1", "one"), _peer(stack, "its_hub", url, folders[3], budget=1)],
        [by(ours, "always 8", "eight", 8), _peer(stack, "its_hub", url, folders[4], budget=8)],
    ]
    if not passing:
        return voting
    return [
        [stack.enter_context(bare(url, folders[1]))],
        [
            by(ours, "one sample (`single`)", "single"),
            by(ours, "stopping after one, plain votes", "plain"),
            by(ours, "stopping after one, log-probabilities asked for", "weighed"),
            _peer(stack, "litellm", url, folders[2]),
        ],
        *voting,
    ]


def _beside(groups: list[list[Way | str]], seen: Rounds) -> Iterator[dict[str, Any]]:
    """Each server's numbers, and the ratio to the last of its group."""
    for group in groups:
        *ours, peer = group
        for way in group:
            if isinstance(way, str):
                samples = ours[0].samples if ours and isinstance(ours[0], Way) else 1
                yield {"way": way, "samples": samples, "ratio": None}
                continue
            row = {"way": way.name, "samples": way.samples, **medians(seen[way.name]), "ratio": None}
            if isinstance(peer, Way) and way is not peer:
                pairs = zip(seen[way.name], seen[peer.name], strict=True)
                row |= spread([own["rate"] / other["rate"] for own, other in pairs])
                row["to"] = peer.name.split(" ")[0]
            yield row


def _peer(stack: contextlib.ExitStack, name: str, url: str, folder: Path, **settings: int) -> Way | str:
    """A peer that runs; why not, where it can't be had here."""
    try:
        peer = stack.enter_context(getattr(peers, name)(url, folder, **settings))
    except (peers.Absent, RuntimeError) as exc:
        return f"{peers.name_of(name)}: not measured, {str(exc).splitlines()[0]}"
    budget = settings.get("budget", 1)
    title = peer.name + (f", budget {budget}" if settings else "")
    return Way(title, peer.url, host(url), peer.pid, samples=budget)
