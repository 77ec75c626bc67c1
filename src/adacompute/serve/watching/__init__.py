"""Observes requests: metrics, the dashboard, traces, logs, and recording to a pool."""
