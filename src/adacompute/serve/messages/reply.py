"""The outcome of a request, and the client's reply: a completion, its chunks or an error.

All replies are in OpenAI's format. An error tells the client what to do. It contains neither the upstream's
address nor the upstream's messages about the operator's key.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec
import orjson

from adacompute.client import Response
from adacompute.client.large_json import MAX_INLINE, Alternative, ReplyToken, encode_token
from adacompute.client.response_parser import replace_surrogates
from adacompute.client.streaming import split_tokens
from adacompute.client.transport import ReplyCompressed
from adacompute.errors import (
    CapReached,
    EndpointError,
    EndpointRefused,
    EndpointResting,
    EndpointTimeout,
    EndpointUnreachable,
    RateLimited,
    ReplyInvalid,
    SendingStopped,
    ServeError,
    Unauthorized,
    WeakVote,
    shorten,
)
from adacompute.records import BudgetUnit, Call, quick_dataclass
from adacompute.serve.messages.request_parser import ChatRequest, Mode
from adacompute.serve.spending.ledger import NO_PROMPT_COST, PromptCost, Spend, Unit

_SERVER_INFO = ("model", "system_fingerprint", "service_tier")
_MAX_DETAILS = 64  # maximum number of entries in `Usage.details`

CLIENT_GONE_STATUS = 499  # status code that is recorded if the client disconnected, as in nginx


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Numbers of tokens in all paid calls, as the upstream counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # number of prompt tokens that the upstream took from its cache
    # map: path in the upstream's JSON object `usage` -> sum of further numbers found there
    details: Mapping[tuple[str, ...], float] = field(default_factory=dict, hash=False)

    @classmethod
    def from_calls(cls, calls: Iterable[Call]) -> "Usage":
        """Sums the usage of the paid calls."""
        prompt_tokens = completion_tokens = cached_tokens = 0
        details: dict[tuple[str, ...], float] = {}
        for call in calls:
            if call.paid != "yes":
                continue
            prompt_tokens += call.prompt_tokens or 0
            completion_tokens += call.completion_tokens or 0
            cached_tokens += call.cached_tokens or 0
            for path, number in call.usage_details.items():
                if path in details or len(details) < _MAX_DETAILS:
                    details[path] = details.get(path, 0) + number
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            details=details,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierUse:
    """Counts of a request's calls to the verifier, a service that scores responses."""

    calls: int = 0  # number of responses sent to the verifier
    failed: int = 0  # number of responses that got no score; includes those not sent due to a spending cap
    tokens: int = 0  # tokens used if the verifier is a model; 0 if it is a plain scoring endpoint
    note: str = ""  # message to the client about failures

    def __add__(self, other: "VerifierUse") -> "VerifierUse":
        return VerifierUse(
            calls=self.calls + other.calls,
            failed=self.failed + other.failed,
            tokens=self.tokens + other.tokens,
        )

    def __bool__(self) -> bool:
        return bool(self.calls or self.failed)


NO_VERIFICATIONS = VerifierUse()


def read_server_info(body: Mapping[str, Any]) -> dict[str, str]:
    """Picks the fields of a completion that describe the server, to be passed on to the client."""
    return {
        name: value for name in _SERVER_INFO if isinstance(value := body.get(name), str) and len(value) <= 200
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that was answered with an error before any work began."""

    method: str
    route: str  # value of the telemetry attribute `http.route`; "" if the route is unknown
    # "chat", or the first word of the path after /v1/, such as "embeddings"; "" if the request costs nothing
    operation: str
    status: int
    code: str
    started_at: int  # nanoseconds since 1970
    ended_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeUse:
    """The samples that a request drew from one of several modes, and their cost."""

    name: str
    model: str = ""  # the upstream's name for the mode's model
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # request fields that the mode adds
    samples: int = 0  # number of samples received
    missing: int = 0  # number of samples requested but not received
    failed: str = ""  # kind of error if the mode failed and the request went on without it, otherwise ""
    answer: str | None = None  # winner among the mode's own samples; None without an answer or a vote
    spent: Spend = field(default_factory=Spend)
    maybe: Spend = field(default_factory=Spend)  # maximum that calls of unknown cost can add to `spent`
    usage: Usage = field(default_factory=Usage)


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOutcome:
    """The outcome of a request forwarded to another route of the upstream."""

    id: str
    at: float  # arrival, in seconds since 1970
    seconds: float
    key: str  # the name of the client's key
    method: str
    route: str  # first word of the path after /v1/, or "other"
    status: int  # status of the reply; 499: the client disconnected
    calls: Sequence[Call]  # the calls to the upstream; empty if the request was free
    spent: Spend
    maybe: Spend  # maximum that calls of unknown cost can add to `spent`


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of a request, for the reply, the ledger, metrics, the dashboard and the recorder."""

    id: str  # id of the reply, e.g. "chatcmpl-…"
    at: float  # arrival, in seconds since 1970
    seconds: float
    key: str  # the name of the client's key
    model: str
    policy: str  # name of the policy
    mode: Mode
    budget: float  # the average cost per request that the price aims for, in `unit`
    price: float | None  # price or threshold with which the policy decided; None if it used neither
    stream: bool = False
    n: int = 1  # number of choices requested by the client
    status: int = 200  # status of the reply; 499: the client disconnected
    error: str = ""  # error code; "" if there was no error
    samples: int = 0  # number of samples received
    missing: int = 0  # number of samples requested but not received
    waves: int = 0
    # if `mode` is "shadow" (one sample per request): how many more the policy would draw; otherwise None
    would: int | None = None
    answer: str | None = None  # the winner of the vote
    votes: Mapping[str, int] = field(default_factory=dict, hash=False)
    abstained: int = 0  # number of samples without an answer
    agreement: float | None = None  # the winner's share of all samples' weight; None if there was no vote
    answered_share: float | None = None  # like `agreement`, but without the samples that have no answer
    weighted: bool = False  # whether votes were weighted
    agreed: bool | None = None  # if the first sample was streamed at once: whether it has the winner's answer
    weak: bool = False  # whether the agreement is below the operator's minimum
    # whether the policy guarantees the winner to be the model's most common answer; None if it never does
    certified: bool | None = None
    # whether the request was chosen at random to get the maximum number of samples, as an experiment
    explored: bool = False
    decided: bool = True  # whether the policy decided the number of samples; False if no vote was possible
    unit: BudgetUnit = "samples"  # unit of the budget
    # the request's cost as the average counts it, in `unit`; None if `unit` is samples: see `cost_samples`
    cost: float | None = None
    notes: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    spent: Spend = field(default_factory=Spend)
    prompt_cost: PromptCost = NO_PROMPT_COST  # the part of `spent` that pays for prompt tokens
    maybe: Spend = field(default_factory=Spend)  # maximum that calls of unknown cost can add to `spent`
    modes: tuple[ModeUse, ...] = ()  # modes in the order of their first use; () if there is only one upstream
    response_modes: tuple[str, ...] = ()  # the mode of each response, if there are several modes
    answered_by: str = ""  # the mode of the returned sample
    verified: VerifierUse = NO_VERIFICATIONS  # counts of the verifier's calls; `spent` includes their cost
    responses: tuple[Response, ...] = field(default=(), repr=False)  # the responses, one per sample
    # fields of the upstream's reply that describe the server
    server_info: Mapping[str, str] = field(default_factory=dict, hash=False)
    # details of the budget if it was given as a quality, such as "as good as 8 samples"; otherwise None
    quality: Mapping[str, Any] | None = field(default=None, hash=False)
    best: int | None = None  # index of the response to return: the winner's, or the first
    prompt: str = field(default="", repr=False)
    # the number of samples received, or the number possibly charged if that is larger
    cost_samples: int = field(init=False, repr=False, compare=False)
    # the cost with which this request counts in the average that the budget limits, in the budget's unit
    budget_cost: float = field(init=False, repr=False, compare=False)
    # whether the average cost includes it: if `mode` is "adaptive", `n` is 1, and `cost_samples` isn't 0
    counts_in_average: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        samples = max(self.samples, self.spent.samples + self.maybe.samples)
        cost = float(samples) if self.cost is None else self.cost
        is_counted = self.mode == "adaptive" and self.n == 1 and samples > 0
        object.__setattr__(self, "cost_samples", samples)
        object.__setattr__(self, "budget_cost", cost)
        object.__setattr__(self, "counts_in_average", is_counted)

    @property
    def is_large(self) -> bool:
        """Whether the reply may be so large that encoding it would delay other requests."""
        return sum([response.size for response in self.responses]) > MAX_INLINE

    @property
    def calibrated_agreement(self) -> float | None:
        """The agreement to compare with that of recorded samples: `answered_share`, or else `agreement`."""
        return self.agreement if self.answered_share is None else self.answered_share

    @property
    def no_vote_reason(self) -> str | None:
        """Why there was no vote, read from the note that says so; None without such a note."""
        reasons = [note.removeprefix("no vote: ") for note in self.notes if note.startswith("no vote: ")]
        return reasons[0] if reasons else None

    @property
    def mode_counts(self) -> str:
        """Number of samples per mode, e.g. "small:3,large:1"; "" if there is only one upstream."""
        return ",".join([f"{use.name}:{use.samples}" for use in self.modes])

    @property
    def counts_as_voted(self) -> bool:
        """Whether the average over requests that can be voted on includes this request."""
        return self.counts_in_average and self.decided

    @property
    def moves_price(self) -> bool:
        """Whether the pacer learns from the request's cost.

        It doesn't if samples are missing and the cost is below the budget. Otherwise failures would seem
        cheap, the price would fall, and the failing upstream would get even more calls.
        """
        return self.counts_in_average and not (self.missing and self.budget_cost < self.budget)


Headers = dict[str, str]

# makes browsers ask for the key; only one scheme, because Chromium can't parse a second one
_CHALLENGE = 'Basic realm="adacompute", charset="UTF-8"'
_FORBID_RETRY = {"x-should-retry": "false"}
_MAX_MESSAGE = 500  # maximum length of an error message, in characters
_MAX_RETRY_AFTER = 86_400  # highest value of Retry-After, in seconds
# upstream status codes for mistakes in the client's request
_CLIENT_STATUSES = {400, 404, 409, 413, 415, 422}
# upstream status codes for problems with the gateway's own key, account or proxy
_KEY_STATUSES = {401, 402, 403, 407}
# error codes which show that a 403 is about the client's request, not about the gateway's key
_REQUEST_CODES = {
    "content_filter",
    "content_policy_violation",
    "invalid_prompt",
    "model_not_found",
    "moderation_blocked",
    "unsupported_country_region_territory",
}
_KNOWN_CODES = _REQUEST_CODES | {
    "context_length_exceeded",
    "insufficient_quota",
    "invalid_value",
    "rate_limit_exceeded",
    "server_error",
    "unsupported_parameter",
    "unsupported_value",
}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>)\],;]+", re.IGNORECASE)


def build_error(error: ServeError | EndpointError) -> tuple[int, Headers, bytes]:
    """Builds the reply for an error in OpenAI's format: its status, headers and body."""
    if isinstance(error, ServeError):
        headers = {} if error.retry_after is None else _retry_after(error.retry_after)
        if isinstance(error, CapReached | WeakVote):
            headers |= _FORBID_RETRY  # SDKs would retry a 429, and pay for a weak vote again
        if isinstance(error, Unauthorized) and error.status == 401:
            headers["www-authenticate"] = _CHALLENGE
        return _format_error(error.status, headers, str(error), error.kind, error.code, error.param)
    status = _find_upstream_status(error)
    wait = _retry_after(1.0 if error.retry_after is None else error.retry_after)
    if status is not None:  # passes on the upstream's message
        waits = error.retry_after is not None or status in (429, 503)
        return _dump_error(status, {**error.reply.headers, **(wait if waits else {})}, error.reply.fields)
    status, code, message = _describe_upstream_error(error)
    kind = {429: "rate_limit_error"}.get(status, "server_error" if status >= 500 else "invalid_request_error")
    headers = wait if status in (429, 503) else {}
    if isinstance(error, EndpointRefused) and status == 502:
        headers = _FORBID_RETRY
    return _format_error(status, headers, message.replace("{wait}", wait["retry-after"]), kind, code)


def find_error_code(error: ServeError | EndpointError) -> str:
    """Returns an error's code for metrics, logs and pages.

    The upstream's own code can be any text, so it is used only if it is well known.
    """
    if isinstance(error, ServeError):
        return error.code
    if _find_upstream_status(error) and error.reply.code in _KNOWN_CODES:
        return str(error.reply.code)
    return _describe_upstream_error(error)[1]


# map: type of upstream error -> status and error code for the client; the first matching type counts
_UPSTREAM_CODES: Mapping[type[EndpointError], tuple[int, str]] = {
    RateLimited: (429, "upstream_rate_limited"),
    EndpointTimeout: (504, "upstream_timeout"),
    EndpointResting: (503, "upstream_resting"),
    SendingStopped: (503, "stopping"),
    EndpointUnreachable: (502, "upstream_unreachable"),
}
_MESSAGES = {  # map: error code -> message to the client
    "upstream_rate_limited": "the upstream accepts no more requests now; try again in {wait} s",
    "upstream_timeout": "no answer came before the deadline, the gateway's or the request's own "
    "(x-adacompute-deadline); try again, give more time, or ask for fewer tokens",
    "upstream_resting": "the upstream fails, and isn't called for a while; try again in {wait} s",
    "stopping": "the gateway is closing down; try again",
    "upstream_unreachable": "the upstream can't be reached; try again later",
    "upstream_credentials": "the upstream doesn't accept the gateway's own key; tell the operator",
}


def _describe_upstream_error(error: EndpointError) -> tuple[int, str, str]:
    """Returns the gateway's own status, code and message for an upstream's error."""
    answered = "" if error.status in (None, 200) else f" (it answered {error.status})"
    if isinstance(error, EndpointRefused):
        if error.status in _CLIENT_STATUSES:
            return error.status, "upstream_refused", _hide_address(str(error))
        if error.status in _KEY_STATUSES:
            return 502, "upstream_credentials", _MESSAGES["upstream_credentials"]
        message = f"the upstream refused what the gateway sent{answered}; tell the operator"
        return 502, "upstream_failed", message
    for kind, (status, code) in _UPSTREAM_CODES.items():
        if isinstance(error, kind):
            return status, code, _MESSAGES[code]
    message = f"the upstream failed{answered}; try again"
    if isinstance(error, ReplyCompressed):
        message = "the upstream compresses its answers, which the gateway doesn't ask for; tell the operator"
    elif isinstance(error, ReplyInvalid) and not answered:
        message = "the upstream's answer is not a chat completion in JSON; try again, or tell the operator"
    return 502, "upstream_failed", message


def _find_upstream_status(error: EndpointError) -> int | None:
    """Returns the status for passing on the upstream's own message; None if clients mustn't see this message.

    Messages about the gateway's key are for the operator only. A status such as 403 usually means this key,
    but with some error codes it means the client's request.
    """
    status, reply = error.status, error.reply
    if reply is None:
        return None
    if status is None or status < 300:
        return 502
    if status in _KEY_STATUSES:
        return status if reply.code in _REQUEST_CODES else None
    if reply.native or status in _CLIENT_STATUSES or status == 429 or status >= 500:
        return status if 400 <= status < 600 else None
    return None


def _hide_address(message: str) -> str:
    """Replaces the upstream's address in an error message.

    >>> _hide_address("http://10.0.0.7:8000/v1/chat/completions: answered 400: too long for 10.0.0.7:8000")
    'the upstream answered 400: too long for the upstream'
    """
    match = _ADDRESS.match(message)
    if match is not None:
        address = match[0].rstrip(":")
        host = address.partition("://")[2].partition("/")[0].rpartition("@")[2]
        rest = message[len(address) :].removeprefix(":").strip()
        message = f"the upstream {rest.replace(host, 'the upstream') if host else rest}"
    return _ADDRESS.sub("the upstream", message)


def _retry_after(seconds: float) -> Headers:
    return {"retry-after": str(math.ceil(min(max(1.0, seconds), _MAX_RETRY_AFTER)))}


def _format_error(
    status: int, headers: Headers, message: str, kind: str, code: str, param: str | None = None
) -> tuple[int, Headers, bytes]:
    line = shorten(" ".join(replace_surrogates(message).split()), _MAX_MESSAGE)
    param = param and replace_surrogates(param)
    return _dump_error(status, headers, {"message": line, "type": kind, "param": param, "code": code})


def _dump_error(status: int, headers: Headers, error: Mapping[str, Any]) -> tuple[int, Headers, bytes]:
    return status, {"content-type": "application/json"} | headers, dump_json({"error": error})


_CHUNK_LENGTH = 256  # number of characters per chunk of a stream
_DONE = b"data: [DONE]\n\n"
_MAX_DEPTH = 100  # maximum nesting depth of a reply's JSON; deeper values become null
# fields of a message that get chunks of their own in a stream
_STREAMED_FIELDS = ("role", "content", "tool_calls")


def build_completion(outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> dict[str, Any]:
    """Builds a complete chat completion, with the usage of all samples."""
    completion = _build_head(outcome, "chat.completion")
    completion["choices"] = [
        {
            "index": index,
            "message": _complete_message(response),
            "logprobs": filter_logprobs(response.logprobs, request),
            "finish_reason": response.finish_reason or "stop",
        }
        for index, response in enumerate(_select_responses(outcome, request))
    ]
    completion["usage"] = build_usage(outcome)
    completion["adacompute"] = build_extra(outcome, unit=unit)
    return completion


def build_chunks(outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> Iterator[bytes]:
    """Yields the completion as stream events: text, finish reason, usage if requested, and the end."""
    head = _build_head(outcome, "chat.completion.chunk")
    if request.include_usage:
        head["usage"] = None  # null in all chunks but the last, as in OpenAI's API
    responses = _select_responses(outcome, request)
    for index, response in enumerate(responses):
        *deltas, last = _build_deltas(response, request)
        for choice in deltas:
            yield format_event(dump_json(head | {"choices": [{"index": index} | choice]}))
        end = {"adacompute": build_extra(outcome, unit=unit)} if index == len(responses) - 1 else {}
        yield format_event(dump_json(head | {"choices": [{"index": index} | last]} | end))
    if request.include_usage:
        yield format_event(dump_json(head | {"choices": [], "usage": build_usage(outcome)}))
    yield _DONE


def build_extra(outcome: RequestOutcome, *, unit: Unit) -> dict[str, Any]:
    """Builds the reply's `adacompute` object: the vote behind the answer, and its cost.

    The cost is in `unit`, but in the unit of the request's budget if `unit` is samples, the default.
    """
    unit = outcome.unit if unit == "samples" else unit
    fields: dict[str, Any] = {
        "samples": outcome.samples,
        "answer": outcome.answer,
        "votes": dict(outcome.votes),
        "agreement": outcome.agreement,
        "price": outcome.price,
        "policy": outcome.policy,
        # the name that the client requested; the completion itself has the upstream's name
        "model": outcome.model,
        "cost": outcome.spent.amount_in(unit),
        "unit": unit,
    }
    optional = {
        "mode": None if outcome.mode == "adaptive" else outcome.mode,
        "notes": list(outcome.notes) or None,
        "abstained": outcome.abstained or None,
        "missing": outcome.missing or None,
        "would": outcome.would,
        "agreed": outcome.agreed,
        "weak": outcome.weak or None,
        "certified": outcome.certified,
        "quality": outcome.quality,
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    if outcome.modes:
        fields["answered_by"] = outcome.answered_by
        fields["modes"] = {use.name: _describe_use(use, unit) for use in outcome.modes}
    if use := outcome.verified:
        fields["verifier"] = {"calls": use.calls, "failed": use.failed, "tokens": use.tokens}
    return fields


def _describe_use(use: ModeUse, unit: Unit) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "samples": use.samples,
        "cost": use.spent.amount_in(unit),
        "prompt_tokens": use.usage.prompt_tokens,
        "completion_tokens": use.usage.completion_tokens,
    }
    optional = {
        "cached_tokens": use.usage.cached_tokens or None,
        "reasoning_tokens": use.usage.details.get(REASONING_TOKENS) or None,
        "answer": use.answer,
        "missing": use.missing or None,
        "failed": use.failed or None,
    }
    return fields | {name: value for name, value in optional.items() if value is not None}


REASONING_TOKENS = ("completion_tokens_details", "reasoning_tokens")
_NOTE = "x-adacompute-note"
_MAX_NOTE = 300  # maximum length of a note, in characters


def build_headers(outcome: RequestOutcome) -> dict[str, str]:
    """Builds the reply headers that describe the outcome."""
    headers = {
        "x-request-id": outcome.id,
        "x-adacompute-samples": str(outcome.samples),
        "x-adacompute-policy": _quote_name(outcome.policy),
    }
    if outcome.agreement is not None:
        headers["x-adacompute-agreement"] = f"{outcome.agreement:.4g}"
    if outcome.price is not None:
        headers["x-adacompute-price"] = f"{outcome.price:.6g}"
    if outcome.modes:
        counts = [f"{quote(use.name, safe=' ')}={use.samples}" for use in outcome.modes]
        headers["x-adacompute-modes"] = ", ".join(counts)
    if outcome.notes:
        headers |= build_note_header(outcome.notes)
    return headers


@lru_cache(maxsize=256)  # a gateway has fewer policies than this
def _quote_name(name: str) -> str:
    return quote(name, safe=" !#$&'()*+,/:;=?@[]")


def build_note_header(notes: Sequence[str]) -> dict[str, str]:
    """Builds a header with the notes, because some client libraries drop the body's `adacompute` object.

    >>> build_note_header(["no vote: temperature is 0"])
    {'x-adacompute-note': 'no vote: temperature is 0'}
    """
    line = shorten(" ".join("; ".join(notes).split()), _MAX_NOTE)
    text = line.replace("…", "...").encode("ascii", "replace").decode()
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return {_NOTE: text} if text else {}


def filter_logprobs(logprobs: Mapping[str, Any] | None, request: ChatRequest) -> Mapping[str, Any] | None:
    """Removes the log-probabilities that the client didn't request; None if none are left."""
    if logprobs is None or not request.logprobs:
        return None
    if request.body.get("top_logprobs"):
        return logprobs
    return {name: _drop_alternatives(tokens) for name, tokens in logprobs.items()}


def _drop_alternatives(tokens: object) -> object:
    """Removes the alternatives (`top_logprobs`) of each token."""
    if not isinstance(tokens, list):
        return tokens
    return [
        msgspec.structs.replace(token, top_logprobs=[])
        if isinstance(token, ReplyToken)
        else {**token, "top_logprobs": []}
        if isinstance(token, dict) and token.get("top_logprobs")
        else token
        for token in tokens
    ]


def _select_responses(outcome: RequestOutcome, request: ChatRequest) -> tuple[Response, ...]:
    """Selects the responses for the client: all if it requested several, otherwise the winning one."""
    if request.n > 1:
        return outcome.responses
    best = outcome.best or 0
    return outcome.responses[best : best + 1]


def _build_head(outcome: RequestOutcome, kind: str) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "object": kind,
        "created": int(outcome.at),
        "model": outcome.model,
        **outcome.server_info,
    }


def build_usage(outcome: RequestOutcome) -> dict[str, Any]:
    """Builds the usage of all samples in OpenAI's format."""
    usage = outcome.usage
    fields: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    for path, number in usage.details.items():
        *outer, name = path
        group = fields.setdefault(outer[0], {}) if outer else fields
        if isinstance(group, dict):
            group[name] = number
    if usage.cached_tokens > 0:  # already checked to be at most the number of prompt tokens
        fields.setdefault("prompt_tokens_details", {})["cached_tokens"] = usage.cached_tokens
    return fields


def _complete_message(response: Response) -> dict[str, Any]:
    """Returns a response's message; adds fields that SDKs rely on if the server omitted them."""
    message = dict(response.message)
    # the content is missing, or a list of parts, as some servers send it
    if not isinstance(message.get("content"), str):
        refused = response.text == message.get("refusal")
        message["content"] = None if refused else response.text or None
    message["role"] = "assistant"
    return message


def _build_deltas(response: Response, request: ChatRequest) -> Iterator[dict[str, Any]]:
    """Yields one choice in pieces. Log-probabilities come with the text, the finish reason comes last."""
    message = _complete_message(response)
    text = message["content"]
    first = {
        name: value for name, value in message.items() if name not in _STREAMED_FIELDS and value is not None
    }
    yield {
        "delta": {"role": "assistant", "content": None if text is None else ""} | first,
        "finish_reason": None,
    }
    logprobs = filter_logprobs(response.logprobs, request)
    if text and logprobs is not None:
        for piece, tokens in split_tokens(text, logprobs):
            yield {"delta": {"content": piece}, "finish_reason": None, "logprobs": tokens}
    else:
        for start in range(0, len(text or ""), _CHUNK_LENGTH):
            yield {"delta": {"content": text[start : start + _CHUNK_LENGTH]}, "finish_reason": None}
    for place, call in enumerate(list_objects(message, "tool_calls")):
        yield {"delta": {"tool_calls": [{**call, "index": place}]}, "finish_reason": None}
    end: dict[str, Any] = {"delta": {}, "finish_reason": response.finish_reason or "stop"}
    yield end if logprobs is None or text else end | {"logprobs": logprobs}


def get_object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the object in a field of an upstream's reply; {} if there is none."""
    item = value.get(name)
    return item if isinstance(item, dict) else {}


def list_objects(value: Mapping[str, Any] | Alternative, name: str) -> list[Any]:
    """Lists the JSON objects (or `Alternative` structs) in a field; [] if the field isn't a list."""
    items = value.get(name)
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, (dict, Alternative))]


def dump_json(value: Any) -> bytes:  # noqa: ANN401 - of JSON
    """Encodes a reply, which may contain msgspec structs and an upstream's unusual values, as JSON."""
    try:
        return orjson.dumps(value, default=encode_token)
    except TypeError:  # servers may send unpaired surrogates and numbers beyond 64 bits, which orjson refuses
        return orjson.dumps(_make_serialisable(value))


def _make_serialisable(value: object, depth: int = 0) -> object:
    """Makes a value serialisable: replaces invalid strings, huge numbers and deep nesting."""
    if isinstance(value, Alternative):
        return encode_token(value)
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 10**300 else None
    if isinstance(value, Mapping | list | tuple) and depth >= _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {
            replace_surrogates(str(name)): _make_serialisable(item, depth + 1) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_make_serialisable(item, depth + 1) for item in value]
    return value


def format_event(data: bytes) -> bytes:
    """Formats data as a server-sent event."""
    return b"data: " + data + b"\n\n"
