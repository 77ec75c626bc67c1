"""`adacompute demo`: the verdict first, a table with money in it, a live reply, and the path of a report."""

import json
import re
from pathlib import Path

import pytest

import adacompute as ac

NAMES = ac.bundled_names()


def part(said: str, name: str) -> list[str]:
    """The lines about one recording."""
    return next(block for block in said.split("\n\n") if block.startswith(f"{name}: ")).split("\n")


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_comes_first_and_is_the_reports(demo, name: str):
    results = json.loads((demo.folder / name / "results.json").read_text())
    assert " ".join(part(demo.said, name)[0].split()) == f"{name}: {results['headline']}"
    assert f"held-out, {results['folds']} folds" in " ".join(demo.said.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_the_table_is_the_reports(demo, name: str):
    results = json.loads((demo.folder / name / "results.json").read_text())
    lines = part(demo.said, name)
    at = next(number for number, line in enumerate(lines) if line.split()[:2] == ["samples", "uniform"])
    rows = [line.split() for line in lines[at + 1 :]]
    matched = {(one["policy"], one["budget"]): one for one in results["evaluation"]["matched"]}
    money = {one["budget"]: one for one in results["money"]["rows"]}
    assert [float(row[0]) for row in rows] == [1.5, 2, 3, 4, 6]
    for row in rows:
        budget = float(row[0])
        shown = [f"{100 * matched[who, budget]['accuracy']:.1f}%" for who in ("fixed", "asc", "stopping")]
        assert row[1:4] == shown
        ours = matched["stopping", budget]
        assert row[4] == f"{100 * ours['gain']['mean']:+.1f}"
        spent, same = (money[budget][key] for key in ("tokens", "same_as_tokens"))
        price = results["money"]["output_price"]
        told = f"{spent * price:,.0f}" + (f", not {same * price:,.0f}" if same else "")
        assert " ".join(row).endswith(told)


def test_a_real_model_answers_through_the_gateway(demo):
    block = demo.said.split("the gateway in front of a real model on this machine", 1)[1].split("\n\n")[0]
    rows = [line for line in block.split("\n") if line.startswith("  What ")]
    assert len(rows) == 6
    for row in rows:
        right, samples, tokens = row.split()[-3:]
        assert right in ("yes", "no")
        assert int(samples) >= 1
        assert int(tokens) > int(samples)
    assert re.search(r"\d\.\d samples on average of these few, 3 is what it steers", " ".join(block.split()))


def test_it_ends_with_the_pages(demo):
    for name in NAMES:
        assert f"adacompute-demo/{name}/report.html" in demo.said
        assert (demo.folder / name / "report.html").stat().st_size > 100_000


def test_an_unknown_recording_is_refused_with_the_known_ones(adacompute, tmp_path: Path):
    said = adacompute("demo", "nothing", code=1).stderr
    assert "nothing" in said
    assert all(name in said for name in NAMES)
