"""Builds and writes the report: a page that shows what a budget buys on a pool, with tables and figures.

Knows nothing about how policies decide, or about the command line.
"""
