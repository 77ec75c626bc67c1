"""Logs: one line of JSON each, and no secret in any of them, however it got there."""

import base64
import errno
import io
import json
import logging
import re
import threading
import time
import urllib.parse
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import told

import adacompute.serve
from adacompute.errors import EndpointRefused
from adacompute.records import Call, Secret
from adacompute.serve.watching.logs import MASK, Redactor, RepeatFilter, log_call, log_request, log_to

UPSTREAM = "sk-upstream-canary-1b2c3d4e"
CLIENT = 'client canary/with+odd"signs\\and é'
PLAIN = "correcthorsebatterystaple"  # looks like no key
CANARIES = (UPSTREAM, CLIENT, PLAIN)


def lines(work, *, level: str = "debug", secrets=CANARIES) -> list[dict]:
    """What is logged while `work` is done."""
    stream = io.StringIO()
    with log_to(stream, level=level, secrets=[Secret(one) for one in secrets]):
        work()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        urllib.parse.quote(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        base64.b64encode(raw).decode(),
        base64.b64encode(b"user:" + raw).decode(),
    ]


class Careless:
    """An object that shows what it holds."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return f"Careless({self.secret!r})"


class Broken:
    """An object that can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError(UPSTREAM)


def spill(secret: str) -> None:
    """Logs a secret in every way that comes to mind."""
    loggers = ["adacompute.serve", "uvicorn.error", "uvicorn.access", "aiohttp.client", "asyncio", "anything"]
    basic = base64.b64encode(f"user:{secret}".encode()).decode()
    for name in loggers:
        logger = logging.getLogger(name)
        logger.debug(f"in the message: {secret}")
        logger.info("in an argument: %s and %r", secret, secret)
        logger.info("in a mapping: %(key)s", {"key": secret})
        logger.warning("in an object: %r %s", Careless(secret), [Careless(secret)])
        logger.info("in bytes: %r", secret.encode())
        logger.info("quoted %s", urllib.parse.quote(f"/v1?key={secret}"))
        logger.info("as JSON %s", json.dumps({"authorization": f"Bearer {secret}"}))
        logger.info("headers %r", [(b"authorization", f"Basic {basic}".encode())])
        logger.info(
            "in an extra",
            extra={"found": secret, "nested": {"a": [{secret: Careless(secret)}]}, "raw": secret.encode()},
        )
        logger.info("too many arguments", secret)  # noqa: PLE1205
        logger.info("wrong argument %d", secret)
        logger.info("an argument that can't be shown %s %s", Broken(), secret)
        logger.info("a stack", stack_info=True, extra={"stack": secret})
        try:
            try:
                raise ValueError(secret)
            except ValueError as exc:
                raise EndpointRefused(f"it said {secret}") from exc
        except EndpointRefused:
            logger.exception("failed with %s", secret)


@pytest.mark.parametrize("secret", CANARIES, ids=["key", "odd", "plain"])
def test_c21_no_canary_is_found_in_any_line_at_debug_level(secret):
    found = lines(lambda: spill(secret))
    assert len(found) > 60
    everything = "\n".join(json.dumps(line, ensure_ascii=False) for line in found) + str(found)
    for form in forms(secret):
        assert form not in everything
    assert MASK in everything


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer {}",
        "authorization: bearer {}",
        "{{'Authorization': 'Bearer {}'}}",
        "[(b'authorization', b'Bearer {}')]",
        '{{"api_key": "{}"}}',
        "x-api-key={}",
        "GET /v1/models?api_key={}&n=1",
        "https://user:{}@example.org/v1",
        "Cookie: {}",
        "sk-{}",
        "the key hf_{} was refused",
    ],
)
def test_c21_what_looks_like_a_key_is_masked_though_nobody_named_it(text):
    unknown = "Zk93jfLq28dMxPw0"
    said = Redactor().mask_text(text.format(unknown))
    assert unknown not in said
    assert MASK in said


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens: 52, completion tokens 300",
        "policy 'stopping' reloaded, version 3f9c2a1e",
        "http://127.0.0.1:8081/v1: broke off after the request was sent",
        "the key alice reached its cap of 100 samples",
        "task-based sampling; risk-free",
    ],
)
def test_ordinary_messages_are_left_as_they_are(text):
    assert Redactor([Secret(PLAIN)]).mask_text(text) == text


@settings(max_examples=150, deadline=None)
@given(
    secret=st.text(min_size=8, max_size=40).filter(lambda text: len(set(text)) > 3 and MASK not in text),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
)
def test_c21_a_known_secret_is_masked_wherever_it_stands(secret, before, after):
    redactor = Redactor([Secret(secret)])
    for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        said = redactor.mask_text(before + form + after)
        assert MASK in said
        assert said.count(secret) == 0 or secret in (before + after) or secret in before + MASK + after


def test_c21_a_key_that_a_long_message_is_cut_in_is_not_shown_by_half():
    for shift in range(0, 60, 7):
        words = "x" * (20_000 - shift) + UPSTREAM + "y" * 5000
        (line,) = lines(lambda words=words: logging.getLogger("x").info(words))
        assert UPSTREAM[:6] not in line["message"]
        assert len(line["message"]) < 20_000


def test_a_long_message_of_nonsense_takes_no_time_to_mask():
    for nonsense in ("a", "sk-", "://a:", "bearer ", "cookie=", "\\"):
        assert len(Redactor([Secret(PLAIN)]).mask_text((nonsense * 20_000)[:20_000] + "://")) > 0


def test_a_line_a_request_tells_what_it_took_and_none_of_its_texts():
    one = replace(told(1.0), prompt="the prompt", answer="the answer", votes={"the answer": 2, "other": 1})
    (line,) = lines(lambda: log_request(one), level="info")
    assert line["message"] == "request"
    assert (line["id"], line["key_name"], line["policy"]) == (one.id, "alice", "stopping")
    assert (line["samples"], line["votes"], line["status"]) == (2, [2, 1], 200)
    assert (line["spent_samples"], line["spent_tokens"]) == (2, 400)
    assert "the " not in json.dumps(line)
    assert lines(lambda: log_request(one), level="warning") == []


def test_what_a_policy_would_have_done_is_in_the_line_of_shadow_mode_only():
    (line,) = lines(lambda: log_request(replace(told(1.0), mode="shadow", would=3)))
    assert line["would"] == 3
    (line,) = lines(lambda: log_request(told(1.0)))
    assert "would" not in line


def test_a_call_to_the_upstream_has_a_line_for_debugging_only():
    call = Call(at=1.0, seconds=0.25, asked=2, got=0, kind="server-error", status=500, paid="maybe")
    (line,) = lines(lambda: log_call(call))
    found = {name: line[name] for name in ("kind", "status", "asked", "got", "seconds", "paid")}
    assert found == {
        "kind": "server-error",
        "status": 500,
        "asked": 2,
        "got": 0,
        "seconds": 0.25,
        "paid": "maybe",
    }
    assert lines(lambda: log_call(call), level="info") == []


def test_the_access_log_of_uvicorn_is_for_debugging_only():
    def work() -> None:
        logging.getLogger("uvicorn.access").info("GET /")

    assert lines(work, level="info") == []
    assert len(lines(work, level="debug")) == 1


def test_logging_is_left_as_it_was_found():
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("uvicorn.access").level
    lines(lambda: None)
    assert (root.handlers[:], root.level, logging.getLogger("uvicorn.access").level) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "logs"]


def test_a_close_is_noticed_whatever_the_writing_thread_does_meanwhile():
    for wait in (0.0, 0.019, 0.02, 0.021) * 10:  # it gathers lines for 20 ms
        lines(lambda wait=wait: (logging.getLogger("adacompute.serve").info("x"), time.sleep(wait)))
    assert not [thread for thread in threading.enumerate() if thread.name == "logs"]


def test_the_same_warning_comes_a_few_times_a_minute_and_says_what_was_left_out():
    now = [0.0]
    seldom = RepeatFilter(limit=3, seconds=60, now=lambda: now[0])

    def record(words: str, level: int = logging.WARNING) -> logging.LogRecord:
        return logging.LogRecord("x", level, "", 0, words, (), None)

    assert [seldom.filter(record("upstream fails")) for _ in range(10)] == [True] * 3 + [False] * 7
    assert seldom.filter(record("something else"))
    assert all(seldom.filter(record("request", logging.INFO)) for _ in range(100))
    now[0] = 61.0
    again = record("upstream fails")
    assert seldom.filter(again)
    assert again.left_out == 7
    for i in range(10_000):
        seldom.filter(record(f"warning {i}"))
    assert len(seldom._counts) <= 256


def test_a_reader_that_stalls_does_not_stall_who_writes():
    class Stalled(io.StringIO):
        go = threading.Event()

        def write(self, text: str) -> int:
            self.go.wait(30)
            return super().write(text)

    stream = Stalled()
    with log_to(stream, level="info"):
        for i in range(10_500):  # more than there is room for; none of them waits
            logging.getLogger("x").info("line %d", i)
        stream.go.set()
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(said) >= 10_000
    assert any("log lines were dropped" in line["message"] for line in said)


def test_a_stream_that_is_closed_ends_no_request():
    stream = io.StringIO()
    with log_to(stream, level="info"):
        stream.close()
        logging.getLogger("x").info("lost")
        logging.getLogger("x").info("lost, too")


def test_a_disk_that_is_full_for_a_moment_ends_no_log():
    class Full(io.StringIO):
        failing = True

        def write(self, text: str) -> int:
            if self.failing:
                raise OSError(errno.ENOSPC, "no space")
            return super().write(text)

    stream = Full()
    with log_to(stream):
        logging.getLogger("adacompute.serve").warning("lost")
        time.sleep(0.3)
        stream.failing = False
        logging.getLogger("adacompute.serve").warning("written")
    assert "written" in stream.getvalue()
    assert "1 log lines were dropped" in stream.getvalue()


def test_lines_name_a_logger_that_outlasts_the_modules():
    folder = Path(adacompute.serve.__file__).parent
    found = {
        name
        for file in folder.rglob("*.py")
        for name in re.findall(r"^_log = logging\.getLogger\((.*)\)$", file.read_text("utf-8"), re.MULTILINE)
    }
    assert found == {'"adacompute.serve"', '"adacompute.serve.fleet"'}
