"""Makes `upstream` importable to the tests of this room (others put this folder on their path likewise)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
