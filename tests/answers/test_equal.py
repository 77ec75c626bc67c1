"""Answer -> class: laws beyond the hand-judged cases."""

import asyncio
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Classes, Task, classify, same_answer
from adacompute.answers.normalise import clear_form_cache, normalise
from adacompute.errors import TaskError
from timing import find_least, measure_work

ANY_TEXT = st.text(st.characters(codec=None), max_size=60)
PIECES = st.lists(
    st.sampled_from(
        [
            "\\frac",
            "\\sqrt",
            *"{}()[]12xy+-*/^_,=<%$°!|.:ei",
            "30",
            "0.5",
            "\\pi",
            "\\le",
            "sin",
            "\\log",
            "cm",
            "and",
            "\\{",
        ]
    ),
    max_size=14,
)
FORMULAS = PIECES.map("".join) | PIECES.map(" ".join)
ANSWERS = ANY_TEXT | FORMULAS
OFTEN = st.sampled_from(
    ["1", "1.0", "2/2", "12 cm", "12", "12 m", "a", "A", "(A)", "0.5", "50%", "1/2", "x=1", None]
)


@given(ANSWERS)
def test_every_answer_equals_itself_and_none_equals_nothing(answer):
    assert same_answer(answer, answer)
    assert not same_answer(answer, None)
    assert not same_answer(None, None)


@given(ANSWERS)
def test_every_answer_has_one_hashable_form(answer):
    form = normalise(answer)
    clear_form_cache()
    assert form == normalise(answer)
    assert isinstance(hash(form), int)


@settings(deadline=None)  # a pair may be put to the slow judge
@given(ANSWERS, ANSWERS)
def test_equality_is_symmetric(a, b):
    assert same_answer(a, b) == same_answer(b, a)


@given(st.fractions(max_denominator=10_000), st.fractions(max_denominator=10_000))
def test_fractions_are_the_same_just_when_their_values_are(a, b):
    for x, y in ((a, b), (a, a)):
        latex = f"\\frac{{{y.numerator}}}{{{y.denominator}}}"
        assert same_answer(f"{x.numerator}/{x.denominator}", latex) == (x == y)


@given(st.integers(-(10**12), 10**12))
def test_a_whole_number_is_the_same_however_it_is_written(n):
    for other in (
        f"{n:,}",
        f"${n}$",
        f"{n}.0",
        f"\\boxed{{{n}}}",
        f"x = {n}",
        f"{n}.",
        f"\\text{{{n}}}",
        f"{n} cm",
    ):
        assert same_answer(str(n), other), other
    assert not same_answer(str(n), str(n + 1))


@given(st.decimals(-1000, 1000, places=3), st.decimals(-1000, 1000, places=3))
def test_short_decimals_are_the_same_just_when_their_values_are(a, b):
    assert same_answer(str(a), str(b)) == (Fraction(a) == Fraction(b))


def test_a_long_decimal_is_what_it_rounds_and_a_short_one_is_not():
    assert same_answer("0.3333333333", "1/3")
    assert same_answer("0.9995117188", r"\frac{2047}{2048}")
    assert same_answer("282.7433388230814", r"90\pi")
    assert not same_answer("0.3333333334", "1/3")
    assert not same_answer("0.33333333", "1/3")
    assert not same_answer("0.9403055634832697", "0.9403055634832698")
    assert classify(["0.3333333333", "1/3", "0.333"]) == [0, 0, 1]


@given(st.lists(OFTEN, max_size=12))
def test_classes_are_numbered_by_first_appearance_and_none_is_minus_one(answers):
    numbers = classify(answers)
    seen = []
    for answer, number in zip(answers, numbers, strict=True):
        assert (number == -1) == (answer is None)
        if number >= 0 and number not in seen:
            seen.append(number)
    assert seen == list(range(len(seen)))


@given(st.lists(st.tuples(OFTEN, st.sampled_from([None, 0, 1, 0.5])), max_size=12))
def test_answers_with_different_labels_never_share_a_class(labelled):
    numbers = classify([answer for answer, _ in labelled], [label for _, label in labelled])
    for number in set(numbers) - {-1}:
        labels = {label for (_, label), n in zip(labelled, numbers, strict=True) if n == number}
        assert len(labels - {None}) <= 1


@settings(deadline=None)
@given(st.lists(OFTEN | ANSWERS, max_size=10))
def test_the_async_form_gives_the_same_classes(answers):
    async def place():
        classes = Classes()
        return [await classes.place_async(answer) for answer in answers]

    assert asyncio.run(place()) == classify(answers)


def test_a_class_keeps_the_first_unit_it_sees():
    assert classify(["12 cm", "12", "12 m", "12 centimetres"]) == [0, 0, 1, 0]
    assert classify(["12", "12 m", "12 cm", "12"]) == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("(1,200)", "(1, 200)", True),
        ("(1,200)", "1200", False),
        ("(1,000)", "1000", True),
        ("\\{1,200\\}", "\\{200, 1\\}", True),
        ("\\frac{1,200}{3}", "400", True),
        ("1e-5 m", "0.00001", True),
        ("100 - 90s^2", "10", False),
        ("Dry", "dry", True),
        ("Xe", "xe", True),
        ("no", "on", False),
        ("04:12", "4:12", True),
        ("\\cos^{-1}(0)", "\\frac{\\pi}{2}", True),
        ("2\\cdott", "2t", True),
        ("\\lfloor 2.5 \\rfloor", "2", True),
        ("\\sin 30^\\circ", "1/2", True),
        ("5 million", "5,000,000", True),
        ("100 km/h", "100 kilometers per hour", True),
        ("x \\ge 5", "[5, \\infty)", True),
        ("[1, 2, 3]", "[1,2,3]", True),
        ("[1, 2, 3]", "[3, 2, 1]", False),
        ("0/0", "0", False),
    ],
)
def test_further_pairs(a, b, same):
    assert same_answer(a, b) is same_answer(b, a) is same


def test_percent_means_what_the_task_says():
    assert [same_answer("50%", other) for other in ("50", "0.5")] == [True, False]
    fraction = Task(percent="fraction")
    assert [same_answer("50%", other, fraction) for other in ("50", "0.5")] == [False, True]


def test_a_formula_that_is_too_large_equals_only_itself():
    assert same_answer("9^{9^{9}}", "9^{9^{9}} ")
    assert not same_answer("9^{9^{9}}", "9^{9^{10}}")


def test_repeated_answers_cost_less_than_new_ones():
    answers = [f"\\frac{{{n}}}{{7}}" for n in range(50)] * 400
    limit = 400 * max(measure_work(lambda: classify(answers[:50])), 1e-4)
    assert max(classify(answers)) == 49
    assert find_least(lambda: measure_work(lambda: classify(answers)), limit) < limit


@pytest.mark.parametrize("bad", [5, b"5", ["5"], 5.0])
def test_what_is_no_answer_is_refused_by_name(bad):
    for call in (lambda: same_answer(bad, "5"), lambda: same_answer("5", bad), lambda: classify([bad])):
        with pytest.raises(TaskError) as caught:
            call()
        assert repr(bad) in str(caught.value)


def test_a_string_is_not_a_list_of_answers():
    with pytest.raises(TaskError, match="one string"):
        classify("12")
    with pytest.raises(TaskError, match="2 answers have 1 labels"):
        classify(["1", "2"], [1])
