"""Extracts the answer from a response: a box, a tag, a phrase, a JSON field, a letter or the last number.

`extract_answer` tries several readers (functions that find one kind of answer), or only the reader that the
task names. Boxes, tags and phrases are found here, numbers and letters in marks.py.

Every scan takes time linear in the length of the text, because no pattern backtracks for long.
`read_in_sandbox` uses a helper process with a time limit, so that a hostile text can't block an event loop.
A thread wouldn't help: a regular expression holds the interpreter until it finishes.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

from adacompute.answers.equal import DEFAULT_TASK, Task, name_extractor, same_answer
from adacompute.answers.marks import (
    SHORT_REPLY,
    find_choice,
    find_hash,
    find_hash_answer,
    find_number,
    find_option,
    find_short_reply,
    find_stated_choice,
    find_value,
)
from adacompute.answers.normalise import trim
from adacompute.answers.prose import SILENT, ReadAnswer, ReplyText, read_prose
from adacompute.answers.question import (
    Options,
    Question,
    detect_languages,
    find_sentence_end,
    read_question,
    shorten_question,
    split_sentences,
)
from adacompute.answers.sandbox import HelperProcess, Message, Work, find_last_match, search_helper
from adacompute.answers.structured import read_json_field
from adacompute.errors import TaskError, format_value

_BOX_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,20}\{|\\(?!\\(?:boxed|fbox)).|[{}]", re.DOTALL)
_BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)\s{1,20}([^\s{}$\\]+)")


def find_box(text: str) -> str | None:
    r"""Returns the content of the last complete, non-empty `\boxed{...}` or `\fbox{...}`; `\boxed 5` gives 5.

    Takes time linear in the length of the text, even if many boxes are never closed.
    """
    at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    token = _BOX_TOKEN.match(text, at) if at >= 0 else None
    if token is not None:
        return token.group(1).rstrip(".,;:")
    if at < 0:
        return None
    last = _find_braced(text, at)  # the last box is usually complete; otherwise, search them all
    return _find_braced(text, 0) if last is None else last


def _find_braced(text: str, start: int) -> str | None:
    last_box = (-1, -1)
    # for each open brace: the index where its content begins if the brace opens a box, else -1
    open_braces: list[int] = []
    for match in _BOX_BRACE.finditer(text, start):
        mark = match.group()
        if mark == "}":
            begin = open_braces.pop() if open_braces else -1
            if begin > last_box[0] and not text[begin : match.start()].isspace() and begin < match.start():
                last_box = (begin, match.start())
        elif mark[-1] == "{" and mark != "\\{":
            open_braces.append(match.end() if len(mark) > 1 else -1)
    return text[slice(*last_box)] if last_box[0] >= 0 else None


_ANSWER_WORDS = ("answer", "ответ", "antwort", "réponse", "respuesta", "resposta", "risposta", "答案", "答え")
_ANSWER_LABEL = re.compile(
    rf"(?:\b(?:{'|'.join(_ANSWER_WORDS[:-2])})|答案|答え)"
    r"[ \t]{0,20}(?:\*\*|__|\*)?[ \t]{0,20}(?P<colon>[:：])",
    re.IGNORECASE,
)
_ANSWER_PHRASE = re.compile(
    r"(?:\banswer\s{1,20}(?:is|would\s{1,20}be)\b"
    r"|\b(?:respuesta|resposta|risposta|réponse|antwort)(?:\s\w{1,12})?\s(?:es|é|è|est|ist|lautet)\b"
    r"|答案(?:是|为|為)|答えは)[ \t]{0,20}(?P<colon>[:：])?[ \t]{0,20}",
    re.IGNORECASE,
)
_EMPTY_REST = re.compile(r"[\s*_]*$")
_LINE_START = re.compile(r"\s*(?:[-•>]\s+)?")
_NEXT_LINE_WORDS = 4  # a line below "Answer:" that has more words than this isn't read as the answer
# after "the answer is" without a colon, the next line is the answer only if it begins like this
_NEXT_LINE_START = re.compile(r"[$\d*]|\\[\[(]|[-−+]\d")
_DISPLAYS = (("$$", "$$"), ("\\[", "\\]"))
_DISPLAY_LENGTH = 2_000  # maximum length of a displayed formula ($$…$$) read as an answer, in characters


def strip_thinking(text: str) -> str:
    """Returns the text after the last `</think>`, or the whole text if nothing follows it."""
    at = text.rfind("</think>")
    if at < 0:
        return text
    reply = text[at + len("</think>") :]
    return reply if reply.strip() else text


def find_tag_answer(text: str) -> str | None:
    """Returns the content of the last <answer> tag, up to its end tag or the end of the text."""
    at = text.rfind("<answer>")
    if at < 0:
        return None
    return text[at + len("<answer>") :].partition("</answer>")[0]


def find_answer_line(text: str, *, finished: bool = True) -> str | None:
    """Returns the rest of the line after the last "Answer:"; the next line if the rest is empty."""
    return _find_stated(_ANSWER_LABEL, text, finished=finished)


def find_answer_phrase(text: str, *, finished: bool = True) -> str | None:
    """Returns the rest of the sentence after the last "the answer is"; the next line if the rest is empty."""
    return _find_stated(_ANSWER_PHRASE, text, finished=finished)


def _find_stated(pattern: re.Pattern[str], text: str, *, finished: bool) -> str | None:
    last = _find_last_label(pattern, text)
    if last is None:
        return None
    begin, stop = _find_span(text, last.end(), colon=last["colon"] is not None, finished=finished)
    if pattern is _ANSWER_PHRASE:
        stop = find_sentence_end(text, begin, stop)
    return _strip_half_marks(text[begin:stop].strip(), _read_line_before(text, last.end()))


def _find_last_label(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return [None, *pattern.finditer(text)][-1]


def find_answer_starts(text: str) -> Iterator[int]:
    """Yields where an answer may begin: after the last <answer>, "####", "Answer:" and "the answer is"."""
    for mark in ("<answer>", "####"):
        if (at := text.rfind(mark)) >= 0:
            yield at + len(mark)
    for pattern in (_ANSWER_LABEL, _ANSWER_PHRASE):
        if (last := _find_last_label(pattern, text)) is not None:
            yield last.end()


def _read_line_before(text: str, at: int) -> str:
    return text[max(text.rfind("\n", 0, at) + 1, at - 200) : at]


def _find_line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _find_span(text: str, start: int, *, colon: bool, finished: bool) -> tuple[int, int]:
    """Returns the span of an answer after a label: the rest of the line or, if empty, the next line."""
    stop = _find_line_end(text, start)
    if not _EMPTY_REST.match(text[start:stop]):
        return start, stop
    blank = _LINE_START.match(text, stop)
    begin = blank.end() if blank else stop
    if not colon and not _NEXT_LINE_START.match(text, begin):
        return start, stop
    for opening, closing in _DISPLAYS:
        if text.startswith(opening, begin):
            close = text.find(closing, begin + 2, begin + _DISPLAY_LENGTH)
            return (begin, close + 2) if close >= 0 else (start, stop)
    end = _find_line_end(text, begin)
    next_line = text[begin:end]
    is_long = len(next_line.split(None, _NEXT_LINE_WORDS)) > _NEXT_LINE_WORDS
    is_cut = end == len(text) and not finished
    return (start, stop) if is_long or is_cut or next_line.startswith(("```", "#")) else (begin, end)


def _strip_half_marks(answer: str, before: str) -> str:
    """Removes an emphasis mark (such as **) or opening quotation mark whose partner is outside the answer.

    If the emphasis begins in `before` and ends in the answer, the text after its end is also removed.
    """
    for mark in ("**", "__", "*"):
        if mark not in answer or (mark == "*" and ("**" in answer or "* " in before)):
            continue  # this asterisk begins a list item
        is_open = before.count(mark) % 2 == 1
        if is_open and answer.startswith(mark):
            answer, is_open = answer.removeprefix(mark).strip(), False
        if answer.count(mark) % 2 == 0:
            continue
        if is_open:
            answer = answer.partition(mark)[0].strip()
        else:
            answer = answer.removeprefix(mark) if answer.startswith(mark) else answer.removesuffix(mark)
    # drop an opening quotation mark whose closing mark isn't in the answer
    if answer.startswith(('"', "“")) and not _QUOTE_END.search(answer, 1):
        answer = answer[1:]
    return answer.strip()


_QUOTE_END = re.compile('["”]')


TEXT_LIMIT = 65_536  # characters; only the end of a longer text is read, which usually contains the answer

Reader = Callable[[str], str | None]
# pairs (reader, further readers), tried in order; the further readers search the passage that the reader
# found, because it may repeat the label: "Final Answer: The final answer is 5."
ReaderPlan = tuple[tuple[Reader, tuple[Reader, ...]], ...]

_PHRASE_READERS: tuple[Reader, ...] = (find_answer_line, find_answer_phrase)
_MARKED_PLAN: ReaderPlan = (
    (find_tag_answer, (find_box, *_PHRASE_READERS)),
    (find_box, ()),
    (find_hash_answer, _PHRASE_READERS),
)
_FINISHED_PLAN: ReaderPlan = (
    *_MARKED_PLAN,
    (_PHRASE_READERS[0], _PHRASE_READERS[1:]),
    (_PHRASE_READERS[1], ()),
    (find_short_reply, ()),
    (find_value, ()),
)
_STATED_PLAN: ReaderPlan = ((_PHRASE_READERS[0], _PHRASE_READERS[1:]), (_PHRASE_READERS[1], ()))
_CUT_OFF_PLAN: ReaderPlan = (
    *_MARKED_PLAN,
    (partial(find_answer_line, finished=False), _PHRASE_READERS[1:]),
    (partial(find_answer_phrase, finished=False), ()),
)

# matches the remains of an empty or unclosed box, which aren't an answer
_FRAGMENT = re.compile(r"\\boxed|\\fbox|^[\\()\[\]{}$\s]*$")

_READERS: dict[str, Reader] = {
    "boxed": lambda text: find_box(strip_thinking(text)),  # a box inside <think> is only a draft
    "phrase": find_answer_phrase,
    "line": find_answer_line,
    "hash": find_hash,
    "number": find_number,
    "choice": lambda text: find_choice(strip_thinking(text)),
}


def extract_answer(
    text: str, task: Task = DEFAULT_TASK, *, finished: bool = True, question: str | None = None
) -> str | None:
    r"""Returns the answer stated in a response, or None. Only the last 65,536 characters are read.

    `finished` and `question` matter only if the task's extractor is "auto". If the response was cut off
    (`finished=False`), short replies and last numbers are ignored. If the question is given, answers are also
    read from prose, and a response that says that it can't tell has no answer.

    >>> extract_answer(r"So we get \boxed{42}."), extract_answer("It has 3 or 4", finished=False)
    ('42', None)
    >>> extract_answer("The capital of Vietnam is Hanoi.", question="What is the capital of Vietnam?")
    'Hanoi'
    """
    if not isinstance(text, str):
        raise TaskError(f"{text!r} is not a text to extract from; give a string")
    if not isinstance(task.extract, str):
        return _extract_by_function(task.extract, text)
    text = text[-TEXT_LIMIT:]
    if task.extract == "auto":
        text = strip_thinking(text)
        if question:
            return read_replies([text], question, finished=[finished])[0].answer
        return _run_plan(_FINISHED_PLAN if finished else _CUT_OFF_PLAN, text)
    kind, _, argument = task.extract.partition(":")
    if kind == "json":
        answer = read_json_field(text, argument)
    elif kind == "regex":
        return search_answer(argument, text)
    else:
        answer = _READERS[kind](text)
    return _trim_optional(answer)


def _run_plan(plan: ReaderPlan, text: str) -> str | None:
    for reader, inner_readers in plan:
        passage = reader(text)
        if passage is None:
            continue
        for inner in inner_readers:
            answer = _trim_whole(inner(passage))
            if answer is not None:
                return answer
        answer = _trim_whole(passage)
        if answer is not None:
            return answer
    return None


_STATED_WORDS = 12  # maximum number of words in an answer after "the answer is"
# words after "the answer is" that show that no answer follows: "the answer is far from clear"
HEDGE = re.compile(
    r"(?:not|far|simple|complex|complicated|more|less|that|it|this|both|often|usually|somewhere|unclear|nuanced"
    r"|a (?:bit|little|matter|resounding|mix)|likely to|to \w+|in the|up to|always|never)\b",
    re.IGNORECASE,
)
DATA = re.compile(r"\s{0,99}(?:```|[{\[]\s{0,9}[\"{\[]|<(?!think|answer)\w)")
_DIGIT_OR_SIGN = re.compile(r"\d|\\(?:frac|sqrt|pi|infty)|π|∞")
_ENDING = 4_000  # how many characters at the end of a long response are searched for its last value


def read_answers(
    texts: Sequence[str],
    question: str | None = None,
    task: Task = DEFAULT_TASK,
    *,
    finished: Sequence[bool] | None = None,
) -> list[str | None]:
    """Returns the answers of several replies to one question, read together; None if a reply has none.

    Equal answers get the same spelling, even if the replies word them differently.

    >>> read_answers(["C'est Ankara.", "La capitale est Ankara.", "Izmir"], "Quelle est la capitale turque ?")
    ['Ankara', 'Ankara', 'Izmir']
    """
    return [reading.answer for reading in read_replies(texts, question, task, finished=finished)]


def read_replies(
    texts: Sequence[str],
    question: str | None = None,
    task: Task = DEFAULT_TASK,
    *,
    finished: Sequence[bool] | None = None,
) -> list[ReadAnswer]:
    """Reads answers like `read_answers`, and adds a confidence to each."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise TaskError(f"replies are {format_value(texts)}; give a list of strings")
    ends = list(finished) if finished is not None else [True] * len(texts)
    if len(ends) != len(texts):
        raise TaskError(f"{len(texts)} replies have {len(ends)} ends; give one for each")
    if not question or task.extract != "auto":
        return [
            ReadAnswer(extract_answer(text, task, finished=end, question=question))
            for text, end in zip(texts, ends, strict=True)
        ]
    replies = [strip_thinking(text[-TEXT_LIMIT:]) for text in texts]
    return _read_for_question(replies, _read_question_for(question, replies), ends)


def _read_question_for(prompt: str, replies: list[str]) -> Question:
    """Parses the prompt; also uses the English word lists if one of the first replies is in English."""
    question = read_question(prompt)
    if "en" in question.lexicon.languages:
        return question
    spoken = (detect_languages(reply[:100], least=2) for reply in set(replies[:_REPLIES_FOR_LANGUAGE]))
    return read_question(prompt, _ENGLISH) if _ENGLISH in spoken else question


_ENGLISH = frozenset(("en",))


def grade_answer(answer: str | None, gold: str, question: str, task: Task = DEFAULT_TASK) -> float:
    """Returns 1 if the answer equals the gold answer, as written or as `extract_answer` reads it; else 0.

    >>> grade_answer("No", "Nein", "Liegt Paris in Polen?"), grade_answer("7", "acht", "Wie viele Beine?")
    (1.0, 0.0)
    """
    if same_answer(answer, gold, task):
        return 1.0
    # a gold answer that is one word, such as "Nein", is also read like a reply, which gives "No"
    is_read = task.extract == "auto" and answer is not None and gold.isalpha()
    return float(is_read and same_answer(answer, extract_answer(gold, question=question), task))


def abstains(text: str, question: str = "") -> bool:
    """Whether a reply says that it can't or won't answer, and makes no guess.

    >>> abstains("I don't know."), abstains("I'm not sure, but I think it's Hanoi.")
    (True, False)
    """
    beginning = text[:SHORT_REPLY]
    return ReplyText(beginning, read_question(question, detect_languages(beginning))).abstains


_CHAT_LENGTH = 300  # how many characters at the beginning of a reply are searched for small talk
CHAT = re.compile(
    r"\b(?:hi|hello|hey|thanks|thank you|welcome|sure|sorry|of course|certainly|glad|happy to|goodbye|bye"
    r"|good (?:morning|night)|got it|no problem|how can i)\b|[!😀-🙏]",
    re.IGNORECASE,
)
_REPLIES_FOR_LANGUAGE = 4  # only this many replies are checked for being in English


def _read_for_question(replies: list[str], question: Question, finished: list[bool]) -> list[ReadAnswer]:
    """Reads replies. Takes boxed or tagged answers as they are; compares prose replies with each other."""
    readings: list[ReadAnswer] = [SILENT] * len(replies)
    prose: dict[int, str] = {}
    stated: dict[int, str] = {}
    for at, (text, end) in enumerate(zip(replies, finished, strict=True)):
        marked = _find_marked(text)
        if marked is not None:
            readings[at] = ReadAnswer(_choose_option(marked, question.options) or marked)
        elif (formula := _find_lone_formula(text, question)) is not None:
            readings[at] = ReadAnswer(formula)
        elif question.purpose == "text" or (not question.purpose and CHAT.search(text[:_CHAT_LENGTH])):
            continue
        elif (statement := _find_statement(text, finished=end)) is not None:
            if statement.isdecimal():
                readings[at] = ReadAnswer(statement)
            else:
                stated[at] = statement
        elif DATA.match(text) and not _is_fenced_answer(text):
            continue
        elif (solved := _read_solution(text, question, finished=end)) is not None:
            readings[at] = solved
        else:
            prose[at] = text
    if question.form == "choice":
        for at, text in (prose | stated).items():
            chosen = _choose_option(text, question.options) if at in stated else None
            is_whole = finished[at] or at in stated
            readings[at] = ReadAnswer(chosen or (_read_choice(replies[at], question) if is_whole else None))
        return readings
    texts = prose | stated
    if not texts:
        return readings
    ends = [finished[at] or at in stated for at in texts]
    for at, reading in zip(texts, read_prose([*texts.values()], question, ends), strict=True):
        answer = _trim_optional(reading.answer)
        is_value = _states_value(question) and not _CJK_COUNT.fullmatch(stated.get(at, ""))
        if at in stated and (answer is None or is_value):
            answer = None if ReplyText(stated[at], question).abstains else stated[at]
        readings[at] = ReadAnswer(answer, reading.sure)
    return readings


_CJK_COUNT = re.compile(r"[-−]?\d[\d.,/]*[\u3040-\u9fff]{1,9}")  # a number with a counter word: 42個です


def _find_lone_formula(text: str, question: Question) -> str | None:
    """Returns the reply if it is only a fraction or a formula, such as "5/6", "11 - 2i" or "18x^2"."""
    bare = text.strip().removesuffix(".").strip("$ ")
    if question.form not in ("number", "words") or not _LONE_FORMULA.fullmatch(bare):
        return None
    return bare if _OPERATION.search(bare) else None


_LONE_FORMULA = re.compile(r"(?=.{0,80}\d)(?:\\[A-Za-z]{1,8}|[\d\s.(){}^*/+−-]|[A-Za-z](?![A-Za-z])){1,80}")
_OPERATION = re.compile(r"\\[A-Za-z]|[\^*+]|^[-−]?[\d.]+\s?/\s?\d+$|^[-−]|[-−]\s?\d*[A-Za-z]$")


@lru_cache(maxsize=64)  # samples often have the same text
def _find_marked(text: str) -> str | None:
    """Returns the content of the last tag or box, or else the text after the last "####"; None if none."""
    if not any(mark in text for mark in ("<answer>", "\\boxed", "\\fbox", "####")):
        return None
    return _run_plan(_MARKED_PLAN, text)


@lru_cache(maxsize=64)
def _find_statement(text: str, *, finished: bool) -> str | None:
    """Returns the text after "Answer:" or "the answer is"; None if it is long or evasive."""
    if not any(map(text.lower().__contains__, (*_ANSWER_WORDS, "####"))):
        return None
    stated = _run_plan(_STATED_PLAN if finished else _CUT_OFF_PLAN, text)
    if stated is None or HEDGE.match(stated) or len(stated.split()) > _STATED_WORDS:
        return None
    return stated


def _states_value(question: Question) -> bool:
    """Whether the question asks for a value to be computed from numbers."""
    return question.purpose == "value" and bool(question.numbers) and question.form in ("number", "words")


def _is_fenced_answer(text: str) -> bool:
    """Whether the whole text is one short fenced block that doesn't contain code."""
    fenced = _FENCED.fullmatch(text.strip())
    return fenced is not None and not _CODE.search(fenced[1])


_FENCED = re.compile(r"```\w{0,20}\n?([^`]{1,400}?)\n?```")
_CODE = re.compile(r"[{};<>]|\b(?:def|import|print|return|function|const|var|select)\b|\w\(", re.IGNORECASE)


def _read_solution(text: str, question: Question, *, finished: bool) -> ReadAnswer | None:
    """Returns the final value of a solution with formulas; None if there is none."""
    if not _states_value(question):
        return None
    if not finished:
        return SILENT
    if not _FORMULA.search(text) or not _ends_in_value(text[-_ENDING:]) or ReplyText(text, question).abstains:
        return None
    value = _trim_whole(find_value(text))
    return ReadAnswer(value) if value is not None else None


_FORMULA = re.compile(r"\\[A-Za-z(\[]|\$[^$\n]{1,200}\$")


def _choose_option(answer: str, options: Options) -> str | None:
    """Returns the letter of the option that an answer names, by letter or by words; None if it names none."""
    if not options:
        return None
    letter = find_choice(answer)
    return letter if letter in [own for own, _ in options] else find_option(answer, options)


def _read_choice(text: str, question: Question) -> str | None:
    """Returns the letter of the option that a reply chooses; None if it chooses none."""
    stated = find_stated_choice(text)
    if stated is None and len(text) <= SHORT_REPLY:
        sentences = split_sentences(text.strip())
        first = sentences[0] if sentences else ""
        stated = _find_leading_letter(first) or find_option(first, question.options)
        if stated is None and ReplyText(text, question).abstains:
            return None
    stated = stated or find_choice(text)
    return stated if stated in [letter for letter, _ in question.options] else None


_LEADING_LETTER = re.compile(r"[\s*_`\"(\[]{0,6}([A-J])(?:[)\].:,*]|\s?[-–—]\s|$)")


def _find_leading_letter(sentence: str) -> str | None:
    letter = _LEADING_LETTER.match(sentence)
    return letter[1] if letter is not None else None


def _ends_in_value(ending: str) -> bool:
    """Whether the last line contains a value."""
    line = ending.rstrip().rpartition("\n")[2][-600:]
    if line.strip() in ("\\]", "$$", "```"):  # the last line only closes a displayed formula
        line = ending[-200:]
    return _DIGIT_OR_SIGN.search(line) is not None


def _trim_whole(passage: str | None) -> str | None:
    """Trims an answer; None if nothing is left, or only the remains of an empty or unclosed box."""
    answer = _trim_optional(passage)
    return None if answer is None or _FRAGMENT.search(answer) else answer


def _trim_optional(passage: str | None) -> str | None:
    return trim(passage) if passage is not None else None


def _extract_by_function(function: Callable[[str], str | None], text: str) -> str | None:
    name = name_extractor(function)
    try:
        answer = function(text)
    except Exception as exc:  # a user's function may raise anything
        raise TaskError(f"the extractor {name} failed with {exc!r} on the text {text[:60]!r}") from exc
    if answer is not None and not isinstance(answer, str):
        raise TaskError(
            f"the extractor {name} gave {answer!r} on the text {text[:60]!r}; return a string or None"
        )
    return _trim_optional(answer)


# processor time allowed per call of the helper process, in seconds: five times what the slowest text needs
_EXTRACT_SECONDS = 0.25
# processor time allowed for trying a client's pattern on one text, in seconds: ten times the typical time
_TRIAL_SECONDS = 0.02

_extractor = HelperProcess(f"{__name__}:make_reader", limit=_EXTRACT_SECONDS)
_trial_helper = HelperProcess(limit=_TRIAL_SECONDS)  # tries out the patterns that clients send


def make_reader() -> Work:
    """Returns the function that extracts answers from texts; the helper process calls this once."""
    read_replies(["It is 5."], "How many?")  # loads the word lists, which every forked child then inherits

    def read(message: Message) -> Message:
        task, question = Task(message["extract"]), message["question"]
        return {"read": read_replies(message["texts"], question, task, finished=message["finished"])}

    return read


def read_in_sandbox(
    texts: Sequence[str], question: str | None, task: Task = DEFAULT_TASK, *, finished: Sequence[bool]
) -> list[ReadAnswer]:
    """Reads replies in a helper process. A text that takes too long has no answer and counts as a timeout.

    If all texts together take too long, each is read on its own. If the helper doesn't reply, texts are read
    in this process. The call blocks, so an event loop must run it in a thread.
    """
    # a user's function can't be sent to another process, and patterns have a helper process of their own
    if not isinstance(task.extract, str) or task.extract.startswith("regex:"):
        return read_replies(texts, question, task, finished=finished)
    texts = [text[-TEXT_LIMIT:] for text in texts]
    asked = None if question is None else shorten_question(question)
    message = {"extract": task.extract, "texts": texts, "finished": list(finished), "question": asked}
    reply = _extractor.ask(message)
    if reply is None:
        return read_replies(texts, asked, task, finished=finished)
    if "read" in reply:
        return [ReadAnswer(answer, sure) for answer, sure in reply["read"]]
    if len(texts) == 1:
        return [SILENT]
    return [
        read_in_sandbox([text], asked, task, finished=[end])[0]
        for text, end in zip(texts, finished, strict=True)
    ]


def search_answer(pattern: str, text: str) -> str | None:
    """Finds a pattern's last match in a helper process; None if nothing matches or it takes too long."""
    return _trim_optional(find_last_match(pattern, text))


def count_timeouts() -> int:
    """Returns how many texts have no answer because reading took too long or a pattern couldn't be run."""
    return _extractor.timeouts + search_helper.timeouts + search_helper.unanswered


def check_pattern(pattern: str, size: int) -> str:
    """Returns why a client's regular expression is refused; "" if it is accepted.

    A helper process tries the pattern on texts of `size` characters that are slow to match.
    """
    letters = dict.fromkeys(c for c in pattern if c.isalnum() or c == " ")
    for unit in ["a", " ", "1", "a ", "aA1_", "a,", "ab ", *list(letters)[:8]]:
        reply = _trial_helper.ask({"pattern": pattern, "text": (unit * size)[:size] + "\0"}) or {}
        if "invalid" in reply:
            return f"is not a regular expression ({reply['invalid']})"
        if "late" in reply:
            return "takes too long on long texts"
    return ""


def start_sandbox(task: Task = DEFAULT_TASK) -> bool:
    """Starts the helper process early, so that the first text doesn't wait for it."""
    regex = isinstance(task.extract, str) and task.extract.startswith("regex:")
    return (search_helper if regex else _extractor).start()
