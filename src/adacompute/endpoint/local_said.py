"""The last words of a process: a bounded tail of its stderr. Knows what llama.cpp's log lines look like."""

import os
import re
import threading
from typing import IO

__all__ = ["Said"]

_KEPT = 8_192  # bytes
_PATIENCE = 2.0  # seconds for what a dying process wrote to arrive
_STAMP = re.compile(r"^[\d.]+ [A-Z] (?:\w+ +)?\w+: ")  # 0.00.030.770 E llama_model_load: …


class Said:
    """Reads a stream to its end in a thread, so that its writer never waits; keeps the last part."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = b""
        self._reader = threading.Thread(target=self._read, daemon=True, name="said")
        self._reader.start()

    def first(self) -> str:
        """Its first line of what was kept, "" if there is none; for a process that has ended."""
        return next(iter(self._lines()), "")

    def last(self) -> str:
        """Its last line, likewise."""
        return next(reversed(self._lines()), "")

    def close(self) -> None:
        """Ends the reading; the process has ended."""
        self._reader.join(_PATIENCE)
        if not self._reader.is_alive():  # else something else still holds it open: closing would wait for it
            self._stream.close()

    def _lines(self) -> list[str]:
        self._reader.join(_PATIENCE)
        lines = self._kept.decode("utf-8", "replace").splitlines()
        return [_STAMP.sub("", line).strip() for line in lines if line.strip()]

    def _read(self) -> None:
        while piece := os.read(self._stream.fileno(), 4096):
            self._kept = (self._kept + piece)[-_KEPT:]
