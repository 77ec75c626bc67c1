"""One request to the gateway, once it is checked, and what is to be done with it. Knows nothing of HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Ask", "Mode", "Route"]

Mode = Literal["adaptive", "shadow", "pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request for a chat completion."""

    body: Mapping[str, Any] = field(hash=False, repr=False)
    # ^ what goes upstream: all that came, but for n, stream, stream_options and the budget in a model's name
    prompt: str = field(default="", repr=False)  # what policies read: the last user message's text
    n: int = 1
    stream: bool = False
    include_usage: bool = False  # the client wants usage in its stream
    logprobs: bool = False  # the client wants log-probabilities
    budget: float | None = None  # that the model's name asked for, as in NAME@2.5
    max_tokens: int = 0  # of one response, at most: the client's limit, or the operator's where it has none
    limited: bool = False  # whether the client gave a limit itself
    prompt_tokens: int = 0  # at most: no tokenizer makes more of it
    json: bool = False  # the client asks for JSON: voted on only where answers are read out of JSON
    alone: str = (
        ""  # why there can be only one round of samples, e.g. "temperature is 0"; "": there can be more
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is to be done with a request: settled before anything is drawn."""

    key: str  # the name of the client's key; "anonymous" where there are none
    policy: str  # by its name
    budget: float  # samples on average that it counts towards
    mode: Mode = "adaptive"
    deadline: float  # seconds from now
    notes: tuple[str, ...] = ()  # e.g. that the budget asked for was clamped
