"""Real clients meet nothing worse through the gateway than directly; docs/peers.md says what they meet."""

from collections.abc import Iterator
from pathlib import Path

import environments
import pytest
import suite
from suite import CLIENTS, Client, Servers, Verdict, judge

SLOWEST = ("aider",)  # its command starts six times
SOON = ("openai (npm)", "ai, `openai()`")  # in an environment that is made within seconds
PAGE = suite.PAGE.read_text("utf-8")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A scripted model, and the gateway in front of it."""
    with suite.start_servers() as both:
        yield both


@pytest.mark.slow
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(one, id=one.key, marks=[] if one.name in SOON else [pytest.mark.nightly])
        for one in CLIENTS
    ],
)
def test_a_client_meets_nothing_worse_through_the_gateway(client: Client, servers: Servers):
    if client.name in SLOWEST:
        pytest.skip("takes minutes, and is left to `make clients`")
    try:
        environments.prepare(client.environment)
    except environments.Absent as exc:
        pytest.skip(f"needs the client environment {client.environment!r}: {exc}")
    verdicts = suite.run_client(client, servers)
    assert [f"{case}: {told.why}" for case, told in verdicts.items() if told.word == "worse"] == []
    # whether votes made one more answer right hangs on the order in which samples come: not compared
    row = suite.build_row(client, verdicts).replace("better", "same")
    assert row in PAGE.replace("better", "same"), "run `make clients`"


def test_the_page_has_a_row_for_each_client_and_none_is_worse():
    table = PAGE.partition("\n## Clients\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    begin = [f"| {client.name} | {suite.version(client)} |" for client in CLIENTS]
    assert [row[: len(start)] for row, start in zip(rows[1:], begin, strict=True)] == begin
    assert "worse |" not in PAGE
    assert "skipped:" not in PAGE, "run `make clients` where every client can be installed"


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without node, on which no environment has been made, and no installer works."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "clients")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environments, "call", refuse)
    environments.try_once.cache_clear()
    yield
    environments.try_once.cache_clear()


def refuse(*words: str, folder: Path = Path()) -> None:
    raise environments.Absent("pip can't install it", "No matching distribution found")


def test_a_client_that_can_t_be_installed_is_skipped_and_its_row_says_why(
    bare_machine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    known = {client.name: client for client in CLIENTS}
    node, python = known["openai (npm)"], known["openai-python"]
    nowhere = Servers("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1")
    verdicts = {client.name: suite.run_client(client, nowhere) for client in (node, python)}
    page = tmp_path / "peers.md"
    page.write_text(PAGE, "utf-8")
    suite.write_rows([suite.build_row(client, verdicts[client.name]) for client in (node, python)], page)
    assert f"| openai (npm) | {suite.version(node)} | skipped: node and npm are not installed | – |" in (
        page.read_text("utf-8")
    )
    assert suite.list_findings(verdicts) == [
        "openai (npm), plain: skipped: node and npm are not installed",
        "openai-python, plain: skipped: pip can't install it",
    ]
    assert "No matching distribution found" in capsys.readouterr().err  # all that was said: in the run alone


def test_pins_name_no_registry():
    for pins in environments.PINS.iterdir():
        assert "://" not in pins.read_text("utf-8"), pins.name


def test_a_case_is_judged_by_what_a_client_sees():
    direct = {"right": 7, "of": 10, "pieces": 72, "early": True, "facts": {"code": "x"}}
    assert judge(direct, direct) == Verdict("same")
    assert judge(direct, direct | {"right": 9}).word == "better"
    assert judge(direct, direct | {"right": 6}).word == "worse"
    assert judge(direct, direct | {"pieces": 3}).word == "worse"
    assert judge(direct, direct | {"early": False}).word == "worse"
    assert judge(direct, direct | {"right": 9, "facts": {"code": "y"}}).word == "worse"
    assert judge(direct, {"failed": "TimeoutError"}).word == "worse"
    assert judge(direct, None).word == "worse"
    assert judge({"failed": "x"}, {"failed": "x"}).word == "worse"  # a broken adapter proves nothing
