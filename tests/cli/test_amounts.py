"""Costs in words: every digit that counts, and never an exponent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.cli.terminal import choose_scale, format_fixed


@given(st.floats(1e-12, 1e12), st.integers(2, 6))
def test_a_number_has_no_exponent_and_keeps_its_digits(value: float, digits: int):
    shown = format_fixed(value, digits=digits)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(
        value, rel=max(0.5 * 10 ** (1 - digits), 5e-4) * 1.01
    )


@pytest.mark.parametrize(
    ("cost", "unit", "words"),
    [
        (1, "samples", "1 sample"),
        (1.99773, "samples", "1.998 samples"),
        (0.0005, "samples", "0.0005 samples"),
        (612, "tokens", "612 tokens"),
        (4014.4, "tokens", "4,014 tokens"),
        (0.5, "dollars", "0.5 dollars"),
        (0.00009, "dollars", "0.09 dollars per 1,000 problems"),
        (0.001, "euros", "1 euro per 1,000 problems"),
        (0, "dollars", "0 dollars"),
    ],
)
def test_tiny_money_is_told_by_the_thousand_problems(cost: float, unit: str, words: str):
    assert choose_scale(unit, cost).format_cost(cost) == words


def test_one_scale_serves_all_costs_of_a_budget():
    scale = choose_scale("dollars", 0.005)
    assert [scale.format_cost(0.005), scale.format_number(0.00001)] == [
        "5 dollars per 1,000 problems",
        "0.01",
    ]
