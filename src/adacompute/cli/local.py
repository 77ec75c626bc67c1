"""`adacompute local`: a small real model on this machine, served until it is stopped."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli.options import JsonFlag
from adacompute.cli.terminal import format_curl, print_json, print_line, print_message
from adacompute.client.local import LocalModel, local_model

__all__ = ["local"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _StopRequested(BaseException):
    """Raised by a signal: for this command, stopping is the normal end."""


def local(
    gguf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A GGUF file. [default: SmolLM2-135M-Instruct, which comes along]"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="On 127.0.0.1; 0 takes any free port.")] = 8081,
    slots: Annotated[
        int, typer.Option(min=1, max=256, help="Responses at the same time, and the most that n may be.")
    ] = 8,
    context: Annotated[int, typer.Option(min=1, help="Tokens of a response with its prompt.")] = 1024,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Processor threads. [default: its cores]", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Serve a small real model on this machine, until Ctrl-C.

    It is OpenAI-compatible, listens on loopback only, and needs adacompute[local]. Give the URL that it
    prints to other commands as --endpoint. Ctrl-C or SIGTERM stops it with exit code 0.
    """
    try:
        with (
            _stop_on_signals(),
            local_model(gguf, port=port, slots=slots, context=context, threads=threads) as model,
        ):
            _announce(model, json=json)
            model.watch(None)
    except _StopRequested:
        print_message("stopped")


def _announce(model: LocalModel, *, json: bool) -> None:
    if json:
        print_json({"url": model.url, "model": model.name, "pid": model.pid})
        return
    print_line(f"{model.name} at {model.url}")
    print_line()
    print_line(f"  {format_curl(model.url, max_tokens=32)}")
    print_line()
    print_message("Ctrl-C stops it")


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """Raise `_StopRequested` inside on the first SIGINT or SIGTERM; later ones are ignored."""

    def request_stop(_number: int, _frame: object) -> None:
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise _StopRequested

    previous = [signal.signal(number, request_stop) for number in _STOP_SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(_STOP_SIGNALS, previous, strict=True):
            signal.signal(number, handler)
