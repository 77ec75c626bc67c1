"""The held-out figures and their sections: sound, in the palette's colours, and for poor pools too."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from handmade import FIGURES, evaluated, handmade

from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.report.canvas import COLOURS
from adacompute.report.document import Section
from adacompute.report.exhibits import frontier, verdict, worth
from adacompute.report.exhibits.frontier import draw_all, draw_few, trace_frontier
from adacompute.report.exhibits.money import EXAMPLE_MONEY
from studies.paper.wording import to_markdown

pytestmark = pytest.mark.slow  # each draws every figure of a report
LIGHT = {light for light, _ in COLOURS.values()}


def sections(found: EvaluationRuns) -> dict[str, Section]:
    evaluation, curves = evaluated(found), trace_frontier(found)
    made = [
        verdict.build_section(found, evaluation, curves, money=EXAMPLE_MONEY),
        frontier.build_section(evaluation, curves),
        worth.build_section(found, evaluation),
    ]
    return {section.key: section for section in made}


@pytest.fixture(scope="module")
def made() -> dict[str, Section]:
    return sections(handmade())


def test_figures_are_sound_svg_in_the_palettes_colours_with_marks(made):
    keys = [picture.key for section in made.values() for picture in section.pictures]
    assert sorted(keys) == FIGURES
    for section in made.values():
        for picture in section.pictures:
            ET.fromstring(picture.svg)
            assert set(re.findall(r"#[0-9a-f]{6}\b", picture.svg)) <= LIGHT | {"#000000"}, picture.key
            assert 1 <= picture.svg.count('class="mark"') <= 400
            assert picture.alt
            assert picture.protocol
            assert picture.data
            json.dumps(picture.data, allow_nan=False)


def test_the_data_of_the_frontier_is_its_record():
    told = trace_frontier(handmade())
    drawn = draw_all(told).data
    assert set(drawn) == {line.policy for line in told.curves} | {"oracle"}
    for line in told.curves:
        for name in ("cost", "accuracy", "low", "high", "gain", "gain_low", "gain_high"):
            assert drawn[line.policy][name] == pytest.approx(getattr(line, name).tolist(), rel=1e-5, abs=1e-9)
    assert drawn["oracle"]["in-sample"] == pytest.approx(told.oracle.high.tolist(), rel=1e-5)
    assert drawn["oracle"]["cross-fitted"] == pytest.approx(told.oracle.low.tolist(), rel=1e-5)
    few = draw_few(told).data
    assert few == {name: drawn[name] for name in ("fixed", "stopping", "oracle")}


def test_every_table_can_be_written_and_names_its_protocol(made):
    for section in made.values():
        for table in section.tables:
            assert table.protocol
            assert len(to_markdown(table)) == len(table.rows) + 2


def test_the_verdict_has_the_headline_the_budgets_and_the_money(made):
    found = made["verdict"]
    assert found.title == (
        "Adaptive sampling pays here: at 3 samples on average you get what 6 give uniformly, 50% less."
    )
    money, budgets = found.tables
    assert [row[0] for row in budgets.rows] == [1.5, 2.0, 3.0, 4.0, 6.0]
    assert [row[5].mean for row in budgets.rows] == pytest.approx([0.5] * 5)
    assert [row[-1] for row in money.rows] == pytest.approx([0.5] * 5)
    assert "an example" in money.note


def test_the_calm_frontier_has_an_arrow_where_something_is_saved_and_is_the_same_every_time():
    found = handmade()
    told = trace_frontier(found)
    same = evaluated(found).match("stopping", 6.0)
    with_arrow = draw_few(told, match=same).svg
    assert "6 samples instead of 12" in with_arrow
    assert with_arrow == draw_few(told, match=same).svg
    assert "instead of" not in draw_few(told).svg


def test_words_follow_the_numbers(made):
    assert (
        "At 1.5, 2, 3, 4 and 6 samples on average some policy is clearly above uniform"
        in made["worth"].words[0]
    )
    nothing = sections(handmade(saves=False))
    assert "no policy is clearly above uniform" in nothing["worth"].words[0]
    assert "nowhere clearly above" in nothing["frontier"].words[0]


@pytest.mark.nightly
def test_what_a_pool_lacks_is_said_and_nothing_breaks():
    bare = sections(handmade(tokens=False))
    assert [table.key for table in bare["verdict"].tables] == ["budgets"]
    assert bare["verdict"].missing[0].startswith("money: not every sample")
    ungraded = sections(handmade(graded=False))
    assert "Agreement with the other half's vote" in ungraded["frontier"].tables[0].title
    short = handmade()
    ballots = short.setup.ballots
    cut = replace(ballots, **{
        name: np.ascontiguousarray(getattr(ballots, name)[:, :16])
        for name in ("classes", "correct", "tokens", "logprob", "entropy")
    })  # fmt: skip
    short = sections(replace(short, setup=replace(short.setup, ballots=cut)))
    assert any("cross-fitted" in line for line in short["verdict"].missing)
