"""Logs that lm-eval and inspect_ai wrote themselves, imported; and archives that mean harm, refused."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from pool_lines import line, write

from adacompute.answers import vote
from adacompute.errors import AdacomputeError, NotAPool, PoolDamaged, PoolError, RecordInvalid
from adacompute.pool import import_file, open_pool
from adacompute.records import Signals

FIXTURES = Path(__file__).parent.parent / "fixtures"
LM_EVAL = FIXTURES / "lm_eval" / "tiny-model"
INSPECT = FIXTURES / "inspect"


def test_lm_eval_repeats_become_samples_extracted_and_graded(tmp_path: Path):
    (log,) = LM_EVAL.glob("samples_tiny_repeats_*.jsonl")
    done = import_file(log, tmp_path / "p.sqlite", format="lm-eval")
    assert (done.problems, done.samples) == (4, 12)
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert pool.models == [
            (
                "tiny-model",
                {"do_sample": True, "max_gen_toks": 64, "temperature": 0.8, "until": ["Question:"]},
            )
        ]
        first = pool.recorded("tiny_repeats/0")
        assert first.problem.gold == "17"
        assert "Tom has 3 boxes" in first.problem.question
        assert first.problem.extra["doc"]["id"] == "p1"
        assert [s.answer for s in first.samples] == ["12", "17", "17"]
        assert [s.correct for s in first.samples] == [0, 1, 1]
        assert first.classes == (0, 1, 1)
        assert first.samples[0].extra["lm_eval"]["maj@3"] == {"exact_match": 1.0, "filtered_resps": ["17"]}
        assert pool.verify().ok


def test_our_vote_finds_the_number_where_the_tools_own_vote_finds_no_match(tmp_path: Path):
    (log,) = LM_EVAL.glob("samples_tiny_repeats_*.jsonl")
    rows = [json.loads(text) for text in log.read_text().splitlines()]
    (theirs,) = (r["filtered_resps"] for r in rows if (r["doc_id"], r["filter"]) == (2, "maj@3"))
    assert theirs == ["[invalid]"]  # "1,250" and "1250" were kept apart, and no match counted as an answer
    import_file(log, tmp_path / "p.sqlite", format="lm-eval")
    with open_pool(tmp_path / "p.sqlite") as pool:
        recorded = pool.recorded("tiny_repeats/2")
    assert vote([sample.answer for sample in recorded.samples]).answer == "1,250"


def test_lm_eval_scores_of_single_responses_are_kept(tmp_path: Path):
    done = import_file(LM_EVAL, tmp_path / "p.sqlite", format="lm-eval")
    assert (done.problems, done.samples) == (8, 16)
    rows = [json.loads(text) for text in next(LM_EVAL.glob("samples_tiny_single_*")).read_text().splitlines()]
    with open_pool(tmp_path / "p.sqlite") as pool:
        for row in rows:
            (sample,) = pool.recorded(
                f"tiny_single/{row['doc_id']}", parameters=row["arguments"]["gen_args_0"]["arg_1"]
            ).samples
            assert sample.text == row["resps"][0][0]
            assert sample.correct == row["exact_match"]


def test_lm_eval_runs_of_the_same_task_are_put_together(tmp_path: Path):
    for date in ("2026-01-01T00-00-00.000001", "2026-01-02T00-00-00.000001"):
        for kind in ("samples_tiny_repeats", "results"):
            (source,) = LM_EVAL.glob(f"{kind}_*")
            shutil.copy(source, tmp_path / f"{kind}_{date}{source.suffix}")
    done = import_file(tmp_path, tmp_path / "p.sqlite", format="lm-eval")
    assert (done.problems, done.samples) == (4, 24)


def test_lm_eval_filters_that_find_an_answer_give_it(tmp_path: Path):
    row = {
        "doc_id": 3,
        "doc": {"level": "Level 2", "type": "Algebra"},
        "target": "He has 2 * 9 = 18.\n#### 18",
        "arguments": {"gen_args_0": {"arg_0": "Q: ?", "arg_1": {"temperature": 0.5}}},
        "resps": [["It is 18, or so"]],
        "filtered_resps": ["18"],
        "filter": "strict-match",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    }
    other = row | {"filter": "flexible-extract", "filtered_resps": ["[invalid]"], "exact_match": 0.0}
    lost = row | {"doc_id": 4, "filtered_resps": ["[invalid]"], "exact_match": 0.0}
    write(tmp_path / "samples_gsm_2026-01-01T00-00-00.000001.jsonl", [row, lost, other])
    import_file(tmp_path, tmp_path / "p.sqlite", format="lm-eval")
    with open_pool(tmp_path / "p.sqlite") as pool:
        found = pool.recorded("gsm/3")
        assert (found.problem.gold, found.problem.subject, found.problem.level) == (
            "18",
            "Algebra",
            "Level 2",
        )
        assert (found.samples[0].answer, found.samples[0].correct) == ("18", 1.0)
        assert set(found.samples[0].extra["lm_eval"]) == {"strict-match", "flexible-extract"}
        assert (pool.recorded("gsm/4").samples[0].answer, pool.recorded("gsm/4").model) == (None, None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: shutil.copy(
                next((FIXTURES / "lm_eval/dummy-model").glob("samples_*")), p / "samples_a.jsonl"
            ),
            "generate_until",
        ),
        (lambda p: write(p / "samples_a.jsonl", [line()]), "line 1: is not an lm-eval sample"),
        (lambda p: write(p / "samples_a.jsonl", [b"{"]), "line 1 is not JSON"),
        (lambda p: write(p / "samples_a.jsonl", [b""]), "holds no problem"),
        (lambda p: write(p / "a.jsonl", [line()]), "has no samples_"),
    ],
)
def test_what_is_no_lm_eval_log_is_refused(tmp_path: Path, make, message: str):
    make(tmp_path)
    with pytest.raises((RecordInvalid, NotAPool), match=message):
        import_file(tmp_path, tmp_path / "p.sqlite", format="lm-eval")
    assert not (tmp_path / "p.sqlite").exists()


@pytest.mark.parametrize("version", ["0.3.120", "0.3.285"])
def test_inspect_epochs_become_samples(tmp_path: Path, version: str):
    digests = []
    for suffix in (".eval", ".json"):
        done = import_file(
            INSPECT / f"tiny-{version}{suffix}", tmp_path / f"p{suffix}.sqlite", format="inspect"
        )
        assert (done.problems, done.samples, done.failures) == (4, 12, 0)
        with open_pool(tmp_path / f"p{suffix}.sqlite") as pool:
            assert pool.models == [("mockllm/model", {"max_tokens": 64, "temperature": 0.8})]
            first = pool.recorded("tiny/p1")
            assert first.problem.gold == "17"
            assert first.problem.level == 1
            assert [s.answer for s in first.samples] == ["17", "12", "17"]
            assert [s.correct for s in first.samples] == [1, 0, 1]
            assert [s.tokens for s in first.samples] == [43, 9, 2]
            parts = pool.recorded("tiny/p2")
            assert parts.samples[0].text == "90 / 6 = 15.\nANSWER: 15"  # without its reasoning
            assert parts.samples[2].finished is False
            listed = pool.recorded("tiny/p3")
            assert listed.problem.gold == "1250"
            assert listed.problem.extra["targets"] == ["1250", "1,250"]
            assert (
                pool.recorded("tiny/p4").problem.question
                == "It was -2 degrees, then 5 degrees colder. What is it now?"
            )
            assert pool.verify().ok
            digests.append(pool.digest())
    assert digests[0] == digests[1]


def test_inspect_logs_of_one_task_go_on_and_errors_are_failures(tmp_path: Path):
    log = json.loads((INSPECT / "tiny-0.3.285.json").read_text())
    log["samples"][0]["error"] = {"message": "boom", "traceback": "", "traceback_ansi": ""}
    log["samples"][1]["scores"]["match"]["value"] = float("nan")
    log["samples"][2]["output"]["choices"][0]["logprobs"] = {
        "content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]
    }
    (tmp_path / "a.json").write_text(json.dumps(log))
    done = import_file(tmp_path / "a.json", tmp_path / "p.sqlite", format="inspect")
    assert (done.samples, done.failures) == (11, 1)
    with open_pool(tmp_path / "p.sqlite") as pool:
        broken = pool.recorded("tiny/p1")
        assert [(f.index, f.kind, f.message) for f in broken.failures] == [(0, "error", "boom")]
        assert pool.keys(*pool.models[0]) >= {("tiny/p1", 1), ("tiny/p1", 2)}
        assert pool.recorded("tiny/p2").samples[0].correct == 1.0  # not scored there: graded here
        assert pool.recorded("tiny/p3").samples[0].logprob == -0.75
        assert pool.recorded("tiny/p3").samples[0].signals == Signals(tail=-0.375, window=-0.375)
    (tmp_path / "logs").mkdir()
    for name in ("a", "b"):
        shutil.copy(INSPECT / "tiny-0.3.120.eval", tmp_path / "logs" / f"{name}.eval")
    assert import_file(tmp_path / "logs", tmp_path / "q.sqlite", format="inspect").samples == 24


@pytest.mark.parametrize(
    ("scores", "correct"),
    [
        ({"other": 1.0, "acc": 1.0, "exact_match": 0.0}, 0.0),  # exact_match comes first, wherever it stands
        ({"pass@1": 1.0, "acc": 0.0}, 0.0),
        ({"wer": 0.1}, 1.0),  # less is better: no accuracy, so it is graded here
    ],
)
def test_lm_eval_takes_accuracies_alone_in_one_order(
    tmp_path: Path, scores: dict[str, float], correct: float
):
    row = {
        "doc_id": 3,
        "doc": {},
        "target": "18",
        "arguments": {"gen_args_0": {"arg_0": "Q: ?", "arg_1": {}}},
        "resps": [["The answer is 18."]],
        "filter": "none",
        "metrics": list(scores),
    }
    import_file(write(tmp_path / "samples_a.jsonl", [row | scores]), tmp_path / "p.sqlite", format="lm-eval")
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert [sample.correct for sample in pool.recorded("a/3").samples] == [correct]


def test_inspect_attachments_are_put_in_place_and_partial_grades_are_halves(tmp_path: Path):
    sample = {
        "id": 1,
        "epoch": 1,
        "input": "attachment://a",
        "target": "4",
        "output": {"choices": [{"message": {"content": "attachment://b"}}]},
        "scores": {"s": {"value": "P", "answer": "attachment://c"}},
        "attachments": {"a": "What is it?", "b": "It is four.", "c": "4"},
    }
    log = {"eval": {"task": "t", "model": "m"}, "samples": [sample]}
    (tmp_path / "a.json").write_text(json.dumps(log))
    import_file(tmp_path / "a.json", tmp_path / "p.sqlite", format="inspect")
    with open_pool(tmp_path / "p.sqlite") as pool:
        found = pool.recorded("t/1")
    assert found.problem.question == "What is it?"
    assert [(s.text, s.answer, s.correct) for s in found.samples] == [("It is four.", "4", 0.5)]


def packed(path: Path, members: dict[str, bytes], **options: int) -> Path:
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


HEADER = json.dumps({"eval": {"task": "t", "model": "m"}}).encode()
SAMPLE = json.dumps({"id": 1, "epoch": 1, "input": "?", "target": "4", "output": {}, "scores": {}}).encode()


def test_members_outside_the_samples_folder_are_not_read(tmp_path: Path):
    members = {
        "header.json": HEADER,
        "samples/1_epoch_1.json": SAMPLE,
        "../../etc/samples/x.json": b"{",
        "/samples/y.json": b"{",
        "samples/../z.json": b"{",
    }
    done = import_file(packed(tmp_path / "a.eval", members), tmp_path / "p.sqlite", format="inspect")
    assert (done.problems, done.samples) == (1, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.eval", "p.sqlite"]


def test_a_sample_whose_id_has_a_slash_is_read(tmp_path: Path):
    members = {
        "header.json": HEADER,
        "samples/1_epoch_1.json": SAMPLE,
        "samples/b/c_epoch_1.json": SAMPLE.replace(b'"id": 1', b'"id": "b/c"'),
    }
    import_file(packed(tmp_path / "a.eval", members), tmp_path / "p.sqlite", format="inspect")
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert [each.problem.id for each in pool] == ["t/1", "t/b/c"]


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bomb = packed(
        tmp_path / "a.eval", {"header.json": HEADER, "samples/1.json": b" " * 9_000_000}, compression=8
    )
    monkeypatch.setattr("adacompute.pool.importers.MEMBER_LIMIT", 1_000_000)
    with pytest.raises(PoolError, match=r"samples/1\.json has 9000000 bytes; at most 1000000 are read"):
        import_file(bomb, tmp_path / "p.sqlite", format="inspect")
    monkeypatch.setattr("adacompute.pool.importers.TOTAL_LIMIT", 1_000_000)
    with pytest.raises(PoolError, match="more than a log of its size has"):
        import_file(bomb, tmp_path / "p.sqlite", format="inspect")


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path):
    path = packed(
        tmp_path / "a.eval", {"header.json": HEADER, "samples/1.json": b" " * 5_000_000}, compression=8
    )
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises((PoolDamaged, RecordInvalid)):
        import_file(path, tmp_path / "p.sqlite", format="inspect")


@pytest.mark.parametrize("name", ["tiny-0.3.120.eval", "tiny-0.3.285.eval"])
def test_a_damaged_archive_is_never_taken_for_a_whole_one(tmp_path: Path, name: str):
    whole = (INSPECT / name).read_bytes()
    import_file(INSPECT / name, tmp_path / "good.sqlite", format="inspect")
    with open_pool(tmp_path / "good.sqlite") as pool:
        good = pool.digest()
    for i in range(30):
        damaged = bytearray(whole)
        damaged[len(whole) * i // 30] ^= 0x55
        (tmp_path / "a.eval").write_bytes(damaged if i % 3 else whole[: len(whole) * (i + 1) // 32])
        (tmp_path / "p.sqlite").unlink(missing_ok=True)
        try:
            import_file(tmp_path / "a.eval", tmp_path / "p.sqlite", format="inspect")
        except AdacomputeError as exc:
            assert "\n" not in str(exc)  # noqa: PT017 - most do, some don't matter
        else:
            with open_pool(tmp_path / "p.sqlite") as pool:
                assert pool.digest() == good, "a byte that doesn't matter"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.eval", b"no zip", "is not a zip archive"),
        ("a.json", b"[]", "is not a JSON object"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"{}", "names no model"),
        ("a.json", HEADER, "holds no 'samples'"),
        ("a.json", HEADER[:-1] + b', "samples": [{}]}', "lacks id, epoch, input or target"),
        (
            "a.json",
            HEADER[:-1] + b', "samples": [' + SAMPLE.replace(b'"epoch": 1', b'"epoch": 0') + b"]}",
            "epoch 0",
        ),
        ("a.json", HEADER[:-1] + b', "samples": [' + SAMPLE + b"," + SAMPLE + b"]}", "epoch 1 twice"),
        ("a.txt", b"", "unknown suffix"),
    ],
)
def test_what_is_no_inspect_log_is_refused(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((RecordInvalid, NotAPool), match=message):
        import_file(tmp_path / name, tmp_path / "p.sqlite", format="inspect")
