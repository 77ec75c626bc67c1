"""Templates: what is filled in, what stays, what is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute import pool
from adacompute.answers import Task, extract_answer
from adacompute.errors import ProblemsInvalid
from adacompute.pool import fingerprint
from adacompute.problems import PRESETS, Template, template_names, template_path
from adacompute.problems.presets import reveals_answer
from adacompute.problems.template import Turn
from adacompute.records import Problem

SUM = Problem(id="p1", question="What is 6 times 7?", gold="42", subject="sums", level=2)
HOLE = re.compile(r"\{[^\W\d]\w*\}")
plain_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
braces = st.text("{}abc_1 é\\$")


def asking(text: str, **options: object) -> Template:
    """A template whose system turn is the text."""
    return Template(name="own", turns=(Turn("system", text), Turn("user", "{question}")), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", template_names())
def test_every_template_of_the_package_asks_the_question_and_reads_answers(name: str):
    template = Template.named(name)
    problem = Problem(id="p", question="Which one?", gold="SECRET", extra={"choices": ["red", "blue"]})
    messages = template.messages(problem)
    assert messages[-1]["role"] == "user"
    assert "Which one?" in messages[-1]["content"]
    assert "SECRET" not in str(messages)
    assert template.extract is not None
    reply = "So \\boxed{B}." if template.extract == "boxed" else "Answer: B"
    assert extract_answer(reply, Task(extract=template.extract)) == "B"
    assert Template.read(template_path(name)) == template


def test_the_package_has_the_templates_that_presets_name():
    assert {"plain", "boxed", "answer-line", "choice"} <= set(template_names())
    for preset in PRESETS.values():
        assert preset.template in template_names()
        assert Template.named(preset.template).extract == preset.extract


def test_boxed_is_the_prompt_of_the_recordings():
    assert Template.named("boxed").messages(SUM) == [
        {
            "role": "system",
            "content": "Please reason step by step, and put your final answer within \\boxed{}.",
        },
        {"role": "user", "content": "What is 6 times 7?"},
    ]


def test_answer_line_is_the_prompt_of_the_bundled_facts():
    *before, last = Template.named("answer-line").messages(SUM)
    assert [message["role"] for message in before] == ["system", "user", "assistant"]
    assert last == {"role": "user", "content": "What is 6 times 7?"}
    card = (Path(pool.__file__).parent / "recordings" / "facts.md").read_text("utf-8")
    assert all(f"`{message['content']}`" in card for message in before)


def test_choices_are_lettered_lines():
    problem = Problem(id="p", question="Which?", extra={"choices": ["red", "blue", "no {gold}"]})
    last = Template.named("choice").messages(problem)[-1]["content"]
    assert last == "Which?\n\nA) red\nB) blue\nC) no {gold}"


@given(braces)
def test_braces_that_are_no_name_survive(text: str):
    if HOLE.search(text) or not text:
        return
    assert asking(text).messages(SUM)[0]["content"] == text


@given(plain_text, st.text("{}question gold", max_size=30))
def test_what_is_filled_in_is_never_looked_into_again(before: str, question: str):
    text = before.replace("{", "(") + " {question}"  # a blank: no LaTeX command's argument
    problem = Problem(id="p", question=question, gold="SECRET", extra={"note": "{gold}{{question}}"})
    content = Template(name="own", turns=(Turn("user", text + "{note}"),)).messages(problem)[0]["content"]
    assert content == before.replace("{", "(") + " " + question + "{gold}{{question}}"


@given(st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True))
def test_doubled_braces_write_the_name_itself(name: str):
    assert asking(f"a {{{{{name}}}}} b").messages(SUM)[0]["content"] == f"a {{{name}}} b"


def test_every_key_of_the_problem_may_be_filled_in_but_the_gold():
    problem = Problem(
        id="p", question="Why?", gold="x", subject="s", level=2.5, extra={"n": 3, "yes": True, "l": [1, "é"]}
    )
    text = asking("{subject} {level} {n} {yes} {l}").messages(problem)[0]["content"]
    assert text == 's 2.5 3 true [1, "é"]'


@pytest.mark.parametrize(
    "name",
    [
        *("answer", "Answer", "target", "solution", "answerKey", "answer_key", "answer_index", "cot_content"),
        *("correct_answer", "Correct_Answer", "rationale", "explanation", "final_answer", "ground_truth"),
        *("answers", "Solutions", "metadata"),
    ],
)
def test_no_column_that_holds_the_answer_may_be_filled_in(name: str):
    with pytest.raises(ProblemsInvalid, match=f"{{{name}}} would give the answer away"):
        asking(f"It is {{{name}}}.")
    with pytest.raises(ProblemsInvalid, match="it has level, question, subject "):
        asking("{topic}").messages(replace(SUM, extra={name: "42"}))
    assert asking(f"Write {{{{{name}}}}}.").messages(SUM)[0]["content"] == f"Write {{{name}}}."


def test_every_column_that_a_preset_reads_the_answer_from_is_known_to_hold_it():
    for preset in PRESETS.values():
        right = preset.columns["choices"][:1] if preset.choices == "shuffled" else preset.columns["gold"]
        assert [name for name in right if not reveals_answer(name)] == []


@pytest.mark.parametrize(
    "text",
    ["Put it in \\boxed{answer}.", "\\text{word} or \\frac{a}{gold}", "\\operatorname*{answer}", "\\boxed{}"],
)
def test_what_a_latex_command_holds_stays(text: str):
    assert asking(text).messages(SUM)[0]["content"] == text
    assert asking(text).placeholders == {"question"}


def test_a_template_knows_its_holes():
    assert Template.named("choice").placeholders == {"question", "choices"}
    assert asking("{level} {{subject}} \\boxed{x} \\boxed{{{level}}}").placeholders == {"question", "level"}


def test_roles_may_have_capitals_and_other_bracketed_words_are_text():
    text = "[System]\nShort.\n[USER]\n{question}\n[Note]\n\\[User]\n"
    assert Template.parse(text, name="t").turns == (
        Turn("system", "Short."),
        Turn("user", "{question}\n[Note]\n[User]"),
    )


def test_an_unknown_name_is_named_with_those_there_are():
    with pytest.raises(ProblemsInvalid) as caught:
        asking("It is {topic}.").messages(SUM)
    message = str(caught.value)
    assert "'own' asks for {topic}" in message
    assert "problem 'p1'" in message
    assert "level, question, subject" in message
    assert "{{topic}}" in message
    assert "42" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [user] turn holds {question}"),
        ("[user]\nhello", "no [user] turn holds {question}"),
        ("[system]\n{question}\n[user]\nhello", "no [user] turn holds {question}"),
        ("[user]\n{{question}}", "no [user] turn holds {question}"),
        ("[user]\n{question} {gold}", "{gold} would give the answer away"),
        ("[user]\n{question} {answer}", "{answer} would give the answer away; remove it (write {{answer}}"),
        ("[user]\n{question}\n[User]\n", "a turn [user] is empty"),
        ("[SYSTEM]\n{question}\n[User]\nhello", "no [user] turn holds {question}"),
        ("[user]\n\\text{question}", "no [user] turn holds {question}"),
        ("[user]\n{question}\n[assistant]\nSure:", "ends with [assistant]"),
        ("[user]\n{question}\n[user]\n\n", "a turn [user] is empty"),
        ("[usr]\n{question}", "line 1: there is no role [usr]; did you mean [user]?"),
        ("[user]\n{question}\n[note]\nx", r"line 3: there is no role [note]; the roles are"),
        ("extract: boxd\n[user]\n{question}", "extractor 'boxd' is not known"),
        ("extract: boxed\nextract: line\n[user]\n{question}", "line 2 is 'extract: line'"),
        ("model: x\n[user]\n{question}", "line 1 is 'model: x' before the first role"),
        ("What is {question}?", "line 1 is 'What is {question}?' before the first role"),
    ],
)
def test_a_template_that_cannot_ask_is_refused_in_one_line(tmp_path: Path, text: str, said: str):
    path = tmp_path / "own.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(ProblemsInvalid) as caught:
        Template.read(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path):
    with pytest.raises(ProblemsInvalid, match="there is no such file"):
        Template.read(tmp_path / "none.txt")
    with pytest.raises(ProblemsInvalid, match="is a folder"):
        Template.read(tmp_path)
    (tmp_path / "t.txt").write_bytes(b"[user]\n\xff{question}")
    with pytest.raises(ProblemsInvalid, match="not UTF-8 at byte 8"):
        Template.read(tmp_path / "t.txt")
    (tmp_path / "t.txt").write_bytes(b"[user]\n{question}" + b"x" * (1 << 20))
    with pytest.raises(ProblemsInvalid, match="a template is a short text"):
        Template.read(tmp_path / "t.txt")
    with pytest.raises(ProblemsInvalid, match=r"no template 'boxd'; did you mean boxed\?"):
        Template.named("boxd")


def test_notes_blank_lines_and_line_ends_are_no_part_of_the_prompt(tmp_path: Path):
    (tmp_path / "t.txt").write_bytes(
        b"\xef\xbb\xbf# a note\r\n\r\nextract: line\r\n\r\n[user]\r\n\r\n"
        b"  # kept {question}\r\n\r\nend \r\n\r\n"
    )
    template = Template.read(tmp_path / "t.txt")
    assert template.turns == (Turn("user", "  # kept {question}\n\nend"),)
    assert (template.name, template.extract) == ("t", "line")


def test_a_line_like_a_role_is_written_with_a_backslash():
    text = "[user]\n{question}\n\\[user]\n\\\\[user]\nx \\[user]\n[1]"
    (turn,) = Template.parse(text, name="t").turns
    assert turn.text == "{question}\n[user]\n\\[user]\nx \\[user]\n[1]"


def test_equal_prompts_have_equal_fingerprints_and_others_not(tmp_path: Path):
    copy = tmp_path / "mine.txt"
    copy.write_text(template_path("boxed").read_text("utf-8").replace("# For", "# My notes: for"), "utf-8")
    stored = Template.named("boxed").to_dict()
    assert fingerprint(Template.read(copy).to_dict()) == fingerprint(stored)
    copy.write_text(copy.read_text("utf-8").replace("Please reason", "Reason"), "utf-8")
    assert fingerprint(Template.read(copy).to_dict()) != fingerprint(stored)


def test_a_stored_template_asks_as_before():
    template = Template.named("answer-line")
    again = Template.from_dict(template.to_dict())
    assert again.messages(SUM) == template.messages(SUM)
    for wrong in (
        {},
        {"messages": [{"role": "user"}]},
        {"messages": 5},
        {"messages": [{"role": 1, "content": 2}]},
    ):
        with pytest.raises(ProblemsInvalid, match="not a stored template"):
            Template.from_dict(wrong)
