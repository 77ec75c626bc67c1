"""A request's place among others, from 0 to below 1, by which its price is spread a little.

Plain votes have few states, so what a policy costs jumps with its price. If each request has a price of its
own, within 1% of the given one, a budget between both sides of a jump is met by a mix of them. A prompt's
place is its hash; in replay the orders of a problem's samples are spread evenly from there. The gateway draws
the place of each request at random.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from adacompute.policies.votes import Floats

_WIDTH = 0.02  # in the logarithm of prices, or the log-odds of thresholds


class OwnPrice(float):
    """A price that is a request's own already, and isn't spread by its prompt's place."""


def spread_price(price: float, places: Floats, *, dial: str = "price") -> Floats:
    """The price, or threshold, of each request by its place, (requests,); those of higher places are higher.

    >>> spread_price(0.05, np.array([0.0, 0.5, 1.0])).round(4).tolist()
    [0.0495, 0.05, 0.0505]
    """
    factor = np.exp(_WIDTH * (places - 0.5))
    return price * factor if dial == "price" else price * factor / (1 + price * (factor - 1))


def place_orders(prompts: Sequence[str], orders: int = 1) -> Floats:
    """The place of each order of each prompt's samples, (prompts * orders,)."""
    places = hash_to_unit(prompts, seed=0)[:, None] + np.arange(orders) / orders
    return np.asarray(places.reshape(-1) % 1)


def hash_to_unit(prompts: Sequence[str], *, seed: int) -> Floats:
    """A number from 0 to below 1 for each prompt, (prompts,): a hash of the seed and the prompt.

    >>> first, second = hash_to_unit(["What is 2 + 2?", "What is 2 + 3?"], seed=0).tolist()
    >>> first == hash_to_unit(["What is 2 + 2?"], seed=0).item(), first == second
    (True, False)
    """
    return np.array(
        [(hash_prompt(prompt, seed=seed) >> 11) * 2.0**-53 for prompt in prompts], dtype=np.float64
    )


def hash_prompt(prompt: str, *, seed: int = 0) -> int:
    """A 64-bit hash of the seed and the prompt."""
    text = prompt.encode("utf-8", "surrogatepass")  # a cut conversation may end in half a surrogate pair
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=seed.to_bytes(8, "big")).digest(), "big")
