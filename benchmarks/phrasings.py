"""What a vote gains in each phrasing: `python -m benchmarks.phrasings`, with an upstream over real sockets.

- `rows`: an upstream that is right with probability 0.7, has several wrong answers and its own phrasings, and
  a new gateway at budget 3 for each row. The aim is 12 points more than one sample, or one sample's cost.
- `prose`: recorded replies of a real model in eight languages, given out in random order. The aim is 5
  points where one sample is right in 30 to 80%.

Names of rows or kinds select some; `--requests 300` is how many each row has, `--recordings FOLDER` where the
prose is.
"""

import argparse
import contextlib
import gzip
import http.client
import itertools
import json
import random
import sys
import tempfile
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.processes import ROOT
from benchmarks.serving import gateway

RIGHT = 0.7  # of the samples
BUDGET = 3.0
REQUESTS = 300
RECORDINGS = ROOT.parent / "shared" / "recordings" / "prose"
ENGLISH = "en"

Message = dict[str, Any]
Draw = Callable[[random.Random], tuple[Message, bool]]  # a sample, and whether it is right


@dataclass(frozen=True)
class Item:
    """One request, and where its samples come from."""

    body: dict[str, Any]
    draw: Draw


@dataclass
class Result:
    """What came of the requests of a row."""

    single: list[bool] = field(default_factory=list)  # whether the first sample was right
    voted: list[bool] = field(default_factory=list)  # whether the reply was
    samples: list[int] = field(default_factory=list)
    unvoted: int = 0

    def to_row(self, name: str) -> dict[str, str]:
        count = len(self.voted) or 1
        one, vote = 100 * sum(self.single) / count, 100 * sum(self.voted) / count
        return {
            "replies": name,
            "requests": str(count),
            "one sample": f"{one:.1f}%",
            "gateway": f"{vote:.1f}%",
            "gain": f"{vote - one:+.1f}",
            "samples": f"{sum(self.samples) / count:.2f}",
            "not voted on": f"{100 * self.unvoted / count:.0f}%",
        }


class Upstream(ThreadingHTTPServer):
    """Gives samples of the item that a request's `user` names, and remembers which were right."""

    daemon_threads = True
    request_queue_size = 128
    models = ("m",)

    def __init__(self, items: dict[str, Item]) -> None:
        super().__init__(("127.0.0.1", 0), JsonHandler)
        self.items = items
        self.given: defaultdict[str, list[tuple[str, bool]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._rngs = {name: random.Random(name) for name in items}

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        name, choices = body["user"], []
        with self._lock:
            for index in range(body.get("n") or 1):
                message, right = self.items[name].draw(self._rngs[name])
                self.given[name].append((_key(message), right))
                choices.append(
                    {"index": index, "finish_reason": "stop", "message": {"role": "assistant", **message}}
                )
        usage = {
            "prompt_tokens": 20,
            "completion_tokens": 20 * len(choices),
            "total_tokens": 20 + 20 * len(choices),
        }
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": choices,
            "usage": usage,
        }


class JsonHandler(BaseHTTPRequestHandler):
    """Gives a server's replies to what is posted, and the models that it has."""

    protocol_version = "HTTP/1.1"
    server: Any  # has `models` and `reply`

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._send(self.server.reply(body))

    def do_GET(self) -> None:
        data = [{"id": model, "object": "model"} for model in self.server.models]
        self._send({"object": "list", "data": data})

    def _send(self, value: dict[str, Any]) -> None:
        raw = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _key(message: Message) -> str:
    """What tells samples apart in the gateway's reply."""
    calls = message.get("tool_calls")
    return json.dumps([call["function"] for call in calls]) if calls else str(message["content"])


@contextlib.contextmanager
def _serve(items: dict[str, Item]) -> Iterator[Upstream]:
    server = Upstream(items)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def measure(items: dict[str, Item]) -> dict[str, tuple[bool, bool, int, bool]]:
    """By item: whether its first sample and its reply are right, its samples, whether it was voted on."""
    with tempfile.TemporaryDirectory() as folder, _serve(items) as up:
        url = f"http://127.0.0.1:{up.server_address[1]}/v1"
        with gateway(url, Path(folder), budget=BUDGET, policies=[]) as way, ThreadPoolExecutor(8) as pool:
            replies = dict(
                zip(items, pool.map(lambda name: _ask(way.url, name, items[name]), items), strict=True)
            )
    outcomes = {}
    for name, reply in replies.items():
        told, message = reply["adacompute"], reply["choices"][0]["message"]
        right = dict(up.given[name])[_key(message)]
        outcomes[name] = (up.given[name][0][1], right, told["samples"], told.get("agreement") is not None)
    return outcomes


def _ask(url: str, name: str, item: Item) -> dict[str, Any]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
    body = {"model": "m", "temperature": 0.8, "user": name, **item.body}
    connection.request("POST", where.path, json.dumps(body), {"content-type": "application/json"})
    reply: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return reply


# The rows: a phrasing takes a problem's words and an answer


@dataclass(frozen=True)
class Row:
    """Questions of one kind, each with its right answer and wrong ones, and the ways to say an answer."""

    problems: Sequence[tuple[str, ...]]  # words of a question, its right answer, its wrong ones
    question: str
    frames: Sequence[str]  # {a} is the answer, {q} the words of the question, {t} free text
    words: int = 1  # of a problem that are the question's
    body: dict[str, Any] = field(default_factory=dict)
    tool: str = ""

    def make(self, number: int) -> Item:
        problem = self.problems[number % len(self.problems)]
        words, right, wrong = problem[: self.words], problem[self.words], problem[self.words + 1 :]

        def draw(rng: random.Random) -> tuple[Message, bool]:
            is_right = rng.random() < RIGHT
            answer = right if is_right else rng.choice(wrong)
            said = self._say(rng.choice(self.frames), answer, words, rng)
            if not self.tool:
                return {"content": said}, is_right
            call = {"id": "c", "type": "function", "function": {"name": self.tool, "arguments": said}}
            return {"content": None, "tool_calls": [call]}, is_right

        asked = self.question.format(*words, q=words[0])
        return Item({"messages": [{"role": "user", "content": asked}], **self.body}, draw)

    def _say(self, frame: str, answer: str, words: Sequence[str], rng: random.Random) -> str:
        forms = answer.split("|")  # ways to write it
        said = frame.replace("{a}", rng.choice(forms)).replace("{q}", words[0]).replace("{t}", _write(rng))
        return said.replace("{f}", f"{rng.uniform(0.5, 1):.3f}")


_SUBJECTS = ("we all", "the team", "my colleagues", "the whole office", "everybody here")
_VERBS = ("look forward to", "talked about", "would like to discuss", "still think of")
_OBJECTS = ("the next steps", "your kind visit", "a longer meeting", "the open points", "what was said")


def _write(rng: random.Random) -> str:
    """Free text, hardly ever the same twice."""
    parts = [rng.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS)]
    return " ".join([*parts, "on day", str(rng.randrange(10_000))])


CAPITALS = (
    ("Australia", "Canberra", "Sydney", "Melbourne", "Perth"),
    ("Turkey", "Ankara", "Istanbul", "Izmir", "Bursa"),
    ("Brazil", "Brasília", "Rio de Janeiro", "São Paulo", "Salvador"),
    ("Morocco", "Rabat", "Casablanca", "Marrakesh", "Fez"),
    ("Vietnam", "Hanoi", "Ho Chi Minh City", "Hue", "Da Nang"),
)
GERMAN_CAPITALS = (
    ("Australien", "Canberra", "Sydney", "Melbourne", "Perth"),
    ("Brasilien", "Brasília", "Rio de Janeiro", "São Paulo", "Salvador"),
    ("Marokko", "Rabat", "Casablanca", "Marrakesch", "Fès"),
    ("Kanada", "Ottawa", "Toronto", "Montreal", "Vancouver"),
)
FRENCH_CAPITALS = (
    ("de l'Australie", "Canberra", "Sydney", "Melbourne", "Perth"),
    ("du Brésil", "Brasilia", "Rio de Janeiro", "São Paulo", "Salvador"),
    ("du Maroc", "Rabat", "Casablanca", "Marrakech", "Fès"),
    ("du Canada", "Ottawa", "Toronto", "Montréal", "Vancouver"),
)
SPANISH_CAPITALS = (
    ("Australia", "Canberra", "Sídney", "Melbourne", "Perth"),
    ("Turquía", "Ankara", "Estambul", "Esmirna", "Bursa"),
    ("Marruecos", "Rabat", "Casablanca", "Marrakech", "Fez"),
    ("Canadá", "Ottawa", "Toronto", "Montreal", "Vancouver"),
)
CHINESE_CAPITALS = (
    ("澳大利亚", "堪培拉", "悉尼", "墨尔本", "珀斯"),
    ("土耳其", "安卡拉", "伊斯坦布尔", "伊兹密尔", "布尔萨"),
    ("摩洛哥", "拉巴特", "卡萨布兰卡", "马拉喀什", "非斯"),
    ("加拿大", "渥太华", "多伦多", "蒙特利尔", "温哥华"),
)
PRODUCTS = tuple(
    (str(a), str(b), str(a * b), str(a * b + 10), str(a * b - a), str(a * b + 2))
    for a, b in ((17, 23), (14, 19), (26, 31), (12, 48), (37, 15))
)
BOTTLES = tuple(
    (str(a), str(b), str(a * b), str(a * b - b), str(a + b), str(a * b + a))
    for a, b in ((6, 9), (12, 15), (8, 7), (4, 24))
)
PRIMES = tuple(
    (n, "no" if c else "yes", "yes" if c else "no") for n, c in (("91", 1), ("97", 0), ("51", 1), ("83", 0))
)
ENGLISH_FRAMES = (
    "The capital of {q} is {a}.",
    "{a} is the capital of {q}.",
    "It's {a}.",
    "{a}",
    "I believe the capital is **{a}**.",
    "The capital city of {q} is {a}.",
)
CHATTY = (
    "Great question! The capital of {q} is {a}. It is a lovely place to visit.",
    "Sure! {a} is the capital of {q}. Many people are surprised by that.",
    "The capital of {q} is {a}. It has been so for a long time, and most offices of the state are there.",
    "That would be {a}! It's where the parliament of {q} sits.",
)
JSON_BODY = {"response_format": {"type": "json_object"}}


def _tool(name: str, *arguments: str) -> dict[str, Any]:
    properties = {argument: {"type": "string"} for argument in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"tools": [{"type": "function", "function": {"name": name, "parameters": parameters}}]}


ROWS = {
    "English sentence": Row(CAPITALS, "What is the capital of {q}?", ENGLISH_FRAMES),
    "number": Row(
        PRODUCTS,
        "What is {0} times {1}?",
        ("{a}", "The result is {a}.", "It is {a}.", "That makes {a}.", "{q} times that is {a}.", "**{a}**"),
        words=2,
    ),
    "choice": Row(
        (
            ("Shark\nB) Dolphin\nC) Trout\nD) Frog", "B|B) Dolphin", "A|A) Shark", "C|C) Trout", "D"),
            ("Whale\nB) Eagle\nC) Salmon\nD) Newt", "A|A) Whale", "B|B) Eagle", "C|C) Salmon", "D"),
        ),
        "Which of these is a mammal?\nA) {q}",
        ("{a}", "The answer is {a}.", "It's {a}.", "({a})", "I'd say {a}."),
    ),
    "date": Row(
        (
            (
                "the Berlin Wall fall",
                "9 November 1989|November 9, 1989|1989-11-09",
                "3 October 1990|October 3, 1990",
                "13 August 1961|August 13, 1961",
                "9 November 1988|November 9, 1988",
            ),
            (
                "World War I end",
                "11 November 1918|November 11, 1918|1918-11-11",
                "28 June 1919|June 28, 1919",
                "11 November 1919|November 11, 1919",
                "1 September 1918|September 1, 1918",
            ),
        ),
        "When did {q}?",
        ("{a}", "It was on {a}.", "That happened on {a}.", "On {a}."),
    ),
    "boxed": Row(
        PRODUCTS,
        "What is {0} times {1}? Put the answer in a box.",
        (r"We multiply and get \boxed{{a}}.", r"\boxed{{a}}", r"So the product is $\boxed{{a}}$."),
        words=2,
    ),
    "JSON": Row(
        CAPITALS,
        "What is the capital of {q}? Reply in JSON with the field answer.",
        ('{"answer": "{a}"}', '{\n  "answer": "{a}"\n}', '```json\n{"answer": "{a}"}\n```'),
        body=JSON_BODY,
    ),
    "tool arguments": Row(
        CAPITALS,
        "What is the weather in the capital of {q}?",
        ('{"city": "{a}", "unit": "C"}', '{"unit": "C", "city": "{a}"}'),
        body=_tool("weather", "city", "unit"),
        tool="weather",
    ),
    "Answer: X": Row(
        CAPITALS,
        "What is the capital of {q}? End with 'Answer: ' and the answer.",
        ("Answer: {a}", "Let me think.\nAnswer: {a}", "It is well known.\n\nAnswer: **{a}**"),
    ),
    "classification": Row(
        (
            ("The food was cold and nobody cared.", "negative", "positive", "neutral"),
            ("I'd come back any day!", "positive", "negative", "neutral"),
            ("The shop opens at nine.", "neutral", "negative", "positive"),
        ),
        "Classify the sentiment of this review as positive, negative or neutral: {q}",
        ("{a}", "The sentiment is {a}.", "Sentiment: {a}", "This review is {a}.", "**{a}**"),
    ),
    "extraction": Row(
        (
            ("Mail ann@x.org or call Bob; bills go to pay@x.org.", "pay@x.org", "ann@x.org", "bob@x.org"),
            (
                "Write to info@y.net; invoices: books@y.net, cc eve@y.net.",
                "books@y.net",
                "info@y.net",
                "eve@y.net",
            ),
        ),
        "Which email address do invoices go to? {q}",
        ("{a}", "Invoices go to {a}.", "The address is {a}.", "{a} is the address for invoices."),
    ),
    "Chinese fact": Row(
        CHINESE_CAPITALS,
        "{q}的首都是哪里？",
        ("{q}的首都是{a}。", "{a}", "{a}是{q}的首都。", "是{a}。", "首都是{a}。"),
    ),
    "German fact": Row(
        GERMAN_CAPITALS,
        "Was ist die Hauptstadt von {q}?",
        (
            "Die Hauptstadt von {q} ist {a}.",
            "{a}",
            "Das ist {a}.",
            "{a} ist die Hauptstadt von {q}.",
            "Es ist **{a}**.",
        ),
    ),
    "Spanish fact": Row(
        SPANISH_CAPITALS,
        "¿Cuál es la capital de {q}?",
        (
            "La capital de {q} es {a}.",
            "{a}",
            "Es {a}.",
            "Claro, la capital de {q} es {a}.",
            "{a} es la capital de {q}.",
        ),
    ),
    "French fact": Row(
        FRENCH_CAPITALS,
        "Quelle est la capitale {q} ?",
        ("La capitale {q} est {a}.", "{a}", "C'est {a}.", "{a} est la capitale {q}.", "Il s'agit de {a}."),
    ),
    "yes/no": Row(
        tuple((n, *("Yes" if w == "yes" else "No" for w in ws)) for n, *ws in PRIMES),
        "Is {q} a prime number?",
        ("{a}", "{a}.", "{a}, I'm sure.", "**{a}**", "{a}, of course."),
    ),
    "chatty (1 to 3 sentences)": Row(CAPITALS, "What is the capital of {q}?", (*CHATTY, *ENGLISH_FRAMES[:2])),
    "list": Row(
        (
            (
                "primary colors of light",
                "red, green and blue|Red, green, blue|blue, green and red",
                "red, yellow and blue|Red, yellow, blue",
                "cyan, magenta and yellow|Cyan, magenta, yellow",
                "red, green and yellow",
            ),
            (
                "countries of Benelux",
                "Belgium, the Netherlands and Luxembourg|the Netherlands, Belgium, Luxembourg",
                "Belgium, the Netherlands and Denmark",
                "Belgium, France and Luxembourg|France, Belgium, Luxembourg",
            ),
        ),
        "What are the three {q}?",
        ("{a}", "They are {a}.", "The three {q} are {a}."),
    ),
    "JSON with a free-text field": Row(
        CAPITALS,
        "What is the capital of {q}? Reply in JSON with the fields answer and note.",
        ('{"answer": "{a}", "note": "{t}"}', '{"note": "{t}", "answer": "{a}"}'),
        body=JSON_BODY,
    ),
    "JSON with a confidence": Row(
        CAPITALS,
        "What is the capital of {q}? Reply in JSON with the fields answer and sure.",
        ('{"answer": "{a}", "sure": {f}}',),
        body=JSON_BODY,
    ),
    "one word translated": Row(
        (
            ("dog", "chien", "chat", "cheval", "loup"),
            ("house", "maison", "toit", "jardin", "cour"),
            ("bread", "pain", "vin", "beurre", "gâteau"),
        ),
        "How do you say '{q}' in French?",
        (
            "{a}",
            "'{a}'",
            "In French, '{q}' is '{a}'.",
            'The French word for "{q}" is "{a}".',
            "It's **{a}**.",
        ),
    ),
    "tool with a free-text argument": Row(
        (("Ann", "ann@x.org", "anna@x.org", "bob@x.org"), ("Eve", "eve@y.net", "eva@y.net", "ann@x.org")),
        "Send {q} a short mail about the meeting.",
        ('{"to": "{a}", "subject": "{t}", "body": "{t}"}',),
        body=_tool("send", "to", "subject", "body"),
        tool="send",
    ),
    "tool with nothing but free text": Row(
        (("the meeting", "x", "y"), ("the summer", "x", "y")),
        "Write a note about {q}.",
        ('{"title": "{t}", "body": "{t}"}',),
        body=_tool("note", "title", "body"),
        tool="note",
    ),
    "German how many": Row(
        BOTTLES,
        "In {0} Kisten sind je {1} Flaschen. Wie viele Flaschen sind es insgesamt?",
        (
            "Insgesamt sind es **{a} Flaschen**.",
            "Es sind {a} Flaschen.",
            "{a}",
            "Das sind {a}.",
            "Es gibt insgesamt {a} Flaschen.",
        ),
        words=2,
    ),
    "French how many": Row(
        BOTTLES,
        "Il y a {1} bouteilles dans chacune des {0} caisses. Combien de bouteilles y a-t-il ?",
        (
            "Il y a {a} bouteilles.",
            "Il y a {a} bouteilles au total.",
            "{a}",
            "Cela fait {a} bouteilles.",
            "On compte {a} bouteilles.",
        ),
        words=2,
    ),
    "Spanish yes/no": Row(
        tuple((n, *("Sí" if w == "yes" else "No" for w in ws)) for n, *ws in PRIMES),
        "¿Es {q} un número primo?",
        ("{a}", "{a}.", "{a}, claro.", "**{a}**"),
    ),
    "ends in an offer": Row(
        CAPITALS,
        "What is the capital of {q}?",
        (
            "The capital of {q} is {a}. Would you like to know more?",
            "{a} is the capital of {q}. Is there anything else I can help you with?",
            "It's {a}! Let me know if you'd like more details.",
            "The capital of {q} is {a}.",
        ),
    ),
    "this or that": Row(
        (
            ("the Nile or the Rhine", "the Nile", "the Rhine"),
            ("the Amazon or the Thames", "the Amazon", "the Thames"),
            ("the Seine or the Danube", "the Danube", "the Seine"),
        ),
        "Which river is longer, {q}?",
        ("{a}", "It's {a}.", "Of the two, {a} is longer.", "I'd say {a}.", "**{a}** is the longer one."),
    ),
    "German date": Row(
        (
            (
                "fiel die Berliner Mauer",
                "9. November 1989|9.11.1989",
                "3. Oktober 1990|3.10.1990",
                "13. August 1961",
            ),
            (
                "endete der Erste Weltkrieg",
                "11. November 1918|11.11.1918",
                "28. Juni 1919|28.6.1919",
                "1. Mai 1918",
            ),
        ),
        "Wann {q}?",
        ("Am {a}.", "{a}", "Das war am {a}.", "Es geschah am {a}."),
    ),
    "code block": Row(
        PRODUCTS,
        "What does print({0} * {1}) print?",
        ("```\n{a}\n```", "It prints `{a}`.", "{a}", "The output is:\n```\n{a}\n```"),
        words=2,
    ),
    "Explain your reasoning.": Row(
        BOTTLES,
        "There are {0} boxes with {1} bottles each. How many bottles are there? Explain your reasoning.",
        (
            "Each of the boxes holds the same number of bottles, so we multiply. This gives {a} bottles.",
            "We have to multiply the boxes by the bottles in each. Therefore, there are {a} bottles.",
            "To find the total, I multiply the two numbers.\n\nSo there are {a} bottles.",
        ),
        words=2,
    ),
}


def run_rows(names: Sequence[str], requests: int) -> Iterator[dict[str, str]]:
    """A new gateway for each row."""
    for name, row in ROWS.items():
        if names and name not in names:
            continue
        result = Result()
        for single, right, samples, is_voted in measure(
            {f"{name} {k}": row.make(k) for k in range(requests)}
        ).values():
            _add(result, single, right, samples, is_voted)
        yield result.to_row(name)


def _add(result: Result, single: bool, right: bool, samples: int, is_voted: bool) -> None:
    result.single.append(single)
    result.voted.append(right)
    result.samples.append(samples)
    result.unvoted += not is_voted


def run_prose(names: Sequence[str], folder: Path) -> Iterator[dict[str, str]]:
    """The recordings by kind and language, and those of both where one sample is right in 30 to 80%.

    One gateway for each recording. A sample that the recording doesn't grade counts as wrong, on both sides.
    """
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            problems = [json.loads(line) for line in lines]
        problems = [problem for problem in problems if not names or problem["kind"] in names]
        items = {f"{number} {problem['id']}": _play_back(problem) for number, problem in enumerate(problems)}
        outcomes = measure(items)
        cells: dict[tuple[str, str], list[float]] = defaultdict(list)  # by kind and language
        for problem in problems:
            cells[problem["kind"], problem["subject"]] += [
                own.get("correct", 0) for own in problem["samples"]
            ]
        groups: dict[tuple[str, str], Result] = defaultdict(Result)
        for problem, outcome in zip(problems, outcomes.values(), strict=True):
            cell = problem["kind"], problem["subject"]
            language = "English" if problem["subject"] == ENGLISH else "seven others"
            open_cell = 0.3 <= sum(cells[cell]) / len(cells[cell]) <= 0.8
            keys = {
                cell,
                (problem["kind"], language),
                *([("one sample right in 30 to 80%", language)] * open_cell),
            }
            for key in keys:
                _add(groups[key], *outcome)
        stem = path.name.split("-qwen")[0]
        for (kind, language), result in sorted(groups.items()):
            yield result.to_row(f"{stem}: {kind}, {language}")


def _play_back(problem: dict[str, Any]) -> Item:
    """The recorded samples in a random order, again and again."""
    samples = list(problem["samples"])
    random.Random(zlib.crc32(problem["id"].encode())).shuffle(samples)
    endless = itertools.cycle(samples)

    def draw(_: random.Random) -> tuple[Message, bool]:
        sample = next(endless)
        return {"content": sample["text"]}, bool(sample.get("correct", 0))

    return Item({"messages": [{"role": "user", "content": problem["question"]}]}, draw)


def main(words: list[str]) -> int:
    """Prints a table as it comes; exit code of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("rows", "prose"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--recordings", type=Path, default=RECORDINGS)
    asked = parser.parse_args(words)
    if asked.part == "prose" and not asked.recordings.is_dir():
        print(f"{asked.recordings}: no such folder; give --recordings", file=sys.stderr)
        return 2
    rows = (
        run_rows(asked.names, asked.requests)
        if asked.part == "rows"
        else run_prose(asked.names, asked.recordings)
    )
    for number, row in enumerate(rows):
        if number == 0:
            print("| " + " | ".join(row) + " |\n| --- |" + " ---: |" * (len(row) - 1))
        print("| " + " | ".join(row.values()) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
