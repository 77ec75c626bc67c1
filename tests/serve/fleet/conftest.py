"""What tests of fleets need beside what tests of one gateway do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
