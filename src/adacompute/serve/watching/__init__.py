"""Observes requests: metrics, the dashboard, traces and logs; records them to a pool."""
