"""The messages of a request: checked, read and measured. Knows nothing of the request's other fields."""

from collections.abc import Mapping
from typing import Any

import orjson

from adacompute.errors import RequestInvalid
from adacompute.features import LIMIT

__all__ = ["MEDIUM", "check_messages", "last_prompt", "most_tokens"]

MEDIUM = 8192  # tokens that an image, a recording or a file counts for

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MAY_BE_SILENT = ("assistant", "function")  # calls of tools come without a text
_TEXTS = {"text": "text", "refusal": "refusal"}  # kinds of parts, and where their text is
_MEDIA = ("image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "file", "input_file")
_A_MESSAGE, _A_PROMPT, _SOME_TOOLS = 16, 64, 256  # tokens that a model's template may add
_NOT_READ = ("messages", "model", "logit_bias", "metadata", "stop", "user")  # by any model


def check_messages(messages: object, *, most: int) -> None:
    """RequestInvalid where these are no messages, or more than so many."""
    if not isinstance(messages, list):
        said = "are missing" if messages is None else f"is {_kind(messages)}"
        raise RequestInvalid(f"messages {said}; give a list of at least one", param="messages")
    if not messages:
        raise RequestInvalid("messages is an empty list; give at least one", param="messages")
    if len(messages) > most:
        raise RequestInvalid(
            f"there are {len(messages)} messages; at most {most} are taken", param="messages"
        )
    for place, message in enumerate(messages):
        _check(message, f"messages[{place}]")


def _kind(value: object) -> str:
    """What a value of JSON is, in words."""
    words = {str: "a text", bool: "true or false", int: "a number", float: "a number", dict: "an object"}
    return words.get(type(value), "no list")


def last_prompt(messages: list[dict[str, Any]]) -> str:
    """The last user message's text, as far as policies read it; "" where there is none."""
    for message in reversed(messages):
        if message["role"] == "user":
            return "\n".join(_texts(message["content"]))[:LIMIT]
    return ""


def most_tokens(body: Mapping[str, Any]) -> int:
    """No tokenizer that works on bytes makes more tokens of a checked request's prompt.

    Templates put a request's tools into the prompt, some also other fields: all that may be read counts.
    What a medium counts for is a guess.
    """
    total = _A_PROMPT + sum(_most(message) for message in body["messages"])
    for name, value in body.items():
        if name not in _NOT_READ and isinstance(value, str | list | dict):
            total += len(orjson.dumps(value))
    return total + (_SOME_TOOLS if body.get("tools") or body.get("functions") else 0)


def _check(message: object, place: str) -> None:
    if not isinstance(message, dict):
        raise RequestInvalid(f"{place} is no object; give one with role and content", param=place)
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        said = repr(role[:60]) if isinstance(role, str) else "missing or no text"
        raise RequestInvalid(
            f"{place}.role is {said}; give one of {', '.join(_ROLES)}", param=f"{place}.role"
        )
    if isinstance(content, list):
        for number, part in enumerate(content):
            _check_part(part, f"{place}.content[{number}]")
    elif not isinstance(content, str) and (content is not None or role not in _MAY_BE_SILENT):
        raise RequestInvalid(
            f"{place}.content is no text; give a text or a list of parts", param=f"{place}.content"
        )


def _check_part(part: object, place: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise RequestInvalid(f"{place} is no part; give an object with a type, such as text", param=place)
    if kind in _TEXTS and not isinstance(part.get(_TEXTS[kind]), str):
        raise RequestInvalid(f"{place}.{_TEXTS[kind]} is no text; give one", param=place)


def _texts(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part[_TEXTS[part["type"]]] for part in content if part["type"] in _TEXTS]


def _most(message: Mapping[str, Any]) -> int:
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    total = _A_MESSAGE + (len(orjson.dumps(rest)) if rest else 0)
    content = message.get("content")
    if isinstance(content, list):
        return total + sum(map(_most_of_part, content))
    return total + (len(content.encode()) if content else 0)


def _most_of_part(part: Mapping[str, Any]) -> int:
    kind = part["type"]
    if kind in _TEXTS:
        return len(part[_TEXTS[kind]].encode()) + 1  # and the line break between two of them
    return MEDIUM if kind in _MEDIA else max(MEDIUM, len(orjson.dumps(part)))
