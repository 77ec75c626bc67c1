"""Vote over LLM samples within an average budget, spent where it helps, and measure the gain.

Each public name is imported from its module on first use (PEP 562), so that programs load only what they
need. `__init__.pyi` says which module each name comes from.
"""

import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# `__init__.pyi`, read by the package's loader, so that this also works in a zip archive
_STUB = __spec__.loader.get_data(f"{__file__}i").decode()
_HOMES = {name: module for module, name in re.findall(r"(?m)^from (\S+) import (\w+)", _STUB)}
__all__ = [*sorted((*_HOMES, "__version__"))]  # noqa: PLE0604 - they are texts


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    """Imports a public name on first use."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """A module type that keeps public functions when a subpackage of the same name is imported.

    Otherwise, `import adacompute.solve` would replace the function `adacompute.solve` by the subpackage.
    The same goes for evaluate, replay and score.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _HOMES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
