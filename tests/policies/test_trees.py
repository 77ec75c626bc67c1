"""Trees as arrays say what the libraries that grew them say, and stored ones that can't be are refused."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from adacompute.errors import PolicyInvalid
from adacompute.policies import trees as trees_module
from adacompute.policies.trees import (
    MAX_DEPTH,
    Trees,
    import_xgboost,
    join_trees,
    read_booster,
    train_booster,
)
from tiers import leave_to_nightly

FEATURES = 6
OUT_OF_RANGE = (("roots", -1), ("roots", 10**6), ("feature", FEATURES), ("output", 3))
xgboost = import_xgboost()


def random_rows(rng: np.random.Generator, count: int, unknown: float) -> np.ndarray:
    rows = rng.normal(size=(count, FEATURES)).round(1)  # rounded: many values lie on a threshold
    rows[rng.random(rows.shape) < unknown] = np.nan
    return rows


def boosted(classes: int, *, seed: int, unknown: float = 0.2) -> Any:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 150, unknown)
    labels = rng.integers(classes, size=150)
    labels[:classes] = np.arange(classes)
    settings: dict[str, Any] = {
        "objective": "multi:softprob",
        "num_class": classes,
        "max_depth": 5,
        "nthread": 1,
    }
    return xgboost.train(settings, xgboost.DMatrix(rows, label=labels), num_boost_round=20)


def shares(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.fixture
def trees() -> Trees:
    return read_booster(boosted(3, seed=0).save_raw("json"), outputs=3)


@pytest.mark.parametrize("unknown", [0.0, 0.3])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_boosted_trees_say_what_xgboost_says(seed: int, classes: int, unknown: float):
    booster = boosted(classes, seed=seed, unknown=unknown)
    rows = random_rows(np.random.default_rng(100 + seed), 400, 0.3)  # NaN where none was seen in training too
    theirs = booster.predict(xgboost.DMatrix(rows))
    ours = read_booster(booster.save_raw("json"), outputs=classes).scores(rows)
    assert np.abs(shares(ours) - theirs).max() < 1e-6
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).all()


@pytest.mark.parametrize("seed", range(5))
def test_regressions_are_xgboosts_too(seed: int):
    rng = np.random.default_rng(seed)
    rows, target = random_rows(rng, 120, 0.1), rng.normal(size=120)
    booster = xgboost.train(
        {"max_depth": 3, "nthread": 1}, xgboost.DMatrix(rows, label=target), num_boost_round=15
    )
    ours = read_booster(booster.save_raw("json"), outputs=1).scores(rows)[:, 0]
    assert np.abs(ours - booster.predict(xgboost.DMatrix(rows))).max() < 1e-6


def test_a_row_alone_gets_what_it_gets_among_others(trees: Trees):
    rows = random_rows(np.random.default_rng(1), 300, 0.2)
    alone = np.vstack([trees.scores(row[None]) for row in rows])
    assert (trees.scores(rows) == alone).all()
    assert trees.scores(rows[:0]).shape == (0, 3)


@pytest.mark.parametrize("depth", [1, 5, 6, 9])
def test_one_row_of_one_output_is_scored_without_arrays_to_the_same_bit(depth: int):
    rng = np.random.default_rng(depth)
    rows, target = random_rows(rng, 1500, 0.2), rng.normal(size=1500)
    booster = xgboost.train(
        {"max_depth": depth, "nthread": 1, "base_score": 0.3}, xgboost.DMatrix(rows, label=target), 30
    )
    trees = read_booster(booster.save_raw("json"), outputs=1)
    near = [np.nextafter(trees.threshold[:200, None], np.float32(side)) for side in (-np.inf, np.inf)]
    edges = np.concatenate([trees.threshold[:200, None], *near]).astype(np.float64)  # just beside thresholds
    beside = np.repeat(edges, FEATURES, axis=1)
    rows = np.vstack([random_rows(rng, 2000, 0.2), beside, rng.normal(size=(2000, FEATURES))])
    assert [trees.score_row(row) for row in rows.tolist()] == trees.scores(rows)[:, 0].tolist()


@pytest.mark.parametrize("depth", [1, 4, 5, 6, 7])
@pytest.mark.parametrize("outputs", [1, 5])
def test_many_rows_get_by_tables_what_they_get_by_walking(
    depth: int, outputs: int, monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(depth)
    rows = random_rows(rng, 1500, 0.2)
    settings = {"max_depth": depth, "nthread": 1, "objective": "multi:softprob", "num_class": outputs}
    if outputs == 1:
        settings = {"max_depth": depth, "nthread": 1}
    data = xgboost.DMatrix(rows, label=rng.integers(outputs + 1, size=1500) % max(2, outputs))
    trees = read_booster(xgboost.train(settings, data, 30).save_raw("json"), outputs=outputs)
    edges = np.repeat(trees.threshold[:400, None], FEATURES, axis=1).astype(np.float64)
    rows = np.vstack([random_rows(rng, 6000, 0.2), edges])
    monkeypatch.setattr(trees_module, "_ROWS_PER_NODE", 0)  # else only after more rows than here
    tabled = trees.scores(rows)
    assert bool(trees._batch_scorers[0]) == (depth < 7)  # deeper ones have more than 64 leaves
    assert np.array_equal(pickle.loads(pickle.dumps(trees)).scores(rows), tabled)
    monkeypatch.setattr(trees_module, "_MIN_BATCH", len(rows) + 1)
    assert np.array_equal(tabled, trees.scores(rows))


def test_a_booster_trained_here_is_xgboosts_and_remembers_what_it_predicts():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, FEATURES)).astype(np.float32)
    data = xgboost.QuantileDMatrix(rows, label=rng.normal(size=2000))
    settings = {"max_depth": 4, "subsample": 0.7, "colsample_bynode": 0.7, "seed": 3, "nthread": 1}
    ours, theirs = train_booster(settings, data, 12), xgboost.train(settings, data, 12)
    assert ours.save_raw("json") == theirs.save_raw("json")
    assert np.array_equal(ours.predict(data), theirs.predict(data))


@pytest.mark.slow
@pytest.mark.parametrize("command", leave_to_nightly([True, False]))
def test_only_the_processes_of_a_command_import_xgboost_without_scikit_learn(command: bool):
    code = (
        "import sys\n"
        f"{'import adacompute.cli.entry' if command else ''}\n"
        "from adacompute.policies.trees import import_xgboost\n"
        "xgboost = import_xgboost()\n"
        "loaded = 'sklearn' in sys.modules\n"
        "import sklearn.tree\n"
        f"assert loaded is {not command}\n"
        f"{'' if command else 'xgboost.XGBRegressor(n_estimators=1).fit([[0.0], [1.0]], [0, 1])'}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_node_with_two_parents_is_walked_and_its_leaves_are_never_numbered_without_end():
    levels = 60
    nodes = np.arange(levels + 1, dtype=np.int32)
    following = np.minimum(nodes + 1, levels).astype(np.int32)
    trees = Trees.restore(
        {
            "roots": nodes[:1],
            "output": nodes[:1],
            "feature": np.zeros_like(nodes),
            "threshold": nodes.astype(np.float32),
            "left": following,
            "right": following,
            "unknown_left": nodes > 0,
            "value": np.where(nodes == levels, 2.5, 0.0)[:, None],
            "base": np.ones(1),
        },
        features=1,
        outputs=1,
    )
    assert trees.score_row([3.0]) == 3.5
    assert (trees.scores(np.full((1000, 1), 3.0)) == 3.5).all()


def test_joined_trees_add_up_output_by_output():
    rng = np.random.default_rng(2)
    rows = random_rows(rng, 100, 0.1)
    parts = []
    for seed in range(3):
        data = xgboost.DMatrix(rows[:, :2], label=rng.normal(size=100))
        grown = xgboost.train({"max_depth": 2, "nthread": 1, "seed": seed}, data, num_boost_round=5)
        parts.append(
            read_booster(grown.save_raw("json"), outputs=1).remap_columns(np.array([4, 1])).scale(0.5)
        )
    both = join_trees(parts, [1, 0, 1], base=np.array([10.0, 20.0])).scores(rows)
    each = [part.scores(rows)[:, 0] for part in parts]
    assert np.allclose(both, np.stack([10 + each[1], 20 + each[0] + each[2]], axis=1), atol=1e-9)
    assert np.allclose(each[0], 0.5 * part_of(parts[0]).scores(rows[:, [4, 1]])[:, 0], atol=1e-9)


def part_of(trees: Trees) -> Trees:
    """The trees before they were moved and halved."""
    return trees.scale(2.0).remap_columns(np.array([9, 1, 9, 9, 0]))


def test_without_trees_all_rows_are_alike():
    assert join_trees([], [], base=np.array([0.5, 0.1])).scores(np.zeros((3, 4))).tolist() == [[0.5, 0.1]] * 3


def test_stored_trees_are_the_same_trees(trees: Trees):
    again = Trees.restore(trees.arrays(), features=FEATURES, outputs=3)
    rows = random_rows(np.random.default_rng(3), 200, 0.3)
    assert (again.scores(rows) == trees.scores(rows)).all()
    assert again.depth == trees.depth


def inner(trees: Trees) -> int:
    return int(np.flatnonzero(trees.left != np.arange(len(trees.left)))[1])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *((name, child, "no such tree") for name in ("left", "right") for child in (-1, 0, 10**6)),
        *((name, value, name) for name, value in OUT_OF_RANGE),
        *((name, value, "finite") for name in ("threshold", "value", "base") for value in (np.nan, np.inf)),
    ],
)
def test_one_number_that_no_tree_has_is_refused(trees: Trees, name: str, value: float, said: str):
    array = getattr(trees, name).copy()
    array.reshape(-1)[inner(trees) if said == "no such tree" else 0] = value
    with pytest.raises(PolicyInvalid, match=said):
        Trees.restore({**trees.arrays(), name: array}, features=FEATURES, outputs=3)


@pytest.mark.parametrize(
    "name", ["roots", "output", "feature", "threshold", "left", "right", "unknown_left", "value", "base"]
)
def test_an_array_that_is_missing_of_another_type_or_size_is_refused(trees: Trees, name: str):
    arrays = dict(trees.arrays())
    wrong = [
        {k: v for k, v in arrays.items() if k != name},
        {**arrays, name: arrays[name].astype(np.complex64)},
    ]
    for changed in [*wrong, {**arrays, name: arrays[name][:-1]}, {**arrays, name: arrays[name][None]}]:
        with pytest.raises(PolicyInvalid) as error:
            Trees.restore(changed, features=FEATURES, outputs=3)
        assert "\n" not in str(error.value)


def test_trees_without_end_are_refused():
    nodes = MAX_DEPTH + 3
    own = np.arange(nodes, dtype=np.int32)
    arrays = {
        "roots": own[:1],
        "output": np.zeros(1, np.int32),
        "feature": np.zeros(nodes, np.int32),
        "threshold": np.zeros(nodes, np.float32),
        "left": np.minimum(own + 1, nodes - 1).astype(np.int32),
        "right": np.minimum(own + 1, nodes - 1).astype(np.int32),
        "unknown_left": np.zeros(nodes, bool),
        "value": np.zeros((nodes, 1)),
        "base": np.zeros(1),
    }
    with pytest.raises(PolicyInvalid, match="deeper"):
        Trees.restore(arrays, features=1, outputs=1)


def test_trees_that_have_scored_a_row_can_be_sent_to_another_process():
    rows = random_rows(np.random.default_rng(0), 50, 0.0)
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(rows, label=rows[:, 0]), num_boost_round=3)
    trees, row = read_booster(booster.save_raw("json"), outputs=1), rows[0].tolist()
    score = trees.score_row(row)
    for copied in (pickle.loads(pickle.dumps(trees)), copy.deepcopy(trees)):
        assert copied.score_row(row) == score
