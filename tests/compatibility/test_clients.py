"""Real clients meet nothing worse through the gateway than directly; docs/clients.md says what they meet."""

import shutil
from collections.abc import Iterator

import environments
import pytest
import suite
from suite import CLIENTS, Client, Servers, Verdict, judge

SLOWEST = ("aider",)  # its command starts six times: left to `make clients`
PAGE = suite.PAGE.read_text("utf-8")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A scripted model, and the gateway in front of it."""
    with suite.start_servers() as both:
        yield both


CHECKED = [client for client in CLIENTS if client.name not in SLOWEST]


@pytest.mark.slow
@pytest.mark.parametrize("client", CHECKED, ids=[client.key for client in CHECKED])
def test_a_client_meets_nothing_worse_through_the_gateway(client: Client, servers: Servers):
    try:
        environments.prepare(client.environment)
    except environments.Absent as exc:
        if client.environment == "node" and shutil.which("node") is None:
            pytest.skip("needs node and npm, which are not installed")
        pytest.skip(f"needs the client environments, which can't be made: {exc}")
    verdicts = suite.run_client(client, servers)
    assert [f"{case}: {told.why}" for case, told in verdicts.items() if told.word == "worse"] == []
    # whether votes made one more answer right hangs on the order in which samples come: not compared
    row = suite.build_row(client, verdicts).replace("better", "same")
    assert row in PAGE.replace("better", "same"), "run `make clients`"


def test_the_page_has_a_row_for_each_client_and_none_is_worse():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    begin = [f"| {client.name} | {suite.version(client)} |" for client in CLIENTS]
    assert [row[: len(start)] for row, start in zip(rows[1:], begin, strict=True)] == begin
    assert "worse |" not in PAGE


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
