"""Adaptive epochs for inspect_ai: a sample gets no more epochs once its vote is clear.

    from inspect_ai import Epochs, Task
    from adacompute.integrations.inspect_ai import AdaptiveEpochs

    Task(..., epochs=Epochs(16, "adacompute/vote"), early_stopping=AdaptiveEpochs(budget=4))

`AdaptiveEpochs` runs 4 epochs per sample on average, at most 16. The reducer `adacompute/vote` scores a
sample by its most frequent answer. Both vote on `Score.answer`, which most scorers set.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio
from inspect_ai.dataset import Sample
from inspect_ai.hooks import Hooks, SampleAttemptEnd, hooks
from inspect_ai.log import EvalSpec
from inspect_ai.scorer import SampleScore, Score, ScoreReducer, mode_score, score_reducer
from inspect_ai.util import EarlyStop, EarlyStopping

from adacompute.answers import Tally
from adacompute.answers.extract import read_answers
from adacompute.integrations import PacedPolicy
from adacompute.policies.base import Policy

__all__ = ["AdaptiveEpochs", "vote"]

_LONG = 80  # texts with more characters are whole responses, from which the answer must be extracted
# a waiting epoch starts if no epoch of any sample has ended for this many seconds
_PATIENCE = 600.0


@dataclass(slots=True)
class _Question:
    """The epochs and votes of one inspect_ai sample."""

    prompt: str
    dial: float | None
    allowed: int  # number of epochs that the policy has requested so far
    started: int = 0
    running: set[int] = field(default_factory=set)
    answers: list[str | None] = field(default_factory=list)
    settled: bool = False
    changed: anyio.Event = field(default_factory=anyio.Event)


class AdaptiveEpochs(EarlyStopping):
    """Stops the epochs of a sample once the policy says that another one isn't worth its cost.

    `budget` is the average number of epochs per sample. `policy` is a policy, a folder from `adacompute fit`,
    or None for the built-in policy. Votes come from the scorer named `scorer`; None: the first. An epoch
    waits for earlier epochs of its sample. A failed epoch counts as an epoch without an answer.
    """

    def __init__(
        self,
        budget: float,
        *,
        policy: Policy | str | Path | None = None,
        scorer: str | None = None,
    ) -> None:
        self._budget = budget
        self._policy = policy
        self._scorer = scorer
        self._samples: dict[str | int, _Question] = {}
        self._ended = 0  # how often an epoch has ended, failed, or was assumed never to run

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Forgets earlier samples and prepares those of a new task."""
        self._epochs = epochs
        self._paced = PacedPolicy(self._policy, budget=self._budget, longest=epochs)
        self._samples = {sample.id: self._open(sample) for sample in samples if sample.id is not None}
        _follow_failures()[task.eval_id] = self
        return "adacompute"

    def _open(self, sample: Sample) -> _Question:
        dial, prompt = self._paced.dial, _read_prompt(sample)
        first = self._paced.policy.more(prompt, Tally(weigh=self._paced.policy.weigh), dial)
        return _Question(prompt=prompt, dial=dial, allowed=first)

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002 - theirs
        """Waits until it is clear whether this epoch is needed. Returns None if it should run."""
        question = self._samples.get(id)
        if question is None:
            return None
        while not question.settled and question.started >= question.allowed:
            ended = self._ended
            with anyio.move_on_after(_PATIENCE) as waiting:
                await question.changed.wait()
            # if no epoch of any sample ended during the wait, an earlier epoch of this sample may never have
            # run: let another one take its place
            if waiting.cancelled_caught and self._ended == ended:
                self._give_place(question)
        if question.settled:
            reason = f"settled after {len(question.answers)} of {self._epochs} epochs"
            return EarlyStop(id=id, epoch=epoch, reason=reason)
        if not question.started:  # use the dial's value at the time when the sample's first epoch starts
            question.dial = self._paced.dial
        question.started += 1
        question.running.add(epoch)
        return None

    async def complete_sample(
        self,
        id: str | int,  # noqa: A002
        epoch: int,
        scores: dict[str, SampleScore],
    ) -> None:
        """Counts the answer of a finished epoch as a vote."""
        named = scores.get(self._scorer) if self._scorer else next(iter(scores.values()), None)
        if (question := self._samples.get(id)) is not None:
            self._count(question, epoch, None if named is None else named.score.answer)

    def note_failure(self, data: SampleAttemptEnd) -> None:
        """Counts a failed epoch as without an answer; if it will be retried, a waiting epoch runs first."""
        question, epoch = self._samples.get(data.summary.id), data.summary.epoch
        if question is not None and not data.will_retry:
            self._count(question, epoch, None)
        elif question is not None and epoch in question.running:
            question.running.remove(epoch)
            self._give_place(question)

    def _give_place(self, question: _Question) -> None:
        question.started -= 1
        self._wake(question)

    def _wake(self, question: _Question) -> None:
        self._ended += 1
        question.changed.set()
        question.changed = anyio.Event()

    def _count(self, question: _Question, epoch: int, answer: str | None) -> None:
        """Counts an epoch's answer once; after the last requested epoch, asks the policy how many to add."""
        if epoch not in question.running:
            return
        question.running.remove(epoch)
        question.answers.append(answer)
        if not question.settled and len(question.answers) >= question.allowed:
            tally = count_votes(question.answers, question.prompt, weigh=self._paced.policy.weigh)
            more = self._paced.policy.more(question.prompt, tally, question.dial)
            question.settled = more == 0 or len(question.answers) >= self._epochs
            question.allowed += more
            if question.settled:
                self._paced.settle(len(question.answers), question.dial)
        self._wake(question)

    async def complete_task(self) -> dict[str, Any]:
        """Returns how many epochs were run, and how many weren't needed."""
        run = sum(len(question.answers) for question in self._samples.values())
        most = self._epochs * len(self._samples)
        return {
            "policy": self._paced.policy.kind,
            "budget": self._budget,
            "epochs": run,
            "epochs_saved": most - run,
            "epochs_per_sample": run / max(1, len(self._samples)),
        }


@functools.cache
def _follow_failures() -> WeakValueDictionary[str, AdaptiveEpochs]:
    """Returns a map from eval ids to `AdaptiveEpochs`, to which a hook reports their failed epochs.

    The hook is registered at the first call, so that inspect_ai lists it only if adaptive epochs are used.
    """
    managers = WeakValueDictionary[str, AdaptiveEpochs]()

    @hooks(name="adacompute/failures", description="Tells adaptive epochs which ones failed")
    class Failures(Hooks):
        async def on_sample_attempt_end(self, data: SampleAttemptEnd) -> None:
            if data.error is not None and data.eval_id in managers:
                managers[data.eval_id].note_failure(data)

    return managers


@score_reducer(name="adacompute/vote")
def vote() -> ScoreReducer:
    """Scores a sample by its first epoch with the winning answer; without answers, by its commonest score."""

    def reduce(scores: list[Score]) -> Score:
        tally = count_votes([score.answer for score in scores])
        if tally.leader is None:
            return mode_score()(scores)
        winner = scores[tally.supporters[0]]
        return winner.model_copy(update={"metadata": {**(winner.metadata or {}), "votes": dict(tally.votes)}})

    return reduce


def count_votes(answers: Sequence[str | None], prompt: str = "", **options: Any) -> Tally:  # noqa: ANN401
    """Counts the votes of the epochs' answers; from a long text, the answer is extracted first."""
    long = [number for number, answer in enumerate(answers) if answer and len(answer) > _LONG]
    read = dict(zip(long, read_answers([answers[number] or "" for number in long], prompt), strict=True))
    return Tally.of([read.get(number, answer) for number, answer in enumerate(answers)], **options)


def _read_prompt(sample: Sample) -> str:
    """Returns the text of a sample's last user message."""
    if isinstance(sample.input, str):
        return sample.input
    texts = [message.text for message in sample.input if message.role == "user"]
    return texts[-1] if texts else ""
