"""Decision trees that XGBoost trained, evaluated here without it, because serving must not depend on it.

If the trees are small, `_BatchScorer` scores large batches of rows. Otherwise all trees are walked at the
same time, one node per step.
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

MAX_DEPTH = 64  # maximum number of levels of a tree
LEAF_UNIT = 2.0**-40  # leaf values are multiples of this, so their sums are exact in any order
_MAX_LEAVES = 64  # maximum number of leaves of a tree in `_BatchScorer`; each is one bit of an integer
_CELLS = 1 << 18  # number of (row, tree) pairs walked at a time, so that they fit in the processor's cache
_BATCH_CELLS = 1 << 16  # number of (row, tree) pairs that `_BatchScorer` scores at a time
_MIN_BATCH = 256  # with fewer rows, walking the trees is faster than `_BatchScorer`
_ROWS_PER_NODE = 150  # making a `_BatchScorer` takes as long, per node, as walking one tree for 150 rows
_BATCH_TREES = 64  # maximum number of trees per `_BatchScorer`; its tables grow with the square of this

_IMPORT_LOCK = threading.Lock()  # held while XGBoost is imported, because several threads may need it
_COMMAND = "adacompute.cli.entry"  # module that is loaded only in our own commands and their child processes

_ARRAY_FIELDS = ("roots", "output", "feature", "threshold", "left", "right", "unknown_left", "value", "base")


class _BatchScorer:
    """Scores many rows by the leaves that they can't reach (QuickScorer; Lucchese et al., 2015).

    A set of a tree's leaves is one integer, with a bit for each leaf from left to right. Each feature has a
    table of the leaves that a row can still reach, for each interval between thresholds and for NaN. A row's
    sets are intersected over all features. In each tree, the row reaches the first leaf that remains.
    """

    def __init__(self, trees: "Trees", leaves: Mapping[int, list[int]]) -> None:
        """`leaves` maps the root of each tree to its leaves, from left to right."""
        most = max(map(len, leaves.values()))
        self._word: Any = next(
            word for word in (np.uint16, np.uint32, np.uint64) if most <= np.iinfo(word).bits
        )
        self._features = _tabulate_remaining(trees, leaves, self._word)
        self._all_leaves = np.array([(1 << len(nodes)) - 1 for nodes in leaves.values()], dtype=self._word)
        self._values = np.zeros((len(leaves), most))
        for tree, nodes in enumerate(leaves.values()):
            self._values[tree, : len(nodes)] = trees.value[nodes, 0]
        self._starts = np.arange(len(leaves)) * most

    @classmethod
    def split(cls, trees: "Trees") -> "list[_BatchScorer]":
        """Makes several scorers, each for a part of the trees; returns none if a tree has too many leaves."""
        children = list(zip(trees.left.tolist(), trees.right.tolist(), strict=True))
        leaves = [(root, _list_leaves(children, root)) for root in trees.roots.tolist()]
        if not all(nodes for _, nodes in leaves) or len(dict(leaves)) < len(leaves):
            return []
        parts = range(0, len(leaves), _BATCH_TREES)
        return [cls(trees, dict(leaves[start : start + _BATCH_TREES])) for start in parts]

    def find_values(self, rows: npt.NDArray[np.float32]) -> Floats:
        """Returns the value of the leaf that each row reaches in each tree; shape (rows, trees)."""
        leaves = np.empty((len(rows), len(self._starts)), dtype=self._word)
        leaves[:] = self._all_leaves
        remaining = np.empty_like(leaves)
        for feature, thresholds, table in self._features:
            column = rows[:, feature]
            interval = np.searchsorted(thresholds, column, side="right")
            interval[np.isnan(column)] = len(thresholds) + 1
            np.take(table, interval, axis=0, out=remaining, mode="clip")
            leaves &= remaining
        # number of zeros below the lowest bit that is set: the index of the leftmost remaining leaf
        first = np.bitwise_count(np.bitwise_and(~leaves, leaves - self._word(1)))
        return np.asarray(self._values.reshape(-1).take(first + self._starts))


def _list_leaves(children: Sequence[tuple[int, int]], root: int) -> list[int]:
    """Lists the leaves below a root from left to right; empty if there are more than 64."""
    leaves, pending = [], [root]
    while pending:
        node = pending.pop()
        left, right = children[node]
        if left == node:
            leaves.append(node)
        else:
            pending += [right, left]
        if len(leaves) + len(pending) > _MAX_LEAVES:  # also true if a damaged tree has a cycle
            return []
    return leaves


def _tabulate_remaining(
    trees: "Trees",
    leaves: Mapping[int, list[int]],
    word: Any,  # noqa: ANN401 - a type of unsigned integers
) -> list[tuple[int, npt.NDArray[np.float32], npt.NDArray[Any]]]:
    """Builds each feature's table for `_BatchScorer`; returns (feature, thresholds, table) for each.

    A table has one row per interval between thresholds, then one for NaN; it has one column per tree.
    """
    nodes = (trees.feature, trees.threshold, trees.left, trees.right, trees.unknown_left)
    columns = list(zip(*(column.tolist() for column in nodes), strict=True))
    # feature -> list of (threshold of a node, its tree, bits of its left leaves, whether NaN goes left)
    removed: dict[int, list[tuple[float, int, int, bool]]] = {}

    def add(node: int, tree: int, number: int) -> int:
        """Records in `removed` the leaves on the left of `node`, and of each node below it.

        `number` is the index of the first leaf below `node`. Returns how many leaves are below `node`.
        """
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
    """The arrays of trees, in a form that makes walking them fast."""

    roots: npt.NDArray[np.intp]  # index of each tree's first node
    feature: npt.NDArray[np.intp]  # for each node, the feature that it tests
    children: npt.NDArray[np.intp]  # node 0's right and left child, node 1's right and left child, …
    output_matrix: Floats  # 1 if the tree adds to the output, else 0; shape (trees, outputs)

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
    """A sum of decision trees. A node's children come after it in the arrays; a leaf is its own child."""

    roots: Int32s  # index of each tree's first node; shape (trees,)
    output: Int32s  # index of the output that each tree adds to; shape (trees,)
    feature: Int32s  # column that each node tests; shape (nodes,)
    threshold: npt.NDArray[np.float32]  # smaller values go left; shape (nodes,)
    left: Int32s  # index of the left child; shape (nodes,)
    right: Int32s  # index of the right child; shape (nodes,)
    unknown_left: Bools  # whether NaN goes left; shape (nodes,)
    value: Floats  # each node's value, which is used if it is a leaf; shape (nodes, 1)
    base: Floats  # added to every row's outputs; shape (outputs,)
    depth: int  # number of levels of the deepest tree
    _layout: _TreeLayout = field(init=False, repr=False)
    # each tree as nested tuples, built on first use; these score a single row five times as fast as arrays
    _roots: list[Any] = field(init=False, repr=False, default_factory=list)
    # empty, or one list of scorers, which is built after enough rows were scored without them
    _batch_scorers: list[list[_BatchScorer]] = field(init=False, repr=False, default_factory=list)
    _batch_rows: list[int] = field(init=False, repr=False, default_factory=list)  # rows in each batch

    def __post_init__(self) -> None:
        object.__setattr__(self, "_layout", _TreeLayout.of(self))

    def scores(self, rows: Floats) -> Floats:
        """Sums the values of all trees for each row; shape (rows, outputs)."""
        rows32 = np.ascontiguousarray(rows, dtype=np.float32)  # 32 bits, as in training
        scorers = self._get_batch_scorers(rows32)
        trees = max(1, len(self.roots))
        chunk = max(1, _BATCH_CELLS // min(trees, _BATCH_TREES) if scorers else _CELLS // trees)
        parts = [self._score_chunk(rows32[i : i + chunk], scorers) for i in range(0, len(rows32), chunk)]
        return self.base + (parts[0] if len(parts) == 1 else np.concatenate([self.base[None][:0], *parts]))

    def score_row(self, row: Sequence[float]) -> float:
        """Returns the first output for one row; it is exactly equal to that of `scores`."""
        if len(self.base) > 1 or any(map(math.isnan, row)):
            return float(self.scores(np.array([row], dtype=np.float64))[0, 0])
        if not self._roots:
            self._roots.extend(self._nest())
        values, total = array("f", row).tolist(), 0.0  # 32 bits, as in training
        for node in self._roots:
            while type(node) is tuple:
                feature, threshold, left, right = node
                node = left if values[feature] < threshold else right
            total += node
        return float(self.base[0]) + total

    def _nest(self) -> list[Any]:
        """Converts trees to nested tuples (feature, threshold, left child, right child).

        A leaf is represented by its value.
        """
        columns = (self.feature, self.threshold, self.left, self.right, self.value[:, 0])
        nested: dict[int, Any] = {}
        for node, (feature, threshold, left, right, value) in reversed(
            list(enumerate(zip(*(column.tolist() for column in columns), strict=True)))
        ):  # backwards, because children come after their parents
            nested[node] = value if left == node else (feature, threshold, nested[left], nested[right])
        return [nested[root] for root in self.roots.tolist()]

    def _score_chunk(self, rows: npt.NDArray[np.float32], scorers: Sequence[_BatchScorer]) -> Floats:
        if scorers:
            parts = np.split(self._layout.output_matrix, range(_BATCH_TREES, len(self.roots), _BATCH_TREES))
            sums = [scorer.find_values(rows) @ part for scorer, part in zip(scorers, parts, strict=True)]
            return np.asarray(sum(sums[1:], start=sums[0]))
        leaves = self._find_leaves(rows)  # shape (rows, trees)
        values = self.value[:, 0].take(leaves)
        return np.asarray(values @ self._layout.output_matrix)

    def _get_batch_scorers(self, rows: npt.NDArray[np.float32]) -> list[_BatchScorer]:
        """Returns scorers that use tables; none if the batch is small or a tree has too many leaves.

        Builds the tables as soon as large batches have had enough rows to make building worthwhile.
        """
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
        """Walks all trees to find each row's leaf; shape (rows, trees)."""
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
        """Returns trees whose values are multiplied by a factor."""
        return replace(self, value=_round_to_unit(self.value * factor), base=self.base * factor)

    def remap_columns(self, columns: npt.NDArray[np.integer]) -> "Trees":
        """Returns trees that test column `columns[i]` instead of column i."""
        return replace(self, feature=np.asarray(columns)[self.feature].astype(np.int32))

    def arrays(self) -> Arrays:
        return {name: getattr(self, name) for name in _ARRAY_FIELDS}

    @classmethod
    def restore(cls, arrays: Arrays, *, features: int, outputs: int) -> "Trees":
        """Restores trees from arrays; raises PolicyInvalid if they aren't valid trees."""
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
    """Counts the levels of the deepest tree. Raises PolicyInvalid if the nodes don't form trees."""
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
        reached = np.zeros(len(nodes), dtype=bool)  # not np.unique, because that imports a slow module
        reached[left[current]] = reached[right[current]] = True
        current = np.flatnonzero(reached)
    return level


def _round_to_unit(values: Floats) -> Floats:
    return np.asarray(np.round(values / LEAF_UNIT) * LEAF_UNIT)


def _breadth_first(roots: Nodes, left: Nodes, right: Nodes, inner: Bools) -> Nodes:
    """Lists the nodes of all trees, level by level from the roots."""
    levels = [roots]
    while len(parents := levels[-1][inner[levels[-1]]]):
        levels.append(np.stack([left[parents], right[parents]], axis=1).reshape(-1))
    return np.concatenate(levels)


def join_trees(parts: Sequence[Trees], outputs: Sequence[int], *, base: Floats) -> Trees:
    """Joins trees with one output each into trees with several outputs: part i adds to `outputs[i]`."""
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
    """Imports XGBoost; in our own commands without scikit-learn, which takes 1.6 of the import's 2 seconds.

    XGBoost needs scikit-learn only for its estimators. Our commands don't use these; other programs may.
    """
    with needs_extra("fit"), _IMPORT_LOCK:
        if _COMMAND not in sys.modules or "sklearn" in sys.modules:
            import xgboost
        else:
            sys.modules["sklearn"] = None  # type: ignore[assignment] # makes its import fail
            try:
                import xgboost
            finally:
                del sys.modules["sklearn"]
    return xgboost


def train_booster(settings: Mapping[str, Any], data: Any, rounds: int) -> Any:  # noqa: ANN401 - a Booster
    """Trains like `xgboost.train`, but faster, because the booster keeps its predictions for `data`."""
    xgboost = import_xgboost()
    booster = xgboost.Booster(dict(settings), [data])
    for iteration in range(rounds):
        booster.update(data, iteration)
    return booster


def read_booster(raw: bytes | bytearray, *, outputs: int) -> Trees:
    """Reads the trees of an XGBoost model from the JSON that `save_raw` returns."""
    learner = orjson.loads(raw)["learner"]
    model = learner["gradient_booster"]["model"]
    # `base_score` is one number, or a list with one number per output
    base_score = json.loads(learner["learner_model_param"]["base_score"].replace("E", "e"))
    base = np.broadcast_to(np.asarray(base_score, dtype=np.float64), (outputs,)).copy()
    trees, output = model["trees"], np.array(model["tree_info"], dtype=np.int32)
    sizes = np.array([len(tree["left_children"]) for tree in trees])
    first = np.cumsum(sizes) - sizes
    shift = np.repeat(first, sizes)  # for each node, the index of its tree's first node

    def join(name: str, dtype: type) -> npt.NDArray[Any]:
        return np.concatenate([np.array(tree[name], dtype=dtype) for tree in trees])

    left, right = join("left_children", np.int64), join("right_children", np.int64)
    inner, conditions = left >= 0, join("split_conditions", np.float32)
    left, right = left + shift, right + shift
    order = _breadth_first(first, left, right, inner)
    order = order[np.argsort(shift[order], kind="stable")]  # sorted by tree, children after their parents
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
