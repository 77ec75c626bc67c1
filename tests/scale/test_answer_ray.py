"""Batches on Ray: the answers of one process, by collectors or by Ray's processors; vLLM's rows."""

import json
import math
import os
import subprocess
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from behaviours import Reply, Status
from collecting import asking, count, endpoint, problems, process, stored
from drawn_on_ray import COMMAND, SEEDED, Steady, exported
from http_engine import HttpEngine
from vllm_shaped import stages

from adacompute.client import Endpoint
from adacompute.errors import EngineUnavailable
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.problems import Template
from adacompute.sampling import Answers, Asking, SourcePlan, answer
from adacompute.sampling.plan import SampleRun
from adacompute.sampling.workers import SamplingEngine
from adacompute.scale.collect import RayEngine
from adacompute.scale.vllm import (
    ERROR_COLUMN,
    RowFeed,
    build_dataset,
    build_record,
    build_rows,
    build_vllm_config,
    build_vllm_processor,
    build_vllm_request,
    parse_vllm_row,
)
from upstream import Upstream

if TYPE_CHECKING:
    from adacompute.client.local import LocalModel


def run(
    path: Path, where: Endpoint | SamplingEngine, *, policy: Policy, budget: float | str, many: int
) -> Answers:
    with open_pool(path, create=True) as pool:
        plan = SourcePlan(endpoint=where, asking=asking(sampling=SEEDED))
        return answer(problems(many), pool, plan, policy=policy, budget=budget)


def digest(path: Path) -> str:
    with open_pool(path) as pool:
        assert pool.verify().ok
        return pool.digest()


@pytest.mark.usefixtures("on_ray")
def test_waves_on_the_cluster_end_where_one_process_does(tmp_path: Path):
    with Upstream(Steady()) as up:
        where = endpoint(up.url, concurrency=8)
        here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
        alone = run(here, where, policy=StoppingPolicy(), budget=2.0, many=12)
        both = run(there, RayEngine(endpoint=where, workers=2), policy=StoppingPolicy(), budget=2.0, many=12)
    assert both.rounds == alone.rounds > 2
    assert (both.each, both.price, both.spent) == (alone.each, alone.price, alone.spent)
    assert both.account == alone.account
    assert digest(there) == digest(here)


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_a_budget_in_tokens_holds_over_all_workers(tmp_path: Path):
    with Upstream(Steady()) as up:
        engine = RayEngine(endpoint=endpoint(up.url, concurrency=8), workers=2)
        done = run(tmp_path / "p.sqlite", engine, policy=StoppingPolicy(), budget="150 tokens", many=12)
    account = done.account
    assert done.stopped is None
    assert done.used == account.prompt_tokens + account.completion_tokens <= 12 * 150
    assert all(one.samples for one in done.each)
    assert done.spent > 12


@pytest.mark.usefixtures("on_ray")
def test_rays_processors_draw_the_same_wave_by_wave_and_a_row_that_fails_is_a_failure(tmp_path: Path):
    steady = Steady()

    def script(number: int, body: dict[str, Any]) -> Reply | Status:
        wrong = body["messages"][-1]["content"] == "What is 1 + 1?"
        return Status(code=400, message="not this one") if wrong else steady(number, body)

    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    how = {"policy": StoppingPolicy(), "budget": 2.0, "many": 4}
    with Upstream(script) as up:
        alone = run(here, endpoint(up.url, concurrency=4), **how)
        by_rows = run(there, HttpEngine(url=up.url, workers=1, width=4), **how)
    assert by_rows.rounds == alone.rounds > 1
    assert (by_rows.price, by_rows.spent, by_rows.account.got) == (alone.price, 8, 8)
    assert [replace(one, error=None) for one in by_rows.each] == [
        replace(one, error=None) for one in alone.each
    ]
    assert list(by_rows.failures) == list(alone.failures) == ["p1"]
    assert "not this one" in by_rows.failures["p1"]
    samples = [[line.get("samples") for line in exported(path)] for path in (here, there)]
    assert samples[0] == samples[1]


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_a_real_model_answers_through_rays_processors(tmp_path: Path, local_model: "LocalModel"):
    how = Asking(
        model=local_model.name,
        template=Template.named("plain"),
        sampling={"temperature": 0.7, "max_tokens": 6, "seed": 1},
        top_logprobs=3,
    )
    with open_pool(tmp_path / "pool.sqlite", create=True) as pool:
        plan = SourcePlan(endpoint=HttpEngine(url=local_model.url, workers=1, width=2), asking=how)
        done = answer(problems(2), pool, plan, policy=FixedPolicy(2), budget=2.0)
        samples = [sample for recorded in pool for sample in recorded.samples]
    assert (done.spent, done.failures) == (4, {})
    assert all(sample.text and 0 < (sample.tokens or 0) <= 7 for sample in samples)
    assert all((sample.logprob or 0.0) < 0.0 < (sample.entropy or 0.0) for sample in samples)
    assert done.account.completion_tokens == sum(sample.tokens or 0 for sample in samples)
    assert not any(sample.finished for sample in samples if sample.tokens == 6)


@pytest.mark.nightly
def test_a_batch_whose_driver_is_killed_goes_on_and_spends_its_budget_once(
    tmp_path: Path, ray_environ: dict[str, str], adacompute: Any
):
    (tmp_path / "in.csv").write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(24)))
    words = ["answer", "in.csv", "-o", "out.jsonl"]
    words += ["--budget", "2", "--policy", "fixed", "--concurrency", "4", "--model", "scripted", "--json"]
    how: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | ray_environ, "text": True}
    with process("--n", "ignore", "--latency", "0.1") as url:
        words += ["--template", "plain", "--endpoint", url]
        on_ray = [str(COMMAND), *words, "--engine", "ray", "--workers", "1"]
        with subprocess.Popen(on_ray, **how, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            while count(url)["completions"] < 15:
                assert driver.poll() is None
                time.sleep(0.05)
            driver.kill()
        done = adacompute(*words)  # on whatever engine
        told, served = json.loads(done.stdout), count(url)
    assert (told["samples"], told["stopped"]) == (48, None)
    assert 0 < told["added"] < 48
    assert 0 <= served["requests"] - told["calls"] <= 3 * 4
    with open_pool(tmp_path / "out.pool.sqlite") as pool:
        found = stored(pool)
    assert len(set(found.values())) == len(found) == 48
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 24
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.jsonl", "out.pool.sqlite"]


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_one_line_says_so_before_anything_is_done(adacompute: Any, tmp_path: Path):
    done = adacompute("answer", "no.csv", "-o", "o.jsonl", "--engine", "ray", "--vllm", "some/model", code=1)
    (line,) = done.stderr.splitlines()
    assert "vllm is not installed; pip install 'ray[llm]'" in line
    assert list(tmp_path.iterdir()) == []
    done = adacompute("answer", "no.csv", "-o", "o.jsonl", "--vllm", "some/model", code=2)
    assert "only --engine ray runs it" in done.stderr


ASKED = Asking(
    model="some/model",
    template=Template.named("plain"),
    sampling={"temperature": 0.5, "max_completion_tokens": 4, "seed": 7, "stop": ["END"]},
    top_logprobs=2,
)


def test_vllms_stages_get_the_rows_that_they_ask_for():
    from ray.llm._internal.batch.stages.chat_template_stage import ChatTemplateStage

    stage = ChatTemplateStage(fn_constructor_kwargs={}, map_batches_kwargs={})
    rows = list(build_rows([SampleRun(problems(1)[0], 3, 2)], ASKED))
    assert [(row["problem"], row["index"]) for row in rows] == [("p0", 3), ("p0", 4)]
    for row, seed in zip(rows, (10, 11), strict=True):
        given = build_vllm_request(row)
        assert set(stage.get_required_input_keys()) <= set(given)
        assert given["messages"] == ASKED.body(problems(1)[0])["messages"]
        assert given["sampling_params"] == {
            "temperature": 0.5,
            "max_tokens": 4,
            "seed": seed,
            "stop": ["END"],
            "logprobs": 2,
        }
        assert "model" not in given, "Ray would take it for an adapter"


@pytest.mark.parametrize("as_text", [False, True], ids=["as vLLM gives it", "as Arrow passes it on"])
def test_vllms_output_becomes_a_sample(as_text: bool):
    (row,) = build_rows([SampleRun(problems(1)[0], 0, 1)], ASKED)
    half, quarter = math.log(0.5), math.log(0.25)
    each: list[dict[Any, Any]] = [
        {11: {"logprob": half}, 12: {"logprob": quarter, "decoded_token": "It is "}},
        {12: {"logprob": half}, 11: {"logprob": half, "decoded_token": "4."}},
    ]
    if as_text:
        each = [{str(key): value for key, value in one.items()} | {"99": None} for one in each]
    output = {
        "generated_text": "It is 4.",
        "generated_tokens": [12, 11],
        "num_generated_tokens": 2,
        "num_input_tokens": 9,
        "logprobs": each,
        "time_taken_llm": 0.5,
    }
    drawn = build_record(parse_vllm_row(row | build_vllm_request(row) | output))
    ((index, sample),) = drawn.samples
    assert (drawn.problem_id, index, sample.text, sample.tokens) == ("p0", 0, "It is 4.", 2)
    assert sample.finished
    assert sample.logprob == pytest.approx(quarter + half)
    entropy = (1.5 * math.log(2) + math.log(2)) / 2  # {1/2, 1/4 and a rest of 1/4}, then {1/2, 1/2}
    assert sample.entropy == pytest.approx(entropy)
    assert sample.answer == "4"
    assert sample.signals is not None
    assert sample.signals.answer_sum == pytest.approx(half, abs=1e-6)
    assert sample.signals.tail == pytest.approx((quarter + half) / 2, abs=1e-6)
    (call,) = drawn.calls
    assert (call.prompt_tokens, call.completion_tokens, call.seconds, call.got) == (9, 2, 0.5, 1)
    cut = output | {"num_generated_tokens": 4, "logprobs": None}
    ((_, sample),) = build_record(parse_vllm_row(row | cut)).samples
    assert (sample.finished, sample.logprob, sample.entropy) == (False, None, None)


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_waves_pass_stages_shaped_as_vllms_and_none_waits_for_the_next():
    import ray
    from ray.llm._internal.batch.processor import Processor

    feed: Any = ray.remote(num_cpus=0)(RowFeed).remote()
    built = Processor(
        build_vllm_config("some/model", engines=1),
        stages(),
        preprocess=build_vllm_request,
        postprocess=parse_vllm_row,
    )
    first, *second = build_rows([SampleRun(problem, 0, 4) for problem in problems(1)], ASKED)
    found = []
    ray.get(feed.put.remote([first]))
    rows = built(build_dataset(feed)).iter_batches(
        batch_size=None, prefetch_batches=0, batch_format="pyarrow"
    )
    for row in (row for block in rows for row in block.to_pylist()):
        found.append(build_record(row))
        if len(found) == 1:  # a wave of one row came through by itself
            ray.get(feed.put.remote(second))
        if len(found) == 4:
            ray.get(feed.end.remote())
    told = {index: sample for one in found for index, sample in one.samples}
    assert {index: sample.text for index, sample in told.items()} == {
        0: "Answer: 7",
        1: "Answer: 8",
        3: "Answer: 10",
    }
    assert all(sample.logprob == -0.5 and (sample.entropy or 0) > 0 for sample in told.values())
    ((failure,),) = [one.failures for one in found if one.failures]
    assert (failure.index, failure.message) == (2, "ValueError: no room")
    assert sum(call.completion_tokens or 0 for one in found for call in one.calls) == 3


def test_a_row_that_vllm_could_not_draw_is_a_failure():
    (row,) = build_rows([SampleRun(problems(1)[0], 5, 1)], ASKED)
    drawn = build_record(row | {ERROR_COLUMN: "ValueError: the prompt is\ntoo long"})
    (failure,) = drawn.failures
    assert (failure.index, failure.kind, failure.message) == (
        5,
        "worker",
        "ValueError: the prompt is too long",
    )
    assert drawn.samples == ()
    assert drawn.calls[0].paid == "no"


def test_vllms_settings_are_those_that_waves_need():
    config = build_vllm_config("some/model", engines=2, options={"tensor_parallel_size": 2})
    assert (config.model_source, config.concurrency) == ("some/model", 2)
    assert config.batch_size == 1, "the last rows of a wave would wait for the next"
    assert config.should_continue_on_error
    assert config.engine_kwargs["tensor_parallel_size"] == 2
    assert config.engine_kwargs["enable_prefix_caching"]
    if find_spec("transformers") is None:
        with pytest.raises(
            EngineUnavailable, match="transformers is not installed"
        ):  # Ray's builder wants it
            build_vllm_processor(config)
