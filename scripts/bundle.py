"""Makes a recording inside the package from its source: `python scripts/bundle.py SOURCE TARGET`.

SOURCE is facts-….jsonl.gz or words-….jsonl.gz (or the bundled file itself, to renew its classes), TARGET
e.g. src/adacompute/pool/recordings/facts.parquet.
Run it again when answers are compared in another way: classes are kept in TARGET's .classes.gz beside it.
The source's lines don't say how they were sampled; that is added here as `parameters`. All else is kept.
"""

import gzip
import re
import sys
import tempfile
from pathlib import Path

import orjson

from adacompute.pool import export_file, open_pool

PARAMETERS = {
    "facts": {
        "temperature": 0.7,
        "max_tokens": 24,
        "system": "Answer in one line: Answer: <answer>",
        "examples": [["What color is the sky on a clear day?", "Answer: Blue"]],
    },
    "words": {
        "temperature": 0.7,
        "max_tokens": 480,
        "system": "Please reason step by step, and put your final answer within \\boxed{}.",
    },
}


def main(source: str, target: str) -> None:
    """Reads, adds the parameters, writes, and says what came out."""
    name = re.split(r"[-.]", Path(source).name)[0]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines.jsonl")
        with open_pool(source) as pool, lines.open("wb") as file:
            for line in pool.lines():
                file.write(orjson.dumps(line | {"parameters": PARAMETERS[name]}) + b"\n")
        with open_pool(lines) as pool:
            done = export_file(pool, target, overwrite=True)
            classes = orjson.dumps([recorded.classes for recorded in pool])
            Path(target).with_suffix(".classes.gz").write_bytes(gzip.compress(classes, mtime=0))
            print(f"{target}: {done}, {pool.digest()}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
