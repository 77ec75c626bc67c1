"""What came of asking: responses, failures, and an account of every call. Knows nothing of HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.errors import EndpointError
from adacompute.records import Call, Paid, Sample

__all__ = ["Answered", "Call", "Failed", "Outcome", "Paid", "Reply", "Response", "sound"]


def sound(text: str) -> str:
    """Text that can be stored: half of a surrogate pair, which is no text, becomes U+FFFD.

    >>> sound("a\\ud83db")
    'a\ufffdb'
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One choice of a reply."""

    text: str  # "" where the message had none, e.g. a call of a tool
    finish_reason: str | None = None
    tokens: int | None = None  # of this response
    estimated: bool = False  # True: `tokens` is a share of a total, or a guess by length
    logprob: float | None = None  # sum over the tokens, natural logarithm
    entropy: float | None = None  # mean over the tokens, nats, as far as the alternatives given tell
    message: Mapping[str, Any] = field(default_factory=dict, hash=False)  # as it came, for passing on
    logprobs: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)  # likewise

    @property
    def finished(self) -> bool | None:
        """False: cut off by a token limit; None: it wasn't said."""
        return None if self.finish_reason is None else self.finish_reason != "length"

    def sample(self) -> Sample:
        """As a pool keeps it."""
        return Sample(
            text=sound(self.text),
            tokens=self.tokens,
            logprob=self.logprob,
            entropy=self.entropy,
            finished=self.finished,
            extra={"tokens_estimated": True} if self.estimated else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One completion call that succeeded."""

    responses: tuple[Response, ...]
    calls: tuple[Call, ...]  # attempts that failed, then the one that gave this
    body: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)  # as it came


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Some of the responses asked for have come; store them before asking for the next."""

    responses: tuple[Response, ...]
    calls: tuple[Call, ...]
    first: int  # index of the first of them; the others follow
    body: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)  # as it came


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Some of the responses asked for will not come."""

    error: EndpointError
    calls: tuple[Call, ...]
    first: int  # index of the first of them
    count: int


Outcome = Answered | Failed
