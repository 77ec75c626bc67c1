"""The exhibits of the report, one file each: its numbers, its figure and its words. Knows no HTML."""
