"""Forms that ask for several images: what they may cost is reserved before the upstream hears of it."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from other_routes import OtherRoutes, Received
from running import Running

from adacompute.errors import RequestInvalid
from adacompute.serve.forward import FormScanner

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


class Painter:
    """Gives as many images as a form asks for, and counts them."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, _request: web.Request, received: Received) -> web.Response:
        count = max([1, *map(int, re.findall(rb'name="n"\r\n\r\n(\d+)', received.body))])
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
        (b"--b\nContent-Disposition: form-data; NAME=n\n\n7\n--b--", [7]),
        (b'--b\r\ncontent-disposition: form-data; name="n"; x=1\r\n\r\n 7 \r\n', [7]),
        (b'--b\r\nContent-Disposition: form-data; name="image"; filename="n"\r\n\r\n7\r\n--b--', []),
        (b"no form at all", []),
    ],
)
def test_forms_that_a_lenient_server_reads_are_read_here_too(form: bytes, values: list[int]):
    assert FormScanner('multipart/form-data; boundary="b"').feed(form, last=True) == values


def test_a_head_that_never_ends_is_not_kept():
    scanner = FormScanner(FORM["content-type"])
    for _ in range(8):
        scanner.feed(b"--b\r\n" + b"x" * 1000)
    with pytest.raises(RequestInvalid, match="8192 bytes"):
        scanner.feed(b"x" * 1000)
