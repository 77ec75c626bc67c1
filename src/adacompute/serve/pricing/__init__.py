"""Policies in service, and the pacers that keep the average cost on budget."""
