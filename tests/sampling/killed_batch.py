"""As tests/sampling/killed.py, of a batch: `python killed_batch.py URL POOL KILLS SEED`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "client")]

import killed  # noqa: E402 - of the folders that were just added
from batches import ASKING  # noqa: E402
from collecting import plan, problems  # noqa: E402

from adacompute.policies.stopping import StoppingPolicy  # noqa: E402
from adacompute.pool import open_pool  # noqa: E402
from adacompute.sampling import answer  # noqa: E402

REQUESTS, BUDGET, CONCURRENCY = 60, 4.0, 4


def live(url: str, path: str) -> None:
    with open_pool(path, create=True) as pool:
        answer(
            problems(REQUESTS),
            pool,
            plan(url, concurrency=CONCURRENCY, asking=ASKING),
            policy=StoppingPolicy(),
            budget=BUDGET,
        )


if __name__ == "__main__":
    killed.live = live
    killed.main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
