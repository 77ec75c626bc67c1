"""Keeps the policies in service, and adjusts their price of compute so that costs meet the budget."""
