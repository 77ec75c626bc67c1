"""The tables of the gateway's benchmarks. Knows nothing of pages, or of how anything is measured."""

from typing import Any

from benchmarks import fleet_ledger, peers, serving, soak, streams

__all__ = [
    "latency_table",
    "ledger_table",
    "model_table",
    "rates_table",
    "soak_table",
    "streams_table",
    "widths_table",
]


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
    """Requests a second per core by connections, and the ratios to the bare proxy and to each peer."""
    lines = []
    for row, shown in _by_row(serving.peers_beside()):
        compared = shown[serving.COMPARED]
        line = {"server": compared["way"], "log-probabilities": "yes" if row.logprobs else "no"}
        line["samples"] = f"{compared['drawn']:.3g}" if "drawn" in compared else "–"
        for number, numbers in shown.items():
            rate = numbers.get("per_core")
            text = "–" if rate is None else f"{rate['ratio']:,.0f} ({rate['low']:,.0f}–{rate['high']:,.0f})"
            line[f"{number} connection{'s' * (number > 1)}"] = text
        line["of the bare proxy's"] = _range(compared["to_bare"], digits=2) if "to_bare" in compared else "–"
        line["of the peer's"] = _name_ratio(compared, row, "to_peer")
        line["aim"] = "–"
        if row.aim is not None and "to_peer" in compared:
            is_met = round(compared["to_peer"]["ratio"], 1) >= row.aim
            line["aim"] = f"{row.aim:g}×, {'met' if is_met else 'not met'}"
        lines.append(line)
    return lines


def model_table() -> list[dict[str, str]]:
    """Requests a second where the upstream takes as long as a model."""
    return [
        {
            "server": line["way"],
            "samples": f"{line['drawn']:.3g}" if "drawn" in line else "–",
            "requests/s": f"{line['rate']:,.0f}" if "rate" in line else "–",
            "p50": f"{1000 * line['p50']:,.0f} ms" if "rate" in line else "–",
            "p99": f"{1000 * line['p99']:,.0f} ms" if "rate" in line else "–",
            "processor a request": f"{1000 * line['cpu']:.2f} ms" if "rate" in line else "–",
            "ratio of requests/s": _name_ratio(line, line["row"], "to_peer_rate"),
        }
        for line in serving.behind_model()
    ]


def _by_row(lines: list[dict[str, Any]]) -> list[tuple[serving.Row, dict[int, dict[str, Any]]]]:
    """Each row with its numbers by connections."""
    rows: dict[serving.Row, dict[int, dict[str, Any]]] = {}
    for line in lines:
        rows.setdefault(line["row"], {})[line["connections"]] = line
    return list(rows.items())


def _name_ratio(line: dict[str, Any], row: serving.Row, key: str) -> str:
    name = peers.NAMES.get(row.beside.partition("-")[0], "").partition(" ")[0]
    return f"{_range(line[key])} {name}" if key in line else "–"


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


def _range(row: dict[str, Any], *, digits: int = 1) -> str:
    """A ratio, and where the middle half of the rounds had it."""
    return f"{row['ratio']:.{digits}f}× ({row['low']:.{digits}f}–{row['high']:.{digits}f})"


def _judge(ratio: float, aim: float) -> str:
    return f"{aim:g}×, {'met' if round(ratio, 1) <= aim else 'not met'}"


def soak_table() -> list[dict[str, str]]:
    """Memory after many requests, and its slope over mixed traffic after them."""
    row = soak.run()
    got, mega = row["got"], 1024 * 1024
    fine = got.get("200", 0)
    slope = row["slope"] / 1024
    return [
        {
            "requests before": f"{row['filled']:,}",
            "memory after them": f"{row['resident'] / mega:.1f} MB in {row['processes']} processes",
            "aim": f"200 MB, {'met' if row['resident'] < 200 * mega else 'not met'}",
            "minutes": f"{row['minutes']:g}",
            "requests": f"{row['requests']:,}",
            "answered": f"{fine:,}",
            "went away": f"{got.get('went away', 0):,}",
            "errors": f"{row['requests'] - fine - got.get('went away', 0):,}",
            "memory, warm": f"{row['first'] / mega:.1f} MB",
            "at the end": f"{row['last'] / mega:.1f} MB",
            "slope": f"{slope:+.1f} KB a minute",
            "aim of the slope": f"2 KB a minute, {'met' if slope < 2 else 'not met'}",
        }
    ]
