"""Scoring votes: the exact estimator beside simulation and windows, for speed and for precision.

Knows nothing of `make`: `speed()` and `precision()` answer rows.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import adacompute as ac
from adacompute.score.aggregates import score_weighted_vote
from adacompute.score.grades import grade_samples
from adacompute.score.plain_vote import score_exact_vote, score_window_vote

Floats = npt.NDArray[np.float64]

BUDGETS = (1, 2, 4, 8, 16)
SAMPLES = 48
SUBSETS = 1_000  # of the simulation, a cell
BUNDLED = ("facts", "words")
RECORDINGS = Path(__file__).resolve().parent.parent.parent / "shared" / "recordings"
SIZES = tuple(range(16, SAMPLES + 1, 4))  # samples that the exact estimator is tried with
REPEATS = 12  # draws of each size
SOME = 12  # problems that the simulation is timed on: its rate is steady


def cut(ballots: ac.Ballots, order: npt.NDArray[np.int64]) -> ac.Ballots:
    """These samples of each problem, in this order, (problems, kept)."""
    arrays = ("classes", "correct", "tokens", "logprob", "entropy")
    return replace(ballots, **{a: np.take_along_axis(getattr(ballots, a), order, 1) for a in arrays})


def first(ballots: ac.Ballots, samples: int, problems: int | None = None) -> ac.Ballots:
    """The first samples of the first problems."""
    rows = slice(None, problems)
    names = ("ids", "prompts", "subjects", "levels", "gold_known")
    arrays = ("classes", "correct", "tokens", "logprob", "entropy")
    parts: dict[str, Any] = {name: getattr(ballots, name)[rows] for name in names}
    return replace(ballots, **parts, **{a: getattr(ballots, a)[rows, :samples] for a in arrays})


def simulate(ballots: ac.Ballots, budgets: Sequence[int], rng: np.random.Generator) -> Floats:
    """What one would write: random subsets, numpy's counts of each; no standard errors."""
    values, classes = grade_samples(ballots), ballots.classes
    found = np.zeros((len(ballots), len(budgets)))
    for i, row in enumerate(classes):
        kinds = int(row.max(initial=0)) + 1
        worth = np.array([values[i, row == kind].mean() for kind in range(kinds)])
        for k, budget in enumerate(budgets):
            order = rng.random((SUBSETS, len(row))).argsort(axis=1)[:, :budget]
            votes = row[order]  # (subsets, budget)
            counts = (votes[:, :, None] == np.arange(kinds)).sum(axis=1)  # (subsets, kinds)
            best = counts.max(axis=1, keepdims=True)
            leads = (counts == best) & (best > 0)
            found[i, k] = (leads @ worth / np.maximum(leads.sum(axis=1), 1)).mean()
    return found


def _rate(work: Callable[[], object], problems: int) -> float:
    """Problems a second, the best of three."""
    best = float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return problems / best


def speed() -> list[dict[str, Any]]:
    """Rows: problems a second at 48 samples and five budgets, by way, on each bundled recording."""
    rows = []
    for name in BUNDLED:
        with ac.bundled(name) as pool:
            ballots = first(pool.ballots(), SAMPLES)
        few = first(ballots, SAMPLES, SOME)
        values, problems = grade_samples(ballots), len(ballots)

        def weighted(given: ac.Ballots = ballots, known: Floats = values) -> object:
            rng = np.random.default_rng(0)
            return score_weighted_vote(given, known, BUDGETS, weigh=None, rng=rng, draws=2 * SUBSETS)

        rates = {
            "exact": _rate(lambda b=ballots, v=values: score_exact_vote(b, v, BUDGETS), problems),
            "windows": _rate(lambda b=ballots, v=values: score_window_vote(b, v, BUDGETS), problems),
            "simulation": _rate(lambda b=few: simulate(b, BUDGETS, np.random.default_rng(0)), SOME),
            "weighted": _rate(weighted, problems),
        }
        rows += [
            {
                "recording": name,
                "way": way,
                "problems_per_second": rate,
                "of_simulation": rate / rates["simulation"],
            }
            for way, rate in rates.items()
        ]
    return rows


def sources() -> dict[str, ac.Ballots]:
    """The recordings: the bundled ones, and those beside the checkout."""
    found = {}
    for name in BUNDLED:
        with ac.bundled(name) as pool:
            found[name] = pool.ballots()
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        name = path.name.split(".jsonl")[0]
        if not name.startswith(BUNDLED):  # those are bundled
            with ac.open_pool(path) as pool:
                found[name] = pool.ballots()
    return found


def variances(ballots: ac.Ballots, samples: int, orders: Sequence[npt.NDArray[np.int64]]) -> Floats:
    """The mean over problems of the variance over these draws: exact, windows, (2, budgets)."""
    drawn = [cut(ballots, order[:, :samples]) for order in orders]
    return np.array(
        [
            np.var([way(one, grade_samples(one), BUDGETS).accuracy for one in drawn], axis=0, ddof=1).mean(
                axis=0
            )
            for way in (score_exact_vote, score_window_vote)
        ]
    )


def precision(repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Rows: with how few samples the exact estimator is as precise as windows of 48.

    Samples are drawn afresh from each problem's recorded ones, with replacement: the recorded shares are
    taken for the model's, so that any number of independent draws can be had, and the error of an unbiased
    estimate is its standard deviation over them. `check` compares that with disjoint halves of the
    recorded samples, which assume nothing: variance of windows over variance of exact, by each.
    """
    rows = []
    for name, ballots in sources().items():
        rng = np.random.default_rng(0)
        shape = ballots.classes.shape
        afresh = [rng.integers(shape[1], size=(shape[0], SAMPLES)) for _ in range(repeats)]
        found = {n: variances(ballots, n, afresh) for n in SIZES}
        half = shape[1] // 2
        parted = []
        for _ in range(repeats // 2):
            order = rng.random(shape).argsort(axis=1)
            parted.append(variances(ballots, half, [order, order[:, half:]]))
        assumed, plain = variances(ballots, half, afresh), np.mean(parted, axis=0)
        for k, budget in enumerate(BUDGETS):
            spread = np.minimum.accumulate([found[n][0, k] for n in SIZES])
            needs = np.exp(np.interp(-np.log(found[SAMPLES][1, k]), -np.log(spread), np.log(SIZES)))
            rows.append(
                {
                    "recording": name,
                    "budget": budget,
                    "windows_error": float(np.sqrt(found[SAMPLES][1, k])),
                    "exact_error": float(np.sqrt(found[SAMPLES][0, k])),
                    "exact_needs": float(needs),
                    "check": (float(assumed[1, k] / assumed[0, k]), float(plain[1, k] / plain[0, k])),
                }
            )
    return rows
