"""Reads problems from any source, validates them and assigns ids (`read_problems`); reads tables of samples.

Refuses rows of a known dataset that would be misread without its preset.
"""

import datetime
import decimal
import json
import math
import re
import uuid
from collections.abc import Collection, Container, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from adacompute.answers import extract_answer
from adacompute.answers.normalise import trim
from adacompute.errors import ProblemsInvalid, format_value, suggest_name
from adacompute.pool import bundled, bundled_names, open_pool
from adacompute.pool.formats import Entry, FileEntries
from adacompute.pool.importers import ProblemGroups, locate_flaws
from adacompute.pool.rows import Flaw, describe_type, encode_text, problem_to_line, read_problem, read_sample
from adacompute.pool.sqlite import DEPTH_LIMIT, Json, is_sqlite, to_canonical_json
from adacompute.pool.tables import build_problem
from adacompute.problems.dataset_loaders import (
    DEFAULT_SIZE,
    HubName,
    find_usual_preset,
    generate_rows,
    read_hub_rows,
)
from adacompute.problems.presets import COLUMNS, PRESETS, Columns, Preset, find_preset
from adacompute.problems.row_fields import (
    LETTERS,
    Choices,
    RowFields,
    has_choices,
    is_blank,
    list_names,
    read_choices,
    read_gold,
    read_id,
    read_level,
    read_question,
    read_right_choice,
    read_subject,
    shuffle_order,
)
from adacompute.problems.row_readers import (
    STDIN,
    RowSource,
    read_csv_rows,
    read_folder_rows,
    read_json_rows,
    read_parquet_rows,
    translate_os_errors,
)
from adacompute.problems.template import Template
from adacompute.records import Problem

SOURCE_KINDS = (
    ".jsonl, .json, .csv, .tsv (each also as .gz), .parquet, a folder of Parquet, a pool, hf:NAME or gym:NAME"
)
_HUB_PREFIX, _GYM_PREFIX = "hf:", "gym:"
_PIPE_REMEDY = "a pipe is read as JSON lines, or one JSON list; for CSV give a file whose name ends with .csv"
_BUNDLED_TEMPLATES = {  # name of a recording in this package -> the template of its prompts
    "facts": "answer-line",
    "facts-qwen": "answer-line",
    "words": "boxed",
    "words-direct": "direct",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    """Problems, with a suitable prompt template and answer extractor."""

    name: str
    problems: tuple[Problem, ...]
    template: Template | None = None  # a prompt template that suits the problems; None if none is known
    extract: str | None = None  # extractor that suits the problems; None if none is known
    choices: bool = False  # True if these are multiple-choice problems, whose prompts must list the choices

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems)

    def check(self, template: Template) -> None:
        """Raises ProblemsInvalid if these problems have choices that the template doesn't show."""
        if self.choices and "choices" not in template.placeholders:
            raise ProblemsInvalid(
                f"{self.name}: these problems have choices, and template {template.name!r} doesn't show "
                "them; use --template choice, or put {choices} into it"
            )


def read_problems(
    source: str | Path,
    *,
    preset: str | None = None,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> ProblemSet:
    """Reads and validates the problems of a file, a pipe, a pool, a dataset (`hf:`) or a generator (`gym:`).

    `preset` is the name of a known dataset's format. `columns` maps fields to columns, such as {"question":
    "text"}. `limit` is the maximum number of problems. `seed` determines the order of shuffled choices, and
    which problems are generated.
    """
    text = str(source)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ProblemsInvalid(f"limit {limit!r} can't be used; give a whole number of at least 1, or none")
    chosen_preset = _look_up_preset(preset)
    if split is not None and not text.startswith(_HUB_PREFIX):
        raise ProblemsInvalid(
            f"{text}: split {split!r} is for hf: names; give hf:{text} for a folder, or none"
        )
    with translate_os_errors(text):
        if _is_pool(text):
            if columns:
                raise ProblemsInvalid(f"{text}: is a pool, whose fields have their names; leave columns out")
            return _read_pool(text, chosen_preset, limit)
        if chosen_preset is None and text.startswith(_HUB_PREFIX):
            usual = find_usual_preset(HubName.of(text.removeprefix(_HUB_PREFIX), split=split).name)
            chosen_preset = usual[0] if usual else None
        rows = _open_rows(text, split=split, limit=limit, seed=seed)
        schema = RowSchema(preset=chosen_preset, columns=columns or {}, seed=seed)
        problems = build_problems(rows, schema, limit=limit)
    # if the user named columns but no preset, we don't guess whether the problems have choices
    columns_only = chosen_preset is None and columns
    has_choices = not columns_only and any(map(_has_lettered_choices, problems))
    template = chosen_preset.template if chosen_preset else "boxed" if text.startswith(_GYM_PREFIX) else None
    return _make_problem_set(
        _name_source(text), tuple(problems), template, chosen_preset, choices=has_choices
    )


def _make_problem_set(
    name: str, problems: tuple[Problem, ...], template: str | None, preset: Preset | None, *, choices: bool
) -> ProblemSet:
    if choices and any(problem.extra.get("choices") == [] for problem in problems):
        template, preset = "mixed", None
    template = template or ("choice" if choices else None)
    prompt = Template.named(template) if template else None
    extract = preset.extract if preset else prompt.extract if prompt else None
    return ProblemSet(name=name, problems=problems, template=prompt, extract=extract, choices=choices)


def _has_lettered_choices(problem: Problem) -> bool:
    """Whether a problem has 2 to 10 choices, and its gold answer, if known, is a choice's letter."""
    choices, gold = problem.extra.get("choices"), problem.gold
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        return False
    return gold is None or gold in tuple(LETTERS[: len(choices)])


def _look_up_preset(name: str | None) -> Preset | None:
    if name is None:
        return None
    if name.lower() in PRESETS:
        return PRESETS[name.lower()]
    hint = suggest_name(name.lower(), PRESETS)
    raise ProblemsInvalid(f"there is no preset {format_value(name)}; {hint}there are {', '.join(PRESETS)}")


def _is_pool(text: str) -> bool:
    path = Path(text)
    if text.startswith((_HUB_PREFIX, _GYM_PREFIX)) or text == STDIN:
        return False
    if not path.exists():
        return text in bundled_names()
    return path.is_file() and is_sqlite(path)


def _read_pool(text: str, preset: Preset | None, limit: int | None) -> ProblemSet:
    is_bundled = not Path(text).exists()
    with bundled(text) if is_bundled else open_pool(text) as pool:
        problems = tuple(islice(pool.problems(), limit))
    if not problems:
        raise ProblemsInvalid(f"{text}: is a pool without problems; add some first")
    template = preset.template if preset else _BUNDLED_TEMPLATES.get(text) if is_bundled else None
    return _make_problem_set(
        _name_source(text), problems, template, preset, choices=any(map(_has_lettered_choices, problems))
    )


def _open_rows(text: str, *, split: str | None, limit: int | None, seed: int) -> RowSource:
    if text.startswith(_GYM_PREFIX):
        rows = generate_rows(text.removeprefix(_GYM_PREFIX), size=limit or DEFAULT_SIZE, seed=seed)
        return RowSource(place=text, rows=rows)
    if text.startswith(_HUB_PREFIX):
        dataset = HubName.of(text.removeprefix(_HUB_PREFIX), split=split)
        if not Path(dataset.name).is_file():
            return RowSource(place=f"hf:{dataset.name}", rows=read_hub_rows(dataset))
        text = dataset.name
    return _open_file_rows(text)


def _open_file_rows(text: str) -> RowSource:
    """Opens a file in the format that its name shows. CSV values are untyped: all of them are text."""
    path = Path(text)
    if text != STDIN and not path.exists():
        raise ProblemsInvalid(
            f"{text}: there is no such file; {_suggest_source(text)}check the path, or give {SOURCE_KINDS}"
        )
    # `is_fifo` alone isn't enough: /dev/stdin isn't a pipe if standard input comes from a file
    if text == STDIN or text.startswith("/dev/") or path.is_fifo():
        return RowSource(place=text, rows=read_json_rows(text, remedy=_PIPE_REMEDY))
    if path.is_dir():
        return RowSource(place=text, rows=read_folder_rows(path))
    match path.name.lower().removesuffix(".gz").rpartition(".")[2]:
        case "jsonl" | "ndjson" | "json":
            return RowSource(place=text, rows=read_json_rows(path))
        case "csv":
            return RowSource(place=text, rows=read_csv_rows(path), typed=False)
        case "tsv":
            return RowSource(place=text, rows=read_csv_rows(path, delimiter="\t"), typed=False)
        case "parquet":
            return RowSource(place=text, rows=read_parquet_rows(path))
    raise ProblemsInvalid(f"{text}: can't tell what kind of file this is; give {SOURCE_KINDS}")


def _suggest_source(text: str) -> str:
    """Suggests a source: the hf: name of a known dataset, or a bundled recording with a similar name."""
    name = text.partition("@")[0].partition(":")[0]
    if find_preset(name) is not None:
        return f"did you mean hf:{text}? "
    if (preset := PRESETS.get(name.lower())) and preset.hub:
        return f"did you mean hf:{next(iter(preset.hub))}? "
    return suggest_name(text, bundled_names())


def _name_source(text: str) -> str:
    if text == STDIN:
        return "stdin"
    if text.startswith(_GYM_PREFIX):
        return text.removeprefix(_GYM_PREFIX)
    return text.removeprefix(_HUB_PREFIX) if text.startswith(_HUB_PREFIX) else Path(text).name


# number of rows after the limit that are searched for a column that the user named
_ROWS_BEYOND_LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSchema:
    """Says how to read rows: the preset, and the columns that the user named."""

    preset: Preset | None = None
    columns: Mapping[str, str]  # field -> the column that the user named
    seed: int = 0  # determines the order in which choices are shuffled
    usual: Columns | None = None  # field -> names of columns that may contain it; COLUMNS if None

    def locate_fields(self) -> dict[str, tuple[str, ...]]:
        """Returns, for each field, the names of columns that may contain it, in order of preference."""
        columns: dict[str, tuple[str, ...]] = {
            **(self.usual or COLUMNS),
            **(self.preset.columns if self.preset else {}),
        }
        for field, column in self.columns.items():
            self._check_field(field, columns)
            if not column:
                raise ProblemsInvalid(f"columns give {column!r} for {field}; give the name of a column")
            columns[field] = (column,)
        return columns

    def _check_field(self, field: str, known: Collection[str]) -> None:
        if field == "choices" and field not in known:
            raise ProblemsInvalid("columns name the field 'choices'; give preset multiple-choice with it")
        if field not in known:
            hint = suggest_name(field, known)
            raise ProblemsInvalid(
                f"columns name the field {field!r}; {hint}the fields are {', '.join(known)}"
            )
        preset = self.preset
        if preset and preset.choices == "shuffled" and field in ("gold", "choices"):
            raise ProblemsInvalid(
                f"columns name {field}, and preset {preset.name} takes the right choice from "
                f"{preset.columns['choices'][0]!r}; leave it out, or give preset multiple-choice"
            )


class IdMaker:
    """Makes ids from questions, so that they don't depend on row numbers; a repeated id gets -2, -3, ..."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._times: dict[str, int] = {}  # id without a suffix -> how often it was used

    def make_id(self, question: str, choices: Choices | None) -> str:
        """Makes the id of a question with its choices."""
        content = question if choices is None else to_canonical_json([question, choices.texts])
        base = "q-" + blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        number = self._times.get(base, 0) + 1
        while (key := base if number == 1 else f"{base}-{number}") in self._taken:
            number += 1
        self._times[base] = number
        return key


def build_problems(source: RowSource, schema: RowSchema, *, limit: int | None = None) -> list[Problem]:
    """Builds the first `limit` problems of a source. Error messages name the source, row and field."""
    columns = schema.locate_fields()
    names: set[str] = set()
    problems: list[Problem] = []
    places: dict[str, tuple[str, Problem]] = {}  # id -> (place of its first row, problem)
    ids = IdMaker(places)
    for place, value in source.rows:
        try:
            names |= _check_object(value).keys()
            problem = (
                build_problem(read_problem(value))
                if schema.preset is None and not schema.columns and _is_pool_line(value)
                else _build_problem(
                    RowFields(_convert_row(value), columns), schema, typed=source.typed, ids=ids
                )
            )
            _check_storable(problem)
        except Flaw as exc:
            raise ProblemsInvalid(f"{source.place}: {place}: {exc}") from exc
        earlier = places.get(problem.id)
        if earlier is None:
            places[problem.id] = (place, problem)
            problems.append(problem)
        # a pool file has one line per problem and model, and so may repeat a problem
        elif not _is_pool_line(value) or earlier[1] != problem:
            raise ProblemsInvalid(
                f"{source.place}: {place}: has the id {format_value(problem.id)} of {earlier[0]}; "
                "give each problem its own, or none at all"
            )
        if len(problems) == limit:
            break
    _check_columns(source, schema, names, limited=len(problems) == limit)
    if not problems:
        raise ProblemsInvalid(f"{source.place}: holds no problem; give at least one, with its 'question'")
    if schema.preset and schema.preset.choices and not any(each.extra.get("choices") for each in problems):
        raise ProblemsInvalid(
            f"{source.place}: no problem has choices; leave preset {schema.preset.name} out, or give them in "
            "a list 'choices', or in columns A, B, C, D"
        )
    return problems


def _check_columns(source: RowSource, schema: RowSchema, names: set[str], *, limited: bool) -> None:
    """Raises ProblemsInvalid if no row, even after the limit, has a column that the user named."""
    present = {name.casefold() for name in names}
    missing = {field: name for field, name in schema.columns.items() if name.casefold() not in present}
    if not names or not missing:
        return
    if limited:
        for value in _read_beyond_limit(source):
            present |= {name.casefold() for name in value}
            if all(name.casefold() in present for name in missing.values()):
                return
    for field, column in missing.items():
        if column.casefold() not in present:
            raise ProblemsInvalid(
                f"{source.place}: has no column {column!r} for {field}; there is {list_names(names)}"
            )


def _read_beyond_limit(source: RowSource) -> Iterator[Mapping[str, Any]]:
    """Yields rows after the limit; stops without an error at the first row that can't be read."""
    with suppress(ProblemsInvalid):
        yield from (row.value for row in islice(source.rows, _ROWS_BEYOND_LIMIT) if type(row.value) is dict)


def _check_object(value: Json) -> dict[str, Any]:
    if type(value) is not dict:
        raise Flaw(f"is {describe_type(value)}; give one object a problem")
    return value


def _is_pool_line(row: Mapping[str, Any]) -> bool:
    """Whether a row is a line of a pool file, which has its own format."""
    return isinstance(row.get("samples"), list) and type(row.get("id")) is type(row.get("question")) is str


def _convert_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a row to JSON data, leaving out the columns `samples` and `failures`."""
    recorded = ("samples", "failures")  # large columns of a pool file that aren't part of a problem
    return {name: convert_to_json(value, name) for name, value in row.items() if name not in recorded}


def _build_problem(fields: RowFields, schema: RowSchema, *, typed: bool, ids: IdMaker) -> Problem:
    preset = schema.preset
    refuse_known_formats(fields, preset=preset, named_fields=schema.columns)
    question = read_question(fields)
    # in a dataset with "named" choices, some problems may have no choices
    may_lack = preset is not None and preset.choices == "named"
    choices = None
    if preset and preset.choices and (has_choices(fields) or not may_lack):
        choices = read_choices(fields, choice_format=preset.choices)
    key = read_id(fields) or ids.make_id(question, choices)
    if preset is None or preset.choices is None or choices is None:
        gold = read_gold(fields, preset)
    elif preset.choices == "shuffled":
        choices, gold = _shuffle_choices(choices, seed=schema.seed, key=key)
    else:
        gold = read_right_choice(choices, fields, choice_format=preset.choices)
    subject = read_subject(fields, by_user="subject" in schema.columns)
    level = read_level(fields, by_user="level" in schema.columns, typed=typed)
    extra = fields.collect_rest() if preset is None or preset.keeps_rest else {}
    if may_lack:
        extra["choices"] = []  # an empty list lets a prompt show that there are no choices
    if choices is not None:
        extra["choices"] = choices.texts
        question = question.rstrip()  # drop spaces at its end, because the choices follow below it
    return Problem(id=key, question=question, gold=gold, subject=subject, level=level, extra=extra)


def _shuffle_choices(choices: Choices, *, seed: int, key: str) -> tuple[Choices, str]:
    """Shuffles choices of which the first is right; also returns the letter that the right one gets."""
    order = shuffle_order(len(choices.texts), seed=seed, key=key)
    return Choices([choices.texts[i] for i in order]), LETTERS[order.index(0)]


def _check_storable(problem: Problem) -> None:
    """Raises Flaw if a pool couldn't store the problem."""
    for text in read_problem(problem_to_line(problem)):
        if type(text) is str:
            encode_text(text)


_SAMPLE_FIELDS = ("text", "answer", "correct", "tokens", "logprob", "entropy", "finished")
_ANSWER_LENGTH = 200  # maximum length of an answer, in characters; a longer one is read as a whole response
_SAMPLE_COLUMNS: Columns = {
    **COLUMNS,
    **{name: (name,) for name in ("model", *_SAMPLE_FIELDS)},
    "id": (),  # this column isn't guessed, because one called "id" often numbers the rows
    "text": ("text", "response", "output", "completion"),
    "answer": (),  # this column isn't guessed, because one called "answer" usually has gold answers
}
_SAMPLE_REMEDY = (
    "give e.g. --columns question=prompt,text=output,gold=label for "
    '{"prompt": "2 + 2?", "output": "It is 4.", "label": "4"}, or for a list of outputs'
)


def read_samples(path: str | Path, *, columns: Mapping[str, str]) -> FileEntries:
    """Reads the samples in a table (.jsonl, .json, .csv, .tsv, .parquet), for `import_file`.

    `columns` maps fields to columns; the fields are id, question, text (of a response), answer, gold,
    subject, level, model, correct, tokens, logprob, entropy and finished. An answer with further words, such
    as "It is 4.", is read as the text of a response. A row has one sample, or lists with one item per sample.
    Rows belong to one problem if they have the same id or, if `columns` names no id, the same question.
    """
    with translate_os_errors(path):
        source = _open_file_rows(str(path))
    gold = tuple(name for name in COLUMNS["gold"] if name != columns.get("answer"))
    schema = RowSchema(columns=columns, usual={**_SAMPLE_COLUMNS, "gold": gold})
    entries = _group_samples(source, schema, schema.locate_fields())
    return FileEntries(path=Path(path), unit="problem", files=(str(path),), entries=entries)


def _group_samples(source: RowSource, schema: RowSchema, columns: Columns) -> Generator[Entry, None, None]:
    names: set[str] = set()
    groups, ids, ids_by_question = ProblemGroups(Path(source.place)), IdMaker(()), dict[str, str]()
    for place, value in source.rows:
        with locate_flaws(f"{source.place}: {place}"):
            names |= _check_object(value).keys()
            fields = RowFields({name: convert_to_json(cell, name) for name, cell in value.items()}, columns)
            question = read_question(fields)
            key = read_id(fields) or ids_by_question.get(question) or ids.make_id(question, None)
            ids_by_question.setdefault(question, key)
            head = {
                "gold": read_gold(fields, None),
                "subject": read_subject(fields, by_user="subject" in schema.columns),
                "level": read_level(fields, by_user="level" in schema.columns, typed=source.typed),
                "model": fields.take("model"),
            }
            known = {name: value for name, value in head.items() if value is not None}
            group = groups.get_group({"id": key, "question": question, **known})
            for sample in _read_row_samples(fields, question, typed=source.typed):
                read_sample(group.next, sample)
                groups.count_bytes(sample)
                group.samples[group.next] = sample
                group.next += 1
    _check_columns(source, schema, names, limited=False)
    yield from groups.entries()


def _read_row_samples(fields: RowFields, question: str, *, typed: bool) -> list[dict[str, Any]]:
    """Reads the samples of a row: one per item of its lists, or one sample if it has no lists."""
    if all(fields.choose_column(name) not in fields.row for name in ("text", "answer")):
        raise Flaw(f"has no response; {_SAMPLE_REMEDY}; there is {list_names(fields.row)}")
    cells = {name: cell for name in _SAMPLE_FIELDS if (cell := fields.take(name)) is not None}
    if not typed:
        cells = {name: _parse_cell(name, cell) for name, cell in cells.items()}
    lists = {name: cell for name, cell in cells.items() if isinstance(cell, list)}
    lengths = {len(cell) for cell in lists.values()}
    if len(lengths) > 1:
        sizes = ", ".join(f"{len(cell)} in '{fields.choose_column(name)}'" for name, cell in lists.items())
        raise Flaw(f"has lists of different lengths, {sizes}; give one value for each sample")
    samples = [
        {name: cell[i] if name in lists else cell for name, cell in cells.items()}
        for i in range(lengths.pop() if lists else 1)
    ]
    for sample in samples:
        if type(sample.get("text")) in (int, float):
            sample["text"] = str(sample["text"])
        answer = sample.get("answer")
        if sample.get("text") is None and isinstance(answer, str) and _is_response(answer, question):
            sample["text"] = sample.pop("answer")
    return [sample if sample.get("text") is not None else {"answer": None, **sample} for sample in samples]


def _parse_cell(name: str, cell: str) -> Json:
    """Converts a CSV cell that contains a list, number or boolean (such as TRUE); leaves answers as text."""
    if name == "answer" or (name == "text" and not cell.startswith('["')):
        return cell
    with suppress(ValueError, RecursionError):
        return json.loads(cell if name == "text" else cell.lower())
    return cell


def _is_response(answer: str, question: str) -> bool:
    """Whether the text in the answer's column is a whole response, such as "It is 4."."""
    is_long = len(answer) > _ANSWER_LENGTH or "\n" in answer.strip()
    return is_long or extract_answer(answer, question=question) not in (None, trim(answer))


_GSM8K_ENDING = re.compile(r"\n####[ \t]*\S[^\n]*\s*\Z")  # matches the last line of a GSM8K solution
_CHOICE_LISTS = PRESETS["mmlu"].columns["choices"]
_RIGHT_COLUMN, _WRONG_COLUMN, *_ = PRESETS["gpqa"].columns["choices"]


def refuse_known_formats(fields: RowFields, *, preset: Preset | None, named_fields: Container[str]) -> None:
    """Raises Flaw if a row looks like that of a known dataset, and would be misread with `preset`.

    Checks nothing if the user named the gold answer's column. Checks at most the gold answer if the user
    named only the question's column.
    """
    if preset is None and "gold" not in named_fields:
        _refuse_solution_as_gold(fields)
    if "question" in named_fields or "gold" in named_fields:
        return
    if preset is None:
        _refuse_unread_choices(fields)
    if preset is None or not (preset.gold or preset.choices):
        _refuse_unread_solution(fields)


def _refuse_solution_as_gold(fields: RowFields) -> None:
    gold, column = fields.peek("gold"), fields.choose_column("gold")
    if type(gold) is str and _GSM8K_ENDING.search(gold):
        raise Flaw(
            f"'{column}' ends with {format_value(gold.rstrip().rpartition(chr(10))[2])} as in GSM8K; "
            f"read it with --preset gsm8k, or with --columns gold={column} to take it as it is"
        )


def _refuse_unread_choices(fields: RowFields) -> None:
    if fields.find_column(_RIGHT_COLUMN) is not None and fields.find_column(_WRONG_COLUMN) is not None:
        _raise_has_choices(fields, f"'{_RIGHT_COLUMN}'", "gpqa")
    for column in map(fields.find_column, _CHOICE_LISTS):
        if column is not None and _is_list(fields.row[column]):
            _raise_has_choices(fields, f"'{column}'", "mmlu or multiple-choice")
    letters = [letter for letter in LETTERS if not is_blank(fields.row.get(letter))]
    gold = str(fields.peek("gold")).strip("(). ").upper()
    # a gold answer that is a number can mean a choice only if there are at least four columns A, B, ...
    numbers = map(str, range(len(letters) if len(letters) > 3 else 0))
    if letters[:2] == ["A", "B"] and (gold in letters or gold in numbers):
        _raise_has_choices(fields, f"A to {letters[-1]}", "mmlu")


def _raise_has_choices(fields: RowFields, where: str, presets: str) -> NoReturn:
    raise Flaw(
        f"has choices in {where}, which would not be asked; read it with --preset {presets}, "
        f"or with --columns question={fields.choose_column('question')} to take it as it is"
    )


def _is_list(value: Json) -> bool:
    if isinstance(value, dict):
        value = value.get("text")
    if isinstance(value, str):  # a cell of CSV, which has no lists
        return value.strip()[:1] == "[" and value.strip()[-1:] == "]"
    return isinstance(value, list) and len(value) > 1


def _refuse_unread_solution(fields: RowFields) -> None:
    column = fields.find_column("solution")
    solution = fields.row[column] if column else None
    if type(solution) is str and "\\boxed" in solution and is_blank(fields.peek("gold")):
        raise Flaw(
            f"has no answer but in '{column}', as in MATH; read it with --preset math, "
            f"or with --columns question={fields.choose_column('question')} to take it as it is"
        )


_TEXT_TYPES = decimal.Decimal | uuid.UUID | datetime.timedelta


def convert_to_json(value: Any, where: str, depth: int = 0) -> Json:  # noqa: ANN401 - whatever a library gives
    """Converts a value to plain JSON data: a date becomes ISO text, NaN becomes null; bytes are refused."""
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise Flaw(f"'{where}' is {value}; give a finite number")
        return None if math.isnan(value) else float(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _convert_container(value, where, depth)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Enum):
        return convert_to_json(value.value, where, depth)
    if isinstance(value, str | _TEXT_TYPES):
        return str(value)
    if callable(to_list := getattr(value, "tolist", None)):  # a numpy scalar or array
        return convert_to_json(to_list(), where, depth + 1)
    kind = "bytes (an image, say)" if isinstance(value, bytes | bytearray) else type(value).__name__
    raise Flaw(f"'{where}' holds {kind}, which JSON can't; leave that column out of the file")


def _convert_container(value: Any, where: str, depth: int) -> Json:  # noqa: ANN401
    if depth >= DEPTH_LIMIT:
        raise Flaw(f"'{where}' is nested deeper than {DEPTH_LIMIT} levels; give flatter data")
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int, float, bool):
                raise Flaw(f"'{where}' has the key {format_value(key)}; give strings as keys")
        return {str(key): convert_to_json(v, f"{where}.{key}", depth + 1) for key, v in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    return [convert_to_json(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
