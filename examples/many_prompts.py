"""Many questions within one average budget: easy ones take a sample or two, hard ones more."""

import os

import adacompute as ac

ENDPOINT = os.environ.get("ENDPOINT", "http://127.0.0.1:8081/v1")
COUNTRIES = ["France", "Vietnam", "Peru", "Norway", "Kenya", "Canada", "Japan", "Hungary"]

prompts = [f"What is the capital of {country}?" for country in COUNTRIES]
with ac.Asker(ENDPOINT, budget=3) as asker:
    for country, reply in zip(COUNTRIES, asker.ask_iter(prompts, max_tokens=24), strict=True):
        print(f"{country:10} {reply.answer or reply.text or reply.error}  ({reply.samples} samples)")
    print(f"average {asker.average}, all together {asker.spent.samples} samples")
