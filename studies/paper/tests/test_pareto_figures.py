"""The frontier figures and their sections: for good pools and poor ones, the same every time."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from adacompute.errors import TooFewSamples
from adacompute.report.canvas import COLOURS
from adacompute.report.document import Section
from studies.paper import granularity
from studies.paper import pareto as frontiers
from studies.paper.paper_pool import PaperPool, score_paper_pool
from studies.paper.pareto import compute_pareto, draw_pareto
from synthetic import synthetic
from tiers import leave_to_nightly

LIGHT = {light for light, _ in COLOURS.values()}


@pytest.fixture(scope="module")
def case() -> PaperPool:
    return score_paper_pool(synthetic(), "made <of> dice & co")


@pytest.fixture(scope="module")
def made(case: PaperPool) -> list[Section]:
    return [one.build_section(case, quick=True, model="logistic") for one in (frontiers, granularity)]


def test_figures_are_sound_svg_in_the_palettes_colours_with_marks(made):
    for section in made:
        (picture,) = section.pictures
        ET.fromstring(picture.svg)
        assert set(re.findall(r"#[0-9a-f]{6}\b", picture.svg)) <= LIGHT
        assert 40 <= picture.svg.count('class="mark"') <= 400
        assert picture.protocol
        assert picture.alt
        assert picture.data
        json.dumps(picture.data, allow_nan=False)


def test_both_readings_are_named_as_everywhere(made):
    for section in made:
        for name in ("scored as the paper does", "held-out"):
            assert name in section.pictures[0].svg
            assert name.lower() in " ".join(section.words).lower()


def test_twice_the_same_figure_is_twice_the_same_file(case, made):
    again = draw_pareto(compute_pareto(case, quick=True, model="logistic"))
    assert again.svg == made[0].pictures[0].svg


def test_the_data_of_the_frontiers_is_their_record(case, made):
    found, drawn = compute_pareto(case, quick=True, model="logistic"), made[0].pictures[0].data
    for reading, curves in (("scored as the paper does", found.paper), ("held-out", found.held_out)):
        assert set(drawn[reading]) == set(curves)
        for method, curve in curves.items():
            own = drawn[reading][method]
            for name in ("budget", "cost", "accuracy"):
                assert own[name] == pytest.approx(getattr(curve, name).tolist(), rel=1e-5)
            gains = [(one["mean"], one["low"], one["high"]) for one in own.get("gain", [])]
            assert len(gains) == len(curve.gain)
            for one, told in zip(gains, curve.gain, strict=True):
                assert one == pytest.approx((told.mean, told.low, told.high), rel=1e-5, abs=1e-9)


def test_marks_tell_the_numbers_of_the_data(made):
    curve = made[0].pictures[0].data["held-out"]["classifier"]
    text = f"{100 * curve['accuracy'][2]:.1f}% at {curve['cost'][2]:.2f} samples"
    assert text in made[0].pictures[0].svg


@pytest.mark.parametrize("name", leave_to_nightly(["three samples", "all right", "two samples"]))
def test_a_poor_pool_gets_its_figures_or_a_line_that_says_why(poor_cases, name: str):
    case = poor_cases[name]
    one = frontiers.build_section(case, quick=True, model="logistic")
    ET.fromstring(one.pictures[0].svg)
    assert one.words
    assert any("cross-fitted" in line for line in one.missing)
    if name == "two samples":
        with pytest.raises(TooFewSamples, match="collect 3 or more"):
            granularity.build_section(case, quick=True, model="logistic")
        return
    other = granularity.build_section(case, quick=True, model="logistic")
    ET.fromstring(other.pictures[0].svg)
    assert any("cross-fitted" in line for line in other.missing)
