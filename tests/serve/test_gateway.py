"""The gateway as its clients see it: a real server on a real socket, in front of a scripted upstream."""

from collections.abc import Sequence
from typing import Any

import pytest
from behaviours import Honest, Reply, Status
from running import QUESTION, Running
from wires import until

from adacompute.policies import GuaranteePolicy
from upstream import Upstream

CHEAP, DEAR = 1e-6, 0.5  # prices: at the first it goes on while there is any doubt, at the second it stops


class Votes:
    """Gives these answers one after the other, whatever is asked."""

    def __init__(self, *answers: str, logprobs: Sequence[float] = ()) -> None:
        self.answers = answers
        self.logprobs = logprobs
        self.given = 0

    def __call__(self, _number: int, body: dict[str, Any]) -> Reply:
        places = range(self.given, self.given + body.get("n", 1))
        self.given += len(places)
        choices = [self._choice(i, place % len(self.answers), body) for i, place in enumerate(places)]
        usage = {
            "prompt_tokens": 20,
            "completion_tokens": 8 * len(places),
            "total_tokens": 20 + 8 * len(places),
        }
        return Reply(body={"object": "chat.completion", "choices": choices, "usage": usage})

    def _choice(self, index: int, place: int, body: dict[str, Any]) -> dict[str, Any]:
        text = f"Sample {place}. The answer is {self.answers[place]}."
        choice = {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        if body.get("logprobs"):
            each = self.logprobs[place] if self.logprobs else -0.3
            choice["logprobs"] = {"content": [{"token": "t", "logprob": each}] * 8}
        return choice


def test_a_reply_is_an_ordinary_completion_with_the_winner_of_the_vote():
    with Upstream(Votes("7", "42", "42")) as up, Running(up.url, price=CHEAP) as gate:
        answer = gate.ask()
    assert answer.status == 200, answer.raw
    reply, told = answer.json, answer.json["adacompute"]
    assert reply["object"] == "chat.completion"
    (choice,) = reply["choices"]
    assert choice["message"]["content"].endswith("The answer is 42.")
    assert told["answer"] == "42"
    assert told["votes"]["42"] > told["votes"]["7"]
    assert told["samples"] == sum(told["votes"].values()) == int(answer.headers["x-adacompute-samples"])
    assert told["samples"] > 1
    assert {"samples", "answer", "votes", "agreement", "price", "policy", "cost"} <= set(told)
    assert told["cost"] == told["samples"]
    assert choice["logprobs"] is None  # they were ours


def test_a_high_price_stops_after_one_sample_and_a_low_one_goes_on():
    with Upstream(Votes("7", "42")) as up, Running(up.url, price=DEAR) as gate:
        assert gate.ask().json["adacompute"]["samples"] == 1
    with Upstream(Votes("7", "42")) as up, Running(up.url, price=CHEAP) as gate:
        assert gate.ask().json["adacompute"]["samples"] == 16


def test_parameters_reach_the_upstream_unchanged():
    body = {
        "model": "some/model@20240229",
        "temperature": 0.61,
        "top_p": 0.9,
        "max_tokens": 77,
        "seed": 5,
        "stop": ["END"],
        "logit_bias": {"50256": -100},
        "presence_penalty": 0.25,
        "user": "somebody",
        "top_k": 40,
        "metadata": {"a": {"b": [1, 2.5, None, "ü"]}},
    }
    with Upstream(Votes("42")) as up, Running(up.url, price=DEAR) as gate:
        assert gate.ask({**QUESTION, **body}).status == 200
    sent = up.requests[-1].body
    assert {key: sent.get(key) for key in body} == body
    assert sent["messages"] == QUESTION["messages"]
    assert set(sent) - set(body) - {"messages"} <= {"logprobs", "top_logprobs", "n"}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"temperature": 0}, "temperature"),
        ({"adacompute": {"extract": "none"}}, "asks for none"),
        ({"n": 3}, "n is 3"),
    ],
)
def test_what_is_not_voted_on_is_one_round_and_says_why(more, why):
    with Upstream(Votes("7", "42")) as up, Running(up.url, price=CHEAP) as gate:
        reply = gate.ask(**more).json
    told = reply["adacompute"]
    assert up.count.requests == 1
    assert told["samples"] == len(reply["choices"]) == more.get("n", 1)
    assert any(why in note for note in told["notes"]), told
    assert told["answer"] is None


def test_more_confident_votes_weigh_more_and_the_client_does_not_see_how():
    script = Votes("7", "42", "7", logprobs=(-3.0, -0.01, -3.0))
    with Upstream(script) as up, Running(up.url, price=CHEAP) as gate:
        reply = gate.ask(logprobs=True).json
        assert reply["choices"][0]["logprobs"] is not None  # this client asked for them
    assert all(request.body["logprobs"] is True for request in up.requests)
    assert reply["adacompute"]["answer"] == "42"


def test_an_upstream_without_log_probabilities_is_noticed_once_and_votes_are_plain():
    with Upstream(Honest(logprobs="refuse")) as up, Running(up.url, price=CHEAP) as gate:
        assert gate.ask().status == gate.ask().status == 200
    refused = [request for request in up.requests if "logprobs" in request.body]
    assert len(refused) == 1
    assert up.count.statuses[400] == 1


def test_c06_partial_fan_out_votes_on_what_came_says_so_and_refunds_the_rest(tmp_path):
    def script(number: int, _body: dict[str, Any]) -> Reply | Status:
        return Status(code=400, message="no") if number == 3 else Reply(texts=["The answer is 42."])

    with (
        Upstream(script) as up,
        Running(up.url, price=CHEAP, cap=100, endpoint={"attempts": 1}, policy=_fixed(tmp_path, 4)) as gate,
    ):
        answer = gate.ask()
        told = answer.json["adacompute"]
        total = gate.gateway.resources.ledger.account()
    assert answer.status == 200
    assert told["missing"] == 4 - told["samples"] > 0
    assert any("failed" in note for note in told["notes"])
    assert (total.spent.samples, total.reserved.samples) == (up.count.choices, 0)
    assert told["samples"] == up.count.choices


def test_an_upstream_that_fails_requests_midway_is_not_asked_for_more():
    seen: set[str] = set()

    def script(_number: int, body: dict[str, Any]) -> Reply | Status:
        question = body["messages"][-1]["content"]
        if question in seen:
            return Status(code=400, message="no")
        seen.add(question)
        return Reply(texts=["The answer is 42."])

    with Upstream(script) as up, Running(up.url, budget=4.0, endpoint={"attempts": 1}) as gate:
        asked = [[{"role": "user", "content": f"What is {i} + {i}?"}] for i in range(12)]
        told = [gate.ask(messages=each).json["adacompute"] for each in asked]
    assert {(each["samples"], each["missing"] > 0) for each in told} == {(1, True)}
    prices = [each["price"] for each in told]
    assert (
        max(prices) / min(prices) < 1.021
    )  # cheap as they were, the price falls for none: each has its place


def test_shadow_mode_answers_with_one_sample_and_tells_what_would_have_been():
    with Upstream(Votes("7", "42")) as up, Running(up.url, price=CHEAP, mode="shadow") as gate:
        told = gate.ask().json["adacompute"]
    assert up.count.requests == told["samples"] == 1
    assert told["would"] >= 1


def test_the_budget_of_a_request_is_its_header_else_its_model_name_else_the_operators():
    with Upstream(Votes("42")) as up, Running(up.url, budget=2.0, max_budget=4.0) as gate:
        gate.ask(model="m@3")
        gate.ask(model="m@3", headers={"x-adacompute-budget": "1"})
        clamped = gate.ask(headers={"x-adacompute-budget": "9"}).json["adacompute"]
        lanes = set(gate.gateway.pacers.state())
    assert [request.body["model"] for request in up.requests][:1] == ["m"]
    assert any("4" in note for note in clamped["notes"])
    assert len(lanes) == 3


def test_a_deadline_bounds_the_waves():
    slow = Honest(latency=0.3)
    with Upstream(slow) as up, Running(up.url, price=0.001) as gate:
        told = gate.ask(headers={"x-adacompute-deadline": "1"}).json["adacompute"]
    assert 1 <= told["samples"] < 16
    assert any("deadline" in note for note in told["notes"])
    assert up.count.requests < 16


def _fixed(folder, budget: int) -> str:
    from adacompute.policies.baselines import FixedPolicy

    FixedPolicy(budget).save(folder / "fixed")
    return str(folder / "fixed")


def test_samples_that_state_no_answer_are_told_and_do_not_agree():
    texts = iter(["The answer is 42.", "The answer is 41.", "I don't know what to say about this."] * 20)

    def script(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(texts=[next(texts) for _ in range(body.get("n", 1))])

    with Upstream(script) as up, Running(up.url, price=CHEAP, min_agreement=0.5) as gate:
        told = gate.ask().json["adacompute"]
    assert told["abstained"] + sum(told["votes"].values()) == told["samples"] > 3
    assert told["agreement"] == pytest.approx(told["votes"]["42"] / told["samples"], abs=0.1)  # of all
    assert told["weak"] is True


def test_where_no_sample_states_an_answer_it_stops_and_says_so():
    silent = Reply(
        texts=["There is so much to tell of a city of many bridges, bakers and quarrels, old and new."]
    )
    with Upstream(silent) as up, Running(up.url, price=0.001) as gate:
        told = gate.ask(messages=[{"role": "user", "content": "What is the capital of France?"}]).json
    assert up.count.choices == 1  # of 16
    assert told["adacompute"]["agreement"] is None
    assert any("no vote" in note for note in told["adacompute"]["notes"])


def test_what_an_upstream_quotes_of_a_client_is_not_in_the_log(caplog: pytest.LogCaptureFixture):
    quoting = Status(code=400, message="invalid content: my secret diagnosis")
    with caplog.at_level("INFO"), Upstream(quoting) as up, Running(up.url) as gate:
        refused = gate.ask()
    assert "diagnosis" in refused.error["message"]  # it is the client's own
    assert "the upstream answered 400" in caplog.text
    assert "diagnosis" not in caplog.text


def test_without_a_pool_nothing_is_recorded():
    with Upstream() as up, Running(up.url) as gate:
        assert gate.ask().status == 200
        assert gate.gateway.reporter.recorder is None
        assert 'adacompute_recorder_requests{result="stored"} 0.0' in gate.get("/metrics").raw.decode()


def test_a_guarantee_says_whether_the_answer_is_certified(tmp_path):
    GuaranteePolicy(delta=0.05, longest=12).save(tmp_path / "policy")
    served = {"policy": str(tmp_path / "policy")}
    with Upstream(Votes("42")) as up, Running(up.url, **served) as gate:
        told = gate.ask().json["adacompute"]
    assert (told["certified"], told["samples"], told["price"]) == (True, 5, None)
    with Upstream(Votes("7", "42")) as up, Running(up.url, **served) as gate:
        told = gate.ask().json["adacompute"]
    assert (told["certified"], told["samples"]) == (False, 12)
    with Upstream(Votes("42")) as up, Running(up.url, price=DEAR) as gate:
        assert "certified" not in gate.ask().json["adacompute"]


def test_where_most_samples_give_no_answer_there_is_none_to_certify(tmp_path):
    GuaranteePolicy(delta=0.05, longest=32).save(tmp_path / "policy")
    texts = ["The answer is 42.", "", "", ""] * 8
    drawn = iter(texts)

    def answer(_number, body):
        return Reply(texts=[next(drawn) for _ in range(body.get("n", 1))])

    served = {"policy": str(tmp_path / "policy"), "vote": "always"}
    with Upstream(answer) as up, Running(up.url, **served) as gate:
        told = gate.ask().json["adacompute"]
    assert (told["answer"], told["votes"]["42"] >= 6) == (None, True)
    assert "certified" not in told


def count_rounds(**settings: Any) -> tuple[int, list[list[float]]]:
    """The samples of a request whose answers all differ, and the dashboard's times by rounds."""
    answers = [str(number) for number in range(16)]
    with Upstream(Votes(*answers)) as up, Running(up.url, price=0.01, **settings) as gate:
        samples = gate.ask().json["adacompute"]["samples"]
        until(lambda: bool(gate.gateway.observability.dashboard_data()["rounds"]))
        return samples, gate.gateway.observability.dashboard_data()["rounds"]


def test_a_request_takes_no_more_rounds_than_it_may_and_the_dashboard_has_the_time_by_rounds():
    _, ((free, requests, seconds),) = count_rounds()
    assert free > 2
    assert requests == 1
    assert seconds > 0
    for limit in (1, 2):
        samples, ((rounds, *_),) = count_rounds(max_rounds=limit)
        assert rounds == limit
        assert samples > 1


@pytest.mark.parametrize("more", [{}, {"explore": 1.0, "budget": "16 samples"}], ids=["", "explored"])
def test_a_request_takes_no_more_samples_than_it_may(more: dict[str, Any]):
    assert count_rounds()[0] > 5
    for most in (1, 2, 5):
        assert count_rounds(max_samples=most, **more)[0] == most
