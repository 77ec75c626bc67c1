"""The gateway as a part of your own application: `uvicorn fastapi_app:app`, then base_url=".../llm/v1"."""

import os

from fastapi import FastAPI

import adacompute as ac

ENDPOINT = os.environ.get("ENDPOINT", "http://127.0.0.1:8081/v1")

gateway = ac.gateway(ac.ServeConfig(budget=3), upstream=ENDPOINT)
app = FastAPI(lifespan=gateway.lifespan)
app.mount("/llm", gateway)


@app.get("/")
def read_root() -> dict[str, str]:
    return {"chat": "/llm/v1/chat/completions", "dashboard": "/llm/dashboard"}
