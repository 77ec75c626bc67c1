"""One problem of a pool file, checked field by field. Knows nothing of files, tasks or SQLite."""

from math import isfinite
from typing import Any, NamedTuple

from adacompute.pool.content import Json, canonical, has_inexact_number
from adacompute.pool.flaw import Flaw, Inexact, kind_of, unkept, wrong

__all__ = [
    "ABSENT",
    "FAILURE_KEYS",
    "INDEX_LIMIT",
    "LINE_KEYS",
    "SAMPLE_KEYS",
    "Line",
    "SampleRow",
    "read_failure",
    "read_line",
    "read_parameters",
    "read_problem",
    "read_sample",
]

PROBLEM_KEYS = ("id", "question", "gold", "subject", "level")
LINE_KEYS = frozenset((*PROBLEM_KEYS, "model", "parameters", "failures", "samples"))
SAMPLE_KEYS = frozenset(("text", "answer", "correct", "tokens", "logprob", "entropy", "finished"))
FAILURE_KEYS = frozenset(("index", "kind", "attempt", "message", "at"))
INDEX_LIMIT = 2**31  # of a sample: more than anyone draws
_WHOLE_LIMIT = 2**63
ABSENT: Any = object()  # no such key: an answer to extract, a correctness to grade

# idx, text, answer | ABSENT, correct | ABSENT, tokens, logprob, entropy, finished, extra as JSON
SampleRow = tuple[int, str | None, Any, Any, int | None, float | None, float | None, int | None, str | None]
ProblemRow = tuple[str, str, str | None, str | None, int | float | str | None, str | None]
FailureRow = tuple[int, str, int, str | None, float | None]


class Line(NamedTuple):
    """One problem with what one source gave for it, ready to be graded and stored."""

    problem: ProblemRow
    model: str | None
    parameters: dict[str, Any]
    spelling: str | None  # JSON of keys given empty or null, so that they are written back
    samples: list[SampleRow]
    failures: list[FailureRow]
    bare: bool  # a problem alone: no model, parameters, samples or failures


def read_line(value: Json, *, exact: bool = False) -> Line:
    """The checked rows of one line. `exact`: its numbers are known to be as written."""
    if type(value) is not dict:
        raise Flaw(f"is {kind_of(value)}; give one JSON object a line")
    problem = read_problem(value, exact=exact)
    model = _text(value.get("model"), "model")
    parameters = read_parameters(value.get("parameters"), exact=exact)
    failures = value.get("failures")
    if failures is not None and type(failures) is not list:
        wrong("failures", failures, "a list of failures")
    samples = value.get("samples", ABSENT)
    if samples is ABSENT:
        raise Flaw("'samples' is missing; give a list of samples, perhaps empty")
    if type(samples) is not list:
        wrong("samples", samples, "a list of samples")
    rows = [read_sample(i, sample, exact=exact) for i, sample in enumerate(samples)]
    _check_order(rows)
    spelling = {k: value[k] for k in ("model", "parameters", "failures") if k in value and not value[k]}
    spelling = {k: v for k, v in spelling.items() if v != ""}  # an empty name is a name
    return Line(
        problem,
        model,
        parameters,
        canonical(spelling) if spelling else None,
        rows,
        [read_failure(i, failure) for i, failure in enumerate(failures or ())],
        bare=not (rows or failures or parameters or spelling) and model is None,
    )


def read_problem(value: dict[str, Any], *, exact: bool = False) -> ProblemRow:
    """id, question, gold, subject, level and the unknown keys as JSON."""
    for name in ("id", "question"):
        if name not in value:
            raise Flaw(f"{name!r} is missing; give a string")
        if type(value[name]) is not str or (name == "id" and not value[name]):
            wrong(name, value[name], "a string" if name == "question" else "a string that is not empty")
    level = value.get("level")
    if not exact and type(level) is float and has_inexact_number(level):
        raise Inexact
    if type(level) is int and not -_WHOLE_LIMIT <= level < _WHOLE_LIMIT:
        wrong("level", level, "a number of at most 64 bits, or a string")
    if type(level) is float:
        level = _number(level, "level")
    elif level is not None and type(level) not in (int, str):
        wrong("level", level, "a number or a string")
    extra = {k: v for k, v in value.items() if k not in LINE_KEYS or (v is None and k in PROBLEM_KEYS)}
    return (
        value["id"],
        value["question"],
        _answer(value.get("gold"), "gold", exact=exact),
        _text(value.get("subject"), "subject"),
        level,
        _json(extra, "", exact=exact) if extra else None,
    )


def read_parameters(value: Json, *, exact: bool = False) -> dict[str, Any]:
    """Sampling parameters: a JSON object; null is none."""
    if value is None:
        return {}
    if type(value) is not dict:
        wrong("parameters", value, "an object")
    _json(value, "parameters", exact=exact)
    return value


def read_sample(i: int, sample: Json, *, exact: bool = False) -> SampleRow:
    """The checked row of one sample. Written for speed: called for every sample of an import."""
    if type(sample) is not dict:
        wrong(f"samples[{i}]", sample, "an object")
    get = sample.get
    text, answer, correct = get("text"), get("answer", ABSENT), get("correct", ABSENT)
    tokens, logprob, entropy, finished = get("tokens"), get("logprob"), get("entropy"), get("finished")
    known = (answer is not ABSENT) + (text is not None) + (tokens is not None) + (logprob is not None)
    known += (entropy is not None) + (finished is not None) + (correct is not ABSENT)
    if text is not None and type(text) is not str:
        wrong(f"samples[{i}].text", text, "a string")
    if answer is not None and type(answer) is not str and answer is not ABSENT:
        answer = _answer(answer, f"samples[{i}].answer", exact=exact)
    if correct is not ABSENT:
        correct = _share(correct, i)
        known -= correct is None
    if tokens is not None and (type(tokens) is not int or not 0 <= tokens < _WHOLE_LIMIT):
        tokens = _whole(tokens, f"samples[{i}].tokens")
    if logprob is not None:
        logprob = _number(logprob, f"samples[{i}].logprob")
    if entropy is not None:
        entropy = _number(entropy, f"samples[{i}].entropy")
    if finished is not None:
        if finished not in (0, 1) or type(finished) not in (bool, int):
            wrong(f"samples[{i}].finished", finished, "true or false")
        finished = int(finished)
    idx, extra = i, None
    if known != len(sample):
        idx, extra = _unknown(i, sample, exact=exact)
    return idx, text, answer, correct, tokens, logprob, entropy, finished, extra


def read_failure(i: int, failure: Json) -> FailureRow:
    """The checked row of one failed attempt."""
    where = f"failures[{i}]"
    if type(failure) is not dict:
        wrong(where, failure, "an object with 'index' and 'kind'")
    if unknown := sorted(set(failure) - FAILURE_KEYS):
        raise Flaw(
            f"{where} has the unknown key {unknown[0]!r}; its keys are {', '.join(sorted(FAILURE_KEYS))}"
        )
    if not (kind := _text(failure.get("kind"), f"{where}.kind")):
        wrong(f"{where}.kind", failure.get("kind"), "a short word, e.g. 'timeout'")
    at = failure.get("at")
    return (
        _whole(failure.get("index"), f"{where}.index", INDEX_LIMIT),
        kind,
        _whole(failure.get("attempt", 1), f"{where}.attempt"),
        _text(failure.get("message"), f"{where}.message"),
        None if at is None else _number(at, f"{where}.at"),
    )


def _unknown(i: int, sample: dict[str, Any], *, exact: bool) -> tuple[int, str | None]:
    """The sample's index, where given, and its unknown keys and explicit nulls as JSON."""
    extra = {k: v for k, v in sample.items() if k not in SAMPLE_KEYS or (v is None and k != "answer")}
    idx = i
    given = extra.get("index")
    if type(given) is int and 0 <= given < INDEX_LIMIT:
        idx = given
        if idx != i:
            del extra["index"]  # else it is written back because it was given, not because it is needed
    return idx, _json(extra, f"samples[{i}]", exact=exact) if extra else None


def _check_order(rows: list[SampleRow]) -> None:
    last = -1
    for i, row in enumerate(rows):
        if row[0] <= last:
            raise Flaw(f"samples[{i}].index is {row[0]} after {last}; give samples in rising order of index")
        last = row[0]


def _share(value: Json, i: int) -> float | None:
    if value is None:
        return None
    if type(value) not in (bool, int, float) or not 0 <= value <= 1:
        wrong(f"samples[{i}].correct", value, "true, false or a number from 0 to 1")
    return float(value) + 0.0


def _number(value: Json, where: str) -> float:
    if type(value) is float and value - value == 0.0:  # finite, without a call: the common case
        return value + 0.0  # SQLite keeps no negative zero
    if type(value) not in (int, float) or not _finite(value):
        wrong(where, value, "a finite number")
    return float(value) + 0.0


def _finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def _whole(value: Json, where: str, limit: int = _WHOLE_LIMIT) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value < limit:
        wrong(where, value, "a whole number of at least 0" if limit == _WHOLE_LIMIT else f"0 to {limit - 1}")
    return value


def _text(value: Json, where: str) -> str | None:
    if value is not None and type(value) is not str:
        wrong(where, value, "a string")
    return value


def _answer(value: Json, where: str, *, exact: bool) -> str | None:
    """A number is accepted and becomes text."""
    if type(value) in (int, float):
        if not exact and has_inexact_number(value):
            raise Inexact
        if type(value) is int or _finite(value):
            try:
                return str(value)
            except ValueError:  # more digits than Python writes
                wrong(where, value, "at most 4300 digits, or a string")
    if value is not None and type(value) is not str:
        wrong(where, value, "a string or a finite number")
    return value


def _json(value: dict[str, Any], where: str, *, exact: bool) -> str:
    try:
        inexact = has_inexact_number(value)
        if not inexact or exact:
            return canonical(value)
    except (TypeError, ValueError) as exc:
        raise unkept(value, where, exc) from exc
    raise Inexact
