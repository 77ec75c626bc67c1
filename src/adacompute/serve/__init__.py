"""The gateway: an OpenAI-compatible server in front of one upstream that keeps its average cost on target.

It knows nothing of how samples are collected offline or how policies are evaluated.
One request passes through: server, app, chat, request_parser, sample_loop (with policy_registry, pacer,
vote_eligibility and ledger), reply; afterwards observability, logs and the recorder are told of it.
"""
