"""Stretches of time that a cap counts in: hours, days and months by UTC. Knows nothing of money or keys.

A window's name is how it begins, as ISO 8601 says it: an hour's name begins with its day's, a day's with its
month's, and every name with that of "ever", which is empty. So names sort by time, and an hour is within a
window where its name begins with the window's.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

__all__ = ["Window", "ends", "hour_of", "window_length", "window_of"]

Window = Literal["ever", "hour", "day", "month"]

_LENGTH = {"ever": 0, "month": len("2026-11"), "day": len("2026-11-15"), "hour": len("2026-11-15T14")}


def hour_of(now: float) -> str:
    """The name of the hour, e.g. "2026-11-15T14"."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H")


def window_length(window: Window) -> int:
    """How many characters of an hour's name are the name of its window."""
    return _LENGTH[window]


def window_of(hour: str, window: Window) -> str:
    """The name of the window that an hour is in."""
    return hour[: _LENGTH[window]]


def ends(name: str) -> float | None:
    """When the window of that name ends, in seconds since 1970; None: never."""
    if not name:
        return None
    if len(name) == _LENGTH["month"]:
        begin = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
        return (begin.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
    if len(name) == _LENGTH["day"]:
        return (datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)).timestamp()
    return (datetime.strptime(name, "%Y-%m-%dT%H").replace(tzinfo=UTC) + timedelta(hours=1)).timestamp()
