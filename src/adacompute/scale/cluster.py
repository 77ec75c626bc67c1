"""Connects to Ray inside a `with` block, runs functions in Ray tasks, and converts Ray's errors.

The environment variable RAY_ADDRESS names the cluster; without it, one is started on this machine.
"""

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

from adacompute.config import read_ray_address
from adacompute.errors import AdacomputeError, EngineUnavailable, ScaleError

Block = TypeVar("Block")
Result = TypeVar("Result")

_CONNECT_SECONDS = 10.0  # time limit for connecting to Ray
_MAX_MESSAGE = 300  # maximum number of characters shown of a message from Ray
# size in bytes of Ray's shared memory if this module starts Ray; Ray keeps further data on disk
_OBJECT_STORE_BYTES = 512 * 1024 * 1024


@dataclass(slots=True)
class _Connection:
    """This process's connection to Ray, which several `with` blocks can share."""

    blocks: int = 0  # number of `with` blocks that use the connection now
    is_ours: bool = False  # True: this module made the connection; False: the caller had made it before
    printer: Any = None  # Ray's own function for printing, which is restored at the end


_CONNECTION = _Connection()


@contextmanager
def cluster(workers: int | None = None) -> Iterator[int]:
    """Connects to Ray, and yields how many single-processor tasks should run in parallel.

    That is `workers`, or the cluster's number of processors. If this process is already connected to Ray,
    uses that connection and doesn't close it. Otherwise connects to the cluster at RAY_ADDRESS, or starts one
    on this machine; this connection ends with the last `with` block that uses it. Raises EngineUnavailable if
    Ray isn't installed or the cluster can't be reached.
    """
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ScaleError(f"workers {workers!r} can't be used; give a whole number from 1 up")
    address = read_ray_address()
    if find_spec("ray") is None:
        raise EngineUnavailable("engine ray: Ray is not installed; pip install 'adacompute[ray]'")
    import ray

    try:
        _CONNECTION.blocks += 1
        if not ray.is_initialized():
            _CONNECTION.is_ours = True
            _CONNECTION.printer = _replace_printing()
            _connect(address, workers)
        _silence_logging()
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        processors = max(1, int(resources.get("CPU", 1)))
        yield processors if workers is None else workers
    finally:
        _CONNECTION.blocks -= 1
        if _CONNECTION.is_ours and not _CONNECTION.blocks:
            _CONNECTION.is_ours = False
            ray.shutdown()
            _replace_printing(_CONNECTION.printer)


def _connect(address: str | None, workers: int | None) -> None:
    import ray

    local_options: dict[str, Any] = {}
    old_handler = signal.getsignal(signal.SIGTERM)
    if address is not None:
        _probe(address)
    if address is None:
        local_options = {
            "num_cpus": workers,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        ray.init(
            address=address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            **local_options,
        )
        if old_handler is not None and threading.current_thread() is threading.main_thread():
            # Ray's signal handler would exit with a traceback and another exit code
            signal.signal(signal.SIGTERM, old_handler)
    except (ConnectionError, RuntimeError, ValueError, OSError) as exc:
        where = "on this machine" if address is None else f"at RAY_ADDRESS {address!r}"
        raise EngineUnavailable(
            f"engine ray: no cluster {where} ({_find_reason(exc)}); start one, or unset it"
        ) from exc


def _probe(address: str) -> None:
    """Checks that the address is reachable; Ray itself would retry for minutes and then end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # Ray also understands other addresses, such as "auto"
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as exc:
        raise EngineUnavailable(
            f"engine ray: nobody answers at RAY_ADDRESS {address!r} ({exc.strerror or exc}); "
            "start a cluster there, or unset it to have one started here"
        ) from exc


def _find_reason(exc: BaseException) -> str:
    """Returns the last line of Ray's innermost error, which states the reason."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    return (str(exc).strip().splitlines() or [type(exc).__name__])[-1][:300]


def _replace_printing(replacement: Any = None) -> Any:  # noqa: ANN401 - a function of Ray's
    """Replaces Ray's function that prints to stdout, by default to print nothing; returns the old one.

    So Ray doesn't print that a worker died; it has no setting for this.
    """
    from ray._private import worker

    previous = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = replacement or (lambda *_, **__: None)
    return previous


def _silence_logging() -> None:
    """Keeps Ray Data from printing progress to stderr."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)


@dataclass(frozen=True)
class _Outcome:
    """A wrapper for the result of a block: Ray Data would split a bare array or dict into columns."""

    value: Any


def map_blocks(work: Callable[[Block], Result], blocks: Iterable[Block], *, workers: int) -> list[Result]:
    """Computes `[work(block) for block in blocks]` with Ray Data tasks.

    If blocks raise errors of this package, raises the error of the first of these blocks. Ray repeats a task
    whose worker died, but not one that raised such an error, because the worker returns it as a result.
    """
    import ray
    import ray.data

    with _map_lost_workers():
        work_ref, refs = ray.put(work), [ray.put(block) for block in blocks]
        if not refs:
            return []
        places = ray.data.from_items(
            [{"place": place} for place in range(len(refs))], override_num_blocks=len(refs)
        )
        rows = places.map(
            partial(_run_block, work_ref=work_ref, refs=refs),
            compute=ray.data.TaskPoolStrategy(size=min(workers, len(refs))),
        ).take_all()
    results: list[Result] = []
    for row in sorted(rows, key=lambda row: row["place"]):
        result = row["outcome"].value
        if isinstance(result, AdacomputeError):
            raise result
        results.append(result)
    return results


def _run_block(row: dict[str, Any], *, work_ref: Any, refs: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - Ray's
    """Processes one block in a Ray worker."""
    import ray

    try:
        result = ray.get(work_ref)(ray.get(refs[row["place"]]))
    except AdacomputeError as exc:
        result = exc
    return {"place": row["place"], "outcome": _Outcome(result)}


@contextmanager
def _map_lost_workers() -> Iterator[None]:
    """Converts the permanent loss of workers to an error that says what to do."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError:  # a bug in this package, so show the worker's traceback
        raise
    except RayError as exc:
        why = (str(exc).strip().splitlines() or [type(exc).__name__])[0][:_MAX_MESSAGE]
        raise EngineUnavailable(
            f"engine ray: workers were lost for good ({why}); the same command starts again"
        ) from exc


def is_lost(error: BaseException) -> bool:
    """Whether the error means that a worker died; if not, the work itself failed."""
    from ray.exceptions import RayError, RayTaskError

    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


def check_alive() -> None:
    """Raises EngineUnavailable if no machine of the cluster is running any more."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    if not any(node["Alive"] for node in nodes):
        raise EngineUnavailable(
            "engine ray: the cluster is gone, with all its nodes; what is stored stays, and the same command "
            "goes on"
        )


def describe_error(error: BaseException) -> str:
    """Returns an error's type and the last line of Ray's message, which states the reason."""
    last = (str(error).strip().splitlines() or [""])[-1].strip()
    return f"{type(error).__name__}: {last[:_MAX_MESSAGE]}"


def raise_worker_error(error: BaseException) -> NoReturn:
    """Raises a worker's error: an AdacomputeError unchanged, any other as a one-line EngineUnavailable."""
    from ray.exceptions import RayError, RayTaskError

    cause: BaseException | None = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    if isinstance(cause, AdacomputeError):
        raise cause
    if not isinstance(error, RayError):
        raise error
    first = (str(cause).strip().splitlines() or [""])[0][:_MAX_MESSAGE]
    raise EngineUnavailable(
        f"engine ray: a worker failed ({type(cause).__name__}: {first}); what is stored stays, and the same "
        "command goes on"
    ) from error
