"""The command line: each command parses its options, calls one stage of the package and prints the result.

It computes nothing itself and keeps no state.
"""

from adacompute.cli.entry import main

__all__ = ["main"]
