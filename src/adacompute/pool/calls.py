"""The account of calls: rows in, sums out. Knows nothing of samples, nor of how a call was made."""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import fields

from adacompute.pool.content import call_hash
from adacompute.pool.faults import UNSOUND
from adacompute.pool.flaw import Flaw
from adacompute.pool.grade import encoded
from adacompute.records import Account, Call

__all__ = ["account", "insert_calls", "stored_calls", "wrong_calls"]

_INSERT = "INSERT INTO calls VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SUMS = """
    SELECT count(*), total(paid = 'yes'), total(paid = 'maybe'), total(asked), total(got),
        total(iif(paid = 'yes', prompt_tokens, 0)), total(iif(paid = 'yes', completion_tokens, 0)),
        total(iif(paid = 'maybe', prompt_tokens, 0)), total(iif(paid = 'maybe', completion_tokens, 0)),
        total(estimated)
    FROM calls WHERE source = ?
"""
_FIELDS = [field.name for field in fields(Account)]  # in the order of the columns above
_TOLD = (
    "at",
    "seconds",
    "asked",
    "got",
    "surplus",
    "kind",
    "status",
    "paid",
    "prompt_tokens",
    "completion_tokens",
)
_STORED = f"SELECT {', '.join(_TOLD)}, estimated FROM calls WHERE source = ? ORDER BY key"  # noqa: S608 - ours
_ROWS = """
    SELECT c.key, CAST(s.model AS BLOB), CAST(s.fingerprint AS BLOB), at, seconds, asked, got, surplus,
        CAST(kind AS BLOB), status, CAST(paid AS BLOB), prompt_tokens, completion_tokens, estimated, hash
    FROM calls c JOIN sources s ON s.key = c.source ORDER BY c.key
"""


def insert_calls(
    connection: sqlite3.Connection, calls: Iterable[Call], *, source: int, model: str | None, mark: str
) -> None:
    """Calls to one source, in the order given."""
    connection.executemany(_INSERT, [_row(call, source, model, mark) for call in calls])


def account(connection: sqlite3.Connection, source: int | None) -> Account:
    """The sum of all calls to one source; nothing in a pool that was never collected into."""
    if source is None or not _there(connection):
        return Account()
    row = connection.execute(_SUMS, (source,)).fetchone()
    return Account(**dict(zip(_FIELDS, map(int, row), strict=True)))


def stored_calls(connection: sqlite3.Connection, source: int | None) -> Iterator[Call]:
    """Every call to one source, in the order stored."""
    if source is None or not _there(connection):
        return
    for *row, estimated in connection.execute(_STORED, (source,)):
        yield Call(**dict(zip(_TOLD, row, strict=True)), estimated=bool(estimated))


def wrong_calls(connection: sqlite3.Connection) -> Iterator[int]:
    """Keys of the rows that are not what was written."""
    if not _there(connection):
        return
    for key, *row, mark in connection.execute(_ROWS):
        try:
            fits = call_hash(*row) == mark
        except UNSOUND:  # a column is not even of its type
            fits = False
        if not fits:
            yield key


def _row(call: Call, source: int, model: str | None, mark: str) -> tuple[object, ...]:
    at, seconds = float(call.at) + 0.0, float(call.seconds) + 0.0
    if call.paid not in ("yes", "no", "maybe"):
        raise Flaw(f"a call's paid is {call.paid!r}; give 'yes', 'no' or 'maybe'")
    prompt, completion, estimated = call.prompt_tokens, call.completion_tokens, int(call.estimated)
    hashed = call_hash(
        encoded(model),
        mark.encode(),
        at,
        seconds,
        call.asked,
        call.got,
        call.surplus,
        encoded(call.kind) or b"",
        call.status,
        call.paid.encode(),
        prompt,
        completion,
        estimated,
    )
    told = (call.kind, call.status, call.paid, prompt, completion, estimated)
    return (source, at, seconds, call.asked, call.got, call.surplus, *told, hashed)


def _there(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'calls'")
    return found.fetchone() is not None
