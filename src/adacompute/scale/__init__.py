"""The same stages on Ray."""
