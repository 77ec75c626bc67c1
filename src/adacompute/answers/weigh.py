"""How much a vote weighs: by how sure the model was. Knows nothing of answers or their classes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from adacompute.errors import TaskError
from adacompute.records import Sample

__all__ = ["LIMIT", "UNIT", "Signal", "Weigh"]

Signal = Literal["logprob", "entropy"]

LIMIT = (
    8.0  # of the exponent: no sample weighs more than e^8 (about 3,000) average ones, or less than 1/3,000
)
UNIT = 2**36  # weights are counted in whole units of 2^-36, so that their sums are exact in every order


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh:
    """Weighs a vote by `exp(sharpness * (1 - m / scale))`, `m` being the sample's own signal.

    An averagely sure sample weighs exactly 1; so does one without the signal. `scale` is the pool's
    average: of the mean log-probability per token (negative), or of the mean entropy (positive).

    >>> weigh = Weigh(signal="logprob", scale=-0.25)
    >>> weigh.weight(Sample(answer="42", tokens=10, logprob=-2.5)), weigh.weight(Sample(answer="42"))
    (1.0, 1.0)
    """

    signal: Signal
    scale: float
    sharpness: float = 2.0

    def __post_init__(self) -> None:
        if self.signal not in get_args(Signal):
            raise TaskError(f"signal {self.signal!r} is not known; give 'logprob' or 'entropy'")
        if not _is_number(self.scale) or (self.scale >= 0 if self.signal == "logprob" else self.scale <= 0):
            wanted = "negative" if self.signal == "logprob" else "positive"
            raise TaskError(
                f"scale {_shown(self.scale)} can't be an average {self.signal}; give a {wanted} number"
            )
        if not _is_number(self.sharpness) or self.sharpness < 0:
            raise TaskError(
                f"sharpness {_shown(self.sharpness)} can't be used; give a number from 0 (plain) up"
            )

    def weight(self, sample: Sample) -> float:
        """What the sample's vote weighs: a whole multiple of 2^-36."""
        return self.units(sample) / UNIT

    def units(self, sample: Sample) -> int:
        """The weight in units of 2^-36: whole numbers, whose sums are exact however many there are."""
        m = _signal(sample, self.signal)
        if m is None:
            return UNIT
        exponent = self.sharpness * (1.0 - m / self.scale)
        return round(math.exp(min(LIMIT, max(-LIMIT, exponent))) * UNIT)

    @classmethod
    def of(
        cls, samples: Iterable[Sample], signal: Signal = "logprob", *, sharpness: float = 2.0
    ) -> "Weigh | None":
        """Fits the scale to samples, without labels; None where none has the signal, or all are certain."""
        if signal not in get_args(Signal):
            raise TaskError(f"signal {signal!r} is not known; give 'logprob' or 'entropy'")
        values = [m for m in (_signal(sample, signal) for sample in samples) if m is not None]
        scale = math.fsum(values) / len(values) if values else 0.0
        if not math.isfinite(scale) or (scale >= 0 if signal == "logprob" else scale <= 0):
            return None
        return cls(signal=signal, scale=scale, sharpness=sharpness)


def _signal(sample: Sample, signal: Signal) -> float | None:
    value = sample.mean_logprob if signal == "logprob" else sample.entropy
    return value if value is not None and math.isfinite(value) else None


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False


def _shown(value: object) -> str:
    """A value as it reads in a message; one that is too long says only what it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than a few thousand digits
        text = ""
    return text if 0 < len(text) <= 60 else f"{text[:20]}... (long, of type {type(value).__name__})"
