"""A completion and the chunks that it is streamed in, each made from the other. Knows nothing of bytes."""

from collections.abc import Iterator, Mapping
from typing import Any

from adacompute.errors import ReplyInvalid

__all__ = ["Gathered", "chunks_of", "error_of"]

_STATUSES = frozenset(map(str, range(400, 600)))
_MOST = 1024  # choices
_CALLS = 1024  # of tools, in one choice
_NAMES = ("id", "role", "type")
_Pieces = dict[str, list[Any]]  # what came for each field, in order; joined at the end, for that costs less
_HEAD = ("id", "created", "model", "system_fingerprint", "service_tier")


class Gathered:
    """What the chunks of a stream have said so far, as one completion."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] | None = None
        self._head: dict[str, Any] = {}
        self._choices: dict[int, _Gathering] = {}

    @property
    def finished(self) -> bool:
        """Has every choice that began also ended?"""
        return bool(self._choices) and all(one.reason is not None for one in self._choices.values())

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Takes the next chunk; what it holds besides choices and usage is of no matter here."""
        for name in _HEAD:
            if name not in self._head and chunk.get(name) is not None:
                self._head[name] = chunk[name]
        usage, choices = chunk.get("usage"), chunk.get("choices")
        if isinstance(usage, dict):
            self.usage = usage
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._of(choice.get("index")).add(choice)

    def body(self) -> dict[str, Any]:
        """The completion, as it would have come in one."""
        choices = [self._choices[index].choice(index) for index in sorted(self._choices)]
        body = {**self._head, "object": "chat.completion", "choices": choices}
        return body if self.usage is None else {**body, "usage": self.usage}

    def _of(self, index: object) -> "_Gathering":
        place = index if isinstance(index, int) else 0
        if not 0 <= place < _MOST:
            raise ReplyInvalid(f"its stream has a choice of index {place}; try again", status=200, paid=True)
        return self._choices.setdefault(place, _Gathering())


class _Gathering:
    """One choice."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._message: _Pieces = {}
        self._calls: dict[int, _Pieces] = {}  # of tools
        self._logprobs: dict[str, list[Any]] = {}

    def add(self, choice: Mapping[str, Any]) -> None:
        reason, logprobs = choice.get("finish_reason"), choice.get("logprobs")
        delta = choice.get("delta", choice.get("message"))  # some send what is no delta
        if isinstance(reason, str):
            self.reason = reason
        for name, tokens in logprobs.items() if isinstance(logprobs, dict) else ():
            if isinstance(tokens, list):
                self._logprobs.setdefault(name, []).extend(tokens)
        if isinstance(delta, dict):
            calls = delta.get("tool_calls")
            _add(self._message, {name: value for name, value in delta.items() if name != "tool_calls"})
            for call in calls if isinstance(calls, list) else ():
                self._call(call)

    def choice(self, index: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": None, **_joined(self._message)}
        if self._calls:
            message["tool_calls"] = [_joined(self._calls[place]) for place in sorted(self._calls)]
        choice = {"index": index, "message": message, "finish_reason": self.reason}
        return {**choice, "logprobs": self._logprobs} if self._logprobs else choice

    def _call(self, call: object) -> None:
        index = call.get("index", 0) if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(index, int) and 0 <= index < _CALLS:
            part = {name: value for name, value in call.items() if name != "index"}
            _add(self._calls.setdefault(index, {}), part)


def _add(pieces: _Pieces, part: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if value is not None:
            pieces.setdefault(name, []).append(value)


def _joined(pieces: _Pieces) -> dict[str, Any]:
    return {name: _whole(name, values) for name, values in pieces.items()}


def _whole(name: str, values: list[Any]) -> object:
    """Texts come in pieces; what names something comes once, or again and again."""
    if all(isinstance(value, str) for value in values):
        return values[-1] if name in _NAMES else "".join(values)
    if all(isinstance(value, dict) for value in values):
        inner: _Pieces = {}
        for value in values:
            _add(inner, value)
        return _joined(inner)
    return values[-1]


def chunks_of(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of a completion that came as one: of each choice what it says, then how it ended; usage."""
    head = {name: body[name] for name in _HEAD if name in body} | {"object": "chat.completion.chunk"}
    choices = [choice for choice in body["choices"] if isinstance(choice, dict)]
    for place, choice in enumerate(choices):
        message = choice.get("message")
        if not isinstance(message, dict):
            continue
        delta = {"role": "assistant", **message}
        if isinstance(calls := message.get("tool_calls"), list):
            delta["tool_calls"] = [
                {"index": i, **call} for i, call in enumerate(calls) if isinstance(call, dict)
            ]
        begun = {"index": place, "delta": delta, "finish_reason": None}
        if choice.get("logprobs") is not None:
            begun["logprobs"] = choice["logprobs"]
        yield {**head, "choices": [begun]}
        reason = choice.get("finish_reason") or "stop"
        yield {**head, "choices": [{"index": place, "delta": {}, "finish_reason": reason}]}
    if isinstance(body.get("usage"), dict):
        yield {**head, "choices": [], "usage": body["usage"]}


def error_of(value: Mapping[str, Any]) -> int | None:
    """The status that an event is, where it tells of an error; 500 where it names none; None: it doesn't."""
    error = value.get("error")
    if not error and value.get("object") != "error":
        return None
    for told in (error, value):
        for name in ("code", "status", "status_code"):
            code = told.get(name) if isinstance(told, dict) else None
            if str(code) in _STATUSES:
                return int(str(code))
    return 500
