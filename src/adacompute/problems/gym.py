"""Problems that reasoning-gym makes up. Knows nothing of files; loads reasoning-gym when called."""

import difflib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, TypeAlias

from adacompute.errors import ProblemsInvalid
from adacompute.pool.faults import one_line
from adacompute.pool.flaw import shown
from adacompute.problems.rows import Row

__all__ = ["SIZE", "gym_rows"]

Gym: TypeAlias = Any  # reasoning-gym ships no types

SIZE = 100  # problems in all, where no limit is given
_SOLVER = "pycosat"


def gym_rows(names: str, *, size: int, seed: int) -> Iterator[Row]:
    """`size` problems over the named datasets (`chain_sum+leg_counting`), evenly, the first with the rest.

    The seed and the place decide a problem; a larger size has the smaller one's problems of a dataset too.
    """
    gym = _loaded()
    wanted = [name.strip() for name in names.split("+")]
    for name in wanted:
        _check_name(name, gym)
    if size < len(wanted):
        raise ProblemsInvalid(
            f"gym:{names}: {len(wanted)} datasets don't fit into {size} problems; raise the limit"
        )
    for i, name in enumerate(wanted):
        share = size // len(wanted) + (i < size % len(wanted))
        for number, item in enumerate(_items(gym, name, size=share, seed=seed)):
            yield Row(f"{name} problem {number}", _row(name, item, id=f"{name}-{seed}-{number}"))


def _loaded() -> Gym:
    # one puzzle, zebra_puzzles, needs pycosat, which has to be compiled; reasoning-gym can't be imported at
    # all without it, so that an empty module stands in where there is none
    absent = _SOLVER not in sys.modules and not _importable()
    if absent:
        sys.modules[_SOLVER] = ModuleType(_SOLVER)
    try:
        import reasoning_gym  # type: ignore[import-untyped]
    except ImportError as exc:
        raise ProblemsInvalid(
            f"gym: needs reasoning-gym ({one_line(exc)}); install it with adacompute[gym]"
        ) from exc
    finally:
        if absent:
            del sys.modules[_SOLVER]
    return reasoning_gym


def _importable() -> bool:
    from importlib.util import find_spec

    return find_spec(_SOLVER) is not None


def _check_name(name: str, gym: Gym) -> None:
    known = [known for known in gym.factory.DATASETS if known != "composite"]
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"there are {len(known)}, e.g. chain_sum, gcd, maze"
    )
    raise ProblemsInvalid(f"gym: there is no dataset {shown(name)} in reasoning-gym; {hint}")


def _items(gym: Gym, name: str, *, size: int, seed: int) -> Iterator[dict[str, Any]]:
    try:
        yield from gym.create_dataset(name, size=size, seed=seed)
    except Exception as exc:  # each of a hundred makers has its own ways to fail
        solver = f" (it needs {_SOLVER}, which isn't installed)" if _SOLVER in str(exc) else ""
        raise ProblemsInvalid(
            f"gym:{name}: reasoning-gym failed with {type(exc).__name__}: {one_line(exc)}{solver}; "
            "try another dataset, or another seed"
        ) from exc


def _row(name: str, item: dict[str, Any], *, id: str) -> dict[str, Any]:  # noqa: A002 - the record's word
    return {
        "id": id,
        "question": item["question"],
        "gold": item["answer"],
        "subject": name,
        "metadata": item.get("metadata"),  # its scorers want it
    }
