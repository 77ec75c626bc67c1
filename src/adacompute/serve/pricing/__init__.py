"""Keeps the policies in service, and adjusts their prices so that the average cost stays on budget."""
