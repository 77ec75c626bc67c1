"""Recorded votes of several made-up modes on the same problems, each mode better than the one before."""

import numpy as np

from adacompute.pool import Ballots

NAMES = ("small", "large", "huge")


def make_modes(
    problems: int = 60,
    *,
    samples: int = 8,
    modes: int = 2,
    seed: int = 0,
    skills: tuple[float, ...] = (),
    graded: bool = True,
) -> Ballots:
    """A third of the problems is easy for every mode; the others are mostly for the more expensive ones.

    `skills` replaces how often each mode is right on the others. Subjects are families of six problems.
    """
    rng = np.random.default_rng(seed)
    easy = np.arange(problems) % 3 == 0
    shares = skills or (0.15, 0.7, 0.9)[:modes]
    return Ballots.join(
        {
            name: _make_votes(np.where(easy, 0.95, share), samples, rng, graded=graded)
            for name, share in zip(NAMES, shares, strict=False)
        }
    )


def _make_votes(skill: np.ndarray, samples: int, rng: np.random.Generator, *, graded: bool) -> Ballots:
    problems = len(skill)
    right = rng.random((problems, samples)) < skill[:, None]
    wrong = rng.integers(1, 5, right.shape)
    nothing = np.full(right.shape, np.nan)
    return Ballots(
        ids=tuple(f"p{row}" for row in range(problems)),
        prompts=tuple(f"question {row}" for row in range(problems)),
        subjects=tuple(f"family {row // 6}" for row in range(problems)),
        levels=(None,) * problems,
        gold_known=np.full(problems, graded),
        classes=np.where(right, 0, np.where(wrong == 4, -1, wrong)).astype(np.int32),
        correct=right.astype(np.float32) if graded else nothing.astype(np.float32),
        tokens=np.full(right.shape, 20.0),
        logprob=nothing,
        entropy=nothing,
    )
