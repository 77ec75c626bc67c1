"""A page that shows what a budget buys on a pool, with its tables and figures.

Knows nothing about how policies decide, or about the command line.
"""
