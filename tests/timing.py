"""How long work takes a processor, as on a quiet machine: for laws such as "no text takes quadratic time".

Other processes take caches and units of ours, so a try may be slow on a busy machine. Work that is really too
slow is so in every try.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

_QUIET = 0.003  # seconds that the work of `measure_slowness` takes
_TRIES = 8


def measure_slowness() -> float:
    """How many times as long as on a quiet machine the same work takes a processor now; 1 at least."""
    return max(1.0, min(measure_work(_add_lengths) for _ in range(3)) / _QUIET)


def _add_lengths() -> None:
    sum(len(str(number) * 2) for number in range(10_000))


def measure_work(work: Callable[[], object]) -> float:
    """Seconds of processor time that this thread takes for the work."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def find_least(measure: Callable[[], float], limit: float) -> float:
    """The least of several measurements, in seconds on a quiet machine, up to the first within the limit."""
    least = float("inf")
    for _ in range(_TRIES):
        seconds = measure()
        least = min(least, seconds if seconds < limit else seconds / measure_slowness())
        if least < limit:
            break
    return least


async def measure_longest_turn(work: Awaitable[object]) -> float:
    """Seconds of its processor time, at most, that the event loop keeps another task waiting."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)  # it begins
    await work
    await asyncio.sleep(0.002)  # the last turn counts, too
    ticking.cancel()
    return longest
