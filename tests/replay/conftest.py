"""Makes `made_ballots` and `drawn_ballots` importable to the tests of this room."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "score")]
