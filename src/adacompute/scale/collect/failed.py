"""What went wrong on a worker, as it is told here. Knows nothing of what the worker did."""

from typing import Any, NoReturn

from adacompute.errors import AdacomputeError, EngineUnavailable

__all__ = ["check_alive", "is_lost", "raise_here", "said"]

_LONGEST = 300  # characters of somebody else's message


def is_lost(error: BaseException) -> bool:
    """Whether a worker is gone, and not its work at fault."""
    from ray.exceptions import RayError, RayTaskError

    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


def check_alive() -> None:
    """EngineUnavailable where the cluster has no node any more: who waits for a worker waits in vain."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    if not any(node["Alive"] for node in nodes):
        raise EngineUnavailable(
            "engine ray: the cluster is gone, with all its nodes; what is stored stays, and the same command "
            "goes on"
        )


def said(error: BaseException) -> str:
    """What it is, and the last line of what Ray says, which is where the reason stands."""
    last = (str(error).strip().splitlines() or [""])[-1].strip()
    return f"{type(error).__name__}: {last[:_LONGEST]}"


def raise_here(error: BaseException) -> NoReturn:
    """An error of ours as it was raised there; any other as EngineUnavailable, in one line."""
    from ray.exceptions import RayError, RayTaskError

    cause: BaseException | None = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    if isinstance(cause, AdacomputeError):
        raise cause
    if not isinstance(error, RayError):
        raise error
    first = (str(cause).strip().splitlines() or [""])[0][:_LONGEST]
    raise EngineUnavailable(
        f"engine ray: a worker failed ({type(cause).__name__}: {first}); what is stored stays, and the same "
        "command goes on"
    ) from error
