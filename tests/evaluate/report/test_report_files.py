"""What a report writes: the same numbers in the page, the JSON and the CSV; whole, or not at all."""

import csv
import json
import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import get_args

import pytest

from adacompute.errors import ReportError
from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.exhibits import Column, Kind, Picture, Section, Spread, Table, written
from adacompute.evaluate.report.files import contents, may_write, write
from adacompute.evaluate.report.plain import as_csv, as_data, finite
from adacompute.evaluate.report.record import Part, Report
from adacompute.evaluate.rows import Evaluation

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{style}}"
FACTS = {"adacompute": "0", "problems": 2, "samples_least": 3, "samples_most": 4, "model": HOSTILE}
EVALUATION = Evaluation(
    problems=2,
    folds=2,
    protocol="held-out",
    votes="plain",
    basis="accuracy",
    orders=1,
    longest=4,
    dropped=0,
    left_out=(),
    rows=(),
    matched=(),
    oracle=(),
    imitation=(),
    verdicts=(),
    verdict="",
)
SVG = (
    '<svg viewBox="0 0 9 9"><defs><style type="text/css">*{fill:red}</style></defs>'
    '<circle class="mark" cx="1" cy="1" r="2"><title>one</title></circle></svg>'
)


def small(text: str = "x") -> Report:
    table = Table(
        key="t",
        title=text,
        protocol=text,
        columns=(
            Column(name="who", about=text),
            Column(name="a", kind="share"),
            Column(name="b", kind="points"),
        ),
        rows=(
            (text, Interval(mean=0.5, low=0.4, high=math.inf), Spread(mean=0.01, std=0.002)),
            ("y", 0.25, None),
            ("z", None, math.nan),
        ),
        note=text,
        bold=(0,),
    )
    picture = Picture(
        key="p", title=text, protocol=text, svg=SVG, alt=text, caption=text, data={"v": math.inf}
    )
    section = Section(
        key="s", title=text, words=(text,), tables=(table,), pictures=(picture,), missing=(text,)
    )
    part = Part(key="v", title=text, about=text, sections=(section,))
    made = Part(key="made", title=text, about=text, sections=(), folded=True)
    return Report(
        name=text,
        headline=text,
        below=text,
        facts=FACTS,
        notices=(text,),
        parts=(part, made),
        evaluation=EVALUATION,
    )


def test_an_interval_is_three_columns_a_spread_two_and_what_cannot_be_told_is_empty():
    rows = list(csv.reader(as_csv(small().parts[0].sections[0].tables[0]).splitlines()))
    assert rows == [
        ["who", "a", "a_low", "a_high", "b", "b_std"],
        ["x", "0.5", "0.4", "", "0.01", "0.002"],
        ["y", "0.25", "", "", "", ""],
        ["z", "", "", "", "", ""],
    ]


def test_the_json_has_finite_numbers_only():
    body = as_data(small())
    assert body["sections"]["s"]["figures"]["p"] == {"v": None}
    assert body["sections"]["s"]["tables"]["t"][0]["a"] == {"mean": 0.5, "low": 0.4, "high": None}
    json.dumps(body, allow_nan=False)
    assert finite([float("nan"), {"x": (1, 2)}]) == [None, {"x": [1, 2]}]


def test_no_text_of_a_pool_is_markup():
    page = contents(small(HOSTILE))["report.html"].decode()
    assert "<img" not in page
    assert page.count("</script>") == 2  # the two of the page itself
    assert page.count("<style") == 1  # and no figure brings its own


def test_twice_the_same_report_is_the_same_bytes():
    assert contents(small()) == contents(small())


def test_two_tables_of_one_name_are_a_mistake_of_ours():
    one = small()
    with pytest.raises(ValueError, match="names of their own"):
        contents(replace(one, parts=(one.parts[0], one.parts[0])))


def test_a_report_replaces_a_report_and_leaves_nothing_beside_it(tmp_path: Path):
    place = tmp_path / "new" / "r"
    write(contents(small()), place)
    assert sorted(one.name for one in place.iterdir()) == ["figures", "report.html", "results.json", "tables"]
    (place / "tables" / "gone.csv").write_text("a table that isn't made any more")
    write(contents(small("y")), place)
    assert not (place / "tables" / "gone.csv").exists()
    assert json.loads((place / "results.json").read_text())["pool"] == "y"
    assert [one.name for one in place.parent.iterdir()] == ["r"]


@pytest.mark.parametrize("where", ["mine.txt", "tables/mine.txt", "results.json"])
def test_what_is_no_report_is_refused_and_left_as_it_is(tmp_path: Path, where: str):
    place = tmp_path / "r"
    if where != "results.json":
        write(contents(small()), place)
    (place / where).parent.mkdir(parents=True, exist_ok=True)
    (place / where).write_text("mine")
    with pytest.raises(ReportError, match="no part of a report"):
        may_write(place)
    with pytest.raises(ReportError):
        write(contents(small()), place)
    assert (place / where).read_text() == "mine"


def test_an_empty_folder_and_a_link_to_one_will_do_and_a_file_wont(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write(contents(small()), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty" / "report.html").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="that is a file"):
        may_write(tmp_path / "file")


def test_a_failure_on_the_way_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "r"
    write(contents(small()), place)
    broken = dict(contents(small("y")))
    broken["report.html/inside-a-file"] = b""
    with pytest.raises(OSError, match=r".*"):
        write(broken, place)
    assert json.loads((place / "results.json").read_text())["pool"] == "x"
    assert [one.name for one in tmp_path.iterdir()] == ["r"]


def test_the_page_the_json_and_the_csv_of_a_recording_say_the_same(report: Path):
    body = json.loads((report / "results.json").read_text())
    page = (report / "report.html").read_text("utf-8")
    tables = {key: rows for one in body["sections"].values() for key, rows in one["tables"].items()}
    assert {f"{key}.csv" for key in tables} == {one.name for one in (report / "tables").iterdir()}
    figures = {key for one in body["sections"].values() for key in one["figures"]}
    assert {f"{key}.svg" for key in figures} == {one.name for one in (report / "figures").iterdir()}
    for key, rows in tables.items():
        with (report / "tables" / f"{key}.csv").open(newline="") as lines:
            read = list(csv.DictReader(lines))
        assert len(read) == len(rows)
        for own, line in zip(rows, read, strict=True):
            for name, value in own.items():
                mean = value["mean"] if isinstance(value, dict) else value
                assert line[name] == _as_csv(mean), (key, name)
                if isinstance(value, dict):
                    for end in set(value) - {"mean"}:
                        assert line[f"{name}_{end}"] == _as_csv(value[end])
        shown = re.search(rf'id="table-{re.escape(key)}".*?<tbody>(.*?)</tbody>', page, re.DOTALL)[1]
        cells = [
            [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
            for row in re.findall(r"<tr[^>]*>(.*?)</tr>", shown)
        ]
        assert len(cells) == len(rows), key
        for own, said in zip(rows, cells, strict=True):
            for value, text in zip(own.values(), said, strict=True):
                assert _agrees(value, text), (key, value, text)


def _as_csv(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _agrees(value: object, text: str) -> bool:
    """Whether a cell's text is one of the ways in which its value may be written."""
    if isinstance(value, dict):
        value = (
            Spread(mean=value["mean"], std=value["std"])
            if "std" in value
            else Interval(
                mean=math.nan if value["mean"] is None else value["mean"],
                low=value["low"],
                high=value["high"],
            )
        )
        if isinstance(value, Interval) and (value.low is None or value.high is None):
            return text.startswith(("–", "more than there are")) or any(
                text.startswith(written(value.mean, Column(name="", kind=kind))) for kind in KINDS
            )
    if value is None:
        return text in ("–", "more than there are")
    return any(written(value, Column(name="", kind=kind)) == text for kind in KINDS)


KINDS = get_args(Kind)


def test_the_page_is_small_enough_to_send(report: Path):
    assert (report / "report.html").stat().st_size < 4_000_000
