"""A collector that is killed with -9 at random points, again and again; then one that is left to finish.

`python killed.py URL POOL KILLS SEED`: imports once and forks for each life, so that a life begins at once.
Prints how many lives there were, and how many of them ended by being killed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "client")]

from collecting import plan, problems  # noqa: E402 - of the folder that was just added

from adacompute.pool import open_pool  # noqa: E402
from adacompute.sampling import collect  # noqa: E402

PROBLEMS, SAMPLES, CONCURRENCY = 60, 10, 4


def live(url: str, path: str) -> None:
    with open_pool(path, create=True) as pool:
        collect(problems(PROBLEMS), pool, plan(url, concurrency=CONCURRENCY, samples=SAMPLES))


def main(url: str, path: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    killed = 0
    for life in range(kills + 1):
        child = os.fork()
        if child == 0:
            live(url, path)
            os._exit(0)
        if life < kills:
            time.sleep(rng.uniform(0.0, 0.12))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        assert os.WIFSIGNALED(status) or status == 0, status
    print(killed)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
