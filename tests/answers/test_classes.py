"""Answer -> class: how much work one answer may cause, and where it is done."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from adacompute.answers import Classes, FormulaJudge, classify, same_answer
from adacompute.answers.normalise import ANSWER_LIMIT, normalise
from timing import find_least, measure_work


class Counting(FormulaJudge):
    """A judge that needs no process, says no, or late, and counts how often it is asked."""

    def __init__(self, verdict=False):
        super().__init__()
        self.verdict = verdict
        self.asked = 0
        self.threads = set()

    def same(self, a, b):
        self.asked += 1
        self.threads.add(threading.current_thread().name)
        return self.verdict

    def warm(self):
        return True


def open_formula(n):
    return "\\sum_{k=1}^{" + "n+" * n + "1} k"  # of another shape each: none is told by its numerals


def test_one_open_formula_is_put_to_the_judge_at_most_eight_times():
    judge = Counting()
    classes = Classes(judge=judge)
    for n in range(25):
        before = judge.asked
        classes.place(open_formula(n))
        assert judge.asked - before == min(n, 8)


def test_all_open_formulas_of_a_request_are_put_to_the_judge_at_most_200_times():
    judge = Counting()
    classes = Classes(judge=judge)
    assert [classes.place(open_formula(n)) for n in range(90)] == list(range(90))
    assert judge.asked == 200


def test_after_four_timeouts_no_more_is_asked():
    judge = Counting(None)
    classes = Classes(judge=judge)
    for n in range(20):
        classes.place(open_formula(n))
    assert judge.asked == 4


def test_an_open_formula_is_compared_with_early_and_late_classes():
    class Knows(Counting):
        def same(self, a, b):
            super().same(a, b)
            return {a, b} in ({"\\lim a", "\\lim aa"}, {"\\lim b", "\\lim bb"})

    classes = Classes(judge=Knows())
    first = classes.place("\\lim a")
    for n in range(20):
        classes.place(open_formula(n))
    last = classes.place("\\lim b")
    assert classes.place("\\lim aa") == first
    assert classes.place("\\lim bb") == last


def test_formulas_of_one_shape_are_told_apart_without_the_judge():
    judge = Counting(True)
    classes = Classes(judge=judge)
    assert [classes.place(f"x \\equiv {n} \\pmod 7") for n in range(7)] == list(range(7))
    assert judge.asked == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        [f"0.33333333{n:08d}" for n in range(2_000)],
        [f"5 {'ab' * (n // 90 + 2)}{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}" for n in range(1_000)],
    ],
    ids=["long decimals", "units"],
)
def test_the_work_for_one_answer_doesn_t_grow_with_their_number(answers):
    def place(count: int) -> None:
        classes = Classes()
        for answer in answers[:count]:
            classes.place(answer)

    limit = 4 * 2 * min(measure_work(lambda: place(len(answers) // 4)) for _ in range(3))
    # twice what four times the answers would take; quadratic work takes four times it
    assert find_least(lambda: measure_work(lambda: place(len(answers))), limit) < limit


def test_many_labels_of_one_value_cost_no_more_than_few():
    def work() -> None:
        numbers = classify(["5"] * 5_000 + ["5.0"] * 5_000, [*range(5_000)] * 2)
        assert numbers == [*range(5_000)] * 2

    assert find_least(lambda: measure_work(work), 5) < 5


def test_units_and_labels_seen_before_find_their_class_however_many_there_are():
    classes = Classes()
    first = [classes.place(f"5 {'b' * n}ox") for n in range(1, 60)]
    assert [classes.place(f"5.0 {'b' * n}ox") for n in range(1, 60)] == first
    assert classes.place("5") == 0


def test_waiting_for_the_judge_leaves_the_event_loop_s_own_threads_free():
    judge = Counting()

    async def place():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="loop"))
        classes = Classes(judge=judge)
        return [await classes.place_async(open_formula(n)) for n in range(4)]

    assert asyncio.run(place()) == [0, 1, 2, 3]
    assert judge.asked == 6
    assert all(name.startswith("adacompute-judge") for name in judge.threads)


def test_an_answer_of_a_thousand_characters_is_read_and_a_longer_one_is_text():
    long = " + ".join(["1"] * 100)  # a sum of 397 characters
    assert same_answer(long, "100")
    many = ", ".join(str(n) for n in range(200))
    assert 800 < len(many) <= ANSWER_LIMIT
    assert same_answer(many, ",".join(str(n) for n in reversed(range(200))))
    longer = ", ".join(str(n) for n in range(300))
    assert len(longer) > ANSWER_LIMIT
    assert normalise(longer).kind == "text"


@pytest.mark.parametrize("word", ["is", "on", "up", "we", "am", "PM", "Mr"])
def test_short_words_are_no_products_of_letters(word):
    assert normalise(f"2 {word} 3x").kind == "text"
    assert not same_answer(f"7 {word}", f"7 {word[::-1]}")
    assert not same_answer(f"7{word}", f"7{word[::-1]}")
