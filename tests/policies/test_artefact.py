"""What is read is what was written, or is refused with the reason in one line."""

import hashlib
import io
import json
import multiprocessing
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from adacompute.errors import PolicyError, PolicyInvalid
from adacompute.policies import artefact
from adacompute.policies.artefact import compute_digest, read_artefact, write_artefact

SETTINGS = {"budget": 2.5, "name": "é\n", "none": None, "deep": {"list": [1, -0.0, 1e-300, True, []]}}
ARRAYS = {
    "table": np.arange(12, dtype=np.float64).reshape(3, 4) / 7,
    "inf": np.array([np.inf, -np.inf, np.nan]),
    "file": np.array([1, 2], dtype=np.int32),  # a name that numpy's own savez can't take
    "flags": np.array([True, False]),
    "scalar": np.array(3, dtype=np.int64),
    "nothing": np.zeros((0, 4), dtype=np.float32),
}


def same(folder: Path) -> bool:
    found = read_artefact(folder)
    return (
        found.kind == "asc"
        and found.settings == SETTINGS
        and list(found.arrays) == list(ARRAYS)
        and all(
            found.arrays[name].dtype == array.dtype and found.arrays[name].tobytes() == array.tobytes()
            for name, array in ARRAYS.items()
        )
    )


def why_refused(folder: Path) -> str | None:
    """What is wrong with it; None: it is the same as ever."""
    try:
        assert same(folder)
    except PolicyInvalid as exc:
        return str(exc)
    return None


def refused(folder: Path, words: str | None = None) -> None:
    with pytest.raises(PolicyInvalid, match=words) as error:
        read_artefact(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_the_model_whose_samples_it_learned_from_is_kept_and_older_artefacts_have_none(tmp_path: Path):
    for name, model in (("old", None), ("new", "qwen-7b"), ("wrong", 7)):
        write_artefact(tmp_path / name, kind="asc", settings=SETTINGS, arrays=ARRAYS, model=model)  # type: ignore[arg-type]
    assert "model" not in json.loads((tmp_path / "old" / "policy.json").read_text())
    assert [read_artefact(tmp_path / name).model for name in ("old", "new")] == [None, "qwen-7b"]
    refused(tmp_path / "wrong")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_artefact(tmp_path / "policy", kind="asc", settings=SETTINGS, arrays=ARRAYS)
    return tmp_path / "policy"


def arrays_file(folder: Path) -> Path:
    (found,) = folder.glob("arrays-*.npz")
    return found


def rewritten(folder: Path, packed: bytes | None = None, **fields: object) -> None:
    """Changes what is stored and makes every hash fit, as somebody who means it would."""
    document = json.loads((folder / "policy.json").read_text())
    document |= fields
    if packed is not None:
        arrays_file(folder).unlink()
        document["arrays"]["sha256"] = hashlib.sha256(packed).hexdigest()
        (folder / f"arrays-{document['arrays']['sha256'][:16]}.npz").write_bytes(packed)
    document["sha256"] = compute_digest(document)
    (folder / "policy.json").write_text(json.dumps(document))


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def listed(*parts: tuple[str, str, list[int]]) -> dict[str, object]:
    content = [{"name": name, "dtype": dtype, "shape": shape} for name, dtype, shape in parts]
    return {"sha256": "0" * 64, "content": content}


def test_what_is_read_is_what_was_written(folder):
    assert same(folder)
    with np.load(arrays_file(folder), allow_pickle=False) as plain:  # numpy reads it too
        assert {name: plain[name].tobytes() for name in plain} == {k: v.tobytes() for k, v in ARRAYS.items()}


def test_arrays_are_stored_in_rows_and_little_endian_whatever_they_came_as(tmp_path):
    given = {"columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "big": np.arange(3, dtype=">i4")}
    write_artefact(tmp_path / "p", kind="asc", settings={}, arrays=given)
    found = read_artefact(tmp_path / "p").arrays
    assert found["columns"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["big"].tolist() == [0, 1, 2]
    assert not found["big"].flags.writeable


def test_the_same_policy_has_the_same_bytes(folder, tmp_path):
    write_artefact(tmp_path / "again", kind="asc", settings=SETTINGS, arrays=ARRAYS)
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_c23_every_flipped_byte_of_the_settings_is_refused_or_changes_nothing(folder):
    path, kept = folder / "policy.json", (folder / "policy.json").read_bytes()
    accepted = 0
    for place in range(len(kept)):
        for mask in (0x01, 0x20, 0xFF):
            path.write_bytes(kept[:place] + bytes([kept[place] ^ mask]) + kept[place + 1 :])
            said = why_refused(folder)
            accepted += said is None
            assert said is None or (str(path) in said and "\n" not in said)
    assert accepted < 0.2 * len(kept) * 3  # spaces between values


def test_c23_every_flipped_byte_of_the_arrays_is_refused(folder):
    path = arrays_file(folder)
    kept = path.read_bytes()
    for place in range(0, len(kept), 3):
        path.write_bytes(kept[:place] + bytes([kept[place] ^ (1 << place % 8)]) + kept[place + 1 :])
        refused(folder, "hash differs")


def test_c23_a_file_cut_short_or_with_more_at_its_end_is_refused(folder):
    for path in (folder / "policy.json", arrays_file(folder)):
        kept = path.read_bytes()
        lengths = {0, 1, 2, len(kept) // 2, len(kept) - 22, len(kept) - 2} | set(range(0, len(kept) - 1, 97))
        for length in lengths:
            path.write_bytes(kept[:length])
            refused(folder)
        path.write_bytes(kept + b"x")
        refused(folder)
        path.write_bytes(kept)
    assert same(folder)


def test_c23_a_file_that_is_missing_or_no_file_is_refused(folder, tmp_path):
    refused(tmp_path / "nowhere", "is not there")
    arrays_file(folder).unlink()
    refused(folder, "is not there")
    (folder / "policy.json").unlink()
    (folder / "policy.json").mkdir()
    refused(folder, "not a plain file")
    (folder / "policy.json").rmdir()
    os.mkfifo(folder / "policy.json")
    refused(folder, "not a plain file")


@pytest.mark.parametrize(
    "name",
    ["../table", "/tmp/table", "a/../../table", "..", "", "table\x00", "C:\\table", "n" * 200, "tablé"],
)
def test_c23_a_name_that_leads_elsewhere_is_refused(folder, name):
    rewritten(folder, arrays=listed((name, "<f8", [2])))
    refused(folder, "arrays")
    with pytest.raises(PolicyError, match="can't be named"):
        write_artefact(folder, kind="asc", settings={}, arrays={name: np.zeros(2)})


def test_c23_arrays_other_than_listed_are_refused(folder):
    one = npy(np.zeros(2))
    rewritten(folder, arrays=listed(("table", "<f8", [2])))
    for members in (
        [("../table.npy", one)],
        [("table.npy", one), ("more.npy", one)],
        [("table", one)],
        [],
    ):
        rewritten(folder, zipped(members))
        refused(folder, "other arrays")
    for content in (
        npy(np.zeros(3)),
        npy(np.zeros((2, 1))),
        npy(np.zeros(2, np.int64)),
        one + b"\0",
        one[:-1],
        b"",
    ):
        rewritten(folder, zipped([("table.npy", content)]))
        refused(folder, "type and shape listed")
    rewritten(folder, zipped([("table.npy", one)]))
    assert read_artefact(folder).arrays["table"].tolist() == [0, 0]


def test_c23_no_pickled_object_is_ever_read(folder):
    packed = zipped([("table.npy", npy(np.array([{"a": 1}], dtype=object)))])
    rewritten(folder, arrays=listed(("table", "|O", [1])))
    rewritten(folder, packed)
    refused(folder, "arrays")
    rewritten(folder, arrays=listed(("table", "<f8", [1])))
    rewritten(folder, packed)
    refused(folder, "larger than listed|type and shape")
    with pytest.raises(PolicyError, match="can't be stored"):
        write_artefact(folder, kind="asc", settings={}, arrays={"a": np.array([object()])})


def test_c23_what_grows_when_it_is_read_is_refused(folder):
    rewritten(folder, arrays=listed(("table", "<f8", [1 << 20])))
    rewritten(folder, zipped([("table.npy", npy(np.zeros(1 << 20)))], zipfile.ZIP_DEFLATED))
    refused(folder, "compressed")
    rewritten(folder, arrays=listed(("table", "<f8", [2])))
    rewritten(folder, zipped([("table.npy", npy(np.zeros(100_000)))]))
    refused(folder, "larger than listed")


@pytest.mark.parametrize(
    "part",
    [
        ("table", "<f8", [artefact.MAX_ARRAY_BYTES]),
        ("table", "<f8", [1 << 40, 1 << 40]),
        ("table", "<f8", [-1]),
        ("table", "<f8", [True]),
        ("table", "<f8", [2.0]),
        ("table", "<f8", [1] * 33),
        ("table", "<c16", [2]),
        ("table", "<U4", [2]),
        ("table", "nonsense", [2]),
        ("table", None, [2]),
        ("table", "<f8", None),
    ],
)
def test_c23_sizes_and_types_that_no_policy_has_are_refused_before_reading(folder, part):
    rewritten(folder, arrays=listed(part))
    refused(folder, "arrays")


def test_c23_too_many_arrays_or_one_name_twice_are_refused(folder):
    rewritten(folder, arrays=listed(*((f"a{i}", "<f8", [1]) for i in range(artefact.MAX_ARRAYS + 1))))
    refused(folder, "arrays")
    rewritten(folder, arrays=listed(("a", "<f8", [1]), ("a", "<f8", [1])))
    refused(folder, "arrays")


def test_c23_files_larger_than_any_policy_are_not_read_whole(folder):
    with (folder / "policy.json").open("r+b") as file:
        file.truncate(1 << 36)  # sparse: it takes no room on the disk
    refused(folder, "larger than any")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "not an adacompute policy"),
        ("[]", "not an adacompute policy"),
        ("null", "not an adacompute policy"),
        ('{"schema": "other"}', "not an adacompute policy"),
        ('{"schema": "adacompute.policy", "version": 2}', "newer"),
        ('{"schema": "adacompute.policy", "version": 0}', "hash differs"),
        ('{"schema": "adacompute.policy", "version": true}', "hash differs"),
        ('{"schema": "adacompute.policy", "version": 1}', "hash differs"),
        ('{"schema": "adacompute.policy", "schema": "adacompute.policy"}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e999}', "1e999"),
        ("[" * 100_000, "not whole JSON"),
        ("1" * 10_000, "not whole JSON"),
        ("\ud800", "not whole JSON"),
        ("", "not whole JSON"),
    ],
)
def test_c23_another_schema_or_no_schema_is_refused_with_the_reason(folder, text, words):
    (folder / "policy.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    refused(folder, words)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32(1), {1: 2}, {1, 2}, object(), b"x"])
def test_settings_that_json_does_not_give_back_are_not_written(tmp_path, value):
    with pytest.raises(PolicyError, match=r"settings\.deep\[0\] = .* can't be stored"):
        write_artefact(tmp_path / "p", kind="asc", settings={"deep": [value]}, arrays={})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    for name, files in {"notes": ["a.txt"], "other": ["policy.json"]}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("{}")
        with pytest.raises(PolicyError, match="something else"):
            write_artefact(tmp_path / name, kind="asc", settings={}, arrays={})
        assert [file.name for file in (tmp_path / name).iterdir()] == files
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PolicyError, match="is a file"):
        write_artefact(tmp_path / "file", kind="asc", settings={}, arrays={})
    with pytest.raises(PolicyError, match="its folder is not there"):
        write_artefact(tmp_path / "no" / "p", kind="asc", settings={}, arrays={})
    assert (tmp_path / "file").read_text() == "mine"


def test_a_policy_replaces_a_policy_and_leaves_nothing_of_it(folder):
    (folder / "notes.txt").write_text("mine")
    for name in ("arrays-0123456789abcdef.npz.part", "policy.json.part", ".policy.json.part"):
        (folder / name).write_text("a killed writer's")
    write_artefact(folder, kind="esc", settings={}, arrays={"a": np.zeros(3)})
    assert read_artefact(folder).kind == "esc"
    assert len(list(folder.iterdir())) == 3
    write_artefact(folder, kind="esc", settings={}, arrays={})
    assert sorted(file.name for file in folder.iterdir()) == ["notes.txt", "policy.json"]


def test_an_empty_folder_takes_a_policy(tmp_path):
    (tmp_path / "p").mkdir()
    write_artefact(tmp_path / "p", kind="esc", settings={}, arrays={})
    assert read_artefact(tmp_path / "p").kind == "esc"


def _write_often(folder: Path, writer: int, times: int) -> None:
    for i in range(times):
        value = 2 * i + writer
        write_artefact(folder, kind="asc", settings={"value": value}, arrays={"a": np.full(500, value)})


@pytest.mark.slow
def test_a_reader_always_sees_one_whole_policy_while_two_write(tmp_path):
    folder = tmp_path / "p"
    _write_often(folder, 0, 1)
    context = multiprocessing.get_context("fork" if os.name == "posix" else None)
    writers = [context.Process(target=_write_often, args=(folder, w, 60)) for w in (0, 1)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        found = read_artefact(folder)
        assert (found.arrays["a"] == found.settings["value"]).all()
        seen.add(found.settings["value"])
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(seen) > 1
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("at", [1, 2, 3])  # the arrays, their folder, policy.json
def test_a_write_that_fails_leaves_the_old_policy(folder, monkeypatch, at):
    real, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == at:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(PolicyError, match="No space left"):
            write_artefact(folder, kind="esc", settings={}, arrays={"a": np.zeros(3)})
    assert same(folder)
