"""What is seen of requests: metrics, the dashboard, spans, log lines, the recorder."""
