"""Telling those who only look on. Knows nothing of what they are told.

A reply is paid for before anybody is told of it, and one who counts or writes down must not cost the client
its reply, or the others their word.
"""

import logging
from collections.abc import Callable
from typing import ParamSpec

__all__ = ["Telling"]

P = ParamSpec("P")
_LOG = logging.getLogger("adacompute.serve")


class Telling:
    """Calls them one by one; what one raises is logged, the first time, and goes no further."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def __call__(self, tell: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Tells one."""
        try:
            tell(*args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is
            name = getattr(tell, "__qualname__", repr(tell))
            if name not in self._failed:
                self._failed.add(name)
                _LOG.exception("%s failed; requests go on, and this is not said again", name)
