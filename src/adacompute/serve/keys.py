"""Who asks, by key. Knows nothing of what a key may do, nor where keys are kept."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from adacompute.config import KeyConfig
from adacompute.errors import Unauthorized
from adacompute.records import Secret

__all__ = ["Key", "Keys"]

_REMEDY = "give it as Authorization: Bearer KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One client's key."""

    name: str
    secret: Secret
    cap: float | None = None  # on its spending; None: as all keys
    operator: bool = False  # may see what is the operator's alone


class Keys:
    """All keys that are known. How long a look-up takes doesn't tell how much of a key was right."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = [(_digest(key.secret.reveal()), key) for key in keys]

    @classmethod
    def of(cls, configs: Iterable[KeyConfig]) -> Self:
        """Of settings, as `config.read_keys` gives them."""
        return cls([Key(name=c.name, secret=c.key, cap=c.cap, operator=c.operator) for c in configs])

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter([key for _, key in self._keys])

    def who(self, authorization: str | None) -> Key | None:
        """Whose key a header holds: `Bearer KEY`, or `Basic` with any user and the key as password.

        Unauthorized where it is none of them. None where there are no keys at all.
        """
        if not self._keys:
            return None
        if not authorization:
            raise Unauthorized(f"there is no key in the request; {_REMEDY}")
        given = _digest(_said(authorization))
        found = None
        for digest, key in self._keys:  # to the end: where it stops would tell which key it was
            if hmac.compare_digest(digest, given):
                found = key
        if found is None:
            raise Unauthorized(f"the key in the request is not known; {_REMEDY}")
        return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _said(authorization: str) -> str:
    """The key in a header's value."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            raise Unauthorized(f"the request's Basic authorization can't be read; {_REMEDY}") from None
    raise Unauthorized(f"the request's authorization is neither Bearer nor Basic; {_REMEDY}")
