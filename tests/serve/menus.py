"""A menu of two modes at scripted upstreams, and policies over it: for tests of the gateway.

    with MenuUpstreams() as menu, Running("", menu=str(menu.write(tmp_path)), policy=..., budget=...) as gate:

`small` answers as SmolLM2 did on the bundled facts, `large` as Qwen2.5 did; a sample of `large` costs 20
times as much. Every reply has 20 tokens of prompt and 10 of response, so that what is spent can be counted
by hand.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from behaviours import Behaviour, Reply, Status

import adacompute as ac
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.pool import Ballots
from adacompute.records import Recorded, Sample
from shared import share
from upstream import Upstream

POOLS = {"small": "facts", "large": "facts-qwen"}
OUTPUT_PRICES = {"small": 0.5, "large": 10.0}  # a million tokens cost this; prompts are free
COSTS = {name: 10 * price / 1e6 for name, price in OUTPUT_PRICES.items()}  # of one sample
QUICK = 60  # problems, with which no lattice is learned


@share
def read_recorded() -> dict[str, list[Recorded]]:
    """The recorded problems of each mode, in one order: those that both have."""
    recorded = {}
    for name, pool_name in POOLS.items():
        with ac.bundled(pool_name) as pool:
            recorded[name] = {each.problem.id: each for each in pool}
    ids = [id_ for id_ in recorded["small"] if id_ in recorded["large"]]
    return {name: [each[id_] for id_ in ids] for name, each in recorded.items()}


@share
def read_ballots() -> Ballots:
    with ac.join_pools(POOLS) as pool:
        return pool.ballots()


def make_menu() -> ac.Menu:
    modes = tuple(ac.Mode(name=name, cost=cost) for name, cost in COSTS.items())
    return ac.Menu(modes=modes, unit="money", currency="USD")


@share
def fit_policy(problems: int | None = QUICK) -> MenuPolicy:
    """Fitted on the first problems, or all. Recordings have no signals of tokens, which live replies have."""
    ballots = read_ballots()
    rows = range(len(ballots) if problems is None else problems)
    policy = MenuPolicy(make_menu(), longest=8).fit(ballots.only(rows))
    assert policy.weigh is not None
    plain = tuple((name, replace(own, model=None)) for name, own in policy.weigh.modes)
    policy.weigh = replace(policy.weigh, modes=plain)
    return policy


def save_policy(folder: Path, problems: int | None = QUICK) -> Path:
    fit_policy(problems).save(folder / "menu-policy")
    return folder / "menu-policy"


class RecordedMode:
    """Gives recorded answers to each question: one after the other, or in a random order for ever."""

    def __init__(
        self,
        name: str,
        *,
        seed: int | None = None,
        delay: float = 0.0,
        error_rate: float = 0.0,
        log: Path | None = None,
    ) -> None:
        self.samples = {each.problem.question: each.samples for each in read_recorded()[name]}
        self.given: Counter[str] = Counter()
        self.delay = delay
        self.error_rate = error_rate
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.fault: Behaviour | None = None  # what is answered instead, while it is set
        self._rng = None if seed is None else random.Random(seed)

    def __call__(self, _number: int, body: dict[str, Any]) -> Behaviour:
        if self.fault is not None:
            return self.fault
        if self._rng is not None and self._rng.random() < self.error_rate:
            return Status(code=500, message="scripted failure")
        question, count = body["messages"][-1]["content"], body.get("n", 1)
        first = self.given[question]
        self.given[question] += count
        known = self.samples.get(question, (Sample(answer="so it goes"),))
        if self._rng is not None:
            drawn = [self._rng.choice(known) for _ in range(count)]
        else:
            drawn = [known[(first + k) % len(known)] for k in range(count)]
        if self._log is not None:
            os.write(self._log, b"x" * count)  # a killed process has told of every sample that it gave
        usage = {"prompt_tokens": 20, "completion_tokens": 10 * count}
        choices = [_build_choice(*each) for each in enumerate(drawn)]
        return Reply(body={"choices": choices, "usage": usage, "model": body["model"]}, delay=self.delay)


def _build_choice(index: int, sample: Sample) -> dict[str, Any]:
    text = "I don't know what to say about this." if sample.answer is None else f"Answer: {sample.answer}"
    mean = (sample.logprob or 0.0) / (sample.tokens or 1)
    return {
        "index": index,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "length" if sample.finished is False else "stop",
        "logprobs": {"content": [{"token": "t", "logprob": mean}] * 10},
    }


class MenuUpstreams:
    """Two scripted upstreams; a context manager."""

    def __init__(self, *, seed: int | None = None, delays: tuple[float, float] = (0.0, 0.0)) -> None:
        self.scripts = {
            name: RecordedMode(name, seed=None if seed is None else seed + k, delay=delays[k])
            for k, name in enumerate(POOLS)
        }
        self._stack = ExitStack()

    def __enter__(self) -> "MenuUpstreams":
        self.upstreams = {
            name: self._stack.enter_context(Upstream(script, models=(f"{name}-model",)))
            for name, script in self.scripts.items()
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, folder: Path, **more: str) -> Path:
        """The menu's file; `more` are further lines of a mode's table."""
        return write_menu(folder, {name: up.url for name, up in self.upstreams.items()}, **more)

    def count_samples(self) -> dict[str, int]:
        return {name: sum(script.given.values()) for name, script in self.scripts.items()}

    def count_money(self) -> float:
        return sum(COSTS[name] * count for name, count in self.count_samples().items())


def write_menu(folder: Path, urls: dict[str, str], **more: str) -> Path:
    lines = []
    for name, url in urls.items():
        lines += [f"[{name}]", f'upstream = "{url}"', f'model = "{name}-model"']
        lines += ["input_price = 0.0", f"output_price = {OUTPUT_PRICES[name]}", more.get(name, ""), ""]
    file = folder / "menu.toml"
    file.write_text("\n".join(lines))
    return file


def list_questions(count: int, *, seed: int = 0) -> list[tuple[int, str]]:
    """Rows and questions of recorded problems, in a random order, again and again."""
    questions = [each.problem.question for each in read_recorded()["small"]]
    rows = np.random.default_rng(seed).permutation(np.resize(np.arange(len(questions)), count))
    return [(int(row), questions[row]) for row in rows]


class ModeProcess:
    """One mode's upstream as a process of its own; a context manager. `given` counts its samples."""

    def __init__(self, name: str, folder: Path, *words: str) -> None:
        self.name = name
        self._log = folder / f"{name}.given"
        self._words = [sys.executable, __file__, name, "--log", str(self._log), *words]

    def __enter__(self) -> "ModeProcess":
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, env=environ)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, "the upstream doesn't start"
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    @property
    def given(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description="One mode of recorded facts, on loopback.")
    parser.add_argument("name", choices=list(POOLS))
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--error-rate", type=float, default=0.0)
    options = parser.parse_args()
    script = RecordedMode(
        options.name,
        seed=options.seed,
        delay=options.delay,
        error_rate=options.error_rate,
        log=options.log,
    )
    with Upstream(script, keep=0, models=(f"{options.name}-model",)) as up:
        print(up.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
