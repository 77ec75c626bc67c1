"""One root, and a docstring that draws the whole tree."""

import inspect

from adacompute import errors


def test_every_error_has_the_one_root_and_is_drawn_in_the_docstring():
    classes = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    assert sorted(classes) == errors.__all__
    for name, kind in classes.items():
        assert issubclass(kind, errors.AdacomputeError)
        assert name in (errors.__doc__ or "")
