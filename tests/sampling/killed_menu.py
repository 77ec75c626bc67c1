"""As tests/sampling/killed.py, of a batch over a menu: `killed_menu.py "SMALL LARGE POLICY" POOL KILLS SEED`.

The first argument has the addresses of both upstreams and the folder of a fitted policy.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "client")]

import killed  # noqa: E402 - of the folders that were just added
from collecting import endpoint, problems  # noqa: E402
from menu_batches import PRICES  # noqa: E402

from adacompute.client.settings import ModeEndpoint  # noqa: E402
from adacompute.policies import load_policy  # noqa: E402
from adacompute.pool import Pool, open_pool  # noqa: E402
from adacompute.pool.modes import MODE_PARAMETER  # noqa: E402
from adacompute.problems import Template  # noqa: E402
from adacompute.sampling import answer, build_plan  # noqa: E402

REQUESTS, BUDGET, CONCURRENCY = 60, 0.5, 4


def live(given: str, path: str) -> None:
    small, large, policy = given.split()
    plans = [
        build_plan(
            ModeEndpoint(
                name=name,
                endpoint=endpoint(url, concurrency=CONCURRENCY),
                model="scripted",
                prices=PRICES[name],
            ),
            template=Template.named("plain"),
            sampling={"max_tokens": 64},
        )
        for name, url in (("small", small), ("large", large))
    ]
    with open_pool(path, create=True) as pool:
        answer(
            problems(REQUESTS),
            pool,
            plans,
            policy=load_policy(policy),
            budget=f"{1000 * BUDGET} USD per 1000",
        )


def list_sources(pool: Pool) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    for model, parameters in pool.models:
        yield parameters[MODE_PARAMETER], model, parameters


if __name__ == "__main__":
    killed.live = live
    killed.main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
