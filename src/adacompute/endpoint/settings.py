"""How one upstream is asked: where, how long, how often, how fast. Knows nothing of requests or replies."""

import math
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from adacompute.errors import ConfigError
from adacompute.records import Secret

__all__ = ["Endpoint", "Limits", "Rest", "Retries", "Timeouts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Of one attempt, in seconds."""

    connect: float = 10.0
    first_byte: float = (
        300.0  # from sending the request to the reply's headers; models think before they answer
    )
    total: float = 900.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "total"):
            _positive(getattr(self, name), f"{name} timeout", "seconds, e.g. 30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Of one call: what is tried again, and until when."""

    attempts: int = 6  # with the first
    deadline: float = 1800.0  # seconds for all attempts and the waits between them
    first: float = 0.5  # seconds before the second attempt; doubled from there on, and jittered
    longest: float = 60.0  # seconds between two attempts, at most, unless Retry-After says more
    after_timeout: bool = False  # True: also after a timeout of what was sent, which may be paid for twice

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"attempts {self.attempts} can't be used; give 1 or more")
        for name in ("deadline", "first", "longest"):
            _positive(getattr(self, name), f"retry {name}", "seconds, e.g. 30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the endpoint is asked to bear."""

    concurrency: int = 32  # calls at the same time, at most
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None  # of prompts and responses
    adaptive: bool = True  # fewer at the same time where the endpoint pushes back, more again where not

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency {self.concurrency} can't be used; give 1 or more")
        for name in ("requests_per_minute", "tokens_per_minute"):
            if getattr(self, name) is not None:
                _positive(getattr(self, name), name.replace("_", " "), "a number above 0, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """When an endpoint that keeps failing is left alone (the breaker)."""

    failures: int = 8  # transport errors and 5xx in a row that open it
    seconds: float = 5.0  # until a probe is let through; doubled after each probe that fails
    longest: float = 60.0

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ConfigError(f"failures {self.failures} before a rest can't be used; give 1 or more")
        for name in ("seconds", "longest"):
            _positive(getattr(self, name), f"rest {name}", "seconds, e.g. 5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One OpenAI-compatible upstream. `url` includes `/v1`.

    >>> Endpoint(url="http://127.0.0.1:8081/v1/").chat
    'http://127.0.0.1:8081/v1/chat/completions'
    """

    url: str
    key: Secret | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: Retries = field(default_factory=Retries)
    limits: Limits = field(default_factory=Limits)
    rest: Rest = field(default_factory=Rest)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError as exc:
            raise ConfigError(f"endpoint {self.url!r} is no address ({exc}); {_REMEDY}") from exc
        if parts.username is not None or parts.password is not None:
            shown = f"{parts.scheme}://{host}" + (f":{port}" if port else "") + parts.path
            raise ConfigError(
                f"endpoint {shown!r} carries a name or password; give keys by the environment or a file"
            )
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ConfigError(f"endpoint {self.url!r} is no address of an endpoint; {_REMEDY}")
        if not parts.path.strip("/"):
            raise ConfigError(
                f"endpoint {self.url!r} has no path; most end in /v1: give {self.url.rstrip('/')}/v1"
            )
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @property
    def chat(self) -> str:
        """Where chat completions are asked for."""
        return f"{self.url}/chat/completions"

    @property
    def models(self) -> str:
        """Where it lists its models."""
        return f"{self.url}/models"


_REMEDY = "give it with http:// or https:// and its path, e.g. http://127.0.0.1:8081/v1"


def _positive(value: float, name: str, remedy: str) -> None:
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name} {value!r} can't be used; give {remedy}")
