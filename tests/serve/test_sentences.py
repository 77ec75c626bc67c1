"""Votes on answers in sentences: through the gateway they are never less often right than one sample is.

The traffic is scripted: each request has its own row of samples, right with a fixed probability, in mixed
phrasings. What one sample is worth is the first of each row, so both sides see the same traffic.
"""

import json
import math
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from behaviours import Reply
from running import Answer, Running

from upstream import Upstream

REQUESTS = 60  # of each kind of question
LONGEST = 32  # samples of one request that are written beforehand
SILENT = ("I don't know.", "I'm not sure.", "I'm sorry, but I can't tell.", "That cannot be determined.")


@dataclass(frozen=True)
class Kind:
    """A question, the ways to say its answer and wrong ones, and how often a sample is right or silent."""

    question: str
    right: tuple[str, ...]
    wrong: tuple[tuple[str, ...], ...]  # of each wrong answer, how it is said
    share: float
    silent: float = 0.05

    def draw(self, rng: random.Random) -> str:
        """One sample."""
        if rng.random() < self.silent:
            return rng.choice(SILENT)
        return rng.choice(self.right if rng.random() < self.share else rng.choice(self.wrong))


KINDS = {
    "fact": Kind(
        "What is the capital of Australia?",
        (
            "Canberra",
            "The capital of Australia is Canberra.",
            "Canberra is the capital of Australia.",
            "It's Canberra!",
            "I believe the capital is **Canberra**.",
            "Canberra. It lies inland.",
        ),
        (("Sydney.", "The capital of Australia is Sydney.", "It's Sydney, of course."),),
        0.65,
    ),
    "name": Kind(
        "Who wrote Faust?",
        ("Goethe", "Faust was written by Goethe.", "Goethe wrote Faust.", "It was written by Goethe."),
        (
            ("Schiller wrote Faust.", "Schiller"),
            ("It's by Lessing.", "Faust was written by Lessing."),
            ("Heine.", "I think it was Heine."),
        ),
        0.6,
    ),
    "yes or no": Kind(
        "Is a whale a fish?",
        ("No", "No, a whale is a mammal.", "No, it isn't.", "A whale is not a fish.", "Not at all!"),
        (("Yes.", "Yes, a whale is a fish.", "A whale is a fish."),),
        0.65,
    ),
    "choice": Kind(
        "Which of these is a mammal?\nA) Shark\nB) Dolphin\nC) Trout\nD) Frog",
        ("B", "The answer is B) Dolphin.", "Dolphin", "The dolphin is a mammal.", "(B)", "It's B."),
        (("A", "It's the shark.", "The answer is A."), ("C) Trout", "Trout."), ("D", "The frog.")),
        0.6,
    ),
    "either": Kind(
        "Is a tomato a fruit or a vegetable?",
        ("A fruit.", "A tomato is a fruit.", "It's a fruit, not a vegetable.", "Fruit"),
        (("A vegetable.", "It is a vegetable."),),
        0.65,
    ),
    "date": Kind(
        "When did World War I end?",
        (
            "It ended on 11 November 1918.",
            "November 11, 1918",
            "1918-11-11",
            "World War I ended on November 11th, 1918.",
        ),
        (
            ("It ended on 28 June 1919.", "June 28, 1919"),
            ("11 November 1919.", "It ended on November 11, 1919."),
        ),
        0.7,
    ),
    "year": Kind(
        "In what year did the Titanic sink?",
        ("1912", "The Titanic sank in 1912.", "It sank on 15 April 1912.", "In April 1912."),
        (("1910", "It sank in 1910."), ("The Titanic sank in 1914.", "1914")),
        0.65,
    ),
    "quantity": Kind(
        "How far is it from Paris to Brussels?",
        ("300 km", "It is about 300 km.", "About 300 kilometres.", "The distance is 300 km (186 miles)."),
        (("300 miles.", "It's 300 miles."), ("It is about 200 km.", "200 kilometers"), ("500 km",)),
        0.6,
    ),
    "count": Kind(
        "How many continents are there?",
        (
            "7",
            "Seven.",
            "There are seven continents.",
            "There are 7 continents on Earth.",
            "Seven continents",
        ),
        (("Six", "There are 6 continents."), ("There are five continents.", "5")),
        0.65,
    ),
    "list": Kind(
        "What are the three primary colors of light?",
        (
            "Red, green and blue.",
            "blue, red, green",
            "The three primary colors of light are red, green, and blue.",
            "- Red\n- Green\n- Blue",
        ),
        (
            ("Red, yellow and blue.", "The primary colors are red, yellow, and blue."),
            ("Cyan, magenta and yellow.",),
        ),
        0.7,
    ),
}


class Traffic:
    """The samples of each request, which its first message names, in a fixed order."""

    def __init__(self, kinds: dict[str, Kind], *, seed: int) -> None:
        self.rows = {
            f"{name} {number}": [kind.draw(rng) for _ in range(LONGEST)]
            for name, kind in kinds.items()
            for rng in [random.Random(f"{name} {seed}")]
            for number in range(REQUESTS)
        }
        self.given: Counter[str] = Counter()

    def __call__(self, _number: int, body: dict[str, Any]) -> Reply:
        name, count = body["messages"][0]["content"], body.get("n", 1)
        first = self.given[name]
        self.given[name] += count
        return Reply(texts=self.rows[name][first : first + count], logprobs=False)


def ask(gate: Running, name: str, kind: Kind) -> Answer:
    messages = [{"role": "system", "content": name}, {"role": "user", "content": kind.question}]
    return gate.ask({"model": "m", "messages": messages, "temperature": 0.8})


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[tuple[bool, bool, dict[str, Any]]]]:
    """Of each kind and request: whether its first sample is right, whether the reply is, and its vote."""
    traffic = Traffic(KINDS, seed=16)
    results: dict[str, list[tuple[bool, bool, dict[str, Any]]]] = {name: [] for name in KINDS}

    def serve(place: tuple[str, int]) -> None:
        name, number = place
        kind, key = KINDS[name], f"{name} {number}"
        reply = ask(gate, key, kind).json
        said = reply["choices"][0]["message"]["content"]
        results[name].append((traffic.rows[key][0] in kind.right, said in kind.right, reply["adacompute"]))

    with Upstream(traffic) as up, Running(up.url, budget=4.0) as gate, ThreadPoolExecutor(8) as pool:
        list(pool.map(serve, [(name, number) for number in range(REQUESTS) for name in KINDS]))
    return results


def count_changes(results: list[tuple[bool, bool, dict[str, Any]]]) -> tuple[int, int]:
    """Requests that the vote made right, and that it made wrong."""
    won = sum(voted and not single for single, voted, _ in results)
    return won, sum(single and not voted for single, voted, _ in results)


@pytest.mark.parametrize("name", KINDS)
def test_no_kind_of_question_is_answered_less_often_right_than_by_one_sample(outcomes, name):
    won, lost = count_changes(outcomes[name])
    # the noise of the difference: two standard errors, of the requests whose outcome changed either way
    assert won - lost >= -2 * math.sqrt(won + lost), (won, lost)


def test_all_kinds_together_are_answered_more_often_right_than_by_one_sample(outcomes):
    results = [result for kind in outcomes.values() for result in kind]
    won, lost = count_changes(results)
    assert won - lost > 5 * math.sqrt(won + lost), (won, lost)
    single, voted = (sum(result[at] for result in results) / len(results) for at in (0, 1))
    assert voted > single + 0.1, (single, voted)


def test_every_answer_that_counts_in_a_vote_has_one_spelling(outcomes):
    for name, kind in KINDS.items():
        answers = {answer for *_, told in outcomes[name] for answer in told["votes"]}
        folded = {answer.lower() for answer in answers}
        assert len(folded) <= 1 + 2 * len(kind.wrong) + 2, answers


def test_samples_that_state_nothing_are_not_paid_for_thrice(outcomes):
    told = [told for kind in outcomes.values() for *_, told in kind if told["agreement"] is None]
    silent = [one["samples"] for one in told if not any("state no answer" in note for note in one["notes"])]
    assert max(silent, default=0) <= 2


VIETNAM = Kind(
    "What is the capital of Vietnam?",
    ("The capital of Vietnam is Hanoi.",),
    (("Ho Chi Minh City.",),),
    0.75,
    silent=0.0,
)


def test_a_majority_in_sentences_beats_a_minority_in_a_few_words():
    traffic = Traffic({"vietnam": VIETNAM}, seed=3)
    names = list(traffic.rows)
    with Upstream(traffic) as up, Running(up.url, budget=4.0) as gate, ThreadPoolExecutor(4) as pool:
        replies = [answer.json for answer in pool.map(lambda name: ask(gate, name, VIETNAM), names)]
    said = [reply["choices"][0]["message"]["content"] for reply in replies]
    right = sum(text in VIETNAM.right for text in said)
    single = sum(traffic.rows[name][0] in VIETNAM.right for name in names)
    assert right > single
    assert right > 0.85 * REQUESTS
    assert all(not reply["adacompute"].get("abstained") for reply in replies)
    assert {answer for reply in replies for answer in reply["adacompute"]["votes"]} == {
        "Hanoi",
        "Ho Chi Minh City",
    }


def in_turn(*texts: str) -> Any:
    """A script that gives these texts one after the other, and the last one for ever."""
    rest = list(texts)

    def script(_number: int, body: dict[str, Any]) -> Reply:
        given = [rest.pop(0) if len(rest) > 1 else rest[0] for _ in range(body.get("n", 1))]
        return Reply(texts=given, logprobs=False)

    return script


@pytest.mark.parametrize(
    "silent", ["I don't know.", "Much has been written of the long and moving history of that land."]
)
def test_an_answer_that_only_a_minority_states_does_not_win(silent):
    first = "The capital of Vietnam is Hue."
    with Upstream(in_turn(first, silent)) as up, Running(up.url, price=0.0001) as gate:
        answer = ask(gate, "", VIETNAM)
    told = answer.json["adacompute"]
    assert (told["answer"], told["agreement"]) == (None, None)
    assert any(note.startswith("no vote: ") for note in told["notes"])
    assert answer.json["choices"][0]["message"]["content"] == first


def test_an_abstention_does_not_keep_later_samples_from_answering():
    with Upstream(in_turn("I don't know.", "It's Hanoi!")) as up, Running(up.url, price=0.001) as gate:
        reply = ask(gate, "", VIETNAM).json
    assert reply["adacompute"]["answer"] == "Hanoi"
    assert reply["choices"][0]["message"]["content"] == "It's Hanoi!"


@pytest.mark.parametrize(
    ("text", "samples"),
    [("I don't know.", 2), ("Much has been written of the long and moving history of that land.", 1)],
)
def test_where_nothing_is_stated_few_samples_are_spent(text, samples):
    with Upstream(in_turn(text)) as up, Running(up.url, price=0.0001) as gate:
        told = ask(gate, "", VIETNAM).json["adacompute"]
    assert (told["samples"], told["agreement"]) == (samples, None)
    assert any(note.startswith("no vote: ") for note in told["notes"])


def test_votes_that_are_paid_for_count_even_if_the_first_sample_of_their_wave_says_nothing():
    script = in_turn("The Earth is an ellipsoid.", "No.")
    body = {
        "model": "m",
        "temperature": 0.7,
        "messages": [{"role": "user", "content": "Is the Earth flat? Answer yes or no."}],
    }
    with Upstream(script) as up, Running(up.url, price=0.0001) as gate:
        told = gate.ask(body).json["adacompute"]
    assert told["samples"] > 2
    assert told["answer"] == "No"
    assert told["abstained"] == 1


@pytest.mark.parametrize(
    ("question", "texts", "votes"),
    [
        (
            "Was ist die Hauptstadt von Australien?",
            ("Die Hauptstadt von Australien ist Sydney.", "Das ist Canberra.", "Canberra"),
            {"Sydney", "Canberra"},
        ),
        (
            "Il y a 9 bouteilles dans chacune des 3 caisses. Combien de bouteilles y a-t-il ?",
            ("Il y a 24 bouteilles.", "Il y a 27 bouteilles.", "Cela fait 27 bouteilles."),
            {"24", "27"},
        ),
        ("¿Es 91 un número primo?", ("Sí.", "No, 91 no es un número primo.", "No."), {"Yes", "No"}),
        (
            "What is the capital of Turkey?",
            (
                "It's Istanbul. Is there anything else I can help you with?",
                "The capital of Turkey is Ankara. Would you like to know more?",
                "Ankara",
            ),
            {"Istanbul", "Ankara"},
        ),
        (
            "トルコの首都はどこですか？",
            ("トルコの首都はイスタンブールです。", "アンカラです。", "アンカラ"),
            {"イスタンブール", "アンカラ"},
        ),
    ],
)
def test_answers_in_any_language_are_told_apart_and_the_one_that_most_give_wins(question, texts, votes):
    with Upstream(in_turn(*texts)) as up, Running(up.url, price=0.0001) as gate:
        reply = ask(gate, "", Kind(question, (), (), 0.0)).json
    assert set(reply["adacompute"]["votes"]) == votes
    assert reply["choices"][0]["message"]["content"] in texts[1:]


def test_a_tool_called_with_free_text_costs_one_sample_once_its_route_is_known():
    numbers = count()

    def write() -> dict[str, Any]:
        arguments = {"subject": f"about {next(numbers)}", "body": f"dear {next(numbers)}"}
        function = {"name": "send", "arguments": json.dumps(arguments)}
        return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}

    def script(_number: int, body: dict[str, Any]) -> Reply:
        choices = [{"index": index, "message": write()} for index in range(body.get("n", 1))]
        return Reply(body={"object": "chat.completion", "model": "m", "choices": choices, "usage": None})

    tool = {"type": "function", "function": {"name": "send", "parameters": {"type": "object"}}}
    with Upstream(script) as up, Running(up.url, price=0.0001) as gate:
        samples = [gate.ask(tools=[tool]).json["adacompute"]["samples"] for _ in range(20)]
    assert samples[-12:] == [1] * 12
    assert sum(samples) <= 20 + 8 + 2
