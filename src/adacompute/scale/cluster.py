"""Ray, for as long as a block lasts: found by RAY_ADDRESS, else started here. Knows nothing of any stage."""

import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from adacompute.config import ray_address
from adacompute.errors import EngineUnavailable, ScaleError

__all__ = ["cluster"]

_PATIENCE = 10.0  # seconds for a connection
_ROOM = 512 * 1024 * 1024  # bytes of shared memory, where we start Ray: more is kept on the disk


@contextmanager
def cluster(workers: int | None = None) -> Iterator[int]:
    """Connects to Ray, and gives how many tasks of one processor each are to run at the same time.

    That is `workers`, or as many as the cluster has processors. Where RAY_ADDRESS names a cluster, that is
    used; else one is started on this machine, and ended with the block. One that the caller has connected to
    already is used as it is. EngineUnavailable where there is no Ray, or no such cluster.
    """
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ScaleError(f"workers {workers!r} can't be used; give a whole number from 1 up")
    address = ray_address()
    if find_spec("ray") is None:
        raise EngineUnavailable("engine ray: Ray is not installed; pip install 'adacompute[ray]'")
    import ray

    connected = ray.is_initialized()
    loud = None
    try:
        if not connected:
            loud = _silenced()
            _connect(address, workers)
        _quieten()
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        there = max(1, int(resources.get("CPU", 1)))
        yield there if workers is None else workers
    finally:
        if not connected:
            ray.shutdown()
            _silenced(loud)


def _connect(address: str | None, workers: int | None) -> None:
    import ray

    own: dict[str, Any] = {}
    ended = signal.getsignal(signal.SIGTERM)
    if address is not None:
        _probe(address)
    if address is None:
        own = {"num_cpus": workers, "object_store_memory": _ROOM, "include_dashboard": False}
    try:
        ray.init(
            address=address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            **own,
        )
        if ended is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ended)  # Ray's own would leave with a trace and another code
    except (ConnectionError, RuntimeError, ValueError, OSError) as exc:
        where = "on this machine" if address is None else f"at RAY_ADDRESS {address!r}"
        raise EngineUnavailable(
            f"engine ray: no cluster {where} ({_why(exc)}); start one, or unset it"
        ) from exc


def _probe(address: str) -> None:
    """Whether anybody listens there: Ray itself tries for minutes, and then ends the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # such as "auto": Ray knows what is meant
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as exc:
        raise EngineUnavailable(
            f"engine ray: nobody answers at RAY_ADDRESS {address!r} ({exc.strerror or exc}); "
            "start a cluster there, or unset it to have one started here"
        ) from exc


def _why(exc: BaseException) -> str:
    """The last line of what Ray says at the bottom of it, which is where the reason stands."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    return (str(exc).strip().splitlines() or [type(exc).__name__])[-1][:300]


def _silenced(instead: Any = None) -> Any:  # noqa: ANN401 - a function of Ray's
    """Leaves stdout to us: Ray prints there that a worker died, and has no setting for it."""
    from ray._private import worker

    before = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = instead or (lambda *_, **__: None)
    return before


def _quieten() -> None:
    """Leaves stderr to us: Ray Data tells of every pass otherwise."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)
