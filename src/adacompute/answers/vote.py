"""Answers -> vote, one at a time (`Tally`) or at once (`vote`). Doesn't know when to stop."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from adacompute.answers.equal import Classes
from adacompute.answers.task import PLAIN, Task
from adacompute.answers.weigh import UNIT, Weigh
from adacompute.errors import TaskError
from adacompute.records import Sample

__all__ = ["Tally", "Ties", "Vote", "vote"]

Ties = Literal["first", "share", "abstain"]
Item = Sample | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """The outcome of a vote. `shares` sums to 1, or is empty where no answer wins."""

    answer: str | None  # the winner in its first-seen spelling; None: all abstained, or a tie that abstains
    shares: dict[str, float]  # what each winner gets of the credit: ties="share" splits it equally
    agreement: float  # the winner's share of the answered weight; 0.0 when none answered
    margin: float  # the winner's lead over the runner-up, in votes of average weight


class Tally:
    """The votes so far on one request: answer classes and their counts, kept in constant work per sample.

    Doesn't know how many samples are to come. `ties` says who leads when the first two weigh the same:
    `"first"` and `"share"` name the one seen first, `"abstain"` none.

    >>> tally = Tally.of(["4", "5", None, "5.0"])
    >>> tally.leader, tally.first, tally.second, tally.drawn
    ('5', 2, 1, 4)
    """

    __slots__ = (
        "_answered",
        "_classes",
        "_counts",
        "_entropy",
        "_last",
        "_placed",
        "_run",
        "_runner",
        "_spellings",
        "_ties",
        "_top",
        "_total",
        "_weigh",
        "_weights",
        "abstained",
    )

    def __init__(self, *, task: Task = PLAIN, weigh: Weigh | None = None, ties: Ties = "first") -> None:
        if ties not in get_args(Ties):
            raise TaskError(f"ties {ties!r} is not known; give 'first', 'share' or 'abstain'")
        if weigh is not None and not isinstance(weigh, Weigh):
            raise TaskError(f"weigh {weigh!r} can't weigh votes; give a Weigh, or None for plain votes")
        self._classes = Classes(task)
        self._weigh = weigh
        self._ties = ties
        self._spellings: list[str] = []  # by class, in order of first appearance
        self._counts: list[int] = []
        self._weights: list[int] = []  # in units of 2^-36: whole numbers, so exact in any order
        self._top = -1  # the class that leads, the runner-up; -1: none
        self._runner = -1
        self._answered = 0
        self._total = 0
        self._entropy: float | None = None
        self._placed: list[int] = []  # the class of each sample; -1: it abstained
        self._last = -1  # the class of the last sample; -1: it abstained, or there is none
        self._run = 0
        self.abstained = 0  # samples without an answer

    @classmethod
    def of(
        cls, items: Iterable[Item], *, weigh: Weigh | None = None, task: Task = PLAIN, ties: Ties = "first"
    ) -> "Tally":
        """The tally of answers (`None` abstains) or `Sample` records, in order."""
        tally = cls(task=task, weigh=weigh, ties=ties)
        if isinstance(items, str):
            raise TaskError(f"a tally is made of a list of answers, not of the one string {items[:60]!r}")
        for item in items:
            tally.add(item)
        return tally

    def add(self, item: Item) -> None:
        """Counts one more answer or sample; its text is not read again."""
        answer, correct, weight = self._read(item)
        number = self._classes.place(answer, correct)
        self._note(item)
        self._count(number, answer, weight)

    async def add_async(self, item: Item) -> None:
        """As `add`, with slow comparisons off the event loop. One call at a time for one tally."""
        answer, correct, weight = self._read(item)
        number = await self._classes.place_async(answer, correct)
        self._note(item)
        self._count(number, answer, weight)

    @property
    def drawn(self) -> int:
        """Samples counted, with and without an answer."""
        return self.abstained + self.answered

    @property
    def answered(self) -> int:
        """Samples that gave an answer."""
        return self._answered

    @property
    def votes(self) -> dict[str, int]:
        """Plain counts of each answer, by its first-seen spelling, in order of first appearance."""
        return _by_spelling(self._spellings, self._counts)

    @property
    def weights(self) -> dict[str, float]:
        """As `votes`, weighted; equal to it where votes are plain."""
        units = _by_spelling(self._spellings, self._weights)
        return {spelling: amount / UNIT for spelling, amount in units.items()}

    @property
    def leader(self) -> str | None:
        """The answer that would be returned now; None when all abstain, or on a tie that abstains."""
        if self._top < 0 or (self._ties == "abstain" and self._tied):
            return None
        return self._spellings[self._top]

    @property
    def winners(self) -> list[str]:
        """All answers that share the lead, in order of first appearance."""
        if self._top < 0:
            return []
        best = self._weights[self._top]
        return [s for s, weight in zip(self._spellings, self._weights, strict=True) if weight == best]

    @property
    def behind(self) -> list[int]:
        """The places, in the order of counting, of the samples that gave the answer that leads."""
        return [place for place, number in enumerate(self._placed) if number == self._top >= 0]

    @property
    def first(self) -> int:
        """Plain votes of the answer that leads (under every rule for ties); 0 when none answered."""
        return self._counts[self._top] if self._top >= 0 else 0

    @property
    def second(self) -> int:
        """Plain votes of the runner-up, the second by weight; 0 when there is none."""
        return self._counts[self._runner] if self._runner >= 0 else 0

    @property
    def margin(self) -> float:
        """Weighted lead of the first answer over the runner-up, in votes of average weight."""
        if self._top < 0:
            return 0.0
        return (self._weights[self._top] - (self._weights[self._runner] if self._runner >= 0 else 0)) / UNIT

    @property
    def agreement(self) -> float:
        """The first answer's share of the answered weight, 0 to 1; 0.0 when none answered."""
        return self._weights[self._top] / self._total if self._top >= 0 else 0.0

    @property
    def kinds(self) -> int:
        """Different answers so far."""
        return len(self._counts)

    @property
    def lead(self) -> float:
        """Weight of the first answer, in votes of average weight; 0.0 when none answered."""
        return self._weights[self._top] / UNIT if self._top >= 0 else 0.0

    @property
    def runner(self) -> float:
        """Weight of the runner-up, in votes of average weight; 0.0 when there is none."""
        return self._weights[self._runner] / UNIT if self._runner >= 0 else 0.0

    @property
    def total(self) -> float:
        """Weight of all answers, in votes of average weight."""
        return self._total / UNIT

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the first sample, in nats; None where it isn't known."""
        return self._entropy

    @property
    def run(self) -> int:
        """How many of the last samples gave one and the same answer; 0 after one that gave none."""
        return self._run

    @property
    def _tied(self) -> bool:
        return self._runner >= 0 and self._weights[self._runner] == self._weights[self._top]

    def _read(self, item: Item) -> tuple[str | None, float | None, int]:
        if isinstance(item, Sample):
            return item.answer, item.correct, UNIT if self._weigh is None else self._weigh.units(item)
        if item is None or isinstance(item, str):
            return item, None, UNIT
        raise TaskError(f"{item!r} is not a vote; give an answer (a string), None to abstain, or a Sample")

    def _note(self, item: Item) -> None:
        if self.drawn == 0 and isinstance(item, Sample):
            self._entropy = item.entropy

    def _count(self, number: int, answer: str | None, weight: int) -> None:
        self._placed.append(number if answer is not None else -1)
        if number < 0 or answer is None:
            self.abstained += 1
            self._last, self._run = -1, 0
            return
        self._run = self._run + 1 if number == self._last else 1
        self._last = number
        if number == len(self._counts):
            self._spellings.append(answer)
            self._counts.append(0)
            self._weights.append(0)
        self._answered += 1
        self._total += weight
        self._counts[number] += 1
        self._weights[number] += weight
        # weights only grow, so the first two are among the old first two and this one
        if number != self._top:
            if self._beats(number, self._top):
                self._top, self._runner = number, self._top
            elif number != self._runner and self._beats(number, self._runner):
                self._runner = number

    def _beats(self, number: int, other: int) -> bool:
        if other < 0:
            return True
        ours, theirs = self._weights[number], self._weights[other]
        return ours > theirs or (ours == theirs and number < other)


def vote(
    answers: Iterable[Item], *, ties: Ties = "first", weigh: Weigh | None = None, task: Task = PLAIN
) -> Vote:
    """The vote of answers (`None` abstains) or `Sample` records.

    >>> vote(["4", "5"], ties="share").shares
    {'4': 0.5, '5': 0.5}
    """
    tally = Tally.of(answers, weigh=weigh, task=task, ties=ties)
    winners = tally.winners if ties == "share" else [tally.leader] if tally.leader is not None else []
    shares: dict[str, float] = {}
    for winner in winners:
        shares[winner] = shares.get(winner, 0.0) + 1.0 / len(winners)
    return Vote(answer=tally.leader, shares=shares, agreement=tally.agreement, margin=tally.margin)


def _by_spelling(spellings: list[str], amounts: list[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for spelling, amount in zip(spellings, amounts, strict=True):
        found[spelling] = found.get(spelling, 0) + amount  # one spelling, two recorded labels: two classes
    return found
