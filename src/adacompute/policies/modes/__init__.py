"""Stop, ask again, or ask another mode: one policy over several models and efforts, at one price."""
