"""A report of any pool: the same with any number of workers, and of a poor pool what it allows."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute.errors import TooFewSamples
from adacompute.evaluate.report.files import contents
from adacompute.evaluate.report.jobs import JOBS
from adacompute.evaluate.report.make import report
from adacompute.pool import Ballots

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
    shape, blank = (problems, samples), np.full((problems, samples), np.nan)
    return Ballots(
        ids=tuple(f"p{at}" for at in range(problems)),
        prompts=tuple(
            f"{HOSTILE} what is {at} + {at}?" + " more" * (problems - at) for at in range(problems)
        ),
        subjects=(None,) * problems,
        levels=(None,) * problems,
        gold_known=np.ones(problems, dtype=bool),
        classes=classes,
        correct=right.astype(np.float32),
        tokens=rng.integers(20, 60, shape).astype(np.float64) if tokens else blank,
        logprob=blank,
        entropy=blank,
        model=HOSTILE,
    )


def ungraded(ballots: Ballots) -> Ballots:
    return replace(
        ballots,
        correct=np.full_like(ballots.correct, np.nan),
        gold_known=np.zeros(len(ballots), dtype=bool),
    )


def test_a_poor_pool_gets_what_it_allows_by_any_number_of_workers_and_none_of_its_text_is_markup():
    """One test: 10 problems, 3 samples each, no tokens or log-probabilities; made twice takes long enough."""
    ballots = drawn(10, 3, tokens=False)
    poor = report(ballots, name=HOSTILE, quick=True)
    assert [one.key for one in poor.sections()] == [*(job.key for job in JOBS), "made"]
    assert poor.headline
    missing = [line for one in poor.sections() for line in one.missing]
    assert any("tokens" in line for line in missing)
    assert not any("\n" in line for line in missing)
    for exhibit in (*poor.tables(), *poor.pictures()):
        assert exhibit.protocol, exhibit.key
    files = contents(poor)
    page = files["report.html"].decode()
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert not any(b"<img" in data for name, data in files.items() if name.endswith(".svg"))
    assert contents(report(ballots, name=HOSTILE, quick=True, workers=2)) == files


def test_without_grades_it_is_told_by_agreement_and_the_papers_sections_are_left_out():
    found = report(ungraded(drawn(12, 8)), name="bare", quick=True)
    assert "No problem has a grade" in found.notices[0]
    assert {part.key for part in found.parts} == {"verdict", "held-out", "made"}
    assert "accura" not in found.headline
    contents(found)


def test_a_pool_without_anything_to_gain_says_so():
    plain = drawn(12, 4)
    flat = replace(plain, correct=np.ones_like(plain.correct), classes=np.zeros_like(plain.classes))
    found = report(flat, name="flat", quick=True)
    assert "uniform" in found.headline.lower()
    contents(found)


def test_what_no_report_can_be_made_of_is_refused_in_one_line():
    with pytest.raises(TooFewSamples):
        report(drawn(1, 16), name="one", quick=True)
