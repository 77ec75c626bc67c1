"""Other servers, in environments of their own under `.peers/`, made when they are first wanted.

Knows nothing of what is measured. They are no part of the lock: LiteLLM's proxy alone has a hundred
dependencies. Those on uvicorn also get uvloop and httptools, which it then uses as it does for us.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import ROOT, free_port, running

__all__ = ["Absent", "Peer", "its_hub", "litellm", "name_of", "optillm", "portkey"]

FOLDER = ROOT / ".peers"
PINS = {
    # the newest whose dependencies the registry has; later ones want a certifi that it hasn't
    "litellm": ("litellm[proxy]==1.106.2", "uvloop==0.23.0", "httptools==0.9.0"),
    "its_hub": ("its_hub[iaas]==1.2.0", "uvloop==0.23.0", "httptools==0.9.0"),
    # what its server loads where it only passes on; all that it asks for is several GB, PyTorch among them
    "optillm": (
        "optillm==0.4.0",
        *("flask", "openai", "httpx", "numpy", "networkx", "aiohttp", "requests", "cerebras_cloud_sdk"),
        *("z3-solver<=4.15.4.0", "math-verify", "PyYAML", "scikit-learn"),
    ),
    "portkey": ("@portkey-ai/gateway@1.15.2",),
    "py-spy": ("py-spy==0.4.3",),  # no server: what benchmarks.flame looks with
}
NAMES = {
    "litellm": "LiteLLM proxy",
    "its_hub": "its_hub's server",
    "optillm": "optillm",
    "portkey": "Portkey gateway",
}


class Absent(Exception):
    """A peer that can't be had on this machine."""


@dataclass(frozen=True)
class Peer:
    """A server that runs."""

    name: str  # with its version
    url: str  # of chat completions
    pid: int
    headers: Mapping[str, str] = field(default_factory=dict)  # that every request has to have


@contextlib.contextmanager
def litellm(upstream: str, folder: Path) -> Iterator[Peer]:
    """The LiteLLM proxy in front of an upstream: one worker, no database, no keys, no telemetry."""
    place = environment("litellm")
    config = {
        "model_list": [
            {
                "model_name": "m",
                "litellm_params": {"model": "openai/m", "api_base": upstream, "api_key": "none"},
            }
        ],
        "litellm_settings": {"set_verbose": False},
    }
    (folder / "litellm.yaml").write_text(json.dumps(config))  # JSON is YAML
    environ = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
    }
    port = free_port()
    words = [str(place / "bin" / "litellm"), "--config", "litellm.yaml", "--port", str(port)]
    words += ["--host", "127.0.0.1", "--num_workers", "1", "--telemetry", "False"]
    ready = f"http://127.0.0.1:{port}/health/liveliness"
    with running(words, ready, folder=folder, environ=environ, wait=180) as pid:
        yield Peer(name_of("litellm"), f"http://127.0.0.1:{port}/v1/chat/completions", pid)


@contextlib.contextmanager
def its_hub(upstream: str, folder: Path, *, budget: int) -> Iterator[Peer]:
    """its_hub's server: self-consistency over the boxed answers, so many samples a request."""
    place = environment("its_hub")
    port = free_port()
    words = [str(place / "bin" / "its-iaas"), "--port", str(port), "--log-level", "WARNING"]
    with running(words, f"http://127.0.0.1:{port}/v1/models", folder=folder, wait=180) as pid:
        settings = {
            "endpoint": upstream,
            "api_key": "none",
            "model": "m",
            "alg": "self-consistency",
            "regex_patterns": [r"\\boxed\{([^}]*)\}"],
            "budget": budget,
        }
        _post(f"http://127.0.0.1:{port}/configure", settings)
        yield Peer(name_of("its_hub"), f"http://127.0.0.1:{port}/v1/chat/completions", pid)


@contextlib.contextmanager
def optillm(upstream: str, folder: Path) -> Iterator[Peer]:
    """optillm's server, which passes on: its other approaches are several requests each."""
    place = environment("optillm")
    port = free_port()
    words = [str(place / "bin" / "optillm"), "--port", str(port), "--approach", "none", "--log", "error"]
    words += ["--base-url", upstream]
    environ = {"OPENAI_API_KEY": "none"}
    ready = f"http://127.0.0.1:{port}/health"
    with running(words, ready, folder=folder, environ=environ, wait=180) as pid:
        yield Peer(name_of("optillm"), f"http://127.0.0.1:{port}/v1/chat/completions", pid)


@contextlib.contextmanager
def portkey(upstream: str, folder: Path) -> Iterator[Peer]:
    """Portkey's gateway, on Node, as its command starts it; no console, no cache, no retries."""
    place = environment("portkey")
    port = free_port()
    program = place / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    words = ["node", str(program), f"--port={port}", "--headless"]
    environ = {"NODE_ENV": "production"}
    headers = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": upstream,
        "authorization": "Bearer none",
    }
    with running(words, f"http://127.0.0.1:{port}/", folder=folder, environ=environ) as pid:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        yield Peer(name_of("portkey"), url, pid, headers)


def environment(name: str) -> Path:
    """The folder of a peer's environment; Absent, with the reason, where it can't be made."""
    place, wanted = FOLDER / name, PINS[name]
    stamp = place / "pinned.txt"
    if stamp.is_file() and stamp.read_text("utf-8") == "\n".join(wanted):
        return place
    print(f"installing {', '.join(wanted)} into {place.relative_to(ROOT)} …", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    for words in _list_commands(name, place):
        if shutil.which(words[0]) is None:
            raise Absent(f"{wanted[0]} needs {words[0]}, which isn't here")
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith(("ERROR", "npm error"))]
            why = lines or done.stderr.splitlines() or ["it ended without a word"]
            raise Absent(f"{wanted[0]} can't be installed here: {why[-1][:200]}")
    stamp.write_text("\n".join(wanted), "utf-8")
    return place


def _list_commands(name: str, place: Path) -> list[list[str]]:
    """What installs a peer, from nothing."""
    wanted = list(PINS[name])
    if name == "portkey":
        return [
            ["node", "--version"],
            ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(place), *wanted],
        ]
    make = [sys.executable, "-m", "venv", str(place)]
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if name == "optillm":
        return [make, [*pip, "--no-deps", wanted[0]], [*pip, *wanted[1:]]]
    return [make, [*pip, *wanted]]


def name_of(name: str) -> str:
    """As the tables call it."""
    return f"{NAMES[name]} {PINS[name][0].rpartition('@' if name == 'portkey' else '==')[2]}"


def _post(url: str, value: object) -> None:
    request = urllib.request.Request(url, json.dumps(value).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        reply.read()
