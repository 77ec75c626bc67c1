"""Groups similar problems: near-duplicates, questions from one template, translations of one question.

A policy that has learned from one problem of a group knows something about the others, so whole groups are
held out and resampled. Two questions are similar if they share at least 40% of their combined pairs of
adjacent words, with numbers masked. Questions linked by a chain of similar ones form a group.
"""

import re
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from adacompute.errors import format_count

ADVICE = (
    "Record other kinds of questions; or, if all requests are of the kinds recorded, hold out single "
    "questions: --no-groups (groups='none')."
)

Ints = npt.NDArray[np.int64]

_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_TOKEN = re.compile(
    r"#|[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
_LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][A-Za-z]{2,4})?/(?=.)")  # language prefix of a problem id, like de/17
# two questions are similar if they share 2/5 of their combined word pairs, nearly equal if they share 4/5
_ALIKE, _SAME = (2, 5), (4, 5)
# word pairs in more than 9/10 of the questions are ignored if there are at least 10 questions
_COMMON, _FEWEST = (9, 10), 10
_KEPT = 24  # a question is compared with at most this number of earlier questions of each group
_TELLING = 1000  # word pairs in more questions than this aren't used to look up similar questions
FEWEST_GROUPS = 10  # with fewer groups, resampling gives confidence intervals that are too narrow


def find_groups(ids: Sequence[str], prompts: Sequence[str]) -> Ints:
    """Returns each problem's group number; similar problems share one. Numbers rise by first appearance.

    >>> find_groups("abcd", ["Add 2 to 30", "Who wrote Faust?", "Add 7 to 9", "Who wrote Ulysses?"]).tolist()
    [0, 1, 0, 2]
    >>> find_groups(["de/17", "fr/17", "de/18"], ["Wie viele?", "Combien ?", "Warum?"]).tolist()
    [0, 0, 1]
    """
    texts = sorted(set(prompts))  # sort, so that the groups don't depend on the order of problems
    number = {text: place for place, text in enumerate(texts)}
    parents = list(range(len(texts)))
    for one, other in _list_alike(texts, parents):
        parents[_find_root(parents, one)] = _find_root(parents, other)
    translations: dict[str, int] = {}
    for id_, prompt in zip(ids, prompts, strict=True):
        if language := _LANGUAGE.match(id_):
            first = translations.setdefault(id_[language.end() :], number[prompt])
            parents[_find_root(parents, number[prompt])] = _find_root(parents, first)
    roots = [_find_root(parents, number[prompt]) for prompt in prompts]
    # if all questions are similar (for example, from one template), each distinct question becomes a group
    return number_alike(roots if len(set(roots)) > 1 else prompts)


def number_alike(values: Iterable[Hashable]) -> Ints:
    """Numbers values in order of first appearance; equal values get the same number.

    >>> number_alike(["a", "b", "a"]).tolist()
    [0, 1, 0]
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def count_groups(groups: Ints) -> int:
    """Counts the groups; `groups` holds the group number of each problem, starting at 0."""
    return int(groups.max(initial=-1)) + 1


def resemble(groups: Ints) -> bool:
    """Whether a group has two or more problems on average."""
    return 2 * count_groups(groups) <= len(groups)


def are_enough(groups: Ints) -> bool:
    """Whether there are enough groups for a confidence interval; always true if no group has two problems."""
    return count_groups(groups) >= min(FEWEST_GROUPS, len(groups))


def count_in_groups(problems: int, groups: int) -> str:
    """Formats the number of problems, and of groups if there are fewer groups than problems.

    >>> count_in_groups(441, 34), count_in_groups(300, 300)
    ('441 problems in 34 groups', '300 problems')
    """
    words = format_count(problems, "problem")
    return words if groups == problems else f"{words} in {format_count(groups, 'group')}"


def _find_root(parents: list[int], place: int) -> int:
    while parents[place] != place:
        parents[place] = place = parents[parents[place]]
    return place


def _list_alike(texts: Sequence[str], parents: list[int]) -> Iterator[tuple[int, int]]:
    """Yields pairs of similar texts, as indexes.

    Before the caller asks for the next pair, it must merge the groups of the two texts in `parents`.
    """
    first: dict[frozenset[int], int] = {}
    kept: list[int] = []  # indexes of the texts that later texts are compared with
    sizes = np.zeros(len(texts), dtype=np.int64)  # number of word pairs in each text of `kept`
    # maps the number of each word pair to the texts that contain it, as indexes of `kept`
    containing: dict[int, array[int]] = {}
    members = Counter[int]()  # maps each group to the number of its texts in `kept`
    pairs_of = _list_pairs(texts)
    for place, pairs in enumerate(pairs_of):
        if not pairs:
            continue
        if (same := first.setdefault(pairs, place)) != place:
            yield place, same
            continue
        lists = [at for pair in pairs if (at := containing.get(pair)) is not None]
        telling = [at for at in lists if len(at) <= _TELLING]
        is_kept = True
        if telling:
            counts = np.bincount(np.concatenate(telling), minlength=len(kept))
            # for each text in `kept`: the most word pairs that it can share with the current text
            most = counts + (len(lists) - len(telling))
            # for each text in `kept`: the fewest different word pairs that it and the current text can have
            fewest = sizes[: len(kept)] + len(pairs) - most
            near = (counts > 0) & (most * _ALIKE[1] >= fewest * _ALIKE[0])
            for candidate in np.flatnonzero(near).tolist():
                shared = len(pairs & pairs_of[kept[candidate]])
                whole = len(pairs | pairs_of[kept[candidate]])
                if shared * _ALIKE[1] >= whole * _ALIKE[0]:
                    is_kept = is_kept and shared * _SAME[1] < whole * _SAME[0]
                    yield place, kept[candidate]
        root = _find_root(parents, place)
        if is_kept and members[root] < _KEPT:
            members[root] += 1
            for pair in pairs:
                containing.setdefault(pair, array("q")).append(len(kept))
            sizes[len(kept)] = len(pairs)
            kept.append(place)


def _list_pairs(texts: Sequence[str]) -> list[frozenset[int]]:
    words: dict[str, int] = {}
    listed = []
    for text in texts:
        tokens = _TOKEN.findall(_NUMBER.sub(" # ", text.casefold()))
        numbers = [words.setdefault(token, len(words)) for token in tokens]
        listed.append(frozenset(one << 32 | other for one, other in pairwise(numbers)))
    if len(texts) < _FEWEST:
        return listed
    counts = Counter(pair for pairs in listed for pair in pairs)
    common = {pair for pair, count in counts.items() if count * _COMMON[1] > len(texts) * _COMMON[0]}
    return [pairs - common for pairs in listed]
