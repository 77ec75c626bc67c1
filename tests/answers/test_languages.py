"""One reader for every language: replies that mean the same are one answer, and different ones never are."""

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import adacompute as ac
from adacompute.answers.extract import read_in_sandbox, read_replies
from sandboxes import close_sandbox

LANGUAGES = json.loads((Path(__file__).parent.parent / "cases" / "languages.json").read_text("utf-8"))
CASES = LANGUAGES["cases"]
PHRASES = json.loads((Path(__file__).parent.parent / "cases" / "phrases.json").read_text("utf-8"))


def name(case):
    return f"{case['language']} {case['form']}: {case['question']}"[:60]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_replies_read_together_are_one_answer_if_they_mean_the_same_and_only_then(case):
    answers = ac.read_answers(case["same"] + case["other"], case["question"])
    same, other = answers[: len(case["same"])], answers[len(case["same"]) :]
    assert len(set(same)) == 1 or all(ac.same_answer(answer, same[0]) for answer in same), same
    assert None not in answers
    assert not any(ac.same_answer(one, two) for one in same for two in other), (same, other)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_reply_alone_is_read_as_one_among_others_or_not_at_all(case):
    together = ac.read_answers(case["same"] + case["other"], case["question"])
    for text, answer in zip(case["same"] + case["other"], together, strict=True):
        alone = ac.extract_answer(text, question=case["question"])
        assert alone is None or ac.same_answer(alone, answer), (text, alone, answer)


@pytest.mark.parametrize("case", PHRASES["same"], ids=lambda case: case["question"][:40])
def test_english_replies_read_together_are_one_answer(case):
    answers = ac.read_answers(case["replies"], case["question"])
    assert all(ac.same_answer(answer, answers[0]) for answer in answers), answers


@pytest.mark.parametrize("case", PHRASES["different"], ids=lambda case: case["question"][:40])
def test_english_replies_read_together_stay_different(case):
    answers = [answer for answer in ac.read_answers(case["replies"], case["question"]) if answer is not None]
    assert not any(ac.same_answer(a, b) for at, a in enumerate(answers) for b in answers[:at]), answers


@pytest.mark.parametrize(("question", "reply"), LANGUAGES["silent"])
def test_a_reply_that_cannot_tell_abstains_in_every_language(question, reply):
    assert ac.read_answers([reply], question) == [None]


@pytest.mark.parametrize(("question", "reply"), LANGUAGES["beside"])
def test_a_statement_of_something_else_is_no_verdict(question, reply):
    assert ac.read_answers([reply], question) == [None]


@pytest.mark.parametrize(("question", "reply"), LANGUAGES["texts"])
def test_a_text_that_was_asked_for_is_no_answer_in_any_language(question, reply):
    assert ac.read_answers([reply, reply], question) == [None, None]


def test_a_second_reply_may_settle_how_the_first_is_read():
    question, odd = "Ist 51 eine Primzahl?", "Ja, 51 ist keine Primzahl."
    assert ac.extract_answer(odd, question=question) is None
    assert ac.read_answers([odd, "51 ist keine Primzahl."], question) == ["No", "No"]
    sure = [reading.sure for reading in read_replies([odd, "51 ist keine Primzahl."], question)]
    assert sure[0] < sure[1] == 1.0


def test_where_few_replies_can_be_read_none_is():
    replies = ["Hanoi", *["Well, that is a long and winding story, and who would tell it all in a day?"] * 3]
    assert ac.read_answers(replies, "What is the capital of Vietnam?") == [None] * 4
    marked = [r"\boxed{Hanoi}", *replies[1:]]
    assert ac.read_answers(marked, "What is the capital of Vietnam?") == ["Hanoi", None, None, None]


def test_an_unsure_reading_counts_only_beside_a_surer_one_that_agrees():
    question, odd = "Ist 51 eine Primzahl?", "Ja, 51 ist keine Primzahl."
    assert ac.read_answers([odd, odd, odd], question) == [None] * 3
    assert ac.read_answers([odd, odd, "Ja, das ist sie."], question) == [None] * 3
    assert ac.read_answers([odd, odd, "Nein."], question) == ["No"] * 3


def test_a_reply_that_may_mean_one_of_several_means_the_one_that_another_gives():
    question, both = "How many bones has a body?", "An adult has 206 bones. Babies have about 300."
    assert ac.read_answers([both], question) == [None]
    assert ac.read_answers([both, "206 bones."], question) == ["206", "206"]
    assert ac.read_answers([both, both, "About 300.", "206."], question)[:2] == [None, None]


@pytest.mark.slow
def test_the_sandbox_reads_several_replies_alike():
    case = CASES[0]
    texts = case["same"] + case["other"]
    try:
        readings = read_in_sandbox(texts, case["question"], finished=[True] * len(texts))
    finally:
        close_sandbox()
    assert readings == read_replies(texts, case["question"])


# The recorded replies of a small model in eight languages. `correct` was set by simple rules, so that for
# wrong merges each reply is judged once more, by another rule that knows the kind of question.

PRIME = {
    "en": r"\bnot (?:a )?prime",
    "de": r"\bkeine? Primzahl|nicht \w{0,9} ?Primzahl",
    "fr": r"pas (?:un )?(?:nombre )?premier",
    "es": r"\bno es (?:un )?(?:número )?primo",
    "it": r"\bnon è (?:un )?(?:numero )?primo",
    "ru": r"\bне (?:является )?\w{0,9} ?прост",
    "zh": "不是",
    "ja": "ではありません|ではない",
}


def judge(problem, text):
    """What a person takes a reply for, by a rule of its own; None if the rule can't tell."""
    kind, sentence = problem["kind"], re.split(r"(?<=[.!?。])\s|\n", text.strip())[0]
    if kind == "capital":
        return None
    numbers = [n.replace(",", "") for n in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)]
    if kind == "many":
        new = [n for n in numbers if n not in re.findall(r"\d+", problem["question"])]
        return new[-1] if new and len(set(new)) == 1 else None
    if kind == "yesno":
        if len(text) > 120 or not re.search("prim|prem|прост|质数|素数", sentence, re.IGNORECASE):
            return None
        return bool(re.search(PRIME[problem["subject"]], sentence, re.IGNORECASE))
    named = [n for n in numbers if n in re.findall(r"\d+\.\d+", problem["question"])]
    return named[0] if len(set(named)) == 1 else None


def read_prose_recordings(recordings):
    for style in ("brief", "open"):
        with gzip.open(recordings / "prose" / f"prose-{style}-qwen2.5-coder-1.5b.jsonl.gz", "rt") as lines:
            yield from (json.loads(line) | {"style": style} for line in lines)


@pytest.mark.nightly
@pytest.mark.recordings
def test_votes_on_recorded_prose_gain_in_every_kind_and_merge_hardly_ever(recordings):
    single, voted, merged, count = (defaultdict(float) for _ in range(4))
    for problem in read_prose_recordings(recordings):
        samples = problem["samples"]
        flags = [sample.get("correct") for sample in samples]
        known = [flag for flag in flags if flag is not None]
        if not known:
            continue
        texts, finished = [s["text"] for s in samples], [s.get("finished") != 0 for s in samples]
        answers = ac.read_answers(texts, problem["question"], finished=finished)
        mean = sum(known) / len(known)
        votes = Counter(answer for answer in answers if answer is not None)
        won = [
            flag for flag, a in zip(flags, answers, strict=True) if votes and a == votes.most_common(1)[0][0]
        ]
        counted = [flag for flag in won if flag is not None]
        enough = 2 * sum(votes.values()) >= len(answers)
        language = "en" if problem["subject"] == "en" else "others"
        for key in ((problem["kind"], language), (problem["kind"], problem["subject"], problem["style"])):
            count[key] += 1
            single[key] += mean
            voted[key] += sum(counted) / len(counted) if enough and counted else mean
            merged[key] += any(is_merged(problem, texts, answers, answer) for answer in votes)
    gain = {key: (voted[key] - single[key]) / count[key] for key in count}
    for kind in ("capital", "many"):
        fair = [
            k
            for k in count
            if len(k) == 3 and k[0] == kind and k[1] != "en" and 0.3 <= single[k] / count[k] <= 0.8
        ]
        gains = sum(gain[key] * count[key] for key in fair) / sum(count[key] for key in fair)
        assert gains >= 0.07, (kind, gains)
        assert gain[kind, "en"] >= 0
    assert gain["or", "others"] > 0.02
    assert gain["yesno", "others"] > 0
    wrong = {key: merged[key] / count[key] for key in count if len(key) == 2}
    assert max(wrong.values()) <= 0.02, wrong


def is_merged(problem, texts, answers, answer):
    """Whether replies that a person takes for different answers were read as one."""
    if problem["kind"] == "capital":
        flags = {s.get("correct") for s, a in zip(problem["samples"], answers, strict=True) if a == answer}
        return len(flags - {None}) > 1
    verdicts = {judge(problem, text) for text, own in zip(texts, answers, strict=True) if own == answer}
    return len(verdicts - {None}) > 1
