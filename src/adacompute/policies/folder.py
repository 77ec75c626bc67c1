"""Files of one folder that belong together appear together. Knows nothing of what is in them."""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from adacompute.errors import PolicyError
from adacompute.policies.settings import shown
from adacompute.pool.publish import sync

__all__ = ["CHART", "folder_of", "place", "publish"]

CHART = "chart.json"  # belongs to the files that it was put beside, and goes with them

_PART = ".part"  # ends the name of what is being written
_THERE = (errno.ENOTEMPTY, errno.EEXIST)  # what a rename onto a folder with files ends in


def folder_of(given: object) -> Path:
    """A folder's path; PolicyError where it can't be one's."""
    try:
        path = Path(given)  # type: ignore[arg-type]
    except TypeError as exc:
        raise PolicyError(f"{shown(given)} is no folder's path; give one, e.g. 'policy'") from exc
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass  # a lone surrogate
    raise PolicyError(f"{shown(str(path))} has a character that no path can have; give another folder")


def publish(
    folder: Path, files: Mapping[str, bytes], *, last: tuple[str, bytes], ours: Callable[[Path], bool]
) -> None:
    """Writes files into a folder, `last` when the others are there for good, and removes those of before.

    Where the folder is new it appears at once. One that holds something else (`ours` says) is left alone. Of
    several writers the last one's files stay, and are whole. The files of before are `arrays-*.npz`, and what
    `place` put beside the last. A link to a folder stays a link.
    """
    name = folder_of(folder)
    try:
        folder = _target(name)
        if (folder.is_dir() and any(folder.iterdir())) or not _appear(folder, {**files, last[0]: last[1]}):
            _replace(folder, files, last, ours)
    except OSError as exc:
        raise PolicyError(
            f"{name}: can't be written: {exc.strerror or exc}; give another folder, what was there is intact"
        ) from exc


def _target(name: Path) -> Path:
    """The folder that is meant, itself no link; PolicyError where there can be none."""
    folder = Path(os.path.abspath(name))  # noqa: PTH100 # resolve() would follow a link that leads nowhere
    folder = folder.resolve() if folder.is_symlink() and folder.is_dir() else folder
    if folder.is_symlink():
        raise PolicyError(f"{name}: is a link to no folder; remove it, or give another folder")
    if not folder.parent.is_dir():
        raise PolicyError(f"{name}: its folder is not there; create {folder.parent} first")
    if folder.exists() and not folder.is_dir():
        raise PolicyError(f"{name}: is a file; give the name of a folder for the policy")
    return folder


def _appear(folder: Path, files: Mapping[str, bytes]) -> bool:
    """A new folder with all its files, by one rename; False where there is one with files by now."""
    # a name that no other writer has, be it a thread, or a process with this one's number elsewhere
    beside = folder.with_name(f".{secrets.token_hex(16)}{_PART}")
    beside.mkdir()  # not mkdtemp's: others may read the policy, as far as the umask lets them
    try:
        for name, content in files.items():
            _write(beside / name, content)
        sync(beside)
        beside.rename(folder)  # onto nothing, or onto an empty folder
    except OSError as exc:
        if exc.errno not in _THERE:
            raise
        return False
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    sync(folder.parent)
    return True


def _replace(
    folder: Path, files: Mapping[str, bytes], last: tuple[str, bytes], ours: Callable[[Path], bool]
) -> None:
    """New files beside the old ones; `last` decides which of them count; then the old ones go."""
    with _alone(folder) as descriptor:
        if not ours(folder):
            raise PolicyError(f"{folder}: holds something else than a whole policy; give another folder")
        for name, content in [*files.items(), last]:
            _write(folder / (name + _PART), content)
            (folder / (name + _PART)).replace(folder / name)
            os.fsync(descriptor)
        for other in list(folder.iterdir()):
            old = other.name.startswith("arrays-") and other.name.endswith((".npz", ".npz" + _PART))
            if (old and other.name not in files) or other.name in (CHART, CHART + _PART):
                other.unlink()


def place(folder: Path, name: str, content: bytes, *, fits: Callable[[Path], bool]) -> bool:
    """Puts one more file beside published ones, whole or not at all; False where it doesn't fit them now."""
    try:
        with _alone(folder) as descriptor:
            if not fits(folder):
                return False
            _write(folder / (name + _PART), content)
            (folder / (name + _PART)).replace(folder / name)
            os.fsync(descriptor)
    except OSError as exc:
        raise PolicyError(
            f"{folder / name}: can't be written: {exc.strerror or exc}; what was there is intact"
        ) from exc
    return True


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
