"""One root, a docstring that draws the whole tree, and the parts that many messages share."""

import inspect

import numpy as np

from adacompute import errors
from adacompute.records import format_points


def test_every_error_has_the_one_root_and_is_drawn_in_the_docstring():
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    for name, kind in classes.items():
        assert issubclass(kind, errors.AdacomputeError)
        assert name in (errors.__doc__ or "")


def test_a_long_value_is_shortened_in_a_message():
    assert errors.format_value(0.25) == "0.25"
    assert errors.format_value("a\nb") == "'a\\nb'"
    assert len(errors.format_value("x" * 500)) == 60
    assert errors.format_value(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert errors.format_value([0] * 500) == "[0, 0, 0, 0, 0, 0, ...]"
    assert errors.format_value(10**5000) == "a value of type int that is too long to write"


def test_a_name_is_suggested_only_where_one_is_close():
    assert errors.suggest_name("facs", ["facts", "words"]) == "did you mean facts? "
    assert errors.suggest_name("facs", ["facts", "faces"], limit=2) == "did you mean facts or faces? "
    assert errors.suggest_name("zzz", ["facts", "words"]) == ""


def test_counts_and_points_are_written_as_one_says_them():
    assert errors.format_count(1, "sample") == errors.format_count("1", "sample") == "1 sample"
    assert errors.format_count(1200, "sample") == "1,200 samples"
    assert errors.format_count("1.5", "sample") == "1.5 samples"
    assert [format_points(share) for share in (-0.0004, 0.0, 0.067)] == ["+0.0", "+0.0", "+6.7"]
