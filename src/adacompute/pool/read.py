"""Rows of a pool as records, or as the lines of a pool file. Knows nothing of how they were written."""

import json
import shlex
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from adacompute.errors import RecordNotFound, SourceAmbiguous
from adacompute.pool.content import fingerprint
from adacompute.records import Failure, Problem, Recorded, Sample

__all__ = [
    "Census",
    "Stored",
    "Totals",
    "census",
    "choose_source",
    "find_source",
    "line_of",
    "pick_source",
    "problem_of",
    "recorded_of",
    "sources",
    "stored",
    "totals",
]

Row = tuple[Any, ...]

_PROBLEMS = """
    SELECT p.id, p.question, p.gold, p.subject, p.level, p.extra, r.key, r.source, r.spelling
    FROM problems p LEFT JOIN records r ON r.problem = p.key
"""
_SAMPLES = """
    SELECT idx, text, answer, class, correct, tokens, logprob, entropy, finished, extra
    FROM samples WHERE record = ? ORDER BY idx
"""
_FAILURES = "SELECT idx, kind, attempt, message, at FROM failures WHERE record = ? ORDER BY key"


class Stored(NamedTuple):
    """One problem with what one source gave for it, as the rows have it."""

    problem: Row  # id, question, gold, subject, level, extra
    model: str | None
    parameters: dict[str, Any]
    spelling: str | None
    samples: Sequence[Row]  # idx, text, answer, class, correct, tokens, logprob, entropy, finished, extra
    failures: Sequence[Row]  # idx, kind, attempt, message, at


class Census(NamedTuple):
    """How many problems there are of each kind."""

    gold: int  # with a gold answer
    subjects: dict[str, int]
    levels: dict[str, int]


class Totals(NamedTuple):
    """Over all samples of one source; None: not recorded."""

    answered: float | None  # share with an answer
    finished: float | None  # share, of those where it is known
    tokens: float | None  # mean
    failures: dict[str, int]  # by kind


def sources(connection: sqlite3.Connection) -> dict[int, tuple[str | None, dict[str, Any]]]:
    """Every (model, parameters) of the pool by key, in the order in which they came."""
    rows = connection.execute("SELECT key, model, parameters FROM sources ORDER BY key")
    return {key: (model, json.loads(parameters)) for key, model, parameters in rows}


def find_source(
    connection: sqlite3.Connection, model: str | None, parameters: Mapping[str, Any]
) -> int | None:
    """The key of exactly this source; None where there is none."""
    row = connection.execute(
        "SELECT key FROM sources WHERE model IS ? AND fingerprint = ?", (model, fingerprint(parameters))
    ).fetchone()
    return None if row is None else int(row[0])


def totals(connection: sqlite3.Connection, source: int | None) -> Totals:
    """Shares and means over all samples of one source."""
    answered, finished, tokens = connection.execute(
        "SELECT avg(s.answer IS NOT NULL), avg(s.finished), avg(s.tokens) "
        "FROM records r JOIN samples s ON s.record = r.key WHERE r.source = ?",
        (source,),
    ).fetchone()
    kinds = connection.execute(
        "SELECT f.kind, count(*) FROM records r JOIN failures f ON f.record = r.key "
        "WHERE r.source = ? GROUP BY f.kind ORDER BY f.kind",
        (source,),
    )
    return Totals(answered, finished, tokens, dict(kinds))


def census(connection: sqlite3.Connection) -> Census:
    """Problems with gold, by subject and by level."""
    (gold,) = connection.execute("SELECT count(gold) FROM problems").fetchone()
    subjects = connection.execute(
        "SELECT subject, count(*) FROM problems WHERE subject IS NOT NULL GROUP BY subject"
    )
    levels: Counter[str] = Counter()
    for level, number in connection.execute(
        "SELECT level, count(*) FROM problems WHERE level IS NOT NULL GROUP BY typeof(level), level"
    ):
        levels[str(level)] += number
    return Census(gold, dict(sorted(subjects)), dict(sorted(levels.items())))


def choose_source(
    connection: sqlite3.Connection,
    path: str,
    *,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> int | None:
    """The key of the one source that is meant; None where the pool has none at all."""
    return pick_source(sources(connection), path, model=model, parameters=parameters)


def pick_source(
    known: Mapping[int, tuple[str | None, dict[str, Any]]],
    path: str,
    *,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> int | None:
    """As `choose_source`, among sources by key."""
    mark = None if parameters is None else fingerprint(parameters)
    fitting = [
        key
        for key, (name, values) in known.items()
        if (model is None or name == model) and (mark is None or fingerprint(values) == mark)
    ]
    if len(fitting) == 1 or not known:
        return fitting[0] if fitting else None
    first = sorted(known.values(), key=lambda one: not one[1].get("explored"))  # the ones to learn from
    shown = ", or ".join(_named(name, values) for name, values in first[:8])
    if not fitting:
        asked = f"model {model!r}" + (f" with {dict(parameters)}" if parameters is not None else "")
        raise RecordNotFound(f"{path}: has no samples of {asked}; give {shown}")
    raise SourceAmbiguous(
        f"{path}: holds {len(fitting)} sources that fit; name one by model= and parameters=, "
        f"on the command line {shown}"
    )


def _named(model: str | None, parameters: Mapping[str, Any]) -> str:
    """A source as the options of a command, to be pasted."""
    name = "" if model is None else f"--model {shlex.quote(model)} "
    return f"{name}--parameters {shlex.quote(json.dumps(parameters))}"


def stored(
    connection: sqlite3.Connection, where: str = "", values: Sequence[Any] = (), *, order: str = "p.key"
) -> Iterator[Stored]:
    """Problems with their samples, streaming; the caller holds the pool still."""
    known = {key: row for key, *row in connection.execute("SELECT key, model, parameters FROM sources")}
    failed = connection.execute("SELECT EXISTS (SELECT 1 FROM failures)").fetchone()[0]
    for row in connection.execute(f"{_PROBLEMS} {where} ORDER BY {order}, r.source", values):
        problem, (record, source, spelling) = row[:6], row[6:]
        if record is None:
            yield Stored(problem, None, {}, None, (), ())
            continue
        model, parameters = known[source]
        samples = connection.execute(_SAMPLES, (record,)).fetchall()
        failures = connection.execute(_FAILURES, (record,)).fetchall() if failed else ()
        # parsed for each: nobody who changes a record's parameters changes another's
        yield Stored(problem, model, json.loads(parameters), spelling, samples, failures)


def problem_of(row: Row) -> Problem:
    """A problem's row as a record."""
    id_, question, gold, subject, level, extra = row
    return Problem(
        id=id_,
        question=question,
        gold=gold,
        subject=subject,
        level=level,
        extra=json.loads(extra) if extra else {},
    )


def recorded_of(row: Stored) -> Recorded:
    """The record of what is stored; classes are numbered anew by first appearance in drawing order."""
    numbers: dict[int, int] = {-1: -1}
    classes = tuple([numbers.setdefault(sample[3], len(numbers) - 1) for sample in row.samples])
    return Recorded(
        problem=problem_of(row.problem),
        samples=tuple([_sample(sample) for sample in row.samples]),
        classes=classes,
        model=row.model,
        parameters=row.parameters,
        failures=tuple([_failure(failure) for failure in row.failures]),
    )


def line_of(row: Stored) -> dict[str, Any]:
    """The line of a pool file: known keys in one order, then what else was given."""
    id_, question, gold, subject, level, extra = row.problem
    line: dict[str, Any] = {"id": id_, "question": question}
    for name, value in (("gold", gold), ("subject", subject), ("level", level), ("model", row.model)):
        if value is not None:
            line[name] = value
    if row.parameters:
        line["parameters"] = row.parameters
    for more in (row.spelling, extra):
        if more:
            line |= json.loads(more)
    if row.failures:
        line["failures"] = [
            {
                k: v
                for k, v in zip(("index", "kind", "attempt", "message", "at"), f, strict=True)
                if v is not None
            }
            for f in row.failures
        ]
    line["samples"] = [_sample_line(i, sample) for i, sample in enumerate(row.samples)]
    return line


def _sample_line(i: int, row: Row) -> dict[str, Any]:
    idx, text, answer, _, correct, tokens, logprob, entropy, finished, extra = row
    line: dict[str, Any] = {} if idx == i else {"index": idx}
    if text is not None:
        line["text"] = text
    line["answer"] = answer
    if correct is not None:
        line["correct"] = int(correct) if correct in (0.0, 1.0) else correct
    if tokens is not None:
        line["tokens"] = tokens
    if logprob is not None:
        line["logprob"] = logprob
    if entropy is not None:
        line["entropy"] = entropy
    if finished is not None:
        line["finished"] = bool(finished)
    return line | json.loads(extra) if extra else line


def _sample(row: Row) -> Sample:
    _, text, answer, _, correct, tokens, logprob, entropy, finished, extra = row
    return Sample(
        text=text,
        answer=answer,
        correct=correct,
        tokens=tokens,
        logprob=logprob,
        entropy=entropy,
        finished=None if finished is None else bool(finished),
        extra=json.loads(extra) if extra else {},
    )


def _failure(row: Row) -> Failure:
    idx, kind, attempt, message, at = row
    return Failure(index=idx, kind=kind, attempt=attempt, message=message, at=at)
