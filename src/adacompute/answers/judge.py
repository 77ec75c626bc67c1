"""Compares formulas with math-verify, in a helper process with a time limit (`FormulaJudge`).

`make_comparer` runs inside the helper process.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from adacompute.answers.sandbox import HelperProcess, Message, Work

PAIR_SECONDS = 0.075  # processor time allowed for comparing two formulas, in seconds
JUDGED_LENGTH = 300  # maximum length of a formula, in characters; a longer one counts as different
_CACHED_VERDICTS = 20_000  # maximum number of pairs of formulas whose comparison is cached
_CACHED_FORMULAS = 512  # maximum number of parsed formulas that the helper process caches


class FormulaJudge:
    """Decides with math-verify whether two formulas are equal, in a helper process with a time limit.

    The order of the two formulas doesn't matter. `limit` is the processor time per pair in seconds. Ordinary
    sums and integrals may need half a second.
    """

    def __init__(self, *, limit: float = PAIR_SECONDS) -> None:
        self.helper = HelperProcess(f"{__name__}:make_comparer", limit=limit)
        self._verdicts: dict[tuple[str, str], bool | None] = {}
        self.asked = 0  # how many pairs weren't in the cache, and so went to the helper process

    def same(self, a: str, b: str) -> bool | None:
        """Whether two formulas are equal; None (to be taken as different) on a timeout or without a reply."""
        pair = (a, b) if a <= b else (b, a)
        # a local name, because another thread may replace the dict when it is full
        if pair in (verdicts := self._verdicts):
            return verdicts[pair]
        if max(len(a), len(b)) > JUDGED_LENGTH:
            return False
        self.asked += 1
        reply = self.helper.ask({"a": pair[0], "b": pair[1]})
        if reply is None:
            return None  # not cached, because the helper failed and may succeed next time
        if len(self._verdicts) >= _CACHED_VERDICTS:
            self._verdicts = {}
        self._verdicts[pair] = verdict = None if "late" in reply else reply["same"]
        return verdict

    def warm(self) -> bool:
        """Starts the helper, which takes about two seconds, so that the first pair doesn't wait for it."""
        return self.helper.start()

    def forget(self) -> None:
        """Empties the cache of verdicts."""
        self._verdicts.clear()

    def close(self) -> None:
        """Ends the helper process; the next comparison starts a new one."""
        self.helper.close()


shared_judge = FormulaJudge()  # the judge that the whole process uses by default


def make_comparer() -> Work:
    """Returns the function that compares two formulas by math-verify; the helper process calls this once."""
    from math_verify import LatexExtractionConfig, parse, verify

    @lru_cache(maxsize=_CACHED_FORMULAS)
    def read(formula: str) -> Any:  # noqa: ANN401  (math-verify's own types)
        return parse(
            f"${formula}$",
            # parse the whole formula, not only a number inside it
            extraction_config=[LatexExtractionConfig()],
            fallback_mode="no_fallback",
            # math-verify's timeouts use signals, which fail in threads; the helper process is killed instead
            parsing_timeout=None,
        )

    def compare(message: Message) -> Message:
        try:
            a, b = read(message["a"]), read(message["b"])
            same = bool(a and b) and not has_named_derivative(a) and not has_named_derivative(b)
            same = same and (verify(a, b, timeout_seconds=None) or verify(b, a, timeout_seconds=None))
            same = same and all(is_fully_read(message[side], read) for side in "ab")
        except Exception:  # noqa: BLE001  (sympy raises anything on hostile formulas; none is "the same")
            same = False
        return {"same": bool(same)}

    for pair in _WARM_UP_PAIRS:  # fill the parser's caches before the fork, because every child inherits them
        compare({"a": pair[0], "b": pair[1]})
    read.cache_clear()
    return compare


def has_named_derivative(parsed: list[Any]) -> bool:
    """Whether a formula contains a derivative of an unknown function, which sympy would evaluate to 0."""
    from sympy import Derivative

    parts = [part for formula in parsed if hasattr(formula, "atoms") for part in formula.atoms(Derivative)]
    return any(not part.expr.has(variable) for part in parts for variable in part.variables)


def is_fully_read(formula: str, read: Callable[[str], Any]) -> bool:
    """Whether the parser read every numeral and letter of a formula, rather than ignoring some.

    `read` is the parser. It ignores unknown notation: it reads both 1_A and 1_B as 1. A numeral or letter
    that the result has less often than the formula is replaced, and the formula is parsed again. If the
    result stays the same, the parser ignored that numeral or letter.
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
# matches a number or a single letter, but no letter of a name such as Sum
_READ_ATOM = re.compile(r"[0-9]+(?:\.[0-9]+)?|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
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
