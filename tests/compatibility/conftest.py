"""What the tests of clients need: the suite, and the gateway as a process (tests/serve)."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "serve")]
