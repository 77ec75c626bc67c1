"""What tests of the collector need: the scripted upstream beside them, and collections against it."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "endpoint")]
