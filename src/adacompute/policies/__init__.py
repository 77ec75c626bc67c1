"""Who decides how many samples a request gets. Knows nothing of how they are drawn, or of the network."""
