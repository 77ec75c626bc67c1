"""What is to be done: clients may ask for less than the operator allows, never for more."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers

from adacompute.config import ServeConfig, parse_serve_budgets
from adacompute.errors import RequestInvalid
from adacompute.serve.messages.request_parser import ChatRequest, Route, choose_route, read_options

POLICIES = ("stopping", "maths", "single")


def route(headers: Any = None, *, budget: float | None = None, **fields: Any) -> Route:
    operator = ServeConfig(**fields)
    received = {"host": "x", "x-other": "1", **headers} if isinstance(headers, dict) else headers or {}
    return choose_route(
        ChatRequest(body={}, budget=budget, options=read_options(None, received)),
        received,
        settings=operator,
        budget=parse_serve_budgets(operator)[0],
        key="alice",
        policies=POLICIES,
        default="stopping",
    )


def refused(headers: Any, **fields: Any) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as caught:
        route(headers, **fields)
    assert caught.value.status == 400
    assert "\n" not in str(caught.value)
    return caught.value


def test_without_headers_the_operators_settings_hold():
    assert route(budget=None, mode="shadow", deadline=60.0) == Route(
        key="alice", policy="stopping", budget=2.0, mode="shadow", deadline=60.0
    )


def test_the_header_wins_over_the_models_name_and_that_over_the_settings():
    assert route({"x-adacompute-budget": "3"}, budget=4.0).budget == 3.0
    assert route(budget=4.0).budget == 4.0


def test_a_budget_beyond_the_operators_is_clamped_with_a_note():
    for found in (route({"x-adacompute-budget": "50.5"}), route(budget=50.5)):
        assert found.budget == 16.0
        assert found.notes == ("budget 50.5 is above the limit: it is 16",)
    assert route({"x-adacompute-budget": "16"}).notes == ()


def test_a_clients_budget_is_served_in_steps_of_a_quarter_with_a_note_and_the_operators_as_it_is():
    for found in (route({"x-adacompute-budget": "2.6"}), route(budget=2.6)):
        assert (found.budget, found.notes) == (2.5, ("budget 2.6 is served as 2.5",))
    assert route({"x-adacompute-budget": "2.75"}).notes == ()
    for own in (ServeConfig(budget=2.6), ServeConfig(max_budget=2.6)):
        found = choose_route(
            ChatRequest(body={}, budget=2.6),
            {},
            settings=own,
            budget=parse_serve_budgets(own)[0],
            key="k",
            policies=POLICIES,
            default="stopping",
        )
        assert (found.budget, found.notes) == (2.6, ())
    lanes = {route({"x-adacompute-budget": f"{1 + n / 100:.2f}"}).budget for n in range(1501)}
    assert len(lanes) == 61
    assert min(lanes) == 1.0


@pytest.mark.parametrize(
    "text",
    ["0.99", "0", "-1", "", "nan", "inf", "1e3", "1_0", "two", "٣", "3 4", "9" * 400, "1.", ".5", "+2"],
)
def test_a_budget_that_is_none_is_refused(text: str):
    error = refused({"x-adacompute-budget": text})
    assert error.param == "x-adacompute-budget"
    assert "1 to 16" in str(error)


def test_a_policy_is_one_of_those_served():
    assert route({"x-adacompute-policy": "maths"}).policy == "maths"
    error = refused({"x-adacompute-policy": "Maths"})
    assert "'Maths'; give one of maths, single, stopping" in str(error)


def test_a_client_can_ask_for_pass_and_for_nothing_else():
    for mode in ("adaptive", "shadow", "pass"):
        assert route({"x-adacompute-mode": "pass"}, mode=mode).mode == "pass"
        for wanted in ("adaptive", "shadow", "PASS", ""):
            refused({"x-adacompute-mode": wanted}, mode=mode)


def test_a_deadline_is_clamped_to_the_operators():
    assert route({"x-adacompute-deadline": "1.5"}).deadline == 1.5
    found = route({"x-adacompute-deadline": "9999"})
    assert (found.deadline, len(found.notes)) == (600.0, 1)
    for text in ("0", "0.0", "-1", "soon", "inf", "nan"):
        refused({"x-adacompute-deadline": text})


def test_a_header_of_ours_that_nobody_knows_is_refused_and_the_known_are_named():
    for name in ("x-adacompute-budgets", "x-adacompute-", "x-adacompute-samples"):
        error = refused({name: "1"})
        assert name in str(error)
        assert "x-adacompute-budget, x-adacompute-policy, x-adacompute-mode, x-adacompute-deadline" in str(
            error
        )


def test_a_header_that_comes_twice_is_refused():
    twice = Headers(raw=[(b"x-adacompute-budget", b"2"), (b"x-adacompute-budget", b"16")])
    assert "twice" in str(refused(twice))
    assert route(Headers({"X-Adacompute-Budget": " 3 "})).budget == 3.0


@given(
    st.dictionaries(
        st.sampled_from(["budget", "policy", "mode", "deadline", "x"]).map("x-adacompute-{}".format),
        st.text(max_size=20) | st.floats().map(str) | st.sampled_from([*POLICIES, "pass"]),
    ),
    st.none() | st.floats(1, 1000),
)
@settings(max_examples=200, deadline=None)
def test_c10_whatever_is_asked_stays_within_the_operators_limits(
    headers: dict[str, str], budget: float | None
):
    try:
        found = route(headers, budget=budget)
    except RequestInvalid:
        return
    assert 1.0 <= found.budget <= 16.0
    assert 0.0 < found.deadline <= 600.0
    assert found.policy in POLICIES


@pytest.mark.parametrize(
    ("own", "text", "served"),
    [
        ({}, "3 samples", (3.0, "samples", ())),
        ({"budget": "500 tokens"}, "800 tokens", (800.0, "tokens", ())),
        ({"budget": "500 tokens"}, "3", (3.0, "samples", ())),
        ({"budget": "500 tokens"}, "500 tokens", (500.0, "tokens", ())),
        ({"max_budget": "2000 tokens"}, "1500 tokens", (1500.0, "tokens", ())),
        ({"max_budget": "2000 tokens"}, "99", (16.0, "samples", ("budget 99 is above the limit: it is 16",))),
        ({"budget": "2 USD per 1000"}, "3 USD per 1000", (0.003, "money", ())),
        ({"budget": "2 USD per 1000"}, "$3 per 1000", (0.003, "money", ())),
    ],
)
def test_a_client_may_name_the_unit_of_its_budget(own: dict[str, Any], text: str, served: Any):
    found = route_of({"x-adacompute-budget": text}, ServeConfig(**own))
    assert (found.budget, found.unit, found.notes) == served


def test_a_budget_in_the_gateways_unit_is_clamped_to_8_times_its_own_and_rounded_with_a_note():
    own = ServeConfig(budget="2 USD per 1000")
    found = route_of({"x-adacompute-budget": "1 USD"}, own)
    assert (found.budget, found.unit) == (0.016, "money")
    assert found.notes == (
        "budget 1,000 USD per 1,000 requests is above the limit: it is 16 USD per 1,000 requests",
    )
    found = route_of({"x-adacompute-budget": "3.1415 USD per 1000"}, own)
    assert found.budget == 0.0031
    assert found.notes == ("budget 3.1415 USD per 1,000 requests is served as 3.1 USD per 1,000 requests",)


@pytest.mark.parametrize("text", ["2 EUR per 1000", "500 tokens", "0.5 samples", "0 USD", "5 apples"])
def test_a_budget_in_a_unit_that_the_operator_takes_none_in_is_refused_with_those_that_are(text: str):
    with pytest.raises(RequestInvalid) as caught:
        route_of({"x-adacompute-budget": text}, ServeConfig(budget="2 USD per 1000"))
    assert "the samples on average, from 1 to 16, or up to '16 USD per 1,000 requests'" in str(caught.value)


def route_of(headers: dict[str, str], own: ServeConfig) -> Route:
    return choose_route(
        ChatRequest(body={}, options=read_options(None, headers)),
        headers,
        settings=own,
        budget=parse_serve_budgets(own)[0],
        key="k",
        policies=POLICIES,
        default="maths",
    )
