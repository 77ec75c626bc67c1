"""What docs/peers.md says of packages that are installed here is so, in the versions that it names."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "peers.md").read_text("utf-8")


@pytest.mark.parametrize("package", ["its_hub", "AdaptiveConsistency", "adacompute"])
def test_the_page_is_about_the_version_that_is_locked(package: str):
    head = next(line for line in PAGE.splitlines() if line.startswith("| | adacompute"))
    assert f"{package} {importlib.metadata.version(package)}" in head


def test_adaptive_consistency_says_when_to_stop_and_cannot_draw_by_itself():
    from adaptive_consistency import AC, BetaStoppingCriteria

    rule = AC(stop_criteria=BetaStoppingCriteria(0.95))
    assert [bool(rule.should_stop(["4"] * votes)) for votes in (2, 5)] == [False, True]
    with pytest.raises(AttributeError, match="is_consistent"):
        rule.eval_loop(lambda: "4")


def test_the_server_of_its_hub_gives_every_request_the_same_number():
    spec = importlib.util.find_spec("its_hub")  # read, not imported: its server wants more packages
    assert spec is not None
    gateway = Path(str(spec.origin)).parent / "core" / "gateway.py"
    assert 'SUPPORTED_ALGORITHMS = frozenset({"self-consistency"})' in gateway.read_text("utf-8")


def test_the_library_of_its_hub_has_two_rules_that_stop():
    from its_hub.core.algorithms import adaptive_self_consistency, beta_self_consistency

    assert adaptive_self_consistency.AdaptiveSelfConsistency().threshold == 0.75
    assert beta_self_consistency.BetaSelfConsistency().confidence_threshold == 0.95
