"""Ledgers of spending and reservations: in memory, in a file, or in Redis."""
