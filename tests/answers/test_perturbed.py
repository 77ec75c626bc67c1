"""One character changed inside an answer makes another answer: no two such share a class."""

import random

import pytest

from adacompute.answers import same_answer

SEED = 20_260
CHANGES = 12  # for each kind
# a template by kind: # is a digit from 2 to 9, @ a letter, the same throughout
TEMPLATES = {
    "whole number": "##4#",
    "decimal": "#.#4#",
    "long decimal": "0.#48#2#91#37",
    "negative": "-#4.#",
    "thousands": "#4,#07",
    "fraction": r"\frac{#1}{#7}",
    "mixed": r"#\frac{1}{1#}",
    "percent": r"#4.#\%",
    "money": r"\$#4.#2",
    "measure": r"#4#\text{ cm}",
    "million": "#.#4 million",
    "power": "#^{1#}",
    "scientific": r"#.#\times 10^{-#}",
    "root": r"#4\sqrt{1#}",
    "pi": r"\frac{#\pi}{1#}",
    "angle": r"1#4^\circ",
    "complex": "#4-1#i",
    "logarithm": r"\log_{#}(1#)",
    "binomial": r"\binom{3#}{#}",
    "repeating": r"#.4\overline{1#}",
    "polynomial": "#4@^#-1#@+#",
    "rational": r"\frac{#@+1}{@^#-1#}",
    "surd in a letter": r"#4\sqrt{@+1#}",
    "exponential": "#e^{-1#@}",
    "wave": r"#\sin(1#@)",
    "huge and small": "10^{1#}+#@",
    "steps": r"\lfloor @/#4 \rfloor",
    "distance": "|@-#4|",
    "function": "f(#@)",
    "function of another": "f(g(#@+1))",
    "tuple": "(#4,-1#)",
    "vector": r"\langle #4,-1#,@\rangle",
    "set": r"\{#4,-1#\}",
    "list": "#4, -1#, 0.#",
    "repeats": "#4, 11, 11",
    "interval": "[-#4,1#)",
    "union": r"(-\infty,-#4)\cup[1#,\infty)",
    "inequality": r"@ \le -#4",
    "double inequality": r"-#4 < @ \le 1#",
    "equation": "#4@+1#w=7",
    "matrix": r"\begin{pmatrix} #4 & -1# \\ @ & 0 \end{pmatrix}",
    "determinant": r"\begin{vmatrix} #4 & -1# \\ 7 & 0 \end{vmatrix}",
    "column": r"\begin{pmatrix} #4 \\ -1# \end{pmatrix}",
    "cases": r"\begin{cases} #4@ & @ > 1# \\ 0 & @ = 1 \end{cases}",
    "named cases": r"f(@)=\begin{cases} #4 & @=1 \\ 1# & @=0 \end{cases}",
    "congruence": r"@ \equiv #4 \pmod{1#}",
    "arrow": r"#4 \to 1#",
    "dotted": r"0.1\dot{#}",
    "base": "1#4_{1#}",
    "clock": "1#:4#",
    "clock of half a day": "#:4# PM",
    "ratio": "#4:1#",
    "date": "202#-0#-1#",
    "date with slashes": "#/1#/202#",
    "span": "19#4–19#7",
    "range": "#4-1# cm",
    "score": "#-1#",
    "telephone": "415-55#-12#4",
    "version": "v#.1#",
    "address": "192.168.#.1#",
    "hexadecimal": "0x#F1#",
    "molecule": "C#H1#O",
    "course": "CS #0#",
    "year": "#4 BC",
    "day": "1# June",
    "name": "@wexel#",
    "sentence": "the @ingle with 1# legs",
    "sum to do": r"\sum_{k=1}^{1#} @^k",
}
LETTERS = "xyzcnpq"
BRACKETS = {"(": "[", ")": "]", "[": "(", "]": ")"}
BRACKETED = ("interval", "tuple", "union")
SIGNED = (
    *("negative", "complex", "polynomial", "rational", "huge and small"),
    *("distance", "tuple", "interval", "matrix"),
)
NAMES = (
    "inequality",
    "double inequality",
    "named cases",
    "sum to do",
)  # where the unknown's name doesn't count


def filled(template, rng):
    letter = rng.choice(LETTERS)
    return "".join(
        str(rng.randrange(2, 10)) if mark == "#" else letter if mark == "@" else mark for mark in template
    )


def changed(answer, rng, kind):
    """The answer with one character changed, at a place where that must matter."""
    digits = [at for at, mark in enumerate(answer) if mark.isdigit()]
    signs = [at for at, mark in enumerate(answer) if mark in "-+" and kind in SIGNED]
    brackets = [
        at for at, mark in enumerate(answer) if mark in BRACKETS and kind in ("interval", "tuple", "union")
    ]
    at = rng.choice(digits * 3 + signs + brackets)
    mark = answer[at]
    if mark.isdigit():
        other = rng.choice([digit for digit in "123456789" if digit != mark])
    else:
        other = {"-": "+", "+": "-"}.get(mark) or BRACKETS[mark]
    return answer[:at] + other + answer[at + 1 :]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_one_character_changed_makes_another_answer(kind):
    rng = random.Random(f"{SEED}/{kind}")
    for _ in range(CHANGES):
        answer = filled(TEMPLATES[kind], rng)
        other = changed(answer, rng, kind)
        assert not same_answer(answer, other), (answer, other)


@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if "@" in TEMPLATES[kind] and kind not in NAMES])
def test_another_letter_makes_another_answer(kind):
    rng = random.Random(f"{SEED}/{kind}")
    for _ in range(CHANGES):
        template = TEMPLATES[kind].replace("#", str(rng.randrange(2, 10)))
        a, b = rng.sample(LETTERS, 2)
        assert not same_answer(template.replace("@", a), template.replace("@", b)), (template, a, b)
