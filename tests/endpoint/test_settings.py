"""What an endpoint is told is checked when it is told, in one line that shows no secret."""

import math

import pytest

from adacompute.endpoint import Endpoint, Limits, Response, Rest, Retries, Timeouts
from adacompute.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8081/v1",
        "ftp://127.0.0.1/v1",
        "http:///v1",
        "http://127.0.0.1:8081",
        "http://127.0.0.1:8081/",
        "http://127.0.0.1:99999/v1",
        "http://[::1/v1",
        "http://127.0.0.1/v1?key=1",
        "http://127.0.0.1/v1#x",
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="endpoint"):
        Endpoint(url=url)


def test_an_address_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigError) as caught:
        Endpoint(url="https://me:hunter2@example.test/v1")
    assert "hunter2" not in str(caught.value)
    assert "example.test" in str(caught.value)


def test_routes_are_below_the_address():
    endpoint = Endpoint(url="http://127.0.0.1:8081/v1//")
    assert endpoint.chat == "http://127.0.0.1:8081/v1/chat/completions"
    assert endpoint.models == "http://127.0.0.1:8081/v1/models"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Timeouts, "connect"),
        (Timeouts, "first_byte"),
        (Timeouts, "total"),
        (Retries, "deadline"),
        (Retries, "first"),
        (Retries, "longest"),
        (Limits, "requests_per_minute"),
        (Limits, "tokens_per_minute"),
        (Rest, "seconds"),
        (Rest, "longest"),
    ],
)
def test_times_and_rates_are_above_nothing_and_finite(kind, name, value):
    with pytest.raises(ConfigError, match=name.split("_")[0]):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "name"), [(Retries, "attempts"), (Limits, "concurrency"), (Rest, "failures")]
)
def test_counts_are_one_or_more(kind, name):
    with pytest.raises(ConfigError, match=name):
        kind(**{name: 0})


@pytest.mark.parametrize(
    ("reason", "finished"), [("stop", True), ("length", False), (None, None), ("x", True)]
)
def test_only_a_token_limit_leaves_a_response_unfinished(reason, finished):
    assert Response(text="", finish_reason=reason).finished is finished


def test_half_a_surrogate_pair_is_stored_as_what_is_text():
    assert Response(text="a\ud83db").sample().text == "a\ufffdb"
    assert Response(text="🎲 ½").sample().text == "🎲 ½"
