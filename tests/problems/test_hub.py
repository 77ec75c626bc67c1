"""Datasets by name: local copies that `datasets` itself wrote, and names that can't be reached."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from adacompute.errors import ProblemsInvalid
from adacompute.problems import PRESETS, read_problems
from adacompute.problems.dataset_loaders import HubName
from adacompute.problems.presets import HUB_NAMES, find_preset

ROWS: dict[str, list[dict[str, Any]]] = {
    split: [
        {"question": f"What is {i} + 1 ({split})?", "answer": f"Add.\n#### {i + 1}", "tags": ["a", "b"]}
        for i in range(5)
    ]
    for split in ("train", "test")
}


def saved(hf: Any, folder: Path, way: str) -> Path:
    """Both splits in one of the shapes in which datasets are kept."""
    tables = {split: hf.Dataset.from_list(rows) for split, rows in ROWS.items()}
    if way == "save_to_disk":
        hf.DatasetDict(tables).save_to_disk(folder)
        return folder
    for split, table in tables.items():
        if way == "to_parquet":
            (folder / "data").mkdir(parents=True, exist_ok=True)
            table.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
        else:
            folder.mkdir(exist_ok=True)
            table.to_json(folder / f"{split}.jsonl")
    return folder


@pytest.mark.parametrize("way", ["save_to_disk", "to_parquet", "to_json"])
def test_a_folder_in_a_shape_of_datasets_gives_the_same_problems(hf: Any, tmp_path: Path, way: str):
    folder = saved(hf, tmp_path / "copy", way)
    plain = tmp_path / "plain.jsonl"
    for split, rows in ROWS.items():
        hf.Dataset.from_list(rows).to_json(plain)
        want = read_problems(plain, preset="gsm8k").problems
        assert read_problems(f"hf:{folder}@{split}", preset="gsm8k").problems == want
        assert read_problems(f"hf:{folder}", split=split, preset="gsm8k").problems == want
        assert read_problems(f"hf:{folder}@{split}", preset="gsm8k", limit=2).problems == want[:2]
    assert [p.gold for p in want] == ["1", "2", "3", "4", "5"]
    assert want[0].extra == {"tags": ["a", "b"]}


def test_the_test_split_is_taken_where_none_is_named(hf: Any, tmp_path: Path):
    found = read_problems(f"hf:{saved(hf, tmp_path / 'copy', 'save_to_disk')}", preset="gsm8k")
    assert all("(test)" in problem.question for problem in found)


def test_a_table_saved_alone_has_no_split(hf: Any, tmp_path: Path):
    hf.Dataset.from_list(ROWS["train"]).save_to_disk(tmp_path / "one")
    assert len(read_problems(f"hf:{tmp_path / 'one'}", preset="gsm8k")) == 5
    with pytest.raises(ProblemsInvalid, match="saved as one table; leave config and split out"):
        read_problems(f"hf:{tmp_path / 'one'}@test")


def test_a_local_copy_is_known_by_the_name_of_its_folder(
    hf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    saved(hf, tmp_path / "openai" / "gsm8k", "to_parquet")
    monkeypatch.chdir(tmp_path)
    for name in (f"hf:{tmp_path}/openai/gsm8k", "hf:openai/gsm8k", "hf:./openai/gsm8k"):
        found = read_problems(name)
        assert [problem.gold for problem in found] == ["1", "2", "3", "4", "5"]
        assert (found.extract, found.template and found.template.name) == ("boxed", "boxed")


def test_a_clone_of_a_known_dataset_gets_its_usual_config(hf: Any, tmp_path: Path):
    clone = tmp_path / "openai" / "gsm8k"
    head = ["---", "configs:"]
    for config in ("main", "socratic"):
        (clone / config).mkdir(parents=True)
        head += [f"- config_name: {config}", "  data_files:"]
        for split, rows in ROWS.items():
            asked = [row | {"question": f"{config}: {row['question']}"} for row in rows]
            hf.Dataset.from_list(asked).to_parquet(clone / config / f"{split}-00000-of-00001.parquet")
            head += [f"  - split: {split}", f"    path: {config}/{split}-*"]
    (clone / "README.md").write_text("\n".join([*head, "---", ""]))
    for name, config, split in [("", "main", "test"), (":socratic@train", "socratic", "train")]:
        found = read_problems(f"hf:{clone}{name}")
        assert all(p.question.startswith(f"{config}: ") and split in p.question for p in found)
    with pytest.raises(
        ProblemsInvalid, match=r"several tables \(main, socratic\); give one, .*/main, or hf:"
    ):
        read_problems(clone)
    with pytest.raises(ProblemsInvalid, match=r"holds the splits test, train; give one .*: hf:.*/main@test"):
        read_problems(clone / "main")
    assert len(read_problems(clone / "main" / "test-00000-of-00001.parquet", preset="gsm8k")) == 5


def test_a_local_file_needs_no_library(hf: Any, tmp_path: Path):
    hf.Dataset.from_list(ROWS["test"]).to_csv(tmp_path / "test.csv", index=False)
    assert read_problems(f"hf:{tmp_path / 'test.csv'}", preset="gsm8k").problems[4].gold == "5"


def test_a_split_that_is_not_there_is_named_with_those_there_are(hf: Any, tmp_path: Path):
    folder = saved(hf, tmp_path / "copy", "save_to_disk")
    with pytest.raises(ProblemsInvalid, match="no split 'dev'; give one with @: train, test"):
        read_problems(f"hf:{folder}@dev")


def test_bytes_and_bad_rows_of_a_dataset_are_refused_by_row(hf: Any, tmp_path: Path):
    rows = [{"question": "a?", "x": b"1"}]
    hf.Dataset.from_list(rows).save_to_disk(tmp_path / "bytes")
    with pytest.raises(ProblemsInvalid, match="row 1: 'x' holds bytes"):
        read_problems(f"hf:{tmp_path / 'bytes'}")
    hf.Dataset.from_list([{"question": "a?"}]).save_to_disk(tmp_path / "bare")
    with pytest.raises(ProblemsInvalid, match=r"hf:.*: row 1: 'answer' is missing; give a solution"):
        read_problems(f"hf:{tmp_path / 'bare'}", preset="gsm8k")


def test_a_folder_that_holds_no_dataset_is_refused_in_one_line(hf: Any, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProblemsInvalid, match="can't be loaded") as caught:
        read_problems(f"hf:{tmp_path / 'empty'}")
    assert "\n" not in str(caught.value)


REFUSED = {  # what is asked for -> the status it gets, and what we make of it
    "openai/gsm8": (404, "RepoNotFound", "no such dataset, or it is private; did you mean openai/gsm8k?"),
    "Idavidrein/gpqa": (403, "GatedRepo", "its terms to be accepted first"),
    "openai/gsm8k": (500, "", "can't be loaded"),
}


class Hub(BaseHTTPRequestHandler):
    """A hub that has nothing to give."""

    def do_GET(self) -> None:
        name = self.path.removeprefix("/api/datasets/")
        self.server.asked.append(name)  # type: ignore[attr-defined]
        status, code, _ = REFUSED.get(name, (404, "", ""))
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}" if self.command == "GET" else b"")

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refused(names: list[str], port: int, folder: Path) -> list[str]:
    """What a process of its own says to names at a hub at this port; it knows of no other."""
    script = (
        "import sys\nfrom adacompute.errors import ProblemsInvalid\n"
        "from adacompute.problems import read_problems\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        read_problems(name)\n    except ProblemsInvalid as exc:\n        print(exc)"
    )
    env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(folder)}
    command = [sys.executable, "-c", script, *(f"hf:{name}" for name in names)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=env | {"NO_PROXY": "127.0.0.1"}, timeout=60
    )
    assert done.stderr == ""  # no retries of a library below, no traceback
    return done.stdout.splitlines()


@pytest.mark.slow
def test_what_the_hub_refuses_is_said_in_one_line_each(tmp_path: Path, hub: ThreadingHTTPServer):
    messages = refused(list(REFUSED), hub.server_port, tmp_path)
    for message, (name, (_, _, said)) in zip(messages, REFUSED.items(), strict=True):
        assert message.startswith(f"hf:{name}: ")
        assert said in message
    asked: list[str] = hub.asked  # type: ignore[attr-defined]
    assert [name for name in asked if name in REFUSED] == list(REFUSED)  # once each


@pytest.mark.slow
def test_a_hub_that_is_not_there_is_said_in_one_line(tmp_path: Path):
    with socket.socket() as held:  # bound, not listening: nobody else gets the port
        held.bind(("127.0.0.1", 0))
        (message,) = refused(["openai/gsm8"], held.getsockname()[1], tmp_path)
    assert "can't be loaded" in message
    assert "did you mean openai/gsm8k? check the connection, or give a file, or hf:./FOLDER" in message


@pytest.mark.parametrize(
    ("text", "split", "want"),
    [
        ("openai/gsm8k", None, ("openai/gsm8k", "main", "test")),
        ("OpenAI/GSM8K", None, ("OpenAI/GSM8K", "main", "test")),
        ("openai/gsm8k:socratic@train", None, ("openai/gsm8k", "socratic", "train")),
        ("openai/gsm8k@train", "train", ("openai/gsm8k", "main", "train")),
        ("openai/gsm8k", "train", ("openai/gsm8k", "main", "train")),
        ("some/one", None, ("some/one", None, None)),
        ("cais/mmlu:anatomy", None, ("cais/mmlu", "anatomy", "test")),
    ],
)
def test_a_name_has_a_config_and_a_split(text: str, split: str | None, want: tuple[str, str, str]):
    name = HubName.of(text, split=split)
    assert (name.name, name.config, name.split) == want


@pytest.mark.parametrize(
    ("text", "split"), [("a/b@", None), ("a/b:", None), ("", None), ("a/b@x", "y"), (":c", None)]
)
def test_a_name_that_cannot_be_read_is_refused(text: str, split: str | None):
    with pytest.raises(ProblemsInvalid, match="give"):
        HubName.of(text, split=split)


def test_every_known_name_leads_to_a_preset():
    for name in HUB_NAMES:
        found = find_preset(name)
        assert found is not None
        assert found[0] in PRESETS.values()
    assert {"openai/gsm8k", "HuggingFaceH4/MATH-500", "Idavidrein/gpqa", "cais/mmlu"} <= set(HUB_NAMES)
    assert find_preset("nobody/knows") is None
