"""`make bench-check`: the key ratios, measured in minutes, beside a kept baseline.

A ratio is what ours takes over what a fixed alternative takes in the same run, in added latency or in
processor time; lower is better. `benchmarks/baseline.json` keeps them by kind of machine, because ARM64 and
x86-64 differ. More than 25% above the baseline fails; what seems worse is measured again before it counts.
`make bench-check BASELINE=write` keeps what this machine shows now.
"""

import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from adacompute.records import AccuracyTable
from adacompute.score.grades import grade_samples
from adacompute.score.plain_vote import score_exact_vote
from adacompute.solve import frontier, solve
from benchmarks import answers, replay, serving
from benchmarks import solve as solving

FILE = Path(__file__).resolve().parent / "baseline.json"
WRITE = "make bench-check BASELINE=write"
LIMIT = 0.25  # a ratio may be that much above the baseline's
REPEATS = 3  # times in all that a ratio is measured before it counts as worse
BASELINE_RUNS = 2  # whose mean is kept
Ratios = dict[str, float]


class BaselineError(Exception):
    """A baseline that can't be used, in one line with the remedy."""


@dataclass(frozen=True)
class Finding:
    """One ratio beside the kept one; None where it isn't measured, or isn't kept."""

    name: str
    kept: float | None
    now: float | None

    @property
    def change(self) -> float:
        """How much worse it is, as a share of the kept one; below zero: better."""
        assert self.kept is not None
        assert self.now is not None
        return self.now / self.kept - 1

    @property
    def fails(self) -> bool:
        """Whether it is worse beyond the limit, or kept but no longer measured."""
        if self.kept is None:
            return False
        return self.now is None or not self.change <= LIMIT

    def __str__(self) -> str:
        if self.kept is None:
            return f"new       {self.name}: {self.now:.3g}, not in the baseline; keep it with {WRITE}"
        if self.now is None:
            return f"missing   {self.name}: kept {self.kept:.3g}, no longer measured"
        word = "worse" if self.change > 0 else "better"
        shown = f"kept {self.kept:.3g}, now {self.now:.3g}, {abs(self.change):.0%} {word}"
        return f"{'FAILS' if self.fails else 'ok':<9} {self.name}: {shown}"


def compare(kept: Mapping[str, float], now: Mapping[str, float]) -> list[Finding]:
    """Each ratio that is kept or measured, in the order of the baseline."""
    return [Finding(name, kept.get(name), now.get(name)) for name in dict.fromkeys([*kept, *now])]


def read_baseline(file: Path, machine: str) -> Ratios:
    """The kept ratios of a kind of machine; BaselineError where there are none, or the file is damaged."""
    try:
        kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
        ratios = kept[machine]["ratios"] if machine in kept else {}
        if any(not isinstance(ratio, int | float) or not 0 < ratio < math.inf for ratio in ratios.values()):
            raise ValueError("a ratio is not a number above 0")
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise BaselineError(f"{file.name} can't be read ({exc!r}); write it anew with {WRITE}") from None
    if not ratios:
        raise BaselineError(
            f"{file.name} has no ratios of this kind of machine ({machine}), so nothing can be checked; "
            f"write them with {WRITE}, on a commit that is known to be good"
        )
    return {name: float(ratio) for name, ratio in ratios.items()}


def write_baseline(file: Path, machine: str, ratios: Mapping[str, float]) -> None:
    """Keeps the ratios of a kind of machine; those of others stay."""
    try:
        kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
    except ValueError:
        kept = {}
    kept = kept if isinstance(kept, dict) else {}
    kept[machine] = {
        "command": WRITE,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ratios": {name: float(f"{ratio:.3g}") for name, ratio in ratios.items()},
    }
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", "utf-8")
    temporary.replace(file)


def check(
    kept: Mapping[str, float], groups: Sequence[Callable[[], Ratios]], *, repeats: int = REPEATS
) -> list[Finding]:
    """Measures every group, and again those with a ratio that seems worse; the least of each counts."""
    now: Ratios = {}
    for group in groups:
        for attempt in range(repeats):
            ratios = group()
            now |= {name: min(ratio, now.get(name, math.inf)) for name, ratio in ratios.items()}
            worse = [finding for finding in compare(kept, now) if finding.name in ratios and finding.fails]
            if not worse:
                break
            if attempt + 1 < repeats:
                print(f"again: {', '.join(finding.name for finding in worse)}", file=sys.stderr)
    return compare(kept, now)


def measure_gateway() -> Ratios:
    """Added p50 and processor time of a request, in times of the bare proxy's."""
    rows = {row["way"]: row for row in serving.added(seconds=0.5, rounds=7)}
    bare = serving.BARE
    names = {
        "gateway, passed through (`pass`)": ("pass", bare),
        "gateway, one sample (`single`)": ("single", bare),
        "gateway, stopping after one, log-probabilities": ("stopping", f"{bare}, with log-probabilities"),
        "gateway, an embedding": ("embedding", f"{bare}, an embedding"),
    }
    ratios = {}
    for way, (name, floor) in names.items():
        ratios[f"gateway, added p50, {name}"] = rows[way]["ratio"]
        ratios[f"gateway, processor, {name}"] = rows[way]["cpu"] / rows[floor]["cpu"]
    return ratios


def measure_numbers() -> Ratios:
    """Replaying, scoring and solving, in times of a stable argsort of a fixed array."""
    ballots = replay.recorded(200)
    policy, price = replay.POLICIES["stopping, its prior (about 3 samples)"]
    plain, dial = replay.POLICIES["Adaptive-Consistency"]
    values = grade_samples(ballots)
    accuracy = solving.concave(np.random.default_rng(0), 200_000)
    table = AccuracyTable.of(accuracy, costs=solving.SAMPLES)
    array = np.random.default_rng(0).random((400, 2_000))
    works: dict[str, Callable[[], object]] = {
        "replay of stopping": lambda: replay.replay(policy, ballots, price=price, orders=20),
        "replay of Adaptive-Consistency": lambda: replay.replay(plain, ballots, price=dial, orders=20),
        "exact scores": lambda: score_exact_vote(ballots, values, (1, 2, 4, 8, 16)),
        "frontier": lambda: frontier(table),
        "one budget": lambda: solve(table, budget=solving.BUDGET),
    }
    seconds = time_in_turns({"": lambda: array.argsort(axis=1, kind="stable"), **works}, 9)
    return {f"{name}, beside a stable argsort": seconds[name] / seconds[""] for name in works}


def measure_parsing() -> Ratios:
    """From the bytes of a reply with log-probabilities to a sample, in times of `orjson.loads`."""
    parse, ratios = answers.build_parser(), {}
    for alternatives in (0, 5):
        raw = answers.build_reply(1_000, alternatives)
        works = {"ours": lambda raw=raw: parse(raw), "orjson": lambda raw=raw: orjson.loads(raw)}
        seconds = time_in_turns(works, 60)
        name = f"parsing 1,000 tokens, {alternatives} alternatives each, beside orjson.loads"
        ratios[name] = seconds["ours"] / seconds["orjson"]
    return ratios


def measure_imports() -> Ratios:
    """Processor time of a Python that imports the package, in times of one that imports numpy."""
    words = {"ours": "import adacompute", "numpy": "import numpy", "version": "VERSION"}
    best = dict.fromkeys(words, math.inf)
    for _ in range(7):
        for name, statement in words.items():
            program = ["-m", "adacompute", "--version"] if statement == "VERSION" else ["-c", statement]
            best[name] = min(best[name], _time_program(program))
    return {
        "import adacompute, beside import numpy": best["ours"] / best["numpy"],
        "adacompute --version, beside import numpy": best["version"] / best["numpy"],
    }


def _time_program(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=os.environ | serving.PATHS)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_in_turns(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of processor time of each, the best of so many rounds in which they take turns."""
    best = dict.fromkeys(works, math.inf)
    for _ in range(rounds):
        for name, work in works.items():
            begun = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - begun)
    return best


GROUPS = (measure_imports, measure_parsing, measure_numbers, measure_gateway)


def main(words: list[str]) -> int:
    """Exit code: 0 as good as kept, 1 worse, 2 nothing to compare with."""
    machine = platform.machine()
    if words == ["--write"]:
        runs = [
            {name: ratio for group in GROUPS for name, ratio in group().items()} for _ in range(BASELINE_RUNS)
        ]
        ratios = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
        write_baseline(FILE, machine, ratios)
        print("\n".join(f"kept      {name}: {ratio:.3g}" for name, ratio in ratios.items()))
        return 0
    if words:
        print(f"unknown words {' '.join(words)!r}; give none, or --write", file=sys.stderr)
        return 2
    try:
        kept = read_baseline(FILE, machine)
    except BaselineError as exc:
        print(exc, file=sys.stderr)
        return 2
    findings = check(kept, GROUPS)
    print("\n".join(map(str, findings)))
    return int(any(finding.fails for finding in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
