"""Proxies of the environment, private CAs, client certificates and unix sockets, each with a real one."""

import asyncio
import base64
import contextlib
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from adacompute.client.error_object import CertificateUntrusted
from adacompute.client.rate_limit import AttemptTimer
from adacompute.client.settings import Endpoint
from adacompute.client.transport import Transport
from adacompute.errors import ConfigError, EndpointError, EndpointUnreachable

NAME = "model.test"  # that only the proxy can reach
REPLY = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"choices": []}'
CA = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca
    -keyout ca.key -out ca.pem -addext keyUsage=critical,keyCertSign
"""
SIGNED = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}
    -keyout {name}.key -out {name}.pem -CA ca.pem -CAkey ca.key -addext basicConstraints=CA:FALSE
    -addext subjectAltName=IP:127.0.0.1,DNS:model.test
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, with certificates of a server and of a client."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("tls")
    for words in (CA, SIGNED.format(name="server"), SIGNED.format(name="client")):
        subprocess.run(words.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Answering:
    """Answers every request, by TLS if it has a context; and counts connections."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                writer.write(REPLY)
        writer.close()


class Proxy:
    """Tunnels to one port, or passes requests on to it, whatever host is named; keeps what it was asked."""

    def __init__(self, status: bytes = b"200 Connection established") -> None:
        self.port = 0
        self.status = status
        self.heads: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 %b\r\n\r\n" % self.status)
        else:
            far_writer.write(head)
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(65_536):
            writer.write(part)
    writer.close()


def run(
    up: Answering,
    ask: Callable[[int], Awaitable[Any]],
    *,
    proxy: Proxy | None = None,
    set_proxy: Callable[[int], None] = lambda _: None,
) -> Any:
    """What `ask` returns for the port of an endpoint; `set_proxy` is called with that of the proxy."""

    async def serve() -> Any:
        tasks: set[asyncio.Task[Any]] = set()

        async def listen(handler: Handler, context: ssl.SSLContext | None = None) -> int:
            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.add(asyncio.current_task())
                try:
                    await handler(reader, writer)
                finally:
                    writer.transport.abort()

            server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
            stack.callback(server.close)
            return server.sockets[0].getsockname()[1]

        with contextlib.ExitStack() as stack:
            port = await listen(up, up.context)
            if proxy is not None:
                proxy.port = port
                set_proxy(await listen(proxy))
            try:
                return await ask(port)
            finally:
                await asyncio.wait(tasks, timeout=5) if tasks else None
                await asyncio.sleep(0.01)  # the servers' own transports end

    return asyncio.run(serve())


async def post(url: str, count: int = 1, **settings: Any) -> list[Any]:
    transport = Transport(Endpoint(url=url, **settings))
    try:
        replies = [
            await transport.exchange(URL(url), AttemptTimer(transport.endpoint, 1e9), b"{}")
            for _ in range(count)
        ]
        return [reply.value for reply in replies]
    finally:
        await transport.close()


def trust(folder: Path, *, clients: bool = False) -> ssl.SSLContext:
    """What the server shows; with `clients`, it asks for a certificate, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.pem")
    return context


def test_https_goes_through_a_tunnel_of_the_proxy_which_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    proxy = Proxy()
    replies = run(
        Answering(trust(folder)),
        lambda port: post(f"https://{NAME}:{port}/v1", 3, ca_file=str(folder / "ca.pem")),
        proxy=proxy,
        set_proxy=lambda port: monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{port}"),
    )
    assert replies == [{"choices": []}] * 3
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT {NAME}:{proxy.port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"me:secret") in head
    assert b"Authorization: Bearer" not in head


def test_http_names_the_whole_address_to_the_proxy(monkeypatch: pytest.MonkeyPatch):
    proxy = Proxy()
    replies = run(
        Answering(),
        lambda port: post(f"http://{NAME}:{port}/v1"),
        proxy=proxy,
        set_proxy=lambda port: monkeypatch.setenv("http_proxy", f"127.0.0.1:{port}"),
    )
    assert replies == [{"choices": []}]
    assert proxy.heads[0].startswith(f"POST http://{NAME}:{proxy.port}/v1 HTTP/1.1\r\n".encode())


@pytest.mark.parametrize("names", ["127.0.0.1", "other.test, 127.0.0.1", "127.0.0.1:{port}", "*"])
def test_hosts_that_no_proxy_names_are_reached_directly(names: str, monkeypatch: pytest.MonkeyPatch):
    proxy, up = Proxy(), Answering()

    def set_proxy(port: int) -> None:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", names.format(port=proxy.port))

    run(up, lambda port: post(f"http://127.0.0.1:{port}/v1"), proxy=proxy, set_proxy=set_proxy)
    assert (proxy.heads, up.connections) == ([], 1)


@pytest.mark.parametrize("status", [b"407 Proxy Authentication Required", b"503 Busy"])
def test_a_proxy_that_refuses_is_named_without_its_password(
    status: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(
        EndpointUnreachable, match=rf"proxy http://127.0.0.1:.*it answered {status[:3].decode()}\)"
    ) as caught:
        run(
            Answering(trust(folder)),
            lambda port: post(f"https://{NAME}:{port}/v1"),
            proxy=Proxy(status),
            set_proxy=lambda port: monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{port}"),
        )
    assert "secret" not in str(caught.value)
    assert not caught.value.paid


def test_a_proxy_that_cannot_be_used_is_said_so_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:secret@127.0.0.1:1080")
    with pytest.raises(ConfigError, match=r"HTTPS_PROXY.*NO_PROXY") as caught:
        asyncio.run(post(f"https://{NAME}/v1"))
    assert "secret" not in str(caught.value)


def test_a_private_ca_is_trusted_where_it_is_named(folder: Path):
    def ask(**settings: Any) -> Any:
        return run(Answering(trust(folder)), lambda port: post(f"https://127.0.0.1:{port}/v1", **settings))

    assert ask(ca_file=str(folder / "ca.pem")) == [{"choices": []}]
    with pytest.raises(CertificateUntrusted, match="--ca-file"):
        ask()
    with pytest.raises(CertificateUntrusted):
        ask(ca_file=str(folder / "client.pem"))


@pytest.mark.slow
def test_the_variable_ssl_cert_file_names_one_too(folder: Path):
    code = "import asyncio, sys; sys.path[:0] = sys.argv[1:2]; from test_proxies import post; "
    code += "print(asyncio.run(post(sys.argv[2])))"

    async def ask(port: int) -> bytes:
        words = ("-c", code, str(Path(__file__).parent), f"https://127.0.0.1:{port}/v1")
        environment = {"SSL_CERT_FILE": str(folder / "ca.pem")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=environment, stdout=subprocess.PIPE
        )
        return (await process.communicate())[0]

    assert json.loads(run(Answering(trust(folder)), ask).replace(b"'", b'"')) == [{"choices": []}]


@pytest.mark.parametrize("together", [False, True])
def test_a_client_certificate_is_shown_to_a_server_that_asks_for_it(
    together: bool, folder: Path, tmp_path: Path
):
    certificate, key = folder / "client.pem", folder / "client.key"
    settings = {"client_cert": str(certificate), "client_key": str(key)}
    if together:
        both = tmp_path / "both.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        settings = {"client_cert": str(both)}

    def ask(**settings: Any) -> Any:
        return run(
            Answering(trust(folder, clients=True)),
            lambda port: post(f"https://127.0.0.1:{port}/v1", ca_file=str(folder / "ca.pem"), **settings),
        )

    assert ask(**settings) == [{"choices": []}]
    with pytest.raises(EndpointError):
        ask()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ca_file": "none.pem"}, "ca_file 'none.pem'.*No such file"),
        ({"ca_file": __file__}, "ca_file .*it holds no certificate in PEM"),
        ({"client_cert": "none.pem"}, "client_cert 'none.pem'.*No such file"),
        ({"client_cert": __file__}, "client_cert .*not a certificate in PEM with its own key"),
        ({"client_cert": __file__, "client_key": "none.pem"}, "with client_key 'none.pem'.*PEM"),
    ],
)
def test_files_that_cannot_be_used_are_named(settings: dict[str, str], words: str):
    with pytest.raises(ConfigError, match=words):
        asyncio.run(post("https://127.0.0.1:9/v1", **settings))


def test_a_unix_socket_is_asked_in_the_place_of_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    path = str(tmp_path / "model.sock")

    async def ask() -> list[Any]:
        with pytest.raises(EndpointUnreachable, match=r"model\.sock: No such file"):
            await post(f"http://{NAME}/v1", unix_socket=path)
        async with await asyncio.start_unix_server(Answering(), path):
            replies = await post(f"http://{NAME}/v1", 2, unix_socket=path)
            await asyncio.sleep(0.01)  # the server's own transport ends
            return replies

    assert asyncio.run(ask()) == [{"choices": []}] * 2
