"""What a learned policy sees: the prompt, and the first sample's entropy. Knows nothing of learning."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyError
from adacompute.features import ENTROPY, features, normalised
from adacompute.features.encoder import WIDTH, encode
from adacompute.pool import Ballots

__all__ = ["Sight"]

Floats = npt.NDArray[np.float64]

_PARTS = ("text", "embedding", "entropy")


@dataclass(frozen=True, slots=True)
class Sight:
    """Which features: the text's 15, the encoder's 384, the first sample's entropy, in this order."""

    text: bool
    embedding: bool
    entropy: bool

    @classmethod
    def of(cls, words: object) -> "Sight":
        """From a setting such as "text+entropy".

        >>> Sight.of("text+entropy").width
        16
        """
        parts = words.split("+") if isinstance(words, str) else []
        if not parts or len(set(parts)) < len(parts) or not set(parts) <= set(_PARTS):
            raise PolicyError(
                f"features {words!r} are not known; give 'text+entropy', 'text', 'embedding', "
                "or other parts of 'text', 'embedding' and 'entropy' joined by '+'"
            )
        return cls(*(part in parts for part in _PARTS))

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return ENTROPY * self.text + WIDTH * self.embedding + self.entropy

    def read(self, prompts: Sequence[str]) -> Floats:
        """What prompts alone tell, (prompts, numbers)."""
        parts = [np.zeros((len(prompts), 0))]
        if self.text:
            parts.append(features(prompts)[:, :ENTROPY])
        if self.embedding:
            parts.append(encode(prompts))
        return parts[-1] if len(parts) == 2 else np.hstack(parts)

    def rows(self, reading: Floats, entropy: Floats) -> Floats:
        """Rows to learn from and decide by, (requests, width); `entropy` in nats, NaN where not known."""
        return np.hstack([reading, normalised(entropy)[:, None]]) if self.entropy else reading

    def seen(self, ballots: Ballots) -> "Sight":
        """Without the entropy, where most first samples were recorded without one."""
        if not self.entropy or np.isfinite(ballots.entropy[:, :1]).mean() > 0.5:
            return self
        if not self.text and not self.embedding:
            raise PolicyError("no sample's entropy is recorded; give features='text', or record it")
        return Sight(self.text, self.embedding, entropy=False)

    def with_entropy(self, learned: bool) -> "Sight":
        """As a stored policy had it: with the entropy, which must be among the features, or without."""
        if learned and not self.entropy:
            raise PolicyError("there is no entropy among the features to have learned from")
        return Sight(self.text, self.embedding, learned)
