"""The sections of the report: words, tables and pictures put together. Knows no HTML."""
