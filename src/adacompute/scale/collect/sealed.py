"""A key on its way to workers, in two halves. Doesn't know what it opens.

What Ray gets is the key under a pad of random bytes; the pad lies in a file that only its owner may read,
beside the shards. So no log, dashboard, argument or object store of Ray's holds the key, nor does the disk.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from adacompute.errors import EngineUnavailable
from adacompute.records import Secret

__all__ = ["Sealed", "seal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A key that can be sent; worthless without the pad."""

    pad: Path
    under: bytes = field(repr=False)

    def open(self) -> Secret:
        """The key, where the pad can be read."""
        try:
            pad = self.pad.read_bytes()
        except OSError as exc:
            raise EngineUnavailable(
                f"{self.pad}: a worker can't read it ({exc.strerror or exc}); all workers need the pool's "
                "folder under the same path, and the same user"
            ) from exc
        return Secret(bytes(one ^ other for one, other in zip(self.under, pad, strict=True)).decode())


def seal(key: Secret | None, pad: Path) -> Sealed | None:
    """A key to be sent; its pad is written, and is to be removed by whoever asked."""
    if key is None:
        return None
    plain = key.reveal().encode()
    random = os.urandom(len(plain))
    pad.unlink(missing_ok=True)
    with os.fdopen(os.open(pad, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(random)
    return Sealed(pad=pad, under=bytes(one ^ other for one, other in zip(plain, random, strict=True)))
