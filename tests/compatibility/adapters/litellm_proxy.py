"""The LiteLLM proxy as a process, with models "openai/NAME" of all servers.

It starts only once, for that takes 10 to 20 seconds: the model `gpt-4o` of the first server is its
`0-gpt-4o`. It retries nothing and gives no model a rest, because the servers are compared, and not what it
makes up for.
"""

import atexit
import functools
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import cases

MODELS = (cases.MODEL, cases.FAILING, "text-embedding-3-small")
WAIT = 120.0  # seconds for the start


def name_models(server: str) -> tuple[str, ...]:
    """The proxy's names for the models of a server."""
    return tuple(f"{cases.URLS.index(server)}-{model}" for model in MODELS)


@functools.cache
def start_proxy() -> str:
    """Starts the proxy, which ends with this process; its address, with /v1."""
    folder = tempfile.TemporaryDirectory()
    config, log = Path(folder.name) / "config.yaml", Path(folder.name) / "log"
    config.write_text(json.dumps(build_config()), "utf-8")  # JSON is YAML too
    port = find_port()
    words = [Path(sys.executable).with_name("litellm"), "--config", config, "--port", str(port)]
    with log.open("w") as out:
        process = subprocess.Popen([*words, "--host", "127.0.0.1"], stdout=out, stderr=out)
    atexit.register(end, process, folder)
    until = time.monotonic() + WAIT
    while not answers(f"http://127.0.0.1:{port}/health/liveliness"):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the proxy doesn't start: {log.read_text('utf-8')[-2000:]}")
        time.sleep(0.2)
    return f"http://127.0.0.1:{port}/v1"


def end(process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.terminate()
    process.wait()
    folder.cleanup()


def build_config() -> dict[str, Any]:
    """The proxy's settings. It asks for no key of its own."""
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{model}",
                "api_base": server,
                "api_key": cases.KEY,
                "max_retries": 0,
            },
        }
        for server in cases.URLS
        for name, model in zip(name_models(server), MODELS, strict=True)
    ]
    return {
        "model_list": models,
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def answers(page: str) -> bool:
    """Whether the proxy is there."""
    try:
        urllib.request.urlopen(page, timeout=5).close()
    except OSError:
        return False
    return True
