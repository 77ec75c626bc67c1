"""Vote over LLM samples within an average budget, spent where it helps, and measure the gain.

Importing the package imports nothing else of it. A public name is imported from its module when it is first
used (PEP 562), so that a program, and `adacompute --version`, load only what they need. `__init__.pyi` says
which module that is, to type checkers and here.
"""

import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_STUB = __spec__.loader.get_data(f"{__file__}i").decode()  # also if the package is in an archive
_HOMES = {name: module for module, name in re.findall(r"(?m)^from (\S+) import (\w+)", _STUB)}
__all__ = [*sorted((*_HOMES, "__version__"))]  # noqa: PLE0604 - they are texts


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    """Import a public name when it is first used."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package itself: `adacompute.solve` stays the function where the subpackage `solve` is imported.

    Importing a subpackage binds its name in the package. Four of them (evaluate, replay, score, solve) have
    the name of a public function, which has to win.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOMES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
