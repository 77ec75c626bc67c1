"""Running the gateway: where it listens, how it stops, and what clients may keep it waiting for."""

import contextlib
import itertools
import json
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from behaviours import Reply
from running import Process, Running
from wires import until

from adacompute.config import ServeConfig
from adacompute.errors import ConfigError
from adacompute.serve.http.app import MAX_HEAD_BYTES
from adacompute.serve.http.server import open_sockets, resolve_allowed
from tiers import leave_to_nightly
from upstream import Honest, Upstream

NOBODY = "http://127.0.0.1:9/v1"  # an upstream that is never asked
KEY = "k" * 24


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as up:
        yield up


@pytest.fixture(scope="module")
def running(upstream: Upstream) -> Iterator[Running]:
    with Running(upstream.url, client_timeout=1.5) as gate:
        yield gate


@pytest.fixture
def connect(running: Running) -> Iterator[Callable[[], socket.socket]]:
    """Opens raw connections to the gateway."""
    with contextlib.ExitStack() as stack:
        port = int(running.base.rpartition(":")[2])
        yield lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))


def resident(pid: int) -> int:
    """Bytes of memory that a process takes."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def in_thread(work: Callable[[], Any]) -> "tuple[threading.Thread, list[Any]]":
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(work()), daemon=True)
    thread.start()
    return thread, got


# where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7"])
def test_c22_nothing_beyond_loopback_is_listened_at_without_keys(host: str):
    with pytest.raises(ConfigError, match="no keys") as caught:
        resolve_allowed(ServeConfig(host=host), keys=False)
    assert repr(host) in str(caught.value)
    assert "--keys FILE" in str(caught.value)
    assert resolve_allowed(ServeConfig(host=host), keys=True)


def test_c22_a_name_is_judged_by_every_address_that_it_has(monkeypatch: pytest.MonkeyPatch):
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 8080)) for address in ("127.0.0.1", "10.0.0.5")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)  # names are the system's to resolve
    with pytest.raises(ConfigError, match=r"'gate\.example' \(10\.0\.0\.5\)"):
        open_sockets(ServeConfig(host="gate.example"))


def test_c22_the_process_refuses_to_listen_at_all_addresses_without_keys(adacompute):
    done = adacompute("serve", "--upstream", NOBODY, "--host", "0.0.0.0", "--port", "0", code=1)
    assert done.stderr.count("\n") == 1
    assert "'0.0.0.0'" in done.stderr
    assert "no keys" in done.stderr


def test_c22_a_keys_file_without_keys_is_no_leave_to_listen_beyond_loopback(tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text("")
    gate = Running(NOBODY, host="0.0.0.0", keys_file=str(keys))
    with pytest.raises(ConfigError, match="holds no key"), gate:
        pass


def test_with_keys_it_listens_at_all_addresses_and_asks_for_them(upstream: Upstream, tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[alice]\nkey = "{KEY}"\n')
    with Running(upstream.url, host="0.0.0.0", keys_file=str(keys)) as gate:
        assert gate.base.startswith("http://127.0.0.1:")
        assert gate.ask().status == 401
        assert gate.ask(headers={"authorization": f"Bearer {KEY}"}).status == 200


def test_localhost_is_one_port_at_every_address_of_it():
    sockets = open_sockets(ServeConfig(host="localhost", port=0))
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


def test_a_port_in_use_is_named_with_the_remedy(running: Running):
    port = int(running.base.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use; give another --port"):
        open_sockets(ServeConfig(port=port))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 300, "300.1.1.1"])
def test_a_host_that_is_none_is_named(host: str):
    with pytest.raises(ConfigError, match=r"host '.*give e\.g\. 127\.0\.0\.1"):
        resolve_allowed(ServeConfig(host=host), keys=True)


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        words = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
        )
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*words.split(), *files], cwd=folder, check=True, capture_output=True)
    return folder


def test_with_a_certificate_it_speaks_https(upstream: Upstream, certificate: Path):
    trusted = ssl.create_default_context(cafile=certificate / "one.pem")
    cert, key = str(certificate / "one.pem"), str(certificate / "one.key")
    gate = Running(upstream.url, tls_cert=cert, tls_key=key)
    gate.context = trusted
    with gate:
        assert gate.url.startswith("https://127.0.0.1:")
        assert gate.ask().status == 200


@pytest.mark.parametrize(
    ("cert", "key", "why"),
    [
        ("one.pem", "", "tls_cert is given without tls_key"),
        ("", "one.key", "tls_key is given without tls_cert"),
        ("no.pem", "one.key", "'.*no.pem' can't be read"),
        ("one.pem", "two.key", "can't be used"),
        ("one.key", "one.key", "can't be used"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused_at_once(
    certificate: Path, cert: str, key: str, why: str
):
    files = {"tls_cert": cert and str(certificate / cert), "tls_key": key and str(certificate / key)}
    with pytest.raises(ConfigError, match=why), Running(NOBODY, **files):
        pass


# stopping


def test_c25_sigterm_turns_readiness_off_lets_requests_finish_and_exits_0(tmp_path: Path):
    with Upstream(Honest(latency=2.0)) as up, Process(up.url, folder=tmp_path, grace=30.0) as gate:
        asking, got = in_thread(gate.ask)
        until(lambda: up.count.in_flight)
        gate.terminate()
        until(lambda: not gate.ready())
        assert gate.get("/readyz").status == 503  # it still listens, so that whoever asks is told
        late = gate.ask()
        assert (late.status, late.error["code"]) == (503, "overloaded")
        asking.join(60)
        assert got[0].status == 200
        assert gate.wait() == 0, gate.log
        assert up.count.aborted == 0


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    leave_to_nightly(
        [
            (signal.SIGTERM, 143, "2"),
            (signal.SIGINT, 130, "1"),
            (signal.SIGTERM, 143, "1"),
            (signal.SIGINT, 130, "2"),
        ],
        but=2,
    ),
)
def test_a_signal_while_it_opens_ends_it(tmp_path: Path, number: signal.Signals, code: int, workers: str):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as a Redis that doesn't answer
        silent.settimeout(60)
        program = str(Path(sys.executable).parent / "adacompute")
        address = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        words = ["serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--redis", address]
        with subprocess.Popen(
            [program, *words, "--workers", workers], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as process:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)  # it asks, and waits
                process.send_signal(number)
                _, told = process.communicate(timeout=60)
        assert process.returncode == code
        assert told.count("\n") == 1
        assert "stopped" in told


@pytest.mark.parametrize("exists", [True, False])
def test_the_folder_of_another_programs_metrics_is_left_alone(tmp_path: Path, exists: bool):
    folder = tmp_path / "metrics"
    if exists:
        folder.mkdir()
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    with Upstream() as up, Process(up.url, folder=tmp_path, environ=environ) as gate:
        assert gate.ask().status == 200
        assert b"adacompute_requests_total" in gate.get("/metrics").raw
        assert not exists or not list(folder.iterdir())


def test_c25_after_the_grace_time_requests_are_cut_off_and_told_so():
    with Upstream(Honest(latency=60.0)) as up:
        with Running(up.url, grace=0.3) as gate:
            asking, got = in_thread(gate.ask)
            until(lambda: up.count.in_flight)
            gate.stop()
        asking.join(30)
        assert (got[0].status, got[0].error["code"]) == (503, "overloaded")
        until(lambda: up.count.aborted == 1)


def test_c25_idle_connections_do_not_hold_up_the_end():
    with Upstream() as up, Running(up.url, grace=600.0) as gate, contextlib.ExitStack() as stack:
        where = ("127.0.0.1", int(gate.base.rpartition(":")[2]))
        idle = [stack.enter_context(socket.create_connection(where, timeout=60)) for _ in range(3)]
        idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[0].recv(65_536).startswith(b"HTTP/1.1 200")
        idle[1].sendall(b"GET /healthz HTTP/1.1\r\n")
        gate.stop()  # it fails where that takes a minute


def test_c25_an_open_stream_is_finished_before_it_exits():
    with Upstream(Honest(latency=1.0)) as up:
        with Running(up.url, grace=60.0) as gate:
            asking, got = in_thread(lambda: gate.ask(stream=True))
            until(lambda: up.count.in_flight)
            gate.begin_to_stop()
            asking.join(60)
        assert got[0].status == 200
        assert got[0].raw.rstrip().endswith(b"data: [DONE]")


@pytest.mark.slow
def test_c13_c25_a_thousand_idle_connections_take_little_and_a_second_signal_ends_all_at_once(tmp_path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with (
        Upstream() as up,
        Process(up.url, folder=tmp_path, grace=600.0) as gate,
        contextlib.ExitStack() as stack,
    ):
        assert set(gate.said) == {"url", "pid", "policy", "budget", "budget_unit", "dashboard"}
        assert (gate.said["pid"], gate.said["budget"], gate.said["budget_unit"]) == (gate.pid, 2.0, "samples")
        assert gate.said["dashboard"] == f"{gate.base}/dashboard"
        gate.signal(signal.SIGHUP)  # policies are read again, and it goes on
        until(lambda: "reloaded" in gate.log)
        before, where = resident(gate.pid), ("127.0.0.1", int(gate.base.rpartition(":")[2]))
        idle = [stack.enter_context(socket.create_connection(where, timeout=60)) for _ in range(1000)]
        for each in idle[:500]:  # half of them have asked something before
            each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(each.recv(65_536).startswith(b"HTTP/1.1 200") for each in idle[:500])
        assert [gate.ask().status for _ in range(10)] == [200] * 10
        assert resident(gate.pid) - before < 100_000_000
        up.script = Honest(latency=300.0)
        asking, got = in_thread(gate.ask)
        until(lambda: up.count.in_flight)
        gate.signal(signal.SIGINT)
        until(lambda: not gate.ready())
        gate.terminate()
        assert gate.wait() == 0, gate.log
        asking.join(30)
        assert got[0].status == 503


# what clients may keep it waiting for


def test_c13_who_never_sends_a_request_or_not_all_of_it_is_cut_off(connect, running: Running):
    idle, head, body = connect(), connect(), connect()
    head.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\ncontent-")
    body.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{"
    )
    for each in (idle, head, body):
        with contextlib.suppress(ConnectionResetError):
            assert each.recv(100) == b""
    assert running.ask().status == 200


def test_c13_a_body_that_drips_is_cut_off_though_no_byte_is_late(connect, running: Running):
    lines = [connect() for _ in range(20)]
    for line in lines:
        line.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 4000000\r\n\r\n{"
        )
    end = time.monotonic() + 30
    while lines and time.monotonic() < end:
        for line in list(lines):
            try:
                line.sendall(b" ")
            except (BrokenPipeError, ConnectionResetError):
                lines.remove(line)
        time.sleep(0.05)
    assert lines == []
    assert running.ask().status == 200


def test_c13_a_client_that_does_not_read_is_cut_off(running: Running):
    port = int(running.base.rpartition(":")[2])
    many = b"GET /dashboard HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", port))
        with contextlib.suppress(OSError):  # replies pile up until nothing more is taken
            slow.sendall(many)
        until(lambda: _cut(slow))
    assert running.ask().status == 200


def _cut(line: socket.socket) -> bool:
    """Whether the other side has ended the connection; reads nothing of what is waiting."""
    try:
        line.send(b"G")
    except (BrokenPipeError, ConnectionResetError):
        return True
    except TimeoutError:
        return False
    return False


def test_c09_headers_above_64_kib_are_refused_before_all_of_them_are_kept(connect):
    line = connect()
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nx-long: " + b"a" * (MAX_HEAD_BYTES + 10))
    assert line.recv(65_536).startswith(b"HTTP/1.1 431 ")


def test_what_is_no_http_gets_a_400_in_openais_shape(connect):
    line = connect()
    line.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    head, _, body = line.recv(65_536).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_request"


def test_a_connection_serves_one_request_after_the_other(connect):
    line = connect()
    for _ in range(3):
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_neither_the_server_nor_who_forwards_is_named_or_believed(running: Running):
    answer = running.get("/healthz", {"x-forwarded-for": "10.1.1.1", "x-forwarded-proto": "https"})
    assert answer.status == 200
    assert "server" not in answer.headers


def count_helpers(pid: int) -> int:
    """Helper processes of a gateway, with the children that they work in."""
    count, queue = 0, [pid]
    while queue:
        process = Path(f"/proc/{queue.pop()}")
        with contextlib.suppress(OSError):
            count += b"answers/sandbox.py" in process.joinpath("cmdline").read_bytes()
            for task in process.joinpath("task").iterdir():
                queue += map(int, task.joinpath("children").read_text().split())
    return count


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are counted in /proc")
def test_the_process_of_math_verify_is_started_by_the_first_formula_that_needs_it():
    formulas = itertools.cycle([r"The answer is \boxed{\sum_{k=1}^{10} k^2}.", r"The answer is \boxed{385}."])

    def script(_number: int, body: dict[str, Any]) -> Reply:
        asks_for_formula = "squares" in body["messages"][0]["content"]
        texts = [next(formulas) if asks_for_formula else "The answer is 42." for _ in range(body.get("n", 1))]
        return Reply(texts=texts)

    with Upstream(script) as up, Process(up.url) as gate:
        until(lambda: count_helpers(gate.pid) == 2, 60)  # what reads long responses, started after the port
        vote = {"x-adacompute-budget": "2"}
        assert gate.ask(headers=vote).json["adacompute"]["samples"] == 2
        assert count_helpers(gate.pid) == 2
        question = [{"role": "user", "content": "What is the sum of the squares of 1 to 10?"}]
        reply = gate.ask(messages=question, headers=vote).json["adacompute"]
        assert (reply["samples"], reply["agreement"]) == (2, 1.0)  # the first pair waited for the start
        assert count_helpers(gate.pid) == 4
