"""What no client can do: name another upstream, see a key, get in without one, or change a setting."""

import base64
import contextlib
import http.client
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from behaviours import Drop, Garbage, Honest, Reply, Stall, Status
from running import Process, Running

from upstream import Upstream

OPEN = ("/healthz", "/readyz")
GUARDED = ("/v1/models", "/v1/models/scripted", "/metrics", "/dashboard", "/dashboard/data")
OPERATORS = ("/metrics", "/dashboard", "/dashboard/data")
CHAT = "/v1/chat/completions"


@pytest.fixture
def evil() -> Iterator[Upstream]:
    """A server that nobody was told to ask."""
    with Upstream() as up:
        yield up
        assert up.count.connections == 0


def raw(gate: Running, data: bytes) -> bytes:
    port = int(gate.base.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(data)
        got = b""
        while part := line.recv(65_536):
            got += part
    return got


# c20: the upstream is the operator's alone


def test_c20_no_field_header_or_query_names_another_upstream(evil: Upstream, tmp_path: Path):
    other, place = evil.url, evil.url.removeprefix("http://").removesuffix("/v1")
    fields: list[dict[str, Any]] = [
        {name: other} for name in ("base_url", "api_base", "url", "endpoint", "upstream", "proxy", "host")
    ]
    fields += [
        {"model": name} for name in (other, f"openai/{other}", f"@{place}", f"../{place}", "m\r\nHost: evil")
    ]
    fields += [{"extra_body": {"base_url": other}}, {"metadata": {"base_url": other}}]
    headers = [
        {name: other}
        for name in ("x-base-url", "x-upstream", "x-forwarded-for", "referer", "x-original-url", "location")
    ]
    headers += [
        {name: place}
        for name in ("x-forwarded-host", "x-host", "x-forwarded-server", "x-http-host-override", "via")
    ]
    headers += [{"forwarded": f"host={place};proto=http"}, {"host": place}]
    file = tmp_path / "keys.toml"
    file.write_text('[me]\nkey = "key-0123456789-0123456789"\noperator = true\n')
    key = {"authorization": "Bearer key-0123456789-0123456789"}  # with one, any Host is served
    with Upstream() as up, Running(up.url, keys_file=str(file)) as gate:
        for field in fields:
            for stream in (False, True):
                answer = gate.ask(headers=key, **{"stream": stream, "temperature": 0, **field})
                assert answer.status in (200, 400), answer.raw
        for header in headers:
            assert gate.ask(headers={**key, **header}, temperature=0).status == 200
            assert gate.get("/v1/models", {**key, **header}).status == 200
        for query in (f"base_url={other}", f"url={other}", f"upstream={other}"):
            assert gate.ask(headers=key, path=f"{CHAT}?{query}", temperature=0).status == 200
            assert gate.get(f"/v1/models?{query}", key).status == 200
        for path in (f"/{other}", f"//{place}{CHAT}", f"/v1/..//{place}/v1/models", f"/v1/models/{other}"):
            assert gate.get(path, key).status == 404
        assert all(one.headers["host"] == f"127.0.0.1:{up.port}" for one in up.requests)
        assert all("authorization" not in one.headers for one in up.requests)  # the client's key stays here
        assert all(not any(name.startswith("x-") for name in one.headers) for one in up.requests)


@pytest.mark.parametrize("line", ["GET {}/models", "POST {}/chat/completions", "CONNECT {}", "GET //{}/x"])
def test_c20_a_request_line_with_another_address_goes_nowhere_else(line: str, evil: Upstream):
    method, _, target = line.partition(" ")
    place = evil.url.removeprefix("http://").removesuffix("/v1")
    target = target.format(evil.url if "/" in target and not target.startswith("//") else place)
    body = b'{"model":"m","messages":[{"role":"user","content":"2+2?"}],"temperature":0}'
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with Upstream() as up, Running(up.url) as gate:
        got = raw(gate, head.encode() + (body if method == "POST" else b""))
        assert got[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.1 405"), got
        assert gate.get("/healthz").status == 200


class _Redirects(http.server.BaseHTTPRequestHandler):
    """Sends everybody elsewhere."""

    code, to, asked = 302, "", 0

    def _go(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(self.code)
        self.send_header("location", self.to + self.path.removeprefix("/v1"))
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = _go  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def redirecting(code: int, to: str) -> Iterator[tuple[str, type[_Redirects]]]:
    handler = type("Redirects", (_Redirects,), {"code": code, "to": to})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", handler
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_c20_redirects_of_the_upstream_are_not_followed(code: int, evil: Upstream):
    with redirecting(code, evil.url) as (url, handler), Running(url) as gate:
        for answer in (
            gate.ask(),
            gate.ask(stream=True),
            gate.ask(stream=True, temperature=0),
            gate.get("/v1/models"),
        ):
            assert answer.status == 502, answer.raw
            assert str(evil.port) not in answer.raw.decode()
            assert "location" not in answer.headers
        assert handler.asked >= 4


# c22: who gets in


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(
        '[boss]\nkey = "key-of-the-boss-0123456789"\noperator = true\n'
        '[alice]\nkey = "key-of-alice-0123456789"\n'
    )
    with Upstream() as up, Running(up.url, keys_file=str(file)) as gate:
        yield gate


BOSS, ALICE = "key-of-the-boss-0123456789", "key-of-alice-0123456789"
WRONG = (  # test_keys.py has every way to write one
    {},
    {"authorization": f"Bearer {BOSS}x"},
    {"x-api-key": BOSS},
    {"api-key": BOSS},
    {"cookie": f"key={BOSS}"},
)


@pytest.mark.parametrize("headers", WRONG)
def test_c22_without_a_right_key_nothing_is_served_but_health(guarded: Running, headers: dict[str, str]):
    for path in GUARDED:
        answer = guarded.get(path, headers)
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key"), path
        assert "www-authenticate" in answer.headers
    for path in (f"/metrics?key={BOSS}", f"/v1/models?api_key={BOSS}"):
        assert guarded.get(path, headers).status == 401
    assert guarded.ask(headers=headers).status == 401
    assert [guarded.get(path, headers).status for path in OPEN] == [200, 200]


def test_c22_a_key_comes_as_bearer_or_as_a_password_and_only_the_operators_sees_all(guarded: Running):
    for key, seen in ((BOSS, 200), (ALICE, 403)):
        basic = base64.b64encode(f"anybody:{key}".encode()).decode()
        for said in (f"Bearer {key}", f"bearer  {key} ", f"Basic {basic}"):
            headers = {"authorization": said}
            assert [guarded.get(path, headers).status for path in OPERATORS] == [seen] * 3
            assert guarded.get("/v1/models", headers).status == 200
            assert guarded.ask(headers=headers, temperature=0).status == 200
    assert guarded.get("/metrics", {"authorization": f"Bearer {ALICE}"}).error["code"] == "not_the_operator"


def test_c22_no_route_changes_anything(guarded: Running):
    before = guarded.config
    paths = (
        *OPEN,
        *GUARDED,
        CHAT,
        "/config",
        "/v1/config",
        "/admin",
        "/admin/budget",  # tests/serve/test_live_budget.py has who may change it
        "/reload",
        "/shutdown",
        "/",
    )
    where = guarded.base.removeprefix("http://")
    for key in ({}, {"authorization": f"Bearer {BOSS}"}):
        for path in paths:
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
                if (method, path) == ("POST", CHAT):
                    continue
                line = http.client.HTTPConnection(where, timeout=30)
                line.request(method, path, b'{"cap": 0, "upstream": "http://x"}', key)
                got = line.getresponse()
                asks_key = not key and path.startswith(("/v1/", "/admin/budget"))
                told = got.read()
                line.close()
                refused = (401, 405) if asks_key else (404, 405, 415)
                assert got.status in refused, (method, path, got.status)
                assert b'"error"' in told
    assert guarded.gateway.config is before
    assert guarded.ready()


FOREIGN = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.7", "[::2]")


def test_c22_without_keys_other_names_are_refused_lest_a_web_page_has_its_own_lead_here():
    with Upstream() as up, Running(up.url) as gate:
        for host in FOREIGN:
            for path in GUARDED:
                answer = gate.get(path, {"host": host})
                assert (answer.status, answer.error["code"]) == (403, "host_not_allowed"), (host, path)
            assert gate.ask(headers={"host": host}).status == 403
        assert up.count.requests == 0
        for host in ("localhost", "127.0.0.1:1", "[::1]:8080", "127.8.8.8", "me.localhost"):
            assert gate.get("/metrics", {"host": host}).status == 200
        # a page of another site may send a form or plain text without being asked: neither is served
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            assert gate.ask(headers={"content-type": kind}).status == 415
        assert up.count.requests == 0


def test_c22_beyond_loopback_it_does_not_start_without_keys(tmp_path: Path):
    words = [str(Path(sys.executable).parent / "adacompute"), "serve", "--upstream", "http://127.0.0.1:9/v1"]
    done = subprocess.run(
        [*words, "--host", "::", "--port", "0"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "there are no keys" in done.stderr
    assert "--keys FILE" in done.stderr
    assert not list(tmp_path.iterdir())


# c21: keys are nowhere

UPSTREAM_KEY = "canary/upstream+7f3a9c0b=51d24e"
CLIENT_KEY = "canary-client-93bd0a17c6f24e58"
BOSS_KEY = "canary-boss-41c07e5ad9b83f62"
WRONG_KEY = "sk-canarywrong5e0f7a41b2c96d38"


def forms(secret: str) -> list[bytes]:
    """A key as it may turn up: plain, in a header for a browser, escaped, in part."""
    once = [secret, secret[:20], secret[-20:], secret.replace("/", "\\/"), repr(secret)[1:-1]]
    once += [base64.b64encode(f"{user}:{secret}".encode()).decode() for user in ("me", "")]
    once += [base64.b64encode(secret.encode()).decode().rstrip("=")]
    return [each.encode() for each in once]


def echoing(number: int, body: dict[str, Any]) -> Any:
    """Fails in every way, and quotes the key where there is anything to say."""
    said = f"your key {UPSTREAM_KEY} (Bearer {UPSTREAM_KEY}) is no good"
    ways = [
        Reply(texts=[f"The answer is 42. {UPSTREAM_KEY}"] * (body.get("n") or 1)),
        Status(code=401, message=said),
        Status(code=400, message=said),
        Status(code=500, message=said),
        Status(code=429, message=said, retry_after=0.01),
        Garbage(raw=f'{{"error": "{UPSTREAM_KEY}'.encode()),
        Garbage(raw=f"<html>{UPSTREAM_KEY}</html>".encode(), content_type="text/html", code=502),
        Garbage(whole=f"HTTP/9.9 {UPSTREAM_KEY}\r\n\r\n".encode()),
        Drop(reset=True),
        Drop(after=100),
        Stall(),
        Reply(body={"choices": UPSTREAM_KEY}),
        Reply(body={"choices": [{"message": {"content": [UPSTREAM_KEY]}}], UPSTREAM_KEY: UPSTREAM_KEY}),
    ]
    return ways[number % len(ways)]


@pytest.mark.slow
def test_c21_no_key_is_in_any_log_metric_error_pool_state_or_setting_shown(tmp_path: Path):
    (tmp_path / "secret").mkdir()
    keys = tmp_path / "secret" / "keys.toml"
    keys.write_text(f'[boss]\nkey = "{BOSS_KEY}"\noperator = true\n[alice]\nkey_env = "ALICE"\ncap = 30\n')
    environ = {"ADACOMPUTE_KEY": UPSTREAM_KEY, "ALICE": CLIENT_KEY}
    boss, alice = ({"authorization": f"Bearer {key}"} for key in (BOSS_KEY, CLIENT_KEY))
    settings = {"log": "debug", "record": "traffic.sqlite", "show_texts": True, "keys_file": str(keys)}
    limits = {"attempts": 1, "first_byte_timeout": 0.2, "total_timeout": 0.5}
    with (
        Upstream(echoing) as up,
        Process(up.url, folder=tmp_path, environ=environ, endpoint=limits, **settings) as gate,
    ):
        found = [gate.get(path, boss).raw for path in GUARDED]
        for number in range(39):
            up.script = echoing if number < 30 else Honest()
            fields = ({}, {"stream": True}, {"stream": True, "temperature": 0})[number % 3]
            found.append(gate.ask(headers=(boss, alice)[number % 2], **fields).raw)
        basic = base64.b64encode(f"me:{CLIENT_KEY}".encode()).decode()
        for headers in (
            {"authorization": f"Bearer {WRONG_KEY}"},
            {"authorization": f"Token {WRONG_KEY}"},
            {"authorization": f"Basic {basic}"},
            {**alice, "x-adacompute-policy": "nobody's"},
        ):
            found += [gate.get(path, headers).raw for path in GUARDED] + [gate.ask(headers=headers).raw]
        found.append(gate.ask(b"{", headers=alice).raw)
        found += [gate.get(path, boss).raw for path in GUARDED]
        assert all(one.headers["authorization"] == f"Bearer {UPSTREAM_KEY}" for one in up.requests)
        gate.terminate()
        assert gate.wait() == 0
        log = gate.log
    shown = subprocess.run(
        [str(Path(sys.executable).parent / "adacompute"), "serve", "--upstream", up.url, "--show-config"],
        cwd=tmp_path,
        env={"PATH": "", **environ, "ADACOMPUTE_SERVE_KEYS_FILE": str(keys)},
        capture_output=True,
        timeout=60,
        check=True,
    ).stdout
    assert b"keys_file" in shown
    assert log.count('"level"') > 40
    found += [shown, log.encode(), *(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())]
    assert (tmp_path / "traffic.sqlite").is_file()
    for secret in (UPSTREAM_KEY, CLIENT_KEY, BOSS_KEY, WRONG_KEY):
        for form in forms(secret):
            for text in found:
                assert form not in text, (form, text[max(0, text.find(form) - 200) :][:400])
