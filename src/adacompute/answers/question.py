"""What a question asks for: its purpose, the form of its answer, its options, and the words it repeats.

Prompts are read by English words. Only the ends of long texts are read, and no pattern here nests repeats, so
that a hostile text takes no longer than another.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

__all__ = [
    "NEGATION",
    "Purpose",
    "Question",
    "classify_purpose",
    "expand_negations",
    "find_base",
    "find_stem",
    "find_stems",
    "read_question",
    "shorten_question",
]

Purpose = Literal["value", "fact", "text", ""]

_END = 1_000  # characters of either end of a prompt: the task stands at its beginning or its end
_MIN_NUMBERS = 2  # numbers in a prompt that make it a problem to solve, rather than a wish for advice
_MAX_DISTANCE = 12  # words at most between "what" and "area", or "write" and "poem"


def make_word_set(text: str) -> frozenset[str]:
    """The words of a text, which spaces separate."""
    return frozenset(text.split())


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[.?!:;,\n]")
_STOPS = frozenset(".?!:;\n")
# an order's verb begins a sentence, or follows one of these; elsewhere it is a part of a question
_LEADS = make_word_set("please kindly you and then to also now briefly let's")
_COMPOSE = make_word_set(
    "compose draft rewrite rephrase reword paraphrase summarize summarise translate proofread "
    "brainstorm imagine pretend roleplay role-play act invent outline suggest recommend propose "
    "refactor debug implement"
)
_MAKE = make_word_set(
    "write create make generate give tell come design build plan develop prepare produce need want show "
    "list name haiku poem"
)
_THINGS = make_word_set(
    "poem poems haiku limerick sonnet verse lyrics song rap ode story stories tale novel chapter scene "
    "dialogue script scripts screenplay monologue essay article blog post tweet tweets caption captions "
    "thread newsletter speech toast email e-mail emails letter memo message invitation "
    "announcement resume cv bio biography review report summary abstract paragraph sentence sentences "
    "slogan slogans tagline title titles headline headlines names ideas tips suggestions advice "
    "joke jokes pun riddle recipe menu plan schedule itinerary agenda outline list lesson quiz "
    "questions flashcards description explanation introduction conclusion proposal pitch strategy "
    "policy guide tutorial documentation readme program python javascript typescript java rust sql bash "
    "html css react regex code class query api app website component snippet prompt persona character "
    "dockerfile makefile"
)
_TELL = make_word_set(
    "explain describe discuss compare contrast elaborate introduce analyze analyse review critique "
    "advise fix write create make generate design plan list turn"
)
_SOLVE = make_word_set(
    "calculate compute evaluate solve simplify factor determine integrate differentiate round convert "
    "count estimate express expand reduce find classify categorize categorise label"
)
_LOOSE_FIND = make_word_set("me out a some ways good something")  # without calculating: "find me a recipe"
_AMOUNTS = make_word_set(
    "number value sum product difference quotient remainder area perimeter circumference volume unit "
    "units probability odds percent percentage ratio fraction average mean median mode range variance "
    "total cost price profit interest distance speed velocity length width height weight mass depth age "
    "angle root roots solution solutions derivative integral limit coefficient coefficients degree "
    "measure slope intercept equation expression inverse determinant radius diameter digit digits term "
    "factor multiple divisor gcd lcm maximum minimum largest smallest greatest least next missing "
    "result answer output year date time population temperature square cube logarithm factorial domain "
    "vertex midpoint hypotenuse rate change sequence integer integers salary"
)
_FORMS = make_word_set(
    "number answer fraction decimal expression numeral numerals digit digits form notation percent"
)
_ASKING = make_word_set(
    "who whose whom when where which what what's is are was were does did can do has name state"
)
_WISH = re.compile(
    r"\btell me (?:a|about|more)\b|\bhelp me (?:write|plan|with)\b|\bcontinue the\b|\ba name for\b"
)
_ADVICE = re.compile(
    r"\b(?:should (?:i|we|you)\b|(?:do|would) you (?:think|like|feel|recommend|believe|prefer|say)"
    r"|your (?:opinion|view|favou?rite|thoughts)\b|pros and cons|best (?:way|practice)"
    r"|(?:some|any) (?:tips|advice|ideas)|difference between (?!the\b))"
)
_REASON = re.compile(
    r"\bhow (?:do|can|could|should|would|does|to|come)\b"
    r"|\bwhy (?:is|are|do|does|did|was|were|would|should|can)\b|\bsome (?:good|ways|of)\b"
)
_VALUE = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|fast|big|large|high|deep|heavy|wide)\b|\bat what\b"
    r"|\b(?:true or false|yes or no|final answer|multiple[- ]choice|sentiment|(?:respond|reply) with only)\b"
    r"|\banswer (?:with|in|as|using|only)\b|\b(?:choose|pick) (?:one|the|from)\b"
    r"|\d ?[-+*/×÷^=<>] ?[\d?x(]|= ?\?|\bx ?=|\$[^$\n]{1,99}\$|\\(?:frac|sqrt|boxed)"
)
_CHOICES = re.compile(r"^[ \t]{0,9}\(?a[).:]\s[^\n]{1,400}\n{1,3}[ \t]{0,9}\(?b[).:]\s", re.MULTILINE)


def classify_purpose(prompt: str) -> Purpose:
    """What a prompt asks for: a value or a choice, a fact in a few words, a text; "" if it is unclear.

    >>> classify_purpose("How many legs do 3 cats have?"), classify_purpose("Write a poem about 3 cats")
    ('value', 'text')
    >>> classify_purpose("Hi there")
    ''
    """
    text = shorten_question(prompt).lower()
    words = _WORD.findall(text)
    has_numbers = sum(word.isdecimal() for word in words) >= _MIN_NUMBERS
    orders = _find_orders(words)
    if "compose" in orders or _WISH.search(text):
        return "text"
    if _CHOICES.search(text):
        return "value"
    if not has_numbers and _ADVICE.search(text):  # "How much should I save?"
        return "text"
    if "solve" in orders or _asks_amount(words) or _VALUE.search(text):  # "Explain how many …" included
        return "value"
    if "tell" in orders or _REASON.search(text):
        return "text"
    if "?" not in words or _ASKING.isdisjoint(words):
        return ""
    return "value" if has_numbers else "fact"


def _find_orders(words: list[str]) -> set[str]:
    """The orders that it gives: compose a text, solve a problem, tell of something."""
    orders: set[str] = set()
    begins, comma, made_at, wrote_at = True, False, -_MAX_DISTANCE, -_MAX_DISTANCE
    for at, word in enumerate(words):
        if word in _STOPS:
            begins, made_at = True, -_MAX_DISTANCE
            continue
        if at - made_at < _MAX_DISTANCE and word in _THINGS:
            orders.add("compose")
        if at - wrote_at < _MAX_DISTANCE and word in _FORMS:
            orders.add("solve")
        if begins and word in _COMPOSE:
            orders.add("compose")
        if begins and word in _MAKE:
            made_at = at
        if begins and word in _TELL:
            orders.add("tell")
        if (begins or comma) and word in _SOLVE and not (word == "find" and _is_loose_find(words, at)):
            orders.add("solve")
        wrote_at = at if word == "write" else wrote_at
        begins, comma = word in _LEADS, word == ","
    return orders


def _is_loose_find(words: list[str], at: int) -> bool:
    """Whether something is to be found without calculating: "find me a recipe"."""
    return at + 1 < len(words) and words[at + 1] in _LOOSE_FIND


def _asks_amount(words: list[str]) -> bool:
    """Whether it asks what, or which, amount something is."""
    asked_at = -_MAX_DISTANCE
    for at, word in enumerate(words):
        if word in _STOPS:
            asked_at = -_MAX_DISTANCE
        elif word in ("what", "which", "what's", "what’s"):
            asked_at = at
        elif at - asked_at < _MAX_DISTANCE and word in _AMOUNTS:
            return True
    return False


AnswerForm = Literal["choice", "either", "yes_no", "date", "number", "list", "phrase"]


Options = tuple[tuple[str, str], ...]  # letter and text of each


class Question(NamedTuple):
    """What is known of a question, for reading its answers."""

    purpose: Purpose
    form: AnswerForm  # of its answer
    stems: frozenset[str]  # of its content words, which an answer may repeat
    sequence: tuple[str, ...]  # the same, in their order
    focus: frozenset[str]  # of these, what is asked: "capital" of "the capital of Peru", or its superlatives
    options: Options  # of lettered choices; of "either", each with the letter ""
    numbers: frozenset[str]  # written in it, as digits
    counted: str  # the stem of the noun that follows "how many"; "" if there is none
    head: str  # the noun that follows "what" or "which": "city" of "Which city is ..."; "" if there is none
    compared: frozenset[str]  # the bases of "larger" and "more", where it asks which is
    negated: bool  # whether it has a "not", so that it is unclear what one in the answer says
    asks_truth: bool  # whether "true" or "false" is asked for, rather than "yes" or "no"
    asks_year: bool
    asks_place: bool  # whether its answer may begin with "in" or "on"
    asks_order: bool  # whether the order of a list counts
    defines: bool  # whether it asks what something is, which a text tells rather than a few words


_OPTION = re.compile(r"(?:^|\n|[ \t]{2,9}|[?:;,.]\s)[ \t]{0,9}[(\[]?([A-Ja-j])[).:\]][ \t]{1,4}")
_LAST_OPTION_END = re.compile(r"\n\s{0,9}\n|\n(?=[A-Z][a-z]+ )")
_SENTENCE_BREAK = re.compile(r"[.?!:;]\s|\n")
_REQUEST = re.compile(
    r"(?:(?:please|hey|hi|hello|so|and|now|well|ok|okay)\b[,!]?\s{1,3}){0,3}"
    r"(?:(?:can|could|would|will|do) you (?:please |kindly )?(?:tell me|give me|say|name|know|answer)\b"
    r"|tell me|i(?:'d| would) like to know|do you know|give me)[:,]?\s{0,3}",
    re.IGNORECASE,
)
_AUXILIARY = re.compile(
    r"(?:is|are|was|were|am|do|does|did|can|could|has|have|had|will|would|should|may|might|must|shall"
    r"|isn't|aren't|wasn't|weren't|don't|doesn't|didn't|can't|hasn't|haven't|won't)\b",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(r"\byes(?:,)? or no\b|\byes/no\b|\(yes or no\)", re.IGNORECASE)
_VERDICTS = re.compile(r"\byes(?:,? or |/| and )no\b|\btrue(?:,? or |/| and )false\b|\bt/f\b", re.IGNORECASE)
_TRUE_OR_FALSE = re.compile(r"\btrue or false\b|\btrue/false\b|\bt/f\b", re.IGNORECASE)
_WHEN = re.compile(
    r"\bwhen (?:did|was|were|is|are|do|does|will|has|had|the)\b"
    r"|\b(?:what|which|in what|in which|on what|on which) (?:exact )?(?:year|date|day|month and year)\b"
    r"|\bsince when\b|\bdate (?:of|when|on)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(?:what|which) year\b|\bthe year\b|\byear (?:did|was|of)\b", re.IGNORECASE)
_WHERE = re.compile(r"\bwhere\b|\b(?:in|on|at|by) (?:which|what)\b|\bwhen\b", re.IGNORECASE)
_HOW_MUCH = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|fast|big|large|high|deep|heavy|wide|hot|cold|often)\b",
    re.IGNORECASE,
)
_NUMERIC = _AMOUNTS - make_word_set(
    "product difference mode range interest largest smallest greatest least maximum minimum next "
    "missing result "
    "answer output date time year factor multiple divisor limit root roots solution solutions equation "
    "expression inverse unit units term square cube domain vertex midpoint change sequence derivative "
    "integral "
    "intercept odds degree measure"
)
_OFFERS = re.compile(
    r"^(?:is|are|was|were|do|does|did|can|has|have|will|would|should)\b|[,:]\s|\bas\b|\bbetween\b",
    re.IGNORECASE,
)
_LISTING = re.compile(
    r"\b(?:what|which) (?:[a-z]{2,20} ){0,2}[a-z]{2,20}s (?:are|were|do|did|have|make)\b"
    r"|\b(?:what|which|who) (?:are|were)\b|\b(?:name|list|give|state) (?:me )?(?:all|the|two|three|four"
    r"|five|six"
    r"|seven|eight|nine|ten|\d{1,2})\b|\bwhich (?:two|three|four|five|six|seven|eight|nine|ten|\d{1,2})\b",
    re.IGNORECASE,
)
_DEFINITION = re.compile(
    r"(?:what|who)(?:'s|’s| is| are| was| were) (?:an? |the )?(?!\w+est\b|most\b|first\b|capital\b|name\b)"
    r"[a-z'’-]{2,30}(?: (?!of\b|in\b|for\b)[a-z'’-]{2,30}){0,2}",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\bin (?:\w+ )?order\b|\border(?:ed)? (?:by|from)\b|\brank|\bsort|\bfrom (?:the )?\w+(?:est"
    r"|st) to\b|\bsequence\b"
    r"|\bfirst (?:two|three|four|five|six|ten|\d)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\bhow many\s([a-z]{2,30})\b", re.IGNORECASE)
_HEAD = re.compile(r"\b(?:what|which)\s([a-z]{3,20})\b", re.IGNORECASE)
_NO_HEAD = make_word_set("are was were does did can has had will would the type kind sort name one")
_CONTENT_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")
_QUESTION_LENGTH = 600  # characters of the sentence that asks
_MAX_ALTERNATIVE = 4  # words of one side of "a fruit or a vegetable"
_ARTICLES = make_word_set("a an the")
STOP_WORDS = make_word_set(
    "a an the of in on at to for from by with as and or is are was were be been am do does did has have "
    "had can "
    "could will would may might must it its it's that this these those there here he she they we i you "
    "one his "
    "her their our my your what which who whom whose when where why how much many not no so than then "
    "also just "
    "about approximately around roughly very called named known please only word words answer briefly brief "
    "s t re"
)
_VERBS = (
    "write wrote written,begin began begun,win won,sing sang sung,speak spoke spoken,find "
    "found,build built,"
    "make made,lie lay lain,hold held,lead led,fight fought,sink sank sunk,die died dead,run "
    "ran,fly flew flown,"
    "take took taken,give gave given,go went gone,eat ate eaten,grow grew grown,know knew "
    "known,fall fell fallen,"
    "rise rose risen,sell sold,tell told,draw drew drawn,bear bore born borne,buy bought,teach "
    "taught,break broke "
    "broken,choose chose chosen,drive drove driven,ride rode ridden,swim swam swum,wear wore "
    "worn,lose lost,"
    "meet met,leave left,come came,become became,see saw seen,get got gotten,say said,pay paid,send sent,"
    "spend spent,shoot shot,strike struck,steal stole stolen,freeze froze frozen,blow blew "
    "blown,throw threw "
    "thrown,drink drank drunk,bring brought,catch caught,feel felt,keep kept,sleep slept,stand stood,"
    "understand understood,large larger largest big bigger biggest,small smaller smallest,long "
    "longer longest,"
    "tall taller tallest high higher highest,fast faster fastest"
)
_IRREGULAR = {form: forms.split()[0] for forms in _VERBS.split(",") for form in forms.split()}
_SUFFIXES = ("ing", "ed", "es", "s", "e")


NEGATION = re.compile(r"\b(?:not|never|cannot|no|none|neither|nor)\b(?!-)|n't\b", re.IGNORECASE)
_SHORT_NOT = re.compile(r"\b(ca|wo|sha|[a-z]{2,6})n['’ʼ]t\b|\bcannot\b", re.IGNORECASE)
_FULL_VERBS = {"ca": "can", "wo": "will", "sha": "shall"}


def expand_negations(text: str) -> str:
    """The text with "not" written out: "can't" is "can not", "isn't" "is not".

    >>> expand_negations("It won't rain, and penguins cannot fly.")
    'It will not rain, and penguins can not fly.'
    """
    return _SHORT_NOT.sub(_write_not, text)


def _write_not(match: re.Match[str]) -> str:
    verb = match[1] or "can"
    return f"{_FULL_VERBS.get(verb.lower(), verb)} not"


def _is_negated(sentence: str) -> bool:
    """Whether a question has a "not"; "Isn't it ...?" asks the same as "Is it ...?"."""
    return NEGATION.search(_ASKS_NOT.sub("", sentence)) is not None


_ASKS_NOT = re.compile(r"^\W{0,3}[a-z]{2,6}n['’]t\b", re.IGNORECASE)
_BASES = {
    "better": "good", "best": "good", "worse": "bad", "worst": "bad", "more": "more", "most": "more",
    "less": "less", "least": "less", "fewer": "few", "fewest": "few", "further": "far", "farther": "far",
}  # fmt: skip
_NO_COMPARATIVE = make_word_set(
    "number water river other never ever her after under over paper power silver copper computer letter "
    "together either whether answer order character matter winter summer player per later interest west east "
    "forest rest test father mother brother sister daughter president"
)


def find_base(word: str) -> str:
    """The base of a comparative or superlative, such as "cheap" of "cheaper"; "" for other words."""
    word = word.lower()
    if word in _BASES:
        return _BASES[word]
    if word in _NO_COMPARATIVE or not word.endswith(("er", "est")) or len(word) < 5:
        return ""
    stem = find_stem(word)
    return stem.removesuffix("est").removesuffix("er")


_COMPARES = re.compile(
    r"(?:which|who|what|whose)\b|.{0,60}\b(?:which|who) (?:is|has|are|was)\b", re.IGNORECASE
)


def _find_compared(sentence: str) -> frozenset[str]:
    """The bases of the comparatives of a question such as "Which is larger, ...?"."""
    if not _COMPARES.match(sentence):
        return frozenset()
    return frozenset(filter(None, map(find_base, _CONTENT_WORD.findall(sentence))))


@lru_cache(maxsize=4096)
def find_stem(word: str) -> str:
    """The stem of a word, so that "wrote" and "writes", "colours" and "color" are one.

    >>> find_stem("wrote") == find_stem("written"), find_stem("ended") == find_stem("end")
    (True, True)
    """
    word = word.lower().replace("’", "'").removesuffix("'s").removesuffix("'")
    word = _IRREGULAR.get(word, word).replace("our", "or")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) > 2:
            word = word[: -len(suffix)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def find_stems(text: str) -> list[str]:
    """The stems of a text's content words, in order."""
    return [find_stem(word) for word in _CONTENT_WORD.findall(text) if word.lower() not in STOP_WORDS]


def shorten_question(question: str) -> str:
    """The ends of a prompt, which are all that is read of it."""
    return question if len(question) <= 2 * _END else question[:_END] + "\n" + question[-_END:]


def read_question(question: str) -> Question:
    """What a prompt asks for. The last results are kept, since every sample of a request needs them."""
    return _read_ends(shorten_question(question))


_SUPERLATIVE = re.compile(r"\b(?:[a-z]{2,15}est|most|least)\b")
_NAME = re.compile(r"(?<!^)\b[A-Z][\w'’-]*")


def _find_focus(sentence: str) -> frozenset[str]:
    """The stems of a question that tell what is asked, rather than of what."""
    superlatives = find_stems(" ".join(_SUPERLATIVE.findall(sentence)))
    return frozenset(superlatives or find_stems(_NAME.sub(" ", _VERDICTS.sub(" ", sentence))))


@lru_cache(maxsize=256)
def _read_ends(text: str) -> Question:
    sentence = find_asking_sentence(text)
    options = find_options(text)
    either = () if options else _find_labels(text, sentence) or _find_alternatives(sentence)
    form = _find_form(text, sentence, options=options, either=either)
    head = _HEAD.search(sentence)
    counted = _COUNTED.search(sentence)
    sequence = tuple(find_stems(_VERDICTS.sub(" ", sentence)))
    asks_truth = _TRUE_OR_FALSE.search(text) is not None
    name = head[1].lower() if head is not None else ""
    return Question(
        purpose=classify_purpose(text),
        form=form,
        stems=frozenset(sequence),
        sequence=sequence,
        focus=_find_focus(sentence),
        options=options or either,
        numbers=frozenset(number.replace(",", "") for number in _DIGITS.findall(text)),
        counted=find_stem(counted[1]) if counted is not None else "",
        head="" if name in _NO_HEAD or name in STOP_WORDS else name,
        compared=_find_compared(sentence),
        negated=_is_negated(_VERDICTS.sub(" ", text if asks_truth else sentence)),
        asks_truth=asks_truth,
        asks_year=_YEAR.search(sentence) is not None,
        asks_place=_WHERE.search(sentence) is not None,
        asks_order=_ORDER.search(sentence) is not None,
        defines=_DEFINITION.fullmatch(sentence.rstrip("? ")) is not None,
    )


def find_asking_sentence(text: str) -> str:
    """The last sentence that ends in a question mark; the text's end if there is none.

    A quotation after a colon is what is asked about, no part of the sentence.
    """
    text = _QUOTATION.sub(" ", text)
    at = text.rfind("?")
    if at < 0:
        return text[-_QUESTION_LENGTH:].strip()
    before = text[max(0, at - _QUESTION_LENGTH) : at]
    begin = 0
    for match in _SENTENCE_BREAK.finditer(before):
        begin = match.end()
    sentence = before[begin:].strip()
    request = _REQUEST.match(sentence)
    return sentence[request.end() :] if request is not None else sentence


def _find_form(
    text: str,
    sentence: str,
    *,
    options: Options,
    either: Options,
) -> AnswerForm:
    if options:
        return "choice"
    if _TRUE_OR_FALSE.search(text) or _YES_OR_NO.search(text):
        return "yes_no"
    if either:
        return "either"
    if "?" in text and _AUXILIARY.match(sentence):
        return "yes_no"
    if _WHEN.search(sentence):
        return "date"
    if _HOW_MUCH.search(sentence) or _asks_numeric(sentence):
        return "number"
    return "list" if _LISTING.search(sentence) else "phrase"


def _asks_numeric(sentence: str) -> bool:
    """Whether a number is asked for by name: "What is the population of ...?"."""
    words = _WORD.findall(sentence.lower())
    asked = next((at for at, word in enumerate(words) if word in ("what", "which", "what's", "what’s")), None)
    if asked is None:
        return False
    verb = asked + 1 < len(words) and words[asked + 1] in ("is", "was", "are", "were")
    for word in words[asked + 1 + verb : asked + 6]:
        if word in _NUMERIC:
            return True
        if word in _NO_NOUN:
            return False
    return False


_NO_NOUN = make_word_set("of in for on at has have had is was are were does do did can will would that , : ;")


@lru_cache(maxsize=256)
def find_options(text: str) -> Options:
    """The lettered options of a question: consecutive letters from A on, at least two."""
    options: list[tuple[str, str]] = []
    begin = 0
    for match in _OPTION.finditer(text):
        letter = match[1].upper()
        if letter == "A":
            options = []
        elif not options or ord(letter) != ord(options[-1][0]) + 1:
            continue
        else:
            options[-1] = (options[-1][0], text[begin : match.start()].strip(" \t\n,;."))
        options.append((letter, ""))
        begin = match.end()
    if len(options) < 2:
        return ()
    end = _LAST_OPTION_END.search(text, begin)
    options[-1] = (options[-1][0], text[begin : end.start() if end else len(text)].strip(" \t\n,;.?"))
    return tuple(options)


_QUOTATION = re.compile(
    r":\s{1,3}(?:\"[^\"?]{1,999}\"|“[^”?]{1,999}”|'(?:[^'?]|(?<=\w)'(?=\w)){1,999}'(?!\w))"
)
_LABELS = re.compile(
    r"(?:^|[.?!:;)\"'”]\s{0,3}|\n|\bplease\s|\band\s|\bthen\s)"
    r"(?:answer|reply|respond|classify|categori[sz]e|label|choose|pick|output)\b"
    r"(?P<order>[^.?!\n]{0,200})",
    re.IGNORECASE,
)
_LABEL_LIST = re.compile(
    r"(?:^|[\s(:])(?P<first>(?:[\"'“‘]?[\w-]{2,30}[\"'”’]?,\s){0,6}[\"'“‘]?[\w-]{2,30}[\"'”’]?),?\sor\s"
    r"(?P<last>[\"'“‘]?[\w-]{2,30})"
)
_DETERMINER = re.compile(r"\b(?:an?|the|your|its|their|his|her|any|each|every)\s{0,3}$", re.IGNORECASE)
_NO_LABELS = make_word_set(
    "yes no true false not word words phrase number sentence sentences one two three four five letter "
    "digit digits name names short less fewer more brief either so paragraph line lines list text code figure"
)


def _find_labels(text: str, sentence: str) -> Options:
    """The words that a prompt says to answer with: "Answer positive, negative or neutral."."""
    if _HOW_MUCH.search(sentence) or _WHEN.search(sentence) or _asks_numeric(sentence):
        return ()
    for match in _LABELS.finditer(text):
        listed = _LABEL_LIST.search(match["order"])
        if listed is None or _DETERMINER.search(match["order"], 0, listed.start("first")):
            continue
        words = [word.strip("\"'“”‘’ ") for word in (*listed["first"].split(","), listed["last"])]
        if _NO_LABELS.isdisjoint(word.lower() for word in words) and len({w.lower() for w in words}) > 1:
            return tuple(("", word) for word in words)
    return ()


def _find_alternatives(sentence: str) -> Options:
    """The two sides of "a fruit or a vegetable", each without its article."""
    before, conjunction, after = sentence.rpartition(" or ")
    if _HOW_MUCH.search(sentence) or _WHEN.search(sentence) or not _OFFERS.search(sentence):
        return ()
    right = [word.strip("'\"“”") for word in re.split(r"[:;.,?!](?=\s|$)|\s[(\"']", after)[0].split()]
    if (
        not conjunction
        or not 1 <= len(right) <= _MAX_ALTERNATIVE
        or right[0].lower() in ("not", "no", "false")
    ):
        return ()
    left = [word.strip("'\"“”") for word in re.split(r"[,:]\s", before)[-1].split()]
    starts = [at for at, word in enumerate(left) if word.lower() in _ARTICLES]
    if right[0].lower() in _ARTICLES and starts:
        left = left[starts[-1] :]
    elif "," not in before[-60:] and ":" not in before[-60:]:
        left = left[-len(right) :]
    sides = tuple(
        " ".join(side[1:] if side and side[0].lower() in _ARTICLES else side) for side in (left, right)
    )
    short = all(sides) and len(sides[0].split()) <= _MAX_ALTERNATIVE and sides[0].lower() != sides[1].lower()
    return tuple(("", side) for side in sides) if short else ()
