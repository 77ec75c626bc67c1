"""Learns by backward induction what to draw in every state of a request, at every price.

A state is the votes that a request has so far. A cell has all states with the same numbers of draws, such as
2 from the cheap mode and 1 from the expensive one; all cells form the lattice. Trees predict from the votes
how likely the leading answer is right, now and after two more samples of each mode. A critical price is the
highest price at which another sample of a mode pays. By predictions and critical prices, the states of a cell
are divided into a few groups, called leaves. Decisions at a price are made from the last cell back to the
first. Each leaf stops, or draws from the mode whose samples gained most, minus their price, on recorded
samples in random orders (paths). The predictions for a problem, and the decisions measured on it, are learned
from other problems.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers.vote import WEIGHT_UNIT
from adacompute.errors import PolicyInvalid, needs_extra
from adacompute.policies.base import Arrays, read_array
from adacompute.policies.paths import ModePaths
from adacompute.policies.stopping.critical_price import CriticalPriceTrees
from adacompute.policies.trees import Trees, import_xgboost, read_booster, train_booster
from adacompute.policies.votes import Floats, Ints, VotesByMode, take_classes

# the scikit-learn tree of one cell (combination of numbers of draws), and an array over its nodes: each
# leaf's index among the leaves of all cells, 0 for inner nodes
_CellTree = tuple[Any, Ints]
Actions = npt.NDArray[np.int8]  # for each leaf (group of states), the mode to draw from; -1 means stop

STOP = -1
JOINT_FEATURES, FEATURES_PER_MODE = 4, 10
_ODDS_PRIOR = 0.3  # added to the votes for the leader and for the runner-up before dividing one by the other
_TINY = 1e-9
# with 3 to 5 modes, there are at most 3 times as many cells (combinations of numbers of draws)
_MAX_CELLS = 130
_CHEAP_CAP, _DEAR_CAP = 8, 12  # maximum numbers of draws of the cheaper and the more expensive of two modes
_LOOKAHEAD = 2  # trees predict the value of the leading answer after 2 more samples of a mode
_FOLDS = 3  # number of parts of the problems; what is measured on one part is learned from the others
_NO_FOLD = -1
_LEAVES = 10  # maximum number of leaves (groups of states) per cell
_LEAF_PROBLEMS = 16  # minimum size of a leaf: as many states as 16 problems have in a cell
# decisions aren't used if learning them from only some of the problems changes their cost by more than 15%
_MAX_COST_CHANGE = 0.15
_ROWS = 100_000  # maximum number of states used to train trees
_TREES = 50
_SETTINGS: dict[str, Any] = {
    "max_depth": 5,
    "eta": 0.15,
    "tree_method": "hist",
    "max_bin": 64,
    "subsample": 0.7,
    "colsample_bynode": 0.7,
    "nthread": 1,
    "verbosity": 0,
}
# minimum leaf size and L2 penalty of the trees, counted in problems: multiplied by the number of rows of each
_MIN_PROBLEMS, _RIDGE_PROBLEMS = 3.0, 1.0


def choose_caps(recorded: Sequence[int]) -> tuple[int, ...]:
    """Chooses the maximum number of samples of each mode for which decisions are learned."""
    modes = len(recorded)
    if modes == 2:
        return min(_CHEAP_CAP, recorded[0]), min(_DEAR_CAP, recorded[1])
    side = int((3 * _MAX_CELLS) ** (1 / modes)) - 1
    return tuple(min(max(2, side), count) for count in recorded)


def compute_features(votes: VotesByMode, critical: Floats, hints: Floats) -> Floats:
    """Computes the input of the trees from the votes of requests; shape (requests, features).

    The first features describe the vote over all modes, the next each mode's own votes, and the last are
    `hints`, which are numbers predicted from each prompt. `critical` has the logarithm of the highest price
    at which another sample of each mode pays, NaN before its first sample; shape (requests, modes).
    """
    top, runner = votes.find_leaders()
    lead, second = (
        take_classes(votes.joint, top) / WEIGHT_UNIT,
        take_classes(votes.joint, runner) / WEIGHT_UNIT,
    )
    total = np.maximum(votes.joint.sum(axis=1) / WEIGHT_UNIT, _TINY)
    columns = [
        (votes.joint > 0).sum(axis=1),
        lead / total,
        lead - second,
        np.log((lead + _ODDS_PRIOR) / (second + _ODDS_PRIOR)),
    ]
    for mode in range(votes.drawn.shape[1]):
        counts, weights = votes.counts[:, mode], votes.weights[:, mode]
        answered = counts.sum(axis=1)
        of_leader, of_runner = take_classes(counts, top), take_classes(counts, runner)
        largest = np.sort(counts, axis=1)
        weight, leader_weight = weights.sum(axis=1) / WEIGHT_UNIT, take_classes(weights, top) / WEIGHT_UNIT
        columns += [
            votes.drawn[:, mode],
            answered,
            of_leader,
            of_runner,
            largest[:, -1],
            largest[:, -2] if counts.shape[1] > 1 else np.zeros(len(votes)),
            of_leader / np.maximum(answered, 1),
            np.where(answered > 0, np.log(np.maximum(weight, _TINY) / np.maximum(answered, 1)), 0.0),
            np.where(of_leader > 0, np.log(np.maximum(leader_weight, _TINY) / np.maximum(of_leader, 1)), 0.0),
            critical[:, mode],
        ]
    return np.hstack([np.stack(columns, axis=1), hints])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lattice:
    """The votes on recorded paths (random orders of samples), after all combinations of numbers of draws.

    Such a combination, e.g. 2 draws from the cheap mode and 1 from the expensive one, is a cell.
    """

    caps: tuple[int, ...]
    cells: Ints  # number of draws of each mode in each cell; shape (cells, modes)
    features: npt.NDArray[np.float32]  # input of the trees; shape (cells, paths, features)
    # logarithm of the highest price at which another sample of a mode pays, 0 if unknown; shape (cells,
    # paths, modes)
    critical: npt.NDArray[np.float32]
    worth: Floats  # value (correctness or agreement) of the leading answer; shape (cells, paths)
    first: npt.NDArray[np.int16]  # votes for each mode's top answer; shape (cells, paths, modes)
    owner: Ints  # index of each path's problem; shape (paths,)
    problems: int

    @classmethod
    def of(
        cls,
        paths: ModePaths,
        *,
        caps: tuple[int, ...],
        critical: Sequence[Floats],
        hints: Floats,
        by_agreement: bool,
    ) -> "Lattice":
        """Lists the votes on recorded paths (random orders of samples) in all cells.

        `critical` has, for each mode, the logarithm of the highest price at which another sample pays after
        0, 1, … draws; shape (draws + 1, paths). `hints` has numbers predicted from each path's prompt; shape
        (paths, hints). With `by_agreement`, grades are ignored: an answer's value is its agreement with a
        vote of the most expensive mode's samples.
        """
        cells = np.array(list(itertools.product(*(range(cap + 1) for cap in caps))), dtype=np.int64)
        rows = np.arange(len(paths))
        features, worth, first, prices = [], [], [], []
        for cell in cells:
            drawn = np.broadcast_to(cell, (len(rows), len(caps)))
            votes = paths.votes_after(rows, drawn)
            own_prices = np.stack([critical[k][cell[k]] for k in range(len(caps))], axis=1)
            features.append(compute_features(votes, own_prices, hints).astype(np.float32))
            prices.append(np.nan_to_num(own_prices).astype(np.float32))
            leader = votes.find_leaders()[0]
            grade = paths.worth_of(rows, leader)
            agrees = paths.worth_of(rows, leader, by_agreement=True)
            worth.append(agrees if by_agreement else np.where(np.isnan(grade), agrees, grade))
            first.append(votes.counts.max(axis=2).astype(np.int16))
        return cls(
            caps=caps,
            cells=cells,
            features=np.stack(features),
            critical=np.stack(prices),
            worth=np.stack(worth),
            first=np.stack(first),
            owner=paths.problems,
            problems=len(paths.ballots),
        )

    @property
    def strides(self) -> tuple[int, ...]:
        """For each mode, how much a cell's index grows with one more draw of this mode."""
        return _compute_strides(self.caps)

    def moves(self, cell: int) -> Iterator[tuple[int, int]]:
        """Yields each mode that can be drawn in a cell, and the cell that this draw leads to."""
        for mode, stride in enumerate(self.strides):
            if self.cells[cell, mode] < self.caps[mode]:
                yield mode, cell + stride


def average_paths(values: Floats, problems: int) -> Floats:
    """Averages values over the random orders of each problem's samples, which are consecutive."""
    return np.asarray(values.reshape(problems, -1).mean(axis=1))


def _compute_strides(caps: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(cap + 1 for cap in caps[mode + 1 :]) for mode in range(len(caps)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Partition:
    """Small trees that sort requests into leaves: one tree per cell (number of draws of each mode)."""

    roots: npt.NDArray[np.int32]  # for each cell, the root node of its tree
    feature: npt.NDArray[np.int32]  # for each node, the column of the input that it tests
    threshold: Floats  # for each node, the highest value that goes to the left; shape (nodes,)
    left: npt.NDArray[np.int32]  # for each node, its left child; a leaf points to itself
    right: npt.NDArray[np.int32]
    leaf: npt.NDArray[np.int32]  # for each node, the index of its leaf; 0 for inner nodes

    def find(self, cells: Ints, predictions: npt.NDArray[np.float32]) -> Ints:
        """Finds the leaf of each request from its numbers of draws (cell) and its predictions."""
        node = self.roots[cells].astype(np.intp)
        rows = np.arange(len(node))
        while True:
            goes_left = predictions[rows, self.feature[node]] <= self.threshold[node]
            following = np.where(goes_left, self.left[node], self.right[node])
            if (following == node).all():
                return self.leaf[node].astype(np.int64)
            node = following


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatticeModel:
    """Maps each request's state to a group of similar states (leaf), for which one decision is made."""

    caps: tuple[int, ...]
    # predict how likely the leading answer is right, now and after two more samples of each mode
    trees: tuple[Trees, ...]
    partition: _Partition
    leaves: int

    def find_leaves(self, votes: VotesByMode, critical: Floats, hints: Floats) -> Ints:
        """Finds the leaf (group of states) of each request.

        `critical` and `hints` are as in `compute_features`. More draws of a mode than `caps` allows count as
        many as allowed.
        """
        drawn = np.minimum(votes.drawn, self.caps)
        cells = drawn @ np.array(_compute_strides(self.caps))
        features = compute_features(votes, critical, hints)
        scores = np.hstack([trees.scores(features) for trees in self.trees])
        columns = np.hstack([scores, np.nan_to_num(critical)])
        return self.partition.find(cells, columns.astype(np.float32))  # 32 bits, as in training

    def arrays(self, prefix: str) -> Arrays:
        """Returns the learned state as arrays, by name."""
        parts = {f"leaf_{each.name}": getattr(self.partition, each.name) for each in fields(_Partition)}
        for k, trees in enumerate(self.trees):
            parts |= {f"{prefix}{k}_{name}": array for name, array in trees.arrays().items()}
        return parts

    @classmethod
    def restore(cls, arrays: Arrays, prefix: str, *, caps: tuple[int, ...], features: int) -> "LatticeModel":
        """Restores a model from arrays; raises PolicyInvalid if they are invalid."""
        modes = len(caps)
        cells = math.prod(cap + 1 for cap in caps)
        nodes = len(read_array(arrays, "leaf_feature", np.int32, (None,)))
        parts = {
            name: read_array(arrays, f"leaf_{name}", np.int32, (nodes,))
            for name in ("feature", "left", "right", "leaf")
        }
        parts["roots"] = read_array(arrays, "leaf_roots", np.int32, (cells,))
        parts["threshold"] = read_array(arrays, "leaf_threshold", np.float64, (nodes,))
        own = np.arange(nodes)
        is_leaf = (parts["left"] == own) & (parts["right"] == own)
        is_inner = (parts["left"] > own) & (parts["right"] > own)
        valid = (is_leaf | is_inner).all() and nodes > 0
        for name, limit in (("roots", nodes), ("feature", 1 + 2 * modes), ("left", nodes), ("right", nodes)):
            valid = valid and bool(((parts[name] >= 0) & (parts[name] < limit)).all())
        if not valid or (parts["leaf"] < 0).any():
            raise PolicyInvalid("arrays 'leaf_...' are not trees of a lattice; save the policy again")
        return cls(
            caps=caps,
            trees=tuple(
                CriticalPriceTrees.restore(arrays, f"{prefix}{k}_", features=features).trees
                for k in range(1 + modes)
            ),
            partition=_Partition(**parts),
            leaves=int(parts["leaf"].max()) + 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatticePoint:
    """The decisions at one price, with their costs and values on problems not used to learn them."""

    price: float
    actions: Actions
    full_cost: float  # mean cost of these decisions on all problems, from which they were learned
    # for each problem, the mean cost of a request with decisions learned from other problems
    cost: Floats
    worth: Floats  # for each problem, the mean value of the final answer with those decisions

    @property
    def is_stable(self) -> bool:
        """Whether decisions learned from some problems cost about as much as those learned from all."""
        return abs(float(self.cost.mean()) - self.full_cost) <= _MAX_COST_CHANGE * self.full_cost


@dataclass(frozen=True, slots=True, eq=False)
class _CellLeaves:
    """The leaf (group of states) of every state. The leaves of one cell have consecutive indices."""

    starts: list[int]  # for each cell, the index of its first leaf
    ends: list[int]  # for each cell, the index after its last leaf
    within: Ints  # leaf of each state, relative to the first leaf of its cell; shape (cells, paths)

    @classmethod
    def of(cls, leaves: Ints) -> "_CellLeaves":
        starts = leaves.min(axis=1)
        return cls(starts.tolist(), (leaves.max(axis=1) + 1).tolist(), leaves - starts[:, None])


class LatticeSolver:
    """Decides what to draw in each group of states (leaf), at any price.

    `leaf` has the leaf of every state, learned from all problems. `fold_leaves` has, for each fold, the leaf
    of every state, learned from the other folds. On these leaves, decisions are learned from the other folds
    and measured on the fold.
    """

    def __init__(
        self, lattice: Lattice, leaf: Ints, fold_leaves: Sequence[Ints], folds: Ints, costs: Floats
    ) -> None:
        self._lattice = lattice
        self._leaf = _CellLeaves.of(leaf)
        self._fold_leaves = [_CellLeaves.of(leaves) for leaves in fold_leaves]
        self._folds = folds  # for each random order of samples, its cross-fitting fold
        self._costs = costs  # for each mode, the cost of a sample

    def solve(self, price: float) -> LatticePoint:
        """Finds the best decisions at a price, and measures their cost and value by cross-fitting."""
        cost, worth = np.zeros(len(self._folds)), np.zeros(len(self._folds))
        actions, full_cost, _ = self._induce(price, self._leaf, np.ones(len(cost)))
        for fold, leaf in enumerate(self._fold_leaves):
            own = self._folds == fold
            _, fold_cost, fold_worth = self._induce(price, leaf, (~own).astype(np.float64))
            cost[own], worth[own] = fold_cost[own], fold_worth[own]
        return LatticePoint(
            price=price,
            actions=actions,
            full_cost=float(full_cost.mean()),
            cost=average_paths(cost, self._lattice.problems),
            worth=average_paths(worth, self._lattice.problems),
        )

    def _induce(self, price: float, leaves: "_CellLeaves", weights: Floats) -> tuple[Actions, Floats, Floats]:
        """Decides what to draw in each group of states (leaf), beginning with the largest numbers of draws.

        `weights` has the weight of each random order of samples (path) in the decisions. Also returns the
        cost of each path's draws and the value of its final answer.
        """
        lattice = self._lattice
        actions = np.full(max(leaves.ends), STOP, dtype=np.int8)
        worth, cost = lattice.worth.copy(), np.zeros(lattice.worth.shape)
        for cell in range(len(lattice.cells) - 1, -1, -1):
            start, end, leaf = leaves.starts[cell], leaves.ends[cell], leaves.within[cell]
            best = np.full(end - start, -math.inf if cell == 0 else 0.0)
            chosen = np.full(end - start, STOP, dtype=np.int8)
            moves = list(lattice.moves(cell))
            for mode, following in moves:
                gain = worth[following] - price * (cost[following] + self._costs[mode]) - worth[cell]
                total = np.bincount(leaf, weights * gain, minlength=end - start)
                better = total > best
                best[better], chosen[better] = total[better], mode
            actions[start:end] = chosen
            own = chosen[leaf]
            for mode, following in moves:
                rows = own == mode
                np.copyto(worth[cell], worth[following], where=rows)
                np.add(cost[following], self._costs[mode], out=cost[cell], where=rows)
        return actions, cost[0], worth[0]


def fit_lattice(
    lattice: Lattice, costs: Floats, *, groups: Ints, seed: int
) -> tuple[LatticeModel, LatticeSolver]:
    """Fits trees that sort requests into leaves, and a solver that chooses the draw of each leaf at a price.

    `groups` has the index of each problem's group; the problems of a group are held out together.
    """
    rng = np.random.default_rng(seed)
    fold_of_group = rng.permutation(int(groups.max()) + 1) % _FOLDS
    folds = fold_of_group[groups][lattice.owner]  # for each random order of samples, its cross-fitting fold
    targets = _compute_targets(lattice)  # shape (cells, paths, outputs)
    predictions, trees = _fit_trees(lattice, targets, folds, rng=rng, seed=seed)
    _align_folds(predictions, folds)
    columns = np.concatenate([predictions, lattice.critical], axis=2)

    def divide(fold: int) -> tuple[list[_CellTree], Ints]:
        return _divide_cells(columns, targets, folds != fold, problems=lattice.problems, seed=seed)

    with ThreadPoolExecutor() as executor:  # training releases the GIL, so threads run in parallel
        (cell_trees, leaf), *by_fold = executor.map(divide, (_NO_FOLD, *range(_FOLDS)))
    model = LatticeModel(
        caps=lattice.caps,
        trees=trees,
        partition=_join_cell_trees(cell_trees),
        leaves=int(leaf.max()) + 1,
    )
    return model, LatticeSolver(lattice, leaf, [leaves for _, leaves in by_fold], folds, costs)


def _divide_cells(
    columns: Floats, targets: Floats, taught: npt.NDArray[np.bool_], *, problems: int, seed: int
) -> tuple[list[_CellTree], Ints]:
    """Trains a small tree per cell (combination of numbers of draws), which groups its states into leaves.

    Trains only on the random orders of samples (paths) that `taught` marks. Also returns the index of each
    state's leaf; shape (cells, paths).
    """
    with needs_extra("fit"):
        from sklearn.tree import DecisionTreeRegressor

    least = max(1, round(_LEAF_PROBLEMS * len(taught) / problems))
    cell_trees, leaf, count = [], np.empty(columns.shape[:2], dtype=np.int64), 0
    for cell, states in enumerate(columns):
        tree = DecisionTreeRegressor(
            max_leaf_nodes=_LEAVES, min_samples_leaf=min(least, int(taught.sum())), random_state=seed
        )
        tree.fit(states[taught], targets[cell][taught])
        numbers = np.full(tree.tree_.node_count, 0)
        is_leaf = tree.tree_.children_left < 0
        numbers[is_leaf] = count + np.arange(int(is_leaf.sum()))
        leaf[cell] = numbers[tree.apply(states)]
        count += int(is_leaf.sum())
        cell_trees.append((tree.tree_, numbers))
    return cell_trees, leaf


def _compute_targets(lattice: Lattice) -> Floats:
    """Returns the value of the leading answer in each state, and after two more samples of each mode.

    The shape is (cells, paths, 1 + modes).
    """
    targets = [lattice.worth]
    strides = np.array(lattice.strides)
    for mode in range(len(lattice.caps)):
        ahead = np.minimum(_LOOKAHEAD, lattice.caps[mode] - lattice.cells[:, mode])
        targets.append(lattice.worth[np.arange(len(lattice.cells)) + ahead * strides[mode]])
    return np.stack(targets, axis=2)


def _fit_trees(
    lattice: Lattice, targets: Floats, folds: Ints, *, rng: np.random.Generator, seed: int
) -> tuple[Floats, tuple[Trees, ...]]:
    """Returns cross-fitted predictions of `targets`, in the same shape, and trees trained on all problems."""
    xgb = import_xgboost()

    cells, paths, outputs = targets.shape
    rows = lattice.features.reshape(cells * paths, -1)
    fold_of = np.tile(folds, cells)
    kept = rng.random(len(rows)) < _ROWS / len(rows)
    per_problem = kept.sum() / lattice.problems
    settings = {
        **_SETTINGS,
        "seed": seed,
        "min_child_weight": _MIN_PROBLEMS * per_problem,
        "reg_lambda": _RIDGE_PROBLEMS * per_problem,
    }
    predictions = np.empty(targets.shape)

    def fit_fold(fold: int | None) -> list[Trees]:
        """Trains trees on all folds but `fold`, and writes their predictions for `fold` to `predictions`.

        If `fold` is None, returns trees trained on all folds.
        """
        taught = kept if fold is None else kept & (fold_of != fold)
        data = xgb.QuantileDMatrix(rows[taught], max_bin=_SETTINGS["max_bin"])
        judged = None if fold is None else xgb.DMatrix(rows[fold_of == fold])
        learned = []
        for output in range(outputs):
            labels = targets[:, :, output].reshape(-1)
            data.set_label(labels[taught])
            base = float(np.round(labels[taught].mean(), 6))
            booster = train_booster({**settings, "base_score": base}, data, _TREES)
            if judged is None:
                learned.append(read_booster(booster.save_raw("json"), outputs=1))
            else:
                predictions[:, folds == fold, output] = booster.predict(judged).reshape(cells, -1)
        return learned

    with ThreadPoolExecutor() as executor:
        *_, final = executor.map(fit_fold, (*range(_FOLDS), None))
    return predictions, tuple(final)


def _align_folds(predictions: Floats, folds: Ints) -> None:
    """Shifts each fold's predictions in each cell, in place, so that all folds have the same mean.

    Trees trained on the other folds predict too high values for a fold of hard problems. Without the shift,
    the trees that group states could recognise a fold by these values, and learn how hard its problems are.
    """
    mean = predictions.mean(axis=1, keepdims=True)
    for fold in range(_FOLDS):
        own = folds == fold
        if own.any():
            predictions[:, own] += mean - predictions[:, own].mean(axis=1, keepdims=True)


def _join_cell_trees(cell_trees: Sequence[_CellTree]) -> _Partition:
    """Joins the scikit-learn trees of all cells into one set of arrays; children follow their parents."""
    sizes = [tree.node_count for tree, _ in cell_trees]
    starts = np.cumsum([0, *sizes[:-1]])
    parts: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "leaf")
    }
    for start, (tree, numbers) in zip(starts, cell_trees, strict=True):
        own = np.arange(tree.node_count)
        is_leaf = tree.children_left < 0
        parts["feature"].append(np.where(is_leaf, 0, tree.feature))
        parts["threshold"].append(np.where(is_leaf, 0.0, tree.threshold))
        parts["left"].append(start + np.where(is_leaf, own, tree.children_left))
        parts["right"].append(start + np.where(is_leaf, own, tree.children_right))
        parts["leaf"].append(numbers)
    joined = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return _Partition(
        roots=starts.astype(np.int32),
        threshold=joined.pop("threshold").astype(np.float64),
        **{name: array.astype(np.int32) for name, array in joined.items()},
    )
