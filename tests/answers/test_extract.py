"""Text -> answer: laws beyond the hand-judged cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers import Task, extract_answer
from adacompute.answers.normalise import trim
from adacompute.errors import TaskError

NAMES = ["auto", "boxed", "phrase", "line", "hash", "number", "choice", "json:answer", "regex:x(.)"]
ANY_TEXT = st.text(st.characters(codec=None), max_size=200)  # lone surrogates and NUL included
MARKS = st.lists(
    st.sampled_from(
        [
            "\\boxed{",
            "}",
            "{",
            "answer is ",
            "Answer: ",
            "####",
            "5",
            "(C)",
            "\n",
            "$",
            "**",
            '"',
            ".",
            " ",
            "\\",
        ]
    ),
    max_size=30,
).map("".join)


@given(ANY_TEXT | MARKS, st.sampled_from(NAMES), st.booleans())
def test_every_text_gives_a_trimmed_answer_or_none(text, name, finished):
    answer = extract_answer(text, Task(name), finished=finished)
    assert answer is None or (answer and answer == answer.strip())


@given(ANY_TEXT | MARKS)
def test_what_was_trimmed_has_no_outer_space_and_is_part_of_the_text(text):
    trimmed = trim(text)
    assert trimmed is None or (trimmed in text and trimmed.strip() == trimmed)


@given(st.integers(-(10**9), 10**9), st.text("ab {}$.\n", max_size=30))
def test_a_box_is_found_whatever_stands_before_it(number, before):
    assert extract_answer(before + f" so \\boxed{{{number}}} it is") == str(number)


def test_a_heading_of_four_signs_is_no_answer_unless_it_comes_last():
    assert extract_answer("#### Case 2: small\n3 + 4 = 7, so there are 7 of them.") == "7"
    assert extract_answer("The capital:\n#### Paris") == "Paris"
    assert extract_answer("#### Case 2: small\nSo it is 7", Task("hash")) == "Case 2: small"


def test_a_box_left_open_is_no_answer_by_another_name():
    assert extract_answer(r"The answer is \(\boxed{18", finished=False) is None
    assert extract_answer(r"The answer is \(\boxed{18") == "18"
    assert extract_answer(r"The final answer is \(", finished=False) is None


def test_only_the_end_of_a_long_text_is_looked_at():
    assert extract_answer("\\boxed{1}" + " " * 70_000 + "none", Task("boxed")) is None
    assert extract_answer(" " * 70_000 + "\\boxed{1}", Task("boxed")) == "1"


def test_an_answer_of_ten_thousand_digits_is_taken_as_written():
    digits = "7" * 10_000
    assert extract_answer(f"It is {digits}") == digits
    assert extract_answer(f'{{"answer": {digits}}}', Task("json:answer")) == digits


def test_a_function_of_the_users_reads_the_whole_text():
    assert extract_answer("x" * 70_000 + "!", Task(lambda text: f" {len(text)}. ")) == "70001"
    assert extract_answer("anything", Task(lambda _: None)) is None


def test_a_function_that_fails_is_named_with_its_text():
    def broken(text):
        raise KeyError(text)

    with pytest.raises(TaskError, match=r"broken.*KeyError.*'some text'"):
        extract_answer("some text", Task(broken))
    with pytest.raises(TaskError, match=r"gave 3.*return a string or None"):
        extract_answer("some text", Task(lambda _: 3))


@pytest.mark.parametrize("text", [None, 5, b"bytes"])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(TaskError, match="not a text"):
        extract_answer(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"answer": [1, 2.50, "a"]}', '[1, 2.50, "a"]'),
        ('{"answer": {"x": true, "y": null}}', '{"x": true, "y": null}'),
        ('{"answer": NaN}', "NaN"),
        ('{"answer": 5} {"other": 6}', None),
    ],
)
def test_a_field_of_json_is_given_as_json_text(text, value):
    assert extract_answer(text, Task("json:answer")) == value


THOUGHTS = st.text(st.characters(exclude_characters="<>"), max_size=60)


@given(THOUGHTS | MARKS, st.text("ab 5.\n", max_size=30).filter(str.strip))
def test_what_was_thought_never_changes_what_was_said(thought, said):
    assert extract_answer(f"<think>{thought}</think>{said}") == extract_answer(said)


@given(THOUGHTS, st.integers(-(10**6), 10**6))
def test_a_tag_outranks_whatever_stands_around_it(around, number):
    assert extract_answer(f"{around}<answer>{number}</answer>{around}") == str(number)


@given(st.integers(-(10**6), 10**6), st.sampled_from(["{}", "**{}**", "${}$", "\\({}\\)", "**{}"]))
def test_a_stated_number_is_read_from_any_wrapping(number, wrapping):
    wrapped = wrapping.format(number)
    for text in (f"The answer is {wrapped}.", f"Answer: {wrapped}", f"**Final answer:** {wrapped}\n\nBye."):
        assert extract_answer(text) == str(number)
    for text in (f"The answer is:\n\n{wrapped}", f"Answer:\n{wrapped}\n\nThat is all there is to say."):
        assert extract_answer(text) == str(number)


@given(
    st.sampled_from("ABCDEFGHIJ"),
    st.sampled_from(["{}", "({})", "**{}**", "{}.", "({}).", "`{}`", "<{}>", "“{}”", "'{}'"]),
    st.booleans(),
)
def test_a_choice_after_a_label_is_read_in_either_case(letter, wrapping, small):
    choice = wrapping.format(letter.lower() if small else letter)
    for label in ("Answer: ", "The answer is ", "答案：", "答案是", "Ответ: ", "La respuesta es ", ""):
        assert extract_answer(label + choice, Task("choice")) == letter
    assert extract_answer(f"So <answer>{choice}</answer>", Task("choice")) == letter


@given(st.sampled_from(["boxed", "choice"]), st.sampled_from(["\\boxed{A}", "Answer: A", "(A)"]))
def test_a_draft_in_a_thought_is_no_box_and_no_choice(extract, thought):
    for said, want in (("So it is 2.", None), ("So \\boxed{B}.", "B")):
        assert extract_answer(f"<think>{thought}</think>{said}", Task(extract)) == want
    # nothing was said at all: the thought is what there is
    text = f"<think>{thought}</think>\n"
    assert extract_answer(text, Task(extract)) == extract_answer(thought, Task(extract))


def test_what_was_cut_off_is_not_taken_from_the_next_line():
    assert extract_answer("Answer:\n\nPar", finished=False) is None
    assert extract_answer("Answer:\n\nParis\n\nThe capital", finished=False) == "Paris"
    assert extract_answer("The answer is:\n$$x = ", finished=False) is None
