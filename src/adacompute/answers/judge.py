"""Compares formulas that the fast path leaves open, with math-verify. Knows nothing of classes."""

import contextlib

from adacompute.answers.process import Helper

__all__ = ["Judge", "close_judge", "default_judge", "warm_judge"]

LIMIT = 0.075  # seconds of processor time for a pair
LONGEST = 300  # characters of one formula
_CACHED = 20_000  # pairs


class Judge:
    """Whether two formulas are the same, by math-verify in a process of its own, with a time limit.

    Symmetric. A pair that takes too long counts as different, and in `timeouts`; so does one that the
    process left open, in `unanswered`, which is asked again next time. `limit` is the processor time for
    a pair: ordinary sums and integrals may need up to half a second.
    """

    def __init__(self, *, limit: float = LIMIT) -> None:
        self._helper = Helper("math", limit=limit)
        self._verdicts: dict[tuple[str, str], bool | None] = {}  # the least recently used first
        self.asked = 0  # pairs that were not in the cache

    @property
    def timeouts(self) -> int:
        """Pairs that took too long, and so count as different."""
        return self._helper.timeouts

    @property
    def unanswered(self) -> int:
        """Pairs that got no verdict, since the helper couldn't start, died or hung."""
        return self._helper.unanswered

    @property
    def failures(self) -> int:
        """Starts that failed, and helpers that died or hung."""
        return self._helper.failures

    @property
    def pid(self) -> int | None:
        """The helper process, where it runs."""
        return self._helper.pid

    def same(self, a: str, b: str) -> bool | None:
        """Whether two formulas are the same; None: not decided, which counts as different."""
        pair = (a, b) if a <= b else (b, a)
        with contextlib.suppress(KeyError):  # threads share this: one step each, no lock to inherit in a fork
            verdict = self._verdicts.pop(pair)
            self._verdicts[pair] = verdict
            return verdict
        if max(len(a), len(b)) > LONGEST:
            return False
        self.asked += 1
        reply = self._helper.ask({"a": pair[0], "b": pair[1]})
        if reply is None:
            return None  # not the pair's fault: it may be asked again
        verdict = None if "late" in reply else reply.get("same") is True
        self._verdicts[pair] = verdict
        if len(self._verdicts) > _CACHED:
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                del self._verdicts[next(iter(self._verdicts))]
        return verdict

    def warm(self) -> bool:
        """Starts the helper (about two seconds), so that the first pair doesn't wait for it."""
        return self._helper.start()

    def forget(self) -> None:
        """Empties the cache of verdicts."""
        self._verdicts.clear()

    def close(self) -> None:
        """Ends the helper; the next pair starts another."""
        self._helper.close()


_judge = Judge()


def default_judge() -> Judge:
    """The judge that all of this process share."""
    return _judge


def warm_judge() -> bool:
    """Starts the shared judge, e.g. before a server takes requests; False where it can't run."""
    return _judge.warm()


def close_judge() -> None:
    """Ends the shared judge's process; the next pair starts another."""
    _judge.close()
