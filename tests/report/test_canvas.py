"""Figures of any text and any pool: readable, sound, no larger than a page can bear."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from adacompute.report.document import Picture
from adacompute.report.page import render_figure
from studies.canvas import LabelledCanvas, clip_label

ODD = r"""5 $\frac$ 'DejaVu Sans' id="zz" href="#x" url(#y) <b> 漢字 """ + "\x00\x1b\ud800\ufffe"
SOUND = r"""5 $\frac$ 'DejaVu Sans' id="zz" href="#x" url(#y) <b> 漢字"""


def drawn(label: str) -> str:
    with LabelledCanvas("odd", height=2) as canvas:
        ax = canvas.axes[0]
        ax.plot(np.arange(9), np.arange(9), "o")
        ax.set_yticks([0, 1], [label, "plain"])
        canvas.label_ends(ax, [(8, 8, label, "#000000")])
        canvas.mark(ax, 0, 0, ODD)
        return canvas.svg()


def test_a_label_is_drawn_as_it_is_written_formulas_and_markup_too():
    label = clip_label(ODD, 99)
    assert label == SOUND
    svg = drawn(label)
    texts = [one.text for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count(SOUND) == 2
    marks = [one.text for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert [text.strip() for text in marks if text] == [SOUND]


def test_the_page_drops_ids_of_tags_alone():
    one = Picture(key="odd", title="odd", protocol="none", svg=drawn(clip_label(ODD, 99)), alt="odd")
    html = render_figure(one)
    assert html.count('id="zz" href="#x" url(#y)') == 2
    assert set(re.findall(r' id="(odd-[^"]*)"', html)) <= set(re.findall(r'#(odd-[^")]+)', html))


@pytest.mark.parametrize("text", ["x" * 500, "word " * 99, "漢" * 40, "漢", "\n\t", "", "a\nb\tc"])
def test_a_foreign_label_is_one_line_of_little_room_and_never_nothing(text: str):
    found = clip_label(text)
    assert 1 <= len(found) <= 24
    assert found == found.strip()
    assert "\n" not in found
    assert clip_label(found) == found


def test_markers_of_one_look_are_styled_once_and_numbers_are_short():
    svg = drawn("plain")
    assert len(re.findall(r'<use [^>]*x="[\d.]+" y="[\d.]+"/>', svg)) == 9
    assert not re.search(r"\d\.\d{3,}", svg)
