"""What else is asked for under /v1/: passed on both ways as it comes, counted, capped, nowhere else."""

import asyncio
import http.client
import io
import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web
from other_routes import OtherRoutes, completion, status, stream
from running import Process, Running
from sdk_clients import sdk
from starlette.exceptions import HTTPException
from wires import until

from adacompute.config import ServeConfig
from adacompute.serve.routes.forward import bound_cost, parse_target

KEY = "canary-upstream-key-0123456789"
EMBED = {"model": "m", "input": "a question"}


def connection(gate: Running) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", int(gate.base.rpartition(":")[2]), timeout=30)


def spent(gate: Running, unit: str) -> tuple[float, float, float]:
    balance = gate.gateway.resources.ledger.account()
    return tuple(getattr(balance, name).amount_in(unit) for name in ("spent", "maybe", "reserved"))  # type: ignore[return-value]


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "upstream.key"
    file.write_text(KEY)
    return str(file)


def test_the_sdk_s_other_calls_reach_the_upstream_and_come_back():
    with OtherRoutes() as up, Running(up.url) as gate:
        client = sdk(gate)
        vectors = client.embeddings.create(model="m", input="x", encoding_format="float")
        assert vectors.data[0].embedding == [0.1, 0.2]
        assert client.completions.create(model="m", prompt="x", n=2).choices[1].text == "done"
        file = client.files.create(file=io.BytesIO(b"x" * 100_000), purpose="assistants")
        assert file.id == "file-1"
        assert b"x" * 100_000 in up.of("/v1/files")[0].body
        with pytest.raises(openai.NotFoundError, match="no route /v1/moderations"):
            client.moderations.create(input="x")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"])
def test_every_method_keeps_its_path_query_and_body(method: str):
    with OtherRoutes() as up, Running(up.url) as gate:
        body = b'{"a": 1}' if method in ("POST", "PUT", "PATCH") else None
        answer = gate._send(method, "/v1/files/a%2Fb%20c?after=x%20y&n=2", body, {})
        (asked,) = up.of("/v1/files/a%2Fb%20c")
        assert (asked.method, asked.query, asked.body) == (method, "after=x%20y&n=2", body or b"")
        assert answer.status == 200


def test_a_model_can_be_deleted_and_its_name_keeps_its_slash():
    with OtherRoutes(**{"models/ft%2Fm": status(200, {"id": "ft/m", "deleted": True})}) as up:  # noqa: SIM117
        with Running(up.url) as gate:
            assert sdk(gate).models.delete("ft/m").deleted


def test_only_harmless_headers_go_up_and_come_down(key_file: str):
    sent = {
        "authorization": "Bearer mine",
        "cookie": "a=b",
        "x-adacompute-budget": "3",
        "x-forwarded-host": "evil",
        "openai-organization": "other",
        "x-api-key": "mine",
        "connection": "close, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "accept-encoding": "gzip",
        "openai-beta": "assistants=v2",
        "idempotency-key": "k1",
    }
    reply = status(200, {}, set_cookie="a=b", server="secret", x_powered_by="x", openai_processing_ms="3")
    with (
        OtherRoutes(embeddings=reply) as up,
        Running(up.url, endpoint={"key_file": key_file}) as gate,
    ):
        answer = gate.ask(EMBED, sent, path="/v1/embeddings")
        (asked,) = up.of("/v1/embeddings")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["accept-encoding"] == "identity"
    assert (asked.headers["openai-beta"], asked.headers["idempotency-key"]) == ("assistants=v2", "k1")
    assert asked.headers["host"] == f"127.0.0.1:{up.port}"
    for name in ("cookie", "x-adacompute-budget", "x-forwarded-host", "openai-organization", "x-api-key"):
        assert name not in asked.headers
    assert not {"x-hop", "te"} & set(asked.headers)
    assert answer.headers["openai-processing-ms"] == "3"
    assert not {"set-cookie", "server", "x-powered-by"} & set(answer.headers)
    assert answer.headers["x-request-id"].startswith("req-")
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


def test_headers_query_and_the_keys_header_go_to_every_route_and_nowhere_else(tmp_path: Path):
    title = "my app & more"
    token = "t0ken-of-another-proxy"
    words = ("--header", f"X-Title: {title}", "--query", "api-version=2024-10-21", "--key-header", "api-key")
    words += ("--header", f"Proxy-Auth: Bearer {token}")
    quote = status(400, {"error": {"message": f"{KEY} is wrong, and {token}"}})
    with (
        OtherRoutes(**{"chat/completions": quote, "messages": status(200, {"said": KEY + token})}) as up,
        Process(up.url, *words, environ={"ADACOMPUTE_KEY": KEY}, folder=tmp_path, log="debug") as gate,
    ):
        replies = [
            gate.ask(),
            gate.ask(path="/v1/messages?api-version=mine&beta=true"),
            gate.get("/v1/models"),
        ]
        asked = list(up.requests)
    assert {one.path for one in asked} == {"/v1/models", "/v1/chat/completions", "/v1/messages"}
    for one in asked:
        assert (one.headers["x-title"], one.headers["api-key"]) == (title, KEY)
        assert "authorization" not in one.headers
        assert one.query == ("beta=true&" if one.path == "/v1/messages" else "") + "api-version=2024-10-21"
    told = "".join(str(reply) for reply in replies) + gate.log
    assert not [secret for secret in (KEY, token, title, "2024-10-21") if secret in told]


def test_f4_what_is_free_of_charge_is_passed_on_without_a_body():
    with OtherRoutes() as up, Running(up.url, cap=1) as gate:
        body = {"model": "m", "input": "x", "n": 100}
        gate.ask(body, path="/v1/responses/x/cancel")
        line = http.client.HTTPConnection(gate.base.removeprefix("http://"))
        line.request(
            "DELETE", "/v1/chat/completions/x", json.dumps(body), {"content-type": "application/json"}
        )
        line.getresponse().read()
        line.close()
        asked = [(one.method, one.path, one.body) for one in up.requests if one.path != "/v1/models"]
    assert asked == [("POST", "/v1/responses/x/cancel", b""), ("DELETE", "/v1/chat/completions/x", b"")]


@pytest.mark.parametrize("code", [200, 400])
def test_neither_key_nor_address_of_the_upstream_is_in_the_headers_of_a_reply(key_file: str, code: int):
    def leak(_request: web.Request, _received: Any) -> web.Response:
        said = {"etag": f'"{KEY}"', "openai-model": up.url, "content-disposition": "inline; filename=a.txt"}
        return web.json_response({}, status=code, headers=said)

    with OtherRoutes(embeddings=leak) as up, Running(up.url, endpoint={"key_file": key_file}) as gate:
        answer = gate.ask(EMBED, path="/v1/embeddings")
    assert (answer.status, answer.headers["content-disposition"]) == (code, "inline; filename=a.txt")
    assert KEY not in str(answer.headers)
    assert str(up.port) not in str(answer.headers)


def test_what_has_not_changed_since_is_said_where_a_client_asks_for_that():
    with OtherRoutes(**{"files/a": status(304, {}, etag='"1"')}) as up, Running(up.url) as gate:
        assert gate.get("/v1/files/a", {"if-none-match": '"1"'}).status == 304
        assert gate.get("/v1/files/a").status == 502


def test_a_stream_comes_chunk_for_chunk_while_the_upstream_writes():
    parts = [b'data: {"n": %d}\n\n' % n for n in range(5)]
    with OtherRoutes(completions=stream(*parts, gap=0.15)) as up, Running(up.url) as gate:
        line = connection(gate)
        line.request("POST", "/v1/completions", json.dumps(EMBED), {"content-type": "application/json"})
        reply = line.getresponse()
        assert reply.headers["content-type"] == "text/event-stream"
        first = reply.read1(65_536)
        behind = up.of("/v1/completions")[0].sent
        rest = reply.read()
        line.close()
    assert first.startswith(parts[0])
    assert behind < len(parts)
    assert first + rest == b"".join(parts)


def test_an_upload_goes_up_while_the_client_sends_it():
    with OtherRoutes() as up, Running(up.url) as gate:
        line = connection(gate)
        line.putrequest("POST", "/v1/files")
        line.putheader("content-type", "multipart/form-data; boundary=b")
        line.putheader("content-length", str(3 * 65_536))
        line.endheaders()
        for number in range(3):
            line.send(b"%d" % number * 65_536)
            until(lambda wanted=(number + 1) * 65_536: up.requests and len(up.requests[-1].body) >= wanted)
        assert line.getresponse().status == 200
        line.close()
        (asked,) = up.of("/v1/files")
        assert asked.headers["content-type"] == "multipart/form-data; boundary=b"
        assert asked.headers["content-length"] == str(3 * 65_536)


def test_an_upload_of_unknown_length_is_passed_on_too():
    with OtherRoutes() as up, Running(up.url) as gate:
        line = connection(gate)
        parts = iter([b"a" * 1000, b"b" * 1000])
        line.request("POST", "/v1/files", parts, {"content-type": "text/plain"}, encode_chunked=True)
        assert line.getresponse().status == 200
        line.close()
        assert up.of("/v1/files")[0].body == b"a" * 1000 + b"b" * 1000


def test_c09_a_body_above_its_setting_is_refused_and_the_setting_named():
    with OtherRoutes() as up, Running(up.url, max_body=1000, max_upload=2000) as gate:
        raw = json.dumps({"model": "m", "input": "x" * 2000}).encode()
        long = gate.ask(raw, path="/v1/embeddings")
        upload = gate.ask(b"x" * 3000, {"content-type": "text/plain"}, path="/v1/files")
        line = connection(gate)
        parts = iter([b"a" * 1000] * 3)
        line.request("POST", "/v1/files", parts, {"content-type": "text/plain"}, encode_chunked=True)
        chunked = line.getresponse()
        error = json.loads(chunked.read())["error"]
        line.close()
        assert (long.status, upload.status, chunked.status) == (413, 413, 413)
        assert "max_body" in long.error["message"]
        assert "max_upload" in upload.error["message"]
        assert "max_upload" in error["message"]
        assert not up.of("/v1/embeddings")


def test_c08_a_client_that_goes_away_ends_the_upstream_s_call_before_and_in_the_reply():
    slow = stream(b"first", *[b"more"] * 1000, gap=0.05, kind="application/octet-stream")
    silent = stream(gap=0.0)

    async def hang(request: Any, received: Any) -> Any:
        await asyncio.sleep(30)
        return await silent(request, received)

    with OtherRoutes(completions=slow, embeddings=hang) as up, Running(up.url) as gate:
        for path, reads in (("/v1/completions", True), ("/v1/embeddings", False)):
            line = connection(gate)
            line.request("POST", path, json.dumps(EMBED), {"content-type": "application/json"})
            if reads:
                assert line.getresponse().read1(10)
            else:
                until(lambda path=path: up.of(path))
            line.sock.close()
            line.close()
            until(lambda path=path: up.of(path)[0].aborted, 20.0)
        until(lambda: spent(gate, "samples")[2] == 0)
        assert spent(gate, "samples")[:2] == (0.0, 2.0)  # both may be charged for


def test_c08_a_client_that_goes_away_in_its_upload_ends_the_upstream_s_call():
    with OtherRoutes() as up, Running(up.url) as gate:
        line = connection(gate)
        line.putrequest("POST", "/v1/audio/transcriptions")
        line.putheader("content-type", "multipart/form-data; boundary=b")
        line.putheader("content-length", "1000000")
        line.endheaders()
        line.send(b"x" * 70_000)
        until(lambda: up.of("/v1/audio/transcriptions"))
        line.close()
        until(lambda: up.of("/v1/audio/transcriptions")[0].aborted, 20.0)
        until(lambda: spent(gate, "samples")[2] == 0)
        assert spent(gate, "samples") == (0, 0, 0)  # half of a body is not worked on


def test_c25_a_download_under_way_is_finished_at_a_shutdown():
    slow = stream(*[b"part"] * 10, gap=0.1, kind="application/octet-stream")
    with OtherRoutes(**{"files/f/content": slow}) as up, Running(up.url, grace=20.0) as gate:
        line = connection(gate)
        line.request("GET", "/v1/files/f/content")
        reply = line.getresponse()
        first = reply.read1(4)
        gate.begin_to_stop()
        assert first + reply.read() == b"part" * 10
        line.close()
        assert up.of("/v1/files/f/content")[0].sent == 10


# what it costs


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/v1/embeddings", EMBED, 5),
        ("/v1/completions", {"model": "m", "prompt": "x", "n": 3}, 16),
        ("/v1/files", {"a": 1}, 0),
    ],
)
def test_a_reply_s_usage_is_what_is_spent(path: str, body: dict[str, Any], tokens: int):
    with OtherRoutes() as up, Running(up.url, unit="tokens", cap=1e6) as gate:
        assert gate.ask(body, path=path).status == 200
        assert spent(gate, "tokens") == (tokens, 0, 0)
        assert spent(gate, "samples")[0] == (0 if path == "/v1/files" else body.get("n", 1))


@pytest.mark.parametrize(
    "reply",
    [
        {"data": []},
        {"usage": {"prompt_tokens": -5, "total_tokens": 1}},
        {"usage": {"prompt_tokens": "5"}},
        {"usage": {"prompt_tokens": 10**30}},
        {"usage": None},
    ],
)
def test_a_success_without_usable_usage_costs_what_was_reserved(reply: Any):
    raw = len(json.dumps(EMBED))
    with OtherRoutes(embeddings=status(200, reply)) as up, Running(up.url, unit="tokens", cap=1e6) as gate:
        assert gate.ask(EMBED, path="/v1/embeddings").json == reply
        assert spent(gate, "tokens") == (raw + 64, 0, 0)


def test_usage_is_found_at_the_end_of_a_stream_and_of_a_long_reply():
    usage = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
    events = [b'data: {"choices": [{"text": "\\"usage\\": {"}]}\n\n'] * 5000
    events += [b'data: {"choices": [], "usage": %s}\n\n' % json.dumps(usage).encode(), b"data: [DONE]\n\n"]
    long = {"data": [{"embedding": [0.123456] * 50_000}], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
    with (
        OtherRoutes(completions=stream(*events), embeddings=status(200, long)) as up,
        Running(up.url, unit="tokens", cap=1e6) as gate,
    ):
        assert gate.ask({"prompt": "x"}, path="/v1/completions").raw == b"".join(events)
        assert spent(gate, "tokens")[0] == 15
        gate.ask(EMBED, path="/v1/embeddings")
        assert spent(gate, "tokens")[0] == 15 + 9


def test_c14_a_cap_holds_for_what_is_passed_on_and_a_request_beyond_it_is_not_sent():
    with OtherRoutes() as up, Running(up.url, cap=5) as gate:
        codes: list[int] = []

        def ask() -> None:
            codes.append(gate.ask({"prompt": "x", "n": 2}, path="/v1/completions").status)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [200] * 2 + [429] * 6
        assert len(up.of("/v1/completions")) == 2
        assert spent(gate, "samples") == (4, 0, 0)
        assert gate.get("/v1/files").status == 200  # what is free is never capped


@pytest.mark.parametrize("cap", [0, 5])
def test_f5_a_field_that_some_servers_read_as_one_that_costs_is_refused_by_both_names(cap: int):
    names = {"N": "n", "Best_of": "best_of", "MAX_TOKENS": "max_tokens", "max_to\u212aens": "max_tokens"}
    names |= {
        "Max_Completion_Tokens": "max_completion_tokens",
        "Prompt": "prompt",
        "Num_Predict": "num_predict",
    }
    bodies = {
        "chat/completions": {"messages": [{"role": "user", "content": "x"}]},
        "completions": {"prompt": "x"},
        "responses": {"input": "x"},
        "images/generations": {"prompt": "x"},
    }
    with OtherRoutes() as up, Running(up.url, cap=cap) as gate:
        for path, body in bodies.items():
            for odd, known in names.items():
                answer = gate.ask({"model": "m", "n": 1, **body, odd: 128}, path=f"/v1/{path}")
                assert answer.status == 400, (path, odd)
                assert repr(odd) in answer.error["message"]
                assert repr(known) in answer.error["message"] or path == "responses"  # it has other names
        assert all(request.method == "GET" for request in up.requests)


@pytest.mark.parametrize("body", [b'"n":4,"n":2', b'"n":4,"\\u006e":2', b'"\\u006E" : 4, "n" : 2'])
def test_f5_of_a_field_that_is_there_twice_the_upstream_hears_what_is_counted(body: bytes):
    with OtherRoutes() as up, Running(up.url) as gate:
        assert gate.ask(b'{"prompt":"x",%b}' % body, path="/v1/completions").status == 200
        (received,) = up.of("/v1/completions")
        pairs = json.loads(received.body, object_pairs_hook=list)
        assert [value for name, value in pairs if name == "n"] == [2]
        assert spent(gate, "samples") == (2, 0, 0)


CANCELS = (
    *("responses/r1", "batches/b1", "fine_tuning/jobs/j1", "threads/t1/runs/r1", "messages/batches/b1"),
    *("vector_stores/v1/file_batches/b1", "uploads/u1"),
)
NO_CANCELS = (
    "chat/completions",
    "completions/c1",
    "images/generations",
    "responses",
    "responses/a/b",
    "audio/speech",
)


def test_f4_cancelling_is_free_only_where_there_is_such_a_route():
    replies = {f"{path}/cancel": status(200, completion()) for path in (*CANCELS, *NO_CANCELS)}
    with OtherRoutes(**replies) as up, Running(up.url, cap=len(NO_CANCELS)) as gate:
        for path in (*NO_CANCELS, *CANCELS):  # an upstream that matches by prefix would generate
            assert gate.ask({"model": "m", "prompt": "x"}, path=f"/v1/{path}/cancel").status == 200
        assert spent(gate, "samples") == (len(NO_CANCELS), 0, 0)
        refused = gate.ask({"model": "m"}, path="/v1/chat/completions/cancel")
        assert refused.status == 429


def test_c14_what_waited_for_its_turn_is_checked_against_the_cap_again():
    greedy = {"data": [], "usage": {"prompt_tokens": 100_000, "total_tokens": 100_000}}

    async def answer(request: Any, received: Any) -> Any:
        await asyncio.sleep(0.3)
        return status(200, greedy)(request, received)

    with (
        OtherRoutes(embeddings=answer) as up,
        Running(up.url, unit="tokens", cap=10_000, concurrency=1) as gate,
    ):
        codes: list[int] = []

        def ask() -> None:
            codes.append(gate.ask(EMBED, path="/v1/embeddings").status)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [200, *[429] * 5]
        assert len(up.of("/v1/embeddings")) == 1
        assert spent(gate, "tokens") == (100_000, 0, 0)


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ({"n": 100}, "text/plain", (415, "content-type")),
        ({"n": 100}, "", (415, "content-type")),
        ({"n": 100}, "application/x-www-form-urlencoded", (415, "content-type")),
        ({"n": 100}, "multipart/form-data; boundary=b", (415, "content-type")),
        ({"+AG4-": 100}, "application/json; charset=utf-7", (415, "in utf-8")),
        ({"extra_body": {"n": 100}}, "application/json", (400, "extra_body.n is not supported")),
        ({"n": "100"}, "application/json", (400, "n is a text")),
        ({"n": 100.0}, "application/json", (400, "n is 100.0")),
        ({"n": 129}, "application/json", (400, "max_n")),
        ({"best_of": [5]}, "application/json", (400, "best_of is a list")),
        ({"best_of": 129}, "application/json", (400, "max_n")),
        ({"n_cmpl": 100}, "application/json", (400, "n_cmpl")),
        ({"num_return_sequences": 100}, "application/json", (400, "give n")),
        ({"n_predict": 5}, "application/json", (400, "give max_tokens")),
        ({"max_completion_tokens": 5}, "application/json", (400, "give max_tokens")),
        ({"max_tokens": 32_769}, "application/json", (400, "larger max_tokens")),
        ({"max_tokens": "5"}, "application/json", (400, "max_tokens is a text")),
    ],
)
def test_c14_what_a_request_asks_for_is_held_to_the_rules_of_chats(
    body: dict[str, Any], kind: str, expected: tuple[int, str]
):
    with OtherRoutes() as up, Running(up.url, cap=10) as gate:
        raw = json.dumps({"model": "m", "prompt": "x", **body}).encode()
        answer = gate.ask(raw, {"content-type": kind}, path="/v1/completions")
        assert answer.status == expected[0]
        assert expected[1] in answer.error["message"].lower()
        assert not up.of("/v1/completions")
        assert gate.ask(b"[]", path="/v1/completions").status == 400
        assert gate.ask({"prompt": "x", "max_tokens": 0}, path="/v1/completions").status == 200


def test_c14_more_samples_than_asked_for_are_counted_as_they_came():
    images = status(200, {"created": 1, "data": [{"b64_json": "x" * 300_000}] * 4})
    few = status(200, {"created": 1, "data": [{"url": "x"}] * 3})
    routes = {"images/edits": images, "images/generations": few}
    more = status(200, completion(5))
    form = {"content-type": "multipart/form-data; boundary=b"}
    with OtherRoutes(completions=more, **routes) as up, Running(up.url, cap=12) as gate:
        assert gate.ask({"prompt": "x", "n": 2}, path="/v1/completions").status == 200
        assert spent(gate, "samples") == (5, 0, 0)
        assert gate.ask(b"--b--", form, path="/v1/images/edits").status == 200
        assert spent(gate, "samples") == (9, 0, 0)
        assert gate.ask({"prompt": "x"}, path="/v1/images/generations").status == 200
        assert spent(gate, "samples") == (12, 0, 0)
        assert gate.ask(b"{}", {"content-type": "text/plain"}, path="/v1/images/edits").status == 415
        assert gate.ask({"prompt": "x"}, path="/v1/completions").status == 429


def test_c14_work_in_the_background_is_refused_under_a_cap_and_stored_prompts_are_bounded():
    native = status(200, {"id": "resp_1", "object": "response", "output": [], "usage": None})
    stored = {"model": "m", "input": "x", "previous_response_id": "resp_0", "max_output_tokens": 16}
    with (
        OtherRoutes(responses=native) as up,
        Running(up.url, unit="tokens", cap=1e6, max_tokens=1000) as gate,
    ):
        refused = gate.ask({"model": "m", "input": "x", "background": True}, path="/v1/responses")
        assert (refused.status, refused.error["code"]) == (403, "cost_unknown")
        assert not up.of("/v1/responses")
        assert gate.ask(stored, path="/v1/responses").status == 200
        size = len(up.of("/v1/responses")[0].body)
        assert spent(gate, "tokens") == (size + 64 + 1000 + 16, 0, 0)
    with OtherRoutes(responses=native) as up, Running(up.url) as gate:
        assert gate.ask({"model": "m", "input": "x", "background": True}, path="/v1/responses").status == 200


def test_counting_tokens_and_storing_a_conversation_are_free():
    free = ("responses/input_tokens", "conversations", "conversations/c1/items", "messages/count_tokens")
    replies = {path: status(200, {"input_tokens": 3}) for path in free}
    with OtherRoutes(**replies) as up, Running(up.url, cap=1) as gate:
        for path in free * 2:
            assert gate.ask({"model": "m", "input": "x"}, path=f"/v1/{path}").status == 200
        assert spent(gate, "samples") == (0, 0, 0)


@pytest.mark.parametrize(
    "reply",
    [
        {"choices": [{"text": "x"}], "usage": {"prompt_tokens": 0, "completion_tokens": 0}},
        {"choices": [{"text": "x"}], "echo": {"usage": {"prompt_tokens": 1, "completion_tokens": 0}}},
        {
            "choices": [{"text": "x" * 600_000}],
            "tools": [{"usage": {"prompt_tokens": 1, "completion_tokens": 0}}],
        },
    ],
)
def test_usage_of_nothing_or_of_something_else_isn_t_believed(reply: Any):
    body = {"prompt": "x", "max_tokens": 100}
    with OtherRoutes(completions=status(200, reply)) as up, Running(up.url, unit="tokens", cap=1e6) as gate:
        assert gate.ask(body, path="/v1/completions").status == 200
        assert spent(gate, "tokens") == (len(json.dumps(body)) + 64 + 100, 0, 0)


def test_usage_of_a_reply_is_its_own_whatever_it_repeats():
    usage = {"input_tokens": 20, "output_tokens": 4}
    other = [{"usage": {"prompt_tokens": 1, "completion_tokens": 0}}]
    whole = {"choices": [], "usage": usage, "tools": other}
    long = {"choices": [{"text": "x" * 600_000}], **whole}
    event = {"type": "response.completed", "response": {"output": "x" * 80_000, **whole}, "at": 1}
    events = stream(b"data: %s\n\n" % json.dumps(event).encode())
    for reply in (status(200, whole), status(200, long), events):
        with OtherRoutes(completions=reply) as up, Running(up.url, unit="tokens", cap=1e6) as gate:
            gate.ask({"prompt": "x"}, path="/v1/completions")
            assert spent(gate, "tokens") == (24, 0, 0)


def test_work_that_can_t_be_counted_is_passed_on_only_without_a_cap():
    batch = status(200, {"id": "batch_1"})
    with OtherRoutes(batches=batch) as up, Running(up.url, cap=100) as gate:
        refused = gate.ask({"input_file_id": "f"}, path="/v1/batches")
        assert (refused.status, refused.error["code"]) == (403, "cost_unknown")
        assert gate.get("/v1/batches").status == 200
        assert [one.method for one in up.of("/v1/batches")] == ["GET"]
    with OtherRoutes(batches=batch) as up, Running(up.url) as gate:
        assert gate.ask({"input_file_id": "f"}, path="/v1/batches").status == 200


def test_c15_errors_of_the_upstream_cost_nothing_if_they_are_the_client_s_and_maybe_if_its_own():
    error = {"error": {"message": "no", "type": "t", "param": "input", "code": "c"}}
    with OtherRoutes() as up, Running(up.url) as gate:
        for code, maybe in ((400, 0), (429, 0), (500, 1)):
            up.script["/v1/embeddings"] = status(code, error, retry_after="7")
            answer = gate.ask(EMBED, path="/v1/embeddings")
            assert (answer.status, answer.json) == (code, error)
            assert answer.headers["retry-after"] == "7"
            assert spent(gate, "samples") == (0, maybe, 0)


def test_c04_an_upstream_that_doesn_t_answer_is_given_up_at_the_deadline():
    async def hang(_request: Any, _received: Any) -> Any:
        await asyncio.sleep(30)

    with OtherRoutes(embeddings=hang) as up, Running(up.url, deadline=0.5) as gate:
        answer = gate.ask(EMBED, path="/v1/embeddings")
        assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
        assert spent(gate, "samples") == (0, 1, 0)
    with Running(up.url) as gate:  # it is gone
        answer = gate.ask(EMBED, path="/v1/embeddings")
        assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
        assert spent(gate, "samples") == (0, 0, 0)


# where it goes


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/..",
        "/v1/%2e%2e/admin",
        "/v1/%2E./admin",
        "/v1/files/..%2f..%2fadmin",
        "/v1/files/%252e%252e/admin",
        "/v1/files/..%5cadmin",
        "/v1/files/..;/admin",
        "/v1/files/%5c..%5cadmin",
        "/v1/%2e/organization",
        "/v1/%76%31/organization",
        "/v1/./files",
        "/v1/files/%00",
        "/v1/files/a%0d%0aHost:%20evil",
        "/v1/v1/models",
        "/v1/organization%2Fcosts",
        "/v1/organization%2fcosts",
        "/v1/organization;x/costs",
        "/v1/%2Forganization/costs",
        "/v1/fine_tuning%2Fjobs",
        "/v1/fine_tuning%3Fx/jobs",
        "/v1",
    ],
)
def test_c20_a_path_that_leads_elsewhere_is_not_passed_on(path: str):
    with OtherRoutes() as up, Running(up.url) as gate:
        for method in ("GET", "POST", "DELETE"):
            answer = gate._send(method, path, None, {})
            assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert {one.path for one in up.requests} <= {"/v1/models"}


def test_c20_administration_and_odd_methods_are_not_passed_on():
    with OtherRoutes() as up, Running(up.url) as gate:
        for path in ("/v1/organization/admin_api_keys", "/v1/Organization/users", "/v1/usage"):
            answer = gate.get(path)
            assert (answer.status, answer.error["code"]) == (403, "not_forwarded")
        for method in ("OPTIONS", "TRACE", "PROPFIND"):
            assert gate._send(method, "/v1/files", None, {}).status == 405
        assert gate._send("GET", "/v1/chat/completions", None, {}).headers["allow"] == "POST"
        assert {one.path for one in up.requests} <= {"/v1/models"}


def test_c20_a_redirect_is_not_followed_nor_shown():
    with OtherRoutes() as evil, OtherRoutes() as up, Running(up.url) as gate:
        for code in (301, 302, 303, 307, 308):
            up.script["/v1/embeddings"] = status(code, b"", location=f"{evil.url}/embeddings")
            answer = gate.ask(EMBED, path="/v1/embeddings")
            assert (answer.status, answer.error["code"]) == (502, "upstream_failed")
            assert str(evil.port).encode() not in answer.raw
            assert "location" not in answer.headers
        assert not evil.requests


def test_c21_the_key_and_the_upstream_s_address_are_masked_in_whatever_comes_back(key_file: str):
    words = f"key {KEY} at 127.0.0.1:"
    cut = [f"data: {KEY[:9]}".encode(), KEY[9:20].encode(), KEY[20:].encode() + b" end\n\n"]
    with (
        OtherRoutes(completions=stream(*cut, gap=0.1)) as up,
        Running(up.url, endpoint={"key_file": key_file}) as gate,
    ):
        assert gate.ask(EMBED, path="/v1/completions").raw == b"data: " + b"*" * len(KEY) + b" end\n\n"
        escaped = json.dumps({"error": {"message": KEY}}).replace("c", "\\u0063").encode()
        for code, value in (
            (400, {"error": {"message": f"{words}{up.port}"}}),
            (400, f"{words}{up.port}".encode()),
            (400, KEY.encode("utf-16")),
            (422, escaped),
            (401, {"error": {"message": f"wrong {words}{up.port}"}}),
            (200, {"echo": KEY}),
        ):
            up.script["/v1/embeddings"] = status(code, value)
            answer = gate.ask(EMBED, path="/v1/embeddings")
            assert answer.status == (502 if code == 401 else code)
            text = answer.raw.decode("utf-8", "replace").replace("\\u0063", "c").replace("\0", "")
            assert KEY not in text
            assert code == 200 or str(up.port) not in text


def test_c21_an_error_keeps_its_words_and_loses_addresses_whatever_its_shape():
    said = {
        "message": "model m: see http://10.0.0.7:80/x",
        "type": "t",
        "param": None,
        "code": "model_not_found",
    }
    with OtherRoutes() as up, Running(up.url.replace("127.0.0.1", "localhost")) as gate:

        def ask(code: int, value: Any, kind: str = "application/json") -> Any:
            up.script["/v1/embeddings"] = status(code, value, content_type=kind)
            answer = gate.ask(EMBED, path="/v1/embeddings")
            assert (answer.status, answer.headers["content-type"]) == (code, "application/json")
            return answer.json

        shown = ask(404, {"type": "error", "error": said, "request_id": "r1"})
        assert shown["error"] == {**said, "message": "model m: see the upstream"}
        assert (shown["type"], shown["request_id"]) == ("error", "r1")
        assert (
            ask(422, {"detail": f"localhost:{up.port} is full"})["error"]["message"] == "the upstream is full"
        )
        assert ask(400, b"too long", "text/plain")["error"]["message"] == "too long"
        page = ask(503, b"<html>10.0.0.7</html>", "text/html")
        assert page["error"]["message"] == "the upstream answered 503"


def test_a_compressed_reply_that_nobody_asked_for_is_refused_unread():
    packed = status(200, b"\x1f\x8b", content_encoding="gzip")
    with OtherRoutes(embeddings=packed) as up, Running(up.url) as gate:
        answer = gate.ask(EMBED, path="/v1/embeddings")
        assert (answer.status, answer.error["code"]) == (502, "upstream_failed")


def test_c22_a_page_of_another_site_can_t_send_an_upload():
    with OtherRoutes() as up, Running(up.url) as gate:
        port = gate.base.rpartition(":")[2]
        simple = {"content-type": "multipart/form-data; boundary=b"}
        for origin in ("https://evil.example", "null", f"https://127.0.0.1:{port}"):
            for path in ("/v1/audio/transcriptions", "/v1/files"):
                refused = gate.ask(b"--b--", {**simple, "origin": origin}, path=path)
                assert (refused.status, refused.error["code"]) == (403, "origin_not_allowed")
        own = {**simple, "origin": f"http://127.0.0.1:{port}"}
        assert gate.ask(b"--b--", own, path="/v1/audio/transcriptions").status == 404
    with OtherRoutes() as up, Running(up.url, cors=("https://app.example",)) as gate:
        allowed = {**simple, "origin": "https://app.example"}
        assert gate.ask(b"--b--", allowed, path="/v1/audio/transcriptions").status == 404


def test_a_key_is_needed_and_the_operator_can_switch_it_off(tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text('[me]\nkey = "client-key-0123456789"\ncap = 1\n')
    with OtherRoutes() as up, Running(up.url, keys_file=str(keys)) as gate:
        assert gate.ask(EMBED, path="/v1/embeddings").status == 401
        mine = {"authorization": "Bearer client-key-0123456789"}
        assert gate.ask(EMBED, mine, path="/v1/embeddings").status == 200
        assert gate.ask(EMBED, mine, path="/v1/embeddings").status == 429
        assert "authorization" not in up.of("/v1/embeddings")[0].headers
    with OtherRoutes() as up, Running(up.url, forward=False) as gate:
        answer = gate.ask(EMBED, path="/v1/embeddings")
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert "forward" in answer.error["message"]
        assert not up.of("/v1/embeddings")


def test_unknown_routes_and_changes_of_models_are_the_operator_s(tmp_path: Path):
    keys = tmp_path / "keys.toml"
    keys.write_text(
        '[me]\nkey = "client-key-0123456789"\n[op]\nkey = "operator-key-0123456789"\noperator = true\n'
    )
    paths = [
        ("POST", "load_lora_adapter"),
        ("GET", "server_info"),
        ("DELETE", "models/m"),
        ("POST", "models"),
    ]
    with OtherRoutes() as up, Running(up.url, keys_file=str(keys)) as gate:
        for method, path in paths:
            for key, code in (("client", 403), ("operator", 200)):
                up.script[f"/v1/{path}"] = status(200, {"data": []})
                raw = b"{}" if method == "POST" else None
                sent = {"authorization": f"Bearer {key}-key-0123456789"}
                answer = gate._send(method, f"/v1/{path}", raw, sent)
                assert answer.status == code
                assert code == 200 or answer.error["code"] == "not_the_operator"
        assert len([one for one in up.requests if (one.method, one.path[4:]) in paths]) == len(paths)
        mine = {"authorization": "Bearer client-key-0123456789"}
        assert gate.ask(EMBED, mine, path="/v1/embeddings").status == 200


def test_made_up_paths_take_no_model_s_place_at_the_rate_limiter():
    with OtherRoutes() as up, Running(up.url) as gate:
        for number in range(20):
            gate.ask(EMBED, path=f"/v1/junk{number}")
        gate.ask(EMBED, path="/v1/embeddings")
        limiters = gate.gateway.resources.client._require_open().limiters
        assert set(limiters._by_model) - {""} == {"/other", "/embeddings"}


def test_c27_it_is_counted_apart_with_bounded_labels_and_not_in_the_average():
    with OtherRoutes() as up, Running(up.url) as gate:
        for path in ("/v1/embeddings", "/v1/embeddings", "/v1/never-heard-of", "/v1/another"):
            gate.ask(EMBED, path=path)
        gate.get("/v1/files")
        text = gate.get("/metrics").raw.decode()
        counted = re.findall(
            r'^adacompute_forwarded_total\{route="(\w+)",status="(\d+)"\} (\S+)$', text, re.M
        )
        data = gate.get("/dashboard/data").json
    assert set(counted) == {("embeddings", "200", "2.0"), ("other", "404", "2.0"), ("files", "200", "1.0")}
    assert data["forwarded"] == {"embeddings": 2, "other": 2, "files": 1}
    assert (data["requests"], data["ever"]["requests"]) == (0, 0)
    assert 'adacompute_spent_total{unit="samples"} 2.0' in text
    assert 'adacompute_upstream_calls_total{kind="ok"} 2.0' in text


def test_double_slashes_and_one_at_the_end_are_forgiven():
    with OtherRoutes() as up, Running(up.url) as gate:
        for path in ("/v1//embeddings", "//v1/embeddings", "/v1/embeddings/", "///v1///embeddings//"):
            assert gate.ask(EMBED, path=path).status == 200
        for path in ("//v1/models", "/v1/models/", "/healthz/", "/v1//models//m"):
            assert gate.get(path).status == 200
        assert {one.path for one in up.requests} == {"/v1/embeddings", "/v1/models"}


def test_a_reply_of_unknown_length_reaches_a_client_of_the_oldest_http():
    body = json.dumps(EMBED).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with (
        OtherRoutes(completions=stream(b"one ", b"two")) as up,
        Running(up.url) as gate,
        socket.create_connection(("127.0.0.1", int(gate.base.rpartition(":")[2])), 30) as line,
    ):
        line.sendall(head.encode() + body)
        got = b""
        while part := line.recv(65_536):
            got += part
    assert got.endswith(b"\r\n\r\none two")


# bounds


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (b"/v1/embeddings", {"input": "x"}, (1, 164, 0)),
        (b"/v1/completions", {"prompt": ["a", "b"], "n": 3, "max_tokens": 10}, (6, 164, 60)),
        (b"/v1/completions", {"prompt": [1, 2, 3]}, (1, 164, 32_768)),
        (b"/v1/completions", {"prompt": "x", "best_of": 4, "n": True}, (4, 164, 4 * 32_768)),
        (b"/v1/images/generations", {"prompt": "x", "n": 2}, (2, 164, 2 * 8192)),
        (b"/v1/audio/transcriptions", None, (1, 8192, 8192)),
        (b"/v1/files", None, (0, 0, 0)),
        (b"/v1/completions", {"prompt": "a", "prompt_embeds": ["b", "c"], "max_tokens": 1}, (2, 164, 2)),
        (b"/v1/completions/cancel", {"max_tokens": 1}, (1, 164, 1)),
        (b"/v1/responses", {"input": [{"type": "item_reference"}]}, (1, 164 + 32_768, 32_768)),
        (b"/v1/responses", {"input": "x", "max_tokens": 1}, (1, 164, 32_768)),
        (b"/v1/batches/b1/cancel", {}, (0, 0, 0)),
    ],
)
def test_a_request_is_bounded_by_what_it_says(path: bytes, body: Any, expected: tuple[int, int, int]):
    cost = bound_cost(parse_target("POST", path), body, 100, ServeConfig())
    assert (cost.samples, cost.prompt_tokens, cost.completion_tokens) == expected


def test_reading_and_deleting_are_free_and_a_path_is_written_one_way():
    assert parse_target("GET", b"/v1/batches").free
    assert parse_target("DELETE", b"/v1/models/m").free
    assert parse_target("POST", b"/v1/a%62c/%7Ex+y%FF").path == "/abc/~x+y%FF"
    with pytest.raises(HTTPException):
        parse_target("GET", b"/v1/%2e%2e")
