"""Policies in service, and the pacers that hold the average cost."""
