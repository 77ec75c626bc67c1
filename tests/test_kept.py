"""Kept numbers may differ in their last bits and in nothing more."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adacompute.policies.stopping import critical_price
from adacompute.policies.stopping.prior import BUNDLED_PRIORS, load_bundled_prior
from kept import Examples, assert_same_array, assert_same_drawing, text_difference

ROOT = Path(__file__).resolve().parent.parent
DRAWINGS = sorted((ROOT / "docs" / "figures").glob("*.svg"))
TEXT = "right 85.4% at 13.25 samples\n  of 441 problems, +0.4 to +1.1 points\n"


def scaled(text: str, factor: float) -> str:
    """The text with every coordinate multiplied, written with as many decimals as before."""
    return re.sub(r"(?<= )-?\d+\.(\d+)(?= )", lambda m: f"{float(m[0]) * factor:.{len(m[1])}f}", text)


@pytest.mark.parametrize("name", BUNDLED_PRIORS)
@pytest.mark.parametrize("factor", [1 - 1e-12, 1 + 1e-12])
def test_a_prior_may_differ_in_its_last_bits_and_not_by_a_thousandth(name: str, factor: float):
    kept = load_bundled_prior(name).table
    assert_same_array(kept * factor, kept)
    with pytest.raises(AssertionError, match="they differ"):
        assert_same_array(kept * (1 + 1e-3), kept)


def test_last_bits_decide_no_price_of_the_table_that_is_kept(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    before = critical_price._price_levels()
    monkeypatch.setattr(
        critical_price, "_TABLE_PRICES", critical_price._TABLE_PRICES * (1 + 1e-12 * rng.standard_normal(28))
    )
    assert_same_array(critical_price._price_levels(), before)


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_may_differ_in_its_last_bits_and_not_by_a_thousandth(path: Path):
    kept = path.read_text("utf-8")
    renamed = re.sub(r"(?<=-)([mp])[0-9a-f]{10}\b", lambda m: f"{m[1]}{hash(m[0]) % 16**10:010x}", kept)
    assert renamed != kept
    for drawn in (scaled(kept, 1 - 1e-12), scaled(kept, 1 + 1e-5), renamed):
        assert_same_drawing(drawn, kept)
    with pytest.raises(AssertionError, match="moved"):
        assert_same_drawing(scaled(kept, 1 + 1e-3), kept)
    with pytest.raises(AssertionError, match="other elements"):
        assert_same_drawing(kept.replace("<g", "<h", 1), kept)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda text: text.replace("85.4%", "85.5%"), True),
        (lambda text: text.replace("13.25 s", "13.3 s"), False),
        (lambda text: text.replace("85.4%", "85.6%"), False),
        (lambda text: text.replace("85.4", "85.5").replace("13.25", "13.26"), False),  # more than one
        (lambda text: text.replace("441", "442"), False),
        (lambda text: text.replace("points", "percent"), False),
        (lambda text: text.replace("+0.4", "-0.4"), False),
        (lambda text: text.replace("right ", "right    "), True),
        (lambda text: text.replace("right ", ""), False),
    ],
)
def test_a_text_may_differ_by_one_rounding_and_in_no_word(change: Callable[[str], str], same: bool):
    assert (text_difference(change(TEXT), TEXT) is None) == same


def test_a_number_printed_whole_may_differ_in_its_last_digits():
    for found, same in (("0.6410779256169401", True), ("0.6420779256169394", False), ("0.64107", False)):
        assert Examples().check_output("0.6410779256169394\n", found + "\n", 0) == same
