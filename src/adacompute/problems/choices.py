"""Choices and their letters. Knows nothing of rows, files or templates."""

from collections.abc import Sequence
from hashlib import blake2b
from string import ascii_uppercase

from adacompute.errors import ProblemsInvalid

__all__ = ["LETTERS", "lettered", "shuffled"]

LETTERS = "ABCDEFGHIJ"  # those that the extractor "choice" reads


def lettered(choices: Sequence[str]) -> str:
    r"""Choices as a prompt shows them.

    >>> lettered(["red", "blue"])
    'A) red\nB) blue'
    """
    if len(choices) > len(ascii_uppercase):
        raise ProblemsInvalid(f"{len(choices)} choices are more than there are letters; give at most 10")
    return "\n".join(f"{letter}) {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))


def shuffled(number: int, *, seed: int, key: str) -> list[int]:
    """An order of `number` things that depends on the seed and the key alone, on any machine.

    >>> sorted(shuffled(4, seed=0, key="q1"))
    [0, 1, 2, 3]
    """
    return sorted(range(number), key=lambda i: blake2b(f"{seed}\0{key}\0{i}".encode()).digest())
