"""The gateway inside another application: mounted in Starlette and FastAPI, or run by a foreign server."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import uvicorn
from behaviours import Honest, Reply
from browser import CHROMIUM, chromium, tab
from fastapi import FastAPI
from other_routes import OtherRoutes
from running import PATIENCE, QUESTION
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from wires import until

import adacompute as ac
from adacompute.errors import ConfigError
from adacompute.serve.http.asgi import GatewayApp
from tiers import leave_to_nightly
from upstream import Upstream

MESSAGES: Any = QUESTION["messages"]


class Served:
    """An ASGI application served by uvicorn, as it comes, in a thread."""

    def __init__(self, app: Any, **options: Any) -> None:
        settings = {"port": 0, "log_config": None, "lifespan": "on", **options}
        self._server = uvicorn.Server(uvicorn.Config(app, **settings))

    def __enter__(self) -> "Served":
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started, "the application doesn't start"
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.begin_to_stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the application doesn't stop"

    def begin_to_stop(self) -> None:
        self._server.should_exit = True

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return httpx2.get(self.url + path, headers=headers, timeout=PATIENCE)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as scripted:
        yield scripted


@pytest.fixture
def make(upstream: Upstream, tmp_path: Path) -> Callable[..., GatewayApp]:
    """Makes a gateway in front of the scripted upstream, with its state in the test's folder."""

    def make_gateway(name: str = "state", **settings: Any) -> GatewayApp:
        given = {"state": str(tmp_path / f"{name}.sqlite"), "budget": 3.0, "grace": 5.0, **settings}
        return ac.gateway(ac.ServeConfig(**given), upstream=upstream.url, model="scripted")

    return make_gateway


async def _say_hello(_: object) -> PlainTextResponse:
    return PlainTextResponse("hello from the application itself")


def in_starlette(gateway: GatewayApp) -> Starlette:
    routes = [Route("/hello", _say_hello), Mount("/llm", app=gateway)]
    return Starlette(routes=routes, lifespan=gateway.lifespan)


def in_fastapi(gateway: GatewayApp) -> FastAPI:
    app = FastAPI(lifespan=gateway.lifespan)
    app.add_api_route("/hello", lambda: "hello from the application itself")
    app.mount("/llm", gateway)
    return app


@contextlib.contextmanager
def client_of(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="scripted", messages=MESSAGES, temperature=0.7, **fields)


def read_all(state: Path) -> dict[str, Any]:
    """What a gateway has written down, read as the next one would."""
    from adacompute.serve.spending.ledger import Caps
    from adacompute.serve.spending.local_ledger import Ledger

    async def read() -> dict[str, Any]:
        ledger = await Ledger.open(state, Caps(unit="samples", total=None, per_key=None, by_key={}))
        try:
            return {"samples": ledger.account().spent.samples, "prices": ledger.recall("prices")}
        finally:
            await ledger.close()

    return asyncio.run(read())


@pytest.mark.parametrize("build", [in_starlette, in_fastapi])
def test_openais_client_is_answered_by_vote_under_a_prefix(build, make, upstream):
    with Served(build(make())) as app, client_of(f"{app.url}/llm") as client:
        reply = ask(client)
        assert reply.choices[0].message.content
        assert reply.adacompute["samples"] == upstream.count.choices > 1
        assert [model.id for model in client.models.list()] == ["scripted"]
        assert client.models.retrieve("scripted").id == "scripted"
        assert client.responses.create(model="scripted", input="What is 6 times 7?").output_text
        assert "hello" in app.get("/hello").text


@pytest.mark.parametrize("build", leave_to_nightly([in_starlette, in_fastapi]))
def test_streams_stream_under_a_prefix(build, make, upstream):
    upstream.script = Honest(pieces=4, gap=0.3)
    with Served(build(make(vote="never"))) as app, client_of(f"{app.url}/llm") as client:
        events = iter(ask(client, stream=True))
        while not (event := next(events)).choices or not event.choices[0].delta.content:
            pass
        assert upstream.count.in_flight == 1  # the first words are here while the upstream still sends
        rest = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
        assert rest


@pytest.mark.parametrize("build", leave_to_nightly([in_starlette, in_fastapi]))
def test_pages_and_errors_work_under_a_prefix(build, make):
    with Served(build(make())) as app, client_of(f"{app.url}/llm") as client:
        ask(client)
        assert "fetch(" in app.get("/llm/dashboard").text
        assert app.get("/llm/dashboard/data?span=day").json()["requests"]
        assert "adacompute_requests_total" in app.get("/llm/metrics").text
        assert app.get("/llm/healthz").json() == {"status": "ok"}
        assert app.get("/llm/readyz").json() == {"status": "ready"}
        assert app.get("/llm//v1//models/").json()["data"][0]["id"] == "scripted"
        error = app.get("/llm/v1x/modles")
        assert error.status_code == 404
        assert "'/v1x/modles' is not served under '/llm'" in error.json()["error"]["message"]
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(model="scripted", messages=MESSAGES, temperature=9.0)
        assert app.get("/llm/dashboard", host="evil.example").json()["error"]["code"] == "host_not_allowed"


def test_what_else_is_asked_for_is_passed_on_under_a_prefix_as_it_was_sent(tmp_path):
    with OtherRoutes() as other:
        gateway = ac.gateway(ac.ServeConfig(state=str(tmp_path / "state.sqlite")), upstream=other.url)
        with Served(in_starlette(gateway)) as app, client_of(f"{app.url}/llm") as client:
            assert client.embeddings.create(model="m", input="a question").data
            app.get("/llm/v1/files/a%20b%3Fc?limit=2")
        assert [received.path for received in other.requests if received.path != "/v1/models"] == [
            "/v1/embeddings",
            "/v1/files/a%20b%3Fc",
        ]
        assert other.requests[-1].query == "limit=2"


def test_a_page_of_another_origin_is_answered_under_a_prefix(make):
    origin = "https://app.example.com"
    with Served(in_starlette(make(cors=(origin,)))) as app:
        reply = httpx2.options(
            f"{app.url}/llm/v1/chat/completions",
            headers={"origin": origin, "access-control-request-method": "POST"},
        )
        assert reply.headers["access-control-allow-origin"] == origin


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed; apt-get install chromium")
def test_the_dashboard_shows_its_data_under_a_prefix(make):
    async def look(address: str, url: str) -> list[str]:
        async with tab(address) as page:
            await page.open(url)
            await page.until("!document.querySelector('#full').hidden")  # which it is until there is data
            assert page.wrong == []
            return page.requests

    with Served(in_starlette(make())) as app, client_of(f"{app.url}/llm") as client, chromium() as address:
        ask(client)
        requests = asyncio.run(look(address, f"{app.url}/llm/dashboard"))
        assert f"{app.url}/llm/dashboard/data?span=hour" in requests


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed; apt-get install chromium")
def test_the_playground_asks_under_a_prefix(make):
    async def look(address: str, url: str) -> list[str]:
        async with tab(address) as page:
            await page.open(url)
            await page.until("document.querySelector('#budget-text').textContent !== ''")
            assert f"{url.rstrip('/')}/v1/chat" in await page.js(
                "document.querySelector('#curl').textContent"
            )
            await page.js("document.querySelector('#examples button').click()")
            await page.until("document.querySelector('#costs dt') !== null")
            assert page.wrong == []
            return page.requests

    with Served(in_starlette(make())) as app, chromium() as address:
        requests = asyncio.run(look(address, f"{app.url}/llm/"))
        assert f"{app.url}/llm/v1/chat/completions" in requests


def test_two_gateways_under_two_prefixes_know_nothing_of_each_other(make, upstream):
    maths, chat = make("maths"), make("chat", vote="never")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        async with AsyncExitStack() as stack:
            for gateway in (maths, chat):
                await stack.enter_async_context(gateway.lifespan(app))
            yield {"own": "state"}

    routes = [Mount("/v1", app=maths), Mount("/deep/chat", app=chat)]
    with Served(Starlette(routes=routes, lifespan=lifespan)) as app:
        with client_of(f"{app.url}/v1") as client:
            assert ask(client).adacompute["samples"] > 1
        with client_of(f"{app.url}/deep/chat") as client:
            assert ask(client).adacompute["samples"] == 1
        requests = [
            sum(
                float(line.split()[-1])
                for line in app.get(f"{prefix}/metrics").text.splitlines()
                if line.startswith("adacompute_requests_total{")
            )
            for prefix in ("/v1", "/deep/chat")
        ]
        assert requests == [1.0, 1.0]


def test_a_mount_inside_a_mount_and_a_servers_own_root_path_are_prefixes_too(make):
    gateway = make()
    inner = Starlette(routes=[Mount("/llm", app=gateway)])
    outer = Starlette(routes=[Mount("/api", app=inner)], lifespan=gateway.lifespan)
    with Served(outer, root_path="/behind/proxy") as app:
        with client_of(f"{app.url}/api/llm") as client:
            assert ask(client).choices[0].message.content
        assert app.get("/api/llm/readyz").json() == {"status": "ready"}


def test_a_client_that_leaves_cancels_its_samples_under_a_prefix(make, upstream):
    upstream.script = Reply(delay=PATIENCE)
    with Served(in_starlette(make())) as app:
        body = json.dumps(QUESTION).encode()
        with socket.create_connection(("127.0.0.1", app.port)) as line:
            line.sendall(
                b"POST /llm/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            )
            until(lambda: upstream.count.in_flight > 0)
        until(lambda: upstream.count.in_flight == 0)


@pytest.mark.parametrize("build", leave_to_nightly([in_starlette, in_fastapi]))
def test_a_shutdown_finishes_the_request_in_progress_and_writes_down_what_it_spent(
    build, make, upstream, tmp_path
):
    upstream.script = Honest(latency=0.7)
    replies: list[Any] = []
    with Served(build(make())) as app, client_of(f"{app.url}/llm") as client:
        asking = threading.Thread(target=lambda: replies.append(ask(client)))
        asking.start()
        until(lambda: upstream.count.in_flight > 0)
        app.begin_to_stop()
        asking.join(PATIENCE)
    assert replies[0].choices[0].message.content
    stored = read_all(tmp_path / "state.sqlite")
    assert stored["samples"] == replies[0].adacompute["samples"]
    assert stored["prices"]


def test_a_lifespan_that_ends_under_a_request_waits_for_it_and_cancels_it_after_the_grace(make, upstream):
    async def close_under_a_request(gateway: GatewayApp, behaviour: Any) -> tuple[int, dict[str, Any]]:
        upstream.script = behaviour
        async with gateway.lifespan():
            asking = asyncio.create_task(post(gateway))
            while not upstream.count.in_flight:
                await asyncio.sleep(0.01)
        return await asking

    status, body = asyncio.run(close_under_a_request(make(grace=PATIENCE), Honest(latency=0.5)))
    assert (status, body["object"]) == (200, "chat.completion")
    status, body = asyncio.run(close_under_a_request(make(grace=0.1), Reply(delay=PATIENCE)))
    assert (status, body["error"]["code"]) == (503, "overloaded")


def test_a_shutdown_that_is_cancelled_leaves_a_gateway_that_can_be_opened_again(make, upstream):
    async def cancel_twice(gateway: GatewayApp) -> tuple[int, dict[str, Any]]:
        async def live() -> None:
            async with gateway.lifespan():
                opened.set()
                await asyncio.Event().wait()

        opened = asyncio.Event()
        living = asyncio.create_task(live())
        await opened.wait()
        asking = asyncio.create_task(post(gateway))
        while not upstream.count.in_flight:
            await asyncio.sleep(0.01)
        living.cancel()
        await asyncio.sleep(0.05)
        assert (await post(gateway))[1]["error"]["code"] == "overloaded"  # it waits for the request
        living.cancel()
        with pytest.raises(asyncio.CancelledError):
            await living
        status, body = await asyncio.wait_for(asking, PATIENCE)
        assert (status, body["error"]["code"]) == (503, "overloaded")  # nothing runs on without its gateway
        assert (await post(gateway))[1]["error"]["code"] == "not_open"
        upstream.script = Honest()
        async with gateway.lifespan():
            return await post(gateway)

    upstream.script = Reply(delay=PATIENCE)
    status, body = asyncio.run(cancel_twice(make(grace=PATIENCE)))
    assert (status, body.get("object")) == (200, "chat.completion"), body


def test_a_request_that_uvicorn_cuts_off_is_told_to_try_again(make, upstream):
    upstream.script = Reply(delay=PATIENCE)
    errors: list[openai.APIStatusError] = []

    def ask_in_vain(client: openai.OpenAI) -> None:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(client)
        errors.append(caught.value)

    with (
        Served(in_starlette(make()), timeout_graceful_shutdown=1) as app,
        client_of(f"{app.url}/llm") as client,
    ):
        asking = threading.Thread(target=ask_in_vain, args=(client,))
        asking.start()
        until(lambda: upstream.count.in_flight > 0)
        app.begin_to_stop()
        asking.join(PATIENCE)
    assert [(error.status_code, error.code) for error in errors] == [(503, "overloaded")]
    assert errors[0].response.headers["retry-after"]


def test_a_time_limit_around_it_is_still_the_callers_own(make, upstream):
    async def ask_with_a_limit(gateway: GatewayApp) -> None:
        async with gateway.lifespan():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await post(gateway)

    upstream.script = Reply(delay=PATIENCE)
    asyncio.run(ask_with_a_limit(make()))


async def post(
    app: Any, path: str = "/v1/chat/completions", *, raw: bytes | None = None, root: str = ""
) -> tuple[int, dict[str, Any]]:
    """One request to an application, as a server of HTTP/2 would pass it on."""
    body = json.dumps(QUESTION).encode()
    sent: list[Any] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return waiting.pop() if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "http_version": "2",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": raw,
        "root_path": root,
        "query_string": b"",
        "headers": headers,
    }
    await app(scope, receive, send)
    assert b"connection" not in dict(sent[0]["headers"])  # which HTTP/2 forbids
    return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]))


@pytest.mark.parametrize(
    ("root", "path", "raw"),
    [
        ("/llm", "/llm/v1/chat/completions", b"/llm/v1/chat/completions"),  # as ASGI has it
        ("/llm", "/v1/chat/completions", b"/llm/v1/chat/completions"),  # as Starlette had it before 0.33
        ("/llm", "/v1/chat/completions", b"/v1/chat/completions"),
        ("/llm", "/llm//v1/chat/completions/", None),
        ("/llm/", "/llm/v1/chat/completions", b"/llm/v1/chat/completions"),
        ("/v1", "/v1/v1/chat/completions", b"/v1/v1/chat/completions"),
        ("/my llm/é", "/my llm/é/v1/chat/completions", b"/my%20llm/%C3%A9/v1/chat/completions"),
        ("", "/v1/chat/completions", b"/v1/chat/completions"),
    ],
)
def test_every_servers_way_of_writing_a_prefix_leads_to_the_same_route(root, path, raw, make):
    async def ask_once(gateway: GatewayApp) -> tuple[int, dict[str, Any]]:
        async with gateway.lifespan():
            return await post(gateway, path, raw=raw, root=root)

    status, body = asyncio.run(ask_once(make()))
    assert (status, body.get("object")) == (200, "chat.completion"), body


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/api", "/llm"),  # a proxy has removed the root path
        ("/api", "/api/llm"),  # and here it hasn't
        ("/api/", "/llm"),
    ],
)
def test_a_root_path_that_a_proxy_removes_is_no_part_of_the_path(root, path, make):
    with TestClient(in_starlette(make()), base_url="http://localhost", root_path=root) as client:
        reply = client.post(f"{path}/v1/chat/completions", json=QUESTION)
        assert reply.status_code == 200, reply.text
        assert client.get(f"{path}/readyz").json() == {"status": "ready"}


def test_the_same_application_can_be_started_again_and_knows_what_was_spent(make, tmp_path):
    app = in_starlette(make())
    spent = []
    for _ in range(2):
        with TestClient(app, base_url="http://localhost") as client:
            reply = client.post("/llm/v1/chat/completions", json=QUESTION)
            assert reply.status_code == 200, reply.text
            spent.append(reply.json()["adacompute"]["samples"])
        assert client.get("/llm/readyz").status_code == 503
    assert read_all(tmp_path / "state.sqlite")["samples"] == sum(spent)


def test_without_its_lifespan_a_request_is_refused_with_the_remedy(make):
    app = Starlette(routes=[Mount("/llm", app=make())])
    with Served(app) as server, client_of(f"{server.url}/llm") as client:
        with pytest.raises(openai.InternalServerError, match=r"lifespan=gateway\.lifespan") as error:
            ask(client)
        assert (error.value.status_code, error.value.code) == (503, "not_open")


def test_after_its_lifespan_a_request_hears_that_it_is_closed(make):
    async def ask_after_the_end(gateway: GatewayApp) -> tuple[int, dict[str, Any]]:
        async with gateway.lifespan():
            pass
        return await post(gateway)

    status, body = asyncio.run(ask_after_the_end(make()))
    assert (status, body["error"]["code"]) == (503, "not_open")
    assert "closed" in body["error"]["message"]
    assert "has to run its lifespan" not in body["error"]["message"]


def test_it_works_behind_middleware_that_hands_replies_on(make):
    async def pass_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    gateway = make()
    app = Starlette(
        routes=[Mount("/llm", app=gateway)],
        lifespan=gateway.lifespan,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=pass_on)],
    )
    with Served(app) as server, client_of(f"{server.url}/llm") as client:
        assert ask(client).choices[0].message.content
        assert [event for event in ask(client, stream=True) if event.choices]


def test_opening_it_twice_at_once_is_refused(make):
    async def open_twice(gateway: GatewayApp) -> None:
        async with gateway.lifespan(), gateway.lifespan():
            pass

    gateway = make()
    with pytest.raises(ConfigError, match="open already"):
        asyncio.run(open_twice(gateway))


def test_a_websocket_is_closed(make):
    with (
        TestClient(in_starlette(make()), base_url="http://localhost") as client,
        pytest.raises(WebSocketDisconnect) as closed,
        client.websocket_connect("/llm/v1/realtime"),
    ):
        pass
    assert closed.value.code == 1000


def test_a_server_that_runs_it_alone_opens_and_closes_it(upstream, tmp_path):
    """In a process of its own, as `uvicorn module:app` does, stopped by SIGTERM."""
    (tmp_path / "service.py").write_text(
        "import adacompute as ac\n"
        f'app = ac.gateway(ac.ServeConfig(budget=3), upstream="{upstream.url}", model="scripted")\n'
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: process.poll() is not None or can_connect(port))
        with client_of(f"http://127.0.0.1:{port}") as client:
            samples = ask(client).adacompute["samples"]
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert "Application shutdown complete" in (tmp_path / "log").read_text()
    assert read_all(tmp_path / "adacompute-gateway.sqlite")["samples"] == samples


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


async def test_a_server_that_runs_it_alone_gets_the_reason_why_it_cant_be_opened(make, tmp_path):
    gateway = make(policy=str(tmp_path / "nowhere"))
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await gateway({"type": "lifespan"}, receive, send)

    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "nowhere" in sent[0]["message"]


def test_settings_are_taken_from_either_record_and_names_given_beside_them_win(tmp_path):
    endpoint = ac.EndpointConfig(url="http://127.0.0.1:1/v1", model="first")
    app = ac.gateway(ac.Config(endpoint=endpoint), model="second")
    assert (app.config.endpoint.url, app.config.endpoint.model) == (endpoint.url, "second")
    with pytest.raises(ConfigError, match="give upstream=URL"):
        ac.gateway(ac.ServeConfig())


def test_settings_of_a_wrong_type_are_refused_without_a_word_of_what_is_in_them():
    with pytest.raises(ConfigError, match="is not a Config") as error:
        ac.gateway({"endpoint": {"key": "sk-secret"}})  # type: ignore[arg-type]
    assert "dict" in str(error.value)
    assert "sk-secret" not in str(error.value)
    with pytest.raises(ConfigError, match="model 3 is not a text; give model=NAME"):
        ac.gateway(ac.ServeConfig(), upstream="http://127.0.0.1:1/v1", model=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="upstream 3 is not a text; give upstream=URL"):
        ac.gateway(ac.ServeConfig(), upstream=3)  # type: ignore[arg-type]


def test_settings_of_the_server_are_named_as_without_effect():
    with pytest.warns(UserWarning, match="host, port of the gateway: not used") as warned:
        ac.gateway(ac.ServeConfig(host="::1", port=1), upstream="http://127.0.0.1:1/v1")
    assert Path(warned[0].filename) == Path(__file__)
