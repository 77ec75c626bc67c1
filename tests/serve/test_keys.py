"""Who asks: every key is known, nothing else is, and no message shows one."""

import base64
import contextlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.config import KeyConfig
from adacompute.errors import Unauthorized
from adacompute.records import Secret
from adacompute.serve.routes.chat import Keys

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
CONFIGS = [
    KeyConfig(name="alice", key=Secret(ALICE), cap=5.0),
    KeyConfig(name="bob", key=Secret(BOB), operator=True),
]
KEYS = Keys(CONFIGS)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        ALICE,
        f"Token {ALICE}",
        f"Bearer {ALICE}x",
        f"Bearer {ALICE[:-1]}",
        f"Bearer {ALICE},{BOB}",
        f"Bearer {ALICE.upper()}",
        "Bearer \udcff\x00",
        basic(ALICE, ""),
        basic(ALICE, BOB + "x"),
        f"Basic {ALICE}",
        "Basic ÿÿÿ",
        "Basic /w==",
        "Basic",
    ],
)
def test_all_else_is_unauthorized_and_the_remedy_is_said(said: str | None):
    with pytest.raises(Unauthorized, match="give it as Authorization: Bearer KEY") as caught:
        KEYS.identify(said)
    assert caught.value.status == 401
    assert ALICE not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_c22_every_key_is_compared_whole_whichever_it_is(monkeypatch: pytest.MonkeyPatch):
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    for said in (f"Bearer {ALICE}", f"Bearer {BOB}", "Bearer x"):
        compared.clear()
        with contextlib.suppress(Unauthorized):
            KEYS.identify(said)
        assert compared == [(32, 32), (32, 32)]


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
@settings(max_examples=100, deadline=None)
def test_c10_no_header_breaks_it(said: str):
    for value in (said, "Bearer " + said, "Basic " + said):
        with pytest.raises(Unauthorized):
            KEYS.identify(value)


def test_c21_a_key_is_never_shown():
    assert ALICE not in repr(KEYS.identify(f"Bearer {ALICE}"))
    assert ALICE not in repr(KEYS)
