"""Answer -> class: which answers are the same. Knows nothing of votes, or of which answer is right.

Equality isn't transitive where units are left out: "12 cm" and "12 m" differ, and both equal "12". So a
class keeps the first unit it sees: an answer without a unit joins the first class of its value, and one
with another unit starts a new class; a long decimal joins the first class that rounds to it. Recorded
labels do the same, and outrank our equality: answers whose recorded `correct` differ never share a class.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from adacompute.answers.judge import Judge, default_judge
from adacompute.answers.normal import Form, normalise
from adacompute.answers.shape import must_differ
from adacompute.answers.task import PLAIN, Task
from adacompute.errors import TaskError

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Classes", "classify", "same_answer"]

_QUESTIONS = 200  # pairs that one set of classes may put to the slow judge; then open formulas are
_TIMEOUTS = 4  # compared as written, so that hostile answers can't hold up a request
_ASKED = 8  # pairs of them for one answer
_LOOKED_AT = 16  # classes of one value, or open ones, that one answer is compared with
_THREADS = 2  # that wait for the slow judge, of all event loops together
_WORDS = ("text", "letter")

_waiting: tuple[int, "Executor"] | None = None  # the process it was made in: threads don't outlive a fork


def same_answer(a: str | None, b: str | None, task: Task = PLAIN) -> bool:
    r"""Whether two answers mean the same; None equals nothing. Grading is `same_answer(answer, gold)`.

    >>> same_answer(r"\frac{1}{2}", "0.5"), same_answer("Budapest", "budapest."), same_answer("0.33", "1/3")
    (True, True, False)
    """
    for answer in (a, b):
        _check(answer)
    if a is None or b is None:
        return False
    if a == b:
        return True
    x, y = normalise(a, task.percent), normalise(b, task.percent)
    if (x.kind, x.key) == (y.kind, y.key) or _rounds(x, y):
        return _units_agree(x.unit, y.unit)
    return _is_open(x, y) and default_judge().same(a, b) is True


def classify(
    answers: Sequence[str | None],
    correct: Sequence[float | None] | None = None,
    task: Task = PLAIN,
) -> list[int]:
    """Class number of each answer, in order of first appearance; -1 for None.

    >>> classify(["1/2", "0.5", None, "2"])
    [0, 0, -1, 1]
    """
    if isinstance(answers, str):
        raise TaskError(f"classify takes a list of answers, not the one string {answers[:60]!r}")
    if correct is not None and len(correct) != len(answers):
        raise TaskError(f"{len(answers)} answers have {len(correct)} labels; give one for each, or None")
    classes = Classes(task)
    if correct is None:
        return [classes.place(answer) for answer in answers]
    return [classes.place(answer, label) for answer, label in zip(answers, correct, strict=True)]


@dataclass(slots=True)
class _Class:
    number: int
    answer: str  # as first seen
    form: Form
    unit: str  # the first one seen, "" until then
    label: float | None  # the first one seen, None until then

    def takes(self, form: Form, label: float | None) -> bool:
        agree = label is None or self.label is None or label == self.label
        return agree and _units_agree(self.unit, form.unit)


class Classes:
    """Numbers answers by class as they come. Not for two threads at once.

    The work for one answer doesn't grow with their number. One whose value, unit and label came before is
    found at once; any other is compared with the first 16 classes of its value, and of those that agree to
    eight digits where a long decimal may round. An open formula is compared with the first eight and the
    last eight classes that hold no words, and put to the slow judge with at most the first four and the
    last four of them; all answers together with at most 200, and with none after four timeouts. An answer
    whose like is beyond these bounds starts a class of its own.
    """

    __slots__ = (
        "_buckets",
        "_classes",
        "_formulas",
        "_found",
        "_judge",
        "_open",
        "_questions",
        "_seen",
        "_timeouts",
        "task",
    )

    def __init__(self, task: Task = PLAIN, *, judge: Judge | None = None) -> None:
        self.task = task
        self._judge = judge or default_judge()
        self._classes: list[_Class] = []
        self._buckets: dict[tuple[str, object], list[_Class]] = {}
        self._found: dict[tuple[str, object, str, float | None], _Class] = {}
        self._seen: dict[tuple[str, float | None], int] = {}
        self._formulas: list[_Class] = []  # classes that hold no words
        self._open: list[_Class] = []  # those of them that only the judge can compare
        self._questions = _QUESTIONS
        self._timeouts = _TIMEOUTS

    def __len__(self) -> int:
        return len(self._classes)

    def place(self, answer: str | None, correct: float | None = None) -> int:
        """The class of an answer, a new one where it equals none before; -1 for None."""
        known = self._known(answer, correct)
        if known is not None or answer is None:
            return -1 if known is None else known
        form = normalise(answer, self.task.percent)
        found = self._bucket(form, correct) or self._judged(answer, self._candidates(form, correct))
        return self._join(answer, form, correct, found)

    async def place_async(self, answer: str | None, correct: float | None = None) -> int:
        """As `place`, with the slow judge off the event loop. One call at a time."""
        known = self._known(answer, correct)
        if known is not None or answer is None:
            return -1 if known is None else known
        form = normalise(answer, self.task.percent)
        found = self._bucket(form, correct)
        candidates = [] if found else self._candidates(form, correct)
        if candidates:
            import asyncio  # here: a command that needs no event loop starts faster without

            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(_executor(), self._judged, answer, candidates)
        return self._join(answer, form, correct, found)

    def _known(self, answer: str | None, correct: float | None) -> int | None:
        _check(answer)
        return -1 if answer is None else self._seen.get((answer, correct))

    def _bucket(self, form: Form, correct: float | None) -> _Class | None:
        found = self._found.get((form.kind, form.key, form.unit, correct))
        if found is not None:
            return found  # it took one like this, so it keeps taking them
        for group in self._buckets.get((form.kind, form.key), ()):
            if group.takes(form, correct):
                return group
        near = _near(form)
        for group in self._buckets.get(("near", near), ()) if near else ():
            if group.takes(form, correct) and _rounds(form, group.form):
                return group
        return None

    def _candidates(self, form: Form, correct: float | None) -> list[_Class]:
        if form.kind in _WORDS or not (self._open or form.kind == "open"):
            return []
        pool = self._formulas if form.kind == "open" else self._open
        half = _LOOKED_AT // 2
        some = pool if len(pool) <= _LOOKED_AT else pool[:half] + pool[-half:]
        found = [group for group in some if _is_open(form, group.form) and group.takes(form, correct)]
        return found if len(found) <= _ASKED else found[: _ASKED // 2] + found[-_ASKED // 2 :]

    def _judged(self, answer: str, candidates: Iterable[_Class]) -> _Class | None:
        for group in candidates:
            if self._questions <= 0 or self._timeouts <= 0:
                return None
            verdict = self._judge.same(answer, group.answer)
            self._questions -= 1
            self._timeouts -= verdict is None
            if verdict:
                return group
        return None

    def _join(self, answer: str, form: Form, correct: float | None, found: _Class | None) -> int:
        group = found
        if group is None:
            group = _Class(len(self._classes), answer, form, form.unit, correct)
            self._classes.append(group)
            if form.kind not in _WORDS:
                self._formulas.append(group)
            if form.kind == "open":
                self._open.append(group)
        self._found[form.kind, form.key, form.unit, correct] = group
        near = _near(form)
        for key in ((form.kind, form.key), ("near", near)) if near else ((form.kind, form.key),):
            bucket = self._buckets.setdefault(key, [])
            if len(bucket) < _LOOKED_AT and all(group is not other for other in bucket):
                bucket.append(group)
        group.unit = group.unit or form.unit
        group.label = correct if group.label is None else group.label
        self._seen[answer, correct] = group.number
        return group.number


def _near(form: Form) -> str:
    """What numbers that round to one another share; "" for whole numbers and what is none."""
    if form.kind != "number" or (isinstance(form.key, Fraction) and form.key.denominator == 1):
        return ""
    try:
        return f"{float(form.key):.7e}"  # type: ignore[arg-type]  # a Fraction, or a float's digits
    except (OverflowError, ValueError):
        return ""


def _rounds(x: Form, y: Form) -> bool:
    """Whether one is a long decimal that the other rounds to: 0.3333333333 is 1/3, 0.33 isn't."""
    if x.kind != "number" or y.kind != "number" or x.places == y.places:
        return False
    short, exact = (x, y) if x.places and (not y.places or x.places < y.places) else (y, x)
    if not isinstance(short.key, Fraction):
        return False
    if isinstance(exact.key, Fraction):
        return bool(abs(exact.key - short.key) * 2 * 10**short.places <= 1)
    return bool(_near(short) and f"{float(short.key):.9e}" == exact.key)


def _units_agree(a: str, b: str) -> bool:
    return a == b or not a or not b


def _is_open(x: Form, y: Form) -> bool:
    """Whether the pair is for the slow judge: a formula we can't read, beside another one."""
    if x.kind == "open" and y.kind == "open":
        return not must_differ(str(x.key), str(y.key))
    return (x.kind == "open" or y.kind == "open") and x.kind not in _WORDS and y.kind not in _WORDS


def _executor() -> "Executor":
    """Threads of our own, so that slow pairs don't hold up what else an event loop's own threads do."""
    global _waiting
    if _waiting is None or _waiting[0] != os.getpid():
        from concurrent.futures import ThreadPoolExecutor  # here: as asyncio

        _waiting = (os.getpid(), ThreadPoolExecutor(_THREADS, thread_name_prefix="adacompute-judge"))
    return _waiting[1]


def _check(answer: object) -> None:
    if answer is not None and not isinstance(answer, str):
        raise TaskError(f"{answer!r} is not an answer; give a string, or None for no answer")
