"""Structured logs: a line of JSON each, no secret in any. Knows nothing of requests' texts.

A reader of them that stalls doesn't stall the gateway: lines wait in a queue, and are dropped, and counted,
where it is full.
"""

import collections
import contextlib
import io
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TextIO

import orjson

from adacompute.records import Call, Secret
from adacompute.serve.redact import Redactor
from adacompute.serve.told import Told

__all__ = ["JsonLines", "RequestLog", "Seldom", "log", "logging_to"]

_QUEUE = 10_000  # lines
_GATHER = 0.05  # seconds that a line waits for others; a process that is killed loses as much
_AT_ONCE = 100  # lines, so that a reader who stalls has little of them in hand
_LONGEST = 20_000  # characters of a message or a traceback
_SHORT = 100  # characters
_NUMBER = (int, float)
_KEY = 1000  # characters of a key in any form, at most
_REQUEST: Final = vars(
    logging.LogRecord("adacompute.request", logging.INFO, __file__, 0, "request", (), None)
)
_OURS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON, masked: message, arguments, extras and traceback alike."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor
        self._known = lru_cache(maxsize=1024)(redactor.named)  # of policies and the like, again and again

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        name_of = self._redactor.name
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": name_of(record.name),
            "message": self._cut(_message(record)),
        }
        for name, value in _extras(record).items():
            plain = value is None or isinstance(value, _NUMBER)
            line[name_of(name)] = value if plain else self._value(name, value)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = self._cut(_trace(record.exc_info[1]))
        elif record.exc_text:
            line["error"] = self._cut(record.exc_text)
        if record.stack_info:
            line["stack"] = self._cut(record.stack_info)
        try:
            return orjson.dumps(line).decode()
        except TypeError:  # huge numbers and half surrogates
            return json.dumps(line, default=str)

    def _value(self, name: str, value: object) -> object:
        short = isinstance(value, str) and len(value) <= _SHORT
        return self._known(name, value) if short else self._redactor.named(name, value)

    def _cut(self, text: str) -> str:
        if len(text) <= _LONGEST:
            return self._redactor.text(text)
        # half a key at the end would not be known for one: it goes with what is cut off after masking
        return self._redactor.text(text[:_LONGEST])[:-_KEY] + "…"


class Seldom(logging.Filter):
    """Lets the same warning through a few times a minute; the next one says how many were left out."""

    def __init__(
        self, *, most: int = 5, seconds: float = 60.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most, self._seconds, self._now = most, seconds, now
        self._seen: dict[tuple[str, int, str], list[float]] = {}  # since when, let through, left out
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Is it to be written?"""
        if record.levelno < logging.WARNING:
            return True
        key, now = (record.name, record.levelno, str(record.msg)[:200]), self._now()
        with self._lock:
            if key not in self._seen and len(self._seen) >= 256:
                self._seen.clear()
            found = self._seen.setdefault(key, [now, 0, 0])
            if now - found[0] >= self._seconds:
                left_out, found[:] = int(found[2]), [now, 0, 0]
                if left_out:
                    record.left_out = left_out
            found[1] += 1
            if found[1] <= self._most:
                return True
            found[2] += 1
            return False


class _Request(logging.LogRecord):
    """A record of a request, made in a fifth of the time: not by which thread, nor where in the code."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.__dict__.update(_REQUEST, created=time.time(), **fields)
        self.extras = fields


class RequestLog:
    """One line for each request, without its texts."""

    def __init__(self) -> None:
        self._log = logging.getLogger("adacompute.request")
        self._calls = logging.getLogger("adacompute.upstream")

    def request(self, told: Told) -> None:
        """A request ended."""
        if not self._log.isEnabledFor(logging.INFO):
            return
        fields: dict[str, object] = {
            "id": told.id,
            "key_name": told.key,
            "policy": told.policy,
            "mode": told.mode,
            "budget": told.budget,
            "status": told.status,
            "samples": told.samples,
            "waves": told.waves,
            "votes": sorted(told.votes.values(), reverse=True),
            "agreement": None if told.agreement is None else round(told.agreement, 4),
            "price": told.price,
            "seconds": round(told.seconds, 4),
            "spent_samples": told.spent.samples,
            "spent_tokens": told.spent.tokens,
            "spent_money": told.spent.of("money"),
        }
        if told.error:
            fields["code"] = told.error
        if told.missing:
            fields["missing"] = told.missing
        if told.would is not None:
            fields["would"] = told.would
        self._log.handle(_Request(fields))

    def call(self, call: Call) -> None:
        """An attempt upstream ended: for debugging only."""
        if self._calls.isEnabledFor(logging.DEBUG):
            fields = {"kind": call.kind, "status": call.status, "asked": call.asked, "got": call.got}
            more = {"seconds": round(call.seconds, 4), "paid": call.paid}
            self._calls.debug("upstream", extra={**fields, **more})


log: Final = RequestLog()


@contextlib.contextmanager
def logging_to(stream: TextIO, *, level: str = "info", secrets: Iterable[Secret] = ()) -> Iterator[None]:
    """All of the process's logs, uvicorn's and aiohttp's too, as masked lines, until it is left."""
    root = logging.getLogger()
    handler = _Lines(stream)
    handler.setFormatter(JsonLines(Redactor(secrets)))
    handler.addFilter(Seldom())
    old, old_level = root.handlers[:], root.level
    access = logging.getLogger("uvicorn.access")
    old_access = access.level
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        access.setLevel(logging.WARNING)  # every request has a line of ours
    try:
        yield
    finally:
        root.handlers[:] = old
        root.setLevel(old_level)
        access.setLevel(old_access)
        handler.close()


class _Lines(logging.Handler):
    """Writes formatted lines in a thread of its own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: collections.deque[str] = collections.deque()
        self._dropped = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Leaves the line for the thread; never waits."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - logging's own way to tell of it would print the arguments, unmasked
            line = json.dumps({"level": "error", "message": "a line of the log could not be written"})
        if len(self._lines) < _QUEUE:
            self._lines.append(line)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Writes what is there, for at most two seconds."""
        self._ended.set()
        self._thread.join(2.0)
        super().close()

    def _write(self) -> None:
        ended = False
        while not ended:  # it looks by itself: waking it would cost a request more than its line does
            ended = self._ended.wait(_GATHER)
            while self._lines:
                before = len(self._lines)
                try:
                    self._stream.write(self._some_lines())
                    self._stream.flush()
                except (BrokenPipeError, ValueError):  # nobody reads it any more
                    return
                except OSError:  # a full disk, or a reader that is slow: it may pass
                    self._dropped += before - len(self._lines)
                    break

    def _some_lines(self) -> str:
        lines = [self._lines.popleft() for _ in range(min(len(self._lines), _AT_ONCE))]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            lines.append(
                json.dumps({"level": "warning", "message": f"{dropped} lines of the log were dropped"})
            )
        return "\n".join(lines) + "\n"


def _extras(record: logging.LogRecord) -> dict[str, object]:
    if isinstance(record, _Request):
        return record.extras
    return {name: value for name, value in vars(record).items() if name not in _OURS}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that don't fit the message, or can't be shown
        return f"{record.msg!s} (its arguments can't be shown)"


def _trace(error: BaseException) -> str:
    told = io.StringIO()
    traceback.print_exception(error, file=told, limit=-30)
    return told.getvalue()
