"""A test run that is killed leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guard import find_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows environments of processes")

RUN = """
import subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from guard import Guard
guard = Guard(Path(sys.argv[2]))
asleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(asleep, start_new_session=True)
subprocess.Popen(asleep)
print("started", flush=True)
if sys.argv[3] == "end":
    guard.close()
else:
    time.sleep(600)
"""


@pytest.mark.parametrize("way", ["end", "TERM", "KILL"])
def test_nothing_is_left_however_a_run_ends(tmp_path: Path, way: str):
    folder = tmp_path / "run"
    folder.mkdir()
    words = [sys.executable, "-c", RUN, str(Path(__file__).parent), str(folder), way]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"
        try:
            if way != "end":
                assert comes_true(lambda: len(find_processes(str(folder))) == 2)
                os.kill(run.pid, getattr(signal, f"SIG{way}"))
            run.wait(60)
        finally:
            run.kill()
    assert comes_true(lambda: not folder.exists())
    assert find_processes(str(folder)) == []


def comes_true(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return found
