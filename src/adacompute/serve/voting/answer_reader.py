"""Reads the samples of one request as answers: texts, JSON, sections of a text, or tool calls.

The request determines how its replies are read: it may name an extractor or fields, ask for JSON, or use
DSPy's prompts with sections. Otherwise a reply is a text, read as the operator has configured. Tool calls are
always recognised.

If most samples call tools, only samples with the most common set of tools are voted on. Otherwise, only
samples without tool calls are voted on. All other samples count as having no answer.
"""

import asyncio
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import compress, islice
from typing import Any, Literal

import orjson
from msgspec import Struct, structs

from adacompute.answers import Task
from adacompute.answers.extract import (
    abstains,
    check_pattern,
    read_in_sandbox,
    read_replies,
    search_answer,
    strip_thinking,
)
from adacompute.answers.normalise import trim
from adacompute.answers.question import classify_purpose
from adacompute.answers.structured import (
    FieldSelection,
    RawNumber,
    apply_schema,
    bound_answer,
    convert_to_snake_case,
    find_free_text,
    format_calls,
    list_leaves,
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
from adacompute.records import Sample
from adacompute.serve.messages.request_parser import ChatRequest

Shape = Literal["text", "json", "maybe_json", "sections"]
Form = Literal["text", "json", "sections", "calls"]

# Maximum length of a text that is read in the event loop, in characters. A hostile text takes up to 1 µs per
# character. Reading in another process takes at least half a millisecond.
_MAX_INLINE = 2_000
_MAX_TOGETHER = 4_000  # maximum total length of texts read together in the event loop, in characters
_THREAD_COUNT = 2  # number of threads for slow texts; each waits for another process, which does the reading
_PATTERN_TEXT = 20_000  # a client's own pattern is only searched for in this number of last characters
# A client's pattern is tested on texts with this number of characters, and refused if it is too slow.
# Quadratic time is accepted, because even an ordinary pattern such as (\d+) EUR takes it on the worst texts.
_PATTERN_TRIAL = 300
# number of characters at each end of a message that are searched for a request to reply in JSON
_PROMPT_END = 4_000
# a field with more words than this is free text: two samples would hardly ever use the same words
_FREE_TEXT_WORDS = 20
# maximum length, in characters, of a string that is compared by meaning; see `_is_in_words`
_SHORT_VALUE = 200
# Names of fields whose strings are compared by meaning: "1/2" and "0.5" are the same answer. Strings in other
# fields may be codes, and are compared character by character.
_ANSWER_NAMES = frozenset(("answer", "final_answer", "correct_answer", "solution", "result", "response"))
# Each new text is read together with the first texts of its request, at most this many. Only the answers in
# these first texts may change then.
_COMPARED_TEXTS = 8
_MIN_COMPARED = 8  # number of samples needed to know whether a field has the same value in several samples
_FREE_SHARE = 0.1  # a field is free text if at most this share of samples has the value of an earlier sample
# number of samples needed to know that a field's value never differs between the samples of a request
_MIN_CONSTANT = 24
# a field's counts are halved once they cover more samples than this, so that recent samples count more
_COMPARISONS_KEPT = 64
# number of requests without a vote after which the counts of a route (kind of request) are forgotten
_SKIPPED = 100
_ROUTES_KEPT, _MAX_FIELDS, _MAX_LEAVES = 1_000, 50, 500
# on a new route (kind of request), sampling stops after this number of samples if all of them differ
_NEW_ROUTE = 3

_pool: tuple[int, ThreadPoolExecutor] | None = None  # id of the process that created the pool, and the pool


_UNREAD = Sample()  # placeholder for a text that hasn't been read yet


def _build_sample(response: Response, answer: str | None) -> Sample:
    """Makes a sample from a response and its answer, which is None if there is no answer."""
    if answer is None:  # recorded in `extra`, so that a pool (recorded samples) extracts no answer itself
        return response.to_sample(extra={"answer": None})
    return response.to_sample(answer=answer)


def _get_executor() -> ThreadPoolExecutor:
    """Returns a thread pool for slow texts, so that they don't block the event loop's default pool."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(_THREAD_COUNT, thread_name_prefix="adacompute-reading"))
    return _pool[1]


@lru_cache(maxsize=256)
def _check_own_pattern(pattern: str) -> str:
    """Returns what is wrong with a client's pattern, or "" if nothing is."""
    return check_pattern(pattern, _PATTERN_TRIAL)


class FieldMemory:
    """Learns which JSON fields and tool arguments have equal values in several samples of a request.

    A field with a different value in every sample is free text, or a number such as the model's confidence.
    It isn't compared, because then no two samples would agree. Fields are learned per route: all requests
    with the same model and field names. This takes 8 samples, without each request's first one. After 100
    requests of a route with a single sample, its fields are forgotten and learned again.
    """

    def __init__(self) -> None:
        # route -> {field: (a, b)}. a: number of samples, without the first one of each request. b: number of
        # samples with the same value as an earlier sample of their request.
        self._routes: OrderedDict[str, dict[str, tuple[float, float]]] = OrderedDict()
        self._skipped: Counter[str] = Counter()

    def is_new(self, route: str) -> bool:
        """Checks whether too few samples of a route were seen to know which of its fields are free text."""
        return not any(compared >= _MIN_COMPARED for compared, _ in self._routes.get(route, {}).values())

    def find_free(self, route: str) -> frozenset[str]:
        """Returns the free-text fields: two samples hardly ever agree on them, so they aren't voted on."""
        return frozenset(
            name
            for name, (compared, repeated) in self._routes.get(route, {}).items()
            if compared >= _MIN_COMPARED and repeated <= _FREE_SHARE * compared
        )

    def never_differ(self, route: str, names: Collection[str]) -> bool:
        """Checks whether these fields never differed between samples, so that there is nothing to vote on."""
        counts = [self._routes.get(route, {}).get(name, (0.0, 0.0)) for name in names]
        return all(repeated == compared >= _MIN_CONSTANT for compared, repeated in counts)

    def observe(self, route: str, samples: Sequence[Mapping[str, str]]) -> None:
        """Learns from the field values of one request's samples."""
        if len(samples) < 2:
            self._skipped[route] += route in self._routes
            if self._skipped[route] >= _SKIPPED:
                self._forget(route)
            return
        counts = self._routes.setdefault(route, {})
        self._routes.move_to_end(route)
        for name in list(dict.fromkeys(name for fields in samples for name in fields))[:_MAX_FIELDS]:
            values = [fields.get(name) for fields in samples]
            compared, repeated = counts.get(name, (0.0, 0.0))
            scale = 0.5 if compared > _COMPARISONS_KEPT else 1.0
            counts[name] = (
                scale * compared + len(values) - 1,
                scale * repeated + len(values) - len(set(values)),
            )
        while len(self._routes) > _ROUTES_KEPT:
            self._forget(next(iter(self._routes)))

    def _forget(self, route: str) -> None:
        self._routes.pop(route, None)
        self._skipped.pop(route, None)


class Reading(Struct, frozen=True, kw_only=True):
    """One response after reading: the sample, and how its answer was found."""

    sample: Sample = _UNREAD
    form: Form = "text"
    text: str = ""  # the text or section that contains the answer
    tools: tuple[str, ...] = ()  # names of the tools called, sorted
    is_broken: bool = False  # whether the JSON or the tool call is invalid
    route: str = ""  # key in `FieldMemory` for requests of this kind
    fields: Mapping[
        str, str
    ] = {}  # path of a field in JSON, sections or tool calls -> its values as JSON text
    left_out: tuple[str, ...] = ()  # free-text fields that aren't compared


class AnswerReader:
    """Finds the answer in each sample of one request, in a form that can be compared.

    Texts are read together, because one text may help to find the answer in another.
    """

    def __init__(
        self,
        request: ChatRequest,
        task: Task,
        *,
        loose: bool = False,
        finds_json: bool = True,
        memory: FieldMemory | None = None,
    ) -> None:
        options = request.options
        self._loose = loose  # whether a text without an answer is read again as if there were no question
        # whether replies are read as JSON if the prompt asks for JSON in words, without a `response_format`
        self._finds_json = finds_json
        self.readings: list[Reading] = []
        self._responses: list[Response] = []
        self._request = request
        has_pattern = options.extract.startswith("regex:")
        self._pattern = options.extract.removeprefix("regex:") if has_pattern else ""
        self._operator_task = self._task = task
        if options.extract not in ("", "none") and not self._pattern:
            self._task = Task(extract=options.extract, percent=task.percent)
        extract = self._task.extract
        # whether the operator's own pattern or function reads texts: it may be slow even on short ones
        self._is_custom = not isinstance(extract, str) or extract.startswith("regex:")
        self._memory = FieldMemory() if memory is None else memory
        # route (kind of request) -> its free-text fields, which aren't compared
        self._free: dict[str, frozenset[str]] = {}
        # routes (kinds of requests) of which `FieldMemory` had seen too few samples before this request
        self._new_routes: set[str] = set()

    @cached_property
    def shape(self) -> Shape:
        """The kind of reply that the request asks for; computed on first use, because only votes need it."""
        shape = choose_shape(self._request, self._operator_task)
        return "text" if shape == "maybe_json" and not self._finds_json else shape

    @cached_property
    def question(self) -> str:
        """The question that the replies answer."""
        is_in_sections = self.shape == "sections"
        return _read_section_prompt(self._request) if is_in_sections else self._request.prompt

    @property
    def left_out(self) -> list[str]:
        """The free-text fields that weren't compared."""
        return list(dict.fromkeys(name for reading in self.readings for name in reading.left_out))

    async def prepare(self) -> None:
        """Checks the request's own pattern; raises RequestInvalid if it is invalid or too slow."""
        if not self._pattern:
            return
        loop = asyncio.get_running_loop()
        if verdict := await loop.run_in_executor(_get_executor(), _check_own_pattern, self._pattern):
            shown = shorten(self._request.options.extract, 60)
            raise RequestInvalid(
                f"extract {shown!r} {verdict}; give another pattern, or json:FIELD", param="extract"
            )

    async def read(self, responses: Sequence[Response]) -> list[Sample]:
        """Reads new responses, and returns all samples so far; texts too slow to read have no answer."""
        texts = [reading.text for reading in self.readings[:_COMPARED_TEXTS]]
        texts += [response.text for response in responses]
        size = sum(map(len, texts))
        if size <= _MAX_TOGETHER and all(map(self._is_cheap, responses)):
            return self.read_blocking(responses)
        return await asyncio.get_running_loop().run_in_executor(
            _get_executor(), self.read_blocking, responses
        )

    def read_blocking(self, responses: Sequence[Response]) -> list[Sample]:
        """Like `read`, but blocks the calling thread; in the event loop, only use it for short texts."""
        for response in responses:
            self._responses.append(response)
            self.readings.append(self._read_alone(response))
        for place, reading in enumerate(self.readings):
            counted = reading.fields.keys() - reading.left_out
            # a field of this sample was compared, but a later sample has shown that the field is free text
            if not counted.isdisjoint(self._free.get(reading.route, ())):
                self.readings[place] = self._read_alone(self._responses[place])
        places = [place for place, reading in enumerate(self.readings) if reading.text]
        new = [place for place in places if place >= len(self.readings) - len(responses)]
        if new:
            is_compared = self._task.extract == "auto" and not self._pattern
            self._read_texts(sorted({*(places[:_COMPARED_TEXTS] if is_compared else ()), *new}))
        return [reading.sample for reading in self.readings]

    def _read_alone(self, response: Response) -> Reading:
        """Reads a response without looking at others. Leaves plain texts unread, for `_read_texts`."""
        message, shape = response.message, self.shape
        if message.get("tool_calls") or message.get("function_call"):
            return self._read_calls(response)
        text = replace_surrogates(response.text)
        if message.get("refusal") and not message.get("content"):
            return Reading(sample=_build_sample(response, None))
        if shape in ("json", "maybe_json"):
            reading = self._read_json(response, text)
            if reading is not None:
                return reading
        if shape == "sections":
            return self._read_sections(response, text)
        return Reading(text=text) if text else Reading(sample=_build_sample(response, None))

    def _read_texts(self, places: Sequence[int]) -> None:
        """Reads the texts of the samples with these indices together, and stores their answers."""
        texts = [self.readings[place].text for place in places]
        ends = [self._responses[place].finished is not False for place in places]
        answers = self._find_answers(texts, ends, self.question)
        for place, text, end, answer in zip(places, texts, ends, answers, strict=True):
            if answer is None and self._loose and not self._pattern and not abstains(text):
                (answer,) = self._find_answers([text], [end], None)
            before = self.readings[place].sample
            if before is _UNREAD or answer != before.answer:
                sample = _build_sample(self._responses[place], answer)
                self.readings[place] = structs.replace(self.readings[place], sample=sample)

    def _find_answers(
        self, texts: Sequence[str], ends: Sequence[bool], question: str | None
    ) -> list[str | None]:
        if self._pattern:
            return [search_answer(self._pattern, text[-_PATTERN_TEXT:]) for text in texts]
        is_cheap = sum(map(len, texts)) <= _MAX_TOGETHER and not self._is_custom
        read = read_replies if is_cheap else read_in_sandbox
        return [reading.answer for reading in read(texts, question, self._task, finished=ends)]

    def teach(self) -> None:
        """Passes the field values of this request's samples to the `FieldMemory`, for later requests."""
        if not self._free:  # no reply is JSON with fields, so there is nothing to learn
            return
        readings = [r for r in compress(self.readings, select_candidates(self.readings)) if r.fields]
        if readings:
            route = readings[0].route
            self._memory.observe(route, [reading.fields for reading in readings if reading.route == route])

    def get_text(self, response: Response) -> Response:
        """Returns the response, reduced to the text that contains its answer."""
        first = self.readings[0]
        return replace(response, text=first.text) if first.form == "sections" else response

    def check_first_sample(self) -> str | None:
        """Returns why the first sample rules out a vote; "" if it doesn't; None if only its text can tell."""
        first = self.readings[0]
        if first.form == "text":
            return self._check_first_text(first)
        kept = first.fields.keys() - self._free.get(first.route, frozenset())
        if first.fields and len(kept) < len(first.fields) and self._memory.never_differ(first.route, kept):
            place = "calls a tool with" if first.form == "calls" else "is JSON with"
            free = ", ".join(name for name in first.fields if name not in kept)
            return f"the first sample {place} free text ({free[:60]}), and nothing else differs"
        return None if first.form == "sections" and first.text else ""

    def check_different(self) -> str:
        """On a new route, returns a reason to stop sampling if all samples so far differ; otherwise ""."""
        if not self._new_routes:  # the usual case: replies are plain text, not JSON
            return ""
        chosen = [
            reading
            for reading in compress(self.readings, select_candidates(self.readings))
            if reading.fields and reading.sample.answer is not None
        ]
        if len(chosen) < _NEW_ROUTE or chosen[0].route not in self._new_routes:
            return ""
        if len({reading.sample.answer for reading in chosen}) < len(chosen):
            return ""
        what = "calls of tools" if chosen[0].form == "calls" else "JSON"
        return f"the first {len(chosen)} samples are {what} that all differ; name the fields that count"

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
        return not self._pattern and not self._is_custom and len(response.text) <= _MAX_INLINE

    def _note_fields(self, route: str, value: Any) -> dict[str, str]:  # noqa: ANN401 - JSON data
        """Returns the fields of a JSON value (path -> values); stores in `_free` which are free text."""
        fields: dict[str, str] = {}
        if route not in self._free and self._memory.is_new(route):
            self._new_routes.add(route)
        free = set(self._free.get(route) or self._memory.find_free(route))
        for path, leaf in islice(list_leaves(value), _MAX_LEAVES):
            fields[path] = f"{fields.get(path, '')},{write_canonical(leaf)}"
            if find_free_text(leaf, _FREE_TEXT_WORDS):
                free.add(path)
        self._free[route] = frozenset(free)
        return fields

    def _leave_out(self, route: str, fields: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the free-text fields to leave out of the comparison; none if all fields are free text."""
        left_out = tuple(name for name in fields if name in self._free[route])
        return left_out if len(left_out) < len(fields) else ()

    def _select(self, left_out: Sequence[str] = ()) -> FieldSelection:
        """Returns which fields of a reply are compared: those that the request selects, except `left_out`."""
        options = self._request.options
        return FieldSelection(fields=options.fields, exclude=(*options.exclude, *left_out))

    def _name_route(self, form: Form, names: Iterable[str]) -> str:
        return "\n".join([str(self._request.body.get("model"))[:100], form, *sorted(names)])[:1_000]

    def _read_calls(self, response: Response) -> Reading:
        calls = read_tool_calls(response.message)
        text = _format_stored_calls(response)
        if not calls:
            sample = replace(_build_sample(response, None), text=text)
            return Reading(sample=sample, form="calls", is_broken=True)
        tools = tuple(sorted(call.name for call in calls))
        schemas = _find_tool_schemas(self._request.body, set(tools))
        route, selection = self._name_route("calls", tools), self._select()
        fields: dict[str, str] = {}
        left_out: tuple[str, ...] = ()
        answer = format_calls(calls, schemas, selection)
        if answer is not None:
            arguments = [
                {call.name: select_arguments(call, schemas.get(call.name), selection)} for call in calls
            ]
            fields = self._note_fields(route, arguments)
            left_out = self._leave_out(route, fields)
            answer = format_calls(calls, schemas, self._select(left_out)) if left_out else answer
        return Reading(
            sample=replace(_build_sample(response, answer), text=text),
            form="calls",
            tools=tools,
            is_broken=answer is None,
            route=route,
            fields=fields,
            left_out=left_out,
        )

    def _read_json(self, response: Response, text: str) -> Reading | None:
        """Reads a reply as JSON; returns None if it isn't JSON and only the prompt's words ask for JSON."""
        value = read_json_value(strip_thinking(text))
        if value is None and self.shape == "maybe_json":
            return None
        schema = find_reply_schema(self._request.body)
        try:
            value = apply_schema(value, schema)
            return self._read_fields(response, value, "json", schema)
        except ValueError:
            return Reading(sample=_build_sample(response, None), form="json", is_broken=True)

    def _read_fields(
        self,
        response: Response,
        value: Any,  # noqa: ANN401 - JSON data
        form: Form,
        schema: object = None,
    ) -> Reading:
        """Reads the fields of an object; raises ValueError if they have no canonical form."""
        selection = self._select()
        selected, named = select_fields(value, selection, schema)
        names = (schema.get("properties") if isinstance(schema, dict) else None) or value
        route = self._name_route(form, names if isinstance(names, dict) else ())
        fields = self._note_fields(route, selected)
        left_out = self._leave_out(route, fields)
        if left_out:
            selected, _ = select_fields(value, self._select((*named, *left_out)), schema)
        answer = _format_value(selected, selection.fields)
        is_missing = value is None or (selected == {} and bool(selection.fields))
        return Reading(
            sample=_build_sample(response, None if is_missing else answer),
            form=form,
            is_broken=value is None,
            route=route,
            fields=fields,
            left_out=(*named, *left_out),
        )

    def _read_sections(self, response: Response, text: str) -> Reading:
        """Reads a reply in sections: a single selected section as a text, several as an object's fields."""
        sections = dict(split_sections(strip_thinking(text)))
        selected, _ = select_fields(sections, self._select())
        if len(selected) == 1:
            (content,) = selected.values()
            if content:
                return Reading(form="sections", text=content)
        if len(selected) < 2:
            return Reading(sample=_build_sample(response, None), form="sections")
        value = {name: _parse_section(content) for name, content in sections.items()}
        return self._read_fields(response, value, "sections")


def select_candidates(readings: Sequence[Reading]) -> list[bool]:
    """Returns, for each sample, whether it is voted on; False if its JSON or tool call is invalid.

    If most samples call tools, those with the most common set of tools are voted on. Otherwise, those without
    tool calls are voted on. If half of the samples call tools, the first sample's kind counts as most.
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
_MAX_WISHES = 8  # maximum number of mentions of JSON that are checked in a text
_WISH_REACH = 30  # number of characters checked before and after each mention of JSON


def choose_shape(request: ChatRequest, task: Task) -> Shape:
    """Chooses how a request's replies are read: as text, as JSON, as JSON or text, or as sections."""
    options = request.options
    if options.extract not in ("", "auto"):
        return "text"
    instructions = _read_instructions(request)
    in_sections = _SECTIONS_END in "\n".join(instructions)
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
    """Checks whether a text asks for a reply in JSON, rather than for a text about JSON.

    >>> _asks_for_json("Reply in JSON."), _asks_for_json("Write an example of JSON output for me.")
    (True, False)
    """
    ends = (text if len(text) <= 2 * _PROMPT_END else f"{text[:_PROMPT_END]}\n{text[-_PROMPT_END:]}").lower()
    at = ends.find("json")  # a plain search comes first, because the pattern would take milliseconds
    if at < 0:
        return False
    wish = _JSON_FORMAT if classify_purpose(text) == "text" else _JSON_WISH
    places: list[int] = []
    while at >= 0 and len(places) < _MAX_WISHES:
        places.append(at)
        at = ends.find("json", at + 4)
    return any(wish.search(ends[max(0, at - _WISH_REACH) : at + _WISH_REACH]) for at in places)


def _read_instructions(request: ChatRequest) -> list[str]:
    """Returns the texts that may ask for a format: the first and the last message."""
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
    """Returns the question in a prompt with sections: the last section before the request for an answer."""
    asked = request.prompt.partition(_SECTION_REQUEST)[0]
    contents = [content for _, content in split_sections(asked)]
    return contents[-1] if contents else asked


def split_sections(text: str) -> list[tuple[str, str]]:
    """Splits a text into pairs of a section's name and content; stops at the marker "completed".

    >>> split_sections("[[ ## answer ## ]]\\n42\\n\\n[[ ## completed ## ]]")
    [('answer', '42')]
    """
    marks = list(_SECTION.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    sections = []
    for mark, end in zip(marks, ends, strict=False):  # if there are no markers, `ends` is longer than `marks`
        if mark[1] == _LAST_SECTION:
            break
        sections.append((mark[1], text[mark.end() : end].strip()))
    return sections


def _parse_section(content: str) -> Any:  # noqa: ANN401 - JSON data
    """Parses a section as a number, list or object; returns its text if it is none of these."""
    try:
        return parse_json(content)
    except ValueError:
        return trim(content) or ""


def _format_value(value: Any, fields: Sequence[str] = ()) -> str:  # noqa: ANN401 - JSON data
    """Formats a JSON value as text for comparison. `fields` are the fields that the request names.

    An object whose only field is a string to compare by meaning (see `_is_in_words`) becomes that string.
    Every other value becomes canonical JSON.
    """
    if isinstance(value, dict) and len(value) == 1:
        ((name, only),) = value.items()
        if isinstance(only, str) and not isinstance(only, RawNumber) and _is_in_words(name, only, fields):
            text = trim(replace_surrogates(only))
            if text:
                return text
    return bound_answer(write_canonical(value))


def _is_in_words(name: str, text: str, fields: Sequence[str]) -> bool:
    """Checks whether a field's string is compared by meaning, rather than character by character.

    True for a short string if the field has a name such as "answer". Also True if the request names the field
    (`fields`) and the string has no digits: a string with digits may be a version, date or code.

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
    """Returns the text that a pool stores for a response with tool calls."""
    message = response.message
    calls = message.get("tool_calls") or [{"function": message.get("function_call")}]
    try:
        text = orjson.dumps(calls).decode()
    except TypeError:  # raised by unpaired surrogates, and by numbers beyond 64 bits
        text = str(calls)
    return replace_surrogates(text)


def _find_tool_schemas(body: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Returns a map from the names of these tools to the JSON schemas of their arguments."""
    tools = body.get("tools") or body.get("functions") or []
    schemas = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str) and name in names:
            schemas[name] = function.get("parameters")
    return schemas


def find_reply_schema(body: Mapping[str, Any]) -> object:
    """Returns the JSON schema that the request demands of a reply; None if there is none."""
    form = body.get("response_format")
    if not isinstance(form, dict):
        return body.get("guided_json")
    named = form.get("json_schema")
    return named.get("schema") if isinstance(named, dict) else form.get("schema")
