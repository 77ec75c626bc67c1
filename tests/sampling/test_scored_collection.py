"""Collections with a verifier: its scores are in the pool, and what it fails at is collected all the same."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from collecting import asking, run

from adacompute.client.verifier import Verifier, build_verifier
from adacompute.config import EndpointConfig, VerifierConfig
from adacompute.errors import CollectError
from adacompute.pool import Pool, open_pool
from adacompute.records import SIGNAL_NAMES
from adacompute.sampling import SourcePlan
from upstream import Garbage, Honest, Reply, Stall, Status, Upstream


@pytest.fixture
def pool(tmp_path: Path):
    with open_pool(tmp_path / "pool.sqlite", create=True) as opened:
        yield opened


def verifier(up: Upstream, *, model: str = "") -> Verifier:
    url = up.url if model else f"http://127.0.0.1:{up.port}{up.path}"
    built = build_verifier(VerifierConfig(url=url, model=model, timeout=2.0), EndpointConfig())
    assert built is not None
    return built


def scores(pool: Pool) -> list[float | None]:
    return [
        None if sample.signals is None else sample.signals.score
        for recorded in pool
        for sample in recorded.samples
    ]


@pytest.mark.parametrize("manners", [Honest(), Honest(n="ignore"), Honest(logprobs="refuse")])
def test_every_sample_with_an_answer_is_scored_once_and_stored_with_its_score(pool, manners):
    given = iter(range(1, 1000))

    def script(number, body):
        return Reply(body={"score": float(next(given))})

    with Upstream(manners) as up, Upstream(script, path="/score") as judge:
        done = run(pool, up.url, count=3, samples=5, verifier=verifier(judge))
        assert done.complete
        again = run(pool, up.url, count=3, samples=5, verifier=verifier(judge))
    found = scores(pool)
    assert sorted(found) == [float(number) for number in range(1, 16)]
    assert done.verifier == {"calls": 15, "failed": 0, "tokens": 0, "why": None}
    assert again.verifier is None
    signals = pool.ballots().signals
    assert signals is not None
    assert signals[:, :, SIGNAL_NAMES.index("score")].ravel().tolist() == found


@pytest.mark.parametrize("fault", [Status(code=500), Garbage(), Reply(body={"score": "high"})])
def test_a_verifier_that_fails_costs_the_scores_and_no_sample(pool, fault):
    with Upstream() as up, Upstream(fault, path="/score") as judge:
        done = run(pool, up.url, count=2, samples=3, verifier=verifier(judge))
    assert done.complete
    assert scores(pool) == [None] * 6
    assert done.verifier["failed"] == done.verifier["calls"] == 6
    assert done.verifier["why"]


def test_what_a_judging_model_costs_is_told_and_not_in_the_pools_account(pool):
    verdict = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "No"}}
    usage = {"prompt_tokens": 50, "completion_tokens": 1, "total_tokens": 51}
    with Upstream() as up, Upstream(Reply(body={"choices": [verdict], "usage": usage})) as judge:
        done = run(pool, up.url, count=2, samples=2, verifier=verifier(judge, model="judge"))
        assert done.account.completion_tokens == up.count.completion_tokens
    assert done.verifier["tokens"] == 4 * 51
    assert scores(pool) == [-1.0] * 4


def test_an_engine_elsewhere_has_no_verifier(pool):
    class Elsewhere:
        width = 1

        def open_sampler(self, *_, **__): ...

    with Upstream() as up, pytest.raises(CollectError, match="--engine local"):
        SourcePlan(endpoint=Elsewhere(), asking=asking(), verifier=verifier(up, model="judge"))


def test_a_second_interrupt_stores_the_samples_that_are_being_scored(pool):
    with Upstream(Honest()) as up, Upstream(Stall(), path="/score") as judge:
        patient = build_verifier(
            VerifierConfig(url=f"http://127.0.0.1:{judge.port}/score", timeout=60.0), EndpointConfig()
        )

        def interrupt_twice() -> None:
            end = time.monotonic() + 30
            while not judge.count.requests and time.monotonic() < end:
                time.sleep(0.01)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)

        thread = threading.Thread(target=interrupt_twice)
        thread.start()
        done = run(pool, up.url, count=1, samples=5, verifier=patient, signals=(signal.SIGINT,))
        thread.join()
        assert done.stopped == "signal"
        assert len(scores(pool)) == up.count.choices == 5
