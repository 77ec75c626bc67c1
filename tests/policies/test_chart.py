"""What calibration saw, kept beside a policy: what is read was written for that policy, or is refused."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.errors import BudgetInvalid, PolicyError, PolicyInvalid
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.artefact import compute_digest, read_artefact
from adacompute.policies.chart import MAX_CHART_BYTES, Chart, ChartRow, read_chart, write_chart
from adacompute.policies.quality import Quality, QualityCurve
from adacompute.policies.stopping.prior import load_bundled_chart

NAN, ENDLESS = float("nan"), float("inf")


def row(budget: float, price: float | None, **given: float | None) -> ChartRow:
    own = {"cost": budget, "waves": 1.5, "agreement": 0.8, "deviation": 0.2, "stays": 0.9, "accuracy": 0.7}
    return ChartRow(budget=budget, price=price, **{**own, "uniform": 2 * budget, **given})


CHART = Chart(
    dial="threshold",
    unit="samples",
    problems=300,
    protocol="replay, 300 problems, 20 orders",
    rows=(row(1.5, 0.3), row(2, 0.2), row(4, 0.05)),
)


SINCE_THIRD = ("qualities", "basis", "measured", "cost_unit", "currency")  # fields since the third format
BAD_CURVE = {
    "samples": 8,
    "mode": None,
    "rival_cost": 8.0,
    "accuracy": 0.8,
    "costs": [3.0, 2.0],
    "gains": [0.0, 0.0],
    "lows": [0.0, 0.0],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    AdaptiveConsistency().save(tmp_path / "policy")
    write_chart(tmp_path / "policy", CHART)
    return tmp_path / "policy"


def read(folder: Path) -> Chart | None:
    return read_chart(folder, policy=read_artefact(folder).sha256)


def resealed(folder: Path, **changes: object) -> None:
    """chart.json with other content, and the hash that goes with it."""
    document = json.loads((folder / "chart.json").read_text()) | changes
    (folder / "chart.json").write_text(json.dumps(document | {"sha256": compute_digest(document)}))


def test_what_is_read_is_what_was_written(folder):
    assert read(folder) == CHART
    assert sorted(file.name for file in folder.iterdir()) == ["chart.json", "policy.json"]


def test_a_chart_of_the_first_format_is_read_without_lengths(folder):
    path = folder / "chart.json"
    document = json.loads(path.read_text())
    for name in ("prompt_tokens", "choices", *SINCE_THIRD):
        del document[name]
    for row_ in document["rows"]:
        del row_["tokens"], row_["rounds_p95"], row_["above"]
    path.write_text(json.dumps(document))
    resealed(folder, version=1)
    assert read(folder) == CHART


def test_a_chart_of_the_second_format_is_read_without_qualities(folder):
    path = folder / "chart.json"
    document = json.loads(path.read_text())
    for name in SINCE_THIRD:
        del document[name]
    for row_ in document["rows"]:
        del row_["rounds_p95"], row_["above"]
    path.write_text(json.dumps(document))
    resealed(folder, version=2)
    assert read(folder) == CHART


def test_qualities_are_kept(folder):
    curve = QualityCurve(
        samples=8, rival_cost=8.0, accuracy=0.8, costs=(2.0, 3.0), gains=(-0.01, 0.001), lows=(-0.02, -0.004)
    )
    chart = replace(CHART, qualities=(curve,), basis="agreement")
    write_chart(folder, chart)
    assert read(folder) == chart
    assert chart.find_quality(Quality.parse("as good as 8")).cost == 3.0


def test_of_several_modes_qualities_alone_are_kept_in_the_unit_of_the_menu(folder):
    curve = QualityCurve(
        samples=1,
        mode="large",
        rival_cost=0.002,
        accuracy=0.8,
        costs=(0.0005, 0.001),
        gains=(-0.1, 0.0),
        lows=(-0.2, 0.0),
    )
    chart = replace(CHART, rows=(), unit="money", qualities=(curve,), cost_unit="money", currency="USD")
    write_chart(folder, chart)
    assert read(folder) == chart
    found = chart.find_quality(Quality.parse("as good as large"))
    assert (found.budget, found.saved) == ("0.001 USD", 0.5)
    assert "1 on average for 2 USD per 1,000 requests, 50% less" in str(found)


def test_costs_given_as_numbers_are_no_budget_to_serve():
    curve = QualityCurve(
        samples=1, mode="large", rival_cost=1.0, accuracy=0.8, costs=(0.5,), gains=(0.0,), lows=(0.0,)
    )
    chart = replace(CHART, rows=(), unit="money", qualities=(curve,), cost_unit="cost")
    with pytest.raises(BudgetInvalid, match="--prices"):
        _ = chart.find_quality(Quality.parse("as good as large")).budget


def test_the_tail_of_a_request_s_samples_is_read_from_the_shares_above():
    tail = row(3, 0.1, above=(0.5, 0.2, 0.05, 0.01, 0.0))
    assert [tail.find_most(share) for share in (0.5, 0.8, 0.95, 0.99, 1.0)] == [1, 2, 3, 4, 5]
    assert row(3, 0.1).find_most(0.95) is None
    mixed = replace(CHART, rows=(tail, row(4, 0.05, above=(0.7, 0.4, 0.15, 0.03, 0.0)))).row_at(3.5)
    assert mixed is not None
    assert mixed.above == pytest.approx((0.6, 0.3, 0.1, 0.02, 0.0))


def test_a_policy_without_a_chart_has_none(folder):
    (folder / "chart.json").unlink()
    assert read(folder) is None


def test_a_policy_saved_again_drops_the_chart_of_the_one_before(folder):
    AdaptiveConsistency(longest=8).save(folder)
    assert read(folder) is None
    assert [file.name for file in folder.iterdir()] == ["policy.json"]


def test_c23_a_chart_of_another_policy_is_refused(folder):
    kept = (folder / "chart.json").read_bytes()
    AdaptiveConsistency(longest=8).save(folder)
    (folder / "chart.json").write_bytes(kept)
    with pytest.raises(PolicyInvalid, match=r"chart\.json: is of another policy .*; fit again, or remove it"):
        read(folder)


def test_c23_every_flipped_byte_of_a_chart_is_refused_or_changes_nothing(folder):
    path, kept = folder / "chart.json", (folder / "chart.json").read_bytes()
    policy = read_artefact(folder).sha256
    for place in range(0, len(kept), 7):
        for mask in (1, 0x20, 0x80):
            path.write_bytes(kept[:place] + bytes([kept[place] ^ mask]) + kept[place + 1 :])
            try:
                found = read_chart(folder, policy=policy)
            except PolicyInvalid:
                continue
            assert found == CHART, place  # blanks between its parts


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_c23_a_chart_cut_short_is_refused(folder, length: int):
    path = folder / "chart.json"
    path.write_bytes(path.read_bytes()[:length].rstrip(b"}"))
    with pytest.raises(PolicyInvalid, match=r"chart\.json"):
        read(folder)


def test_c23_a_chart_larger_than_any_is_not_read_whole(folder):
    path = folder / "chart.json"
    path.write_bytes(path.read_bytes() + b" " * MAX_CHART_BYTES)
    with pytest.raises(PolicyInvalid, match="larger"):
        read(folder)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", '0.3, "price": 0.3'])
def test_c23_no_number_and_a_key_twice_are_refused(folder, text: str):
    path = folder / "chart.json"
    path.write_text(path.read_text().replace("0.3,", f"{text},", 1))
    with pytest.raises(PolicyInvalid, match="not whole JSON"):
        read(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "else"}, "not an adacompute chart"),
        ({"schema": None}, "not an adacompute chart"),
        ({"version": 4}, "newer"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"choices": 0}, "choices"),
        ({"policy": "../../etc/passwd"}, "another policy"),
        ({"rows": {}}, "rows"),
        ({"rows": [{}]}, "rows"),
        ({"rows": [[]]}, "rows"),
        ({"rows": []}, "rows"),
        ({"dial": "price "}, "dial"),
        ({"dial": ["price"]}, "dial"),
        ({"dial": None}, "rows"),
        ({"unit": "apples"}, "unit"),
        ({"unit": ["samples"]}, "unit"),
        ({"problems": 0}, "problems"),
        ({"problems": 2.5}, "problems"),
        ({"protocol": "x" * 1001}, "protocol"),
        ({"protocol": 1}, "protocol"),
        ({"basis": "luck"}, "basis"),
        ({"qualities": [{"samples": 8}]}, "Object missing"),
        ({"qualities": [BAD_CURVE]}, "don't fit together"),
    ],
)
def test_c23_fields_that_no_chart_has_are_refused_with_the_reason(folder, changes, words: str):
    resealed(folder, **changes)
    with pytest.raises(PolicyInvalid, match=words) as refused:
        read(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ChartRow.__dataclass_fields__)
@pytest.mark.parametrize("value", [-1, 1e300, True, "1", [2], {}, None])
def test_c23_numbers_out_of_bounds_are_refused(folder, name: str, value: object):
    rows = json.loads((folder / "chart.json").read_text())["rows"]
    rows[1][name] = value
    resealed(folder, rows=rows)
    if value is None and name in ("accuracy", "uniform", "tokens", "rounds_p95"):
        found = read(folder)
        assert found is not None
        assert getattr(found.rows[1], name) is None
        return
    with pytest.raises(PolicyInvalid, match=r"chart\.json"):
        read(folder)


@pytest.mark.parametrize(
    "rows",
    [
        (row(2, 0.2), row(1.5, 0.1)),
        (row(2, 0.2), row(2, 0.2)),
        (row(1.5, 0.1), row(2, 0.2)),
        (row(1.5, 0.3, cost=3), row(2, 0.2)),
        (row(1.5, 0.3), row(2, NAN)),
        (row(1.5, 0.3), row(2, 0.1, agreement=NAN)),
        (row(1.5, 0.3), row(2, 0.1, cost=ENDLESS)),
        (row(1.5, 1.5),),
    ],
    ids=str,
)
def test_c23_rows_that_do_not_rise_in_cost_and_fall_in_price_are_no_chart(folder, rows):
    with pytest.raises(PolicyError, match="invalid chart"):
        write_chart(folder, replace(CHART, rows=rows))


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_c23_what_is_no_plain_file_is_refused_and_not_waited_for(folder, kind: str):
    path = folder / "chart.json"
    path.unlink()
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("gone")}[kind]()
    with pytest.raises(PolicyInvalid, match=r"chart\.json"):
        read(folder)


def test_a_chart_goes_beside_a_policy_only(tmp_path):
    with pytest.raises(PolicyInvalid, match="not there"):
        write_chart(tmp_path, CHART)
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(PolicyInvalid, match="is not an adacompute policy"):
        write_chart(tmp_path, CHART)


def test_a_write_that_fails_leaves_the_old_chart(folder, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(PolicyError, match="No space left"):
            write_chart(folder, replace(CHART, problems=1))
    assert read(folder) == CHART
    AdaptiveConsistency().save(folder)
    assert [file.name for file in folder.iterdir()] == ["policy.json"]  # nothing half written is left


@given(st.floats(1.5, 4), st.floats(1.5, 4))
def test_a_dearer_budget_has_no_higher_price_and_rows_are_met_exactly(one: float, other: float):
    low, high = (CHART.price_at(budget) for budget in sorted((one, other)))
    assert low is not None
    assert high is not None
    assert 0.05 <= high <= low * (1 + 1e-9)
    assert [CHART.price_at(each.budget) for each in CHART.rows] == [0.3, 0.2, 0.05]


@pytest.mark.parametrize("budget", [0, 1, 1.49, 4.01, 16, NAN, ENDLESS])
def test_outside_of_what_was_seen_nothing_is_told(budget: float):
    assert CHART.price_at(budget) is None
    assert CHART.row_at(budget) is None


def test_between_rows_prices_are_mixed_by_their_logarithms_and_the_rest_by_itself():
    found = CHART.row_at(3)
    assert found is not None
    assert found.price == pytest.approx((0.2 * 0.05) ** 0.5)
    assert (found.cost, found.uniform, found.accuracy) == pytest.approx((3, 6, 0.7))
    some = replace(CHART, rows=(row(1.5, 0.3), row(4, 0.0, accuracy=None, uniform=None)))
    mixed = some.row_at(2)
    assert mixed is not None
    assert mixed.accuracy is None
    assert mixed.price is not None
    assert 0 < mixed.price < 0.3


def test_without_a_dial_there_is_one_row_whatever_the_budget():
    alone = replace(CHART, dial=None, rows=(row(2, None),))
    assert (alone.price_at(2), alone.row_at(7)) == (None, alone.rows[0])


@pytest.mark.nightly
def test_the_chart_in_the_package_is_that_of_its_prior_and_its_recordings(recordings, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).resolve().parents[2] / "scripts"), *sys.path])
    import prior
    from recordings import read_recordings

    kept = load_bundled_chart()
    assert kept is not None, "run scripts/prior.py"
    fresh = prior.build_prior_chart(read_recordings(recordings), budgets=(2.0,)).rows[0]
    then = kept.row_at(2.0)
    for name in ChartRow.__dataclass_fields__.keys() - {
        "tokens",
        "rounds_p95",
        "above",
    }:  # not in the kept one
        assert getattr(fresh, name) == pytest.approx(getattr(then, name), rel=0.03), (
            f"{name}: run scripts/prior.py"
        )
