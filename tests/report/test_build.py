"""A report of any pool: of a poor pool what it allows."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from adacompute.errors import TooFewSamples
from adacompute.pool import Ballots, Mode
from adacompute.report.build import build_report
from adacompute.report.folder import render_files
from adacompute.report.page import build_share
from synthetic import make_ballots
from tiers import leave_to_nightly

HOSTILE = "</script><img src=x onerror=alert(1)>"


def drawn(problems: int, samples: int, *, seed: int = 0, tokens: bool = True) -> Ballots:
    """Problems from hopeless to easy, class 0 to 4, one of them right; long questions are hard."""
    rng = np.random.default_rng(seed)
    ease = np.linspace(0.05, 0.95, problems)[:, None]
    right = rng.random((problems, samples)) < ease
    answers = np.where(right, 9, rng.integers(0, 4, (problems, samples)))
    classes = np.zeros((problems, samples), dtype=np.int32)
    for row, own in zip(classes, answers, strict=True):
        names: dict[int, int] = {}
        row[:] = [names.setdefault(int(one), len(names)) for one in own]
    prompts = (f"{HOSTILE} what is {at} + {at}?" + " more" * (problems - at) for at in range(problems))
    counted = {"tokens": rng.integers(20, 60, right.shape).astype(np.float64)} if tokens else {}
    return make_ballots(
        classes, right, prompts=tuple(prompts), modes=(Mode(name=HOSTILE, model=HOSTILE),), **counted
    )


def ungraded(ballots: Ballots) -> Ballots:
    return replace(
        ballots,
        correct=np.full_like(ballots.correct, np.nan),
        gold_known=np.zeros(len(ballots), dtype=bool),
    )


@pytest.mark.slow
def test_a_poor_pool_gets_what_it_allows_and_none_of_its_text_is_markup_or_a_formula():
    """6 problems, 2 samples each, no tokens or log-probabilities."""
    poor = build_report(drawn(6, 2, tokens=False), name=HOSTILE, quick=True)
    assert [one.key for one in poor.sections()] == ["verdict", "worth", "frontier", "made"]
    assert poor.headline
    assert poor.headline.startswith("Too few problems to tell: here are 6 ")
    assert not any(line.startswith("Few problems") for line in poor.notices)  # one guard, the verdict's
    missing = [line for one in poor.sections() for line in one.missing]
    assert any("tokens" in line for line in missing)
    assert not any("\n" in line for line in missing)
    for exhibit in (*poor.tables(), *poor.pictures()):
        assert exhibit.protocol, exhibit.key
    files = {name: data.decode() for name, data in render_files(poor).items()}
    assert "<img" not in files["report.html"]
    assert files["report.html"].count("</script>") == 2
    svgs = {name: data for name, data in files.items() if name.endswith(".svg")}
    for name, svg in svgs.items():
        ET.fromstring(svg.split("\n", 1)[1])
        assert "<img" not in svg, name
    assert "&lt;/script&gt;&lt;img src=x onerror=" in files["report.html"]


@pytest.mark.slow
def test_without_grades_it_is_told_by_agreement():
    found = build_report(ungraded(drawn(6, 4)), name="bare", quick=True)
    assert "No problem has a grade" in found.notices[0]
    assert {part.key for part in found.parts} == {"verdict", "held-out", "made"}
    assert "accura" not in found.headline
    render_files(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problems", "decided"), leave_to_nightly([(6, "too few problems to tell"), (40, "uniform is as good")])
)
def test_of_a_pool_without_anything_to_gain_no_gain_and_no_saving_is_claimed(problems: int, decided: str):
    plain = drawn(problems, 3)
    flat = replace(plain, correct=np.ones_like(plain.correct), classes=np.zeros_like(plain.classes))
    found = build_report(flat, name="flat", quick=True)
    assert found.evaluation.verdict.decided == decided
    assert found.money is not None
    page = render_files(found)["report.html"].decode()
    if found.evaluation.verdict.rows:
        assert found.money["words"].endswith("; no saving over uniform sampling is certain.")
        assert "no saving is certain" in page
    assert 'class="tile saved"' not in page
    assert "saved a month" not in page
    assert build_share(found)["figure"].startswith("Figure, by a protocol of its own: held-out")


def test_what_no_report_can_be_made_of_is_refused_in_one_line():
    with pytest.raises(TooFewSamples):
        build_report(drawn(1, 16), name="one", quick=True)
