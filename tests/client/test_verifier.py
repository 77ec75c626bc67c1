"""The verifier: a score, or none and why; whatever its endpoint does, nothing is raised."""

import asyncio
import json
import math

import pytest

from adacompute.client import Endpoint, Response, Verifier
from adacompute.client.verifier import VerifierReply, build_verifier, parse_score, read_verdict
from adacompute.config import EndpointConfig, VerifierConfig, load_config
from adacompute.errors import ConfigError
from upstream import Drop, Garbage, Reply, Stall, Status, Upstream

MESSAGES = [{"role": "user", "content": "What is 6 times 7?"}]
SCORED = Reply(body={"score": 0.75})


def verify(url: str, *, model: str = "", response: str = "It is 42.", **settings) -> VerifierReply:
    async def run() -> VerifierReply:
        given = {"timeout": 10.0, **settings}
        verifier = build_verifier(VerifierConfig(url=url, model=model, **given), EndpointConfig())
        assert verifier is not None
        async with verifier:
            return await verifier.score(MESSAGES, response, "42", prompt="What is 6 times 7?")

    return asyncio.run(run())


def plain(up: Upstream) -> str:
    return f"http://127.0.0.1:{up.port}{up.path}"


def verdict(*tokens: tuple[str, float], text: str = "Yes", listed: bool = True) -> Reply:
    """A completion of one token, with its alternatives."""
    (first, value), *_ = tokens
    top = [{"token": token, "logprob": logprob} for token, logprob in tokens]
    entry = {"token": first, "logprob": value, "top_logprobs": top if listed else []}
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
        "logprobs": {"content": [entry]},
    }
    usage = {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91}
    return Reply(body={"object": "chat.completion", "model": "judge", "choices": [choice], "usage": usage})


def test_a_scoring_endpoint_gets_prompt_response_and_answer_and_gives_a_number():
    with Upstream(SCORED, path="/grade") as up:
        outcome = verify(plain(up))
        assert (outcome.score, outcome.error, outcome.tokens) == (0.75, None, 0)
        assert up.requests[0].body == {
            "prompt": "What is 6 times 7?",
            "response": "It is 42.",
            "answer": "42",
        }


@pytest.mark.parametrize(
    ("path", "body", "sent"),
    [
        ("/score", {"object": "list", "data": [{"index": 0, "object": "score", "score": 0.5}]}, "text_2"),
        ("/pooling", {"object": "list", "data": [{"index": 0, "data": [[-1.0], [0.5]]}]}, "messages"),
        ("/classify", [{"embedding": [0.5], "meta_info": {}}], "messages"),
    ],
)
def test_the_reward_routes_of_common_servers_are_asked_and_read_in_their_own_shape(path, body, sent):
    with Upstream(Reply(body=body), path=path) as up:
        assert verify(plain(up)).score == 0.5
        assert sent in up.requests[0].body


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (0.25, 0.25),
        (3, 3.0),
        ({"score": -2}, -2.0),
        ({"scores": [0.1, 0.9]}, 0.9),
        ({"reward": 1.5}, 1.5),
        ({"rewards": [[1.5]]}, 1.5),
        ({"score": "0.5"}, None),
        ({"score": True}, None),
        ({"score": None}, None),
        ({"score": math.nan}, None),
        ({"score": math.inf}, None),
        ({"score": 10**400}, None),
        ({"score": 1e12}, None),
        ({"scores": []}, None),
        ({"verdict": 1}, None),
        ([], None),
        ("good", None),
        (None, None),
    ],
)
def test_only_a_finite_number_in_a_known_place_is_a_score(value, score):
    assert parse_score(value) == score


def test_nesting_without_end_is_no_score():
    value: object = 1.0
    for _ in range(50):
        value = [value]
    assert parse_score(value) is None


@pytest.mark.parametrize(
    "fault",
    [
        Status(code=500),
        Status(code=404),
        Status(code=429, retry_after=60),
        Garbage(),
        Garbage(raw=b'{"score": NaN}'),
        Garbage(raw=b"\xff\xfe\x00"),
        Garbage(whole=b"SSH-2.0-OpenSSH_9\r\n"),
        Garbage(raw=b'{"score": 1, "x": "' + b"x" * 3_000_000 + b'"}'),
        Reply(body={"result": "fine"}),
        Reply(body=[[[[[[]]]]]]),
        Stall(),
        Stall(before="body"),
        Drop(after=40),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_whatever_a_verifier_does_it_costs_a_score_and_no_more(fault):
    with Upstream(fault, path="/score") as up:
        outcome = verify(plain(up), timeout=0.5)
        assert outcome.score is None
        assert outcome.error is not None
        judged = Upstream(fault)
    with judged as up:
        outcome = verify(up.url, model="judge", timeout=0.5)
        assert outcome.score is None
        assert outcome.error is not None


def test_nobody_there_is_no_score_either():
    assert verify("http://127.0.0.1:9/score", timeout=0.5).score is None


def test_a_passing_fault_is_retried_once():
    with Upstream([Status(code=503), SCORED], path="/score") as up:
        assert verify(plain(up)).score == 0.75
        assert up.count.requests == 2


def test_a_model_is_asked_whether_the_answer_is_right_and_its_log_odds_are_the_score():
    with Upstream(verdict(("Yes", math.log(0.8)), ("No", math.log(0.2)))) as up:
        outcome = verify(up.url, model="judge")
        body = up.requests[0].body
    assert outcome.score == pytest.approx(math.log(4))
    assert outcome.tokens == 91
    assert body["model"] == "judge"
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == "It is 42."
    assert "'42'" in body["messages"][2]["content"]
    assert body["max_tokens"] <= 8


def read(*tokens: tuple[str, float], text: str = "Yes") -> float | None:
    choice = verdict(*tokens, text=text).body["choices"][0]
    return read_verdict(Response(text=text, logprobs=choice["logprobs"]))


def test_spellings_of_a_verdict_count_together():
    split = read((" yes", math.log(0.5)), ("Yes", math.log(0.3)), ("No", math.log(0.2)))
    assert split == pytest.approx(math.log(4))
    assert read(("No.", math.log(0.8)), ("YES", math.log(0.2)), text="No.") == pytest.approx(-math.log(4))


def test_what_a_model_would_have_said_counts_where_it_says_something_else():
    odds = read(("The", math.log(0.7)), ("Yes", math.log(0.2)), ("No", math.log(0.1)), text="The answer is")
    assert odds == pytest.approx(math.log(2))
    assert read(("The", math.log(0.7)), ("It", math.log(0.2)), text="The answer is") is None


@pytest.mark.parametrize(
    "entry",
    [
        {"token": "Yes", "logprob": 10**400, "top_logprobs": []},
        {"token": "Yes", "logprob": math.nan, "top_logprobs": [None, 3, {"token": 1, "logprob": "x"}]},
        {"token": "Yes", "logprob": None, "top_logprobs": {"Yes": -1}},
        {"token": None, "logprob": -1.0},
        {},
    ],
)
def test_odd_log_probabilities_leave_the_word(entry):
    assert read_verdict(Response(text="Yes", logprobs={"content": [entry]})) == 1.0


def test_a_side_that_is_not_among_the_alternatives_is_less_likely_than_those():
    alone = read(("Yes", math.log(0.9)), ("Maybe", math.log(0.05)))
    assert alone is not None
    assert math.log(0.9 / 0.05) <= alone < math.inf
    certain = read(("Yes", 0.0))
    assert certain is not None
    assert math.isfinite(certain)


@pytest.mark.parametrize(("text", "score"), [("Yes", 1.0), ("no.", -1.0), ("**Yes**", 1.0), ("Hm", None)])
def test_without_log_probabilities_the_word_counts(text, score):
    assert read_verdict(Response(text=text)) == score
    with Upstream(Reply(texts=[text], logprobs=False)) as up:
        assert verify(up.url, model="judge").score == score


def test_a_verifier_that_refuses_log_probabilities_is_asked_without_them():
    def script(number, body):
        if "logprobs" in body:
            return Status(code=400, message="logprobs are not supported by this model", param="logprobs")
        return Reply(texts=["No"], logprobs=False)

    with Upstream(script) as up:
        assert verify(up.url, model="judge").score == -1.0


def test_the_verifiers_key_goes_to_it_and_the_endpoints_only_to_its_own_address(monkeypatch):
    monkeypatch.setenv("ADACOMPUTE_KEY", "sk-upstream-123456")
    monkeypatch.setenv("ADACOMPUTE_VERIFIER_KEY", "")
    with Upstream(SCORED, path="/score") as up:
        assert verify(plain(up)).score == 0.75
        assert "authorization" not in up.requests[0].headers
        monkeypatch.setenv("ADACOMPUTE_VERIFIER_KEY", "sk-verifier-98765")
        verify(plain(up))
        assert up.requests[1].headers["authorization"] == "Bearer sk-verifier-98765"
    monkeypatch.setenv("ADACOMPUTE_VERIFIER_KEY", "")
    settings = VerifierConfig(url="http://127.0.0.1:9/v1/", model="judge")
    verifier = build_verifier(settings, EndpointConfig(url="http://127.0.0.1:9/v1"))
    assert verifier is not None
    assert verifier.client.endpoint.key is not None


def test_the_key_of_a_verifier_is_no_setting(monkeypatch):
    environ = {"ADACOMPUTE_VERIFIER_KEY": "sk-verifier-98765", "ADACOMPUTE_VERIFIER_URL": "http://h/score"}
    assert load_config(environ=environ).verifier.url == "http://h/score"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "http://127.0.0.1:9000"}, ("no path", "/score")),
        ({"url": "http://me:sk-secret@h/score"}, ("password",)),
        ({"url": "ftp://h/score"}, ("verifier", "ftp://h/score")),
        ({"url": "http://h/score", "key_env": "NO_SUCH"}, ("NO_SUCH",)),
    ],
)
def test_settings_that_cannot_be_used_say_why_and_what_to_give(settings, words):
    with pytest.raises(ConfigError) as told:
        build_verifier(VerifierConfig(**settings), EndpointConfig())
    assert all(word in str(told.value) for word in words)
    assert "sk-secret" not in str(told.value)


@pytest.mark.parametrize(
    "settings", [{"model": "judge"}, {"timeout": 0.0}, {"concurrency": 0}, {"input_price": -1.0}]
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        VerifierConfig(**settings)


def test_no_address_is_no_verifier():
    assert build_verifier(VerifierConfig(), EndpointConfig()) is None


def test_the_body_of_a_request_is_valid_json_whatever_the_texts_hold():
    with Upstream(SCORED, path="/grade") as up:
        assert verify(plain(up), response='"\ud83d\x00\n} 42').score == 0.75
        assert "42" in json.loads(up.requests[0].raw)["response"]


@pytest.mark.parametrize(
    "answer", [None, "42", "\x00" * 3000, "\u200b" * 3000, "\U000e0001" * 3000, "'\"\\" * 900]
)
def test_the_bound_on_a_prompt_holds_for_every_answer(answer):
    verifier = Verifier(Endpoint(url="http://127.0.0.1:9/v1"), model="judge")
    body = verifier._build_question([{"role": "user", "content": ""}], "It is so.", answer)
    written = sum(len(message["content"].encode()) for message in body["messages"])
    assert written < verifier.bound_prompt_tokens(0, "It is so.", answer) < 25_000
