"""The paper's 16 features: counted by hand on cases, finite on anything, documented as they are."""

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.policies import features
from adacompute.policies.features import (
    ENTROPY_COLUMN,
    FEATURE_KINDS,
    FEATURE_NAMES,
    LARGEST_NUMBER,
    PROMPT_LIMIT,
    compute_prompt_features,
    normalise_entropy,
)

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = json.loads((ROOT / "tests" / "cases" / "features.json").read_text("utf-8"))
PAGE = (ROOT / "studies" / "features.md").read_text("utf-8")
PAPER = [
    "prompt_length_chars",
    "prompt_length_words",
    "sentence_count",
    "question_marks",
    "numbers_count",
    "number_magnitude_avg",
    "number_magnitude_max",
    "has_percentage",
    "has_fraction",
    "has_time_word",
    "has_money_word",
    "has_rate_word",
    "has_multi_step_word",
    "avg_word_length",
    "unique_word_ratio",
    "entropy_estimate",
]
HOSTILE = (".x", "1,", "1e", "$1", "1.", "a'", "1 /", "\\", "1,111", "?", "9", " ", "\u0300", "東", "$")

DENSE = "abZ09 .,'\"!?$%/\\()_-\n\t\x1ceE+*]:;frac"  # in every few of them there is a pattern


def by_hand(case: dict) -> list[float]:
    """What was counted; magnitudes are given before the logarithm, shares as fractions."""
    found = []
    for name in FEATURE_NAMES[:ENTROPY_COLUMN]:
        value = float(Fraction(case["features"][name]))
        found.append(np.log1p(value) if "magnitude" in name else value)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"][:60])
def test_each_feature_is_what_was_counted_by_hand(case):
    found = compute_prompt_features([case["text"] * case.get("times", 1)])[0]
    expected = dict(zip(FEATURE_NAMES, by_hand(case), strict=False))
    assert dict(zip(FEATURE_NAMES, found[:ENTROPY_COLUMN], strict=False)) == pytest.approx(
        expected, abs=1e-12
    )
    assert np.isnan(found[ENTROPY_COLUMN])


def test_the_names_are_the_papers_in_its_order():
    assert list(FEATURE_NAMES) == PAPER
    assert len(FEATURE_KINDS) == len(FEATURE_NAMES)


@given(st.lists(st.text(), max_size=4))
def test_all_but_the_entropy_are_finite_and_what_their_kind_may_be(prompts):
    found = compute_prompt_features(prompts)
    assert found.shape == (len(prompts), len(FEATURE_NAMES))
    assert np.isfinite(found[:, :ENTROPY_COLUMN]).all()
    assert (found[:, :ENTROPY_COLUMN] >= 0).all()
    for name, kind, column in zip(FEATURE_NAMES, FEATURE_KINDS, found.T[:ENTROPY_COLUMN], strict=False):
        if kind == "flag":
            assert set(column) <= {0.0, 1.0}, name
        if kind == "share":
            assert (column <= 1).all(), name
        if kind == "count":
            assert (column == np.round(column)).all(), name
        if kind == "log":
            assert (column <= np.log1p(LARGEST_NUMBER)).all(), name


@given(st.from_regex(r"\A[0-9.,eE+$/ -]{0,60}\Z"))
def test_no_number_however_written_is_infinite(text):
    assert np.isfinite(compute_prompt_features([text])[0, :ENTROPY_COLUMN]).all()


@given(st.text(max_size=50), st.text(min_size=1, max_size=50))
def test_only_the_first_characters_count(start, end):
    full = (start + "ab 1. " * PROMPT_LIMIT)[:PROMPT_LIMIT]
    assert (
        compute_prompt_features([full + end])[0, :ENTROPY_COLUMN]
        == compute_prompt_features([full])[0, :ENTROPY_COLUMN]
    ).all()


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_a_prompts_features_dont_depend_on_the_others(prompts):
    together = compute_prompt_features(prompts)[:, :ENTROPY_COLUMN]
    alone = np.vstack([compute_prompt_features([prompt]) for prompt in prompts])[:, :ENTROPY_COLUMN]
    assert (together == alone).all()


@pytest.mark.parametrize("part", HOSTILE)
def test_texts_that_make_patterns_go_back_are_read_at_full_length(part):
    found = compute_prompt_features([part * PROMPT_LIMIT, part * PROMPT_LIMIT + "x"])
    assert found[:, 0].tolist() == [PROMPT_LIMIT, PROMPT_LIMIT]


@given(st.text(alphabet=st.characters(codec="ascii")) | st.text(alphabet=DENSE, max_size=60))
def test_plain_text_is_read_as_any_other(text):
    """A mark that belongs to no word takes the way that all scripts go."""
    plain, other = compute_prompt_features([text + "\n"])[0], compute_prompt_features([text + "\u2003"])[0]
    assert (plain[:ENTROPY_COLUMN] == other[:ENTROPY_COLUMN]).all()


@given(st.lists(st.floats(min_value=0, allow_nan=False), min_size=2, max_size=9))
def test_entropy_is_normalised_to_within_0_and_1_in_its_order(entropies):
    found = normalise_entropy(np.sort(entropies))
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= 0).all()


def test_an_entropy_that_cant_be_is_not_known():
    assert np.isnan(normalise_entropy([np.nan, -1.0, -np.inf])).all()


def test_the_page_names_every_feature_in_order():
    assert re.findall(r"^\| (\d+) \| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE) == [
        (str(place), name, kind)
        for place, (name, kind) in enumerate(zip(FEATURE_NAMES, FEATURE_KINDS, strict=True), start=1)
    ]


@pytest.mark.parametrize("name", ["MONEY", "MULTI_STEP", "PERCENT", "RATE", "TIME"])
def test_the_page_lists_the_words_that_are_looked_for(name):
    listed = re.search(rf"^\*\*{name}\*\*: (.+)$", PAGE, re.MULTILINE)
    assert listed is not None
    assert listed[1].split() == sorted(getattr(features, name))


def test_the_page_says_what_is_cut():
    assert f"{PROMPT_LIMIT:,} characters" in PAGE
