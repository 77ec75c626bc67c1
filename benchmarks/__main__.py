"""`make bench`: run every benchmark and write docs/reference/benchmarks.md.

`python -m benchmarks answers` runs only the ones named, and prints instead of writing; with --write their
sections of the page are renewed, and the others stay. `soak --minutes 10` takes its time.
"""

import os
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import (
    allocate,
    answers,
    budgets,
    collect,
    commands,
    decide,
    gateway,
    imports,
    live,
    loop_hold,
    replay,
    score,
    serving,
    soak,
    solve,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "benchmarks.md"


class Bench(NamedTuple):
    """A benchmark: what it shows, and the table it makes."""

    title: str
    says: str
    table: Callable[[], list[dict[str, str]]]


def answers_table() -> list[dict[str, str]]:
    """Answers a second, ours and math-verify's."""
    return [
        {
            "what": what,
            f"ours, {unit}": f"{ours:,.0f}",
            f"{name}, {unit}": f"{theirs:,.0f}",
            "ratio": f"{ratio:,.0f}×",
        }
        for what, ours, name, theirs, ratio, unit in answers.run()
    ]


def imports_table() -> list[dict[str, str]]:
    """Samples a second and peak memory, ours beside the floor."""
    names = {
        "import_file": "`import_file`: checked, classed, hashed, all or nothing",
        "floor": "floor: `json.loads` + `executemany`, no checks",
        "add_samples": "`add_samples`: one durable call a sample",
    }
    return [
        {
            "way": names[row["way"]],
            "text a sample": f"{row['text_bytes']:,} bytes",
            "samples": f"{row['samples']:,}",
            "samples/s": f"{row['samples_per_second']:,}",
            "ratio to floor": f"{row['of_floor']:.2f}×",
            "peak memory": f"{row['peak_rss_mb']} MB",
        }
        for row in imports.run()
    ]


def speed_table() -> list[dict[str, str]]:
    """Problems scored a second, by each way."""
    names = {
        "exact": "exact, with standard errors",
        "windows": "windows (the paper's), with standard errors",
        "simulation": "simulation: 1,000 random subsets a cell in numpy, no standard errors",
        "weighted": "weighted vote: 2,000 subsets a cell, with standard errors",
    }
    return [
        {
            "way": names[row["way"]],
            "recording": row["recording"],
            "problems/s": f"{row['problems_per_second']:,.0f}",
            "ratio to simulation": f"{row['of_simulation']:.1f}×",
        }
        for row in score.speed()
    ]


def precision_table() -> list[dict[str, str]]:
    """Samples that the exact estimator needs, by recording and budget."""
    found: dict[str, dict[str, str]] = {}
    for row in score.precision():
        line = found.setdefault(row["recording"], {"recording": row["recording"]})
        line[f"b = {row['budget']}"] = f"{row['exact_needs']:.0f}"
    return list(found.values())


def solve_table() -> list[dict[str, str]]:
    """Passes of argmax, and memory in tables."""
    return [
        {
            "table": row["name"],
            "one `argmax` pass": f"{1000 * row['argmax']:.1f} ms",
            "whole frontier": f"{row['frontier']:.1f}×",
            "one budget": f"{row['solve']:.1f}×",
            "memory, frontier": f"{row['frontier_memory']:.1f} tables",
            "memory, one budget": f"{row['solve_memory']:.1f} tables",
            "vertices": f"{row['vertices']:,}",
        }
        for row in solve.passes()
    ]


def highs_table() -> list[dict[str, str]]:
    """The same optimum, by us and by HiGHS."""
    return [
        {
            "table": row["name"],
            "HiGHS": f"{row['highs']:.2f} s",
            "ours": f"{1000 * row['solve']:.2f} ms",
            "ratio": f"{row['ratio']:,.0f}×",
            "difference of optima": f"{row['difference']:.0e}",
        }
        for row in solve.against_highs()
    ]


def commands_table() -> list[dict[str, str]]:
    """Seconds of whole commands beside their yardsticks."""
    return [
        {
            "command": f"`{row['command']}`",
            "wall": f"{row['wall']:.2f} s",
            "processor": f"{row['processor']:.2f} s",
            "yardstick": row["yardstick"],
            "ratio": f"{row['ratio']:.2f}×",
        }
        for row in commands.run()
    ]


def decide_table() -> list[dict[str, str]]:
    """Microseconds of one decision, beside one call into the library."""
    return [
        {
            "policy": row["policy"],
            "one decision": f"{row['more']:.0f} µs",
            "prompt of 100 KB": f"{row['long']:,.0f} µs",
            "XGBoost's own call for one row": f"{row['library']:.0f} µs",
            "ratio": f"{row['ratio']:.1f}×",
        }
        for row in decide.speed()
    ]


def replay_table() -> list[dict[str, str]]:
    """Seconds of a replay, beside the plain loop."""
    return [
        {
            "policy": row["policy"],
            "replay": f"{row['replay']:.2f} s",
            "one request at a time": f"{row['loop']:,.0f} s",
            "ratio": f"{row['ratio']:,.0f}×",
            "calibrate": "–" if row["calibrate"] is None else f"{row['calibrate']:.2f} s",
        }
        for row in replay.speed()
    ]


def collect_table() -> list[dict[str, str]]:
    """Samples a second, and processor time of each, ours beside what stores nothing."""
    names = {
        "collect": "`collect`: read, graded, hashed, durable",
        "aiohttp": "a bare aiohttp loop: send, receive, parse",
        "openai": "the OpenAI SDK, asynchronous",
    }
    return [
        {
            "way": names[row["way"]] + (", with log-probabilities" if row["logprobs"] else ""),
            "calls at once": f"{row['concurrency']}",
            "samples a call": f"{row['most']}",
            "samples/s": f"{row['rate']:,.0f}",
            "of what the calls allow": f"{100 * row['share']:.0f}%",
            "processor a sample": f"{row['cpu_ms']:.2f} ms",
        }
        for row in collect.run()
    ]


def allocate_table() -> list[dict[str, str]]:
    """Prompts a second: ours beside the same work without files; two workers of Ray beside one."""
    names = {
        "local": ("`allocate`, one process", "no files"),
        "floor": ("the same features, curves and price in memory, no files", "itself"),
        "ray-1": ("`allocate --engine ray --workers 1`", "itself"),
        "ray-2": ("`allocate --engine ray --workers 2`", "one worker"),
    }
    return [
        {
            "way": names[row["way"]][0],
            "prompts/s": f"{row['rate']:,.0f}",
            "ratio": f"{row['ratio']:.2f}× {names[row['way']][1]}",
            "peak memory, this process": f"{row['peak_mb']:,.0f} MB",
        }
        for row in allocate.rates()
    ]


BENCHES = {
    "answers": Bench(
        "Reading and comparing answers",
        "Distinct answers as models write them (seven in ten plain numbers, the rest formulas, units, text, "
        "tuples), and whole responses of about 1 KB; one core, best of three, no cache between runs. "
        "The aim is 20,000 answers a second.",
        answers_table,
    ),
    "imports": Bench(
        "Importing samples",
        "A JSONL file with answers and grades given; each way in a process of its own, on one core. The aim "
        "is 30,000 samples a second and under 500 MB.",
        imports_table,
    ),
    "score": Bench(
        "Scoring votes",
        "Problems a second at 48 samples and budgets 1, 2, 4, 8, 16; best of three, one core. The aim is "
        "1,000.",
        speed_table,
    ),
    "precision": Bench(
        "Samples that exact scoring saves",
        "With how many samples the exact estimator is as precise as windows of 48: samples drawn afresh, "
        "with replacement, from the recorded ones; the error is the standard deviation over 12 draws, mean "
        "over problems. Recordings beside the checkout are measured where they are there.",
        precision_table,
    ),
    "solve": Bench(
        "Frontier and allocation",
        "1,000,000 problems × 5 modes, one core; times are in passes of `accuracy.argmax(axis=1)` over the "
        "same table in the same run, best of five; memory is the most held at once, with the table itself. "
        "The aim: the whole frontier in 12 passes, one budget in 6, 4 tables.",
        solve_table,
    ),
    "highs": Bench(
        "One budget beside HiGHS",
        "The same linear programme of 20,000 problems × 5 modes, by `scipy.optimize.linprog`, without the "
        "time to build its matrices, by its interior-point method: its default, a simplex method, takes "
        "about fifty times as long again. The aim: 300 times.",
        highs_table,
    ),
    "collect": Bench(
        "Collecting samples",
        "Against an endpoint in another process that takes 50 ms a call and has room for all of them; 24,000 "
        "samples or so, start and end included; processor time is that of the collecting process alone. What "
        "the calls allow: calls at once × samples a call / 50 ms. The aim: 90% of that and under 0.6 ms a "
        "sample, as far as one core goes: at 256 calls at once it would be 5,120 calls a second.",
        collect_table,
    ),
    "allocate": Bench(
        "Allocating a batch of prompts",
        "200,000 prompts of 500 characters in 8 Parquet files, a curve of 300 trees: reading, features, "
        "curves, one price, writing; each way in a process of its own. Ray's own start is left out. The "
        "aim: 8,000 prompts a second a core, and two workers at least 1.4 times one.",
        allocate_table,
    ),
    "replay": Bench(
        "Replaying a policy",
        "600 problems × 64 samples × 200 orders at one dial, paths and interval included, best of three, one "
        "core; beside it, the same requests asked one at a time with real tallies (600 of them timed, scaled "
        "up), and finding the dial for 3 samples a request. The aim: under 2 seconds.",
        replay_table,
    ),
    "commands": Bench(
        "Whole commands",
        "Commands as a user types them, on 600 problems × 64 samples (the bundled words, some of them "
        "twice); each beside a yardstick timed in the same run: `import numpy` for what starts, and for "
        f"what computes a fixed piece of numpy's work ({commands.SUMS}: 20 times 100 orders sorted, "
        "gathered and summed, one thread). The ratio is of processor time. The aims on 2 quiet cores: "
        "`fit` under 10 s, `evaluate` under 90 s, `report` under 60 s, `demo` under 45 s, `serve` ready in "
        "under 1 s, `import adacompute` under 1.5 times `import numpy`. (`python -m benchmarks.commands "
        "--against CHECKOUT` compares with other code.)",
        commands_table,
    ),
    "budgets": Bench(
        "Budgets asked and met",
        "The average cost that a policy meets in replay, calibrated for a budget on the same samples: with "
        "one price for all requests → since each has a price of its own near it, and how many are right "
        "then. 100 orders of the samples, at most 16 of a request. The aim: within 0.5% of every budget, on "
        "300 problems or more; a cost in bold isn't.",
        budgets.run,
    ),
    "live": Bench(
        "Live beside replayed",
        "A policy fitted on one half of a recording; the other half replayed, and sent through `adacompute "
        "serve` over sockets, each problem "
        f"{live.ROUNDS} times, with an upstream that plays recorded samples back. Costs in samples; of two "
        "models in USD, a sample of the small one 5e-06, of the large one 1e-04. The difference is in "
        "points, with its 95% interval over problems. A first reply without a readable answer "
        "isn't voted on (a menu's large model answers), which replay doesn't know; with `vote = \"always\"` "
        "it is. The aim: every difference within its interval, every average on its budget; what misses it, "
        "and why: [findings](../../studies/findings.md#menus-several-models-or-efforts-under-one-budget).",
        live.run,
    ),
    "decide": Bench(
        "Deciding for one request",
        "A prompt of 500 characters and a tally of three votes, features included, one core, best of 15. "
        "The aim: under 300 µs, and under 2,000 µs for a prompt of 100 KB; of a menu under 1,000 µs. The "
        "ratio is the short one's.",
        decide_table,
    ),
    "latency": Bench(
        "Latency that the gateway adds",
        "One request at a time on a kept connection, a prompt of 500 characters and a response of 600; the "
        "server has one core to itself, what asks it and an upstream that answers at once share another; "
        f"ledger on disk, metrics and logs on. Ways take turns; medians of {serving.ROUNDS} rounds, ratios "
        "within a round, in brackets the middle half of them. Added is what is above asking the upstream "
        "itself. The aims, in times of what a bare Starlette + aiohttp proxy adds (uvicorn, uvloop, "
        "httptools): 2.2 where a request is passed through or takes one sample, 3.0 for stopping.",
        gateway.latency_table,
    ),
    "streams": Bench(
        "The first chunk of a stream",
        "An upstream that sends its first chunk after 200 ms and 19 more every 10 ms, asked directly and "
        "through the gateway in turn, one at a time; medians of 15 rounds, ratios within a round. The aim: "
        "1.2 times and 20 ms, and as many chunks.",
        gateway.streams_table,
    ),
    "widths": Bench(
        "Eight samples beside one",
        "Processor time of the gateway for a request, 8 clients, responses of 600 characters with different "
        "texts, all read, classed and voted on. The aim: at most 1.3 times, which is not met; "
        "log-probabilities are fifteen times the bytes, and each token of each sample is looked at.",
        gateway.widths_table,
    ),
    "rates": Bench(
        "Requests a second beside other servers",
        "Requests a second per core (one over the processor time of a request, all processes and threads of "
        "the server), by the number of connections, on an upstream that answers at once; the same requests "
        "for all, each server on one core. Every peer is in an environment of its own (`.peers/`), with one "
        "worker, no database, and uvloop and httptools. LiteLLM only passes on; its_hub's server votes by "
        "self-consistency, and gives no log-probabilities. Ways take turns; medians of "
        f"{serving.PEER_ROUNDS} rounds, in brackets the middle half; ratios are within a round, at "
        f"{serving.COMPARED} connections. The aims: 10 times LiteLLM, and as many as its_hub's server.",
        gateway.rates_table,
    ),
    "hold": Bench(
        "How long a large reply holds the event loop",
        "The longest time between two ticks, a millisecond apart, in the gateway's event loop while it "
        "answers one request: processor time of the whole gateway, so threads that hold Python's lock count "
        f"too; in brackets the time on the clock. The least of {loop_hold.ROUNDS} requests. A reply may be "
        "one long text, thousands of choices of which one was asked for (more than 300,000 brackets and "
        "commas are refused), or log-probabilities with five alternatives; streams have one token an event, "
        "and come all at once. The aim: 150 ms.",
        loop_hold.table,
    ),
    "model": Bench(
        "Behind a model that takes half a second",
        "128 connections, an upstream that takes 500 ms, servers that vote; medians of two rounds. its_hub's "
        "server has 32 calls under way at most, which its command can't change.",
        gateway.model_table,
    ),
    "fleet-ledger": Bench(
        "The ledger of a fleet",
        "Reservations a second, each settled at once, of two gateways' ledgers with 100 requests under way "
        "each, through one Redis on this machine, which they share the cores with; median of three rounds. "
        "Beside them the same script called for each reservation by itself, on a connection of its own, and "
        "the ledger of a single gateway in its file. The aim is 5,000.",
        gateway.ledger_table,
    ),
    "soak": Bench(
        "Memory of the gateway",
        f"Resident memory of all processes of the gateway after {soak.FILL:,} requests (32 connections, in "
        "each way of answering), pages that its helpers share counted once; then its growth (pages counted "
        f"in each process) over minutes of mixed traffic, {soak.RATE:g} requests a second: "
        "votes, streams, clients that go away before or in "
        "the middle of a reply, broken and refused requests, short deadlines; one in ten upstream replies "
        "is an error, a reset, cut off, late or no JSON. The slope is the median over pairs half of the time "
        "apart, once it is warm. The aims: 200 MB, and 2 KB a minute over ten minutes (`python -m benchmarks "
        "soak --minutes 10 --write`).",
        gateway.soak_table,
    ),
}


def markdown(rows: list[dict[str, str]]) -> str:
    """A table with the first column to the left."""
    heads = list(rows[0])
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *([row[h] for h in heads] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(name: str) -> str:
    """One benchmark, run and written down."""
    bench = BENCHES[name]
    print(f"{name} …", file=sys.stderr)
    how = f"{bench.says} (`python -m benchmarks {name}`)"
    return "\n\n".join([f"## {bench.title}", how, markdown(bench.table())]) + "\n"


def head() -> str:
    """What stands above all sections."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    says = "Written by `make bench`; a speed is a ratio against a named alternative in the same run."
    short = (
        "**In short.** What adacompute's parts take beside what else one could use, in the same run: reading "
        "answers, importing, scoring, allocating, replaying and deciding; then the gateway: latency that it "
        "adds to a bare proxy's, requests a second beside LiteLLM and its_hub's server, and memory. Each "
        "section has its aim and its command; a table says where an aim isn't met."
    )
    ran = f"{says} Last run on: {machine}, Python {platform.python_version()}."
    return f"# Benchmarks\n\n{short}\n\n{ran}\n"


def renewed(old: str, names: list[str]) -> str:
    """The page with these sections new and the others as they were, in the order of BENCHES."""
    there = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", old, flags=re.MULTILINE)[1:]}
    made = {BENCHES[name].title: section(name).removeprefix("## ") for name in names}
    titles = [bench.title for bench in BENCHES.values()]
    parts = [(made | {t: p for t, p in there.items() if t not in made}).get(title) for title in titles]
    return "\n".join([head(), *(f"## {part.strip()}\n" for part in parts if part is not None)])


def main(words: list[str]) -> int:
    """Exit code of the command."""
    write = "--write" in words or not words
    if "--minutes" in words:
        at = words.index("--minutes")
        soak.MINUTES = float(words[at + 1])
        words = words[:at] + words[at + 2 :]
    names = [word for word in words if word != "--write"] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    if not write:
        print("\n".join([head(), *map(section, names)]))
        return 0
    for name in names:  # one by one, so that what was measured is kept if a later one fails
        PAGE.write_text(renewed(PAGE.read_text("utf-8") if PAGE.exists() else "", [name]), "utf-8")
        print(f"written: {BENCHES[name].title}, in {PAGE.relative_to(PAGE.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
