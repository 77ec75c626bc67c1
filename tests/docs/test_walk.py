"""The quickstart is walked: each of its commands is run, in order, and prints what the page shows.

In the place of the model stand the responses that it gave when `facts` was recorded, behind a real server
that behaves as `adacompute local` does. The report has tests of its own, and takes longer than all else here.
"""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import import_script
from recorded_replies import ADDRESS, serve_recording

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "quickstart.md"
# what `fit` says only where a budget is underspent: calls end in any order, so a price may be a little other
OPTIONAL = re.compile(r"^ *Many requests have equal votes here.*?by lot\.\n", re.DOTALL | re.MULTILINE)

walk = import_script("walk")


@pytest.fixture
def endpoint() -> Iterator[str]:
    with serve_recording() as url:
        yield url


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.slow
def test_every_step_of_the_quickstart_prints_what_the_page_shows(tmp_path: Path, endpoint: str, warm):
    port = free_port()
    swaps = {
        ADDRESS: endpoint,
        "http://127.0.0.1:8080/v1": f"http://127.0.0.1:{port}/v1",
        "adacompute serve ": f"adacompute serve --port {port} ",
    }

    def run(words: list[str], folder: Path, environ: dict[str, str]):
        forked = words[0] == "adacompute"
        return (
            warm().run(*words[1:], folder=folder, environ=environ)
            if forked
            else walk.run_to_end(words, folder, environ)
        )

    taken = []
    steps = walk.walk_steps(
        PAGE.read_text("utf-8"),
        tmp_path,
        run=run,
        skip=lambda command: command.startswith(("adacompute local", "adacompute report")),
        swaps=swaps,
    )
    for went in steps:
        taken.append(went.command.split()[1])
        if went.kind == "live":
            assert len(went.printed.splitlines()) == len(went.shown.splitlines()), went.printed
        else:
            printed = OPTIONAL.sub("", went.printed)
            assert walk.skeleton(printed) == walk.skeleton(went.shown), went.command
    assert taken == ["ask", "collect", "collect", "pool", "fit", "serve", "ask.py"]


def test_numbers_may_differ_from_walk_to_walk_and_words_may_not():
    assert walk.skeleton("1   37.2%  26.7–47.7%\n") == walk.skeleton("16  9%  1.0–2.0%\n")
    assert walk.skeleton("learned from 40 problems") != walk.skeleton("learned without 40 problems")
