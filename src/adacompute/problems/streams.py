"""Files, pipes and standard input as bytes, unpacked, read once. Knows nothing of what the bytes mean."""

import errno
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from adacompute.errors import ProblemsInvalid

__all__ = ["LINE_LIMIT", "STDIN", "begins_list", "decoded", "os_errors", "raw_lines", "unpacked", "whole"]

STDIN = "-"
LINE_LIMIT = 64 << 20  # bytes; a pool file's line holds one problem with all its samples
WHOLE_LIMIT = 1 << 30  # bytes of a file that has to be held at once
_BUFFER = 1 << 20
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16


@contextmanager
def os_errors(path: str | Path) -> Iterator[None]:
    """What the file system refuses inside becomes ours, naming `path`."""
    try:
        yield
    except FileNotFoundError as exc:
        raise ProblemsInvalid(f"{path}: there is no such file; check the path") from exc
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise ProblemsInvalid(f"{path}: the gzip data is cut off or corrupt ({exc}); copy it again") from exc
    except BrokenPipeError:  # of whom we print to
        raise
    except OSError as exc:
        if exc.errno == errno.EISDIR:
            raise ProblemsInvalid(f"{path}: is a folder; give a file") from exc
        raise ProblemsInvalid(
            f"{path}: can't be read ({exc.strerror or exc}); check the path and its permissions"
        ) from exc


@contextmanager
def unpacked(path: str | Path) -> Iterator[IO[bytes]]:
    """A file, a pipe or `-` (standard input) from its beginning; gzip is seen by its first bytes."""
    with os_errors(path):
        if str(path) == STDIN:
            if sys.stdin is None:
                raise ProblemsInvalid("-: there is no standard input here; give a file")
            yield _unzipped(sys.stdin.buffer)  # not ours to close
            return
        with Path(path).open("rb", buffering=_BUFFER) as raw:
            yield _unzipped(raw)


def raw_lines(stream: IO[bytes], place: str | Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, with their ends, without a byte order mark; a huge one is refused."""
    number = 0
    while line := stream.readline(LINE_LIMIT + 1):
        number += 1
        if len(line) > LINE_LIMIT:
            raise ProblemsInvalid(f"{place}: line {number} is longer than {LINE_LIMIT} bytes; split it")
        if number == 1:
            line = _begun(line, place)
        yield number, line


def _begun(line: bytes, place: str | Path) -> bytes:
    if line.startswith(_WIDE) or b"\0\0" in (line[:4:2], line[1:4:2]):  # every other byte is zero
        raise ProblemsInvalid(f"{place}: line 1 is not UTF-8 but UTF-16; save the file as UTF-8")
    return line.removeprefix(_BOM)


def whole(stream: IO[bytes], place: str | Path) -> bytes:
    """All there is, without a byte order mark."""
    data = stream.read(WHOLE_LIMIT + 1)
    if len(data) > WHOLE_LIMIT:
        raise ProblemsInvalid(f"{place}: is longer than {WHOLE_LIMIT} bytes; give JSON lines (.jsonl)")
    return _begun(data, place)


def begins_list(stream: IO[bytes]) -> bool:
    """Whether the next bytes begin a JSON list, looked at and not taken; False where only blanks show."""
    return cast("io.BufferedReader", stream).peek(64).removeprefix(_BOM).lstrip()[:1] == b"["


def decoded(line: bytes, place: str) -> str:
    """Text of UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ProblemsInvalid(
            f"{place} is not UTF-8 at byte {exc.start + 1} ({line[exc.start : exc.start + 1]!r}); "
            "save the file as UTF-8"
        ) from exc


def _unzipped(raw: IO[bytes]) -> IO[bytes]:
    # a pipe can't be wound back, so the first bytes are looked at, not taken
    if not cast("io.BufferedReader", raw).peek(2).startswith(_GZIP):
        return raw
    # GzipFile's own lines are slow: let a buffer cut them
    return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=raw)), _BUFFER)
