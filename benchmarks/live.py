"""Whether the gateway gives live what replay promises: `python -m benchmarks.live`, over real sockets.

A policy is fitted on one half of a recording, with answers read from its texts as the gateway reads them. The
other half is replayed at some budgets, and sent through `adacompute serve` with an upstream that gives each
problem's recorded samples, in a random order. Both are judged by the grades of the samples that win; costs
are what was drawn. Every token has the mean log-probability of its sample, which is all that is recorded, so
votes are weighed by that alone. A menu of two has the bundled facts of both models, of which a sample of the
larger costs twenty times as much. It is paced over all requests, as they are counted here, and not over those
with a vote alone.

Names of recordings select some; `--rounds 4` is how often each is asked. With `--quality 'as good as 8'` (of
the menu 'as good as large x 4') `fit` learns from one half and promises a cost for it, at which the gateway
serves the other half. What was promised is printed, and what the gateway and that quality for everyone gave.
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
from dataclasses import dataclass, field, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

import adacompute as ac
from adacompute.policies import Policy
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.paths import draw_paths
from adacompute.policies.quality import Quality
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, Pool, pool_files
from adacompute.records import Recorded, Sample
from benchmarks.phrasings import JsonHandler
from benchmarks.processes import ROOT, free_port, running
from benchmarks.serving import PATHS

BUDGETS = (1.5, 2.0, 3.0, 4.0)  # samples
MODE_BUDGETS = (0.1, 0.2, 0.4, 0.7)  # times what a sample of the larger model costs
ROUNDS = 4
ALWAYS = {"ADACOMPUTE_SERVE_VOTE": "always"}
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
            "logprobs": {"content": [token] * TOKENS} if self.logprobs else None,
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
    environ: Mapping[str, str] = field(default_factory=dict)  # its settings

    @property
    def questions(self) -> list[str]:
        return [each.problem.question for each in next(iter(self.recorded.values()))]


@contextlib.contextmanager
def open_reread(source: str | Path) -> Iterator[Pool]:
    """A recording with its answers read from its texts, as the gateway reads them."""
    with tempfile.TemporaryDirectory() as folder:
        file, again = Path(folder, "recorded.jsonl"), Path(folder, "reread.sqlite")
        with ac.bundled(source) if isinstance(source, str) else ac.open_pool(source) as pool:
            pool_files.export_file(pool, file)
        ac.import_file(file, again, reread=True)
        with ac.open_pool(again) as pool:
            yield pool


def split_rows(problems: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that a policy learns from, and those that it is judged on."""
    return np.arange(0, problems, 2), np.arange(1, problems, 2)


def read_half(name: str, *, logprobs: bool) -> Half:
    """A recording with one model."""
    with open_reread(RECORDINGS[name]) as pool:
        ballots, recorded = pool.ballots(), {each.problem.id: each for each in pool}
    longest = min(LONGEST, int(ballots.drawn.min()))
    even, odd = split_rows(len(ballots))
    policy = ac.StoppingPolicy(longest=longest, weigh="auto" if logprobs else None).fit(ballots.only(even))
    forget_signals(policy)
    test = ballots.only(odd)
    return Half(name, {"m": [recorded[id_] for id_ in test.ids]}, test, policy, logprobs)


def read_menu_half(*, logprobs: bool) -> Half:
    """Both models' facts, as a menu."""
    with contextlib.ExitStack() as stack:
        pools = {name: stack.enter_context(open_reread(source)) for name, source in MODES.items()}
        recorded = {name: {each.problem.id: each for each in pool} for name, pool in pools.items()}
        ballots = ac.join_pools(pools).ballots()
    even, odd = split_rows(len(ballots))
    modes = tuple(ac.Mode(name=name, cost=cost) for name, cost in COSTS.items())
    menu = ac.Menu(modes=modes, unit="money", currency="USD")
    policy = MenuPolicy(menu, longest=8, weigh="auto" if logprobs else None).fit(ballots.only(even))
    forget_signals(policy)
    test = ballots.only(odd)
    own = {name: [recorded[name][id_] for id_ in test.ids] for name in MODES}
    return Half("facts, two models", own, test, policy, logprobs)


def forget_signals(policy: StoppingPolicy | MenuPolicy) -> None:
    """Leaves mean log-probabilities alone: of single tokens the recordings lack them, and replay has none."""
    if policy.weigh is not None:
        own = tuple((name, replace(weights, model=None)) for name, weights in policy.weigh.modes)
        policy.weigh = replace(policy.weigh, model=None, modes=own)


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


def keep_promise(name: str, quality: str, margin: float, rounds: int, *, logprobs: bool) -> str:
    """What `fit` promises for a quality on one half of a recording, and what a gateway gives on the other."""
    is_several = name == "menu"
    half = read_menu_half(logprobs=logprobs) if is_several else read_half(name, logprobs=logprobs)
    with tempfile.TemporaryDirectory() as folder:
        policy, prices = Path(folder, "policy"), Path(folder, "prices.toml")
        sources = MODES if is_several else {"m": RECORDINGS[name]}
        files = [f"{mode}={write_half(Path(folder, mode), source)}" for mode, source in sources.items()]
        prices.write_text("".join(f"[{m}]\ninput_price = 0\noutput_price = {p}\n" for m, p in PRICES.items()))
        words = [word for file in files for word in ("--join", file)]
        words = (
            [*words, "--policy", "menu", "--prices", str(prices), "--no-groups"]  # facts has seven
            if is_several
            else [files[0].split("=")[1]]
        )
        words += ["--budget", quality, "--margin", f"{margin:g}", "-o", str(policy), "--json"]
        words += [] if logprobs else ["--votes", "plain"]
        command = [str(Path(sys.executable).parent / "adacompute"), "fit", *words]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        fitted = ac.load_policy(policy)
        served = replace(half, policy=fitted, folder=str(policy), options=("--margin", f"{margin:g}"))
        right, cost = ask_gateway(served, quality, rounds)
    asked, rng = Quality.parse(quality), np.random.default_rng(0)
    votes = half.ballots if asked.mode is None else half.ballots[asked.mode].number_classes()
    weigh = fitted.weigh
    if asked.mode is not None and weigh is not None:
        weigh = dict(weigh.modes)[asked.mode]
    paths = draw_paths(votes, rng=rng, orders=100, longest=LONGEST, weigh=weigh)
    rival = paths.mean_per_problem(paths.grade[asked.samples - 1])
    gain = right.mean(axis=0) - rival
    return (
        f"{half.name}, {told['problems']} problems: {told['quality_text']}\n"
        f"served, {len(gain)} other problems, {rounds} times each: {cost.mean():.3g} on average; "
        f"right in {right.mean():.1%}, {asked.rival} for everyone in {rival.mean():.1%}: "
        f"{100 * gain.mean():+.1f} points ± {196 * gain.std(ddof=1) / np.sqrt(len(gain)):.1f} (95%)"
    )


def write_half(path: Path, source: str | Path) -> Path:
    """The half of a recording that `fit` learns from, as a file; a sample has as many tokens as it will."""
    with open_reread(source) as pool:
        pool_files.export_file(pool, path.with_suffix(".jsonl"))
    lines = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()[::2]]
    for sample in (sample for line in lines for sample in line["samples"] if source in MODES.values()):
        sample["logprob"] *= TOKENS / sample["tokens"]
        sample["tokens"] = TOKENS
    path.with_suffix(".jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path.with_suffix(".jsonl")


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
        words += ["--budget", budget if isinstance(budget, str) else f"{budget:.9f} USD"]
    else:
        words += ["--upstream", upstream, "--model", "m", "--budget", str(budget)]
    ready = f"http://127.0.0.1:{port}/readyz"
    with running(words, ready, folder=folder, environ={**PATHS, **half.environ}, wait=600.0):
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
    """What is compared; facts also with a vote on every request, whatever its first sample looks like."""
    menu_budgets = [COSTS["large"] * share for share in MODE_BUDGETS]
    known = [name for name, source in RECORDINGS.items() if isinstance(source, str) or source.exists()]
    for name in (name for name in [*known, "menu"] if name in names or not names):
        for logprobs in (True, False):
            half = read_menu_half(logprobs=logprobs) if name == "menu" else read_half(name, logprobs=logprobs)
            budgets = menu_budgets if name == "menu" else BUDGETS
            yield half, budgets
            if name in ("facts", "menu"):
                yield replace(half, name=f"{half.name}, vote = always", environ=ALWAYS), budgets


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
    parser.add_argument("--plain", action="store_true", help="with --quality: no log-probabilities")
    options = parser.parse_args(words)
    if options.quality:
        for name in options.names or ("words",):
            found = keep_promise(
                name, options.quality, options.margin, options.rounds, logprobs=not options.plain
            )
            print(found, flush=True)
        return
    for number, row in enumerate(list_rows(options.names, options.rounds)):
        if not number:
            print("| " + " | ".join(row) + " |\n| --- | --- |" + " ---: |" * (len(row) - 2))
        print("| " + " | ".join(row.values()) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
