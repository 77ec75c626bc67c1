"""Two modes whose accuracy the prompt tells: short questions are easy for both, long ones for one only."""

import numpy as np

from adacompute.pool import Ballots

HARD = "In {} steps of {} each, then {} more per day, what is the total after {} weeks and {} days?"


def make_prompt(rng: np.random.Generator, *, hard: bool) -> str:
    numbers = rng.integers(2, 900, 5).tolist()
    return HARD.format(*numbers) if hard else f"What is {numbers[0]}?"


def make_menu_votes(problems: int = 120, *, samples: int = 8, seed: int = 0, telling: bool = True) -> Ballots:
    """The votes of "small" and "large"; `telling=False`: the prompts say nothing."""
    rng = np.random.default_rng(seed)
    hard = np.arange(problems) % 2 == 1
    shown = hard if telling else rng.permutation(hard)
    prompts = tuple(make_prompt(rng, hard=bool(value)) for value in shown)
    skills = {"small": np.where(hard, 0.1, 0.85), "large": np.where(hard, 0.8, 0.9)}
    return Ballots.join({name: _make_votes(prompts, skill, samples, rng) for name, skill in skills.items()})


def _make_votes(
    prompts: tuple[str, ...], skill: np.ndarray, samples: int, rng: np.random.Generator
) -> Ballots:
    right = rng.random((len(prompts), samples)) < skill[:, None]
    nothing = np.full(right.shape, np.nan)
    return Ballots(
        ids=tuple(f"p{row}" for row in range(len(prompts))),
        prompts=prompts,
        subjects=(None,) * len(prompts),
        levels=(None,) * len(prompts),
        gold_known=np.ones(len(prompts), dtype=bool),
        classes=np.where(right, 0, rng.integers(1, 4, right.shape)).astype(np.int32),
        correct=right.astype(np.float32),
        tokens=np.full(right.shape, 20.0),
        logprob=nothing,
        entropy=nothing,
    )
