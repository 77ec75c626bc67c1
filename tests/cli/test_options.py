"""An option that overrides a setting is made of it: its help, its default and its type."""

import inspect
import shlex
import types
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import typer

from adacompute.cli.answer import answer
from adacompute.cli.app import flatten_options
from adacompute.cli.collect import collect
from adacompute.cli.options import build_option, format_command, get_flags, get_given
from adacompute.cli.serve import serve
from adacompute.config import CollectConfig, Config, EndpointConfig, ServeConfig, setting


@dataclass(frozen=True)
class Example:
    """A section, as those of the package are."""

    level: float = setting(2.0, "samples a request")
    limit: float = setting(0.0, "most that is spent", default_text="no limit")
    name: str = setting("", "whose they are", default_text="nobody's")
    mode: Literal["on", "off"] = setting("on", "whether it is on; or off")


def test_an_option_says_what_the_setting_means_and_its_default():
    assert build_option(Example, "level").help == "Samples a request. [default: 2]"
    assert build_option(Example, "name").help == "Whose they are. [default: nobody's]"
    assert build_option(Example, "limit").help == "Most that is spent. [default: no limit]"
    assert build_option(Example, "level", meaning="tokens").help == "Tokens. [default: 2]"
    assert build_option(Example, "level", show_default=False).help == "Samples a request."


def test_an_option_takes_only_what_the_setting_can_be():
    assert build_option(Example, "level").parser("3") == 3.0
    with pytest.raises(typer.BadParameter, match="not a number"):
        build_option(Example, "level").parser("x")
    mode = build_option(Example, "mode")
    assert (mode.metavar, mode.parser("off")) == ("<on|off>", "off")
    with pytest.raises(typer.BadParameter, match="'maybe'"):
        mode.parser("maybe")


@pytest.mark.parametrize("section", [type(getattr(Config(), name)) for name in get_type_hints(Config)])
def test_every_setting_has_a_meaning(section: type):
    for item in fields(section):
        assert item.metadata["meaning"], f"{section.__name__}.{item.name}"


@pytest.mark.parametrize(
    ("command", "sections"),
    [
        (serve, (ServeConfig, EndpointConfig)),
        (collect, (CollectConfig, EndpointConfig)),
        (answer, (CollectConfig, EndpointConfig)),
    ],
)
def test_options_named_as_settings_have_their_types(command, sections):
    command = flatten_options(command)
    hints = get_type_hints(command)
    checked = 0
    for name in inspect.signature(command).parameters:
        section = next((s for s in sections if name in get_type_hints(s)), None)
        if section is None or name in ("seed", "policy"):
            continue
        kind = get_type_hints(section)[name]
        kind = str if get_origin(kind) is Literal else kind
        kind = (
            str if get_origin(kind) in (types.UnionType, Union) else kind
        )  # float | str: a command line has texts only
        kind = list[str] if kind == tuple[str, ...] else kind  # an option that may be given again
        given = hints[name]
        parts = set(get_args(given)) - {types.NoneType} if get_args(given) else {given}
        assert parts <= ({kind, Path} if kind is str else {kind}), name
        checked += 1
    assert checked > 5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Options of two kinds."""

    size: Annotated[int | None, typer.Option("--how-large")] = None
    words: Annotated[list[str] | None, typer.Option()] = None
    quiet: Annotated[bool, typer.Option("--quiet")] = False


def test_a_group_of_options_stands_as_its_fields():
    calls: list[tuple[str, Pair]] = []

    def command(*, name: str, pair: Pair) -> None:
        calls.append((name, pair))

    flat = flatten_options(command)
    assert list(inspect.signature(flat).parameters) == ["name", "size", "words", "quiet"]
    flat(name="x", size=0, words=[], quiet=True)
    assert calls == [("x", Pair(size=0, words=[], quiet=True))]
    assert get_given(calls[0][1]) == {"size": 0, "quiet": True}
    assert get_flags(calls[0][1]) == {"--how-large": 0, "--words": None, "--quiet": True}


def test_a_command_is_kept_without_the_folders_of_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pool = tmp_path / "pool.sqlite"
    words = ["report", str(pool), f"--output={tmp_path}/", "--join", f"a={pool}", "~/notes/out"]
    names = ["--name", "maths/easy", "--extract", "regex:(a|b)/c", "--extract", "regex:" + "x/" * 5000]
    monkeypatch.setattr("sys.argv", ["adacompute", *words, *names])
    kept = ["report", "pool.sqlite", f"--output={tmp_path.name}", "--join", "a=pool.sqlite", "out"]
    assert shlex.split(format_command()) == ["adacompute", *kept, *names]
