"""What a report writes: the same numbers in the page, the JSON and the CSV; whole, or not at all."""

import csv
import io
import json
import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
from handmade import FIGURES

from adacompute.errors import ReportError
from adacompute.evaluate.comparison import Evaluation, Verdict
from adacompute.replay.matching import Interval
from adacompute.report.document import (
    Column,
    Kind,
    Picture,
    Report,
    ReportPart,
    Section,
    Spread,
    Table,
    format_cell,
    replace_non_finite,
    to_csv,
    to_data,
)
from adacompute.report.folder import check_report_folder, publish_files, render_files, write_report

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{style}}"
FACTS = {
    "adacompute": "0",
    "problems": 2,
    "groups": 2,
    "samples_least": 3,
    "samples_most": 4,
    "model": HOSTILE,
}
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
    budgets=(2.0,),
    verdict=Verdict(
        decided="too few problems to tell",
        sentence=HOSTILE,
        support=HOSTILE,
        policy="stopping",
        budget=None,
        basis="accuracy",
        problems=2,
        problems_needed=28,
        protocol=HOSTILE,
        rows=(),
    ),
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
    part = ReportPart(key="v", title=text, about=text, sections=(section,))
    made = ReportPart(key="made", title=text, about=text, sections=(), folded=True)
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
    rows = list(csv.reader(to_csv(small().parts[0].sections[0].tables[0]).splitlines()))
    assert rows == [
        ["who", "a", "a_low", "a_high", "b", "b_std"],
        ["x", "0.5", "0.4", "", "0.01", "0.002"],
        ["y", "0.25", "", "", "", ""],
        ["z", "", "", "", "", ""],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "a=1"])
def test_a_csv_holds_no_formula_and_its_numbers_stay_numbers(text: str):
    table = Table(
        key="t",
        title="",
        protocol="",
        columns=(Column(name=text), Column(name="n", kind="points")),
        rows=((text, -0.5),),
    )
    safe = text if text == "a=1" else f"'{text}"
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [[safe, "n"], [safe, "-0.5"]]


def test_amounts_and_money_are_written_as_people_write_them():
    assert [format_cell(value, Column(name="", kind="amount")) for value in (1.5, 2.0, 12)] == [
        "1.5",
        "2",
        "12",
    ]
    assert format_cell(12345.6, Column(name="", kind="count")) == "12,346"
    assert format_cell(-0.6149, Column(name="", kind="percent")) == "-61%"
    told = {
        0.266: "0.266",
        1.149: "1.15",
        1188.168: "1,188.17",
        1e-9: "0.00000000100",
        -2.5: "-2.50",
        0.0: "0.00",
    }
    assert {value: format_cell(value, Column(name="", kind="money")) for value in told} == told


def test_the_json_has_finite_numbers_only():
    body = to_data(small())
    assert body["sections"]["s"]["figures"]["p"] == {"v": None}
    assert body["sections"]["s"]["tables"]["t"][0]["a"] == {"mean": 0.5, "low": 0.4, "high": None}
    json.dumps(body, allow_nan=False)
    assert replace_non_finite([float("nan"), {"x": (1, 2)}]) == [None, {"x": [1, 2]}]


def test_no_text_of_a_pool_is_markup():
    page = render_files(small(HOSTILE))["report.html"].decode()
    assert "<img" not in page
    assert page.count("</script>") == 2  # the two of the page itself
    assert page.count("<style") == 1  # and no figure brings its own


def test_a_figure_with_odd_characters_in_its_names_is_a_picture_still():
    one = small()
    drawn = replace(one.parts[0].sections[0].pictures[0], svg=SVG.replace("one", "o\x00\x01\ufffen\x1be"))
    section = replace(one.parts[0].sections[0], pictures=(drawn,))
    odd = replace(one, parts=(replace(one.parts[0], sections=(section,)),))
    ElementTree.fromstring(render_files(odd)["figures/p.svg"])


def test_twice_the_same_report_is_the_same_bytes():
    assert render_files(small()) == render_files(small())


def test_two_tables_of_one_name_are_a_mistake_of_ours():
    one = small()
    with pytest.raises(ValueError, match="names of their own"):
        render_files(replace(one, parts=(one.parts[0], one.parts[0])))


def test_a_report_replaces_a_report_and_leaves_nothing_of_it(tmp_path: Path):
    place = tmp_path / "new" / "r"
    old = render_files(small())
    old["tables/gone.csv"] = b"a table that isn't made any more"
    old["results.json"] = _naming(old)
    write_report(old, place)
    assert (place / "tables" / "gone.csv").exists()
    write_report(render_files(small("y")), place)
    assert _held(place) == render_files(small("y"))
    assert [one.name for one in place.parent.iterdir()] == ["r"]


@pytest.mark.parametrize("where", ["mine.txt", "tables/mine.csv", ".DS_Store", "figures/Thumbs.db"])
def test_a_file_of_somebody_elses_stays(tmp_path: Path, where: str):
    for before in (False, True):
        place = tmp_path / f"{before}"
        if before or where == "tables/mine.csv":
            write_report(render_files(small()), place)
        (place / where).parent.mkdir(parents=True, exist_ok=True)
        (place / where).write_text("mine")
        write_report(render_files(small("y")), place)
        assert _held(place) == {**render_files(small("y")), where: b"mine"}


@pytest.mark.parametrize("where", ["report.html", "results.json", "tables/mine.csv", "figures"])
def test_what_would_be_overwritten_and_is_no_report_is_refused_and_left(tmp_path: Path, where: str):
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / where).write_text("mine")
    with pytest.raises(ReportError, match="not part of a report") as refused:
        check_report_folder(tmp_path)
    assert where in str(refused.value)
    with pytest.raises(ReportError):
        write_report(render_files(small()), tmp_path)
    assert _held(tmp_path) == {where: b"mine"}


def test_results_that_name_files_elsewhere_remove_none_of_them(tmp_path: Path):
    place = tmp_path / "r"
    write_report(render_files(small()), place)
    names = ["../mine.txt", "tables/../../mine.txt", str(tmp_path / "mine.txt"), "mine.csv", 7, None]
    (place / "results.json").write_text(json.dumps({"adacompute": "0", "sections": {}, "files": names}))
    (tmp_path / "mine.txt").write_text("mine")
    (place / "mine.csv").write_text("mine")
    write_report(render_files(small()), place)
    assert (tmp_path / "mine.txt").exists()
    assert (place / "mine.csv").exists()


def test_the_folder_one_is_in_an_empty_one_and_a_link_to_one_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write_report(render_files(small()), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert _held(tmp_path / "empty") == render_files(small())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for text in "xy":
        assert write_report(render_files(small(text)), Path()) == Path("report.html")
    assert _held(Path.cwd()) == render_files(small("y"))
    write_report(render_files(small()), tmp_path / ("n" * 250))


def test_where_nothing_can_be_is_said_in_one_line_before_the_work_and_nothing_is_left(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "gone").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    for name in ("file", "file/below", "round", "gone", "n" * 256, "a\0b", "/proc/nothing"):
        with pytest.raises(ReportError) as refused:
            check_report_folder(tmp_path / name)
        assert "\n" not in str(refused.value)
        assert "name a" in str(refused.value)
    check_report_folder(tmp_path / "one" / "two")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_may_have_the_longest_name_there_is(tmp_path: Path):
    publish_files({tmp_path / ("n" * 255): b"x"})
    assert _held(tmp_path) == {"n" * 255: b"x"}


class Stop(BaseException):
    """As a signal would."""


@pytest.mark.parametrize("old", [False, True])
def test_stopped_at_any_move_each_file_is_the_old_or_the_new_one_and_again_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool
):
    before, after = render_files(small()), render_files(small("y"))
    before["tables/gone.csv"] = b"of the old one only"
    before["results.json"] = _naming(before)
    moves, really = [0], Path.replace
    for at in range(len(after) + old):  # with one more: results.json, once what is stale has gone
        place = tmp_path / f"r{at}"
        if old:
            write_report(before, place)

        def counting(self: Path, target: Path, stop: int = at) -> Path:
            moves[0] += 1
            if moves[0] > stop:
                raise Stop
            return really(self, target)

        moves[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", counting)
            with pytest.raises(Stop):
                write_report(after, place)
        held = _held(place) if place.exists() else {}
        assert not old or {"report.html", "results.json", "tables/t.csv", "figures/p.svg"} <= set(held)
        for name in set(held) - {"results.json"}:
            assert held[name] in (before.get(name), after.get(name))
        if "results.json" in held:
            assert set(held) <= set(json.loads(held["results.json"])["files"])
        write_report(after, place)
        assert _held(place) == after


def test_a_killed_writers_halves_are_in_nobodys_way(tmp_path: Path):
    for name in (".results.json.part", "tables/.t.csv.part", "figures/.p.svg.part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("half")
    write_report(render_files(small()), tmp_path)
    assert _held(tmp_path) == render_files(small())


def test_a_full_disk_leaves_the_old_report(small_disk: Callable[[str], Path]):
    disk = small_disk("512k")
    write_report(render_files(small()), disk)  # itself: a place that can't be renamed
    large = render_files(small("y")) | {"tables/large.csv": bytes(600_000)}
    with pytest.raises(ReportError, match=r"No space left on device; make room"):
        write_report(large, disk)
    assert _held(disk) == render_files(small())


def test_two_writers_at_once_leave_one_whole_report(tmp_path: Path):
    either = [render_files(small(text)) for text in "xy"]
    with ThreadPoolExecutor(4) as many:
        for done in [many.submit(write_report, either[at % 2], tmp_path / "r") for at in range(12)]:
            done.result()
    assert _held(tmp_path / "r") in either


def _naming(files: dict[str, bytes]) -> bytes:
    return json.dumps(json.loads(files["results.json"]) | {"files": sorted(files)}).encode()


def _held(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()
    }


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
            return text.startswith(("–", "> ")) or any(
                text.startswith(format_cell(value.mean, Column(name="", kind=kind))) for kind in KINDS
            )
    if value is None:
        return text == "–" or text.startswith("> ")
    return any(format_cell(value, Column(name="", kind=kind)) == text.replace("> ", "") for kind in KINDS)


KINDS = get_args(Kind)


def test_the_page_and_its_data_are_small_enough_to_send(report: Path):
    assert (report / "report.html").stat().st_size < 4_000_000
    assert (report / "results.json").stat().st_size < 2_000_000


def test_the_json_holds_what_every_figure_draws(report: Path):
    body = json.loads((report / "results.json").read_text())
    figures = {key: data for one in body["sections"].values() for key, data in one["figures"].items()}
    assert set(figures) == set(FIGURES)
    for key, data in figures.items():
        assert len(_numbers(data)) >= 10, key


def _numbers(data: object) -> list[float]:
    if isinstance(data, dict | list):
        inner = data.values() if isinstance(data, dict) else data
        return [number for one in inner for number in _numbers(one)]
    return [data] if isinstance(data, int | float) and not isinstance(data, bool) else []
