"""The held-out figures and their sections: sound, in the palette's colours, and for poor pools too."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from handmade import evaluated, handmade

from adacompute.evaluate.beyond.frontier import frontier_of
from adacompute.evaluate.exhibits import Section, markdown
from adacompute.evaluate.figures.frontier import draw_frontier
from adacompute.evaluate.figures.palette import COLOURS
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.report.sections import calibration, frontier, recovered, tokens, verdict, worth

LIGHT = {light for light, _ in COLOURS.values()}


ALL = (verdict, frontier, worth, calibration, recovered, tokens)


def sections(found: Played, modules: Sequence[ModuleType] = ALL) -> dict[str, Section]:
    evaluation = evaluated(found)
    made = [
        module.section(found) if module in (recovered, tokens) else module.section(found, evaluation)
        for module in modules
    ]
    return {section.key: section for section in made}


@pytest.fixture(scope="module")
def made() -> dict[str, Section]:
    return sections(handmade())


def test_figures_are_sound_svg_in_the_palettes_colours_with_marks(made):
    keys = [picture.key for section in made.values() for picture in section.pictures]
    assert sorted(keys) == [
        "calibration",
        "frontier",
        "frontier-few",
        "needed",
        "recovered",
        "spent",
        "tokens",
    ]
    for section in made.values():
        for picture in section.pictures:
            ET.fromstring(picture.svg)
            assert set(re.findall(r"#[0-9a-f]{6}\b", picture.svg)) <= LIGHT | {"#000000"}, picture.key
            assert 1 <= picture.svg.count('class="mark"') <= 400
            assert picture.alt
            assert picture.protocol
            json.dumps(picture.data, allow_nan=False)


def test_every_table_can_be_written_and_names_its_protocol(made):
    for section in made.values():
        for table in section.tables:
            assert table.protocol
            assert len(markdown(table)) == len(table.rows) + 2


def test_the_verdict_has_the_headline_the_budgets_and_the_money(made):
    found = made["verdict"]
    assert found.title == "At 6 samples on average you get what 12 give uniformly: 50% less."
    budgets, money = found.tables
    assert [row[0] for row in budgets.rows] == [1.5, 2.0, 3.0, 4.0, 6.0]
    assert [row[5] for row in budgets.rows] == pytest.approx([0.5] * 5)
    assert [row[-1] for row in money.rows] == pytest.approx([0.5] * 5)
    assert "an example" in money.note
    assert any("50% less" in text for text in found.words)


def test_the_calm_frontier_has_an_arrow_where_something_is_saved_and_is_the_same_every_time():
    found = handmade()
    told = frontier_of(found)
    same = evaluated(found).match("stopping", 6.0)
    with_arrow = draw_frontier(told, few=True, same=same).svg
    assert "6 samples instead of 12" in with_arrow
    assert with_arrow == draw_frontier(told, few=True, same=same).svg
    assert "instead of" not in draw_frontier(told, few=True).svg


def test_words_follow_the_numbers(made):
    assert made["worth"].words[0].startswith("Routing pays at 1.5, 2, 3, 4 and 6 samples on average.")
    nothing = sections(handmade(saves=False), (worth, frontier))
    assert nothing["worth"].words[0].startswith("Routing isn't worth it here: uniform is as good")
    assert "nowhere clearly above" in nothing["frontier"].words[0]


def test_what_a_pool_lacks_is_said_and_nothing_breaks():
    bare = sections(handmade(tokens=False), (verdict, tokens))
    assert [table.key for table in bare["verdict"].tables] == ["budgets"]
    assert bare["tokens"].missing[0].startswith("tokens: not every sample")
    assert not bare["tokens"].pictures
    ungraded = sections(handmade(graded=False), (frontier, calibration, recovered))
    assert ungraded["recovered"].missing
    assert "Agreement with the full vote" in ungraded["frontier"].tables[0].title
    short = handmade()
    ballots = short.setup.ballots
    cut = replace(ballots, **{
        name: np.ascontiguousarray(getattr(ballots, name)[:, :16])
        for name in ("classes", "correct", "tokens", "logprob", "entropy")
    })  # fmt: skip
    short = sections(replace(short, setup=replace(short.setup, ballots=cut)), (verdict, recovered))
    assert any("cross-fitted" in line for line in short["verdict"].missing)
