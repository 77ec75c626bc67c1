"""`make clients`: real clients, directly at a scripted model and through the gateway, beside each other.

Each client is put through its cases (adapters/cases.py) twice, in its own environment. A case is `same`,
`better` (more answers are right, for they were voted on) or `worse`, with the reason. A client whose
environment can't be made is skipped, and its row says why. The whole table in docs/peers.md is written by
one run; `python suite.py NAME …` runs some clients, and renews their rows.
"""

import concurrent.futures
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
from running import Process

HERE = Path(__file__).resolve().parent
ROOT = environments.ROOT
PAGE = ROOT / "docs" / "peers.md"
CASES = ("plain", "stream", "tools", "structured", "errors", "at once", "other routes")
LIMIT = 280.0  # seconds of one client
LANES = 2  # clients at the same time, each with a model and a gateway of its own
PRICE = "0.003"  # of a sample: about three for a question
FEWER = 0.8  # a stream in fewer pieces than this share of the direct one's is worse
TABLE = re.compile(r"^\| .*\|$", re.MULTILINE)
Outcomes = dict[str, dict[str, Any]]  # by case


@dataclass(frozen=True)
class Client:
    """A client, and the script that puts it through its cases."""

    name: str
    environment: str
    script: str
    package: str
    variant: str = ""

    @property
    def key(self) -> str:
        """Its name as one word."""
        return re.sub(r"\W+", "-", self.name)


CLIENTS = (
    Client("openai-python", "current", "openai_chat.py", "openai"),
    Client("openai-python, async", "current", "openai_chat.py", "openai", "async"),
    Client("openai-python, responses", "current", "openai_responses.py", "openai"),
    Client("openai-python 2", "older", "openai_chat.py", "openai"),
    Client("openai (npm)", "node", "openai_npm.mjs", "openai"),
    Client("openai (npm), responses", "node", "openai_npm.mjs", "openai", "responses"),
    Client("ai, `openai()`", "node", "ai_npm.mjs", "ai"),
    Client("ai, `openai.chat()`", "node", "ai_npm.mjs", "ai", "chat"),
    Client("ai, openai-compatible", "node", "ai_npm.mjs", "ai", "compatible"),
    Client("langchain-openai", "current", "langchain_client.py", "langchain-openai"),
    Client("llama-index, OpenAI", "older", "llama_index_client.py", "llama-index-llms-openai"),
    Client(
        "llama-index, OpenAILike", "older", "llama_index_client.py", "llama-index-llms-openai-like", "like"
    ),
    Client("instructor", "older", "instructor_client.py", "instructor"),
    Client("pydantic-ai, chat", "current", "pydantic_ai_client.py", "pydantic-ai-slim"),
    Client("pydantic-ai, responses", "current", "pydantic_ai_client.py", "pydantic-ai-slim", "responses"),
    Client("litellm", "older", "litellm_client.py", "litellm"),
    Client("litellm, proxy", "proxy", "litellm_proxy_client.py", "litellm"),
    Client("llm", "current", "llm_client.py", "llm"),
    Client("dspy", "older", "dspy_client.py", "dspy"),
    Client("inspect_ai", "current", "inspect_client.py", "inspect-ai"),
    Client("lm-eval", "current", "lm_eval_client.py", "lm-eval"),
    Client("aider", "aider", "aider_client.py", "aider-chat"),
)


@dataclass(frozen=True)
class Verdict:
    """A case of a client: what the gateway made of it."""

    word: str  # same, better, worse or skipped
    why: str = ""

    @property
    def cell(self) -> str:
        """Its words in the table."""
        return f"skipped: {self.why}" if self.word == "skipped" else self.word


Verdicts = dict[str, Verdict]  # by case


@dataclass(frozen=True)
class Servers:
    """A scripted model, and the gateway in front of it."""

    direct: str
    gateway: str


@contextlib.contextmanager
def start_servers() -> Iterator[Servers]:
    """Both as processes. The price is fixed, so that no client's samples depend on the clients before it; and
    a call that fails is tried only once more, for the tries are not what is looked at."""
    words = [sys.executable, str(HERE / "scripted_model.py"), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as model:
        try:
            assert model.stdout is not None
            url = model.stdout.readline().strip()
            with Process(url, "--price", PRICE, endpoint={"attempts": 2}) as gate:
                yield Servers(url, gate.url)
        finally:
            model.terminate()


def run_client(client: Client, servers: Servers) -> Verdicts:
    """Each of its cases, through the gateway beside directly."""
    try:
        program = environments.prepare(client.environment)
    except environments.Absent as exc:
        print(f"--- {client.name}\nskipped: {exc}", file=sys.stderr)
        return {"plain": Verdict("skipped", exc.why)}
    with tempfile.TemporaryDirectory() as home:
        urls = [servers.direct, servers.gateway]
        reset = servers.direct.removesuffix("/v1") + "/reset"
        words = [str(program), str(place_driver(client)), reset, client.script, client.variant, *urls]
        said, problem = call(words, plain_environment(home))
    print(f"--- {client.name}\n{said}{problem}", file=sys.stderr)
    direct, through = map(read_outcomes, said.partition(f"SERVER {urls[1]}\n")[::2])
    if not direct:
        return {"plain": Verdict("worse", f"it doesn't run: {problem}")}
    return {case: judge(outcome, through.get(case)) for case, outcome in direct.items()}


def call(words: list[str], environ: dict[str, str]) -> tuple[str, str]:
    """What a command printed; and why it broke off, if it did."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(words, env=environ, stdout=out, stderr=err, start_new_session=True)
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it started
            process.wait()
        out.seek(0)
        err.seek(0)
        said = f"{out.read()}({time.monotonic() - began:.1f} s)\n"
        return said, f"exit {code}: {err.read()[-3000:]}" if code else ""


def read_outcomes(text: str) -> Outcomes:
    """What happened in each case, by the adapter's own words."""
    lines = [line.removeprefix("CASE ") for line in text.splitlines() if line.startswith("CASE ")]
    return {outcome.pop("case"): outcome for outcome in map(json.loads, lines)}


def plain_environment(home: str) -> dict[str, str]:
    """Variables for a client: a home of its own, and nothing is fetched from anywhere."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "OPENAI_API_KEY": "sk-none",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }


def place_driver(client: Client) -> Path:
    """What runs the adapter; node looks for its modules beside it."""
    if client.environment != "node":
        return HERE / "adapters" / "drive.py"
    folder = environments.FOLDER / "node"
    for script in (HERE / "adapters").glob("*.mjs"):
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as copy:
            copy.write(script.read_bytes())
        Path(copy.name).replace(folder / script.name)  # whole at any moment: another process may read it
    return folder / "drive.mjs"


def judge(direct: dict[str, Any], through: dict[str, Any] | None) -> Verdict:
    """What the gateway made of a case."""
    if through is None:
        return Verdict("worse", "never came to it")
    if "failed" in direct:
        return Verdict("worse", f"fails directly, so nothing is compared: {direct['failed']}")
    if "failed" in through:
        return Verdict("worse", through["failed"])
    differences = list(differ(direct.get("facts"), through.get("facts")))
    if through.get("pieces", 0) < FEWER * direct.get("pieces", 0):
        differences.append(f"in {through['pieces']} pieces, not {direct['pieces']}")
    if direct.get("early") and not through["early"]:
        differences.append("the first piece comes late")
    gained = through.get("right", 0) - direct.get("right", 0)
    if gained < 0:
        differences.append(f"{through['right']} of {through['of']} right, not {direct['right']}")
    if differences:
        return Verdict("worse", "; ".join(differences))
    return Verdict("better" if gained else "same", f"{gained} more right" if gained else "")


def differ(direct: Any, through: Any, name: str = "") -> Iterator[str]:
    """Where two values differ, one line each."""
    if isinstance(direct, dict) and isinstance(through, dict):
        for key in {**direct, **through}:
            yield from differ(direct.get(key), through.get(key), f"{name}.{key}".lstrip("."))
    elif direct != through:
        yield f"{name} is {json.dumps(through)}, not {json.dumps(direct)}"


def version(client: Client) -> str:
    """The version of its package that is pinned."""
    if client.environment == "node":
        pins = json.loads((environments.PINS / "package.json").read_text())
        return str(pins["dependencies"][client.package])
    pins_text = (environments.PINS / f"{client.environment}.txt").read_text()
    found = re.search(rf"^{re.escape(client.package)}==([\w.]+)", pins_text, re.MULTILINE)
    assert found is not None
    return found[1]


def build_row(client: Client, verdicts: Verdicts) -> str:
    """A line of the table."""
    words = [verdicts[case].cell if case in verdicts else "–" for case in CASES]
    return f"| {client.name} | {version(client)} | {' | '.join(words)} |"


def write_rows(rows: list[str], page: Path) -> None:
    """Puts rows into the table of a page, in the place of those of the same clients."""
    text = page.read_text("utf-8")
    known = {row.split(" | ")[0]: row for row in [*TABLE.findall(text), *rows]}
    table = [known[f"| {client.name}"] for client in CLIENTS if f"| {client.name}" in known]
    head = [f"| client | version | {' | '.join(CASES)} |", f"|{' --- |' * (len(CASES) + 2)}"]
    start = text.index("| client")
    end = text.index("|\n\n", start) + 2
    page.write_text(text[:start] + "".join(f"{line}\n" for line in [*head, *table]) + text[end:], "utf-8")


def run_all(clients: tuple[Client, ...]) -> dict[str, Verdicts]:
    """All verdicts by the client's name, some clients at the same time."""
    for name in {client.environment for client in clients}:
        environments.try_once(name)  # before anything is timed
    with contextlib.ExitStack() as stack:
        lanes: queue.Queue[Servers] = queue.Queue()
        for _ in range(LANES):
            lanes.put(stack.enter_context(start_servers()))

        def run(client: Client) -> Verdicts:
            servers = lanes.get()
            try:
                return run_client(client, servers)
            finally:
                lanes.put(servers)

        with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
            return dict(zip([client.name for client in clients], pool.map(run, clients), strict=True))


def main() -> int:
    """Runs all clients, or those that are named, and writes their rows into the page."""
    names = set(sys.argv[1:])
    if unknown := names - {client.key for client in CLIENTS}:
        sys.exit(f"{sorted(unknown)} are no clients; there are {[client.key for client in CLIENTS]}")
    chosen = tuple(client for client in CLIENTS if not names or client.key in names)
    verdicts = run_all(chosen)
    rows = [build_row(client, verdicts[client.name]) for client in chosen]
    write_rows(rows, PAGE)
    print("\n".join([*rows, *list_findings(verdicts)]))
    return 1 if any(told.word == "worse" for cases in verdicts.values() for told in cases.values()) else 0


def list_findings(verdicts: dict[str, Verdicts]) -> list[str]:
    """Each case that is worse, and each client that was skipped, with the reason."""
    return [
        f"{name}, {case}: {told.cell if told.word == 'skipped' else told.why}"
        for name, cases in verdicts.items()
        for case, told in cases.items()
        if told.word in ("worse", "skipped")
    ]


if __name__ == "__main__":
    sys.exit(main())
