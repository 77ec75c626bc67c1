"""The recordings inside the package: whole, small, and what their cards say they are."""

import gzip
import json
from pathlib import Path

import pytest

from adacompute.errors import PoolNotFound
from adacompute.pool import bundled, bundled_names, open_pool
from tiers import leave_to_nightly

FOLDER = Path(__file__).parent.parent.parent / "src" / "adacompute" / "pool" / "recordings"
SOURCES = {
    "facts": "facts-smollm2-135m.jsonl.gz",
    "words": "words-qwen2.5-coder-1.5b.jsonl.gz",
    "facts-qwen": "modes/facts-qwen2.5-coder-1.5b.jsonl.gz",
    "words-direct": "modes/words-qwen2.5-coder-1.5b-direct.jsonl.gz",
}
SIZES = {"facts": (353, 64), "words": (441, 64), "facts-qwen": (353, 64), "words-direct": (441, 64)}


@pytest.mark.parametrize("name", leave_to_nightly(bundled_names()))
def test_a_recording_verifies_and_its_card_names_licence_model_digest_and_parameters(name: str):
    card = (FOLDER / f"{name}.md").read_text("utf-8")
    with bundled(name) as pool:
        assert pool.ballots().classes.shape == SIZES[name]
        assert pool.verify().ok
        digest = pool.digest()
        ((model, parameters),) = pool.models
    for part in ("Apache-2.0", digest, str(model).split("-Q4")[0], parameters["system"], "temperature 0.7"):
        assert part in card


@pytest.mark.parametrize("name", leave_to_nightly(bundled_names()))
def test_its_stored_classes_are_those_of_a_fresh_comparison(name: str):
    with bundled(name) as ours, open_pool(FOLDER / f"{name}.jsonl.gz") as fresh:
        same = [r.classes for r in ours] == [r.classes for r in fresh]
    target = f"src/adacompute/pool/recordings/{name}.jsonl.gz"
    assert same, f"run .venv/bin/python scripts/bundle.py {target} {target}"


def test_all_together_are_under_four_megabytes():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 4_000_000


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PoolNotFound, match=r"'math'.*facts, words"):
        bundled("math")
    with pytest.raises(PoolNotFound, match="facts, words"):
        bundled("../facts")


@pytest.mark.recordings
@pytest.mark.parametrize("name", leave_to_nightly(bundled_names()))
def test_a_recording_has_every_field_of_its_source(recordings: Path, name: str):
    with gzip.open(recordings / SOURCES[name], "rt", encoding="utf-8") as file:
        source = [json.loads(text) for text in file]
    with bundled(name) as pool:
        lines = list(pool.lines())
    for line in lines:
        assert line.pop("parameters")["temperature"] == 0.7
    assert lines == source


@pytest.mark.recordings
def test_every_recording_goes_in_and_out_unchanged(recordings: Path):
    for path in sorted(recordings.glob("*.jsonl.gz")):
        if path.name.startswith(("math500", "gsm8k")):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                source = [json.loads(text) for text in file]
            with open_pool(path) as pool:
                assert list(pool.lines()) == source
