"""Other servers, in environments of their own under `.peers/`, made when they are first wanted.

Knows nothing of what is measured. They are no part of the lock: LiteLLM's proxy alone has a hundred
dependencies. They also get uvloop and httptools, which uvicorn then uses as it does for us.
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

__all__ = ["Absent", "Peer", "its_hub", "litellm", "name_of"]

FOLDER = ROOT / ".peers"
PINS = {
    # the newest whose dependencies the registry has; later ones want a certifi that it hasn't
    "litellm": ("litellm[proxy]==1.106.2", "uvloop==0.23.0", "httptools==0.9.0"),
    "its_hub": ("its_hub[iaas]==1.2.0", "uvloop==0.23.0", "httptools==0.9.0"),
}
NAMES = {
    "litellm": "LiteLLM proxy",
    "its_hub": "its_hub's server",
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
    wanted = PINS[name]
    make = [sys.executable, "-m", "venv", str(place)]
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [make, [*pip, *wanted]]


def name_of(name: str) -> str:
    """As the tables call it."""
    return f"{NAMES[name]} {PINS[name][0].rpartition('==')[2]}"


def _post(url: str, value: object) -> None:
    request = urllib.request.Request(url, json.dumps(value).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        reply.read()
