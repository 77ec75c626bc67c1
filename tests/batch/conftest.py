"""Makes this room's helpers importable, and those of the endpoint's and the collector's tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / room) for room in ("batch", "endpoint", "collect")]
