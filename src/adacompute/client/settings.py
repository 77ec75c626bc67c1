"""Settings of an endpoint (address, key, timeouts, retries, rate limits, circuit breaker) and of modes.

`build_endpoint` makes an `Endpoint` from the user's configuration. Nothing is sent here.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.config import EndpointConfig, read_key
from adacompute.errors import ConfigError
from adacompute.records import Secret, TokenPrices

_MESSAGE_TOKENS = 16  # maximum number of tokens that a chat template adds per message
_INSTRUCTION_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts of one attempt, in seconds."""

    connect: float = 10.0
    first_byte: float = 300.0  # until the reply's headers arrive; long, because a model may reason first
    total: float = 900.0

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "total"):
            _check_positive(getattr(self, name), f"{name} timeout", "seconds, e.g. 30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Retries of a call: how many, how far apart, and until when."""

    attempts: int = 6  # number of attempts, including the first
    deadline: float = 1800.0  # seconds for all attempts and waits
    # wait in seconds before the second attempt; then doubled each time, with a random part
    first: float = 0.5
    longest: float = 60.0  # longest wait between attempts in seconds, unless Retry-After is longer
    # whether to send a request again if it timed out after it was sent; both may be charged
    after_timeout: bool = False

    def __post_init__(self) -> None:
        _check_count(self.attempts, "attempts")
        for name in ("deadline", "first", "longest"):
            _check_positive(getattr(self, name), f"retry {name}", "seconds, e.g. 30")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits for requests to the endpoint: concurrency and rates per minute."""

    concurrency: int = 32  # maximum number of concurrent calls
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None  # tokens of prompts and responses together
    adaptive: bool = True  # whether to make fewer concurrent calls while the endpoint is overloaded

    def __post_init__(self) -> None:
        _check_count(self.concurrency, "concurrency")
        for name in ("requests_per_minute", "tokens_per_minute"):
            if getattr(self, name) is not None:
                _check_positive(
                    getattr(self, name), name.replace("_", " "), "a number above 0, or leave it out"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When to leave a failing endpoint alone for a while (circuit breaker)."""

    failures: int = 8  # number of consecutive connection errors or 5xx replies that open the breaker
    seconds: float = 5.0  # wait before a test call (probe) is sent; doubled after each failed test
    longest: float = 60.0
    patience: float = math.inf  # maximum time in seconds that a call waits for an open breaker
    first_contact: float = 20.0  # seconds after which calls fail if no connection has ever succeeded

    def __post_init__(self) -> None:
        _check_count(self.failures, "failures in a row")
        for name in ("seconds", "longest", "first_contact"):
            _check_positive(getattr(self, name), f"breaker {name.replace('_', ' ')}", "seconds, e.g. 5")

    def share(self, modes: int) -> "BreakerSettings":
        """Divides the time for a first connection by the number of modes: all then take as long as one."""
        return replace(self, first_contact=self.first_contact / modes)


_PARTS = {"timeouts": Timeouts, "retries": Retries, "limits": RateLimits, "breaker": BreakerSettings}


class _KeyField:
    """A field that can be set to a text or a Secret, and returns a Secret."""

    def __get__(self, owner: object, kind: type) -> Secret | None: ...
    def __set__(self, owner: object, value: str | Secret | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible upstream. `url` includes `/v1`; a plain-text `key` becomes a Secret.

    >>> Endpoint(url="http://127.0.0.1:8081/v1/").chat
    'http://127.0.0.1:8081/v1/chat/completions'
    """

    url: str
    key: _KeyField = field(default=cast("_KeyField", None))
    key_header: str = ""  # header that holds the plain key; "": Authorization with a bearer token
    # headers sent with every request; may be secret
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    ca_file: str = ""  # file with certificates (PEM) to trust instead of the system's
    client_cert: str = ""  # file with the certificate (PEM) to present to the endpoint
    client_key: str = ""  # file with the private key of `client_cert`; "": it is in the same file
    unix_socket: str = ""  # socket file to connect to, instead of the host and port of `url`
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: Retries = field(default_factory=Retries)
    limits: RateLimits = field(default_factory=RateLimits)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    path: str = "/chat/completions"  # where calls are posted, relative to `url`
    # the key and other secrets, which are masked in replies
    secret: Secret | None = field(init=False, repr=False, compare=False)
    chat: str = field(init=False, repr=False, compare=False)  # full address to which calls are posted

    def __post_init__(self) -> None:
        _check_url(self.url)
        object.__setattr__(self, "url", self.url.rstrip("/"))
        object.__setattr__(self, "chat", f"{self.url}{self.path}")
        object.__setattr__(self, "key", _make_secret(self.key))
        for name in ("headers", "query"):
            object.__setattr__(self, name, _copy_texts(getattr(self, name), name))
        object.__setattr__(self, "secret", _collect_secrets(self))
        _check_header_names(self)
        for name, kind in _PARTS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ConfigError(f"{name} {value!r} of an endpoint can't be used; give {kind.__name__}(…)")

    @property
    def models(self) -> str:
        """The address for listing models."""
        return f"{self.url}/models"


_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie|passw|credential|\bsig", re.IGNORECASE)


def _collect_secrets(endpoint: Endpoint) -> Secret | None:
    """Collects the key and the values of headers and query parameters with names such as "token"."""
    pairs = [*endpoint.headers.items(), *endpoint.query.items()]
    others = [part for name, value in pairs if _SECRET_NAME.search(name) for part in value.split()]
    if not others:
        return endpoint.key
    return Secret("" if endpoint.key is None else endpoint.key.reveal(), others=others)


def build_endpoint(settings: EndpointConfig, *, remedy: str = "give --endpoint URL") -> Endpoint:
    """Builds the endpoint from settings; if they name none, raises ConfigError with this remedy."""
    if not settings.url:
        raise ConfigError(
            f"no endpoint is named; {remedy} (or [endpoint] url in adacompute.toml); "
            "`adacompute local` serves a small model on this machine"
        )
    file = Path(settings.key_file) if settings.key_file else None
    key = read_key(env=settings.key_env, file=file)
    if key is None and settings.key_env not in ("", EndpointConfig().key_env):
        raise ConfigError(f"environment variable {settings.key_env} holds no key; set it, or name another")
    return Endpoint(
        url=settings.url,
        key=key,
        key_header=settings.key_header,
        headers=split_pairs(settings.headers, "header", "X-Title: my app"),
        query=split_pairs(settings.query, "query", "api-version=2024-10-21"),
        ca_file=settings.ca_file,
        client_cert=settings.client_cert,
        client_key=settings.client_key,
        unix_socket=settings.unix_socket,
        timeouts=Timeouts(
            connect=min(settings.connect_timeout, settings.total_timeout),
            first_byte=min(settings.first_byte_timeout, settings.total_timeout),
            total=settings.total_timeout,
        ),
        retries=Retries(
            attempts=settings.attempts, deadline=settings.deadline, after_timeout=settings.retry_timeouts
        ),
        limits=RateLimits(
            concurrency=settings.concurrency,
            requests_per_minute=settings.requests_per_minute or None,
            tokens_per_minute=settings.tokens_per_minute or None,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeEndpoint:
    """A mode: an endpoint, model and options for requesting samples. Modes may share an endpoint."""

    name: str  # name of the mode; "" if there is only one endpoint
    endpoint: Endpoint
    model: str  # model to request; "": the one that the user's request names
    prices: TokenPrices = field(default_factory=TokenPrices)
    # price per million cached prompt tokens; None: the price of other prompt tokens
    cached_price: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields added to every request
    system_suffix: str = ""  # appended to the system message

    @property
    def max_tokens(self) -> int | None:
        """The mode's own token limit per response; None if it has none."""
        return min((self.options[name] for name in LIMIT_NAMES if name in self.options), default=None)

    @property
    def all_options(self) -> dict[str, Any]:
        """Everything that the mode adds to requests, as written in its table of the modes file."""
        return {**self.options, **({"system_suffix": self.system_suffix} if self.system_suffix else {})}

    @property
    def added_tokens(self) -> int:
        """Upper bound for the tokens that the mode adds to a prompt, whatever the tokenizer."""
        options = {name: value for name, value in self.options.items() if name not in LIMIT_NAMES}
        suffix = len(self.system_suffix.encode()) + _MESSAGE_TOKENS if self.system_suffix else 0
        return suffix + (len(json.dumps(options)) if options else 0)

    def build_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Builds a request for this mode, with its model, options and system suffix.

        If both the request and the mode limit tokens, the smaller limit is sent, under the name that the
        request uses.
        """
        built = {**body, "model": self.model} if self.model else dict(body)
        for name, value in self.options.items():
            if name not in LIMIT_NAMES:
                built[name] = value
        limit = self.max_tokens
        if limit is not None:
            names = [name for name in LIMIT_NAMES if body.get(name) is not None]
            for name in names or [name for name in LIMIT_NAMES if name in self.options]:
                built[name] = min(limit, built.get(name) or limit)
        if self.system_suffix:
            built["messages"] = add_instruction(body["messages"], self.system_suffix)
        return built


def add_instruction(messages: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]]:
    """Appends a text to the first system message; if there is none, adds one.

    >>> add_instruction([{"role": "user", "content": "Hi"}], "Be brief.")
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    """
    extended = [dict(message) for message in messages]
    for message in extended:
        if message.get("role") in _INSTRUCTION_ROLES:
            content = message.get("content")
            if isinstance(content, list):
                message["content"] = [*content, {"type": "text", "text": text}]
            else:
                message["content"] = f"{content}\n{text}" if content else text
            return extended
    return [{"role": "system", "content": text}, *extended]


def split_pairs(texts: Iterable[str], what: str, example: str) -> dict[str, str]:
    """Splits each text at its first colon or equals sign into a name and a value; errors show no value.

    >>> split_pairs(["X-Title: my app", "a=b=c"], "header", "")
    {'X-Title': 'my app', 'a': 'b=c'}
    """
    parts = [[part.strip() for part in re.split("[:=]", text, maxsplit=1)] for text in texts]
    for number, pair in enumerate(parts, 1):
        if len(pair) < 2 or not pair[0]:
            raise ConfigError(f"{what} number {number} has no name, or no value; give e.g. {example!r}")
    return dict(parts)


def _check_header_names(endpoint: Endpoint) -> None:
    key_header = (endpoint.key_header or "authorization").lower()
    for name in (key_header, *endpoint.headers):
        if not _HEADER_NAME.fullmatch(str(name)):
            raise ConfigError(f"{name!r} can't be the name of a header; give one such as X-Title")
        if name.lower() in _OWN_HEADERS:
            raise ConfigError(f"header {name!r} of an endpoint is set by adacompute itself; leave it out")
    for name in endpoint.headers:
        if endpoint.key is not None and name.lower() == key_header:
            raise ConfigError(f"header {name!r} of an endpoint is that of its key; leave it out, or the key")


def _copy_texts(values: Mapping[str, object], what: str) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise ConfigError(f'{what} of an endpoint is a {type(values).__name__}; give {{"name": "value"}}')
    texts = {name: value for name, value in values.items() if isinstance(value, str) and value.isprintable()}
    for name in values.keys() - texts.keys():  # the error doesn't show the value, which may be secret
        raise ConfigError(f"{what}: {name!r} is not text, or holds line breaks; give a text on one line")
    return texts


def describe_key_exposure(endpoint: Endpoint) -> str | None:
    """Returns a warning if the key is sent unencrypted, otherwise None."""
    if endpoint.key is None or not endpoint.url.startswith("http://") or is_loopback(endpoint.url):
        return None
    return f"{endpoint.url}: the key goes there unencrypted; use https:// where you can"


@lru_cache(maxsize=256)  # requests repeat the same host, and parsing takes 20 µs
def is_loopback(url: str) -> bool:
    """Whether an address is on this machine; False if invalid."""
    try:
        host = (urlsplit(url).hostname or "") if url.isprintable() else ""
    except ValueError:  # e.g. an incomplete IPv6 address
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = frozenset(
    {
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "te"),
        *("accept", "accept-encoding", "expect", "trailer", "upgrade"),
    }
)
_REMEDY = "give it with http:// or https:// and its path, e.g. http://127.0.0.1:8081/v1"


def _check_url(url: object) -> None:
    """Raises ConfigError unless `url` is a valid endpoint address; the error never shows a key."""
    if not isinstance(url, str):
        raise ConfigError(f"endpoint {url!r} is not text; {_REMEDY}")
    redacted = _redact_url(url)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if host is not None:
            host.encode("idna")  # raises, as the resolver would, if a part of the name is empty or too long
    except ValueError as exc:
        detail = "an empty or too long name of a host" if isinstance(exc, UnicodeError) else str(exc)
        # the parser's message may quote part of a password as the port
        why = "" if "@" in url else f" ({detail})"
        raise ConfigError(f"endpoint {redacted!r} is not an address{why}; {_REMEDY}") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"endpoint {redacted!r} carries a name or password; give keys by the environment or a file"
        )
    if not _is_plain_url(url, parts):
        raise ConfigError(f"endpoint {redacted!r} is not an address of an endpoint; {_REMEDY}")
    if not parts.path.strip("/"):
        raise ConfigError(
            f"endpoint {redacted!r} has no path; most end in /v1: give {redacted.rstrip('/')}/v1"
        )
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise ConfigError(f"endpoint {redacted!r} is one route; give {redacted.partition('/chat/')[0]}")


def _is_plain_url(url: str, parts: SplitResult) -> bool:
    """Whether an address has a scheme and a host, and no query, spaces or line breaks."""
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in url or not url.isprintable():
        return False
    return not (parts.query or parts.fragment)


def _redact_url(url: str) -> str:
    """Removes user, password and query from an address, even an invalid one, so that messages may show it.

    >>> _redact_url("http://me:sk-1/2@h:80a/v1?key=sk-3"), _redact_url("http://me:sk?4@h/v1")
    ('http://h:80a/v1', 'http://…')
    """
    scheme = match[0] if (match := re.match(r"\w+://", url)) else ""
    plain, *queries = re.split(r"[?#]", url.removeprefix(scheme))
    if any("@" in query for query in queries):  # e.g. "me:sk?4@h": the text before "?" belongs to a password
        return f"{scheme}…"
    return scheme + plain.rpartition("@")[2]


def _make_secret(key: object) -> Secret | None:
    if key is None:
        return None
    text = key.reveal() if isinstance(key, Secret) else key
    if not isinstance(text, str):
        raise ConfigError(f"the key of an endpoint is a {type(key).__name__}; give a Secret or a text")
    if not text or " " in text or not text.isprintable():  # the error doesn't show the key
        raise ConfigError(
            "the key of an endpoint is empty, or holds blanks or line breaks; give it alone, or None"
        )
    return key if isinstance(key, Secret) else Secret(text)


def _check_count(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ConfigError(f"{name} {value!r} can't be used; give a whole number, 1 or more")


def _check_positive(value: object, name: str, remedy: str) -> None:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(f"{name} {value!r} can't be used; give {remedy}")
