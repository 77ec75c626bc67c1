"""Examples in the study's docstrings give what they show."""

import doctest
import importlib
from pathlib import Path

from kept import Examples

FOLDER = Path(__file__).resolve().parents[1]


def test_every_docstring_example_gives_what_it_shows():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(checker=Examples())
    for file in sorted(FOLDER.glob("[a-z]*.py")):
        module = importlib.import_module(f"studies.paper.{file.stem}")
        for test in finder.find(module, module.__name__):
            runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 5, "the examples in docstrings are no longer found"
