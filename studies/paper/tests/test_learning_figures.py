"""Figures and sections on learning: for good pools and poor ones, the same every time."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from adacompute.report.canvas import COLOURS
from adacompute.report.document import Section
from studies.paper import ablation, archetypes, importance, label_efficiency
from studies.paper.archetypes import compute_archetypes as grouped
from studies.paper.archetypes import draw_archetypes
from studies.paper.paper_pool import PaperPool, score_paper_pool
from studies.paper.wording import to_markdown
from synthetic import poor, synthetic

LIGHT = {light for light, _ in COLOURS.values()}
LEARNING = (ablation, label_efficiency, importance)


@pytest.fixture(scope="module")
def case() -> PaperPool:
    return score_paper_pool(synthetic(20, 16), "made <of> dice & co")


@pytest.fixture(scope="module")
def made(case: PaperPool) -> dict[str, Section]:
    found = [archetypes.build_section(case), *(one.build_section(case, quick=True) for one in LEARNING)]
    return {one.key: one for one in found}


@pytest.mark.nightly
def test_figures_are_sound_svg_in_the_palettes_colours_with_marks(made):
    for section in made.values():
        assert section.pictures
        for picture in section.pictures:
            ET.fromstring(picture.svg)
            assert set(re.findall(r"#[0-9a-f]{6}\b", picture.svg)) <= LIGHT
            assert 5 <= picture.svg.count('class="mark"') <= 400
            assert picture.protocol
            assert picture.alt
            assert picture.data
            json.dumps(picture.data, allow_nan=False)


def test_both_readings_are_named_as_everywhere(made):
    for key in ("ablation", "efficiency", "importance"):
        section = made[key]
        protocols = " ".join([*(one.protocol for one in section.pictures), *section.words]).lower()
        assert "scored as the paper does" in protocols
        assert "held-out" in protocols


def test_tables_can_be_written_and_have_their_own_keys(made):
    tables = [table for section in made.values() for table in section.tables]
    assert len({table.key for table in tables}) == len(tables)
    for table in tables:
        assert len(to_markdown(table)) == len(table.rows) + 2


def test_words_tell_the_numbers_of_the_tables(made):
    trees = next(row for row in made["ablation"].tables[0].records() if row["learner"] == "boosted trees")
    assert f"{trees['imitation']['mean']:.1%}" in made["ablation"].words[1]
    easy = made["archetypes"].tables[0].records()[0]
    assert f"{easy['accuracy, 1 sample']:.0%} with 1 sample" in made["archetypes"].words[0]


def test_twice_the_same_figure_is_twice_the_same_file(case, made):
    assert draw_archetypes(grouped([case])).svg == made["archetypes"].pictures[1].svg


def test_several_recordings_are_told_apart(case):
    other = score_paper_pool(synthetic(12, 16, seed=5), "other")
    svg = draw_archetypes(grouped([case, other])).svg
    assert "made &lt;of&gt; dice &amp; co" in svg
    assert "other" in svg


def test_a_poor_pool_gets_its_figures_and_a_line_that_says_what_is_missing():
    case = poor(score_paper_pool)["two samples"]
    made = [archetypes.build_section(case), *(one.build_section(case, quick=True) for one in LEARNING)]
    for section in made:
        assert section.words
        assert any("collect" in line for line in section.missing)
        for picture in section.pictures:
            ET.fromstring(picture.svg)
        for table in section.tables:
            json.dumps(table.records(), allow_nan=False)


def test_a_pool_with_nothing_to_learn_says_so():
    case = poor(score_paper_pool)["all right"]
    assert any("nothing to learn" in line for line in importance.build_section(case, quick=True).missing)
    assert "nothing to learn" in ablation.build_section(case, quick=True).words[0]
