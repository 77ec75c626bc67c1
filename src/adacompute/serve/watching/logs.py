"""Writes structured logs. `Reporter` passes events on to logs, metrics, telemetry and the recorder.

The log has one JSON line per request, without prompts and answers. Secrets are masked, even if they are
quoted for a URL, escaped for JSON or by `repr`, or in Base64. Lines are queued, so that a stalled reader of
the log doesn't stall the gateway. If the queue is full, lines are dropped and counted.
"""

import asyncio
import contextlib
import json
import logging
import math
import re
import select
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TextIO, TypeVar

import orjson

from adacompute.client.modes import read_mode_list
from adacompute.config import Config, KeyConfig, read_key
from adacompute.records import BudgetUnit, Call, Secret
from adacompute.serve.messages.reply import ForwardOutcome, RequestOutcome
from adacompute.serve.voting.sample_loop import SampleLoop
from adacompute.serve.watching.observability import Observability
from adacompute.serve.watching.recorder import RecordQueue

if TYPE_CHECKING:
    from adacompute.serve.watching.telemetry import ForwardSpan, RequestSpan

P = ParamSpec("P")
T = TypeVar("T")

MASK = "***"

_SECRET_NAMES = (
    r"(?:proxy-)?authorization|x-api-key|api[-_]?key|access[-_]?token|set-cookie|cookie|passw(?:or)?d|secret"  # noqa: S105
)
_SECRET_PATTERNS = (
    # masks the credentials in an Authorization header, but keeps its scheme
    (re.compile(r"\b(bearer|basic)(\s+|%20|\+)[A-Za-z0-9._~+/=\-]{4,}", re.IGNORECASE), rf"\1 {MASK}"),
    # masks the value after the name of a secret and a separator such as a colon, with or without quotes
    (
        re.compile(
            rf"\b({_SECRET_NAMES})\b(\\?['\"]?\s*(?:[:=]|,)\s*(?:b?\\?['\"])?)(?!(?:bearer|basic)\b)[^\s'\",;&\\)}}\]]{{4,}}",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{6,}"), MASK),
    (re.compile(r"\b(?:hf|gsk|ghp|gho|glpat|xai|xox[abp]|AKIA|AIza)[-_]?[A-Za-z0-9_\-]{12,}"), MASK),
    (re.compile(r"\b(\w{1,20}://)[^/\s:@]{0,99}:[^/\s@]+@"), rf"\1{MASK}@"),
)
_SECRET_NAME = re.compile(_SECRET_NAMES, re.IGNORECASE)
# Every text that a pattern above matches contains one of these, in upper or lower case. Only texts that
# contain one are searched with the patterns, which are slow.
_HINTS = (
    *("bearer", "basic", "authorization", "api", "access", "cookie", "passw", "secret", "://"),
    *("sk-", "pk-", "rk-", "hf", "gsk", "ghp", "gho", "glpat", "xai", "xox", "akia", "aiza"),
)
_MIN_LENGTH = 8  # a text with fewer characters can't contain a secret that the patterns recognise


class Redactor:
    """Masks known secrets and everything that looks like a key.

    >>> Redactor([Secret("opensesame")]).mask_text("key opensesame, header 'Authorization: Bearer abcd1234'")
    "key ***, header 'Authorization: Bearer ***'"
    """

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        nonempty = [secret for secret in dict.fromkeys(secrets) if secret.reveal()]
        # the longest form first, because it may contain a shorter one, and must be masked as a whole
        self._forms = sorted({form for secret in nonempty for form in secret.masked}, key=len, reverse=True)
        self._short = [secret for secret in nonempty if not secret.masked]

    def mask_text(self, text: str) -> str:
        """Returns the text with keys masked."""
        for secret in self._short:
            text = secret.mask_message(text)
        if len(text) < _MIN_LENGTH:
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        if _may_hold_key(text):
            for pattern, mask in _SECRET_PATTERNS:
                text = pattern.sub(mask, text)
        return text

    def is_clean(self, line: str) -> bool:
        """Checks quickly whether a JSON line needs no masking, as is usually the case."""
        return not (self._short or any(map(line.__contains__, self._forms)) or _may_hold_key(line))

    def mask_value(self, value: object, depth: int = 0) -> object:
        """Returns a JSON-compatible value with all texts masked."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, bytes | bytearray):
            return self.mask_text(bytes(value).decode("utf-8", "replace"))
        if depth < 6:
            if isinstance(value, Mapping):
                return {
                    self.mask_text(str(name)): self.mask_named(name, item, depth + 1)
                    for name, item in value.items()
                }
            if isinstance(value, list | tuple | set | frozenset):
                return [self.mask_value(item, depth + 1) for item in value]
        return self.mask_text(str(value))

    def mask_named(self, name: object, item: object, depth: int = 0) -> object:
        """Masks the whole value if its name says that it is secret; otherwise masks it like `mask_value`."""
        if isinstance(item, str | bytes) and _SECRET_NAME.fullmatch(str(name)):
            return MASK
        return self.mask_value(item, depth)


def _may_hold_key(text: str) -> bool:
    return any(map(text.lower().__contains__, _HINTS))


_MAX_QUEUED = 10_000  # maximum number of log lines in the queue
# seconds to wait for more lines before writing; a process that is killed loses these lines
_GATHER_SECONDS = 0.02
_LINES_PER_WRITE = 100  # maximum number of lines per write, which are lost if the write fails
_MAX_TEXT = 20_000  # maximum length of a message or traceback, in characters
_MAX_KEY = 1000  # maximum length of a secret in any encoding, in characters
_PLAIN_JSON = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a log record as one JSON line with secrets masked: message, extra fields and traceback."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Formats the record as a line, without a newline at the end."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _format_message(record),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = "".join(traceback.format_exception(record.exc_info[1], limit=-30))
        elif record.exc_text:
            line["error"] = record.exc_text
        if record.stack_info:
            line["stack"] = record.stack_info
        try:
            text = orjson.dumps(line, option=_PLAIN_JSON).decode()
            if len(text) <= _MAX_TEXT and self._redactor.is_clean(text):
                return text
        except TypeError:  # a field can't be written as plain JSON
            pass
        masked = {self._redactor.mask_text(name): self._mask(name, value) for name, value in line.items()}
        try:
            return orjson.dumps(masked).decode()
        except TypeError:  # orjson raises it for huge numbers and unpaired surrogates
            return json.dumps(masked, default=str)

    def _mask(self, name: str, value: object) -> object:
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            # The first cut may leave part of a key, which can't be recognised and masked. The second cut, by
            # `_MAX_KEY`, removes that part.
            return str(self._redactor.mask_named(name, value[:_MAX_TEXT]))[:-_MAX_KEY] + "…"
        return self._redactor.mask_named(name, value)


class RepeatFilter(logging.Filter):
    """Lets each warning be written at most 5 times per minute; a later one says how many were skipped."""

    def __init__(
        self, *, limit: int = 5, seconds: float = 60.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._limit, self._seconds, self._now = limit, seconds, now
        # (logger, level, message) -> [when counting began, messages since then, messages not written]
        self._counts: dict[tuple[str, int, str], list[float]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is written."""
        if record.levelno < logging.WARNING:
            return True
        key, now = (record.name, record.levelno, str(record.msg)[:200]), self._now()
        with self._lock:
            if key not in self._counts and len(self._counts) >= 256:
                self._counts.clear()
            count = self._counts.setdefault(key, [now, 0, 0])
            if now - count[0] >= self._seconds:
                left_out, count[:] = int(count[2]), [now, 0, 0]
                if left_out:
                    record.left_out = left_out
            count[1] += 1
            if count[1] <= self._limit:
                return True
            count[2] += 1
            return False


def collect_secrets(config: Config, keys: Iterable[KeyConfig]) -> list[Secret]:
    """Returns all secrets that a gateway knows: its clients' keys and its own."""
    config, modes = read_mode_list(config)
    upstreams = [config.endpoint] if modes is None else [mode.endpoint for mode in modes.modes]
    places = [(upstream.key_env, upstream.key_file) for upstream in upstreams]
    if config.verifier.url:
        places.append((config.verifier.key_env, config.verifier.key_file))
    if config.serve.redis:
        places.append((config.serve.redis_key_env, config.serve.redis_key_file))
    own = [read_key(env=env, file=Path(file) if file else None) for env, file in places]
    pairs = [pair for upstream in upstreams for pair in (*upstream.headers, *upstream.query)]
    values = [Secret(re.split("[:=]", pair, maxsplit=1)[-1].strip()) for pair in pairs]
    return [*(client.key for client in keys), *(key for key in own if key is not None), *values]


@contextlib.contextmanager
def log_to(
    stream: TextIO, *, level: str = "info", secrets: Iterable[Secret] = (), shared: bool = False
) -> Iterator[None]:
    """Writes all logs of the process, including uvicorn's, with secrets masked, while the context is open.

    `shared` says that other processes write to the stream too: each write is then small enough to be atomic
    in a pipe.
    """
    root = logging.getLogger()
    handler = _LineWriter(stream, max_bytes=select.PIPE_BUF if shared else 2**62)
    handler.setFormatter(JsonFormatter(Redactor(secrets)))
    handler.addFilter(RepeatFilter())
    old, old_level = root.handlers[:], root.level
    old_origins = logging.logThreads, logging.logMultiprocessing, logging.logProcesses
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False  # not shown in the log
    access = logging.getLogger("uvicorn.access")
    old_access = access.level
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level != "debug":
        access.setLevel(logging.WARNING)  # the gateway logs every request itself
    try:
        yield
    finally:
        root.handlers[:] = old
        root.setLevel(old_level)
        logging.logThreads, logging.logMultiprocessing, logging.logProcesses = old_origins
        access.setLevel(old_access)
        handler.close()


class _LineWriter(logging.Handler):
    """Formats log records, and writes the lines to a stream in a separate thread."""

    def __init__(self, stream: TextIO, *, max_bytes: int) -> None:
        super().__init__()
        self._stream = stream
        # maximum number of bytes per write; a longer single line, or a note on dropped lines, may exceed it
        self._max_bytes = max_bytes
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._ready = threading.Event()  # set when lines are queued
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a log line for the writing thread, without waiting for it."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - logging's own handling would print the arguments, unmasked
            line = json.dumps({"level": "error", "message": "a log line could not be written"})
        if len(self._lines) < _MAX_QUEUED:
            self._lines.append(line)
            if not self._ready.is_set():
                self._ready.set()
        else:
            self._dropped += 1

    def close(self) -> None:
        """Writes the queued lines, if that takes at most two seconds."""
        self._stopping.set()
        self._ready.set()
        self._thread.join(2.0)
        super().close()

    def _write(self) -> None:
        stopping = False
        while not stopping:
            self._ready.wait()
            self._stopping.wait(_GATHER_SECONDS)  # waits for more lines, so that they are written together
            self._ready.clear()
            # read after `_ready` was cleared: a later call of `close` sets `_ready`, so the loop runs again
            stopping = self._stopping.is_set()
            while self._lines:
                before = len(self._lines)
                try:
                    self._stream.write(self._take_lines())
                    self._stream.flush()
                except (BrokenPipeError, ValueError):  # nobody reads the log any more
                    return
                except OSError:  # the cause may be temporary, such as a full disk or a slow reader
                    self._dropped += before - len(self._lines)
                    self._ready.set()
                    break

    def _take_lines(self) -> str:
        lines, size = [self._lines.popleft()], 0
        while self._lines and len(lines) < _LINES_PER_WRITE:
            size += len(lines[-1].encode()) + 1
            if size + len(self._lines[0].encode()) + 1 > self._max_bytes:
                break
            lines.append(self._lines.popleft())
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            lines.append(json.dumps({"level": "warning", "message": f"{dropped} log lines were dropped"}))
        return "\n".join(lines) + "\n"


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that don't fit the message, or can't be shown
        return f"{record.msg!s} (its arguments can't be shown)"


_log = logging.getLogger("adacompute.serve")
_request_log = logging.getLogger("adacompute.request")
_call_log = logging.getLogger("adacompute.upstream")
_REPORT_SECONDS = 0.05  # seconds from an event until its observers, such as metrics and logs, are called
_SLICE_SECONDS = 0.001  # after calling observers for this number of seconds, other tasks get their turn
_PAUSE_SECONDS = 0.002  # seconds for other tasks before more observers are called
_MAX_WAITING = 128  # maximum number of events that wait for observers to be called


def log_request(outcome: RequestOutcome) -> None:
    """Logs a finished request in one line, without prompt and answers."""
    fields: dict[str, object] = {
        "policy": outcome.policy,
        "mode": outcome.mode,
        "budget": outcome.budget,
        "samples": outcome.samples,
        "waves": outcome.waves,
        "votes": sorted(outcome.votes.values(), reverse=True),
        "agreement": None if outcome.agreement is None else round(outcome.agreement, 4),
        "price": outcome.price,
        "spent_money": outcome.spent.money,
    }
    optional = {
        "budget_unit": None if outcome.unit == "samples" else outcome.unit,
        "code": outcome.error or None,
        "missing": outcome.missing or None,
        "modes": outcome.mode_counts if outcome.modes else None,
        "answered_by": outcome.answered_by if outcome.modes else None,
        "would": outcome.would,
        "no_vote": outcome.no_vote_reason,
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    _log_outcome(_request_log, "request", outcome, fields)


def log_forward(outcome: ForwardOutcome) -> None:
    """Logs a finished forwarded request."""
    _log_outcome(_log, "forwarded", outcome, {"route": outcome.route, "method": outcome.method})


def log_call(call: Call) -> None:
    """Logs a finished upstream call at debug level."""
    fields = {"kind": call.kind, "status": call.status, "asked": call.asked, "got": call.got}
    _call_log.debug("upstream", extra={**fields, "seconds": round(call.seconds, 4), "paid": call.paid})


def _log_outcome(
    log: logging.Logger, message: str, outcome: RequestOutcome | ForwardOutcome, fields: Mapping[str, object]
) -> None:
    """Logs a finished request. The line shows the time when the request finished, not the present time."""
    if not log.isEnabledFor(logging.INFO):
        return
    fields = {
        "id": outcome.id,
        "key_name": outcome.key,
        **fields,
        "status": outcome.status,
        "seconds": round(outcome.seconds, 4),
        "spent_samples": outcome.spent.samples,
        "spent_tokens": outcome.spent.tokens,
    }
    record = log.makeRecord(log.name, logging.INFO, __file__, 0, message, (), None, extra=fields)
    record.created = outcome.at + outcome.seconds
    log.handle(record)


class ObserverGuard:
    """Calls observers without ever raising, and logs the first exception of each.

    So a failing observer can't stop a reply that is already paid for, or the calls of other observers.
    """

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def __call__(self, observer: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Calls an observer; returns its result, or None if it failed."""
        try:
            return observer(*args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is
            name = getattr(observer, "__qualname__", repr(observer))
            if name not in self._failed:
                self._failed.add(name)
                _log.exception("%s failed; requests continue, and this is not logged again", name)
        return None


class Reporter:
    """Tells observers (metrics, dashboard, logs and telemetry) and the recorder about requests and calls.

    No reply waits for observers: events are queued, and observers are called 50 ms later, for 1 ms at a time,
    so that the client's next request usually isn't delayed. If over 128 events wait, observers are called
    immediately. Code that needs current data, such as `/metrics`, calls `report` first.

    The recorder is called in the event loop's next iteration, so a process that is killed loses little.
    """

    def __init__(self, observability: Observability, recorder: RecordQueue | None = None) -> None:
        self.recorder = recorder  # None if traffic isn't recorded
        self._observability = observability
        self._guard = ObserverGuard()
        # events that wait, oldest first, each with its observers: functions to call with the event
        self._waiting: deque[tuple[object, tuple[Callable[[Any], None], ...]]] = deque()
        self._unrecorded: list[tuple[RequestOutcome, SampleLoop]] = []
        self._prices: dict[tuple[str, float, BudgetUnit], tuple[float, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def on_call(self, call: Call) -> None:
        """Queues a finished upstream call for the observers."""
        logs = (log_call,) if _call_log.isEnabledFor(logging.DEBUG) else ()
        self._add(call, self._observability.on_call, *logs)

    def on_price(
        self, policy: str, budget: float, price: float, average: float, unit: BudgetUnit = "samples"
    ) -> None:
        """Queues the latest price of a policy at a budget, and its average cost, for the metrics."""
        self._prices[policy, budget, unit] = price, average
        if self._timer is None:
            self._start_timer(_REPORT_SECONDS)

    def on_request_end(
        self, outcome: RequestOutcome, sampling: SampleLoop, span: "RequestSpan | None" = None
    ) -> None:
        """Queues a finished request for the observers and the recorder."""
        ends = () if span is None else (span.end,)
        self._add(outcome, self._observability.on_request_end, log_request, *ends)
        if self.recorder is not None:
            if not self._unrecorded:
                asyncio.get_running_loop().call_soon(self._record)
            self._unrecorded.append((outcome, sampling))

    def on_forward_end(self, outcome: ForwardOutcome, span: "ForwardSpan | None" = None) -> None:
        """Queues a finished forwarded request for the observers."""
        ends = () if span is None else (span.end,)
        self._add(outcome, self._observability.on_forward_end, log_forward, *ends)

    def report(self) -> None:
        """Passes all waiting events to the observers now."""
        self._record()
        self._report_for(math.inf)

    def _add(self, event: object, *observers: Callable[[Any], None]) -> None:
        self._waiting.append((event, observers))
        if self._timer is None:
            self._start_timer(_REPORT_SECONDS)
        if len(self._waiting) > _MAX_WAITING:
            self._report_for(_SLICE_SECONDS)

    def _start_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._report_slice)

    def _report_slice(self) -> None:
        self._timer = None
        self._report_for(_SLICE_SECONDS)
        if self._waiting:
            self._start_timer(_PAUSE_SECONDS)

    def _report_for(self, seconds: float) -> None:
        """Passes waiting events to the observers for about `seconds`, but at least one event."""
        end = time.perf_counter() + seconds
        prices, self._prices = self._prices, {}
        for (policy, budget, unit), (price, average) in prices.items():
            self._guard(self._observability.on_price, policy, budget, price, average, unit)
        while self._waiting:
            event, observers = self._waiting.popleft()
            for observer in observers:
                self._guard(observer, event)
            if time.perf_counter() >= end:
                break
        self._guard(self._observability.publish)

    def _record(self) -> None:
        requests, self._unrecorded = self._unrecorded, []
        for outcome, sampling in requests:
            if self.recorder is not None:
                self._guard(self.recorder.record, outcome, sampling.request, sampling.votes.samples)
