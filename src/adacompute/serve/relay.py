"""Passing one upstream stream through, event by event, as it comes. Knows nothing of votes or ledgers."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from adacompute.endpoint import Event
from adacompute.endpoint.reply import encoded
from adacompute.serve.asked import Ask
from adacompute.serve.reply import shown_logprobs

__all__ = ["Relay"]

_HEAD = ("id", "object", "created", "model")


class Relay:
    """One stream on its way: as it came, but for what only we had asked for.

    Usage and log-probabilities that the client didn't ask for are taken out; usage that it did ask for and
    that didn't come is ours to give. The chunk that ends a choice is held back until it is known whether it
    is the last: what we have to say comes with it, for many clients look into the first choice of every
    chunk, and fail where there is none.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._head: dict[str, Any] = {}
        self._counted = not ask.include_usage  # whether no usage is owed any more
        self._held: list[dict[str, Any]] = []  # the chunk that ended a choice last, and what came after it

    async def events(self, stream: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
        """The events for the client, but for the end."""
        async for event in stream:
            value = event.value
            if value is None:
                continue
            self._head = self._head or {key: value[key] for key in _HEAD if key in value}
            self._counted = self._counted or isinstance(value.get("usage"), dict)
            shown = self._shown(value)
            if shown is None:
                continue
            if self._held and shown.get("choices"):  # it wasn't the last
                for held in self._held:
                    yield _event(encoded(held))
                self._held = []
            if self._held or _ends(shown):
                self._held.append(shown)
            else:
                yield _event(event.data if shown is value else encoded(shown))

    def end(self, extra: Mapping[str, Any], usage: Mapping[str, Any]) -> bytes:
        """The last chunks, with what only we have to say, and the end."""
        last, *rest = self._held or [{**self._head, "choices": []}]
        owed = [] if self._counted else [{**self._head, "choices": [], "usage": usage}]
        chunks = [{**last, "adacompute": extra}, *rest, *owed]
        return b"".join(_event(encoded(chunk)) for chunk in chunks) + _event(b"[DONE]")

    def _shown(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """What the client is to see of an event; the same object where that is all, None for nothing."""
        choices = value.get("choices")
        if not self._ask.include_usage and "usage" in value:
            if not choices:
                return None
            value = {key: one for key, one in value.items() if key != "usage"}
        if not self._as_it_is and isinstance(choices, list) and any(map(_has_logprobs, choices)):
            shown = [self._without(choice) for choice in choices]
            value = value if shown == choices else {**value, "choices": shown}
        return value

    @property
    def _as_it_is(self) -> bool:
        return self._ask.logprobs and bool(self._ask.body.get("top_logprobs"))

    def _without(self, choice: object) -> object:
        """A choice with the log-probabilities that the client asked for; without the name where it didn't."""
        if not isinstance(choice, dict) or "logprobs" not in choice:
            return choice
        if self._ask.logprobs:
            given = choice["logprobs"]
            return {
                **choice,
                "logprobs": shown_logprobs(given, self._ask) if isinstance(given, dict) else given,
            }
        return {key: one for key, one in choice.items() if key != "logprobs"}


def _ends(value: dict[str, Any]) -> bool:
    choices = value.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _has_logprobs(choice: object) -> bool:
    return isinstance(choice, dict) and choice.get("logprobs") is not None


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
