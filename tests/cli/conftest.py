"""Makes `upstream`, the scripted endpoint of tests/client, importable to the tests of this room."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "client"))
