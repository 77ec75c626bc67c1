"""Stores a policy as a folder: policy.json with the settings, and an npz file with the arrays.

policy.json contains a hash of the npz file and a hash of itself, so damage is detected on reading. It is
replaced last, so readers see either the old or the new policy. Nothing is pickled, so reading runs no code.
Nothing is compressed, so a small file can't fill the memory.
"""

import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from adacompute.atomic import lock_folder, publish_folder, replace_file, write_synced
from adacompute.errors import PolicyError, PolicyInvalid, format_value

_Array = npt.NDArray[Any]

SCHEMA, VERSION = "adacompute.policy", 1
DOCUMENT = "policy.json"
CHART_FILE = "chart.json"  # file with measurements of the policy; removed when another policy replaces it
FOLDER_REMEDY = "give a folder that `adacompute fit` or `policy.save` wrote"
SAVE_REMEDY = "save the policy again"
MAX_DOCUMENT_BYTES = 8 << 20  # maximum size of policy.json, in bytes
MAX_ARRAY_BYTES = 256 << 20  # maximum size of the npz file, in bytes
MAX_ARRAYS = 1000
MAX_AXES = 8
_DType = Literal["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f4", "<f8"]
_NAME = r"\A[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z"
# files of a previous policy, and unfinished files of a process that was killed
_REPLACED_FILE = re.compile(rf"\.?(arrays-.*\.npz|{re.escape(CHART_FILE)})(\.part)?|\.?policy\.json\.part")
_READ_ERRORS = (
    zipfile.BadZipFile,
    struct.error,
    ArithmeticError,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
)
_ATTEMPTS = 5  # maximum number of attempts to read a folder while another process overwrites it


def check_folder(value: object) -> Path:
    """Converts the value to the path of a folder; raises PolicyError if no folder can have such a path."""
    try:
        path = Path(value)  # type: ignore[arg-type]
    except TypeError as exc:
        raise PolicyError(f"{format_value(value)} is not a folder's path; give one, e.g. 'policy'") from exc
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass  # `os.fsencode` fails if the path has half of a character (an unpaired surrogate)
    raise PolicyError(f"{format_value(str(path))} has a character that no path can have; give another folder")


def publish(folder: Path, files: Mapping[str, bytes], *, last: tuple[str, bytes]) -> None:
    """Writes files to a folder, `last` after the others; removes the files of an old policy.

    A new folder appears with all files at once. An existing folder must be empty or contain a policy, whose
    `arrays-*.npz` and `chart.json` are removed. If several processes write, the folder ends up with all files
    of the last one. A link to a folder stays a link.
    """
    name = check_folder(folder)
    try:
        folder = resolve_folder(name)
        if (folder.is_dir() and any(folder.iterdir())) or not _create_folder(
            folder, {**files, last[0]: last[1]}
        ):
            _replace_files(folder, files, last)
    except OSError as exc:
        raise PolicyError(
            f"{name}: can't be written: {exc.strerror or exc}; give another folder, what was there is intact"
        ) from exc


def resolve_folder(name: Path) -> Path:
    """Makes a path absolute, and follows it if it is a link; raises PolicyError if no folder can be there."""
    folder = Path(os.path.abspath(name))  # noqa: PTH100 # resolve() would follow broken links
    folder = folder.resolve() if folder.is_symlink() and folder.is_dir() else folder
    if folder.is_symlink():
        raise PolicyError(f"{name}: is a link to no folder; remove it, or give another folder")
    if not folder.parent.is_dir():
        raise PolicyError(f"{name}: its folder is not there; create {folder.parent} first")
    if folder.exists() and not folder.is_dir():
        raise PolicyError(f"{name}: is a file; give the name of a folder for the policy")
    return folder


def _create_folder(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Creates a folder with all files at once; returns False if another process created it first."""
    try:
        with publish_folder(folder) as temporary:
            for name, content in files.items():
                write_synced(temporary / name, content)
    except FileExistsError:
        return False
    return True


def _replace_files(folder: Path, files: Mapping[str, bytes], last: tuple[str, bytes]) -> None:
    """Writes the new files, then `last`, which tells readers to use them; then removes the old files."""
    with lock_folder(folder):
        if not _is_policy_folder(folder):
            raise PolicyError(f"{folder}: holds something else than a whole policy; give another folder")
        for name, content in [*files.items(), last]:
            replace_file(folder / name, content)
        for path in list(folder.iterdir()):
            if _REPLACED_FILE.fullmatch(path.name) and path.name not in files:
                path.unlink()


def publish_beside(folder: Path, name: str, content: bytes, *, is_current: Callable[[Path], bool]) -> bool:
    """Adds a file to a folder, completely or not at all; returns False if `is_current(folder)` is false."""
    try:
        with lock_folder(folder):
            if not is_current(folder):
                return False
            replace_file(folder / name, content)
    except OSError as exc:
        raise PolicyError(
            f"{folder / name}: can't be written: {exc.strerror or exc}; what was there is intact"
        ) from exc
    return True


def compute_digest(document: Mapping[str, Any]) -> str:
    """Hashes everything in a document except its own field "sha256"."""
    content = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_content(path: Path, max_bytes: int, *, remedy: str = FOLDER_REMEDY) -> bytes:
    """Reads a file; raises PolicyInvalid if it can't be read or is larger than `max_bytes`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PolicyInvalid(f"{path}: is not a plain file; {remedy}")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError as exc:
        raise PolicyInvalid(f"{path}: is not there; {remedy}") from exc
    except (OSError, ValueError) as exc:  # ValueError: the path has a null character
        raise PolicyInvalid(f"{path}: can't be read: {exc}") from exc
    if len(content) > max_bytes:
        raise PolicyInvalid(f"{path}: is larger than any policy's ({max_bytes:,} bytes); {remedy}")
    return content


def parse_document(
    text: bytes, path: Path, schema: str, version: int, *, remedy: str, foreign: str
) -> dict[str, Any]:
    """Parses a stored document; raises PolicyInvalid if its schema, version or hash is wrong.

    Error messages end with advice: `foreign` for a document of another schema, `remedy` for a damaged one.
    """
    document = parse_json(text, path, remedy=remedy)
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise PolicyInvalid(f"{path}: is not an {schema.replace('.', ' ')}; {foreign}")
    written = document.get("version")
    if isinstance(written, int) and written > version:
        raise PolicyInvalid(
            f"{path}: is of format {written}, newer than this version reads ({version}); upgrade adacompute"
        )
    if document.get("sha256") != compute_digest(document):
        raise PolicyInvalid(f"{path}: is not what was written (its hash differs); {remedy}")
    return document


def parse_json(text: bytes, path: Path, *, remedy: str = SAVE_REMEDY) -> object:
    """Parses JSON; raises PolicyInvalid if it isn't valid or has NaN, infinity or a duplicate key."""

    def reject_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a number")

    def parse_float(digits: str) -> float:
        return float(digits) if math.isfinite(float(digits)) else reject_constant(digits)

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(mapping := dict(pairs)) != len(pairs):
            raise ValueError("a key is there twice")
        return mapping

    try:
        return json.loads(
            text.decode(),
            parse_constant=reject_constant,
            parse_float=parse_float,
            object_pairs_hook=build_object,
        )
    except (ValueError, RecursionError) as exc:  # ValueError: invalid JSON or UTF-8
        raise PolicyInvalid(f"{path}: is not whole JSON ({exc}); {remedy}") from exc


class _ArrayEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name, type and shape of a stored array, as listed in policy.json."""

    name: Annotated[str, Meta(pattern=_NAME)]
    dtype: _DType
    shape: Annotated[tuple[Annotated[int, Meta(ge=0, le=MAX_ARRAY_BYTES)], ...], Meta(max_length=MAX_AXES)]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class _Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list of a policy's arrays in policy.json, which is checked before any array is read."""

    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # hash of the npz file
    content: Annotated[tuple[_ArrayEntry, ...], Meta(max_length=MAX_ARRAYS)]

    def __post_init__(self) -> None:
        if len({entry.name for entry in self.content}) < len(self.content):
            raise ValueError("a name is there twice")
        if sum(entry.nbytes for entry in self.content) > MAX_ARRAY_BYTES:
            raise ValueError("arrays are larger than any policy's")


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of policy.json."""

    schema: str
    version: int
    kind: str
    adacompute: str  # version of this package that saved the policy
    settings: dict[str, Any]
    arrays: _Listing
    sha256: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Artefact:
    """A policy as stored in a folder. Its hashes have been checked, but its values haven't."""

    kind: str
    settings: Mapping[str, Any] = field(repr=False)
    arrays: Mapping[str, _Array] = field(repr=False)  # read-only arrays, by name
    sha256: str = field(default="", repr=False)  # hash of the policy's stored content
    model: str | None = None  # model whose samples the policy was fitted on; None if unknown


def write_artefact(
    folder: Path,
    *,
    kind: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    model: str | None = None,
) -> None:
    """Writes a policy to a folder, completely or not at all. Overwrites nothing but an older policy."""
    from importlib.metadata import version  # imported here because it is slow, and only saving needs it

    prepared = {name: _prepare_array(name, array) for name, array in arrays.items()}
    npz = _pack_arrays(prepared)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": kind,
        "adacompute": version("adacompute"),
        "settings": _to_plain(settings, "settings"),
        "arrays": {
            "sha256": hashlib.sha256(npz).hexdigest(),
            "content": [
                {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
                for name, array in prepared.items()
            ],
        },
    }
    if model is not None:
        document["model"] = model
    document["sha256"] = compute_digest(document)
    text = (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
    if len(text) > MAX_DOCUMENT_BYTES or len(npz) > MAX_ARRAY_BYTES or len(prepared) > MAX_ARRAYS:
        raise PolicyError(
            f"{folder}: {len(text):,} bytes of settings and {len(npz):,} of {len(prepared)} arrays are too "
            f"many for a policy; {MAX_DOCUMENT_BYTES:,}, {MAX_ARRAY_BYTES:,} and {MAX_ARRAYS} are the most"
        )
    files = {_arrays_file_name(document["arrays"]["sha256"]): npz} if prepared else {}
    publish(folder, files, last=(DOCUMENT, text))


def read_artefact(folder: Path, *, attempts: int = _ATTEMPTS) -> Artefact:
    """Reads a policy that `write_artefact` wrote; raises PolicyInvalid, naming the file, if that fails."""
    document = _read_document(folder)
    arrays: dict[str, _Array] = {}
    if document.arrays.content:
        path = folder / _arrays_file_name(document.arrays.sha256)
        try:
            arrays = _unpack_arrays(read_content(path, MAX_ARRAY_BYTES), document.arrays, path)
        except PolicyInvalid:
            # tries again, but only if another process replaced policy.json after it was read here
            if attempts <= 1 or read_hash(folder) == document.sha256:
                raise
            return read_artefact(folder, attempts=attempts - 1)
    return Artefact(
        kind=document.kind,
        settings=document.settings,
        arrays=arrays,
        sha256=document.sha256,
        model=document.model,
    )


def read_hash(folder: Path) -> str:
    """Reads the hash of the policy in a folder, without reading its arrays."""
    return _read_document(folder).sha256


def _prepare_array(name: object, array: npt.NDArray[Any]) -> _Array:
    """Converts an array to the form in which it is stored: little-endian, in C order."""
    if not isinstance(name, str) or not re.search(_NAME, name):
        raise PolicyError(f"an array can't be named {name!r}; use letters, digits, '_', '-' and '.'")
    prepared = np.asarray(array)
    prepared = np.ascontiguousarray(prepared, dtype=prepared.dtype.newbyteorder("<")).reshape(prepared.shape)
    if prepared.dtype.str not in get_args(_DType) or prepared.ndim > MAX_AXES:
        raise PolicyError(
            f"array {name!r} of {prepared.dtype}, {prepared.ndim} axes, can't be stored; "
            "give numbers or booleans"
        )
    return prepared


def _pack_arrays(arrays: Mapping[str, _Array]) -> bytes:
    """Packs arrays into an uncompressed npz file; it has no dates, so the same arrays give the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            inner = io.BytesIO()
            np.lib.format.write_array(inner, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), inner.getvalue())
    return file.getvalue()


def _to_plain(value: object, where: str) -> Any:  # noqa: ANN401 # any JSON value
    """Converts a value to plain JSON data (tuples become lists); raises PolicyError if it can't be stored."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_plain(part, f"{where}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(part, f"{where}[{i}]") for i, part in enumerate(value)]
    raise PolicyError(
        f"{where} = {value!r:.80} can't be stored; give plain data (finite numbers, text, lists)"
    )


def _arrays_file_name(sha256: str) -> str:
    return f"arrays-{sha256[:16]}.npz"


def _is_policy_folder(folder: Path) -> bool:
    """Whether a folder contains a policy, even of another version or with damaged arrays."""
    try:
        document = parse_json(read_content(folder / DOCUMENT, MAX_DOCUMENT_BYTES), folder / DOCUMENT)
    except PolicyInvalid:
        return False
    return isinstance(document, dict) and document.get("schema") == SCHEMA


def _read_document(folder: Path) -> _Document:
    """Reads policy.json and checks all its fields."""
    path = folder / DOCUMENT
    text = read_content(path, MAX_DOCUMENT_BYTES)
    document = parse_document(text, path, SCHEMA, VERSION, remedy=SAVE_REMEDY, foreign=FOLDER_REMEDY)
    try:
        return msgspec.convert(document, _Document)
    except msgspec.ValidationError as exc:
        raise PolicyInvalid(
            f"{path}: its fields are not those of format {VERSION} ({exc}); {SAVE_REMEDY}"
        ) from exc


def _unpack_arrays(npz: bytes, listing: _Listing, path: Path) -> dict[str, _Array]:
    """Reads the arrays from an npz file; raises PolicyInvalid if they differ from the list in policy.json."""
    if hashlib.sha256(npz).hexdigest() != listing.sha256:
        raise PolicyInvalid(f"{path}: is not what was written (its hash differs); save the policy again")
    try:
        with zipfile.ZipFile(io.BytesIO(npz)) as archive:
            members = archive.infolist()
            if [member.filename for member in members] != [f"{entry.name}.npy" for entry in listing.content]:
                raise PolicyInvalid(
                    f"{path}: holds other arrays than {DOCUMENT} lists; save the policy again"
                )
            return {
                entry.name: _read_member(archive, member, entry, path)
                for member, entry in zip(members, listing.content, strict=True)
            }
    except _READ_ERRORS as exc:
        raise PolicyInvalid(f"{path}: can't be read as arrays ({exc}); save the policy again") from exc


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, entry: _ArrayEntry, path: Path) -> _Array:
    """Reads one array. Its header must be exactly what numpy writes for the listed type and shape."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > entry.nbytes + 4096:
        raise PolicyInvalid(f"{path}: array {entry.name!r} is larger than listed, or compressed")
    content = archive.read(member)
    start = 10 + int.from_bytes(content[8:10], "little")
    header = f"{{'descr': {entry.dtype!r}, 'fortran_order': False, 'shape': {entry.shape!r}, }}".encode()
    valid = content[:8] == b"\x93NUMPY\x01\x00" and content[10:start].strip() == header
    if not valid or len(content) != start + entry.nbytes:
        raise PolicyInvalid(f"{path}: array {entry.name!r} is not of the type and shape listed")
    # the slice is a copy, so the array is aligned in memory; it is read-only, because bytes are
    return np.ndarray(entry.shape, entry.dtype, buffer=content[start:])
