"""Chat, responses and everything else that is passed on, and the `Gateway` that they share."""
