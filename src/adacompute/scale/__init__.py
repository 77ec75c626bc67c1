"""Collects samples and runs other stages on a Ray cluster."""
