"""Draws the samples of a request in rounds, reads their answers, and counts votes."""
