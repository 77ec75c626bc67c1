"""Makes StoppingPolicy's priors from the bundled recordings: `python scripts/prior.py`.

Doesn't know any other recording. A prior is made of all of them, and of each alone, so that a bundled
recording can be judged by a prior that hasn't seen it.
"""

import sys
from pathlib import Path

from adacompute.policies.artefact import write_artefact
from adacompute.policies.stopping.prior import BUNDLED, prior_of
from adacompute.pool import bundled

FOLDER = Path(__file__).resolve().parent.parent / "src/adacompute/policies/stopping/priors"


def main() -> None:
    """Writes every prior anew."""
    for name in BUNDLED:
        recordings = []
        for part in name.split("-"):
            with bundled(part) as pool:
                recordings.append(pool.ballots())
        prior = prior_of(recordings, longest=16)
        settings = {"problems": prior.problems, "scale": prior.scale}
        write_artefact(FOLDER / name, kind="prior", settings=settings, arrays=prior.arrays())
        sys.stderr.write(f"{name}: {prior.problems} problems\n")


if __name__ == "__main__":
    main()
