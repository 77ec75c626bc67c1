"""Merges the dashboard data of several processes: adds sums, averages means, joins the latest requests."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from adacompute.config import MODES_KEY

_COUNTS = ("in_flight", "requests", "refused", "unvoted", "forwarded", "reloads", "recorder")
_HISTORY = ("rows", "total", "samples", "rounds", "upstream")
_MODE_SUMS = ("requests", "samples", "missing", "replies", "spent", "failures")


def merge_boards(boards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merges the dashboard data of several processes. What can't be merged comes from the first process."""
    first, has_history = boards[0], "recent" in boards[0]
    sums = (*_COUNTS, *_HISTORY) if has_history else _COUNTS
    merged = first | {name: _add([board[name] for board in boards]) for name in sums}
    overall = [board["ever"] for board in boards]
    drifts = [drift for board in boards for drift in board["drift"]]
    # the strongest drift must be the last one, because the dict below keeps each policy's last drift
    drifts.sort(key=lambda drift: (drift["alarm"], abs(drift["z"] or 0.0)))
    merged |= {
        "since": min(board["since"] for board in boards),
        "ever": _merge_means(overall) | {"voted": _merge_means([means["voted"] for means in overall])},
        "dials": _merge_dials([dial for board in boards for dial in board["dials"]]),
        "drift": list({drift["policy"]: drift for drift in drifts}.values()),
        "resting": list(dict.fromkeys(name for board in boards for name in board["resting"])),
        "fleet": first["fleet"] | {"pacemaker": any(board["fleet"]["pacemaker"] for board in boards)},
    }
    if has_history:
        recent = sorted((row for board in boards for row in board["recent"]), key=lambda row: -row["at"])
        merged["recent"] = recent[:50]  # a single process shows 50 requests too
        merged["upstream"].sort(key=lambda pair: -pair[1])
        merged[MODES_KEY] = first[MODES_KEY] and _merge_modes([board[MODES_KEY] for board in boards])
    return merged


def _add(values: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON data
    """Adds up numbers, or all numbers in JSON data of the same form.

    Objects are added name by name. Lists of numbers must have equal lengths, and are added index by index. In
    lists of rows, rows with the same first element become one row.
    """
    if isinstance(values[0], dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _add([value[name] for value in values if name in value]) for name in names}
    if not isinstance(values[0], list):
        return sum(values)
    rows = [row for value in values for row in value if isinstance(row, list)]
    if not rows:
        return [sum(parts) for parts in zip(*values, strict=True)]
    groups = groupby(sorted(rows, key=itemgetter(0)), itemgetter(0))
    return [[key, *map(_add, zip(*(row[1:] for row in group), strict=True))] for key, group in groups]


def _merge_means(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    means = {name: _mean(parts, name, "requests") for name in ("average", "target")}
    return {"requests": sum(part["requests"] for part in parts), **means}


def _mean(parts: Sequence[dict[str, Any]], name: str, count: str) -> float | None:
    """Returns the mean of the field `name`, weighted by the field `count`; None if no process has a value."""
    known = [(part[name], part[count]) for part in parts if part[name] is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _merge_dials(dials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    merged, identify = [], itemgetter("policy", "budget", "unit")
    for _, same in groupby(sorted(dials, key=identify), identify):
        group = list(same)
        flat = [dial | dial["averages"] for dial in group]
        averages = {"voted": _mean(flat, "voted", "decided"), "all": _mean(flat, "all", "requests")}
        sums = {name: sum(dial[name] for dial in group) for name in ("requests", "decided")}
        # in a fleet, all processes report the same average; otherwise each process reports its own
        average = _mean(group, "average", "decided")
        merged.append(group[0] | sums | {"average": average, "averages": averages})
    return sorted(merged, key=lambda dial: -dial["requests"])


def _merge_modes(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first, modes = parts[0], zip(*(part["modes"] for part in parts), strict=True)
    return first | {
        "requests": sum(part["requests"] for part in parts),
        "modes": [
            each[0] | _add([{name: mode[name] for name in _MODE_SUMS} for mode in each]) for each in modes
        ],
        "spent": _add([part["spent"] for part in parts]),
        "ever": first["ever"]
        | _add([{name: part["ever"][name] for name in ("requests", "spent")} for part in parts]),
    }
