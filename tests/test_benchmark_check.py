"""`make bench-check`: what counts as worse than the kept ratios, and what is said where it can't tell."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = {"a": 2.0, "b": 0.5}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.check")


def verdicts(check: ModuleType, now: dict[str, float]) -> dict[str, bool]:
    return {finding.name: finding.fails for finding in check.compare(KEPT, now)}


def test_26_percent_worse_fails_24_percent_and_better_pass(check):
    assert verdicts(check, {"a": 2.0 * 1.26, "b": 0.5 * 1.24}) == {"a": True, "b": False}
    assert verdicts(check, {"a": 2.0 * 1.24, "b": 0.5 * 1.26}) == {"a": False, "b": True}
    assert verdicts(check, {"a": 0.1, "b": 0.5}) == {"a": False, "b": False}
    assert verdicts(check, {"a": float("nan"), "b": 0.5}) == {"a": True, "b": False}


def test_a_line_names_the_ratio_what_was_kept_what_is_now_and_how_much_worse(check):
    worse, better = map(str, check.compare(KEPT, {"a": 3.0, "b": 0.4}))
    assert worse == "FAILS     a: kept 2, now 3, 50% worse"
    assert better == "ok        b: kept 0.5, now 0.4, 20% better"


def test_a_kept_ratio_that_is_no_longer_measured_fails_and_a_new_one_is_named(check):
    gone, new = [finding for finding in check.compare(KEPT, {"a": 2.0, "c": 7.0}) if finding.name != "a"]
    assert (gone.name, gone.fails) == ("b", True)
    assert "no longer measured" in str(gone)
    assert (new.name, new.fails) == ("c", False)
    assert "not in the baseline" in str(new)


def test_what_seems_worse_is_measured_again_and_the_least_counts(check):
    readings = {"a": [3.0, 2.1], "b": [0.9, 0.8, 0.9, 0.1]}
    taken = []

    def measure(name: str):
        def take() -> dict[str, float]:
            taken.append(name)
            return {name: readings[name].pop(0)}

        return take

    findings = check.check(KEPT, [measure("a"), measure("b")], repeats=3)
    assert [(finding.now, finding.fails) for finding in findings] == [(2.1, False), (0.8, True)]
    assert taken == ["a", "a", "b", "b", "b"]


def test_what_is_written_is_read_back_and_other_kinds_of_machines_stay(check, tmp_path: Path):
    file = tmp_path / "baseline.json"
    check.write_baseline(file, "aarch64", KEPT)
    check.write_baseline(file, "x86_64", {"a": 1.23456})
    assert check.read_baseline(file, "aarch64") == KEPT
    assert check.read_baseline(file, "x86_64") == {"a": 1.23}
    assert json.loads(file.read_text())["aarch64"]["command"] == "make bench-check BASELINE=write"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '"x"', '{"m": 3}', '{"m": {}}', '{"m": {"ratios": [1]}}', '{"n": {}}'),
        *('{"m": {"ratios": {"a": "1"}}}', '{"m": {"ratios": {"a": 0}}}', '{"m": {"ratios": {"a": NaN}}}'),
        '{"m": {"ratios": {}}}',
    ],
)
def test_a_damaged_file_or_one_without_this_machine_is_one_line_with_the_remedy(check, tmp_path: Path, text):
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(check.BaselineError) as caught:
        check.read_baseline(file, "m")
    assert "\n" not in str(caught.value)
    assert "BASELINE=write" in str(caught.value)


def test_nothing_to_compare_with_is_said_aloud_and_is_no_success(check, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(check, "FILE", tmp_path / "baseline.json")
    assert check.main([]) == 2
    assert "nothing can be checked" in capsys.readouterr().err


def test_the_exit_code_says_whether_a_ratio_is_worse(check, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(check, "FILE", tmp_path / "baseline.json")
    monkeypatch.setattr(check, "GROUPS", [lambda: {"a": 1.0}])
    assert check.main(["--write"]) == 0
    assert check.main([]) == 0
    monkeypatch.setattr(check, "GROUPS", [lambda: {"a": 1.3}])
    assert check.main([]) == 1
    assert "FAILS     a: kept 1, now 1.3, 30% worse" in capsys.readouterr().out


def test_the_kept_file_holds_the_ratios_that_are_measured(check):
    kept = json.loads(check.FILE.read_text("utf-8"))
    assert kept
    for machine, stored in kept.items():
        ratios = check.read_baseline(check.FILE, machine)
        assert {
            "gateway, added p50, pass",
            "gateway, processor, stopping",
            "frontier, beside a stable argsort",
        } < {*ratios}
        assert stored["command"] == check.WRITE


@pytest.mark.slow
def test_an_unknown_word_is_refused():
    words = [sys.executable, "-m", "benchmarks.check", "--wirte"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "--wirte" in done.stderr
