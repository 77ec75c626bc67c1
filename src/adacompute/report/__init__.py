"""Builds and writes the report: a page with tables and figures on the accuracy that a budget buys.

The report depends neither on how policies decide nor on the command line.
"""
