"""What went wrong on a worker, as it is told here. Knows nothing of what the worker did."""

from typing import NoReturn

from adacompute.errors import AdacomputeError, EngineUnavailable

__all__ = ["is_lost", "raise_here"]

_LONGEST = 300  # characters of somebody else's message


def is_lost(error: BaseException) -> bool:
    """Whether a worker is gone, and not its work at fault."""
    from ray.exceptions import RayError, RayTaskError

    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


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
    said = (str(cause).strip().splitlines() or [""])[0][:_LONGEST]
    raise EngineUnavailable(
        f"engine ray: a worker failed ({type(cause).__name__}: {said}); what is stored stays, and the same "
        "command goes on"
    ) from error
