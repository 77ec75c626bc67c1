"""Makes this room's helpers importable, and those of the tests of what is run on a cluster."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / room) for room in ("scale", "sampling", "client", "policies")]
