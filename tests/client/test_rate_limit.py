"""The rate limiter: never more at once, nor a minute, than allowed; first come, first served; adaptive."""

import asyncio
import itertools
import time

import pytest
from client_runs import BODY, run_client, run_draw
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.client import Client, Endpoint, RateLimits, Retries
from adacompute.client.rate_limit import Limiters, RateLimiter, SendGate, TokenBucket
from adacompute.errors import RateLimited
from upstream import Honest, Reply, Stall, Status, Upstream


class Clock(asyncio.SelectorEventLoop):
    """A real event loop whose time jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0]._when)
        super()._run_once()


def timed(coroutine) -> None:
    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(coroutine)


@given(
    per_minute=st.floats(1, 10_000),
    amounts=st.lists(st.floats(0, 500), min_size=1, max_size=60),
    gaps=st.lists(st.floats(0, 5), min_size=60, max_size=60),
)
def test_a_bucket_gives_no_more_than_its_rate_a_burst_and_one_that_is_too_large(per_minute, amounts, gaps):
    now, rate = 0.0, per_minute / 60
    bucket = TokenBucket(per_minute, now=now)
    taken: list[tuple[float, float]] = []
    for amount, gap in zip(amounts, gaps, strict=False):
        now += gap
        now += bucket.wait(amount, now=now) * (1 + 1e-9) + 1e-9
        assert bucket.wait(amount, now=now) == 0.0
        bucket.take(amount)
        taken.append((now, amount))
    for (i, (start, _)), (j, (end, _)) in itertools.combinations(enumerate(taken), 2):
        inside = sum(amount for _, amount in taken[i : j + 1])
        slack = max(1.0, rate) + max(amounts)
        assert inside <= (end - start) * rate + slack + 1e-3


@settings(deadline=None, max_examples=60)
@given(
    limit=st.integers(1, 12),
    lengths=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=40),
    per_minute=st.none() | st.floats(30, 3000),
    adaptive=st.booleans(),
    fates=st.lists(st.sampled_from(["well", "well", "pushed", "cancelled"]), min_size=40, max_size=40),
)
def test_never_more_at_once_than_allowed_and_all_get_their_turn(limit, lengths, per_minute, adaptive, fates):
    async def run() -> None:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(
            RateLimits(concurrency=limit, requests_per_minute=per_minute, adaptive=adaptive), loop=loop
        )
        inside = peak = served = 0
        entered: list[float] = []

        async def one(length: float, fate: str) -> None:
            nonlocal inside, peak, served
            await limiter.enter()
            began = loop.time()
            entered.append(began)
            inside += 1
            peak = max(peak, inside)
            try:
                await asyncio.sleep(length)
                if fate == "well":
                    limiter.report_success()
                elif fate == "pushed":
                    limiter.report_overload(began)
                assert 1 <= limiter.concurrency <= limit
            finally:
                inside -= 1
                served += 1
                limiter.leave()

        tasks = [asyncio.create_task(one(length, fate)) for length, fate in zip(lengths, fates, strict=False)]
        await asyncio.sleep(0.5)
        called_off = [task for task, fate in zip(tasks, fates, strict=False) if fate == "cancelled"]
        for task in called_off:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert peak <= limit
        assert served >= len(tasks) - len(called_off)
        assert limiter.in_flight == inside == 0
        if per_minute is not None and len(entered) > 1:
            allowed = (entered[-1] - entered[0]) * per_minute / 60 + max(1.0, per_minute / 60) + 1
            assert len(entered) <= allowed + 1e-6

    timed(run())


def test_first_come_first_served():
    async def run() -> None:
        limiter = RateLimiter(RateLimits(concurrency=1), loop=asyncio.get_running_loop())
        order: list[int] = []

        async def one(i: int) -> None:
            await limiter.enter()
            order.append(i)
            await asyncio.sleep(0.1)
            limiter.leave()

        await asyncio.gather(*map(one, range(20)))
        assert order == list(range(20))

    timed(run())


def test_a_turn_that_did_not_come_in_time_is_a_timeout_and_is_not_lost():
    async def run() -> None:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(RateLimits(concurrency=1), loop=loop)
        await limiter.enter()
        with pytest.raises(TimeoutError):
            await limiter.enter(until=loop.time() + 1.0)
        limiter.leave()
        await limiter.enter(until=loop.time() + 1.0)
        assert limiter.in_flight == 1

    timed(run())


def test_it_starts_with_a_few_doubles_a_round_halves_once_a_round_trip_then_creeps():
    async def run() -> None:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(RateLimits(concurrency=64), loop=loop)
        well = True

        async def worker() -> None:
            while True:
                await limiter.enter()
                began = loop.time()
                await asyncio.sleep(1.0)
                if well:
                    limiter.report_success()
                else:
                    limiter.report_overload(began)
                limiter.leave()

        async def rounds(count: int) -> list[int]:
            seen = []
            for _ in range(count):
                await asyncio.sleep(0.5)
                seen.append(limiter.in_flight)
                await asyncio.sleep(0.5)
            return seen

        workers = [asyncio.create_task(worker()) for _ in range(100)]
        await asyncio.sleep(0.25)  # so that it is in mid-flight that things change
        assert await rounds(5) == [8, 16, 32, 64, 64]
        well = False
        assert await rounds(2) == [64, 32]  # 64 complaints of one round halve it once
        well = True
        creeping = await rounds(6)
        assert creeping[0] == 16
        assert all(later - sooner in (0, 1, 2) for sooner, later in itertools.pairwise(creeping))
        assert creeping[-1] > creeping[0] + 2
        well = False
        assert (await rounds(12))[-1] == 1
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    timed(run())


def test_an_endpoint_that_is_not_kept_busy_teaches_nothing():
    async def run() -> None:
        limiter = RateLimiter(RateLimits(concurrency=64), loop=asyncio.get_running_loop())
        for _ in range(100):
            await limiter.enter()
            limiter.report_success()
            limiter.leave()
        assert limiter.concurrency == 8

    timed(run())


def test_nobody_enters_during_a_pause():
    async def run() -> None:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(RateLimits(concurrency=4), loop=loop)
        limiter.pause(loop.time() + 7.0)
        began = loop.time()
        await asyncio.gather(*(limiter.enter() for _ in range(4)))
        assert 7.0 <= loop.time() - began < 7.01

    timed(run())


def test_tokens_that_were_reserved_and_not_used_are_given_back():
    async def run() -> None:
        loop = asyncio.get_running_loop()
        limiter = RateLimiter(RateLimits(tokens_per_minute=6000), loop=loop)  # 100 a second
        began = loop.time()
        for _ in range(10):
            await limiter.enter(1000.0)
            limiter.leave(1000.0, used=100.0)
        assert 8.0 <= loop.time() - began <= 10.0
        await limiter.enter(100.0)
        limiter.leave(100.0, used=1000.0)  # more than was thought
        began = loop.time()
        await limiter.enter(100.0)
        assert loop.time() - began >= 9.0

    timed(run())


def test_a_real_server_sees_no_more_at_once_than_allowed():
    done = run_draw(Honest(n="ignore", latency=0.1), 40, limits=RateLimits(concurrency=5))
    assert done.up.count.peak == 5
    assert len(done.responses) == 40


def test_a_real_server_sees_no_more_requests_a_minute_than_allowed():
    limits = RateLimits(requests_per_minute=1200)  # 20 a second
    began = time.monotonic()
    done = run_draw(Honest(n="ignore"), 40, limits=limits)
    times = [request.at for request in done.up.requests]
    assert len(times) == 40
    # counted from before the first was sent: a busy machine makes them come late and in bunches, never early
    for number, at in enumerate(times, 1):
        assert number <= (at - began) * 20 + 20 + 1


def test_tokens_a_minute_slow_calls_down_and_true_counts_speed_them_up():
    limits = RateLimits(tokens_per_minute=60 * 400)
    done = run_draw(Honest(n="ignore", tokens=12), 30, {**BODY, "max_tokens": 200}, limits=limits)
    # reserved are 30 * (200 + prompt) > 6000 tokens, used 30 * (12 + prompt) < 1000
    assert len(done.responses) == 30
    assert done.seconds < 12.0  # what was reserved would take 14


def test_a_server_with_little_room_is_found_out_and_kept_busy():
    async def run() -> None:
        retries = Retries(attempts=50, first=0.01, longest=0.02)
        limits = RateLimits(concurrency=64)
        async with Client(Endpoint(url=up.url, limits=limits, retries=retries)) as client:

            async def worker() -> None:
                for _ in range(8):
                    await client.call(BODY)

            await asyncio.gather(*(worker() for _ in range(64)))
            assert client.concurrency < 48

    with Upstream(Honest(latency=0.01), room=16) as up:
        asyncio.run(run())
    assert up.count.completions == 512
    assert up.count.statuses[503] < 256  # most attempts were let in


def test_without_adapting_all_go_at_once():
    async def run(client, up):
        assert client.concurrency == 30
        await asyncio.gather(*(client.call(BODY) for _ in range(30)))

    done = run_client(Reply(delay=2.0), run, limits=RateLimits(concurrency=30, adaptive=False))
    assert done.up.count.peak == 30


def test_a_429_halves_what_runs_at_the_same_time():
    async def run(client, up):
        await asyncio.gather(*(client.call(BODY) for _ in range(8)))
        assert client.concurrency in (4, 5)  # 8 complaints of one round halved it once; it creeps up again

    run_client(lambda number, body: Status(code=429, delay=0.5) if number <= 8 else Reply(), run)


def test_a_model_that_asks_to_slow_down_holds_back_itself_only():
    def script(number, body):
        return (
            Status(code=429, message="slow down", retry_after=15) if body["model"] == "limited" else Reply()
        )

    async def run(client, up):
        limited = {**BODY, "model": "limited"}
        for said in ("slow down", None):  # the second call isn't sent, and nothing was said to it
            with pytest.raises(RateLimited) as caught:
                await client.call(limited, deadline=9.0)
            reply = caught.value.reply
            assert (None if reply is None else reply.fields["message"]) == said
            assert 10 < caught.value.retry_after <= 17
        assert (await client.call(BODY, deadline=9.0)).responses

    assert run_client(script, run).up.count.requests == 2


def test_a_model_that_hangs_takes_no_turns_from_others():
    async def run(client, up):
        hanging = [asyncio.create_task(client.call({**BODY, "model": "hangs"})) for _ in range(20)]
        while up.count.in_flight < 8:
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert (await client.call(BODY, deadline=60.0)).responses
        async with asyncio.timeout(60):  # a reply may be here before the upstream has counted it as done
            while up.count.in_flight != 8:
                await asyncio.sleep(0.01)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

    run_client(lambda number, body: Stall() if body["model"] == "hangs" else Reply(), run)


def test_all_models_together_stay_within_what_the_operator_allows():
    async def run(client, up):
        bodies = [{**BODY, "model": f"model {number % 5}"} for number in range(60)]
        await asyncio.gather(*(client.call(body) for body in bodies))

    done = run_client(Reply(delay=0.01), run, limits=RateLimits(concurrency=6))
    assert 5 <= done.up.count.peak <= 6


async def test_limiters_of_models_that_clients_make_up_take_no_memory():
    limiters = Limiters(RateLimits(), loop=asyncio.get_running_loop(), gate=SendGate())
    for number in range(1000):
        limiters.pick(f"model {number}").pause(float("inf"))
    assert limiters.pick("model 999").paused_until == float("inf")
    assert limiters.pick("model 0").paused_until < float("inf")
