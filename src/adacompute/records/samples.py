"""What was asked and what came back: problems, samples, failures. Knows nothing of files or scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Failure", "Problem", "Recorded", "Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question, perhaps with its gold answer.

    >>> Problem(id="p1", question="What is 6 times 7?", gold="42").gold
    '42'
    """

    id: str
    question: str
    gold: str | None = None
    subject: str | None = None
    level: int | float | str | None = None
    extra: Mapping[str, Any] = field(
        default_factory=dict, hash=False
    )  # keys of the file that we don't know, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response of a model to a problem. `answer=None` abstains, and still costs.

    >>> Sample(answer="42", tokens=10, logprob=-2.5).mean_logprob
    -0.25
    """

    text: str | None = None
    answer: str | None = None
    correct: float | None = None  # 1 right, 0 wrong, between: partial credit; None: not known
    tokens: int | None = None  # output tokens
    logprob: float | None = None  # sum over the tokens, natural logarithm
    entropy: float | None = None  # mean over the tokens, nats
    finished: bool | None = None  # False: cut off by a token limit
    extra: Mapping[str, Any] = field(
        default_factory=dict, hash=False
    )  # keys of the file that we don't know, kept

    @property
    def mean_logprob(self) -> float | None:
        """Log-probability per token, in nats; None where it was not recorded."""
        if self.logprob is None or not self.tokens:
            return None
        return self.logprob / self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that gave no sample: data, so that it can be counted, shown and retried."""

    index: int  # of the sample that was wanted
    kind: str  # a short word, e.g. "timeout"
    attempt: int = 1
    message: str | None = None
    at: float | None = None  # seconds since 1970, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One problem with what one model, under one set of parameters, gave for it, in the order drawn.

    `classes[i]` numbers the answer class of `samples[i]` in order of first appearance; -1 abstains.
    """

    problem: Problem
    samples: tuple[Sample, ...]
    classes: tuple[int, ...]
    model: str | None = None
    parameters: Mapping[str, Any] = field(
        default_factory=dict, hash=False
    )  # temperature and the like, as asked for
    failures: tuple[Failure, ...] = ()
