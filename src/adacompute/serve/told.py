"""What came of one request: for the reply, the ledger, metrics, the dashboard and the recorder alike.

Knows nothing of HTTP, or of how it came about.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.endpoint import Response
from adacompute.serve.asked import Mode
from adacompute.serve.spend import Spend

__all__ = ["GONE", "Told", "Usage", "beside_of"]

_BESIDE = ("system_fingerprint", "service_tier")

GONE = 499  # the status of a request whose client went away, as nginx has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of all calls that were paid for, as the upstream counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompts', where the upstream says so


def beside_of(body: Mapping[str, Any]) -> dict[str, str]:
    """What a completion says of its server, to be passed on."""
    return {name: said for name in _BESIDE if isinstance(said := body.get(name), str) and len(said) <= 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One request that has ended, well or not."""

    id: str  # of the reply, e.g. "chatcmpl-…"
    at: float  # seconds since 1970, when it came
    seconds: float
    key: str  # the name of the client's key
    model: str
    policy: str  # by its name
    mode: Mode
    budget: float  # that it counts towards
    price: float | None  # the dial that it was decided at; None: a policy without, or nothing was decided
    stream: bool = False
    n: int = 1  # choices that the client asked for itself
    status: int = 200  # of the reply; 499: the client went away
    error: str = ""  # the code of the error; "": none
    samples: int = 0  # that came
    missing: int = 0  # that were asked for and did not come
    waves: int = 0
    would: int | None = None  # shadow mode: how many more the policy would have drawn after the first
    answer: str | None = None  # that won
    votes: Mapping[str, int] = field(default_factory=dict, hash=False)
    abstained: int = 0  # samples of a vote that state no answer
    agreement: float | None = None  # the winner's share of the weight, 0 to 1; None: there was no vote
    weighted: bool = False  # whether votes were weighed
    weak: bool = False  # whether the agreement is below what the operator wants
    explored: bool = False  # drawn to the end, to learn from
    notes: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    spent: Spend = field(default_factory=Spend)
    maybe: Spend = field(default_factory=Spend)  # at most: calls that gave nothing, and may be charged for
    responses: tuple[Response, ...] = field(default=(), repr=False)  # in their order
    beside: Mapping[str, str] = field(default_factory=dict, hash=False)  # what the upstream says of itself
    best: int | None = None  # the place of the one that stands for the winner
    prompt: str = field(default="", repr=False)

    @property
    def cost_samples(self) -> int:
        """Samples that it took, or may have: what the average is of, whether they came to be used or not."""
        return max(self.samples, self.spent.samples + self.maybe.samples)

    @property
    def paced(self) -> bool:
        """Does it count towards the average? Not what cost nothing, nor what others than a policy decided."""
        return self.mode == "adaptive" and self.cost_samples > 0 and self.n == 1

    @property
    def steers(self) -> bool:
        """Does its cost move the price? Not where failures cut it short below its budget.

        Such requests are cheap. Were the price to fall for it, more would be asked of an upstream that fails.
        """
        return self.paced and not (self.missing and self.cost_samples < self.budget)
