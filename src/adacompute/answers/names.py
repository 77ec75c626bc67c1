"""Names with and without the kind of thing that they name: "Mount Everest" and "Everest", "Sir Isaac Newton".

A kind is left out only where the question asks for it, so that it can't tell two answers apart: "Lake
Superior" is "Superior" among lakes. Parts of a name that tell one from another stay: "North Korea", "New
York", "Mexico City", "Prince George", a first name. Whether "Newton" is "Isaac Newton" depends on which other
names are voted for, and so on the order of samples: those stay two answers.
"""

from adacompute.answers.question import Question, find_stem, make_word_set

__all__ = ["strip_kind"]

_ARTICLES = make_word_set("a an the")
# "the city of Hanoi" is Hanoi, and "the planet Mars" is Mars; "the king of Spain" is not Spain
_KINDS_BEFORE = make_word_set(
    "city town country state planet river island continent language element year month village"
)
_KINDS_AFTER = make_word_set("river ocean sea desert planet language gas element metal")
_NAMED_KINDS = {  # words that begin a name, and words of a question that asks for their kind
    "Mount": "mountain mount peak summit volcano",
    "Lake": "lake",
    "River": "river",
    "Planet": "planet",
}
_NAMED_STEMS = {kind: frozenset(map(find_stem, words.split())) for kind, words in _NAMED_KINDS.items()}
_SHORT_KINDS = {"Mt": "Mount", "Mt.": "Mount"}
_TITLES = make_word_set("Sir Dame Dr Dr. Prof Prof. Professor")  # not "Mr": "Mrs Bennet" is another person
_TITLED_WORDS = 2  # words of a name that doesn't need its title: "Dr. No" does


def strip_kind(phrase: str, question: Question) -> str:
    """The name without its article, its title, and the kind that the question asks for.

    >>> from adacompute.answers.question import read_question
    >>> strip_kind("Mount Everest", read_question("Which mountain is the highest?"))
    'Everest'
    """
    words = phrase.split()
    if len(words) > 1 and words[0].lower() in _ARTICLES:
        words = words[1:]
    words = _strip_kind_before(words, question)
    if len(words) > 1 and words[-1].lower() in _KINDS_AFTER and find_stem(words[-1]) in question.stems:
        words = words[:-1]
    if question.asks_person and len(words) > _TITLED_WORDS and words[0] in _TITLES:
        words = words[1:]
    return " ".join(words)


def _strip_kind_before(words: list[str], question: Question) -> list[str]:
    if len(words) < 2:
        return words
    kind, named = words[0], words[2:] if words[1] == "of" else words[1:]
    if not named or not named[0][:1].isupper():
        return words
    if kind in _KINDS_BEFORE:
        return named
    kind = _SHORT_KINDS.get(kind, kind)
    if words[1] != "of" and not _NAMED_STEMS.get(kind, frozenset()).isdisjoint(question.stems):
        return named
    return [kind, *words[1:]]
