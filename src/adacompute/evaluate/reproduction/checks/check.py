"""A statement, tried on every recording, and what came of it. Knows no statement.

Each is tried twice where that makes sense: as the paper scores it, and as it should be scored. The verdict is
told from how many recordings bear it out, never written by hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from adacompute.evaluate.exhibits import Column, Kind, written

__all__ = ["BOTH_SIDES", "Check", "Finding", "Seen", "Verdict", "finding"]

Verdict = Literal[
    "agrees",
    "in part",
    "only in-sample",
    "only with the same question on both sides",
    "doesn't",
    "can't be told",
]
BOTH_SIDES: Verdict = "only with the same question on both sides"  # of a split: nothing is judged in-sample
MOST, HALF, FEW = 0.8, 0.5, 0.2  # of the recordings: above the first it agrees, below the last it doesn't
HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One statement on one recording; None: it can't be tried there."""

    paper: bool | None = None  # whether it holds, scored as the paper does
    value: float | None = None  # by which that is told
    ours: bool | None = None  # whether it holds in the second reading
    own: float | None = None
    beside: float | None = None  # a third number, which decides nothing
    note: str = ""  # what the number alone doesn't tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How a statement is tried, on one recording or on what is made of several."""

    key: str
    value: str  # what is looked at
    kind: Kind
    see: Callable[[Any], Seen | Mapping[str, Seen]]  # of a `Run`, or of a `Pooled`, perhaps part by part
    holds: str  # when it is taken to hold
    reading: str = HELD_OUT  # what the second reading is; an oracle has nothing to hold out
    beside: str = ""  # what the third number is
    only: Verdict = "only in-sample"  # what it is called if the first reading alone bears it out
    pooled: bool = False
    once: bool = False  # one recording is enough, where the paper says "up to"
    why: Mapping[Verdict, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of a statement."""

    key: str
    verdict: Verdict
    paper: tuple[int, int]  # held, tried: scored as the paper does
    ours: tuple[int, int]  # in the second reading
    found: str  # in words
    why: str
    seen: dict[str, Seen]  # by recording


def finding(check: Check, seen: Mapping[str, Seen]) -> Finding:
    """What came of a statement on all recordings."""
    paper = [bool(one.paper) for one in seen.values() if one.paper is not None]
    ours = [bool(one.ours) for one in seen.values() if one.ours is not None]
    verdict = _verdict(paper, ours, check)
    return Finding(
        key=check.key,
        verdict=verdict,
        paper=(sum(paper), len(paper)),
        ours=(sum(ours), len(ours)),
        found=_words(check, seen),
        why=check.why.get(verdict, ""),
        seen=dict(seen),
    )


def _verdict(paper: Sequence[bool], ours: Sequence[bool], check: Check) -> Verdict:
    """By the second reading where there is one; `check.only` if the first alone bears it out."""
    told = ours or paper
    if not told:
        return "can't be told"
    if check.once:
        told, paper = [any(told)], [any(paper)]
    share = sum(told) / len(told)
    if share >= MOST:
        return "agrees"
    if (
        check.reading.startswith(HELD_OUT)
        and ours
        and paper
        and share <= HALF <= sum(paper) / len(paper) > share
    ):
        return check.only
    return "doesn't" if share <= FEW else "in part"


def _words(check: Check, seen: Mapping[str, Seen]) -> str:
    first = _range([one.value for one in seen.values()], check.kind)
    second = _range([one.own for one in seen.values()], check.kind)
    third = _range([one.beside for one in seen.values()], check.kind)
    if first is None and second is None:
        return f"{check.value}: not to be had from these recordings"
    others = ((check.reading, second), (check.beside, third))
    parts = [*([first] if first else []), *(f"{name} {told}" for name, told in others if told)]
    notes = dict.fromkeys(one.note for one in seen.values() if one.note)
    return ". ".join([f"{check.value}: {'; '.join(parts)}", *notes])


def _range(values: Sequence[float | None], kind: Kind) -> str | None:
    known = sorted(value for value in values if value is not None and value == value)
    if not known:
        return None
    column = Column(name="", kind=kind)
    low, high = (written(end, column) for end in (known[0], known[-1]))
    return low if low == high else f"{low} to {high}"
