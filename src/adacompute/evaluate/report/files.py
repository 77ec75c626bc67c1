"""A report's folder: it appears whole or not at all, and takes the place of a report only. Knows no HTML.

It is written beside its place first, and moved there once it is complete.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import orjson

from adacompute.errors import ReportError
from adacompute.evaluate.figures.canvas import standalone
from adacompute.evaluate.report.page import page
from adacompute.evaluate.report.plain import as_csv, as_data
from adacompute.evaluate.report.record import Report

__all__ = ["contents", "may_write", "write"]

PAGE, RESULTS, TABLES, FIGURES = "report.html", "results.json", "tables", "figures"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_ENDS = {TABLES: ".csv", FIGURES: ".svg"}


def contents(report: Report) -> dict[str, bytes]:
    """Every file of a report, by its path inside the folder."""
    for what, exhibits in (("tables", report.tables()), ("figures", report.pictures())):
        keys = [one.key for one in exhibits]
        if len(set(keys)) < len(keys) or not all(map(_NAME.fullmatch, keys)):
            raise ValueError(f"{what} have no names of their own: {sorted(keys)}")
    found = {PAGE: page(report).encode()}
    found[RESULTS] = orjson.dumps(as_data(report), option=orjson.OPT_INDENT_2) + b"\n"
    found |= {f"{TABLES}/{table.key}.csv": as_csv(table).encode() for table in report.tables()}
    found |= {
        f"{FIGURES}/{picture.key}.svg": standalone(picture.svg).encode() for picture in report.pictures()
    }
    return found


def may_write(folder: Path) -> None:
    """ReportError where something else than a report stands in that place, or nothing can be written."""
    place = folder.resolve()
    if place.is_dir():
        others = sorted(_others(place))
        if others:
            raise ReportError(
                f"{folder}: there is {others[0]!r} in it, which is no part of a report; "
                "name a new folder, or empty it first"
            )
    elif place.exists():
        raise ReportError(f"{folder}: that is a file, and a report is a folder; name another one")
    above = place.parent
    while not above.exists():
        above = above.parent
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise ReportError(f"{folder}: nothing can be written to {above}; name a folder elsewhere")


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    """Puts a report's files in their place, all at once; a report that stood there is gone."""
    may_write(folder)
    place = folder.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    new, old = (place.with_name(f".{place.name}.{os.getpid()}.{end}") for end in ("new", "old"))
    for beside in (new, old):  # of a killed process that had our number
        shutil.rmtree(beside, ignore_errors=True)
    try:
        for name, data in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        _swapped(new, place, old)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return folder / PAGE


def _swapped(new: Path, place: Path, old: Path) -> None:
    if place.exists():
        place.rename(old)
    try:
        new.rename(place)
    except BaseException:  # stopped in between, too: what stood there comes back
        with contextlib.suppress(OSError):
            old.rename(place)
        raise


def _others(place: Path) -> set[str]:
    """What is in a folder and in no report; everything, where it has no results of ours."""
    names = {one.name for one in place.iterdir()}
    if not names:
        return set()
    if not _is_results(place / RESULTS):
        return names
    others = names - {PAGE, RESULTS, TABLES, FIGURES}
    for inner, end in _ENDS.items():
        if (place / inner).is_dir():
            others |= {f"{inner}/{one.name}" for one in (place / inner).iterdir() if one.suffix != end}
    return others


def _is_results(path: Path) -> bool:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return False
    return isinstance(found, dict) and "adacompute" in found and "sections" in found
