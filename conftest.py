"""Fixtures and options that the tests of the package (tests) and of the studies (studies/*/tests) share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tests"))

pytest_plugins = ["tiers", "harness"]
