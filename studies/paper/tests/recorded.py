"""Small recordings for the paper's experiment. Knows nothing of what is made of them."""

import gzip
import json
from pathlib import Path

import numpy as np

__all__ = ["lines", "written"]


def lines(problems: int, samples: int, *, seed: int, levels: bool = False, sure: float | None = None) -> list:
    """Problems from hopeless to easy, or all right with probability `sure`; wrong answers are of three."""
    rng = np.random.default_rng(seed)
    found = []
    for at in range(problems):
        chance = (at + 0.5) / problems if sure is None else sure
        right = rng.random(samples) < chance
        answers = np.where(right, "1", rng.choice(["2", "3", "4"], samples))
        entropy = rng.uniform(0.1, 1.0, samples) * (1.2 - chance)
        one = {"id": str(at), "question": f"{seed}.{at}: {'very ' * (at % 5)}hard?", "gold": "1"}
        one["model"] = "Tiny-1B-Instruct"
        if levels:
            one["level"] = 1 + 3 * at // problems
        one["samples"] = [
            {"answer": str(answer), "entropy": float(own)}
            for answer, own in zip(answers, entropy, strict=True)
        ]
        found.append(one)
    return found


def written(file: Path, rows: list) -> Path:
    """A recording as a file."""
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file
