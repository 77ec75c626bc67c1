"""Single responses put together by problem and source. Knows nothing of the logs that they come from."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adacompute.errors import PoolError, RecordInvalid
from adacompute.pool.content import Json, canonical
from adacompute.pool.flaw import Flaw
from adacompute.pool.reading import Entry, place_in
from adacompute.pool.shape import read_parameters

__all__ = ["KEPT_LIMIT", "Group", "Groups", "placed", "plain_text"]


KEPT_LIMIT = 1 << 30  # bytes of questions, responses and what is kept beside them


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
        self._kept = 0  # bytes of what is held, about

    def of(self, head: dict[str, Any]) -> Group:
        """The group of this problem, model and parameters; its question must be the one known."""
        parameters = read_parameters(head.get("parameters"), exact=True)
        key = (head["id"], canonical([head.get("model"), parameters]))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(head)
            self.weigh(head)
        for name in ("question", "gold"):
            if group.head.get(name) != head.get(name):
                raise Flaw(f"problem {head['id']!r} has two {name}s; import them into separate pools")
        return group

    def weigh(self, held: dict[str, Any]) -> None:
        """Counts what is held in memory from here on, and refuses more than KEPT_LIMIT."""
        self._kept += sum(len(v) if isinstance(v, str) else _weight(v) for v in held.values())
        if self._kept > KEPT_LIMIT:
            raise PoolError(
                f"{self._path}: holds more than {KEPT_LIMIT} bytes to put together; "
                "import its files one by one"
            )

    def entries(self) -> Iterator[Entry]:
        """Every group as an entry to import."""
        for number, group in enumerate(self._groups.values(), start=1):
            yield Entry(place_in(0, number), group.line())


@contextlib.contextmanager
def placed(where: str) -> Iterator[None]:
    """Flaws inside become errors that name the place in the log."""
    try:
        yield
    except Flaw as exc:
        raise RecordInvalid(f"{where}: {exc}") from exc


def _weight(value: Json) -> int:
    try:
        return len(canonical(value))
    except (TypeError, ValueError, RecursionError):
        return 0  # refused, with its place, when the line is read


def plain_text(content: Json) -> str | None:
    """The text of a chat message's content: a string, or the text parts of a list; reasoning is no answer."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(part for part in parts if isinstance(part, str))
