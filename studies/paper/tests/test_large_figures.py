"""Figures with a dot for each problem stay small: of a large pool they draw a sample, and say so."""

import re

import pytest

from adacompute.report.canvas import to_standalone_svg
from studies.paper.labels import compute_scatters, draw_scatter
from studies.paper.mechanism import compute_mechanism, draw_mechanism
from studies.paper.paper_pool import PaperPool, score_paper_pool
from synthetic import synthetic


@pytest.fixture(scope="module")
def many() -> PaperPool:
    return score_paper_pool(synthetic(2500, 16), "many")


@pytest.mark.slow
def test_a_large_pool_is_drawn_as_a_sample_and_its_caption_says_so(many: PaperPool):
    for picture in (draw_scatter(compute_scatters(many)), draw_mechanism(compute_mechanism(many))):
        assert "Of the 2,500 problems a random 1,500 are drawn" in picture.caption
        assert len(to_standalone_svg(picture.svg)) < 400_000, picture.key


def test_a_small_pool_is_drawn_whole():
    case = score_paper_pool(synthetic(12, 16), "few")
    (scatter, *_) = compute_scatters(case)
    picture = draw_scatter([scatter])
    assert "random" not in picture.caption
    dots = re.findall(r'style="fill: #0072b2; fill-opacity: 0.4">((?:<use [^>]*/>)+)', picture.svg)
    single = re.findall(r'<use [^>]*style="fill: #0072b2; fill-opacity: 0.4"/>', picture.svg)
    assert sum(some.count("<use") for some in dots) + len(single) == 12
