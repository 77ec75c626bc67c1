"""Where files go: what can be written is known before the work, and each file is whole. Knows no report.

A file is written beside its place and moved there, so whoever looks sees the old one or the new one.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from adacompute.errors import ReportError
from adacompute.pool.publish import sync

__all__ = ["alone", "beside", "may_hold", "put", "tidied"]

_LONG = 240  # bytes of a name, to which a few are added; file systems take 255
_TRIES = 100  # to make a folder that others remove


def may_hold(folder: Path) -> None:
    """ReportError where no file can be made in that folder; it is made for the trial, and leaves nothing."""
    with alone(folder):
        trial = folder / f".{secrets.token_hex(16)}.trial"
        try:
            trial.touch(exist_ok=False)
        finally:
            with contextlib.suppress(OSError):
                trial.unlink()


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One writer to a folder at a time: the second waits. The folder is made; an empty one doesn't stay."""
    with _named(folder), _made(folder):
        descriptor = _locked(folder)
        try:
            yield
        finally:
            os.close(descriptor)


def _locked(folder: Path) -> int:
    """A descriptor of the folder, locked; made anew where another writer has just removed it, empty."""
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            _make(folder)
            continue
        with contextlib.suppress(OSError):  # a file system without locks: then without
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(folder.stat(), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)


def _make(folder: Path) -> None:
    """The folder, and those above it, whoever removes them at the same time."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return
        if os.path.lexists(folder) and not folder.is_dir():
            break
    folder.mkdir(parents=True, exist_ok=True)


def put(files: Mapping[Path, bytes]) -> None:
    """Files in their places, in this order. What has no room fails before the first one is moved."""
    with contextlib.ExitStack() as made:
        for folder in dict.fromkeys(path.parent for path in files):
            made.enter_context(_made(folder))
        try:
            for path, data in files.items():
                tidied(path)
                with beside(path).open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            for path in files:
                beside(path).replace(path)
            for folder in dict.fromkeys(path.parent for path in files):
                with contextlib.suppress(OSError):  # some file systems can't, for a folder
                    sync(folder)
        finally:
            for path in files:
                tidied(path)


def beside(path: Path) -> Path:
    """Where a file is written before it is moved; that has a name too where its own is as long as can be."""
    name = path.name if len(path.name.encode("utf-8", "surrogateescape")) <= _LONG else _digest(path.name)
    return path.with_name(f".{name}.part")


def tidied(path: Path) -> None:
    """Removes what a killed process left beside a file."""
    with contextlib.suppress(OSError):
        beside(path).unlink()


@contextlib.contextmanager
def _named(place: Path) -> Iterator[None]:
    """Everything that the system says of a place, in one line with its name."""
    if "\0" in str(place):
        raise ReportError(f"{place}: no name can have that character in it; name another place")
    try:
        yield
    except FileExistsError as exc:
        raise ReportError(f"{place}: something else than a folder stands there; name another one") from exc
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise ReportError(f"{place}: can't be written: {why}; make room, or name a place elsewhere") from exc


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder, with those above it; those that were made here, and are empty at the end, go again."""
    missing: list[Path] = []
    above = folder
    while not os.path.lexists(above) and above != above.parent:
        missing.append(above)
        above = above.parent
    _make(folder)
    try:
        yield
    finally:
        for each in missing:  # the innermost first
            with contextlib.suppress(OSError):
                _removed(each)


def _removed(folder: Path) -> None:
    """Removes an empty folder that nobody writes to; OSError where it isn't, or somebody does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.rmdir()
    finally:
        os.close(descriptor)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
