"""How one upstream is asked: where, how long, how often, how fast. Knows nothing of requests or replies."""

import math
import re
from dataclasses import dataclass, field
from numbers import Integral, Real
from urllib.parse import SplitResult, urlsplit

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
        _count(self.attempts, "attempts")
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
        _count(self.concurrency, "concurrency")
        for name in ("requests_per_minute", "tokens_per_minute"):
            if getattr(self, name) is not None:
                _positive(getattr(self, name), name.replace("_", " "), "a number above 0, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """When an endpoint that keeps failing is left alone (the breaker)."""

    failures: int = 8  # transport errors and 5xx in a row that open it
    seconds: float = 5.0  # until a probe is let through; doubled after each probe that fails
    longest: float = 60.0
    patience: float = math.inf  # seconds that a call waits for the end of a rest, at most

    def __post_init__(self) -> None:
        _count(self.failures, "failures before a rest,")
        for name in ("seconds", "longest"):
            _positive(getattr(self, name), f"rest {name}", "seconds, e.g. 5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One OpenAI-compatible upstream. `url` includes `/v1`; a `key` that is plain text becomes a Secret.

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
        _address(self.url)
        object.__setattr__(self, "url", self.url.rstrip("/"))
        object.__setattr__(self, "key", _secret(self.key))
        for name, kind in (("timeouts", Timeouts), ("retries", Retries), ("limits", Limits), ("rest", Rest)):
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigError(f"{name} {value!r} of an endpoint can't be used; give {kind.__name__}(…)")

    @property
    def chat(self) -> str:
        """Where chat completions are asked for."""
        return f"{self.url}/chat/completions"

    @property
    def models(self) -> str:
        """Where it lists its models."""
        return f"{self.url}/models"


_REMEDY = "give it with http:// or https:// and its path, e.g. http://127.0.0.1:8081/v1"


def _address(url: object) -> None:
    """ConfigError where it is no address of an endpoint, without a key that it may carry."""
    if not isinstance(url, str):
        raise ConfigError(f"endpoint {url!r} is no text; {_REMEDY}")
    shown = _shown(url)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if host is not None:
            host.encode("idna")  # as the resolver will: no empty name between dots, none beyond 63 characters
    except ValueError as exc:
        said = "an empty or too long name of a host" if isinstance(exc, UnicodeError) else str(exc)
        why = "" if "@" in url else f" ({said})"  # what seems to be a port may be a password
        raise ConfigError(f"endpoint {shown!r} is no address{why}; {_REMEDY}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"endpoint {shown!r} carries a name or password; give keys by the environment or a file"
        )
    if not _plain(url, parts):
        raise ConfigError(f"endpoint {shown!r} is no address of an endpoint; {_REMEDY}")
    if not parts.path.strip("/"):
        raise ConfigError(f"endpoint {shown!r} has no path; most end in /v1: give {shown.rstrip('/')}/v1")


def _plain(url: str, parts: SplitResult) -> bool:
    """Has it a scheme, a host, no query, and no blanks or line breaks?"""
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in url or not url.isprintable():
        return False
    return not (parts.query or parts.fragment)


def _shown(url: str) -> str:
    """An address as it may be shown: without name, password and query, also where it can't be read.

    >>> _shown("http://me:sk-1/2@h:80a/v1?key=sk-3"), _shown("http://me:sk?4@h/v1")
    ('http://h:80a/v1', 'http://…')
    """
    scheme = found[0] if (found := re.match(r"\w+://", url)) else ""
    plain, *queries = re.split(r"[?#]", url.removeprefix(scheme))
    if any("@" in query for query in queries):  # the beginning may be a password
        return f"{scheme}…"
    return scheme + plain.rpartition("@")[2]


def _secret(key: object) -> Secret | None:
    if key is None:
        return None
    text = key.reveal() if isinstance(key, Secret) else key
    if not isinstance(text, str):
        raise ConfigError(f"the key of an endpoint is a {type(key).__name__}; give a Secret or a text")
    if not text or " " in text or not text.isprintable():  # the message doesn't show it
        raise ConfigError(
            "the key of an endpoint is empty, or holds blanks or line breaks; give it alone, or None"
        )
    return key if isinstance(key, Secret) else Secret(text)


def _count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ConfigError(f"{name} {value!r} can't be used; give a whole number, 1 or more")


def _positive(value: object, name: str, remedy: str) -> None:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(f"{name} {value!r} can't be used; give {remedy}")
