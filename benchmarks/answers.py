"""Reading and comparing answers: ours beside math-verify's parse and verify, in the same run.

Knows nothing of `make`: `run()` answers rows `(what, ours, alternative, theirs, ratio, unit)`.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Any

import orjson
from yarl import URL

from adacompute.answers import Classes, Task, classify, extract_answer, same_answer
from adacompute.answers.normalise import clear_form_cache, normalise
from adacompute.client import response_parser
from adacompute.client.server_quirks import ServerQuirks
from adacompute.records import Secret

Row = tuple[str, float, str, float, float, str]

SAMPLES = 20_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
THEIRS = 400  # answers for the slow way: its rate is steady
_STEPS = (
    "First, we find the total number of apples: \\(12 \\times 7 = 84\\).",
    "Next, we subtract the ones that were given away, so \\[ 84 - 15 = 69 \\].",
    "We know that each box holds \\(\\frac{3}{4}\\) of a crate, which gives $69 \\cdot 0.75$.",
    "**Step 2:** add the two parts together and simplify the expression.",
    "Therefore, the remaining amount is the difference between the two values.",
)


def spellings(count: int, *, plain: float = 0.7, seed: int = 0) -> list[str]:
    """Distinct answers as models write them: a share of plain numbers, three in ten of those decimals.

    The rest are, in equal parts, fractions, roots, decimals with a unit, pairs, `x = 1.5`, polynomials,
    money and text.
    """
    rng = random.Random(seed)
    forms: list[Callable[[int, int], str]] = [
        lambda a, b: f"\\frac{{{a}}}{{{b}}}",
        lambda a, b: f"{a}\\sqrt{{{b}}}",
        lambda a, b: f"{a}.{b} \\text{{ cm}}",
        lambda a, b: f"({a}, {b})",
        lambda a, b: f"x = {a}.{b}",
        lambda a, b: f"{a}x^2 + {b}x - 1",
        lambda a, b: f"\\${a},{b + 100:03d}",
        lambda a, b: f"City {_LETTERS[a % 26]}{_LETTERS[a // 26 % 26]}{_LETTERS[b % 26]}",
    ]
    found: dict[str, None] = {}
    while len(found) < count:
        a, b = rng.randrange(1, 100_000), rng.randrange(2, 900)
        is_plain, is_whole, form = rng.random() < plain, rng.random() < 0.7, rng.choice(forms)
        found[(str(a) if is_whole else f"{a}.{b}") if is_plain else form(a, b)] = None
    return list(found)


def responses(answers: list[str], *, seed: int = 0) -> list[str]:
    """Worked solutions of about a kilobyte, each ending in its boxed answer."""
    rng = random.Random(seed)
    return [
        "\n\n".join(rng.choice(_STEPS) for _ in range(13))
        + f"\n\nSo the answer is \\(\\boxed{{{answer}}}\\)."
        for answer in answers
    ]


def _rate(work: Callable[[], object], count: int) -> float:
    """Items a second, the best of three."""
    best = float("inf")
    for _ in range(3):
        clear_form_cache()  # every answer is worked on again
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return count / best


def _theirs(answers: list[str], texts: list[str]) -> tuple[float, float]:
    """math-verify: parse and verify of answers, and parse of whole responses with verify."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    gold: Any = parse("$42$", parsing_timeout=None)

    def judge(items: list[str]) -> None:
        for item in items:
            verify(gold, parse(item, parsing_timeout=None), timeout_seconds=None)

    rates = []
    for items in ([f"${answer}$" for answer in answers], texts):
        judge(items[:20])  # its grammar's caches
        begun = time.perf_counter()
        judge(items)
        rates.append(len(items) / (time.perf_counter() - begun))
    return rates[0], rates[1]


def build_reply(tokens: int, alternatives: int, *, seed: int = 0) -> bytes:
    """A chat completion of so many tokens, with log-probabilities and alternatives of each, as JSON."""
    rng = random.Random(seed)
    words = ["The", " total", " is", " ", "1", "2", " +", " apples", "\n\n", " so", " we", " have"]
    pieces = [rng.choice(words) for _ in range(tokens - 6)] + ["\\", "boxed", "{", "42", "}", "."]

    def describe(piece: str, logprob: float) -> dict[str, Any]:
        return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}

    content = []
    for piece in pieces:
        values = sorted((-rng.expovariate(0.1) for _ in range(max(1, alternatives))), reverse=True)
        tops = [describe(rng.choice(words), value) for value in values[:alternatives]]
        content.append({**describe(piece, values[0]), "top_logprobs": tops})
    message = {"role": "assistant", "content": "".join(pieces)}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    usage = {"prompt_tokens": 50, "completion_tokens": tokens, "total_tokens": tokens + 50}
    return orjson.dumps({"id": "r", "model": "m", "choices": [choice], "usage": usage})


def build_parser() -> Callable[[bytes], None]:
    """What parses the bytes of a reply into a sample with its answer."""
    url, key = URL("http://localhost/v1/chat/completions"), Secret("a-key-of-some-length")
    quirks = ServerQuirks()
    body = {"model": "m", "messages": [{"role": "user", "content": "How many? " * 20}], "logprobs": True}
    request = response_parser.SentRequest(body, 1, None, 0.0, 0.5)

    def parse(raw: bytes) -> None:
        value, _ = response_parser.read_json(raw, key)
        reply = response_parser.HttpReply(200, value)
        done = response_parser.interpret_reply(request, reply, key=key, url=url, quirks=quirks)
        (response,) = done.responses
        response.to_sample(answer=extract_answer(response.text))

    return parse


def run() -> list[Row]:
    """The rows: answers a second, on one core."""
    answers = spellings(SAMPLES)
    texts = responses(answers)
    task = Task()
    parse_rate, text_rate = _theirs(answers[:THEIRS], texts[:THEIRS])
    plain = [str(n) for n in range(SAMPLES)]
    rich = spellings(SAMPLES, plain=0.0)
    rich_rate, _ = _theirs(rich[:THEIRS], texts[:1])
    repeated = spellings(20) * (SAMPLES // 20)

    def grade(items: list[str]) -> None:
        for answer in items:
            same_answer(answer, "42", task)

    def read() -> None:
        for text in texts:
            normalise(extract_answer(text, task) or "")

    def place() -> None:
        classes = Classes(task)
        for answer in plain:
            classes.place(answer)

    ours = [
        ("grade distinct answers, 7 in 10 plain numbers", _rate(lambda: grade(answers), SAMPLES), parse_rate),
        ("grade distinct answers, none a plain number", _rate(lambda: grade(rich), SAMPLES), rich_rate),
        ("extract and normalise responses of 1 KB", _rate(read, SAMPLES), text_rate),
        ("class distinct whole numbers", _rate(place, SAMPLES), parse_rate),
        ("class repeated answers", _rate(lambda: classify(repeated), len(repeated)), parse_rate),
    ]
    return [
        (what, rate, "math-verify parse + verify", theirs, rate / theirs, "answers/s")
        for what, rate, theirs in ours
    ]
