"""What the tests of batches share: an upstream that gives recorded samples, and asking it."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adacompute.answers import Task
from adacompute.client import Endpoint, RateLimits, Retries
from adacompute.policies.base import Policy
from adacompute.pool import bundled, open_pool
from adacompute.problems import Template
from adacompute.records import Problem, Recorded, Sample, TokenPrices
from adacompute.sampling import Answers, Asking, SourcePlan, answer
from shared import read_recorded
from upstream import Reply, Status, Upstream

MODEL = "scripted"
ASKING = Asking(model=MODEL, template=Template.named("plain"), sampling={"max_tokens": 64})


def facts(count: int | None = None) -> list[Recorded]:
    """The bundled recording: problems, each with its samples."""
    return read_recorded("facts")[:count]


def said(sample: Sample) -> str:
    """A response that is read as the recorded answer."""
    return "I don't know what to say about this." if sample.answer is None else f"Answer: {sample.answer}"


class Recording:
    """An upstream's script that gives each question's samples one after the other, as they were recorded."""

    def __init__(
        self, recorded: Sequence[Recorded], *, logprobs: bool = True, failing: frozenset[str] = frozenset()
    ) -> None:
        self.samples = {one.problem.question: one.samples for one in recorded}
        self.given: Counter[str] = Counter()  # by question
        self.logprobs = logprobs
        self.failing = failing  # questions that get no answer

    def __call__(self, _number: int, body: dict[str, Any]) -> Reply | Status:
        question = body["messages"][-1]["content"]
        if question in self.failing:
            return Status(code=400, message="this one is refused")
        count, first = body.get("n", 1), self.given[question]
        self.given[question] += count
        samples = self.samples[question][first : first + count]
        usage = {"prompt_tokens": 20, "completion_tokens": sum(sample.tokens or 0 for sample in samples)}
        choices = [self._choice(i, sample) for i, sample in enumerate(samples)]
        return Reply(body={"object": "chat.completion", "choices": choices, "usage": usage})

    def _choice(self, index: int, sample: Sample) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": said(sample)},
            "finish_reason": "length" if sample.finished is False else "stop",
        }
        if self.logprobs and sample.tokens:
            each = (sample.logprob or 0.0) / sample.tokens
            choice["logprobs"] = {"content": [{"token": "t", "logprob": each}] * sample.tokens}
        return choice


def made(answers: Sequence[Sequence[str | None]], *, longest: int = 32) -> list[Recorded]:
    """Requests whose samples have these answers, over and over; None gives none."""
    return [
        Recorded(
            problem=Problem(id=f"p{i}", question=f"Question number {i}?", extra={"source": i}),
            samples=tuple(
                Sample(answer=words[j % len(words)], tokens=10, logprob=-1.0 - (i * 7 + j * 3) % 5)
                for j in range(longest)
            ),
            classes=(),
        )
        for i, words in enumerate(answers)
    ]


def endpoint(up: Upstream, *, concurrency: int = 8) -> Endpoint:
    return Endpoint(
        url=up.url, limits=RateLimits(concurrency=concurrency), retries=Retries(attempts=2, first=0.01)
    )


def ask(
    recorded: Sequence[Recorded],
    path: Path,
    *,
    policy: Policy,
    budget: float,
    up: Upstream,
    concurrency: int = 8,
    gold: bool = True,
    asking: Asking = ASKING,
    prices: TokenPrices | None = None,
    **how: Any,
) -> Answers:
    """Answers the recorded problems from an upstream into a pool at `path`."""
    with open_pool(path, create=True, default_task=task()) as pool:
        problems = [one.problem if gold else without_gold(one.problem) for one in recorded]
        where = endpoint(up, concurrency=concurrency)
        plan = SourcePlan(endpoint=where, asking=asking, prices=prices or TokenPrices())
        return answer(problems, pool, plan, policy=policy, budget=budget, **how)


@functools.cache
def task() -> Task:
    with bundled("facts") as pool:
        return pool.task


def without_gold(problem: Problem) -> Problem:
    return Problem(id=problem.id, question=problem.question)
