"""Members of a zip archive, within bounds and never unpacked to disk. Knows nothing of what they hold."""

import io
import lzma
import struct
import zipfile
import zlib
from pathlib import Path

from adacompute.errors import NotAPool, PoolDamaged, PoolError
from adacompute.pool.faults import one_line

__all__ = ["Archive"]

MEMBER_LIMIT = 64 << 20  # bytes unpacked: one response with all that was logged of it
TOTAL_LIMIT = 16 << 30  # members are read one by one; what is kept of them is bounded where it is kept
RATIO_LIMIT = 200  # unpacked to packed: logs have 5 to 50, a bomb a thousand
FREE = 64 << 20  # bytes unpacked that need no such ratio
COUNT_LIMIT = 1_000_000
_ZSTD = 93  # inspect_ai packs so since 2026; Python's zipfile reads it from 3.14 on
# what zipfile and the decompressors raise on bytes that are no archive
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
)
_LOCAL = 30  # bytes of a member's own header, before its name


class Archive:
    """A zip file open for reading. Declared sizes are checked, then enforced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except _BROKEN as exc:
            raise NotAPool(f"{path}: is no zip archive ({one_line(exc)}); copy the log again") from exc
        try:
            self._members = {info.filename: info for info in self._zip.infolist()}
            self._check_sizes()
            self._check_names()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frees the file."""
        self._zip.close()

    def names(self) -> list[str]:
        """Members in the order of the archive's directory."""
        return list(self._members)

    def read(self, name: str) -> bytes:
        """One member, unpacked and checked against its size and checksum."""
        info = self._members[name]
        if info.flag_bits & 1:
            raise PoolError(f"{self._path}: {name} is encrypted; give a log without a password")
        if info.file_size > MEMBER_LIMIT:
            raise PoolError(
                f"{self._path}: {name} has {info.file_size} bytes; at most {MEMBER_LIMIT} are read"
            )
        try:
            data = self._unpacked(info)
        except _BROKEN as exc:
            raise PoolDamaged(
                f"{self._path}: {name} can't be unpacked ({one_line(exc)}); copy the log again"
            ) from exc
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise PoolDamaged(f"{self._path}: {name} is not what was packed; copy the log again")
        return data

    def _check_sizes(self) -> None:
        total = sum(info.file_size for info in self._members.values())
        most = min(TOTAL_LIMIT, max(FREE, RATIO_LIMIT * self._path.stat().st_size))
        if len(self._members) > COUNT_LIMIT or total > most:
            raise PoolError(
                f"{self._path}: holds {len(self._members)} members of {total} bytes, "
                "more than a log of its size has; check its origin"
            )

    def _check_names(self) -> None:
        """A name that differs between directory and member would hide the member."""
        with self._path.open("rb") as raw:
            for name, info in self._members.items():
                raw.seek(max(0, info.header_offset))
                header = raw.read(_LOCAL)
                stored = raw.read(int.from_bytes(header[26:28], "little"))
                if header[:4] != b"PK\x03\x04" or stored.decode("utf-8", "replace") != info.orig_filename:
                    raise PoolDamaged(f"{self._path}: {name!r} is not where it should be; copy the log again")

    def _unpacked(self, info: zipfile.ZipInfo) -> bytes:
        bound = info.file_size + 1  # one more would show a member that lies about its size
        if info.compress_type != _ZSTD:
            with self._zip.open(info) as member:
                return member.read(bound)
        import pyarrow as pa

        with self._path.open("rb") as raw:
            raw.seek(info.header_offset)
            header = raw.read(_LOCAL)
            if len(header) < _LOCAL or header[:4] != b"PK\x03\x04":
                raise zipfile.BadZipFile("bad header")
            raw.seek(
                int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR
            )
            packed = raw.read(info.compress_size)
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            return bytes(stream.read(bound))
