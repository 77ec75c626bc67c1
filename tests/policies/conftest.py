"""Makes `every_policy` importable to the tests of this room."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
