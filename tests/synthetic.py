"""Small recordings made by a throw of dice: good ones, and poor ones that a report must survive."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from adacompute import Ballots

P = TypeVar("P")


def make_ballots(classes: np.ndarray, correct: np.ndarray | None = None, **given: Any) -> Ballots:
    """Ballots with these classes, graded if `correct` is given; what else isn't given is not recorded."""
    problems, nothing = len(classes), np.full(np.shape(classes), np.nan)
    bare = {
        "ids": tuple(f"p{row}" for row in range(problems)),
        "prompts": tuple(f"question {row}" for row in range(problems)),
        "subjects": (None,) * problems,
        "levels": (None,) * problems,
        "gold_known": np.full(problems, correct is not None),
        "tokens": nothing,
        "logprob": nothing,
        "entropy": nothing,
    }
    grades = (nothing if correct is None else correct).astype(np.float32)
    return Ballots(classes=classes.astype(np.int32), correct=grades, **{**bare, **given})


def synthetic(
    problems: int = 60,
    samples: int = 32,
    *,
    chance: Sequence[float] | None = None,
    levels: Sequence[int | float | str | None] | None = None,
    signals: bool = True,
    seed: int = 0,
) -> Ballots:
    """Each problem is right with its own chance, or else gives one of three wrong answers."""
    rng = np.random.default_rng(seed)
    own = rng.beta(0.7, 0.7, problems) if chance is None else np.asarray(chance, dtype=np.float64)
    right = rng.random((problems, samples)) < own[:, None]
    answer = np.where(right, 0, rng.integers(1, 4, (problems, samples)))
    nothing = np.full(right.shape, np.nan)
    tokens = rng.integers(20, 90, right.shape).astype(np.float64) if signals else nothing
    return make_ballots(
        np.stack([_by_appearance(row) for row in answer]),
        right,
        ids=tuple(f"p-{i:03}" for i in range(problems)),
        prompts=tuple(f"Problem {i}: what is {i * i} plus {i % 7}?" for i in range(problems)),
        levels=tuple(levels) if levels is not None else (None,) * problems,
        tokens=tokens,
        logprob=-tokens * 0.3,
        entropy=rng.random(right.shape) if signals else nothing,
    )


def _by_appearance(row: np.ndarray) -> np.ndarray:
    names: dict[int, int] = {}
    return np.array([names.setdefault(int(answer), len(names)) for answer in row])


POOR = (  # what the recordings of `poor` lack
    "ten problems",
    "three samples",
    "two samples",
    "all right",
    "all wrong",
    "no signals",
    "uneven levels",
)


def poor(score: Callable[[Ballots, str], P]) -> dict[str, P]:
    """Recordings that lack something, scored, by what they lack."""
    return {
        "ten problems": score(synthetic(10, 16), "few"),
        "three samples": score(synthetic(24, 3), "short"),
        "two samples": score(synthetic(24, 2), "shortest"),
        "all right": score(synthetic(24, 16, chance=[1.0] * 24), "right"),
        "all wrong": score(synthetic(24, 16, chance=[0.0] * 24), "wrong"),
        "no signals": score(synthetic(24, 16, signals=False), "bare"),
        "uneven levels": score(synthetic(24, 16, levels=["easy"] * 23 + ["hard"]), "uneven"),
    }
