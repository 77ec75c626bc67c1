"""A policy as files: JSON for what is read, npz for arrays. Knows nothing of any policy. No pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

__all__ = ["Artefact", "read_artefact", "write_artefact"]


def write_artefact(
    folder: Path, *, kind: str, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    raise NotImplementedError


def read_artefact(folder: Path) -> "Artefact":
    raise NotImplementedError


class Artefact: ...
