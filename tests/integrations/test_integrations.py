"""The adapters for other packages, each with the real package in an environment of its own."""

import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import environments
import pytest
from running import Process
from suite import plain_environment

from adacompute.client.local import LocalModel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Case = Callable[..., dict[str, Any]]
ASK_APP = """
from starlette.testclient import TestClient
import fastapi_app
with TestClient(fastapi_app.app, base_url="http://localhost") as client:
    message = {"role": "user", "content": "What is 6 times 7?"}
    reply = client.post("/llm/v1/chat/completions", json={"model": "gpt-4o-mini", "messages": [message]})
    assert reply.status_code == 200 and "42" in reply.text, reply.text
    print(client.get("/").json())
"""
MODEL = ROOT / "tests" / "compatibility" / "scripted_model.py"

ENVIRONMENTS = {"inspect_case.py": "current", "inspect_task.py": "current"}  # the others need openai 2

pytestmark = [  # the environment takes a minute or more to install; a busy machine takes its time
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """The address of a scripted model: right in three of four samples."""
    words = [sys.executable, str(MODEL), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which this checkout is installed, without what it depends on."""
    folder = tmp_path_factory.mktemp("package")
    options = "--quiet --disable-pip-version-check --no-deps --no-build-isolation --target"
    words = [sys.executable, "-m", "pip", "install", *options.split(), str(folder), str(ROOT)]
    subprocess.run(words, check=True, timeout=600)
    return folder


@pytest.fixture
def run_case(package: Path, tmp_path: Path) -> Case:
    """Runs a script in the adapters' environment, with this checkout's package, and says what it said."""
    return functools.partial(call_case, package=package, home=tmp_path)


@pytest.fixture
def run_example(package: Path, tmp_path: Path) -> Callable[..., str]:
    """What an example printed; an application answers one request."""

    def run(name: str, **environ: str) -> str:
        words = [str(ROOT / "examples" / f"{name}.py")]
        if name == "fastapi_app":
            words = ["-c", ASK_APP]
        done = call_python(words, plain_environment(str(tmp_path)) | environ, package=package, home=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


def call_python(
    words: list[str], environ: dict[str, str], *, package: Path, home: Path
) -> "subprocess.CompletedProcess[str]":
    """Runs Python in the adapters' environment."""
    name = ENVIRONMENTS.get(Path(words[0]).name, "integrations")
    try:
        program = environments.prepare(name)
    except environments.Absent as exc:
        pytest.skip(f"needs the environment {name!r}: {exc}")
    environ = environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT / 'examples'}"}
    return subprocess.run(
        [str(program), *words],
        env=environ, cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip


def call_case(name: str, *words: str, package: Path, home: Path, **environ: str) -> dict[str, Any]:
    """What a script said."""
    words = (str(HERE / f"{name}.py"), *words)
    done = call_python([*words], plain_environment(str(home)) | environ, package=package, home=home)
    assert done.returncode == 0, done.stderr[-4000:]
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def test_litellm_asks_votes_streams_and_counts_every_sample(model: str, run_case: Case, tmp_path: Path):
    facts = run_case("litellm_case", model)
    assert facts["right"] >= 17  # of 20; one sample of four is wrong
    assert max(facts["tokens"]) > 1.5 * min(facts["tokens"])  # some were asked more often than others
    assert facts["costs"] == pytest.approx(facts["priced"])
    assert facts["stream"]
    assert facts["stream_tokens"] > 0
    assert facts["tool"] == {"product": 91}
    assert facts["finish"] == "tool_calls"
    assert [json.loads(each) for each in facts["streamed_tools"]] == [{"product": 91}]
    assert all("112" in text for text in facts["async"])
    assert facts["errors"]["refused"][0] == 400
    assert "content management policy" in facts["errors"]["refused"][1]
    assert facts["errors"]["budget"][0] == 400
    assert facts["from_yaml"]


def test_inspect_draws_fewer_epochs_for_the_same_score(run_case: Case, tmp_path: Path):
    facts = run_case("inspect_case", str(tmp_path / "logs"))
    whole = facts["all"]
    assert whole["epochs"] == 30 * 16
    assert (
        whole["accuracy"] > facts["mode"]["accuracy"]
    )  # of right and wrong, where no wrong answer is common
    for name in ("adaptive", "few_at_once", "failing", "tried_again"):
        adaptive = facts[name]
        assert adaptive["manager"] == "adacompute"
        assert adaptive["epochs"] <= 2 * 4 * 30  # 30 samples tell the pacer little
        assert adaptive["least"] < adaptive["most"]
        assert adaptive["epochs"] + adaptive["stops"] == 30 * 16
        assert adaptive["told"]["epochs_saved"] == adaptive["stops"]
        if name != "failing":
            error = math.hypot(adaptive["stderr"], whole["stderr"])
            assert abs(adaptive["accuracy"] - whole["accuracy"]) <= 3 * error


def test_inspect_draws_fewer_epochs_of_the_local_model_for_the_same_score(
    local_model: LocalModel, run_case: Case, tmp_path: Path
):
    facts = run_case("inspect_task", str(tmp_path / "logs"), local_model.url, SAMPLES="12")
    whole, adaptive = facts["all"], facts["adaptive"]
    assert facts["samples"] == 12
    assert whole["epochs"] == 12 * 16
    assert adaptive["epochs"] <= 2 * 4 * 12
    assert adaptive["told"]["epochs_saved"] == whole["epochs"] - adaptive["epochs"]
    error = math.hypot(adaptive["stderr"], whole["stderr"])
    assert abs(adaptive["accuracy"] - whole["accuracy"]) <= 3 * error


def test_dspy_is_right_more_often_within_the_budget(model: str, run_case: Case, tmp_path: Path):
    facts = run_case("dspy_case", model)
    assert facts["voted"] > facts["single"]
    assert 1.5 <= facts["average"] <= 4
    assert facts["answer"] == "42"
    assert facts["samples"] == sum(facts["votes"].values())
    assert facts["async"] == "56"
    assert facts["typed"] == 42
    assert facts["traced"] >= 1


def test_lm_eval_votes_over_what_responses_mean(model: str, run_case: Case, tmp_path: Path):
    facts = run_case("lm_eval_case", model, str(tmp_path))
    right = {name: sum(match == 1.0 for _, match in rows) for name, rows in facts["found"].items()}
    assert right["ours"] > facts["single"]
    assert right["ours"] > right["theirs"]  # whose regex matches nothing, so that "[invalid]" wins
    assert {answer for (answer,), _ in facts["found"]["after"]} == {"[invalid]"}


def test_without_its_package_an_adapter_names_it():
    for name in ("litellm", "inspect_ai", "dspy", "lm_eval"):
        done = subprocess.run(
            [sys.executable, "-c", f"import adacompute.integrations.{name}"],
            env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert f"No module named '{name}" in done.stderr


def test_the_examples_with_fastapi_and_langchain_run(
    model: str, run_example: Callable[..., str], tmp_path: Path
):
    assert "/llm/v1/chat/completions" in run_example("fastapi_app", ENDPOINT=model)
    with Process(model, "--budget", "2") as gateway:
        said = run_example("langchain_chat", GATEWAY=gateway.url, MODEL="gpt-4o-mini")
    assert said.count("tokens)") == 3
