"""The same stages past one machine: on Ray, and over more rows than memory holds."""
