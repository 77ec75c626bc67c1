"""Requests byte for byte: read as a second parser reads them, or refused; the same wherever they are cut."""

import contextlib
import re
import socket
from collections.abc import Iterator

import h11
import pytest
from other_routes import OtherRoutes
from running import Running
from wires import connect, reply_of

PATH = "/v1/embeddings"
LINE = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"model":"m","input":"first"}'
EVIL = LINE + b'Content-Length: 28\r\n\r\n{"model":"m","input":"evil"}'  # never answered: it comes too early
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.fixture(scope="module")
def serving() -> Iterator[tuple[OtherRoutes, Running]]:
    with OtherRoutes() as up, Running(up.url) as gate:
        yield up, gate


def read_with_h11(data: bytes) -> bytes | None:
    """The body of the first request, as another server would read it; None: it refuses the request."""
    parser, body = h11.Connection(h11.SERVER), b""
    try:
        parser.receive_data(data)
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            assert event is not h11.NEED_DATA, "a case has to be whole"
            body += event.data if isinstance(event, h11.Data) else b""
    except h11.RemoteProtocolError:
        return None
    return body


def send(line: socket.socket, data: bytes) -> bytes:
    """All that comes until the connection is closed."""
    got = b""
    with contextlib.suppress(ConnectionError):
        line.sendall(data)
        while part := line.recv(65_536):
            got += part
    return got


SOUND = [  # the end of a head, and what follows it
    (LENGTH, BODY),
    (b"Content-Length: 000%d\r\n" % len(BODY), BODY),
    (CHUNKED, CHUNKS),
    (b"transfer-encoding:\tCHUNKED\r\n", CHUNKS),
    (CHUNKED, b"%x;a=b\r\n%b\r\n0\r\nX: y\r\n\r\n" % (len(BODY), BODY)),
    (CHUNKED, b"5\r\n%b\r\n%X\r\n%b\r\n0\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])),
]
CODINGS = [
    *(
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: chunked, identity",
    ),
    *(
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer_Encoding: chunked",
    ),
    *(b"Transfer-Encoding: identity", b'Transfer-Encoding: "chunked"', b"Transfer-Encoding:\x0bchunked"),
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    *(
        b" Transfer-Encoding: chunked",
        b"X: a\r\n Transfer-Encoding: chunked",
        b"Transfer-Encoding:\r\n chunked",
    ),
    *(
        b"X: a\nTransfer-Encoding: chunked",
        b"X: a\rTransfer-Encoding: chunked",
        b"Transfer-Encoding\0: chunked",
    ),
]
LENGTHS = [
    *(
        "+29",
        "-29",
        "0x1d",
        "29.0",
        "29e0",
        "2_9",
        "29;",
        "29 a",
        "29\x0b",
        "29 ",
        "",
        "\xb2",
        "29, 29",
        "29, 0",
    ),
    *("29\r\nContent-Length: 0", "0\r\nContent-Length: 29", "29\r\nContent-Length: 29", "\r\n 29"),
]
LINES = [
    *(b"X: y\nZ: q", b"X: y\rZ: q", b"X: y\0z", b"X\0: y", b"no colon", b": y", b"X: a\r\n b", b"X Y: 1"),
    *(b"X: \x7f", b"Host: evil", b"Content-Length : 29"),
]
CHUNKINGS = [
    *(b"-1\r\n" + CHUNKS, b"0x" + CHUNKS, b" " + CHUNKS, b"\r\n" + CHUNKS, b"g\r\n" + CHUNKS),
    CHUNKS.replace(b"\r\n", b";a\nb\r\n", 1),
    CHUNKS.replace(b"\r\n", b"  \r\n", 1),
    CHUNKS.replace(b"\r\n", b"\n"),
    CHUNKS.replace(b"}\r\n", b"}XX"),
    CHUNKS.replace(b"0\r\n", b"0\r\nX\r\n"),
    CHUNKS.replace(b"0\r\n", b"0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
]
ODD = [
    *((line + b"\r\n", CHUNKS) for line in CODINGS),
    *((line + b"\r\nContent-Length: %d\r\n" % len(CHUNKS), CHUNKS) for line in CODINGS),
    *((f"Content-Length: {text}\r\n".encode("latin-1"), BODY) for text in LENGTHS),
    *((line + b"\r\n" + LENGTH, BODY) for line in LINES),
    *((CHUNKED, chunks) for chunks in CHUNKINGS),
]


def test_a_malformed_request_is_refused_or_read_as_a_second_parser_reads_it(
    serving: tuple[OtherRoutes, Running],
):
    up, gate = serving
    for head, rest in (*SOUND, *ODD):
        request = LINE + b"Connection: close\r\n" + head + b"\r\n" + rest
        before, other = len(up.of(PATH)), read_with_h11(request + EVIL)
        with connect(gate) as line:
            reply = send(line, request + EVIL)
        bodies = [received.body for received in up.of(PATH)[before:]]
        assert bodies == [other] if reply.startswith(b"HTTP/1.1 200 ") else not bodies, (head, rest)
        assert len(re.findall(rb"HTTP/1\.1 \d", reply)) == 1, (head, rest)
        assert bodies == [BODY] or (head, rest) not in SOUND, (head, rest)


@pytest.mark.parametrize(("head", "rest"), [SOUND[0], SOUND[4]])
def test_where_a_request_is_cut_changes_nothing_also_after_others_with_the_same_head(
    serving: tuple[OtherRoutes, Running], head: bytes, rest: bytes
):
    up, gate = serving
    request, before, cuts = LINE + head + b"\r\n" + rest, len(up.of(PATH)), 0
    with connect(gate) as line, connect(gate) as probe:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cuts in range(1, len(request)):
            line.sendall(request)
            assert reply_of(line)[0] == 200
            line.sendall(request[:cuts])
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert reply_of(probe)[0] == 200  # by now the first part was read
            line.sendall(request[cuts:])
            assert reply_of(line)[0] == 200, cuts
    assert [received.body for received in up.of(PATH)[before:]] == [BODY] * 2 * cuts


REQUEST_LINES = [
    *(b"GET /healthz HTTP/1.2", b"GET /healthz HTTP/1.10", b"GET /healthz http/1.1", b"GET /healthz ICY/1.0"),
    *(b"GET /healthz HTTP/1.1 ", b"PRI * HTTP/2.0", b"FOO /healthz HTTP/1.1", b"get /healthz HTTP/1.1"),
    *(
        b"GET * HTTP/1.1",
        b"GET healthz HTTP/1.1",
        b"GET ?x HTTP/1.1",
        b"GET #x HTTP/1.1",
        b"GET /a b HTTP/1.1",
    ),
    *(b"GET /\x80\xff HTTP/1.1", b"GET /h\x7fx HTTP/1.1", b"GET /h\x01x HTTP/1.1", b"OPTIONS * HTTP/1.1"),
    *(b"GET http://[::1/healthz HTTP/1.1", b"GET http://a:99999999/healthz HTTP/1.1", b"GET a:b(1) HTTP/1.1"),
]


def test_an_odd_first_line_is_an_error_of_the_client_s_and_reaches_nobody(
    serving: tuple[OtherRoutes, Running],
):
    up, gate = serving
    before = len(up.requests)
    for first in REQUEST_LINES:
        with connect(gate) as line:
            reply = send(line, first + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert re.match(rb"HTTP/1\.1 40[045] ", reply), first
    assert {received.path for received in up.requests[before:]} <= {"/v1/models"}
