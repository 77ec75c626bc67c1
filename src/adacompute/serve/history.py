"""What happened lately, in constant memory: time slots of an hour and a day, and the last requests.

Knows nothing of metrics or pages. Texts are kept only where the operator allows it.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.serve.told import GONE, Told

__all__ = ["COLUMNS", "SPANS", "History", "Ring", "Slot", "finite"]

SPANS: Mapping[str, tuple[float, int]] = {"hour": (10.0, 360), "day": (300.0, 288)}  # seconds a slot, slots
COLUMNS = ("at", "requests", "errors", "counted", "samples", "target", "voted", "agreement", "seconds")
MOST = 32  # samples; requests that took more are counted there
_DIALS = 6  # whose prices are kept, in each slot
_RECENT = 50
_LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CLASSES = 8  # of a vote, that are told apart
_ANSWER, _PROMPT, _NOTE = 80, 300, 200  # characters that are kept

_Dial = tuple[str, float]  # a policy's name, and the budget


def finite(value: float | None) -> float | None:
    """The number, or None for one that JSON has no word for."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(slots=True)
class Slot:
    """Sums over the requests that ended in some seconds."""

    at: float = 0.0  # when it began
    requests: int = 0
    errors: int = 0  # 4xx and 5xx, but for clients that went away
    counted: int = 0  # requests that the average is over
    samples: int = 0  # that these took
    target: float = 0.0  # sum of their budgets
    voted: int = 0
    agreement: float = 0.0  # sum over those voted on
    seconds: float = 0.0  # sum over all
    drawn: dict[int, int] = field(default_factory=dict)  # requests by samples
    calls: dict[str, int] = field(default_factory=dict)  # upstream, by kind
    prices: dict[_Dial, float] = field(default_factory=dict)  # the last of each

    def add(self, told: Told) -> None:
        """One request ended."""
        self.requests += 1
        self.seconds += told.seconds
        self.errors += told.status >= 400 and told.status != GONE
        if told.paced:
            self.counted += 1
            self.samples += told.cost_samples
            self.target += told.budget
        if told.samples:
            drawn = min(told.samples, MOST)
            self.drawn[drawn] = self.drawn.get(drawn, 0) + 1
        if told.agreement is not None:
            self.voted += 1
            self.agreement += told.agreement

    def row(self) -> list[float]:
        """The sums in the order of `COLUMNS`."""
        return [round(getattr(self, name), 4) for name in COLUMNS]


class Ring:
    """The newest slots; what is older is gone."""

    def __init__(self, step: float, size: int) -> None:
        self.step = step
        self._slots: deque[Slot] = deque(maxlen=size)
        self._size = size

    def now(self, at: float) -> Slot:
        """The slot that a moment falls into; a clock that was set back goes on in the newest."""
        begin = at - at % self.step
        if not self._slots or begin > self._slots[-1].at:
            self._slots.append(Slot(begin))
        return self._slots[-1]

    def since(self, at: float) -> Iterator[Slot]:
        """The slots that are not older than the ring is long, oldest first. Empty ones are left out."""
        oldest = at - self.step * self._size
        return (slot for slot in self._slots if slot.at > oldest)


class History:
    """Slots of an hour and a day, and the last 50 requests."""

    def __init__(self, *, texts: bool, now: Callable[[], float]) -> None:
        self._texts = texts
        self._now = now
        self._rings = {name: Ring(step, size) for name, (step, size) in SPANS.items()}
        self._recent: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._held: list[_Dial] = []  # the operator's own

    def holds(self, dial: _Dial) -> None:
        """Keeps a place for a dial of the operator's, however many others come first."""
        if dial not in self._held and len(self._held) < _DIALS:
            self._held.append(dial)

    def ended(self, told: Told) -> None:
        """A request ended."""
        at = self._now()
        for ring in self._rings.values():
            ring.now(at).add(told)
        self._recent.append(_row(told, texts=self._texts))

    def called(self, kind: str) -> None:
        """A call upstream ended; `kind` is of a fixed set."""
        at = self._now()
        for ring in self._rings.values():
            calls = ring.now(at).calls
            calls[kind] = calls.get(kind, 0) + 1

    def paced(self, dial: _Dial, price: float) -> None:
        """The price that is asked now."""
        at = self._now()
        for ring in self._rings.values():
            prices = ring.now(at).prices
            if dial in prices or dial in self._held or len(prices) < _DIALS:
                prices[dial] = price

    def recent(self) -> list[dict[str, Any]]:
        """The last requests, newest first."""
        return list(reversed(self._recent))

    def board(self, span: str) -> dict[str, Any]:
        """One span as JSON data: its slots, and the sums over it. See `Seen.board`."""
        ring = self._rings[span]
        slots = list(ring.since(self._now()))
        total = Slot()
        prices: dict[_Dial, list[list[float]]] = {}
        for slot in slots:
            for name in COLUMNS[1:]:
                setattr(total, name, getattr(total, name) + getattr(slot, name))
            for drawn, n in slot.drawn.items():
                total.drawn[drawn] = total.drawn.get(drawn, 0) + n
            for kind, n in slot.calls.items():
                total.calls[kind] = total.calls.get(kind, 0) + n
            for dial, price in slot.prices.items():
                if dial in prices or dial in self._held or len(prices) < _DIALS:
                    prices.setdefault(dial, []).append([slot.at, float(f"{price:.5g}")])
        return {
            "step": ring.step,
            "columns": list(COLUMNS),
            "rows": [slot.row() for slot in slots],
            "total": dict(zip(COLUMNS[1:], total.row()[1:], strict=True)),
            "samples": sorted([n, count] for n, count in total.drawn.items()),
            "upstream": sorted(([kind, n] for kind, n in total.calls.items()), key=lambda one: -int(one[1])),
            "prices": [
                {"policy": policy, "budget": budget, "points": points}
                for (policy, budget), points in sorted(prices.items(), key=lambda one: -len(one[1]))
            ],
        }


def _row(told: Told, *, texts: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "at": told.at,
        "id": told.id[-8:],
        "key": told.key,
        "policy": told.policy,
        "mode": told.mode,
        "budget": told.budget,
        "samples": told.samples,
        "missing": told.missing,
        "would": told.would,
        "votes": _votes(told, texts=texts),
        "abstained": max(0, told.samples - sum(told.votes.values())) if told.votes else 0,
        "agreement": finite(told.agreement),
        "price": finite(told.price),
        "seconds": round(told.seconds, 3),
        "status": told.status,
        "error": told.error,
        "notes": [note[:_NOTE] for note in told.notes[:4]],
    }
    if texts:
        row["prompt"] = _cut(told.prompt, _PROMPT)
        row["answer"] = None if told.answer is None else _cut(told.answer, _ANSWER)
    return row


def _votes(told: Told, *, texts: bool) -> list[list[Any]]:
    """Label and count, the winner first. Without texts the answers are A, B, C …"""
    order = sorted(told.votes, key=lambda answer: (answer != told.answer, -told.votes[answer]))
    votes = [
        [_cut(answer, _ANSWER) if texts else _LABELS[place], told.votes[answer]]
        for place, answer in enumerate(order[:_CLASSES])
    ]
    if rest := sum(told.votes[answer] for answer in order[_CLASSES:]):
        votes.append(["others", rest])
    return votes


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
