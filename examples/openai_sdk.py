"""OpenAI's client through the gateway: only `base_url` changes, and a reply says how it was voted on."""

import os
import subprocess
import sys
import urllib.request

from openai import OpenAI

ENDPOINT = os.environ.get("ENDPOINT", "http://127.0.0.1:8081/v1")
PORT = os.environ.get("PORT", "8080")

gateway = subprocess.Popen(
    [sys.executable, "-m", "adacompute", "serve", "--budget", "3", "--upstream", ENDPOINT, "--port", PORT]
)
try:
    while True:  # until it is open
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=1).close()
            break
        except OSError:
            if gateway.poll() is not None:
                sys.exit("the gateway didn't start")
    client = OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="none")
    model = client.models.list().data[0].id
    reply = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "What is the chemical symbol of oxygen?"}]
    )
    print(reply.choices[0].message.content)
    print(reply.usage)
    print(reply.model_extra["adacompute"])
finally:
    gateway.terminate()
    gateway.wait()
