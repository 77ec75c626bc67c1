"""One writer at a time: a lock file beside the pool. Knows nothing of SQLite."""

import contextlib
import fcntl
import os
from pathlib import Path

from adacompute.errors import NotAPool, PoolLocked, PoolNotFound

__all__ = ["WriterLock"]


class WriterLock:
    """Held from construction until `release`; the operating system releases it when the process dies.

    The file `<path>.lock` holds the writer's process id, for the message to whoever comes second.
    """

    def __init__(self, path: Path) -> None:
        real = path.resolve()  # one lock for a pool, under whatever name it is reached
        if real.is_dir():
            raise NotAPool(f"{path}: is a folder; name a file in it, e.g. {path / 'pool.sqlite'}")
        self.path = real.with_name(real.name + ".lock")
        self._process = os.getpid()
        self._descriptor = self._take(path)

    def _take(self, pool: Path) -> int:
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError as exc:
                if self.path.parent.is_dir():  # such as /proc
                    raise PoolNotFound(f"{pool}: no file can be made there; name another folder") from exc
                raise PoolNotFound(f"{pool}: its folder is not there; create {pool.parent} first") from exc
            try:
                if self._locked(descriptor, pool):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the last holder removed the file between our open and our lock

    def _locked(self, descriptor: int, pool: Path) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise PoolLocked(
                f"{pool}: process {holder} is writing to it; wait for it to end, or open it for reading"
            ) from exc
        except OSError:  # a file system without locks: nobody holds one, so the file is only litter
            self._unlink()
            raise
        if not self._is_current(descriptor):
            return False
        with contextlib.suppress(OSError):  # a courtesy to whoever comes second: the lock holds without it
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
        """Removes the file while still holding it, so that nobody locks a file that is going.

        In a forked child it does nothing: the lock is the parent's.
        """
        if self._descriptor >= 0 and os.getpid() == self._process:
            self._unlink()
            os.close(self._descriptor)
            self._descriptor = -1
