"""The solve side's figures and sections: drawn for good pools and poor ones, the same every time."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from adacompute.report.canvas import COLOURS
from adacompute.report.document import Picture, Section, format_cell
from studies.paper import labels, laws, pipeline, price_search
from studies.paper.budget_choices import fit_classifiers
from studies.paper.labels import compute_heatmaps, draw_heatmap
from studies.paper.paper_pool import PaperPool, score_paper_pool
from studies.paper.price_search import compute_staircases, draw_staircase
from synthetic import poor, synthetic

LIGHT = {light for light, _ in COLOURS.values()}
MARKS = 400


def sections(case: PaperPool) -> list[Section]:
    budgets = [budget for budget in (1.5, 3.0) if budget <= case.budgets[-1]]
    fits = fit_classifiers(case, budgets, seeds=1, model="logistic")
    return [
        price_search.build_section(case),
        labels.build_section(case, fits),
        laws.build_section(case, fits),
    ]


@pytest.fixture(scope="module")
def made() -> list[Section]:
    return [*sections(score_paper_pool(synthetic(), "made")), pipeline.build_section()]


def pictures(made: list[Section]) -> dict[str, Picture]:
    return {picture.key: picture for section in made for picture in section.pictures}


def test_every_figure_of_the_solve_side_is_there(made):
    assert set(pictures(made)) == {"staircase", "search", "mechanism", "scatter", "heatmap", "pipeline"}


def test_figures_are_well_formed_use_the_palette_alone_and_tell_their_values(made):
    for picture in pictures(made).values():
        ET.fromstring(picture.svg)
        found = {tint.lower() for tint in re.findall(r"(?:fill|stroke): (#[0-9a-fA-F]{6})", picture.svg)}
        assert found <= LIGHT | {"#000000"}, picture.key
        assert picture.alt
        assert picture.protocol
        assert picture.data
        json.dumps(picture.data, allow_nan=False)
        marks = picture.svg.count('class="mark"')
        assert marks <= MARKS
        assert marks > 0 or picture.key == "pipeline"


def test_the_data_of_the_heatmap_is_its_record():
    case = score_paper_pool(synthetic(), "made")
    found = compute_heatmaps(case, fit_classifiers(case, [1.5, 3.0], seeds=1, model="logistic"))
    drawn = draw_heatmap(found).data
    assert list(drawn) == ["1.5", "3"]
    for one in found:
        own = drawn[f"{one.budget:g}"]
        assert own["groups"] == list(one.groups)
        assert own["problems"] == list(one.sizes)
        for name in ("oracle", "paper", "held_out"):
            shares = np.array(own[name], dtype=np.float64)  # None: no problem of the group was held out
            np.testing.assert_allclose(shares, getattr(one, name), rtol=1e-5)


def test_the_scatter_has_a_row_a_problem_with_its_budget_at_each_average(made):
    case, data = score_paper_pool(synthetic(), "made"), pictures(made)["scatter"].data
    assert [row["id"] for row in data["problems"]] == list(case.ballots.ids)
    for average, own in data["averages"].items():
        budgets = [row["budget"][average] for row in data["problems"]]
        tenths = own["tenths"]["budget"]
        assert np.mean(budgets) == pytest.approx(np.mean(tenths), rel=0.05)
        assert all(sum(shares.values()) == pytest.approx(1, abs=1e-4) for shares in own["fifths"].values())


def test_the_same_numbers_give_the_same_file():
    case = score_paper_pool(synthetic(12, 16), "made")
    assert draw_staircase(compute_staircases(case)).svg == draw_staircase(compute_staircases(case)).svg


def test_every_section_has_words_and_every_cell_can_be_written(made):
    for section in made:
        assert section.words
        for table in section.tables:
            assert table.protocol
            for row in table.rows:
                for cell, column in zip(row, table.columns, strict=True):
                    assert format_cell(cell, column)


def test_in_sample_and_held_out_are_both_shown_where_a_classifier_is(made):
    heat = pictures(made)["heatmap"]
    assert "scored as the paper does" in heat.svg
    assert "held-out" in heat.svg
    tried = {row[2] for row in made[2].tables[0].rows}
    assert tried >= {"scored as the paper does", "held-out"}


def test_a_pool_of_two_samples_each_says_which_budgets_are_missing():
    found = price_search.build_section(poor(score_paper_pool)["two samples"])
    assert found.words
    assert any("B = 3" in line and "collect more samples" in line for line in found.missing)


def test_a_pool_without_a_right_answer_is_drawn_and_says_that_nothing_is_binding():
    case = poor(score_paper_pool)["all wrong"]
    found = [
        price_search.build_section(case),
        labels.build_section(case, fit_classifiers(case, [1.5], seeds=1)),
    ]
    assert all(section.words for section in found)
    assert "no B is binding" in " ".join(found[0].missing)
    assert set(pictures(found)) == {"staircase", "mechanism", "scatter", "heatmap"}
