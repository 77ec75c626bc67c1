"""The recordings beside the checkout, with the signals of their tokens where those were measured."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adacompute.pool import Ballots, open_pool
from adacompute.records import SIGNAL_NAMES

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT.parent / "shared" / "recordings"

# the names of signals in the files beside the recordings
_FILE_KEYS: Mapping[str, str] = {
    "tail": "tail",
    "window": "win",
    "answer_sum": "ans",
    "answer_least": "ansm",
    "answer_entropy": "anse",
    "confidence": "conf",
    "confidence_tail": "ctail",
    "confidence_window": "cwin",
    "score": "yes",
}


def read_recordings(folder: Path = FOLDER) -> dict[str, Ballots]:
    """Every recording by its short name: what comes before the model's."""
    recordings = {}
    for file in sorted(folder.glob("*.jsonl.gz")):
        with open_pool(file) as pool:
            short = file.name.split("-qwen")[0].split("-smollm")[0].split("-r1")[0]
            recordings[short] = pool.ballots()
    return recordings


def read_signals(name: str, ballots: Ballots, folder: Path = FOLDER) -> Ballots:
    """The first samples of a recording, those whose signals were measured, with them."""
    with gzip.open(folder / "signals" / f"signals-{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        scores = {line["id"]: line["scores"] for line in map(json.loads, lines)}
    rows = [row for row, id_ in enumerate(ballots.ids) if id_ in scores]
    kept = ballots.only(rows)
    count = min(len(scores[id_]) for id_ in kept.ids)
    signals = np.full((len(rows), count, len(SIGNAL_NAMES)), np.nan)
    for row, id_ in enumerate(kept.ids):
        for column, score in enumerate(scores[id_][:count]):
            signals[row, column] = [_read(score, _FILE_KEYS[name]) for name in SIGNAL_NAMES]
    first = {
        name: getattr(kept, name)[:, :count]
        for name in ("classes", "correct", "tokens", "logprob", "entropy")
    }
    return replace(kept, **first, signals=signals)


def _read(score: Mapping[str, Any], key: str) -> float:
    value = score.get(key)
    return np.nan if value is None else float(value)
