"""`adacompute local` as a user runs it: what it prints, and how it ends."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adacompute.client.local import LocalModel
from adacompute.client.modes import read_modes_file

PROGRAM = str(Path(sys.executable).parent / "adacompute")


@contextmanager
def running(*words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [PROGRAM, "local", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_ctrl_c_is_its_normal_end_and_leaves_no_process(local_model: LocalModel):
    with running("--json", "--slots", "1") as process:
        ready = json.loads(first_line(process))
        assert set(ready) == {"url", "model", "pid"}
        assert ready["model"] == local_model.name
        with urllib.request.urlopen(f"{ready['url']}/models", timeout=60) as reply:
            assert json.load(reply)["data"][0]["id"] == ready["model"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "stopped\n")
    assert gone(ready["pid"])


def test_it_prints_where_it_is_and_how_to_ask_and_sigterm_is_its_normal_end(local_model: LocalModel):
    with running("--slots", "1") as process:
        where, _blank, how = (first_line(process) for _ in range(3))
        words = shlex.split(how)
        assert words[0] == "curl"
        body = words[words.index("-d") + 1].encode()
        request = urllib.request.Request(words[1], body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            text = json.load(reply)["choices"][0]["message"]["content"]
        assert re.search(r"\bCl\b", text), text  # what it is told to try, it gets right
        process.terminate()
        _out, err = process.communicate(timeout=120)
    assert where.strip() == f"{local_model.name} at {words[1].removesuffix('/chat/completions')}"
    assert process.returncode == 0
    assert err.splitlines() == ["Ctrl-C stops it", "stopped"]


@pytest.mark.nightly
def test_a_menu_of_two_of_its_modes_is_written_with_the_port_that_it_listens_on(
    local_model: LocalModel, tmp_path: Path, adacompute: Callable[..., "subprocess.CompletedProcess[str]"]
):
    file = tmp_path / "menu.toml"
    with running("--slots", "2", "--menu", str(file)) as process:
        printed = [first_line(process) for _ in range(8)]
        url = printed[0].split()[-1]
        menu = read_modes_file(file)
        assert menu.names == ("short", "long")
        assert {mode.endpoint.url for mode in menu.modes} == {url}
        assert {mode.endpoint.model for mode in menu.modes} == {local_model.name}
        assert menu.modes[0].options["max_tokens"] < menu.modes[1].options["max_tokens"]
        assert shlex.split(printed[6]) == ["adacompute", "menu", "check", str(file)]
        checked = json.loads(adacompute("menu", "check", str(file), "--json").stdout)
        assert checked["ok"]
        assert checked["modes"]["long"]["cost"] > checked["modes"]["short"]["cost"]
        process.terminate()
        process.communicate(timeout=120)


def test_another_menu_file_is_not_overwritten(
    local_model: LocalModel, tmp_path: Path, adacompute: Callable[..., "subprocess.CompletedProcess[str]"]
):
    (tmp_path / "menu.toml").write_text("[mine]\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = str(probe.getsockname()[1])
    for port in ("0", free):
        done = adacompute("local", "--port", port, "--slots", "1", "--menu", "menu.toml", code=1)
        assert done.stdout == ""
        assert "menu 'menu.toml' is there already, with other content; remove it" in done.stderr
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "menu.toml").read_text() == "[mine]\n"


def test_a_server_that_dies_under_it_is_a_failure_in_one_line(local_model: LocalModel):
    with running("--json", "--slots", "1") as process:
        child = json.loads(first_line(process))["pid"]
        os.kill(child, signal.SIGKILL)
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith(f"adacompute: the model's process {child} ended (signal 9)")
    assert err.count("\n") == 1


def test_a_second_server_on_a_taken_port_is_a_failure_in_one_line(
    local_model: LocalModel, adacompute: Callable[..., "subprocess.CompletedProcess[str]"]
):
    port = urlsplit(local_model.url).port
    done = adacompute("local", "--port", str(port), code=1)
    assert done.stdout == ""
    assert done.stderr == (
        f"adacompute: port {port} on 127.0.0.1 is taken; give another, or 0 for any that is free\n"
    )


def test_a_file_that_is_not_there_is_a_failure_in_one_line(
    local_model: LocalModel, adacompute: Callable[..., "subprocess.CompletedProcess[str]"]
):
    done = adacompute("local", "--gguf", "nowhere.gguf", "--port", "0", code=1)
    assert "model file 'nowhere.gguf' can't be read (No such file or directory)" in done.stderr
    assert done.stderr.count("\n") == 1
