"""Dates and quantities of sentences: the one that was asked for, or none; never the first of several."""

import pytest

from adacompute.answers import extract_answer, same_answer
from timing import find_least, measure_work

LINCOLN = "When was Abraham Lincoln assassinated?"
LAND = "When did Apollo 11 land on the Moon?"
WAR = "When did World War II end?"
SIGNED = "When was the Declaration of Independence signed?"
SINK = "When did the Titanic sink?"

DATES = (
    (LINCOLN, "Lincoln, born in 1809, was assassinated in 1864.", "1864"),
    (LINCOLN, "Lincoln, born in 1809, was assassinated in 1865.", "1865"),
    (LINCOLN, "Lincoln was born in 1809. He was assassinated in 1865.", "1865"),
    (LINCOLN, "Lincoln (1809–1865) was assassinated in April 1865.", "1865-04"),
    (LINCOLN, "Lincoln was born in 1809 and died in 1865.", None),
    (LINCOLN, "In 1865 Lincoln was assassinated, and he was born in 1809.", "1865"),
    (LINCOLN, "Abraham Lincoln (1809–1865).", None),
    (SINK, "The Titanic, launched in 1911, sank in 1912.", "1912"),
    (SINK, "In 1911 the Titanic was launched and in 1912 it sank.", None),
    (SINK, "15 April 1912. The Titanic had been launched in 1911.", None),
    (SINK, "In 1912. The Titanic sank on 15 April 1912.", "1912-04-15"),
    ("In what year did the Titanic sink?", "The Titanic, launched in 1911, sank in 1912.", "1912"),
    (LAND, "Apollo 11 launched on July 16, 1969 and landed on July 20, 1969.", "1969-07-20"),
    (LAND, "Apollo 11 launched on July 16, 1969.", "1969-07-16"),
    (WAR, "It lasted from 1939 to 1945.", "1939–1945"),
    ("When was World War II?", "From 1939 until 1945.", "1939–1945"),
    ("When did World War I end?", "It began in 1914 and ended on 11 November 1918.", "1918-11-11"),
    ("When did the war end?", "The war began in 1914 and the war ended in 1918.", "1918"),
    ("When was the Eiffel Tower built?", "It was built from 1887 to 1889.", "1887–1889"),
    ("When did it begin?", "It began in 1789 with the storming of a prison on July 14, 1789.", "1789"),
    (WAR, "It ended in 1945, not 1944.", "1945"),
    (WAR, "It didn't end in 1944 but in 1945.", "1945"),
    (WAR, "It did not end in 1944.", None),
    (WAR, "In 1944 or 1945.", "1944–1945"),
    (SIGNED, "It was not signed on July 2, 1776, but on July 4, 1776.", "1776-07-04"),
    ("When is Christmas?", "December 25, not December 24.", "25 December"),
    (WAR, "9/2/1945", "9/2/1945"),
    (WAR, "It ended on 9/2/1945.", "9/2/1945"),
    (WAR, "It ended on 09/02/1945.", "9/2/1945"),
    (WAR, "2.9.1945", "1945-09-02"),
    (SIGNED, "04/07/1776", "4/7/1776"),
    (SIGNED, "It was signed on 7/4/1776.", "7/4/1776"),
    ("In what year was it signed?", "It was signed on 7/4/1776.", "1776"),
)

COLD = "What is the melting point temperature of mercury?"
LEGS = "How many legs does a spider have?"
EVEREST = "How tall is Mount Everest?"
MARS = "How many moons does Mars have?"
WATER = "What percentage of Earth is water?"
CONTINENTS = "How many continents are there?"
SEATS = "How many seats does the car have?"
FAHRENHEIT = "At what temperature does water freeze in Fahrenheit?"
FAR = "How far is it from Paris to Brussels?"

QUANTITIES = (
    (COLD, "minus 38 degrees Celsius", "-38 °C"),
    (COLD, "It is minus 38 degrees Celsius.", "-38 °C"),
    (COLD, "It is about negative 38 °C.", "-38 °C"),
    (COLD, "It is minus thirty-eight degrees Celsius.", "-38 °C"),
    (COLD, "38 °C below zero", None),
    (COLD, "It melts at 38 degrees Celsius below zero.", None),
    (COLD, "It melts at 38 °C.", "38 °C"),
    (COLD, "It melts at −38 °C.", "-38 °C"),
    (COLD, "It melts at –38 °C.", "-38 °C"),
    (LEGS, "Not 6 but 8.", "8"),
    (LEGS, "Spiders don't have 6 legs, they have 8.", "8"),
    (LEGS, "It does not have 6 legs.", None),
    (LEGS, "Unlike insects, which have 6 legs, spiders have 8.", None),
    (LEGS, "It has 4 pairs of legs, so 8.", "8"),
    (LEGS, "It has 4 pairs of legs.", None),
    (LEGS, "Insects have 6 legs. A spider has 8 legs.", "8"),
    (LEGS, "Insects have 6 legs, but a spider has 8.", "8"),
    (LEGS, "Spider - 8 legs", "8"),
    (EVEREST, "It is not 8,611 m like K2, but 8,849 m.", "8,849 m"),
    (EVEREST, "Everest grows about 4 mm a year. It is 8,849 m tall.", "8,849 m"),
    (EVEREST, "It is 8,849 m tall. It was first climbed in 1953 by 2 men.", "8,849 m"),
    (EVEREST, "Mount Everest is 8,849 m or 29,032 feet tall.", None),
    ("How tall is Mount Everest in feet?", "Mount Everest is 8,849 m (29,032 feet) tall.", "29,032 feet"),
    (MARS, "Unlike Earth, which has 1 moon, Mars has 2 moons.", None),
    (MARS, "Earth has 1 moon. Mars has 2.", "2"),
    (MARS, "Mars has 2 moons, while Earth has only 1 moon.", "2"),
    (WATER, "Earth is 29% land and 71% water.", "71%"),
    ("What percentage of Earth is land?", "Earth is 29% land and 71% water.", "29%"),
    (WATER, "About 71% of Earth is water.", "71%"),
    (WATER, "Two thirds of it.", None),
    (CONTINENTS, "Some say six, most say seven.", None),
    (CONTINENTS, "Some say six continents, most say seven.", None),
    (CONTINENTS, "Between 5 and 7.", "5–7"),
    (CONTINENTS, "There are between five and seven continents.", "5–7"),
    (SEATS, "6 or 7 depending on the model", "6–7"),
    (SEATS, "It has 6 or 7 seats.", "6–7"),
    (FAHRENHEIT, "It freezes at 0 °C, which is 32 °F.", "32 °F"),
    (FAHRENHEIT, "Water freezes at 32 °F (0 °C).", "32 °F"),
    (FAHRENHEIT, "0 °C (32 °F)", "32 °F"),
    (FAR, "It is 300 km, which is 186 miles.", None),
    (FAR, "The distance is 300 km. The train takes 82 minutes.", "300 km"),
    (FAR, "It is 300 km by road and it is 260 km by air.", None),
    ("How many players has a team?", "Each team has 11 players: 10 outfield players and 1 goalkeeper.", "11"),
    ("How many bones has a body?", "An adult has 206 bones. Babies have about 300.", None),
    ("How much does it cost?", "It costs $5, not $10.", "$5"),
    ("How many days are in a year?", "A year has 12 months and 365 days.", "365 days"),
    ("How many days are in a week?", "One week has seven days.", "7"),
)

EQUAL = (
    ("When did World War I end?", ("It ended on 11 November 1918.", "November 11, 1918", "1918-11-11")),
    (FAR, ("It is about 300 km.", "300 kilometres", "300 km (186 miles)", "It isn't 200 km but 300 km.")),
    (CONTINENTS, ("seven", "7", "There are seven continents.", "Not six but seven.")),
    (COLD, ("-38 °C", "minus 38 degrees Celsius", "It is −38 °C.")),
)


@pytest.mark.parametrize(("question", "reply", "answer"), [*DATES, *QUANTITIES])
def test_what_is_read_is_what_was_asked_for_or_nothing(question, reply, answer):
    found = extract_answer(reply, question=question)
    assert (found is None) == (answer is None), found
    assert answer is None or same_answer(found, answer), found


@pytest.mark.parametrize(("question", "replies"), EQUAL)
def test_equal_dates_and_quantities_are_one_answer(question, replies):
    answers = [extract_answer(reply, question=question) for reply in replies]
    assert answers[0] is not None
    assert all(same_answer(answer, answers[0]) for answer in answers), answers


def test_numeric_dates_are_one_only_if_they_are_written_alike():
    replies = ("9/2/1945", "2/9/1945", "It ended on 4/2/1945.", "8/4/1945", "1945", "3 September 1945")
    answers = [extract_answer(reply, question=WAR) for reply in replies]
    assert None not in answers
    assert not any(same_answer(one, other) for at, one in enumerate(answers) for other in answers[:at])


def test_hostile_dates_and_quantities_take_no_longer_than_others():
    units = (
        "not 1, |1 or |, which 1|minus |-|below 0 |1/1/|1914 to |some say |1 below zero |, so 1|unlike |n't 1"
    )

    def work() -> None:
        for unit in units.split("|"):
            for question in (LINCOLN, LEGS, COLD, FAHRENHEIT):
                extract_answer((unit * 400)[:400], question=question)

    limit = 0.02 * 4 * len(units.split("|"))
    assert find_least(lambda: measure_work(work), limit) < limit
