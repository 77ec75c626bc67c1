"""One question: it is asked until another sample isn't worth its price, at most 3 times on average."""

import os

import adacompute as ac

ENDPOINT = os.environ.get("ENDPOINT", "http://127.0.0.1:8081/v1")

reply = ac.ask("What is the capital of Vietnam?", endpoint=ENDPOINT, budget=3)
print(reply.text)
print(f"answer {reply.answer!r}, votes {dict(reply.votes)}, {reply.samples} samples, {reply.tokens} tokens")
