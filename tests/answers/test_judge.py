"""The slow judge: a process that is killed, restarted, shared and forked without a trace."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from adacompute.answers import Classes, Judge, close_judge, default_judge, same_answer
from adacompute.answers.search import last_match

OPEN = r"\sum_{k=1}^{2} k - 2"  # one: a formula that the fast path leaves open
SLOW = r"\sum_{k=1}^{10^{10}} k^k"


@pytest.fixture(scope="module")
def shared():
    judge = Judge()
    yield judge
    judge.close()


@pytest.fixture
def judge(shared):
    """One judge for all tests here, running, and with nothing in its cache."""
    shared.forget()
    assert shared.warm()
    return shared


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid, *, orphan=False):
    """Whether a process ends soon; an orphan's corpse is its new parent's to bury."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split(") ")[-1]
        except OSError:
            return True
        if orphan and state.startswith("Z"):
            return True
        time.sleep(0.02)
    return False


def test_it_decides_what_the_fast_path_leaves_open(judge):
    assert judge.same(OPEN, "1") is True
    assert judge.same("2", OPEN) is False
    assert same_answer(OPEN, "1")
    assert not same_answer(OPEN, "2")


def test_a_verdict_is_symmetric_and_asked_for_once(judge):
    before = judge.asked
    assert judge.same(OPEN, "1") == judge.same("1", OPEN)
    assert judge.asked - before == 1


def test_a_pair_that_takes_too_long_is_different_counted_and_costs_no_restart(judge):
    pid, timeouts, failures = judge.pid, judge.timeouts, judge.failures
    assert judge.same(SLOW, "1") is None
    assert (judge.timeouts - timeouts, judge.failures - failures) == (1, 0)
    assert judge.same(OPEN, "1") is True
    assert judge.pid == pid


def test_what_is_too_long_is_not_asked(judge):
    before = judge.asked
    assert judge.same("\\lim " + "x" * 400, "1") is False
    assert judge.asked == before


def test_a_dead_helper_is_started_again(judge):
    os.kill(judge.pid, signal.SIGKILL)
    assert judge.same(OPEN, "3") in (None, False)
    assert judge.same(OPEN, "1") is True


def test_a_hung_helper_is_given_up_and_started_again(judge, monkeypatch):
    monkeypatch.setattr("adacompute.answers.process._OUTER", 0.1)
    pid, before = judge.pid, judge.failures
    os.kill(pid, signal.SIGSTOP)
    assert judge.same(OPEN, "3") is None
    assert judge.failures - before == 1
    assert judge.same(OPEN, "1") is True
    assert judge.pid != pid


def test_it_is_shared_by_threads(judge):
    found = []

    def ask(n):
        found.append((n, judge.same(OPEN, str(n))))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(n, n == 1) for n in range(8)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_neither_processes_nor_pipes_are_left_behind():
    judge = Judge()
    judge.warm()
    judge.close()
    pipes = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        judge.warm()
        pid = judge.pid
        judge.same(SLOW, "1")
        worker = children(pid)
        judge.forget()
        judge.close()
        assert all(is_gone(one) for one in [pid, *worker])
    assert len(list(Path("/proc/self/fd").iterdir())) == pipes


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_forked_process_gets_a_judge_of_its_own(judge):
    assert judge.same(OPEN, "1") is True
    pid = judge.pid
    child = os.fork()
    if child == 0:
        own = judge.same(OPEN, "5") is False and judge.pid not in (None, pid)
        judge.close()
        os._exit(0 if own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert judge.same(OPEN, "7") is False
    assert judge.pid == pid


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", ["", "import os; os.kill(os.getpid(), 9)"])
def test_the_helper_ends_with_the_program_however_that_was_started_or_ended(tmp_path, end):
    program = (
        "from adacompute.answers import default_judge, same_answer\n"
        f"assert same_answer({OPEN!r}, '1')\n"
        "print(default_judge().pid, flush=True)\n" + end
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert is_gone(int(done.stdout), orphan=bool(end))


def test_the_shared_judge_can_be_closed_at_any_time():
    close_judge()
    assert default_judge().pid is None
    assert Classes().place(OPEN) == 0


def test_a_judge_that_can_not_start_finds_all_different(monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    judge = Judge()
    assert judge.warm() is False
    assert judge.same(OPEN, "1") is None
    assert judge.failures >= 1


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"RESULT=(\d+)", "RESULT=1 RESULT=22", "22"),
        (r"\s*=\s*(-?\d+)", "a = 5, b = -6", "-6"),
        (r"(a+)+$", "a" * 60 + "!", None),
        (r"(a|aa)+$", "a" * 90 + "!", None),
        (r"(x)?y", "y", None),
        (r"\d+", "9" * 60_000, "9" * 60_000),
        ("(\ud800+)", "a\ud800\ud800", "\ud800\ud800"),
    ],
)
def test_a_users_pattern_finds_its_last_match_or_gives_up(pattern, text, found):
    assert last_match(pattern, text) == found
