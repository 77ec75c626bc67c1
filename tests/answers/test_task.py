"""A task checks itself, and is stored as plain data."""

import pytest

from adacompute.answers import Task
from adacompute.errors import TaskError

GOOD = ["auto", "boxed", "phrase", "line", "hash", "number", "choice", "json:answer", r"regex:(\d+)"]


@pytest.mark.parametrize("extract", GOOD)
@pytest.mark.parametrize("percent", ["unit", "fraction"])
def test_a_stored_task_is_the_task_that_was_stored(extract, percent):
    task = Task(extract, percent=percent)
    assert Task.from_dict(task.to_dict()) == task


@pytest.mark.parametrize(
    "extract", ["", "box", "json:", "json", "regex:", "regex:(", "AUTO", None, 3, ["auto"]]
)
def test_an_unknown_extractor_is_refused_with_the_choices(extract):
    with pytest.raises(TaskError, match="boxed") as caught:
        Task(extract)
    assert repr(extract) in str(caught.value)


def test_an_unknown_meaning_of_percent_is_refused():
    with pytest.raises(TaskError, match=r"'half'.*unit.*fraction"):
        Task(percent="half")


def test_a_function_can_read_answers_but_not_be_stored():
    task = Task(str.upper)
    with pytest.raises(TaskError, match=r"str.upper.*can't be stored"):
        task.to_dict()


@pytest.mark.parametrize("stored", [{"extractor": "auto"}, {"extract": "box"}, [], "auto", {"percent": 5}])
def test_a_stored_task_that_is_none_is_refused(stored):
    with pytest.raises(TaskError):
        Task.from_dict(stored)


def test_a_task_is_a_value():
    assert Task("boxed") == Task("boxed") != Task("line")
    assert len({Task(), Task("auto"), Task("line")}) == 2
