"""Completions whose log-probabilities are only computed with, and not passed on.

Of each token and its alternatives, what signals are computed from becomes objects; the rest is skipped. With
five alternatives a token, that takes a third of the time of reading everything.
"""

from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["SpelledToken", "TokenLogprob", "read_completion"]


class _Alternative(msgspec.Struct, gc=False):
    """One of the likeliest tokens at a place, as far as it is needed."""

    logprob: float

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of JSON
        return getattr(self, name)


class TokenLogprob(msgspec.Struct, gc=False):
    """A token of a response; its fields are read as those of an object of JSON, too."""

    logprob: float
    token: str | None = None
    top_logprobs: list[_Alternative] | None = None

    def get(self, name: str) -> Any:  # noqa: ANN401 - of JSON
        """A field by its name in JSON; None: it has none."""
        return getattr(self, name, None)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of JSON
        return self.get(name)


class SpelledToken(TokenLogprob, gc=False):
    """The same with its bytes, which may be a part of a character."""

    raw_bytes: msgspec.Raw = msgspec.field(name="bytes", default_factory=lambda: msgspec.Raw(b"null"))

    def get(self, name: str) -> Any:  # noqa: ANN401 - of JSON
        """A field by its name in JSON; None: it has none."""
        if name == "bytes":
            return msgspec.json.decode(self.raw_bytes)
        return getattr(self, name, None)


T = TypeVar("T")


class _Logprobs(msgspec.Struct, Generic[T]):
    content: list[T] | None = None


class _Choice(msgspec.Struct, Generic[T]):
    message: Any
    logprobs: _Logprobs[T] | None = None
    finish_reason: Any = None
    error: Any = None


class _Completion(msgspec.Struct, Generic[T]):
    choices: list[_Choice[T]]
    usage: Any = None
    id: Any = None
    object: Any = None
    created: Any = None
    model: Any = None
    system_fingerprint: Any = None
    service_tier: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Completion[TokenLogprob])
_SPELLING_DECODER = msgspec.json.Decoder(_Completion[SpelledToken])


def read_completion(raw: bytes | bytearray) -> dict[str, Any]:
    """The completion in a body, with tokens as TokenLogprobs; ValueError where it isn't as expected.

    Where the texts are ASCII each token is whole characters; its bytes, a tenth of the time, aren't read.

    >>> reply = b'{"choices": [{"message": {}, "logprobs": {"content": [{"token": "4", "logprob": -1}]}}]}'
    >>> read_completion(reply)["choices"][0]["logprobs"]["content"][0].get("logprob")
    -1.0
    """
    completion: _Completion[Any]
    try:
        completion = (_DECODER if raw.isascii() else _SPELLING_DECODER).decode(raw)
        if raw.isascii() and not all(map(_is_plain, completion.choices)):  # in escapes
            completion = _SPELLING_DECODER.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
    fields = {name: getattr(completion, name) for name in _Completion.__struct_fields__}
    body = {name: value for name, value in fields.items() if value is not None}
    body["choices"] = [
        {
            "message": choice.message,
            "finish_reason": choice.finish_reason,
            "error": choice.error,
            "logprobs": None if choice.logprobs is None else {"content": choice.logprobs.content},
        }
        for choice in completion.choices
    ]
    return body


def _is_plain(choice: _Choice[Any]) -> bool:
    """Whether its text is ASCII."""
    text = choice.message.get("content") if isinstance(choice.message, dict) else None
    return isinstance(text, str) and text.isascii()
