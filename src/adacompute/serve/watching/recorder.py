"""Records live requests to a pool in a separate thread: no request waits for the disk.

Requests that can't be stored are dropped and counted: a gateway with a full disk still answers.

In the pool, requests with the same conversation belong to the same problem. Each model with its parameters is
a source of samples, and so is each mode. Random requests that get all possible samples, to learn from, have a
source of their own, marked `explored`. Learning from other sources would be biased: there, easy problems have
few samples, because the policy stopped early.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from adacompute.answers import Task
from adacompute.client import Response
from adacompute.client.response_parser import count_characters, replace_surrogates
from adacompute.errors import AdacomputeError, ConfigError, DuplicateRecord, RecordInvalid, RecordNotFound
from adacompute.pool import MODE_PARAMETER, DrawnSamples, Pool, fingerprint, open_pool
from adacompute.records import Problem, Sample
from adacompute.serve.messages.reply import CLIENT_GONE_STATUS, ModeUse, RequestOutcome
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.voting.answer_reader import AnswerReader

_CALL_FIELDS = ("tool_calls", "function_call")
_MAX_PARAMETER_BYTES = 4_096  # maximum bytes of a list or object; if it is larger, its hash is stored
# maximum size of a stored conversation in bytes; of a larger one, e.g. with images, only the size is stored
_MAX_MESSAGES_BYTES = 262_144
# fields of a request's body that aren't stored as parameters: they don't change how a model answers (e.g.
# user), or are stored elsewhere (messages, model)
_IRRELEVANT_FIELDS = frozenset(
    (
        *("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "seed", "user"),
        *("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    )
)


def build_problem(request: ChatRequest) -> Problem:
    """Makes a problem from the conversation, identified by a hash of the messages."""
    # unpaired surrogates, which JSON can contain as escapes, are replaced: they can't be encoded as UTF-8
    messages = _clean(request.body.get("messages"))
    text = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
    extra = {"messages": messages} if len(text) <= _MAX_MESSAGES_BYTES else {"messages_bytes": len(text)}
    return Problem(
        id=f"req-{sha256(text).hexdigest()[:16]}", question=replace_surrogates(request.prompt), extra=extra
    )


def build_source(
    outcome: RequestOutcome, request: ChatRequest, use: ModeUse | None = None
) -> tuple[str, dict[str, Any]]:
    """Returns the model that drew the samples, and its parameters; `use` is the mode if there are several."""
    parameters = {
        name: _shorten_parameter(_clean(value))
        for name, value in request.body.items()
        if name not in _IRRELEVANT_FIELDS
    }
    if outcome.explored and not outcome.missing:
        parameters["explored"] = True
    if use is None:
        return replace_surrogates(outcome.model), parameters
    parameters |= {name: _shorten_parameter(value) for name, value in use.options.items()}
    return use.model, parameters | {MODE_PARAMETER: use.name}


def _shorten_parameter(value: Any) -> Any:  # noqa: ANN401 - JSON data
    """Returns a parameter, or its hash if it is long, such as a list of tools."""
    if not isinstance(value, list | dict):
        return value
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return value if len(text) <= _MAX_PARAMETER_BYTES else f"sha256:{sha256(text).hexdigest()[:16]}"


def annotate_samples(outcome: RequestOutcome, samples: Sequence[Sample]) -> list[Sample]:
    """Adds data on the request, such as its policy and budget, to the first sample."""
    note = {
        "request": outcome.id,
        "at": outcome.at,
        "policy": outcome.policy,
        "mode": outcome.mode,
        "budget": outcome.budget,
        "budget_unit": None if outcome.unit == "samples" else outcome.unit,
        "price": outcome.price,
        "agreement": outcome.agreement,
        "would": outcome.would,
        "explored": outcome.explored or None,
        "missing": outcome.missing or None,
    }
    kept = {name: value for name, value in note.items() if value is not None}
    return [replace(samples[0], extra={**samples[0].extra, "gateway": kept}), *samples[1:]]


def _clean(value: Any) -> Any:  # noqa: ANN401 - JSON data
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(name): _clean(item) for name, item in value.items()}
    return value


_MAX_QUEUED = 1_000  # maximum number of requests in the queue
_MAX_CHARACTERS = 64_000_000  # maximum total length of the texts in the queue, in characters
_MAX_BATCH = 100  # maximum number of requests per transaction
# seconds to wait for more requests to write together, because each write to disk is slow
_GATHER_SECONDS = 0.1
_CLOSE_SECONDS = 20.0  # maximum number of seconds for storing the last requests on closing
_WARNING_SECONDS = 60.0  # minimum number of seconds between two warnings
_RECORD_ERRORS = (RecordInvalid, DuplicateRecord, RecordNotFound)

_log = logging.getLogger("adacompute.serve")


class QueuedRequest(NamedTuple):
    """A request that waits to be recorded, or the part of it that one mode answered."""

    outcome: RequestOutcome  # result of the request, without the responses
    request: ChatRequest
    samples: Sequence[Sample]  # the samples, if answers were already read from all responses; otherwise empty
    responses: Sequence[Response]  # the responses, if their answers must still be read; otherwise empty
    size: int  # total length of its texts, in characters
    use: ModeUse | None = None  # the mode that drew the samples; None if there is only one mode


class RecordedRequest(NamedTuple):
    """A request as a pool stores it, or the part of it that one mode answered."""

    problem: Problem
    model: str
    parameters: dict[str, Any]
    samples: Sequence[Sample]
    size: int  # total length of its texts, in characters


def _build_row(item: QueuedRequest, task: Task) -> RecordedRequest:
    """Converts a queued request to what a pool stores. This is slow if responses must be read."""
    model, parameters = build_source(item.outcome, item.request, item.use)
    read_samples = item.samples or AnswerReader(item.request, task).read_blocking(item.responses)
    samples = annotate_samples(item.outcome, read_samples)
    return RecordedRequest(build_problem(item.request), model, parameters, samples, item.size)


class RecordQueue:
    """Queues requests for a thread that stores them, so that no reply waits for the disk."""

    gather_seconds = _GATHER_SECONDS

    def __init__(self) -> None:
        self._queue: queue.Queue[QueuedRequest | RecordedRequest | None] = queue.Queue(_MAX_QUEUED)
        # guards `_queued_characters`, `_last_warning`, `_unreported` and `dropped`
        self._lock = threading.Lock()
        self._queued_characters = 0
        self._last_warning = float("-inf")
        self._unreported = 0  # requests dropped since the last warning
        self.stored = 0  # number of stored requests
        self.dropped = 0  # number of requests that couldn't be stored
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="adacompute-recorder", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """Stores the queued requests, and drops those left after 20 seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        end, sent = time.monotonic() + _CLOSE_SECONDS, False
        while thread.is_alive() and time.monotonic() < end:
            if not sent:
                with contextlib.suppress(queue.Full):
                    self._queue.put_nowait(None)
                    sent = True
            await asyncio.sleep(0.005)
        # The thread still writes, and ends with the process. No transaction is stored in part.
        if thread.is_alive():
            self.drop(self._queue.qsize(), "the gateway stops, and the disk is too slow")
            return
        await asyncio.to_thread(self._end)

    def record(self, outcome: RequestOutcome, request: ChatRequest, samples: Sequence[Sample] = ()) -> None:
        """Queues a finished request if it had a vote.

        `samples` are the request's samples. If they don't cover all responses, the thread reads the answers.
        """
        for item in _make_items(outcome, request, samples):
            self.enqueue(item)

    def enqueue(self, item: QueuedRequest | RecordedRequest) -> None:
        """Queues an item for the thread; does nothing after `close`."""
        if self._thread is None:
            return
        with self._lock:
            full = self._queued_characters > 0 and self._queued_characters + item.size > _MAX_CHARACTERS
            self._queued_characters += 0 if full else item.size
        if not full:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(item)
                return
            self._release(item.size)
        self.drop(1, "too much waits to be written; the disk is too slow")

    def _release(self, size: int) -> None:
        with self._lock:
            self._queued_characters -= size

    def drop(self, count: int, reason: str) -> None:
        """Counts requests that couldn't be stored, and logs a warning at most once a minute."""
        with self._lock:
            self.dropped += count
            self._unreported += count
            now = time.monotonic()
            if not self._unreported or now - self._last_warning < _WARNING_SECONDS:
                return
            self._last_warning, unreported, self._unreported = now, self._unreported, 0
        _log.warning("recording: requests that could not be stored: %d; %s", unreported, reason)

    def _run(self) -> None:
        ending = False
        while not ending:
            batch, ending = self._take_batch()
            try:
                self._store(batch)
            except Exception as exc:  # noqa: BLE001 - one bad request must not stop the recorder
                self.drop(len(batch), _describe_error(exc))
            self._release(sum(item.size for item in batch))

    def _take_batch(self) -> tuple[list[QueuedRequest | RecordedRequest], bool]:
        """Takes a batch from the queue; returns it, and whether it is the last one."""
        item = self._queue.get()
        batch = [] if item is None else [item]
        if batch and self._queue.empty():
            time.sleep(self.gather_seconds)
        while item is not None and len(batch) < _MAX_BATCH:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                batch.append(item)
        return batch, item is None

    def _store(self, batch: list[QueuedRequest | RecordedRequest]) -> None:
        """Stores a batch; called in the recorder's thread."""
        raise NotImplementedError

    def _end(self) -> None:
        """Called after all requests are stored; closes the pool if there is one."""


class Recorder(RecordQueue):
    """Records requests to one pool. Only `open`, which creates a recorder, can raise errors."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        super().__init__()

    @classmethod
    async def open(cls, path: Path, task: Task) -> "Recorder":
        """Opens or creates the pool; ConfigError if the file is no pool, or another process writes to it."""
        try:
            return cls(await asyncio.to_thread(open_pool, path, create=True, write=True, task=task))
        except AdacomputeError as exc:
            raise ConfigError(f"record: {exc}; or name another pool, or none") from exc

    def _end(self) -> None:
        self._pool.close()

    def _store(self, batch: list[QueuedRequest | RecordedRequest]) -> None:
        """Stores requests, in one transaction per source (model and parameters).

        If a transaction fails, the other ones still succeed.
        """
        sources: dict[tuple[str, str], list[RecordedRequest]] = {}
        for item in batch:
            try:
                row = item if isinstance(item, RecordedRequest) else _build_row(item, self._pool.task)
                sources.setdefault((row.model, fingerprint(row.parameters)), []).append(row)
            except Exception as exc:  # noqa: BLE001 - a value that isn't JSON; the others are recorded
                self.drop(1, _describe_error(exc))
        for rows in sources.values():
            try:
                self._add(rows)
            except _RECORD_ERRORS:
                for row in rows:
                    self._add_single(row)
            except Exception as exc:  # noqa: BLE001 - the disk, or another process
                self.drop(len(rows), _describe_error(exc))

    def _add_single(self, row: RecordedRequest) -> None:
        try:
            self._add([row])
        except AdacomputeError as exc:
            self.drop(1, _describe_error(exc))

    def _add(self, rows: list[RecordedRequest]) -> None:
        """Stores requests that have the same source: all of them, or none if there is an error."""
        model, parameters = rows[0].model, rows[0].parameters
        problems = {row.problem.id: row.problem for row in rows}
        self._pool.add_problems(
            problem for id_, problem in problems.items() if self._pool.problem(id_) is None
        )
        # id of a problem -> index of its next sample, after the samples already stored from the same source
        following = {id_: self._pool.next_index(id_, model, parameters) for id_ in problems}
        drawn = []
        for row in rows:
            id_ = row.problem.id
            drawn.append(DrawnSamples(id_, list(enumerate(row.samples, following[id_]))))
            following[id_] += len(row.samples)
        self._pool.add_drawn(drawn, model=model, parameters=parameters)
        self.stored += len(rows)


class RowWriter(RecordQueue):
    """Converts requests to what a pool stores; `write` sends them to the process that has the pool open."""

    gather_seconds = 0.0

    def __init__(self, task: Task, write: Callable[[RecordedRequest], None]) -> None:
        self._task, self._write = task, write
        super().__init__()

    def _store(self, batch: list[QueuedRequest | RecordedRequest]) -> None:
        for item in batch:
            try:
                self._write(item if isinstance(item, RecordedRequest) else _build_row(item, self._task))
            except Exception as exc:  # noqa: BLE001 - the other process is gone, or a value isn't JSON
                self.drop(1, _describe_error(exc))


def _make_items(
    outcome: RequestOutcome, request: ChatRequest, samples: Sequence[Sample]
) -> Iterator[QueuedRequest]:
    """Yields a request's items for the queue: one item or, with several modes, one per mode with samples.

    Yields nothing if the request had no vote, or if the client disconnected before the end.
    """
    # if the client has disconnected, the last response may be cut off
    is_complete = outcome.status != CLIENT_GONE_STATUS
    if not outcome.responses or outcome.agreement is None or not is_complete:
        return
    if not outcome.modes:
        yield _make_item(outcome, request, samples)
    is_read = len(samples) == len(outcome.responses)
    for use in outcome.modes:
        places = [k for k, name in enumerate(outcome.response_modes) if name == use.name]
        if places:
            part = replace(outcome, responses=tuple(outcome.responses[k] for k in places))
            own = [samples[k] for k in places] if is_read else ()
            yield _make_item(part, request, own)._replace(use=use)


def _make_item(outcome: RequestOutcome, request: ChatRequest, samples: Sequence[Sample]) -> QueuedRequest:
    """Makes an item for the queue, without log-probabilities, which are a hundred times larger than texts."""
    is_read = len(samples) == len(outcome.responses)
    responses = () if is_read else [_keep_calls(response) for response in outcome.responses]
    size = count_characters(request.body.get("messages"))
    size += sum(len(sample.text or "") for sample in samples)
    size += sum(len(response.text) + count_characters(response.message) for response in responses)
    return QueuedRequest(
        replace(outcome, responses=()), request, tuple(samples) if is_read else (), responses, size
    )


def _keep_calls(response: Response) -> Response:
    """Removes what isn't stored from a response: log-probabilities, and the message except its tool calls."""
    calls = {name: response.message[name] for name in _CALL_FIELDS if response.message.get(name)}
    return replace(response, message=calls, logprobs=None)


def _describe_error(error: Exception) -> str:
    """Describes an error for the log; only by its type if the message may contain texts of a client."""
    is_safe = isinstance(error, AdacomputeError) and not isinstance(error, _RECORD_ERRORS)
    return str(error) if is_safe else type(error).__name__
