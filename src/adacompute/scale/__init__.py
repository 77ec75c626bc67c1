"""Runs stages on a Ray cluster: collecting samples, scoring, solving, replaying and allocating budgets."""
