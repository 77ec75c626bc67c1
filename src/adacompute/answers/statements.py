"""Where a text states its answer in words: "Answer:", "the answer is", <answer>. Doesn't know what it means.

Every scan is linear in the text. Labels are read in several languages, at the cost of one look for each.
"""

import re

__all__ = ["line", "phrase", "said_last", "tagged"]

_LABELS = ("answer", "答案", "答え", "ответ", "antwort", "réponse", "respuesta", "resposta", "risposta")
_LINE = re.compile(
    r"(?:\b(?:answer|ответ|antwort|réponse|respuesta|resposta|risposta)|答案|答え)"
    r"[ \t]{0,20}(?:\*\*|__|\*)?[ \t]{0,20}[:：]",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"(?:\banswer\s{1,20}(?:is|would\s{1,20}be)\b"
    r"|\b(?:respuesta|resposta|risposta|réponse|antwort)(?:\s\w{1,12})?\s(?:es|é|è|est|ist|lautet)\b"
    r"|答案(?:是|为|為)|答えは)[ \t]{0,20}(?P<colon>[:：])?[ \t]{0,20}",
    re.IGNORECASE,
)
_END = re.compile(r"\.(?=[*_]{0,3}(?:\s|$))|。")
_NOTHING = re.compile(r"[\s*_]*$")
_BLANK = re.compile(r"\s*(?:[-•>]\s+)?")
_LONGEST_NEXT = 4  # words of a next line that can be meant: "Answer:" may also head a step of the solution
_WITHOUT_COLON = re.compile(r"[$\d*]|\\[\[(]|[-−+]\d")  # how a next line begins that is meant without one
_DISPLAYS = (("$$", "$$"), ("\\[", "\\]"))
_LONGEST_DISPLAY = 2_000  # characters

# a period after these ends no sentence; others that may end one, like "Inc.", are left out
_TITLE = re.compile(
    r"(?:Dr|Mr|Mrs|Ms|Prof|St|Mt|Ft|Gen|Lt|Col|Capt|Rev|Gov|Sen|Rep|Fig|Eq|vs|approx|ca|cf|e\.g|i\.e)"
)
_INITIALS = re.compile(r"(?:[A-Z]\.){0,5}[A-Z]")
_LAST_WORD = re.compile(r"[^\s(*\"“]{0,12}$")
_NEXT_PIECE = re.compile(r"[^.!?\n。]*")
_STARTER = re.compile(
    r"(?:An?|And|As|Because|But|For|He|Here|Hence|However|I|If|In|Its?|Let|My|Note|Of|Since|She|So|That|The|Then"
    r"|There|Therefore|These|They|This|Thus|To|We|What|When|Which|Your?)\b"
)
_WORDS_AFTER_INITIAL = 2  # "J. Smith", "C. Cell wall"; more is a sentence of its own
_WORDS_AFTER_INITIALS = 5  # "U.S. Department of the Treasury"


def said_last(text: str) -> str:
    """What follows the last `</think>`; the whole text where nothing does."""
    at = text.rfind("</think>")
    if at < 0:
        return text
    said = text[at + len("</think>") :]
    return said if said.strip() else text


def tagged(text: str) -> str | None:
    """What the last <answer> holds, to its end tag or the text's end."""
    at = text.rfind("<answer>")
    if at < 0:
        return None
    return text[at + len("<answer>") :].partition("</answer>")[0]


def line(text: str, *, finished: bool = True) -> str | None:
    """What follows the last "Answer:" on its line, or where that is nothing, the next line with text."""
    last = _last(_LINE, text)
    if last is None:
        return None
    begin, stop = _span(text, last.end(), colon=True, finished=finished)
    return _without_half_marks(text[begin:stop].strip(), _line_before(text, last.end()))


def phrase(text: str, *, finished: bool = True) -> str | None:
    """What follows the last "the answer is" up to the end of its sentence or line, or the next line."""
    last = _last(_PHRASE, text)
    if last is None:
        return None
    begin, stop = _span(text, last.end(), colon=last["colon"] is not None, finished=finished)
    stop = _sentence_end(text, begin, stop)
    return _without_half_marks(text[begin:stop].strip(), _line_before(text, last.end()))


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    lower = text.lower()
    if not any(label in lower for label in _LABELS):
        return None
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def _line_before(text: str, at: int) -> str:
    return text[max(text.rfind("\n", 0, at) + 1, at - 200) : at]


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _span(text: str, start: int, *, colon: bool, finished: bool) -> tuple[int, int]:
    """Where the answer stands: the rest of the line, else the next line, or display, that was not cut off."""
    stop = _line_end(text, start)
    if not _NOTHING.match(text[start:stop]):
        return start, stop
    blank = _BLANK.match(text, stop)
    begin = blank.end() if blank else stop
    if not colon and not _WITHOUT_COLON.match(text, begin):
        return start, stop
    for opening, closing in _DISPLAYS:
        if text.startswith(opening, begin):
            close = text.find(closing, begin + 2, begin + _LONGEST_DISPLAY)
            return (begin, close + 2) if close >= 0 else (start, stop)
    end = _line_end(text, begin)
    meant = text[begin:end]
    is_long = len(meant.split(None, _LONGEST_NEXT)) > _LONGEST_NEXT
    is_cut = end == len(text) and not finished
    return (start, stop) if is_long or is_cut or meant.startswith(("```", "#")) else (begin, end)


def _sentence_end(text: str, begin: int, stop: int) -> int:
    for match in _END.finditer(text, begin, stop):
        if match.group() == "。" or not _goes_on(text, begin, match.start(), stop):
            return match.start()
    return stop


def _goes_on(text: str, begin: int, at: int, stop: int) -> bool:
    """Whether the period at `at` ends no sentence: a title, initials, or emphasis that is still open."""
    if (
        text.count("**", max(begin, at - 200), at) % 2
        and text.find("**", at + 1, min(stop, at + 200)) > at + 1
    ):
        return True
    before = text[max(begin, at - 24) : at]
    found = _LAST_WORD.search(before)
    word = found.group() if found else ""
    piece = _NEXT_PIECE.match(text, at + 1, min(stop, at + 100))
    after = piece.group().split() if piece else []
    if not after:
        return False
    if _TITLE.fullmatch(word) or ("." in word and after[0][0].islower()):  # "10 a.m. on Monday"
        return True
    if word == "No":
        return after[0][0].isdigit()
    if (
        not _INITIALS.fullmatch(word)
        or _STARTER.match(after[0])
        or before[: -len(word)].rstrip()[-1:].isdigit()
    ):
        return False
    if "." in word:
        return len(after) <= _WORDS_AFTER_INITIALS
    return after[0][0].isupper() and len(after) <= _WORDS_AFTER_INITIAL


def _without_half_marks(found: str, before: str) -> str:
    """Without emphasis of which only one end stands in the answer; what follows a closing one isn't meant."""
    for mark in ("**", "__", "*"):
        if mark not in found or (mark == "*" and ("**" in found or "* " in before)):
            continue  # "* " begins an item of a list
        opened = before.count(mark) % 2 == 1
        if opened and found.startswith(mark):
            found, opened = found.removeprefix(mark).strip(), False
        if found.count(mark) % 2 == 0:
            continue
        if opened:
            found = found.partition(mark)[0].strip()
        else:
            found = found.removeprefix(mark) if found.startswith(mark) else found.removesuffix(mark)
    return found.strip()
