"""An endpoint's settings are checked when it is made, with one-line messages that show no secret."""

import math

import pytest

from adacompute.client import BreakerSettings, Endpoint, RateLimits, Response, Retries, Timeouts
from adacompute.errors import ConfigError
from adacompute.records import Secret


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


@pytest.mark.parametrize(
    "settings",
    [
        {"headers": {"Host": "sk-secret"}},
        {"headers": {"content-length": "sk-secret"}},
        {"headers": {"authorization": "sk-secret"}, "key": "sk-secret"},
        {"headers": {"API-Key": "sk-secret"}, "key": "sk-secret", "key_header": "api-key"},
        {"headers": {"X-Title": "sk-secret\r\nX: y"}},
        {"headers": {"X Title": "sk-secret"}},
        {"headers": {"X-Title": b"sk-secret"}},
        {"headers": ["X-Title: sk-secret"]},
        {"query": {"key": 1}},
        {"query": "key=sk-secret"},
        {"key_header": "Content-Type", "key": "sk-secret"},
    ],
)
def test_headers_that_are_ours_or_none_are_refused_in_one_line_without_their_values(settings):
    with pytest.raises(ConfigError) as caught:
        Endpoint(url="http://h/v1", **settings)
    assert "\n" not in str(caught.value)
    assert "sk-" not in str(caught.value)


def test_values_of_headers_and_of_the_query_are_not_shown():
    headers = {"X-Token": "sk-secret", "Authorization": "sk-secret"}
    shown = repr(Endpoint(url="http://h/v1", headers=headers, query={"key": "sk-secret"}))
    assert "sk-" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "http://u:sk-secret@h:80a/v1",
        "http://u:sk-secret@[::1/v1",
        "ftp://u:sk-secret@h/v1",
        "http://u:sk-secret/x@h/v1",
        "http://u:x?sk-secret@h/v1",
        "http://u:x#sk-secret@h/v1",
        "http://h/v1?api_key=sk-secret",
        "http://h/v1?api_key=x@sk-secret",
        "http://h/v1#sk-secret",
        "u:sk-secret@h/v1",
        "http://h?key=sk-secret",
        "http://sk-secret@a..b/v1",
    ],
)
def test_what_is_no_address_shows_no_key_that_it_carries(url):
    with pytest.raises(ConfigError, match="endpoint") as caught:
        Endpoint(url=url)
    assert "sk-" not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    ["http://a..b/v1", f"http://{'a' * 64}.test/v1", "http://a b/v1", "http://127.0.0.1/v1\n", 5, None, b"x"],
)
def test_what_can_be_no_name_of_a_host_and_what_is_no_text_is_refused_in_one_line(url):
    with pytest.raises(ConfigError, match="endpoint") as caught:
        Endpoint(url=url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://☃.test/v1", "http://h.test./v1", "http://[::1]:1/v1", "http://a_b/v1"]
)
def test_names_of_hosts_of_every_kind_are_taken(url):
    assert Endpoint(url=url).url == url


def test_a_key_in_plain_text_is_kept_secret():
    endpoint = Endpoint(url="http://127.0.0.1:9/v1", key="sk-plain-text")
    assert endpoint.key == Secret("sk-plain-text")
    assert "sk-plain" not in repr(endpoint)


@pytest.mark.parametrize(
    "key", [5150, b"sk-5150", ["sk-5150"], "", "sk-5150\n", "sk 5150", Secret("\ud800sk-5150")]
)
def test_what_can_be_no_key_is_refused_without_showing_it(key):
    with pytest.raises(ConfigError, match="key") as caught:
        Endpoint(url="http://127.0.0.1:9/v1", key=key)
    assert "5150" not in str(caught.value)


@pytest.mark.parametrize("name", ["timeouts", "retries", "limits", "breaker"])
def test_settings_of_another_kind_are_refused(name):
    with pytest.raises(ConfigError, match=name):
        Endpoint(url="http://127.0.0.1:9/v1", **{name: 30})


def test_routes_are_below_the_address():
    endpoint = Endpoint(url="http://127.0.0.1:8081/v1//")
    assert endpoint.chat == "http://127.0.0.1:8081/v1/chat/completions"
    assert endpoint.models == "http://127.0.0.1:8081/v1/models"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "4", b"4", True, [4], 10**400])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Timeouts, "connect"),
        (Timeouts, "first_byte"),
        (Timeouts, "total"),
        (Retries, "deadline"),
        (Retries, "first"),
        (Retries, "longest"),
        (RateLimits, "requests_per_minute"),
        (RateLimits, "tokens_per_minute"),
        (BreakerSettings, "seconds"),
        (BreakerSettings, "longest"),
    ],
)
def test_times_and_rates_are_above_nothing_and_finite(kind, name, value):
    with pytest.raises(ConfigError, match=name.split("_")[0]):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "name"), [(Retries, "attempts"), (RateLimits, "concurrency"), (BreakerSettings, "failures")]
)
@pytest.mark.parametrize("value", [0, -1, "4", 2.5, 4.0, None, True])
def test_counts_are_whole_numbers_from_one_on(kind, name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        kind(**{name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "finished"), [("stop", True), ("length", False), (None, None), ("x", True)]
)
def test_only_a_token_limit_leaves_a_response_unfinished(reason, finished):
    assert Response(text="", finish_reason=reason).finished is finished


def test_half_a_surrogate_pair_is_stored_as_what_is_text():
    assert Response(text="a\ud83db").to_sample().text == "a\ufffdb"
    assert Response(text="🎲 ½").to_sample().text == "🎲 ½"
