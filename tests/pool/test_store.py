"""The pool as a store: what is written is there, once, graded and classed; many readers, one writer."""

import gc
import os
import sqlite3
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from pool_lines import line, write

from adacompute.answers import Task
from adacompute.errors import (
    DuplicateRecord,
    NotAPool,
    PoolError,
    PoolLocked,
    RecordInvalid,
    RecordNotFound,
    SourceAmbiguous,
    TaskError,
)
from adacompute.pool import export_file, fingerprint, import_file, open_pool
from adacompute.pool.sqlite import MIGRATIONS, migrate
from adacompute.records import Failure, Problem, Sample

HOT = {"temperature": 0.7}
FINGERPRINT = "824bcd1ddeda0f9a30159d71c2313084"  # of a release: pools out there hold it


@pytest.fixture
def pool(tmp_path: Path):
    with open_pool(tmp_path / "pool.sqlite", create=True) as opened:
        opened.add_problem(
            Problem(id="p1", question="2 + 2?", gold="4", subject="sums", level=1, extra={"page": 3})
        )
        opened.add_problem(Problem(id="p2", question="?"))
        yield opened


def test_what_is_added_is_read_back(pool):
    drawn = [
        Sample(
            text="I say \\boxed{4}", tokens=5, logprob=-1.5, entropy=0.25, finished=True, extra={"seed": 1}
        ),
        Sample(text="hm"),
        Sample(answer="5", correct=0.5),
    ]
    pool.add_samples("p1", list(enumerate(drawn)), model="m", parameters=HOT)
    pool.add_failure(
        "p1", Failure(index=3, kind="timeout", attempt=2, message="slow", at=1.5), model="m", parameters=HOT
    )
    recorded = pool.recorded("p1")
    assert recorded.problem == Problem(
        id="p1", question="2 + 2?", gold="4", subject="sums", level=1, extra={"page": 3}
    )
    first, second, third = recorded.samples
    assert (first.answer, first.correct, first.tokens, first.finished, first.extra) == (
        "4",
        1.0,
        5,
        True,
        {"seed": 1},
    )
    assert second.correct == 0.0
    assert (third.answer, third.correct) == ("5", 0.5)
    assert recorded.failures == (Failure(index=3, kind="timeout", attempt=2, message="slow", at=1.5),)
    assert (recorded.model, recorded.parameters) == ("m", HOT)
    assert pool.models == [("m", HOT)]
    assert pool.keys("m", HOT) == {("p1", 0), ("p1", 1), ("p1", 2)}
    assert pool.keys("m", {}) == set()
    counts = pool.counts()
    assert (counts.problems, counts.samples, counts.failures, counts.sources) == (2, 3, 1, 1)
    assert [r.problem.id for r in pool] == ["p1", "p2"]
    assert pool.recorded("p2").samples == ()
    assert len(pool) == 2
    assert pool.verify().ok


def test_an_abstention_on_purpose_is_not_extracted(pool):
    pool.add_samples(
        "p1", [(0, Sample(text="4", extra={"answer": None})), (1, Sample(text="The answer is 4."))], model="m"
    )
    assert [s.answer for s in pool.recorded("p1").samples] == [None, "4"]


def test_the_same_key_twice_is_refused_and_nothing_of_the_second_call_is_kept(pool):
    pool.add_samples("p1", [(0, Sample(answer="4"))], model="m", parameters=HOT)
    with pytest.raises(DuplicateRecord, match="already exists"):
        pool.add_samples("p1", [(1, Sample(answer="9")), (0, Sample(answer="9"))], model="m", parameters=HOT)
    with pytest.raises(DuplicateRecord, match="'p1'"):
        pool.add_problem(Problem(id="p1", question="other"))
    assert pool.keys("m", HOT) == {("p1", 0)}
    pool.add_samples("p1", [(0, Sample(answer="4"))], model="m", parameters={"temperature": 0.8})
    pool.add_samples("p1", [(0, Sample(answer="4"))], model=None, parameters=HOT)
    with pytest.raises(DuplicateRecord):
        pool.add_samples("p1", [(0, Sample(answer="4"))], model=None, parameters=HOT)
    assert pool.counts().samples == 3
    assert pool.verify().ok


def test_a_call_that_failed_leaves_no_class_behind(pool):
    pool.add_samples("p2", [(0, Sample(answer="7"))])
    with pytest.raises(DuplicateRecord):
        pool.add_samples("p2", [(1, Sample(answer="9")), (0, Sample(answer="8"))])
    pool.add_samples("p2", [(1, Sample(answer="5")), (2, Sample(answer="9"))])
    stored = pool._connection.execute("SELECT idx, class FROM samples ORDER BY idx").fetchall()
    assert stored == [(0, 0), (1, 1), (2, 2)]


def test_a_default_task_serves_new_pools_and_files_and_never_contradicts_a_pool(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [line()])
    boxed, number = Task("boxed"), Task("number")
    import_file(source, tmp_path / "p.sqlite", default_task=boxed)
    open_pool(tmp_path / "q.sqlite", create=True, default_task=boxed).close()
    for name in ("p.sqlite", "q.sqlite"):
        with open_pool(tmp_path / name, default_task=number) as pool:
            assert pool.task == boxed
    import_file(write(tmp_path / "b.jsonl", [line("b")]), tmp_path / "p.sqlite", default_task=number)
    pq_folder = tmp_path / "folder"
    pq_folder.mkdir()
    with open_pool(source, default_task=number) as pool:
        assert pool.task == number
        export_file(pool, pq_folder / "a.parquet")
    with open_pool(pq_folder, task=boxed, default_task=number) as pool:
        assert pool.task == boxed


def test_the_schema_itself_refuses_a_second_row(pool, tmp_path: Path):
    pool.add_samples("p1", [(0, Sample(answer="4"))])
    pool.close()
    connection = sqlite3.connect(tmp_path / "pool.sqlite")
    for statement in (
        "INSERT INTO samples SELECT * FROM samples",
        "INSERT INTO records (problem, source, hash) SELECT problem, source, hash FROM records",
        "INSERT INTO sources SELECT NULL, model, parameters, fingerprint FROM sources",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            connection.execute(statement)
    connection.close()


def test_classes_go_on_where_they_were_and_are_numbered_by_index(pool, tmp_path: Path):
    pool.add_samples("p2", [(5, Sample(answer="7")), (3, Sample(answer="3"))])
    pool.add_samples("p2", [(4, Sample(answer=None)), (0, Sample(answer="7.0"))])
    pool.close()
    with open_pool(tmp_path / "pool.sqlite", write=True) as again:
        again.add_samples("p2", [(1, Sample(answer="1")), (2, Sample(answer="3"))])
        assert [s.answer for s in again.recorded("p2").samples] == ["7.0", "1", "3", "3", None, "7"]
        assert again.recorded("p2").classes == (0, 1, 2, 2, -1, 0)
        assert again.ballots().classes.tolist() == [[0, 1, 2, 2, -1, 0]]
        assert again.verify().ok


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: p.add_samples("none", [(0, Sample())]), RecordNotFound, "has no problem 'none'"),
        (lambda p: p.recorded("none"), RecordNotFound, "has no problem 'none'"),
        (lambda p: p.add_samples("p1", [(-1, Sample())]), RecordInvalid, "index -1"),
        (lambda p: p.add_samples("p1", [(True, Sample())]), RecordInvalid, "index True"),
        (
            lambda p: p.add_samples("p1", [(0, Sample(tokens=-1))]),
            RecordInvalid,
            r"problem 'p1': .*tokens' is -1",
        ),
        (
            lambda p: p.add_samples("p1", [(0, Sample(logprob=float("nan")))]),
            RecordInvalid,
            "logprob' is nan",
        ),
        (lambda p: p.add_samples("p1", [(0, Sample(correct=2.0))]), RecordInvalid, "correct' is 2.0"),
        (lambda p: p.add_samples("p1", [(0, Sample(text="\ud800"))]), RecordInvalid, "surrogate"),
        (
            lambda p: p.add_samples("p1", [(0, Sample(extra={"text": "x"}))]),
            RecordInvalid,
            "a field of its own",
        ),
        (lambda p: p.add_samples("p1", [(0, Sample(extra={"x": object()}))]), RecordInvalid, "as JSON"),
        (lambda p: p.add_samples("p1", [(0, Sample(extra={"index": 3}))]), RecordInvalid, "'index' 3"),
        (lambda p: p.add_samples("p1", [(0, Sample())], parameters={1: 2}), RecordInvalid, "the key 1"),
        (
            lambda p: p.add_samples("p1", [(0, Sample())], parameters={"x": float("inf")}),
            RecordInvalid,
            "as JSON",
        ),
        (lambda p: p.add_samples("p1", [(0, Sample())], model="\ud800"), RecordInvalid, "surrogate"),
        (lambda p: p.add_problem(Problem(id="", question="?")), RecordInvalid, "'id' is ''"),
        (lambda p: p.add_failure("p1", Failure(index=-1, kind="x")), RecordInvalid, "index"),
    ],
)
def test_bad_records_are_refused_and_leave_nothing(pool, call, error, message: str):
    before = pool.digest(), pool.counts()
    with pytest.raises(error, match=message):
        call(pool)
    assert (pool.digest(), pool.counts()) == before


def test_a_pool_of_several_sources_wants_one_named(pool):
    pool.add_samples("p1", [(0, Sample(answer="4"))], model="a", parameters=HOT)
    pool.add_samples("p1", [(0, Sample(answer="5"))], model="a")
    pool.add_samples("p2", [(0, Sample(answer="6"))], model="b")
    for call in (pool.ballots, lambda: pool.ballots("a"), lambda: pool.recorded("p1")):
        with pytest.raises(SourceAmbiguous, match="name one by model= and parameters="):
            call()
    with pytest.raises(RecordNotFound, match=r"has no samples of model 'c'; give --model a --parameters '"):
        pool.ballots("c")
    assert pool.ballots("b").ids == ("p2",)
    assert pool.ballots("a", parameters=HOT).ids == ("p1",)
    assert pool.recorded("p1", "a", parameters={}).samples[0].answer == "5"
    assert [(r.problem.id, r.model) for r in pool] == [("p1", "a"), ("p1", "a"), ("p2", "b")]


def test_fingerprints_are_stable_and_blind_to_order_and_spelling():
    assert fingerprint({"temperature": 0.7, "max_tokens": 24}) == FINGERPRINT
    assert fingerprint({"a": 1, "b": [1.0, {"c": 2}]}) == fingerprint({"b": (1, {"c": 2.0}), "a": 1.0})
    assert (
        len({fingerprint(p) for p in ({}, {"a": 1}, {"a": "1"}, {"a": True}, {"a": 1.5}, {"a": None})}) == 6
    )


def test_ballots_are_ragged_arrays(tmp_path: Path):
    rows = [
        line("p1", ("4", None, "5", "4")),
        line("p2", ("7",), gold=None),
        {"id": "p3", "question": "alone", "samples": []},
        line(
            "p4",
            (),
            samples=[{"answer": "x", "correct": None, "tokens": 3, "logprob": -1.5, "entropy": 0.5}],
            level="hard",
        ),
    ]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        found = pool.ballots()
    assert found.ids == ("p1", "p2", "p4")
    assert found.prompts[0] == "What is p1?"
    assert found.levels == (None, None, "hard")
    assert found.classes.tolist() == [[0, -1, 1, 0], [0, -2, -2, -2], [0, -2, -2, -2]]
    assert found.classes.dtype == np.int32
    assert found.correct.dtype == np.float32
    np.testing.assert_array_equal(found.correct[0], [1, 0, 0, 1])
    assert np.isnan(found.correct[2]).all()
    assert found.gold_known.tolist() == [True, False, True]
    assert found.tokens[2, 0] == 3
    assert found.logprob[2, 0] == -1.5
    assert np.isnan(found.entropy[0]).all()
    assert found.drawn.tolist() == [4, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        found.classes[0, 0] = 9
    with open_pool(tmp_path / "empty.sqlite", create=True) as empty:
        assert empty.ballots().classes.shape == (0, 0)


def test_a_reader_may_not_write(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / "p.sqlite")
    for path in (tmp_path / "p.sqlite", tmp_path / "a.jsonl"):
        with open_pool(path) as pool, pytest.raises(PoolError, match="open for reading"):
            pool.add_problem(Problem(id="x", question="?"))


def test_a_second_writer_is_told_who_writes_and_the_lock_goes_with_the_process(tmp_path: Path):
    path = tmp_path / "p.sqlite"
    script = (
        "import sys, time; from adacompute.pool import open_pool\n"
        "pool = open_pool(sys.argv[1], create=True); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        for call in (
            lambda: open_pool(path, write=True),
            lambda: import_file(write(tmp_path / "a.jsonl", [line()]), path),
        ):
            with pytest.raises(PoolLocked, match=f"process {other.pid} is writing to it"):
                call()
        with open_pool(path) as reader:
            assert len(reader) == 0
        other.kill()
    with open_pool(path, write=True) as pool:
        pool.add_problem(Problem(id="x", question="?"))
        with pytest.raises(PoolLocked, match=f"process {os.getpid()} "):
            open_pool(path, write=True)
    open_pool(path, write=True).close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "p.sqlite"]


def test_readers_see_whole_calls_while_another_process_writes(tmp_path: Path):
    path = tmp_path / "p.sqlite"
    script = (
        "import sys\nfrom adacompute.pool import open_pool\nfrom adacompute.records import Problem, Sample\n"
        "with open_pool(sys.argv[1], create=True) as pool:\n"
        "    for i in range(150):\n"
        "        pool.add_problem(Problem(id=f'p{i}', question='?'))\n"
        "        pool.add_samples(f'p{i}', [(j, Sample(answer=str(j))) for j in range(4)], model='m')\n"
        "        if i == 0: print('go', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "go\n"
        seen = []
        with open_pool(path) as pool:
            while other.poll() is None:
                sizes = [len(recorded.samples) for recorded in pool]
                assert set(sizes) <= {0, 4}
                assert sizes.count(0) <= 1
                seen.append(len(sizes))
                assert pool.ballots().classes.shape[1] == 4
            assert len(pool) == 150
        assert other.returncode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 1


def test_several_threads_may_write_through_one_pool(tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        for i in range(4):
            pool.add_problem(Problem(id=f"p{i}", question="?"))

        def draw(i: int) -> None:
            for j in range(20):
                pool.add_samples(f"p{i}", [(j, Sample(answer=str(j % 3)))], model="m")

        threads = [threading.Thread(target=draw, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(pool.keys("m", {})) == 80
        assert pool.verify().ok


def test_a_pool_is_closed_with_or_without_care(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / "p.sqlite")
    pool = open_pool(tmp_path / "p.sqlite")
    pool.close()
    pool.close()
    for call in (lambda: len(pool), lambda: list(pool), pool.digest, lambda: pool.models):
        with pytest.raises(PoolError, match="the pool is closed"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in (tmp_path / "p.sqlite", tmp_path / "a.jsonl"):
            assert [r.problem.id for r in open_pool(path)] == ["p1"]
        gc.collect()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "p.sqlite"]


def test_migrations_apply_once_and_a_newer_pool_is_refused(tmp_path: Path):
    path = tmp_path / "p.sqlite"
    open_pool(path, create=True).close()
    connection = sqlite3.connect(path, isolation_level=None)
    more = {**MIGRATIONS, "0003_more": "CREATE TABLE more (x);"}
    assert migrate(connection, more) == ["0003_more"]
    assert migrate(connection, more) == []
    connection.close()
    for write_ in (False, True):
        with pytest.raises(NotAPool, match=r"newer version of adacompute \(0003_more\); upgrade"):
            open_pool(path, write=write_)


def test_a_migration_that_fails_leaves_the_pool_as_it_was(tmp_path: Path):
    path = tmp_path / "p.sqlite"
    open_pool(path, create=True).close()
    connection = sqlite3.connect(path, isolation_level=None)

    broken = "CREATE TABLE half (x);\nCREATE TABLE half (x);\n"
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, {**MIGRATIONS, "0003_broken": broken})
    assert migrate(connection) == []
    connection.close()
    with open_pool(path, write=True) as pool:
        assert pool.verify().ok


def test_a_task_with_a_function_reads_files_but_makes_no_pool(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [{"id": "p", "question": "?", "samples": [{"text": "x: 7!"}]}])
    task = Task(lambda text: text[3])
    with open_pool(source, task=task) as pool:
        assert next(iter(pool)).samples[0].answer == "7"
    with pytest.raises(TaskError, match="can't be stored"):
        import_file(source, tmp_path / "p.sqlite", task=task)
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("name", ["a#b?c%20d.sqlite", "über pool", "-dash", "semi;colon'quote\".db"])
def test_any_file_name_will_do(tmp_path: Path, name: str):
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / name)
    with open_pool(tmp_path / name, write=True) as pool:
        pool.add_problem(Problem(id="x", question="?"))
    with open_pool(tmp_path / name) as pool:
        assert len(pool) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["a.jsonl", name])


def test_a_pool_has_one_lock_under_all_its_names(tmp_path: Path):
    path = tmp_path / "p.sqlite"
    (tmp_path / "other.sqlite").symlink_to(path)
    with open_pool(path, create=True), pytest.raises(PoolLocked):
        open_pool(tmp_path / "other.sqlite", write=True)


def test_pools_can_be_merged(tmp_path: Path):
    for name, rows in {"a": [line("p1"), line("p2")], "b": [line("p2", model="n"), line("p3")]}.items():
        import_file(write(tmp_path / f"{name}.jsonl", rows), tmp_path / f"{name}.sqlite")
    done = import_file(tmp_path / "b.sqlite", tmp_path / "a.sqlite")
    assert (done.problems, done.samples) == (1, 6)
    again = import_file(tmp_path / "a.sqlite", tmp_path / "a.sqlite", existing="skip")
    assert (again.problems, again.skipped) == (0, 4)
