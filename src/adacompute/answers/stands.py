"""Which sample stands for the answer that won. Doesn't know how it won."""

from collections.abc import Sequence

from adacompute.answers.vote import Tally
from adacompute.records import Sample

__all__ = ["stands_for"]


def stands_for(samples: Sequence[Sample], tally: Tally) -> int | None:
    """The place of the most confident sample of the leader's class; of the first where none tells.

    `tally` is that of these samples, in this order. A sample that was cut off comes after all whole ones.
    None where no answer leads.

    >>> from adacompute.records import Sample
    >>> some = [Sample(answer="4", tokens=2, logprob=-2.0), Sample(answer="4", tokens=2, logprob=-0.1)]
    >>> stands_for(some, Tally.of(some))
    1
    """
    if tally.leader is None:
        return None
    return max(tally.behind, key=lambda place: (*_worth(samples[place]), -place))


def _worth(sample: Sample) -> tuple[bool, float]:
    sure = sample.mean_logprob
    return sample.finished is not False, float("-inf") if sure is None else sure
