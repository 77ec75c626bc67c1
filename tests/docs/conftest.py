"""What the tests of the docs share: the real browser of the gateway's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))
