"""Ray as commands find it: a cluster that is named, one of our own, and none."""

import os
import signal
import subprocess
import sys

import pytest

from adacompute.errors import EngineUnavailable, ScaleError
from adacompute.scale.cluster import cluster


def test_the_cluster_that_the_environment_names_is_used(
    ray_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    import ray

    for name, value in ray_environ.items():
        monkeypatch.setenv(name, value)
    polite = signal.getsignal(signal.SIGTERM)
    with cluster() as workers:
        assert signal.getsignal(signal.SIGTERM) == polite  # Ray sets its own
        assert workers == 4
        assert ray.get_runtime_context().gcs_address == ray_environ["RAY_ADDRESS"]
    assert not ray.is_initialized()
    with cluster(2) as workers:
        assert workers == 2


@pytest.mark.nightly
def test_without_one_a_cluster_is_started_here_and_ended(tmp_path):
    code = (
        "from adacompute.scale.cluster import cluster\n"
        "import ray\n"
        "with cluster(1) as workers:\n"
        "    print(workers, ray.cluster_resources()['CPU'])\n"
        "print(ray.is_initialized())\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.split() == ["1", "1.0", "False"], done.stderr


def test_an_address_where_nobody_answers_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(EngineUnavailable, match=r"RAY_ADDRESS '127\.0\.0\.1:1'"), cluster():
        raise AssertionError


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True])
def test_workers_are_a_whole_number(wrong: object):
    with pytest.raises(ScaleError, match="give a whole number from 1 up"), cluster(wrong):  # type: ignore[arg-type]
        raise AssertionError
