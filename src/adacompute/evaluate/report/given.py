"""What sections are made of, and a section as a job to be done. Knows no section."""

from collections.abc import Callable
from dataclasses import dataclass, field

from adacompute.evaluate.beyond.money import Money
from adacompute.evaluate.bracket import Oracle
from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.rows import Evaluation

__all__ = ["Given", "Job"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """One pool, evaluated."""

    name: str
    played: Played = field(repr=False)  # every policy, held-out
    evaluation: Evaluation = field(repr=False)  # the same, told
    oracle: Oracle | None = field(repr=False)  # None: it would need grades
    case: Case | None = field(repr=False)  # None: the paper's tables can't be made of this pool
    money: Money
    quick: bool
    seed: int

    @property
    def known(self) -> Case:
        """The recording as the paper sees it, for jobs that need one: others are all that run without."""
        if self.case is None:
            raise ValueError(f"{self.name}: a job for graded pools was run on one without grades")
        return self.case


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One section: in which part of the page it stands, and who makes it."""

    key: str
    title: str
    part: str
    make: Callable[[Given], Section]
    graded: bool = True  # False: it can be made without grades
    slow: bool = False  # left out of a quick look
    effort: float = 1.0  # seconds, about, for 600 problems: the longest begin first
