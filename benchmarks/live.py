"""Whether the gateway gives live what replay promises: `python -m benchmarks.live`, over real sockets.

A policy is fitted on one half of a recording. The other half is replayed at some budgets, and sent through
`adacompute serve` with an upstream that gives each problem's recorded samples, in a random order. Both are
judged by the recorded grades of the samples that win; costs are what was drawn. A menu of two has the bundled
facts of both models, of which a sample of the larger costs twenty times as much. It is paced over all
requests, as they are counted here, and not over those with a vote alone.

Names of recordings select some; `--rounds 4` is how often each is asked. With `--quality 'as good as 8'`
`fit` learns from one half and promises a cost for it, at which the gateway serves the other half. What was
promised is printed, and what the gateway and so many samples for everyone gave.
"""

import argparse
import contextlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

import adacompute as ac
from adacompute.policies import Policy
from adacompute.policies.menu import MenuPolicy
from adacompute.policies.paths import draw_paths
from adacompute.policies.quality import Quality
from adacompute.pool import Ballots, pool_files
from adacompute.records import Recorded, Sample
from benchmarks.phrasings import JsonHandler
from benchmarks.processes import ROOT, free_port, running
from benchmarks.serving import PATHS

BUDGETS = (1.5, 2.0, 3.0, 4.0)  # samples
MENU_BUDGETS = (0.1, 0.2, 0.4, 0.7)  # times what a sample of the larger model costs
ROUNDS = 4
LONGEST = 16
SHARED = ROOT.parent / "shared" / "recordings"
RECORDINGS: dict[str, str | Path] = {
    "words": "words",
    "facts": "facts",
    "gsm8k": SHARED / "gsm8k-qwen2.5-coder-1.5b.jsonl.gz",
    "math": SHARED / "math-qwen2.5-coder-1.5b.jsonl.gz",
}
MODES = {"small": "facts", "large": "facts-qwen"}
TOKENS = 10  # that every sample of a menu is said to have
PRICES = {"small": 0.5, "large": 10.0}  # a million tokens cost this
COSTS = {name: TOKENS * price / 1e6 for name, price in PRICES.items()}


class Row(NamedTuple):
    """One budget, replayed and live."""

    recording: str
    votes: str
    budget: float
    replay_cost: float
    live_cost: float
    replay: float
    live: float
    error: float  # standard error of their difference, over problems

    def to_dict(self) -> dict[str, str]:
        return {
            "recording": self.recording,
            "votes": self.votes,
            "budget": f"{self.budget:g}",
            "cost in replay": f"{self.replay_cost:.3g}",
            "cost live": f"{self.live_cost:.3g}",
            "right in replay": f"{100 * self.replay:.1f}%",
            "right live": f"{100 * self.live:.1f}%",
            "difference": f"{100 * (self.live - self.replay):+.1f} ± {100 * 1.96 * self.error:.1f}",
        }


# The upstream


class Upstream(ThreadingHTTPServer):
    """Gives the recorded samples of the question that it is asked, each request's in a random order."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, recorded: Mapping[str, Sequence[Recorded]], *, logprobs: bool) -> None:
        """`recorded` are the problems of each model."""
        super().__init__(("127.0.0.1", 0), JsonHandler)
        self.models = tuple(recorded)
        self.samples = {
            (model, each.problem.question): each.samples for model, own in recorded.items() for each in own
        }
        self.logprobs = logprobs
        self.drawn: dict[str, list[tuple[str, Sample]]] = {}  # by request: the model and what it gave
        self._left: dict[tuple[str, str], list[Sample]] = {}
        self._rng = random.Random(0)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        model, asked = body["model"], body["user"]
        with self._lock:
            known = self.samples[model, body["messages"][-1]["content"]]
            left = self._left.setdefault((model, asked), [])
            samples = []
            for _ in range(body.get("n") or 1):
                if not left:
                    left += self._rng.sample(known, len(known))
                samples.append(left.pop())
            self.drawn.setdefault(asked, []).extend((model, sample) for sample in samples)
        tokens = TOKENS * len(samples)
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [self._make_choice(*each) for each in enumerate(samples)],
            "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
        }

    def _make_choice(self, index: int, sample: Sample) -> dict[str, Any]:
        token = {"token": "t", "logprob": sample.mean_logprob or 0.0, "bytes": None, "top_logprobs": []}
        return {
            "index": index,
            "finish_reason": "length" if sample.finished is False else "stop",
            "message": {"role": "assistant", "content": read_text(sample)},
            "logprobs": {"content": [token] * (sample.tokens or TOKENS)} if self.logprobs else None,
        }


def read_text(sample: Sample) -> str:
    """What a model wrote, or its answer where only that was recorded."""
    return sample.text if sample.text is not None else f"Answer: {sample.answer}"


# What is compared


@dataclass(frozen=True)
class Half:
    """The half of a recording that is judged, and a policy fitted on the other."""

    name: str
    recorded: Mapping[str, Sequence[Recorded]]  # by model
    ballots: Ballots
    policy: Policy
    logprobs: bool
    folder: str = ""  # that the policy is in already
    options: tuple[str, ...] = ()  # of `serve`, besides

    @property
    def questions(self) -> list[str]:
        return [each.problem.question for each in next(iter(self.recorded.values()))]


def read_half(name: str, *, logprobs: bool) -> Half:
    """A recording with one model."""
    source = RECORDINGS[name]
    with ac.bundled(source) if isinstance(source, str) else ac.open_pool(source) as pool:
        ballots, recorded = pool.ballots(), list(pool)
    longest = min(LONGEST, int(ballots.drawn.min()))
    even, odd = (np.arange(first, len(ballots), 2) for first in (0, 1))
    policy = ac.StoppingPolicy(longest=longest, weigh="auto" if logprobs else None).fit(ballots.only(even))
    by_id = {each.problem.id: each for each in recorded}
    test = ballots.only(odd)
    return Half(name, {"m": [by_id[id_] for id_ in test.ids]}, test, policy, logprobs)


def read_menu_half(*, logprobs: bool) -> Half:
    """Both models' facts, as a menu."""
    with ac.join_pools(MODES) as pool:
        ballots = pool.ballots()
    by_id = {}
    for name, source in MODES.items():
        with ac.bundled(source) as pool:
            by_id[name] = {each.problem.id: each for each in pool}
    even, odd = (np.arange(first, len(ballots), 2) for first in (0, 1))
    modes = tuple(ac.Mode(name=name, cost=cost) for name, cost in COSTS.items())
    menu = ac.Menu(modes=modes, unit="money", currency="USD")
    policy = MenuPolicy(menu, longest=8, weigh="auto" if logprobs else None).fit(ballots.only(even))
    if policy.weigh is not None:  # what is live has signals of tokens that the recording lacks
        own = tuple((name, replace(weights, model=None)) for name, weights in policy.weigh.modes)
        policy.weigh = replace(policy.weigh, modes=own)
    test = ballots.only(odd)
    recorded = {name: [by_id[name][id_] for id_ in test.ids] for name in MODES}
    return Half("facts, two models", recorded, test, policy, logprobs)


def compare(half: Half, budget: float, rounds: int) -> Row:
    """Replays a half at one budget, and asks a gateway the same."""
    price = ac.calibrate(half.policy, half.ballots, budget)
    replayed = ac.replay(half.policy, half.ballots, price=price)
    right, cost = ask_gateway(half, budget, rounds)
    differences = right.mean(axis=0) - replayed.each_accuracy
    return Row(
        recording=half.name,
        votes="by confidence" if half.logprobs else "plain",
        budget=budget,
        replay_cost=replayed.cost,
        live_cost=float(cost.mean()),
        replay=replayed.accuracy.mean,
        live=float(right.mean()),
        error=float(differences.std(ddof=1) / np.sqrt(len(differences))),
    )


def keep_promise(name: str, quality: str, margin: float, rounds: int) -> str:
    """What `fit` promises for a quality on one half of a recording, and what a gateway gives on the other."""
    half = read_half(name, logprobs=True)
    with tempfile.TemporaryDirectory() as folder:
        source, policy = RECORDINGS[name], f"{folder}/policy"
        with ac.bundled(source) if isinstance(source, str) else ac.open_pool(source) as pool:
            pool_files.export_file(pool, Path(folder, "all.jsonl"))
        lines = Path(folder, "all.jsonl").read_text().splitlines(keepends=True)
        Path(folder, "half.jsonl").write_text("".join(lines[::2]))
        words = ["--budget", quality, "--margin", f"{margin:g}"]
        command = [
            str(Path(sys.executable).parent / "adacompute"),
            "fit",
            f"{folder}/half.jsonl",
        ]
        told = subprocess.run(
            [*command, "-o", policy, *words, "--json"], check=True, capture_output=True, text=True
        )
        summary = json.loads(told.stdout)
        served = replace(
            half, policy=ac.load_policy(policy), folder=policy, options=("--margin", f"{margin:g}")
        )
        right, cost = ask_gateway(served, quality, rounds)
    samples, weigh = Quality.parse(quality).samples, served.policy.weigh
    rng = np.random.default_rng(0)
    paths = draw_paths(half.ballots, rng=rng, orders=100, longest=LONGEST, weigh=weigh)
    rival = paths.mean_per_problem(paths.grade[samples - 1])
    gain = right.mean(axis=0) - rival
    return (
        f"{name}, {summary['problems']} problems: {summary['quality_text']}\n"
        f"served, {len(gain)} other problems, {rounds} times each: {cost.mean():.2f} samples on average; "
        f"right in {right.mean():.1%}, {samples} samples for everyone in {rival.mean():.1%}: "
        f"{100 * gain.mean():+.1f} points ± {196 * gain.std(ddof=1) / np.sqrt(len(gain)):.1f} (95%)"
    )


def ask_gateway(half: Half, budget: float | str, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each problem's reply was right and what it cost, (rounds, problems) both."""
    order = [(turn, row) for turn in range(rounds) for row in range(len(half.questions))]
    random.Random(1).shuffle(order)
    right, cost = np.zeros((2, rounds, len(half.questions)))
    with (
        tempfile.TemporaryDirectory() as name,
        serve_upstream(half) as upstream,
        serve_gateway(half, Path(name), budget, upstream.url) as url,
        ThreadPoolExecutor(8) as threads,
    ):
        asked = threads.map(lambda at: ask(url, half.questions[at[1]], f"{at[0]}-{at[1]}"), order)
        for (turn, row), text in zip(order, asked, strict=True):
            drawn = upstream.drawn[f"{turn}-{row}"]
            right[turn, row] = next(s.correct or 0 for _, s in reversed(drawn) if read_text(s) == text)
            cost[turn, row] = sum(COSTS.get(model, 1.0) for model, _ in drawn)
    return right, cost


@contextlib.contextmanager
def serve_upstream(half: Half) -> Iterator[Upstream]:
    server = Upstream(half.recorded, logprobs=half.logprobs)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serve_gateway(half: Half, folder: Path, budget: float | str, upstream: str) -> Iterator[str]:
    """The address for chat requests of a gateway with the half's policy."""
    policy = half.folder or str(folder / "policy")
    if not half.folder:
        half.policy.save(policy)
    port = free_port()
    words = [str(Path(sys.executable).parent / "adacompute"), "serve", "--port", str(port), *half.options]
    words += ["--policy", policy, "--state", str(folder / "state.sqlite")]
    if len(half.recorded) > 1:
        tables = (
            f'[{name}]\nupstream = "{upstream}"\nmodel = "{name}"\n'
            f"input_price = 0.0\noutput_price = {PRICES[name]}\n"
            for name in half.recorded
        )
        (folder / "menu.toml").write_text("\n".join(tables))
        words += ["--menu", str(folder / "menu.toml"), "--unit", "money", "--average", "all"]
        words += ["--budget", f"{budget:.9f} USD"]
    else:
        words += ["--upstream", upstream, "--model", "m", "--budget", str(budget)]
    ready = f"http://127.0.0.1:{port}/readyz"
    with running(words, ready, folder=folder, environ=PATHS, wait=600.0):
        yield f"http://127.0.0.1:{port}/v1/chat/completions"


def ask(url: str, question: str, user: str) -> str:
    """The text of the reply."""
    where = urlsplit(url)
    body = {"temperature": 0.8, "user": user, "messages": [{"role": "user", "content": question}]}
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
    connection.request("POST", where.path, json.dumps(body), {"content-type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    connection.close()
    text: str = reply["choices"][0]["message"]["content"]
    return text


def list_halves(names: Sequence[str]) -> Iterator[tuple[Half, Sequence[float]]]:
    for name, source in RECORDINGS.items():
        if name in names or (not names and (isinstance(source, str) or source.exists())):
            for logprobs in (True, False):
                yield read_half(name, logprobs=logprobs), BUDGETS
    if "menu" in names or not names:
        for logprobs in (True, False):
            yield read_menu_half(logprobs=logprobs), [COSTS["large"] * share for share in MENU_BUDGETS]


def list_rows(names: Sequence[str], rounds: int) -> Iterator[dict[str, str]]:
    for half, budgets in list_halves(names):
        for budget in budgets:
            yield compare(half, budget, rounds).to_dict()


def run() -> list[dict[str, str]]:
    """Every recording that is there, at every budget."""
    return list(list_rows((), ROUNDS))


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*RECORDINGS, "menu", []])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quality")
    parser.add_argument("--margin", type=float, default=1.0, help="points")
    options = parser.parse_args(words)
    if options.quality:
        for name in options.names or ("words",):
            print(keep_promise(name, options.quality, options.margin, options.rounds), flush=True)
        return
    for number, row in enumerate(list_rows(options.names, options.rounds)):
        if not number:
            print("| " + " | ".join(row) + " |\n| --- | --- |" + " ---: |" * (len(row) - 2))
        print("| " + " | ".join(row.values()) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
