"""How the samples of a stream reach the client: at once, after a vote, or held back until it is clear.

A stream that was passed on can't be taken back. So a first sample that may be voted on is held back for as
long as it may be an answer, which is short; a longer one is a text, and is passed on as it comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, Literal

__all__ = ["KEEPALIVE_COMMENT", "Delivery", "StreamGate", "keep_alive"]

# pass: the only sample, as it comes; hold: the first sample, held back until it is clear whether there is a
# vote; first: the first sample as it comes, and the vote's verdict at its end; wait: the vote's winner
Delivery = Literal["pass", "hold", "first", "wait"]

KEEPALIVE_COMMENT = b": sampling\n\n"
_KEEPALIVE_SECONDS = 10.0  # seconds of silence in a stream after which a comment is sent
_THINKING, _THINKING_END = "<think>", "</think>"
_REASONING_FIELDS = ("reasoning", "reasoning_content")  # names of different servers for it
_CALL_FIELDS = ("tool_calls", "function_call")


class StreamGate:
    """Whether the sample of a stream may still be voted on, judging by what has come of it.

    `may_be_answer` judges its text so far. `holds_thinking`: what is thought before the text is held back as
    well; else it opens the gate. `holds_calls`: so are calls of tools.

    >>> gate = StreamGate(lambda text: len(text) < 10, holds_thinking=True)
    >>> [gate.add({"choices": [{"delta": {"content": text}}]}) for text in ("Paris", " is a city")]
    [False, True]
    """

    def __init__(
        self, may_be_answer: Callable[[str], bool], *, holds_thinking: bool, holds_calls: bool = False
    ) -> None:
        self._may_be_answer = may_be_answer
        self._holds_thinking = holds_thinking
        self._holds_calls = holds_calls
        self._text = ""  # without what was thought
        self._thinks: bool | None = None  # whether it is thinking in its text; None: that isn't known yet

    def add(self, chunk: Mapping[str, Any]) -> bool:
        """Adds a chunk; whether the gate is open, so that everything is passed on from now on."""
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            return False
        if delta.get("refusal") or (not self._holds_calls and any(delta.get(name) for name in _CALL_FIELDS)):
            return True
        if any(delta.get(name) for name in _REASONING_FIELDS) and not self._holds_thinking:
            return True
        content = delta.get("content")
        return isinstance(content, str) and bool(content) and self._add_text(content)

    def _add_text(self, piece: str) -> bool:
        self._text += piece
        if self._thinks is None:
            begin = self._text.lstrip()[: len(_THINKING)]
            self._thinks = None if _THINKING.startswith(begin) and begin != _THINKING else begin == _THINKING
        if self._thinks is None:
            return False
        if self._thinks:
            if not self._holds_thinking:
                return True
            before, end, after = self._text.partition(_THINKING_END)
            self._text = after if end else before[-len(_THINKING_END) :]  # of the rest, what may be its end
            if not end:
                return False
            self._thinks = False
        return not self._may_be_answer(self._text)


async def keep_alive(work: Coroutine[Any, Any, object]) -> AsyncGenerator[bytes, None]:
    """Does some work, and gives a comment for the client whenever it has taken another ten seconds.

    What the work raises is raised here; leaving early cancels it.
    """
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=_KEEPALIVE_SECONDS))[0]:
            yield KEEPALIVE_COMMENT
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # if the client has just disconnected, nobody else retrieves it
    task.result()
