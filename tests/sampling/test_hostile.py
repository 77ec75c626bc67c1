"""Odd replies, odd callers and odd moments: one of them takes nobody else's paid samples with it."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from collecting import asking, count, endpoint, plan, planned, problems, process, run, stored

from adacompute.errors import CollectError
from adacompute.pool import DrawnSamples, Pool, open_pool
from adacompute.problems import Template
from adacompute.records import Call, Problem, Sample, TokenPrices
from adacompute.sampling import Asking, SourcePlan, collect
from upstream import Garbage, Honest, Reply, Status, Upstream

COMMAND = Path(sys.executable).parent / "adacompute"


@pytest.fixture
def pool(tmp_path: Path):
    with open_pool(tmp_path / "pool.sqlite", create=True) as opened:
        yield opened


def reply(usage: str = "{}", logprobs: str = "null", text: str = "The answer is 2.") -> bytes:
    choice = f'{{"message": {{"content": "{text}"}}, "finish_reason": "stop", "logprobs": {logprobs}}}'
    return f'{{"choices": [{choice}], "usage": {usage}}}'.encode()


ODD = {
    "tokens beyond 64 bits": reply(usage='{"prompt_tokens": 18446744073709551615, "completion_tokens": 5}'),
    "negative tokens": reply(usage='{"prompt_tokens": -4, "completion_tokens": -1e300}'),
    "a log-probability beyond all": reply(
        logprobs='{"content": [{"token": "a", "logprob": -1' + "0" * 400 + "}]}"
    ),
    "a sum beyond all": reply(
        logprobs='{"content": [{"token": "a", "logprob": -1e308}, {"token": "b", "logprob": -1e308}]}'
    ),
    "half a pair": reply(text="half \\ud800 a pair"),
    "a NUL": reply(text="a \\u0000 b"),
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_reply_is_stored_like_the_others(pool: Pool, name: str):
    with Upstream(lambda number, _: Garbage(raw=ODD[name]) if number == 3 else Reply(choices=1)) as up:
        done = run(pool, up.url, count=8, samples=1)
    assert done.complete
    assert set(stored(pool)) == planned(8, 1)
    assert done.account.calls == up.count.requests
    assert done.added == 8
    assert pool.verify().ok


@pytest.mark.parametrize(
    "raw",
    [b'{"error": {"message": "bad \\ud800"}}', b'{"error": {"message": "n must be at most ' + b"9" * 5000],
)
def test_one_odd_refusal_fails_one_problem_alone(pool: Pool, raw: bytes):
    def script(_, body):
        bad = "3 + 3" in body["messages"][-1]["content"]
        return Garbage(raw=raw, code=400) if bad else Reply()

    with Upstream(script) as up:
        done = run(pool, up.url, count=8, samples=2)
    assert list(done.failures) == ["p3"]
    assert (done.stored, done.stopped) == (14, None)
    assert done.account.calls == up.count.requests
    assert pool.verify().ok


async def test_what_cant_be_stored_is_told_as_such_and_its_neighbours_are_kept(pool: Pool):
    bad = DrawnSamples(
        "p0", [(0, Sample(text="x", tokens=-5))], (), [Call(at=1.0, seconds=1.0, asked=1, got=1)]
    )
    good = DrawnSamples(
        "p1", [(0, Sample(text="The answer is 2."))], (), [Call(at=1.0, seconds=1.0, asked=1, got=1)]
    )

    pool.add_problems(problems(2))
    from adacompute.sampling.workers import PoolWriter

    writer = PoolWriter(pool, model="m", parameters={})
    futures = [writer.add(bad), writer.add(good)]
    await writer.close()
    first, second = [await future for future in futures]
    assert (first.samples, [f.kind for f in first.failures]) == ((), ["unstorable"])
    assert second.samples == good.samples
    assert pool.account("m").calls == 2
    assert pool.keys("m") == {("p1", 0)}


def test_one_refused_problem_of_many_samples_does_not_stop_the_others(pool: Pool):
    def script(_, body):
        bad = "3 + 3" in body["messages"][-1]["content"]
        return Status(code=400, message="maximum context length exceeded") if bad else Reply(choices=1)

    with Upstream(script) as up:
        done = run(pool, up.url, count=12, samples=16, concurrency=4)
    assert (done.stopped, list(done.failures)) == (None, ["p3"])
    assert done.stored == 11 * 16
    assert done.account.calls == up.count.requests


def test_a_limit_in_the_other_parameter_counts_for_max_cost(pool: Pool):
    prices = TokenPrices(output=10.0)
    sampling = {"max_tokens": 10, "max_completion_tokens": 400}
    with Upstream(Honest(n="ignore", tokens=400)) as up:
        run(pool, up.url, count=20, asking=asking(sampling=sampling), prices=prices, max_cost=0.05)
    assert 0 < prices.cost(0, up.count.completion_tokens) <= 0.05


def test_max_cost_is_of_all_calls_into_the_pool(pool: Pool):
    prices = TokenPrices(output=10.0)
    with Upstream(Honest(n="ignore", tokens=20)) as up:
        for temperature in (0.1, 0.2, 0.3):
            sampling = {"temperature": temperature, "max_tokens": 32}
            run(
                pool,
                up.url,
                count=20,
                asking=asking(sampling=sampling),
                prices=prices,
                max_cost=0.02,
                another=True,
            )
    assert prices.cost(0, up.count.completion_tokens) <= 0.02


def test_more_than_was_asked_for_is_reckoned_with_from_then_on(pool: Pool):
    prices = TokenPrices(output=10.0)
    with Upstream(Reply(choices=30, tokens=20)) as up:
        run(pool, up.url, count=40, samples=1, prices=prices, max_cost=0.05, concurrency=1)
    assert prices.cost(0, up.count.completion_tokens) <= 0.05


@pytest.mark.slow
def test_what_a_second_signal_gives_up_is_in_the_account(tmp_path: Path):
    path, source = tmp_path / "pool.sqlite", tmp_path / "problems.csv"
    source.write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(50)))
    with process("--n", "ignore", "--latency", "20") as url:
        words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", url]
        words += ["--concurrency", "3", "--output-price", "1", "--max-tokens", "7"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collector:
            for _ in range(600):
                if count(url)["in_flight"] == 3:
                    break
                time.sleep(0.05)
            collector.send_signal(signal.SIGINT)
            time.sleep(0.3)
            collector.send_signal(signal.SIGINT)
            _, err = collector.communicate(timeout=120)
        served = count(url)["requests"]
    assert collector.returncode == 130
    assert "finishing 3 calls in flight; Ctrl-C again gives them up" in err
    with open_pool(path) as pool:
        account = pool.account(*pool.models[0])
    assert (account.calls, account.maybe) == (served, served)
    assert account.maybe_completion_tokens == 7 * account.asked
    assert account.maybe_prompt_tokens > 0


@pytest.mark.slow
def test_two_signals_after_another_stop_still_end_it_in_order(tmp_path: Path):
    path, source = tmp_path / "pool.sqlite", tmp_path / "problems.csv"
    source.write_text("id,question\n" + "".join(f"p{i},What is {i}?\n" for i in range(50)))
    slow = Reply(delay=20)
    with Upstream(lambda number, _: Status(code=404, message="no such model") if number == 1 else slow) as up:
        words = [str(COMMAND), "collect", str(source), "--pool", str(path), "--endpoint", up.url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collector:
            while up.count.requests < 3:
                time.sleep(0.05)
            time.sleep(0.3)
            collector.send_signal(signal.SIGINT)
            time.sleep(0.3)
            collector.send_signal(signal.SIGINT)
            _, err = collector.communicate(timeout=120)
    assert "Traceback" not in err
    assert "no such model" in err
    assert collector.returncode == 130


def test_a_problem_given_twice_is_refused_before_anything_is_sent(pool: Pool):
    with Upstream() as up, pytest.raises(CollectError, match="the id 'p0' is there twice"):
        collect([*problems(2), problems(1)[0]], pool, plan(up.url))
    assert up.count.requests == 0


def test_it_runs_where_a_loop_runs_already(pool: Pool):
    async def notebook() -> bool:
        return run(pool, up.url).complete

    with Upstream() as up:
        assert asyncio.run(notebook())


def test_it_runs_in_any_thread(pool: Pool):
    found = []
    with Upstream() as up:
        thread = threading.Thread(target=lambda: found.append(run(pool, up.url, signals=(signal.SIGINT,))))
        thread.start()
        thread.join(30)
    assert found[0].complete


WRONG = {
    "problems as text": {"problems": "p.jsonl"},
    "problems of text": {"problems": ["What?"]},
    "a pool's path": {"pool": "p.sqlite"},
    "an address": {"endpoint": "http://127.0.0.1:9/v1"},
    "asking": {"asking": "m"},
    "no plan": {"plans": ["m"]},
    "a plan twice": {"plans": [plan("http://127.0.0.1:9/v1")] * 2},
    "samples": {"samples": 0},
    "max_cost": {"max_cost": "1", "prices": TokenPrices(output=1.0)},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named_in_one_line(pool: Pool, name: str):
    right = {"problems": problems(1), "pool": pool, "endpoint": endpoint("http://127.0.0.1:9/v1")}
    given = right | {"asking": asking(), "samples": 1} | WRONG[name]
    source = {name: given.pop(name) for name in ("endpoint", "asking", "samples", "prices") if name in given}
    plans = given.pop("plans", None)
    with pytest.raises(CollectError) as caught:
        collect(given.pop("problems"), given.pop("pool"), plans or SourcePlan(**source), **given)
    assert "\n" not in str(caught.value)
    assert "give" in str(caught.value)


def test_problems_may_come_as_they_are_read(pool: Pool):
    with Upstream() as up:
        made = (Problem(id=f"p{i}", question="?") for i in range(3))
        assert collect(made, pool, plan(up.url, samples=2)).complete


@pytest.mark.parametrize(
    "fields",
    [
        {"model": ""},
        {"model": None},
        {"template": "boxed"},
        {"sampling": None},
        {"top_logprobs": "3"},
        {"top_logprobs": 21},
        {"sampling": {"max_completion_tokens": 0}},
        {"sampling": {"template": "mine"}},
    ],
)
def test_what_cant_be_asked_is_said_at_once(fields):
    with pytest.raises(CollectError):
        Asking(**{"model": "m", "template": Template.named("plain")} | fields)


@pytest.mark.parametrize(
    "fields", [{"input": "3"}, {"output": -1}, {"input": float("nan")}, {"output": True}]
)
def test_prices_are_amounts(fields):
    with pytest.raises(CollectError, match="price"):
        TokenPrices(**fields)
