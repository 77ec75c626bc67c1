"""What came of a request, and what its client gets: a completion, a stream of chunks or an error.

All replies are in OpenAI's shape.

An error tells the client what it can do about it, and neither the upstream's address nor what the upstream
says about the operator's key.
"""

import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import orjson

from adacompute.client import Event, Response
from adacompute.client.large_json import MAX_INLINE, PackedList, encode_in_parts, run_in_thread
from adacompute.client.response_parser import ReplyCompressed, encode_json, replace_surrogates
from adacompute.client.streaming import split_tokens
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
from adacompute.serve.messages.stream_gate import StreamGate
from adacompute.serve.spending.ledger import NO_PROMPT_COST, PromptCost, Spend, Unit

__all__ = [
    "CLIENT_GONE_STATUS",
    "NO_VERIFICATIONS",
    "REASONING_TOKENS",
    "ForwardOutcome",
    "ModeUse",
    "Refusal",
    "RequestOutcome",
    "StreamRelay",
    "Usage",
    "VerifierUse",
    "build_chunks",
    "build_completion",
    "build_error",
    "build_extra",
    "build_headers",
    "build_note_header",
    "build_usage",
    "dump_json",
    "dump_large_json",
    "find_error_code",
    "read_server_info",
]

_SERVER_INFO = ("model", "system_fingerprint", "service_tier")
_MAX_DETAILS = 64  # further numbers of a usage that are summed

CLIENT_GONE_STATUS = 499  # the status of a request whose client disconnected, as in nginx


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of all calls that were paid for, as the upstream counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompts', where the upstream says so
    # further numbers that the upstream says, by their path in its usage
    details: Mapping[tuple[str, ...], float] = field(default_factory=dict, hash=False)

    @classmethod
    def from_calls(cls, calls: Iterable[Call]) -> "Usage":
        """The sum over calls that were paid for."""
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
    """What was asked of a verifier, and what came of it."""

    calls: int = 0  # responses that it was asked about
    failed: int = 0  # responses without a score, also those that a cap kept it from being asked about
    tokens: int = 0  # of a model that was asked; 0: a plain scoring endpoint
    note: str = ""  # for the client

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
    """What a completion says about its server, to be passed on."""
    return {
        name: value for name in _SERVER_INFO if isinstance(value := body.get(name), str) and len(value) <= 200
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that was answered by an error before anything of it was begun."""

    method: str
    route: str  # as of `http.route`; "": there is no such route
    operation: str  # the first word of a route that generates something; "": it doesn't
    status: int
    code: str
    started_at: int  # nanoseconds since 1970
    ended_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeUse:
    """What a request drew from one mode of a menu, and what that cost."""

    name: str
    model: str = ""  # as its upstream names it
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # that it adds to requests
    samples: int = 0  # received
    missing: int = 0  # requested, but not received
    failed: str = ""  # the kind of the error for which it was left out; "": it wasn't
    answer: str | None = None  # that leads among its own samples; None: none states one, or there's no vote
    spent: Spend = field(default_factory=Spend)
    maybe: Spend = field(default_factory=Spend)  # upper bound of what may be charged for failed calls
    usage: Usage = field(default_factory=Usage)


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOutcome:
    """The outcome of a request that was passed on to another route of the upstream."""

    id: str  # of the reply
    at: float  # seconds since 1970, when it came
    seconds: float
    key: str  # the name of the client's key
    method: str
    route: str  # the first word of its path
    status: int  # of the reply; 499: the client went away
    calls: Sequence[Call]  # none if it was free
    spent: Spend
    maybe: Spend  # upper bound of what may be charged for failed calls


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of one request: for the reply, the ledger, metrics, the dashboard and the recorder."""

    id: str  # of the reply, e.g. "chatcmpl-…"
    at: float  # seconds since 1970, when it came
    seconds: float
    key: str  # the name of the client's key
    model: str
    policy: str  # its name
    mode: Mode
    budget: float  # on average, in `unit`
    price: float | None  # the dial it was decided at; None: the policy has none, or nothing was decided
    stream: bool = False
    n: int = 1  # choices that the client asked for
    status: int = 200  # of the reply; 499: the client went away
    error: str = ""  # the code of the error; "": none
    samples: int = 0  # received
    missing: int = 0  # samples requested but not received
    waves: int = 0
    would: int | None = None  # shadow mode: samples the policy would have drawn after the first
    answer: str | None = None  # the winner of the vote
    votes: Mapping[str, int] = field(default_factory=dict, hash=False)
    abstained: int = 0  # samples without an answer
    agreement: float | None = (
        None  # the leader's share of all samples' weight, 0 to 1; None: there was no vote
    )
    answered_share: float | None = None  # its share among samples with an answer; None: as `agreement`
    weighted: bool = False  # whether votes had weights
    agreed: bool | None = None  # whether the sample that was streamed before the vote has the winner's answer
    weak: bool = False  # whether the agreement is below the operator's minimum
    certified: bool | None = None  # whether the policy certifies the answer; None: it certifies nothing
    explored: bool = False  # drawn to the end, for learning
    decided: bool = True  # whether the policy decided how many; False: it can't be voted on
    unit: BudgetUnit = "samples"  # of its budget
    cost: float | None = None  # what it counts for in the average, in that unit; None: as `cost_samples`
    notes: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    spent: Spend = field(default_factory=Spend)
    prompt_cost: PromptCost = NO_PROMPT_COST  # of what was spent
    maybe: Spend = field(default_factory=Spend)  # upper bound of what may be charged for failed calls
    modes: tuple[ModeUse, ...] = ()  # of a menu, in the order of their first draws; (): there is none
    response_modes: tuple[str, ...] = ()  # the mode of each response; (): there is no menu
    answered_by: str = ""  # the mode whose sample is the reply
    verified: VerifierUse = NO_VERIFICATIONS  # its cost is in what was spent
    responses: tuple[Response, ...] = field(default=(), repr=False)  # in their order
    server_info: Mapping[str, str] = field(default_factory=dict, hash=False)  # of the upstream's reply
    best: int | None = None  # index of the response that represents the winner
    prompt: str = field(default="", repr=False)

    @property
    def is_large(self) -> bool:
        """Whether the reply may be so large that writing it would hold up other requests."""
        return sum([response.size for response in self.responses]) > MAX_INLINE

    @property
    def calibrated_agreement(self) -> float | None:
        """The agreement as calibration measures it: among the samples with an answer."""
        return self.agreement if self.answered_share is None else self.answered_share

    @property
    def cost_samples(self) -> int:
        """Samples that it cost or may have cost, used or not: what the average counts."""
        return max(self.samples, self.spent.samples + self.maybe.samples)

    @property
    def budget_cost(self) -> float:
        """What it counts for in the average, in the unit of its budget."""
        return float(self.cost_samples) if self.cost is None else self.cost

    @property
    def no_vote_reason(self) -> str | None:
        """Why there was no vote; None where there was one, or where none was wanted."""
        prefix = "no vote: "
        return next((note.removeprefix(prefix) for note in self.notes if note.startswith(prefix)), None)

    @property
    def mode_counts(self) -> str:
        """The samples of each mode of a menu, e.g. "small:3,large:1"; "": there is no menu."""
        return ",".join([f"{use.name}:{use.samples}" for use in self.modes])

    @property
    def counts_in_average(self) -> bool:
        """Does it count in the average? Only if it cost something and a policy decided it."""
        return self.mode == "adaptive" and self.n == 1 and self.cost_samples > 0

    @property
    def counts_as_voted(self) -> bool:
        """Does it count in the average of requests that can be voted on?"""
        return self.counts_in_average and self.decided

    @property
    def moves_price(self) -> bool:
        """Does its cost move the price? Not if failures cut it short below its budget.

        Such requests are cheap. If the price fell because of them, a failing upstream would be sent more.
        """
        return self.counts_in_average and not (self.missing and self.budget_cost < self.budget)


Headers = dict[str, str]

# makes browsers ask for the key; Chromium can't read it if a second scheme stands in the same line
_CHALLENGE = 'Basic realm="adacompute", charset="UTF-8"'
_MAX_MESSAGE = 500  # characters of a message
_MAX_RETRY_AFTER = 86_400  # seconds
_CLIENT_STATUSES = {400, 404, 409, 413, 415, 422}  # of an upstream, about the client's own request
_KEY_STATUSES = {401, 402, 403, 407}  # about the gateway's own key or account, or its proxy's
# codes of a 403 that are about the client's request: what it asked for is refused, not the key
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
    """Status, headers and body of the reply for an error, as OpenAI shapes them."""
    if isinstance(error, ServeError):
        headers = {} if error.retry_after is None else _retry_after(error.retry_after)
        if isinstance(error, CapReached | WeakVote):
            headers |= _forbid_retry()  # SDKs would retry a 429, and pay for a weak vote once more
        if isinstance(error, Unauthorized) and error.status == 401:
            headers["www-authenticate"] = _CHALLENGE
        return _format_error(error.status, headers, str(error), error.kind, error.code, error.param)
    return _build_upstream_error(error)


def find_error_code(error: ServeError | EndpointError) -> str:
    """The code that an error is counted, logged and shown by: one of the gateway's own, or a well-known one.

    An upstream's codes are any text, so they are no labels.
    """
    if isinstance(error, ServeError):
        return error.code
    if _find_upstream_status(error) and error.reply.code in _KNOWN_CODES:
        return str(error.reply.code)
    return str(orjson.loads(_describe_upstream_error(error)[2])["error"]["code"])


def _build_upstream_error(error: EndpointError) -> tuple[int, Headers, bytes]:
    """The upstream's own words where it has some for the client, else ours."""
    status = _find_upstream_status(error)
    if status is None:
        return _describe_upstream_error(error)
    headers = dict(error.reply.headers)
    if error.retry_after is not None or status in (429, 503):
        headers |= _retry_after(1.0 if error.retry_after is None else error.retry_after)
    return _dump_error(status, headers, error.reply.fields)


def _describe_upstream_error(error: EndpointError) -> tuple[int, Headers, bytes]:
    if isinstance(error, EndpointRefused):
        return _build_upstream_refusal(error)
    kind = "server_error"
    wait = _retry_after(1.0 if error.retry_after is None else error.retry_after)
    if isinstance(error, RateLimited):
        message = f"the upstream accepts no more requests now; try again in {wait['retry-after']} s"
        return _format_error(429, wait, message, "rate_limit_error", "upstream_rate_limited")
    if isinstance(error, EndpointTimeout):
        message = (
            "no answer came before the deadline, the gateway's or the request's own (x-adacompute-deadline); "
            "try again, give more time, or ask for fewer tokens"
        )
        return _format_error(504, {}, message, kind, "upstream_timeout")
    if isinstance(error, EndpointResting):
        message = f"the upstream fails, and isn't called for a while; try again in {wait['retry-after']} s"
        return _format_error(503, wait, message, kind, "upstream_resting")
    if isinstance(error, SendingStopped):
        return _format_error(503, wait, "the gateway is closing down; try again", kind, "stopping")
    if isinstance(error, EndpointUnreachable):
        return _format_error(
            502, {}, "the upstream can't be reached; try again later", kind, "upstream_unreachable"
        )
    if isinstance(error, ReplyCompressed):
        message = "the upstream compresses its answers, which the gateway doesn't ask for; tell the operator"
        return _format_error(502, {}, message, kind, "upstream_failed")
    if isinstance(error, ReplyInvalid) and error.status in (None, 200):
        message = "the upstream's answer is not a chat completion in JSON; try again, or tell the operator"
        return _format_error(502, {}, message, kind, "upstream_failed")
    status_text = "" if error.status in (None, 200) else f" (it answered {error.status})"
    return _format_error(502, {}, f"the upstream failed{status_text}; try again", kind, "upstream_failed")


def _build_upstream_refusal(error: EndpointRefused) -> tuple[int, Headers, bytes]:
    if error.status in _CLIENT_STATUSES:
        return _format_error(
            error.status, {}, _hide_address(str(error)), "invalid_request_error", "upstream_refused"
        )
    if error.status in _KEY_STATUSES:
        message = "the upstream doesn't accept the gateway's own key; tell the operator"
        return _format_error(502, _forbid_retry(), message, "server_error", "upstream_credentials")
    status_text = "" if error.status is None else f" (it answered {error.status})"
    message = f"the upstream refused what the gateway sent{status_text}; tell the operator"
    return _format_error(502, _forbid_retry(), message, "server_error", "upstream_failed")


def _find_upstream_status(error: EndpointError) -> int | None:
    """The status under which an upstream's own words are passed on; None: they are not.

    What it says about the gateway's key is the operator's business, unless the code is about the request.
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
    """An endpoint's message without its address, which it begins with.

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


def _forbid_retry() -> Headers:
    return {"x-should-retry": "false"}


def _format_error(
    status: int, headers: Headers, message: str, kind: str, code: str, param: str | None = None
) -> tuple[int, Headers, bytes]:
    line = " ".join(replace_surrogates(message).split())
    line = shorten(line, _MAX_MESSAGE)
    error: dict[str, Any] = {
        "message": line,
        "type": kind,
        "param": param and replace_surrogates(param),
        "code": code,
    }
    return _dump_error(status, headers, error)


def _dump_error(status: int, headers: Headers, error: Mapping[str, Any]) -> tuple[int, Headers, bytes]:
    return status, {"content-type": "application/json"} | headers, dump_json({"error": error})


_CHUNK_LENGTH = 256  # characters of one chunk
_DONE = b"data: [DONE]\n\n"
_MAX_DEPTH = 100  # levels of nesting of a message that are passed on
_STREAMED_FIELDS = ("role", "content", "tool_calls")  # a stream has chunks of their own for these


def build_completion(outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> dict[str, Any]:
    """A whole chat completion, with the usage of all samples."""
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
    """The same as events of a stream: the text, how it ended, usage if requested, and the end."""
    head = _build_head(outcome, "chat.completion.chunk")
    if request.include_usage:
        head["usage"] = None  # in all chunks but the last, as at OpenAI
    responses = _select_responses(outcome, request)
    dump = dump_large_json if outcome.is_large else dump_json
    for index, response in enumerate(responses):
        *deltas, last = _build_deltas(response, request)
        for choice in deltas:
            yield _format_event(dump(head | {"choices": [{"index": index} | choice]}))
        end = {"adacompute": build_extra(outcome, unit=unit)} if index == len(responses) - 1 else {}
        yield _format_event(dump(head | {"choices": [{"index": index} | last]} | end))
    if request.include_usage:
        yield _format_event(dump_json(head | {"choices": [], "usage": build_usage(outcome)}))
    yield _DONE


def build_extra(outcome: RequestOutcome, *, unit: Unit) -> dict[str, Any]:
    """The object that a reply has beyond OpenAI's: the vote behind the answer, and its cost.

    The cost is in `unit`; where that is samples, in the unit of the request's budget.
    """
    unit = outcome.unit if unit == "samples" else unit
    fields: dict[str, Any] = {
        "samples": outcome.samples,
        "answer": outcome.answer,
        "votes": dict(outcome.votes),
        "agreement": outcome.agreement,
        "price": outcome.price,
        "policy": outcome.policy,
        "model": outcome.model,  # as asked for: the completion's own is what the upstream says
        "cost": outcome.spent.amount_in(unit),
        "unit": unit,
    }
    if outcome.mode != "adaptive":
        fields["mode"] = outcome.mode
    if outcome.notes:
        fields["notes"] = list(outcome.notes)
    if outcome.abstained:
        fields["abstained"] = outcome.abstained
    if outcome.missing:
        fields["missing"] = outcome.missing
    if outcome.would is not None:
        fields["would"] = outcome.would
    if outcome.agreed is not None:
        fields["agreed"] = outcome.agreed
    if outcome.weak:
        fields["weak"] = True
    if outcome.certified is not None:
        fields["certified"] = outcome.certified
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
    if use.usage.cached_tokens:
        fields["cached_tokens"] = use.usage.cached_tokens
    if reasoning := use.usage.details.get(REASONING_TOKENS):
        fields["reasoning_tokens"] = reasoning
    if use.answer is not None:
        fields["answer"] = use.answer
    if use.missing:
        fields["missing"] = use.missing
    if use.failed:
        fields["failed"] = use.failed
    return fields


REASONING_TOKENS = ("completion_tokens_details", "reasoning_tokens")
_NOTE = "x-adacompute-note"
_MAX_NOTE = 300  # characters


def build_headers(outcome: RequestOutcome) -> dict[str, str]:
    """The headers of a reply that describe its outcome."""
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


@lru_cache(maxsize=256)  # of names that serve
def _quote_name(name: str) -> str:
    """A policy's name in ASCII, as a header is."""
    return quote(name, safe=" !#$&'()*+,/:;=?@[]")


def build_note_header(notes: Sequence[str]) -> dict[str, str]:
    """The header that repeats the notes, for clients whose libraries drop what isn't OpenAI's in a body.

    >>> build_note_header(["no vote: temperature is 0"])
    {'x-adacompute-note': 'no vote: temperature is 0'}
    """
    line = shorten(" ".join("; ".join(notes).split()), _MAX_NOTE)
    text = line.replace("…", "...").encode("ascii", "replace").decode("ascii")
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return {_NOTE: text} if text else {}


def filter_logprobs(logprobs: Mapping[str, Any] | None, request: ChatRequest) -> Mapping[str, Any] | None:
    """The log-probabilities of a choice that the client asked for itself."""
    if logprobs is None or not request.logprobs:
        return None
    if request.body.get("top_logprobs"):
        return logprobs
    return {name: _drop_alternatives(tokens) for name, tokens in logprobs.items()}


def _drop_alternatives(tokens: object) -> object:
    """Tokens without their alternatives."""
    if isinstance(tokens, PackedList):
        return tokens.map(_drop_all_alternatives)
    return _drop_all_alternatives(tokens) if isinstance(tokens, list) else tokens


def _drop_all_alternatives(tokens: list[Any]) -> list[Any]:
    return [
        {**token, "top_logprobs": []} if isinstance(token, dict) and token.get("top_logprobs") else token
        for token in tokens
    ]


def _select_responses(outcome: RequestOutcome, request: ChatRequest) -> tuple[Response, ...]:
    """The responses that the client gets: all that it asked for, else the winner's representative."""
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
    """The usage of all samples, as OpenAI shapes it."""
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
    if usage.cached_tokens > 0:  # as checked: no more than the prompt has
        fields.setdefault("prompt_tokens_details", {})["cached_tokens"] = usage.cached_tokens
    return fields


def _complete_message(response: Response) -> dict[str, Any]:
    """The message as it came, completed where a server left out what SDKs rely on."""
    message = dict(response.message)
    if not isinstance(message.get("content"), str):  # none, or parts, as some servers give them
        refused = response.text == message.get("refusal")
        message["content"] = None if refused else response.text or None
    message["role"] = "assistant"
    return message


def _build_deltas(response: Response, request: ChatRequest) -> Iterator[dict[str, Any]]:
    """One choice in pieces; the last has the finish reason. Log-probabilities come with the text."""
    message = _complete_message(response)
    text, calls = message["content"], message.get("tool_calls")
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
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, Mapping):
            yield {"delta": {"tool_calls": [{**call, "index": place}]}, "finish_reason": None}
    end: dict[str, Any] = {"delta": {}, "finish_reason": response.finish_reason or "stop"}
    yield end if logprobs is None or text else end | {"logprobs": logprobs}


def dump_large_json(value: Mapping[str, Any]) -> bytes:
    """The same as `dump_json` for a large reply; for a thread, so that others go on meanwhile."""
    return b"".join(encode_in_parts(value, dump_json))


def dump_json(value: Any) -> bytes:  # noqa: ANN401 - of JSON
    """A reply as JSON, whatever an upstream has put into it; packed lists may be in it."""
    try:
        return orjson.dumps(value, default=_encode_packed)
    except TypeError:  # servers may send what orjson refuses: half surrogates, numbers beyond 64 bits
        return orjson.dumps(_make_serialisable(value))


def _encode_packed(value: object) -> orjson.Fragment:
    if isinstance(value, PackedList):
        return value.to_fragment(dump_json)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _make_serialisable(value: object, depth: int = 0) -> object:
    """A value that can be serialised: invalid strings, huge numbers and deep nesting are replaced."""
    if isinstance(value, PackedList):
        return _encode_packed(value)
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


_HEAD_FIELDS = ("id", "object", "created", "model")


class StreamRelay:
    """One upstream stream, passed on event by event, without what only the gateway asked for.

    Usage and log-probabilities that the client didn't ask for are removed; usage that it asked for
    and that didn't come is added. The chunk that ends a choice is held back until it is known whether
    it is the last: the gateway's own object comes with it, because many clients read the first choice
    of every chunk, and fail where there is none.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._head: dict[str, Any] = {}
        self._usage_sent = not request.include_usage  # whether no usage needs to be sent any more
        self.is_open = False  # whether the gate of `hold` is open
        self._held: list[bytes] = []
        self._pending: list[dict[str, Any]] = []  # the chunk that ended the last choice, and later ones

    async def hold(self, stream: AsyncIterator[Event], gate: StreamGate) -> None:
        """Reads a stream until its gate is open or it has ended; what was read is kept."""
        self._stream = stream
        async for event in stream:
            self._held += await self._pass_on(event)
            if event.value is not None and gate.add(event.value):
                self.is_open = True
                return

    async def rest(self) -> AsyncGenerator[bytes, None]:
        """What `hold` kept, and the events after it, without the end."""
        for data in self.release():
            yield data
        async for event in self._stream:
            for data in await self._pass_on(event):
                yield data

    def release(self) -> list[bytes]:
        """What `hold` kept."""
        held, self._held = self._held, []
        return held

    async def events(self, stream: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
        """The events for the client, without the end."""
        async for event in stream:
            for data in await self._pass_on(event):
                yield data

    def finish(self, extra: Mapping[str, Any], usage: Mapping[str, Any], *, several: bool = False) -> bytes:
        """The last chunks, with the gateway's own object, and the end of the stream.

        `several`: there were others besides; `usage`, which is of all, replaces what the upstream says.
        """
        last, *rest = self._pending or [{**self._head, "choices": []}]
        if not self._usage_sent:
            rest.append({**self._head, "choices": [], "usage": usage})
        chunks = [{**last, "adacompute": extra}, *rest]
        if several:
            chunks = [
                {**chunk, "usage": usage} if isinstance(chunk.get("usage"), dict) else chunk
                for chunk in chunks
            ]
        return b"".join(_format_event(encode_json(chunk)) for chunk in chunks) + _format_event(b"[DONE]")

    async def _pass_on(self, event: Event) -> list[bytes]:
        large = len(event.data) > MAX_INLINE
        return await run_in_thread(self._relay, event) if large else self._relay(event)

    def _relay(self, event: Event) -> list[bytes]:
        """What the client gets once an event has come."""
        value = event.value
        if value is None:
            return []
        self._head = self._head or {key: value[key] for key in _HEAD_FIELDS if key in value}
        self._usage_sent = self._usage_sent or isinstance(value.get("usage"), dict)
        visible = self._filter_event(value)
        if visible is None:
            return []
        passed: list[bytes] = []
        if self._pending and visible.get("choices"):  # it wasn't the last
            passed = [_format_event(encode_json(chunk)) for chunk in self._pending]
            self._pending = []
        if self._pending or _ends_choice(visible):
            self._pending.append(visible)
            return passed
        if visible is value:
            return [*passed, _format_event(event.data)]
        large = len(event.data) > MAX_INLINE
        data = b"".join(encode_in_parts(visible, encode_json)) if large else encode_json(visible)
        return [*passed, _format_event(data)]

    def _filter_event(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """The part of an event that the client sees: the same object if all of it, None if nothing."""
        choices = value.get("choices")
        if not self._request.include_usage and "usage" in value:
            if not choices:
                return None
            value = {key: item for key, item in value.items() if key != "usage"}
        if not self._passes_logprobs and isinstance(choices, list) and any(map(_has_logprobs, choices)):
            visible = [self._filter_choice(choice) for choice in choices]
            value = value if visible == choices else {**value, "choices": visible}
        return value

    @property
    def _passes_logprobs(self) -> bool:
        return self._request.logprobs and bool(self._request.body.get("top_logprobs"))

    def _filter_choice(self, choice: object) -> object:
        """A choice with the log-probabilities that the client asked for, or without the field."""
        if not isinstance(choice, dict) or "logprobs" not in choice:
            return choice
        if self._request.logprobs:
            logprobs = choice["logprobs"]
            return {
                **choice,
                "logprobs": filter_logprobs(logprobs, self._request)
                if isinstance(logprobs, dict)
                else logprobs,
            }
        return {key: item for key, item in choice.items() if key != "logprobs"}


def _ends_choice(value: dict[str, Any]) -> bool:
    choices = value.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _has_logprobs(choice: object) -> bool:
    return isinstance(choice, dict) and choice.get("logprobs") is not None


def _format_event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
