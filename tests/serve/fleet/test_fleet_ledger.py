"""The fleet's ledger alone: several in one loop, each as a gateway has it, on a real Redis."""

import asyncio
import contextlib
import logging
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from adacompute.errors import CapReached, ConfigError, LedgerUnavailable
from adacompute.records import Secret
from adacompute.serve.pricing.fleet import Fleet, join_fleet
from adacompute.serve.spending.fleet_ledger import _parse_balance
from adacompute.serve.spending.ledger import Balance, Caps, Spend, format_hour
from adacompute.serve.spending.local_ledger import Ledger
from adacompute.serve.spending.redis_client import FleetTiming
from clusters import RedisServer, _free_port

ONE = Spend(samples=1, tokens=10, nanos=100)
BASE = "adacompute:{f}"
QUICK = FleetTiming(retry=0.02, timeout=30.0, account=0.0)  # a busy machine takes seconds for a call


def run(work: Awaitable[Any]) -> Any:
    return asyncio.run(work)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def fleet(
    server: RedisServer, count: int, caps: Caps, *, pulse: FleetTiming = QUICK, key: Secret | None = None
) -> AsyncIterator[list[Fleet]]:
    found = [await join_fleet(server.url, "f", caps, timing=pulse, key=key) for _ in range(count)]
    try:
        yield found
    finally:
        for each in found:
            await each.ledger.close()


def held(server: RedisServer, window: str = "") -> Balance:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        return _parse_balance(client.hgetall(f"{BASE}:w:{window}"))


async def eventually(true: Callable[[], Any]) -> None:
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


def samples(balance: Balance) -> tuple[int, int, int]:
    return balance.spent.samples, balance.maybe.samples, balance.reserved.samples


@pytest.mark.parametrize(
    ("caps", "each"),
    [
        (Caps(total=37), Spend(samples=2)),
        (Caps(per_key=5, by_key={"k1": 3}), Spend(samples=1)),
        (Caps(unit="money", total=0.0005), Spend(samples=1, tokens=10, nanos=7_001)),
    ],
)
def test_c14_fleet_200_clients_at_the_last_unit_of_a_cap_never_pass_it(
    redis_server: RedisServer, caps: Caps, each: Spend
):
    async def one(one: Fleet, key: str) -> int:
        try:
            made = await one.ledger.reserve(key, each)
        except CapReached:
            return 0
        await asyncio.sleep(0.002)
        one.ledger.settle(made, each)
        return 1

    async def work() -> int:
        async with fleet(redis_server, 4, caps) as gateways:
            jobs = [one(gateways[i % 4], f"k{i % 3}") for i in range(200)]
            return sum(await asyncio.gather(*jobs))

    granted = run(work())
    account = held(redis_server)
    assert account.spent == Spend(**{n: granted * getattr(each, n) for n in ("samples", "tokens", "nanos")})
    assert samples(account)[1:] == (0, 0)
    for name, balance in {"": account, **account.keys}.items():
        cap = caps.for_key(name)
        if cap is not None:
            assert (
                cap - each.amount_in(caps.unit) < balance.total.amount_in(caps.unit) <= cap
            )  # and nothing is left over


async def test_c19_fleet_a_cap_is_refused_in_the_words_of_a_single_gateway(redis_server: RedisServer):
    caps = Caps(total=20, per_key=15, by_key={"bob": 4}, window="day")

    async def refusals(books: Any) -> list[tuple[str, int, float | None]]:
        said = []
        made = await books.reserve("alice", Spend(samples=3, tokens=5))
        books.settle(made, Spend(samples=2), Spend(samples=1))
        await books.reserve("alice", Spend(samples=8))
        for key, most in (("bob", 5), ("alice", 5), ("alice", 11), ("carol", 10), ("carol", 15)):
            try:
                await books.reserve(key, Spend(samples=most, tokens=9))
            except CapReached as exc:
                said.append((str(exc), exc.left, exc.retry_after and exc.retry_after > 1))
        return said

    async with fleet(redis_server, 1, caps) as (one,):
        found = await refusals(one.ledger)
    alone = await Ledger.open(None, caps)
    assert found == await refusals(alone)
    assert len(found) == 5


def test_c15_fleet_lost_replies_are_asked_for_again_and_nothing_is_counted_twice(redis_server: RedisServer):
    taken = {"granted": 0, "closed": 0}

    async def one(gateway: Fleet) -> None:
        for _ in range(60):
            try:
                made = await gateway.ledger.reserve("k", Spend(samples=2, tokens=7))
            except LedgerUnavailable:
                taken["closed"] += 1
                await asyncio.sleep(0.005)
                continue
            grown = taken["granted"] % 3 == 0
            if grown:
                gateway.ledger.grow(made, Spend(samples=1))
            gateway.ledger.settle(made, Spend(samples=2 + grown, tokens=7))
            taken["granted"] += 2 + grown

    async def cutting(server: RedisServer, over: asyncio.Event) -> None:
        async with redis.asyncio.Redis(port=server.port) as client:
            while not over.is_set():  # no cancelling: the client may swallow that
                await client.execute_command("CLIENT", "KILL", "TYPE", "normal")
                await asyncio.sleep(0.004)

    async def work() -> None:
        async with fleet(redis_server, 3, Caps(total=10_000)) as gateways:
            over = asyncio.Event()
            cuts = asyncio.create_task(cutting(redis_server, over))
            await asyncio.gather(*(one(gateway) for gateway in gateways for _ in range(8)))
            over.set()
            await cuts
            await eventually(lambda: all(gateway.ledger.available for gateway in gateways))

    run(work())
    assert taken["closed"] > 10
    assert samples(held(redis_server)) == (taken["granted"], 0, 0)


async def test_a_reservation_whose_asker_went_away_is_given_back(redis_server: RedisServer):
    async with fleet(redis_server, 1, Caps(total=10)) as (one,):
        asking = asyncio.create_task(one.ledger.reserve("k", ONE))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        made = await one.ledger.reserve("k", Spend(samples=10))  # all of it is there
        one.ledger.settle(made, ONE)
        one.ledger.settle(made, ONE)  # a second time does nothing
        one.ledger.grow(made, ONE)

    assert samples(held(redis_server)) == (1, 0, 0)


async def test_c17_fleet_what_redis_lost_of_its_last_moment_is_counted_all_the_same(
    redis_server: RedisServer, tmp_path: Path
):
    """An append-only file that is written each second may lose one: here it is put back by hand."""
    files, copy = redis_server.folder / "appendonlydir", tmp_path / "before"

    async with fleet(redis_server, 1, Caps(total=100)) as (one,):
        first = await one.ledger.reserve("k", Spend(samples=3))
        forgotten = await one.ledger.reserve("k", Spend(samples=7))
        shutil.copytree(files, copy)
        one.ledger.settle(forgotten, Spend(samples=5))  # Redis won't know of this
        second = await one.ledger.reserve("k", Spend(samples=11))  # nor of this
        redis_server.kill()
        shutil.rmtree(files)
        shutil.copytree(copy, files)
        await eventually(lambda: not one.ledger.available)
        redis_server.start()
        await eventually(lambda: one.ledger.available)
        one.ledger.settle(first, Spend(samples=2))
        one.ledger.settle(second, Spend(samples=4))

    # 7 may have been spent, as far as Redis can tell, and count in full; what was settled later is exact
    assert samples(held(redis_server)) == (6, 7, 0)


async def test_c14_fleet_a_redis_that_went_back_unseen_gives_nobody_what_is_reserved_already(
    redis_server: RedisServer, tmp_path: Path, caplog: Any
):
    """A restart or a failover between two calls: no call fails, and yet the last moment is gone."""
    files, copy = redis_server.folder / "appendonlydir", tmp_path / "before"

    async with fleet(redis_server, 2, Caps(total=20), pulse=FleetTiming(poll=60.0)) as (one, two):
        first = await one.ledger.reserve("k", Spend(samples=3))
        settled = await one.ledger.reserve("k", Spend(samples=4))
        shutil.copytree(files, copy)
        one.ledger.settle(settled, Spend(samples=1))
        second = await one.ledger.reserve("k", Spend(samples=8))
        redis_server.kill()
        shutil.rmtree(files)
        shutil.copytree(copy, files)
        redis_server.start()
        for each in (one, two):  # whatever is between them and Redis may hide it
            await each.client._redis.connection_pool.disconnect()
        with pytest.raises(CapReached):  # 3 and 8 are reserved, 4 may be spent
            await one.ledger.reserve("k", Spend(samples=6))
        two.ledger.settle(await two.ledger.reserve("k", Spend(samples=5)), Spend(samples=5))
        assert samples(held(redis_server))[1:] == (4, 16)
        one.ledger.settle(first, Spend(samples=3))
        one.ledger.settle(second, Spend(samples=7))

    assert "it has lost the last calls" in caplog.text
    assert samples(held(redis_server)) == (15, 4, 0)


async def test_a_cap_beyond_2_to_the_53_is_no_lower_one(redis_server: RedisServer):
    async with fleet(redis_server, 1, Caps(unit="money", total=2e7)) as (one,):
        nine = Spend(samples=1, nanos=9 * 10**15)
        for _ in range(2):
            one.ledger.settle(await one.ledger.reserve("k", nine), nine)
        with pytest.raises(CapReached):
            await one.ledger.reserve("k", nine)


async def test_what_others_wrote_into_redis_stops_no_gateway(redis_server: RedisServer):
    with redis.Redis(port=redis_server.port) as client:
        client.hset(f"{BASE}:w:", mapping={"s9:k": "1", "": "2", "s2:k": "many", "odd": "nan"})
    async with fleet(redis_server, 1, Caps(total=5)) as (one,):
        one.ledger.settle(await one.ledger.reserve("alice", Spend(samples=2)), Spend(samples=2))
        await eventually(lambda: one.ledger.account().spent.samples)
        assert list(one.ledger.account().keys) == ["alice"]
    with redis.Redis(port=redis_server.port) as client:
        client.delete(f"{BASE}:notes")
        client.set(f"{BASE}:notes", "a string")
    with pytest.raises(ConfigError, match="refuses a command"):
        await join_fleet(redis_server.url, "f", Caps())


def test_c17_fleet_windows_roll_over_together_and_no_window_passes_its_cap(redis_server: RedisServer):
    caps, granted = Caps(total=40, window="hour"), dict[str, int]()
    with redis.Redis(port=redis_server.port) as client:
        seconds, micros = client.time()
    now = seconds + micros / 1e6
    ahead = 3600 - now % 3600 - 0.4  # by that clock the hour ends in 0.4 s
    first, second = format_hour(now + ahead), format_hour(now + ahead + 3600)

    async def one(gateway: Fleet) -> None:
        until = time.monotonic() + 60.0
        while granted.get(second, 0) < 40 and time.monotonic() < until:
            try:
                made = await gateway.ledger.reserve("k", ONE)
            except CapReached:
                await asyncio.sleep(0.003)
                continue
            granted[made.hour] = granted.get(made.hour, 0) + 1
            await asyncio.sleep(0.02)
            gateway.ledger.settle(made, ONE)
        with pytest.raises(CapReached):
            await gateway.ledger.reserve("k", ONE)

    async def work() -> None:
        pulse = FleetTiming(clock_offset=ahead, timeout=30.0)
        async with fleet(redis_server, 3, caps, pulse=pulse) as gateways:
            await asyncio.gather(*(one(gateway) for gateway in gateways for _ in range(20)))

    run(work())
    before = granted.pop(first, 0)  # a busy machine may need all of the first hour to start
    assert before <= 40
    assert granted == {second: 40}
    for window, spent in ((first, before), (second, 40), (first[:10], None), ("", before + 40)):
        found = samples(held(redis_server, window))
        assert found[1:] == (0, 0)
        assert spent in (None, found[0])


def test_the_next_one_that_starts_counts_what_a_dead_one_had_reserved(redis_server: RedisServer, caplog: Any):
    pulse = FleetTiming(lease=0.3, account=0.0)

    async def work() -> None:
        dead = await join_fleet(redis_server.url, "f", Caps(total=10), timing=pulse)
        await dead.ledger.reserve("alice", Spend(samples=4, tokens=40))
        await dead.ledger.reserve("bob", Spend(samples=3))
        dead.client._task.cancel()  # as a kill would
        await dead.client._redis.aclose()
        await asyncio.sleep(0.4)
        async with fleet(redis_server, 1, Caps(total=10), pulse=pulse) as (one,):
            assert samples(held(redis_server)) == (0, 7, 0)
            with pytest.raises(CapReached) as refused:
                await one.ledger.reserve("alice", Spend(samples=4))
            assert refused.value.left == 3
            await eventually(lambda: one.ledger.account().keys)
            assert samples(one.ledger.account().keys["alice"]) == (0, 4, 0)

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "2 reservations count as spent in full" in caplog.text


@pytest.mark.parametrize("caps", [Caps(total=10), Caps(per_key=10), Caps(total=10, window="day")])
async def test_what_one_gateway_was_given_too_much_stops_the_calls_that_others_have_reserved(
    redis_server: RedisServer, caps: Caps
):
    async with fleet(redis_server, 2, caps) as (one, two):
        given = await one.ledger.reserve("alice", ONE)
        queued = [await gateway.ledger.reserve("alice", ONE) for gateway in (one, two, two)]
        assert [g.ledger.check_send(r) for g, r in ((one, given), (two, queued[1]))] == [None, None]
        await asyncio.sleep(0.5)  # what the other has reserved is known within a tenth of that
        one.ledger.grow(given, Spend(samples=8))  # 9 came for 1, and its wave goes on
        refusal = one.ledger.check_send(queued[0])
        assert isinstance(refusal, CapReached)  # at once: it knows itself
        await eventually(lambda: two.ledger.check_send(queued[1]) is not None)
        one.ledger.settle(queued[0], Spend())
        two.ledger.settle(queued[1], Spend())
        one.ledger.settle(given, Spend(samples=9))
        await eventually(lambda: two.ledger.check_send(queued[2]) is None)  # 9 + 1 are within the cap
        two.ledger.settle(queued[2], Spend(samples=3))
        await two.client.flush()
        assert samples(held(redis_server)) == (12, 0, 0)
        with pytest.raises(CapReached):
            await one.ledger.reserve("alice", ONE)


async def test_a_redis_whose_clock_jumps_neither_closes_a_window_for_years_nor_lets_it_be_spent_twice(
    redis_server: RedisServer,
):
    jump, caps = 10 * 365 * 86_400, Caps(per_key=10, window="day")

    async def spend(gateway: Fleet, count: int) -> str:
        made = await gateway.ledger.reserve("alice", Spend(samples=count))
        gateway.ledger.settle(made, Spend(samples=count))
        await gateway.client.flush()
        return made.hour

    def set_clock(gateway: Fleet, ahead: int) -> None:
        gateway.client._script_settings["ahead"] = 1000 * ahead

    async def believe(gateway: Fleet) -> None:
        """An hour passes in which the clock stays as it is."""
        await gateway.client.flush()
        assert gateway.client._clock._doubted_since is not None
        gateway.client._clock._doubted_since -= 3601
        await gateway.client.flush()

    async def refused(gateway: Fleet) -> None:
        with pytest.raises(CapReached) as caught:
            await spend(gateway, 2)
        assert caught.value.retry_after is not None
        assert caught.value.retry_after <= 86_400

    async with fleet(redis_server, 1, caps) as (one,):
        hour = await spend(one, 3)
        set_clock(one, jump)
        assert await spend(one, 2) == hour  # it isn't believed yet, also by one that starts now
        await one.client.flush()
        later = replace(QUICK, clock_offset=jump)
        async with fleet(redis_server, 1, caps, pulse=later) as (two,):
            assert await spend(two, 1) == hour
        await believe(one)
        ahead = await spend(one, 3)  # 2036
        assert ahead[:4] == str(int(hour[:4]) + 10)
        assert held(redis_server, hour[:10]).spent.samples == 6  # Redis has not forgotten it
        set_clock(one, 0)
        await believe(one)
        assert await spend(one, 1) == hour  # 6 and 3 count, and 1
        await refused(one)
        assert held(redis_server).spent.samples == 10  # in all, each once


async def test_notes_are_shared(redis_server: RedisServer):
    async with fleet(redis_server, 1, Caps()) as (one,):
        one.ledger.remember("scales", {"a": 1.5})
        await one.client.flush()
        async with fleet(redis_server, 1, Caps()) as (two,):
            assert two.ledger.recall("scales") == {"a": 1.5}
            assert two.ledger.recall("other") is None


def test_a_redis_that_keeps_little_is_warned_of(tmp_path: Path, redis_server: RedisServer, caplog: Any):
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("appendonly", "no")
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")

    async def work() -> None:
        async with fleet(redis_server, 1, Caps()):
            pass

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "set appendonly yes" in caplog.text
    assert "maxmemory-policy noeviction" in caplog.text
    with redis.Redis(port=redis_server.port) as client:
        assert client.dbsize() == 0  # a fleet that has spent nothing leaves nothing


def test_where_redis_cant_be_used_one_line_says_what_to_do(redis_server: RedisServer):
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("requirepass", "canary-right-password")
    for key, words in ((None, "redis_key_env"), (Secret("canary-wrong-one"), "redis_key_file")):
        with pytest.raises(ConfigError, match=words) as refused:
            run(join_fleet(redis_server.url, "f", Caps(), key=key))
        assert "canary" not in str(refused.value)
    redis_server.kill()
    with pytest.raises(ConfigError, match="can't be reached"):
        run(join_fleet(redis_server.url, "f", Caps()))


def test_rediss_speaks_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    binary, openssl = shutil.which("redis-server"), shutil.which("openssl")
    if binary is None or openssl is None:
        pytest.skip("needs redis: redis-server and openssl from the system's packages")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    words += f" -addext subjectAltName=DNS:localhost -keyout {tmp_path}/key.pem -out {tmp_path}/cert.pem"
    subprocess.run([openssl, *words.split()], check=True, capture_output=True)
    port = _free_port()
    words = f"--port 0 --tls-port {port} --tls-auth-clients no --save --appendonly no --dir {tmp_path}"
    words += (
        f" --tls-cert-file {tmp_path}/cert.pem --tls-key-file {tmp_path}/key.pem --logfile {tmp_path}/log"
    )
    server = subprocess.Popen([binary, *words.replace("--save ", "--save '' ").split()])

    async def work() -> tuple[int, int, int]:
        for _ in range(500):
            try:
                one = await join_fleet(f"rediss://localhost:{port}/0", "f", Caps(total=5), timing=QUICK)
                break
            except ConfigError:  # it isn't up yet
                await asyncio.sleep(0.02)
        made = await one.ledger.reserve("k", ONE)
        one.ledger.settle(made, ONE)
        await eventually(lambda: one.ledger.account().spent.samples)
        found = samples(one.ledger.account())
        await one.ledger.close()
        return found

    try:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 1
        assert run(work()) == (1, 0, 0)
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(ConfigError, match="certificate"):  # nobody's word is taken for who it is
            run(join_fleet(f"rediss://localhost:{port}/0", "f", Caps()))
    finally:
        server.kill()
        server.wait()


async def test_c16_fleet_a_redis_that_is_full_closes_it_and_nothing_is_half_done(redis_server: RedisServer):
    async with fleet(redis_server, 2, Caps(total=100)) as (one, two):
        held_by_one = await one.ledger.reserve("k", Spend(samples=5))
        with redis.Redis(port=redis_server.port) as client:
            client.config_set("maxmemory", "1")
        one.ledger.settle(held_by_one, Spend(samples=3))
        for each in (one, two):
            with pytest.raises(LedgerUnavailable):
                await each.ledger.reserve("k", ONE)
        assert samples(held(redis_server)) == (0, 0, 5)
        with redis.Redis(port=redis_server.port) as client:
            client.config_set("maxmemory", "0")
        await eventually(lambda: one.ledger.available and two.ledger.available)
        two.ledger.settle(await two.ledger.reserve("k", ONE), ONE)

    assert samples(held(redis_server)) == (4, 0, 0)
