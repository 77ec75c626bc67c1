"""Traffic as a pool: what is kept of it, that nobody waits for it, and that nothing breaks it."""

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from adacompute.answers import Task
from adacompute.client import Response
from adacompute.errors import ConfigError, SourceAmbiguous
from adacompute.policies import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.serve.messages.reply import RequestOutcome
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.watching.recorder import RecordedRequest, Recorder, RowWriter, build_problem


def ask(question, *, n=1, **parameters):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    return ChatRequest(body={"model": "m", "messages": messages, **parameters}, prompt=question, n=n)


def told(*texts, **more):
    responses = tuple(
        Response(text=text, finish_reason="stop", tokens=5, logprob=-1.0, entropy=0.1) for text in texts
    )
    given = {
        "id": "chatcmpl-1",
        "at": 1.7e9,
        "seconds": 0.1,
        "key": "alice",
        "model": "m",
        "policy": "stopping",
        "mode": "adaptive",
        "budget": 2.0,
        "price": 0.01,
        "samples": len(texts),
        "agreement": 1.0,
    }
    return RequestOutcome(**(given | more), responses=responses)


def recorded(path, requests, task=None):
    """A recorder that has taken down these requests, closed."""

    async def main():
        recorder = await Recorder.open(path, task or Task())
        for one, asked in requests:
            recorder.record(one, asked)
        await recorder.close()
        return recorder

    return asyncio.run(main())


def test_a_request_is_a_problem_with_its_samples(tmp_path):
    path = tmp_path / "traffic.sqlite"
    asked = ask("What is 6 times 7?", temperature=0.7, seed=5, user="bob", logprobs=True, stream=True)
    recorder = recorded(path, [(told("The answer is 42.", "It is 41 or so"), asked)])
    assert (recorder.stored, recorder.dropped) == (1, 0)
    with open_pool(path) as pool:
        (record,) = list(pool)
        assert pool.verify().ok
    assert record.problem.id.startswith("req-")
    assert record.problem.question == "What is 6 times 7?"
    assert record.problem.subject is None
    assert record.problem.extra["messages"] == asked.body["messages"]
    assert (record.model, record.parameters) == ("m", {"temperature": 0.7})
    assert [sample.answer for sample in record.samples] == ["42", "41"]
    first = record.samples[0]
    assert (first.text, first.tokens, first.logprob, first.entropy, first.finished) == (
        *("The answer is 42.", 5, -1.0, 0.1),
        True,
    )
    assert first.extra["gateway"]["policy"] == "stopping"
    assert first.extra["gateway"]["price"] == 0.01
    assert "gateway" not in record.samples[1].extra


def test_the_same_question_adds_its_samples_after_those_stored(tmp_path):
    path = tmp_path / "traffic.sqlite"
    question = ask("What is 6 times 7?", temperature=0.7)
    recorded(path, [(told("42"), question), (told("41", "42"), question)])
    recorded(path, [(told("43"), question)])  # another gateway, later
    with open_pool(path) as pool:
        (record,) = list(pool)
    assert [sample.answer for sample in record.samples] == ["42", "41", "42", "43"]


def test_conversations_are_told_apart_and_models_do_not_matter():
    assert build_problem(ask("a")).id != build_problem(ask("b")).id
    assert build_problem(ask("a")).id == build_problem(ask("a", model="another", temperature=1.0)).id


def test_other_parameters_are_another_source_and_explored_requests_too(tmp_path):
    path = tmp_path / "traffic.sqlite"
    cool, hot = ask("2+2?", temperature=0.2), ask("2+2?", temperature=1.0)
    full = told("4", "4", explored=True)
    short = told("4", explored=True, missing=1)  # some didn't come: not a full draw
    recorded(path, [(told("4"), cool), (told("4"), hot), (full, hot), (short, hot)])
    with open_pool(path) as pool:
        found = {json.dumps(parameters, sort_keys=True) for _, parameters in pool.models}
        assert len(pool) == 1
        assert len(pool.recorded(build_problem(hot).id, "m", parameters={"temperature": 1.0}).samples) == 2
    assert found == {
        '{"temperature": 0.2}',
        '{"temperature": 1.0}',
        '{"explored": true, "temperature": 1.0}',
    }


def test_what_was_not_voted_on_or_was_left_is_not_recorded(tmp_path):
    path = tmp_path / "traffic.sqlite"
    requests = [
        (told("A poem.", agreement=None), ask("Write a poem")),
        (told("4", status=499), ask("2+2?")),
        (told(), ask("2+2?")),
    ]
    recorder = recorded(path, requests)
    assert (recorder.stored, recorder.dropped) == (0, 0)
    assert recorded(path, [(told("4", mode="shadow", would=3), ask("2+2?"))]).stored == 1


def test_half_a_surrogate_pair_and_odd_values_are_stored(tmp_path):
    path = tmp_path / "traffic.sqlite"
    odd = ask("caf\ud83d?", stop=["\udc00"], metadata={"a": 1}, logit_bias={"50256": -100})
    recorder = recorded(path, [(told("4\ud83d"), odd), (told("5"), ask("fine"))])
    assert (recorder.stored, recorder.dropped) == (2, 0)


def test_a_huge_conversation_is_kept_without_its_messages(tmp_path):
    path = tmp_path / "traffic.sqlite"
    recorder = recorded(path, [(told("4"), ask("x" * 300_000))])
    assert recorder.stored == 1
    with open_pool(path) as pool:
        (problem,) = list(pool.problems())
    assert "messages" not in problem.extra
    assert problem.extra["messages_bytes"] > 300_000


def test_a_request_that_cannot_be_stored_takes_no_other_with_it(tmp_path):
    path = tmp_path / "traffic.sqlite"
    bad = ChatRequest(body={"model": "m", "messages": [], "stop": object()}, prompt="bad")
    worse = told("4")
    worse = dataclasses.replace(worse, responses=(Response(text="4", tokens=-5),))
    recorder = recorded(
        path, [(told("4"), ask("a")), (told("4"), bad), (worse, ask("b")), (told("4"), ask("c"))]
    )
    assert (recorder.stored, recorder.dropped) == (2, 2)


def test_a_pool_that_another_writes_to_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "traffic.sqlite"
    with (
        open_pool(path, create=True, write=True),
        pytest.raises(ConfigError, match=r"is writing to it.*another pool"),
    ):
        asyncio.run(Recorder.open(path, Task()))


@pytest.mark.parametrize("name", ["traffic.jsonl", "missing/traffic.sqlite", "other.sqlite"])
def test_a_pool_that_cannot_be_written_is_refused_at_the_start(tmp_path, name):
    (tmp_path / "other.sqlite").write_text("no pool at all")
    with pytest.raises(ConfigError, match="record"):
        asyncio.run(Recorder.open(tmp_path / name, Task()))


def test_rows_that_another_process_hands_over_are_stored_as_if_they_were_recorded_here(tmp_path):
    requests = [
        (told("It is 4.", "5"), ask("What is 2 + 2?")),
        (told("6", explored=True), ask("What is 3 + 3?", temperature=0.3)),
        (told("no answer", agreement=0.0), ask("Who?", tools=[{"type": "function"}])),
    ]
    recorded(tmp_path / "here.sqlite", requests)
    lines = []

    async def main():
        writer = RowWriter(Task(), lambda row: lines.append(msgspec.json.encode(row)))
        for one, asked in requests:
            writer.record(one, asked)
        writer.record(told("7", model=object()), ask("What can't be sent?"))
        await writer.close()
        recorder = await Recorder.open(tmp_path / "there.sqlite", Task())
        for line in lines:
            recorder.enqueue(msgspec.json.decode(line, type=RecordedRequest))
        await recorder.close()
        return writer.dropped, recorder.stored

    assert asyncio.run(main()) == (1, 3)
    with open_pool(tmp_path / "here.sqlite") as here, open_pool(tmp_path / "there.sqlite") as there:
        assert here.digest() == there.digest()


def test_a_pool_of_another_task_is_refused(tmp_path):
    path = tmp_path / "traffic.sqlite"
    recorded(path, [])
    with pytest.raises(ConfigError, match="boxed"):
        asyncio.run(Recorder.open(path, Task("boxed")))


@pytest.mark.slow
def test_a_pool_that_is_held_drops_and_counts_and_nobody_waits(tmp_path, caplog):
    path = tmp_path / "traffic.sqlite"

    async def main():
        recorder = await Recorder.open(path, Task())
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # another process in the middle of a long write
            begun = time.thread_time()
            for i in range(3_000):
                recorder.record(told("4"), ask(f"{i}?"))
            spent = time.thread_time() - begun
            other.execute("ROLLBACK")
        await recorder.close()
        return recorder, spent

    with caplog.at_level(logging.WARNING):
        recorder, spent = asyncio.run(main())
    assert spent < 3  # a millisecond each, at the very most
    assert recorder.dropped >= 1_500
    assert recorder.stored + recorder.dropped == 3_000
    assert len([record for record in caplog.records if "recording" in record.message]) == 1
    with open_pool(path) as pool:
        assert len(pool) == recorder.stored


def test_texts_that_wait_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("adacompute.serve.watching.recorder._MAX_CHARACTERS", 10_000)
    path = tmp_path / "traffic.sqlite"
    texts = [(told("The answer is 4. " * 300), ask(f"{i}?")) for i in range(50)]
    recorder = recorded(path, texts)
    assert recorder.dropped >= 40
    assert recorder.stored + recorder.dropped == 50


def test_a_full_disk_drops_and_recording_goes_on_when_there_is_room(small_disk):
    folder = small_disk("2m")
    path, ballast = folder / "traffic.sqlite", folder / "ballast"

    async def stored(recorder, count):
        end = time.monotonic() + 20
        while recorder.stored + recorder.dropped < count and time.monotonic() < end:
            await asyncio.sleep(0.02)

    async def main():
        recorder = await Recorder.open(path, Task())
        recorder.record(told("4"), ask("before"))
        await stored(recorder, 1)
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(b"x" * 4_096)
                file.flush()
        recorder.record(told("y " * 200_000 + "4"), ask("while"))
        await stored(recorder, 2)
        dropped = recorder.dropped
        ballast.unlink()
        recorder.record(told("4"), ask("after"))
        await stored(recorder, 3)
        await recorder.close()
        return recorder, dropped

    recorder, dropped = asyncio.run(main())
    assert (dropped, recorder.stored) == (1, 2)
    with open_pool(path) as pool:
        assert pool.verify().ok
        with_samples = [record.problem.question for record in pool if record.samples]
    assert with_samples == ["before", "after"]


@pytest.mark.slow
def test_kill_9_leaves_a_sound_pool_that_can_be_recorded_into(tmp_path):
    path = tmp_path / "traffic.sqlite"
    program = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_recorder import Recorder, Task, ask, told

async def main():
    recorder = await Recorder.open(Path(sys.argv[1]), Task())
    for i in range(1_000_000):
        recorder.record(told("4", "5"), ask(f"{i}?"))
        await asyncio.sleep(0.001)
        if recorder.stored > 20:
            print(recorder.stored, flush=True)

asyncio.run(main())
"""
    words = [sys.executable, "-c", program, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        stored = int(process.stdout.readline())
        time.sleep(0.03)
        os.kill(process.pid, signal.SIGKILL)
    assert recorded(path, [(told("6"), ask("0?"))]).stored == 1
    with open_pool(path) as pool:
        assert pool.verify().ok
        found = [record for record in pool if record.samples]
    assert len(found) >= stored
    assert [sample.answer for sample in found[0].samples] == ["4", "5", "6"]


def test_fit_learns_from_explored_traffic_and_says_which_sources_there_are(tmp_path):
    path = tmp_path / "traffic.sqlite"
    requests = []
    for i in range(20):
        asked = ask(f"What is {i} + {i}?", temperature=0.7)
        texts = [str(2 * i) if (i + j) % 3 else str(j) for j in range(4)]
        requests += [(told(*texts, explored=True), asked), (told(*texts[: 1 + i % 3]), asked)]
    assert recorded(path, requests).stored == 40
    chosen = {"temperature": 0.7, "explored": True}
    with open_pool(path) as pool:
        with pytest.raises(SourceAmbiguous, match=r'\{"explored": true, "temperature": 0.7\}'):
            pool.ballots("m")
        ballots = pool.ballots("m", parameters=chosen)
    assert set(ballots.drawn) == {4}
    assert StoppingPolicy(longest=4).fit(ballots).longest == 4  # without labels: there are none
