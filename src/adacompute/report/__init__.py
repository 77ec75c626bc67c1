"""Builds and writes the report: a page with tables and figures on the accuracy that a budget buys.

Doesn't depend on how policies decide, or on the command line.
"""
