"""The gateway: an OpenAI-compatible door to one upstream that keeps its average cost on target.

Knows nothing of how samples are collected or policies judged.
"""
