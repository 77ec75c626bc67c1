"""The tables of the gateway's benchmarks. Knows nothing of pages, or of how anything is measured."""

from typing import Any

from benchmarks import fleet_ledger, serving, soak, streams

__all__ = ["latency_table", "ledger_table", "rates_table", "soak_table", "streams_table", "widths_table"]


def latency_table() -> list[dict[str, str]]:
    """What each server adds at one request at a time."""
    rows = serving.added()
    return [
        {
            "way": row["way"],
            "p50": f"{1000 * row['p50']:.2f} ms",
            "p99": f"{1000 * row['p99']:.2f} ms",
            "added p50": "–" if not row["added"] else f"{1000 * row['added']:.2f} ms",
            "ratio to the bare proxy": "–" if not row["added"] else _range(row),
            "aim": "–" if row["aim"] is None else _judge(row["ratio"], row["aim"]),
            "processor a request": "–" if not row["cpu"] else f"{1000 * row['cpu']:.2f} ms",
        }
        for row in rows
    ]


def streams_table() -> list[dict[str, str]]:
    """When the first chunk of a stream comes, and in how many it comes."""
    return [
        {
            "stream": row["kind"],
            "first chunk, directly": f"{1000 * row['direct']['first']:.0f} ms",
            "through the gateway": f"{1000 * row['through']['first']:.0f} ms",
            "ratio": f"{row['ratio']:.2f}×",
            "chunks, directly and through": f"{row['direct']['chunks']:.0f}, {row['through']['chunks']:.0f}",
        }
        for row in streams.run()
    ]


def widths_table() -> list[dict[str, str]]:
    """Processor time of eight samples beside one."""
    return [
        {
            "votes": row["what"],
            "b = 1": f"{1000 * row['one']:.2f} ms",
            "b = 8, one call of n = 8": f"{1000 * row['eight']:.2f} ms",
            "ratio": _range(row, digits=2),
        }
        for row in serving.widths()
    ]


def rates_table() -> list[dict[str, str]]:
    """Requests a second, ours beside each peer."""
    return [_rate(row) for row in serving.rates()]


def ledger_table() -> list[dict[str, str]]:
    """Reservations a second, by each way."""
    return [
        {
            "way": row["way"],
            "gateways": str(row["clients"]),
            "reservations/s": f"{row['rate']:,.0f}",
            "ratio to a round trip each": f"{row['ratio']:.1f}×",
            "processor of Redis": f"{100 * row['redis']:.0f}%" if row["redis"] else "–",
        }
        for row in fleet_ledger.run()
    ]


def _rate(row: dict[str, Any]) -> dict[str, str]:
    there = "rate" in row
    return {
        "server": row["way"],
        "upstream takes": f"{1000 * row['latency']:.0f} ms" if row["latency"] else "no time",
        "clients": str(row["clients"]),
        "samples a request": str(row["samples"]),
        "requests/s": f"{row['rate']:,.0f}" if there else "–",
        "p99": f"{1000 * row['p99']:,.0f} ms" if there else "–",
        "processor a request": f"{1000 * row['cpu']:.2f} ms" if there else "–",
        "ratio": "–" if row["ratio"] is None else f"{_range(row)} {row['to']}",
    }


def _range(row: dict[str, Any], *, digits: int = 1) -> str:
    """A ratio, and where the middle half of the rounds had it."""
    return f"{row['ratio']:.{digits}f}× ({row['low']:.{digits}f}–{row['high']:.{digits}f})"


def _judge(ratio: float, aim: float) -> str:
    return f"{aim:g}×, {'met' if round(ratio, 1) <= aim else 'not met'}"


def soak_table() -> list[dict[str, str]]:
    """Memory before and after, and its slope."""
    row = soak.run()
    got, mega = row["got"], 1024 * 1024
    fine = got.get("200", 0)
    return [
        {
            "minutes": f"{row['minutes']:g}",
            "requests": f"{row['requests']:,}",
            "answered": f"{fine:,}",
            "went away": f"{got.get('went away', 0):,}",
            "errors": f"{row['requests'] - fine - got.get('went away', 0):,}",
            "memory, warm": f"{row['first'] / mega:.1f} MB",
            "at the end": f"{row['last'] / mega:.1f} MB",
            "most": f"{row['most'] / mega:.1f} MB",
            "slope": f"{row['slope'] / 1024:+.0f} KB a minute",
        }
    ]
