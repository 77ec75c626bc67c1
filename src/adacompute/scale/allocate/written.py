"""Prompts written back with their budgets, all of them or none. Knows nothing of who decided them.

Everything is made in a hidden folder beside the output, which is locked while it is in use: what a killed
run left there is removed by the next. At the end a rename publishes it; a folder that it replaces is kept
until then, and put back where that rename didn't happen.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScaleError
from adacompute.pool.faults import one_line
from adacompute.pool.publish import sync
from adacompute.scale.allocate.prompts import BUDGET, File, Prompts, batches, parquet

__all__ = ["check_output", "publish", "workplace", "write_file", "writing"]

Arrow: TypeAlias = Any  # pyarrow ships no types
Ints = npt.NDArray[np.int64]
Budgets = Callable[[Arrow], Ints]  # of the rows of a batch, in order

_PARTS = "parts"  # files that are whole
_BEGUN = "begun"  # files in the making
_BEFORE = "before"  # the folder that is being replaced
_LOCK = "lock"


def check_output(into: Path, source: Path, *, overwrite: bool) -> None:
    """Refuses a place that can't be written to, before any work."""
    with writing(into):
        try:
            there, home = into.resolve(), source.resolve()
        except RuntimeError as exc:
            raise ScaleError(f"{into} or {source}: is a link to itself; give another name") from exc
        _check_place(into, there, source, home)
        if into.is_dir() and (strange := _strange(into)):
            raise ScaleError(f"{into}: holds {strange}, which is no Parquet; give another folder")
        if into.exists() and not overwrite and not (into.is_dir() and not any(into.iterdir())):
            raise ScaleError(f"{into}: is there already; give another name, or --overwrite")


def _check_place(into: Path, there: Path, source: Path, home: Path) -> None:
    """Refuses what is neither beside the source nor of its kind; `there` and `home` are without links."""
    folder = source.is_dir()
    if there == home or (folder and home in there.parents) or (into.is_dir() and there in home.parents):
        raise ScaleError(f"{into}: is, or holds, or lies in what is read; give a place beside {source}")
    if not there.parent.is_dir():
        raise ScaleError(f"{into}: its folder is not there; create {there.parent} first")
    if into.exists() and not into.is_file() and not into.is_dir():  # such as /dev/null
        raise ScaleError(f"{into}: is neither a file nor a folder; give the name of a file")
    if into.is_dir() and not folder:
        raise ScaleError(f"{into}: is a folder; give the name of a file, e.g. {into / 'budgets.parquet'}")
    if folder and into.exists() and not into.is_dir():
        raise ScaleError(f"{into}: is a file, and a folder of Parquet gives a folder; give another name")


def _strange(folder: Path) -> str | None:
    """Something in a folder that an allocation wouldn't have written, so that it isn't replaced."""
    return next((each.name for each in folder.iterdir() if each.suffix.lower() != ".parquet"), None)


@contextlib.contextmanager
def workplace(into: Path) -> Iterator[Path]:
    """A hidden folder beside the output, empty and one's own; removed on leaving."""
    into = into.resolve()
    place = into.with_name(f".{into.name}.allocating")
    with writing(into):
        descriptor = _locked(place, into)
    try:
        with writing(into):
            _put_back(place, into)
            for old in place.iterdir():
                if old.is_dir():
                    shutil.rmtree(old, ignore_errors=True)  # a worker of the killed run may still be in it
            own = place / uuid4().hex  # what that worker writes finds no folder
            for name in (_PARTS, _BEGUN):
                (own / name).mkdir(parents=True)
        yield own
    finally:
        try:
            _put_back(place, into)
            shutil.rmtree(place, ignore_errors=True)  # while it is locked: nobody else is in it
        finally:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            place.rmdir()  # NFS keeps the lock until it is closed


def _put_back(place: Path, into: Path) -> None:
    """What was there before is there again, where a stop or a kill came between two renames."""
    before = place / _BEFORE
    if before.exists() and not into.exists():
        before.rename(into)


def _locked(place: Path, into: Path) -> int:
    while True:
        place.mkdir(exist_ok=True)
        lock = place / _LOCK  # a file: NFS, which workers may share, locks only what is open for writing
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # the last holder removed the folder
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except BlockingIOError as exc:
            os.close(descriptor)
            raise ScaleError(f"{into}: another run is writing it; wait for it to end") from exc
        except FileNotFoundError:  # the last holder removed it between our open and our lock
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def write_file(
    file: File, place: Path, budgets: Budgets, *, told: Callable[[int], None] | None = None
) -> None:
    """One file with its budgets, made in the workplace; made twice, it is the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file.check()
    target = part_of(file, place)
    beside = place / _BEGUN / uuid4().hex
    with parquet(file.path) as source:
        schema = source.schema_arrow
    schema = schema.append(pa.field(BUDGET, pa.int64(), nullable=False))
    with writing(target), beside.open("wb") as out:
        with pq.ParquetWriter(out, schema, compression="zstd", store_schema=True) as writer:
            for batch in batches(file):
                found = budgets(batch)
                columns = [*batch.columns, pa.array(found, type=pa.int64())]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                if told is not None:
                    told(len(found))
        out.flush()
        os.fsync(out.fileno())
    beside.replace(target)
    file.check()


def part_of(file: File, place: Path) -> Path:
    """Where a file is made."""
    return place / _PARTS / Path(file.path).name


def publish(prompts: Prompts, place: Path, into: Path) -> None:
    """Puts what was made where it is wanted, at once."""
    made, into = place / _PARTS, into.resolve()
    with writing(into):
        if not prompts.folder:
            (made / prompts.path.name).replace(into)
        else:
            sync(made)
            if into.is_dir() and any(into.iterdir()):
                into.rename(place.parent / _BEFORE)  # goes with the workplace
            made.rename(into)  # onto nothing, or onto an empty folder
        sync(into.parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the disk refuses becomes ours, naming the path."""
    try:
        yield
    except OSError as exc:
        raise ScaleError(
            f"{path}: can't be written ({exc.strerror or one_line(exc)}); check the disk, or the name"
        ) from exc
