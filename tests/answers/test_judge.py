"""The slow judge: a process that is killed, restarted, shared and forked without a trace."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from adacompute.answers import Classes, FormulaJudge, same_answer, shared_judge
from adacompute.answers.sandbox import HelperProcess

OPEN = r"\sum_{k=1}^{1} k"  # one: a formula that the fast path leaves open, and that is judged quickly
SLOW = r"\sum_{k=1}^{10^{10}} k^k"
# of the same kind of helper, one that starts at once: the judge's takes three seconds of processor time
SEARCH = {"pattern": "b(.)", "text": "abc"}
FOUND = {"match": "c"}
SLOW_SEARCH = {"pattern": "(a+)+$", "text": "a" * 40 + "b"}


@pytest.fixture
def judge(monkeypatch):
    """One judge for all tests, running, and with nothing in its cache."""
    monkeypatch.setattr(shared_judge.helper, "limit", 0.3)  # long enough for what isn't slow
    shared_judge.forget()
    assert shared_judge.warm()
    return shared_judge


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


DIFFERENT = [
    (r"\langle 1,2,3\rangle", r"\langle 1,2,4\rangle"),
    (r"x\equiv 2 \pmod 5", r"x\equiv 3 \pmod 5"),
    (r"\begin{cases}1&x>0\\2&x<0\end{cases}", r"\begin{cases}1&x>0\\3&x<0\end{cases}"),
    (r"0.\dot{2}", r"0.\dot{3}"),
    ("2 | 12", "3 | 12"),
    (r"2 \to 7", r"3 \to 7"),
    (r"\underbrace{1+1}_{2}", r"\underbrace{1+2}_{3}"),
    (r"\underbrace{1+1}_{2}", r"\underbrace{1+1}_{3}"),
    ("1_A", "1_B"),
    (r"\partial x/\partial t", r"\partial y/\partial t"),
    (r"\frac{\partial f}{\partial x}", r"\frac{\partial g}{\partial x}"),
    (r"\frac{\partial f}{\partial x}", r"\frac{\partial f}{\partial y}"),
    (r"\frac{\partial f}{\partial x}", "0"),
    ("(2)_8", "(3)_8"),
    (r"\gcd(x,9)", r"\gcd(y,9)"),
    (r"\gcd(x,9)", "1"),
    (r"\overline{AB}", r"\overline{AC}"),
    (r"\angle ABC", r"\angle ABD"),
    (r"\sum k \text{ cm}", r"\sum k \text{ m}"),
    (r"\heartsuit\heartsuit", r"\spadesuit\spadesuit"),  # nothing that it can read, on either side
]
SAME = [
    (r"\sum_{k=1}^{10} k^2", "385"),
    (r"\lim_{x \to 0} \frac{\sin x}{x}", "1"),
    (r"\int_0^1 x dx", r"\frac12"),
    (r"\prod_{k=1}^4 k", "24"),
    (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
    (r"\gcd(12,18)", "6"),
    (r"\frac{d}{dx} 3x", "3"),
    ("x > 5", r"(5,\infty)"),  # math-verify says so with the relation first only, as in the next,
    (r"5 \le x", r"[5,\infty)"),  # where our order of the two is the other one
]


@pytest.fixture
def patient(judge, monkeypatch):
    """The same with a time that never decides."""
    monkeypatch.setattr(judge.helper, "limit", 5.0)
    return judge


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_what_the_parser_leaves_out_is_not_taken_for_equal(patient, a, b):
    assert patient.same(a, b) is False


@pytest.mark.parametrize(("a", "b"), SAME)
def test_what_is_read_whole_is_compared_in_both_directions(patient, a, b):
    assert patient.same(a, b) is True


def test_the_cache_is_bounded(judge, monkeypatch):
    monkeypatch.setattr("adacompute.answers.judge._CACHED_VERDICTS", 2)
    for gold in ("2", "3", "4"):
        assert judge.same(OPEN, gold) is False
    assert len(judge._verdicts) <= 2


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux alone has")
def test_a_formula_can_not_take_the_machine_s_memory(judge):
    (worker,) = children(judge.helper.pid)
    assert judge.same(OPEN, "6") is False  # so that it has begun
    limits = Path(f"/proc/{worker}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    assert int(line.split()[3]) <= 2 << 30


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
    helper, asked = judge.helper, judge.asked
    pid, timeouts, failures = helper.pid, helper.timeouts, helper.failures
    assert judge.same(SLOW, "1") is None
    assert judge.same(SLOW, "1") is None  # known by now
    assert (judge.helper.timeouts - timeouts, judge.helper.failures - failures, judge.asked - asked) == (
        1,
        0,
        1,
    )
    assert judge.same(OPEN, "1") is True
    assert judge.helper.pid == pid


def test_what_is_too_long_is_not_asked(judge):
    before = judge.asked
    assert judge.same("\\lim " + "x" * 400, "1") is False
    assert judge.asked == before


@pytest.mark.slow
def test_a_dead_helper_is_started_again(judge):
    os.kill(judge.helper.pid, signal.SIGKILL)
    assert judge.same(OPEN, "3") in (None, False)
    assert judge.same(OPEN, "1") is True


@pytest.fixture
def searching():
    """A running helper that starts at once, unlike the judge's."""
    helper = HelperProcess(limit=5.0)
    assert helper.start()
    yield helper
    helper.close()


def test_a_hung_helper_is_given_up_and_started_again(searching, monkeypatch):
    monkeypatch.setattr("adacompute.answers.sandbox._REPLY_MARGIN", 0.1)
    searching.limit = 0.1
    pid = searching.pid
    os.kill(pid, signal.SIGSTOP)
    assert searching.ask(SEARCH) is None
    assert (searching.failures, searching.unanswered, searching.timeouts) == (1, 1, 0)
    searching.limit = 5.0
    assert searching.ask(SEARCH) == FOUND
    assert searching.pid != pid


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux alone has")
def test_a_worker_that_dies_leaves_its_pair_unanswered_and_is_replaced(judge):
    pid, timeouts, unanswered = judge.helper.pid, judge.helper.timeouts, judge.helper.unanswered
    os.kill(children(pid)[0], signal.SIGKILL)
    assert judge.same(OPEN, "1") is None
    assert (judge.helper.timeouts - timeouts, judge.helper.unanswered - unanswered) == (0, 1)
    assert judge.same(OPEN, "1") is True
    assert judge.helper.pid == pid


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux alone has")
def test_neither_processes_nor_pipes_are_left_behind():
    helper = HelperProcess(limit=0.4)  # a busy machine gives so much within six seconds
    helper.start()
    helper.close()
    pipes = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        helper.start()
        pid = helper.pid
        assert helper.ask(SLOW_SEARCH) == {"late": True}
        assert helper.ask(SEARCH) == FOUND
        worker = children(pid)
        helper.close()
        assert all(is_gone(one) for one in [pid, *worker])
    assert len(list(Path("/proc/self/fd").iterdir())) == pipes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # later Pythons warn of any fork beside threads
def test_a_process_forked_while_a_thread_asks_gets_a_helper_of_its_own_and_does_not_wait(searching):
    pid = searching.pid
    with searching._lock:  # as a thread holds it that asks
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends us, should we wait for ever
            signal.alarm(60)
            own = searching.ask(SEARCH) == FOUND and searching.pid not in (None, pid)
            searching.close()
            os._exit(0 if own else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert searching.ask(SEARCH) == FOUND
    assert searching.pid == pid


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux alone has")
@pytest.mark.parametrize("end", ["", "import os; os.kill(os.getpid(), 9)"])
def test_the_helper_ends_with_the_program_however_that_was_started_or_ended(tmp_path, end):
    program = (
        "from adacompute.answers.sandbox import HelperProcess\n"
        f"helper = HelperProcess(limit=5.0)\nassert helper.ask({SEARCH}) == {FOUND}\n"
        "print(helper.pid, flush=True)\n" + end
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


def test_a_judge_can_be_closed_at_any_time():
    judge = FormulaJudge()
    judge.close()
    assert judge.helper.pid is None
    assert Classes(judge=judge).place(OPEN) == 0


def test_a_judge_that_can_not_start_finds_all_different(monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    judge = FormulaJudge()
    assert judge.warm() is False
    assert judge.same(OPEN, "1") is None
    assert (judge.helper.failures, judge.helper.timeouts, judge.helper.unanswered) == (1, 0, 1)


def test_a_helper_that_could_not_start_for_a_while_starts_again_after_a_pause(monkeypatch):
    helper = HelperProcess(limit=5.0)
    now = [1_000.0]
    with monkeypatch.context() as patch:
        patch.setattr("adacompute.answers.sandbox.time.monotonic", lambda: now[0])
        patch.setattr("sys.executable", "/nowhere/python")
        for failed in range(1, 8):
            assert helper.ask(SEARCH) is None
            assert helper.ask(SEARCH) is None  # at rest: not tried again at once
            assert helper.failures == failed
            now[0] += 61.0
    monkeypatch.setattr("adacompute.answers.sandbox._LONGEST_PAUSE", 0.0)
    helper._retry_at = 0.0  # of the other clock
    assert helper.ask(SEARCH) == FOUND
    assert helper.unanswered == 14
    helper.close()


@pytest.mark.slow
def test_the_first_formula_starts_the_judge_and_pairs_wait_for_it_each_on_its_own():
    judge = FormulaJudge(limit=0.3)

    async def place() -> list[list[int]]:
        first = Classes(judge=judge)
        await first.place_async("7")
        assert judge.helper.pid is None  # a number needs no judge
        requests = [Classes(judge=judge) for _ in range(8)]  # more than threads that ask

        async def vote(classes: Classes) -> list[int]:
            return [await classes.place_async(answer) for answer in (r"\sum_{k=1}^{10} k^2", "385", "384")]

        return await asyncio.gather(*map(vote, requests))

    try:
        assert asyncio.run(place()) == [[0, 0, 1]] * 8
        assert judge.helper.pid is not None
        assert judge.helper.unanswered == 0
    finally:
        judge.close()


def test_where_the_judge_can_t_start_formulas_are_compared_as_written_without_a_wait(monkeypatch):
    judge = FormulaJudge()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def place() -> list[int]:
        classes = Classes(judge=judge)
        return [await classes.place_async(answer) for answer in (OPEN, "1", OPEN, OPEN + " + 0")]

    assert asyncio.run(place()) == [0, 1, 0, 2]
    assert judge.helper.pid is None
