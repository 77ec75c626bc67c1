"""Observes requests: metrics, dashboard, spans, log lines, recorder."""
