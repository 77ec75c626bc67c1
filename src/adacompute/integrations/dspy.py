"""A DSPy module that votes: it runs another module several times, within an average budget.

    import dspy
    from adacompute.integrations.dspy import BudgetedVote

    vote = BudgetedVote(dspy.ChainOfThought("question -> answer"), budget=3)
    vote(question="What is 6 * 7?").answer

Unlike `dspy.BestOfN` it needs no reward function and stops once the vote is clear; unlike `dspy.majority` it
treats answers as equal if they mean the same.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from adacompute.answers import Tally
from adacompute.integrations import PacedPolicy
from adacompute.policies.base import Policy

__all__ = ["BudgetedVote"]


class BudgetedVote(dspy.Module):
    """Runs `module` until another run isn't worth its cost; returns a prediction with the winning answer.

    `field` is the output field to vote on; None: the last field. `budget` is the average number of
    predictions over all calls, in all threads. `policy` is a policy, a folder from `adacompute fit`, or None
    for the built-in policy. The returned prediction's attribute `adacompute` holds the votes and the number
    of predictions. A response that DSPy can't parse is a sample without an answer; if no other response
    comes, its error is raised.
    """

    def __init__(
        self,
        module: dspy.Module,
        *,
        field: str | None = None,
        budget: float = 3.0,
        policy: Policy | str | Path | None = None,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.module = module
        self.field = field
        self.temperature = temperature
        self._paced = PacedPolicy(policy, budget=budget)

    @property
    def average(self) -> float | None:
        """Mean number of predictions per call so far; None before the first call."""
        return self._paced.average

    def forward(self, **inputs: Any) -> dspy.Prediction:  # noqa: ANN401 - a signature's fields
        """Runs the module several times and returns the prediction that won the vote."""
        votes = _Votes(self, inputs)
        while rollouts := votes.list_next():
            votes.add([votes.run(number) for number in rollouts])
        return votes.choose()

    async def aforward(self, **inputs: Any) -> dspy.Prediction:  # noqa: ANN401
        """Like `forward`, but makes predictions concurrently."""
        votes = _Votes(self, inputs)
        while rollouts := votes.list_next():
            votes.add(await asyncio.gather(*(votes.run_async(number) for number in rollouts)))
        return votes.choose()


class _Votes:
    """The predictions made in one call of `BudgetedVote`, and their votes."""

    def __init__(self, parent: BudgetedVote, inputs: dict[str, Any]) -> None:
        self._parent, self._inputs, self._paced = parent, inputs, parent._paced
        self._prompt = "\n".join(str(value) for value in inputs.values())
        self._dial = self._paced.dial
        self._tally = Tally(weigh=self._paced.policy.weigh)
        self._predictions: list[dspy.Prediction | None] = []
        self._error: AdapterParseError | None = None
        self._lm = parent.module.get_lm() or dspy.settings.lm

    def list_next(self) -> range:
        """Returns the indexes of the predictions to make next; empty if no more are needed."""
        more = self._paced.policy.more(self._prompt, self._tally, self._dial)
        return range(self._tally.drawn, self._tally.drawn + more)

    def _prepare(self, number: int) -> dspy.Module:
        """Returns a copy of the module that doesn't reuse the cached response of another prediction."""
        module = self._parent.module.deepcopy()
        start = self._lm.kwargs.get("rollout_id") or 0
        module.set_lm(self._lm.copy(rollout_id=start + number, temperature=self._parent.temperature))
        return module

    def run(self, number: int) -> dspy.Prediction | None:
        try:
            return self._prepare(number)(**self._inputs)
        except AdapterParseError as exc:
            self._error = exc
            return None

    async def run_async(self, number: int) -> dspy.Prediction | None:
        try:
            return await self._prepare(number).acall(**self._inputs)
        except AdapterParseError as exc:
            self._error = exc
            return None

    def add(self, predictions: Sequence[dspy.Prediction | None]) -> None:
        """Adds predictions and counts their votes."""
        for prediction in predictions:
            self._predictions.append(prediction)
            self._tally.add(None if prediction is None else self._read(prediction))

    def _read(self, prediction: dspy.Prediction) -> str | None:
        value = prediction[self._parent.field or list(prediction.keys())[-1]]
        if value is None or isinstance(value, str):
            return value
        return json.dumps(value, default=str, sort_keys=True)

    def choose(self) -> dspy.Prediction:
        """Returns the first prediction with the winning answer; without a winner, the first prediction."""
        self._paced.settle(self._tally.drawn, self._dial)
        known = [prediction for prediction in self._predictions if prediction is not None]
        if not known:
            assert self._error is not None, "a call that made nothing has failed"
            raise self._error
        winner = known[0]
        if self._tally.leader is not None:
            chosen = self._predictions[self._tally.supporters[0]]
            assert chosen is not None, "a prediction that failed has no answer"
            winner = chosen
        winner.adacompute = {"samples": self._tally.drawn, "votes": dict(self._tally.votes)}
        return winner
