"""`adacompute collect --menu`: every mode of a menu into one pool, within one cap, whatever ends it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collecting import count, process
from wires import until

from adacompute.pool import Pool, open_pool, read_modes
from upstream import Honest, Reply, Status, Upstream

COMMAND = [sys.executable, "-m", "adacompute"]
COLLECT = ("collect", "problems.jsonl", "--menu", "menu.toml", "--pool", "p.sqlite")
SMALL = {"input_price": 100.0, "output_price": 400.0, "options": {"max_tokens": 16, "top_k": 5}}
LARGE = {"input_price": 1000.0, "output_price": 4000.0, "attempts": 1}


def write_menu(folder: Path, *, small: str, large: str, **large_settings: Any) -> None:
    tables = {
        "small": {"upstream": small, "model": "tiny", **SMALL},
        "large": {"upstream": large, "model": "huge", **LARGE, **large_settings},
    }
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {write_value(value)}" for key, value in table.items()]
    (folder / "menu.toml").write_text("\n".join(lines) + "\n")


def write_value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {write_value(part)}" for key, part in value.items()) + " }"
    return json.dumps(value)


def write_problems(folder: Path, count: int) -> None:
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "gold": str(i + 1)} for i in range(count)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    write_problems(tmp_path, 5)
    return tmp_path


def count_by_mode(pool: Pool) -> dict[str, int]:
    return {str(p["mode"]): len(pool.keys(model, p)) for model, p in pool.models}


def test_every_mode_is_collected_into_one_pool_each_asked_in_its_own_way(
    adacompute: Callable, problems: Path
):
    with Upstream(Honest(tokens=8)) as small, Upstream(Honest(tokens=30)) as large:
        options = {"reasoning_effort": "high", "system_suffix": "Think hard."}
        write_menu(problems, small=small.url, large=large.url, options=options)
        done = adacompute(*COLLECT, "--samples", "3")
    assert "p.sqlite: 30 of 30 planned samples, 30 new" in done.stdout
    assert "adacompute evaluate p.sqlite --prices menu.toml" in done.stdout
    assert "small 15 of 15, large 15 of 15" in done.stderr
    bodies = [request.body for request in small.requests]
    assert {(b["model"], b["max_tokens"], b["top_k"], b["temperature"]) for b in bodies} == {
        ("tiny", 16, 5, 0.7)
    }
    bodies = [request.body for request in large.requests]
    assert {(b["model"], b["max_tokens"], b["reasoning_effort"]) for b in bodies} == {("huge", 1024, "high")}
    assert all(b["messages"][0]["content"].endswith("\nThink hard.") for b in bodies)
    with open_pool(problems / "p.sqlite") as pool:
        assert count_by_mode(pool) == {"small": 15, "large": 15}
        assert sorted(read_modes(pool).names) == ["large", "small"]
        parameters = {str(p["mode"]): p for _, p in pool.models}
    assert parameters["large"]["system_suffix"] == "Think hard."
    assert parameters["small"]["top_k"] == 5
    shown = adacompute("pool", "p.sqlite").stdout
    assert "mode           small\n  model          tiny" in shown


def test_the_same_command_asks_for_nothing_again_and_more_samples_ask_for_the_difference_by_mode(
    adacompute: Callable, problems: Path
):
    with Upstream() as small, Upstream() as large:
        write_menu(problems, small=small.url, large=large.url)
        adacompute(*COLLECT, "--samples", "2")
        asked = small.count.requests, large.count.requests
        again = json.loads(adacompute(*COLLECT, "--samples", "2", "--json").stdout)
        assert (small.count.requests, large.count.requests) == asked
        assert (again["added"], again["stored"], again["complete"]) == (0, 20, True)
        more = json.loads(adacompute(*COLLECT, "--samples", "small=6,large=2", "--json").stdout)
        assert large.count.requests == asked[1]
    assert {name: mode["added"] for name, mode in more["modes"].items()} == {"small": 20, "large": 0}
    assert (small.count.choices, large.count.choices) == (30, 10)


def test_the_account_and_the_dry_run_are_by_mode_at_its_own_prices(adacompute: Callable, problems: Path):
    with Upstream(Honest(tokens=8)) as small, Upstream(Honest(tokens=30)) as large:
        write_menu(problems, small=small.url, large=large.url, options={"max_tokens": 40})
        plan = json.loads(adacompute(*COLLECT, "--samples", "3", "--dry-run", "--json").stdout)
        assert small.count.requests == large.count.requests == 0
        assert not (problems / "p.sqlite").exists()
        done = json.loads(adacompute(*COLLECT, "--samples", "3", "--json").stdout)
        text = adacompute(*COLLECT, "--samples", "4", "--dry-run").stdout
    assert plan["samples"] == 30
    assert plan["modes"]["large"]["completion_tokens_most"] == 15 * 40
    assert plan["cost_most"] == pytest.approx(sum(mode["cost_most"] for mode in plan["modes"].values()))
    for name, up, prices in (("small", small, SMALL), ("large", large, LARGE)):
        true = (
            up.count.prompt_tokens * prices["input_price"]
            + 15 * {"small": 8, "large": 30}[name] * (prices["output_price"])
        )
        assert done["modes"][name]["cost"] == pytest.approx(true / 1e6)
        assert done["modes"][name]["cost"] <= plan["modes"][name]["cost_most"]
    assert done["cost"] == pytest.approx(sum(mode["cost"] for mode in done["modes"].values()))
    assert "to draw: 10 samples of 2 modes; nothing was sent" in text
    assert [line.split()[0] for line in text.splitlines() if " tiny " in line or " huge " in line] == [
        "small",
        "large",
    ]


def test_the_cap_holds_over_both_modes_together(adacompute: Callable, problems: Path):
    with Upstream(Honest(n="ignore", tokens=16)) as small, Upstream(Honest(n="ignore", tokens=16)) as large:
        write_menu(problems, small=small.url, large=large.url, options={"max_tokens": 16})
        words = ("--samples", "40", "--max-cost", "3", "--json")
        done = adacompute(*COLLECT, *words, code=1)
        paid = sum(
            (
                up.count.prompt_tokens * prices["input_price"]
                + up.count.completion_tokens * prices["output_price"]
            )
            / 1e6
            for up, prices in ((small, SMALL), (large, LARGE))
        )
        result = json.loads(done.stdout)
        assert 2.5 < paid <= 3.0, "it goes as far as it may, and no further"
        assert result["cost"] == pytest.approx(paid)
        assert "mode large: " in done.stderr
        assert "--max-cost was reached" in done.stderr
        again = json.loads(adacompute(*COLLECT, *words, code=1).stdout)
    assert again["cost"] <= 3.0, "what earlier runs paid is counted"


@pytest.mark.parametrize("fault", ["down", "refuses", "key"])
def test_a_mode_that_fails_is_named_and_the_others_are_completed(
    adacompute: Callable, problems: Path, fault: str
):
    with Upstream() as small, Upstream(Status(code=404, message="no such model")) as large:
        url = "http://127.0.0.1:9/v1" if fault == "down" else large.url
        if fault == "key":
            large.script = Status(code=401, message="Incorrect API key provided: sk-secret-0123456789")
        write_menu(problems, small=small.url, large=url, key_env="LARGE_KEY")
        done = adacompute(*COLLECT, "--samples", "3", code=1, LARGE_KEY="sk-secret-0123456789")
        assert "p.sqlite: 15 of 30 planned samples, 15 new" in done.stdout
        assert "mode large: 15 samples not drawn" in done.stderr
        assert "mode small" not in done.stderr
        assert "sk-secret" not in done.stdout + done.stderr
        large.script = Honest()
        write_menu(problems, small=small.url, large=large.url, key_env="LARGE_KEY")
        asked = small.count.requests
        adacompute(*COLLECT, "--samples", "3", LARGE_KEY="sk-secret-0123456789")
        assert small.count.requests == asked, "only what failed is asked for"
        assert "authorization" not in small.requests[0].headers, "no mode gets another's key"


def test_a_mode_without_prices_is_free_and_goes_on_when_the_cap_is_reached(
    adacompute: Callable, problems: Path
):
    with Upstream(Honest(n="ignore")) as small, Upstream(Honest(n="ignore")) as large:
        prices = {"input_price": 0.0, "output_price": 0.0}
        write_menu(problems, small=small.url, large=large.url, **prices)
        words = ("--samples", "8", "--max-cost", "0.05", "--json")
        result = json.loads(adacompute(*COLLECT, *words, code=1).stdout)["modes"]
    assert (result["large"]["complete"], result["large"]["cost"]) == (True, 0.0)
    assert (result["small"]["complete"], result["small"]["stopped"]) == (False, "max-cost")
    assert 0 < result["small"]["cost"] <= 0.05


def test_a_verifier_scores_the_samples_of_every_mode(adacompute: Callable, problems: Path):
    with (
        Upstream() as small,
        Upstream() as large,
        Upstream(Reply(body={"score": 0.5}), path="/score") as judge,
    ):
        write_menu(problems, small=small.url, large=large.url)
        words = ("--samples", "2", "--verifier", f"http://127.0.0.1:{judge.port}/score", "--json")
        result = json.loads(adacompute(*COLLECT, *words).stdout)["modes"]
    assert [mode["verifier"]["calls"] for mode in result.values()] == [10, 10]
    assert judge.count.requests == 20


def test_modes_are_asked_at_the_same_time(adacompute: Callable, problems: Path):
    with Upstream(Honest(latency=1.0)) as small, Upstream(Honest(latency=1.0)) as large:
        write_menu(problems, small=small.url, large=large.url)
        adacompute(*COLLECT, "--samples", "1")
    starts = [min(request.at for request in up.requests) for up in (small, large)]
    assert abs(starts[0] - starts[1]) < 0.9, "neither waited for the other's first reply"


def test_a_changed_option_is_refused_or_kept_apart_and_a_new_mode_is_added(
    adacompute: Callable, problems: Path
):
    with Upstream() as small, Upstream() as large:
        write_menu(problems, small=small.url, large=large.url)
        menu = (problems / "menu.toml").read_text()
        (problems / "menu.toml").write_text(menu.partition("[large]")[0])
        adacompute(*COLLECT, "--samples", "1")
        (problems / "menu.toml").write_text(menu)
        adacompute(*COLLECT, "--samples", "1")
        (problems / "menu.toml").write_text(menu.replace("top_k = 5", "top_k = 6"))
        for words in ((), ("--dry-run",)):
            refused = adacompute(*COLLECT, "--samples", "1", *words, code=1).stderr
            assert "mode 'small' was collected with other settings: top_k was 5, is 6" in refused
            assert "--another" in refused
        adacompute(*COLLECT, "--samples", "1", "--another")
    with open_pool(problems / "p.sqlite") as pool:
        assert len(pool.models) == 3
        assert read_modes(pool).names == ("small (top_k=5)", "large", "small (top_k=6)")


def test_a_pool_of_one_model_is_not_mixed_with_a_menu(adacompute: Callable, problems: Path):
    with Upstream() as up:
        adacompute("collect", "problems.jsonl", "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "1")
        write_menu(problems, small=up.url, large=up.url)
        refused = adacompute(*COLLECT, "--samples", "1", code=1).stderr
    assert "mode 'small' was collected with other settings" in refused
    assert len(refused.splitlines()) == 1


def test_of_two_limits_of_tokens_the_smaller_one_is_sent_unless_one_is_a_default(
    adacompute: Callable, problems: Path
):
    with Upstream(Honest(tokens=4)) as small, Upstream(Honest(tokens=4)) as large:
        write_menu(problems, small=small.url, large=large.url, options={"max_tokens": 4000})
        words = [*COLLECT, "--samples", "1", "--pool"]
        adacompute(*words, "q.sqlite")
        adacompute(*words, "r.sqlite", "--max-tokens", "100")
    assert [request.body["max_tokens"] for request in small.requests] == [16] * 10
    assert [request.body["max_tokens"] for request in large.requests] == [4000] * 5 + [100] * 5


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["--endpoint", "http://x/v1"],
            2,
            "--menu says this for each mode; leave this option out",
        ),
        (["--model", "m"], 2, "--model: --menu says this"),
        (["--output-price", "1"], 2, "--output-price: --menu says this"),
        (["--key-env", "K"], 2, "--key-env: --menu says this"),
        (["--engine", "ray"], 2, "several modes are asked from this process"),
        (["--samples", "small=2"], 2, "--samples: has no number for mode 'large'"),
        (["--samples", "small=2,lrge=2"], 2, "names 'lrge', which is not a mode"),
        (["--samples", "small=2,large=2,huge=2"], 2, "names 'huge', which is not a mode"),
        (["--samples", "0"], 2, "'0' can't be used; give a whole number from 1 up"),
        (["--samples", "small=2,3"], 2, "'small=2,3' can't be used"),
        (["--menu", "none.toml"], 1, "menu 'none.toml' can't be read"),
        (["--menu", "bad.toml"], 1, "bad.toml, [small]: unknown setting 'modle'"),
        (["--menu", "keyless.toml"], 1, "mode 'small': environment variable NO_SUCH_KEY holds no key"),
        (
            ["--menu", "free.toml", "--max-cost", "1"],
            1,
            "give input_price and output_price in each mode's table",
        ),
        (["--max-cost", "5EUR", "--dry-run"], 1, "is not in USD, the currency of the prices"),
        (["--menu", "named.toml"], 1, "mode 'small': option 'mode' has a meaning of its own in pools"),
    ],
)
def test_what_cant_be_used_is_named_in_one_line(
    adacompute: Callable, problems: Path, words: list[str], code: int, message: str
):
    address = "http://127.0.0.1:9/v1"
    write_menu(problems, small=address, large=address)
    start = f'[small]\nupstream = "{address}"\nmodel = "m"\n'
    (problems / "bad.toml").write_text(start + 'modle = "m"\n')
    (problems / "keyless.toml").write_text(start + 'key_env = "NO_SUCH_KEY"\n')
    (problems / "free.toml").write_text(start)
    (problems / "named.toml").write_text(start + 'options = { mode = "fast" }\n')
    done = adacompute(*COLLECT, *words, code=code)
    assert message in " ".join(done.stderr.split())
    assert not done.stdout
    if code == 1:
        assert len(done.stderr.splitlines()) == 1
    assert not (problems / "p.sqlite").exists() or code == 1


def test_samples_by_mode_need_a_menu(adacompute: Callable, problems: Path):
    words = ("collect", "problems.jsonl", "--pool", "p.sqlite", "--samples", "a=2,b=3")
    assert "there is one endpoint; give one number" in adacompute(*words, code=2).stderr


@pytest.mark.nightly
def test_a_policy_is_fitted_and_judged_on_the_pool_with_the_menu_as_its_prices(
    adacompute: Callable, tmp_path: Path
):
    write_problems(tmp_path, 12)

    def answer(share: float) -> Callable[[int, dict[str, Any]], Reply]:
        def script(number: int, body: dict[str, Any]) -> Reply:
            first = int(body["messages"][-1]["content"].split()[2])
            rights = round(share * body["n"])
            texts = [f"The answer is {first + 1}."] * rights
            return Reply(texts=[*texts, *(f"The answer is {90 + i}." for i in range(body["n"] - rights))])

        return script

    with Upstream(answer(0.4)) as small, Upstream(answer(0.8)) as large:
        write_menu(tmp_path, small=small.url, large=large.url)
        adacompute(*COLLECT, "--samples", "5")
    assert "small" in adacompute("pool", "p.sqlite", "--prices", "menu.toml").stdout
    budget = ("--budget", "30 USD per 1000")
    words = ("fit", "p.sqlite", "--policy", "menu", "--prices", "menu.toml", *budget, "-o", "policy")
    fitted = json.loads(adacompute(*words, "--json").stdout)
    assert [mode["mode"] for mode in fitted["modes"]] == ["small", "large"]
    assert fitted["unit"] == "money"
    words = ("evaluate", "p.sqlite", "--prices", "menu.toml", "--budgets", "30,60 USD per 1000")
    judged = adacompute(*words)
    assert "USD per 1,000 requests" in judged.stdout
    with open_pool(tmp_path / "p.sqlite") as pool:  # prompts cost what the calls were charged
        measured = {
            name: each.count.prompt_tokens / each.count.requests
            for name, each in {"small": small, "large": large}.items()
        }
        ballots = read_modes(pool)
        assert {name: ballots[name].charge.tokens for name in ballots.names} == pytest.approx(measured)
    assert f"{measured['small']:.0f} of small, {measured['large']:.0f} of large" in judged.stderr
    assert "tokens of prompts are estimated" not in judged.stdout
    menu = (tmp_path / "menu.toml").read_text()
    (tmp_path / "menu.toml").write_text(menu.replace("[small]", "[small]\nprompt_tokens = 7"))
    judged = adacompute(*words)
    assert "of small" not in judged.stderr
    assert f"{measured['large']:.0f} of large" in judged.stderr


@pytest.mark.slow
def test_killed_midway_and_given_again_it_loses_and_pays_twice_only_for_what_was_under_way(tmp_path: Path):
    write_problems(tmp_path, 20)
    words = [*COMMAND, *COLLECT, "--samples", "6", "--json"]
    with (
        process("--n", "ignore", "--latency", "0.05") as small,
        process("--n", "ignore", "--latency", "0.05") as large,
    ):
        write_menu(tmp_path, small=small, large=large, concurrency=4)
        menu = (tmp_path / "menu.toml").read_text()
        (tmp_path / "menu.toml").write_text(menu.replace('model = "tiny"', 'model = "tiny"\nconcurrency = 4'))
        with subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as collector:
            until(lambda: min(count(url)["completions"] for url in (small, large)) > 20)
            collector.kill()
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        served = {"small": count(small), "large": count(large)}
    assert done.returncode == 0, done.stderr
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert pool.verify().ok
        assert count_by_mode(pool) == {"small": 120, "large": 120}
    result = json.loads(done.stdout)
    for name, given in served.items():
        assert result["modes"][name]["added"] < 120, "it was done before it could be killed"
        assert given["choices"] <= 120 + 3 * 4, "the crash window is three times the concurrency"


@pytest.mark.nightly  # sampling/test_crash.py has it for one mode
def test_a_signal_finishes_what_is_in_flight_in_every_mode(tmp_path: Path):
    write_problems(tmp_path, 50)
    words = [*COMMAND, *COLLECT, "--samples", "6"]
    with (
        process("--n", "ignore", "--latency", "0.2") as small,
        process("--n", "ignore", "--latency", "0.2") as large,
    ):
        write_menu(tmp_path, small=small, large=large)
        with subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as collector:
            until(lambda: min(count(url)["completions"] for url in (small, large)) > 10)
            collector.send_signal(signal.SIGINT)
            out, err = collector.communicate(timeout=120)
        served = {"small": count(small), "large": count(large)}
    assert collector.returncode == 130, err
    assert "Traceback" not in err
    assert "of 600 planned samples" in out
    for name in ("small", "large"):
        assert f"mode {name}: " in err
        assert served[name]["requests"] == served[name]["completions"], "none was given up"
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert count_by_mode(pool) == {name: given["choices"] for name, given in served.items()}


@pytest.mark.nightly  # sampling/test_crash.py has it for one mode
def test_a_second_signal_gives_up_what_is_in_flight_in_every_mode(tmp_path: Path):
    write_problems(tmp_path, 5)
    words = [*COMMAND, *COLLECT, "--samples", "2"]
    with (
        process("--n", "ignore", "--latency", "30") as small,
        process("--n", "ignore", "--latency", "30") as large,
    ):
        write_menu(tmp_path, small=small, large=large)
        with subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as collector:
            until(lambda: min(count(url)["in_flight"] for url in (small, large)) > 0)
            collector.send_signal(signal.SIGINT)
            time.sleep(0.5)
            assert collector.poll() is None, "the first finishes what is in flight"
            collector.send_signal(signal.SIGINT)
            _, err = collector.communicate(timeout=120)
    assert collector.returncode == 130, err
    assert err.count("calls in flight were abandoned") == 2
    assert "Traceback" not in err
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert pool.verify().ok
