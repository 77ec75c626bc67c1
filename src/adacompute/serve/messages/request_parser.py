"""Reading a request: whose key it carries, its body within limits, its fields checked, and its route.

In this order: the records `ChatRequest` and `Route`; keys; the body; messages; `choose_route`, which follows
what the request asks of the gateway itself (request_options.py); `parse_request`, which reads the fields.

Fields that are not taken out for a reason stated here go upstream as they came, also unknown ones.
A field that is null counts as absent.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import orjson

from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.config import MENU_MODEL, KeyConfig, ServeConfig, parse_serve_budgets
from adacompute.errors import RequestInvalid, Unauthorized
from adacompute.policies.features import PROMPT_LIMIT
from adacompute.records import Budget, BudgetUnit, Secret, quick_dataclass
from adacompute.serve.messages.request_options import (
    NO_OPTIONS,
    OPTIONS_FIELD,
    RequestOptions,
    add_header_options,
    find_max_budget,
    get_header,
    read_body_options,
)
from adacompute.serve.messages.trace_context import TRACE_PARENT, read_trace_headers
from adacompute.serve.pricing.policy_registry import SINGLE

__all__ = [
    "COSTLY_FIELDS",
    "MEDIA_TOKENS",
    "ChatRequest",
    "ClientDisconnected",
    "Key",
    "Keys",
    "Mode",
    "Route",
    "check_content_encoding",
    "check_content_length",
    "check_content_type",
    "check_field_names",
    "check_sample_fields",
    "choose_route",
    "make_too_long_error",
    "parse_request",
    "read_body",
    "split_model",
]

Mode = Literal["adaptive", "shadow", "pass"]
ToolUse = Literal["", "may", "must"]


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request for a chat completion, checked."""

    body: Mapping[str, Any] = field(hash=False, repr=False)
    # ^ what goes upstream: all but n, stream, stream_options, adacompute and the budget in a model's name
    prompt: str = field(default="", repr=False)  # what policies read: the last user message's text
    n: int = 1
    stream: bool = False
    include_usage: bool = False  # the client wants usage in its stream
    logprobs: bool = False  # the client wants log-probabilities
    budget: float | None = None  # given in the model's name, as in NAME@2.5
    max_tokens: int = 0  # limit of one response: the client's, or the operator's if it gave none
    has_token_limit: bool = False  # whether the client itself gave a limit
    prompt_tokens: int = 0  # upper bound, whatever the tokenizer
    json: bool = False  # the client asks for JSON
    tools: ToolUse = ""  # whether the reply may, or must, call tools
    no_vote_reason: str = ""  # why there can be no vote, e.g. "temperature is 0"; "": there may be one
    options: RequestOptions = field(default_factory=RequestOptions)  # what it asks of the gateway itself
    original: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    # ^ the request as it came, if it was translated from another route's shape


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a request is served: decided before anything is drawn."""

    key: str  # the name of the client's key; "anonymous" where there are none
    policy: str  # its name
    budget: float  # on average
    unit: BudgetUnit = "samples"  # of the budget
    mode: Mode = "adaptive"
    modes: tuple[str, ...] = ()  # of the menu that may be drawn from, cheapest first; (): all
    deadline: float  # seconds from now
    notes: tuple[str, ...] = ()  # for the client, e.g. that its budget was clamped
    trace: Mapping[str, str] | None = field(default=None, hash=False)  # headers that go upstream with it

    @property
    def is_single(self) -> bool:
        """Whether its budget is one sample, so that there is nothing to decide."""
        return self.unit == "samples" and self.budget <= 1


_REMEDY = "give it as Authorization: Bearer KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One client's key."""

    name: str
    secret: Secret
    cap: float | str | None = None  # on its spending; None: the common cap of keys
    operator: bool = False  # may see metrics and the dashboard, and change the budget


class Keys:
    """All known keys. The time of a look-up doesn't reveal how much of a key was right."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = [(_hash_secret(key.secret.reveal()), key) for key in keys]

    @classmethod
    def from_config(cls, configs: Iterable[KeyConfig]) -> Self:
        """Of settings, as `config.read_keys` returns them."""
        return cls(
            [
                Key(name=config.name, secret=config.key, cap=config.cap, operator=config.operator)
                for config in configs
            ]
        )

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter([key for _, key in self._keys])

    def identify(self, authorization: str | None) -> Key | None:
        """The key in an Authorization header; None if the gateway has no keys at all.

        The header is `Bearer KEY`, or `Basic` with any user and the key as password. Unauthorized if the
        key is missing or unknown.
        """
        if not self._keys:
            return None
        if not authorization:
            raise Unauthorized(f"the request has no key; {_REMEDY}")
        presented = _hash_secret(_read_secret(authorization))
        match = None
        for digest, key in self._keys:  # all of them: where it stops would reveal which key it was
            if hmac.compare_digest(digest, presented):
                match = key
        if match is None:
            raise Unauthorized(f"the key in the request is not known; {_REMEDY}")
        return match


def _hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read_secret(authorization: str) -> str:
    """The key in a header's value."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            raise Unauthorized(f"the request's Basic authorization can't be read; {_REMEDY}") from None
    raise Unauthorized(f"the request's authorization is neither Bearer nor Basic; {_REMEDY}")


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]  # ASGI's

_MAX_LENGTH_DIGITS = 15  # of Content-Length; a longer number exceeds every limit


class ClientDisconnected(Exception):
    """The client disconnected before its request was read or answered."""


def check_content_length(headers: Mapping[str, str], limit: int, setting: str = "max_body") -> None:
    """RequestInvalid with status 413 if Content-Length exceeds `limit` bytes, which `setting` allows.

    Names in `headers` are in lower case.
    """
    text = headers.get("content-length")
    if text is None:
        return
    if not (text.isascii() and text.isdigit()):
        raise RequestInvalid(f"Content-Length is {text[:60]!r}; give the number of bytes in the body")
    digits = text.lstrip("0")
    if len(digits) > _MAX_LENGTH_DIGITS or int(digits or "0") > limit:
        raise make_too_long_error(limit, setting)


def check_content_type(headers: Mapping[str, str]) -> None:
    """RequestInvalid with status 415 if the body isn't declared as plain JSON.

    Pages of other sites can make a browser send any content type but this without a preflight request.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestInvalid(
            f"Content-Type is {kind[:60]!r}; send JSON, and say so: application/json",
            status=415,
            code="unsupported_media_type",
        )
    check_content_encoding(headers)


def check_content_encoding(headers: Mapping[str, str]) -> None:
    """RequestInvalid with status 415 if the body is compressed."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestInvalid(
            f"Content-Encoding is {encoding[:60]!r}; send the body uncompressed",
            status=415,
            code="unsupported_media_type",
        )


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    *,
    limit: int,
    on_part: Callable[[int], None] | None = None,
) -> bytes:
    """The whole body, of at most `limit` bytes; a longer one is refused before it is in memory.

    `on_part` is called with the bytes of each part, and may raise.

    RequestInvalid as in `check_content_length`; ClientDisconnected if the client disconnects meanwhile.
    """
    check_content_length(headers, limit)
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise make_too_long_error(limit)
        if chunk:  # empty ones take memory too, and there can be any number of them
            if on_part is not None:
                on_part(len(chunk))
            parts.append(chunk)
        if not event.get("more_body", False):
            return b"".join(parts)


def make_too_long_error(limit: int, setting: str = "max_body") -> RequestInvalid:
    """The error for a body of more bytes than a setting allows."""
    return RequestInvalid(
        f"the body is longer than {limit} bytes; send a shorter one, or ask the operator for a larger "
        f"{setting}",
        status=413,
        code="request_too_large",
    )


MEDIA_TOKENS = 8192  # tokens counted for an image, a recording or a file

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_CONTENT_OPTIONAL = ("assistant", "function")  # tool calls come without a text
_TEXT_FIELDS = {"text": "text", "refusal": "refusal"}  # kinds of parts, and where their text is
_MEDIA_TYPES = (
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio_url",
    "video_url",
    "file",
    "input_file",
)
_MESSAGE_TOKENS, _PROMPT_TOKENS, _TOOLS_TOKENS = 16, 64, 256  # tokens that a model's template may add
_UNREAD_FIELDS = frozenset(("messages", "model", "logit_bias", "metadata", "stop", "user"))  # by any model
_READ_TYPES = (str, list, dict)  # of other fields, which a template may put into the prompt
_MESSAGE_FIELDS = frozenset(("role", "content"))  # of most messages


def check_messages(messages: object, *, max_messages: int) -> None:
    """RequestInvalid if these are no messages, or too many."""
    if not isinstance(messages, list):
        problem = "are missing" if messages is None else f"is {_describe_kind(messages)}"
        raise RequestInvalid(f"messages {problem}; give a list of at least one", param="messages")
    if not messages:
        raise RequestInvalid("messages is an empty list; give at least one", param="messages")
    if len(messages) > max_messages:
        raise RequestInvalid(
            f"there are {len(messages)} messages; give at most {max_messages}, or ask the operator for a "
            "larger max_messages",
            param="messages",
        )
    for number, message in enumerate(messages):
        _check_message(message, number)


def _describe_kind(value: object) -> str:
    """What a value of JSON is, in words."""
    words = {str: "a text", bool: "true or false", int: "a number", float: "a number", dict: "an object"}
    return words.get(type(value), "no list")


def last_prompt(messages: list[dict[str, Any]]) -> str:
    """The last user message's text, as far as policies read it; "" if there is none."""
    for message in reversed(messages):
        if message["role"] == "user":
            if isinstance(content := message["content"], str):
                return content[:PROMPT_LIMIT]
            return "\n".join(_read_texts(message["content"]))[:PROMPT_LIMIT]
    return ""


def bound_prompt_tokens(body: Mapping[str, Any]) -> int:
    """An upper bound on the tokens of a checked request's prompt, for any tokenizer that works on bytes.

    Templates put a request's tools into the prompt, some also other fields: all that may be read counts.
    The number for a medium is a guess.
    """
    total = _PROMPT_TOKENS + sum(map(_bound_message_tokens, body["messages"]))
    for name, value in body.items():
        if name not in _UNREAD_FIELDS and isinstance(value, _READ_TYPES):
            total += len(orjson.dumps(value))
    return total + (_TOOLS_TOKENS if body.get("tools") or body.get("functions") else 0)


def _check_message(message: object, number: int) -> None:
    if not isinstance(message, dict):
        place = f"messages[{number}]"
        raise RequestInvalid(f"{place} is not an object; give one with role and content", param=place)
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        problem = repr(role[:60]) if isinstance(role, str) else "missing or no text"
        place = f"messages[{number}].role"
        raise RequestInvalid(f"{place} is {problem}; give one of {', '.join(_ROLES)}", param=place)
    if isinstance(content, list):
        for part_number, part in enumerate(content):
            _check_part(part, f"messages[{number}].content[{part_number}]")
    elif not isinstance(content, str) and (content is not None or role not in _CONTENT_OPTIONAL):
        place = f"messages[{number}].content"
        raise RequestInvalid(f"{place} is not a text; give a text or a list of parts", param=place)


def _check_part(part: object, place: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise RequestInvalid(
            f"{place} is not a content part; give an object with a type, such as text", param=place
        )
    if kind in _TEXT_FIELDS and not isinstance(part.get(_TEXT_FIELDS[kind]), str):
        raise RequestInvalid(f"{place}.{_TEXT_FIELDS[kind]} is not a text; give one", param=place)


def _read_texts(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part[_TEXT_FIELDS[part["type"]]] for part in content if part["type"] in _TEXT_FIELDS]


def _bound_message_tokens(message: Mapping[str, Any]) -> int:
    total = _MESSAGE_TOKENS
    if not message.keys() <= _MESSAGE_FIELDS:
        rest = {name: value for name, value in message.items() if name not in _MESSAGE_FIELDS}
        total += len(orjson.dumps(rest))
    content = message.get("content")
    if isinstance(content, list):
        return total + sum(map(_bound_part_tokens, content))
    if not content:
        return total
    return total + (len(content) if content.isascii() else len(content.encode()))


def _bound_part_tokens(part: Mapping[str, Any]) -> int:
    kind = part["type"]
    if kind in _TEXT_FIELDS:
        return len(part[_TEXT_FIELDS[kind]].encode()) + 1  # and the line break between two of them
    return MEDIA_TOKENS if kind in _MEDIA_TYPES else max(MEDIA_TOKENS, len(orjson.dumps(part)))


_BUDGET_STEP = 0.25  # clients' budgets are rounded to it: each has its own dial, which needs traffic
_BUDGET_DIGITS = 2  # to which budgets in tokens and money are rounded


def choose_route(
    request: ChatRequest,
    headers: Mapping[str, str],
    *,
    settings: ServeConfig,
    key: str,
    policies: Collection[str],
    default: str,
    modes: Sequence[str] = (),
) -> Route:
    """The route of a request; RequestInvalid if one of the gateway's own options can't be followed.

    Names in `headers`, whose options the request has already, are in lower case. `default` is the policy of
    requests that name none of `policies`; `modes` are those of the menu, cheapest first.
    """
    options = request.options
    policy = _choose_policy(options, headers, policies, default)
    notes: list[str] = []
    chosen = _choose_modes(request, headers, modes, notes)
    budget = _choose_budget(request, options, settings, notes)
    if len(modes) > 1 and budget.unit == "samples":
        raise RequestInvalid(
            f"a budget of {budget} can't be kept over a menu, whose modes differ in cost; "
            "give it in money, e.g. '0.002 USD', or in tokens",
            param=f"{OPTIONS_FIELD}.budget",
        )
    is_passed = policy == SINGLE or (len(modes) > 1 and len(chosen) == 1)
    return Route(
        key=key,
        policy=policy,
        budget=budget.amount,
        unit=budget.unit,
        mode="pass" if is_passed else options.mode or settings.mode,
        modes=chosen,
        deadline=_choose_deadline(options, settings.deadline, notes),
        notes=tuple(notes),
        trace=read_trace_headers(headers) if TRACE_PARENT in headers else None,
    )


def _choose_modes(
    request: ChatRequest, headers: Mapping[str, str], modes: Sequence[str], notes: list[str]
) -> tuple[str, ...]:
    """The modes that a request names, by the option or as its model; (): all of the menu."""
    wanted, model = request.options.modes, request.body.get("model")
    if not wanted and not modes:
        return ()
    header = get_header("modes")
    place = header if header in headers else f"{OPTIONS_FIELD}.modes"
    if wanted and not modes:
        raise RequestInvalid(f"{place}: this gateway has no menu of modes; leave it out", param=place)
    for name in wanted:
        if name not in modes:
            raise RequestInvalid(f"{place} has {name[:60]!r}; give some of {', '.join(modes)}", param=place)
    if not wanted and modes and model in modes:
        return (str(model),)
    if len(modes) > 1 and model not in (*modes, MENU_MODEL):
        notes.append(f"model {str(model)[:60]!r} is no mode of the menu, which decides")
    return tuple(name for name in modes if name in wanted)


def _choose_budget(
    request: ChatRequest, options: RequestOptions, settings: ServeConfig, notes: list[str]
) -> Budget:
    own = parse_serve_budgets(settings)[0]
    wanted = options.budget
    if wanted is None and request.budget is not None:
        wanted = Budget(request.budget)
    if wanted is None:
        return own
    most = find_max_budget(settings, wanted.unit) or own
    if wanted.amount > most.amount:
        notes.append(f"budget {_format_budget(wanted)} is above the limit: it is {_format_budget(most)}")
        return most
    if wanted in (own, most):
        return wanted
    if wanted.unit == "samples":
        amount = max(1.0, round(wanted.amount / _BUDGET_STEP) * _BUDGET_STEP)
    else:
        amount = float(f"{wanted.amount:.{_BUDGET_DIGITS}g}")
    budget = Budget(min(amount, most.amount), wanted.unit, wanted.currency)
    if budget != wanted:
        notes.append(f"budget {_format_budget(wanted)} is served as {_format_budget(budget)}")
    return budget


def _format_budget(budget: Budget) -> str:
    """A budget for a note: a plain number if it is in samples."""
    return f"{budget.amount:g}" if budget.unit == "samples" else str(budget)


def _choose_policy(
    options: RequestOptions, headers: Mapping[str, str], policies: Collection[str], default: str
) -> str:
    if options.policy and options.policy not in policies:
        header = get_header("policy")
        place = header if header in headers else f"{OPTIONS_FIELD}.policy"
        raise RequestInvalid(
            f"{place} is {options.policy[:60]!r}; give one of {', '.join(sorted(policies))}", param=place
        )
    return options.policy or default


def _choose_deadline(options: RequestOptions, maximum: float, notes: list[str]) -> float:
    wanted = options.deadline
    if wanted is None:
        return maximum
    if wanted > maximum:
        notes.append(f"deadline {wanted:g} s is above the limit: it is {maximum:g} s")
    return min(wanted, maximum)


Body = dict[str, Any]

_GATEWAY_FIELDS = ("n", "stream", "stream_options", OPTIONS_FIELD)  # handled by the gateway itself
_PLAIN_FIELDS = frozenset(  # that ask for nothing but one sample
    ("model", "messages", "temperature", "top_p", "seed", "stop", "user", *LIMIT_NAMES)
)
_DEFAULT_MODEL_NAMES = ("", "default", MENU_MODEL)  # names that stand for the operator's model
_MODEL_WITH_BUDGET = re.compile(r"(.*)@([0-9]{1,4}(?:\.[0-9]+)?)", re.DOTALL)
_MAX_BUDGET = 1000.0  # a larger number is part of a model's name, such as a year
_MAX_MODEL_NAME = 1000  # characters
_MAX_LISTED = 8  # models that a message names
_LEGACY_FIELDS = ("prompt", "suffix", "echo", "best_of")
# names of some servers for it; others would ignore them, and a limit that is relied on would be missing
_FOREIGN_TOKEN_LIMITS = ("max_new_tokens", "max_output_tokens", "max_gen_len", "n_predict", "num_predict")
_FOREIGN_N_FIELDS = ("n_cmpl", "num_return_sequences")  # names of some servers for n
_COUNT_FIELDS = frozenset(("n", "best_of", *_FOREIGN_N_FIELDS, *_FOREIGN_TOKEN_LIMITS, *LIMIT_NAMES))
COSTLY_FIELDS = _COUNT_FIELDS | {"model", "prompt", "prompt_embeds", "background"}  # what they say costs
_DOUBTFUL_FIELDS = frozenset(  # that may not be supported, or not as they are given
    (
        *(*_LEGACY_FIELDS, *_FOREIGN_TOKEN_LIMITS, *_FOREIGN_N_FIELDS),
        *("modalities", "audio", "tools", "functions"),
    )
)
_JSON_TYPES = ("json_object", "json_schema")  # of response_format; others are formats of certain servers
_JSON_FIELDS = ("guided_json", "json_schema")  # names of certain servers for a schema of the reply
_FORMAT_FIELDS = frozenset(("response_format", *_JSON_FIELDS))
_MAX_DEPTH = 200  # levels, whatever the settings say: deeper JSON can't be serialised again
_MAX_ESCAPES = 2_000_000  # backslashes of a body: each takes as long as a hundred plain characters
_MAX_VALUES = 50_000  # values of a body: parsing millions of tiny ones would block all other requests
_BRACKET_STEPS = bytes({0x5B: 1, 0x7B: 1, 0x5D: 255, 0x7D: 255}.get(byte, 0) for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONG_INTEGER = re.compile(rb"(?<![0-9.eE+])-?[0-9]{19,}+(?![.eE])")  # may be beyond 64 bits
_ZEROED_DIGITS = bytes(0x30 if byte in b"0123456789" else byte for byte in range(256))
_LONG_DIGITS = b"0" * 19  # what is left of a long integer then
_TYPE_WORDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}


def parse_request(
    raw: bytes,
    *,
    settings: ServeConfig,
    headers: Mapping[str, str] = MappingProxyType({}),
    default_model: str = "",
    known_models: Collection[str] = (),
    translate: Callable[[Body], Body] | None = None,
) -> ChatRequest:
    """The request in a body; RequestInvalid if it is none. Names in `headers` are in lower case.

    `default_model` is the operator's own, for clients that name none, or "default" or "adacompute".
    `known_models` are names that the upstream has, as far as is known: none of these is read as a budget.
    `translate` makes a chat's body out of that of another route.
    """
    original = _parse_object(raw, min(settings.max_depth, _MAX_DEPTH))
    if not _PLAIN_FIELDS.issuperset(original):
        check_field_names(original)
    body = original if translate is None else translate(original)
    check_messages(body.get("messages"), max_messages=settings.max_messages)
    _check_sampling(body)
    wishes = _NO_WISHES if _PLAIN_FIELDS.issuperset(body) else _read_wishes(body, settings)
    name, budget = split_model(body, default_model, known_models)
    limits = [
        limit
        for field in LIMIT_NAMES
        if (limit := _read_int(body, field, 1, settings.max_tokens, "max_tokens")) is not None
    ]
    upstream_body = dict(body)
    if wishes is not _NO_WISHES:
        for gateway_field in _GATEWAY_FIELDS:
            upstream_body.pop(gateway_field, None)
    upstream_body["model"] = name
    return ChatRequest(
        body=upstream_body,
        prompt=last_prompt(body["messages"]),
        n=wishes.n,
        stream=wishes.stream,
        include_usage=wishes.include_usage,
        logprobs=wishes.logprobs,
        budget=budget,
        max_tokens=max(limits, default=settings.max_tokens),
        has_token_limit=bool(limits),
        prompt_tokens=bound_prompt_tokens(upstream_body),
        json=wishes.json,
        tools=wishes.tools,
        no_vote_reason=_find_no_vote_reason(body, wishes.n),
        options=add_header_options(wishes.options, headers, settings),
        original=None if translate is None else original,
    )


class _Wishes(NamedTuple):
    """What most requests don't ask for."""

    n: int = 1
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    json: bool = False
    tools: ToolUse = ""
    options: RequestOptions = NO_OPTIONS


_NO_WISHES = _Wishes()


def _read_wishes(body: Body, settings: ServeConfig) -> _Wishes:
    _check_supported(body)
    stream, include_usage = _read_stream_options(body)
    return _Wishes(
        n=_read_int(body, "n", 1, settings.max_n, "max_n") or 1,
        stream=stream,
        include_usage=include_usage,
        logprobs=_read_logprobs(body),
        json=_wants_json(body),
        tools=_find_tool_use(body),
        options=read_body_options(body.get(OPTIONS_FIELD), settings),
    )


def _parse_object(raw: bytes, max_depth: int) -> Body:
    body = _load_json(raw) if _is_simple(raw, max_depth) else _parse_checked(raw, max_depth)
    if not isinstance(body, dict):
        raise RequestInvalid(
            f"the body is {_describe_value(body)}; send a JSON object with model and messages"
        )
    return body


def _is_simple(raw: bytes, max_depth: int) -> bool:
    """Whether JSON is certain to be neither large nor deep, and to have no long integer: as most is."""
    if len(raw) > _MAX_VALUES or raw.count(b"[") + raw.count(b"{") > max_depth:
        return False
    return _LONG_DIGITS not in raw.translate(_ZEROED_DIGITS)


def _load_json(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"the body is not JSON ({exc.msg} at {exc.pos}); send a JSON object") from None


def _parse_checked(raw: bytes, max_depth: int) -> object:
    """The value of JSON; RequestInvalid if it is too large or too deep, or has too long a number."""
    escapes = raw.count(b"\\")
    if escapes > _MAX_ESCAPES:
        raise RequestInvalid(f"the body has more than {_MAX_ESCAPES:,} escaped characters; send fewer")
    bare = _strip_escaped_quotes(raw) if escapes else raw
    if bare.count(b'"') > 4 * _MAX_VALUES:  # counted first: splitting at millions of quotes takes long
        raise RequestInvalid(f"the body has more than {_MAX_VALUES:,} values; send fewer")
    outside = _remove_strings(bare)
    openings = outside.count(b"[") + outside.count(b"{")
    if outside.count(b",") + openings > _MAX_VALUES:
        raise RequestInvalid(f"the body has more than {_MAX_VALUES:,} values; send fewer")
    if openings > max_depth and _measure_depth(outside) > max_depth:
        raise RequestInvalid(f"the body is nested more than {max_depth} levels deep; send it flatter")
    body = _load_json(raw)
    for number in _LONG_INTEGER.finditer(outside):
        if not -(2**63) <= int(number[0]) < 2**64:
            # it was parsed as the nearest float, and would go upstream changed
            raise RequestInvalid(
                "the body has a number that 64 bits can't hold; send a smaller one, or a text"
            )
    return body


def _strip_escaped_quotes(raw: bytes) -> bytes:
    """JSON in which every remaining quote begins or ends a string."""
    if b'\\"' not in raw:  # checked first: removing many escapes takes long
        return raw
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")


def _remove_strings(bare: bytes) -> bytes:
    """What is outside of all strings of some JSON, without blanks.

    >>> _remove_strings(_strip_escaped_quotes(b'{"a[[": [[1], "]"]}'))
    b'{:[[1],]}'
    """
    return b"".join(bare.split(b'"')[::2]).translate(None, b" \t\r\n")


def _measure_depth(outside: bytes) -> int:
    """Levels of nesting, found without a parser: a recursive one could crash on what it is to refuse.

    >>> _measure_depth(b"{:[[1],]}")
    3
    """
    steps = np.frombuffer(outside.translate(_BRACKET_STEPS, _NOT_BRACKETS), np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def split_model(body: Body, default: str, known_models: Collection[str] = ()) -> tuple[str, float | None]:
    """The model's name without the budget in it, and the budget.

    >>> split_model({"model": "qwen@2.5"}, ""), split_model({"model": "gpt@20240229"}, "")
    (('qwen', 2.5), ('gpt@20240229', None))
    """
    name: str = _read_typed(body, "model", str) or ""
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


def _check_supported(body: Body) -> None:
    """RequestInvalid for fields that can't be honoured: they are not dropped silently."""
    if _DOUBTFUL_FIELDS.isdisjoint(body):  # as in most requests
        return
    for name in _LEGACY_FIELDS:
        if body.get(name) is not None:
            raise RequestInvalid(
                f"{name} belongs to the older completions API, which is not supported; give messages",
                param=name,
            )
    _check_foreign(body, LIMIT_NAMES)
    if body.get("modalities") not in (None, ["text"]):
        raise RequestInvalid(
            'modalities other than ["text"] are not supported; leave it out', param="modalities"
        )
    if body.get("audio") is not None:
        raise RequestInvalid("audio is not supported as a response; leave it out", param="audio")
    for name in ("tools", "functions"):
        _read_typed(body, name, list)


def _check_foreign(body: Mapping[str, Any], limits: Sequence[str]) -> None:
    """RequestInvalid for names by which only some servers would draw more, or stop at another limit."""
    for name in _FOREIGN_N_FIELDS:
        if body.get(name) is not None:
            raise RequestInvalid(f"{name} is not supported; give n", param=name)
    for name in (*_FOREIGN_TOKEN_LIMITS, *LIMIT_NAMES):
        if name not in limits and body.get(name) is not None:
            raise RequestInvalid(f"{name} is not supported; give {limits[0]}", param=name)


def check_field_names(names: Iterable[str]) -> None:
    """RequestInvalid for a name that only servers which ignore case read as one that costs."""
    for name in names:
        if (known := name.casefold()) in COSTLY_FIELDS and name != known:
            raise RequestInvalid(
                f"{name!r} is {known!r} to some servers, and unknown to others; give {known!r}", param=name
            )


def check_sample_fields(body: Mapping[str, Any], limits: Sequence[str], settings: ServeConfig) -> None:
    """RequestInvalid if what another route's request says of choices and tokens breaks the rules of chats.

    `limits` are that route's names for the most tokens of a response, each one of some server's for chats.
    """
    if _COUNT_FIELDS.isdisjoint(body):
        return
    _check_foreign(body, limits)
    for name in ("n", "best_of"):
        _read_int(body, name, 1, settings.max_n, "max_n")
    for name in limits:  # 0: only the prompt is scored
        _read_int(body, name, 0, settings.max_tokens, "max_tokens")


def _check_sampling(body: Body) -> None:
    _check_number(body, "temperature", 2)
    _check_number(body, "top_p", 1)
    if (seed := body.get("seed")) is not None and type(seed) is not int:
        raise RequestInvalid(f"seed is {_describe_value(seed)}; give a whole number", param="seed")


def _read_stream_options(body: Body) -> tuple[bool, bool]:
    """Whether a stream is requested, and usage in it."""
    stream: bool = _read_typed(body, "stream", bool) or False
    options: Body = _read_typed(body, "stream_options", dict) or {}
    if options and not stream:
        raise RequestInvalid(
            "stream_options are given without stream; leave them out, or give stream: true",
            param="stream_options",
        )
    for name, value in options.items():
        # chunks are never padded against eavesdroppers, so switching that off is harmless
        harmless = value is None or (name == "include_obfuscation" and value is False)
        if name != "include_usage" and not harmless:
            raise RequestInvalid(
                f"stream_options.{name[:60]} is not supported; leave it out", param="stream_options"
            )
    return stream, bool(_read_typed(options, "include_usage", bool, "stream_options."))


def _read_logprobs(body: Body) -> bool:
    logprobs = bool(_read_typed(body, "logprobs", bool))
    if _read_int(body, "top_logprobs", 0, 20) is not None and not logprobs:
        raise RequestInvalid("top_logprobs needs logprobs: true; give both or none", param="top_logprobs")
    return logprobs


def _wants_json(body: Body) -> bool:
    if _FORMAT_FIELDS.isdisjoint(body):
        return False
    form: Body = _read_typed(body, "response_format", dict) or {}
    kind = _read_typed(form, "type", str, "response_format.")
    if form and kind is None:
        raise RequestInvalid(
            "response_format has no type; give text, json_object or json_schema", param="response_format"
        )
    return kind in _JSON_TYPES or any(body.get(field) is not None for field in _JSON_FIELDS)


def _find_tool_use(body: Body) -> ToolUse:
    if not body.get("tools") and not body.get("functions"):
        return ""
    choice = body.get("tool_choice", body.get("function_call"))
    if choice == "none":
        return ""
    return "may" if choice in (None, "auto") else "must"


def _find_no_vote_reason(body: Body, n: int) -> str:
    """Why there can be no vote; "" if there can."""
    if n > 1:
        return f"n is {n}: the client samples by itself"
    if body.get("temperature") == 0:
        return "temperature is 0: every sample would be the same"
    return ""


def _read_typed(body: Mapping[str, Any], field: str, kind: type, place: str = "") -> Any:  # noqa: ANN401 - of that type
    value = body.get(field)
    if value is None or type(value) is kind:
        return value
    raise RequestInvalid(
        f"{place}{field} is {_describe_value(value)}; give {_TYPE_WORDS[kind]}", param=place + field
    )


def _read_int(body: Mapping[str, Any], field: str, low: int, high: int, setting: str = "") -> int | None:
    """A whole number within limits; `setting` is the operator's that sets the upper one."""
    value = body.get(field)
    if value is None:
        return None
    if type(value) is not int:
        raise RequestInvalid(
            f"{field} is {_describe_value(value)}; give a whole number from {low} to {high}", param=field
        )
    if not low <= value <= high:
        remedy = f", or ask the operator for a larger {setting}" if setting and value > high else ""
        raise RequestInvalid(f"{field} is {value}; give {low} to {high}{remedy}", param=field)
    return value


def _check_number(body: Body, field: str, high: int) -> None:
    value = body.get(field)
    if value is None:
        return
    if type(value) not in (int, float):
        raise RequestInvalid(
            f"{field} is {_describe_value(value)}; give a number from 0 to {high}", param=field
        )
    if not 0 <= value <= high:
        raise RequestInvalid(f"{field} is {value}; give 0 to {high}", param=field)


def _describe_value(value: object) -> str:
    """What a value is, in words: strings aren't quoted, because they may be long or private."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, int | float) else _TYPE_WORDS[type(value)]
