"""Similar problems are found whatever their order, language or length; one like no other stays alone."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from adacompute.errors import PoolError
from adacompute.pool import join_pools, open_pool
from adacompute.pool.groups import count_groups, find_groups, number_alike
from shared import read_votes

SHOP = "{name} buys {n} apples and {m} pears at the corner shop. How much fruit does {name} carry home?"
TRAIN = "A train leaves at {n} and drives for {m} minutes. At what time does it arrive at the next station?"
HOSTILE = [
    "",
    " \n\t",
    "😀😀 🎉 😀",
    "?!…—",
    "कितने सेब हैं?",
    "كم عدد التفاح في السلة الآن؟",
    "\u200fשלום עולם\u200f",
    "\x00\x01 \ufffd \U0010ffff",
    "word " * 20_000,
    "x" * 100_000,
    "一二三四五六七八九十" * 10_000,
]


def make(template: str, count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    names = ["Ada", "Bo", "Cem", "Dana", "Eli"]
    return [
        template.format(name=rng.choice(names), n=rng.randrange(2, 900), m=rng.randrange(2, 900))
        for _ in range(count)
    ]


def group(*texts: str) -> list[int]:
    return find_groups([f"p{place}" for place in range(len(texts))], texts).tolist()


def test_questions_of_one_template_are_one_group_and_of_another_are_not():
    assert group(*make(SHOP, 7), *make(TRAIN, 7)) == [0] * 7 + [1] * 7


def test_a_chain_of_alike_questions_is_one_group():
    words = [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ]
    chain = [" ".join(words[at : at + 7]) for at in range(0, 6, 2)]
    assert group(*chain, "Who wrote Faust?") == [0, 0, 0, 1]
    assert group(chain[0], chain[2], "Who wrote Faust?") == [0, 1, 2]  # which alone have little in common
    assert group(*chain) == [
        0,
        1,
        2,
    ]  # where all are alike, each is its own: there is nothing else to learn from


def test_numbers_case_and_signs_make_no_difference():
    assert group("Add 2 to 30.", "add 1,234.5 TO 7!", "Who wrote Faust?") == [0, 0, 1]


def test_what_nearly_every_question_says_makes_none_alike():
    """An instruction before every question is no likeness, nor is one template of all."""
    ask = "Please reason step by step, and put your final answer within the box. "
    rest = [
        f"{word} {word}er {word}est {word}ly"
        for word in ["quick", "slow", "warm", "cold", "tall", "deep", "soft", "hard", "wild", "kind"]
    ]
    assert len(set(group(*(ask + text for text in rest)))) == len(rest)


def test_one_question_in_several_languages_is_one_by_its_id():
    ids = ["de/17", "fr/17", "zh-Hant/17", "de/18", "17", "deutsch/17", "de/"]
    texts = [
        "Wie viele?",
        "Combien en tout",
        "多少",
        "Warum nicht?",
        "How much is it",
        "Nenne Faust",
        "Wozu",
    ]
    assert find_groups(ids, texts).tolist() == [0, 0, 0, 1, 2, 3, 4]


def test_chinese_and_japanese_are_compared_by_their_characters():
    texts = [
        "小明有3个苹果，又买了5个，一共有几个苹果？",
        "小明有12个苹果，又买了40个，一共有几个苹果？",
        "法国的首都是哪里？",
    ]
    assert group(*texts) == [0, 0, 1]


def test_the_order_of_problems_changes_nothing_but_the_order():
    texts = [*make(SHOP, 30), *make(TRAIN, 30), *HOSTILE, *read_votes("words").prompts[:60]]
    ids = [f"{'de' if at % 2 else 'fr'}/{at // 2}" if at < 8 else f"p{at}" for at in range(len(texts))]
    found = find_groups(ids, texts)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(texts))
        again = find_groups([ids[at] for at in order], [texts[at] for at in order])
        assert again.tolist() == number_alike(found[order]).tolist()


def test_hostile_texts_are_each_their_own_and_equal_ones_are_one():
    assert group(*HOSTILE, *HOSTILE) == [*range(len(HOSTILE))] * 2
    assert find_groups([], []).tolist() == []


@pytest.mark.parametrize(("name", "groups"), [("words", 34), ("facts", 7)])
def test_templates_of_a_recording_are_found_and_none_are_mixed(name: str, groups: int):
    votes = read_votes(name)
    found = votes.group().groups
    assert count_groups(found) == groups
    of_group = {(group, subject) for group, subject in zip(found.tolist(), votes.subjects, strict=True)}
    assert len(of_group) == groups


def test_groups_stay_with_problems_that_are_selected_and_are_the_questions_before():
    votes = read_votes("words")
    rows = np.arange(3, 400, 5)
    grouped = votes.group()
    assert grouped.only(rows).groups.tolist() == number_alike(grouped.groups[rows]).tolist()
    assert grouped.only(rows).group().groups.tolist() == grouped.only(rows).groups.tolist()
    assert count_groups(votes.groups) == count_groups(grouped.group("none").groups) == len(votes)
    assert count_groups(grouped.group("subject").groups) == 30


def test_groups_may_be_by_any_column_of_the_problems(tmp_path: Path):
    for name in ("a", "b"):
        lines = [
            {
                "id": f"p{at}",
                "question": f"What is {at} and {at}?",
                "subject": None,
                "site": ("north", "south", "south")[at % 3],
                "tags": [at % 2],
                **({"only": "a"} if at else {}),
                "samples": [{"answer": str(2 * at), "correct": 1}],
            }
            for at in range(6)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with open_pool(tmp_path / "a.jsonl") as pool:
        one = pool.ballots()
    with join_pools({name: tmp_path / f"{name}.jsonl" for name in ("a", "b")}) as pool:
        both = pool.ballots()
    for votes in (one, both, both["b"]):
        assert votes.group("site").groups.tolist() == [0, 1, 1, 0, 1, 1]
        assert votes.group("tags").groups.tolist() == [0, 1, 0, 1, 0, 1]
        assert votes.only([1, 3]).group("site").groups.tolist() == [0, 1]
        for name, count in (("only", 1), ("sight", 6), ("subject", 6)):
            said = rf"{count} of 6 problems have no '{name}'.*columns are 'site', 'tags', 'only';"
            with pytest.raises(PoolError, match=said):
                votes.group(name)
