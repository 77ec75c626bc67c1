"""How far a collection is, and what came of it. Knows nothing of how samples are drawn or stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adacompute.records import Account

__all__ = ["Collected", "Progress", "Stop"]

Stop = Literal["signal", "max-cost", "endpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A moment of a collection."""

    planned: int  # samples
    stored: int  # of them, with those of earlier runs
    added: int  # by this run
    failed: int  # samples that this run asked for and did not get
    tokens: int  # of responses, by this run
    cost: float  # money, of all calls into this pool, with what may have been charged
    errors: Mapping[str, int]  # attempts that gave nothing, by kind
    calls: int
    concurrency: int  # what the endpoint bears now
    in_flight: int = 0  # calls
    stopping: bool = False  # nothing more is sent; what is in flight is finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a collection came to."""

    planned: int  # samples
    stored: int  # of them, with those of earlier runs
    added: int  # by this run
    failures: Mapping[str, str]  # problem id -> why it lacks samples
    errors: Mapping[str, int]  # attempts of this run that gave nothing, by kind
    account: Account  # of all calls into this pool for this source
    cost: float  # money, of all of them
    at_most: float  # money, with what may have been charged
    seconds: float
    stopped: Stop | None = None  # None: it came to its end
    why: str | None = None  # it was stopped
    signal: int | None = None  # its number, where it was one
    per_call: int | None = None  # samples that the endpoint gives in one call, at most; None: not learned
    logprobs: bool | None = None  # whether it gives log-probabilities
    answered: float | None = None  # share of the source's samples in which an answer was found
    finished: float | None = None  # share that was not cut off, of those where it is known

    @property
    def complete(self) -> bool:
        """Whether the pool holds all that was planned."""
        return self.stored == self.planned

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "planned": self.planned,
            "stored": self.stored,
            "added": self.added,
            "complete": self.complete,
            "failures": dict(self.failures),
            "errors": dict(self.errors),
            "calls": self.account.calls,
            "calls_paid": self.account.paid,
            "calls_maybe_paid": self.account.maybe,
            "calls_estimated": self.account.estimated,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "why": self.why,
            "samples_per_call": self.per_call,
            "logprobs": self.logprobs,
            "answered": self.answered,
            "finished": self.finished,
        }
