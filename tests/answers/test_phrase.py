"""The phrase that answers a question: one answer in many sentences, and never two different ones as one."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers import Tally, extract_answer, read_answers, same_answer
from adacompute.answers.extract import abstains, read_in_sandbox
from adacompute.answers.question import read_question
from adacompute.errors import TaskError
from adacompute.records import Sample
from sandboxes import close_sandbox
from timing import find_least, measure_work

CASES = json.loads((Path(__file__).parent.parent / "cases" / "phrases.json").read_text("utf-8"))


def ids(cases):
    return [case["question"][:40] for case in cases]


@pytest.mark.parametrize("case", CASES["same"], ids=ids(CASES["same"]))
def test_every_sentence_of_an_answer_is_that_answer(case):
    answers = {reply: extract_answer(reply, question=case["question"]) for reply in case["replies"]}
    first = answers[case["replies"][0]]
    assert first is not None
    assert not {reply: answer for reply, answer in answers.items() if not same_answer(answer, first)}


@pytest.mark.parametrize("case", CASES["different"], ids=ids(CASES["different"]))
def test_different_answers_are_never_one(case):
    answers = {reply: extract_answer(reply, question=case["question"]) for reply in case["replies"]}
    merged = [
        (one, other) for one, other in combinations(answers, 2) if same_answer(answers[one], answers[other])
    ]
    assert not merged, answers


@pytest.mark.parametrize(("question", "reply"), CASES["silent"])
def test_what_cannot_tell_abstains(question, reply):
    assert extract_answer(reply, question=question) is None
    assert abstains(reply)


@pytest.mark.parametrize(("question", "reply", "answer"), CASES["guesses"])
def test_a_guess_is_an_answer(question, reply, answer):
    assert same_answer(extract_answer(reply, question=question), answer)


@pytest.mark.parametrize(("question", "reply", "answer"), CASES["readings"])
def test_a_sentence_is_read_as_it_is_meant_or_not_at_all(question, reply, answer):
    """A "not", a comparative or a polite word never turns an answer into its opposite."""
    read = extract_answer(reply, question=question)
    assert (read or "").casefold() == (answer or "").casefold()


_LIST = (
    "Hanoi,Ho Chi Minh City,Hue,Da Nang,Mexico City,St. Petersburg,New York,York,Washington D.C.,"
    "Rio de Janeiro,Port-au-Prince,'s-Hertogenbosch,Noto,Isla,Areia,Wasa,Ither,Buta,Andorra la Vella,"
    "Not-on-Sea,Saint-Denis"
)
NAMES = _LIST.split(",")
FRAMES = (
    "{0}",
    "{0}.",
    "{0}!",
    "It's {0}.",
    "**{0}**",
    "I believe it's {0}.",
    "That would be {0}!",
    "{0}, of course.",
    "The capital of Ruritania is {0}.",
    "{0} is the capital of Ruritania.",
    "The answer is {0}.",
    "Answer: {0}",
    "Sure! The capital of Ruritania is {0}.",
    "As far as I know, the capital is {0}.",
    "The capital of Ruritania is {0}, which lies on a river.",
    "{0}. It lies on a river.",
    "I'm not sure, but I think the capital is {0}.",
    "Ruritania's capital is {0}, I think.",
)


@given(
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.sampled_from(FRAMES),
    st.sampled_from(FRAMES),
)
def test_two_names_are_one_only_if_they_are_the_same_in_every_frame(one, other, frame, other_frame):
    question = "What is the capital of Ruritania?"
    first = extract_answer(frame.format(one), question=question)
    second = extract_answer(other_frame.format(other), question=question)
    assert first is not None
    assert same_answer(first, second) == (one == other), (first, second)


@given(
    st.integers(0, 5_000),
    st.integers(0, 5_000),
    st.sampled_from(("{0} km", "It is about {0} km.", "The distance is {0} kilometres.", "{0:,} km")),
)
def test_quantities_are_one_only_if_their_numbers_are(one, other, frame):
    question = "How far is it from Strelsau to Hentzau?"
    first, second = (extract_answer(text, question=question) for text in (f"{one} km", frame.format(other)))
    assert same_answer(first, second) == (one == other), (first, second)


@given(st.dates(), st.dates(), st.sampled_from(("{0:%-d %B %Y}", "It was on {0:%B} {0.day}, {0:%Y}.", "{0}")))
def test_dates_are_one_only_if_they_are_the_same_day(one, other, frame):
    question = "When was it signed?"
    if min(one.year, other.year) < 1000:
        return
    first = extract_answer(f"It was signed on {one:%-d %b %Y}.", question=question)
    second = extract_answer(frame.format(other), question=question)
    assert same_answer(first, second) == (one == other), (first, second)


@given(
    st.lists(
        st.sampled_from(["red", "green", "blue", "white", "black"]), min_size=2, max_size=4, unique=True
    ),
    st.lists(
        st.sampled_from(["red", "green", "blue", "white", "black"]), min_size=2, max_size=4, unique=True
    ),
)
def test_lists_are_one_only_if_they_have_the_same_items(one, other):
    question = "Which colors are on the flag? Name the colors."
    first = extract_answer(f"The colors are {', '.join(one[:-1])} and {one[-1]}.", question=question)
    second = extract_answer(", ".join(other), question=question)
    assert same_answer(first, second) == (set(one) == set(other)), (first, second)


@given(st.text(max_size=300), st.text(max_size=200))
def test_any_reply_to_any_question_is_read_the_same_twice_and_is_text_or_none(reply, question):
    answer = extract_answer(reply, question=question)
    assert answer is None or (isinstance(answer, str) and answer)
    assert extract_answer(reply, question=question) == answer


def test_without_a_question_a_sentence_has_no_phrase():
    assert extract_answer("The capital of Vietnam is Hanoi.") is None
    assert extract_answer("The capital of Vietnam is Hanoi.", question="") is None
    assert extract_answer("I don't know.") == "I don't know"


def test_prose_and_texts_have_no_phrase():
    assert extract_answer("Roses are red.", question="Write a poem about roses.") is None
    prose = "Hanoi has grown for a thousand years. " * 20
    assert extract_answer(prose, question="What is the capital of Vietnam?") is None


def test_a_reply_that_was_cut_off_counts_by_its_whole_sentences():
    question = "What is the chemical symbol for gold?"
    cut = "The chemical symbol for gold is Au. It comes from the Latin"
    assert extract_answer(cut, question=question, finished=False) == "Au"
    assert extract_answer("The chemical symbol for gold is A", question=question, finished=False) is None
    counted = "A day has 24 hours. A week has"
    assert extract_answer(counted, question="How many hours are in a week?", finished=False) is None


def test_the_sandbox_reads_the_same():
    question = "What is the capital of Vietnam?"
    try:
        for reply in ("The capital of Vietnam is Hanoi.", "I don't know.", "It's Hanoi!"):
            (apart,) = read_in_sandbox([reply], question, finished=[True])
            assert apart.answer == extract_answer(reply, question=question)
        long = question + " " * 100_000 + "Be brief."
        assert read_in_sandbox(["It's Hanoi!"], long, finished=[True])[0].answer == "Hanoi"
    finally:
        close_sandbox()


def test_a_question_is_read_from_its_ends():
    filler = "The committee met and talked at length. " * 5_000
    assert read_question(filler + "Is a whale a mammal?").form == "yes_no"
    assert [letter for letter, _ in read_question("Which?\nA) x\nB) y\nC) z").options] == ["A", "B", "C"]


@pytest.mark.slow
def test_c12_hostile_replies_take_no_longer_than_others():
    units = (
        "a|1 |not |I think |is |'s |( |1,1|1-1-|Jan |and |, |\"|one |hundred and |Dr. |- a\n|: |in |yes |! "
    )
    questions = (
        "What is it?",
        "How many?",
        "When did it end?",
        "Is it a or b?",
        "Is it?",
        "Which?\nA) x\nB) y",
    )
    for unit in units.split("|"):
        for question in questions:
            texts = [((unit * 400)[:400], question), ("It's Hanoi.", (unit * 70_000)[:65_536] + question)]
            assert find_least(lambda texts=texts: measure_work(lambda: extract_all(texts)), 0.1) < 0.1


def extract_all(texts: list[tuple[str, str]]) -> None:
    for text, question in texts:
        extract_answer(text, question=question)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("What is the derivative?", "cos(x)", "-cos(x)"),
        ("What is the complexity?", "It is O(n log n).", "It is O(n^2)."),
        ("What is the complexity?", "O(log n)", "O(n)"),
        ("What is the angle?", "π/3", "2π/3"),
        ("Solve the inequality.", "x > 3", "x < 3"),
        ("What is the wavelength?", "It is 5e-7 m.", "It is 3e-7 m."),
        ("Which language is it?", "C++", "C#"),
        ("Which blood type is it?", "It is O-.", "It is O+."),
        ("What is the limit?", "It is +∞.", "It is -∞."),
        ("Where is it?", "See https://a.com/x", "See https://a.com/y"),
        ("Factor x^2-1.", "It is (x+1)(x-1).", "It is (x-2)(x+2)."),
        ("Temperature?", "-5°C", "3°C"),
    ],
)
def test_no_expression_is_cut_apart(question: str, one: str, other: str):
    for replies in ([one, other], [one, one], [other, one, one]):
        read = dict(zip(replies, read_answers(replies, question), strict=True))
        assert len({answer for answer in read.values() if answer is not None}) in (0, len(read))
        assert "Yes" not in read.values()


@pytest.mark.parametrize(
    ("question", "replies", "answer"),
    [
        ("What is 10/4?", ["10/4 = 2.5", "2.5"], "2.5"),
        ("What is x?", ["It says x = 3.", "x=3"], "3"),
        ("Capital?", ["Hanoi (Vietnam)", "It's Hanoi."], "Hanoi"),
        ("Which fruit?", ["apple(s)", "It's an apple."], "apple"),
        ("What is it?", ["T-shirt", "It is a T-shirt."], "T-shirt"),
        ("Is it so?", ["It is.", "Yes"], "Yes"),
    ],
)
def test_what_only_looks_like_an_expression_is_read(question: str, replies: list[str], answer: str):
    assert read_answers(replies, question) == [answer] * 2


@pytest.mark.parametrize("replies", [[None, "a"], "abc"])
def test_replies_that_are_no_list_of_texts_are_refused(replies: object):
    with pytest.raises(TaskError, match="give a list of strings"):
        read_answers(replies, "Which?")  # type: ignore[arg-type]


def test_a_leader_with_less_support_than_the_abstentions_is_no_winner():
    tally = Tally.of(["Ho Chi Minh City", None, None])
    assert (tally.leader, tally.winner, tally.agreement) == ("Ho Chi Minh City", None, 1.0)
    assert tally.support == pytest.approx(1 / 3)
    assert Tally.of(["Hanoi", "Hanoi", None, None]).winner == "Hanoi"
    assert (Tally.of([None]).winner, Tally.of([None]).support) == (None, 0.0)


def test_a_majority_of_labels_in_mixed_phrasings_wins():
    question = "What is the sentiment of this review: 'The food was bad'? Answer positive or negative."
    replies = [
        "Negative",
        "The sentiment is negative.",
        "This is a negative review.",
        "Positive",
        "It's positive.",
    ]
    tally = Tally.of([extract_answer(reply, question=question) for reply in replies])
    assert (tally.winner, tally.agreement) == ("negative", pytest.approx(3 / 5))


def test_opposite_comparisons_are_two_answers():
    question = "Which number is larger, 9.11 or 9.9?"
    replies = ["9.9 is larger than 9.11.", "9.9", "9.11 is larger than 9.9."]
    tally = Tally.of([extract_answer(reply, question=question) for reply in replies])
    assert (tally.winner, tally.agreement) == ("9.9", pytest.approx(2 / 3))


def test_what_was_cut_off_counts_in_the_support_but_outweighs_nobody():
    samples = [Sample(answer="4", finished=True), *[Sample(finished=False)] * 2]
    tally = Tally.of(samples)
    assert (tally.winner, tally.support) == ("4", pytest.approx(1 / 3))
