"""Any order of calls, lost replies, stalls and hours keeps sums in Redis as a plain list has them."""

import json
from dataclasses import dataclass, field
from typing import Any

import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from adacompute.serve.spending.fleet_ledger import _parse_balance
from adacompute.serve.spending.redis_client import _SCRIPT
from clusters import RedisServer

BASE = "adacompute:{laws}"
REPLICAS = ("one", "two", "three")
KEYS = {"alice": 20, "bob": 20, "operator": 12}
CAP = 30
HOUR = 3_600_000  # ms
LEASE = 5 * HOUR // 2


@dataclass
class Entry:
    """One reservation: what it counts as, in the hour that it was made in."""

    number: str
    key: str
    hour: int
    reserved: int
    spent: int = 0
    maybe: int = 0
    lost: int = 0  # of maybe, until it is settled


@dataclass
class Owner:
    """A replica, as the model has it."""

    seq: int = 0
    lease: int = -1  # the hour in which it was last renewed; -1: it has none
    entries: list[Entry] = field(default_factory=list)  # not settled
    last: tuple[dict[str, Any], Any] | None = None  # its last call, and what was answered


def laws(client: redis.Redis) -> type[RuleBasedStateMachine]:
    """The machine, on that Redis."""

    class Laws(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            client.flushall()
            self.hour = 0
            self.numbers = 0
            self.owners = {name: Owner() for name in REPLICAS}
            self.all: list[Entry] = []

        def call(self, name: str, *deeds: list[Any]) -> Any:
            """One call of a replica; the model's leases and write-offs happen as Redis has to have them."""
            owner = self.owners[name]
            owner.seq += 1
            batch = {"id": "x", "new": "x", "me": name, "seq": owner.seq, "lease": LEASE, "beat": 1000}
            batch |= {"ahead": self.hour * HOUR, "window": 13, "place": 1, "limit": CAP, "most": 10}
            if client.get(f"{BASE}:id") is None:
                batch["id"] = ""
            found = json.loads(client.eval(_SCRIPT, 1, BASE, json.dumps(batch | {"deeds": list(deeds)})))
            owner.last = batch | {"id": "x", "deeds": list(deeds)}, found
            for each in self.owners.values():
                if each.lease >= 0 and (self.hour - each.lease) * HOUR > LEASE:
                    self.write_off(each)
            if owner.lease < 0 or LEASE - (self.hour - owner.lease) * HOUR < 0.7 * LEASE:
                owner.lease = self.hour
            return found["said"]

        def write_off(self, owner: Owner) -> None:
            owner.lease = -1
            for entry in owner.entries:
                entry.maybe = entry.lost = entry.reserved
                entry.reserved = 0

        def fits(self, key: str, more: int) -> bool:
            return sum(self.sums(key)) + more <= KEYS[key] and sum(self.sums()) + more <= CAP

        def sums(self, key: str | None = None, hour: int | None = None) -> tuple[int, int, int]:
            hour = self.hour if hour is None else hour
            mine = [e for e in self.all if e.hour == hour and key in (None, e.key)]
            return sum(e.spent for e in mine), sum(e.maybe for e in mine), sum(e.reserved for e in mine)

        @rule(name=st.sampled_from(REPLICAS), key=st.sampled_from(list(KEYS)), most=st.integers(0, 9))
        def reserve(self, name: str, key: str, most: int) -> None:
            self.numbers += 1
            number = str(self.numbers)
            (said,) = self.call(name, ["r", number, key, KEYS[key], [most, 10 * most, 0], []])
            assert (said == 1) == self.fits(key, most)
            if said == 1:
                entry = Entry(number, key, self.hour, most)
                self.all.append(entry)
                self.owners[name].entries.append(entry)
            else:
                assert [int(each) for each in said] == [*self.sums(key), *self.sums()]

        @rule(name=st.sampled_from(REPLICAS), most=st.lists(st.integers(1, 9), min_size=2, max_size=5))
        def reserve_many_at_once(self, name: str, most: list[int]) -> None:
            deeds: list[list[Any]] = []
            for one in most:
                self.numbers += 1
                deeds.append(["r", str(self.numbers), "bob", KEYS["bob"], [one, 10 * one, 0], []])
            for deed, said in zip(deeds, self.call(name, *deeds), strict=True):
                amount = deed[4][0]
                assert (said == 1) == self.fits("bob", amount)  # each sees those before it
                if said == 1:
                    entry = Entry(deed[1], "bob", self.hour, amount)
                    self.all.append(entry)
                    self.owners[name].entries.append(entry)

        @precondition(lambda self: any(owner.entries for owner in self.owners.values()))
        @rule(data=st.data())
        def settle(self, data: st.DataObject) -> None:
            name, entry = self.drawn(data)
            most = entry.reserved + entry.lost
            spent = data.draw(st.integers(0, most))
            maybe = data.draw(st.integers(0, most - spent))
            zero = [0, 0, 0]
            deed = ["e", entry.number, entry.key, "", [spent, 0, 0], [maybe, 0, 0]]
            self.call(name, deed, ["e", "never", "alice", "", zero, zero])
            entry.spent, entry.maybe, entry.reserved, entry.lost = spent, maybe, 0, 0
            self.owners[name].entries.remove(entry)

        def drawn(self, data: st.DataObject) -> tuple[str, Entry]:
            every = [(name, entry) for name, owner in self.owners.items() for entry in owner.entries]
            return data.draw(st.sampled_from(every))

        @rule(name=st.sampled_from(REPLICAS))
        def the_reply_was_lost(self, name: str) -> None:
            """The same call again: the same answer, and nothing is done twice."""
            if (last := self.owners[name].last) is None:
                return
            again = json.loads(client.eval(_SCRIPT, 1, BASE, json.dumps(last[0])))
            assert again["said"] == last[1]["said"]

        @precondition(lambda self: any(owner.seq > 1 for owner in self.owners.values()))
        @rule(data=st.data())
        def a_call_that_was_given_up_comes_late(self, data: st.DataObject) -> None:
            """It was sent again and answered since, and others after it: nothing is done."""
            name = data.draw(st.sampled_from([name for name, owner in self.owners.items() if owner.seq > 1]))
            batch = {**self.owners[name].last[0], "seq": data.draw(st.integers(1, self.owners[name].seq - 1))}
            assert "late" in json.loads(client.eval(_SCRIPT, 1, BASE, json.dumps(batch)))

        @rule(awake=st.sets(st.sampled_from(REPLICAS), min_size=1))
        def an_hour_passes(self, awake: set[str]) -> None:
            self.hour += 1
            for name in sorted(awake):
                self.call(name)

        @rule(name=st.sampled_from(REPLICAS))
        def sums_are_equal_and_no_cap_is_passed(self, name: str) -> None:
            self.call(name)
            for back in range(min(3, self.hour + 1)):
                found = _parse_balance(self.window(self.hour - back))
                for key in (None, *KEYS):
                    balance = found if key is None else found.keys.get(key, _parse_balance({}))
                    mine = balance.spent.samples, balance.maybe.samples, balance.reserved.samples
                    assert mine == self.sums(key, self.hour - back)
                    assert sum(mine) <= (CAP if key is None else KEYS[key])
            whole = _parse_balance({k.decode(): v.decode() for k, v in client.hgetall(f"{BASE}:w:").items()})
            assert whole.total.samples == sum(e.spent + e.maybe + e.reserved for e in self.all)

        def window(self, hour: int) -> dict[str, str]:
            names = sorted(client.keys(f"{BASE}:w:*T*"))
            at = self.first_hour() + hour
            wanted = f"{BASE}:w:{at_name(at)}".encode()
            return (
                {k.decode(): v.decode() for k, v in client.hgetall(wanted).items()} if wanted in names else {}
            )

        def first_hour(self) -> int:
            return int(client.time()[0]) // 3600

    def at_name(hour: int) -> str:
        from adacompute.serve.spending.ledger import format_hour

        return format_hour(hour * 3600.0)

    return Laws


def test_any_order_of_calls_gives_the_sums_of_a_plain_list_and_passes_no_cap(redis_server: RedisServer):
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("appendfsync", "no")  # quicker; what is killed elsewhere isn't here
        run_state_machine_as_test(laws(client), settings=settings(stateful_step_count=25))
