"""What takes long to make is made once for all processes of a run, and read by the others.

    @share
    def fitted(labels: bool = True) -> StoppingPolicy: ...

The first call of `fitted` in a run makes it; other processes wait for that, and read the pickle.
"""

import fcntl
import functools
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from adacompute.pool import Ballots
    from adacompute.records import Recorded

__all__ = ["FOLDER", "read_recorded", "read_votes", "share"]

FOLDER = "ADACOMPUTE_TEST_SHARED"  # the variable that names the folder which all processes of a run see
P = ParamSpec("P")
T = TypeVar("T")


def share(make: Callable[P, T]) -> Callable[P, T]:
    """As functools.cache, for all processes of a run: arguments are told apart by their repr."""

    @functools.cache
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        if FOLDER not in os.environ:
            return make(*args, **kwargs)
        code = make.__code__
        name = repr((code.co_filename, code.co_qualname, args, sorted(kwargs.items())))
        place = Path(os.environ[FOLDER]) / hashlib.sha256(name.encode()).hexdigest()
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                place.write_bytes(pickle.dumps(make(*args, **kwargs)))
        return pickle.loads(place.read_bytes())

    return get


@share
def read_votes(name: str) -> "Ballots":
    """The votes of a bundled recording."""
    from adacompute.pool import bundled  # here, for not every process of a run needs it

    with bundled(name) as pool:
        return pool.ballots()


@share
def read_recorded(name: str) -> "list[Recorded]":
    """The problems of a bundled recording, each with its samples."""
    from adacompute.pool import bundled

    with bundled(name) as pool:
        return list(pool)
