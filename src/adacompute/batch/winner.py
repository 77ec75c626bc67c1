"""A request's samples -> its answer, and the sample that stands for it. Knows nothing of pools or budgets."""

from collections.abc import Sequence

from adacompute.answers import Classes, Tally, Task, same_answer
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
        best=None if leader is None else _best(samples, leader, task),
        correct=None if problem.gold is None else float(same_answer(leader, problem.gold, task)),
        error=error,
    )


def _best(samples: Sequence[Sample], leader: str, task: Task) -> int:
    """The place of the most confident sample of the leader's class; of the first where none tells."""
    classes = Classes(task)
    numbers = [classes.place(sample.answer) for sample in samples]
    top = classes.place(leader)
    sureness = [
        (sample.mean_logprob if sample.mean_logprob is not None else float("-inf"), -place)
        for place, (sample, number) in enumerate(zip(samples, numbers, strict=True))
        if number == top
    ]
    return -max(sureness)[1]
