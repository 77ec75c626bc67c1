"""The command line: parse, call a stage, print. Knows no mathematics and keeps no state."""

from adacompute.cli.app import main

__all__ = ["main"]
