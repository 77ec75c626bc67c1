"""Writes the ledger's changes, many in one commit. Knows nothing of caps.

A commit takes some 40 µs where the disk keeps up: less than handing it to a thread and hearing back. So the
event loop commits what came in one of its rounds itself, and a thread does all that may take long: a disk
that is slow, a file that is locked or lost, and moving the log into the file.

What can't be written is kept and tried again each second: nothing that was handed over is lost while the
process lives.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from adacompute.errors import ConfigError
from adacompute.serve.journal import Changes, Gone, Journal

__all__ = ["Scribe"]

_AGAIN = 1.0  # seconds between tries where writing fails
_SOON = 0.05  # seconds that a change waits at most which nobody waits for
_SLOW = 0.001  # seconds of a commit, beyond which it is slow
_IN_A_ROW = 4  # slow commits, after which the thread does them
_ASIDE = 10.0  # seconds that it does then
_TIDY = 1_000  # commits, after which the thread moves the log into the file
_TIDIED = Changes(notes={"tidied": "{}"})
_log = logging.getLogger(__name__)


class Scribe:
    """One file, and one thread for it. Its methods are for the event loop that made it.

    `rebuilt` is asked, in the loop, for everything where the file is gone and a new one has to be filled.
    """

    def __init__(self, journal: Journal, rebuilt: Callable[[], Changes], *, again: float = _AGAIN) -> None:
        self.trouble = ""  # why nothing can be written now; "": it can
        self._journal = journal
        self._rebuilt = rebuilt
        self._again = again
        self._loop = asyncio.get_running_loop()
        self._writing = threading.Lock()  # held by who uses the journal, and over the next three
        self._ill = False  # the last write failed
        self._commits = 0  # since the log was moved into the file
        self._slow, self._aside = 0, 0.0  # slow commits in a row; until when the thread does them
        self._lock = threading.Lock()  # over the next three
        self._changes = Changes()
        self._waiting: list[asyncio.Future[None]] = []
        self._ending = False
        self._due = False  # the loop has been told to write
        self._timer: asyncio.TimerHandle | None = None
        self._wake, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="adacompute-ledger", daemon=True)
        self._thread.start()

    def put(self, changes: Changes) -> None:
        """Hands changes over, to be written soon: with the next that is waited for."""
        with self._lock:
            self._changes.add(changes)
        if self._timer is None:
            self._timer = self._loop.call_later(_SOON, self._ring)

    def written(self, changes: Changes, *, alone: bool = False) -> "asyncio.Future[None]":
        """As `put`, with a future that ends once it is written, or with the reason why not.

        `alone`: there is nobody whose changes could be written with these.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._changes.add(changes)
            self._waiting.append(future)
        if alone:
            self._write()
        elif not self._due:  # at the end of this round: others may come till then
            self._due = True
            self._loop.call_soon(self._write)
        return future

    async def close(self) -> None:
        """Writes what is left, once more where that fails, and ends."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._ending = True
        self.trouble = f"{self._journal.path}: the gateway is closing down"
        self._end.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        for future in self._waiting:  # they came too late to be written
            if not future.done():
                future.set_exception(OSError(self.trouble))

    def _ring(self) -> None:
        self._timer = None
        if self._changes:  # else they were written meanwhile, with one that was waited for
            self._write()

    def _write(self) -> None:
        """Commits in the loop where that is quick; else the thread does."""
        self._due = False
        if not self._writing.acquire(blocking=False):
            self._wake.set()  # the thread is at it, and looks again
            return
        try:
            if not self._quick():
                self._wake.set()
        finally:
            self._writing.release()

    def _quick(self) -> bool:
        """Whether all is written. Whatever fails is left to the thread, which knows what to do about it."""
        began = time.perf_counter()
        if self._ill or self._ending or began < self._aside:
            return False
        try:
            self._journal.write(self._changes, wait=False)
        except Exception:  # noqa: BLE001 - see above
            return False
        self._changes, waiting, self._waiting = Changes(), self._waiting, []
        self._commits += 1
        self._slow = self._slow + 1 if time.perf_counter() - began > _SLOW else 0
        if self._slow >= _IN_A_ROW:  # it is the disk: a busy processor isn't slow each time
            self._slow, self._aside = 0, began + _ASIDE
        for future in waiting:
            if not future.done():
                future.set_result(None)
        return self._commits < _TIDY

    def _run(self) -> None:
        trouble = ""
        while True:
            (self._end.wait(self._again) if trouble else self._wake.wait())
            self._wake.clear()
            with self._writing:
                with self._lock:
                    changes, self._changes = self._changes, Changes()
                    waiting, self._waiting = self._waiting, []
                    ending = self._ending
                was, trouble, gone = trouble, *self._try(changes, reopen=bool(trouble))
                if trouble:
                    with self._lock:
                        changes.add(self._changes)
                        self._changes = changes
                self._ill = bool(trouble)
            if trouble != was or waiting:
                self._tell(trouble, gone, waiting)
            if ending and (was or not trouble):
                break
        if trouble:
            _log.error("%s; what was spent last is not in it", trouble)
        self._journal.close()

    def _try(self, changes: Changes, *, reopen: bool) -> tuple[str, bool]:
        """What went wrong, and whether the file has to be filled anew."""
        try:
            if reopen and self._journal.reopen() and changes.afresh is None:
                raise Gone(f"{self._journal.path}: the file is another one; it is written anew")
            self._journal.write(changes)
            self._commits += 1
            if self._commits >= _TIDY:
                self._journal.tidy()
                self._journal.write(_TIDIED)  # the first after it waits for the disk: better here
                self._commits = 0
        except (Gone, ConfigError) as exc:
            return str(exc), True
        except Exception as exc:  # noqa: BLE001 - whatever it is: closed, not open
            damaged = getattr(exc, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB")
            return f"{self._journal.path}: can't be written ({exc}); check the file and the disk", damaged
        return "", False

    def _tell(self, trouble: str, gone: bool, waiting: "list[asyncio.Future[None]]") -> None:
        try:
            self._loop.call_soon_threadsafe(self._told, trouble, gone, waiting)
        except RuntimeError:  # the loop has ended: nobody waits any more
            return

    def _told(self, trouble: str, gone: bool, waiting: "list[asyncio.Future[None]]") -> None:
        if not self._ending:
            if trouble and not self.trouble:
                _log.error("the ledger is closed: %s", trouble)
            elif self.trouble and not trouble:
                _log.warning("the ledger is open again")
            self.trouble = trouble
        if gone:
            self.put(self._rebuilt())
        for future in waiting:
            if not future.done() and trouble:
                future.set_exception(OSError(trouble))
            elif not future.done():
                future.set_result(None)
