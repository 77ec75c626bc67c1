"""A policy as a folder: policy.json for what is read, an npz file for arrays. Knows nothing of any policy.

policy.json names the arrays file by its hash and is itself hashed, so what is read is what was written, or is
refused. It is replaced last: a reader sees the old policy or the new one, whole. No pickle, no compression:
nothing that is read runs, and nothing grows when it is read.
"""

import hashlib
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyError, PolicyInvalid
from adacompute.policies.folder import publish
from adacompute.policies.sealed import FOLDER, content_of, digest, plain_json

__all__ = ["Artefact", "read_artefact", "write_artefact"]

SCHEMA, VERSION = "adacompute.policy", 1
DOCUMENT = "policy.json"
MOST_TEXT = 8 << 20  # bytes of policy.json
MOST_BYTES = 256 << 20  # of the arrays file
MOST_ARRAYS = 1000
MOST_AXES = 8

_KINDS = {f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)} | {"|b1", "|i1", "|u1", "<f4", "<f8"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FIELDS = {"schema", "version", "kind", "adacompute", "settings", "arrays", "sha256"}
_BROKEN = (zipfile.BadZipFile, struct.error, ArithmeticError, OSError, EOFError, ValueError, RuntimeError)
_TRIES = 5  # to read a folder that is being overwritten

_Any = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Artefact:
    """What a folder holds, checked to be what was written; whether it makes sense its policy says."""

    kind: str
    settings: Mapping[str, Any] = field(repr=False)
    arrays: Mapping[str, _Any] = field(repr=False)  # read-only
    sha256: str = field(default="", repr=False)  # of all of it


def write_artefact(
    folder: Path, *, kind: str, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Writes a policy as a folder, whole or not at all; replaces a policy that is there, and nothing else."""
    ready = {name: _ready(name, array) for name, array in arrays.items()}
    packed = _packed(ready)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": kind,
        "adacompute": version("adacompute"),
        "settings": _plain(settings, "settings"),
        "arrays": {
            "sha256": hashlib.sha256(packed).hexdigest(),
            "content": [
                {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
                for name, array in ready.items()
            ],
        },
    }
    document["sha256"] = digest(document)
    text = (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
    if len(text) > MOST_TEXT or len(packed) > MOST_BYTES or len(ready) > MOST_ARRAYS:
        raise PolicyError(
            f"{folder}: {len(text):,} bytes of settings and {len(packed):,} of {len(ready)} arrays are too "
            f"many for a policy; {MOST_TEXT:,}, {MOST_BYTES:,} and {MOST_ARRAYS} are the most"
        )
    files = {_arrays_name(document): packed} if ready else {}
    publish(folder, files, last=(DOCUMENT, text), ours=_ours)


def read_artefact(folder: Path) -> Artefact:
    """What `write_artefact` wrote; PolicyInvalid, naming the file and what is wrong, for anything else."""
    path = folder / DOCUMENT
    for left in reversed(range(_TRIES)):
        text = content_of(path, MOST_TEXT)
        document = _document(text, path)
        if not document["arrays"]["content"]:
            arrays: dict[str, _Any] = {}
            break
        packed = folder / _arrays_name(document)
        try:
            arrays = _unpacked(content_of(packed, MOST_BYTES), document["arrays"], packed)
            break
        except PolicyInvalid:
            if not left or content_of(path, MOST_TEXT) == text:  # else it was replaced between the two files
                raise
    else:  # pragma: no cover - the last try breaks or raises
        raise PolicyInvalid(f"{path}: is being overwritten all the time; try again")
    return Artefact(
        kind=document["kind"], settings=document["settings"], arrays=arrays, sha256=document["sha256"]
    )


def _ready(name: object, array: npt.NDArray[Any]) -> _Any:
    """The array as it is stored: little-endian, in rows."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PolicyError(f"an array can't be named {name!r}; use letters, digits, '_', '-' and '.'")
    found = np.asarray(array)
    found = np.ascontiguousarray(found, dtype=found.dtype.newbyteorder("<")).reshape(found.shape)
    if found.dtype.str not in _KINDS or found.ndim > MOST_AXES:
        raise PolicyError(
            f"array {name!r} of {found.dtype}, {found.ndim} axes, can't be stored; give numbers or booleans"
        )
    return found


def _packed(arrays: Mapping[str, _Any]) -> bytes:
    """The npz file, the same bytes for the same arrays: no dates, no compression."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            inner = io.BytesIO()
            np.lib.format.write_array(inner, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), inner.getvalue())
    return file.getvalue()


def _plain(value: object, where: str) -> Any:  # noqa: ANN401 # it is JSON
    """The value, if JSON gives it back as it is (but for tuples, which become lists)."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, f"{where}[{i}]") for i, part in enumerate(value)]
    raise PolicyError(
        f"{where} = {value!r:.80} can't be stored; give plain data (finite numbers, text, lists)"
    )


def _arrays_name(document: Mapping[str, Any]) -> str:
    return f"arrays-{document['arrays']['sha256'][:16]}.npz"


def _ours(folder: Path) -> bool:
    """Whether a folder holds a policy, be it of another version or with damaged arrays."""
    try:
        found = plain_json(content_of(folder / DOCUMENT, MOST_TEXT), folder / DOCUMENT)
    except PolicyInvalid:
        return False
    return isinstance(found, dict) and found.get("schema") == SCHEMA


def _document(text: bytes, path: Path) -> dict[str, Any]:
    """policy.json, checked field by field."""
    found = plain_json(text, path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise PolicyInvalid(f"{path}: is no policy of adacompute's; {FOLDER}")
    written = found.get("version")
    if type(written) is int and written > VERSION:
        raise PolicyInvalid(
            f"{path}: is of format {written}, newer than this version reads ({VERSION}); upgrade adacompute"
        )
    if written != VERSION or type(written) is not int or set(found) != _FIELDS:
        raise PolicyInvalid(f"{path}: its fields are not those of format {VERSION}; save the policy again")
    if found["sha256"] != digest(found):
        raise PolicyInvalid(f"{path}: is not what was written (its hash differs); save the policy again")
    if not isinstance(found["kind"], str) or not isinstance(found["settings"], dict):
        raise PolicyInvalid(f"{path}: kind and settings are not text and a mapping; save the policy again")
    _check_listing(found["arrays"], path)
    return found


def _check_listing(listed: object, path: Path) -> None:
    """Whether what is said of the arrays can be, before any is read."""
    fine = (
        isinstance(listed, dict)
        and set(listed) == {"sha256", "content"}
        and isinstance(listed["sha256"], str)
        and _HEX.fullmatch(listed["sha256"])
        and isinstance(listed["content"], list)
        and len(listed["content"]) <= MOST_ARRAYS
        and all(map(_possible, listed["content"]))
        and len({part["name"] for part in listed["content"]}) == len(listed["content"])
        and sum(map(_size, listed["content"])) <= MOST_BYTES
    )
    if not fine:
        raise PolicyInvalid(
            f"{path}: its list of arrays can't be (names, types, shapes, sizes); save it again"
        )


def _possible(part: object) -> bool:
    return (
        isinstance(part, dict)
        and set(part) == {"name", "dtype", "shape"}
        and isinstance(part["name"], str)
        and _NAME.fullmatch(part["name"]) is not None
        and isinstance(part["dtype"], str)
        and part["dtype"] in _KINDS
        and isinstance(part["shape"], list)
        and len(part["shape"]) <= MOST_AXES
        and all(type(size) is int and 0 <= size <= MOST_BYTES for size in part["shape"])
    )


def _size(part: Mapping[str, Any]) -> int:
    return int(math.prod(part["shape"]) * np.dtype(part["dtype"]).itemsize)


def _unpacked(packed: bytes, listed: Mapping[str, Any], path: Path) -> dict[str, _Any]:
    """The arrays, if they are those that were listed."""
    if hashlib.sha256(packed).hexdigest() != listed["sha256"]:
        raise PolicyInvalid(f"{path}: is not what was written (its hash differs); save the policy again")
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            members = archive.infolist()
            if [member.filename for member in members] != [f"{p['name']}.npy" for p in listed["content"]]:
                raise PolicyInvalid(
                    f"{path}: holds other arrays than {DOCUMENT} lists; save the policy again"
                )
            return {
                part["name"]: _array(archive, member, part, path)
                for member, part in zip(members, listed["content"], strict=True)
            }
    except _BROKEN as exc:
        raise PolicyInvalid(f"{path}: can't be read as arrays ({exc}); save the policy again") from exc


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, part: Mapping[str, Any], path: Path) -> _Any:
    """One array. Its header has to be the one that numpy writes for what is listed: nothing is parsed."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > _size(part) + 4096:
        raise PolicyInvalid(f"{path}: array {part['name']!r} is larger than listed, or compressed")
    content = archive.read(member)
    start = 10 + int.from_bytes(content[8:10], "little")
    shape = tuple(part["shape"])
    header = f"{{'descr': {part['dtype']!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    fine = content[:8] == b"\x93NUMPY\x01\x00" and content[10:start].strip() == header
    if not fine or len(content) != start + _size(part):
        raise PolicyInvalid(f"{path}: array {part['name']!r} is not of the type and shape listed")
    # the copy is aligned, as numpy's own are
    found = np.frombuffer(content[start:], dtype=part["dtype"]) if _size(part) else np.zeros(0, part["dtype"])
    found = found.reshape(shape)
    found.setflags(write=False)
    return found
