"""Any order of reserving, settling, crashing, restarting and waiting keeps a ledger as a plain sum has it."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adacompute.errors import CapReached
from adacompute.serve.spending import local_ledger
from adacompute.serve.spending.ledger import Caps, Reservation, Spend
from adacompute.serve.spending.local_ledger import Ledger

KEYS = ("alice", "bob", "operator")
CAPS = Caps(total=30, per_key=20, by_key={"operator": 12}, window="hour")
OWN = {"alice": 20, "bob": 20, "operator": 12}


class Sums(RuleBasedStateMachine):
    """The ledger beside a list of entries [key, window, spent, maybe, reserved], summed for each question."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "0.sqlite"
        self.hour = 500_000
        self.entries: list[list[Any]] = []
        self.held: list[tuple[Reservation, list[Any]]] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.ledger: Ledger = self.run(Ledger.open(self.path, CAPS, now=lambda: self.hour * 3600.0 + 60))
        self.held = []
        for entry in self.entries:
            entry[3] += entry[4]
            entry[4] = 0

    def sums(self, key: str | None = None) -> tuple[int, int, int]:
        mine = [e for e in self.entries if e[1] == self.hour and key in (None, e[0])]
        return sum(e[2] for e in mine), sum(e[3] for e in mine), sum(e[4] for e in mine)

    @rule(key=st.sampled_from(KEYS), most=st.integers(0, 9))
    def reserve(self, key: str, most: int) -> None:
        fits = sum(self.sums(key)) + most <= OWN[key] and sum(self.sums()) + most <= 30
        try:
            held = self.run(self.ledger.reserve(key, Spend(samples=most)))
        except CapReached:
            assert not fits
            return
        assert fits
        entry = [key, self.hour, 0, 0, most]
        self.entries.append(entry)
        self.held.append((held, entry))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        held, entry = data.draw(st.sampled_from(self.held))
        spent = data.draw(st.integers(0, held.amount.samples))
        maybe = data.draw(st.integers(0, held.amount.samples - spent))
        self.ledger.settle(held, Spend(samples=spent), Spend(samples=maybe))
        if entry[4] or not held.amount.samples:  # the first time
            entry[2:] = [spent, maybe, 0]
            self.held = [one for one in self.held if one[0] is not held]
        self.ledger.settle(held, held.amount)

    @rule()
    def wait_an_hour(self) -> None:
        self.hour += 1

    @rule()
    def restart(self) -> None:
        self.run(self.ledger.close())
        self.open()

    @rule()
    def crash(self) -> None:
        self.run(self.ledger.reserve("nobody", Spend()))
        self.run(asyncio.sleep(2 * local_ledger._MAX_DELAY))  # all is on the disk: its timer is due before
        old, self.path = self.path, self.folder / f"{int(self.path.stem) + 1}.sqlite"
        for end in ("", "-wal"):
            shutil.copy(f"{old}{end}", f"{self.path}{end}")
        self.run(self.ledger.close())
        self.open()

    @invariant()
    def never_over_a_cap_and_equal_to_the_sums(self) -> None:
        found = self.ledger.account()
        assert found.total.samples <= 30
        total = found.spent.samples, found.maybe.samples, found.reserved.samples
        assert total == self.sums()
        for key in KEYS:
            own = found.keys.get(key)
            mine = (own.spent.samples, own.maybe.samples, own.reserved.samples) if own else (0, 0, 0)
            assert mine == self.sums(key)
            assert sum(mine) <= OWN[key]

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.run(self.ledger.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)


TestSums = Sums.TestCase
TestSums.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
