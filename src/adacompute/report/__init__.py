"""One page that says what a budget buys on a pool, with its tables and figures beside it.

Knows nothing of how policies decide or of the command line.
"""
