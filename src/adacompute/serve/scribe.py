"""Writes the ledger's changes from a thread of its own, many in one commit. Knows nothing of caps.

What can't be written is kept and tried again each second: the event loop never waits for the disk, and
nothing that was handed over is lost while the process lives.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from adacompute.errors import ConfigError
from adacompute.serve.journal import Changes, Gone, Journal

__all__ = ["Scribe"]

_AGAIN = 1.0  # seconds between tries where writing fails
_log = logging.getLogger(__name__)


class Scribe:
    """One thread and one file. Its methods are for the event loop that made it.

    `rebuilt` is asked, in the loop, for everything where the file is gone and a new one has to be filled.
    """

    def __init__(self, journal: Journal, rebuilt: Callable[[], Changes], *, again: float = _AGAIN) -> None:
        self.trouble = ""  # why nothing can be written now; "": it can
        self._journal = journal
        self._rebuilt = rebuilt
        self._again = again
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # over the next three
        self._changes = Changes()
        self._waiting: list[asyncio.Future[None]] = []
        self._ending = False
        self._wake, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="adacompute-ledger", daemon=True)
        self._thread.start()

    def put(self, changes: Changes) -> None:
        """Hands changes over, to be written soon."""
        with self._lock:
            self._changes.add(changes)
        self._wake.set()

    def written(self, changes: Changes) -> "asyncio.Future[None]":
        """As `put`, with a future that ends once it is written, or with the reason why not."""
        future: asyncio.Future[None] = self._loop.create_future()
        with self._lock:
            self._changes.add(changes)
            self._waiting.append(future)
        self._wake.set()
        return future

    async def close(self) -> None:
        """Writes what is left, once more where that fails, and ends."""
        with self._lock:
            self._ending = True
        self._end.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        self.trouble = f"{self._journal.path}: the gateway is closing down"

    def _run(self) -> None:
        trouble = ""
        while True:
            (self._end.wait(self._again) if trouble else self._wake.wait())
            self._wake.clear()
            with self._lock:
                changes, self._changes = self._changes, Changes()
                waiting, self._waiting = self._waiting, []
                ending = self._ending
            was, trouble, gone = trouble, *self._try(changes, reopen=bool(trouble))
            if trouble:
                with self._lock:
                    changes.add(self._changes)
                    self._changes = changes
            if trouble != was or waiting:
                self._tell(trouble, gone, waiting)
            if ending:
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
