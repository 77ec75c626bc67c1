"""Writes files and folders so that they appear complete or not at all, and allows one writer at a time.

Everything is written next to its destination, synced to disk and moved by one rename. So readers see either
the old or the new content, and a killed process leaves at most a hidden file or folder.

- `publish_file` for one file of any size, written by the caller; `write_files` for several small ones;
- `publish_folder` for a new folder; `replace_file` for one file in a folder that is locked;
- `lock_folder` makes a second writer wait. `lock_file` and `WriterLock` raise an error for a second writer;
  the error of `WriterLock` names the process that writes.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from adacompute.errors import NotAPool, PoolLocked, PoolNotFound

_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
# maximum length in bytes of a temporary file's name; file systems allow 255, and SQLite may append to it
_LONGEST_NAME = 255 - len("-journal")
_FOLDER_TRIES = 100  # how often to try to create a folder that other processes keep removing
_NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # errors from file systems that have no locks


@contextlib.contextmanager
def publish_file(path: Path, *, exclusive: bool = False) -> Iterator[Path]:
    """Yields a temporary path to write to; it is synced and moved to `path` on success, else removed.

    With `exclusive`, the caller must hold a lock that keeps others from writing to `path`. Otherwise each
    process has its own temporary file, and the last process to finish wins.
    """
    path = path.resolve() if path.is_symlink() else path  # replaces the link's target, and keeps the link
    if not path.parent.is_dir():
        raise PoolNotFound(f"{path}: its folder is not there; create {path.parent} first")
    remove_leftovers(path, exclusive=exclusive)
    temporary = temporary_path(path, "building") if exclusive else _process_path(path)
    _remove(temporary)
    try:
        yield temporary
        sync_path(temporary)
        temporary.replace(path)
        sync_path(path.parent)
    finally:
        _remove(temporary)


def remove_leftovers(path: Path, *, exclusive: bool = False) -> None:
    """Removes the incomplete files that killed processes of this machine left next to `path`."""
    if exclusive:
        _remove(temporary_path(path, "building"))
    with contextlib.suppress(OSError):  # ignore a folder that can't be listed or changed
        for sibling in list(path.parent.iterdir()):
            match = re.fullmatch(r".*\.(\d+)\.part", sibling.name, re.DOTALL)
            if match is None or sibling != temporary_path(path, f"{_host_label(match[1])}.part"):
                continue
            if not _is_alive(int(match[1])):
                _remove(sibling)


def _process_path(path: Path) -> Path:
    """Returns this process's own temporary path for `path`."""
    return temporary_path(path, f"{_host_label(os.getpid())}.part")


def _host_label(pid: int | str) -> str:
    """Returns the part of a temporary file's name that identifies this machine and a process."""
    return f"{os.uname().nodename}.{pid}"


def _is_alive(pid: int) -> bool:
    """Whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # the process belongs to another user
        return True
    return True


def _remove(path: Path) -> None:
    """Removes a file, and the journals that SQLite may have left beside it."""
    for suffix in _SQLITE_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


def write_files(files: Mapping[Path, bytes]) -> None:
    """Writes several files. Once all of them are on disk, moves them to their paths, in the given order.

    So if the disk is full, all old files stay as they are. The caller should lock the folder: without a lock,
    each file is still complete, but the files of two processes may mix.
    """
    folders = dict.fromkeys(path.parent for path in files)
    try:
        for path, content in files.items():
            remove_leftovers(path)
            # remove a temporary file that an older version of this package left
            temporary_path(path).unlink(missing_ok=True)
            write_synced(_process_path(path), content)
        for path in files:
            _process_path(path).replace(path)
        for folder in folders:
            with contextlib.suppress(OSError):  # some file systems can't sync a folder
                sync_path(folder)
    finally:
        for path in files:
            with contextlib.suppress(OSError):
                _process_path(path).unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Writes one file completely or not at all, and syncs its folder. The caller must lock the folder."""
    write_synced(temporary_path(path), content)
    temporary_path(path).replace(path)
    sync_path(path.parent)


@contextlib.contextmanager
def publish_folder(folder: Path) -> Iterator[Path]:
    """Yields a new hidden folder to fill; it becomes `folder` on success, else it is removed.

    The caller must sync the files in it (`write_synced`, `sync_path`). At the end, raises FileExistsError if
    `folder` contains files; an empty one is replaced.
    """
    # a random name, so that threads, processes and machines never share it
    temporary = folder.with_name(f".{secrets.token_hex(16)}.part")
    temporary.mkdir()  # not mkdtemp, which makes a folder that only its owner can read
    try:
        yield temporary
        sync_path(temporary)
        _rename_folder(temporary, folder)
        sync_path(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _rename_folder(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as exc:
        # if the target has files, the error is ENOTEMPTY, or on some systems EEXIST (FileExistsError)
        if exc.errno != errno.ENOTEMPTY:
            raise
        raise FileExistsError(errno.EEXIST, "a folder with files is already there", str(target)) from exc


def temporary_path(path: Path, label: str = "part") -> Path:
    """Returns the temporary path for `path`; if its name would be too long, the name is hashed."""
    name = f".{path.name}.{label}"
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()}.{label}"
    return path.with_name(name)


def write_synced(path: Path, content: bytes) -> None:
    """Writes and syncs a new file; replaces a file that a killed process left."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Makes sure that a file's content, or the list of names in a folder, is on disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_folder(folder: Path, *, create: bool = False, required: bool = True) -> Iterator[None]:
    """Locks a folder, so that other writers wait; `create` creates a missing folder.

    If the folder can't be locked, raises OSError, or with `required=False`, uses the folder without a lock.
    """
    descriptor = _open_locked(folder, create=create, required=required)
    try:
        yield
    finally:
        os.close(descriptor)


def _open_locked(folder: Path, *, create: bool, required: bool) -> int:
    """Opens and locks a folder; if it can't be locked and `required` is false, it is only opened."""
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            if not create:
                raise
            make_folder(folder)
            continue
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                if required:
                    raise
            if _is_current(descriptor, folder):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents, even if other processes remove them at the same time."""
    for _ in range(_FOLDER_TRIES):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return
        if os.path.lexists(folder) and not folder.is_dir():
            break
    folder.mkdir(parents=True, exist_ok=True)


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the file or folder that is open as `descriptor`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def lock_file(path: Path) -> int:
    """Opens and locks a file, which is created if missing; returns its descriptor.

    Raises BlockingIOError if another process holds the lock. The holder may remove the file before unlocking
    it; the next process then creates it again.
    """
    while True:
        descriptor, is_new = _open_or_create(path)
        try:
            _lock_open_file(descriptor, path, is_new=is_new)
            if _is_current(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous holder of the lock removed this file before we locked it


def _open_or_create(path: Path) -> tuple[int, bool]:
    """Opens a file; returns its descriptor, and whether this call created it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_EXCL, 0o666), True
    except FileExistsError:
        return os.open(path, flags, 0o666), False


def _lock_open_file(descriptor: int, path: Path, *, is_new: bool) -> None:
    """Locks the file, or raises OSError. If the file system has no locks, a new file is removed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        # remove the new lock file, because this file system doesn't support locks
        if is_new and exc.errno in _NO_LOCKS:
            with contextlib.suppress(OSError):
                path.unlink()
        raise


class WriterLock:
    """Locks a pool against other writers, from construction until `close` or the end of the process.

    The lock file `<path>.lock` contains the writer's process id, for the error that a second writer gets.
    """

    def __init__(self, path: Path) -> None:
        resolved = path.resolve()  # follow links, so that every path to a pool leads to the same lock
        if resolved.is_dir():
            raise NotAPool(f"{path}: is a folder; name a file in it, e.g. {path / 'pool.sqlite'}")
        self.path = resolved.with_name(resolved.name + ".lock")
        self._process = os.getpid()
        self._descriptor = self._acquire(path)

    def _acquire(self, pool: Path) -> int:
        try:
            descriptor = lock_file(self.path)
        except FileNotFoundError as exc:
            # the folder exists, but no file can be created in it (such as /proc)
            if self.path.parent.is_dir():
                raise PoolNotFound(f"{pool}: no file can be made there; name another folder") from exc
            raise PoolNotFound(f"{pool}: its folder is not there; create {pool.parent} first") from exc
        except BlockingIOError as exc:
            raise PoolLocked(
                f"{pool}: process {self._read_holder()} is writing to it; "
                "wait for it to end, or open it for reading"
            ) from exc
        # ignore a failure to write the process id, which is only used in messages
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{self._process}\n".encode(), 0)
        return descriptor

    def _read_holder(self) -> str:
        """Reads the process id of the lock's holder from the lock file."""
        with contextlib.suppress(OSError):
            return self.path.read_bytes()[:32].decode("ascii", "replace").strip() or "unknown"
        return "unknown"

    def close(self) -> None:
        """Removes the lock file, then releases the lock; in this order nobody can lock a removed file.

        Does nothing in a forked child, because the lock belongs to the parent.
        """
        if self._descriptor >= 0 and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1
