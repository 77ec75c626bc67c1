"""Parses a server's reply into responses with token counts, or into an error.

The entry point is `interpret_reply`. Other functions parse choices, count tokens if a server reports too few,
and parse JSON with the endpoint's key masked.
"""

import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import orjson
from yarl import URL

from adacompute.answers.signals import NO_TOKENS, add_answer_signals, summarise_tokens
from adacompute.client.error_object import (
    build_error_object,
    describe_page,
    error_from_status,
    find_message,
    find_remedy,
)
from adacompute.client.large_json import (
    MAX_INLINE,
    Alternative,
    ReplyToken,
    encode_token,
    load_large_json,
    load_odd_json,
    run_in_thread,
)
from adacompute.client.server_quirks import (
    LOGPROBS,
    ModelQuirks,
    ServerQuirks,
    count_text,
    find_refused_fields,
    find_refused_limit,
    is_about_n,
)
from adacompute.errors import (
    EndpointError,
    EndpointRefused,
    ReplyInvalid,
    shorten,
)
from adacompute.records import Call, Sample, Secret, Signals, quick_dataclass

P = ParamSpec("P")
T = TypeVar("T")

SPENDING_STOPPED = "nothing more is sent for this request: no more may be spent on it; ask for less"
CHARACTERS_A_TOKEN = 4.0  # characters per token: a rough average for English text
_IMPLAUSIBLE_RATIO = 7.0  # characters per token that only unusual texts exceed, e.g. tables or indented code
_MAX_RATIO = 32  # characters per token that no text exceeds, not even a table or indented code
_MAX_TOKENS = 10**10  # maximum number of tokens per call: far more than any model supports
# largest number in a reply that is taken for a count, so that sums of millions of counts fit in 64 bits
_MAX_COUNT = 2**40
_USAGE_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_CACHED_TOKENS = ("prompt_tokens_details", "cached_tokens")
_MAX_DETAILS = 32  # maximum number of details (such as cached tokens) that are kept from a reply's usage
_MAX_DETAIL_NAME = 64  # maximum number of characters in the name of a detail of the usage
_FIELD_NAME = re.compile(r"[a-z_]+")  # matches names of fields in OpenAI's replies
_ESCAPE = re.compile(rb"\\(?:u00|/)")  # JSON escapes of characters that an API key can contain
# fields of a message that hold text which the model generated but which isn't part of its response
_HIDDEN_TEXTS = ("reasoning_content", "reasoning")


_MAX_MESSAGE = 200  # maximum number of characters shown of a server's message


class HttpReply(NamedTuple):
    """A server's reply with any status.

    `value` is the parsed body if it is JSON, otherwise the body as text; the endpoint's key is masked.
    """

    status: int
    value: object
    retry_after: float | None = None  # seconds to wait before a retry
    # if the reply is an error, its headers that say when to retry
    headers: Mapping[str, str] = MappingProxyType({})
    size: int = 0  # size of a successful reply in bytes, if known


class SentRequest(NamedTuple):
    """A request as sent: its body, for `n` choices with at most `cap` tokens each."""

    body: Mapping[str, Any]
    n: int
    cap: int | None
    at: float  # time of sending, in seconds since 1970
    seconds: float  # time from sending to the response
    optional: frozenset[str] = frozenset()  # fields to leave out if the endpoint rejects them


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One choice of a reply."""

    text: str  # "" if the message had no text, e.g. for a tool call
    finish_reason: str | None = None
    tokens: int | None = None  # number of tokens in this response
    estimated: bool = False  # whether `tokens` is inexact: a share of the total, or estimated from the length
    logprob: float | None = None  # natural log-probability of the response: the sum over its tokens
    # mean entropy per token in nats, from the alternatives that the server listed
    entropy: float | None = None
    signals: Signals | None = None  # the model's confidence in the whole text; `to_sample` adds the answer's
    message: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the message as the server sent it
    # log-probabilities as the server sent them; in a large reply, each token is a struct
    logprobs: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    size: int = 0  # size of the whole reply in bytes, if it is large

    @property
    def finished(self) -> bool | None:
        """Whether the response is complete. False: cut off by a token limit; None: unknown."""
        return None if self.finish_reason is None else self.finish_reason != "length"

    def to_sample(
        self, *, answer: str | None = None, extra: Mapping[str, Any] = MappingProxyType({})
    ) -> Sample:
        """Converts the response to a sample for a pool; `answer` is its extracted answer, if there is one."""
        tokens = self.logprobs.get("content") if self.logprobs and self.signals and answer else None
        return Sample(
            text=replace_surrogates(self.text),
            answer=answer,
            tokens=self.tokens,
            logprob=self.logprob,
            entropy=self.entropy,
            finished=self.finished,
            signals=add_answer_signals(self.signals, tokens, self.text, answer) if tokens else self.signals,
            extra={"tokens_estimated": True, **extra} if self.estimated else {**extra},
        )


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class CompletionReply:
    """The reply to a successful completion call."""

    responses: tuple[Response, ...]
    calls: tuple[Call, ...]  # failed attempts, then the successful one
    body: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)  # the reply's JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawSuccess:
    """The event that some of the requested responses arrived; store them before reading the next event."""

    responses: tuple[Response, ...]
    calls: tuple[Call, ...]
    first: int  # index of the first response; the others have the indices after it
    body: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)  # the reply's JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawFailure:
    """The event that some of the requested responses won't arrive."""

    error: EndpointError
    calls: tuple[Call, ...]
    first: int  # index of the first missing response
    count: int


class Choice(NamedTuple):
    """A choice of a reply whose message could be read, before its tokens are counted."""

    text: str
    finish_reason: str | None
    message: Mapping[str, Any]
    logprobs: Mapping[str, Any] | None
    tokens: Sequence[dict[str, Any]] | None  # the tokens in `logprobs`

    @property
    def length(self) -> int:
        """Characters generated, including hidden ones (reasoning, tool calls); at least 1."""
        message, length = self.message, len(self.text)
        for name in _HIDDEN_TEXTS:
            if (text := message.get(name)) and isinstance(text, str):
                length += len(text)
        calls = message.get("tool_calls")
        return max(1, length + _count_call_characters(calls) if calls else length)

    def count_exactly(self, cap: int | None) -> int | None:
        """Returns the exact number of tokens: from logprobs, or `cap` if the response was cut off there."""
        if self.tokens is not None:
            return len(self.tokens)
        # a token has at least one character, so a response with fewer than `cap` characters hit another limit
        cut_off = self.finish_reason == "length" and self.length >= (cap or 0)
        return cap if cut_off else None


class TokenCount(NamedTuple):
    """Token counts of a reply: per choice (and whether estimated), and in total."""

    per_choice: tuple[tuple[int, bool], ...]
    total: int
    estimated: bool  # whether `total` was counted or estimated here; otherwise the server reported it


class TooManyChoices(EndpointRefused):
    """The server refused this number of choices, and may accept fewer."""

    kind = "n-limit"

    def __init__(self, message: str, fewer: int, *, status: int) -> None:
        super().__init__(message, status=status)
        self.fewer = fewer  # a smaller number of choices that the server may accept


class FieldsRefused(EndpointRefused):
    """The server refused fields that can be omitted, so the call is retried without them."""

    def __init__(self, message: str, fields: frozenset[str], *, status: int) -> None:
        super().__init__(message, status=status)
        self.fields = fields
        self.kind = "no-logprobs" if fields <= LOGPROBS else "token-limit"
        if "stream_options" in fields:
            self.kind = "no-stream-options"


def interpret_reply(
    request: SentRequest, http_reply: HttpReply, *, key: Secret | None, url: URL, quirks: ServerQuirks
) -> CompletionReply:
    """Returns the responses in a server's reply, or raises its error with `key` masked. Updates `quirks`.

    Anything unexpected in the reply raises ReplyInvalid, so that only this call fails.
    """
    try:
        if http_reply.status == 200:
            return _build_reply(request, http_reply, key, quirks)
        error = _interpret_refusal(request, http_reply, key, url, quirks)
    except EndpointError as exc:
        if exc.reply is None and isinstance(http_reply.value, dict) and http_reply.value.get("error"):
            # an error sent with status 200 is reported as 502
            exc.reply = build_error_object(http_reply.value, 502, key=key, url=str(url))
        raise
    except Exception as exc:  # noqa: BLE001 - see above
        why = one_line(f"{type(exc).__name__}: {exc}", key)
        error = ReplyInvalid(
            f"{url}: answered {http_reply.status} with what can't be read ({why}); try again",
            status=http_reply.status,
            paid=True,
        )
    raise error


def _build_reply(
    request: SentRequest, http_reply: HttpReply, key: Secret | None, quirks: ServerQuirks
) -> CompletionReply:
    choices, received = parse_choices(http_reply.value, key=key)
    body: dict[str, Any] = http_reply.value  # type: ignore[assignment] # parse_choices has checked it
    model_quirks = quirks.ensure(request.body.get("model"))
    model_quirks.record_choices(request.n, received)
    if request.body.get("logprobs"):
        model_quirks.record_logprobs(logprobs=any(choice.tokens is not None for choice in choices))
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt = parse_count(usage.get("prompt_tokens"), _MAX_TOKENS) or None
    reported = read_completion_tokens(usage)
    responses, token_count = build_responses(
        choices, reported, requested=request.n, cap=request.cap, quirks=model_quirks, size=http_reply.size
    )
    details = _parse_usage_details(usage)
    cached = parse_count(details.get(_CACHED_TOKENS))
    # the number of cached tokens is missing or impossible
    if cached is None or prompt is None or cached > prompt:
        details.pop(_CACHED_TOKENS, None)
        cached = None
    # the charge is known if both token counts are reported, and neither is too low for its text
    is_metered = prompt and reported is not None and prompt * _MAX_RATIO >= count_text(request.body)
    is_short = token_count.estimated and any(choice.tokens is None for choice in choices)
    call = Call(
        at=request.at,
        seconds=request.seconds,
        asked=request.n,
        got=len(responses),
        surplus=received - len(responses),
        status=200,
        prompt_tokens=estimate_prompt_tokens(request.body) if prompt is None else prompt,
        cached_tokens=cached,
        usage_details=details,
        completion_tokens=token_count.total,
        estimated=token_count.estimated or prompt is None,
        unmetered=not is_metered or is_short,
    )
    return CompletionReply(responses=responses, calls=(call,), body=body)


def _interpret_refusal(
    request: SentRequest, http_reply: HttpReply, key: Secret | None, url: URL, quirks: ServerQuirks
) -> EndpointError:
    """Builds the error for a refused request; TooManyChoices and FieldsRefused say how to try again."""
    error, message, param = build_refusal(url, http_reply, key)
    if http_reply.status in (400, 422):
        code = "" if error.reply is None else error.reply.code
        fields = find_refused_fields(
            message, param, request.body, optional=request.optional
        ) or find_refused_limit(message, param, code, request.body, optional=request.optional)
        if fields:
            return FieldsRefused(str(error), fields, status=http_reply.status).copy_reply(error)
        model_quirks = quirks.ensure(request.body.get("model"))
        if is_about_n(message, param) and (fewer := model_quirks.record_refusal(request.n, message)):
            return TooManyChoices(str(error), fewer, status=http_reply.status).copy_reply(error)
    return error


def build_refusal(url: URL, http_reply: HttpReply, key: Secret | None) -> tuple[EndpointError, str, object]:
    """Returns the error for a status other than 200, the server's message, and the parameter it names."""
    message, status = find_message(http_reply.value), http_reply.status
    shown = one_line(describe_page(message), key) or "no reason given"
    error = error_from_status(status, f"{url}: answered {status}: {shown}{find_remedy(status, key)}")
    error.retry_after = http_reply.retry_after
    error.reply = build_error_object(
        http_reply.value, status, key=key, url=str(url), headers=http_reply.headers
    )
    return error, message, None if error.reply is None else error.reply.fields["param"]


def parse_choices(value: object, *, key: Secret | None = None) -> tuple[list[Choice], int]:
    """Returns a reply's usable choices, and the number of all its choices; ReplyInvalid if none is usable."""
    if not isinstance(value, dict):
        raise _build_invalid_error("its reply is JSON, but no object")
    choices = value.get("choices")
    if not isinstance(choices, list):
        detail = f": {one_line(find_message(value), key)}" if value.get("error") else ""
        raise _build_invalid_error(f"its reply has no list of choices{detail}")
    usable = [choice for item in choices if (choice := _parse_choice(item)) is not None]
    if not usable:
        raise _build_invalid_error(
            "its reply has no choice with a message" if choices else "its reply has an empty list of choices"
        )
    return usable, len(choices)


def _parse_choice(value: object) -> Choice | None:
    if not isinstance(value, dict):
        return None
    message = value.get("message")
    if not isinstance(message, dict):
        return None
    text = _message_text(message)
    if text is None or (not text and value.get("error")):
        return None
    reason = value.get("finish_reason")
    logprobs = value.get("logprobs")
    return Choice(
        text=text,
        finish_reason=reason if isinstance(reason, str) else None,
        message=message,
        logprobs=logprobs if isinstance(logprobs, dict) else None,
        tokens=None if logprobs is None else read_tokens(logprobs),
    )


def _message_text(message: Mapping[str, Any]) -> str | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, list):  # some servers send a list of parts
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return None


def _build_invalid_error(message: str) -> ReplyInvalid:
    return ReplyInvalid(message, status=200, paid=True)


def build_responses(
    choices: list[Choice],
    reported: int | None,
    *,
    requested: int,
    cap: int | None,
    quirks: ModelQuirks,
    size: int = 0,
) -> tuple[tuple[Response, ...], TokenCount]:
    """Returns the first `requested` choices as responses, and the token count of all choices.

    `reported` is the number of completion tokens in the reply's usage, if it has one.
    """
    token_count = count_tokens(choices, reported, cap=cap, quirks=quirks)
    responses = [
        Response(
            text=choice.text,
            finish_reason=choice.finish_reason,
            tokens=tokens,
            estimated=estimated,
            logprob=summary.logprob,
            entropy=summary.entropy,
            signals=summary.signals,
            message=choice.message,
            logprobs=choice.logprobs,
            size=size,
        )
        for choice, (tokens, estimated) in zip(choices[:requested], token_count.per_choice, strict=False)
        for summary in [NO_TOKENS if choice.tokens is None else summarise_tokens(choice.tokens)]
    ]
    return tuple(responses), token_count


def count_tokens(
    choices: Sequence[Choice], reported: int | None, *, cap: int | None, quirks: ModelQuirks
) -> TokenCount:
    """Counts the tokens of each choice, even if the server reported only those of one choice, or none.

    `cap` is the request's token limit per response. Records in `quirks` how the server counts. llama.cpp
    lists the end token in logprobs but not in usage, so a difference of one per choice is allowed.
    """
    if len(choices) == 1:
        return _count_single(choices[0], reported, cap, quirks)
    lengths = [choice.length for choice in choices]
    has_text = any(choice.text for choice in choices)
    if reported is not None and _is_too_few(reported, max(lengths), has_text=has_text):
        reported = None
    counts = [choice.count_exactly(cap) for choice in choices]
    if reported is None:
        return _estimate_counts(lengths, counts, CHARACTERS_A_TOKEN)
    exact = [tokens for tokens in counts if tokens is not None]
    if len(exact) == len(choices):
        return _check_reported(exact, reported, quirks)
    if _covers_one_choice(lengths, sum(exact), reported, quirks):
        learned_ratio = quirks.characters_a_token
        if reported < sum(exact) or (learned_ratio is not None and quirks.per_choice is None):
            quirks.per_choice = True  # shown by exact counts, or by the model's own characters per token
        return _estimate_counts(lengths, counts, learned_ratio or sum(lengths) / (reported * len(choices)))
    return _split_total(lengths, counts, reported)


def _is_too_few(reported: int, length: int, *, has_text: bool) -> bool:
    """Whether a choice with `length` characters must have more tokens than were reported."""
    return (reported == 0 and has_text) or length > max(1, reported * _MAX_RATIO)


def _count_single(choice: Choice, reported: int | None, cap: int | None, quirks: ModelQuirks) -> TokenCount:
    length = choice.length
    if reported is None or _is_too_few(reported, length, has_text=bool(choice.text)):
        known = choice.count_exactly(cap)
        tokens = known or _estimate_by_length(length, CHARACTERS_A_TOKEN)
        return TokenCount(((tokens, known is None),), tokens, True)
    if choice.tokens is not None and len(choice.tokens) > reported + 1:
        return TokenCount(((len(choice.tokens), False),), len(choice.tokens), True)
    quirks.record_text(length, reported)
    return TokenCount(((reported, False),), reported, False)


def _check_reported(exact: list[int], reported: int, quirks: ModelQuirks) -> TokenCount:
    """Checks the reported total against exact counts of all choices."""
    counted, choices = sum(exact), len(exact)
    if counted - choices <= reported <= counted + choices:
        if counted - choices > max(exact) + 1:  # no single choice has so many tokens: the usage covers all
            quirks.per_choice = False
        ends = 1 if reported == counted - choices else 0
        return TokenCount(tuple((tokens - ends, False) for tokens in exact), reported, False)
    if reported > counted:  # the total includes hidden tokens, e.g. reasoning
        shares = _split_proportionally(reported, exact)
        return TokenCount(tuple((tokens, True) for tokens in shares), reported, False)
    if any(abs(reported - tokens) <= 1 for tokens in exact):
        quirks.per_choice = True
    return TokenCount(tuple((tokens, False) for tokens in exact), counted, True)


def _covers_one_choice(lengths: Sequence[int], exact: int, reported: int, quirks: ModelQuirks) -> bool:
    """Whether the reported usage covers only one of several choices, judged by characters per token."""
    if reported < exact:
        return True
    if quirks.per_choice is not None:
        return quirks.per_choice
    ratio = sum(lengths) / reported
    learned_ratio = quirks.characters_a_token
    # if the usage covers only one of n choices, `ratio` is n times too high; sqrt(n) lies between 1 and n
    margin = math.sqrt(len(lengths))
    if learned_ratio is None:
        return ratio > max(CHARACTERS_A_TOKEN * margin, _IMPLAUSIBLE_RATIO)
    return ratio > learned_ratio * margin


def _estimate_counts(lengths: Sequence[int], counts: Sequence[int | None], ratio: float) -> TokenCount:
    per_choice = tuple(
        (_estimate_by_length(length, ratio), True) if tokens is None else (tokens, False)
        for length, tokens in zip(lengths, counts, strict=True)
    )
    return TokenCount(per_choice, sum(tokens for tokens, _ in per_choice), True)


def _split_total(lengths: Sequence[int], counts: Sequence[int | None], reported: int) -> TokenCount:
    """Gives choices that can't be counted exactly a share of the reported total, in proportion to length."""
    rest = reported - sum(tokens or 0 for tokens in counts)
    uncounted = [length for length, tokens in zip(lengths, counts, strict=True) if tokens is None]
    shares = iter(_split_proportionally(rest, uncounted))
    per_choice = tuple((next(shares), True) if tokens is None else (tokens, False) for tokens in counts)
    return TokenCount(per_choice, reported, False)


def _split_proportionally(total: int, weights: Sequence[int]) -> list[int]:
    """Splits a total into integer shares in proportion to weights."""
    shares, remaining, weight_left = [], total, sum(weights)
    for item_weight in weights:
        share = round(remaining * item_weight / weight_left) if weight_left else 0
        shares.append(share)
        remaining -= share
        weight_left -= item_weight
    return shares


def _estimate_by_length(length: int, ratio: float) -> int:
    return max(1, math.ceil(length / ratio))


def parse_count(value: object, most: int = _MAX_COUNT) -> int | None:
    """Returns a count reported by a server; None if it isn't a count, or is impossibly large."""
    # excludes `True`, which is an int too
    return value if type(value) is int and 0 <= value <= most else None


def read_completion_tokens(usage: Mapping[str, Any]) -> int | None:
    """Reads how many tokens were generated, including reasoning that Gemini's API counts only in the total.

    >>> read_completion_tokens({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623})
    603
    """
    completion = parse_count(usage.get("completion_tokens"), _MAX_TOKENS)
    prompt = parse_count(usage.get("prompt_tokens"), _MAX_TOKENS)
    total = parse_count(usage.get("total_tokens"), _MAX_TOKENS)
    if completion is None or not prompt or total is None:
        return completion
    return max(completion, total - prompt)


def _parse_usage_details(usage: Mapping[str, Any]) -> dict[tuple[str, ...], float]:
    """Collects the details of a reply's usage, e.g. cached tokens, in a map: path in the JSON -> number.

    >>> _parse_usage_details({"completion_tokens_details": {"reasoning_tokens": 64}, "prompt_tokens": 9})
    {('completion_tokens_details', 'reasoning_tokens'): 64}
    """
    details: dict[tuple[str, ...], float] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            details |= {(name, inner): item for inner, item in value.items() if _is_amount(inner, item)}
        elif name not in _USAGE_COUNTS and _is_amount(name, value):
            details[name,] = value
    return dict(itertools.islice(details.items(), _MAX_DETAILS))


def _is_amount(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or len(name) > _MAX_DETAIL_NAME:
        return False
    return 0 <= value <= _MAX_COUNT


def read_token_cap(body: Mapping[str, Any]) -> int | None:
    """Reads the request's token limit per response."""
    cap = parse_count(body.get("max_completion_tokens"))
    return parse_count(body.get("max_tokens")) if cap is None else cap


def count_characters(value: object) -> int:
    """Counts the characters of all texts in a request's messages, or in any value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(count_characters, value))
    return sum(map(count_characters, value.values())) if isinstance(value, Mapping) else 0


def estimate_prompt_tokens(body: Mapping[str, Any]) -> int:
    """Estimates a prompt's tokens from its length."""
    return max(1, round(count_characters(body.get("messages")) / CHARACTERS_A_TOKEN))


def _count_call_characters(calls: object) -> int:
    """Counts the characters of tool calls as JSON; if they are very large, counts only their texts."""
    texts = count_characters(calls)
    return texts if texts > MAX_INLINE else len(str(calls))


def read_tokens(logprobs: object) -> Sequence[dict[str, Any]] | None:
    """Reads the tokens in a choice's `logprobs`; None if missing or invalid."""
    if not isinstance(logprobs, dict):
        return None
    content = logprobs.get("content")
    if not isinstance(content, list) or not content:
        return None
    return content if set(map(type, content)) <= {dict, Alternative, ReplyToken} else None


def encode_json(value: object) -> bytes:
    """Encodes a value as JSON, including tokens that are structs; TypeError if something isn't JSON."""
    try:
        return orjson.dumps(value, default=encode_token)
    except TypeError:  # orjson refuses unpaired surrogates and numbers beyond 64 bits, which are valid JSON
        return json.dumps(value, default=_to_dict).encode("ascii")


def _to_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Alternative):
        return value.to_dict()
    raise TypeError(f"{type(value).__name__} is no JSON")


async def run_by_size(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function that reads a reply of `size` bytes: at once if it is short, else in a thread."""
    if size <= MAX_INLINE:
        return function(*args, **kwargs)
    return await run_in_thread(function, *args, **kwargs)


def read_json(
    raw: bytes | bytearray, key: Secret | None, *, max_marks: int = sys.maxsize
) -> tuple[object, bool]:
    """Parses a reply's body and masks the key in its texts; ValueError if it isn't JSON.

    Also returns whether the body can be passed on unchanged: it is strict JSON without the key. A large body
    with more than `max_marks` opening brackets and commas raises ValueError, too.
    """
    try:
        is_large = len(raw) > MAX_INLINE
        value, is_strict = load_large_json(raw, max_marks=max_marks) if is_large else _load_json(raw)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    # in JSON that isn't strict, a key may be encoded in other bytes, e.g. as UTF-16
    unchanged = is_strict and (key is None or not _may_contain_key(raw, key))
    return (value if unchanged else mask_key(value, key)), unchanged


def _load_json(raw: bytes | bytearray) -> tuple[object, bool]:
    """Parses a small body, and returns whether it was strict JSON."""
    try:
        return orjson.loads(raw), True
    except ValueError:
        return load_odd_json(raw), False


def _may_contain_key(raw: bytes | bytearray, key: Secret) -> bool:
    """Whether the key may be in a body, plain or JSON-escaped: a quick check that may wrongly say True."""
    if not key.masked:
        return False  # a short key is a placeholder such as "none", which isn't secret
    if not all(map(str.isascii, key.masked)):
        return True
    # one pattern for all escapes: searching a long reply twice took 30 microseconds instead of 6
    return any(text.encode() in raw for text in key.masked) or _ESCAPE.search(raw) is not None


def mask_key(value: object, key: Secret | None) -> object:
    """Masks the key in all texts of a JSON value; field names of only a-z and _ stay unchanged."""
    if key is None or not key.masked:  # a placeholder such as "none" isn't secret
        return value
    if isinstance(value, str):
        return key.mask(value)
    if isinstance(value, list):
        return [mask_key(item, key) for item in value]
    if isinstance(value, Alternative):
        return mask_key(value.to_dict(), key)
    if isinstance(value, dict):
        return {
            name if _FIELD_NAME.fullmatch(name) else key.mask(name): mask_key(item, key)
            for name, item in value.items()
        }
    return value


def redact(text: str, key: Secret | None) -> str:
    """Masks the key in a server's message."""
    return text if key is None else key.mask_message(text)


def one_line(text: str, key: Secret | None = None) -> str:
    """Masks the key in a server's message, and shortens it to one line."""
    text = " ".join(replace_surrogates(redact(text, key)).split())
    return shorten(text, _MAX_MESSAGE)


def replace_surrogates(text: str) -> str:
    """Replaces unpaired surrogates, which can't be stored as text, by U+FFFD.

    >>> replace_surrogates("a\\ud83db")
    'a\ufffdb'
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
