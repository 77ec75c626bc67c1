"""Makes `upstream`, the scripted server of the endpoint's tests, and this room's own `batches` importable."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parent.parent / "endpoint"):
    sys.path.insert(0, str(folder))
