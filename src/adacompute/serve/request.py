"""One request as data: what was asked and how it is served, what it cost, and what came of it.

Costs are counted in samples, tokens and money at once, in whole numbers, so that sums are exact.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from adacompute.client import Response
from adacompute.records import Call

__all__ = [
    "CLIENT_GONE_STATUS",
    "NANOS",
    "ChatRequest",
    "Mode",
    "Rates",
    "RequestOutcome",
    "Route",
    "Spend",
    "Unit",
    "Usage",
    "read_server_info",
]

Mode = Literal["adaptive", "shadow", "pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request for a chat completion, checked."""

    body: Mapping[str, Any] = field(hash=False, repr=False)
    # ^ what goes upstream: everything but n, stream, stream_options and the budget in a model's name
    prompt: str = field(default="", repr=False)  # what policies read: the last user message's text
    n: int = 1
    stream: bool = False
    include_usage: bool = False  # the client wants usage in its stream
    logprobs: bool = False  # the client wants log-probabilities
    budget: float | None = None  # given in the model's name, as in NAME@2.5
    max_tokens: int = 0  # limit of one response: the client's, or the operator's if it gave none
    has_token_limit: bool = False  # whether the client itself gave a limit
    prompt_tokens: int = 0  # upper bound, whatever the tokenizer
    json: bool = False  # the client asks for JSON: voted on only if answers are read out of JSON
    no_vote_reason: str = (
        ""  # why there is no vote, whatever is drawn, e.g. "temperature is 0"; "": there may be one
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a request is served: decided before anything is drawn."""

    key: str  # the name of the client's key; "anonymous" where there are none
    policy: str  # its name
    budget: float  # samples on average
    mode: Mode = "adaptive"
    deadline: float  # seconds from now
    notes: tuple[str, ...] = ()  # for the client, e.g. that its budget was clamped


Unit = Literal["samples", "tokens", "money"]
NANOS = 1_000_000_000  # of one unit of money


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount in every unit.

    >>> (Spend(samples=2, tokens=10) + Spend(samples=1)).amount_in("samples")
    3.0
    """

    samples: int = 0
    tokens: int = 0  # of prompts and responses
    nanos: int = 0  # billionths of the unit of money

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            samples=self.samples + other.samples,
            tokens=self.tokens + other.tokens,
            nanos=self.nanos + other.nanos,
        )

    def __sub__(self, other: "Spend") -> "Spend":
        return Spend(
            samples=self.samples - other.samples,
            tokens=self.tokens - other.tokens,
            nanos=self.nanos - other.nanos,
        )

    @property
    def positive(self) -> "Spend":
        """The same with negative parts set to 0."""
        if self.samples >= 0 and self.tokens >= 0 and self.nanos >= 0:
            return self
        return Spend(samples=max(0, self.samples), tokens=max(0, self.tokens), nanos=max(0, self.nanos))

    def amount_in(self, unit: Unit) -> float:
        """The amount in one unit."""
        if unit == "money":
            return self.nanos / NANOS
        return float(self.samples if unit == "samples" else self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Token prices: money for a million tokens."""

    input: float = 0.0
    cached: float | None = None  # for prompt tokens that the upstream had cached; None: as other input
    output: float = 0.0

    def compute_max(self, *, samples: int, prompt_tokens: int, max_tokens: int) -> Spend:
        """The most that so many samples can cost, each drawn by a call of its own."""
        prompts, completions = samples * prompt_tokens, samples * max_tokens
        return Spend(
            samples=samples,
            tokens=prompts + completions,
            nanos=self._compute_nanos(prompts, 0, completions),
        )

    def compute_spent(self, calls: Iterable[Call]) -> Spend:
        """What the calls that were paid for cost."""
        return self._add_up([call for call in calls if call.paid == "yes"])

    def compute_maybe(self, calls: Iterable[Call], *, prompt_tokens: int, max_tokens: int) -> Spend:
        """The most that calls without a result can have cost: they may be charged for."""
        total = Spend()
        for call in calls:
            if call.paid == "maybe":
                completions = call.asked * max_tokens
                total += Spend(
                    samples=call.asked,
                    tokens=prompt_tokens + completions,
                    nanos=self._compute_nanos(prompt_tokens, 0, completions),
                )
        return total

    def _add_up(self, calls: list[Call]) -> Spend:
        prompts = sum(call.prompt_tokens or 0 for call in calls)
        cached = sum(min(call.cached_tokens or 0, call.prompt_tokens or 0) for call in calls)
        completions = sum(call.completion_tokens or 0 for call in calls)
        return Spend(
            samples=sum(call.got + call.surplus for call in calls),
            tokens=prompts + completions,
            nanos=self._compute_nanos(prompts - cached, cached, completions),
        )

    def _compute_nanos(self, fresh: int, cached: int, completions: int) -> int:
        price = self.input if self.cached is None else self.cached
        money = fresh * self.input + cached * price + completions * self.output  # in millionths
        return math.ceil(money * (NANOS / 1e6) - 1e-6)


_SERVER_INFO = ("system_fingerprint", "service_tier")

CLIENT_GONE_STATUS = 499  # the status of a request whose client disconnected, as in nginx


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of all calls that were paid for, as the upstream counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompts', where the upstream says so


def read_server_info(body: Mapping[str, Any]) -> dict[str, str]:
    """What a completion says about its server, to be passed on."""
    return {
        name: value for name in _SERVER_INFO if isinstance(value := body.get(name), str) and len(value) <= 200
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of one request: for the reply, the ledger, metrics, the dashboard and the recorder."""

    id: str  # of the reply, e.g. "chatcmpl-…"
    at: float  # seconds since 1970, when it came
    seconds: float
    key: str  # the name of the client's key
    model: str
    policy: str  # its name
    mode: Mode
    budget: float  # samples on average
    price: float | None  # the dial it was decided at; None: the policy has none, or nothing was decided
    stream: bool = False
    n: int = 1  # choices that the client asked for
    status: int = 200  # of the reply; 499: the client went away
    error: str = ""  # the code of the error; "": none
    samples: int = 0  # received
    missing: int = 0  # samples requested but not received
    waves: int = 0
    would: int | None = None  # shadow mode: samples the policy would have drawn after the first
    answer: str | None = None  # the winner of the vote
    votes: Mapping[str, int] = field(default_factory=dict, hash=False)
    abstained: int = 0  # samples without an answer
    agreement: float | None = None  # the winner's share of the weight, 0 to 1; None: there was no vote
    weighted: bool = False  # whether votes had weights
    weak: bool = False  # whether the agreement is below the operator's minimum
    explored: bool = False  # drawn to the end, for learning
    notes: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    spent: Spend = field(default_factory=Spend)
    maybe: Spend = field(default_factory=Spend)  # upper bound of what may be charged for failed calls
    responses: tuple[Response, ...] = field(default=(), repr=False)  # in their order
    server_info: Mapping[str, str] = field(default_factory=dict, hash=False)  # of the upstream's reply
    best: int | None = None  # index of the response that represents the winner
    prompt: str = field(default="", repr=False)

    @property
    def cost_samples(self) -> int:
        """Samples that it cost or may have cost, used or not: what the average counts."""
        return max(self.samples, self.spent.samples + self.maybe.samples)

    @property
    def counts_in_average(self) -> bool:
        """Does it count in the average? Only if it cost something and a policy decided it."""
        return self.mode == "adaptive" and self.cost_samples > 0 and self.n == 1

    @property
    def moves_price(self) -> bool:
        """Does its cost move the price? Not if failures cut it short below its budget.

        Such requests are cheap. If the price fell because of them, a failing upstream would be sent more.
        """
        return self.counts_in_average and not (self.missing and self.cost_samples < self.budget)
