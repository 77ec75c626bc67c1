"""A request's samples -> its answer, and the sample that stands for it. Knows nothing of pools or budgets."""

from collections.abc import Sequence

from adacompute.answers import Tally, Task, same_answer, stands_for
from adacompute.batch.outcome import Answer
from adacompute.records import Problem, Sample

__all__ = ["answer_of"]


def answer_of(
    problem: Problem, samples: Sequence[Sample], tally: Tally, *, task: Task, error: str | None
) -> Answer:
    """The answer that the tally of these samples gives."""
    known = [sample.tokens for sample in samples if sample.tokens is not None]
    leader = tally.leader
    return Answer(
        id=problem.id,
        answer=leader,
        votes=tally.votes,
        agreement=tally.agreement,
        samples=len(samples),
        tokens=sum(known) if known else None,
        best=stands_for(samples, tally),
        correct=None if problem.gold is None else float(same_answer(leader, problem.gold, task)),
        error=error,
    )
