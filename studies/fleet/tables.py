"""The tables of studies/fleet/README.md, from the numbers kept beside its figure. Computes nothing.

A table stands between `<!-- drawn from: studies/fleet/fleet.json NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable
from typing import Any

from studies.fleet.arithmetic import ASSUMED
from studies.fleet.caps import FLUSHES

__all__ = ["PART", "TABLES", "renewed"]

Numbers = dict[str, Any]
PART = re.compile(
    r"(<!-- drawn from: studies/fleet/fleet\.json (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL
)


def renewed(page: str, numbers: Numbers) -> str:
    """The page with every table made again."""
    return PART.sub(lambda part: part[1] + TABLES[part["name"]](numbers) + "\n" + part[3], page)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    # numbers to the right; words to the left
    number = re.compile(r"[-+<–]?\s?\d|–$")
    rules = ["---:" if all(map(number.match, column)) else "---" for column in zip(*rows, strict=True)]
    lines = [heads, rules, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _off(value: float) -> str:
    return f"{100 * value:+.1f}%"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} s"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        f"{value:.1f} s"
        if value >= 1
        else f"{1000 * value:.0f} ms"
        if value >= 0.01
        else f"{1000 * value:.1f} ms"
    )


def _points(value: float) -> str:
    return f"{max(0.0, value):.1f}"


def measured(numbers: Numbers) -> str:
    """Service times and sizes, with where they come from."""
    found = numbers["measured"]
    redis, gateway, solve = found["redis"], found["gateway"], found["solve"]
    here = "`python -m studies.fleet --write`"
    bench = '[benchmarks](../../docs/reference/benchmarks.md), "Requests a second beside other servers"'
    synced = ", ".join(f"{value / 1000:.1f}" for value in redis["synced_round_trip_us"][:3])
    rows = [
        ["Redis, a replica's call", f"{redis['call_us']:.0f} µs", "its own processor time, real script"],
        ["Redis, each reservation in it", f"{redis['reservation_us']:.1f} µs", "with its end and its cost"],
        ["Redis, synced to disk, 1, 4, 16 in a call", f"{synced} ms", "round trips, this machine's disk"],
        ["pacer, one settlement", f"{found['settle_us']:.1f} µs", "the real `Pacer`"],
        ["gateway, a request of one wave, weighted votes", f"{gateway['first_wave_ms']:.2f} ms", bench],
        ["gateway, each further wave", f"{gateway['further_wave_ms']:.2f} ms", "derived: a call, a decision"],
        ["features of a prompt of 500 characters", f"{found['features_us']:.0f} µs", "`features`"],
        ["one price, a prompt", f"{solve['problem_us']:.3f} µs", f"{solve['rounds']} rounds of a shard"],
    ]  # fmt: skip
    return (
        _table(["what", "takes", "how"], rows)
        + f"\n\nThe others by {here}, on two cores that were used by others as well."
    )


def held(numbers: Numbers) -> str:
    """How closely the budget is held."""
    return _table(
        [
            "gateways", "requests/s", "in flight", "pacer is told", "after 10 s", "60 s", "end",
            "10-s averages", "points lost",
        ],
        [
            [
                f"{row['gateways']:,}", f"{row['rate']:,.0f}", f"{row['in_flight']:,.0f}",
                "of each" if row["told"] == "each" else f"of groups of {int(row['told'].split()[-1]):,}",
                _off(row["off_10"]), _off(row["off_60"]), f"{_off(row['off_end'])} ({row['end']:.0f} s)",
                f"{row['low']:.1f} to {row['high']:.1f}", _points(row["lost_points"]),
            ]
            for row in numbers["held"]
        ],
    )  # fmt: skip


def memory(numbers: Numbers) -> str:
    """What memory is for."""
    return _table(
        ["dials remembered", "requests/s", "in flight", "end", "10-s averages", "points lost"],
        [
            [
                f"{row['remembered']:,}", f"{row['rate']:,.0f}", f"{row['in_flight']:,.0f}",
                f"{_off(row['off_end'])} (120 s)", f"{row['low']:.1f} to {row['high']:.1f}",
                _points(row["lost_points"]),
            ]
            for row in numbers["memory"]
        ],
    )  # fmt: skip


def saturation(numbers: Numbers) -> str:
    """An upstream that is short for a minute."""
    names = {
        "before": "before, 60 to 120 s", "during": "a third short, 120 to 180 s", "after": "180 to 240 s",
        "then": "240 to 300 s",
    }  # fmt: skip
    rows = []
    for way, said in (
        ("told of all", "one 429 in four is final, the pacer told of all"),
        ("gives up", "one 429 in four is final, as built"),
        ("waits", "every 429 is tried again"),
    ):
        for phase, name in names.items():
            found = numbers["saturation"][way]["phases"][phase]
            rows.append(
                [
                    f"{said}: {name}" if phase == "before" else name, f"{found['average']:.2f}",
                    f"{100 * found['price']:.1f}", f"{found['wait']:.1f} s", f"{found['refused']:.1f}",
                    f"{100 * found['failed']:.0f}%", f"{found['in_flight']:,.0f}",
                ]
            )  # fmt: skip
    heads = [
        "",
        "samples a request",
        "price, points",
        "longest wait",
        "429s a request",
        "failed",
        "in flight",
    ]
    return _table(heads, rows)


def drift(numbers: Numbers) -> str:
    """Easy traffic becomes hard."""
    return _table(
        ["traffic turns hard", "pacer is told of", "worst 10 s", "all so far within 2% after", "at the end"],
        [
            [row["drift"], row["told"], _off(row["worst"]), _seconds(row["back"]), _off(row["off_end"])]
            for row in numbers["drift"]
        ],
    )


def loss(numbers: Numbers) -> str:
    """Gateways die."""
    found = numbers["loss"]
    return _table(
        [
            "gateways that die", "requests lost", "samples drawn for nothing", "held as `maybe`",
            "refused afterwards", "average, end",
        ],
        [
            [
                f"{100 * row['share']:.0f}%", f"{row['lost']:,}", f"{row['wasted']:.1f} s of spending",
                f"{row['maybe']:.1f} s of spending", f"{100 * row['failed']:.0f}%", _off(row["off_end"]),
            ]
            for row in found["gateways"]
        ],
    )  # fmt: skip


def silence(numbers: Numbers) -> str:
    """The pacemaker dies."""
    return _table(
        ["no new price for", "traffic", "worst 10 s, either way", "all so far within 2% after", "at the end"],
        [
            [
                _seconds(row["gap"]), "turns hard as it dies" if row["drift"] else "stays",
                f"{100 * row['worst']:.0f}%", _seconds(row["back"]), _off(row["off_end"]),
            ]
            for row in numbers["loss"]["pacemaker"]
        ],
    )  # fmt: skip


def stale(numbers: Numbers) -> str:
    """Prices seen late."""
    return _table(
        ["price is seen after", "pacer is told of", "after 60 s", "end", "10-s averages", "points lost"],
        [
            [
                f"{row['delay']:g} s", row["told"], _off(row["off_60"]), _off(row["off_end"]),
                f"{row['low']:.1f} to {row['high']:.1f}", _points(row["lost_points"]),
            ]
            for row in numbers["stale"]
        ],
    )  # fmt: skip


def ledger(numbers: Numbers) -> str:
    """What Redis adds, by how replicas call."""
    names = ["a call each", *(f"every {1000 * flush:g} ms" for flush in FLUSHES[1:]), "as built"]
    keys = [f"{flush:g}" for flush in FLUSHES] + ["built"]
    rows = [
        [f"{row['replicas']:,}", f"{row['rate']:,.0f}", *(_ms(row[key]) for key in keys)]
        for row in numbers["ledger"]["rows"]
    ]
    most = numbers["ledger"]["most"]
    said = (
        f"A call for each falls behind from some {round(most['each'], -2):,.0f} requests a second on, and "
        f"batches from {round(most['batched'], -3):,.0f}; ticks of 10 ms from "
        f"{most['replicas_at_10ms']:.0f} replicas on that have something to say each time."
    )
    return _table(["replicas", "requests/s", *names], rows) + "\n\n" + said


def leases(numbers: Numbers) -> str:
    """Chunks of the cap."""
    found = numbers["leases"]
    rows = [
        [
            f"{row['chunk']}" + (" samples" if row["chunk"][0].isdigit() else ""), f"{row['calls']:,.0f}",
            f"{100 * row['stranded']:.2f}%", f"{row['late']:.1f} s", f"{100 * row['held']:.3f}%",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    first = ["none: a call for each", f"{found['each']:,.0f}", "0.00%", "0.0 s", "0.000%"]
    heads = [
        "chunk", "calls to Redis a second", "of the cap unspent at the first refusal", "until 99% is spent",
        "most that one replica holds",
    ]  # fmt: skip
    return _table(heads, [first, *rows])


def independent(numbers: Numbers) -> str:
    """Every replica for itself."""
    found = numbers["independent"]
    easy, hard = found["shared_costs"]["words"], found["shared_costs"]["facts"]
    rows = [
        ["each replica holds 3 samples", "3.0 and 3.0", f"{100 * found['own_accuracy']:.1f}%"],
        ["one price for all", f"{easy:.1f} and {hard:.1f}", f"{100 * found['shared_accuracy']:.1f}%"],
    ]
    said = (
        f"After two minutes at 10 requests a second each, all together are {_off(found['off'])} off, and the "
        f"worst replica by {100 * found['worst']:.1f}%."
    )
    return _table(["", "samples on `words` and on `facts`", "right"], rows) + "\n\n" + said


def arithmetic(numbers: Numbers) -> str:
    """A billion prompts a day."""
    rows = [
        [
            row["what"], row["rests"], "–" if row["cores"] is None else _amount(row["cores"]),
            "–" if row["bytes"] is None else _bytes(row["bytes"]),
            "–" if row["money"] is None else f"{row['money']:,.0f}" if row["money"] >= 1 else "< 1",
        ]
        for row in numbers["arithmetic"]
    ]  # fmt: skip
    a = ASSUMED
    said = (
        f"Assumed: {a['samples']:g} samples and waves a prompt; the busiest hour {a['peak']:g} times the "
        f"mean, and live cores {100 * a['load']:.0f}% busy in it; {a['core_hour']:g} an hour for a core, "
        f"{a['gb_month']:g} a month for a GB, in any one currency; bytes of one day, kept for a month."
    )
    return _table(["what", "rests on", "cores", "bytes a day", "money a day"], rows) + "\n\n" + said


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.3f}"


def _bytes(value: float) -> str:
    size, unit = next(pair for pair in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if value >= pair[0])
    return f"{value / size:.2g} {unit}" if value < 10 * size else f"{value / size:,.0f} {unit}"


TABLES: dict[str, Callable[[Numbers], str]] = {
    one.__name__: one
    for one in (
        measured,
        held,
        memory,
        saturation,
        drift,
        loss,
        silence,
        stale,
        ledger,
        leases,
        independent,
        arithmetic,
    )
}
