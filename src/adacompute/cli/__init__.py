"""The command line: each command parses its options, calls one stage of the package and prints the result.

There are no computations here, and no state is kept.
"""

from adacompute.cli.entry import main

__all__ = ["main"]
