"""Files of one folder that belong together appear together. Knows nothing of what is in them."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from adacompute.errors import PolicyError

__all__ = ["publish"]

_PART = ".part"  # ends the name of what is being written


def publish(
    folder: Path, files: Mapping[str, bytes], *, last: tuple[str, bytes], ours: Callable[[Path], bool]
) -> None:
    """Writes files into a folder, `last` when the others are there for good, and removes those of before.

    Where the folder is new it appears at once. One that holds something else (`ours` says) is left alone.
    The files of before are `arrays-*.npz`.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 # resolve() would follow a link to the folder
    if not folder.parent.is_dir():
        raise PolicyError(f"{folder}: its folder is not there; create {folder.parent} first")
    if folder.exists() and not folder.is_dir():
        raise PolicyError(f"{folder}: is a file; give the name of a folder for the policy")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if not ours(folder):
                raise PolicyError(f"{folder}: holds something else than a whole policy; give another folder")
            _replace(folder, files, last)
        else:
            _appear(folder, {**files, last[0]: last[1]})
    except OSError as exc:
        raise PolicyError(
            f"{folder}: can't be written: {exc.strerror or exc}; what was there is intact"
        ) from exc


def _appear(folder: Path, files: Mapping[str, bytes]) -> None:
    """A new folder with all its files, by one rename."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}{_PART}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        for name, content in files.items():
            _write(beside / name, content)
        _sync(beside)
        beside.rename(folder)  # onto nothing, or onto an empty folder
        _sync(folder.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _replace(folder: Path, files: Mapping[str, bytes], last: tuple[str, bytes]) -> None:
    """New files beside the old ones; `last` decides which of them count; then the old ones go."""
    with _alone(folder) as descriptor:
        for name, content in [*files.items(), last]:
            _write(folder / (name + _PART), content)
            (folder / (name + _PART)).replace(folder / name)
            os.fsync(descriptor)
        for other in list(folder.iterdir()):
            old = other.name.startswith("arrays-") and other.name.endswith((".npz", ".npz" + _PART))
            if old and other.name not in files:
                other.unlink()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """One writer at a time: of two, the later one's files stay, and are whole."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
