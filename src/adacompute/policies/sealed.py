"""JSON files that carry their own hash, read with care. Knows nothing of what they hold."""

import hashlib
import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from adacompute.errors import PolicyInvalid

__all__ = ["content_of", "digest", "plain_json"]

FOLDER, AGAIN = "give a folder that `adacompute fit` or `policy.save` wrote", "save the policy again"


def digest(document: Mapping[str, Any]) -> str:
    """The hash of everything in a document but its own "sha256"."""
    rest = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def content_of(path: Path, most: int, *, remedy: str = FOLDER) -> bytes:
    """A plain file's content, if it isn't larger than anything we write."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise PolicyInvalid(f"{path}: is no plain file; {remedy}")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError as exc:
        raise PolicyInvalid(f"{path}: is not there; {remedy}") from exc
    except (OSError, ValueError) as exc:  # ValueError: a null character in the path
        raise PolicyInvalid(f"{path}: can't be read: {exc}") from exc
    if len(content) > most:
        raise PolicyInvalid(f"{path}: is larger than any policy's ({most:,} bytes); {remedy}")
    return content


def plain_json(text: bytes, path: Path, *, remedy: str = AGAIN) -> object:
    """JSON without NaN, infinities and keys that are there twice; PolicyInvalid for anything else."""

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number")

    def finite(digits: str) -> float:
        return float(digits) if math.isfinite(float(digits)) else constant(digits)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) != len(pairs):
            raise ValueError("a key is there twice")
        return found

    try:
        return json.loads(text.decode(), parse_constant=constant, parse_float=finite, object_pairs_hook=once)
    except (ValueError, RecursionError) as exc:  # JSON and UTF-8 errors are ValueErrors
        raise PolicyInvalid(f"{path}: is not whole JSON ({exc}); {remedy}") from exc
