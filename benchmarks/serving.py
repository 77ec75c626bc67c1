"""The gateway beside a bare proxy and other servers, all on one upstream.

The server that is measured has a core to itself, and what asks it and what it asks share another; servers
that are not being asked are idle. Ways take turns, round after round, and ratios are of one round each: a
machine that is slow for a while is so for all of them. Medians over rounds are shown.

`list_ways` lists the gateway's ways of answering, `ROWS` what the table of peers compares.
"""

import contextlib
import http.client
import json
import os
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

BARE = "bare Starlette + aiohttp proxy"
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
CONNECTIONS = (1, 32)
COMPARED = 32  # connections at which the ratios of the table of peers are
NEAR_ONE = 1.01  # samples a request on average: the policy is asked, and stops after the first
SECONDS = 0.7  # of one turn: short, so that the turns of a round are near each other
LONGEST = 5.0  # seconds of a turn of a slow server with many connections
ADDED_AIMS = {"pass": 2.2, "single": 2.2, "plain": 3.0, "weighed": 3.0}  # times what the bare proxy adds
WAVES = 3  # requests that each connection should have answered in a turn
ROUNDS = 11
PEER_ROUNDS = 3
MODEL_SECONDS = 0.5  # that a model takes, in `behind_model`


@dataclass(frozen=True)
class Row:
    """A row of the table of peers."""

    way: str  # of the gateway, by its name in `list_ways`; or a server's
    logprobs: bool = False  # whether replies come with log-probabilities
    beside: str = ""  # the server that does the same
    aim: float | None = None  # the least ratio of requests a second per core to that server


ROWS = (
    Row("bare"),
    Row("litellm"),
    Row("pass", beside="litellm", aim=10.0),
    Row("single", beside="litellm", aim=10.0),
    Row("plain", beside="litellm", aim=10.0),
    Row("its_hub-1"),
    Row("one", beside="its_hub-1", aim=1.0),
    Row("its_hub-8"),
    Row("eight", beside="its_hub-8", aim=1.0),
    Row("bare", logprobs=True),
    Row("litellm", logprobs=True),
    Row("pass", logprobs=True, beside="litellm", aim=10.0),
    Row("single", logprobs=True, beside="litellm", aim=10.0),
    Row("weighed", logprobs=True, beside="litellm", aim=10.0),
)
MODEL_ROWS = (
    Row("its_hub-1"),
    Row("one", beside="its_hub-1"),
    Row("its_hub-8"),
    Row("eight", beside="its_hub-8"),
)
ASKS_ITSELF = ("weighed",)  # ways that ask for log-probabilities by themselves


Rounds = dict[str, list[dict[str, float]]]  # by the way's name
KEYS = ("p50", "p99", "rate", "cpu", "drawn")


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
    is_peer: bool = False  # may be left out where it fails
    is_paced: bool = False  # draws so many samples on the long average only


def host(url: str) -> str:
    """Host and port of an address."""
    return urlsplit(url).netloc


@contextlib.contextmanager
def bare(url: str, folder: Path) -> Iterator[Way]:
    """The proxy that only passes on."""
    port = free_port()
    words = here("-m", "benchmarks.proxy", url, str(port))
    with running(words, f"http://127.0.0.1:{port}/healthz", folder=folder, environ=PATHS) as pid:
        yield Way(BARE, f"http://127.0.0.1:{port}/v1/chat/completions", host(url), pid)


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


PATHS = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}  # this tree is what is measured


def list_ways(ours: Way) -> dict[str, Way]:
    """The gateway's ways of answering that are measured, by short names."""
    return {
        "pass": passing(ours),
        "single": by(ours, "one sample (`single`)", "single"),
        "plain": by(ours, "stopping after one, plain votes", "plain"),
        "weighed": by(ours, "stopping after one, log-probabilities", "weighed"),
        "one": by(ours, "always 1", "one"),
        "eight": by(ours, "always 8", "eight", 8),
    }


def passing(way: Way) -> Way:
    """The same gateway, as it passes requests through."""
    return replace(way, name="gateway, passed through (`pass`)", headers={"x-adacompute-mode": "pass"})


def by(way: Way, name: str, policy: str, samples: int = 1) -> Way:
    """The same gateway, with another of its policies."""
    headers, is_paced = {"x-adacompute-policy": policy}, policy in ("plain", "weighed")
    return replace(way, name=f"gateway, {name}", headers=headers, samples=samples, is_paced=is_paced)


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
    most = 1.0 if way.is_paced else 0.15  # one that paces may still be on its way, with many under way
    if abs(each - way.samples) > most * max(1, way.samples):
        raise RuntimeError(f"{way.name} drew {each:.2f} samples a request, and should draw {way.samples}")
    return found | {"drawn": each}


def drawn(way: Way) -> int:
    """Samples that the upstream has given so far, by its own count."""
    line = http.client.HTTPConnection(way.upstream, timeout=10)
    line.request("GET", "/count")
    count: int = json.loads(line.getresponse().read()).get("choices", 0)
    line.close()
    return count


def turns(
    ways: Sequence[Way],
    concurrency: int,
    *,
    seconds: float,
    rounds: int,
    warm: Mapping[str, float] | None = None,
) -> Rounds:
    """What each way showed in each round; nothing of a peer that fails, or is too slow for so many clients.

    `warm` has the requests a second that each way was seen to answer: turns of the slow ones are longer.
    """
    known = warm_up(ways) if warm is None else warm
    seen: Rounds = {way.name: [] for way in ways}
    failed = {way.name for way in ways if way.is_peer and 2 * concurrency > LONGEST * known[way.name]}
    for _ in range(rounds):
        for way in ways:
            if way.name in failed:
                continue
            waves = WAVES * concurrency / known[way.name]
            try:
                result = asked(way, concurrency, min(LONGEST, max(seconds, waves)))
            except RuntimeError as exc:
                if not way.is_peer:
                    raise
                print(exc, file=sys.stderr)
                failed.add(way.name)
                seen[way.name] = []
                continue
            seen[way.name].append({key: result.get(key, 0.0) for key in KEYS})
    return seen


def warm_up(ways: Sequence[Way]) -> dict[str, float]:
    """Requests a second of each way; the first requests of some import modules for seconds."""
    return {way.name: max(0.1, [loaded(way, 4, 1.5), loaded(way, 4, 0.8)][1]["rate"]) for way in ways}


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
        ways = {name: replace(way, aim=ADDED_AIMS.get(name)) for name, way in list_ways(ours).items()}
        groups = [
            (direct, proxy, ways["pass"], ways["single"], ways["plain"]),
            (_sure(direct), _sure(proxy), ways["weighed"]),
            (_embed(direct), _embed(proxy), _embed(replace(ours, aim=ADDED_AIMS["pass"]))),
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


def widths(*, seconds: float = SECONDS, rounds: int = 7) -> list[dict[str, Any]]:
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


def peers_beside(
    *, connections: tuple[int, ...] = CONNECTIONS, rounds: int = PEER_ROUNDS, rows: tuple[Row, ...] = ROWS
) -> list[dict[str, Any]]:
    """Every row's numbers at each number of connections, on an upstream that answers at once."""
    with upstream() as url, contextlib.ExitStack() as stack:
        ways = _open_ways(stack, url, rows)
        warm = warm_up([way for way in ways.values() if isinstance(way, Way)])
        return _measure(ways, rows, connections, warm, rounds=rounds, seconds=SECONDS)


def behind_model(*, rounds: int = 2) -> list[dict[str, Any]]:
    """What votes, at 128 connections, on an upstream that takes as long as a model does."""
    with upstream(latency=MODEL_SECONDS) as url, contextlib.ExitStack() as stack:
        ways = _open_ways(stack, url, MODEL_ROWS)
        warm = {way.name: 40.0 for way in ways.values() if isinstance(way, Way)}
        for way in ways.values():
            if isinstance(way, Way):
                loaded(way, 4, 1.5)
        return _measure(ways, MODEL_ROWS, (128,), warm, rounds=rounds, seconds=LONGEST)


def _open_ways(stack: contextlib.ExitStack, url: str, rows: Sequence[Row]) -> dict[Row, Way | str]:
    """The way of each row, its server running; a text that says why where a peer can't be had."""
    ours = stack.enter_context(gateway(url, stack.enter_context(place())))
    servers: dict[str, Way | str] = dict(list_ways(ours))
    for name in dict.fromkeys(row.way for row in rows):
        if name == "bare":
            servers[name] = stack.enter_context(bare(url, stack.enter_context(place())))
        elif name not in servers:
            servers[name] = _open_peer(stack, name, url)
    ways: dict[Row, Way | str] = {}
    for row in rows:
        server = servers[row.way]
        asks = row.logprobs and row.way not in ASKS_ITSELF
        ways[row] = _sure(server) if isinstance(server, Way) and asks else server
    return ways


def _open_peer(stack: contextlib.ExitStack, name: str, url: str) -> Way | str:
    """A peer that runs, `its_hub-8` with its budget; why not, where it can't be had here."""
    server, _, budget = name.partition("-")
    settings = {"budget": int(budget)} if budget else {}
    try:
        peer = stack.enter_context(getattr(peers, server)(url, stack.enter_context(place()), **settings))
    except (peers.Absent, RuntimeError) as exc:
        return f"{peers.name_of(server)}: not measured, {str(exc).splitlines()[0]}"
    title = peer.name + (f", budget {budget}" if budget else "")
    samples = settings.get("budget", 1)
    return Way(title, peer.url, host(url), peer.pid, peer.headers, samples=samples, is_peer=True)


def _measure(
    ways: Mapping[Row, Way | str],
    rows: Sequence[Row],
    connections: Sequence[int],
    warm: Mapping[str, float],
    *,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Of each row and number of connections: medians, spreads, and ratios to the bare proxy and the peer."""
    running = [way for way in ways.values() if isinstance(way, Way)]
    shown = []
    for number in connections:
        seen = turns(running, number, seconds=seconds, rounds=rounds, warm=warm)
        for row in rows:
            way = ways[row]
            own = seen[way.name] if isinstance(way, Way) else []
            line: dict[str, Any] = {
                "row": row,
                "way": way.name if isinstance(way, Way) else way,
                "samples": way.samples if isinstance(way, Way) else None,
                "connections": number,
            }
            if own:
                line |= medians(own)
                line["per_core"] = spread([1 / turn["cpu"] for turn in own])
                for key, server in (("to_bare", "bare"), ("to_peer", row.beside)):
                    other = ways.get(Row(server, logprobs=row.logprobs))
                    theirs = seen[other.name] if isinstance(other, Way) and other is not way else []
                    if theirs:
                        pairs = zip(own, theirs, strict=True)
                        line[key] = spread([their["cpu"] / mine["cpu"] for mine, their in pairs])
                        line[f"{key}_rate"] = spread(
                            [mine["rate"] / their["rate"] for mine, their in zip(own, theirs, strict=True)]
                        )
            shown.append(line)
    return shown
