"""Names of what was taken into a pool, so that it is taken in once. Knows nothing of what they stand for."""

import sqlite3

from adacompute.pool.content import setting_hash

__all__ = ["noted", "strike"]

_PREFIX = "taken in: "  # among the settings, of which the task is another


def noted(connection: sqlite3.Connection, name: str) -> bool:
    """Notes a name, in the transaction of what it stands for; False where it was noted before."""
    key = _PREFIX + name
    mark = setting_hash(key.encode(), b"1")
    cursor = connection.execute("INSERT OR IGNORE INTO settings VALUES (?, '1', ?)", (key, mark))
    return cursor.rowcount == 1


def strike(connection: sqlite3.Connection) -> None:
    """Strikes all names out."""
    connection.execute("DELETE FROM settings WHERE name GLOB ?", (_PREFIX + "*",))
