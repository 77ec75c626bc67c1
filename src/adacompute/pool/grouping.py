"""Single responses put together by problem and source. Knows nothing of the logs that they come from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adacompute.errors import RecordInvalid
from adacompute.pool.content import Json, canonical
from adacompute.pool.reading import Entry, place_in

__all__ = ["Group", "Groups", "plain_text"]


class Group:
    """One problem under one source, growing."""

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head  # the line without samples and failures
        self.samples: dict[int, dict[str, Any]] = {}
        self.failures: list[dict[str, Any]] = []
        self.next = 0  # the index that is free: later runs go on where earlier ones ended

    def line(self) -> dict[str, Any]:
        """The line of a pool file."""
        drawn = [
            sample if index == i else {"index": index, **sample}
            for i, (index, sample) in enumerate(sorted(self.samples.items()))
        ]
        return self.head | ({"failures": self.failures} if self.failures else {}) | {"samples": drawn}


class Groups:
    """Problems in order of first appearance. Held in memory: logs give one problem's responses far apart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._groups: dict[tuple[str, str], Group] = {}

    def of(self, head: dict[str, Any]) -> Group:
        """The group of this problem, model and parameters; its question must be the one known."""
        key = (head["id"], canonical([head.get("model"), head.get("parameters")]))
        group = self._groups.setdefault(key, Group(head))
        for name in ("question", "gold"):
            if group.head.get(name) != head.get(name):
                raise RecordInvalid(
                    f"{self._path}: problem {head['id']!r} has two {name}s; import them into separate pools"
                )
        return group

    def entries(self) -> Iterator[Entry]:
        """Every group as an entry to import."""
        for number, group in enumerate(self._groups.values(), start=1):
            yield Entry(place_in(0, number), group.line())


def plain_text(content: Json) -> str | None:
    """The text of a chat message's content: a string, or the text parts of a list; reasoning is no answer."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(part for part in parts if isinstance(part, str))
