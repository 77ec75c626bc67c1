"""Random ballots with everything that recordings have, and the same samples one by one."""

import numpy as np

from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT, ABSTAINS, renumber
from adacompute.records import Sample

WORDS = ("north", "apple", "river", "seven brothers", "green", "violin", "stone")


def drawn(seed: int = 0, *, problems: int = 12, samples: int = 24, least: int = 8, kinds: int = 5) -> Ballots:
    """Problems of unequal numbers of samples; the first abstains always, the second has no labels."""
    rng = np.random.default_rng(seed)
    shape = (problems, samples)
    classes = rng.integers(ABSTAINS, kinds, shape).astype(np.int32)
    classes[0] = ABSTAINS
    counts = rng.integers(least, samples + 1, problems)
    counts[-1] = samples
    absent = np.arange(samples) >= counts[:, None]
    classes[absent] = ABSENT
    renumber(classes)
    right = rng.integers(0, 2, (problems, kinds)).astype(np.float32)
    correct = np.where(classes >= 0, right[np.arange(problems)[:, None], np.maximum(classes, 0)], 0)
    correct[absent] = np.nan
    correct[1] = np.nan
    known = np.ones(problems, dtype=bool)
    known[1] = False
    tokens = rng.integers(1, 100, shape).astype(np.float64)
    logprob = np.where(rng.random(shape) < 0.2, np.nan, -rng.exponential(1.0, shape) * tokens)
    entropy = np.where(rng.random(shape) < 0.2, np.nan, rng.exponential(1.0, shape))
    for array in (tokens, logprob, entropy):
        array[absent] = np.nan
    return Ballots(
        ids=tuple(f"p{i}" for i in range(problems)),
        prompts=tuple(f"What is {i} and {i * i}?" + "x" * i for i in range(problems)),
        subjects=(None,) * problems,
        levels=(None,) * problems,
        gold_known=known,
        classes=classes,
        correct=correct.astype(np.float32),
        tokens=tokens,
        logprob=logprob,
        entropy=entropy,
    )


def samples(ballots: Ballots, problem: int, order: np.ndarray) -> list[Sample]:
    """Some samples of a problem as records, in order."""
    return [
        Sample(
            answer=WORDS[ballots.classes[problem, j]] if ballots.classes[problem, j] >= 0 else None,
            tokens=int(ballots.tokens[problem, j]),
            logprob=_known(ballots.logprob[problem, j]),
            entropy=_known(ballots.entropy[problem, j]),
        )
        for j in order.tolist()
    ]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
