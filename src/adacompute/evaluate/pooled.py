"""The parts of an evaluation put together again: over folds, or over seeds. Knows nothing of intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.folds import Split
from adacompute.evaluate.foretold import Foretold, together
from adacompute.evaluate.matched import Points
from adacompute.evaluate.measure import Measured

__all__ = ["Pooled", "over_folds", "over_seeds"]

Floats = npt.NDArray[np.float64]
Results = Mapping[tuple[int, str], Measured]

_NAMES = ("cost", "accuracy", "waves", "tokens", "point_cost", "point_accuracy", "point_tokens")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pooled:
    """One policy on all problems."""

    name: str
    cost: Floats = field(repr=False)  # (budgets, problems)
    accuracy: Floats = field(repr=False)
    waves: Floats = field(repr=False)
    tokens: Floats = field(repr=False)
    reached: tuple[bool, ...]  # (budgets,) in every part
    points: Points
    point_tokens: Floats | None = field(default=None, repr=False)  # (settings, problems)
    imitation: Floats | None = None  # (budgets, 4) mean over parts, by how many problems each judged
    cost_std: Floats | None = None  # (budgets,) over seeds
    accuracy_std: Floats | None = None
    foretold: Foretold | None = field(default=None, repr=False)  # out of fold


def over_folds(found: Results, name: str, splits: Sequence[Split]) -> Pooled:
    """Each problem's numbers are of the one fold that it was judged in."""
    parts = [found[number, name] for number in range(len(splits))]
    problems = sum(len(split.test) for split in splits)
    whole = {}
    for field_ in _NAMES:
        first = getattr(parts[0], field_)
        whole[field_] = np.empty((len(first), problems))
        for split, part in zip(splits, parts, strict=True):
            whole[field_][:, split.test] = getattr(part, field_)
    said = [part.foretold for part in parts if part.foretold is not None]
    told = together(said, [split.test for split in splits]) if len(said) == len(parts) else None
    return replace(_pooled(name, parts, whole), foretold=told)


def over_seeds(found: Results, name: str, splits: Sequence[Split]) -> Pooled:
    """Each problem's numbers are means over the seeds; how seeds differ is kept, over all problems."""
    parts = [found[number, name] for number in range(len(splits))]
    whole = {field_: np.mean([getattr(part, field_) for part in parts], axis=0) for field_ in _NAMES}
    spread = [
        np.std(
            [getattr(part, field_).mean(axis=1) for part in parts], axis=0, ddof=1 if len(parts) > 1 else 0
        )
        for field_ in ("cost", "accuracy")
    ]
    return replace(_pooled(name, parts, whole), cost_std=spread[0], accuracy_std=spread[1])


def _pooled(name: str, parts: Sequence[Measured], whole: dict[str, Floats]) -> Pooled:
    known = [(part.imitation, part.cost.shape[1]) for part in parts if part.imitation is not None]
    imitation = None
    if known:
        imitation = np.average([one for one, _ in known], axis=0, weights=[size for _, size in known])
    dialled = zip(*(part.dialled for part in parts), strict=True)
    return Pooled(
        name=name,
        cost=whole["cost"],
        accuracy=whole["accuracy"],
        waves=whole["waves"],
        tokens=whole["tokens"],
        reached=tuple(all(one is None or one.reached for one in each) for each in dialled),
        points=Points(cost=whole["point_cost"], accuracy=whole["point_accuracy"], labels=parts[0].labels),
        point_tokens=whole["point_tokens"],
        imitation=imitation,
    )
