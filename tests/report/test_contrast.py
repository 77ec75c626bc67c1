"""Whatever is written in a figure or on the page can be read, in light and in dark: WCAG asks 4.5 to 1."""

import re
from importlib.resources import files

import pytest

from adacompute.report.canvas import COLOURS

LEAST = 4.5
WRITTEN = {name for name in COLOURS if not re.fullmatch(r"line|grid|page|ramp\d", name)}
CSS = files("adacompute.report").joinpath("page.css").read_text("utf-8")
LIGHT, DARK = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in CSS.split("@media", 2)[:2])


def contrast(one: str, other: str) -> float:
    """Of two colours, from 1 to 21."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_as_it_is_defined():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_figures_labels_can_be_read(name: str):
    for own, page in zip(COLOURS[name], COLOURS["page"], strict=True):
        assert contrast(own, page) >= LEAST


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_the_pages_text_can_be_read_on_both_of_its_grounds(colours: dict[str, str]):
    for name in ("ink", "dim", "blue"):
        for ground in ("bg", "soft"):
            assert contrast(colours[name], colours[ground]) >= LEAST, (name, ground)
