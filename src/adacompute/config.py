"""Settings: one frozen dataclass per stage, read from a TOML file and the environment.

Only this module reads settings from TOML and the environment. Each of these sources overrides those before
it: the defaults, the TOML file, the environment (e.g. `ADACOMPUTE_ANSWERS_EXTRACT=boxed`), and the caller's
values, e.g. command options.
"""

import contextlib
import itertools
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from adacompute.errors import BudgetInvalid, ConfigError, explain_misfit, format_value, suggest_name
from adacompute.records import (
    DEFAULT_CURRENCY,
    Budget,
    Finite,
    Secret,
    TokenPrices,
    names_quality,
)

T = TypeVar("T")

EVERY_MODE = "adacompute"  # model name by which clients ask a gateway to use all its modes
MODES_KEY = "menu"  # name that stands for "all modes" in metrics, dashboard data and stored totals
VERIFIER_KEY = "ADACOMPUTE_VERIFIER_KEY"  # environment variable with the verifier's key
DEFAULT_FLEET = "adacompute"  # default name of the group of gateways that share caps through Redis


def _match(pattern: str, description: str) -> Meta:
    """Builds the constraint that a setting's text matches `pattern`. Error messages use `description`."""
    return Meta(pattern=rf"\A(?:{pattern})\Z", description=description)


_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[^\s/:@?#\[\]]+)"
_PORT = r"(?!0)(?:[0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_ORIGIN = r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"

Count = Annotated[int, Meta(ge=1)]
Limit = Annotated[int, Meta(ge=1, le=1_000_000)]
Price = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Seconds = Annotated[float, Meta(ge=0.001, le=86_400)]
Points = Annotated[float, Meta(ge=0, le=100)]
Total = Price | Annotated[str, Meta(description="a text such as '5 USD'")]
Currency = Annotated[str, _match(r"(?!(samples|tokens|money)\Z)[A-Za-z]{1,16}", "its name, e.g. USD or EUR")]
FleetName = Annotated[str, _match(r"[A-Za-z0-9_.-]{1,64}", "1 to 64 of A-Z a-z 0-9 _ . -")]
StateFile = Annotated[str, _match(r".+", "a file, e.g. adacompute-gateway.sqlite")]
NamedFolder = Annotated[str, _match(r"\s*[^\s=][^=]*=\s*\S.*", "NAME=FOLDER, e.g. maths=policies/maths")]
_SENT_ORIGIN = _match(
    rf"\*|(?!https://.*:443\Z|http://.*:80\Z){_ORIGIN}",
    "an origin as browsers send it: scheme, host and port alone, e.g. https://app.example.com",
)
Origin = Annotated[str, _SENT_ORIGIN]
_REDIS_ADDRESS = _match(
    rf"(?:rediss?://(?:[^\s/:@?#]+@)?{_HOST}(?::{_PORT})?(?:/[0-9]{{0,5}})?)?",
    "redis://HOST:PORT/DB, or rediss:// for TLS, and its password in redis_key_env or redis_key_file",
)
RedisAddress = Annotated[str, _REDIS_ADDRESS]
_COLLECTOR_ADDRESS = _match(
    rf"(?:env|https?://{_HOST}(?::{_PORT})?(?:/[^\s@?#]*)?)?",
    "http://HOST:PORT, https://… for TLS, or env, and credentials in OTEL_EXPORTER_OTLP_HEADERS",
)
CollectorAddress = Annotated[str, _COLLECTOR_ADDRESS]


def setting(default: T, meaning: str, *, default_text: str = "") -> T:
    """Declares a setting of a section. `meaning` is shown in --help and by `serve --show-config`.

    `default_text` says what a default such as 0 or "" means, for example "no limit".
    """
    return field(default=default, metadata={"meaning": meaning, "default_text": default_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersConfig:
    """Settings for extracting and comparing answers."""

    extract: str = setting(
        "auto",
        "how to find answers in responses: auto, boxed, phrase, line, hash, number, choice, "
        "json:FIELD or regex:PATTERN",
    )
    percent: Literal["unit", "fraction"] = setting(
        "unit",
        "whether 50% is the same answer as 50 (unit) or as 0.5 (fraction)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig:
    """The budgets at which recorded samples are scored."""

    budgets: tuple[int, ...] = setting((1, 2, 4, 8, 16), "numbers of samples that vote, ascending")

    def __post_init__(self) -> None:
        if not self.budgets or min(self.budgets) < 1 or list(self.budgets) != sorted(set(self.budgets)):
            raise ConfigError(
                f"budgets {list(self.budgets)} can't be used; give whole numbers from 1 up, ascending, "
                "each once, e.g. 1,2,4,8,16"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Settings for the OpenAI-compatible endpoint, with its rate limits and timeouts."""

    url: str = setting("", "URL of the OpenAI-compatible endpoint, e.g. http://127.0.0.1:8081/v1")
    model: str = setting("", "name of the model", default_text="the only one that the endpoint lists")
    key_env: str = setting("ADACOMPUTE_KEY", "environment variable with the endpoint's API key")
    key_file: str = setting("", "file with only the endpoint's API key")
    key_header: str = setting("", "header that carries the key, e.g. api-key", default_text="Authorization")
    headers: tuple[str, ...] = setting((), "headers of every request, e.g. X-Title: my app")
    query: tuple[str, ...] = setting((), "query parameters of every request, e.g. api-version=2024-10-21")
    ca_file: str = setting("", "CA certificates (PEM) to verify the endpoint", default_text="the system's")
    client_cert: str = setting("", "client certificate (PEM) for the endpoint", default_text="none")
    client_key: str = setting("", "private key of the client certificate, if it is in another file")
    unix_socket: str = setting("", "unix socket of the endpoint", default_text="none: TCP")
    concurrency: int = setting(32, "most calls at the same time; fewer if the endpoint is overloaded")
    requests_per_minute: float = setting(0.0, "most requests per minute", default_text="no limit")
    tokens_per_minute: float = setting(
        0.0, "most tokens of prompts and responses per minute", default_text="no limit"
    )
    connect_timeout: float = setting(10.0, "seconds to connect")
    first_byte_timeout: float = setting(300.0, "seconds until the reply begins")
    total_timeout: float = setting(900.0, "time limit of one attempt, in seconds")
    attempts: int = setting(6, "most attempts of one call")
    deadline: float = setting(1800.0, "time limit of one call with all its attempts, in seconds")
    retry_timeouts: bool = setting(False, "also retry after a timeout; such a call may be paid for twice")
    input_price: Price = setting(0.0, "price of a million prompt tokens")
    output_price: Price = setting(0.0, "price of a million response tokens")
    currency: Currency = setting(DEFAULT_CURRENCY, "currency of the prices, and of budgets and caps in money")

    @property
    def prices(self) -> TokenPrices:
        """The prices of the endpoint's tokens."""
        return TokenPrices(input=self.input_price, output=self.output_price, currency=self.currency)

    def __post_init__(self) -> None:
        _check_limits(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierConfig:
    """Settings for the verifier: a reward model or judge model whose scores of responses weight the votes."""

    url: str = setting(
        "",
        "URL that scores responses: a scoring endpoint, or with --verifier-model an OpenAI-compatible one",
    )
    model: str = setting(
        "", "model to ask whether an answer is right", default_text="none: a plain scoring endpoint"
    )
    key_env: str = setting(
        VERIFIER_KEY,
        "environment variable with the verifier's key; at the endpoint's address, its key",
    )
    key_file: str = setting("", "file with only the verifier's key")
    concurrency: Count = setting(32, "most verifications at the same time")
    timeout: Annotated[float, Meta(gt=0, le=3600)] = setting(
        30.0, "time limit of one verification with its retry, in seconds"
    )
    beta: Annotated[float, Meta(ge=0, le=10)] = setting(
        0.25, "a vote weighs exp(beta * z); z: its score in standard deviations; a fitted policy has its own"
    )
    input_price: Price = setting(
        0.0, "price of a million prompt tokens; at the endpoint's address, by default its price"
    )
    output_price: Price = setting(0.0, "price of a million response tokens")

    def __post_init__(self) -> None:
        _check_limits(self)
        if self.model and not self.url:
            raise ConfigError(f"verifier model {self.model!r} has no endpoint; give it (--verifier URL)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectConfig:
    """Settings for drawing samples."""

    samples: int = setting(48, "samples per problem, in total")
    temperature: float = setting(0.7, "sampling temperature")
    max_tokens: int = setting(1024, "most tokens per response")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Settings for the gateway, which also uses the settings in [endpoint], [answers] and [verifier]."""

    host: str = setting("127.0.0.1", "address to listen on; all but loopback need keys")
    port: Annotated[int, Meta(ge=0, le=65_535)] = setting(8080, "port to listen on; 0 takes any free one")
    workers: Annotated[int, Meta(ge=1, le=64)] = setting(
        1, "server processes; several need `redis`, to share caps and prices"
    )
    menu: str = setting(
        "", "menu (TOML) of several models or efforts, instead of one endpoint", default_text="none"
    )
    policy: str = setting(
        "", "policy folder from `adacompute fit`", default_text="the built-in stopping policy"
    )
    policies: tuple[NamedFolder, ...] = setting(
        (), "more policies, NAME=FOLDER each; a request names one by x-adacompute-policy"
    )
    budget: float | str = setting(
        "2 samples",
        "average cost per request: samples, or e.g. '500 tokens', '2 USD per 1000'; a bare number is in "
        "`unit`; or a quality: 'as good as 8' is the least cost measured to be as accurate as 8 samples",
    )
    margin: Points = setting(
        1.0, "if `budget` is a quality: points that the lower end of the 95% interval may fall short"
    )
    average: Literal["auto", "voted", "all"] = setting(
        "auto",
        "requests over which `budget` is the average: those that can be voted on, or all; auto: voted for a "
        "budget in samples, else all",
    )
    max_budget: float | str = setting("16 samples", "most that a request may ask for, written like `budget`")
    price: float = setting(
        -1.0, "fixed price (or threshold), from 0 up", default_text="adjusted to meet the budget"
    )
    mode: Literal["adaptive", "shadow", "pass"] = setting(
        "adaptive", "shadow: one sample each, the policy's decision is only recorded; pass: one sample each"
    )
    keys_file: str = setting(
        "", "keys of clients (TOML): a section for each, with key, cap and operator", default_text="none"
    )
    state: StateFile = setting(
        "adacompute-gateway.sqlite", "file that keeps spending and prices over restarts"
    )
    redis: RedisAddress = setting(
        "", "redis://HOST:PORT/DB: share caps and prices with other gateways", default_text="none"
    )
    fleet: FleetName = setting(DEFAULT_FLEET, "name shared by these gateways in Redis")
    redis_key_env: str = setting("ADACOMPUTE_REDIS_KEY", "environment variable with the password of Redis")
    redis_key_file: str = setting("", "file with only the password of Redis")
    unit: Literal["samples", "tokens", "money"] = setting(
        "samples", "unit of caps, of the cost in replies, and of a budget that is a bare number"
    )
    cap: Total = setting(
        0.0, "most that all requests together may spend: a number, in `unit`, or '5 USD'", default_text="none"
    )
    key_cap: Total = setting(0.0, "like `cap`, for each key without its own", default_text="none")
    window: Literal["ever", "hour", "day", "month"] = setting(
        "ever", "period after which spending counts from 0 again, UTC"
    )
    cached_price: float = setting(
        -1.0, "price of a million cached prompt tokens", default_text="as other prompt tokens"
    )
    vote: Literal["auto", "always", "never"] = setting(
        "auto", "auto: vote if the first sample states an answer"
    )
    vote_tools: bool = setting(True, "vote on tool calls; false: one sample if tools are given")
    vote_json: bool = setting(True, "vote on JSON if no field is named; false: one sample")
    vote_pattern: str = setting("", "vote only on prompts in which this regular expression is found")
    max_rounds: Annotated[int, Meta(ge=0, le=1024)] = setting(
        0, "most rounds of samples per request, so that it ends sooner", default_text="no limit"
    )
    max_samples: Annotated[int, Meta(ge=0, le=1024)] = setting(
        0, "most samples per request, whatever the policy wants", default_text="no limit"
    )
    min_agreement: Annotated[float, Meta(ge=0, le=1)] = setting(
        0.0, "a vote is weak if the winner's share is smaller, 0 to 1"
    )
    weak: Literal["mark", "refuse"] = setting("mark", "mark weak votes in the reply, or refuse (422)")
    stream_mode: Literal["wait", "first"] = setting(
        "wait",
        "streams with a vote; wait: send the winner; first: the first sample, then the result",
    )
    explore: Annotated[float, Meta(ge=-1, le=1, description="a number from 0 to 1")] = setting(
        -1.0,
        "share of requests that get the most samples possible, to learn from",
        default_text="none; a small share if a menu has no policy",
    )
    record: str = setting("", "pool in which to record traffic, with its texts", default_text="none")
    show_texts: bool = setting(False, "show texts of prompts in the dashboard")
    playground: bool = setting(True, "web page at / to ask prompts and see samples and votes arrive")
    concurrency: Annotated[int, Meta(ge=1, le=65_536)] = setting(256, "most upstream calls at the same time")
    max_requests: Limit = setting(1000, "most requests at the same time; others get 503")
    max_body: Annotated[int, Meta(ge=1, le=2**30)] = setting(33_554_432, "most bytes of a request")
    forward: bool = setting(True, "forward other requests under /v1/ to the upstream")
    max_upload: Annotated[int, Meta(ge=1, le=2**40)] = setting(
        536_870_912, "most bytes of a forwarded upload"
    )
    cors: tuple[Origin, ...] = setting(
        (), "origins whose web pages may use the API, e.g. https://app.example.com; * with keys only"
    )
    max_messages: Limit = setting(512, "most messages per request")
    max_depth: Annotated[int, Meta(ge=1, le=512)] = setting(32, "most levels of nesting in a request")
    max_tokens: Annotated[int, Meta(ge=1, le=100_000_000)] = setting(
        32_768, "most tokens that a request may allow per response"
    )
    max_n: Annotated[int, Meta(ge=1, le=1024)] = setting(128, "most choices (n) that a request may ask for")
    deadline: Seconds = setting(600.0, "time limit of a request, in seconds")
    client_timeout: Seconds = setting(60.0, "most seconds to wait for a client to send or read data")
    grace: Annotated[float, Meta(ge=0, le=86_400)] = setting(
        30.0, "seconds for open requests to finish after a signal to stop"
    )
    log: Literal["debug", "info", "warning", "error"] = setting("info", "level of the log on stderr")
    otel: CollectorAddress = setting(
        "",
        "OpenTelemetry collector (OTLP over HTTP), e.g. http://127.0.0.1:4318; env: use the OTEL_… variables",
        default_text="none",
    )
    tls_cert: str = setting("", "certificate (PEM), to serve https; needs its key too")
    tls_key: str = setting("", "key of the certificate (PEM), without a password")

    def __post_init__(self) -> None:
        _check_limits(self)
        if -1 < self.explore < 0:  # -1, the default, is allowed
            raise ConfigError(f"explore is {self.explore:g}; give a number from 0 to 1")
        _check_budgets(self)
        compile_vote_pattern(self.vote_pattern)
        if self.fleet != DEFAULT_FLEET and not self.redis:  # gateways of a fleet share caps through Redis
            raise ConfigError(f"fleet {self.fleet!r} is shared through Redis, and redis isn't given; give it")
        if "*" in self.cors and not self.keys_file:
            raise ConfigError(
                "cors '*' lets every web page use the gateway, and there are no keys; give keys_file, or the "
                "origins that may, e.g. https://app.example.com"
            )


_MAX_SAMPLES = 1024.0  # maximum budget, in samples per request


def parse_serve_budgets(settings: ServeConfig, *, currency: str | None = None) -> tuple[Budget, Budget]:
    """Parses the settings budget and max_budget. Money must be in `currency`, unless that is None."""
    budget, most = (
        Budget.parse(value, unit=settings.unit, currency=currency)
        for value in (settings.budget, settings.max_budget)
    )
    return budget, most


def _check_budgets(settings: ServeConfig) -> None:
    # a budget such as "as good as 8" can be checked only when the policy is known
    if names_quality(settings.budget):
        return
    budget, most = parse_serve_budgets(settings)
    for name, value in (("budget", budget), ("max_budget", most)):
        if value.unit == "samples" and not 1 <= value.amount <= _MAX_SAMPLES:
            remedy = "give 1 to the most that the policy draws, which is 16 by default"
            if settings.menu:
                remedy = "modes cost differently, so give money, e.g. '0.1 USD per 1,000 requests'"
            raise ConfigError(f"{name} {value.amount:,.10g} can't be used; {remedy}")
    if budget.unit == most.unit and budget.amount > most.amount:
        raise ConfigError(f"budget {budget} is above max_budget {most}; lower it, or set max_budget")


def compile_vote_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles the setting `vote_pattern`. Raises ConfigError if it isn't a regular expression."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        raise ConfigError(
            f"vote_pattern {pattern!r} is not a regular expression ({exc}); fix or remove it"
        ) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, grouped by stage."""

    answers: AnswersConfig = field(default_factory=AnswersConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    serve: ServeConfig = field(default_factory=ServeConfig)


def average_budget(config: Config) -> Budget:
    """Returns the budget: the average cost per gateway request, in samples, tokens or money.

    Raises BudgetInvalid if it or the setting max_budget is money, and there are no prices in its currency.
    """
    settings, endpoint = config.serve, config.endpoint
    budget, most = parse_serve_budgets(settings, currency=endpoint.currency)
    for name, value in (("budget", budget), ("max_budget", most)):
        if value.unit == "money" and not (endpoint.input_price or endpoint.output_price):
            remedy = "give them (--input-price, --output-price), or a budget in tokens or samples"
            if settings.menu:
                remedy = f"give them in each table of {settings.menu}, or a budget in tokens"
            raise BudgetInvalid(
                f"{name} {value} needs prices, and input_price and output_price are 0: nothing would ever "
                f"count; {remedy}"
            )
    return budget


SETTINGS_FILE = "adacompute.toml"
ENV_PREFIX = "ADACOMPUTE_"


def load_config(path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Config:
    """Loads settings from a TOML file and the environment.

    If `path` is None, reads the file named by the variable `ADACOMPUTE_CONFIG`, or else `adacompute.toml` in
    the current folder, if it exists. `environ` replaces the process's environment.
    """
    environ = os.environ if environ is None else environ
    file = path or (Path(named) if (named := environ.get(ENV_PREFIX + "CONFIG")) else None)
    if file is None and Path(SETTINGS_FILE).is_file():
        file = Path(SETTINGS_FILE)
    sections = get_type_hints(Config)
    tables = {} if file is None else read_toml(file, "settings file")
    for name, table in tables.items():
        if name not in sections or not isinstance(table, dict):
            raise ConfigError(f"{file}: unknown section {name!r}; {_suggest(name, list(sections))}")
    places = {stage: dict.fromkeys(table, f"{file}, [{stage}]") for stage, table in tables.items()}
    for stage, variable in itertools.product(sections, environ):
        head = f"{ENV_PREFIX}{stage.upper()}_"
        if variable.startswith(head) and variable != VERIFIER_KEY:
            key = variable.removeprefix(head).lower()
            tables.setdefault(stage, {})[key] = environ[variable]
            places.setdefault(stage, {})[key] = f"environment variable {variable}"
    return Config(**{name: _build_section(sections[name], tables[name], places[name]) for name in tables})


def _build_section(section: type, table: Mapping[str, Any], places: Mapping[str, str]) -> Any:  # noqa: ANN401 - one of the dataclasses of settings
    values = convert_table(table, get_type_hints(section, include_extras=True), places)
    try:
        return section(**values)
    # e.g. if two settings of this section contradict each other
    except ConfigError as exc:
        origins = dict.fromkeys(places[key] for key in table)
        raise ConfigError(f"{' and '.join(origins)}: {exc}") from exc


def read_toml(file: Path, what: str) -> dict[str, Any]:
    """Reads the tables of a TOML file. Raises ConfigError, which names the file, if it can't be read."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as exc:
        raise ConfigError(f"{what} {str(file)!r} can't be read ({exc.strerror}); name one that can") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{what} {str(file)!r} is not valid TOML ({exc}); fix it there") from exc


def convert_value(value: object, kind: Any, place: str) -> Any:  # noqa: ANN401 - a type hint, and a value of that type
    """Converts a TOML value or a text to a setting's type. `place` is where it comes from, for errors."""
    if get_origin(kind) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, dict):  # the settings `headers` and `query` may be tables
            items = [f"{name}={text}" for name, text in items.items()]
        if not isinstance(items, list | tuple):
            raise ConfigError(f"{place} is {format_value(value)}; give a list")
        return tuple(convert_value(item, get_args(kind)[0], place) for item in items)
    plain = value.strip() if isinstance(value, str) and kind is not str else value
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)

    def convert_to(each: Any) -> Any:  # noqa: ANN401 - a type hint, and a value of that type
        try:
            return msgspec.convert(
                plain, Finite if each is float else each, strict=not isinstance(plain, str)
            )
        except msgspec.ValidationError as exc:
            where, fault = explain_misfit(
                value,
                exc,
                place=place,
                find_remedy=lambda _: f"give {' or '.join(map(_describe_kind, kinds))}",
                show=lambda *_: _show_setting(value),
            )
            raise ConfigError(f"{where} {fault}") from None

    for each in kinds[:-1]:  # a setting that may be a number or a text: try the number first
        with contextlib.suppress(ConfigError):
            return convert_to(each)
    return convert_to(kinds[-1])


def _show_setting(value: object) -> str:
    return "***" if isinstance(value, str) and _SECRET_PART.search(value) else format_value(value)


# matches what shows that a URL may have a secret: @, ?, #, or a colon that isn't in :// or before a port
_SECRET_PART = re.compile(r"[@?#]|:(?!//|[0-9]+(?:/|$))")
_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "a table"}


def _describe_kind(kind: Any) -> str:  # noqa: ANN401 - a type hint
    """Describes the possible values of a setting."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is not Annotated:
        return _NAMES[kind]
    kind, meta = get_args(kind)
    if meta.description:
        return str(meta.description)
    is_open = meta.le in (None, sys.float_info.max)
    if meta.ge is None:
        return f"{_NAMES[kind]} above {meta.gt:,}" + ("" if is_open else f", up to {meta.le:,}")
    return f"{_NAMES[kind]} from {meta.ge:,} " + ("up" if is_open else f"to {meta.le:,}")


def _check_limits(section: object) -> None:
    """Raises ConfigError if a setting violates its type's constraints."""
    section_type: type = type(section)
    plain, kinds = get_type_hints(section_type), get_type_hints(section_type, include_extras=True)
    for name, kind in kinds.items():
        if kind != plain[name]:
            object.__setattr__(section, name, convert_value(getattr(section, name), kind, name))


def convert_table(
    table: Mapping[str, Any], kinds: Mapping[str, Any], places: Mapping[str, str]
) -> dict[str, Any]:
    """Converts the values of a TOML table to the settings' types. Raises ConfigError for an unknown key.

    `kinds` maps settings to their types. `places` maps them to the file or environment variable that has
    their value, for error messages.
    """
    for key in table:
        if key not in kinds:
            raise ConfigError(f"{places[key]}: unknown setting {key!r}; {_suggest(key, list(kinds))}")
    return {key: convert_value(value, kinds[key], f"{places[key]}: {key}") for key, value in table.items()}


def _suggest(name: str, known: list[str]) -> str:
    """Suggests the most similar known name, or lists all known names."""
    return suggest_name(name, known).strip() or f"known are {', '.join(known)}"


_KEY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # matches a valid name for a client's key
_KEY_TEXT = re.compile(r"[!-~]+")  # matches a valid key: ASCII without spaces
_CLIENT_KEY = re.compile(r"[!-~]{16,}")
_Cap = Annotated[float, Meta(gt=0, le=sys.float_info.max)] | str
_KEY_KINDS = {"key": Any, "key_env": str, "cap": _Cap, "operator": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """A client's key for the gateway: one section in the keys file."""

    name: str
    key: Secret
    cap: float | str | None = setting(None, "on its spending, like the gateway's; None: its key_cap")
    operator: bool = setting(False, "may see the dashboard and metrics, and change the budget")


def read_key(*, env: str = "", file: Path | None = None) -> Secret | None:
    """Reads a key from `file`; if that is None, from the environment variable `env`. None if it isn't set.

    Raises ConfigError, without showing the key, if the file or the key is invalid.
    """
    if file is None:
        text, place = os.environ.get(env, ""), f"environment variable {env}"
    else:
        place = f"key file {str(file)!r}"
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
            raise ConfigError(f"{place} can't be read ({reason}); name one that holds the key alone") from exc
        if not text.strip():
            raise ConfigError(f"{place} is empty; put the key in it, or leave it out")
    text = text.strip()
    if not text:
        return None
    if not _KEY_TEXT.fullmatch(text):  # the message must not show the key
        raise ConfigError(f"{place} holds no key: blanks, line breaks or special characters; give it alone")
    return Secret(text, source=place)


def forget_metrics_folder() -> None:
    """Removes the environment variables by which Prometheus's client would write our metrics to a folder."""
    for name in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"):
        os.environ.pop(name, None)


def read_keys(file: Path) -> tuple[KeyConfig, ...]:
    """Reads the keys of the gateway's clients: one section for each key, named after its owner.

    A section has `key`, or `key_env` with the name of an environment variable. `cap` and `operator` are
    optional.
    """
    keys: dict[Secret, KeyConfig] = {}
    for name, table in read_toml(file, "keys file").items():
        if not isinstance(table, dict):  # the message doesn't show the line, which may contain a key
            raise ConfigError(f"{file}: a line is before the first section; begin with [NAME], then key =")
        key = _read_client_key(f"{file}, [{name}]", name, table)
        if key.key in keys:
            raise ConfigError(f"{file}, [{name}]: has the key of [{keys[key.key].name}]; give it its own")
        keys[key.key] = key
    if not keys:
        raise ConfigError(f'{file}: holds no key; add a section such as [alice] with key = "..."')
    return tuple(keys.values())


def _read_client_key(place: str, name: str, table: dict[str, Any]) -> KeyConfig:
    if not _KEY_NAME.fullmatch(name):
        raise ConfigError(f"{place}: the name of a key is 1 to 64 of A-Z a-z 0-9 _ . -; rename the section")
    values = convert_table(table, _KEY_KINDS, dict.fromkeys(table, place))
    if ("key" in values) == ("key_env" in values):
        raise ConfigError(f"{place}: give either key or key_env, the variable that holds the key")
    source, text = "key", values.pop("key", None)
    if "key_env" in values:
        variable = values.pop("key_env")
        source, text = f"environment variable {variable}", os.environ.get(variable, "").strip()
        if not text:
            raise ConfigError(f"{place}: {source} (key_env) is not set; set it to the key, or give key")
    if not isinstance(text, str) or not _CLIENT_KEY.fullmatch(text):
        raise ConfigError(  # the message must not show the key
            f"{place}: {source} has fewer than 16 characters, or blanks or special characters; "
            "make one with `openssl rand -hex 24`"
        )
    return KeyConfig(name=name, key=Secret(text), **values)


def read_ray_address() -> str | None:
    """Reads the Ray cluster's address from RAY_ADDRESS, if set. Also turns off Ray's usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return os.environ.get("RAY_ADDRESS", "").strip() or None
