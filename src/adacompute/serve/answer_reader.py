"""How the samples of one request are read into answers: texts, JSON, sections of a text, or calls of tools.

What a request asks for decides the shape: an extractor or fields that it names itself, a format of JSON, the
sections that DSPy's prompts describe, or else a text, read as the operator has it read. Calls of tools are
read as such in every shape.

A vote is among samples of one kind: if most samples call tools, among those that call the same tools as most
of them do; else among the texts. The others count as samples without an answer.
"""

import asyncio
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import orjson

from adacompute.answers import Task, extract_answer
from adacompute.answers.extract import check_pattern, extract_in_sandbox, search_in_sandbox, strip_thinking
from adacompute.answers.normalise import trim
from adacompute.answers.phrase import abstains
from adacompute.answers.question import classify_purpose
from adacompute.answers.structured import (
    FieldSelection,
    RawNumber,
    ToolCall,
    apply_schema,
    bound_answer,
    convert_to_snake_case,
    find_free_text,
    format_calls,
    parse_json,
    read_json_value,
    read_tool_calls,
    select_arguments,
    select_fields,
    write_canonical,
)
from adacompute.client import Response
from adacompute.client.response_parser import count_characters, replace_surrogates
from adacompute.errors import RequestInvalid, shorten
from adacompute.records import Sample, quick_dataclass
from adacompute.serve.request_parser import ChatRequest

__all__ = ["AnswerReader", "Reading", "Shape", "read_sample", "read_sample_blocking", "select_candidates"]

Shape = Literal["text", "json", "maybe_json", "sections"]
Form = Literal["text", "json", "sections", "calls"]

# Characters of a text that is read in the event loop: a hostile one takes up to 1 µs a character, an ordinary
# one a fourth of it, while asking another process takes half a millisecond
_MAX_INLINE = 2_000
_THREAD_COUNT = 2  # that wait for the other process
_PATTERN_TEXT = 20_000  # characters of a text that a client's own pattern is applied to, from its end
# characters of the texts that it is tried on: a pattern such as (\d+) EUR takes their square on the worst of
# texts, and is ordinary; what takes longer than that is refused
_PATTERN_TRIAL = 300
_PATTERNS_KEPT = 256  # clients' patterns whose speed is known
_PROMPT_END = 4_000  # characters of either end of a message that are searched for a wish for JSON
_FREE_TEXT_WORDS = 20  # a string of more words is a text, which no two samples word alike
_SHORT_VALUE = 200  # characters of a string that is an answer by itself
# fields whose string is an answer in words or numbers; any other may be a code, where every character counts
_ANSWER_NAMES = frozenset(("answer", "final_answer", "correct_answer", "solution", "result", "response"))
_DIFFERENT_SAMPLES = 3  # that differ only in words, after which more are useless
_ALL_DIFFERENT = 5  # samples of JSON or calls that differ in any way, after which more are useless

_pool: tuple[int, ThreadPoolExecutor] | None = None  # with the id of the process that made it
_pattern_verdicts: OrderedDict[str, str] = OrderedDict()


async def read_sample(
    response: Response, task: Task, *, question: str | None = None, loose: bool = False
) -> Sample:
    """The response as a sample, with its answer to the question; one that takes too long to read abstains.

    `loose`: where it doesn't answer the question, any answer that it states counts.
    """
    read = partial(read_sample_blocking, response, task, question=question, loose=loose)
    if _is_cheap(response.text, task):
        return read()
    return await asyncio.get_running_loop().run_in_executor(_get_executor(), read)


def read_sample_blocking(
    response: Response, task: Task, *, question: str | None = None, loose: bool = False
) -> Sample:
    """As `read_sample`, for a thread that may block."""
    text, finished = replace_surrogates(response.text), response.finished is not False
    return _build_sample(response, _extract(text, task, finished=finished, question=question, loose=loose))


def _extract(text: str, task: Task, *, finished: bool, question: str | None, loose: bool) -> str | None:
    extract = extract_answer if _is_cheap(text, task) else extract_in_sandbox
    answer = extract(text, task, finished=finished, question=question)
    if answer is None and loose and question is not None and not abstains(text):
        return extract(text, task, finished=finished)
    return answer


def _build_sample(response: Response, answer: str | None) -> Sample:
    """The response as a pool stores it, with its answer; None: it has none."""
    if answer is None:  # stored explicitly, so that a pool doesn't read the text again
        return response.to_sample(extra={"answer": None})
    return response.to_sample(answer=answer)


def _is_cheap(text: str, task: Task) -> bool:
    custom = not isinstance(task.extract, str) or task.extract.startswith("regex:")
    return len(text) <= _MAX_INLINE and not custom  # an operator's own pattern may take forever on any text


def _get_executor() -> ThreadPoolExecutor:
    """A thread pool of its own, so that slow texts don't block the event loop's default one."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(_THREAD_COUNT, thread_name_prefix="adacompute-reading"))
    return _pool[1]


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One response as it was read."""

    sample: Sample
    form: Form = "text"
    text: str = ""  # of the text or the section that has the answer
    tools: tuple[str, ...] = ()  # names of the tools that it calls, sorted
    is_broken: bool = False  # whether its JSON, or its call of a tool, can't be read
    free_text: str = ""  # the field or argument that holds a text, if one does
    left_out: tuple[str, ...] = ()  # fields of free text that don't count


class AnswerReader:
    """Reads the samples of one request, in their order."""

    def __init__(
        self, request: ChatRequest, task: Task, *, loose: bool = False, finds_json: bool = True
    ) -> None:
        options = request.options
        self._loose = loose  # whether a text that doesn't answer the question is read for any answer
        self._finds_json = finds_json  # whether JSON that is asked for in words is read as such
        self.readings: list[Reading] = []
        self._request = request
        self._pattern = options.extract.removeprefix("regex:") if _has_own_pattern(request) else ""
        self._operator_task = self._task = task
        if options.extract not in ("", "none") and not self._pattern:
            self._task = Task(extract=options.extract, percent=task.percent)
        self._shape: Shape | None = None
        self._section_question: str | None = None

    @property
    def shape(self) -> Shape:
        """The shape that the replies are read in; found out only where there is a vote."""
        if self._shape is None:
            shape = choose_shape(self._request, self._operator_task)
            self._shape = "text" if shape == "maybe_json" and not self._finds_json else shape
        return self._shape

    @property
    def question(self) -> str:
        """The question that a text answers."""
        if self.shape != "sections":
            return self._request.prompt
        if self._section_question is None:
            self._section_question = _read_section_prompt(self._request)
        return self._section_question

    @property
    def _selection(self) -> FieldSelection:
        return FieldSelection(fields=self._request.options.fields, exclude=self._request.options.exclude)

    @property
    def left_out(self) -> list[str]:
        """Fields of free text that didn't count."""
        return list(dict.fromkeys(name for reading in self.readings for name in reading.left_out))

    async def prepare(self) -> None:
        """RequestInvalid if the request's own pattern is none, or takes too long."""
        if not self._pattern:
            return
        verdict = _pattern_verdicts.get(self._pattern)
        if verdict is None:
            verdict = await asyncio.get_running_loop().run_in_executor(
                _get_executor(), check_pattern, self._pattern, _PATTERN_TRIAL
            )
            _pattern_verdicts[self._pattern] = verdict
            while len(_pattern_verdicts) > _PATTERNS_KEPT:
                _pattern_verdicts.popitem(last=False)
        if verdict:
            shown = shorten(self._request.options.extract, 60)
            raise RequestInvalid(
                f"extract {shown!r} {verdict}; give another pattern, or json:FIELD", param="extract"
            )

    async def read(self, response: Response) -> Sample:
        """The next response as a sample, with its answer; one that takes too long to read abstains."""
        if self._is_cheap(response):
            reading = self.read_blocking(response)
        else:
            reading = await asyncio.get_running_loop().run_in_executor(
                _get_executor(), self.read_blocking, response
            )
        self.readings.append(reading)
        return reading.sample

    def read_blocking(self, response: Response) -> Reading:
        """A response as it is read; for a thread that may block. Remembers nothing."""
        message, shape = response.message, self.shape
        if message.get("tool_calls") or message.get("function_call"):
            return self._read_calls(response)
        text, finished = replace_surrogates(response.text), response.finished is not False
        if message.get("refusal") and not message.get("content"):
            return Reading(sample=_build_sample(response, None), text=text)
        if shape in ("json", "maybe_json"):
            reading = self._read_json(response, text)
            if reading is not None:
                return reading
        if shape == "sections":
            return self._read_sections(response, text)
        return Reading(sample=_build_sample(response, self._read_text(text, finished=finished)), text=text)

    def get_text(self, response: Response) -> Response:
        """The first response with the text that its answer is looked for in."""
        first = self.readings[0]
        return replace(response, text=first.text) if first.form == "sections" else response

    def check_first_sample(self) -> str | None:
        """Why there is no vote, judging by the first sample; "": there is one; None: its text decides."""
        first = self.readings[0]
        if first.form == "text":
            return self._check_first_text(first)
        if first.free_text:
            place = "calls a tool with" if first.form == "calls" else "is JSON with"
            remedy = "exclude it, or name the fields that count"
            return f"the first sample {place} free text ({first.free_text[:60]}); {remedy}"
        return None if first.form == "sections" and first.text else ""

    def check_different(self) -> str:
        """Why more samples are useless: those so far agree on nothing, and differ only in words."""
        if len(self.readings) < _DIFFERENT_SAMPLES:
            return ""
        chosen = [
            reading.sample.answer
            for reading, is_candidate in zip(self.readings, select_candidates(self.readings), strict=True)
            if is_candidate and reading.form != "text" and reading.sample.answer is not None
        ]
        if len(chosen) < _DIFFERENT_SAMPLES or len(set(chosen)) < len(chosen):
            return ""
        what = "calls of tools" if self.readings[0].form == "calls" else "JSON"
        if len({_PHRASE.sub('""', answer) for answer in chosen}) == 1:
            return (
                f"the first {len(chosen)} samples are {what} that all differ in free text; exclude it to vote"
            )
        if len(chosen) >= _ALL_DIFFERENT and all(answer[:1] in "{[" for answer in chosen):
            return f"the first {len(chosen)} samples are {what} that all differ; name the fields that count"
        return ""

    def _check_first_text(self, first: Reading) -> str | None:
        if not self._request.options.extract:
            return None
        if first.sample.answer is not None or first.sample.finished is False:
            return ""
        return "the first sample has no answer as the request has it read"

    def _is_cheap(self, response: Response) -> bool:
        calls = response.message.get("tool_calls") or response.message.get("function_call")
        if calls:
            return count_characters(calls) <= _MAX_INLINE and len(str(calls)) <= _MAX_INLINE
        return not self._pattern and _is_cheap(response.text, self._task)

    def _read_text(self, text: str, *, finished: bool) -> str | None:
        if self._pattern:
            return search_in_sandbox(self._pattern, text[-_PATTERN_TEXT:])
        return _extract(text, self._task, finished=finished, question=self.question, loose=self._loose)

    def _read_calls(self, response: Response) -> Reading:
        calls = read_tool_calls(response.message)
        text = _format_stored_calls(response)
        if not calls:
            sample = replace(_build_sample(response, None), text=text)
            return Reading(sample=sample, form="calls", is_broken=True)
        tools = tuple(sorted(call.name for call in calls))
        schemas = _find_tool_schemas(self._request.body, set(tools))
        answer = format_calls(calls, schemas, self._selection)
        return Reading(
            sample=replace(_build_sample(response, answer), text=text),
            form="calls",
            tools=tools,
            is_broken=answer is None,
            free_text="" if answer is None else self._find_argument_text(calls, schemas),
        )

    def _find_argument_text(self, calls: Sequence[ToolCall], schemas: Mapping[str, Any]) -> str:
        for call in calls:
            value = call.arguments
            if isinstance(value, dict):
                value = select_arguments(call, schemas.get(call.name), self._selection)
            if path := find_free_text(value, _FREE_TEXT_WORDS):
                return f"{call.name}.{path}"
        return ""

    def _read_json(self, response: Response, text: str) -> Reading | None:
        """A reply that is JSON; None if it may be a text and is one."""
        value = read_json_value(strip_thinking(text))
        if value is None and self.shape == "maybe_json":
            return None
        schema = find_reply_schema(self._request.body)
        try:
            value, left_out = select_fields(apply_schema(value, schema), self._selection, schema)
            answer = _format_value(value, self._selection.fields)
        except ValueError:
            return Reading(sample=_build_sample(response, None), form="json", is_broken=True)
        is_missing = value is None or (value == {} and bool(self._selection.fields))
        return Reading(
            sample=_build_sample(response, None if is_missing else answer),
            form="json",
            is_broken=value is None,
            free_text=find_free_text(value, _FREE_TEXT_WORDS),
            left_out=tuple(left_out),
        )

    def _read_sections(self, response: Response, text: str) -> Reading:
        """A reply in sections: the one that isn't reasoning, or all of them as an object."""
        sections = dict(split_sections(strip_thinking(text)))
        sections, left_out = select_fields(sections, self._selection)
        if len(sections) == 1:
            (content,) = sections.values()
            answer = self._read_text(content, finished=response.finished is not False)
            return Reading(sample=_build_sample(response, answer), form="sections", text=content)
        value = {name: _parse_section(content) for name, content in sections.items()}
        answer = _format_value(value) if value else None
        return Reading(
            sample=_build_sample(response, answer),
            form="sections",
            free_text=find_free_text(value, _FREE_TEXT_WORDS),
            left_out=tuple(left_out),
        )


def select_candidates(readings: Sequence[Reading]) -> list[bool]:
    """Which samples are voted on: those that call the tools that most of them call, or else the texts.

    A tie goes to what came first. What can't be read is not voted on: where another can be, it is no reply.
    """
    if not readings:
        return []
    callers = [reading.form for reading in readings].count("calls")
    others = len(readings) - callers
    if callers < others or (callers == others and readings[0].form != "calls"):
        return [reading.form != "calls" and not reading.is_broken for reading in readings]
    counts = Counter(
        reading.tools for reading in readings if reading.form == "calls" and not reading.is_broken
    )
    tools = counts.most_common(1)[0][0] if counts else ()
    return [not reading.is_broken and reading.tools == tools for reading in readings]


_PHRASE = re.compile(
    r'(?<=[:\[,])"(?=[^"\\]*\s)(?:[^"\\]|\\.)*"'
)  # a string of several words in canonical JSON
_SECTION = re.compile(r"\[\[ ## (\w{1,60}) ## \]\]")
_LAST_SECTION = "completed"
_SECTIONS_END = f"[[ ## {_LAST_SECTION} ## ]]"
_SECTION_REQUEST = "Respond with the corresponding output fields"
_JSON_FORMAT = re.compile(
    r"json[_ ]?schema|```json|json object in the following|(?:reply|respond) [a-z ]{1,20}json"
)
_JSON_WISH = re.compile(
    r"json[_ ]?schema|```json|\bjson (?:object|code ?block|response|format|instance|output|list|array)\b"
    r"|\b(?:in|as|valid|only|returns?|respond with|output|produce) (?:an? |valid |the |raw |strict )?json\b"
)
_MAX_WISHES = 8  # mentions of JSON in a text that are looked at
_WISH_REACH = 30  # characters before and after one


def choose_shape(request: ChatRequest, task: Task) -> Shape:
    """The shape that a request's replies are read in."""
    options = request.options
    if options.extract not in ("", "auto"):
        return "text"
    instructions = _read_instructions(request)
    in_sections = any(_SECTIONS_END in text for text in instructions)
    if options.fields:
        return "sections" if in_sections else "json"
    operator = task.extract.partition(":")[0] if isinstance(task.extract, str) else "function"
    if operator in ("json", "regex", "function") and not options.extract:
        return "text"
    if request.json:
        return "json"
    if in_sections:
        return "sections"
    return "maybe_json" if any(map(_asks_for_json, instructions)) else "text"


def _asks_for_json(text: str) -> bool:
    """Whether a text asks for JSON in words, at either of its ends; not where it asks to write some.

    >>> _asks_for_json("Reply in JSON."), _asks_for_json("Write an example of JSON output for me.")
    (True, False)
    """
    ends = (text if len(text) <= 2 * _PROMPT_END else f"{text[:_PROMPT_END]}\n{text[-_PROMPT_END:]}").lower()
    at = ends.find("json")  # found first: the pattern alone would take milliseconds
    if at < 0:
        return False
    wish = _JSON_FORMAT if classify_purpose(text) == "text" else _JSON_WISH
    places: list[int] = []
    while at >= 0 and len(places) < _MAX_WISHES:
        places.append(at)
        at = ends.find("json", at + 4)
    return any(wish.search(ends[max(0, at - _WISH_REACH) : at + _WISH_REACH]) for at in places)


def _has_own_pattern(request: ChatRequest) -> bool:
    return request.options.extract.startswith("regex:")


def _read_instructions(request: ChatRequest) -> list[str]:
    """The texts that say in which form to reply: the first message, and the last."""
    messages = request.body.get("messages") or []
    texts = []
    for message in messages[:1] + messages[1:][-1:]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            parts = [part.get("text") for part in content[-20:] if isinstance(part, dict)]
            texts += [text for text in parts if isinstance(text, str)]
    return texts


def _read_section_prompt(request: ChatRequest) -> str:
    """The question in a prompt of sections: what the last one holds before the request for an answer."""
    asked = request.prompt.partition(_SECTION_REQUEST)[0]
    contents = [content for _, content in split_sections(asked)]
    return contents[-1] if contents else asked


def split_sections(text: str) -> list[tuple[str, str]]:
    """The sections of a text by their names, in their order; what comes after the last marker isn't one.

    >>> split_sections("[[ ## answer ## ]]\\n42\\n\\n[[ ## completed ## ]]")
    [('answer', '42')]
    """
    marks = list(_SECTION.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    sections = []
    for mark, end in zip(marks, ends, strict=False):  # without a mark there is only the end
        if mark[1] == _LAST_SECTION:
            break
        sections.append((mark[1], text[mark.end() : end].strip()))
    return sections


def _parse_section(content: str) -> Any:  # noqa: ANN401 - JSON data
    """A section's value: a number, a list or an object if it is one, else its text."""
    try:
        value = parse_json(content)
    except ValueError:
        return trim(content) or ""
    return value


def _format_value(value: Any, fields: Sequence[str] = ()) -> str:  # noqa: ANN401 - JSON data
    """A value as an answer: one string that is an answer in words as a text, all else as canonical JSON.

    `fields` are those that the request says count.
    """
    if isinstance(value, dict) and len(value) == 1:
        ((name, only),) = value.items()
        if isinstance(only, str) and not isinstance(only, RawNumber) and _is_in_words(name, only, fields):
            text = trim(replace_surrogates(only))
            if text:
                return text
    return bound_answer(write_canonical(value))


def _is_in_words(name: str, text: str, fields: Sequence[str]) -> bool:
    """Whether a string is compared as an answer in words or numbers, not character by character.

    Its name says that it is an answer, or the request names it and it has no digits: what has some may be a
    version, a date or a code.

    >>> _is_in_words("answer", "1/2", ()), _is_in_words("city", "Rome", ())
    (True, False)
    >>> _is_in_words("city", "Rome", ["city"]), _is_in_words("zip", "02134", ["zip"])
    (True, False)
    """
    if len(text) > _SHORT_VALUE:
        return False
    if convert_to_snake_case(name.rpartition(".")[2]) in _ANSWER_NAMES:
        return True
    return name in fields and not any(map(str.isdigit, text))


def _format_stored_calls(response: Response) -> str:
    """What a pool stores as the text of a response that calls tools."""
    message = response.message
    calls = message.get("tool_calls") or [{"function": message.get("function_call")}]
    try:
        text = orjson.dumps(calls).decode()
    except TypeError:  # half surrogates, or numbers beyond 64 bits
        text = str(calls)
    return replace_surrogates(text)


def _find_tool_schemas(body: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """The schemas of the arguments of some tools, by their names."""
    tools = body.get("tools") or body.get("functions") or []
    schemas = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str) and name in names:
            schemas[name] = function.get("parameters")
    return schemas


def find_reply_schema(body: Mapping[str, Any]) -> object:
    """The schema that a reply is to follow; None if the request has none."""
    form = body.get("response_format")
    if not isinstance(form, dict):
        return body.get("guided_json")
    named = form.get("json_schema")
    return named.get("schema") if isinstance(named, dict) else form.get("schema")
