"""A report's folder: each file is the old one or the new one, never half of one. Knows no HTML.

results.json names the files of a report, so that a later one knows what it replaces: other files stay.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from adacompute.errors import ReportError
from adacompute.evaluate.figures.canvas import standalone
from adacompute.evaluate.report.page import page
from adacompute.evaluate.report.places import alone, may_hold, put, tidied
from adacompute.evaluate.report.plain import as_csv, as_data
from adacompute.evaluate.report.record import Report

__all__ = ["RESULTS", "contents", "may_write", "write"]

PAGE, RESULTS, TABLES, FIGURES = "report.html", "results.json", "tables", "figures"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_OURS = re.compile(rf"{TABLES}/{_NAME.pattern}\.csv|{FIGURES}/{_NAME.pattern}\.svg")
_LITTER = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\..*\.part")  # of file browsers, and of a killed us

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # names come from pools


def contents(report: Report) -> dict[str, bytes]:
    """Every file of a report, by its path inside the folder."""
    for what, exhibits in (("tables", report.tables()), ("figures", report.pictures())):
        keys = [one.key for one in exhibits]
        if len(set(keys)) < len(keys) or not all(map(_NAME.fullmatch, keys)):
            raise ValueError(f"{what} have no names of their own: {sorted(keys)}")
    found = {f"{TABLES}/{table.key}.csv": as_csv(table).encode() for table in report.tables()}
    for picture in report.pictures():
        found[f"{FIGURES}/{picture.key}.svg"] = _NOT_XML.sub("", standalone(picture.svg)).encode()
    found[PAGE] = page(report).encode()
    return {RESULTS: _results(as_data(report), [RESULTS, *found]), **found}


def may_write(folder: Path) -> None:
    """ReportError where a file that is no report's stands in the way, or nothing can be written."""
    may_hold(folder)
    _check(folder)


def _check(folder: Path) -> None:
    """ReportError where a file that is no report's stands in the way."""
    if _results_at(folder) is not None:
        return
    in_the_way = [name for name in (PAGE, RESULTS) if _is_there(folder / name)]
    for inner in (TABLES, FIGURES):
        if (folder / inner).is_dir():
            names = sorted(one.name for one in (folder / inner).iterdir() if not _LITTER.fullmatch(one.name))
            in_the_way += [f"{inner}/{name}" for name in names]
        elif _is_there(folder / inner):
            in_the_way.append(inner)
    if in_the_way:
        raise ReportError(
            f"{folder}: there is {in_the_way[0]!r} in it, which is no part of a report; "
            "name another folder, or move it away first"
        )


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    """Puts a report's files in their place; those of a report that stood there go, all others stay.

    Stopped on the way, each file is the old or the new one, and writing again mends it: results.json comes
    first, and names the files of both until those of the old report are gone.
    """
    with alone(folder):
        _check(folder)  # under the lock: else the halves of another writer's first report are in the way
        old = (_results_at(folder) or {}).get("files")
        names = [name for name in old if _OURS.fullmatch(str(name))] if isinstance(old, list) else []
        stale = sorted(set(names) - set(files))
        order = sorted(files, key=lambda name: (name == PAGE, name != RESULTS))
        first = {name: files[name] for name in order}
        if stale:
            first[RESULTS] = _results(orjson.loads(files[RESULTS]), [*files, *stale])
        put({folder / name: data for name, data in first.items()})
        for name in stale:
            tidied(folder / name)
            (folder / name).unlink(missing_ok=True)
        if stale:
            put({folder / RESULTS: files[RESULTS]})
        for inner in (TABLES, FIGURES):
            with contextlib.suppress(OSError):  # one that has none any more
                (folder / inner).rmdir()
    return folder / PAGE


def _results(data: Mapping[str, Any], names: list[str]) -> bytes:
    return orjson.dumps({**data, "files": sorted(names)}, option=orjson.OPT_INDENT_2) + b"\n"


def _results_at(folder: Path) -> dict[str, Any] | None:
    """What results.json of a report says; None where there is none of ours."""
    try:
        found = orjson.loads((folder / RESULTS).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) and "adacompute" in found and "sections" in found else None


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()
