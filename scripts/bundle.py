"""Makes a recording inside the package from its source: `python scripts/bundle.py SOURCE TARGET`.

SOURCE is a recording marked ours (or the bundled file itself, to renew its classes), TARGET e.g.
src/adacompute/pool/recordings/facts.jsonl.gz; TARGET's name says how it was sampled.
Run it again when answers are compared in another way: classes are kept in TARGET's .classes.gz beside it.
The source's lines don't say how they were sampled; that is added here as `parameters`. All else is kept.
"""

import gzip
import sys
import tempfile
from pathlib import Path

import orjson

from adacompute.pool import export_file, open_pool

FACTS = {
    "temperature": 0.7,
    "max_tokens": 24,
    "system": "Answer in one line: Answer: <answer>",
    "examples": [["What color is the sky on a clear day?", "Answer: Blue"]],
}
PARAMETERS = {
    "facts": FACTS,
    "facts-qwen": FACTS,
    "words": {
        "temperature": 0.7,
        "max_tokens": 480,
        "system": "Please reason step by step, and put your final answer within \\boxed{}.",
    },
    "words-direct": {
        "temperature": 0.7,
        "max_tokens": 24,
        "system": (
            "Answer at once with nothing but the final answer within \\boxed{}. No steps, no explanation."
        ),
        "examples": [
            ["A box holds 6 rows of 7 pens. How many pens is that?", "\\boxed{42}"],
            ["What is the remainder when 50 is divided by 8?", "\\boxed{2}"],
        ],
    },
}


def main(source: str, target: str) -> None:
    """Reads, adds the parameters, writes, and says what came out."""
    name = Path(target).name.removesuffix(".jsonl.gz")
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines.jsonl")
        with open_pool(source) as pool, lines.open("wb") as file:
            for line in pool.lines():
                file.write(orjson.dumps(line | {"parameters": PARAMETERS[name]}) + b"\n")
        with open_pool(lines) as pool:
            done = export_file(pool, target, overwrite=True)
            classes = orjson.dumps([recorded.classes for recorded in pool])
            Path(target).with_name(f"{name}.classes.gz").write_bytes(gzip.compress(classes, mtime=0))
            print(f"{target}: {done}, {pool.digest()}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
