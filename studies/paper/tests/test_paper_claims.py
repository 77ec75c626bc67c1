"""What the paper says, as data: every number is the paper's, every statement stands where it is said to."""

import json
from importlib.resources import files

import pytest
import tex

from studies.paper.classifier_checks import CHECKS
from studies.paper.errata import SLIP_CHECKS
from studies.paper.paper_claims import load_paper
from studies.paper.reproduction_page import PARTS


@pytest.mark.recordings
def test_every_cell_of_every_table_is_the_papers(source: str):
    kept = json.loads((files("studies.paper") / "paper.json").read_text("utf-8"))
    found = tex.read(source)
    assert set(kept["tables"]) == set(found)
    for label, rows in found.items():
        assert kept["tables"][label]["rows"] == rows, label
    assert [len(rows) for rows in found.values()] == [60, 5, 10, 12, 12, 12, 5]


@pytest.mark.recordings
def test_tables_and_figures_are_numbered_as_in_the_paper(source: str):
    lines = source.split("\n")
    for kind, known in (("tab", load_paper().tables), ("fig", load_paper().figures)):
        labels = [
            line[line.index(f"{{{kind}:") + 1 : line.rindex("}")]
            for line in lines
            if f"\\label{{{kind}:" in line
        ]
        assert list(known) == labels
        assert [one.number for one in known.values()] == list(range(1, len(labels) + 1))
        assert all(f"\\label{{{label}}}" in lines[one.line - 1] for label, one in known.items())


@pytest.mark.recordings
def test_every_quoted_word_stands_in_the_line_that_is_named(source: str):
    lines = source.split("\n")
    quotes = [(claim.line, claim.quote) for claim in load_paper().claims.values()]
    quotes += [quote for slip in load_paper().slips.values() for quote in slip.quotes]
    for number, quote in quotes:
        assert quote in lines[number - 1], f"line {number}: {quote}"


def test_every_statement_is_checked_and_every_check_has_its_statement():
    assert set(load_paper().claims) == set(CHECKS)
    assert {claim.part for claim in load_paper().claims.values()} == {part.key for part in PARTS}
    assert set(load_paper().slips) == set(SLIP_CHECKS)


def test_the_papers_two_ablation_tables_are_the_same():
    first, second = (load_paper().tables[f"tab:ablation_classifier{end}"].rows for end in ("_main", ""))
    assert first == second


def test_the_papers_gaps_are_the_differences_of_its_main_table():
    for row in load_paper().tables["tab:oracle_gap"].rows:
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        oracle, ours = (load_paper().rows("tab:main", method=one, **wanted)[0] for one in ("oracle", "ours"))
        assert row["accuracy"] == ours["accuracy"]
        assert row["cost"] == ours["cost"]
        assert row["gap"] == pytest.approx(
            oracle["accuracy"] - ours["accuracy"], abs=0.0015
        )  # rounded thrice
