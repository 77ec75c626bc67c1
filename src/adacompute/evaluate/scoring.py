"""How samples become a table, as one value, so that all and halves are scored in one way. Knows no budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from adacompute.answers import Weigh
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable
from adacompute.score import Price, score
from adacompute.score.score import Aggregate, Estimator

__all__ = ["Scoring"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """What `score` is told, but for the samples and the budgets.

    >>> Scoring(aggregate="any-correct").cost
    'samples'
    """

    aggregate: Aggregate = "vote"
    estimator: Estimator = "exact"
    by: Literal["logprob", "entropy"] | Weigh = "logprob"
    cost: Literal["samples", "tokens"] | Price = "samples"

    def of(self, rows: Sequence[int], problems: int) -> "Scoring":
        """The same for some of the problems: prompts whose tokens were given one by one go with them."""
        tokens = self.cost.prompt_tokens if isinstance(self.cost, Price) else None
        if not isinstance(self.cost, Price) or not isinstance(tokens, Sequence) or len(tokens) != problems:
            return self
        return replace(self, cost=replace(self.cost, prompt_tokens=tuple(tokens[row] for row in rows)))

    def table(
        self,
        ballots: Ballots,
        budgets: Sequence[int],
        *,
        too_few: Literal["error", "drop"] = "error",
        draws: int = 2000,
    ) -> AccuracyTable:
        """These ballots, scored so."""
        return score(ballots, budgets, too_few=too_few, draws=draws, **self.asked())

    def asked(self) -> dict[str, Any]:
        """What `score` is told, by name."""
        return {
            "estimator": self.estimator,
            "aggregate": self.aggregate,
            "by": self.by,
            "cost": self.cost,
        }
