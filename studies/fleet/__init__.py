"""A fleet of gateways, simulated with service times that were measured. Knows nothing of pages."""
