"""`adacompute serve` as a user has it: settings from options, file and environment, and what it says."""

import dataclasses
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from behaviours import Behaviour
from other_routes import OtherRoutes, status
from running import Running
from typer.testing import CliRunner

from adacompute.cli.app import app
from adacompute.cli.serve import format_toml, gather_facts, show_started
from adacompute.config import AnswersConfig, Config, EndpointConfig, ServeConfig, load_config
from adacompute.errors import ConfigError, EndpointRefused, EndpointUnreachable, PolicyError
from adacompute.policies.stopping import StoppingPolicy
from upstream import Reply, Status, Upstream

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "canary-client-key-0123456789"


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command in this process, in an empty folder: starting one takes a second and more."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ADACOMPUTE_")]:
        monkeypatch.delenv(name)

    def run(*words: str, error: type[BaseException] | None = None, **environ: str) -> Any:
        done = CliRunner().invoke(app, ["serve", *words], env=environ)
        found = None if isinstance(done.exception, SystemExit) else done.exception
        assert type(found) is (error or type(None)), f"{found!r}\n{done.output}"
        return done

    return run


def test_the_settings_shown_are_read_back_as_the_same(tmp_path: Path):
    config = Config(
        serve=ServeConfig(
            budget=3.5, policies=("a=b", 'c="d"'), vote_pattern='\\d+ "x"\t\x7f', tls_cert="ü.pem"
        ),
        endpoint=EndpointConfig(url="http://h/v1", input_price=1e-7, retry_timeouts=True),
        answers=AnswersConfig(extract="regex:(\\d+)"),
    )
    file = tmp_path / "shown.toml"
    file.write_text(format_toml(config), "utf-8")
    assert load_config(file, environ={}) == config


def test_every_setting_is_shown_and_those_of_the_gateway_with_what_they_mean():
    text = format_toml(Config())
    for setting in dataclasses.fields(ServeConfig):
        (line,) = re.findall(rf"^{setting.name} = .*$", text.partition("[endpoint]")[0], re.MULTILINE)
        assert "  # " in line or setting.name in ("tls_key",), line


def test_options_outrank_the_environment_and_that_the_file(serve, tmp_path: Path):
    (tmp_path / "adacompute.toml").write_text(
        '[serve]\nbudget = 4\nport = 1234\nmode = "shadow"\n[endpoint]\nurl = "http://file/v1"\n'
    )
    words = ("--show-config", "--port", "5", "--upstream", "http://option/v1", "--unit", "money")
    found = tomllib.loads(serve(*words, ADACOMPUTE_SERVE_BUDGET="3 samples").stdout)
    assert (found["serve"]["port"], found["serve"]["mode"]) == (5, "shadow")
    assert found["serve"]["budget"] == "3 samples"
    assert (found["serve"]["unit"], found["endpoint"]["url"]) == ("money", "http://option/v1")


def test_every_option_that_is_a_setting_changes_it(serve):
    options = {
        "--upstream": ("endpoint", "url", "http://h/v1"),
        "--policy": ("serve", "policy", "dir"),
        "--budget": ("serve", "budget", "3 samples"),
        "--model": ("endpoint", "model", "m"),
        "--host": ("serve", "host", "::1"),
        "--port": ("serve", "port", 7),
        "--workers": ("serve", "workers", 3),
        "--keys": ("serve", "keys_file", "keys.toml"),
        "--cap": ("serve", "cap", "10USD"),
        "--key-cap": ("serve", "key_cap", 5.0),
        "--unit": ("serve", "unit", "tokens"),
        "--window": ("serve", "window", "day"),
        "--mode": ("serve", "mode", "pass"),
        "--price": ("serve", "price", 0.25),
        "--margin": ("serve", "margin", 2.0),
        "--max-rounds": ("serve", "max_rounds", 3),
        "--max-samples": ("serve", "max_samples", 9),
        "--min-agreement": ("serve", "min_agreement", 0.5),
        "--weak": ("serve", "weak", "refuse"),
        "--stream-mode": ("serve", "stream_mode", "first"),
        "--average": ("serve", "average", "all"),
        "--record": ("serve", "record", "traffic.sqlite"),
        "--state": ("serve", "state", "s.sqlite"),
        "--redis": ("serve", "redis", "redis://h:6379/0"),
        "--fleet": ("serve", "fleet", "f"),
        "--concurrency": ("serve", "concurrency", 9),
        "--key-env": ("endpoint", "key_env", "NAME"),
        "--key-file": ("endpoint", "key_file", "key"),
        "--key-header": ("endpoint", "key_header", "api-key"),
        "--header": ("endpoint", "headers", ["X-Title: ***"]),
        "--query": ("endpoint", "query", ["api-version=***"]),
        "--ca-file": ("endpoint", "ca_file", "ca.pem"),
        "--input-price": ("endpoint", "input_price", 1.5),
        "--output-price": ("endpoint", "output_price", 2.5),
        "--cached-price": ("serve", "cached_price", 0.5),
        "--currency": ("endpoint", "currency", "EUR"),
        "--extract": ("answers", "extract", "boxed"),
        "--percent": ("answers", "percent", "fraction"),
        "--tls-cert": ("serve", "tls_cert", "c.pem"),
        "--tls-key": ("serve", "tls_key", "k.pem"),
        "--explore": ("serve", "explore", 0.25),
        "--log": ("serve", "log", "error"),
        "--cors": ("serve", "cors", ["http://localhost:3000"]),
        "--otel": ("serve", "otel", "http://h:4318"),
        "--verifier": ("verifier", "url", "http://v/score"),
        "--verifier-model": ("verifier", "model", "judge"),
    }
    texts = {name: value[0] if isinstance(value, list) else value for name, (_, _, value) in options.items()}
    words = [word for name, value in texts.items() for word in (name, str(value))]
    found = json.loads(serve("--show-config", "--json", "--no-playground", *words).stdout)
    assert found["serve"]["playground"] is False
    assert {name: found[stage][key] for name, (stage, key, _) in options.items()} == {
        name: value for name, (_, _, value) in options.items()
    }
    other_name = json.loads(serve("--show-config", "--json", "--endpoint", "http://e/v1").stdout)
    assert other_name["endpoint"]["url"] == "http://e/v1"
    help_ = serve("--help").stdout
    assert set(re.findall(r"^  (--[a-z-]+)", help_, re.MULTILINE)) == {
        *options,
        "--menu",  # in the place of --upstream
        "--playground",
        "--show-config",
        "--check",
        "--config",
        "--json",
    }


def test_a_settings_file_can_be_named_before_the_command_and_behind_it(serve, tmp_path: Path):
    (tmp_path / "other.toml").write_text("[serve]\nbudget = 4\n")
    found = tomllib.loads(serve("--show-config", "--config", "other.toml").stdout)
    assert found["serve"]["budget"] == 4.0
    whole = CliRunner().invoke(app, ["--config", "other.toml", "serve", "--show-config"]).stdout
    assert tomllib.loads(whole) == found


def test_a_budget_that_is_none_is_named_with_examples(serve):
    done = serve("--budget", "abc")
    assert done.exit_code == 2
    assert "budget 'abc' can't be read; give e.g. 3, '500 tokens'" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("option", "words"),
    [("--cap", "'abc' can't be read; give"), ("--port", "'abc' is not a whole number; give")],
)
def test_an_option_that_is_no_number_is_named_with_its_value(serve, option: str, words: str):
    done = serve(option, "abc")
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["stopping", "curve", "nothing"])
def test_a_policy_that_is_no_folder_is_told_what_to_give(serve, name: str):
    with Upstream() as up:
        for more in ((), ("--check",)):
            done = serve("--upstream", up.url, "--policy", name, *more, error=PolicyError)
            assert f"policy '{name}' is no" in str(done.exception)
            assert "`adacompute fit` wrote" in str(done.exception)
            assert ("leave --policy out" in str(done.exception)) == (name == "stopping")


def test_c21_no_key_is_in_the_settings_that_are_shown(serve, tmp_path: Path):
    (tmp_path / "keys.toml").write_text(f'[alice]\nkey = "{KEY}"\n')
    (tmp_path / "key").write_text("canary-upstream-key")
    words = ("--show-config", "--keys", "keys.toml", "--key-file", "key")
    words += ("--header", "X-Token: canary", "--query", "key=canary")
    for more in ((), ("--json",)):
        url = "http://me:canary@h/v1?key=canary"
        done = serve(*words, "--upstream", url, *more, ADACOMPUTE_KEY="canary-env")
        assert "canary" not in done.output
        assert "keys.toml" in done.stdout


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": 0.5}, "which is 16 by default"),
        (
            {"budget": 17.0},
            "budget 17 samples per request is above max_budget 16 samples per request; lower it, or set max",
        ),
        ({"budget": 17.0, "max_budget": "16 samples"}, "is above max_budget 16 samples"),
        ({"budget": "two"}, "budget 'two' can't be read; give e.g. 3, '500 tokens' or '2 USD per 1000'"),
        ({"budget": 3.0, "unit": "money"}, "write '3 samples', '3 USD per 1000' or '3 USD per request'"),
        ({"budget": 3.0, "unit": "tokens"}, "write '3 samples' or '3 tokens' to say which"),
        ({"budget": "900 tokens", "max_budget": "800 tokens"}, "budget 900 tokens per request is above"),
        ({"cap": -1.0}, "cap is -1.0; give a number from 0 up or a text such as '5 USD'"),
        ({"min_agreement": 1.5}, "min_agreement is 1.5; give a number from 0 to 1"),
        ({"explore": -0.1}, "explore is -0.1; give a number from 0 to 1"),
        ({"port": 65_536}, "port is 65536; give a whole number from 0 to 65,535"),
        ({"max_n": 0}, "max_n is 0; give a whole number from 1 to 1,024"),
        ({"deadline": 0.0}, "deadline is 0.0; give a number from 0.001 to 86,400"),
        ({"state": ""}, "state is ''; give a file, e.g. adacompute-gateway.sqlite"),
        ({"vote_pattern": "("}, "vote_pattern '(' is not a regular expression"),
        ({"policies": ("maths",)}, "policies is 'maths'; give NAME=FOLDER"),
    ],
)
def test_a_setting_out_of_its_range_is_named_with_the_remedy(settings: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as caught:
        ServeConfig(**settings)
    assert words in str(caught.value)


def test_a_setting_out_of_its_range_is_one_line_whichever_way_it_comes(serve, adacompute, tmp_path: Path):
    done = adacompute("serve", "--budget", "0.5", code=1)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.stderr.startswith(
        "adacompute: budget 0.5 can't be used; give 1 to the most that the policy draws"
    )
    done = serve(ADACOMPUTE_SERVE_BUDGET="0.5", error=ConfigError)
    assert str(done.exception).startswith("environment variable ADACOMPUTE_SERVE_BUDGET: budget 0.5 can't")
    (tmp_path / "adacompute.toml").write_text("[serve]\nbudget = 0.5\n")
    assert str(serve(error=ConfigError).exception).startswith("adacompute.toml, [serve]: budget 0.5 can't")


def test_without_an_upstream_it_says_how_to_name_one(serve):
    assert "--upstream URL" in str(serve("--port", "0", error=ConfigError).exception)


def test_check_says_what_it_found_and_serves_nothing(serve, tmp_path: Path):
    (tmp_path / "keys.toml").write_text(f'[alice]\nkey = "{KEY}"\n')
    with Upstream(models=("one", "two")) as up:
        words = (
            "--check",
            "--upstream",
            up.url,
            "--keys",
            "keys.toml",
            "--cap",
            "9",
            "--window",
            "day",
            "--port",
            "0",
        )
        found = json.loads(serve(*words, "--json").stdout)
        told = serve(*words).stdout
    assert found["models"] == ["one", "two"]
    assert (found["keys"], found["budget"], found["kind"]) == (1, 2.0, "stopping")
    assert found["caps"] == "9 samples in all, each day"
    assert up.count.requests == 0
    assert all(word in told for word in ("ready to be served", "one, two", "9 samples in all, each day"))
    assert KEY not in told


def test_a_cap_that_is_spent_is_said_at_the_start_and_in_the_refusal(serve, tmp_path: Path, capsys):
    prices, state = {"input_price": 0.0, "output_price": 10_000.0}, str(tmp_path / "state.sqlite")
    settings: dict[str, Any] = {
        "folder": tmp_path,
        "endpoint": prices,
        "unit": "money",
        "budget": "1 samples",
    }
    with Upstream() as up:
        with Running(up.url, cap=5000.0, **settings) as gate:
            assert gate.ask().status == 200
            spent = gate.gateway.resources.ledger.account().spent.amount_in("money")
        assert spent > 0.05
        words = ("--cap", "0.05", "--unit", "money", "--output-price", "10000", "--budget", "1 samples")
        told = serve("--check", "--upstream", up.url, "--port", "0", "--state", state, *words).stdout
        with Running(up.url, cap=0.05, **settings) as gate:
            show_started(gather_facts(gate.gateway, gate.base))
            refused = gate.ask(max_tokens=1)
    for text in (told, capsys.readouterr().out):
        assert f"{spent:g} of 0.05 USD spent" in text
    assert refused.status == 429
    assert "used up" in refused.error["message"]
    assert state in refused.error["message"]
    assert "max_tokens" not in refused.error["message"]


def test_check_says_that_a_model_is_not_listed(serve):
    with Upstream(models=("one", "two")) as up:
        words = ("--check", "--upstream", up.url, "--model", "zzz", "--port", "0")
        found = json.loads(serve(*words, "--json").stdout)
        told = serve(*words).stdout
    assert (found["models"], found["model"], found["url"]) == (["one", "two"], "zzz", None)
    assert "the upstream lists one, two; not zzz" in told
    assert "ready to be served at any free port" in told


def test_check_says_whether_the_verifier_gives_a_score(serve):
    with Upstream() as up, Upstream(Reply(body={"score": 0.75}), path="/score") as verifier:
        words = ("--check", "--upstream", up.url, "--port", "0", "--verifier")
        address = f"http://127.0.0.1:{verifier.port}/score"
        assert json.loads(serve(*words, address, "--json").stdout)["verifier_error"] is None
        for wrong, reason in (("http://127.0.0.1:9/score", "can't be reached"), (up.url, "404")):
            assert reason in json.loads(serve(*words, wrong, "--json").stdout)["verifier_error"]
        assert "the verifier gives no score" in serve(*words, up.url).stdout


def test_check_leaves_no_file_behind(serve, tmp_path: Path):
    with Upstream() as up:
        found = json.loads(
            serve("--check", "--json", "--upstream", up.url, "--record", "r.sqlite", "--port", "0").stdout
        )
    assert list(tmp_path.iterdir()) == []
    assert (found["state"], found["record"]) == (ServeConfig().state, "r.sqlite")


def test_check_passes_with_a_note_where_only_the_list_of_models_is_missing(serve):
    missing = status(404, {"error": {"message": "no such route"}})
    refusal = status(400, {"error": {"message": "messages are missing"}})
    with OtherRoutes(**{"models": missing, "chat/completions": refusal}) as up:
        words = ("--check", "--upstream", up.url, "--port", "0")
        found, told = json.loads(serve(*words, "--json").stdout), serve(*words).stdout
        assert (found["models"], "404" in found["models_error"]) == ([], True)
        assert "doesn't list its models" in told
        up.script["/v1/chat/completions"] = missing  # then it is rather the wrong address
        serve(*words, error=EndpointRefused)


def test_check_fails_where_the_port_is_taken(serve):
    with Upstream() as up, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = serve("--check", "--upstream", up.url, "--port", port, error=ConfigError)
    assert f"port {port} of 127.0.0.1 is in use" in str(done.exception)


def test_check_fails_where_the_upstream_is_not_there_or_it_may_not_listen(serve):
    done = serve("--check", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", error=EndpointUnreachable)
    assert "ssl" not in str(done.exception)
    with Upstream() as up:
        serve("--check", "--upstream", up.url, "--host", "0.0.0.0", error=ConfigError)


def test_what_it_says_at_its_start_has_the_base_url_and_a_request_to_try(capsys: pytest.CaptureFixture[str]):
    with Upstream() as up, Running(up.url, cap=10.0, mode="shadow", record="") as gate:
        show_started(gather_facts(gate.gateway, gate.base))
    told = capsys.readouterr().out
    assert f"{gate.url}: give that to an OpenAI client as its base_url" in told
    assert f"curl {gate.url}/chat/completions -H 'content-type: application/json' -d '{{\"model\": " in told
    assert all(
        word in told for word in ("10 samples in all", "shadow", f"{gate.base}/dashboard", "none: open")
    )


@pytest.mark.parametrize(
    ("models", "chosen", "shown"),
    [
        (("text-embedding-3", "large", "small"), "", "large"),
        (("large", "small", "tiny"), "small", "small"),
        (("only",), "", "only"),
        ((), "", "MODEL"),
    ],
)
def test_the_curl_at_its_start_works_with_whatever_models_the_upstream_lists(
    models: tuple[str, ...], chosen: str, shown: str, capsys: pytest.CaptureFixture[str]
):
    def script(_number: int, body: dict[str, Any]) -> Behaviour:
        return Reply() if body["model"] in models or not models else Status(code=404, message="no such model")

    with Upstream(script, models=models) as up, Running(up.url, endpoint={"model": chosen}) as gate:
        show_started(gather_facts(gate.gateway, gate.base))
        told = capsys.readouterr().out
        words = shlex.split(next(line for line in told.splitlines() if line.startswith("  curl ")))
        assert gate.ask(json.loads(words[words.index("-d") + 1])).status == 200
        assert up.requests[-1].body["model"] == shown
    assert ("--model" in told) is (not models)


@pytest.mark.parametrize("fitted_on", ["scripted", "another", None])
def test_a_policy_fitted_on_another_model_is_noted_once(
    fitted_on: str | None, serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    policy = StoppingPolicy()
    policy.source_model = fitted_on
    policy.save(tmp_path / "policy")
    is_foreign = fitted_on == "another"
    with Upstream() as up:
        told = serve("--check", "--upstream", up.url, "--policy", "policy").stdout
        assert told.count("fitted on samples of 'another', and 'scripted' is served") == is_foreign
        caplog.clear()
        with Running(up.url, policy=str(tmp_path / "policy")):
            pass
    assert caplog.text.count("was fitted on samples of") == is_foreign


# Docker: nothing is built here, so what the files name is checked to be there


def test_the_image_is_made_of_files_that_are_there_and_that_it_may_see():
    text = (ROOT / "Dockerfile").read_text()
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("", "", ""),
        ("USER 10001", "USER root", "DL3002"),  # the last user shouldn't be root
        ("COPY --from=wheel", "COPY --from=whee", "DL3022"),  # from a stage that isn't there
        ("FROM python:3.12-slim AS build", "FROM python AS build", "DL3006"),  # any version
        ("WORKDIR /data", "WORKDI /data", "unexpected 'W'"),
    ],
)
def test_a_linter_finds_nothing_in_the_build_file(tmp_path: Path, old: str, new: str, rule: str):
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("needs the linter: hadolint is not installed (make setup)")
    text = (ROOT / "Dockerfile").read_text()
    assert old in text
    (tmp_path / "Dockerfile").write_text(text.replace(old, new, 1))
    words = [str(linter), "--no-color", str(tmp_path / "Dockerfile")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode, bool(said)) == ((1, True) if rule else (0, False)), said
    assert rule in said


def test_the_image_runs_as_nobody_special_and_checks_its_health():
    text = (ROOT / "Dockerfile").read_text()
    last = text.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (\d+)$", last, re.MULTILINE)
    assert f"--uid {user}" in last
    assert "/healthz" in last
    assert "--require-hashes" in text


def test_every_option_that_docker_names_is_one_of_the_command(serve):
    known = set(re.findall(r"--[a-z-]+", serve("--help").stdout))
    entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[1])
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    words = [*entry, *compose["services"]["gateway"]["command"]]
    assert entry[:2] == ["adacompute", "serve"]
    assert {word for word in words if word.startswith("--")} <= known
    comment = " ".join(line[1:] for line in (ROOT / "Dockerfile").read_text().splitlines() if line[:1] == "#")
    run = shlex.split(comment.partition("adacompute --upstream")[2].partition("It listens")[0])
    assert {word for word in run if word.startswith("--")} <= known


def test_the_parts_of_the_compose_file_fit_together():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    gateway, services = compose["services"]["gateway"], compose["services"]
    command = gateway["command"]
    upstream = command[command.index("--upstream") + 1]
    assert re.fullmatch(r"http://(\w+):8080/v1", upstream)[1] in services
    assert set(gateway["depends_on"]) <= set(services)
    assert command[command.index("--keys") + 1] == f"/run/secrets/{gateway['secrets'][0]}"
    assert set(gateway["secrets"]) == set(compose["secrets"])
    assert {volume.split(":")[0] for volume in gateway["volumes"]} == set(compose["volumes"])
    assert float(gateway["stop_grace_period"].rstrip("s")) > ServeConfig().grace


def test_c24_the_image_installs_a_part_of_the_lock_and_all_that_the_package_needs():
    entry = re.compile(r"^([a-z0-9][\w.-]*)==\S+.*?(?=^[a-z0-9]|\Z)", re.MULTILINE | re.DOTALL)
    whole = {match[0].strip() for match in entry.finditer((ROOT / "requirements.lock").read_text())}
    part = {match[0].strip() for match in entry.finditer((ROOT / "requirements-gateway.lock").read_text())}
    assert part < whole
    assert all("--hash=sha256:" in each for each in part)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w.-]", name, maxsplit=1)[0].lower() for name in project["dependencies"]}
    assert needed <= {each.partition("==")[0] for each in part}
