"""Files that appear whole or not at all, and one writer at a time.

A file is written beside its place, synced to the disk and moved there, so a reader sees the old
one or the new one. `WriterLock` keeps a second writer out, across processes.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from adacompute.errors import NotAPool, PoolLocked, PoolNotFound

__all__ = ["WriterLock", "publish_file", "remove_leftovers", "sync_path"]

_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")


@contextlib.contextmanager
def publish_file(path: Path, *, exclusive: bool = False) -> Iterator[Path]:
    """A temporary path to write to; on success it is synced and moved to `path`, else it is removed.

    `exclusive`: the caller holds a lock, so nobody else writes beside the same path.
    """
    if not path.parent.is_dir():
        raise PoolNotFound(f"{path}: its folder is not there; create {path.parent} first")
    remove_leftovers(path, exclusive=exclusive)
    label = "building" if exclusive else f"{os.uname().nodename}.{os.getpid()}.part"
    temporary = path.with_name(f".{path.name}.{label}")
    _remove(temporary)
    try:
        yield temporary
        sync_path(temporary)
        temporary.replace(path)
        sync_path(path.parent)
    finally:
        _remove(temporary)


def remove_leftovers(path: Path, *, exclusive: bool = False) -> None:
    """Removes files that killed processes of this machine left half-written beside `path`."""
    if exclusive:
        _remove(path.with_name(f".{path.name}.building"))
    pattern = re.compile(re.escape(f".{path.name}.{os.uname().nodename}.") + r"(\d+)\.part")
    with contextlib.suppress(OSError):  # the folder can't be listed or changed: leave it as it is
        for sibling in list(path.parent.iterdir()):
            if (match := pattern.fullmatch(sibling.name)) and not _is_alive(int(match[1])):
                _remove(sibling)


def _is_alive(pid: int) -> bool:
    """Whether a process of this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # a process of another user
        return True
    return True


def _remove(path: Path) -> None:
    """Removes a file, and SQLite's journals beside it."""
    for suffix in _SQLITE_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


def sync_path(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WriterLock:
    """A lock file beside the pool, held from construction until `release`.

    The operating system releases it when the process dies. The file `<path>.lock` holds the writer's
    process id, for the message to a second writer.
    """

    def __init__(self, path: Path) -> None:
        resolved = path.resolve()  # one lock for a pool, whatever link or relative path leads to it
        if resolved.is_dir():
            raise NotAPool(f"{path}: is a folder; name a file in it, e.g. {path / 'pool.sqlite'}")
        self.path = resolved.with_name(resolved.name + ".lock")
        self._process = os.getpid()
        self._descriptor = self._acquire(path)

    def _acquire(self, pool: Path) -> int:
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError as exc:
                if self.path.parent.is_dir():  # such as /proc
                    raise PoolNotFound(f"{pool}: no file can be made there; name another folder") from exc
                raise PoolNotFound(f"{pool}: its folder is not there; create {pool.parent} first") from exc
            try:
                if self._try_lock(descriptor, pool):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the last holder removed the file between our open and our lock

    def _try_lock(self, descriptor: int, pool: Path) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise PoolLocked(
                f"{pool}: process {holder} is writing to it; wait for it to end, or open it for reading"
            ) from exc
        except OSError:  # a file system without locks: nobody holds the file, so remove it
            self._unlink()
            raise
        if not self._is_current(descriptor):
            return False
        with contextlib.suppress(OSError):  # only for the second writer's message: the lock works without it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{self._process}\n".encode(), 0)
        return True

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()

    def release(self) -> None:
        """Removes the lock file while still holding it, so that nobody locks a file that is about to go.

        In a forked child it does nothing: the lock belongs to the parent.
        """
        if self._descriptor >= 0 and os.getpid() == self._process:
            self._unlink()
            os.close(self._descriptor)
            self._descriptor = -1
