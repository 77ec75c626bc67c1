"""Trees as arrays, grown elsewhere and evaluated here. Knows nothing of what the numbers mean.

Serving must not pay for a call into a training library: all trees are walked at once, one level a step.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Arrays
from adacompute.policies.stored import stored

__all__ = ["Trees", "joined", "of_booster", "of_forest"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Nodes = npt.NDArray[np.int64]

DEEPEST = 64  # levels of a tree
UNIT = (
    2.0**-40
)  # leaves say whole multiples of it, so that sums are exact in every order: one row as in a batch
_FEW = 128  # trees that one row walks by itself
_CELLS = 1 << 18  # (row, tree) pairs walked at a time: they fit in the processor's cache


class _Plain:
    """The same trees as lists: for one row, calls of numpy take five times as long as all of the steps."""

    def __init__(self, trees: "Trees") -> None:
        self._roots: list[int] = trees.roots.tolist()
        self._depth = trees.depth
        nodes = (trees.feature, trees.threshold, trees.left, trees.right, trees.unknown_left)
        self._nodes: list[tuple[int, float, int, int, bool]] = list(
            zip(*(each.tolist() for each in nodes), strict=True)
        )
        self._value: list[float] = trees.value[:, 0].tolist()

    def score(self, row: list[float]) -> float:
        """What they say to a row of 32-bit numbers: a sum that is exact, so the same in any order."""
        total, nodes, levels = 0.0, self._nodes, range(self._depth)
        for node in self._roots:
            for _ in levels:
                feature, threshold, left, right, unknown_left = nodes[node]
                seen = row[feature]
                node = left if seen < threshold or (unknown_left and seen != seen) else right
            total += self._value[node]
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Walk:
    """The same trees laid out for walking: places as numpy takes them, none converted on the way."""

    roots: npt.NDArray[np.intp]  # (trees,)
    feature: npt.NDArray[np.intp]  # (nodes,)
    children: npt.NDArray[np.intp]  # (2 * nodes,) right, left, right, left, ...
    onto: Floats  # (trees, outputs) 1 where a tree adds to an output
    plain: "_Plain | None"  # for one row at a time; None: they are many, or have several outputs

    @classmethod
    def of(cls, trees: "Trees") -> "_Walk":
        few = len(trees.roots) <= _FEW and trees.value.shape[1] == len(trees.base) == 1
        return cls(
            roots=trees.roots.astype(np.intp),
            feature=trees.feature.astype(np.intp),
            children=np.stack([trees.right, trees.left], axis=1).reshape(-1).astype(np.intp),
            onto=(trees.output[:, None] == np.arange(len(trees.base))).astype(np.float64),
            plain=_Plain(trees) if few else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trees:
    """Adds up what each tree's leaf says. A node's children come after it; a leaf is its own child.

    Either every leaf says one number, for the output of its tree, or one for every output.
    """

    roots: Ints  # (trees,) nodes
    output: Ints  # (trees,) which output a tree adds to; 0 where leaves have a number for each
    feature: Ints  # (nodes,) column of a row
    threshold: npt.NDArray[np.float32]  # (nodes,) a smaller value goes left
    left: Ints  # (nodes,)
    right: Ints  # (nodes,)
    unknown_left: Bools  # (nodes,) where NaN goes
    value: Floats  # (nodes, 1) or (nodes, outputs)
    base: Floats  # (outputs,) added to every row
    depth: int  # levels of the deepest tree
    _walk: _Walk = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_walk", _Walk.of(self))

    def scores(self, rows: Floats) -> Floats:
        """What the trees say, (rows, outputs)."""
        small = np.ascontiguousarray(rows, dtype=np.float32)  # as they were grown
        if self._walk.plain is not None and len(small) == 1 and small.shape[1]:
            return np.asarray(self.base + np.full((1, 1), self._walk.plain.score(small[0].tolist())))
        step = max(1, _CELLS // max(1, len(self.roots)))
        parts = [self._some(small[i : i + step]) for i in range(0, len(small), step)]
        return self.base + (parts[0] if len(parts) == 1 else np.concatenate([self.base[None][:0], *parts]))

    def _some(self, rows: npt.NDArray[np.float32]) -> Floats:
        leaves = self._leaves(rows)  # (rows, trees)
        if self.value.shape[1] == len(self.base) and len(self.base) > 1:
            return np.asarray(self.value[leaves].sum(axis=1))
        said = self.value[:, 0].take(leaves)
        return np.asarray(said @ self._walk.onto)

    def _leaves(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
        """The leaf of each row in each tree, (rows, trees)."""
        walk = self._walk
        node = np.broadcast_to(walk.roots, (len(rows), len(walk.roots)))
        if not len(rows) or not rows.shape[1]:
            return np.asarray(node)
        start = (np.arange(len(rows)) * rows.shape[1])[:, None]
        flat, unknown = rows.reshape(-1), bool(np.isnan(rows).any())
        for _ in range(self.depth):
            column = walk.feature.take(node)
            seen = flat.take(column + start if len(rows) > 1 else column)
            goes = seen < self.threshold.take(node)
            if unknown:
                goes |= np.isnan(seen) & self.unknown_left.take(node)
            node = walk.children.take(2 * node + goes)
        return np.asarray(node)

    def scaled(self, by: float) -> "Trees":
        """What they say, times a number."""
        return replace(self, value=_exact(self.value * by), base=self.base * by)

    def moved(self, columns: npt.NDArray[np.integer]) -> "Trees":
        """For rows in which column i of those they were grown on is `columns[i]`."""
        return replace(self, feature=np.asarray(columns)[self.feature].astype(np.int32))

    def arrays(self) -> Arrays:
        return {name: getattr(self, name) for name in _STORED}

    @classmethod
    def restored(cls, arrays: Arrays, *, features: int, outputs: int) -> "Trees":
        """The trees that gave these arrays; PolicyInvalid where none could have."""
        nodes = len(stored(arrays, "feature", np.int32, (None,)))
        kinds: Mapping[str, Any] = {
            "threshold": np.float32,
            "unknown_left": np.bool_,
            "value": np.float64,
            "base": np.float64,
        }
        found = {}
        for name in _STORED:
            each = (None,) if name in ("roots", "output") else (outputs,) if name == "base" else (nodes,)
            shape = (nodes, None) if name == "value" else each
            found[name] = stored(arrays, name, kinds.get(name, np.int32), shape)
        if found["value"].shape[1] not in (1, outputs) or len(found["output"]) != len(found["roots"]):
            raise PolicyInvalid(f"trees of {outputs} outputs can't have leaves of {found['value'].shape}")
        for name, below in (("roots", nodes), ("output", outputs), ("feature", features)):
            if ((found[name] < 0) | (found[name] >= below)).any():
                raise PolicyInvalid(f"{name} of trees: a number is not within 0 to {below - 1}")
        return cls(**found, depth=_depth(found["roots"], found["left"], found["right"]))


_STORED = ("roots", "output", "feature", "threshold", "left", "right", "unknown_left", "value", "base")


def _depth(roots: Ints, left: Ints, right: Ints) -> int:
    """Levels below the roots, once the children are known to be sound: no cycle, nothing out of range."""
    own = np.arange(len(left))
    leaf = (left == own) & (right == own)
    after = (left > own) & (right > own) & (left < len(own)) & (right < len(own))
    if not (leaf | after).all():
        node = int(np.flatnonzero(~(leaf | after))[0])
        raise PolicyInvalid(f"node {node} of trees has children {left[node]} and {right[node]}: no such tree")
    level, here = 0, np.unique(roots)
    while len(here := here[~leaf[here]]):
        level += 1
        if level > DEEPEST:
            raise PolicyInvalid(f"trees deeper than {DEEPEST} levels are none of ours")
        here = np.unique(np.concatenate([left[here], right[here]]))
    return level


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """One tree as its library numbers its nodes; children of -1 mark a leaf."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float32]
    unknown_left: Bools
    value: Floats  # (nodes, 1) or (nodes, outputs)


def _together(grown: Sequence[_Grown], *, output: Sequence[int], base: Floats) -> Trees:
    """Trees one after the other, nodes renumbered so that children come after their parents."""
    sizes = np.array([len(tree.left) for tree in grown])
    first = np.cumsum(sizes) - sizes
    shift = np.repeat(first, sizes)  # (nodes,) of all trees' numbers
    given = {name: np.concatenate([getattr(tree, name) for tree in grown]) for name in _STORED[2:8]}
    inner = given["left"] >= 0
    left, right = given["left"] + shift, given["right"] + shift
    order = _downwards(first, left, right, inner)
    order = order[np.argsort(shift[order], kind="stable")]
    place = np.zeros(len(inner), dtype=np.int64)
    place[order] = np.arange(len(order))
    inner = inner[order]
    whole = {
        name: np.where(inner, place[np.where(inner, child[order], 0)], place[order]).astype(np.int32)
        for name, child in (("left", left), ("right", right))
    }
    roots = place[first].astype(np.int32)
    return Trees(
        **whole,
        feature=np.where(inner, given["feature"][order], 0).astype(np.int32),
        threshold=given["threshold"][order],
        unknown_left=given["unknown_left"][order],
        value=_exact(given["value"][order]),
        roots=roots,
        output=np.array(output, dtype=np.int32),
        base=base,
        depth=_depth(roots, whole["left"], whole["right"]),
    )


def _exact(values: Floats) -> Floats:
    return np.asarray(np.round(values / UNIT) * UNIT)


def _downwards(roots: Nodes, left: Nodes, right: Nodes, inner: Bools) -> Nodes:
    """The nodes that roots lead to, level by level, of all trees at once, which is quick."""
    levels = [roots]
    while len(parents := levels[-1][inner[levels[-1]]]):
        levels.append(np.stack([left[parents], right[parents]], axis=1).reshape(-1))
    return np.concatenate(levels)


def joined(parts: Sequence[Trees], outputs: Sequence[int], *, base: Floats) -> Trees:
    """Trees of one output each as trees of several: part i adds to `outputs[i]`."""
    at = np.cumsum([0, *(len(part.feature) for part in parts)])
    moved = {
        name: [getattr(part, name) + start for part, start in zip(parts, at, strict=False)]
        for name in ("roots", "left", "right")
    }
    kept = {name: [getattr(part, name) for part in parts] for name in _STORED[2:8] if name not in moved}
    kinds: dict[str, Any] = {"threshold": np.float32, "unknown_left": np.bool_, "value": np.float64}
    empty: dict[str, npt.NDArray[Any]] = {
        name: np.zeros((0, 1) if name == "value" else 0, kinds.get(name, np.int32)) for name in _STORED
    }
    found: dict[str, Any] = {
        name: np.concatenate([empty[name], *arrays]).astype(empty[name].dtype)
        for name, arrays in {**moved, **kept}.items()
    }
    shares = np.zeros(len(base))
    np.add.at(shares, list(outputs), [part.base[0] for part in parts])
    output = [np.full(len(part.roots), k, np.int32) for part, k in zip(parts, outputs, strict=True)]
    return Trees(
        **found,
        output=np.concatenate([empty["output"], *output]),
        base=base + shares,
        depth=max((part.depth for part in parts), default=0),
    )


def of_booster(raw: bytes | bytearray, *, outputs: int) -> Trees:
    """The trees of an XGBoost model, from what `save_raw("json")` gives."""
    learner = json.loads(raw)["learner"]
    model = learner["gradient_booster"]["model"]
    said = json.loads(learner["learner_model_param"]["base_score"].replace("E", "e"))  # 0.5, or one an output
    base = np.broadcast_to(np.asarray(said, dtype=np.float64), (outputs,)).copy()
    grown = []
    for tree in model["trees"]:
        left = np.array(tree["left_children"], dtype=np.int64)
        conditions = np.array(tree["split_conditions"], dtype=np.float32)
        grown.append(
            _Grown(
                left=left,
                right=np.array(tree["right_children"], dtype=np.int64),
                feature=np.array(tree["split_indices"], dtype=np.int64),
                threshold=np.where(left >= 0, conditions, np.float32(0)),
                unknown_left=np.array(tree["default_left"], dtype=bool),
                value=np.where(left >= 0, 0.0, conditions)[:, None].astype(np.float64),
            )
        )
    return _together(grown, output=model["tree_info"], base=base)


def of_forest(trees: Sequence[Any], *, outputs: int) -> Trees:
    """The trees of a scikit-learn forest of classifiers, each saying its share of every class."""
    grown = []
    for tree in trees:
        shares = np.asarray(tree.value, dtype=np.float64)[:, 0, :]
        grown.append(
            _Grown(
                left=np.asarray(tree.children_left, dtype=np.int64),
                right=np.asarray(tree.children_right, dtype=np.int64),
                feature=np.asarray(tree.feature, dtype=np.int64),
                threshold=_strict(np.asarray(tree.threshold, dtype=np.float64)),
                unknown_left=np.zeros(len(shares), dtype=bool),
                value=shares / shares.sum(axis=1, keepdims=True) / len(trees),
            )
        )
    return _together(grown, output=[0] * len(grown), base=np.zeros(outputs))


def _strict(threshold: Floats) -> npt.NDArray[np.float32]:
    """For rows of 32 bits, `x <= threshold` as `x < t`: t is the next number of 32 bits above."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, near, np.nextafter(near, np.float32(np.inf)))
