"""What an allocation over files came to. Knows nothing of how it was found."""

from dataclasses import asdict, dataclass
from typing import Any

from adacompute.records import Move
from adacompute.solve.shards import Search, Settled, Total

__all__ = ["Allotted", "Found", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far it is: prompts read, or written, of all."""

    doing: str  # "reading" or "writing"
    done: int
    prompts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an engine found, once the budgets are written."""

    total: Total
    plan: Settled | None = None  # where a price was looked for
    search: Search | None = None
    shards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotted:
    """The budgets that prompts were given, as numbers; the budgets themselves are in the files."""

    problems: int
    policy: str  # its kind
    budget: float | None  # samples on average that were asked for; None: a price was
    price: float | None  # accuracy a sample that one more must buy; None: the policy has no price
    budgets: tuple[int, ...]  # rising
    counts: tuple[int, ...]  # (budgets,) prompts that were given each
    cost: float  # samples on average
    accuracy: float | None = None  # on average, as the policy predicts it; None: it predicts none
    bound: float | None = None  # no allocation within the budget is predicted to be more accurate
    mix: Move | None = None  # the one prompt that is mixed, its row over all files, so that all is spent
    files: int = 1
    shards: int = 1  # that told summaries
    rounds: int = 0  # of summaries
    summary_bytes: int = 0  # of all summaries
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # what a reader of the numbers should know, a line each

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found = asdict(self)
        if self.mix is not None:
            found["mix"] = {
                "problem": self.mix.problem,
                "budget": self.budgets[self.mix.mode],
                "probability": self.mix.probability,
            }
        return found
