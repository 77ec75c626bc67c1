"""A request: validated fields, gateway options, and its route.

This file has, in order: the records `RequestOptions`, `ChatRequest` and `Route`; validated fields; messages;
options; `build_request`, which combines them; `choose_route`.

Fields go upstream unchanged, even unknown ones, except `model` and those in `_GATEWAY_FIELDS`. A null field
counts as absent.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
import orjson
from msgspec import Meta

from adacompute.answers.equal import EXTRACTORS
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.config import EVERY_MODE, ServeConfig, parse_serve_budgets
from adacompute.errors import BudgetInvalid, RequestInvalid, explain_misfit, format_value
from adacompute.policies.features import PROMPT_LIMIT
from adacompute.records import Budget, BudgetUnit, quick_dataclass
from adacompute.serve.messages.trace_context import TRACE_PARENT, read_trace_headers
from adacompute.serve.pricing.policy_registry import SINGLE

Body = dict[str, Any]
Mode = Literal["adaptive", "shadow", "pass"]
ToolUse = Literal["", "may", "must"]
T = TypeVar("T")

_Text = Annotated[str, Meta(min_length=1, max_length=200)]
_Texts = Annotated[tuple[_Text, ...], Meta(max_length=32)]
_MAX_PATTERN = 300  # maximum length of a client's regular expression, in characters
_EXTRACT = rf"(?s)\A(?:none|{'|'.join(EXTRACTORS)}|json:.{{1,200}}|regex:.{{1,{_MAX_PATTERN}}})\Z"


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A request's gateway options; empty values mean the operator's settings."""

    budget: Any = None  # average cost as the client gives it: a number of samples, or a text with a unit
    policy: _Text = ""  # name of the policy
    mode: Literal["pass"] | None = None  # "pass": answers without a vote
    deadline: Annotated[float, Meta(gt=0)] | None = None  # time limit for the request, in seconds
    # how to read answers, as in `Task.extract`, or "none" for no vote; a regex is compiled in another process
    extract: Annotated[str, Meta(pattern=_EXTRACT)] = ""
    exclude: _Texts = ()  # names of JSON fields and tool arguments to ignore when answers are compared
    fields: _Texts = ()  # names of the only JSON fields to compare; () for all fields
    stream_mode: Literal["wait", "first"] | None = None  # wait for the vote, or stream the first sample now
    modes: _Texts = ()  # names of the modes that may be used; () for all modes
    events: bool = False  # whether to stream samples and decisions as events


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A validated chat completion request."""

    # The body to send upstream, without n, stream, stream_options and adacompute. `model` is without @BUDGET.
    body: Mapping[str, Any] = field(hash=False, repr=False)
    prompt: str = field(default="", repr=False)  # the last user message's text, which policies may use
    n: int = 1
    stream: bool = False
    include_usage: bool = False  # whether the client wants usage in its stream
    logprobs: bool = False  # whether the client wants log-probabilities
    budget: float | None = None  # the budget given in the model's name, as in NAME@2.5
    max_tokens: int = 0  # token limit per response: the client's, or else the operator's
    has_token_limit: bool = False  # whether the client gave a token limit
    prompt_tokens: int = 0  # upper bound of the prompt's tokens, for any tokenizer
    json: bool = False  # whether the client requests JSON
    tools: ToolUse = ""  # whether the reply may or must call tools
    no_vote_reason: str = ""  # why no vote is possible, e.g. "temperature is 0"; "": a vote is possible
    options: RequestOptions = field(default=RequestOptions())
    # the client's request, if it was translated from another route's format
    original: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How to serve a request, decided before any sample is drawn."""

    key: str  # name of the client's key; "anonymous" if the gateway has no keys
    policy: str  # name of the policy
    budget: float  # average cost per request
    unit: BudgetUnit = "samples"  # unit of the budget
    mode: Mode = "adaptive"
    modes: tuple[str, ...] = ()  # modes that may be used, cheapest first; () for all modes
    deadline: float  # time limit for the request, in seconds
    notes: tuple[str, ...] = ()  # messages to the client, e.g. that its budget was limited
    trace: Mapping[str, str] | None = field(default=None, hash=False)  # trace headers to send upstream

    @property
    def is_single(self) -> bool:
        """Whether the budget is one sample, which leaves nothing to decide."""
        return self.unit == "samples" and self.budget <= 1


_Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
_CONTENT_OPTIONAL = ("assistant", "function")  # roles whose messages may lack text
_JSON_TYPES = ("json_object", "json_schema")  # types of response_format that ask for JSON
_TEXT_KINDS = ("text", "refusal")  # types of message parts with a text, whose field is named like the type


class _Part(msgspec.Struct):
    """Part of a message's content."""

    type: str
    text: Any = None
    refusal: Any = None

    def __post_init__(self) -> None:
        if self.type in _TEXT_KINDS and not isinstance(getattr(self, self.type), str):
            raise ValueError(f"field `{self.type}`")


class _Message(msgspec.Struct):
    role: _Role
    content: str | list[_Part] | None = None

    def __post_init__(self) -> None:
        if self.content is None and self.role not in _CONTENT_OPTIONAL:
            raise ValueError("field `content`")


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _ResponseFormat(msgspec.Struct):
    type: str | None = None


class _ChatFields(msgspec.Struct):
    """The validated fields of a chat request. Fields with type None aren't supported: they must be null."""

    messages: Annotated[list[_Message], Meta(min_length=1)]
    model: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: _ResponseFormat | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    modalities: tuple[Literal["text"]] | None = None
    guided_json: Any = None  # some servers' name for the reply's JSON schema
    json_schema: Any = None  # other servers' name for the reply's JSON schema
    audio: None = None
    prompt: None = None
    suffix: None = None
    echo: None = None
    best_of: None = None

    @property
    def asks_for_json(self) -> bool:
        """Whether the reply should be JSON."""
        kind = None if self.response_format is None else self.response_format.type
        return kind in _JSON_TYPES or self.guided_json is not None or self.json_schema is not None


_REMEDIES = {  # map: name of an invalid field -> what the client can do about it
    "messages": "give a list of at least one",
    "messages[]": "give an object with role and content",
    "messages[].role": f"give one of {', '.join(get_args(_Role))}",
    "messages[].content": "give a text or a list of parts",
    "messages[].content[]": "give an object with a type, such as text",
    "messages[].content[].type": "give one, such as text",
    "temperature": "give a number from 0 to 2",
    "top_p": "give a number from 0 to 1",
    "seed": "give a whole number",
    "top_logprobs": "give a whole number from 0 to 20",
    "response_format.type": "give text, json_object or json_schema",
    "audio": "leave it out: it is not supported as a response",
    **dict.fromkeys(("model", *(f"messages[].content[].{kind}" for kind in _TEXT_KINDS)), "give a text"),
    **dict.fromkeys(("stream", "logprobs", "stream_options.include_usage"), "give true or false"),
    **dict.fromkeys(("stream_options", "response_format"), "give an object"),
    **dict.fromkeys(("tools", "functions"), "give a list"),
    **dict.fromkeys(("modalities", "modalities[]"), 'leave it out: only ["text"] is supported'),
    **dict.fromkeys(
        ("prompt", "suffix", "echo", "best_of"), "give messages: the older completions API is not supported"
    ),
}
_QUOTED_FIELDS = ("messages[].role", "modalities[]")  # fields whose values error messages may quote
_TYPE_WORDS: Mapping[type, str] = {str: "a text", list: "a list", dict: "an object"}


def _convert(value: object, kind: type[T], remedies: Mapping[str, str], places: Mapping[str, str]) -> T:
    """Converts a JSON value to a struct; raises RequestInvalid with the field, its fault and the remedy.

    `places` maps each option to the header or field that errors name. With {} (for a chat's body), errors
    don't quote texts, which may be private.
    """

    def show(place: str, part: object) -> str:
        is_word = isinstance(part, str) and place in _QUOTED_FIELDS
        return format_value(part) if places or is_word else _describe_value(part)

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        place, fault = explain_misfit(value, exc, find_remedy=remedies.__getitem__, show=show)
        name = re.split(r"\W", place, maxsplit=1)[0]
        param = places.get(name, name) + place[len(name) :]
        raise RequestInvalid(f"{param} {fault}", param=param) from None


def _describe_value(value: object) -> str:
    """Describes a value without quoting strings, which may be long or private."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if value == []:
        return "an empty list"
    return str(value) if isinstance(value, int | float) else _TYPE_WORDS[type(value)]


MEDIA_TOKENS = 8192  # tokens assumed for an image, recording or file

_MEDIA_TYPES = (
    *("image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "file", "input_file"),
)
# numbers of tokens that a chat template may add: per message, per prompt, and if there are tools
_MESSAGE_TOKENS, _PROMPT_TOKENS, _TOOLS_TOKENS = 16, 64, 256
# `messages`, whose tokens are counted separately, and fields that no chat template reads
_UNREAD_FIELDS = frozenset(("messages", "model", "logit_bias", "metadata", "stop", "user"))
_READ_TYPES = (str, list, dict)  # types of field values that a chat template may put into the prompt
_MESSAGE_FIELDS = frozenset(("role", "content"))  # the usual fields of a message


def _read_prompt(messages: Sequence[Mapping[str, Any]]) -> str:
    """The last user message's text for policies; "" if there is none."""
    for message in reversed(messages):
        if message["role"] == "user":
            content = message["content"]
            if isinstance(content, str):
                return content[:PROMPT_LIMIT]
            texts = [part[part["type"]] for part in content if part["type"] in _TEXT_KINDS]
            return "\n".join(texts)[:PROMPT_LIMIT]
    return ""


def _bound_prompt_tokens(body: Mapping[str, Any]) -> int:
    """An upper bound for the prompt tokens of a validated request, for any byte-based tokenizer.

    Counts all fields that a chat template may put into the prompt. The tokens of images, recordings and files
    are only guessed.
    """
    total = _PROMPT_TOKENS + sum(map(_bound_message_tokens, body["messages"]))
    for name, value in body.items():
        if name not in _UNREAD_FIELDS and isinstance(value, _READ_TYPES):
            total += len(orjson.dumps(value))
    return total + (_TOOLS_TOKENS if body.get("tools") or body.get("functions") else 0)


def _bound_message_tokens(message: Mapping[str, Any]) -> int:
    rest = {name: value for name, value in message.items() if name not in _MESSAGE_FIELDS}
    total = _MESSAGE_TOKENS + (len(orjson.dumps(rest)) if rest else 0)
    content = message.get("content")
    if isinstance(content, list):
        return total + sum(map(_bound_part_tokens, content))
    return total + len((content or "").encode())


def _bound_part_tokens(part: Mapping[str, Any]) -> int:
    kind = part["type"]
    if kind in _TEXT_KINDS:
        return len(part[kind].encode()) + 1  # one more, for the line break between two parts
    return MEDIA_TOKENS if kind in _MEDIA_TYPES else max(MEDIA_TOKENS, len(orjson.dumps(part)))


OPTIONS_FIELD = "adacompute"  # field of a body with gateway options; it isn't sent upstream
_HEADER_PREFIX = "x-adacompute-"
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_OPTION_REMEDIES = {
    "policy": "give the name of a policy",
    "mode": "only pass is allowed",
    "deadline": "give seconds above 0",
    "extract": f"give {', '.join(EXTRACTORS)}, json:FIELD, regex:PATTERN (at most {_MAX_PATTERN} characters) "
    "or none",
    "stream_mode": "give wait or first",
    "events": "give true or false",
    **dict.fromkeys(("exclude", "fields", "modes"), "give a list of at most 32 names"),
    **dict.fromkeys(("exclude[]", "fields[]", "modes[]"), "give a name of 1 to 200 characters"),
}


def get_header(name: str) -> str:
    """Returns the name of the header for an option."""
    return _HEADER_PREFIX + name.replace("_", "-")


_NO_OPTIONS = RequestOptions()
_KNOWN_OPTIONS = ", ".join(RequestOptions.__struct_fields__)
_HEADERS = {get_header(name): name for name in RequestOptions.__struct_fields__}


def read_options(value: object, headers: Mapping[str, str]) -> RequestOptions:
    """Reads the options in a body's field and in headers; raises RequestInvalid if one is unknown or invalid.

    Names in `headers` are lower case. An option in a header overrides the body's. Null is treated as absent.
    """
    given, places = _read_body_options(value), {}
    for header, text in headers.items():
        if header.startswith(_HEADER_PREFIX):
            name = _HEADERS.get(header)
            if name is None:
                raise RequestInvalid(
                    f"the header {header[:60]!r} is not known; known are {', '.join(_HEADERS)}",
                    param=header[:60],
                )
            if name in places:  # some header mappings list a repeated header several times
                raise RequestInvalid(f"the header {header} is given twice; give it once", param=header)
            given[name], places[name] = _parse_header(name, text.strip()), header
    if not given:
        return _NO_OPTIONS
    names = {name: f"{OPTIONS_FIELD}.{name}" for name in given} | places
    options = _convert(given, RequestOptions, _OPTION_REMEDIES, names)
    if options.fields and options.extract.startswith("json:"):
        raise RequestInvalid(
            f"extract is {options.extract[:60]!r}, and fields are given too; give one of them", param="fields"
        )
    return options


def _read_body_options(value: object) -> Body:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestInvalid(
            f"{OPTIONS_FIELD} is {format_value(value)}; give an object with any of {_KNOWN_OPTIONS}",
            param=OPTIONS_FIELD,
        )
    for name in value:
        if name not in RequestOptions.__struct_fields__:
            place = f"{OPTIONS_FIELD}.{name[:60]}"
            raise RequestInvalid(f"{place} is not known; known are {_KNOWN_OPTIONS}", param=place)
    return {name: option for name, option in value.items() if option is not None}


def _parse_header(name: str, text: str) -> object:
    """Converts a header's text to the value that a body would have."""
    if name in ("budget", "deadline"):  # `float` would also accept nan, 1_000 and digits of other scripts
        return float(text) if _DECIMAL.fullmatch(text) else text
    if name == "events":
        return {"true": True, "false": False}.get(text.lower(), text)
    if name in ("exclude", "fields", "modes"):
        return [part.strip() for part in text.split(",")]
    return text


_GATEWAY_FIELDS = ("n", "stream", "stream_options", OPTIONS_FIELD)  # fields that aren't sent upstream
_DEFAULT_MODEL_NAMES = ("", "default", EVERY_MODE)  # the operator chooses what these names stand for
_MODEL_WITH_BUDGET = re.compile(r"(.*)@([0-9]{1,4}(?:\.[0-9]+)?)", re.DOTALL)
_MAX_BUDGET = 1000.0  # highest budget after a model's @; a larger number, such as a year, is part of the name
_MAX_MODEL_NAME = 1000  # maximum length of a model's name, in characters
_MAX_LISTED = 8  # maximum number of models named in an error message
# some servers' names for max_tokens; servers that don't know these names would ignore the limit
_FOREIGN_TOKEN_LIMITS = ("max_new_tokens", "max_output_tokens", "max_gen_len", "n_predict", "num_predict")
_FOREIGN_N_FIELDS = ("n_cmpl", "num_return_sequences")  # some servers' names for n
_COUNT_FIELDS = frozenset(("n", "best_of", *_FOREIGN_N_FIELDS, *_FOREIGN_TOKEN_LIMITS, *LIMIT_NAMES))
# fields that determine the cost
COSTLY_FIELDS = _COUNT_FIELDS | {"model", "prompt", "prompt_embeds", "background"}


def build_request(
    original: Body,
    *,
    settings: ServeConfig,
    headers: Mapping[str, str] = MappingProxyType({}),
    default_model: str = "",
    known_models: Collection[str] = (),
    translate: Callable[[Body], Body] | None = None,
) -> ChatRequest:
    """Parses a body into a request; raises RequestInvalid if it is invalid.

    Names in `headers` are lower case. `default_model` replaces a model that is missing, "default" or
    "adacompute". `known_models` are the upstream's; any other name may end in a budget, such as @2.5.
    `translate` converts a body from another route's format to a chat's.
    """
    check_field_names(original, original.get("extra_body"))
    body = original if translate is None else translate(original)
    fields = _convert(body, _ChatFields, _REMEDIES, {})
    _check_together(fields, body, settings)
    check_sample_fields(body, LIMIT_NAMES, settings, least=1)
    name, budget = split_model(body, default_model, known_models)
    limits = [limit for field in LIMIT_NAMES if (limit := body.get(field)) is not None]
    upstream_body = {field: value for field, value in body.items() if field not in _GATEWAY_FIELDS}
    upstream_body["model"] = name
    n, streams = body.get("n") or 1, fields.stream_options
    options = read_options(body.get(OPTIONS_FIELD), headers)
    if options.events and (not fields.stream or translate is not None):
        place = _find_place("events", headers)
        raise RequestInvalid(
            f"{place}: only the stream of a chat completion has events; give stream: true, or leave it out",
            param=place,
        )
    return ChatRequest(
        body=upstream_body,
        prompt=_read_prompt(body["messages"]),
        n=n,
        stream=bool(fields.stream),
        include_usage=streams is not None and bool(streams.include_usage),
        logprobs=bool(fields.logprobs),
        budget=budget,
        max_tokens=max(limits, default=settings.max_tokens),
        has_token_limit=bool(limits),
        prompt_tokens=_bound_prompt_tokens(upstream_body),
        json=fields.asks_for_json,
        tools=_find_tool_use(body),
        no_vote_reason=_find_no_vote_reason(n, fields.temperature),
        options=options,
        original=None if translate is None else original,
    )


def check_field_names(names: Iterable[str], extra: object = None) -> None:
    """Raises RequestInvalid for a name like `N`: some servers read it as `n`, which affects the cost.

    `extra` is the value of the field `extra_body`, whose fields some servers add to the body.
    """
    for name in extra if isinstance(extra, dict) else ():
        if name.casefold() in COSTLY_FIELDS or name == "extra_body":
            place = f"extra_body.{name[:60]}"
            raise RequestInvalid(f"{place} is not supported; give {name[:60]} beside extra_body", param=place)
    for name in names:
        if name not in COSTLY_FIELDS and (known := name.casefold()) in COSTLY_FIELDS:
            raise RequestInvalid(
                f"{name!r} means {known!r} to some servers, not to others; give {known!r}", param=name
            )


def _check_together(fields: _ChatFields, body: Body, settings: ServeConfig) -> None:
    """Raises RequestInvalid for fields that contradict each other or the operator's settings."""
    if (count := len(fields.messages)) > settings.max_messages:
        raise RequestInvalid(
            f"there are {count} messages; give at most {settings.max_messages}, or ask the operator for a "
            "larger max_messages",
            param="messages",
        )
    options = body.get("stream_options") or {}
    if options and not fields.stream:
        raise RequestInvalid(
            "stream_options are given without stream; leave them out, or give stream: true",
            param="stream_options",
        )
    for name, value in options.items():
        # include_obfuscation pads chunks against eavesdroppers. The gateway never pads, so false is accepted
        harmless = value is None or (name == "include_obfuscation" and value is False)
        if name != "include_usage" and not harmless:
            raise RequestInvalid(
                f"stream_options.{name[:60]} is not supported; leave it out", param="stream_options"
            )
    if fields.top_logprobs is not None and not fields.logprobs:
        raise RequestInvalid("top_logprobs needs logprobs: true; give both or none", param="top_logprobs")
    form = fields.response_format
    if form is not None and form.type is None and body["response_format"]:
        raise RequestInvalid(
            f"response_format has no type; {_REMEDIES['response_format.type']}", param="response_format"
        )


def check_sample_fields(
    body: Mapping[str, Any], limits: Sequence[str], settings: ServeConfig, *, least: int = 0
) -> None:
    """Raises RequestInvalid if a number of choices or tokens is out of range, or its field isn't supported.

    `limits` are the route's names for the token limit per response; `least` is the lowest limit allowed.
    Other names for it are refused, because only some servers know them.
    """
    for name, value in body.items():
        if name not in _COUNT_FIELDS or value is None:
            continue
        if name in ("n", "best_of"):
            _check_count(body, name, 1, settings.max_n, "max_n")
        elif name in limits:
            _check_count(body, name, least, settings.max_tokens, "max_tokens")
        else:
            remedy = "n" if name in _FOREIGN_N_FIELDS else limits[0]
            raise RequestInvalid(f"{name} is not supported; give {remedy}", param=name)


def _check_count(body: Mapping[str, Any], name: str, low: int, high: int, setting: str) -> None:
    """Raises RequestInvalid unless a field is an integer within limits; `setting` names the upper limit."""
    value = body[name]
    if type(value) is int and low <= value <= high:
        return
    is_above = type(value) is int and value > high
    remedy = f", or ask the operator for a larger {setting}" if is_above else ""
    raise RequestInvalid(
        f"{name} is {_describe_value(value)}; give a whole number from {low} to {high}{remedy}", param=name
    )


def split_model(body: Body, default: str, known_models: Collection[str] = ()) -> tuple[str, float | None]:
    """Splits a model's name into the name itself and the budget after its @; the budget is None without one.

    >>> split_model({"model": "qwen@2.5"}, ""), split_model({"model": "gpt@20240229"}, "")
    (('qwen', 2.5), ('gpt@20240229', None))
    """
    name = "" if body.get("model") is None else body["model"]
    if not isinstance(name, str):
        raise RequestInvalid(f"model is {_describe_value(name)}; {_REMEDIES['model']}", param="model")
    if len(name) > _MAX_MODEL_NAME:
        raise RequestInvalid(
            f"model is a name of {len(name)} characters; name one that GET /v1/models lists", param="model"
        )
    budget = None
    match = None if name in known_models else _MODEL_WITH_BUDGET.fullmatch(name)
    if match is not None and float(match[2]) < 1.0:
        raise RequestInvalid(f"model {name[:100]!r} asks for a budget below 1; give 1 or more", param="model")
    if match is not None and float(match[2]) <= _MAX_BUDGET:
        name, budget = match[1], float(match[2])
    is_unnamed = name in _DEFAULT_MODEL_NAMES
    if is_unnamed and default:
        name = default
    elif not name or (is_unnamed and known_models and name not in known_models):
        problem = f"model {name!r} names none" if name else "model is missing"
        models = ", ".join([known[:60] for known in known_models][:_MAX_LISTED])
        raise RequestInvalid(
            f"{problem}; give one that GET /v1/models lists{models and f', such as {models}'}, "
            "or start the gateway with --model NAME",
            status=404 if name else 400,
            code="model_not_found",
            param="model",
        )
    return name, budget


def _find_tool_use(body: Body) -> ToolUse:
    if not body.get("tools") and not body.get("functions"):
        return ""
    choice = body.get("tool_choice", body.get("function_call"))
    if choice == "none":
        return ""
    return "may" if choice in (None, "auto") else "must"


def _find_no_vote_reason(n: int, temperature: float | None) -> str:
    """Says why no vote is possible; "" if one is."""
    if n > 1:
        return f"n is {n}: the client samples by itself"
    return "temperature is 0: every sample would be the same" if temperature == 0 else ""


# clients' budgets in samples are rounded to multiples of this: each budget's price must be learnt
_BUDGET_STEP = 0.25
_BUDGET_DIGITS = 2  # significant digits to which clients' budgets in tokens or money are rounded
_MAX_BUDGET_TEXT = 60  # maximum length of a budget, in characters
_DEFAULT_MAX_SAMPLES = 16.0  # highest budget in samples if `budget` and `max_budget` are in other units
# if `max_budget` isn't in the unit of `budget`: highest multiple of `budget` that clients may ask for
_MAX_FACTOR = 8.0
_BARE_NUMBER = re.compile(r"[0-9.,_eE+ -]*")


def choose_route(
    request: ChatRequest,
    headers: Mapping[str, str],
    *,
    settings: ServeConfig,
    budget: Budget,
    key: str,
    policies: Collection[str],
    default: str,
    modes: Sequence[str] = (),
) -> Route:
    """Chooses the route of a request; raises RequestInvalid if a gateway option isn't possible here.

    `headers` (names in lower case) give the trace context; their options are already in the request. `budget`
    is the gateway's budget; `default` is the policy for requests that name none; `modes` are the gateway's
    modes, cheapest first.
    """
    options = request.options
    notes: list[str] = []
    if options.policy and options.policy not in policies:
        place = _find_place("policy", headers)
        raise RequestInvalid(
            f"{place} is {options.policy[:60]!r}; give one of {', '.join(sorted(policies))}", param=place
        )
    chosen = _choose_modes(request, headers, modes, notes)
    wanted = request.budget if options.budget is None else options.budget
    if wanted is not None:
        budget = _choose_budget(wanted, settings, notes, _find_place("budget", headers))
    if len(modes) > 1 and budget.unit == "samples":
        raise RequestInvalid(
            f"a budget of {budget} can't be kept over several modes, which differ in cost; "
            "give it in money, e.g. '0.002 USD', or in tokens",
            param=f"{OPTIONS_FIELD}.budget",
        )
    deadline = settings.deadline if options.deadline is None else options.deadline
    if deadline > settings.deadline:
        notes.append(f"deadline {deadline:g} s is above the limit: it is {settings.deadline:g} s")
    policy = options.policy or default
    is_passed = policy == SINGLE or (len(modes) > 1 and len(chosen) == 1)
    return Route(
        key=key,
        policy=policy,
        budget=budget.amount,
        unit=budget.unit,
        mode="pass" if is_passed else options.mode or settings.mode,
        modes=chosen,
        deadline=min(deadline, settings.deadline),
        notes=tuple(notes),
        trace=read_trace_headers(headers) if TRACE_PARENT in headers else None,
    )


def _find_place(name: str, headers: Mapping[str, str]) -> str:
    """Returns the header or the field of the body in which an option was given."""
    return header if (header := get_header(name)) in headers else f"{OPTIONS_FIELD}.{name}"


def _choose_modes(
    request: ChatRequest, headers: Mapping[str, str], modes: Sequence[str], notes: list[str]
) -> tuple[str, ...]:
    """Returns the modes that a request names, as an option or as its model; (): all."""
    wanted, model = request.options.modes, request.body.get("model")
    if not wanted and not modes:
        return ()
    if unknown := [name for name in wanted if name not in modes]:
        place = _find_place("modes", headers)
        if not modes:
            raise RequestInvalid(f"{place}: this gateway has no modes; leave it out", param=place)
        raise RequestInvalid(f"{place} has {unknown[0][:60]!r}; give some of {', '.join(modes)}", param=place)
    if not wanted and model in modes:
        return (str(model),)
    if len(modes) > 1 and model not in (*modes, EVERY_MODE):
        notes.append(f"model {str(model)[:60]!r} is not a mode; the policy decides")
    return tuple(name for name in modes if name in wanted)


def _choose_budget(wanted: object, settings: ServeConfig, notes: list[str], place: str) -> Budget:
    """Returns the client's requested budget, limited by the operator's settings and rounded."""
    limits = list_max_budgets(settings)
    budget = _read_budget(wanted, limits)
    if budget is None:
        samples, *others = limits.values()
        texts = "".join(f", or up to '{limit}'" for limit in others)
        remedy = f"give the samples on average, from 1 to {samples.amount:g}{texts}"
        raise RequestInvalid(f"{place} is {format_value(wanted)}; {remedy}", param=place)
    most = limits[budget.unit]
    if budget.amount > most.amount:
        notes.append(f"budget {_format_budget(budget)} is above the limit: it is {_format_budget(most)}")
        return most
    if budget in (parse_serve_budgets(settings)[0], most):
        return budget
    if budget.unit == "samples":
        amount = max(1.0, round(budget.amount / _BUDGET_STEP) * _BUDGET_STEP)
    else:
        amount = float(f"{budget.amount:.{_BUDGET_DIGITS}g}")
    served = Budget(min(amount, most.amount), budget.unit, budget.currency)
    if served != budget:
        notes.append(f"budget {_format_budget(budget)} is served as {_format_budget(served)}")
    return served


def list_max_budgets(settings: ServeConfig) -> dict[BudgetUnit, Budget]:
    """Lists the highest budget that a request may name in each allowed unit; samples come first.

    In the unit of the setting `max_budget`, it is `max_budget`. In the unit of `budget`, if that is another
    one, it is 8 times `budget`. In samples, if neither setting is in samples, it is 16.
    """
    own, most = parse_serve_budgets(settings)
    return {
        "samples": Budget(_DEFAULT_MAX_SAMPLES),
        own.unit: Budget(own.amount * _MAX_FACTOR, own.unit, own.currency),
        most.unit: most,
    }


def _read_budget(wanted: Any, limits: Mapping[BudgetUnit, Budget]) -> Budget | None:  # noqa: ANN401 - JSON data
    """Reads a client's budget; None if it is invalid, in a unit that isn't allowed, or below one sample."""
    is_text = isinstance(wanted, str) and len(wanted) <= _MAX_BUDGET_TEXT
    if type(wanted) not in (int, float) and (not is_text or _BARE_NUMBER.fullmatch(str(wanted))):
        return None  # a text needs a unit: in a header, `_parse_header` has already made "3" a number
    try:
        currency = limits["money"].currency if "money" in limits else None
        budget = Budget.parse(wanted, currency=currency) if isinstance(wanted, str) else Budget(float(wanted))
    except BudgetInvalid:
        return None
    has_limit = budget.unit in limits and (budget.unit != "samples" or budget.amount >= 1)
    return budget if has_limit else None


def _format_budget(budget: Budget) -> str:
    """Formats a budget for a message to the client; a budget in samples is a number without a unit."""
    return f"{budget.amount:g}" if budget.unit == "samples" else str(budget)
