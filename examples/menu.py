"""Two ways to ask under one average budget in money: brief and cheap, or with more room and dear.

With models of several sizes it is the same; here both are the small local one, at made-up prices.
"""

import os
import tempfile
from pathlib import Path

import adacompute as ac

ENDPOINT = os.environ.get("ENDPOINT", "http://127.0.0.1:8081/v1")
MODEL = os.environ.get("MODEL", "SmolLM2-135M-Instruct-Q4_1")
MENU = f"""
[brief]
upstream = "{ENDPOINT}"
model = "{MODEL}"
input_price = 0.1
output_price = 0.4
options = {{ max_tokens = 16 }}

[roomy]
upstream = "{ENDPOINT}"
model = "{MODEL}"
input_price = 1.0
output_price = 4.0
options = {{ max_tokens = 96 }}
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "menu.toml")
    path.write_text(MENU)
    with ac.Asker(menu=path, budget="0.05 USD per 1,000 requests") as asker:
        for country in ("France", "Vietnam", "Peru", "Norway", "Kenya"):
            reply = asker.ask(f"What is the capital of {country}?")
            print(f"{country:8} {reply.answer}  drawn: {dict(reply.modes)}, {reply.cost:.7f} USD")
        print(f"average {asker.average:.7f} USD")
