"""The cases that every client is put through, and how what happened is written down: one JSON object a case.

An adapter is a script in the clients' environment; `drive.py` runs it once for each server, and says here
which.
It uses nothing of adacompute. It gives `run` its cases by name; each returns an outcome, of which the suite
compares, directly and through the gateway: `right` of `of` answers, `pieces` of a stream and whether they
came `early`, and `facts`, which must be the same.
"""

import concurrent.futures
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

BASE_URL = ""  # of the server, with /v1
URLS: tuple[str, ...] = ()  # of all servers that the adapter is run for
VARIANT = ""  # of the adapter
KEY = "sk-none"
MODEL = "gpt-4o-mini"
FAILING = "gpt-4o"  # the model whose requests are refused, so that the other one stays well
ERRORS = {  # a code in the prompt makes the model refuse; and what its message says
    "context_length_exceeded": "maximum context length",
    "model_not_found": "does not exist",
    "content_filter": "content management policy",
    "rate_limit_exceeded": "Rate limit reached",
    "server_error": "The server had an error",
}
STORY = "Write a long story of a sailor."
PLAIN = [(n, 7) for n in range(11, 21)]
STREAMED = [(n, 13) for n in range(11, 17)]
CALLED = [(n, 17) for n in range(11, 17)]
TYPED = [(n, 19) for n in range(11, 17)]
MANY = [(n, 23) for n in range(11, 31)]  # at the same time


def question(pair: tuple[int, int]) -> str:
    return f"What is {pair[0]} times {pair[1]}?"


def refused(code: str) -> str:
    return f"Fail with {code}."


def score(pairs: Iterable[tuple[int, int]], answers: Iterable[object]) -> dict[str, Any]:
    """How many answers hold the product of their own question."""
    right = [str(a * b) in str(answer) for (a, b), answer in zip(pairs, answers, strict=True)]
    return {"right": sum(right), "of": len(right)}


def ask_all(ask: Callable[[str], object], pairs: list[tuple[int, int]] = PLAIN) -> dict[str, Any]:
    """Asks one question after the other."""
    return score(pairs, [ask(question(pair)) for pair in pairs])


def ask_at_once(ask: Callable[[str], object]) -> dict[str, Any]:
    """Asks all questions at the same time, from threads."""
    with concurrent.futures.ThreadPoolExecutor(len(MANY)) as pool:
        return score(MANY, list(pool.map(ask, map(question, MANY))))


def read_streams(stream: Callable[[str], Iterator[str]]) -> dict[str, Any]:
    """Streams answers, and a story: in how many pieces that comes, and whether its first comes early."""
    outcome = score(STREAMED, ["".join(stream(question(pair))) for pair in STREAMED])
    stream(question(PLAIN[0]))
    began = time.monotonic()
    times = [time.monotonic() - began for piece in stream(STORY) if piece]
    return outcome | judge_story(times)


def judge_story(times: list[float]) -> dict[str, Any]:
    """`times`: seconds from the request to each piece."""
    return {"pieces": len(times), "early": bool(times) and times[0] < 0.6 * times[-1]}


def collect_errors(ask: Callable[[str], object]) -> dict[str, Any]:
    """What the client raises for each error of the upstream."""
    facts = {}
    for code, words in ERRORS.items():
        try:
            facts[code] = {"answered": str(ask(refused(code)))[:200]}
        except Exception as exc:  # noqa: BLE001 - whatever a client raises is the finding
            facts[code] = describe(exc, words)
    return {"facts": facts}


def describe(exc: BaseException, words: str) -> dict[str, Any]:
    """An error as a program sees it: its class, status, code, and whether it says what the upstream said."""
    told: dict[str, Any] = {"class": type(exc).__name__, "says": words in str(exc)}
    seen: BaseException | None = exc
    while seen is not None:
        for name in ("status_code", "code", "type", "param"):
            value = getattr(seen, name, None)
            if name not in told and isinstance(value, str | int):
                told[name] = value
        seen = seen.__cause__ or seen.__context__
    return told


def run(cases: dict[str, Callable[[], dict[str, Any]]]) -> None:
    """Runs each case, and prints its outcome; one that raises has failed, and the others go on."""
    for name, case in cases.items():
        try:
            outcome = case()
        except Exception as exc:  # noqa: BLE001 - whatever a client raises is the finding
            outcome = {"failed": f"{type(exc).__name__}: {exc}"[:400]}
        print("CASE " + json.dumps({"case": name, **outcome}), flush=True)
