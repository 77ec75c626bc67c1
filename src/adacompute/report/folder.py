"""Writes a report into a folder so that each file is always the old or the new version, never a part of one.

results.json lists a report's files, so that a later report knows which ones to remove. Other files stay.
"""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from adacompute import atomic
from adacompute.atomic import make_folder, remove_leftovers, write_files
from adacompute.errors import ReportError
from adacompute.report.canvas import to_standalone_svg
from adacompute.report.document import Report, to_csv, to_data
from adacompute.report.page import render_page

PAGE, RESULTS, TABLES, FIGURES = "report.html", "results.json", "tables", "figures"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_REPORT_FILE = re.compile(rf"{TABLES}/{_NAME.pattern}\.csv|{FIGURES}/{_NAME.pattern}\.svg")
# names of files that file browsers or killed runs leave behind
_IGNORED_FILE = re.compile(r"\.DS_Store|Thumbs\.db|desktop\.ini|\..*\.part")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML doesn't allow


def check_writable(folder: Path) -> None:
    """Raises ReportError if no file can be created in the folder; leaves no files or folders behind."""
    with lock_report_folder(folder):
        trial = folder / f".{secrets.token_hex(16)}.trial"
        try:
            trial.touch(exist_ok=False)
        finally:
            with contextlib.suppress(OSError):
                trial.unlink()


@contextlib.contextmanager
def lock_report_folder(folder: Path) -> Iterator[None]:
    """Locks the folder, so that other writers wait, if its file system has locks.

    Creates a missing folder, and removes it at the end if it is empty. Turns OSErrors into ReportErrors.
    """
    with (
        _report_os_errors(folder),
        _with_folder(folder),
        atomic.lock_folder(folder, create=True, required=False),
    ):
        yield


def publish_files(files: Mapping[Path, bytes]) -> None:
    """Writes all files under temporary names first, then moves them into place in the given order.

    So if the disk is full, all old files stay as they are.
    """
    with contextlib.ExitStack() as folders:
        for folder in dict.fromkeys(path.parent for path in files):
            folders.enter_context(_with_folder(folder))
        write_files(files)


@contextlib.contextmanager
def _report_os_errors(folder: Path) -> Iterator[None]:
    """Turns operating system errors into a ReportError with a one-line message that names the folder."""
    if "\0" in str(folder):
        raise ReportError(f"{folder}: a name can't have a zero character in it; name another place")
    try:
        yield
    except FileExistsError as exc:
        raise ReportError(f"{folder}: is there already, but not as a folder; name another one") from exc
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise ReportError(f"{folder}: can't be written: {why}; make room, or name a place elsewhere") from exc


@contextlib.contextmanager
def _with_folder(folder: Path) -> Iterator[None]:
    """Creates a folder and its parents; at the end, removes those that it created and that are empty."""
    missing: list[Path] = []
    parent = folder
    while not os.path.lexists(parent) and parent != parent.parent:
        missing.append(parent)
        parent = parent.parent
    make_folder(folder)
    try:
        yield
    finally:
        for created in missing:  # begins with the innermost folder
            with contextlib.suppress(OSError):
                _remove_if_idle(created)


def _remove_if_idle(folder: Path) -> None:
    """Removes a folder; raises OSError if it isn't empty or is locked by a writer."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.rmdir()
    finally:
        os.close(descriptor)


def render_files(report: Report) -> dict[str, bytes]:
    """Returns the contents of all files of a report, by path inside the report's folder."""
    for kind, exhibits in (("tables", report.tables()), ("figures", report.pictures())):
        keys = [exhibit.key for exhibit in exhibits]
        if len(set(keys)) < len(keys) or not all(map(_NAME.fullmatch, keys)):
            raise ValueError(f"{kind} have no names of their own: {sorted(keys)}")
    files = {f"{TABLES}/{table.key}.csv": to_csv(table).encode() for table in report.tables()}
    for picture in report.pictures():
        files[f"{FIGURES}/{picture.key}.svg"] = _NOT_XML.sub("", to_standalone_svg(picture.svg)).encode()
    files[PAGE] = render_page(report).encode()
    return {RESULTS: _results_json(to_data(report), [RESULTS, *files]), **files}


def check_report_folder(folder: Path) -> None:
    """Raises ReportError if the folder isn't writable or has files that a report mustn't replace."""
    check_writable(folder)
    _check_foreign_files(folder)


def _check_foreign_files(folder: Path) -> None:
    """Raises ReportError if a report would replace files that no report wrote."""
    if _read_results(folder) is not None:
        return
    foreign = [name for name in (PAGE, RESULTS) if os.path.lexists(folder / name)]
    for inner in (TABLES, FIGURES):
        if (folder / inner).is_dir():
            names = sorted(
                file.name for file in (folder / inner).iterdir() if not _IGNORED_FILE.fullmatch(file.name)
            )
            foreign += [f"{inner}/{name}" for name in names]
        elif os.path.lexists(folder / inner):
            foreign.append(inner)
    if foreign:
        raise ReportError(
            f"{folder}: there is {foreign[0]!r} in it, which is not part of a report; "
            "name another folder, or move it away first"
        )


def write_report(files: Mapping[str, bytes], folder: Path) -> Path:
    """Writes a report's files and removes those of an earlier report; returns the path of the page.

    Until the old files are gone, results.json lists the files of both reports. So if the run is interrupted,
    the next report still removes them. Files that no report wrote stay.
    """
    with lock_report_folder(folder):
        # check inside the lock: otherwise the files of a report that is being written would count as foreign
        _check_foreign_files(folder)
        old = (_read_results(folder) or {}).get("files")
        names = [name for name in old if _REPORT_FILE.fullmatch(str(name))] if isinstance(old, list) else []
        stale = sorted(set(names) - set(files))
        order = sorted(files, key=lambda name: (name == PAGE, name != RESULTS))
        first = {name: files[name] for name in order}
        if stale:
            first[RESULTS] = _results_json(orjson.loads(files[RESULTS]), [*files, *stale])
        publish_files({folder / name: data for name, data in first.items()})
        for name in stale:
            remove_leftovers(folder / name)
            (folder / name).unlink(missing_ok=True)
        if stale:
            publish_files({folder / RESULTS: files[RESULTS]})
        for inner in (TABLES, FIGURES):
            with contextlib.suppress(OSError):  # OSError means that the folder isn't empty
                (folder / inner).rmdir()
    return folder / PAGE


def _results_json(data: Mapping[str, Any], names: list[str]) -> bytes:
    return orjson.dumps({**data, "files": sorted(names)}, option=orjson.OPT_INDENT_2) + b"\n"


def _read_results(folder: Path) -> dict[str, Any] | None:
    """Reads results.json; None if the folder has no report."""
    try:
        results = orjson.loads((folder / RESULTS).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return (
        results if isinstance(results, dict) and "adacompute" in results and "sections" in results else None
    )
