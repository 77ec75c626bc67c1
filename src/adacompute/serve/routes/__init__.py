"""Chat, responses and forwarded requests, and the `Gateway` that they share."""
