"""Makes the helpers of these tests importable, and the scripted upstream of the client's tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / room) for room in ("sampling", "client")]
