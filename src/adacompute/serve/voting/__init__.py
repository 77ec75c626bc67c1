"""The waves of one request: what to draw, how to read it, and whether to vote."""
