"""What a scripted upstream does with a request: answer, refuse, stall, drop or talk nonsense."""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A chat completion. What is None is honest: as many choices as asked for, usage of all of them."""

    choices: int | None = None
    texts: Sequence[str | None] | None = None
    usage: dict[str, Any] | str | None = "total"  # "total", "one" (of the first choice only), or as given
    tokens: int = 12  # of each choice
    logprobs: bool = True  # given where asked for
    end_token: bool = False  # logprobs list one more than usage counts, as llama.cpp's do
    finish: str = "stop"
    delay: float = 0.0  # seconds before the headers
    body: Any = None  # all of it, instead
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    chunked: bool = False
    streams: bool = True  # False: as one, though a stream was asked for
    pieces: int = 4  # of a stream: deltas of each choice
    gap: float = 0.0  # seconds between its events
    cut: int = 0  # bytes of one write; 0: an event
    newline: bytes = b"\n"  # that ends its lines
    done: bool = True  # is its end said?
    stream_usage: bool = True  # given where asked for

    def event(self, data: bytes) -> bytes:
        return b"data: " + data + 2 * self.newline


@dataclass(frozen=True, kw_only=True)
class Status:
    """An error, in OpenAI's shape."""

    code: int
    message: str = "scripted"
    param: str | None = None
    retry_after: str | float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Takes the request, then hangs: before the headers, in the middle of the body, or dribbling headers."""

    before: str = "headers"  # "headers", "body" or "dribble": a header line every 20 ms, for ever


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Takes the request, gives so many bytes of an honest reply, and breaks off."""

    after: int = 0
    reset: bool = False  # by RST, else by FIN


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """A status with a body of any bytes; or `whole`, bytes that are not even HTTP."""

    raw: bytes = b'{"choices": [{"mess'
    content_type: str = "application/json"
    code: int = 200
    whole: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Break:
    """An honest stream up to so many events, of which the first is empty; then it stalls or breaks off.

    Or, as `how`: an event that is no JSON ("garbage"), one that says an error ("error"), an early end
    ("end"), or the bytes that are given.
    """

    after: int = 3
    how: str | bytes = "stall"  # "stall", "drop", "reset", "garbage", "error", "end", or bytes
    reply: Reply = field(default_factory=Reply)
    message: str = "scripted failure"
    code: int | str | None = None  # of the error
    delay: float = 0.0  # seconds before the headers

    def last(self) -> bytes:
        """What is sent last, before the stream ends."""
        if isinstance(self.how, bytes):
            return self.how
        error = {"error": {"message": self.message, "type": "scripted", "code": self.code}}
        told = {"garbage": b'{"choices": [{"del', "error": orjson.dumps(error)}.get(self.how)
        return b": the end\n\n" if told is None else self.reply.event(told)


Behaviour = Reply | Status | Stall | Drop | Garbage | Break
Script = Behaviour | Sequence[Behaviour] | Callable[[int, dict[str, Any]], Behaviour]


@dataclass(kw_only=True)
class Honest:
    """The usual server; its ways with `n`, logprobs and usage can be set."""

    n: str = "honour"  # "honour", "ignore", "refuse" (above `most`), "short" (gives `most` at most)
    most: int = 1
    message: str = "Field 'n': Value must be between 1 <= value <= {most}, but got {n}"
    logprobs: str = "give"  # "give", "ignore" or "refuse"
    usage: Any = "total"
    tokens: int = 12
    latency: float = 0.0
    pieces: int = 4  # of streams: deltas of each choice
    gap: float = 0.0  # of streams: seconds between events
    streams: bool = True
    stream_options: str = "give"  # "give", "ignore" or "refuse"
    limit: str = ""  # the only name of a limit of tokens that it takes; "": any
    error_rate: float = 0.0
    error_status: int = 500
    seed: int = 0

    def __call__(self, number: int, body: dict[str, Any]) -> Behaviour:
        if self.error_rate and random.Random(f"{self.seed}/{number}").random() < self.error_rate:
            return Status(code=self.error_status, message="scripted failure", delay=self.latency)
        n = body.get("n", 1)
        if self.n == "refuse" and n > self.most:
            return Status(code=400, message=self.message.format(most=self.most, n=n))
        if self.logprobs == "refuse" and body.get("logprobs"):
            return Status(code=400, message="logprobs are not supported by this model")
        refused = [
            name for name in ("max_tokens", "max_completion_tokens") if name in body and name != self.limit
        ]
        if self.limit and refused:
            text = f"Unsupported parameter: '{refused[0]}' is not supported. Use '{self.limit}' instead."
            return Status(code=400, message=text, param=refused[0])
        if self.stream_options == "refuse" and "stream_options" in body:
            return Status(code=400, message="Unrecognized request argument supplied: stream_options")
        given = {"ignore": 1, "short": min(n, self.most)}.get(self.n, n)
        return Reply(
            choices=given,
            usage=self.usage,
            tokens=self.tokens,
            logprobs=self.logprobs == "give",
            delay=self.latency,
            pieces=self.pieces,
            gap=self.gap,
            streams=self.streams,
            stream_usage=self.stream_options == "give",
        )


def text_of(seed: int, number: int, choice: int, tokens: int) -> str:
    """The text of one choice: its own, and 4 characters a token, whatever else happens."""
    drawn = random.Random(f"{seed}/{number}/{choice}")
    text = f"Sample {number}.{choice}. The answer is {drawn.randrange(5)}."
    words = ("so ", "the ", "then ", "apple ", "river ")
    while len(text) < 4 * tokens:
        text = drawn.choice(words) + text
    return text


def completion(
    how: Reply, number: int, body: dict[str, Any], seed: int
) -> tuple[bytes, int, tuple[int, int]]:
    """The bytes of a reply, how many choices it has, and the true tokens of prompt and choices."""
    count = body.get("n") or 1
    count = count if how.choices is None else how.choices
    texts = how.texts or [text_of(seed, number, i, how.tokens) for i in range(count)]
    prompt = max(1, len(json.dumps(body.get("messages", ""))) // 4)
    true = prompt, how.tokens * len(texts)
    if how.body is not None:
        return orjson.dumps(how.body), 0, true
    usage = how.usage
    if isinstance(usage, str):
        told = how.tokens * (1 if usage == "one" else len(texts))
        usage = {"prompt_tokens": prompt, "completion_tokens": told, "total_tokens": prompt + told}
    value: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", "scripted"),
        "choices": [choice_of(how, i, text, body, f"{seed}/{number}/{i}") for i, text in enumerate(texts)],
    }
    if usage is not None:
        value["usage"] = usage
    return orjson.dumps(value), len(texts), true


def choice_of(how: Reply, index: int, text: str | None, body: dict[str, Any], seed: str) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        "message": {"role": "assistant", "content": text},
        "finish_reason": how.finish,
    }
    if body.get("logprobs") and how.logprobs:
        drawn, tops = random.Random(seed), body.get("top_logprobs", 0)
        tokens = how.tokens + how.end_token
        choice["logprobs"] = {"content": [token_of(drawn, tops) for _ in range(tokens)]}
    return choice


def token_of(drawn: random.Random, tops: int) -> dict[str, Any]:
    chance = drawn.uniform(0.5, 1.0)
    rest = [(1.0 - chance) / 2**i for i in range(1, tops)]
    alternatives = [{"token": "t", "logprob": math.log(p)} for p in [chance, *rest][:tops]]
    return {"token": "t", "logprob": math.log(chance), "top_logprobs": alternatives}
