"""Settings, one frozen dataclass a stage. Knows nothing of where they are read, or of what uses them."""

import math
import re
from dataclasses import dataclass, field
from typing import Literal

from adacompute.config.shared import ALONE, check_redis
from adacompute.errors import ConfigError

__all__ = ["AnswersConfig", "CollectConfig", "Config", "EndpointConfig", "ScoreConfig", "ServeConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersConfig:
    """How answers are read out of responses, and compared."""

    extract: str = "auto"  # auto, boxed, phrase, line, hash, number, choice, json:FIELD, regex:PATTERN
    percent: Literal["unit", "fraction"] = "unit"  # is 50% the same as 50, or as 0.5?


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig:
    """Which budgets recorded samples are scored at."""

    budgets: tuple[int, ...] = (1, 2, 4, 8, 16)  # samples a vote, ascending

    def __post_init__(self) -> None:
        if not self.budgets or min(self.budgets) < 1 or list(self.budgets) != sorted(set(self.budgets)):
            raise ConfigError(
                f"budgets {list(self.budgets)} can't be used; give whole numbers from 1 up, ascending, "
                "each once, e.g. 1,2,4,8,16"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Which OpenAI-compatible endpoint is asked, how fast, and for how long."""

    url: str = ""  # with its path, e.g. http://127.0.0.1:8081/v1
    model: str = ""  # "": the only one that the endpoint lists
    key_env: str = "ADACOMPUTE_KEY"  # the environment variable that holds the key, if there is one
    key_file: str = ""  # or a file that holds it
    concurrency: int = 32  # calls at the same time, at most
    requests_per_minute: float = 0.0  # 0: no limit
    tokens_per_minute: float = 0.0  # of prompts and responses; 0: no limit
    connect_timeout: float = 10.0  # seconds
    first_byte_timeout: float = 300.0  # seconds
    total_timeout: float = 900.0  # seconds, of one attempt
    attempts: int = 6  # of one call
    deadline: float = 1800.0  # seconds, of one call with all its attempts
    retry_timeouts: bool = False  # ask again after a timeout of what was sent; may be paid for twice
    input_price: float = 0.0  # money for a million prompt tokens
    output_price: float = 0.0  # money for a million response tokens

    def __post_init__(self) -> None:
        for name in ("input_price", "output_price"):
            price = getattr(self, name)
            if not (math.isfinite(price) and price >= 0):
                raise ConfigError(f"{name} {price:g} can't be used; give 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectConfig:
    """How problems are sampled."""

    samples: int = 48  # of each problem
    temperature: float = 0.7
    max_tokens: int = 1024  # of one response


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """The gateway. Its upstream is the [endpoint], its way of reading answers that of [answers]."""

    host: str = "127.0.0.1"  # beyond loopback only with keys
    port: int = 8080  # 0: any that is free
    policy: str = ""  # the folder of the default policy; "": stopping, on its bundled prior
    policies: tuple[str, ...] = ()  # others, NAME=FOLDER each, that x-adacompute-policy may name
    budget: float = 2.0  # samples a request on average
    max_budget: float = 16.0  # that a request may ask for itself
    price: float = -1.0  # 0 or more: a fixed dial, and no pacing; below 0: the dial moves to meet the budget
    mode: Literal["adaptive", "shadow", "pass"] = "adaptive"  # shadow: one sample, and what would have been
    keys_file: str = ""  # TOML: a section a key, with key, cap and operator
    state: str = "adacompute-gateway.sqlite"  # the ledger and the prices; survives restarts
    redis: str = ""  # redis://HOST:PORT/DB or rediss://…: shares both with all gateways of a fleet; "": alone
    fleet: str = ALONE  # the name of the fleet in that Redis
    redis_key_env: str = "ADACOMPUTE_REDIS_KEY"  # the environment variable that holds its password, if any
    redis_key_file: str = ""  # or a file that holds it
    unit: Literal["samples", "tokens", "money"] = "samples"  # of caps, and of the cost in replies
    cap: float = 0.0  # of all keys together, in that unit; 0: none
    key_cap: float = 0.0  # of each key that has none of its own; 0: none
    window: Literal["ever", "hour", "day", "month"] = "ever"  # after which caps begin anew, UTC
    cached_price: float = -1.0  # money for a million cached prompt tokens; below 0: as other prompt tokens
    vote: Literal["auto", "always", "never"] = "auto"  # auto: where the first sample states an answer
    vote_pattern: str = ""  # only prompts in which this regular expression is found are voted on
    min_agreement: float = 0.0  # of a vote, 0 to 1; weaker ones are marked, or refused
    weak: Literal["mark", "refuse"] = "mark"
    explore: float = 0.0  # share of requests that get as many samples as there can be, to learn from
    record: str = ""  # a pool that traffic is recorded into, with its texts; "": none
    show_texts: bool = False  # in the dashboard
    concurrency: int = 256  # upstream calls at the same time, at most
    max_requests: int = 1000  # at the same time; more are turned away with 503
    max_body: int = 4_194_304  # bytes of a request
    max_messages: int = 512  # of a request
    max_depth: int = 32  # of its nesting
    max_tokens: int = 32_768  # that a request may allow for one response
    max_n: int = 16  # choices that a client may ask for itself
    deadline: float = 600.0  # seconds of a request, at most
    client_timeout: float = 60.0  # seconds that a client may let us wait: to send the rest, or to read
    grace: float = 30.0  # seconds that requests have to finish when it is told to stop
    log: Literal["debug", "info", "warning", "error"] = "info"
    tls_cert: str = ""  # a PEM file; with it and the key it speaks https
    tls_key: str = ""

    def __post_init__(self) -> None:
        for name, low, high in _SERVE_RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                most = f"to {high:,.10g}" if math.isfinite(high) else "up"
                raise ConfigError(f"{name} {value:,.10g} can't be used; give {low:g} {most}")
        if self.budget > self.max_budget:
            raise ConfigError(
                f"budget {self.budget:g} is above max_budget {self.max_budget:g}; lower it, or raise that"
            )
        check_redis(self.redis, self.fleet)
        if not self.state:
            raise ConfigError("state '' names no file; give one, e.g. adacompute-gateway.sqlite")
        try:
            re.compile(self.vote_pattern)
        except re.error as exc:
            raise ConfigError(
                f"vote_pattern {self.vote_pattern!r} is no regular expression ({exc}); mend it, or give none"
            ) from exc
        for each in self.policies:
            name, _, folder = each.partition("=")
            if not name.strip() or not folder.strip():
                raise ConfigError(f"policies has {each!r}; give NAME=FOLDER, e.g. maths=policies/maths")


_SERVE_RANGES = (  # of ServeConfig's settings: from, to; both can be used
    ("port", 0, 65_535),
    ("budget", 1.0, 1024.0),
    ("max_budget", 1.0, 1024.0),
    ("cap", 0.0, math.inf),
    ("key_cap", 0.0, math.inf),
    ("min_agreement", 0.0, 1.0),
    ("explore", 0.0, 1.0),
    ("concurrency", 1, 65_536),
    ("max_requests", 1, 1_000_000),
    ("max_body", 1, 1_073_741_824),
    ("max_messages", 1, 1_000_000),
    ("max_depth", 1, 512),
    ("max_tokens", 1, 100_000_000),
    ("max_n", 1, 1024),
    ("deadline", 0.001, 86_400.0),
    ("client_timeout", 0.001, 86_400.0),
    ("grace", 0.0, 86_400.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, by stage."""

    answers: AnswersConfig = field(default_factory=AnswersConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)
