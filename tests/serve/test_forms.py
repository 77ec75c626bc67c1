"""Forms that ask for several images: what they may cost is reserved before the upstream hears of it."""

import re
import socket
import socketserver
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from email.utils import collapse_rfc2231_value
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from other_routes import OtherRoutes, Received, status, stream
from running import Running
from wires import until

from adacompute.errors import RequestInvalid
from adacompute.serve.messages.form import FormScanner

FORM = {"content-type": "multipart/form-data; boundary=b"}
FILE = ("image", "x" * 5000, "a.png")


def make_form(*fields: tuple[str, ...]) -> bytes:
    """A form of fields, each a name and a value, or a name, a content and a file's name."""
    heads = [f'name="{field[0]}"' + (f'; filename="{field[2]}"' if field[2:] else "") for field in fields]
    parts = [
        f"--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{field[1]}\r\n"
        for head, field in zip(heads, fields, strict=True)
    ]
    return ("".join(parts) + "--b--\r\n").encode()


def spent(gate: Running) -> tuple[float, float, float]:
    balance = gate.gateway.resources.ledger.account()
    return tuple(getattr(balance, name).samples for name in ("spent", "maybe", "reserved"))  # type: ignore[return-value]


def read_numbers(content_type: str, body: bytes) -> list[int]:
    """The values of `n` in a form, as a server reads them that leaves the form to Python's `email`."""
    form = message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    parts = form.get_payload() if form.is_multipart() else []
    names = [collapse_rfc2231_value(part.get_param("name", "", "content-disposition")) for part in parts]
    values = [part.get_payload().strip() for part, name in zip(parts, names, strict=True) if name == "n"]
    return [int(value) for value in values if value.isdecimal()]


class Painter:
    """Gives as many images as a form asks for, and counts them."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, _request: web.Request, received: Received) -> web.Response:
        count = max([1, *read_numbers(received.headers["content-type"], received.body)])
        self.images += count
        return web.json_response({"created": 1, "data": [{"url": "x"}] * count})


@pytest.mark.parametrize(
    "arrange", [lambda n: (n, FILE), lambda n: (FILE, n), lambda n: (("n", "1"), FILE, n)]
)
def test_c14_a_form_s_n_is_reserved_wherever_it_stands(arrange: Callable[..., Any]):
    painter = Painter()
    with OtherRoutes(**{"images/edits": painter}) as up, Running(up.url, cap=5) as gate:
        replies = [
            gate.ask(make_form(*arrange(("n", n))), FORM, path="/v1/images/edits") for n in ("4", "2", "1")
        ]
        assert [reply.status for reply in replies] == [200, 429, 200]
        assert spent(gate) == (5, 0, 0)
    assert painter.images <= 5


def test_c14_forms_at_the_same_time_pass_no_cap():
    painter = Painter()
    with OtherRoutes(**{"images/edits": painter}) as up, Running(up.url, cap=10) as gate:
        with ThreadPoolExecutor(8) as pool:
            forms = [make_form(FILE, ("n", "4"))] * 8
            statuses = [*pool.map(lambda form: gate.ask(form, FORM, path="/v1/images/edits").status, forms)]
        assert set(statuses) <= {200, 429}
        drawn = statuses.count(200)  # fewer than fit, where all have reserved their first before any its rest
        assert drawn <= 2
        assert spent(gate) == (4 * drawn, 0, 0)
        later = [gate.ask(forms[0], FORM, path="/v1/images/edits").status for _ in range(3 - drawn)]
        assert later == [200] * (2 - drawn) + [429]
    assert painter.images == 8


class EagerPainter(socketserver.StreamRequestHandler):
    """Gives ten images at the end of a form, without waiting for the end of the request."""

    images = 0

    def handle(self) -> None:
        data = b""
        while b"--b--" not in data and (part := self.connection.recv(4096)):
            data += part
        if b"--b--" not in data:
            return
        EagerPainter.images += 10
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        self.wfile.write(b"data: IMAGE\n\n" * 10)
        self.connection.recv(1)  # until the other side leaves


def test_f3_a_form_whose_last_byte_is_held_back_counts():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), EagerPainter) as up:
        threading.Thread(target=up.serve_forever, daemon=True).start()
        with Running(f"http://127.0.0.1:{up.server_address[1]}/v1", cap=20) as gate:
            form = make_form(("n", "10"), FILE)
            head = b"POST /v1/images/edits HTTP/1.1\r\nHost: localhost\r\n"
            head += b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n"
            for _ in range(4):
                with socket.create_connection(("127.0.0.1", int(gate.base.rpartition(":")[2])), 30) as line:
                    line.sendall(head % (len(form) + 1) + form)
                    data = b""
                    while data.count(b"IMAGE") < 10 and b" 429 " not in data and (part := line.recv(4096)):
                        data += part
            assert EagerPainter.images == 20
            assert sum(spent(gate)) == 20
        up.shutdown()


@pytest.mark.parametrize(
    "reply",
    [
        stream(b'data: {"type": "image_edit.completed", "b64_json": "x"}\n\n' * 4),
        status(200, b"PNG" * 4, content_type="image/png"),
        status(200, {"created": 1}),
        status(200, b"no JSON"),
    ],
)
def test_f3_a_reply_that_does_not_say_how_many_there_are_costs_as_many_as_the_form_asked_for(reply: Any):
    paths = ("images/edits", "images/variations", "audio/translations", "videos")
    with OtherRoutes(**dict.fromkeys(paths, reply)) as up, Running(up.url, cap=20) as gate:
        form = make_form(FILE, ("n", "4"))
        statuses = [gate.ask(form, FORM, path=f"/v1/{path}").status for path in (*paths, *paths)]
        assert statuses == [200] * 5 + [429] * 3
        assert spent(gate) == (20, 0, 0)


@pytest.mark.parametrize("name", ["N", "Best_Of", "MAX_TOKENS"])
def test_f5_a_form_s_field_that_some_servers_read_as_one_that_costs_is_refused(name: str):
    form = write_form(f'Content-Disposition: form-data; name="{name}"')
    with OtherRoutes(**{"images/edits": Painter()}) as up, Running(up.url) as gate:
        answer = gate.ask(form, FORM, path="/v1/images/edits")
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert spent(gate) == (0, 0, 0)
        until(lambda: all(received.aborted for received in up.of("/v1/images/edits")))


@pytest.mark.parametrize(("value", "said"), [("129", "max_n"), ("two", "a text"), ("9" * 9000, "a text")])
def test_c14_a_form_s_n_is_held_to_the_rules_of_chats(value: str, said: str):
    with OtherRoutes(**{"images/edits": Painter()}) as up, Running(up.url) as gate:
        answer = gate.ask(make_form(FILE, ("n", value)), FORM, path="/v1/images/edits")
        assert answer.status == 400
        assert said in answer.error["message"]


@given(st.lists(st.integers(1, 40), max_size=30), st.lists(st.sampled_from([FILE, ("n", "3"), ("n", "x")])))
def test_a_form_s_fields_are_found_however_it_is_cut(cuts: list[int], fields: list[tuple[str, ...]]):
    form, values = make_form(*fields), []
    scanner = FormScanner("multipart/form-data; boundary=b")
    for size in cuts:
        values += scanner.feed(form[:size])
        form = form[size:]
    values += scanner.feed(form, last=True)
    assert values == [{"3": 3, "x": "x"}[field[1]] for field in fields if field[0] == "n"]


@pytest.mark.parametrize(
    ("form", "values"),
    [
        (b"--b\r\nContent-Disposition: form-data; NAME=n\r\n\r\n7\r\n--b--", [7]),
        (b'--b\r\ncontent-disposition: form-data; name="n"; x=1\r\n\r\n 7 \r\n', [7]),
        (b'--b\r\nContent-Disposition: form-data; name="image"; filename="n"\r\n\r\n7\r\n--b--', []),
        (b"no form at all", []),
    ],
)
def test_forms_that_a_lenient_server_reads_are_read_here_too(form: bytes, values: list[int]):
    assert FormScanner('multipart/form-data; boundary="b"').feed(form, last=True) == values


PLAIN = 'Content-Disposition: form-data; name="n"'
DISPOSITIONS = (  # that a server reads as those of `n`
    PLAIN,
    PLAIN + '; x="filename"',
    PLAIN + '; filename=""',
    PLAIN + '; filename="a.png"',
    PLAIN + "\r\nX-Note: filename",
    "X-Note: filename\r\n" + PLAIN,
    PLAIN + "\r\nContent-Type: text/plain; name=image",
    "CONTENT-DISPOSITION:form-data;NAME=n",
    'Content-Disposition: form-data; name*0="n"',
    "Content-Disposition: form-data; name*=utf-8''%6e",
    "Content-Disposition: form-data; name*=us-ascii''n",
    "Content-Disposition: form-data; name*0*=utf-8''%6E",
    "Content-Disposition: form-data; name=<n>",
    'Content-Disposition: form-data; name = "n"',
    'Content-Disposition: name="n"',
)
HIDDEN_HEADS = (  # that only some servers read as those of `n`
    'Content-Disposition: form-data;\r\n name="n"',
    PLAIN + ';\r\n filename="a.png"',
    'Content-Disposition: form-data; name="image"\r\n' + PLAIN,
    PLAIN + '\r\nContent-Disposition: form-data; name="image"',
    PLAIN + '; name="image"',
    "Content-Disposition: form-data; name=\"image\"; name*=utf-8''n",
    'Content-Disposition: form-data; name*0=""; name*1="n"',
    "Content-Disposition: form-data; name*0=n; name*=n",
    "Content-Disposition: form-data; name*=idna''n",
    'Content-Disposition: form-data; name="\\n"',
    "Content-Disposition: form-data; name='n'",
    'Content-Disposition: form-data; name=""n""',
    'Content-Disposition: form-data; name="%6e"',
    'Content-Disposition: form-data; name="=?utf-8?q?n?="',
    'Content-Disposition: form-data; filename="a\\"; name="n"',
    'Content-Disposition: form-data, name="n"',
    'Content-Disposition : form-data; name="n"',
    'Content-Disposition: form-data; x="--b"; name="n"',
    "no header\r\n" + PLAIN,
    "X: y\n\n" + PLAIN,
    "X: y\r" + PLAIN,
    "Content-Disposition: form-data" + ";" * 1000 + 'name="n"',
    "X: " + "y" * 9000 + "\r\n" + PLAIN,
)
BOUNDARIES = (  # a content type, and the boundary by which a server divides the form
    ("multipart/form-data; boundary =b", "b"),
    ("multipart/form-data; boundary= b ", "b"),
    ('Multipart/Form-Data;BOUNDARY="b";charset=utf-8', "b"),
    ('multipart/form-data; x="a;b"; boundary=----WebKitFormBoundary7', "----WebKitFormBoundary7"),
    ('multipart/form-data; boundary="----=_Part_0_1.2:/?+x"', "----=_Part_0_1.2:/?+x"),
)
HIDDEN_BOUNDARIES = (
    ("multipart/form-data; boundary='b'", "'b'"),
    ("multipart/form-data; boundary='b'", "b"),
    ('multipart/form-data; x="; boundary=zzz"; boundary=abc', "abc"),
    ('multipart/form-data; x="; boundary=zzz"; boundary=abc', "zzz"),
    ("multipart/form-data; boundary=a; boundary=b", "a"),
    ("multipart/form-data; boundary=a; boundary=b", "b"),
    ("multipart/form-data; boundary=a; Boundary =b", "b"),
    ("multipart/form-data; boundary*=utf-8''b", "b"),
    ("multipart/form-data; boundary*0=b", "b"),
    ("multipart/form-data; boundary=<b>", "b"),
    ("multipart/form-data; boundary=<b>", "<b>"),
    ('multipart/form-data; boundary=""b""', "b"),
    ("multipart/form-data; boundary=b(c)", "b"),
    ('multipart/form-data; boundary="b c"', "b c"),
    ('multipart/form-data; boundary="\\b"', "b"),
    ("multipart/form-data; boundary=" + "b" * 71, "b" * 71),
    ("multipart/form-data; xboundary=b", "b"),
    ("multipart/form-data; boundary=", ""),
    ('multipart/form-data; boundary=""', ""),
    ("multipart/form-data", ""),
    ("multipart/form-data" + ";" * 1000 + "boundary=b", "b"),
)


def write_form(head: str, boundary: str = "b", value: str = "500") -> bytes:
    return f"--{boundary}\r\n{head}\r\n\r\n{value}\r\n--{boundary}--\r\n".encode()


@pytest.mark.parametrize("head", DISPOSITIONS)
def test_an_n_is_found_however_its_head_is_written(head: str):
    assert read_numbers(FORM["content-type"], write_form(head)) == [500]
    assert FormScanner(FORM["content-type"]).feed(write_form(head), last=True) == [500]


@pytest.mark.parametrize(("content_type", "boundary"), BOUNDARIES)
def test_an_n_is_found_however_its_boundary_is_written(content_type: str, boundary: str):
    assert read_numbers(content_type, write_form(PLAIN, boundary)) == [500]
    assert FormScanner(content_type).feed(write_form(PLAIN, boundary), last=True) == [500]


@pytest.mark.parametrize("head", HIDDEN_HEADS)
def test_a_head_that_servers_read_differently_is_refused(head: str):
    with pytest.raises(RequestInvalid):
        FormScanner(FORM["content-type"]).feed(write_form(head), last=True)


@pytest.mark.parametrize(
    "form",
    [
        write_form(PLAIN).replace(b"\r\n", b"\n"),
        write_form(PLAIN).replace(b"\r\n", b"\r"),
        write_form(PLAIN).replace(b"\r\n", b"\r").removesuffix(b"\r--b--\r"),
        b"--bc\r\n" + PLAIN.encode() + b"\r\n\r\n500\r\n--b--",
        b"--b\nContent-Disposition: x;\n\n;name=n\r\n\r\n500\r\n--b--",
        b"--b\r\nX: y\r\n" + write_form(PLAIN),
    ],
)
def test_a_form_whose_lines_servers_divide_differently_is_refused(form: bytes):
    with pytest.raises(RequestInvalid):
        FormScanner(FORM["content-type"]).feed(form, last=True)


@pytest.mark.parametrize(
    "before",
    [b"preamble", b"x--b\r\n\r\n", b"--b--\r\n", write_form('Content-Disposition: form-data; name="m"')],
)
def test_an_n_is_found_after_anything(before: bytes):
    if before == b"--b--\r\n":  # some servers read on after the end, without another delimiter
        form = before + PLAIN.encode() + b"\r\n\r\n500"
    else:
        form = before + b"\r\n" + write_form(PLAIN)
    assert FormScanner(FORM["content-type"]).feed(form, last=True) == [500]


@pytest.mark.parametrize(
    "head",
    [
        'Content-Disposition: form-data; name="image[]"; filename="a \\"b\\"; c"\r\nContent-Type: image/png',
        "Content-Disposition: form-data; name=\"image\"; filename*=utf-8''%e2%82%ac.png",
        'Content-Disposition: form-data; name="image"; filename="€.png"\r\nContent-Length: 3',
        "Content-Type: text/plain",
    ],
)
def test_files_of_usual_clients_pass(head: str):
    assert FormScanner(FORM["content-type"]).feed(write_form(head), last=True) == []


@given(st.lists(st.integers(1, 40), max_size=30), st.sampled_from([*DISPOSITIONS, *HIDDEN_HEADS]))
def test_where_a_form_is_cut_changes_nothing(cuts: list[int], head: str):
    form, values = write_form(head), []
    scanner = FormScanner(FORM["content-type"])
    try:
        for size in cuts:
            values += scanner.feed(form[:size])
            form = form[size:]
        values += scanner.feed(form, last=True)
    except RequestInvalid:
        assert head in HIDDEN_HEADS
    else:
        assert (head in DISPOSITIONS, values) == (True, [500])


PIECES = (
    "name",
    "filename",
    "*",
    "0",
    "1",
    "=",
    ";",
    '"',
    "\\",
    "n",
    "utf-8''",
    "%6e",
    " ",
    "'",
    "x",
    "<",
    ">",
    ",",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_head_hides_an_n_from_email(end: str):
    form = write_form("Content-Disposition: form-data; " + end)
    try:
        values = FormScanner(FORM["content-type"]).feed(form, last=True)
    except RequestInvalid:
        return
    assert values == read_numbers(FORM["content-type"], form)


@given(st.lists(st.sampled_from((*PIECES, "boundary", "b", "b", "=b")), max_size=12).map("".join))
def test_no_content_type_hides_an_n_from_email(end: str):
    content_type, form = "multipart/form-data; " + end, write_form(PLAIN)
    try:
        values = FormScanner(content_type).feed(form, last=True)
    except RequestInvalid:
        return
    assert values == read_numbers(content_type, form)


def test_c14_no_way_of_writing_a_form_passes_a_cap():
    painter = Painter()
    heads = [(FORM["content-type"], "b", head) for head in (*DISPOSITIONS, *HIDDEN_HEADS)]
    boundaries = [(*pair, PLAIN) for pair in (*BOUNDARIES, *HIDDEN_BOUNDARIES)]
    with OtherRoutes(**{"images/edits": painter}) as up, Running(up.url, cap=5) as gate:
        for content_type, boundary, head in heads + boundaries:
            form = write_form(head, boundary)
            answer = gate.ask(form, {"content-type": content_type}, path="/v1/images/edits")
            assert answer.status == 400, (content_type, head)
        assert spent(gate) == (0, 0, 0)
    assert painter.images == 0


def test_a_form_without_a_clear_boundary_is_refused_unsent_where_it_costs():
    with OtherRoutes() as up, Running(up.url) as gate:
        for content_type, _ in HIDDEN_BOUNDARIES:
            answer = gate.ask(b"x", {"content-type": content_type}, path="/v1/images/edits")
            assert answer.status == 400
            assert answer.error["code"] == "invalid_request"
            assert re.search("boundary|parameters", answer.error["message"])
        assert all(request.method == "GET" for request in up.requests)
        stored = gate.ask(b"x", {"content-type": "multipart/form-data"}, path="/v1/files")
        assert stored.status == 200


def test_a_head_that_never_ends_is_not_kept():
    scanner = FormScanner(FORM["content-type"])
    scanner.feed(b"--b\r\n")
    for _ in range(8):
        scanner.feed(b"x" * 1000)
    with pytest.raises(RequestInvalid, match="8192 bytes"):
        scanner.feed(b"x" * 1000)
