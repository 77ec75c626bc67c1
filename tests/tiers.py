"""Which tests `make test` runs, and how thoroughly: every rule of the two tiers is here.

`make test` (`pytest --quick`) leaves out tests with a marker of `COSTLY` and draws few examples; `make check`
runs everything. A test gets its markers by what it uses (`BY_FIXTURE`) or where it lies (`BY_PATH`); only
`slow` is written at the test. `pyproject.toml` says what each marker means.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings

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
    "tests/answers/test_recordings.py": "slow",
    "tests/cli/test_report.py": "slow",
    "tests/cli/test_scoring.py": "slow",
    "tests/client/test_fuzz.py": "slow",
    "tests/docs/test_docs.py": "slow",  # every example of README and docs is run
    "tests/docs/test_site.py": "slow",  # builds the site, and its environment where that isn't there
    "tests/policies/test_classifier.py": "slow",
    "tests/policies/test_tampered.py": "slow",
    "tests/pool/test_bundled.py": "slow",
    "tests/pool/test_fuzz.py": "slow",
    "tests/replay/test_money_budget.py": "slow",  # calibrates and fits on a whole recording
    "tests/report/test_data_efficiency.py": "slow",
    "tests/sampling/test_answer_command.py": "slow",
    "tests/scale/test_fleet_simulation.py": "slow",
    "tests/serve/fleet/test_fleet.py": "slow",  # several gateways, a Redis and an upstream, killed in turn
    "tests/serve/fleet/test_fleet_command.py": "slow",
    "tests/serve/fleet/test_fleet_menu.py": "slow",
    "tests/serve/test_menu_end_to_end.py": "slow",  # thousands of requests, of real processes
    "tests/serve/test_sentences.py": "slow",  # 660 requests, of ten kinds of questions
    "tests/serve/test_large_bodies.py": "slow",  # photos of 30 MiB
    "tests/serve/test_loop_stalls.py": "slow",  # replies and streams of many megabytes
    "tests/serve/test_storm.py": "slow",
    "tests/serve/test_without_extras.py": "slow",
}
COSTLY = ("browser", "demo", "local_model", "ray", "slow", "study")
FEW = 20  # examples of a law in the quick profile

settings.register_profile("full", deadline=None)  # a busy machine breaks no law
settings.register_profile("quick", settings.get_profile("full"), max_examples=FEW)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="what every change needs, within minutes")


def pytest_configure(config: pytest.Config) -> None:
    """Chooses tests and the number of examples; `-m` and `--hypothesis-profile` choose otherwise."""
    quick = config.getoption("--quick")
    if quick and not config.option.markexpr:
        config.option.markexpr = " and ".join(f"not {name}" for name in COSTLY)
    settings.load_profile(config.getoption("--hypothesis-profile") or ("quick" if quick else "full"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Named(config))


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives every test its markers; those that look at the demo come last, when it is made."""
    root = Path(__file__).parent.parent
    for item in items:
        place = item.path.relative_to(root).as_posix() if item.path.is_relative_to(root) else ""
        names = {BY_FIXTURE[name] for name in getattr(item, "fixturenames", ()) if name in BY_FIXTURE}
        names |= {marker for start, marker in BY_PATH.items() if place.startswith(start)}
        for name in sorted(names):
            item.add_marker(name)
    items.sort(key=lambda item: item.get_closest_marker("demo") is not None)
    if settings.get_current_profile_name() == "quick":
        _draw_few(items)


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
