"""Which tests each command runs, and how thoroughly: every rule of the three tiers is here.

`make test` (`pytest --tier quick`) leaves out tests with a marker of `COSTLY`, `make check` (`--tier check`)
those marked `nightly`, and `make nightly` (plain pytest) nothing. The first two draw few examples of a law. A
test gets its markers by what it uses (`BY_FIXTURE`) or where it lies (`BY_PATH`); only `slow` and `nightly`
are written at tests. `pyproject.toml` says what each marker means. Of a long table of cases, `make check` may
take the first ones (`leave_to_nightly`), and of the cases within a test a third (`choose_some`).
"""

import contextlib
import fcntl
import functools
import gc
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from shared import FOLDER

BY_FIXTURE = {
    "ray_environ": "ray",
    "on_ray": "ray",
    "ray_pid": "ray",
    "local_model": "local_model",
    "browser": "browser",
    "demo": "demo",
}
BY_PATH = {  # how a path begins, from the repository's root
    "studies/": "study",
    "studies/fleet/tests/test_fleet_simulation.py": "nightly",
    "studies/paper/tests/test_large_figures.py": "nightly",  # `make check` has test_solve_figures.py
    "studies/paper/tests/test_learning_figures.py": "nightly",
    "studies/paper/tests/test_pareto_figures.py": "nightly",
    "tests/answers/test_recordings.py": "slow",
    "tests/cli/test_commands_benchmark.py": "slow",
    "tests/cli/test_report.py": "slow",
    "tests/cli/test_scoring.py": "slow",
    "tests/client/test_fuzz.py": "slow",
    "tests/docs/test_docs.py": "slow",  # every example of README and docs is run
    "tests/docs/test_pictures.py": "slow",
    "tests/docs/test_site.py": "nightly",  # builds the site, and its environment where that isn't there
    "tests/evaluate/test_modes.py": "slow",
    "tests/policies/test_classifier.py": "slow",
    "tests/policies/test_menu_policy.py": "slow",  # fits two modes, as tests of gateways do
    "tests/policies/test_peers.py": "slow",  # imports the packages that it compares with
    "tests/policies/test_tampered.py": "slow",
    "tests/pool/test_bundled.py": "slow",
    "tests/pool/test_fuzz.py": "slow",
    "tests/problems/test_gym.py": "slow",
    "tests/replay/test_money_budget.py": "nightly",  # calibrates and fits on a whole recording
    "tests/report/test_browser_page.py": "browser",
    "tests/report/test_exhibit_figures.py": "slow",
    "tests/sampling/test_answer_command.py": "slow",
    "tests/serve/test_benchmark.py": "nightly",
    "tests/serve/fleet/test_fleet.py": "slow",  # several gateways, a Redis and an upstream, killed in turn
    "tests/serve/fleet/test_fleet_command.py": "slow",
    "tests/serve/fleet/test_fleet_menu.py": "slow",
    "tests/serve/test_menu_end_to_end.py": "nightly",  # thousands of requests, of real processes
    "tests/serve/test_sentences.py": "slow",  # 660 requests, of ten kinds of questions
    "tests/serve/test_large_bodies.py": "slow",  # photos of 30 MiB
    "tests/serve/test_loop_stalls.py": "slow",  # replies and streams of many megabytes
    "tests/serve/test_storm.py": "slow",
    "tests/serve/test_without_extras.py": "slow",
}
COSTLY = ("browser", "demo", "local_model", "nightly", "ray", "slow", "study")
LEFT_OUT = {"quick": COSTLY, "check": ("nightly",)}  # the markers that a tier leaves out
FEW = 10  # examples of a law, at most, but for `make nightly`
ROOT = Path(__file__).parent.parent

settings.register_profile("full", deadline=None)  # a busy machine breaks no law
settings.register_profile("few", settings.get_profile("full"), max_examples=FEW)


def leave_to_nightly(cases: Iterable[Any], *, but: int = 1) -> list[Any]:
    """The cases of a parametrized test, tuples if it has several arguments; all but the first are nightly."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*each, marks=[pytest.mark.nightly] if number >= but else [])
        for number, each in enumerate(values)
    ]


def choose_some(cases: Sequence[Any], number: int) -> Sequence[Any]:
    """All of them in `make nightly`; else a third, and for the next number another one."""
    return cases[number % 3 :: 3] if settings.get_current_profile_name() == "few" else cases


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=LEFT_OUT, help="quick: what a change needs; check: what it must pass")


def pytest_configure(config: pytest.Config) -> None:
    """Chooses tests and the number of examples; `-m` and `--hypothesis-profile` choose otherwise."""
    tier = config.option.tier
    if tier and not config.option.markexpr:
        config.option.markexpr = _join_left_out(tier)
    settings.load_profile(config.getoption("--hypothesis-profile") or ("few" if tier else "full"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Named(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that a run leaves out as a whole aren't imported; one that is named on the command line is."""
    tier = config.option.tier
    if not tier or config.option.markexpr != _join_left_out(tier):
        return None
    return not _list_markers(collection_path).isdisjoint(LEFT_OUT[tier]) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected is garbage: looking through it took a fifth of each worker's time."""
    gc.disable()
    with _compile_once():
        outcome = yield
    gc.freeze()
    gc.enable()
    return outcome


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives every test its markers; those that look at the demo come last, when it is made."""
    for item in items:
        names = {BY_FIXTURE[name] for name in getattr(item, "fixturenames", ()) if name in BY_FIXTURE}
        for name in sorted(names | _list_markers(item.path)):
            item.add_marker(name)
    items.sort(key=lambda item: item.get_closest_marker("demo") is not None)
    if settings.get_current_profile_name() == "few":
        _draw_few(items)


@contextlib.contextmanager
def _compile_once() -> Iterator[None]:
    """In a fresh clone the first process compiles the tests, and the others wait for it."""
    if (ROOT / "tests" / "cli" / "__pycache__").exists():
        yield
        return
    with (Path(os.environ[FOLDER]) / "collection.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def _join_left_out(tier: str) -> str:
    return " and ".join(f"not {name}" for name in LEFT_OUT[tier])


@functools.cache
def _list_markers(path: Path) -> set[str]:
    """Those of every test in a file."""
    place = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return {marker for start, marker in BY_PATH.items() if place.startswith(start)}


def _draw_few(items: Sequence[pytest.Item]) -> None:
    """Laws that ask for more examples by themselves get as few as the others."""
    for item in items:
        law = getattr(item, "obj", None)
        own = getattr(law, "_hypothesis_internal_use_settings", None)
        if own is not None and own.max_examples > FEW:
            getattr(law, "__func__", law)._hypothesis_internal_use_settings = settings(own, max_examples=FEW)


class Named:
    """Names every failure as it happens, with its reason, also where several processes run the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        out = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or out is None:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = (crash.message if crash else str(report.longrepr)).strip().partition("\n")[0]
        out.ensure_newline()
        where = f"{report.when}, after {report.duration:.0f} s"
        out.write_line(f"FAILED {report.nodeid} ({where}): {reason[:300]}", red=True)
