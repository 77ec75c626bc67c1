"""What a batch came to, request by request and in all. Knows nothing of how it was drawn or is written."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.answers import Weigh
from adacompute.collect.outcome import Stop
from adacompute.records import Account
from adacompute.score import Estimate

__all__ = ["BROKEN_OFF", "Answer", "Answers"]

BROKEN_OFF: tuple[Stop, ...] = ("signal", "endpoint")  # ends after which the same call should go on


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one request got. Its texts stay in the pool: `best` says which of its samples to show."""

    id: str
    answer: str | None  # the vote's leader; None: no sample gave an answer
    votes: Mapping[str, int]  # plain, by answer, in order of first appearance
    agreement: float  # the leader's share of the votes as they are weighed; 0.0 where there are none
    samples: int
    tokens: int | None  # of its responses; None: not known
    best: int | None = None  # the winning answer's most confident sample, by place; None: there is none
    correct: float | None = None  # 1 right, 0 wrong; None: no gold answer is known
    error: str | None = None  # why it has fewer samples than it was to have


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a batch came to."""

    each: tuple[Answer, ...] = field(repr=False)  # in the order of the requests; none where it was broken off
    requests: int
    policy: str  # its kind
    budget: float  # samples a request, on average, at most
    limit: int  # samples in all, at most
    spent: int  # samples in all, with those of earlier runs
    added: int  # samples of this run
    rounds: int  # of this run
    price: float | None  # the dial that the batch came down to; None: the policy has none
    unsettled: int  # requests that the policy would go on with at that dial; the budget was spent first
    weigh: Weigh | None  # how votes were weighed; None: plain
    plain: bool  # True: the policy would weigh votes, and nothing told how sure the model was
    accuracy: Estimate | None  # over requests with a gold answer; None: there are none
    failures: Mapping[str, str]  # request id -> why it lacks samples
    errors: Mapping[str, int]  # attempts of this run that gave nothing, by kind
    account: Account  # of all calls into this pool for this source
    cost: float  # money, of all of them
    at_most: float  # money, with what may have been charged
    seconds: float
    stopped: Stop | None = None  # None: it came to its end
    why: str | None = None  # it was stopped
    signal: int | None = None  # its number, where it was one
    found: float | None = None  # share of samples in which an answer was found
    finished: float | None = None  # share that was not cut off, of those where it is known

    @property
    def broken_off(self) -> bool:
        """Whether it was stopped where the same call should go on: there are no answers yet."""
        return self.stopped in BROKEN_OFF

    @property
    def average(self) -> float:
        """Samples a request."""
        return self.spent / self.requests

    @property
    def answered(self) -> int:
        """Requests with an answer."""
        return sum(one.answer is not None for one in self.each)

    @property
    def agreement(self) -> float | None:
        """The leader's mean share of the votes, over requests with an answer."""
        shares = [one.agreement for one in self.each if one.answer is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def counts(self) -> dict[int, int]:
        """Samples -> how many requests got so many."""
        return dict(sorted(Counter(one.samples for one in self.each).items()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: the totals."""
        found = self.accuracy
        return {
            "requests": self.requests,
            "answered": self.answered,
            "policy": self.policy,
            "budget": self.budget,
            "samples": self.spent,
            "average": self.average,
            "price": self.price,
            "unsettled": self.unsettled,
            "votes": "plain" if self.weigh is None else "weighted",
            "counts": {str(samples): requests for samples, requests in self.counts.items()},
            "agreement": self.agreement,
            "accuracy": None if found is None else found.mean,
            "low": None if found is None else found.low,
            "high": None if found is None else found.high,
            "added": self.added,
            "rounds": self.rounds,
            "failures": dict(self.failures),
            "errors": dict(self.errors),
            "calls": self.account.calls,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "seconds": self.seconds,
            "answers_found": self.found,
            "finished": self.finished,
            "stopped": self.stopped,
            "why": self.why,
        }
