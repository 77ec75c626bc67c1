"""Carries what a replica has to say to Redis, many in one call, one call at a time. Knows nothing of caps.

Each call that changes anything has a number, and is sent until it was answered: where the answer was lost,
Redis gives it once more and does nothing twice. Where Redis has lost calls that it answered, it says so, and
is told first what is held here. What can't be told waits here, and is lost only with the process.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from adacompute.serve.fleet.address import failures, said_of
from adacompute.serve.fleet.settings import Pulse

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["Deed", "Foreign", "Post", "Said"]

_SCRIPT = Path(__file__).with_name("batch.lua").read_text("utf-8")
_SHA = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()  # how Redis names it
_DEEDS = 500  # in one call, at most
_COSTS = 2_000  # likewise
_WAITING = 100_000  # costs that Redis keeps of a lane which nobody paces; older ones go
_log = logging.getLogger(__name__)

Deed = tuple[str, str, str, Any, list[int], list[int]]  # what, its number, the key, limit or hour, amounts


class Foreign(Exception):
    """It isn't the ledger that was opened: Redis has lost it, or holds another."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was answered to one deed."""

    done: bool
    taken: list[int]  # where not: spent, maybe and reserved of the key, then of all
    hour: str  # by Redis's clock
    now: float  # likewise, seconds since 1970


@dataclass(slots=True)
class _Call:
    """One call, until it is answered."""

    number: int  # 0: it changes nothing
    body: dict[str, Any]
    waiting: list["asyncio.Future[Said] | None"] = field(default_factory=list)  # of each deed


class Post:
    """One replica's line to Redis. `ask` is asked what else goes with each call, `hear` told each answer."""

    def __init__(
        self,
        redis: "Redis",
        *,
        url: str,
        base: str,
        me: str,
        fixed: Mapping[str, Any],
        pulse: Pulse,
        ask: Callable[[], dict[str, Any]],
        hear: Callable[[dict[str, Any]], None],
        known: Callable[[], dict[str, str]],
    ) -> None:
        self.trouble = ""  # why nothing can be told now; "": it can
        self.answered = time.monotonic()  # when Redis was last heard of
        self._redis, self._url, self._base = redis, url, base
        self._fixed = dict(fixed, me=me, most=_WAITING) | {
            name: round(1000 * seconds)
            for name, seconds in (("lease", pulse.lease), ("beat", pulse.beat), ("ahead", pulse.ahead))
        }
        self._pulse = pulse
        self._ask, self._hear, self._known = ask, hear, known
        self._id = ""
        self._number = self._last = 0  # of calls: made, and answered
        self._deeds: deque[tuple[Deed, asyncio.Future[Said] | None]] = deque()
        self._costs: dict[str, tuple[str, list[str]]] = {}  # lane -> its start, and costs
        self._notes: dict[str, str] = {}
        self._paced: list[dict[str, Any]] = []
        self._call: _Call | None = None  # on its way
        self._foreign = False  # it is another ledger
        self._closing = self._ending = False
        self._wake = asyncio.Event()
        self._failures = failures()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, new: str) -> dict[str, Any]:
        """The first call, which makes the ledger where there is none; raises what Redis does."""
        answer = await self._sent(_Call(0, {"id": "", "new": new, "recalls": True, **self._ask()}))
        self._id = answer["id"]
        self._heard(answer)
        self._task = asyncio.create_task(self._run())
        return answer

    def tell(self, deed: Deed) -> None:
        """To be told soon; nobody waits for it."""
        self._deeds.append((deed, None))
        self._wake.set()

    def asked(self, deed: Deed) -> "asyncio.Future[Said]":
        """As `tell`, with what is answered; OSError where Redis can't be told: it may still be, later."""
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._deeds.append((deed, future))
        self._wake.set()
        return future

    def cost(self, lane: str, start: str, cost: str) -> None:
        """What a request of a lane has cost; the oldest go where too many wait."""
        _, costs = self._costs.setdefault(lane, (start, []))
        costs.append(cost)
        if len(costs) > _WAITING:
            del costs[: _WAITING // 2]

    def note(self, name: str, text: str) -> None:
        """Plain data to keep."""
        self._notes[name] = text

    def publish(self, paced: list[dict[str, Any]]) -> None:
        """What lanes are served at from now on; whoever leaves lets another one say so."""
        if not self._closing:
            self._paced = paced
            self._wake.set()

    async def through(self) -> None:
        """Waits until all that was handed over is told, or there is trouble."""
        before = self.answered
        self._wake.set()
        while not self.trouble and (self.answered == before or self._call is not None or self._deeds):
            await asyncio.sleep(0.001)

    async def close(self) -> bool:
        """Tells what is left, for some seconds, and that it leaves; whether all that was spent is told."""
        self._closing = True
        if self._task is not None:
            until = time.monotonic() + self._pulse.farewell
            while self._left() and time.monotonic() < until and not self._foreign:
                self._wake.set()
                await asyncio.sleep(0.01)
            self._ending = True
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        well = not self._deeds and (self._call is None or "deeds" not in self._call.body)
        if not self.trouble:
            with contextlib.suppress(Foreign, *self._failures):  # else its lease ends by itself
                await self._sent(_Call(0, {"leaves": True}))
        self.trouble = self.trouble or f"{self._url}: the gateway is closing down"
        for _, future in self._deeds:
            if future is not None and not future.done():
                future.set_exception(OSError(self.trouble))
        await self._redis.aclose()
        return well

    def _left(self) -> bool:
        call = self._call  # one that changes nothing isn't waited for where it can't be answered
        under_way = call is not None and (call.number > 0 or not self.trouble)
        return bool(under_way or self._deeds or self._costs or self._notes or self._paced)

    async def _run(self) -> None:
        me = asyncio.current_task()
        while not self._ending and not (me and me.cancelling()):  # the client may swallow that it is
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pulse.poll):  # `wait_for` may swallow that it is cancelled
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # others of this round come along
            try:
                self._call = self._call or self._gathered()
                self._answered(self._call, await self._sent(self._call))
            except Foreign as exc:
                self._foreign = True
                self._ill(str(exc))
                await asyncio.sleep(self._pulse.lease / 4)
            except self._failures as exc:
                self._ill(said_of(self._url, exc))
                await asyncio.sleep(self._pulse.again)
            except Exception as exc:  # noqa: BLE001 - whatever Redis holds: closed, not open, and tried again
                self._ill(f"{self._url}: answers what can't be read ({type(exc).__name__}: {exc})")
                await asyncio.sleep(self._pulse.again)

    def _gathered(self) -> _Call:
        body: dict[str, Any] = self._ask()
        waiting: list[asyncio.Future[Said] | None] = []
        if self._deeds:
            deeds = [self._deeds.popleft() for _ in range(min(_DEEDS, len(self._deeds)))]
            body["deeds"] = [deed for deed, _ in deeds]
            waiting = [future for _, future in deeds]
            if self._deeds:
                self._wake.set()
        if self._costs:
            body["costs"] = self._parts()
        if self._notes:
            body["notes"], self._notes = self._notes, {}
        if self._paced:
            body["paced"], self._paced = self._paced, []
        changes = any(name in body for name in ("deeds", "costs", "notes", "paced"))
        self._number += changes
        return _Call(self._number if changes else 0, body, waiting)

    def _parts(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        left = _COSTS
        while self._costs and left:
            lane, (start, costs) = next(iter(self._costs.items()))
            del self._costs[lane]
            if len(costs) > left:
                self._costs[lane] = (start, costs[left:])
            found[lane] = {"start": start, "costs": costs[:left]}
            left -= len(found[lane]["costs"])
        if self._costs:
            self._wake.set()
        return found

    async def _sent(self, call: _Call) -> dict[str, Any]:
        from redis.exceptions import NoScriptError

        said = {"id": self._id, "seq": call.number, "last": self._last}
        text = orjson.dumps({**said, **self._fixed, **call.body})
        try:
            async with asyncio.timeout(self._pulse.patience):
                try:
                    raw = await self._redis.evalsha(_SHA, 1, self._base, text)
                except NoScriptError:  # a Redis that was just started
                    raw = await self._redis.eval(_SCRIPT, 1, self._base, text)
        except BaseException:
            with contextlib.suppress(*self._failures):
                await self._redis.connection_pool.disconnect()  # what comes late is no answer to the next
            raise
        answer: dict[str, Any] = orjson.loads(raw)
        if "foreign" in answer:
            raise Foreign(_foreign(self._url, self._base, answer["foreign"]))
        return answer

    def _answered(self, call: _Call, answer: dict[str, Any]) -> None:
        if "behind" in answer:
            self._behind(call)
            return
        hour, now = answer["hour"], int(answer["now"]) / 1000
        for future, said in zip(call.waiting, answer["said"] or [], strict=True):
            if future is not None and not future.done():
                taken = [int(each) for each in said] if isinstance(said, list) else []
                future.set_result(Said(said == 1, taken, hour, now))
        self._call = None
        self._last = call.number or self._last
        self._well()
        self._heard(answer)

    def _behind(self, call: _Call) -> None:
        """Redis has lost calls that it had answered: it is told what is held here, before anything else."""
        _log.error(
            "%s: it has lost the last that it was told; what is reserved here is set right, and what was "
            "settled in that moment counts in full",
            self._url,
        )
        told = [deed for deed, _ in self._deeds] + call.body.get("deeds", [])
        call.body["known"] = dict.fromkeys((deed[1] for deed in told), "") | self._known()
        if not call.number:
            self._number += 1
            call.number = self._number
        self._wake.set()

    def _heard(self, answer: dict[str, Any]) -> None:
        self.answered = time.monotonic()
        self._hear(answer)

    def _ill(self, trouble: str) -> None:
        if trouble != self.trouble:  # another reason has another remedy
            _log.error("the ledger is closed: %s", trouble)
        self.trouble = trouble
        # what is on its way is sent again: whether it came to be done nobody here can tell. What isn't is not
        # sent at all where somebody waits for it
        waiting = [] if self._call is None else self._call.waiting
        unsent = [future for _, future in self._deeds]
        self._deeds = deque(each for each in self._deeds if each[1] is None)
        for future in (*waiting, *unsent):
            if future is not None and not future.done():
                future.set_exception(OSError(trouble))

    def _well(self) -> None:
        if self.trouble:
            _log.warning("the ledger is open again")
        self.trouble = ""
        self._foreign = False


def _foreign(url: str, base: str, found: str) -> str:
    what = "another ledger than was opened" if found else "the ledger no more"
    return (
        f"{url}: it holds {what} ({base}), so what was spent isn't known there; restore Redis's data, or "
        "restart all gateways of the fleet to begin anew at 0"
    )
