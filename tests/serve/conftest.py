"""What tests of the gateway need: the scripted upstream of tests/endpoint, and the gateway in front of it."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "endpoint")]
