"""The collector against the real model on this machine: killed, resumed, and its account."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adacompute.pool import open_pool

COMMAND = Path(sys.executable).parent / "adacompute"


@pytest.mark.nightly
def test_a_collection_from_the_real_model_is_killed_and_goes_on(local_model, tmp_path: Path):
    path = tmp_path / "pool.sqlite"
    words = [str(COMMAND), "collect", "facts", "--limit", "4", "--samples", "6", "--pool", str(path)]
    words += ["--endpoint", local_model.url, "--template", "answer-line", "--max-tokens", "16"]
    words += ["--concurrency", "2"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as collector:
        for _ in range(600):
            if path.exists() and samples(path):
                break
            time.sleep(0.05)
        collector.send_signal(signal.SIGKILL)
    before = samples(path)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "24 of 24 planned samples" in done.stdout
    with open_pool(path) as pool:
        assert pool.verify().ok
        (source,) = pool.models
        assert pool.keys(*source) == {(f"facts-{i:03}", j) for i in range(4) for j in range(6)}
        account = pool.account(*source)
        texts = [sample for recorded in pool for sample in recorded.samples]
    assert 0 < before <= 24
    assert account.got == 24
    assert account.completion_tokens == sum(sample.tokens for sample in texts), "usage of one choice is fixed"
    assert all(sample.logprob is not None and sample.logprob <= 0 for sample in texts)


def samples(path: Path) -> int:
    with open_pool(path) as pool:
        return pool.counts().samples


@pytest.mark.nightly
def test_samples_of_the_real_model_have_signals_of_their_answers(local_model, tmp_path: Path):
    path = tmp_path / "pool.sqlite"
    words = [str(COMMAND), "collect", "facts", "--limit", "3", "--samples", "2", "--pool", str(path)]
    words += ["--endpoint", local_model.url, "--template", "answer-line", "--max-tokens", "16"]
    words += ["--top-logprobs", "5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with open_pool(path) as pool:
        drawn = [sample for recorded in pool for sample in recorded.samples]
        signals = pool.ballots().signals
    assert signals is not None
    assert signals.shape[:2] == (3, 2)
    for sample in drawn:
        assert sample.signals is not None
        assert sample.signals.window <= sample.signals.tail <= 0
        assert sample.signals.confidence > 0
        if sample.answer is not None:  # the answer is written in the text, in these tokens
            assert sample.logprob - 1e-4 <= sample.signals.answer_sum <= sample.signals.answer_least <= 0
            assert sample.signals.answer_entropy >= 0
    assert any(sample.answer is not None for sample in drawn)
