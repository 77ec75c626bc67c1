"""The installed command, run as a user would: results on stdout, the rest on stderr, exit codes kept."""

import gzip
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiers import leave_to_nightly

LINES = [
    {
        "id": "p1",
        "question": "What is 6 times 7?",
        "gold": "42",
        "subject": "sums",
        "level": 1,
        "model": "m",
        "note": "kept",
        "samples": [
            {"text": r"It is \boxed{42}.", "tokens": 8, "logprob": -0.5},
            {"text": "The answer is 42.0.", "tokens": 6},
            {"text": "####41", "tokens": 3},
            {"text": "no idea at all, sorry to say", "tokens": 7, "seed": 4},
        ],
    },
    {
        "id": "p2",
        "question": "What is half of one?",
        "gold": "1/2",
        "model": "m",
        "samples": [{"text": t} for t in ("Answer: 0.5", r"\boxed{\frac12}", "Answer: 2", "Answer: 1/2")],
    },
]


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    file = tmp_path / "samples.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return file


def test_import_reads_grades_and_says_what_it_added(adacompute, samples):
    done = adacompute("import", "samples.jsonl", "--pool", "p.sqlite")
    assert done.stdout == "p.sqlite: added 2 problems and 8 samples\n"
    assert done.stderr == ""


def test_pool_shows_what_hand_counting_gives(adacompute, samples):
    adacompute("import", "samples.jsonl", "--pool", "p.sqlite")
    body = json.loads(adacompute("pool", "p.sqlite", "--budgets", "1,2,4", "--json").stdout)
    (source,) = body["sources"]
    assert (body["problems"], body["samples"], body["gold_known"]) == (2, 8, 2)
    assert source["answered"] == 7 / 8
    # p1: right, right, wrong, none; p2: right, right, wrong, right
    assert source["accuracy"]["mean"] == (2 / 4 + 3 / 4) / 2
    # of six pairs: p1 right 1 + 2, tied 2; p2 right 3, tied 3
    assert source["votes"]["2"]["mean"] == pytest.approx((4 / 6 + 4.5 / 6) / 2)
    assert source["votes"]["4"]["mean"] == 1.0
    assert source["agreement"] == pytest.approx((2 / 3 + 3 / 4) / 2)


def test_a_file_shows_the_same_as_the_pool_made_of_it(adacompute, samples):
    adacompute("import", "samples.jsonl", "--pool", "p.sqlite")
    stored = json.loads(adacompute("pool", "p.sqlite", "--json").stdout)
    direct = json.loads(adacompute("pool", "samples.jsonl", "--json").stdout)
    assert {**stored, "pool": ""} == {**direct, "pool": ""}


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_export_keeps_what_was_imported(adacompute, samples, tmp_path: Path, suffix: str):
    adacompute("import", "samples.jsonl", "--pool", "p.sqlite")
    adacompute("export", "p.sqlite", f"out{suffix}")
    adacompute("export", f"out{suffix}", "back.jsonl")
    back = [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()]
    for line, before in zip(back, LINES, strict=True):
        assert {k: line[k] for k in before if k != "samples"} == {
            k: v for k, v in before.items() if k != "samples"
        }
        for sample, recorded in zip(line["samples"], before["samples"], strict=True):
            assert sample.items() >= recorded.items()
            assert {"answer", "correct"} <= sample.keys()


def test_every_command_gives_one_json_object_on_stdout(adacompute, samples):
    for words in (
        ("import", "samples.jsonl", "--pool", "p.sqlite"),
        ("export", "p.sqlite", "x.jsonl.gz"),
        ("pool", "p.sqlite", "--verify"),
        ("solve", "p.sqlite", "--budget", "2", "--budgets", "1,2,4"),
    ):
        done = adacompute(*words, "--json")
        assert isinstance(json.loads(done.stdout), dict)
        assert done.stdout.count("\n") == 1
        assert done.stderr == ""


def test_percent_and_extract_are_what_the_pool_keeps(adacompute, tmp_path: Path):
    line = {
        "id": "p",
        "question": "?",
        "gold": "0.5",
        "samples": [{"text": "so 50% [[7]]"}, {"text": "1/2 [[9]]"}],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    adacompute("import", "a.jsonl", "--pool", "unit.sqlite", "--extract", r"regex:(\S+) \[")
    adacompute(
        "import",
        "a.jsonl",
        "--pool",
        "fraction.sqlite",
        "--extract",
        r"regex:(\S+) \[",
        "--percent",
        "fraction",
    )
    means = [
        json.loads(adacompute("pool", f"{name}.sqlite", "--json").stdout)["sources"][0]["accuracy"]["mean"]
        for name in ("unit", "fraction")
    ]
    assert means == [0.5, 1.0]
    clash = adacompute("import", "a.jsonl", "--pool", "unit.sqlite", "--percent", "fraction", code=1)
    assert "unit.sqlite" in clash.stderr


def test_settings_come_from_file_environment_and_option_in_that_order(adacompute, samples, tmp_path: Path):
    def budgets(*words: str, **environ: str) -> list[str]:
        body = json.loads(adacompute(*words, "pool", "samples.jsonl", "--json", **environ).stdout)
        return list(body["sources"][0]["votes"])

    (tmp_path / "mine.toml").write_text("[score]\nbudgets = [1, 2]\n")
    assert budgets() == ["1", "2", "4"]
    assert budgets("--config", "mine.toml") == ["1", "2"]
    assert budgets("--config", "mine.toml", ADACOMPUTE_SCORE_BUDGETS="3") == ["3"]
    done = adacompute("pool", "samples.jsonl", "--budgets", "2,4", "--json", ADACOMPUTE_SCORE_BUDGETS="3")
    assert list(json.loads(done.stdout)["sources"][0]["votes"]) == ["2", "4"]


def test_a_flipped_grade_is_found_and_named(adacompute, samples, tmp_path: Path):
    import sqlite3

    adacompute("import", "samples.jsonl", "--pool", "p.sqlite")
    assert "verified: 2 problems and 8 samples" in adacompute("pool", "p.sqlite", "--verify").stdout
    database = sqlite3.connect(tmp_path / "p.sqlite")
    database.execute("UPDATE samples SET correct = 1 WHERE correct = 0 AND idx = 2")
    database.commit()
    database.close()
    done = adacompute("pool", "p.sqlite", "--verify", code=1)
    assert "p1" in done.stderr
    assert "2" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (
        json.loads(adacompute("pool", "p.sqlite", "--verify", "--json", code=1).stdout)["verification"]["ok"]
        is False
    )


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (("pool", "no.sqlite"), 1, ["no.sqlite", "no such"]),
        (("pool", "fact"), 1, ["fact:", "did you mean the recording 'facts'?"]),
        (("export", "wordz", "x.jsonl"), 1, ["wordz:", "did you mean the recording 'words'?"]),
        (("import", "no.jsonl", "--pool", "p.sqlite"), 1, ["no.jsonl", "no such"]),
        (("import", "bad.jsonl", "--pool", "p.sqlite"), 1, ["bad.jsonl", "line 2"]),
        (("import", "cut.jsonl.gz", "--pool", "p.sqlite"), 1, ["cut.jsonl.gz"]),
        (("pool", "bad.jsonl"), 1, ["bad.jsonl", "line 2"]),
        (("pool", "text.sqlite"), 1, ["text.sqlite", "not a pool"]),
        (("import", "text.sqlite", "--pool", "text.sqlite"), 1, ["text.sqlite"]),
        (("pool", "samples.jsonl", "--budgets", "two"), 2, ["'two'", "1,2,4,8,16"]),
        (("pool", "samples.jsonl", "--budgets", "4,2"), 2, ["[4, 2]", "ascending"]),
        (("pool", "samples.jsonl", "--extract", "boxes"), 1, ["'boxes'", "boxed"]),
        (("pool", "samples.jsonl", "--extract", "regex:("), 1, ["regex", "("]),
        (("--config", "no.toml", "demo"), 1, ["no.toml"]),
        (("export", "samples.jsonl", "x.csv"), 1, ["x.csv", ".jsonl"]),
        (("export", "samples.jsonl", "bad.jsonl"), 1, ["bad.jsonl", "already exists"]),
        (("export", "none.jsonl", "no/x.jsonl"), 1, ["no/x.jsonl", "create no first"]),
        (("export", "none.jsonl", ".", "--shards", "2"), 1, ["already exists"]),
        (("fit", "none.jsonl", "-o", "no/such"), 1, ["no/such", "its folder is not there; create"]),
        (("pool",), 2, ["POOL"]),
        (("pool", "samples.jsonl", "--percent", "half"), 2, ["half"]),
        (("import", "samples.jsonl", "--pool", "p.sqlite", "--format", "csv"), 2, ["csv"]),
        (("nonsense",), 2, ["nonsense"]),
    ],
)
def test_a_wrong_input_gets_one_line_and_its_exit_code(
    adacompute, samples, tmp_path: Path, words, code, parts
):
    (tmp_path / "bad.jsonl").write_text(json.dumps(LINES[0]) + "\n{not json\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(samples.read_bytes())[:-12])
    (tmp_path / "text.sqlite").write_text("hello\n")
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    done = adacompute(*words, code=code)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1, done.stderr
    assert all(part in " ".join(done.stderr.split()) for part in parts), done.stderr
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_a_reader_that_leaves_early_sees_no_traceback(tmp_path: Path):
    command = [str(Path(sys.executable).parent / "adacompute"), "pool", "facts"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.close()
    assert run.stderr.read() == b""
    run.stderr.close()
    assert run.wait(60) == 128 + signal.SIGPIPE


def test_a_folder_of_parquet_is_shown_like_the_file(adacompute, samples, tmp_path: Path):
    (tmp_path / "parts").mkdir()
    adacompute("export", "samples.jsonl", "parts/a.parquet")
    folder = json.loads(adacompute("pool", "parts", "--json").stdout)
    assert {**folder, "pool": ""} == {
        **json.loads(adacompute("pool", "samples.jsonl", "--json").stdout),
        "pool": "",
    }


def test_the_settings_way_of_reading_answers_is_for_new_pools_and_files(adacompute, tmp_path: Path):
    line = {"id": "p", "question": "?", "gold": "0.5", "samples": [{"text": "50% #### 7"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    environ = {"ADACOMPUTE_ANSWERS_EXTRACT": r"regex:(\S+%)", "ADACOMPUTE_ANSWERS_PERCENT": "fraction"}

    def accuracy(name: str, **environ: str) -> float:
        return json.loads(adacompute("pool", name, "--json", **environ).stdout)["sources"][0]["accuracy"][
            "mean"
        ]

    assert accuracy("a.jsonl") == 0.0
    assert accuracy("a.jsonl", **environ) == 1.0
    adacompute("import", "a.jsonl", "--pool", "plain.sqlite")
    adacompute("import", "a.jsonl", "--pool", "set.sqlite", **environ)
    assert (accuracy("plain.sqlite", **environ), accuracy("set.sqlite")) == (0.0, 1.0)


def test_budgets_beyond_the_samples_are_said_to_be_so(adacompute, samples):
    assert "no votes: too few samples" in adacompute("pool", "samples.jsonl", "--budgets", "99").stdout


def test_grades_without_answers_are_an_accuracy_and_no_vote(adacompute, tmp_path: Path):
    line = {"id": "p", "question": "?", "samples": [{"correct": grade} for grade in (1, 1, 0, 1)]}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    assert "75.0% of one sample; no votes: no answers were recorded" in adacompute("pool", "a.jsonl").stdout


def test_a_broken_settings_file_blocks_no_help(adacompute, tmp_path: Path):
    (tmp_path / "adacompute.toml").write_text("[broken")
    assert "Usage" in adacompute("import", "--help").stdout
    assert "adacompute.toml" in adacompute("demo", code=1).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirect", "code"), leave_to_nightly([(">&-", 0), (">/dev/full", 1), (">&- 2>&-", 0)], but=2)
)
def test_an_output_that_takes_nothing_gives_no_traceback(samples, tmp_path: Path, redirect: str, code: int):
    command = f"{Path(sys.executable).parent / 'adacompute'} pool samples.jsonl {redirect}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == code


@pytest.mark.slow
@pytest.mark.parametrize("number", leave_to_nightly([signal.SIGINT, signal.SIGTERM]))
def test_a_stopped_import_says_so_and_leaves_nothing(tmp_path: Path, number: signal.Signals):
    # long enough that the signal comes in the middle of it
    samples = [{"answer": "1"}] * 4
    lines = (json.dumps({"id": f"p{i}", "question": f"{i}?", "samples": samples}) for i in range(100_000))
    (tmp_path / "slow.jsonl").write_text("\n".join(lines))
    command = [str(Path(sys.executable).parent / "adacompute"), "import", "slow.jsonl", "--pool", "p.sqlite"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not (tmp_path / "p.sqlite.lock").exists() and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(number)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 128 + number, said
    assert said.startswith("adacompute: stopped")
    assert said.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["slow.jsonl"]


def test_help_and_version_work_without_a_command(adacompute, installed):
    assert re.fullmatch(r"adacompute \d+\.\d+\.\d+\n", installed("--version").stdout)
    assert "Record samples:" in adacompute("--help").stdout
    for command in ("demo", "import", "export", "pool", "solve"):
        assert f"adacompute {command}" in adacompute(command, "-h").stdout
