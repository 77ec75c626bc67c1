"""Log-probabilities: a client's own are never dropped, ours are; one client's refusal is nobody else's."""

import pytest
from running import QUESTION, Running

from adacompute.pool import open_pool
from upstream import Honest, Reply, Status, Upstream


def given(answer) -> bool:
    return bool(answer.json["choices"][0]["logprobs"])


def test_log_probabilities_that_the_client_asked_for_are_given_or_the_refusal_is_told():
    with Upstream(Honest(logprobs="refuse")) as up, Running(up.url, budget=4.0) as gate:
        assert gate.ask().status == 200  # ours are dropped
        for stream in (False, True):
            answer = gate.ask(None, {"x-adacompute-mode": "pass"}, logprobs=True, stream=stream)
            assert answer.status == 400
            assert "logprobs" in answer.error["message"]
        assert gate.ask().json["adacompute"]["samples"] >= 1


@pytest.mark.parametrize("odd", [{"my_logprob": 1}, {"top_logprobs": 20}])
def test_one_clients_refused_request_leaves_the_others_their_log_probabilities(odd):
    def script(number, body):
        if "my_logprob" in body:
            return Status(code=422, message="Extra inputs are not permitted", param="my_logprob")
        if body.get("top_logprobs", 0) > 5:
            return Status(code=400, message="top_logprobs must be at most 5", param="top_logprobs")
        return Reply()

    with Upstream(script) as up, Running(up.url, budget=1.0) as gate:
        assert given(gate.ask(logprobs=True))
        assert gate.ask(logprobs=True, **odd).status in (400, 422)
        assert given(gate.ask(logprobs=True))


def test_a_model_without_log_probabilities_leaves_another_its_own():
    def script(number, body):
        if body["model"] == "b" and body.get("logprobs"):
            return Status(code=400, message="logprobs are not supported by this model", param="logprobs")
        return Reply()

    with Upstream(script, models=("a", "b")) as up, Running(up.url, budget=4.0) as gate:
        for model in "abab":
            assert gate.ask({**QUESTION, "model": model}).status == 200
        asked_for = [(request.body["model"], "logprobs" in request.body) for request in up.requests]
    assert all(weighed for model, weighed in asked_for if model == "a")
    assert [weighed for model, weighed in asked_for if model == "b"].count(True) == 1


def test_streams_are_charged_by_the_upstreams_usage_whatever_another_client_asked():
    usage = {"prompt_tokens": 1000, "completion_tokens": 12, "total_tokens": 1012}

    def script(number, body):
        if "x_include_usage" in body:
            return Status(code=422, message="Extra inputs are not permitted", param="x_include_usage")
        return Reply(tokens=12, usage=usage)

    with Upstream(script) as up, Running(up.url, budget="1 sample", unit="tokens") as gate:
        ledger = gate.gateway.resources.ledger
        gate.ask(stream=True)
        before = ledger.account().spent.tokens
        assert gate.ask(stream=True, x_include_usage=1).status == 422
        gate.ask(stream=True)
        assert (before, ledger.account().spent.tokens) == (1012, 2024)


def test_the_signals_of_a_samples_tokens_are_stored(tmp_path):
    def reply(number, body):
        pieces = ["The", " answer", " is", " 4", "2", "."]
        tokens = [{"token": piece, "logprob": -0.25} for piece in pieces]
        message = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": tokens}}
        usage = {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
        return Reply(body={"id": f"c{number}", "model": "scripted", "choices": [choice], "usage": usage})

    path = tmp_path / "traffic.sqlite"
    with Upstream(reply) as up, Running(up.url, budget=2.0, record=str(path)) as gate:
        assert gate.ask().status == 200
    with open_pool(path) as pool:
        samples = [sample for record in pool for sample in record.samples]
    assert samples
    for sample in samples:
        assert sample.answer == "42"
        assert (sample.signals.tail, sample.signals.window) == (-0.25, -0.25)
        assert (sample.signals.answer_sum, sample.signals.answer_least) == (-0.5, -0.25)
