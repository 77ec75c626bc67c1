"""A billion prompts a day, in cores, bytes and money, from what was measured. Knows of no simulation."""

from typing import Any

__all__ = ["ASSUMED", "arithmetic"]

ASSUMED: dict[str, float] = {
    "prompts": 1e9,  # a day
    "samples": 3.0,  # a prompt
    "waves": 3.0,  # a request
    "peak": 3.0,  # the busiest hour beside the mean
    "load": 0.6,  # of a core, at the peak
    "core_hour": 0.04,  # money
    "gb_month": 0.023,  # money, of object storage
    "shard": 1e5,  # prompts
    "sample_tokens": 300.0,
    "million_tokens": 0.2,  # money
}
_DAY, _GB = 86_400.0, 1e9


def arithmetic(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows: what, what it rests on, cores, bytes and money a day; None where it takes none worth naming."""
    a = ASSUMED
    rate = a["prompts"] / _DAY
    solve, gateway, redis = measured["solve"], measured["gateway"], measured["redis"]
    request = (gateway["first_wave_ms"] + (a["waves"] - 1) * gateway["further_wave_ms"]) / 1000
    shards = a["prompts"] / a["shard"]
    reservations = a["peak"] * rate * a["waves"]
    stored, sample = measured["parquet_bytes_prompt"], measured["pool_bytes_sample"]["parquet"]
    rows = [
        _batch("features of the prompts", f"{measured['features_us']:g} µs a prompt of 500 characters",
               a["prompts"] * measured["features_us"] / 1e6),
        _batch("one price over all", f"{solve['problem_us']:g} µs a prompt, {solve['rounds']} rounds",
               a["prompts"] * solve["problem_us"] / 1e6),
        _row("summaries sent to find it",
             f"{shards:,.0f} shards, {solve['rounds']} rounds of at most {solve['summary_bytes']:,} bytes",
             size=shards * solve["rounds"] * solve["summary_bytes"]),
        _kept("prompts, Parquet", f"{stored:g} bytes a prompt of 500 characters, zstd",
              a["prompts"] * stored),
        _kept("samples, Parquet", f"{sample:g} bytes a sample of one sentence, {a['samples']:g} a prompt",
              a["prompts"] * a["samples"] * sample),
        _live("gateways", f"{1000 * request:.2f} ms a request of {a['waves']:g} waves", rate * request),
        _live("pacemaker, told of each", f"{measured['settle_us']:g} µs a request",
              rate * measured["settle_us"] / 1e6),
        _live("Redis, every reservation", f"{redis['reservation_us']:g} µs a reservation, settled too",
              rate * a["waves"] * redis["reservation_us"] / 1e6)
        | {"note": reservations * redis["reservation_us"] / 1e6},
        _row("the samples themselves",
             f"{a['sample_tokens']:g} tokens each, {a['million_tokens']:g} a million tokens",
             money=a["prompts"] * a["samples"] * a["sample_tokens"] / 1e6 * a["million_tokens"]),
    ]  # fmt: skip
    whole = measured.get("allocate_rate")
    if whole is not None:
        said = f"{whole:,.0f} prompts a second a core, features and price included"
        rows.insert(0, _batch("`allocate`, the whole command", said, a["prompts"] / whole))
    return rows


def _row(
    what: str,
    rests: str,
    *,
    cores: float | None = None,
    size: float | None = None,
    money: float | None = None,
) -> dict[str, Any]:
    return {"what": what, "rests": rests, "cores": cores, "bytes": size, "money": money}


def _batch(what: str, rests: str, seconds: float) -> dict[str, Any]:
    """Work of a day that may be done at any time of it."""
    return _row(what, rests, cores=seconds / _DAY, money=seconds / 3600 * ASSUMED["core_hour"])


def _live(what: str, rests: str, cores: float) -> dict[str, Any]:
    """Work that comes with the traffic: cores for its peak, held all day."""
    held = cores * ASSUMED["peak"] / ASSUMED["load"]
    return _row(what, rests, cores=held, money=held * 24 * ASSUMED["core_hour"])


def _kept(what: str, rests: str, size: float) -> dict[str, Any]:
    """Bytes of a day, kept for a month."""
    return _row(what, rests, size=size, money=size / _GB * ASSUMED["gb_month"])
