"""Decision trees as arrays: trained by XGBoost, evaluated with numpy alone.

Serving must not depend on a training library, so rows are scored here: small trees by the leaves that a row
can't reach, others by walking all trees at once, one level per step.
"""

import json
import math
import sys
import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from adacompute.errors import PolicyInvalid, needs_extra
from adacompute.policies.base import Arrays, read_array
from adacompute.policies.votes import Floats

Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Nodes = npt.NDArray[np.int64]

MAX_DEPTH = 64  # levels of a tree
LEAF_UNIT = 2.0**-40  # leaf values are multiples of this, so sums are exact in any order, alone or in a batch
_MAX_LEAVES = 64  # per tree: the bits of a word
_CELLS = 1 << 18  # (row, tree) pairs walked at a time, to fit in the processor's cache
_BATCH_CELLS = 1 << 16  # the same, for finding leaves by tables
_MIN_BATCH = 256  # fewest rows that are scored by tables
_ROWS_PER_NODE = 150  # rows of a tree that take as long to walk as one of its nodes takes to tabulate
_BATCH_TREES = 64  # most trees per table: the size grows with the square

_IMPORT_LOCK = threading.Lock()  # for XGBoost: several threads may fit at the same time
_COMMAND = "adacompute.cli.entry"  # loaded wherever a command or one of its child processes runs

_ARRAY_FIELDS = ("roots", "output", "feature", "threshold", "left", "right", "unknown_left", "value", "base")


class _BatchScorer:
    """Scores many rows by the leaves that they can't reach (QuickScorer; Lucchese et al., 2015).

    The leaves of a tree are the bits of one word, from left to right. For each feature, a table has the
    remaining leaves of every tree, with one row per interval between thresholds and a last one for NaN. A
    row's leaves are the intersection over features; the first one of each tree is its result.
    """

    def __init__(self, trees: "Trees", leaves: Mapping[int, list[int]]) -> None:
        """`leaves` maps the root of some trees to their leaves, from left to right."""
        most = max(map(len, leaves.values()))
        self._word: Any = next(
            word for word in (np.uint16, np.uint32, np.uint64) if most <= _count_bits(word)
        )
        self._features = _tabulate_remaining(trees, leaves, self._word)
        self._all_leaves = np.array([(1 << len(nodes)) - 1 for nodes in leaves.values()], dtype=self._word)
        self._values = np.zeros((len(leaves), most))
        for tree, nodes in enumerate(leaves.values()):
            self._values[tree, : len(nodes)] = trees.value[nodes, 0]
        self._starts = np.arange(len(leaves)) * most

    @classmethod
    def split(cls, trees: "Trees") -> "list[_BatchScorer]":
        """Scorers for some trees each; empty if a tree has too many leaves."""
        children = list(zip(trees.left.tolist(), trees.right.tolist(), strict=True))
        leaves = [(root, _list_leaves(children, root)) for root in trees.roots.tolist()]
        if not all(nodes for _, nodes in leaves) or len(dict(leaves)) < len(leaves):
            return []
        parts = range(0, len(leaves), _BATCH_TREES)
        return [cls(trees, dict(leaves[start : start + _BATCH_TREES])) for start in parts]

    def find_values(self, rows: npt.NDArray[np.float32]) -> Floats:
        """The value of each row's leaf in each tree, (rows, trees)."""
        leaves = np.empty((len(rows), len(self._starts)), dtype=self._word)
        leaves[:] = self._all_leaves
        remaining = np.empty_like(leaves)
        for feature, thresholds, table in self._features:
            column = rows[:, feature]
            interval = np.searchsorted(thresholds, column, side="right")
            interval[np.isnan(column)] = len(thresholds) + 1
            np.take(table, interval, axis=0, out=remaining, mode="clip")
            leaves &= remaining
        # the number of zeros below the lowest bit is the leaf's number from the left
        first = np.bitwise_count(np.bitwise_and(~leaves, leaves - self._word(1)))
        return np.asarray(self._values.reshape(-1).take(first + self._starts))


def _count_bits(word: Any) -> int:  # noqa: ANN401 - a type of unsigned integers
    return int(np.iinfo(word).bits)


def _list_leaves(children: Sequence[tuple[int, int]], root: int) -> list[int]:
    """The leaves below a root from left to right; empty if there are too many for a word."""
    leaves, pending = [], [root]
    while pending:
        node = pending.pop()
        left, right = children[node]
        if left == node:
            leaves.append(node)
        else:
            pending += [right, left]
        if len(leaves) + len(pending) > _MAX_LEAVES:  # limited, because invalid nodes may have two parents
            return []
    return leaves


def _tabulate_remaining(
    trees: "Trees",
    leaves: Mapping[int, list[int]],
    word: Any,  # noqa: ANN401 - a type of unsigned integers
) -> list[tuple[int, npt.NDArray[np.float32], npt.NDArray[Any]]]:
    """For each feature, its thresholds and its table, (thresholds + 2, trees)."""
    nodes = (trees.feature, trees.threshold, trees.left, trees.right, trees.unknown_left)
    columns = list(zip(*(column.tolist() for column in nodes), strict=True))
    # threshold, tree, leaves, whether NaN goes left
    removed: dict[int, list[tuple[float, int, int, bool]]] = {}

    def add(node: int, tree: int, number: int) -> int:
        """Lists the leaves removed by the nodes below, and counts them; `number` is the first leaf's."""
        feature, threshold, left, right, unknown_left = columns[node]
        if left == node:
            return 1
        lower = add(left, tree, number)
        bits = ((1 << lower) - 1) << number
        removed.setdefault(feature, []).append((threshold, tree, bits, unknown_left))
        return lower + add(right, tree, number + lower)

    for tree, root in enumerate(leaves):
        add(root, tree, 0)
    everything = [(1 << len(nodes)) - 1 for nodes in leaves.values()]
    tables = []
    for feature, entries in removed.items():
        thresholds = np.unique(np.array([entry[0] for entry in entries], dtype=np.float32))
        table = np.empty((len(thresholds) + 2, len(leaves)), dtype=word)
        table[:] = np.array(everything, dtype=word)
        places = np.searchsorted(thresholds, np.array([entry[0] for entry in entries], dtype=np.float32))
        for place, (_, tree, bits, unknown_left) in zip(places.tolist(), entries, strict=True):
            kept = word(everything[tree] & ~bits)
            table[place + 1, tree] &= kept
            if not unknown_left:
                table[-1, tree] &= kept
        np.bitwise_and.accumulate(table[:-1], axis=0, out=table[:-1])
        tables.append((feature, thresholds, table))
    return tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TreeLayout:
    """Trees laid out for walking, with index arrays in numpy's native index type."""

    roots: npt.NDArray[np.intp]  # (trees,)
    feature: npt.NDArray[np.intp]  # (nodes,)
    children: npt.NDArray[np.intp]  # (2 * nodes,) right, left, right, left, ...
    output_matrix: Floats  # (trees, outputs) 1 if a tree adds to an output

    @classmethod
    def of(cls, trees: "Trees") -> "_TreeLayout":
        return cls(
            roots=trees.roots.astype(np.intp),
            feature=trees.feature.astype(np.intp),
            children=np.stack([trees.right, trees.left], axis=1).reshape(-1).astype(np.intp),
            output_matrix=(trees.output[:, None] == np.arange(len(trees.base))).astype(np.float64),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trees:
    """Sums the leaves of all trees. A node's children come after it; a leaf is its own child."""

    roots: Int32s  # (trees,) nodes
    output: Int32s  # (trees,) output that a tree adds to
    feature: Int32s  # (nodes,) column of a row
    threshold: npt.NDArray[np.float32]  # (nodes,) smaller values go left
    left: Int32s  # (nodes,)
    right: Int32s  # (nodes,)
    unknown_left: Bools  # (nodes,) whether NaN goes left
    value: Floats  # (nodes, 1)
    base: Floats  # (outputs,) added to every row
    depth: int  # levels of the deepest tree
    _layout: _TreeLayout = field(init=False, repr=False)
    _roots: list[Any] = field(init=False, repr=False, default_factory=list)
    # ^ the same as nested tuples, for single rows, which arrays would make five times slower
    _batch_scorers: list[list[_BatchScorer]] = field(init=False, repr=False, default_factory=list)
    # ^ one list, built once enough rows were scored without it
    _batch_rows: list[int] = field(init=False, repr=False, default_factory=list)  # rows scored so far

    def __post_init__(self) -> None:
        object.__setattr__(self, "_layout", _TreeLayout.of(self))

    def scores(self, rows: Floats) -> Floats:
        """The sum of the trees, (rows, outputs)."""
        rows32 = np.ascontiguousarray(rows, dtype=np.float32)  # as in training
        scorers = self._get_batch_scorers(rows32)
        trees = max(1, len(self.roots))
        chunk = max(1, _BATCH_CELLS // min(trees, _BATCH_TREES) if scorers else _CELLS // trees)
        parts = [self._score_chunk(rows32[i : i + chunk], scorers) for i in range(0, len(rows32), chunk)]
        return self.base + (parts[0] if len(parts) == 1 else np.concatenate([self.base[None][:0], *parts]))

    def score_row(self, row: Sequence[float]) -> float:
        """The first output for one row, equal to `scores` to the last bit."""
        if len(self.base) > 1 or any(map(math.isnan, row)):
            return float(self.scores(np.array([row], dtype=np.float64))[0, 0])
        if not self._roots:
            self._roots.extend(self._nest())
        values, total = array("f", row).tolist(), 0.0  # 32-bit floats, as in training
        for node in self._roots:
            while type(node) is tuple:
                feature, threshold, left, right = node
                node = left if values[feature] < threshold else right
            total += node
        return float(self.base[0]) + total

    def _nest(self) -> list[Any]:
        """The trees as tuples: the feature, its threshold and the two children; a leaf is its value."""
        columns = (self.feature, self.threshold, self.left, self.right, self.value[:, 0])
        nested: dict[int, Any] = {}
        for node, (feature, threshold, left, right, value) in reversed(
            list(enumerate(zip(*(column.tolist() for column in columns), strict=True)))
        ):  # a node's children come after it
            nested[node] = value if left == node else (feature, threshold, nested[left], nested[right])
        return [nested[root] for root in self.roots.tolist()]

    def _score_chunk(self, rows: npt.NDArray[np.float32], scorers: Sequence[_BatchScorer]) -> Floats:
        if scorers:
            parts = np.split(self._layout.output_matrix, range(_BATCH_TREES, len(self.roots), _BATCH_TREES))
            sums = [scorer.find_values(rows) @ part for scorer, part in zip(scorers, parts, strict=True)]
            return np.asarray(sum(sums[1:], start=sums[0]))
        leaves = self._find_leaves(rows)  # (rows, trees)
        values = self.value[:, 0].take(leaves)
        return np.asarray(values @ self._layout.output_matrix)

    def _get_batch_scorers(self, rows: npt.NDArray[np.float32]) -> list[_BatchScorer]:
        """The scorers for these rows; empty until enough rows were walked to make tables worthwhile."""
        if self._batch_scorers:
            return self._batch_scorers[0] if len(rows) >= _MIN_BATCH else []
        if len(rows) < _MIN_BATCH or not rows.shape[1] or not len(self.roots):
            return []
        self._batch_rows.append(len(rows))
        if sum(self._batch_rows) * len(self.roots) < _ROWS_PER_NODE * len(self.feature):
            return []
        self._batch_scorers.append(_BatchScorer.split(self))
        return self._batch_scorers[0]

    def _find_leaves(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
        """The leaf of each row in each tree, (rows, trees)."""
        layout = self._layout
        node = np.broadcast_to(layout.roots, (len(rows), len(layout.roots)))
        if not len(rows) or not rows.shape[1]:
            return np.asarray(node)
        start = (np.arange(len(rows)) * rows.shape[1])[:, None]
        flat, unknown = rows.reshape(-1), bool(np.isnan(rows).any())
        for _ in range(self.depth):
            column = layout.feature.take(node)
            value = flat.take(column + start if len(rows) > 1 else column)
            goes_left = value < self.threshold.take(node)
            if unknown:
                goes_left |= np.isnan(value) & self.unknown_left.take(node)
            node = layout.children.take(2 * node + goes_left)
        return np.asarray(node)

    def scale(self, factor: float) -> "Trees":
        """The same trees with values multiplied by a factor."""
        return replace(self, value=_round_to_unit(self.value * factor), base=self.base * factor)

    def remap_columns(self, columns: npt.NDArray[np.integer]) -> "Trees":
        """The trees for rows in which column i of the training rows is `columns[i]`."""
        return replace(self, feature=np.asarray(columns)[self.feature].astype(np.int32))

    def arrays(self) -> Arrays:
        return {name: getattr(self, name) for name in _ARRAY_FIELDS}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, outputs: int) -> "Trees":
        """Restores trees from arrays; PolicyInvalid if they are invalid."""
        nodes = len(read_array(arrays, "feature", np.int32, (None,)))
        kinds: Mapping[str, Any] = {
            "threshold": np.float32,
            "unknown_left": np.bool_,
            "value": np.float64,
            "base": np.float64,
        }
        loaded = {}
        for name in _ARRAY_FIELDS:
            sizes = (None,) if name in ("roots", "output") else (outputs,) if name == "base" else (nodes,)
            shape = (nodes, 1) if name == "value" else sizes
            loaded[name] = read_array(arrays, name, kinds.get(name, np.int32), shape)
        if len(loaded["output"]) != len(loaded["roots"]):
            raise PolicyInvalid(f"{len(loaded['roots'])} trees can't have {len(loaded['output'])} outputs")
        for name, limit in (("roots", nodes), ("output", outputs), ("feature", features)):
            if ((loaded[name] < 0) | (loaded[name] >= limit)).any():
                raise PolicyInvalid(f"{name} of trees: a number is not within 0 to {limit - 1}")
        return cls(**loaded, depth=_measure_depth(loaded["roots"], loaded["left"], loaded["right"]))


def _measure_depth(roots: Int32s, left: Int32s, right: Int32s) -> int:
    """The number of levels, after checking that children form no cycle and are in range."""
    nodes = np.arange(len(left))
    leaf = (left == nodes) & (right == nodes)
    inner = (left > nodes) & (right > nodes) & (left < len(nodes)) & (right < len(nodes))
    if not (leaf | inner).all():
        node = int(np.flatnonzero(~(leaf | inner))[0])
        raise PolicyInvalid(f"node {node} of trees has children {left[node]} and {right[node]}: no such tree")
    level, current = 0, roots.astype(np.intp)
    while len(current := current[~leaf[current]]):
        level += 1
        if level > MAX_DEPTH:
            raise PolicyInvalid(f"trees deeper than {MAX_DEPTH} levels were not written by adacompute")
        reached = np.zeros(len(nodes), dtype=bool)  # np.unique would import numpy.ma when the gateway starts
        reached[left[current]] = reached[right[current]] = True
        current = np.flatnonzero(reached)
    return level


def _round_to_unit(values: Floats) -> Floats:
    return np.asarray(np.round(values / LEAF_UNIT) * LEAF_UNIT)


def _breadth_first(roots: Nodes, left: Nodes, right: Nodes, inner: Bools) -> Nodes:
    """The nodes below the roots, level by level, for all trees at once."""
    levels = [roots]
    while len(parents := levels[-1][inner[levels[-1]]]):
        levels.append(np.stack([left[parents], right[parents]], axis=1).reshape(-1))
    return np.concatenate(levels)


def join_trees(parts: Sequence[Trees], outputs: Sequence[int], *, base: Floats) -> Trees:
    """Joins trees with one output each into trees with several: part i adds to `outputs[i]`."""
    starts = np.cumsum([0, *(len(part.feature) for part in parts)])
    shifted = {
        name: [getattr(part, name) + start for part, start in zip(parts, starts, strict=False)]
        for name in ("roots", "left", "right")
    }
    copied = {
        name: [getattr(part, name) for part in parts] for name in _ARRAY_FIELDS[2:8] if name not in shifted
    }
    kinds: dict[str, Any] = {"threshold": np.float32, "unknown_left": np.bool_, "value": np.float64}
    empty: dict[str, npt.NDArray[Any]] = {
        name: np.zeros((0, 1) if name == "value" else 0, kinds.get(name, np.int32)) for name in _ARRAY_FIELDS
    }
    merged: dict[str, Any] = {
        name: np.concatenate([empty[name], *arrays]).astype(empty[name].dtype)
        for name, arrays in {**shifted, **copied}.items()
    }
    shares = np.zeros(len(base))
    np.add.at(shares, list(outputs), [part.base[0] for part in parts])
    output = [np.full(len(part.roots), k, np.int32) for part, k in zip(parts, outputs, strict=True)]
    return Trees(
        **merged,
        output=np.concatenate([empty["output"], *output]),
        base=base + shares,
        depth=max((part.depth for part in parts), default=0),
    )


def import_xgboost() -> Any:  # noqa: ANN401 - the module
    """Imports XGBoost; in our own commands without scikit-learn, which takes 1.6 of its 2 seconds.

    XGBoost only needs it for its scikit-learn estimators, which we don't use. If others use XGBoost in the
    same process, it is imported normally.
    """
    with needs_extra("fit"), _IMPORT_LOCK:
        if _COMMAND not in sys.modules or "sklearn" in sys.modules:
            import xgboost
        else:
            sys.modules["sklearn"] = None  # type: ignore[assignment] # so importing it fails
            try:
                import xgboost
            finally:
                del sys.modules["sklearn"]
    return xgboost


def train_booster(settings: Mapping[str, Any], data: Any, rounds: int) -> Any:  # noqa: ANN401 - of XGBoost
    """Returns the same booster as `xgboost.train`, which recomputes its predictions for `data` on each
    request; this one caches them.
    """
    xgboost = import_xgboost()
    booster = xgboost.Booster(dict(settings), [data])
    for iteration in range(rounds):
        booster.update(data, iteration)
    return booster


def read_booster(raw: bytes | bytearray, *, outputs: int) -> Trees:
    """The trees of an XGBoost model, from `save_raw("json")`."""
    learner = orjson.loads(raw)["learner"]
    model = learner["gradient_booster"]["model"]
    base_score = json.loads(
        learner["learner_model_param"]["base_score"].replace("E", "e")
    )  # 0.5, or one per output
    base = np.broadcast_to(np.asarray(base_score, dtype=np.float64), (outputs,)).copy()
    trees, output = model["trees"], np.array(model["tree_info"], dtype=np.int32)
    sizes = np.array([len(tree["left_children"]) for tree in trees])
    first = np.cumsum(sizes) - sizes
    shift = np.repeat(first, sizes)  # (nodes,) of all trees' numbers

    def join(name: str, dtype: type) -> npt.NDArray[Any]:
        return np.concatenate([np.array(tree[name], dtype=dtype) for tree in trees])

    left, right = join("left_children", np.int64), join("right_children", np.int64)
    inner, conditions = left >= 0, join("split_conditions", np.float32)
    left, right = left + shift, right + shift
    order = _breadth_first(first, left, right, inner)
    order = order[np.argsort(shift[order], kind="stable")]  # children come after their parents
    position = np.zeros(len(inner), dtype=np.int64)
    position[order] = np.arange(len(order))
    inner = inner[order]
    children = {
        name: np.where(inner, position[np.where(inner, child[order], 0)], position[order]).astype(np.int32)
        for name, child in (("left", left), ("right", right))
    }
    roots = position[first].astype(np.int32)
    leaves = np.where(inner, 0.0, conditions[order])[:, None].astype(np.float64)
    return Trees(
        **children,
        feature=np.where(inner, join("split_indices", np.int64)[order], 0).astype(np.int32),
        threshold=np.where(inner, conditions[order], np.float32(0)),
        unknown_left=join("default_left", bool)[order],
        value=_round_to_unit(leaves),
        roots=roots,
        output=output,
        base=base,
        depth=_measure_depth(roots, children["left"], children["right"]),
    )
