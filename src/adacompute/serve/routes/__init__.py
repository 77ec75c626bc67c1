"""The endpoints for chat completions, responses and forwarded requests, and the `Gateway` that they share."""
