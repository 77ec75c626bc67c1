"""The program that serves a GGUF file by llama.cpp until its parent ends. Imports nothing of this package.

`local.py` runs it as a file, in a process of its own: llama.cpp can't be stopped otherwise, and a crash in
it ends the process it is in. Its argument is JSON that says what to serve; it prints one line that says
where, and then waits for its input to end.
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
_CHECK_SECONDS = 1.0  # seconds between looks for the parent
_ERRORS_ONLY = 1  # llama.cpp's verbosity: it says on stderr what goes wrong, and nothing else
_SPARE_CONNECTIONS = 64  # beyond the slots: may be idle or wait without shutting others out
_ALLOWED_ORIGIN = "http://127.0.0.1"  # web pages of other origins may not read what is answered here


def start_server(config: dict[str, Any]) -> Any:  # noqa: ANN401 - llama.cpp's server; it ends with the process
    """A running server of `config["file"]`; RuntimeError where llama.cpp refuses, its reason on stderr."""
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = config["file"]
    params.model_alias = {config["name"]}
    params.hostnames = [_LOOPBACK]
    params.port = config["port"]
    params.n_parallel = config["slots"]
    params.n_ctx = config["slots"] * config["context"]  # divided among the slots
    for work in (params.cpuparams, params.cpuparams_batch):
        work.n_threads = config["threads"]
    params.n_threads_http = config["slots"] + _SPARE_CONNECTIONS
    params.cache_ram_mib = 0  # prompts are remembered in the slots, not in gigabytes beside them
    params.fit_params = False  # loads the file twice to see whether it fits, and then shrinks the context
    params.verbosity = _ERRORS_ONLY
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = _ALLOWED_ORIGIN
    return xllamacpp.Server(params)


def wait_for_parent(parent: int) -> None:
    """Returns when the input ends, or when the parent is gone though a fork of it keeps the input open."""
    while os.getppid() == parent:
        if select.select([0], [], [], _CHECK_SECONDS)[0] and not os.read(0, 4096):
            return


def _exit_with_parent(parent: int) -> NoReturn:
    wait_for_parent(parent)
    os._exit(0)  # at once: llama.cpp's threads can't be ended otherwise


def _end_with_input() -> None:
    """Has the kernel end this process by SIGIO when its input ends: while a file is loaded no thread runs.

    Nothing may ever be written to that input, because that would end the process too.
    """
    with contextlib.suppress(OSError):  # where the system can't, the thread does it once the file is loaded
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


def main() -> None:
    """Reads the configuration, serves, prints the address, and stays until the parent leaves."""
    replies = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not reach the pipe
    config = json.loads(sys.argv[1])
    sys.path[:] = config["path"]
    _end_with_input()
    if select.select([0], [], [], 0)[0]:
        os._exit(0)  # it had ended before
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
    # else an ordinary exit, during which llama.cpp's own thread still writes the reason


if __name__ == "__main__":
    main()
