"""Runs the stages on Ray."""
