"""Scores responses with a reward model, or with a model that judges whether an answer is right.

If no model is named, the endpoint is a plain scoring endpoint: it gets the prompt, the response and the
answer, and returns a number; higher is better. If a model is named, the endpoint is OpenAI-compatible: the
model gets the conversation with the response, and is asked whether the answer is right. The score is then
the log-odds of "Yes" against "No" (known as P(True)).

A failed verification doesn't raise: `VerifierReply.score` is None and `error` says why.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from adacompute.client.client import Client
from adacompute.client.response_parser import (
    CompletionReply,
    HttpReply,
    Response,
    build_refusal,
    read_tokens,
)
from adacompute.client.retry import CallAttempt, CallListener, CompletionCall, SendPermission
from adacompute.client.server_quirks import LIMIT_NAME, LOGPROBS
from adacompute.client.settings import (
    BreakerSettings,
    Endpoint,
    RateLimits,
    Retries,
    Timeouts,
    build_endpoint,
)
from adacompute.client.transport import ReplyLimits
from adacompute.config import EndpointConfig, VerifierConfig, read_key
from adacompute.errors import ConfigError, EndpointError, ReplyInvalid
from adacompute.records import Call

VERDICT_TOKENS = 4  # token limit for the reply "Yes" or "No", possibly after a space or a punctuation mark
_TOP_LOGPROBS = 5  # alternatives requested per token; "Yes" and "No" are among them if the reply is a verdict
_QUESTION = "Is {answer} right? Check it, and reply with one word, Yes or No."
_TURN_TOKENS = 64  # maximum number of tokens that a chat template adds around the response and the question
_MAX_ANSWER = 2000  # maximum number of characters of the answer that are quoted in the question
_WORDS = {"yes": 1.0, "true": 1.0, "correct": 1.0, "no": -1.0, "false": -1.0, "incorrect": -1.0}
_MAX_SCORE = 1e9  # a larger number is taken for an error of the endpoint
_MAX_REPLY = ReplyLimits(2**20, 2**20, 10_000)  # small limits, because a scoring endpoint returns one number
_ATTEMPTS, _FIRST_BACKOFF = 2, 0.1  # maximum number of attempts per verification; seconds between them
# short waits, so that a failing verifier doesn't delay requests
_BREAKER = BreakerSettings(seconds=2.0, longest=30.0, patience=0.05)
# settings that a verifier takes from the endpoint if it has the same address
_ACCESS = ("key_header", "headers", "query", "ca_file", "client_cert", "client_key", "unix_socket")
_ROUTE_REMEDY = "without --verifier-model give the route that scores, e.g. http://127.0.0.1:9000/score"
_CHAT_PATHS = ("pooling", "classify")  # paths of vLLM that accept messages


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierReply:
    """The result of verifying one response."""

    score: float | None  # higher is better; None if scoring failed
    calls: tuple[Call, ...] = ()  # all attempts made to get the score
    error: EndpointError | None = field(default=None, compare=False)  # why there is no score

    @property
    def tokens(self) -> int:
        """Paid tokens of prompts and responses."""
        return sum(
            (call.prompt_tokens or 0) + (call.completion_tokens or 0)
            for call in self.calls
            if call.paid == "yes"
        )


class Verifier:
    """Scores responses; an async context manager that keeps its connections open.

    `model` is the judge's name at an OpenAI-compatible endpoint; "" means that `endpoint.url` is a plain
    scoring endpoint.
    """

    def __init__(self, endpoint: Endpoint, *, model: str = "", timeout: float = 30.0) -> None:
        self.model = model
        self.timeout = timeout  # maximum number of seconds per verification
        self.client = Client(endpoint if model else replace(endpoint, path=""))

    @property
    def url(self) -> str:
        """The address to which verifications are posted."""
        return self.client.endpoint.chat

    async def __aenter__(self) -> "Verifier":
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.__aexit__(kind, error, trace)

    def bound_prompt_tokens(self, prompt_tokens: int, response: str, answer: str | None) -> int:
        """Returns an upper bound for a verification's prompt tokens, given those of the original request."""
        question = _write_question(answer)
        return prompt_tokens + len(response.encode()) + len(question.encode()) + _TURN_TOKENS

    async def score(
        self,
        messages: Sequence[Mapping[str, Any]],
        response: str,
        answer: str | None,
        *,
        prompt: str,
        deadline: float | None = None,
        on_call: CallListener | None = None,
        may_send: SendPermission | None = None,
    ) -> VerifierReply:
        """Scores a response to these messages; `prompt` is the question in the messages, as text.

        The time limit is `deadline` (seconds from now) or the verifier's timeout, if that is shorter.
        `on_call` and `may_send` are as in `Client.call`.
        """
        seconds = self.timeout if deadline is None else min(deadline, self.timeout)
        calls: list[Call] = []

        def record_call(call: Call) -> None:
            calls.append(call)
            if on_call is not None:
                on_call(call)

        try:
            if self.model:
                reply = await self.client.call(
                    self._build_question(messages, response, answer),
                    deadline=seconds,
                    on_call=record_call,
                    may_send=may_send,
                    optional=LOGPROBS | LIMIT_NAME,
                )
                score = read_verdict(reply.responses[0])
            else:
                context = self.client._require_open()
                body = self._build_request(messages, response, answer, prompt)
                until = context.loop.time() + seconds
                call = _ScoreCall(context, body, 1, until, on_call=record_call, may_send=may_send)
                score = parse_score((await call.run()).body["value"])
        except EndpointError as error:
            return VerifierReply(score=None, calls=tuple(calls), error=error)
        if score is None:
            wanted = '"Yes" or "No"' if self.model else 'a score, as {"score": 0.7}'
            problem = ReplyInvalid(f"{self.url}: its reply doesn't hold {wanted}; check what answers there")
            return VerifierReply(score=None, calls=tuple(calls), error=problem)
        return VerifierReply(score=score, calls=tuple(calls))

    def _build_question(
        self, messages: Sequence[Mapping[str, Any]], response: str, answer: str | None
    ) -> dict[str, Any]:
        """Builds a request that continues the conversation, whose beginning the server may have cached."""
        return {
            "model": self.model,
            "messages": [
                *messages,
                {"role": "assistant", "content": response},
                {"role": "user", "content": _write_question(answer)},
            ],
            "temperature": 0,
            "max_tokens": VERDICT_TOKENS,
            "logprobs": True,
            "top_logprobs": _TOP_LOGPROBS,
        }

    def _build_request(
        self, messages: Sequence[Mapping[str, Any]], response: str, answer: str | None, prompt: str
    ) -> dict[str, Any]:
        """Builds the body for a plain scoring endpoint, in vLLM's format if the path is one of vLLM's."""
        route = self.url.rstrip("/").rpartition("/")[2]
        if route in _CHAT_PATHS:
            return {"messages": [*messages, {"role": "assistant", "content": response}]}
        pair = {"text_1": prompt, "text_2": response} if route == "score" else {}
        return {"prompt": prompt, "response": response, "answer": answer, **pair}


def _write_question(answer: str | None) -> str:
    shown = f"the answer {answer[:_MAX_ANSWER]!r}" if answer else "this answer"
    return _QUESTION.format(answer=shown)


class _ScoreCall(CompletionCall):
    """A call to a plain scoring endpoint, whose reply may be any JSON and costs no tokens."""

    def find_limits(self) -> ReplyLimits:
        return _MAX_REPLY

    def interpret(self, attempt: CallAttempt, http_reply: HttpReply) -> CompletionReply:
        """Accepts any JSON with status 200; the score is read later."""
        if http_reply.status != 200:
            raise build_refusal(self.context.url, http_reply, self.context.endpoint.secret)[0]
        call = Call(
            at=attempt.sent_at,
            seconds=attempt.seconds,
            asked=1,
            got=1,
            status=200,
            paid="no",
            prompt_tokens=0,
        )
        return CompletionReply(responses=(), calls=(call,), body={"value": http_reply.value})


def parse_score(value: object) -> float | None:
    """Finds the number in a scoring endpoint's reply; None if there is none, or it isn't within ±1e9.

    Accepts a bare number, {"score": x}, {"scores": [x]}, {"reward": x}, {"rewards": [x]}, and the formats of
    vLLM's /score and /pooling and SGLang's /classify. Takes the last number of a list, because process reward
    models score each step.

    >>> parse_score({"score": 0.5}), parse_score({"data": [{"index": 0, "score": 0.25}]}), parse_score("good")
    (0.5, 0.25, None)
    """
    for _ in range(8):  # maximum depth of nesting in the reply
        if isinstance(value, dict):
            names = ("score", "scores", "reward", "rewards", "data", "embedding")
            value = next((value[name] for name in names if value.get(name) is not None), None)
        elif isinstance(value, list):
            value = value[-1] if value else None
        else:
            break
    number = _read_number(value)
    return number if number is not None and abs(number) <= _MAX_SCORE else None


def _read_number(value: object) -> float | None:
    """Returns a finite number; None for anything else, such as True, NaN, or a huge integer."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_verdict(response: Response) -> float | None:
    """Returns the log-odds of "Yes" against "No"; without log-probabilities, 1 for "Yes" and -1 for "No".

    Returns None if it finds neither word, not even among the alternatives to the response's tokens.
    """
    tokens = read_tokens(response.logprobs) or ()
    said = [token for token in tokens if _read_word(token.get("token"))]
    for token in (*said, *tokens):  # first those that say "Yes" or "No"; others may list them as alternatives
        odds = _compute_odds(token)
        if odds is not None:
            return odds
    words = response.text.split()
    return _read_word(words[0]) or None if words else None


def _read_word(text: object) -> float:
    """Returns 1.0 for "Yes", -1.0 for "No", 0.0 for anything else."""
    return _WORDS.get(text.strip(" \t\n\r.,:;!*\"'#_▁Ġ").lower(), 0.0) if isinstance(text, str) else 0.0


def _compute_odds(token: Mapping[str, Any]) -> float | None:
    """Computes the log-odds of "Yes" against "No" from a token and its alternatives.

    Returns None if neither word is listed. If one isn't, an upper bound for its probability is used.
    """
    listed = token.get("top_logprobs")
    known: dict[str, float] = {}
    for entry in [token, *(listed if isinstance(listed, list) else [])]:
        name, value = (entry.get("token"), entry.get("logprob")) if isinstance(entry, Mapping) else ("", None)
        number = _read_number(value)
        if isinstance(name, str) and number is not None:
            known[name] = min(number, 0.0)
    masses = {1.0: 0.0, -1.0: 0.0}
    for name, value in known.items():
        if side := _read_word(name):
            masses[side] += math.exp(value)
    if not any(masses.values()):
        return None
    rest = max(1.0 - sum(map(math.exp, known.values())), 0.0)
    # probability used for a word that isn't listed: the highest that it can have, but at least 1e-9
    floor = max(min(min(map(math.exp, known.values())), rest), 1e-9)
    return math.log(max(masses[1.0], floor)) - math.log(max(masses[-1.0], floor))


def build_verifier(settings: VerifierConfig, endpoint: Endpoint | EndpointConfig) -> Verifier | None:
    """Builds the verifier that the settings name; None if they name none. ConfigError if they are invalid.

    If it has the same address as `endpoint`, it uses the headers, certificates and key of `endpoint`; a key
    in the verifier's settings comes first.
    """
    if not settings.url:
        return None
    file = Path(settings.key_file) if settings.key_file else None
    key = read_key(env=settings.key_env, file=file)
    if key is None and settings.key_env != VerifierConfig().key_env:
        raise ConfigError(f"environment variable {settings.key_env} holds no key; set it, or name another")
    access: dict[str, Any] = {"key": key}
    if settings.url.rstrip("/") == endpoint.url.rstrip("/"):
        same = endpoint if isinstance(endpoint, Endpoint) else build_endpoint(endpoint)
        access = {name: getattr(same, name) for name in _ACCESS} | {"key": key or same.key}
    timeouts = Timeouts(
        connect=min(10.0, settings.timeout), first_byte=settings.timeout, total=settings.timeout
    )
    try:
        upstream = Endpoint(
            url=settings.url,
            **access,
            timeouts=timeouts,
            retries=Retries(attempts=_ATTEMPTS, deadline=settings.timeout, first=_FIRST_BACKOFF),
            limits=RateLimits(concurrency=settings.concurrency),
            breaker=_BREAKER,
        )
    except ConfigError as exc:
        remedy = "" if settings.model else f"; {_ROUTE_REMEDY}"
        raise ConfigError(f"verifier: {exc}{remedy}") from exc
    return Verifier(upstream, model=settings.model, timeout=settings.timeout)
