"""The ledger, in memory and a file, or in Redis."""
