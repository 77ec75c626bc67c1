"""A request checked, what it asks of the gateway itself, its reply and its stream."""
