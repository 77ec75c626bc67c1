"""What calls gave and cost: stored together, summed, verified; and older pools that know no calls."""

import sqlite3
from pathlib import Path

import pytest

from adacompute.errors import PoolError, RecordInvalid, RecordNotFound
from adacompute.pool import DrawnSamples, Pool, export_file, import_file, open_pool
from adacompute.records import Account, Call, Failure, Problem, Sample, TokenPrices

MODEL, PARAMETERS = "m", {"temperature": 0.7}


@pytest.fixture
def pool(tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite", create=True) as opened:
        opened.add_problems([Problem(id="a", question="1 + 1?", gold="2"), Problem(id="b", question="2?")])
        yield opened


def call(**fields) -> Call:
    return Call(**{"at": 1.5, "seconds": 0.25, "asked": 2, "got": 2, "prompt_tokens": 10} | fields)


def add(pool: Pool, *drawn: DrawnSamples) -> None:
    pool.add_drawn(drawn, model=MODEL, parameters=PARAMETERS)


def test_samples_failures_and_calls_of_many_problems_are_stored_in_one_go(pool: Pool):
    add(
        pool,
        DrawnSamples(
            "a", [(0, Sample(text="The answer is 2.")), (1, Sample(text="The answer is 3."))], (), [call()]
        ),
        DrawnSamples(
            "b", (), [Failure(index=0, kind="timeout")], [call(kind="timeout", paid="maybe", got=0)]
        ),
    )
    a, b = list(pool)
    assert [(s.answer, s.correct) for s in a.samples] == [("2", 1.0), ("3", 0.0)]
    assert [f.kind for f in b.failures] == ["timeout"]
    assert pool.keys(MODEL, PARAMETERS) == {("a", 0), ("a", 1)}
    assert dict(pool.indexes(MODEL, PARAMETERS)) == {"a": {0, 1}}
    assert pool.verify().ok


def test_the_account_is_the_sum_of_the_calls_to_one_source(pool: Pool):
    calls = [
        call(completion_tokens=30),
        call(completion_tokens=5, estimated=True),
        call(kind="timeout", paid="maybe", got=0, completion_tokens=64, estimated=True),
        call(kind="refused", paid="no", got=0, prompt_tokens=None, status=400),
    ]
    add(pool, DrawnSamples("a", [(0, Sample(answer="2"))], (), calls))
    pool.add_drawn([DrawnSamples("a", (), (), [call()])], model="another", parameters=PARAMETERS)
    assert pool.account(MODEL, PARAMETERS) == Account(
        calls=4,
        paid=2,
        maybe=1,
        asked=8,
        got=4,
        prompt_tokens=20,
        completion_tokens=35,
        maybe_prompt_tokens=10,
        maybe_completion_tokens=64,
        estimated=2,
    )
    assert pool.account("another", PARAMETERS).calls == 1
    assert pool.account("unknown").calls == 0
    cost = pool.account(MODEL, PARAMETERS)
    assert cost.cost(TokenPrices(input=1e6, output=2e6)) == 20 + 2 * 35
    assert cost.cost(TokenPrices(input=1e6, output=2e6), at_most=True) == 30 + 2 * 99


def test_one_bad_record_stores_none_of_the_batch_and_is_named(pool: Pool):
    good = DrawnSamples("a", [(0, Sample(text="2"))], (), [call()])
    bad = DrawnSamples("b", [(0, Sample(text="half \ud800"))], (), [call()])
    with pytest.raises(RecordInvalid, match=r"problem 'b'.*surrogate"):
        add(pool, good, bad)
    with pytest.raises(RecordNotFound, match="no problem 'c'"):
        add(pool, good, DrawnSamples("c"))
    assert pool.keys(MODEL, PARAMETERS) == set()
    assert pool.account(MODEL, PARAMETERS).calls == 0
    add(pool, good)  # and the classes of what was rolled back are forgotten
    assert pool.verify().ok


def test_a_changed_call_is_found_by_verify(pool: Pool, tmp_path: Path):
    add(pool, DrawnSamples("a", (), (), [call(completion_tokens=3)]))
    pool.close()
    connection = sqlite3.connect(tmp_path / "p.sqlite")
    connection.execute("UPDATE calls SET completion_tokens = 4")
    connection.commit()
    connection.close()
    with open_pool(tmp_path / "p.sqlite") as again:
        assert again.verify().mismatches == ("call 1",)


def test_problems_are_added_once_and_another_of_the_same_id_is_refused(pool: Pool):
    same = Problem(id="a", question="1 + 1?", gold="2")
    assert pool.add_problems([same, Problem(id="c", question="3?"), same]) == 1
    with pytest.raises(
        RecordInvalid, match=r"problem 'a': question is '1 \+ 2\?', and in the pool '1 \+ 1\?'"
    ):
        pool.add_problems([Problem(id="d", question="4?"), Problem(id="a", question="1 + 2?", gold="2")])
    assert [p.id for p in pool.problems()] == ["a", "b", "c"]


def test_calls_are_no_part_of_what_was_recorded(pool: Pool, tmp_path: Path):
    add(pool, DrawnSamples("a", [(0, Sample(text="2"))], (), [call()]))
    export_file(pool, tmp_path / "p.jsonl")
    import_file(tmp_path / "p.jsonl", tmp_path / "q.sqlite")
    with open_pool(tmp_path / "q.sqlite") as copy:
        assert copy.digest() == pool.digest()
        assert copy.account(MODEL, PARAMETERS).calls == 0


def test_a_pool_of_before_there_were_calls_is_read_as_it_is_and_brought_up_to_date_by_writing(tmp_path: Path):
    path = tmp_path / "old.sqlite"
    with open_pool(path, create=True) as pool:
        pool.add_problem(Problem(id="a", question="?"))
        pool.add_samples("a", [(0, Sample(answer="1"))], model="m")
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE calls")
    connection.execute("DELETE FROM migrations WHERE name = '0002_calls'")
    connection.commit()
    connection.close()
    with open_pool(path) as old:
        assert old.account("m").calls == 0
        assert old.verify().ok
    with open_pool(path, write=True) as new:
        new.add_drawn([DrawnSamples("a", [(1, Sample(answer="1"))], (), [call()])], model="m")
        assert new.account("m").calls == 1


def test_a_pool_open_for_reading_takes_nothing(pool: Pool, tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite") as reader, pytest.raises(PoolError, match="open for reading"):
        reader.add_problems([])
