"""`adacompute local`: serves a small real model on this machine until stopped."""

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from adacompute.atomic import publish_file
from adacompute.cli.entry import CommandStopped
from adacompute.cli.options import JsonFlag
from adacompute.cli.terminal import format_curl, format_path, print_json, print_line, print_message
from adacompute.client.local import LocalModel, local_model
from adacompute.errors import ConfigError


def local(
    gguf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model file (GGUF). [default: the bundled SmolLM2-135M-Instruct]"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0: any free port.")] = 8081,
    slots: Annotated[
        int, typer.Option(min=1, max=256, help="Most responses at the same time, and largest parameter n.")
    ] = 8,
    context: Annotated[int, typer.Option(min=1, help="Most tokens of a prompt and its response.")] = 1024,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Processor threads. [default: the cores]", show_default=False)
    ] = None,
    menu: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a menu to try, with two modes of the model: short and long."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Serve a small real model on this machine, until Ctrl-C.

    The server is OpenAI-compatible, listens on 127.0.0.1 only, and needs adacompute[local]. Pass the URL that
    it prints to other commands as --endpoint. Ctrl-C or SIGTERM stops it with exit code 0.
    """
    if menu is not None and port == 0 and menu.exists():
        # with port 0 the port is different each time, so the URL in the existing menu file would be wrong
        raise _build_overwrite_error(menu)
    try:
        with local_model(gguf, port=port, slots=slots, context=context, threads=threads) as model:
            if menu is not None:
                _write_menu(menu, model)
            _announce(model, menu, json=json)
            model.watch(None)
    except CommandStopped:  # this is how the command normally ends
        print_message("stopped")


def _write_menu(path: Path, model: LocalModel) -> None:
    """Writes a menu file with two modes of the model; raises an error if it exists with other content."""
    template = files("adacompute.cli").joinpath("local_menu.toml").read_text("utf-8")
    content = template.format(url=model.url, model=model.name).encode()
    if path.exists():
        if not path.is_file() or path.read_bytes() != content:
            raise _build_overwrite_error(path)
        return
    with publish_file(path) as temporary:
        temporary.write_bytes(content)


def _build_overwrite_error(path: Path) -> ConfigError:
    return ConfigError(
        f"menu {format_path(path)!r} is there already, with other content; remove it, or name another file"
    )


def _announce(model: LocalModel, menu: Path | None, *, json: bool) -> None:
    if json:
        written = {} if menu is None else {"menu": format_path(menu)}
        print_json({"url": model.url, "model": model.name, "pid": model.pid, **written})
        return
    print_line(f"{model.name} at {model.url}")
    print_line()
    print_line(f"  {format_curl(model.url, max_tokens=32)}")
    print_line()
    if menu is not None:
        path = shlex.quote(format_path(menu))
        print_line(f"Menu of two of its modes, short and long, in {format_path(menu)}; elsewhere, try:")
        print_line()
        print_line(f"  adacompute menu check {path}")
        print_line(f"  adacompute serve --menu {path} --budget '0.05 USD per 1000'")
        print_line(f"  adacompute collect facts --limit 20 --menu {path} --samples 4 --pool modes.sqlite")
        print_line()
    print_message("Ctrl-C stops it")
