"""How often a replica shows that it is alive, and how long it is waited for. Knows nothing of Redis."""

from dataclasses import dataclass

__all__ = ["USUAL", "Pulse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Seconds, all of them."""

    lease: float = (
        10.0  # without a sign of life, after which what a replica has reserved counts as maybe spent
    )
    beat: float = 2.0  # likewise, after which another replica sets the price
    poll: float = 0.1  # between two calls at most: how old a price is
    again: float = 0.2  # until Redis is tried again where it failed
    patience: float = 2.0  # for one call
    account: float = 1.0  # between two looks at all balances
    farewell: float = 5.0  # to write what is left when it is closed
    ahead: float = 0.0  # that its clock is ahead of Redis's


USUAL = Pulse()
