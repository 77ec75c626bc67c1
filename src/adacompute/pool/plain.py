"""Records as the plain data of a pool file, to go through the same check. Knows nothing of SQLite."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from adacompute.pool.content import DEPTH_LIMIT, Json
from adacompute.pool.flaw import Flaw, shown
from adacompute.pool.shape import INDEX_LIMIT, LINE_KEYS, SAMPLE_KEYS, SampleRow, read_parameters, read_sample
from adacompute.records import Failure, Problem, Sample

__all__ = ["plain_failure", "plain_parameters", "plain_problem", "plain_sample"]


def plain_problem(problem: Problem) -> dict[str, Any]:
    """A problem as the line of a pool file, without samples."""
    fields = {name: getattr(problem, name) for name in ("id", "question", "gold", "subject", "level")}
    given = {name: value for name, value in fields.items() if value is not None}
    return given | _extra(problem.extra, known=LINE_KEYS, given=given)


def plain_sample(index: int, sample: Sample) -> SampleRow:
    """A sample's checked row; no answer beside a text is an answer to be extracted."""
    if type(index) is not int or not 0 <= index < INDEX_LIMIT:
        raise Flaw(f"sample index {shown(index)} can't be used; give a whole number of at least 0")
    if sample.extra.get("index", index) != index:
        raise Flaw(f"extra holds 'index' {shown(sample.extra['index'])} in sample {index}; leave it out")
    given = {name: value for name in SAMPLE_KEYS if (value := getattr(sample, name)) is not None}
    line = given | _extra(sample.extra, known=SAMPLE_KEYS, given=given)
    try:
        row = read_sample(index, line, exact=True)
    except Flaw as exc:
        raise Flaw(str(exc).replace("samples[", "sample[", 1)) from exc
    return (index, *row[1:])


def plain_failure(failure: Failure) -> dict[str, Any]:
    """A failure as in a pool file."""
    return {name: value for name, value in asdict(failure).items() if value is not None}


def plain_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parameters as plain JSON data, checked."""
    plain = _plain(dict(parameters or {}), "parameters")
    return read_parameters(plain, exact=True)


def _extra(extra: Mapping[str, Any], *, known: frozenset[str], given: Mapping[str, Any]) -> dict[str, Any]:
    for name in extra:
        if name in known and (extra[name] is not None or name in given):
            raise Flaw(f"extra holds {name!r}, which is a field of its own; give it there")
    return _plain(dict(extra), "extra")  # type: ignore[no-any-return]


def _plain(value: Json, where: str, depth: int = 0) -> Json:
    """JSON data of mappings and sequences; other types pass, and are refused when written as JSON."""
    if depth >= DEPTH_LIMIT and isinstance(value, Mapping | list | tuple):
        raise Flaw(f"{where} is nested deeper than {DEPTH_LIMIT} levels; give flatter data")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Flaw(f"{where} has the key {shown(key)}; give strings as keys")
        return {key: _plain(v, where, depth + 1) for key, v in value.items()}
    return [_plain(v, where, depth + 1) for v in value] if isinstance(value, list | tuple) else value
