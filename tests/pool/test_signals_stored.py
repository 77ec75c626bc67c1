"""Signals of samples in pools: every format keeps them, and other people's `signals` stay what they are."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_lines import write

from adacompute.errors import RecordInvalid
from adacompute.pool import export_file, import_file, open_pool
from adacompute.records import SIGNAL_NAMES, Problem, Sample, Signals
from adacompute.score import halves

ALL = Signals(
    tail=-0.125,
    window=-0.5,
    answer_sum=-0.123457,
    answer_least=-0.1,
    answer_entropy=0.693147,
    confidence=12.5,
    confidence_tail=11.0,
    confidence_window=9.75,
    score=2.0,
)
SOME = Signals(tail=-1.0, window=-1.0)


def make_pool(path: Path) -> Path:
    samples = [
        Sample(text="It is 42.", tokens=5, logprob=-0.5, signals=ALL),
        Sample(text="It is 41.", signals=SOME, extra={"seed": 7}),
        Sample(text="It is 40.", signals=Signals()),
    ]
    with open_pool(path, create=True) as pool:
        pool.add_problem(Problem(id="p1", question="6 times 7?", gold="42"))
        pool.add_problem(Problem(id="p2", question="2 + 2?"))
        pool.add_samples("p1", list(enumerate(samples)), model="m")
        pool.add_samples("p2", [(0, Sample(text="4"))], model="m")
    return path


def line_with(signals: Any) -> dict[str, Any]:
    return {"id": "p1", "question": "?", "samples": [{"answer": "1", "signals": signals}]}


def read_signals(path: Path) -> list[tuple[Signals | None, Any]]:
    with open_pool(path) as pool:
        return [(sample.signals, dict(sample.extra)) for recorded in pool for sample in recorded.samples]


def test_signals_survive_every_format_and_sqlite(tmp_path: Path):
    before = make_pool(tmp_path / "pool.sqlite")
    wanted = [(ALL, {}), (SOME, {"seed": 7}), (None, {}), (None, {})]
    with open_pool(before) as pool:
        digest, lines = pool.digest(), list(pool.lines())
    assert lines[0]["samples"][1]["signals"] == {"tail": -1.0, "window": -1.0}
    for suffix in (".jsonl", ".parquet", ".sqlite", ".jsonl.gz"):
        after = tmp_path / f"next{suffix}"
        if suffix == ".sqlite":
            import_file(before, after)
        else:
            with open_pool(before) as pool:
                export_file(pool, after)
        assert read_signals(after) == wanted
        with open_pool(after) as pool:
            assert pool.verify().ok
            assert (pool.digest(), list(pool.lines())) == (digest, lines)
        before = after


def test_samples_that_were_read_can_be_stored_again(tmp_path: Path):
    make_pool(tmp_path / "pool.sqlite")
    with (
        open_pool(tmp_path / "pool.sqlite") as pool,
        open_pool(tmp_path / "copy.sqlite", create=True) as copy,
    ):
        for recorded in pool:
            copy.add_problem(recorded.problem)
            copy.add_samples(recorded.problem.id, list(enumerate(recorded.samples)), model=recorded.model)
        assert copy.digest() == pool.digest()


def test_ballots_hold_signals_by_sample_in_the_order_of_their_names(tmp_path: Path):
    with open_pool(make_pool(tmp_path / "pool.sqlite")) as pool:
        ballots = pool.ballots()
    assert ballots.signals is not None
    assert ballots.signals.shape == (2, 3, len(SIGNAL_NAMES))
    assert ballots.signals[0, 0].tolist() == [getattr(ALL, name) for name in SIGNAL_NAMES]
    assert ballots.signals[0, 1, :2].tolist() == [-1.0, -1.0]
    assert np.isnan(ballots.signals[0, 1, 2:]).all()
    assert np.isnan(ballots.signals[0, 2]).all()
    assert np.isnan(ballots.signals[1]).all()
    assert not ballots.signals.flags.writeable
    assert ballots.only([1, 0]).signals[1, 0, 0] == -0.125


def test_halves_keep_each_samples_own_signals(tmp_path: Path):
    rows = [{"answer": str(n), "tokens": n + 1, "signals": {"tail": -1.0 - n}} for n in range(8)]
    source = write(tmp_path / "pool.jsonl", [{"id": "p1", "question": "?", "gold": "3", "samples": rows}])
    with open_pool(source) as pool:
        parts = halves(pool.ballots(), rng=np.random.default_rng(1))
    for part in parts:
        assert part.signals[:, :, 0].tolist() == (-part.tokens).tolist()


def test_a_pool_without_signals_has_none(tmp_path: Path):
    with open_pool(
        write(tmp_path / "pool.jsonl", [{"id": "p", "question": "?", "samples": [{"answer": "1"}]}])
    ) as pool:
        assert pool.ballots().signals is None


@pytest.mark.parametrize(
    "signals",
    [
        {"other": 1, "tail": -1.0},
        {"tail": "low", "mine": 2},
        [1, 2],
        "strong",
        {},
        None,
        3,
        {"signals": {"tail": 1}},
    ],
)
def test_what_is_not_ours_stays_an_unknown_key(tmp_path: Path, signals: Any):
    source = write(tmp_path / "pool.jsonl", [line_with(signals)])
    import_file(source, tmp_path / "pool.sqlite")
    for path in (source, tmp_path / "pool.sqlite"):
        assert read_signals(path) == [(None, {"signals": signals})]
        with open_pool(path) as pool:
            assert pool.ballots().signals is None


@pytest.mark.parametrize("value", ["low", True, [1], 10**400])
def test_a_signal_that_is_no_number_is_refused_with_its_place(tmp_path: Path, value: Any):
    source = write(tmp_path / "pool.jsonl", [line_with({"tail": -1.0, "window": value})])
    with pytest.raises(
        RecordInvalid, match=r"line 1: 'samples\[0\]\.signals\.window' is .*; give a finite number"
    ):
        open_pool(source)


def test_numbers_that_are_not_finite_can_not_be_stored(tmp_path: Path):
    with open_pool(tmp_path / "pool.sqlite", create=True) as pool:
        pool.add_problem(Problem(id="p1", question="?"))
        with pytest.raises(RecordInvalid, match=r"sample\[0\]\.signals\.tail.*give a finite number"):
            pool.add_samples("p1", [(0, Sample(answer="1", signals=Signals(tail=float("nan"))))])
        with pytest.raises(RecordInvalid, match="extra holds 'signals'"):
            pool.add_samples("p1", [(0, Sample(answer="1", signals=SOME, extra={"signals": 1}))])


def test_an_old_pool_with_odd_signals_still_opens(tmp_path: Path):
    path = make_pool(tmp_path / "pool.sqlite")
    with sqlite3.connect(path) as connection:  # as a version stored it that didn't check them
        connection.execute("""UPDATE samples SET extra = '{"signals":{"tail":"low"}}' WHERE idx = 0""")
    connection.close()
    assert read_signals(path)[0] == (None, {"signals": {"tail": "low"}})
    with open_pool(path) as pool:
        assert np.isnan(pool.ballots().signals[0, 0]).all()


def test_reading_answers_again_forgets_what_their_tokens_told(tmp_path: Path):
    make_pool(tmp_path / "pool.sqlite")
    import_file(tmp_path / "pool.sqlite", tmp_path / "again.sqlite", reread=True)
    first, second, *_ = read_signals(tmp_path / "again.sqlite")
    assert (first[0].tail, first[0].score, first[0].answer_sum, first[0].answer_least) == (
        -0.125,
        2.0,
        None,
        None,
    )
    assert second == (SOME, {"seed": 7})


@pytest.mark.parametrize(
    ("keys", "read"),
    [
        ({"score": 3.5}, 3.5),
        ({"score": 2}, 2.0),
        ({"score": 3.5, "signals": {"score": 1.0}}, 1.0),
        ({"score": True}, None),
        ({"score": "good"}, None),
        ({"score": None}, None),
    ],
)
def test_a_number_as_a_samples_score_is_its_verifiers(
    tmp_path: Path, keys: dict[str, Any], read: float | None
):
    line = {"id": "p1", "question": "?", "samples": [{"answer": "1", **keys}]}
    source = write(tmp_path / "pool.jsonl", [line])
    import_file(source, tmp_path / "pool.sqlite")
    ((signals, extra),) = read_signals(tmp_path / "pool.sqlite")
    assert (None if signals is None else signals.score) == read
    assert extra == ({} if read == keys["score"] and read else {"score": keys["score"]})
    with open_pool(tmp_path / "pool.sqlite") as pool:
        assert pool.verify().ok
