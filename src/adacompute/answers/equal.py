"""Decides which answers are equal and groups them into classes. A `Task` sets how answers are read.

Equality isn't transitive: "12 cm" and "12 m" differ, but both equal "12". So a class keeps the first unit it
sees, and accepts no other unit. An answer without a unit joins the first class with its value. A long decimal
joins the first class that it equals after rounding. Answers whose recorded grades (`correct`) differ never
share a class. Formulas that the fast comparison can't decide are compared by math-verify in a helper process.
"""

import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, get_args

from adacompute.answers.judge import FormulaJudge, shared_judge
from adacompute.answers.normalise import Form, Percent, find_other_keys, must_differ, normalise
from adacompute.errors import TaskError

if TYPE_CHECKING:
    from concurrent.futures import Executor

Extractor = str | Callable[[str], str | None]

EXTRACTORS = ("auto", "boxed", "phrase", "line", "hash", "number", "choice")
_EXTRACTOR_CHOICES = ", ".join(EXTRACTORS) + ", json:FIELD, regex:PATTERN or a function of the text"


@dataclass(frozen=True, slots=True)
class Task:
    """Says how to read answers (`extract`), and whether % is a unit or means "divided by 100" (`percent`).

    With `percent="unit"`, 50% is 50, as graders of "what percent" expect; with `"fraction"`, it is 1/2.

    >>> Task(extract="boxed").percent
    'unit'
    """

    extract: Extractor = "auto"
    percent: Percent = field(default="unit", kw_only=True)

    def __post_init__(self) -> None:
        _check_extractor(self.extract)
        if self.percent not in get_args(Percent):
            raise TaskError(
                f"percent {self.percent!r} is not known; give 'unit' (50% is 50) or 'fraction' (1/2)"
            )

    def to_dict(self) -> dict[str, str]:
        """Returns the task as plain JSON data; raises TaskError if the extractor is a function."""
        if not isinstance(self.extract, str):
            raise TaskError(
                f"the extractor {name_extractor(self.extract)} is a function and can't be stored; "
                f"store one of {', '.join(EXTRACTORS)}, json:FIELD or regex:PATTERN"
            )
        return {"extract": self.extract, "percent": self.percent}

    @classmethod
    def from_dict(cls, stored: object) -> "Task":
        """Restores a task from the output of `to_dict`; missing keys get their defaults."""
        if not isinstance(stored, Mapping) or not set(stored) <= {"extract", "percent"}:
            raise TaskError(f"a stored task is an object with 'extract' and 'percent', not {stored!r}")
        return cls(**stored)


def _check_extractor(extract: object) -> None:
    kind, _, argument = extract.partition(":") if isinstance(extract, str) else ("", "", "")
    if callable(extract) or extract in EXTRACTORS or (kind == "json" and argument):
        return
    if kind != "regex" or not argument:
        raise TaskError(f"extractor {extract!r} is not known; give {_EXTRACTOR_CHOICES}")
    try:
        re.compile(argument)
    except (re.error, RecursionError, OverflowError) as exc:
        raise TaskError(
            f"extractor {extract!r} is not a regular expression ({exc}); give {_EXTRACTOR_CHOICES}"
        ) from exc


def name_extractor(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


DEFAULT_TASK = Task()  # used if the caller passes no task


# The next two limits keep hostile answers from delaying a request. Once a request reaches either limit, the
# slow judge (math-verify) compares no more of its formulas.
_JUDGED_PAIRS = 200  # maximum number of comparisons by the slow judge per request
_JUDGE_TIMEOUTS = 4  # maximum number of timeouts of the slow judge per request
_PAIRS_PER_ANSWER = 8  # maximum number of comparisons by the slow judge per answer
_CLASSES_COMPARED = 16  # maximum number of answer classes that one answer is compared with
_JUDGE_THREADS = 2  # number of threads for slow comparisons; all event loops share them
_WORD_KINDS = ("text", "letter", "json")


def same_answer(a: str | None, b: str | None, task: Task = DEFAULT_TASK) -> bool:
    r"""Whether two answers mean the same; False if either or both are None.

    >>> same_answer(r"\frac{1}{2}", "0.5"), same_answer("Budapest", "budapest."), same_answer("0.33", "1/3")
    (True, True, False)
    """
    for answer in (a, b):
        _check_answer(answer)
    if a is None or b is None:
        return False
    classes = Classes(task)
    return classes.place(a) == classes.place(b)


def classify(
    answers: Sequence[str | None],
    correct: Sequence[float | None] | None = None,
    task: Task = DEFAULT_TASK,
) -> list[int]:
    """Returns the class number of each answer, from 0 in order of first appearance; -1 for None.

    >>> classify(["1/2", "0.5", None, "2"])
    [0, 0, -1, 1]
    """
    if isinstance(answers, str):
        raise TaskError(f"classify takes a list of answers, not the one string {answers[:60]!r}")
    if correct is not None and len(correct) != len(answers):
        raise TaskError(f"{len(answers)} answers have {len(correct)} labels; give one for each, or None")
    classes, labels = Classes(task), repeat(None, len(answers)) if correct is None else correct
    return [classes.place(answer, label) for answer, label in zip(answers, labels, strict=True)]


@dataclass(slots=True)
class _AnswerClass:
    number: int
    answer: str  # the first answer in the class, as it was written
    form: Form
    unit: str  # the unit of the first answer that has one; "" if none has
    label: float | None  # the recorded grade of the first answer that has one; None if none has

    def accepts(self, form: Form, label: float | None) -> bool:
        labels_agree = label is None or self.label is None or label == self.label
        return labels_agree and (self.unit == form.unit or not self.unit or not form.unit)


class Classes:
    """Puts answers into numbered classes of equal answers. Not safe for use by several threads at once.

    The work per answer is limited. If an earlier answer had the same value, unit and grade, one lookup finds
    its class. Any other answer is compared with the first 16 classes that have its value. A long decimal is
    also compared with classes whose values agree in eight digits.

    A formula that can't be parsed is compared with formulas and numbers by the slow judge (math-verify). Per
    answer, the judge compares at most eight classes, from the first eight and the last eight. Per instance,
    it compares at most 200 pairs, and none after four timeouts. Beyond these limits, equal answers may be in
    different classes.
    """

    def __init__(self, task: Task = DEFAULT_TASK, *, judge: FormulaJudge | None = None) -> None:
        self.task = task
        self._judge = judge or shared_judge
        self._classes: list[_AnswerClass] = []
        self._buckets: dict[tuple[str, object], list[_AnswerClass]] = {}
        self._by_form: dict[tuple[str, object, str, float | None], _AnswerClass] = {}
        self._formulas: list[_AnswerClass] = []  # answer classes that contain formulas or numbers
        # answer classes with formulas that we can't parse; the slow judge (math-verify) compares them
        self._open: list[_AnswerClass] = []
        self._questions = _JUDGED_PAIRS
        self._timeouts = _JUDGE_TIMEOUTS

    def place(self, answer: str | None, correct: float | None = None, *, unlike: Container[int] = ()) -> int:
        """Returns the number of the answer's class: a new number if no earlier answer is equal, -1 for None.

        `unlike` has the numbers of classes that the slow judge (math-verify) has already found unequal.
        """
        _check_answer(answer)
        if answer is None:
            return -1
        form = normalise(answer, self.task.percent)
        group = self._find_in_buckets(answer, form, correct) or self._ask_judge(
            answer, self._select_candidates(form, correct, unlike)
        )
        return self._join(answer, form, correct, group)

    async def place_async(self, answer: str | None, correct: float | None = None) -> int:
        """Works like `place`, but runs the slow judge outside the event loop. Calls must not overlap.

        The judge (math-verify) takes one or two seconds to start. If it can't start, formulas are compared by
        their text.
        """
        _check_answer(answer)
        if answer is None:
            return -1
        form = normalise(answer, self.task.percent)
        group = self._find_in_buckets(answer, form, correct)
        if group is None:
            if self._select_candidates(form, correct):
                # imported here so that command-line commands without an event loop start faster
                import asyncio

                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(_get_executor(), self.place, answer, correct)
            if form.kind == "open":  # start the slow judge now, because the next answer may need it
                _get_executor().submit(self._judge.warm)
        return self._join(answer, form, correct, group)

    def _find_in_buckets(self, answer: str, form: Form, correct: float | None) -> _AnswerClass | None:
        group_of_form = self._by_form.get((form.kind, form.key, form.unit, correct))
        if group_of_form is not None:
            return group_of_form  # this class contains an earlier answer with the same canonical form
        for key in ((form.kind, form.key), *find_other_keys(answer)):
            for group in self._buckets.get(key, ()):
                if group.accepts(form, correct):
                    return group
        near = _make_rounding_key(form)
        for group in self._buckets.get(("near", near), ()) if near else ():
            if group.accepts(form, correct) and _is_rounding(form, group.form):
                return group
        return None

    def _select_candidates(
        self, form: Form, correct: float | None, unlike: Container[int] = ()
    ) -> list[_AnswerClass]:
        if form.kind in _WORD_KINDS or not (self._open or form.kind == "open"):
            return []
        classes = self._formulas if form.kind == "open" else self._open
        candidates = [
            group
            for group in _keep_ends(classes, _CLASSES_COMPARED)
            if group.number not in unlike and _is_open(form, group.form) and group.accepts(form, correct)
        ]
        return _keep_ends(candidates, _PAIRS_PER_ANSWER)

    def _ask_judge(self, answer: str, candidates: Iterable[_AnswerClass]) -> _AnswerClass | None:
        for group in candidates:
            if self._questions <= 0 or self._timeouts <= 0:
                return None
            verdict = self._judge.same(answer, group.answer)
            self._questions -= 1
            self._timeouts -= verdict is None
            if verdict:
                return group
        return None

    def _join(self, answer: str, form: Form, correct: float | None, existing: _AnswerClass | None) -> int:
        group = existing
        if group is None:
            group = _AnswerClass(len(self._classes), answer, form, form.unit, correct)
            self._classes.append(group)
            if form.kind not in _WORD_KINDS:
                self._formulas.append(group)
            if form.kind == "open":
                self._open.append(group)
        self._by_form[form.kind, form.key, form.unit, correct] = group
        keys = [(form.kind, form.key), *find_other_keys(answer)]
        near = _make_rounding_key(form)
        if near:
            keys.append(("near", near))
        for key in keys:
            bucket = self._buckets.setdefault(key, [])
            if len(bucket) < _CLASSES_COMPARED and all(group is not other for other in bucket):
                bucket.append(group)
        group.unit = group.unit or form.unit
        group.label = correct if group.label is None else group.label
        return group.number


def _keep_ends(groups: list[_AnswerClass], count: int) -> list[_AnswerClass]:
    """Returns at most `count` groups: half from the beginning of the list, half from its end."""
    return groups if len(groups) <= count else groups[: count // 2] + groups[-count // 2 :]


def _make_rounding_key(form: Form) -> str:
    """Returns a key shared by numbers that may be equal after rounding; "" for whole numbers and texts."""
    if form.kind != "number" or (isinstance(form.key, Fraction) and form.key.denominator == 1):
        return ""
    try:
        return f"{float(form.key):.7e}"  # type: ignore[arg-type]  # a Fraction, or a float's digits
    except (OverflowError, ValueError):
        return ""


def _is_rounding(x: Form, y: Form) -> bool:
    """Whether one number is a long decimal that equals the other rounded: 0.3333333333 is 1/3, 0.33 isn't."""
    if x.kind != "number" or y.kind != "number" or x.places == y.places:
        return False
    short, exact = (x, y) if x.places and (not y.places or x.places < y.places) else (y, x)
    if not isinstance(short.key, Fraction):
        return False
    if isinstance(exact.key, Fraction):
        return bool(abs(exact.key - short.key) * 2 * 10**short.places <= 1)
    return bool(_make_rounding_key(short) and f"{float(short.key):.9e}" == exact.key)


def _is_open(x: Form, y: Form) -> bool:
    """Whether only the slow judge can compare these forms: at least one is a formula that we can't parse."""
    if x.kind == "open" and y.kind == "open":
        return not must_differ(str(x.key), str(y.key))
    return (x.kind == "open" or y.kind == "open") and x.kind not in _WORD_KINDS and y.kind not in _WORD_KINDS


@cache
def _get_executor() -> "Executor":
    """Returns a thread pool used only for slow comparisons, so that they don't block an event loop's pool."""
    from concurrent.futures import ThreadPoolExecutor  # imported only here, so that commands start faster

    return ThreadPoolExecutor(_JUDGE_THREADS, thread_name_prefix="adacompute-judge")


# threads don't survive a fork, so a child must make new ones
os.register_at_fork(after_in_child=_get_executor.cache_clear)


def _check_answer(answer: object) -> None:
    if answer is not None and not isinstance(answer, str):
        raise TaskError(f"{answer!r} is not an answer; give a string, or None for no answer")
