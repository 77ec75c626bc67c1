"""Answers extracted, graded and classed for one problem. Knows nothing of files or SQLite."""

from collections.abc import Sequence

from adacompute.answers import Classes, Task, classify, extract_answer, same_answer
from adacompute.pool.content import sample_hash
from adacompute.pool.flaw import Flaw
from adacompute.pool.shape import ABSENT, Line, SampleRow

__all__ = ["Placer", "StoredRow", "encoded", "restored", "settle", "settle_among"]

# record, idx, text, answer, class, correct, tokens, logprob, entropy, finished, extra, hash
StoredRow = tuple[
    int,
    int,
    str | None,
    str | None,
    int,
    float | None,
    int | None,
    float | None,
    float | None,
    int | None,
    str | None,
    bytes,
]
Vote = tuple[str | None, float | None]  # answer, correct


class Placer:
    """Numbers new answers among those already stored, whose numbers stay as they are."""

    def __init__(self, task: Task) -> None:
        self._classes = Classes(task=task)
        self._numbers: dict[int, int] = {}  # class as placed now -> as stored
        self._next = 0

    def learn(self, answer: str | None, correct: float | None, number: int) -> None:
        """A stored answer and its class."""
        self._numbers.setdefault(self._classes.place(answer, correct), number)
        self._next = max(self._next, number + 1)

    def place(self, answer: str | None, correct: float | None) -> int:
        """The class of a new answer; -1 abstains."""
        placed = self._classes.place(answer, correct)
        if placed >= 0 and placed not in self._numbers:
            self._numbers[placed] = self._next
            self._next += 1
        return self._numbers.get(placed, -1)


def settle(
    line: Line, *, record: int, prefix: bytes, task: Task, classes: Sequence[int] | None = None
) -> list[StoredRow]:
    """Rows to store: answers extracted where absent, graded where gold is known, classed, hashed.

    `classes` are known already for a recording of our own: comparing answers is most of the work.
    """
    votes = _votes(line.samples, gold=line.problem[2], task=task)
    if classes is not None:
        return [
            _stored(row, vote, number, record, prefix)
            for row, vote, number in zip(line.samples, votes, classes, strict=True)
        ]
    distinct = dict.fromkeys(votes)  # most samples repeat an answer: class each spelling once
    numbers = dict(
        zip(distinct, classify([a for a, _ in distinct], [c for _, c in distinct], task=task), strict=True)
    )
    return [
        _stored(row, vote, numbers[vote], record, prefix)
        for row, vote in zip(line.samples, votes, strict=True)
    ]


def settle_among(
    rows: Sequence[SampleRow], *, gold: str | None, record: int, prefix: bytes, classes: Placer, task: Task
) -> list[StoredRow]:
    """As `settle`, for samples that join those already placed in `classes`."""
    votes = _votes(rows, gold=gold, task=task)
    return [
        _stored(row, vote, classes.place(*vote), record, prefix)
        for row, vote in zip(rows, votes, strict=True)
    ]


def encoded(text: str | None) -> bytes | None:
    """UTF-8, or a Flaw: half of a surrogate pair is in JSON's escapes, but it is no text."""
    if text is None:
        return None
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        half = exc.object[exc.start]
        raise Flaw(
            f"{text[max(0, exc.start - 20) : exc.start + 1]!r} ends in half a surrogate pair "
            f"(U+{ord(half):04X}), which is no text; write \\ufffd in its place"
        ) from exc


def _votes(rows: Sequence[SampleRow], *, gold: str | None, task: Task) -> list[Vote]:
    votes: list[Vote] = []
    graded: dict[str | None, float] = {None: 0.0}  # an abstention is not right
    for row in rows:
        answer, correct = row[2], row[3]
        if answer is ABSENT:
            text = row[1]
            answer = None if text is None else extract_answer(text, task, finished=row[7] != 0)
        if correct is ABSENT:
            correct = None
            if gold is not None:
                if answer not in graded:
                    graded[answer] = float(same_answer(answer, gold, task))
                correct = graded[answer]
        votes.append((answer, correct))
    return votes


def restored(
    row: tuple[int, str | None, int | None, float | None, float | None, int | None, str | None],
    vote: Vote,
    number: int,
    record: int,
    prefix: bytes,
) -> StoredRow:
    """A stored sample (idx, text, tokens, logprob, entropy, finished, extra) under another grade or class."""
    idx, text, *rest = row
    return _stored((idx, text, None, None, *rest), vote, number, record, prefix)  # type: ignore[arg-type]


def _stored(row: SampleRow, vote: Vote, number: int, record: int, prefix: bytes) -> StoredRow:
    idx, text, _, _, tokens, logprob, entropy, finished, extra = row
    answer, correct = vote
    try:
        mark = sample_hash(
            prefix,
            idx,
            None if text is None else text.encode(),
            None if answer is None else answer.encode(),
            number,
            correct,
            tokens,
            logprob,
            entropy,
            finished,
            None if extra is None else extra.encode(),
        )
    except UnicodeEncodeError:
        for part in (text, answer, extra):
            encoded(part)
        raise
    return record, idx, text, answer, number, correct, tokens, logprob, entropy, finished, extra, mark
