"""A stored problem brought up to date, and its samples graded anew. Knows nothing of files or endpoints.

What the model was asked never changes here: only what was not known when the samples came, or was wrong.
"""

import json
import sqlite3
from typing import Any

from adacompute.answers import Classes, Task, same_answer
from adacompute.pool.content import canonical, record_prefix
from adacompute.pool.flaw import Flaw, shown
from adacompute.pool.grade import encoded, restored
from adacompute.pool.shape import ProblemRow
from adacompute.pool.write import problem_mark

__all__ = ["amend"]

_STORED = "SELECT key, question, gold, subject, level, extra FROM problems WHERE id = ?"
_UPDATE = "UPDATE problems SET gold = ?, subject = ?, level = ?, extra = ?, hash = ? WHERE key = ?"
_RECORDS = """
    SELECT r.key, s.model, s.fingerprint FROM records r JOIN sources s ON s.key = r.source WHERE r.problem = ?
"""
_SAMPLES = """
    SELECT idx, text, answer, class, correct, tokens, logprob, entropy, finished, extra
    FROM samples WHERE record = ? ORDER BY rowid
"""
_REGRADED = "UPDATE samples SET class = ?, correct = ?, hash = ? WHERE record = ? AND idx = ?"


def amend(connection: sqlite3.Connection, row: ProblemRow, task: Task, *, regrade: bool) -> bool:
    """Takes what is new of a problem that is there; whether anything was.

    What the pool doesn't know is filled in; a gold answer that differs is taken with `regrade` alone. Samples
    are graded by the new one, but for grades that were given and not made here.
    """
    id_, _, gold, subject, level, extra = row
    key, question, old, old_subject, old_level, old_extra = connection.execute(_STORED, (id_,)).fetchone()
    differs = old is not None and gold is not None and not same_answer(gold, old, task)
    if differs and not regrade:
        raise Flaw(
            f"gold is {shown(gold)}, and in the pool {shown(old)}; take the new one, and grade the samples "
            "anew, with --regrade, or put the old one back"
        )
    new_gold = gold if differs or old is None else old
    new = (
        id_,
        question,
        new_gold,
        subject if old_subject is None else old_subject,
        level if old_level is None else old_level,
        _merged(extra, old_extra),
    )
    if new == (id_, question, old, old_subject, old_level, old_extra):
        return False
    connection.execute(_UPDATE, (*new[2:], problem_mark(new), key))
    if new_gold != old and new_gold is not None:
        for record, model, mark in connection.execute(_RECORDS, (key,)).fetchall():
            prefix = record_prefix(id_.encode(), encoded(model), mark.encode())
            _regrade(connection, record, prefix, old=old, gold=new_gold, task=task)
    return True


def _merged(extra: str | None, old: str | None) -> str | None:
    """The keys of both, the pool's values first: they are what samples were drawn by."""
    if extra is None or old is None:
        return extra if old is None else old
    return canonical({**json.loads(extra), **json.loads(old)})


def _regrade(
    connection: sqlite3.Connection, record: int, prefix: bytes, *, old: str | None, gold: str, task: Task
) -> None:
    classes = Classes(task=task)
    numbers: dict[int, int] = {}  # class as placed now -> in order of first appearance
    for row in connection.execute(_SAMPLES, (record,)).fetchall():
        idx, text, answer, _, correct, *rest = row
        if correct is None or (old is not None and correct == _grade(answer, old, task)):
            correct = _grade(answer, gold, task)
        placed = classes.place(answer, correct)  # a grade can part answers that look alike
        number = -1 if placed < 0 else numbers.setdefault(placed, len(numbers))
        changed: tuple[Any, ...] = restored((idx, text, *rest), (answer, correct), number, record, prefix)
        connection.execute(_REGRADED, (number, correct, changed[-1], record, idx))


def _grade(answer: str | None, gold: str, task: Task) -> float:
    return 0.0 if answer is None else float(same_answer(answer, gold, task))
