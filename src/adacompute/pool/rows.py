"""Turns a problem and its samples into rows of a pool: validated, graded, grouped by answer and hashed.

Invalid data raises a `Flaw`; callers that know the file and line add them to the message.
"""

import json
import shlex
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeAlias, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from adacompute.answers import Classes, Task, grade_answer, read_answers
from adacompute.errors import AdacomputeError, explain_misfit, format_value, suggest_name
from adacompute.pool.sqlite import DEPTH_LIMIT, Json, hash_sample, to_canonical_json
from adacompute.records import SIGNAL_NAMES, Failure, Finite, Problem, Sample, Signals

T = TypeVar("T")

_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


class Flaw(AdacomputeError):
    """An error in a record. Callers that know the file and line convert it to a RecordInvalid."""


def describe_type(value: Json) -> str:
    """Describes the type of a JSON value for messages."""
    return _TYPE_NAMES.get(
        type(value), "a number" if isinstance(value, int | float) else type(value).__name__
    )


def raise_flaw(where: str, value: Json, want: str) -> NoReturn:
    """Raises a Flaw for an invalid value; `want` describes a valid value."""
    raise Flaw(f"'{where}' is {format_value(value)}; give {want}")


def check_type(kind: type[T], value: Json, where: str) -> T | None:
    """Returns the value if it has this type or is null; otherwise raises a Flaw."""
    if value is not None and type(value) is not kind:
        raise_flaw(where, value, f"{_TYPE_NAMES[kind]}, or null")
    return value


def _check_depth(value: Json, depth: int = 0) -> None:
    """Raises ValueError if a value has more than DEPTH_LIMIT levels of nesting."""
    if not isinstance(value, dict | list):
        return
    if depth >= DEPTH_LIMIT:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
    for part in value.values() if isinstance(value, dict) else value:
        _check_depth(part, depth + 1)


def _find_culprit(value: Json, where: str, depth: int = 0) -> str:
    """Returns the path of the innermost part that can't be written as JSON or is nested too deeply."""
    if depth < DEPTH_LIMIT and isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            inner = f"{where}[{key}]" if isinstance(value, list) else f"{where}.{key}".removeprefix(".")
            try:
                _check_depth(part, depth + 1)
            except ValueError:
                return inner
            try:
                to_canonical_json(part)
            except (TypeError, ValueError):
                return _find_culprit(part, inner, depth + 1)
    return where


INDEX_LIMIT = 2**31  # all sample indexes must be below this limit
_LARGEST = 2**63 - 1
MISSING: Any = UNSET  # takes the place of an answer or grade that isn't extracted or computed yet

_Whole = Annotated[int, Meta(ge=0, le=_LARGEST)] | Annotated[float, Meta(ge=0, lt=2.0**63, multiple_of=1)]
_Index = (
    Annotated[int, Meta(ge=0, lt=INDEX_LIMIT)] | Annotated[float, Meta(ge=0, lt=INDEX_LIMIT, multiple_of=1)]
)
_Answer = str | int | Finite | None


class _ProblemFields(Struct, kw_only=True):
    id: Annotated[str, Meta(min_length=1)]
    question: str
    gold: _Answer = None
    subject: str | None = None
    level: Annotated[int, Meta(ge=-(2**63), le=_LARGEST)] | Finite | str | None = None


class _SampleFields(Struct):
    text: str | None = None
    answer: _Answer | UnsetType = UNSET
    correct: bool | Annotated[float, Meta(ge=0, le=1)] | UnsetType | None = UNSET
    tokens: _Whole | None = None
    logprob: Finite | None = None
    entropy: Finite | None = None
    finished: bool | Literal[0, 1] | None = None
    index: _Index | None = None


class _FailureFields(Struct, forbid_unknown_fields=True):
    index: _Index
    kind: Annotated[str, Meta(min_length=1)]
    attempt: _Whole = 1
    message: str | None = None
    at: Finite | None = None


class _LineFields(_ProblemFields, kw_only=True):
    samples: list[_SampleFields]
    model: str | None = None
    parameters: dict[str, Any] | None = None
    failures: list[_FailureFields] | None = None


PROBLEM_KEYS = _ProblemFields.__struct_fields__
LINE_KEYS = frozenset(_LineFields.__struct_fields__)
SAMPLE_KEYS = frozenset(_SampleFields.__struct_fields__) - {"index"}

# columns: idx, text, answer or MISSING, correct or MISSING, tokens, logprob, entropy, finished, extra (JSON)
SampleRow = tuple[int, str | None, Any, Any, int | None, float | None, float | None, int | None, str | None]
ProblemRow = tuple[str, str, str | None, str | None, int | float | str | None, str | None]
FailureRow = tuple[int, str, int, str | None, float | None]


class ProblemLine(NamedTuple):
    """A validated line of a pool file: one problem with one model's samples, not yet graded."""

    problem: ProblemRow
    model: str | None
    parameters: dict[str, Any]
    # those of "model", "parameters" and "failures" that the line gives as null or empty, as JSON; else None
    spelling: str | None
    samples: list[SampleRow]
    failures: list[FailureRow]
    bare: bool  # whether the line has no model, parameters, samples or failures


_QUESTION_KEYS = ("question", "prompt", "problem", "input", "text")  # common names of the question's column
_TEXT_KEYS = (  # common names of the response's column
    *("text", "response", "responses", "output", "outputs"),
    *("completion", "completions", "generation"),
)
EXAMPLE_LINE = '{"id": "q1", "question": "2 + 2?", "gold": "4", "samples": [{"text": "It is 4."}]}'


def has_no_samples(names: Container[str]) -> bool:
    """Whether these keys or columns show that a file has questions without samples."""
    return "samples" not in names and any(name in names for name in _QUESTION_KEYS)


def describe_questions(path: Path, names: Collection[str]) -> str:
    """Returns an error message for a file of questions, or a table, that was given instead of a pool."""
    question = next((name for name in _QUESTION_KEYS if name in names), _QUESTION_KEYS[0])
    text = next(
        (name for name in names if name != question and suggest_name(name.lower(), _TEXT_KEYS, cutoff=0.8)),
        None,
    )
    if text is not None:
        return (
            f"{path}: is a table, not a pool; import it: adacompute import {shlex.quote(str(path))} "
            f"--columns question={question},text={text} --pool POOL.sqlite"
        )
    return (
        f"{path}: these are questions without samples; collect samples first: "
        f"adacompute collect {shlex.quote(str(path))} --endpoint URL --pool POOL.sqlite"
    )


_WANTED = {  # for each key, a description of valid values; used in messages
    "id": "a string that is not empty",
    "level": "a number of at most 64 bits, or a string",
    "correct": "true, false or a number from 0 to 1",
    "finished": "true or false",
    "index": f"0 to {INDEX_LIMIT - 1}",
    "kind": "a short word, e.g. 'timeout'",
    "samples": f"a list of samples, perhaps empty, e.g. {EXAMPLE_LINE}",
    "failures": "a list of failures",
    "parameters": "an object",
    **dict.fromkeys(("question", "subject", "model", "text", "message"), "a string"),
    **dict.fromkeys(("gold", "answer"), "a string or a finite number"),
    **dict.fromkeys(("tokens", "attempt"), "a whole number of at least 0"),
    **dict.fromkeys(("logprob", "entropy", "at", *SIGNAL_NAMES), "a finite number"),
}


def _convert(value: Json, kind: type[T], where: str = "") -> T:
    """Converts a value to a type, or raises a Flaw that names the invalid part and what is expected there."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        place, fault = explain_misfit(value, exc, place=where, find_remedy=_find_remedy)
        raise Flaw(f"{place!r} {fault}") from None
    except UnicodeEncodeError as exc:  # a string with invalid Unicode where another type is expected
        raise _build_text_flaw(exc) from exc


def _find_remedy(place: str) -> str:
    if not place or place.endswith("[]"):
        return "give an object"
    owner, _, name = place.rpartition(".")
    if owner == "failures[]" and name not in _FailureFields.__struct_fields__:
        return f"leave it out: a failure has {', '.join(_FailureFields.__struct_fields__)}"
    return f"give {_WANTED[name]}"


def read_line(value: Json) -> ProblemLine:
    """Reads and validates one line of a pool file."""
    if type(value) is not dict:
        raise Flaw(f"is {describe_type(value)}; give one JSON object a line")
    line = _convert(value, _LineFields)
    rows = [
        _build_sample_row(i, sample, fields)
        for i, (sample, fields) in enumerate(zip(value["samples"], line.samples, strict=True))
    ]
    for i, (before, row) in enumerate(pairwise(rows), start=1):
        if row[0] <= before[0]:
            raise Flaw(f"samples[{i}].index is {row[0]} after {before[0]}; give samples in rising order")
    parameters = read_parameters(line.parameters)
    spelling = {k: value[k] for k in ("model", "parameters", "failures") if k in value and not value[k]}
    # leave out the model name "", because it is stored like any other name
    spelling = {k: v for k, v in spelling.items() if v != ""}
    return ProblemLine(
        _build_problem_row(value, line),
        line.model,
        parameters,
        to_canonical_json(spelling) if spelling else None,
        rows,
        [_build_failure_row(failure) for failure in line.failures or ()],
        bare=not (rows or line.failures or parameters or spelling) and line.model is None,
    )


def read_problem(value: dict[str, Any]) -> ProblemRow:
    """Validates the problem in a line, and builds its row; unknown keys are kept as JSON."""
    return _build_problem_row(value, _convert(value, _ProblemFields))


def _build_problem_row(value: dict[str, Any], fields: _ProblemFields) -> ProblemRow:
    level = fields.level
    if type(level) is float:
        level += 0.0  # turns -0.0 into 0.0, because SQLite can't store negative zero
    extra = {k: v for k, v in value.items() if k not in LINE_KEYS or (v is None and k in PROBLEM_KEYS)}
    return (
        fields.id,
        fields.question,
        _format_answer(fields.gold, "gold"),
        fields.subject,
        level,
        _encode_json(extra, "") if extra else None,
    )


def read_parameters(value: dict[str, Any] | None) -> dict[str, Any]:
    """Validates sampling parameters; null means no parameters."""
    if value:
        _encode_json(value, "parameters")
    return value or {}


def read_sample(i: int, sample: Json) -> SampleRow:
    """Validates one sample of a line, and builds its row."""
    return _build_sample_row(i, sample, _convert(sample, _SampleFields, f"samples[{i}]"))


def _build_sample_row(i: int, sample: dict[str, Any], fields: _SampleFields) -> SampleRow:
    correct, tokens, finished = fields.correct, fields.tokens, fields.finished
    idx, extra = i, None
    if not SAMPLE_KEYS.issuperset(sample) or None in sample.values():
        idx, extra = _read_unknown_keys(i, sample, fields)
    return (
        idx,
        fields.text,
        _format_answer(fields.answer, f"samples[{i}].answer"),
        correct if correct is None or correct is UNSET else correct + 0.0,
        None if tokens is None else int(tokens),
        None if fields.logprob is None else fields.logprob + 0.0,  # -0.0 to 0.0: SQLite has no negative zero
        None if fields.entropy is None else fields.entropy + 0.0,
        None if finished is None else int(finished),
        extra,
    )


def failure_to_row(failure: Failure) -> FailureRow:
    """Validates a failure, and builds its row."""
    return _build_failure_row(_convert(asdict(failure), _FailureFields, "failures[0]"))


def _build_failure_row(failure: _FailureFields) -> FailureRow:
    at = None if failure.at is None else failure.at + 0.0
    return int(failure.index), failure.kind, int(failure.attempt), failure.message, at


def _read_unknown_keys(i: int, sample: dict[str, Any], fields: _SampleFields) -> tuple[int, str | None]:
    """Returns a sample's index, and its unknown keys and null values as JSON."""
    extra = {k: v for k, v in sample.items() if k not in SAMPLE_KEYS or (v is None and k != "answer")}
    if "text" not in sample and "answer" not in sample:
        _refuse_misspelt_text(i, extra)
    if type(extra.get("score")) in (int, float) and "signals" not in extra:
        extra["signals"] = {"score": extra.pop("score")}
    if has_signal_names(extra.get("signals")):
        _convert(extra["signals"], Signals, f"samples[{i}].signals")
    idx = i if fields.index is None else int(fields.index)
    if idx != i:
        # don't store the index as an unknown key: an export writes it whenever it differs from the position
        del extra["index"]
    return idx, _encode_json(extra, f"samples[{i}]") if extra else None


def _refuse_misspelt_text(i: int, extra: dict[str, Any]) -> None:
    """Raises a Flaw if an unknown key seems to mean the sample's missing "text" or "answer"."""
    for name, value in extra.items():
        if type(value) is str and suggest_name(name.lower(), (*_TEXT_KEYS, "answer"), cutoff=0.8):
            meant = "answer" if suggest_name(name.lower(), ("answer",), cutoff=0.8) else "text"
            raise Flaw(f"samples[{i}] has {name!r}, but no text and no answer; name it {meant!r}")


def has_signal_names(value: Json) -> TypeGuard[dict[str, Any]]:
    """Whether all keys of an object are names of our signals; otherwise another tool wrote it."""
    return type(value) is dict and bool(value) and set(SIGNAL_NAMES).issuperset(value)


def read_signals(extra: dict[str, Any]) -> Signals | None:
    """Removes the signals from a stored sample's unknown keys, and returns them; None if there are none.

    Signals are stored among the unknown keys so that older versions of this package can read the pool.
    """
    value = extra.get("signals")
    if not has_signal_names(value):
        return None
    try:
        signals = msgspec.convert(value, Signals)
    except ValueError:  # older versions of this package stored signals without checking them
        return None
    del extra["signals"]
    return signals


def drop_answer_signals(extra: str | None) -> str | None:
    """Removes signals of the answer's tokens from `extra`, because the answer is extracted again."""
    if extra is None or '"signals":{' not in extra:
        return extra
    values = json.loads(extra)
    if not has_signal_names(values.get("signals")):
        return extra
    kept = {name: v for name, v in values.pop("signals").items() if not name.startswith("answer_")}
    values |= {"signals": kept} if kept else {}
    return to_canonical_json(values) if values else None


def _format_answer(value: Any, where: str) -> Any:  # noqa: ANN401 - a text, None or MISSING
    """Converts an answer to a string if it is a number."""
    if type(value) not in (int, float):
        return value
    try:
        return str(value)
    except ValueError:  # the number has too many digits for Python's str()
        raise_flaw(where, value, "at most 4300 digits, or a string")


def _encode_json(value: dict[str, Any], where: str) -> str:
    try:
        _check_depth(value)
        return to_canonical_json(value)
    except (TypeError, ValueError) as exc:
        place = format_value(_find_culprit(value, where))
        raise Flaw(f"{place} can't be kept as JSON ({exc}); give plain data with finite numbers") from exc


def problem_to_line(problem: Problem) -> dict[str, Any]:
    """Builds a line of a pool file from a problem, without samples."""
    present = {name: value for name in PROBLEM_KEYS if (value := getattr(problem, name)) is not None}
    return present | _check_extra(problem.extra, known=LINE_KEYS, present=present)


def sample_to_row(index: int, sample: Sample) -> SampleRow:
    """Validates a sample, and builds its row. If it has a text but no answer, the answer is MISSING."""
    if type(index) is not int or not 0 <= index < INDEX_LIMIT:
        raise Flaw(f"sample index {format_value(index)} can't be used; give a whole number of at least 0")
    if sample.extra.get("index", index) != index:
        raise Flaw(f"extra holds 'index' {sample.extra['index']!r:.60} in sample {index}; leave it out")
    present = {name: value for name in SAMPLE_KEYS if (value := getattr(sample, name)) is not None}
    line = present | _check_extra(sample.extra, known=SAMPLE_KEYS, present=present)
    if sample.signals is not None:
        if "signals" in line:
            raise Flaw("extra holds 'signals', which is a field of its own; give it there")
        known = {k: v for k in SIGNAL_NAMES if (v := getattr(sample.signals, k)) is not None}
        line |= {"signals": known} if known else {}
    try:
        row = read_sample(index, line)
    except Flaw as exc:
        raise Flaw(str(exc).replace("samples[", "sample[", 1)) from exc
    return (index, *row[1:])


def check_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Validates parameters, and converts them to plain JSON data."""
    values = _to_plain_json(dict(parameters or {}), "parameters")
    return read_parameters(values)


def _check_extra(
    extra: Mapping[str, Any], *, known: frozenset[str], present: Mapping[str, Any]
) -> dict[str, Any]:
    for name in extra:
        if name in known and (extra[name] is not None or name in present):
            raise Flaw(f"extra holds {name!r}, which is a field of its own; give it there")
    return _to_plain_json(dict(extra), "extra")  # type: ignore[no-any-return]


def _to_plain_json(value: Json, where: str, depth: int = 0) -> Json:
    """Converts mappings and sequences to dicts and lists; other types fail later, when written as JSON."""
    if depth >= DEPTH_LIMIT and isinstance(value, Mapping | list | tuple):
        raise Flaw(f"{where} is nested deeper than {DEPTH_LIMIT} levels; give flatter data")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Flaw(f"{where} has the key {format_value(key)}; give strings as keys")
        return {key: _to_plain_json(v, where, depth + 1) for key, v in value.items()}
    return [_to_plain_json(v, where, depth + 1) for v in value] if isinstance(value, list | tuple) else value


Text: TypeAlias = str | None
Number: TypeAlias = float | None
# columns: record, idx, text, answer, class, correct, tokens, logprob, entropy, finished, extra, hash
StoredRow = tuple[int, int, Text, Text, int, Number, int | None, Number, Number, int | None, Text, bytes]
GradedAnswer = tuple[str | None, float | None]  # an answer (None if the sample has none), and its grade


class ClassNumbering:
    """Gives answers class numbers: equal answers get the same number, and stored answers keep theirs."""

    def __init__(self, task: Task) -> None:
        self._classes = Classes(task=task)
        # maps the class number that `_classes` gives an answer to the class number stored in the pool
        self._numbers: dict[int, int] = {}
        self._next = 0

    def add_known(self, answer: str | None, correct: float | None, number: int) -> None:
        """Registers an answer that is stored already, with its class number."""
        self._numbers.setdefault(self._classes.place(answer, correct), number)
        self._next = max(self._next, number + 1)

    def assign(self, answer: str | None, correct: float | None) -> int:
        """Returns an answer's class number: that of an equal answer, or a new one; -1 if `answer` is None."""
        class_number = self._classes.place(answer, correct)
        if class_number >= 0 and class_number not in self._numbers:
            self._numbers[class_number] = self._next
            self._next += 1
        return self._numbers.get(class_number, -1)


def grade_samples(
    rows: Sequence[SampleRow],
    question: str,
    gold: str | None,
    *,
    record: int,
    prefix: bytes,
    task: Task,
    numbering: ClassNumbering | None = None,
    classes: Sequence[int] | None = None,
) -> list[StoredRow]:
    """Extracts missing answers, computes missing grades, numbers the answers, and builds the rows to store.

    `numbering` has the answers that are stored already. `classes` has the rows' class numbers, if known;
    otherwise all answers are compared, which can take seconds.
    """
    votes = _extract_votes(rows, question=question, gold=gold, task=task)
    if classes is None:
        numbering = numbering or ClassNumbering(task)
        # compare each distinct answer only once, because many samples have the same answer
        numbers = {vote: numbering.assign(*vote) for vote in dict.fromkeys(votes)}
        classes = [numbers[vote] for vote in votes]
    return [
        build_row(row, vote, number, record, prefix)
        for row, vote, number in zip(rows, votes, classes, strict=True)
    ]


def encode_text(text: str | None) -> bytes | None:
    """Encodes a string as UTF-8; raises a Flaw for an unpaired surrogate, which JSON allows."""
    if text is None:
        return None
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise _build_text_flaw(exc) from exc


def _build_text_flaw(exc: UnicodeEncodeError) -> Flaw:
    shown, half = exc.object[max(0, exc.start - 20) : exc.start + 1], ord(exc.object[exc.start])
    return Flaw(
        f"{shown!r} ends in half a surrogate pair (U+{half:04X}), which is not text; "
        "write \\ufffd in its place"
    )


def _extract_votes(
    rows: Sequence[SampleRow], *, question: str, gold: str | None, task: Task
) -> list[GradedAnswer]:
    """Returns each sample's answer and grade; extracts all missing answers from the texts in one call."""
    unread = [row for row in rows if row[2] is MISSING and row[1] is not None]
    texts, ends = [row[1] or "" for row in unread], [row[7] != 0 for row in unread]
    answers = iter(read_answers(texts, question, task, finished=ends))
    votes: list[GradedAnswer] = []
    grade_of_answer: dict[str | None, float] = {None: 0.0}  # None: a sample without an answer counts as wrong
    for row in rows:
        answer, correct = row[2], row[3]
        if answer is MISSING:
            answer = None if row[1] is None else next(answers)
        if correct is MISSING:
            correct = None
            if gold is not None:
                if answer not in grade_of_answer:
                    grade_of_answer[answer] = grade_answer(answer, gold, question, task)
                correct = grade_of_answer[answer]
        votes.append((answer, correct))
    return votes


def build_row(row: SampleRow, vote: GradedAnswer, number: int, record: int, prefix: bytes) -> StoredRow:
    """Builds the row to store from a sample, its answer and grade, and their class number; adds a hash."""
    idx, text, _, _, tokens, logprob, entropy, finished, extra = row
    answer, correct = vote
    row_hash = hash_sample(
        *(prefix, idx, encode_text(text), encode_text(answer), number, correct),
        *(tokens, logprob, entropy, finished, encode_text(extra)),
    )
    return record, idx, text, answer, number, correct, tokens, logprob, entropy, finished, extra, row_hash
