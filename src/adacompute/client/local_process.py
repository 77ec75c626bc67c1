"""The program that serves a GGUF file with llama.cpp until its parent process ends.

`local.py` runs this program as a separate process: llama.cpp may crash, and can't be stopped otherwise. The
program doesn't import adacompute. Its argument is a JSON object that says what to serve. It prints one line
of JSON, with the address or an error, and ends when its stdin is closed.
"""

import contextlib
import fcntl
import json
import os
import select
import sys
import threading
from typing import Any, NoReturn

_LOOPBACK = "127.0.0.1"
_CHECK_SECONDS = 1.0  # interval between checks that the parent process still runs
_ERRORS_ONLY = 1  # llama.cpp's verbosity: print only errors to stderr
_SPARE_CONNECTIONS = 64  # number of HTTP threads beyond one per slot, because idle connections occupy threads
_ALLOWED_ORIGIN = "http://127.0.0.1"  # web pages from other origins can't read replies


def start_server(config: dict[str, Any]) -> Any:  # noqa: ANN401 - llama.cpp's server; it ends with the process
    """Starts a server for `config["file"]`; RuntimeError if llama.cpp refuses, with the reason on stderr."""
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = config["file"]
    params.model_alias = {config["name"]}
    params.hostnames = [_LOOPBACK]
    params.port = config["port"]
    params.n_parallel = config["slots"]
    params.n_ctx = config["slots"] * config["context"]  # llama.cpp divides the context among the slots
    for work in (params.cpuparams, params.cpuparams_batch):
        work.n_threads = config["threads"]
    params.n_threads_http = config["slots"] + _SPARE_CONNECTIONS
    params.cache_ram_mib = 0  # caches prompts only in the slots, without using extra gigabytes of memory
    params.fit_params = False  # True would load the file twice and then shrink the context
    params.verbosity = _ERRORS_ONLY
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = _ALLOWED_ORIGIN
    return xllamacpp.Server(params)


def _exit_with_parent(parent: int) -> NoReturn:
    """Ends this process when stdin is closed or the parent has ended.

    Both are checked, because a fork of the parent may keep stdin open after the parent's end.
    """
    while os.getppid() == parent:
        if select.select([0], [], [], _CHECK_SECONDS)[0] and not os.read(0, 4096):
            break
    os._exit(0)  # exits immediately, because llama.cpp's threads can't be ended otherwise


def _end_with_input() -> None:
    """Makes the kernel end this process by SIGIO when stdin is closed, or when anything is written to it.

    This works even while llama.cpp is loading the model, which blocks all threads of this process.
    """
    # if this fails, only `_exit_with_parent` ends the process, and it can't run while the model is loading
    with contextlib.suppress(OSError):
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


def main() -> None:
    """Reads the configuration, serves, prints the address, and runs until the parent ends."""
    replies = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print to stdout goes to stderr, so that the parent doesn't read it
    config = json.loads(sys.argv[1])
    sys.path[:] = config["path"]
    _end_with_input()
    if select.select([0], [], [], 0)[0]:
        os._exit(0)  # the parent has ended already
    watch = threading.Thread(target=_exit_with_parent, args=(config["parent"],), daemon=True)
    watch.start()
    try:
        server = start_server(config)
        reply = {"address": server.listening_address}
    except Exception as exc:  # noqa: BLE001 - whatever it is, the parent is to say it in one line
        server, reply = None, {"error": f"{type(exc).__name__}: {exc}"}
    os.write(replies, json.dumps(reply).encode("ascii") + b"\n")
    if server is not None:
        watch.join()
    # if loading failed, exit normally: a thread of llama.cpp may still be writing the reason to stderr


if __name__ == "__main__":
    main()
