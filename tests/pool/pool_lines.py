"""Pool files for the tests: how they are written, and strategies for random ones."""

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

KNOWN = {"id", "question", "gold", "subject", "level", "model", "parameters", "failures", "samples"}
SAMPLE = {"text", "answer", "correct", "tokens", "logprob", "entropy", "finished", "index"}


def write(path: Path, lines: list[Any]) -> Path:
    """JSON lines, or gzip by the suffix; text and bytes are written as they are."""
    rows = [line if isinstance(line, bytes) else (json.dumps(line) + "\n").encode() for line in lines]
    path.write_bytes(gzip.compress(b"".join(rows)) if path.suffix == ".gz" else b"".join(rows))
    return path


def line(name: str = "p1", answers: tuple[str | None, ...] = ("4", "5", "4"), **more: Any) -> dict[str, Any]:
    """A plain problem, graded against "4"."""
    samples = [{"answer": answer, "correct": int(answer == "4")} for answer in answers]
    return {"id": name, "question": f"What is {name}?", "gold": "4", "model": "m", "samples": samples} | more


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
floats = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**80), 2**80)
data = st.recursive(
    st.none() | st.booleans() | whole | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def unknown(known: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts.filter(lambda key: key not in known), data, max_size=2)


def fields(**kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Each key absent, null or of its kind."""
    return st.fixed_dictionaries({}, optional={name: st.none() | kind for name, kind in kinds.items()})


samples = st.builds(
    lambda answer, correct, optional, extra: extra | optional | {"answer": answer, "correct": correct},
    st.none() | st.sampled_from(["4", "5", "six", "7.5"]),
    st.none() | st.booleans() | st.sampled_from([0, 1, 0.5, 0.1]),
    fields(text=texts, tokens=st.integers(0, 2**62), logprob=floats, entropy=floats, finished=st.booleans()),
    unknown(SAMPLE),
)
failures = st.builds(
    lambda index, kind, optional: {"index": index, "kind": kind, "attempt": 1} | optional,
    st.integers(0, 1000),
    st.sampled_from(["timeout", "refused"]),
    st.fixed_dictionaries({}, optional={"message": texts, "at": floats}),
)
problems = st.builds(
    lambda optional, extra, question, drawn: extra | optional | {"question": question, "samples": drawn},
    fields(
        gold=texts,
        subject=texts,
        level=st.integers(-(2**62), 2**62) | floats | texts,
        model=texts,
        parameters=st.dictionaries(texts, data, max_size=2),
        failures=st.lists(failures, max_size=2),
    ),
    unknown(KNOWN),
    texts,
    st.lists(samples, max_size=4),
)
pools = st.lists(problems, min_size=1, max_size=4).map(
    lambda rows: [{"id": f"p{i}", **row} for i, row in enumerate(rows)]
)
