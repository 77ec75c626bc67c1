"""Requests with their gateway options, validated, and their replies and streams."""
