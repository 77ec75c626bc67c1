"""What the board says: true sums, constant memory, no text without leave, no savings without a protocol."""

import json
import random
import sys
from dataclasses import replace

import pytest
from traffic import PROTOCOL, Clock, Policy, chart, hour, request, told

from adacompute.config import ServeConfig
from adacompute.records import Call
from adacompute.serve.spending.ledger import Rates
from adacompute.serve.watching.observability import Observability, SpendStatus
from adacompute.serve.watching.traffic_history import COLUMNS, SPANS, DialTable


def seen_of(clock: Clock | None = None, **settings: object) -> Observability:
    return Observability(ServeConfig(**settings), now=clock or Clock())


def ended(seen: Observability, **fields: object) -> None:
    seen.on_request_start()
    seen.on_request_end(told(1.0, **fields))


def test_the_boards_sums_are_those_of_the_requests():
    clock = Clock()
    seen = seen_of(clock)
    rng = random.Random(1)
    ones = [request(clock.at, rng) for _ in range(500)]
    for one in ones:
        clock.at += 1.5
        seen.on_request_start()
        seen.on_request_end(one)
    board = seen.dashboard_data()
    total = board["total"]
    paced = [one for one in ones if one.samples]
    assert total["requests"] == board["requests"] == 500
    assert (total["counted"], total["samples"]) == (len(paced), sum(one.samples for one in paced))
    assert total["errors"] == sum(one.status == 502 for one in ones)
    assert total["agreement"] == pytest.approx(sum(one.agreement or 0 for one in ones), abs=0.01)
    assert board["columns"] == list(COLUMNS)
    assert sum(row[COLUMNS.index("requests")] for row in board["rows"]) == 500
    assert dict(board["samples"]) == {
        n: sum(one.samples == n for one in paced) for n in {one.samples for one in paced}
    }
    assert board["ever"]["average"] == pytest.approx(total["samples"] / total["counted"])


def test_an_hour_forgets_what_is_older_and_a_day_does_not():
    clock = Clock()
    seen = seen_of(clock)
    ended(seen)
    clock.at += 3 * 3600
    ended(seen)
    assert seen.dashboard_data("hour")["total"]["requests"] == 1
    assert seen.dashboard_data("day")["total"]["requests"] == 2
    clock.at += 30 * 3600
    assert seen.dashboard_data("day")["total"]["requests"] == 0
    assert seen.dashboard_data("day")["requests"] == 2
    assert seen.dashboard_data("no such span")["span"] == "hour"


def test_a_clock_that_is_set_back_loses_nothing():
    clock = Clock()
    seen = seen_of(clock)
    ended(seen)
    clock.at -= 500
    ended(seen)
    assert seen.dashboard_data()["total"]["requests"] == 2


def test_the_board_stays_small_however_long_it_runs():
    clock = Clock()
    seen = seen_of(clock, show_texts=True)
    rng = random.Random(2)
    sizes = []
    for i in range(4500):
        clock.at += 60
        one = request(clock.at, rng)
        seen.on_request_start()
        seen.on_request_end(replace(one, prompt="x" * 2000, votes={f"{i} {k}" * 99: 1 for k in range(12)}))
        seen.on_price(f"p{i % 100}", 2 + i % 90, 0.1, 2.0)
        seen.on_refusal(400, f"code_{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}")
        if i % 1500 == 1499:
            sizes.append(len(json.dumps(seen.dashboard_data("day"))))
    assert sizes[-1] < 1.1 * sizes[0]  # of 25, 50 and 75 hours
    board = seen.dashboard_data("hour")
    assert len(board["rows"]) <= SPANS["hour"][1]
    assert len(board["recent"]) == 50
    assert len(board["prices"]) <= 6
    assert len(board["dials"]) <= 64
    assert len(board["refused"]) <= 65
    assert sys.getsizeof(json.dumps(board)) < 300_000


def test_answers_are_numbered_unless_the_operator_allows_texts():
    fields = {"answer": "seven", "votes": {"eight": 3, "seven": 3, "nine": 1}, "samples": 8, "prompt": "3+4?"}
    secret, open_ = seen_of(), seen_of(show_texts=True)
    ended(secret, **fields)
    ended(open_, **fields)
    (row,) = secret.dashboard_data()["recent"]
    assert row["votes"] == [["answer 1", 3], ["answer 2", 3], ["answer 3", 1]]
    assert row["abstained"] == 1
    assert not {"prompt", "answer"} & set(row)
    assert not any(word in json.dumps(secret.dashboard_data()) for word in ("seven", "eight", "3+4?"))
    (row,) = open_.dashboard_data()["recent"]
    assert row["votes"] == [["seven", 3], ["eight", 3], ["nine", 1]]
    assert (row["prompt"], row["answer"]) == ("3+4?", "seven")


def test_savings_are_those_of_the_chart_at_the_running_average_and_name_their_protocol():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(uniform=4.0)), budget=2.0)
    assert seen.dashboard_data()["savings"]["share"] is None
    for _ in range(10):
        ended(seen, samples=2)
    savings = seen.dashboard_data()["savings"]
    assert savings["share"] == pytest.approx(0.5)
    assert (savings["uniform"], savings["protocol"], savings["covered"]) == (4.0, PROTOCOL, 1.0)
    for _ in range(10):
        ended(seen, samples=4)  # 3 on average: as accurate as 6 each
    assert seen.dashboard_data()["savings"]["uniform"] == pytest.approx(6.0)


@pytest.mark.parametrize(("choices", "prompts"), [(None, 1), (1, 4), (2, 2), (128, 1)])
def test_uniform_sampling_pays_a_prompt_for_each_call_and_not_for_each_sample(choices, prompts):
    rates = Rates(input=1.0, output=2.0)
    calls = [
        Call(at=0.0, seconds=1.0, asked=1, got=1, prompt_tokens=1000, completion_tokens=50) for _ in range(2)
    ]
    dials = DialTable()
    cost = rates.compute_prompts(calls, choices=choices)
    outcome = told(1.0, spent=rates.compute_spent(calls), prompt_cost=cost)
    dials.add_request(outcome)
    dials.get("stopping", 2.0).set_worth(4.0, PROTOCOL)
    savings = dials.compute_savings()
    assert savings["money"]["spent"] == pytest.approx(2200e-6)
    assert savings["money"]["uniform"] == pytest.approx((1000 * prompts + 4 * 50 * 2) * 1e-6)
    assert savings["tokens"]["uniform"] == pytest.approx(1000 * prompts + 4 * 50)
    assert (savings["money"]["saved"] < 0) == (prompts == 1), "long prompts in two calls: that is a loss"


@pytest.mark.parametrize("uniform", [None, 4.0])
def test_there_are_no_savings_without_labels_or_protocol(uniform):
    dials = DialTable()
    dials.add_request(told(1.0))
    dials.get("stopping", 2.0).set_worth(uniform, "" if uniform else PROTOCOL)
    assert dials.compute_savings()["share"] is None
    assert dials.compute_savings()["why"] == "not known: the policy has no chart with labels"


def test_there_are_no_savings_by_a_chart_without_labels():
    seen = seen_of()
    ended(seen)
    seen.on_policy(Policy("stopping", "v1", chart(uniform=None)), budget=2.0)
    assert seen.dashboard_data()["savings"]["share"] is None


def test_savings_are_read_at_the_mean_of_what_was_voted_on_and_nothing_else_is_a_saving():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(uniform=4.0)), budget=2.0)
    for _ in range(6):
        ended(seen, samples=1, agreement=None, votes={})  # e.g. at temperature 0
    assert seen.dashboard_data()["savings"]["why"] == "not known: no request was voted on yet"
    for _ in range(2):
        ended(seen, samples=4)
    ended(seen, samples=8, explored=True)
    ended(seen, samples=8, explored=True)
    savings = seen.dashboard_data()["savings"]
    assert (savings["average"], savings["uniform"], savings["covered"]) == (4.0, 8.0, 0.2)


def test_an_average_outside_of_the_chart_is_said_to_be():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(uniform=4.0)), budget=2.0)
    ended(seen, samples=16)
    savings = seen.dashboard_data()["savings"]
    assert savings["share"] is None
    assert "votes take 16.00 samples on average, and the chart goes from 1 to 8" in savings["why"]


def test_savings_of_a_new_version_are_not_told_by_what_the_old_one_drew():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(uniform=4.0)), budget=2.0)
    ended(seen)
    seen.on_policy(Policy("stopping", "v2", chart(uniform=16.0)), budget=2.0)
    assert seen.dashboard_data()["savings"]["share"] is None


def test_the_operators_own_dial_has_its_place_however_many_clients_name():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart()), budget=2.0)
    assert seen.dashboard_data()["dials"] == []
    for number in range(100):
        seen.on_price("stopping", 3 + number / 4, 0.1, 2.0)
    seen.on_price("stopping", 2.0, 0.3, 2.0)
    board = seen.dashboard_data()
    assert {"policy": "stopping", "budget": 2.0}.items() <= board["dials"][0].items()
    assert [one["points"][0][1] for one in board["prices"] if one["budget"] == 2.0] == [0.3]
    assert b'adacompute_price{budget="2",policy="stopping"} 0.3' in seen.render_metrics()


def test_answers_that_took_too_long_are_counted_from_the_start_on():
    late = [7]
    seen = seen_of()
    seen.watch_late_answers(lambda: late[0])
    assert b"adacompute_late_answers_total 0.0" in seen.render_metrics()
    late[0] = 9
    for _ in range(2):
        assert b"adacompute_late_answers_total 2.0" in seen.render_metrics()


def test_savings_of_some_requests_say_of_how_many():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(uniform=4.0)), budget=2.0)
    for _ in range(3):
        ended(seen)
    ended(seen, policy="another")
    assert seen.dashboard_data()["savings"]["covered"] == 0.75


def test_another_version_is_not_measured_by_the_votes_of_the_old_one():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(agreement=0.9)), budget=2.0)
    for _ in range(300):
        ended(seen, agreement=0.4)
    assert seen.dashboard_data()["drift"][0]["alarm"]
    seen.on_policy(Policy("stopping", "v1", chart(agreement=0.9)), budget=2.0)  # a reload without a change
    assert seen.dashboard_data()["drift"][0]["alarm"]
    seen.on_policy(Policy("stopping", "v2", chart(agreement=0.4)), budget=2.0)
    (drift,) = seen.dashboard_data()["drift"]
    assert (drift["alarm"], drift["expected"], drift["requests"]) == (False, 0.4, 0)


def test_votes_at_another_budget_than_the_expected_are_no_drift():
    seen = seen_of()
    seen.on_policy(Policy("stopping", "v1", chart(agreement=0.9)), budget=2.0)
    for _ in range(300):
        ended(seen, agreement=0.4, budget=8.0)
    assert not seen.dashboard_data()["drift"][0]["alarm"]
    assert seen.dashboard_data()["drift"][0]["requests"] == 0


def test_an_alarm_is_logged_once_when_it_goes_on_and_once_when_it_goes_off(caplog):
    seen = seen_of()
    seen._drifts["stopping"].expect(0.9, 0.1)
    for agreement in [0.4] * 600 + [0.9] * 600:
        ended(seen, agreement=agreement)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "policy 'stopping' is 0.40" in said[0]
    assert "fit again" in said[0]
    assert "as expected again" in said[1]


def test_spending_is_asked_for_when_it_is_shown():
    seen = seen_of(unit="money", window="day")
    assert seen.dashboard_data()["spend"] == []
    spent = 1.0
    seen.read_spending = lambda: (
        [SpendStatus(name="", spent=spent, cap=10.0)]
        + [SpendStatus(name=f"k{i}", spent=0.1) for i in range(99)]
    )
    assert seen.dashboard_data()["spend"][0] == {
        "name": "",
        "spent": 1.0,
        "maybe": 0.0,
        "reserved": 0.0,
        "cap": 10.0,
        "tokens": 0.0,
        "money": 0.0,
    }
    spent = 2.0
    assert seen.dashboard_data()["spend"][0]["spent"] == 2.0
    assert len(seen.dashboard_data()["spend"]) == 21


def test_an_hour_of_traffic_makes_a_board_of_moderate_size():
    clock = Clock()
    seen = seen_of(clock)
    hour(seen, clock, requests=1500)
    assert len(json.dumps(seen.dashboard_data(), allow_nan=False)) < 100_000
