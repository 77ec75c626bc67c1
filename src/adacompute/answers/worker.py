"""The program of a helper process: it works on hostile input and can be killed.

`sandbox.py` runs this file as a program; nothing imports it. It loads what it needs once, then forks a
child that does the work. A child that uses more processor time than it may is killed and forked again,
which costs milliseconds instead of another import. Messages are JSON, each after its length in four bytes.
"""

import contextlib
import gc
import json
import os
import re
import resource
import select
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Work = Callable[[Message], Message]

_MEMORY_LIMIT = 2 << 30  # bytes of address space: a hostile formula must not take the machine's memory
_WALL_TIME_FACTOR = 10  # a child is stalled after this many times its processor time of wall time
_CACHED_FORMULAS = 512  # parsed formulas kept by one child


def read_message(fd: int) -> Message | None:
    """The next message; None at the end of the stream."""
    head = _read(fd, 4)
    body = _read(fd, struct.unpack("!I", head)[0]) if head else b""
    return json.loads(body) if body else None


def write_message(fd: int, message: Message) -> None:
    """Sends one message."""
    body = json.dumps(message).encode("ascii")
    data = struct.pack("!I", len(body)) + body
    while data:
        data = data[os.write(fd, data) :]


def _read(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            return b""
        data += piece
    return data


class Child:
    """A forked process that answers one message at a time."""

    def __init__(self, work: Work) -> None:
        child_input, self.requests = os.pipe()
        self.replies, child_output = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.requests)
            os.close(self.replies)
            _run_child(work, child_input, child_output)
        os.close(child_input)
        os.close(child_output)

    def answer(self, message: Message, limit: float) -> Message:
        """The child's reply; `late` if it used too much processor time, `lost` if it died or stalled."""
        started, used_before = time.monotonic(), _processor_seconds(self.pid)
        with contextlib.suppress(OSError):
            write_message(self.requests, message)
            remaining = limit
            while remaining > 0:
                if select.select([self.replies], [], [], remaining)[0]:
                    return read_message(self.replies) or {"lost": True}
                if time.monotonic() - started > _WALL_TIME_FACTOR * limit:
                    return {"lost": True}
                # processor time, so that a busy machine doesn't turn answers into timeouts
                remaining = limit - (_processor_seconds(self.pid) - used_before)
            return {"late": True}
        return {"lost": True}

    def kill(self) -> None:
        """Ends the child and leaves neither a zombie nor an open pipe."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.requests)
        os.close(self.replies)


def _processor_seconds(pid: int) -> float:
    """Processor time of another process; wall time where the system can't say."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return time.clock_gettime((~pid << 3) | 2)  # the kernel's clock id of a process
    return time.monotonic()


def _run_child(work: Work, requests: int, replies: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        while (message := read_message(requests)) is not None:
            # if the parent is killed while we work, the kernel ends us soon
            used = int(time.process_time())
            with contextlib.suppress(OSError, ValueError):
                limit = used + int(message["limit"]) + 5
                resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            write_message(replies, work(message))
    finally:
        os._exit(0)


def find_last_match(message: Message) -> Message:
    """Group 1, or the whole, of a pattern's last match; `invalid` says why a pattern is none."""
    try:
        pattern = re.compile(message["pattern"])
    except (re.error, RecursionError, OverflowError) as exc:
        return {"invalid": str(exc)[:80]}
    last = None
    for match in pattern.finditer(message["text"]):
        last = match
    if last is None:
        return {"found": None}
    return {"found": last.group(1) if last.re.groups else last.group()}


def make_extractor() -> Work:
    """Makes the work that reads answers out of texts."""
    from adacompute.answers.extract import read_replies
    from adacompute.answers.task import Task

    def extract(message: Message) -> Message:
        task, question = Task(message["extract"]), message["question"]
        return {"read": read_replies(message["texts"], question, task, finished=message["finished"])}

    read_replies(["It is 5."], "How many?")  # loads the words before the fork

    return extract


def make_comparer() -> Work:
    """Makes the work that compares two formulas with math-verify."""
    from math_verify import LatexExtractionConfig, parse, verify

    parsed: dict[str, Any] = {}

    def read(formula: str) -> Any:  # noqa: ANN401  (math-verify's own types)
        if formula not in parsed:
            if len(parsed) >= _CACHED_FORMULAS:
                parsed.clear()
            parsed[formula] = parse(
                f"${formula}$",
                extraction_config=[LatexExtractionConfig()],  # the formula or nothing, not a number inside it
                fallback_mode="no_fallback",
                parsing_timeout=None,  # its timeouts use signals, which fail in threads; we kill the child
            )
        return parsed[formula]

    def compare(message: Message) -> Message:
        try:
            a, b = read(message["a"]), read(message["b"])
            same = bool(a and b) and not has_named_derivative(a) and not has_named_derivative(b)
            same = same and (verify(a, b, timeout_seconds=None) or verify(b, a, timeout_seconds=None))
            same = same and all(is_fully_read(message[side], read) for side in "ab")
        except Exception:  # noqa: BLE001  (sympy raises anything on hostile formulas; none is "the same")
            same = False
        return {"same": bool(same)}

    for pair in _WARM_UP_PAIRS:  # fills the grammar's caches before the fork, so that every child has them
        compare({"a": pair[0], "b": pair[1]})
    parsed.clear()
    return compare


def has_named_derivative(parsed: list[Any]) -> bool:
    """Whether it holds the derivative of a function that is only named, which sympy reads as 0."""
    from sympy import Derivative

    parts = [part for formula in parsed if hasattr(formula, "atoms") for part in formula.atoms(Derivative)]
    return any(not part.expr.has(variable) for part in parts for variable in part.variables)


def is_fully_read(formula: str, read: Callable[[str], Any]) -> bool:
    """Whether the parser read every numeral and letter: changing one must change what is read.

    The parser drops what it doesn't know, and reads 1_A and 1_B both as 1. Atoms that occur as often in the
    reading as in the formula are trusted; each of the others is changed, and the formula is read again.
    """
    reading = str(read(formula))
    bare = _COMMAND.sub(lambda match: " " * len(match.group()), formula)
    read_counts = Counter(_READ_ATOM.findall(reading))
    atoms = list(_WRITTEN_ATOM.finditer(bare))
    written_counts = Counter(match.group() for match in atoms)
    spare = next(letter for letter in "wuvqhzyxabc" if letter not in bare)
    for match in atoms:
        atom = match.group()
        if read_counts[atom] < written_counts[atom] and not (
            atom == "d" and ("Integral" in reading or "Derivative" in reading)
        ):
            replacement = f"{atom[:-1]}{(int(atom[-1]) + 1) % 10}" if atom[-1].isdigit() else spare
            if str(read(formula[: match.start()] + replacement + formula[match.end() :])) == reading:
                return False
    return True


_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z]*\*?\}|\\[A-Za-z]+|\\.", re.DOTALL)
_WRITTEN_ATOM = re.compile(r"[0-9]+(?:\.[0-9]+)?|[A-Za-z]")
_READ_ATOM = re.compile(r"[0-9]+(?:\.[0-9]+)?|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")  # not letters of Sum or sin
_WARM_UP_PAIRS = [
    (r"\frac{1}{2}+\sqrt{3}x^2", r"x^{2}\sqrt{3}+0.5"),
    (r"\lfloor 2.5 \rfloor", r"2"),
    (r"\sum_{k=1}^{3} k", r"7"),
    (r"\int_0^1 x dx", r"\frac13"),
    (r"\lim_{x \to 0} \frac{\sin x}{x}", r"0"),
    (r"x \ge 5", r"[5,\infty)"),
    (r"\{1,2\}\cup(3,4]", r"(3,4]\cup\{2,1\}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&5\end{bmatrix}"),
    (r"\log_2 x + \sin^2 y + 3!", r"|x|"),
    (r"x^2+y^2=1", r"y=2x+1, x=3"),
    (r"\mathbb{R}\setminus\{0\}", r"x \neq 0"),
    (r"\int_0^{\pi} \sin(t) \, dt", r"2"),
    (r"\int_0^2 3x^2 dx + e", r"8+e"),
    (r"\sum_{n=0}^{\infty} \frac{1}{3^n}", r"\frac{3}{2}"),
    (r"\lim_{n \to \infty} \frac{3n}{n+1}", r"3"),
    (r"a_{n+1} = 2a_n", r"\gcd(4, 6) + \max(1, 2)"),
    (r"x \in [1,2]", r"[1,2]"),
    (r"\frac{d}{dx} f(x)", r"\binom{5}{2}"),
]


def main() -> None:
    """Reads its kind of work, prepares, then answers until the input ends."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # whatever a library prints must not reach the pipes
        os.dup2(null, fd)
    start = read_message(requests)
    if start is None:
        return
    sys.path[:] = start["path"]
    work: Work = find_last_match
    if start["kind"] != "search":
        work = make_comparer() if start["kind"] == "math" else make_extractor()
    gc.collect()
    gc.freeze()  # otherwise the collector touches, and so copies, every page in every child
    child = Child(work)
    write_message(replies, {"ready": True})
    while (message := read_message(requests)) is not None:
        reply = child.answer(message, message["limit"])
        write_message(replies, reply)
        if "late" in reply or "lost" in reply:
            child.kill()
            child = Child(work)
    child.kill()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
