"""Finds the phrase of a short reply that answers a question: "Hanoi" of "The capital of Vietnam is Hanoi.".

`find_phrase` has a reader for each form of answer (`Question.form`): yes or no, one of two alternatives, a
date, a quantity, a list, a name. Dates, number words and yes or no are spelled in one way, so that equal
answers compare equal without the question: "11 November 1918" is "1918-11-11", "seven" is "7". A reply that
says that it can't tell has no phrase (`abstains`). Every scan is linear in the reply, of which at most 400
characters are read.
"""

import re
from itertools import pairwise

from adacompute.answers.quantity import BRACKETS, find_date, find_quantity
from adacompute.answers.question import (
    NEGATION,
    Options,
    Question,
    expand_negations,
    find_base,
    find_stem,
    find_stems,
    make_word_set,
)

__all__ = [
    "CHAT",
    "REPLY_LENGTH",
    "abstains",
    "drop_last_sentence",
    "find_alternative",
    "find_option",
    "find_phrase",
    "find_sentence_end",
    "find_yes_no",
    "refine_statement",
    "split_sentences",
]

REPLY_LENGTH = 400  # characters of a reply that is read as a phrase; a longer one is prose
_SENTENCES = 4  # sentences of a reply that are looked at
_PHRASE_WORDS = 8  # words of a phrase that a sentence about the question holds
_BARE_WORDS = 6  # words of a reply that repeats nothing of the question
_REMARK_WORDS = 10  # the same, with a remark after it: "Hanoi, which lies on the Red River"
_UNCLEAR_WORDS = 4  # the same, where it is unclear whether anything was asked
_LIST_ITEMS = 12
_ITEM_WORDS = 4

_SENTENCE_END = re.compile(r"\.(?=[*_]{0,3}(?:\s|$))|。")
# a period after these never ends a sentence; those that may end one, like "Inc.", are left out
_TITLE = re.compile(
    r"(?:Dr|Mr|Mrs|Ms|Prof|St|Mt|Ft|Gen|Lt|Col|Capt|Rev|Gov|Sen|Rep|Fig|Eq|vs|approx|ca|cf|e\.g|i\.e)"
)
_SHORT_MONTH = re.compile(r"(?:Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec)")
_INITIALS = re.compile(r"(?:[A-Z]\.){0,5}[A-Z]")
_LAST_WORD = re.compile(r"[^\s(*\"“]{0,12}$")
_NEXT_PIECE = re.compile(r"[^.!?\n。]*")
_SENTENCE_STARTER = re.compile(
    r"(?:An?|And|As|Because|But|For|He|Here|Hence|However|I|If|In|Its?|Let|My|Note|Of|Since|She|So|That"
    r"|The|Then"
    r"|There|Therefore|These|They|This|Thus|To|We|What|When|Which|Your?)\b"
)
_WORDS_AFTER_INITIAL = 2  # "J. Smith", "C. Cell wall"; more is a sentence of its own
_WORDS_AFTER_INITIALS = 5  # "U.S. Department of the Treasury"


def find_sentence_end(text: str, begin: int, stop: int) -> int:
    """Where the sentence that begins at `begin` ends; `stop` if no period ends it."""
    for match in _SENTENCE_END.finditer(text, begin, stop):
        if match.group() == "。" or not _continues_sentence(text, begin, match.start(), stop):
            return match.start()
    return stop


def _continues_sentence(text: str, begin: int, at: int, stop: int) -> bool:
    """Whether the period at `at` doesn't end a sentence: a title, initials, or emphasis still open."""
    if (
        text.count("**", max(begin, at - 200), at) % 2
        and text.find("**", at + 1, min(stop, at + 200)) > at + 1
    ):
        return True
    before = text[max(begin, at - 24) : at]
    word_match = _LAST_WORD.search(before)
    word = word_match.group() if word_match else ""
    piece = _NEXT_PIECE.match(text, at + 1, min(stop, at + 100))
    after = piece.group().split() if piece else []
    if not after:
        return False
    if _TITLE.fullmatch(word) or ("." in word and after[0][0].islower()):  # "10 a.m. on Monday"
        return True
    if _SHORT_MONTH.fullmatch(word):
        return after[0][0].isdigit()
    if word == "No":
        return after[0][0].isdigit()
    if (
        not _INITIALS.fullmatch(word)
        or _SENTENCE_STARTER.match(after[0])
        or before[: -len(word)].rstrip()[-1:].isdigit()
    ):
        return False
    if "." in word:
        return len(after) <= _WORDS_AFTER_INITIALS
    return after[0][0].isupper() and len(after) <= _WORDS_AFTER_INITIAL


_EXCLAIMED = re.compile(r"(?<=[!?])[\"'”)*_]{0,3}\s{1,9}|\n+")


def split_sentences(reply: str) -> list[str]:
    """The sentences of a short reply, without the periods that end them."""
    sentences: list[str] = []
    for line in _EXCLAIMED.split(reply):
        begin = 0
        while begin < len(line):
            end = find_sentence_end(line, begin, len(line))
            sentence = line[begin:end].strip()
            if sentence:
                sentences.append(sentence)
            begin = end + 1
    return sentences


_CANT_TELL = re.compile(
    r"\b(?:i (?:do not|don't|dont|really don't|honestly don't) (?:know|recall|remember|have)"
    r"|i(?:'m| am) (?:really |honestly )?(?:not (?:sure|certain|aware|able)|unable|unsure|sorry|afraid)"
    r"|i (?:can't|cannot|can not|could not|couldn't|won't) (?:\w+ )?"
    r"(?:say|tell|answer|help|determine|provide|assist|give|be|find|confirm|comply|do|discuss|access|verify)"
    r"|(?:cannot|can't|can not|could not|couldn't) be (?:determined|answered|known|said|verified|computed)"
    r"|(?:not|isn't|is not) (?:enough|sufficient) (?:information|data|context)"
    r"|insufficient (?:information|data)"
    r"|(?:impossible|hard|difficult|not possible) to (?:say|tell|know|determine|answer)"
    r"|no (?:idea|clue)|no (?:universal|single|definitive|simple|clear|one|definite|known) (?:\w+ )?answer"
    r"|it (?:really )?depends|depends on|as an ai|as a language model|unable to (?:answer|determine"
    r"|provide|help|say)"
    r"|(?:is|are|remains?) (?:still )?(?:unknown|unclear|not known|uncertain|undetermined|debated)"
    r"|beats me|who knows|yes and no)\b"
    r"|^\W{0,5}(?:unknown|unclear|unsure|uncertain|n/a|not sure|not certain|dunno|maybe|perhaps|undetermined"
    r"|not specified|not given|not stated|sometimes)\W{0,5}$",
    re.IGNORECASE,
)
_BUT = re.compile(r"[,;]?\s(?:but|however|though),?\s", re.IGNORECASE)
_GUESS = re.compile(
    r"(?:but|however|my (?:best )?guess|i (?:think|believe|guess|suppose|would guess|would say)"
    r"|i'd (?:say|guess)"
    r"|maybe|perhaps|possibly|probably|it (?:might|may|could|is probably|'s probably)|if i had to guess)\b",
    re.IGNORECASE,
)
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'"})
_MARKS = str.maketrans(
    {**dict.fromkeys("*`", ""), **dict.fromkeys("“”«»", '"'), "\u00a0": " ", "\u202f": " "}
)
_LEADING_MARKS = re.compile(r"^(?:[\s#>•_\"]|-(?!\d)){1,9}")


def abstains(reply: str) -> bool:
    """Whether a reply says that it can't tell, or won't, and makes no guess.

    >>> abstains("I don't know."), abstains("I'm not sure, but I think it's Hanoi.")
    (True, False)
    """
    sentences = split_sentences(_clean(reply[:REPLY_LENGTH]))
    return bool(sentences) and any(map(_CANT_TELL.search, sentences)) and not _select_sentences(sentences)


def _clean(reply: str) -> str:
    """The reply without emphasis and quotes, with plain apostrophes and spaces."""
    return _LEADING_MARKS.sub("", reply.translate(_MARKS).translate(_APOSTROPHES)).strip()


_POLITE = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|great|good|ok|okay|alright|hello|hi|hey|happy to help"
    r"|thanks?(?: you)?(?: for asking)?|thank you|well|hmm|sure thing|no problem|my pleasure|glad you asked"
    r"|(?:what an? |that's an? )?(?:great|good|excellent|interesting) question|let me (?:think|see))"
    r"(?:,\s|\s)?){1,2}[.!:]?",
    re.IGNORECASE,
)


def _select_sentences(sentences: list[str]) -> list[str]:
    """The sentences that may answer: not those that are polite only, nor those that say they can't tell."""
    selected: list[str] = []
    silent = False
    for sentence in sentences[:_SENTENCES]:
        if not selected and _POLITE.fullmatch(sentence):
            continue
        if _CANT_TELL.search(sentence):
            if selected:
                break
            guess = _BUT.split(sentence, maxsplit=1)
            if len(guess) == 2 and not _CANT_TELL.search(guess[1]):
                return [guess[1]]
            silent = True
        elif not silent or _GUESS.match(sentence):
            selected.append(sentence)
        else:
            break
    return selected


_LEAD_IN = re.compile(
    r"(?:well|so|sure|certainly|of course|absolutely|actually|honestly|hmm|okay|ok|ah|oh|but|and|thus"
    r"|therefore|hence"
    r"|great question|good question|yes|fun fact|basically|technically|in fact|in short|simply put"
    r"|currently|today"
    r"|i (?:think|believe|guess|suppose|would say|would guess|am (?:pretty|fairly|quite) sure)(?: that)?"
    r"|i'd (?:say|guess)(?: that)?|i'm (?:pretty|fairly|quite|almost) (?:sure|certain)(?: that)?"
    r"|in my opinion|as far as i know|to my knowledge|if i (?:recall|remember) correctly|if i'm not mistaken"
    r"|if i had to guess|probably|perhaps|maybe|most likely|likely|possibly|presumably|surely"
    r"|definitely|obviously"
    r"|no(?=,)|contrary to [\w ]{1,30}(?=,)|according to [\w ]{1,30}(?=,)"
    r"|the (?:correct |right |final |short )?answer(?: to (?:your|the"
    r"|this) question)?"
    r"(?: is| would be|:)|my (?:best )?(?:guess|answer)(?: is| would be|:)|answer:"
    r"|(?:that|it|this|he|she)(?: would| should| must| might| may| could)? be|(?:that|it|this|there|he|she)'s"
    r"|(?:that|it|this|there|he|she) (?:is|was)|(?:they|these|those|there|we|you) (?:are|were)|they're"
    r"|there're"
    r"|here (?:is|are)[\w ]{0,30}:)"
    r"(?:(?:\s?[,:])?\s{1,3}|[,:]?$)",
    re.IGNORECASE,
)
_TRAIL = re.compile(
    r"(?:,|\s-|\s–|\s—)?\s(?:of course|i (?:think|believe|guess|suppose)|if i (?:recall|remember) correctly"
    r"|if i'm not mistaken|as far as i know|to my knowledge|hands down|indeed|actually|right|obviously"
    r"|probably|please"
    r"|for sure|without (?:a )?doubt|to be (?:exact|precise)|sir|ma'am|my friend|in my opinion|too"
    r"|as well)[\s.!?]{0,3}$",
    re.IGNORECASE,
)
_CONTRAST = re.compile(
    r"(?:,\s|\s)(?:and\s|but\s)?(?:not|rather than|instead of|as opposed to|unlike)\s[^,;]{1,80}$",
    re.IGNORECASE,
)
_CORRECTION = re.compile(  # "not Lyon, but Paris"
    r"not\s[^,;]{1,60}[,;]?\s(?:but|it is|it's)\s(?:rather\s)?", re.IGNORECASE
)
_CLAUSE = re.compile(
    r"[,;]?\s(?:(?:in|of|from|by|for|to|with|on|at) which|which|who|whom|whose|where|because|since"
    r"|although|though|while|whereas|so that|located|situated|known"
    r"|and it|and is|and was|and they|and has|but it|but the|making it|with an?|as it|as the|as of"
    r"|due to|according to"
    r"|based on|followed by)\s|\s[–—-]{1,2}\s|;\s|:\s(?=[a-z])",
    re.IGNORECASE,
)
_STEP_LIMIT = 4  # lead-ins before an answer


def _strip_frame(sentence: str) -> str:
    """The sentence without the hedges and polite words around it, and without remarks in brackets."""
    stripped = BRACKETS.sub("", sentence).strip() or sentence
    for _ in range(_STEP_LIMIT):
        lead = _LEAD_IN.match(stripped)
        if lead is None or lead.end() == len(stripped):
            break
        stripped = stripped[lead.end() :]
    for _ in range(2):
        stripped = _TRAIL.sub("", stripped)
    return _CONTRAST.sub("", stripped) if not stripped.lower().startswith(("not ", "isn't ")) else stripped


def drop_last_sentence(reply: str) -> str:
    """The whole sentences of a reply that was cut off; "" if it has none."""
    sentences = split_sentences(reply[:REPLY_LENGTH])
    return ". ".join(sentences[:-1])


def find_phrase(reply: str, question: Question) -> str | None:
    """The phrase of a short reply that answers the question, or None; UNCLEAR if it states several.

    >>> from adacompute.answers.question import read_question
    >>> find_phrase("The capital of Vietnam is Hanoi.", read_question("What is the capital of Vietnam?"))
    'Hanoi'
    """
    if len(reply) > REPLY_LENGTH:
        return None
    reply = _join_items(reply, question)
    sentences = _select_sentences(split_sentences(_clean(reply)))
    if not sentences:
        return None
    if question.form == "yes_no":
        return find_yes_no(sentences, question) or _read_other(sentences, question)
    if question.form == "either":
        return find_alternative(sentences, question) or _read_other(sentences, question)
    if question.form == "date":
        date = find_date(sentences, question)
        return date if date is not None else _read_statement(sentences, question)
    if question.form == "number":
        quantity = find_quantity(sentences, question)
        return quantity if quantity is not None else _read_bare(sentences, question)
    return _read_statement(sentences, question)


def refine_statement(statement: str, question: Question, *, most: int) -> str | None:
    """What a statement such as "Answer: ..." says, spelled as `find_phrase` would; None if it can't tell.

    A statement of up to `most` words counts as it is, where nothing shorter is found in it.
    """
    text = _clean(statement[:REPLY_LENGTH])
    if _CANT_TELL.search(text) and not _select_sentences([text]):
        return None
    whole = statement if len(text.split()) <= most else None
    if question.form == "yes_no":
        return find_yes_no([text], question) or (whole if _read_other([text], question) else None)
    if question.form == "either":
        return find_alternative([text], question) or (whole if _read_other([text], question) else None)
    if question.form == "date":
        return find_date([text], question) or whole
    if question.purpose == "value" and question.numbers:
        return whole  # a problem to solve: what it states is the value
    if question.form == "number":
        return find_quantity([text], question) or whole
    return _read_statement([text], question) or (None if _denies(text, question) else whole)


_BULLET = re.compile(r"^\s{0,9}(?:[-*•]|\d{1,2}[.)])\s{1,4}(.{1,80})$", re.MULTILINE)


def _join_items(reply: str, question: Question) -> str:
    """A list with an item on each line as one sentence, where a list was asked for."""
    if question.form != "list" or "\n" not in reply:
        return reply
    items = [item.strip(" .*,;") for item in _BULLET.findall(reply)]
    short = 2 <= len(items) <= _LIST_ITEMS and all(len(item.split()) <= _ITEM_WORDS for item in items)
    return ", ".join(items) if short else reply


_BREAK = r"(?=\s{0,3}(?:[,;:.!?(–—]|-\s|$))"  # what follows a word that says all by itself
_STRONG = re.compile(
    rf"(?:(?P<yes>yes|yeah|yep|yup|yea|aye|affirmative)|(?P<true>true)"
    rf"|(?P<no>no|nope|nah|not|not really|not at all|never|i do not (?:think|believe) so)"
    rf"|(?P<false>false|incorrect|wrong|untrue)){_BREAK}(?!\.\s?\d)",
    re.IGNORECASE,
)
# these agree with what follows: "of course it isn't" is no
_WEAK = re.compile(
    r"(?:yes|yeah|indeed|correct|true|right|exactly|absolutely|definitely|positively|certainly|of course|sure"
    r"|surely|probably|(?:most )?likely|clearly|obviously|i (?:think|believe|guess|suppose) so)"
    r"(?:[,;:!]?\s{1,3}|\s[–—-]\s|$)",
    re.IGNORECASE,
)
_NO_IDIOM = re.compile(
    r"no (?:doubt|problem|question|one|wonder|longer|worries|matter|idea|way to)\b", re.IGNORECASE
)
_LAST_VERDICT = re.compile(
    r"(?:[,;]|\b(?:so|but|therefore|thus|hence)|\s[–—-])\s(?:(?:so|but|then|thus|therefore|hence|it is|it's"
    r"|that is|that's|the (?:answer|statement) is),?\s){0,2}(?P<word>yes|no|nope|true|false|incorrect)$",
    re.IGNORECASE,
)
_TRUTH = re.compile(
    r"(?:\b(?:is|are|would be)|'s)(?P<not>\snot)?(?:\s(?:actually|indeed|definitely|generally))?\s"
    rf"(?P<word>true|correct|right|false|incorrect|wrong|untrue|a (?:common )?myth)"
    rf"(?:{_BREAK}|(?=\s(?:because|since|as)\b))",
    re.IGNORECASE,
)
_POSITIVE = ("true", "correct", "right", "yes")
_CONSEQUENCE = re.compile(r"\b(?:so|therefore|thus|hence|that means|which means)\b,?\s", re.IGNORECASE)
_ONLY_VERB = re.compile(
    r"(?:it|they|he|she|that|this|we|you|i|there)\s(?:is|are|was|were|do|does|did|can|could|has|have"
    r"|had|will|would|should)(?:\snot)?",
    re.IGNORECASE,
)
_FILLER_STEMS = frozenset(
    map(
        find_stem,
        ("type", "kind", "indeed", "actually", "also", "considered", "classified", "really", "fact", "true"),
    )
)


def find_yes_no(sentences: list[str], question: Question) -> str | None:
    """Yes or no (true or false, if that was asked): said at the beginning, or by repeating the question."""
    verdict = _find_verdict(sentences[0], question)
    if verdict is None:
        return None
    if question.asks_truth:
        return "True" if verdict else "False"
    return "Yes" if verdict else "No"


def _find_verdict(sentence: str, question: Question) -> bool | None:
    """Whether a sentence says yes or no; None where it says neither, or contradicts itself."""
    sentence = expand_negations(sentence).strip(" .!\"'")
    last = _find_last_verdict(sentence, question)
    text = sentence
    for _ in range(2 * _STEP_LIMIT):
        strong = _match_strong(text, question)
        if strong is not None:
            verdict = _check_strong(strong, question)
            return verdict if last in (None, verdict) else None
        lead = (None if _NO_IDIOM.match(text) else _WEAK.match(text)) or _LEAD_IN.match(text)
        if lead is None:
            break
        if lead.end() == len(text):
            weak = _WEAK.match(text) is not None
            return True if weak and last is not False else _find_restatement(text, sentence, question)
        text = text[lead.end() :]
    if last is not None:
        return last
    return None if _NO_IDIOM.match(text) else _find_restatement(text, sentence, question)


def _match_strong(text: str, question: Question) -> re.Match[str] | None:
    """A word that says yes or no alone; "wrong" doesn't where that is what was asked about."""
    strong = _STRONG.match(text)
    if strong is None or (strong["true"] and not question.asks_truth and strong.end() < len(text)):
        return None
    about_truth = strong["true"] or strong["false"]
    return None if about_truth and find_stem(about_truth) in question.stems else strong


def _check_strong(strong: re.Match[str], question: Question) -> bool | None:
    """What a strong word says; None where the sentence goes on to say the opposite."""
    verdict = bool(strong["yes"] or strong["true"])
    rest = strong.string[strong.end() :].strip(" ,;:.!?()–—-")
    if strong["true"] or strong["false"] or not rest:
        return verdict
    if question.negated:  # "Yes, it isn't"
        return None if question.asks_truth else verdict
    told = _restate(rest, question)
    return verdict if told in (None, verdict) else None


def _find_last_verdict(sentence: str, question: Question) -> bool | None:
    """What a sentence ends with: "It's a star, so false" says no."""
    last = _LAST_VERDICT.search(sentence)
    if last is None or find_stem(last["word"]) in question.stems:
        return None
    return last["word"].lower() in _POSITIVE


def _find_restatement(text: str, sentence: str, question: Question) -> bool | None:
    """Whether a sentence calls what was asked true, or says it again, with or without "not"; None: neither.

    `text` is the sentence without the words that lead to it.
    """
    truth = _TRUTH.search(sentence)
    if truth is not None and find_stem(truth["word"]) not in question.stems:
        return (truth["word"].lower() in _POSITIVE) != bool(truth["not"])
    if question.negated:  # whether "not" agrees is unclear
        return None
    doubt = _DOUBT.match(text)
    told = _restate(text[doubt.end() :] if doubt is not None else text, question)
    if doubt is not None:
        return False if told else None
    return told


_DOUBT = re.compile(r"i (?:do not|would not) (?:think|believe|say)(?: that)?\s", re.IGNORECASE)


def _restate(text: str, question: Question) -> bool | None:
    clause = _CONSEQUENCE.split(text)[-1]
    for part in dict.fromkeys((clause, _cut_clause(clause))):
        part = part.strip(_EDGES)
        negations = len(NEGATION.findall(part))
        if _ONLY_VERB.fullmatch(part):
            return negations == 0
        stems = [stem for stem in find_stems(NEGATION.sub(" ", part)) if stem not in _FILLER_STEMS]
        if stems and negations <= 1 and _is_subsequence(stems, question.sequence):
            return negations == 0
    return None


def _is_subsequence(stems: list[str], sequence: tuple[str, ...]) -> bool:
    remaining = iter(sequence)
    return all(stem in remaining for stem in stems)


_COMPARED = re.compile(r"\s(?:than|compared to|compared with|versus|vs)\s.{0,200}$", re.IGNORECASE)
_BEFORE_COMPARED = re.compile(
    r"^(?:compared (?:to|with)|unlike|as opposed to|in contrast to)\s[^,]{1,80},\s", re.IGNORECASE
)
_BOTH = re.compile(r"\b(?:both|neither)\b", re.IGNORECASE)
_PART = re.compile(
    r";\s|[,:]\s(?=(?:it|this|that)(?:'s|\sis)\s)|[,;]?\s(?:but|so|therefore|thus|hence)\s|^no,\s",
    re.IGNORECASE,
)
_AFTER_NOT = re.compile(
    r"(?:(?:,\s|\sand\s|,\sand\s)not|,?\s(?:rather than|instead of))\s[^,;]{1,80}$", re.IGNORECASE
)
_COMPARATIVE = re.compile(r"[^\W\d_]{4,30}")


def find_alternative(sentences: list[str], question: Question) -> str | None:
    """The one of several alternatives that the first sentence names, or else the last.

    A sentence that denies one, or compares them in other words than the question, names none of them.
    """
    both = _BOTH.search(sentences[0])
    if both is not None:
        return both.group().lower()
    chosen = _choose_alternative(sentences[0], question)
    if chosen is None and len(sentences) > 1:
        unclear = _names_option(sentences[0], question)
        repeats = _says_nothing_new(sentences[-1], question)
        chosen = _choose_alternative(sentences[-1], question) if repeats or not unclear else None
    return chosen


def _choose_alternative(sentence: str, question: Question) -> str | None:
    text = expand_negations(BRACKETS.sub("", sentence))
    parts = [_AFTER_NOT.sub("", part) if part.count(" ") > 1 else part for part in _PART.split(text)]
    told = [_BEFORE_COMPARED.sub("", part) for part in parts if question.negated or not NEGATION.search(part)]
    if not told or not all(_compares_alike(part, question) for part in told):
        return None
    chosen = find_option("; ".join(_COMPARED.sub("", part) for part in told), question.options)
    return question.options[int(chosen)][1] if chosen is not None else None


def _compares_alike(text: str, question: Question) -> bool:
    """Whether a sentence uses the question's comparative, or none where it says nothing else."""
    own = {word.casefold() for _, option in question.options for word in option.split()}
    words = [word.casefold() for word in _COMPARATIVE.findall(text)]
    bases = {base for word in words if word not in own and (base := find_base(word))}
    if not question.compared:
        return " than " not in text or not bases
    if bases:
        more = not bases.isdisjoint(("more", "less"))
        return bases <= question.compared and (not more or _repeats_after_more(words, question))
    return _says_nothing_new(_strip_frame(_cut_clause(text)), question)


def _says_nothing_new(text: str, question: Question) -> bool:
    """Whether all words of a text are those of the question or of an alternative."""
    own = {stem for _, option in question.options for stem in find_stems(option)}
    return all(stem in question.stems or stem in own for stem in find_stems(text))


def _repeats_after_more(words: list[str], question: Question) -> bool:
    """Whether the word after "more" is the question's: "more expensive"."""
    following = [after for word, after in pairwise(words) if word in ("more", "less", "most", "least")]
    return all(after == "than" or find_stem(after) in question.stems for after in following)


def _names_option(text: str, question: Question) -> bool:
    """Whether a text has the words of any alternative."""
    words = " " + " ".join(_find_words(text)) + " "
    return any(f" {' '.join(_find_words(option))} " in words for _, option in question.options)


def find_option(text: str, options: Options) -> str | None:
    """The letter of the only option whose words a text holds; for alternatives, the position of the "
    "only one."""
    words = " " + " ".join(_find_words(text)) + " "
    matches: list[tuple[str, str]] = []
    for at, (letter, option) in enumerate(options):
        option_words = " " + " ".join(_find_words(option)) + " "
        if option_words.strip() and option_words in words:
            matches.append((letter or str(at), option_words))
    longest = [
        letter for letter, own in matches if not any(own != other and own in other for _, other in matches)
    ]
    return longest[0] if len(longest) == 1 else None


_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*|[-−+](?=\d)|[/%°]")
_ARTICLES = ("a", "an", "the")


def _find_words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text) if word.casefold() not in _ARTICLES]


_COPULA = re.compile(
    r"\s(?:(?:would|must|should|may|might|could|can) be|(?:serves|acts) as|is|are|was|were|equals"
    r"|remains|became"
    r"|has been|uses?|has|have|had|contains?|means|stands for"
    r"|lies)\s",
    re.IGNORECASE,
)
_KIND = re.compile(r"\s(?:is|was|are|were)\san?\s", re.IGNORECASE)
_SHORT_COPULA = re.compile(r"(?<=\w)'s\s")
_PASSIVE = re.compile(
    r"(?:[a-z]{1,15}ly\s)?(?:also\s|first\s|originally\s|commonly\s|officially\s)?(?:[a-z]{2,15}(?:ed"
    r"|en|own|wn|un|de|ght|ng|ld|lt"
    r"|ut|rn|nd|id|ound)\s)?(?:by|in|on|at|as|to|from|around|near|called|named)\s(?:the year\s)?",
)
_QUOTED = re.compile(r"(?:the word )?(['\"])([^'\"]{1,60})\1")
_LABELS = re.compile(
    r"(?:called|named|known as|spelled|abbreviated(?: as)?|about|approximately|around|roughly)\s"
)
_PREPOSITION = re.compile(r"\s(?:in|of|for|at|to|from|on|by|with|among)\s", re.IGNORECASE)
_SPEAKER = re.compile(r"(?:i|i'll|i've|i'd|let|let's|here|please|you|we|my)\b(?!\.)", re.IGNORECASE)
_PRONOUN = re.compile(
    r"(?:it|that|this|they|these|those|he|she|there|the answer|answer|one|here)\b", re.IGNORECASE
)
_KEPT_SUFFIX = re.compile(r"\s?(?:[A-Z]\.?){2,4}|\s?(?:Jr|Sr)\.?|\s?I{1,3}")
_QUALIFIER = re.compile(r"[A-Z][\w.'-]{1,20}(?: [A-Z][\w.'-]{1,20}){0,2}")  # "Paris, Texas"
_EDGES = " \t\n.,;:!?'\"()[]-–—_"
_JOINT = re.compile(r",?\s(?:and|or|&)\s|,\s", re.IGNORECASE)
_EMPTY = make_word_set("it that this they these those he she there here one so yes no none indeed")
CHAT = re.compile(
    r"\b(?:hi|hello|hey|thanks|thank you|welcome|sure|sorry|of course|certainly|glad|happy to|goodbye|bye"
    r"|good (?:morning|night)|got it|no problem|how can i)\b|[!😀-🙏]",
    re.IGNORECASE,
)


_DENIAL = re.compile(  # in lower case: a title may have a "Not"
    r"(?:\b(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)|'s)\s(?:[a-z]{3,12}ly\s)?"
    r"(?:not|no|neither|never)\b|^[Nn](?:ot|either)\s|\bnever\b"
)
_BELIEF = re.compile(
    r"(?:(?:many|most|some|a lot of|lots of)\s)?(?:people|many|most|some)\s(?:[a-z]{3,12}ly\s|often\s)?"
    r"(?:think|believe|say|assume|guess)\b|(?:it is|it's) (?:often|commonly|widely) \w"
    r"|(?:you|one) m(?:ight|ay)\b"
    r"|i (?:first |once )?thought\b",
    re.IGNORECASE,
)
_TURN = re.compile(r";\s|,?\sbut\s|,\s(?=(?:it|that)(?:'s|\sis|\swas)\s)", re.IGNORECASE)
_NOW = re.compile(r"(?:now|today|currently|since then|these days|actually|in fact|rather),?\s", re.IGNORECASE)
_CORRECTED = re.compile(
    r"(?:(?<=is)|(?<=are)|(?<=was)|(?<=were)|(?<='s)) not\s[^,;]{1,60}?,?\sbut(?=\s(?!it\b|that\b))"
)
_ELLIPSIS = re.compile(r"(.{1,60}?)\s(?:is|was|are|were|does|did|has)")


def _denies(clause: str, question: Question) -> bool:
    """Whether a clause only says what the answer is not, or what others believe."""
    if question.negated:
        return False
    return bool(_BELIEF.match(clause) or _DENIAL.search(_cut_clause(expand_negations(clause))))


def _read_statement(sentences: list[str], question: Question) -> str | None:
    """The phrase of the first sentence that states something; one that denies something is passed over.

    So is one that is about the question's subject, and doesn't say what is asked of it.
    """
    while _misses_point(sentences, question):
        sentences = sentences[1:]
    if not sentences:
        return None
    sentence, *others = sentences
    if others and sentence.endswith("?"):
        return _read_after_denial(others[0], question)
    corrected = _CORRECTED.sub("", expand_negations(sentence))
    first, *later = _TURN.split(corrected, maxsplit=1)
    now = _NOW.match(later[0]) if later else None
    if now is not None:
        return _read_after_denial(later[0][now.end() :], question)
    if _denies(first, question):
        following = [*later, *others][:1]
        return _read_after_denial(following[0], question) if following else None
    plain = sentence if corrected == expand_negations(sentence) else corrected
    return _read_sentence(_drop_ellipsis(plain), question, alone=not others)


def _misses_point(sentences: list[str], question: Question) -> bool:
    """Whether the first sentence repeats words of the question, none of them what is asked.

    It does so only to say what kind of thing something is ("Peru is a country"), or before one that answers.
    """
    if not (sentences and question.focus and _COPULA.search(sentences[0])):
        return False
    first, *later = (frozenset(find_stems(sentence)) for sentence in sentences)
    if first.isdisjoint(question.stems) or not first.isdisjoint(question.focus):
        return False
    answered_later = any(not stems.isdisjoint(question.focus) for stems in later)
    return answered_later or _KIND.search(sentences[0]) is not None


def _drop_ellipsis(clause: str) -> str:
    """The name of a clause that has only a verb after it: "The Nile is"."""
    short = _ELLIPSIS.fullmatch(clause)
    return short[1] if short is not None else clause


def _read_after_denial(clause: str, question: Question) -> str | None:
    """The name or number that a clause puts in the place of what was denied: "It's Jupiter"."""
    if _denies(clause, question):
        return None
    phrase = _read_sentence(_drop_ellipsis(clause), question)
    return phrase if phrase is not None and (phrase[0].isupper() or phrase[0].isdigit()) else None


def _read_sentence(sentence: str, question: Question, *, alone: bool = True) -> str | None:
    """The part of a sentence that isn't the question's own words, if it is short or a list.

    `alone`: it is all of the reply.
    """
    if question.purpose == "" and CHAT.search(sentence):
        return None
    if sentence.isalpha():  # most answers that are stated are one word
        return None if sentence.lower() in _EMPTY else sentence
    text = _strip_frame(sentence)
    framed = text != sentence
    place = _PLACE_WORD.match(text) if question.asks_place else None
    text = text[place.end() :] if place is not None else text
    sides = _split_sides(text, question)
    if sides is None and not (_is_bare(text, alone=alone, question=question)):
        return None
    if sides is not None and question.defines and len(sides.split()) > _UNCLEAR_WORDS:
        return None
    if sides is None:
        most = _UNCLEAR_WORDS if question.purpose == "" else _PHRASE_WORDS if framed else _BARE_WORDS
        return _finish_phrase(_strip_verb(text) if framed else text, question, most=most)
    return _finish_phrase(sides, question, most=_PHRASE_WORDS)


def _is_bare(text: str, *, alone: bool, question: Question) -> bool:
    """Whether a text that repeats nothing of the question may be the answer itself: no sentence about it."""
    if question.purpose == "" and not (alone and len(text.split()) <= _UNCLEAR_WORDS):
        return False
    if _SPEAKER.match(text):
        return False
    return len(text.split()) <= _REMARK_WORDS and not _COPULA.search(_cut_clause(text))


def _read_bare(sentences: list[str], question: Question) -> str | None:
    """All of a reply of a few words, such as "Infinitely many"."""
    if len(sentences) > 1 or len(sentences[0].split()) > _UNCLEAR_WORDS:
        return None
    return _read_sentence(sentences[0], question)


def _read_other(sentences: list[str], question: Question) -> str | None:
    """A reply of a few words that is none of the answers offered; None where it may mean one of them."""
    text = expand_negations(sentences[0])
    if NEGATION.search(text) or _WEAK.match(text) or _COPULA.search(text) or _names_option(text, question):
        return None
    return _read_bare(sentences, question)


def _split_sides(text: str, question: Question) -> str | None:
    """The side of a sentence's verb that doesn't repeat the question; None if neither does."""
    text = _drop_place(text, question)
    label, _, value = text.partition(": " if ": " in text else " - ")
    if value and _share(label, question) >= 0.5:
        text = value
        if not _COPULA.search(value):
            return _strip_verb(value)
    copula = _COPULA.search(text) or _SHORT_COPULA.search(text)
    if copula is not None:
        left, right = text[: copula.start()], text[copula.end() :]
        left_share = 1.0 if _PRONOUN.fullmatch(left.strip()) else _share(_cut_clause(left), question)
        right_share = _share(_cut_clause(right), question)
        if left_share >= 0.5 and left_share > right_share:
            return _strip_verb(right)
        if right_share >= 0.5 and right_share > left_share:
            return left
        if left_share == right_share == 1.0 and len(find_stems(right)) == 1 and _covers(left, question):
            return _strip_verb(right)  # "The past tense of catch is caught."
    return _split_by_words(text, question)


_PLACE_WORD = re.compile(r"(?:in|on|at|by)\s", re.IGNORECASE)
_PLACE = re.compile(r"(?:In|On|At|For|Of|Among)\s([^,]{1,60}),\s", re.IGNORECASE)


def _drop_place(text: str, question: Question) -> str:
    """The text without "In Germany," at its beginning, where the question says so itself."""
    place = _PLACE.match(text)
    return text[place.end() :] if place is not None and _share(place[1], question) == 1.0 else text


def _share(text: str, question: Question) -> float:
    """The share of a text's content words that the question has too."""
    stems = find_stems(text)
    return sum(stem in question.stems for stem in stems) / len(stems) if stems else 0.0


def _covers(text: str, question: Question) -> bool:
    """Whether a text repeats all that is asked."""
    return bool(question.focus) and question.focus <= frozenset(find_stems(text))


def _strip_verb(text: str) -> str:
    """The end of a sentence after its verb, without "written by", "located in" and the like."""
    label = _LABELS.match(text)
    text = text[label.end() :] if label is not None else text
    quoted = _QUOTED.match(text)
    if quoted is not None:
        return quoted[2]
    if label is not None:
        return text
    passive = _PASSIVE.match(text)
    return text[passive.end() :] if passive is not None and passive.end() < len(text) else text


_TOKEN = re.compile(r"\S+")


def _split_by_words(text: str, question: Question) -> str | None:
    """What stands before or after the words of the question, as in "Shakespeare wrote Hamlet."."""
    tokens = list(_TOKEN.finditer(text))
    repeated = [_is_repeated(token.group(), question) for token in tokens]
    content = [bool(find_stems(token.group())) for token in tokens]
    first = next((at for at, own in enumerate(content) if own), None)
    if first is None or not any(r and c for r, c in zip(repeated, content, strict=True)):
        return None
    if repeated[first]:  # it begins with the question's words
        end = next((at for at in range(first, len(tokens)) if not repeated[at]), len(tokens))
        verb_last = [token.group()[0].islower() for token in tokens[:end] if find_stems(token.group())][-1]
        rest = text[tokens[end].start() :] if end < len(tokens) else ""
        return _strip_verb(rest.lstrip(",: ")) if rest and verb_last else None
    verb = next(
        (
            at
            for at in range(first + 1, len(tokens))
            if repeated[at] and content[at] and tokens[at].group()[0].islower()
        ),
        None,
    )
    if verb is None or NEGATION.search(text[: tokens[verb].start()]):
        return None
    return text[: tokens[verb].start()]


def _is_repeated(token: str, question: Question) -> bool:
    stems = find_stems(token)
    return all(stem in question.stems for stem in stems)


def _cut_clause(text: str) -> str:
    """The text before a relative clause, a reason or a remark."""
    clause = _CLAUSE.search(text)
    return text[: clause.start()] if clause is not None and clause.start() > 0 else text


def _finish_phrase(text: str, question: Question, *, most: int) -> str | None:
    correction = _CORRECTION.match(text)
    text = text[correction.end() :] if correction is not None else text
    text = _CONTRAST.sub("", _cut_clause(text)).strip(_EDGES)
    items = [item for item in _JOINT.split(text) if item.strip()]
    if _is_list(text, items, question):
        answer = ", ".join(_strip_article(item.strip(_EDGES)) for item in items)
        return f"({answer})" if question.asks_order else answer
    phrase = _strip_repeats(_cut_comma(text.replace('"', ""), question), question).strip(_EDGES)
    words = phrase.split()
    if not words or len(words) > most or phrase.lower() in _EMPTY or not any(c.isalnum() for c in phrase):
        return None
    return phrase


def _is_list(text: str, items: list[str], question: Question) -> bool:
    """Whether a text is a list of short items, rather than a name with a remark after a comma."""
    if not 2 <= len(items) <= _LIST_ITEMS or any(len(item.split()) > _ITEM_WORDS for item in items):
        return False
    if question.form == "list":
        return True
    return len(items) > 2 and re.search(r"\s(?:and|&)\s", text) is not None


def _strip_article(item: str) -> str:
    first, _, rest = item.partition(" ")
    return rest if rest and first.lower() in _ARTICLES else item


def _cut_comma(text: str, question: Question) -> str:
    """The text before a comma; "D.C." and "Jr." are part of a name, and "Texas" says which Paris is meant."""
    name, comma, rest = text.partition(", ")
    if not comma:
        return text
    if _KEPT_SUFFIX.fullmatch(rest):
        return f"{name} {rest.strip()}"
    named = _QUALIFIER.fullmatch(rest) is not None and _share(rest, question) < 1.0
    return f"{name} {rest}" if named else name


def _strip_repeats(phrase: str, question: Question) -> str:
    """The phrase without "in Vietnam" and "the city of", where the question says so itself."""
    for match in _PREPOSITION.finditer(phrase):
        before, after = phrase[: match.start()], phrase[match.end() :]
        if (
            find_stems(after)
            and _share(after, question) == 1.0
            and find_stems(before)
            and _share(before, question) < 1.0
        ):
            phrase = before
            break
    words = phrase.split()
    if len(words) > 1 and words[0].lower() in _ARTICLES:
        words = words[1:]
    named = words[2:] if words[1:2] == ["of"] else words[1:]
    if words and words[0] in _TYPES and named and named[0][:1].isupper():
        words = named
    if len(words) > 1 and words[-1].lower() in _TYPES_AFTER and find_stem(words[-1]) in question.stems:
        words = words[:-1]
    return " ".join(words)


# "the city of Hanoi" is Hanoi, and "the Nile river" the Nile; "the king of Spain" is not Spain
_TYPES = make_word_set(
    "city town country state planet river island continent language element year month village"
)
_TYPES_AFTER = make_word_set("river ocean sea desert planet language gas element metal")
