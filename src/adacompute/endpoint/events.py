"""Server-sent events, from bytes as they come. Knows nothing of sockets, nor of what the events say."""

from dataclasses import dataclass
from typing import Any

__all__ = ["DONE", "Event", "Events", "is_events"]

DONE = b"[DONE]"  # the payload of the last event of a stream
_LARGEST = 4 * 2**20  # bytes of one event
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")  # that a stream may begin with


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; `data` is on one line, so that it can be passed on behind `data: `."""

    data: bytes
    value: dict[str, Any] | None  # its JSON; None: it is the end, [DONE]


class Events:
    """Takes bytes, cut anywhere, and gives the payloads of the events that they complete.

    Lines end as \\n, \\r or \\r\\n; several `data` lines are one payload; comments, names and events without
    data are passed over.
    """

    __slots__ = ("_after_return", "_begun", "_data", "_largest", "_line", "_size")

    def __init__(self, *, largest: int = _LARGEST) -> None:
        self._largest = largest
        self._line: list[bytes] = []  # of a line that isn't whole yet
        self._data: list[bytes] = []  # of an event that isn't whole yet
        self._size = 0  # bytes of both
        self._after_return = False  # a \n now belongs to the \r before it
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads of the events that end here; ValueError where one is larger than it may be."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        found: list[bytes] = []
        for part in chunk.splitlines(keepends=True):
            line = part.rstrip(b"\r\n")
            self._size += len(line)
            if self._size > self._largest:
                raise ValueError(f"an event of more than {self._largest} bytes")
            self._line.append(line)
            if len(line) < len(part):
                self._ended(found)
        self._after_return = chunk.endswith(b"\r")
        return found

    def end(self) -> list[bytes]:
        """What is left when nothing more comes: some servers don't end their last event."""
        found: list[bytes] = []
        self._ended(found)
        self._ended(found)
        return found

    def _ended(self, found: list[bytes]) -> None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line.clear()
        if not self._begun:
            self._begun, line = True, line.removeprefix(_BOM)
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            else:
                self._size -= len(line)
            return
        payload = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        if payload:
            found.append(payload)


def is_events(head: bytes, *, declared: bool) -> bool | None:
    """Are these the first bytes of events? None: more of them are needed to tell.

    Some servers answer with a plain completion though a stream was asked for, and some name no type, or a
    wrong one: what came counts for more than what its type says.
    """
    text = head.removeprefix(_BOM).lstrip()
    if not text or (_BOM.startswith(head) and head):
        return None
    if text[:1] == b"{":
        return False
    if declared or text.startswith(_FIELDS):
        return True
    return None if any(field.startswith(text) for field in _FIELDS) else False
