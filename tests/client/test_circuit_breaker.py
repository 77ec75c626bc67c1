"""The circuit breaker: opens on transport errors and 5xx only, recovers by one probe at a time (c07)."""

import asyncio

import pytest
from client_runs import BODY, CountedClient, endpoint, run_client
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client import BreakerSettings, Client, Retries, Timeouts
from adacompute.client.rate_limit import Breakers, CircuitBreaker
from adacompute.client.server_quirks import describe_kind
from adacompute.errors import EndpointError, EndpointResting
from upstream import Drop, Garbage, Reply, Stall, Status, Upstream

ONCE = Retries(attempts=1, first=0.02, deadline=5.0)
QUICK = BreakerSettings(failures=3, seconds=0.3, longest=1.0)
SHORT = Timeouts(first_byte=1.0, total=1.5)


async def outcomes(client, count: int) -> list[str]:
    found = []
    for _ in range(count):
        try:
            await client.call(BODY)
            found.append("ok")
        except EndpointError as error:
            found.append(error.kind)
    return found


@pytest.mark.parametrize(
    "fault", [Status(code=500), Status(code=503), Drop(), Drop(after=150, reset=True), Stall()]
)
def test_c07_it_opens_after_so_many_transport_errors_or_5xx_in_a_row(fault):
    async def run(client, up):
        *failed, resting = await outcomes(client, 4)
        assert "resting" not in failed
        assert resting == "resting"
        with pytest.raises(EndpointResting, match="left alone") as caught:
            await client.call(BODY, deadline=0.05)
        assert not caught.value.paid

    breaker = BreakerSettings(failures=3, seconds=30.0)
    done = run_client(fault, run, breaker=breaker, retries=ONCE, timeouts=SHORT)
    assert done.up.count.requests == 3


@pytest.mark.parametrize("fault", [Status(code=code) for code in (400, 401, 404, 408, 429)] + [Garbage()])
def test_c07_it_never_opens_on_4xx_429_or_garbage(fault):
    async def run(client, up):
        assert "resting" not in await outcomes(client, 12)

    assert run_client(fault, run, breaker=QUICK, retries=ONCE).up.count.requests == 12


def test_c07_it_never_opens_on_cancels_nor_on_deadlines_that_callers_set():
    calm = [False]

    async def run(client, up):
        for _ in range(6):
            task = asyncio.create_task(client.call(BODY))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        for _ in range(6):
            with pytest.raises(EndpointError) as caught:
                await client.call(BODY, deadline=0.02)
            assert caught.value.kind == "timeout"
        calm[0] = True
        assert await outcomes(client, 1) == ["ok"]

    run_client(lambda number, body: Reply() if calm[0] else Stall(), run, breaker=QUICK, retries=ONCE)


def test_c07_successes_between_failures_keep_it_closed():
    def script(number, body):
        return Reply() if number % 3 == 0 else Status(code=500)

    async def run(client, up):
        assert "resting" not in await outcomes(client, 30)

    run_client(script, run, breaker=QUICK, retries=ONCE)


def test_c07_while_it_is_open_one_probe_goes_and_on_its_success_the_others_follow_gently():
    broken = [True]

    def script(number, body):
        return Status(code=500) if broken[0] else Reply(delay=0.05)

    async def run(client, up):
        assert set(await outcomes(client, 3)) == {"server-error"}
        broken[0] = False
        replies = await asyncio.gather(*(client.call(BODY) for _ in range(30)))
        assert len(replies) == 30
        failed, *times = sorted(request.at for request in up.requests)[2:]
        assert times[0] - failed >= 0.25  # the rest was kept
        assert times[1] - times[0] >= 0.045  # the probe was alone
        soon = [at for at in times if at - times[0] < 0.095]
        assert len(soon) <= 3  # then two at once, then four: no herd

    run_client(script, run, breaker=QUICK, retries=Retries(attempts=1, deadline=60.0))


def test_c07_a_probe_that_fails_doubles_the_rest():
    async def run(client, up):
        await outcomes(client, 3)
        with pytest.raises(EndpointError):
            await client.call(BODY, deadline=30.0)
        with pytest.raises(EndpointResting):
            await client.call(BODY, deadline=0.1)  # far below the doubled rest: a busy machine stalls
        with pytest.raises(EndpointError):
            await client.call(BODY, deadline=30.0)
        first, second = (request.at for request in list(up.requests)[3:])
        assert second - first >= 1.98

    slow = BreakerSettings(failures=3, seconds=1.0, longest=8.0, patience=10.0)
    run_client(Status(code=500), run, breaker=slow, retries=Retries(attempts=1, deadline=30.0))


def test_c07_an_endpoint_that_stays_dead_is_given_up_after_as_many_probes_as_a_call_has_attempts():
    async def run(client, up):
        rest = await asyncio.gather(*(client.call(BODY) for _ in range(8)), return_exceptions=True)
        assert all(isinstance(error, EndpointError) for error in rest)

    retries = Retries(attempts=3, first=0.01, longest=0.02, deadline=60.0)
    done = run_client(
        Status(code=500), run, breaker=BreakerSettings(failures=3, seconds=0.05, longest=0.2), retries=retries
    )
    assert done.up.count.requests <= 20


def test_c07_a_probe_that_is_cancelled_leaves_the_probe_to_another():
    def script(number, body):
        return Status(code=500) if number <= 3 else Stall() if number == 4 else Reply()

    async def run(client, up):
        await outcomes(client, 3)
        probe = asyncio.create_task(client.call(BODY))
        while up.count.requests < 4:
            await asyncio.sleep(0.01)
        waiting = asyncio.create_task(client.call(BODY))
        await asyncio.sleep(0.05)
        assert up.count.requests == 4
        probe.cancel()
        assert (await waiting).responses

    run_client(script, run, breaker=QUICK, retries=Retries(attempts=1, deadline=5.0))


async def test_c07_it_recovers_when_a_server_that_was_gone_is_back():
    with Upstream() as gone:
        port = gone.port

    upstream = endpoint(gone.url, breaker=QUICK, retries=Retries(attempts=1000, first=0.02, longest=0.05))
    async with CountedClient(upstream) as client:
        asking = [asyncio.create_task(client.call(BODY)) for _ in range(10)]
        await asyncio.sleep(0.2)
        with Upstream(port=port) as back:
            await asyncio.gather(*asking)
            assert back.count.completions == 10
        assert client.totals.kinds["unreachable"] >= 3
        assert client.totals.maybe == 0


@given(st.lists(st.sampled_from(["worked", "failed", "unknown", "wait"]), max_size=60), st.integers(1, 5))
def test_it_is_open_exactly_after_so_many_failures_in_a_row_and_lets_one_probe_through(events, failures):
    class Clock:
        now = 0.0

        def time(self) -> float:
            return self.now

    clock = Clock()
    breaker = CircuitBreaker(BreakerSettings(failures=failures, seconds=1.0, longest=8.0), loop=clock)  # type: ignore[arg-type]
    row = 0
    for event in events:
        if event == "wait":
            clock.now += 10.0  # longer than the longest rest
            continue
        closed = breaker.closed
        assert closed == (row < failures)
        if not breaker.try_pass():
            assert not closed
            continue
        if not closed:
            assert not breaker.try_pass()  # the probe is alone
        turn = breaker.generation
        if event == "worked":
            breaker.report_success(turn)
            row = 0
        elif event == "failed":
            breaker.report_failure(turn)
            row = row + 1
        else:
            breaker.report_unknown(turn)


async def test_reports_of_calls_from_before_an_opening_change_nothing():
    breaker = CircuitBreaker(BreakerSettings(failures=1), loop=asyncio.get_running_loop())
    turn = breaker.generation
    assert breaker.report_failure(turn)
    assert not breaker.report_success(turn)
    assert not breaker.report_failure(turn)
    assert not breaker.closed


async def test_a_breaker_is_waited_for_only_until_the_given_time():
    loop = asyncio.get_running_loop()
    breaker = CircuitBreaker(BreakerSettings(failures=1, seconds=0.05), loop=loop)
    breaker.report_failure(breaker.generation)
    with pytest.raises(EndpointResting):
        await breaker.wait_until_ready(loop.time(), probes=9)
    await asyncio.wait_for(breaker.wait_until_ready(float("inf"), probes=9), 30)
    assert breaker.try_pass()


def test_a_call_with_little_patience_is_not_kept_waiting_and_learns_when_to_come_back():
    async def run(client, up):
        for _ in range(3):
            with pytest.raises(EndpointError):
                await client.call(BODY)
        began = asyncio.get_running_loop().time()
        with pytest.raises(EndpointResting) as refused:
            await client.call(BODY)
        assert asyncio.get_running_loop().time() - began < 50.0
        assert 0 < refused.value.retry_after <= 60.0

    retries = Retries(attempts=1, first=0.01, longest=0.02, deadline=60.0)
    breaker = BreakerSettings(failures=3, seconds=60.0, longest=60.0, patience=0.1)
    done = run_client(Status(code=500), run, breaker=breaker, retries=retries)
    assert done.up.count.requests == 3


@pytest.mark.parametrize("fault", [Status(code=500), Drop(), Stall()])
def test_c07_another_model_and_requests_of_another_kind_pass_while_one_is_left_alone(fault):
    tools = {**BODY, "tools": [{"type": "function"}]}
    long = {**BODY, "messages": [{"role": "user", "content": "x" * 40_000}]}
    other = {**BODY, "model": "other"}

    def script(number, body):
        return fault if body["model"] == "scripted" and "tools" in body else Reply()

    async def run(client, up):
        for _ in range(3):
            with pytest.raises(EndpointError):
                await client.call(tools)
        with pytest.raises(EndpointResting, match="the model failed 3 times"):
            await client.call(tools)
        assert client.resting == ("scripted",)
        for body in (BODY, long, other, {**BODY, "seed": 1, "logprobs": True}):
            assert (await client.call(body)).responses

    breaker = BreakerSettings(failures=3, seconds=30.0)
    run_client(script, run, breaker=breaker, retries=ONCE, timeouts=SHORT)


def test_c07_the_attempts_of_one_call_count_as_one_failure():
    async def run(client, up):
        for _ in range(2):
            with pytest.raises(EndpointError):
                await client.call(BODY)
        assert client.resting == ()
        with pytest.raises(EndpointError):
            await client.call(BODY)
        assert client.resting == ("scripted",)

    retries = Retries(attempts=4, first=0.01, longest=0.02, deadline=60.0)
    done = run_client(
        Status(code=500), run, breaker=BreakerSettings(failures=3, seconds=60.0), retries=retries
    )
    assert done.up.count.requests == 4 + 4 + 1


async def test_c07_no_connection_is_the_fault_of_the_endpoint_whatever_is_asked():
    with Upstream() as gone:
        pass

    breaker = BreakerSettings(failures=3, seconds=30.0)
    async with Client(endpoint(gone.url, breaker=breaker, retries=ONCE)) as client:
        for number in range(3):
            with pytest.raises(EndpointError):
                await client.call({**BODY, "model": f"model {number}"})
        assert client.resting == ("",)
        with pytest.raises(EndpointResting, match="the endpoint failed 3 times"):
            await client.call({**BODY, "model": "another"}, deadline=0.05)


def test_c07_where_others_were_answered_meanwhile_the_end_of_a_rest_slows_nobody():
    broken = [True]

    def script(number, body):
        return Status(code=500) if broken[0] and body["model"] == "scripted" else Reply()

    async def run(client, up):
        await outcomes(client, 3)
        before = client.concurrency
        assert (await client.call({**BODY, "model": "other"}, deadline=60.0)).responses
        broken[0] = False
        assert (await client.call(BODY, deadline=60.0)).responses
        assert client.concurrency == before
        assert client.resting == ()

    run_client(script, run, breaker=QUICK, retries=ONCE)


@given(st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.lists(st.none()), max_size=5))
def test_a_kind_of_request_can_be_told_of_anything(body):
    model, special = describe_kind(body)
    assert isinstance(model, str)
    assert "model" not in special


async def test_names_of_models_that_clients_make_up_take_no_memory():
    breakers = Breakers(BreakerSettings(failures=1), loop=asyncio.get_running_loop())
    for number in range(1000):
        breaker = breakers.pick({"model": f"model {number}"})
        breaker.report_failure("model", breaker.generation)
    assert len(breakers.resting) == 256
    assert breakers.pick({"model": "model 0"}).closed
    assert not breakers.pick({"model": "model 999"}).closed


def test_a_call_that_failed_before_the_rest_tells_what_the_endpoint_said():
    async def run(client, up):
        for _ in range(2):
            with pytest.raises(EndpointError):
                await client.call(BODY)
        with pytest.raises(EndpointError) as caught:
            await client.call(BODY)  # the third failure in a row opens it while this call waits to try again
        assert (caught.value.status, caught.value.reply.fields["message"]) == (500, "scripted")
        assert 0 < caught.value.retry_after <= 30
        assert [call.status for call in caught.value.calls] == [500]
        with pytest.raises(EndpointResting):
            await client.call(BODY)

    retries = Retries(attempts=3, first=0.01, longest=0.02, deadline=9.0)
    breaker = BreakerSettings(failures=3, seconds=30.0, patience=0.1)
    run_client(Status(code=500), run, breaker=breaker, retries=retries)
