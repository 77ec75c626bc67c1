"""Service times and sizes that the simulation and the arithmetic rest on, measured or from our pages.

Knows nothing of fleets. Times are of one core; on a machine that others use they come out longer.
"""

import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import adacompute as ac
from adacompute.policies.features import compute_prompt_features
from adacompute.serve.pricing.pacer import Pacer
from adacompute.solve.price_search import PriceSearch, count_choices
from studies.fleet.redis_times import redis_times

__all__ = ["measured"]

ROOT = Path(__file__).resolve().parents[2]
_PROMPTS, _LETTERS = 4000, 500
_PROBLEMS, _MODES = 100_000, (1.0, 2.0, 4.0, 8.0, 16.0)


def measured(*, quick: bool = False) -> dict[str, Any]:
    """Everything, by name."""
    return {
        "redis": redis_times(1 if quick else 4),
        "settle_us": _settle(),
        "gateway": _gateway(),
        "features_us": _features(),
        "allocate_rate": _allocate(),
        "solve": _solve(),
        "parquet_bytes_prompt": _prompt_bytes(),
        "pool_bytes_sample": _sample_bytes(),
    }


def _settle(times: int = 50_000) -> float:
    costs = np.random.default_rng(0).integers(1, 6, times).tolist()
    best = float("inf")
    for _ in range(3):
        pacer = Pacer(3.0, start=0.02, low=1e-6, high=1.0)
        began = time.process_time()
        for cost in costs:
            pacer.settle(cost, pacer.price)
        best = min(best, time.process_time() - began)
    return round(1e6 * best / times, 2)


def _gateway() -> dict[str, float]:
    """Milliseconds of a gateway's core, in docs/reference/benchmarks.md: one wave, one more.

    A further wave isn't measured there by itself: a call to the upstream, as the bare proxy makes one, and a
    decision.
    """
    page = (ROOT / "docs" / "reference" / "benchmarks.md").read_text("utf-8")
    rates = page[page.index("## Requests a second beside other servers") :]
    decisions = page[page.index("## Deciding for one request") :]

    def cell(part: str, row: str, pattern: str) -> float:
        found = re.search(rf"^\| {re.escape(row)} \|.*?{pattern}", part, re.MULTILINE)
        assert found is not None, row
        return float(found[1])

    usual = "gateway, stopping after one, log-probabilities asked for"  # as the bundled policy does
    first = cell(rates, usual, r"\| ([\d.]+) ms \| [\d.]+× LiteLLM")
    proxy = cell(rates, "bare Starlette + aiohttp proxy", r"\| ([\d.]+) ms \| – \|")
    decision = cell(decisions, "stopping, its prior", r"\| (\d+) µs")
    return {"first_wave_ms": first, "further_wave_ms": round(proxy + decision / 1000, 3)}


def _allocate() -> float | None:
    """Prompts a second on one core, whole command, from docs/reference/benchmarks.md; None if absent."""
    page = (ROOT / "docs" / "reference" / "benchmarks.md").read_text("utf-8")
    found = re.search(r"^\| `allocate`, one process \| ([\d,]+) \|", page, re.MULTILINE)
    return None if found is None else float(found[1].replace(",", ""))


def _texts() -> list[str]:
    """Prompts of the same length, of the words of the bundled recordings' questions, each different."""
    words = [
        word
        for name in ("facts", "words")
        for text in ac.bundled(name).ballots().prompts
        for word in text.split()
    ]
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(words), (_PROMPTS, _LETTERS // 4))
    return [" ".join(words[at] for at in row)[:_LETTERS] for row in drawn]


def _features() -> float:
    texts = _texts()
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        compute_prompt_features(texts)
        best = min(best, time.process_time() - began)
    return round(1e6 * best / len(texts), 1)


def _solve() -> dict[str, float]:
    """Of one block of curves: microseconds a problem over all passes, and bytes of its counts."""
    rng = np.random.default_rng(0)
    gains = rng.random((_PROBLEMS, 1)) * np.array([0.0, 0.4, 0.7, 0.9, 1.0]) * rng.random((_PROBLEMS, 1))
    curves, costs = 0.4 + 0.5 * gains, np.array(_MODES)
    search, sizes = PriceSearch(costs, budget=3.0, problems=_PROBLEMS), []
    began = time.process_time()
    while len(search.prices):
        counts = count_choices(curves, costs, search.prices)
        sizes.append(counts.nbytes)
        search.narrow([counts])
    took = time.process_time() - began
    return {"problem_us": round(1e6 * took / _PROBLEMS, 3), "summary_bytes": max(sizes), "rounds": len(sizes)}


def _prompt_bytes() -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = _texts()
    table = pa.table({"id": [f"{at:012d}" for at in range(len(texts))], "question": texts})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.parquet"
        pq.write_table(table, file, compression="zstd")
        return round(file.stat().st_size / len(texts), 0)


def _sample_bytes() -> dict[str, float]:
    """Of the bundled recording of sentences, answers and log-probabilities with it: a pool, and Parquet."""
    with tempfile.TemporaryDirectory() as folder, ac.bundled("words") as pool:
        count = int(pool.ballots().drawn.sum())
        written = Path(folder) / "words.parquet"
        ac.export_file(pool, written)
        stored = Path(folder) / "words.sqlite"
        ac.import_file(written, stored)
        return {
            "pool": round(stored.stat().st_size / count, 0),
            "parquet": round(written.stat().st_size / count, 0),
        }
