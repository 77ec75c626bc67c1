"""Web pages of other origins: let in only where the operator names them, and never to the dashboard."""

from pathlib import Path

import pytest
from running import Answer, Running

from adacompute.config import ServeConfig
from adacompute.errors import ConfigError
from upstream import Upstream

PAGE = "https://app.example.com"
CHAT = "/v1/chat/completions"


def preflight(gate: Running, path: str, origin: str, **more: str) -> Answer:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    return gate._send("OPTIONS", path, None, headers | {k.replace("_", "-"): v for k, v in more.items()})


@pytest.fixture(scope="module")
def gate():
    with Upstream() as up, Running(up.url, cors=(PAGE, "http://localhost:3000")) as running:
        yield running


def test_a_page_of_a_named_origin_may_ask_and_read_what_came(gate: Running):
    wanted = "authorization, Content-Type, x-adacompute-budget, X-Stainless-Lang, openai-beta"
    for path in (CHAT, "/v1/responses", "/v1/models", "/v1/embeddings", "//v1/models"):
        told = preflight(gate, path, PAGE, access_control_request_headers=wanted)
        assert told.status == 200
        assert told.headers["access-control-allow-origin"] == PAGE
        assert "DELETE" in told.headers["access-control-allow-methods"]
        assert told.headers["access-control-allow-headers"] == wanted
        assert "access-control-allow-credentials" not in told.headers
    answer = gate.ask(headers={"origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-expose-headers"] == "*"
    assert answer.headers["vary"] == "Origin"


def test_errors_streams_and_what_is_passed_on_are_marked_too(gate: Running):
    page = {"origin": "http://localhost:3000"}
    for answer in (
        gate.ask(b"{", page),
        gate.ask(headers=page, stream=True),
        gate.ask({"a": 1}, page, path="/v1/embeddings"),
        gate.get("/v1/models/none", page),
    ):
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert answer.headers["access-control-expose-headers"] == "*"


def test_other_origins_and_other_pages_get_nothing(gate: Running):
    for origin in ("https://evil.example", "null", f"{PAGE}.evil", "http://app.example.com", f"{PAGE}:444"):
        told = preflight(gate, CHAT, origin)
        assert told.status == 400
        for answer in (
            told,
            gate.ask(headers={"origin": origin}),
            gate.get("/v1/models", {"origin": origin}),
        ):
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"].startswith("Origin")
    for path in ("/dashboard", "/dashboard/data", "/metrics", "/healthz", "/v1x"):
        for answer in (preflight(gate, path, PAGE), gate.get(path, {"origin": PAGE})):
            assert not [name for name in answer.headers if name.startswith("access-control")]


def test_it_is_off_by_default():
    with Upstream() as up, Running(up.url) as gate:
        assert preflight(gate, CHAT, PAGE).status == 405
        answer = gate.ask(headers={"origin": PAGE})
        assert not {"vary", "access-control-allow-origin"} & set(answer.headers)


def test_every_origin_may_be_let_in_only_with_keys(tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text('[me]\nkey = "client-key-0123456789"\n')
    with Upstream() as up, Running(up.url, keys_file=str(keys), cors=("*",)) as gate:
        told = preflight(gate, CHAT, "https://any.example", access_control_request_private_network="true")
        assert told.headers["access-control-allow-origin"] == "*"
        assert told.headers["access-control-allow-private-network"] == "true"
        refused = gate.ask(headers={"origin": "https://any.example"})
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "*")
    with pytest.raises(ConfigError, match="there are no keys"):
        ServeConfig(cors=("*",))


@pytest.mark.parametrize(
    "origin",
    [
        "app.example.com",
        "https://a.b/",
        "https://a.b/x",
        "https://u@a.b",
        "null",
        "",
        "https://A.b",
        "https://a.b:443",
    ],
)
def test_what_is_no_origin_is_refused_at_the_start(origin: str):
    with pytest.raises(ConfigError, match="give an origin as browsers send it"):
        ServeConfig(cors=(origin,))


def test_origins_of_apps_are_origins_too():
    ServeConfig(cors=("capacitor://localhost", "chrome-extension://abcdef", "http://[::1]:3000"))
