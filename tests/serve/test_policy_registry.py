"""The policies in service: named, read again without a gap, broken ones refused; weights on a live scale."""

import functools
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import SignalModel
from adacompute.config import ServeConfig
from adacompute.errors import ConfigError, PolicyError, PolicyInvalid
from adacompute.policies.agreement import AdaptiveConsistency, EarlyStopping
from adacompute.policies.artefact import MAX_DOCUMENT_BYTES, compute_digest, read_artefact, write_artefact
from adacompute.policies.baselines import (
    FixedPolicy,
    OraclePolicy,
)
from adacompute.policies.chart import Chart, ChartRow, write_chart
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.paths import draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots
from adacompute.records import Sample, Signals
from adacompute.replay import run_policy
from adacompute.serve.pricing.policy_registry import (
    MEMORY,
    ConfidenceScale,
    LiveScales,
    PolicyRegistry,
    ServedPolicy,
)
from shared import read_votes

NAN = float("nan")


def chart(price: float) -> Chart:
    row = {"cost": 2.0, "waves": 1.5, "agreement": 0.8, "deviation": 0.2, "stays": 0.9}
    rows = (ChartRow(budget=2, price=price, **row),)
    return Chart(dial="price", unit="samples", problems=300, protocol="replay", rows=rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    StoppingPolicy().save(tmp_path / "mine")
    write_chart(tmp_path / "mine", chart(0.07))
    return tmp_path / "mine"


@functools.cache
def recorded() -> Ballots:
    return read_votes("words")


def words(rows: range) -> Ballots:
    return recorded().only(rows)


def opened(policy: Path | str = "", *others: str) -> PolicyRegistry:
    return PolicyRegistry.open(ServeConfig(policy=str(policy), policies=others))


def reload(registry: PolicyRegistry) -> list[str]:
    return registry.swap(registry.read())


def test_without_a_folder_the_prior_in_the_package_serves_from_its_own_chart():
    shelf = opened()
    served = shelf.get(shelf.default)
    assert (shelf.default, shelf.names, served.version) == ("stopping", ("stopping", "single"), "bundled")
    assert served.policy.kind == "stopping"
    assert served.chart is not None
    assert served.find_start(2.0) == (served.chart.price_at(2.0), 1e-6, 1.0)
    assert reload(shelf) == []
    assert shelf.get("stopping") is served


def test_single_is_always_there_and_draws_one_sample(folder):
    single = opened(folder).get("single")
    assert single.policy.more("2 + 2?", Tally()) == 1
    assert single.policy.more("2 + 2?", Tally.of(["4"])) == 0
    assert (single.weigh(), single.find_start(2.0), single.chart) == (None, None, None)


def test_a_policy_serves_under_its_folders_name_and_others_under_the_name_given(folder):
    shutil.copytree(folder, folder.parent / "it's ü new")
    (folder.parent / "current").symlink_to(folder)
    shelf = opened(folder.parent / "it's ü new", f"a.b_c-1={folder}", f" x = {folder} ")
    assert shelf.names == ("it-s---new", "a.b_c-1", "x", "single")
    assert shelf.get("x").version == read_artefact(folder).sha256[:12]
    assert opened(folder.parent / "current").default == "current"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("single=FOLDER", "'single', which is one sample without a vote; give another name"),
        ("mine=FOLDER", "'mine' is given twice"),
        ("FOLDER", "NAME=FOLDER"),
        ("a=", "NAME=FOLDER"),
        ("=FOLDER", "NAME=FOLDER"),
        ("a b=FOLDER", "NAME=FOLDER"),
        ("a@2=FOLDER", "NAME=FOLDER"),
        ("ä=FOLDER", "NAME=FOLDER"),
        (f"{'x' * 65}=FOLDER", "NAME=FOLDER"),
        ("a\n=FOLDER/..\n", ""),
    ],
)
def test_a_name_that_cannot_be_is_refused_in_one_line(folder, text: str, words: str):
    with pytest.raises((ConfigError, PolicyError)) as refused:
        opened(folder, text.replace("FOLDER", str(folder)))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_default_folder_named_single_is_refused(folder):
    folder.rename(folder.parent / "single")
    with pytest.raises(ConfigError, match="would be named 'single'"):
        opened(folder.parent / "single")


def test_a_name_that_nobody_has_is_refused_with_those_that_are_there(folder):
    with pytest.raises(PolicyError, match="there is no policy 'else' here; there are mine, single"):
        opened(folder).get("else")


def test_what_needs_its_pool_cannot_serve(tmp_path):
    OraclePolicy().save(tmp_path / "p")
    with pytest.raises(PolicyError, match="can't serve; fit another policy"):
        opened(tmp_path / "p")


@pytest.mark.parametrize("make", [CurvePolicy, lambda: StoppingPolicy(unit="tokens")])
def test_what_has_not_learned_is_refused_before_the_first_request(tmp_path, make: Callable):
    make().save(tmp_path / "p")
    with pytest.raises(PolicyError, match=r"p: can't decide: .*fit"):
        opened(tmp_path / "p")


def test_a_policy_without_a_dial_serves_without_a_pace(tmp_path):
    FixedPolicy(3.0).save(tmp_path / "p")
    assert opened(tmp_path / "p").get("p").find_start(2.0) is None


# -- read again


def test_a_new_policy_takes_over_whole_and_requests_under_way_keep_the_old_one(folder):
    shelf = opened(folder)
    old = shelf.get("mine")
    was, kept = old.version, old.policy
    StoppingPolicy(longest=8).save(folder)
    assert shelf.get("mine") is old
    (line,) = reload(shelf)
    new = shelf.get("mine")
    assert line == f"policy mine: {new.version} serves now, in place of {was}"
    assert (new.policy.longest, old.policy, kept.longest) == (8, kept, 16)
    assert (reload(shelf), shelf.get("mine")) == ([], new)


def test_a_chart_that_came_later_is_taken_up(folder):
    (folder / "chart.json").unlink()
    shelf = opened(folder)
    assert shelf.get("mine").chart is None
    write_chart(folder, chart(0.05))
    assert len(reload(shelf)) == 1
    assert shelf.get("mine").find_start(2.0) == (0.05, 1e-6, 1.0)


def resealed(folder: Path, change: Callable[[dict], None]) -> None:
    document = json.loads((folder / "policy.json").read_text())
    change(document)
    (folder / "policy.json").write_text(json.dumps(document | {"sha256": compute_digest(document)}))


def arrays(folder: Path, **changes: object) -> None:
    """The policy with other arrays, whole by its hashes."""
    found = read_artefact(folder)
    some = {name: np.array(array) for name, array in found.arrays.items()}
    for name, value in changes.items():
        some[name].reshape(-1)[:] = value
    write_artefact(folder, kind=found.kind, settings=found.settings, arrays=some)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def named(document: dict) -> None:
    document["arrays"]["content"][0]["name"] = "../../mine/table"


def nan(folder: Path) -> None:
    path = folder / "policy.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": NaN'))


BROKEN: dict[str, Callable[[Path], object]] = {
    "a flipped bit of the settings": lambda folder: flipped(folder / "policy.json"),
    "a flipped bit of the arrays": lambda folder: flipped(next(folder.glob("arrays-*"))),
    "NaN among settings": nan,
    "NaN among arrays": lambda folder: arrays(folder, table=NAN),
    "a tree that leads back": lambda folder: arrays(folder, weighed_left=0, weighed_right=0),
    "a tree that leads out": lambda folder: arrays(folder, weighed_left=2**30),
    "a path elsewhere": lambda folder: resealed(folder, named),
    "too large": lambda folder: (folder / "policy.json").write_bytes(b" " * (MAX_DOCUMENT_BYTES + 1)),
    "an unknown schema": lambda folder: resealed(folder, lambda found: found.update(schema="else")),
    "a newer format": lambda folder: resealed(folder, lambda found: found.update(version=2)),
    "an unknown kind": lambda folder: resealed(folder, lambda found: found.update(kind="else")),
    "a setting out of bounds": lambda folder: resealed(
        folder, lambda found: found["settings"].update(longest=-1)
    ),
    "cut short": lambda folder: (folder / "policy.json").write_bytes(b'{"schema": "adacompute.policy"'),
    "no arrays": lambda folder: next(folder.glob("arrays-*")).unlink(),
    "no folder": shutil.rmtree,
    "another's answers": lambda folder: (shutil.rmtree(folder), OraclePolicy().save(folder)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_c23_a_broken_artefact_is_refused_and_the_last_good_one_keeps_serving(folder, name: str):
    shutil.copytree(folder, folder.parent / "good")
    shelf = opened(folder)
    good = shelf.get("mine")
    BROKEN[name](folder)
    for _ in range(2):
        (line,) = reload(shelf)
        assert line.startswith(f"policy mine: {good.version} keeps serving: {folder}")
        assert "\n" not in line
        assert shelf.get("mine") is good
    assert good.policy.more("2 + 2?", Tally.of(["4", "5"]), 0.02) == 1
    with pytest.raises(PolicyError, match=str(folder)):
        opened(folder)
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / "good").rename(folder)
    assert reload(shelf) == []  # what it was, again


def test_one_broken_folder_does_not_hold_up_the_others(folder):
    shutil.copytree(folder, folder.parent / "other")
    shelf = opened(folder, f"other={folder.parent / 'other'}")
    shutil.rmtree(folder)
    StoppingPolicy(longest=4).save(folder.parent / "other")
    assert [line.split(":")[0] for line in reload(shelf)] == ["policy other", "policy mine"]
    assert shelf.get("other").policy.longest == 4


@pytest.mark.parametrize("damage", ["flipped", "foreign", "of another dial"])
def test_c23_a_chart_that_is_no_good_is_left_out_with_a_line_and_its_policy_serves(folder, damage: str):
    def broken() -> None:
        if damage == "flipped":
            return flipped(folder / "chart.json")
        if damage == "foreign":
            kept = (folder / "chart.json").read_bytes()
            StoppingPolicy(longest=8).save(folder)
            (folder / "chart.json").write_bytes(kept)
            return None
        return write_chart(folder, replace(chart(0.07), dial="threshold"))

    shelf = opened(folder)
    broken()
    lines = reload(shelf)
    assert any("chart" in line and "remove it" in line for line in lines)
    for one in (shelf, opened(folder)):
        served = one.get("mine")
        assert served.chart is None
        assert served.find_start(2.0) is not None


def test_of_two_reloads_at_once_the_later_reading_stays(folder):
    shelf = opened(folder)
    early = shelf.read()
    StoppingPolicy(longest=8).save(folder)
    late = shelf.read()
    assert len(shelf.swap(late)) == 1
    assert shelf.swap(early) == []
    assert shelf.swap(late) == []
    assert shelf.get("mine").policy.longest == 8


@pytest.mark.slow
def test_reloads_in_threads_while_the_folder_is_replaced_always_serve_a_whole_policy(folder):
    shelf, done, faults = opened(folder), threading.Event(), []

    def reloading() -> None:
        while not done.is_set():
            try:
                faults.extend(line for line in reload(shelf) if "keeps serving" in line)
                assert shelf.get("mine").policy.longest in (8, 16)
            except Exception as exc:  # noqa: BLE001 - it is the test's finding
                faults.append(repr(exc))

    threads = [threading.Thread(target=reloading) for _ in range(2)]
    for thread in threads:
        thread.start()
    for longest in (8, 16) * 8:
        StoppingPolicy(longest=longest).save(folder)
        write_chart(folder, chart(0.01 * longest))
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    reload(shelf)
    assert shelf.get("mine").find_start(2.0) == (0.16, 1e-6, 1.0)


# -- where to start


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        (StoppingPolicy(), (1e-6, 1.0)),
        (StoppingPolicy(unit="tokens", draw_cost=200.0), (5e-9, 5e-3)),
        (AdaptiveConsistency(), (0.0, 1.0)),
        (EarlyStopping(), (0.0, 1.0)),
    ],
    ids=["price", "price of tokens", "threshold", "window"],
)
@settings(max_examples=25)
@given(budget=st.floats(1, 64))
def test_a_start_is_within_its_bounds_whatever_the_budget(policy, bounds, budget: float):
    found = ServedPolicy("p", policy, chart=None, version="").find_start(budget)
    assert found is not None
    start, low, high = found
    assert (low, high) == pytest.approx(bounds)
    assert low <= start <= high
    policy.more("2 + 2?", Tally.of(["4", "5"]), start)  # a dial that the policy takes


def test_a_price_of_a_chart_beyond_the_bounds_is_brought_within():
    assert ServedPolicy("p", StoppingPolicy(), chart=chart(30.0), version="").find_start(2.0) == (
        1.0,
        1e-6,
        1.0,
    )
    assert ServedPolicy("p", StoppingPolicy(), chart=chart(0.0), version="").find_start(2.0) == (
        1e-6,
        1e-6,
        1.0,
    )


def test_without_a_chart_a_stopping_policy_starts_near_its_budget():
    ballots = words(range(0, 441, 7))
    policy = StoppingPolicy().copy_for(ballots)
    some = draw_paths(ballots, rng=np.random.default_rng(0), orders=8, weigh=policy.weigh)
    served = ServedPolicy("p", policy, chart=None, version="")
    starts = [served.find_start(budget) for budget in (1.5, 2, 4, 8)]
    costs = [
        float(run_policy(policy, some, dial=start[0]).drawn.mean()) for start in starts if start is not None
    ]
    assert costs == sorted(costs)
    for budget, cost in zip((1.5, 2, 4, 8), costs, strict=True):
        assert budget / 2.5 <= cost <= budget * 2.5


def test_a_fixed_price_that_a_policy_cannot_be_asked_at_is_refused_at_the_start_and_at_a_reload(tmp_path):
    AdaptiveConsistency().save(tmp_path / "asc")
    for price in (2.0, float("inf")):
        with pytest.raises(ConfigError, match=r"price \S+ can't be used for policy 'asc'.*threshold"):
            PolicyRegistry.open(ServeConfig(policy=str(tmp_path / "asc"), price=price))
    assert PolicyRegistry.open(ServeConfig(policy=str(tmp_path / "asc"), price=0.9)).default == "asc"
    StoppingPolicy().save(tmp_path / "mine")
    shelf = PolicyRegistry.open(ServeConfig(policy=str(tmp_path / "mine"), price=2.0))
    AdaptiveConsistency().save(tmp_path / "mine")
    (line,) = reload(shelf)
    assert "keeps serving: price 2 can't be used for policy 'mine'" in line
    assert shelf.get("mine").policy.kind == "stopping"


# -- the live scale


def sure(mean: float | None) -> Sample:
    return Sample(answer="4", tokens=10, logprob=None if mean is None else 10 * mean)


def test_few_samples_leave_the_policys_own_scale_and_more_set_the_live_one():
    served = opened().get("stopping")
    own = served.policy.weigh
    served.observe([sure(2 * own.scale)] * 19)
    assert served.weigh() is own
    served.observe([sure(2 * own.scale)])
    weigh = served.weigh()
    assert weigh is not None
    assert weigh.scale == pytest.approx(2 * own.scale)
    assert replace(weigh, scale=own.scale) == own
    assert served.policy.weigh is own


def test_samples_without_the_signal_say_nothing():
    served = opened().get("stopping")
    served.observe([sure(None), sure(NAN), sure(-float("inf")), Sample(answer="4", logprob=-2.0)] * 20)
    assert served.weigh() is served.policy.weigh
    certain = opened().get("stopping")
    certain.observe([sure(0.0)] * 50)  # a scale of 0 weighs nothing
    assert certain.weigh() is certain.policy.weigh


def test_weights_stay_the_same_until_the_scale_has_moved_by_a_hundredth():
    scale = ConfidenceScale(VoteWeights(signal="logprob", scale=-1.0))
    scale.observe([sure(-2.0)] * 20)
    first = scale.weights
    scale.observe([sure(-2.001)] * 500)
    assert scale.weights is first
    scale.observe([sure(-3.0)] * 500)
    assert scale.weights.scale < -2.2


def test_the_scale_follows_what_comes_in_constant_memory():
    scale = ConfidenceScale(VoteWeights(signal="logprob", scale=-1.0))
    scale.observe(sure(-1.0) for _ in range(3 * MEMORY))
    scale.observe(sure(-2.0) for _ in range(3 * MEMORY))
    assert scale.weights.scale == pytest.approx(-2.0, rel=0.06)
    assert len(json.dumps(scale.state())) < 100


@pytest.mark.parametrize(("signal", "own", "wild"), [("logprob", -0.3, -9999.0), ("entropy", 0.5, 1e9)])
def test_no_sample_and_no_number_of_them_moves_the_scale_out_of_reach(signal, own: float, wild: float):
    def sample(value: float) -> Sample:
        return Sample(answer="4", tokens=1, **{signal: value})

    scale = ConfidenceScale(VoteWeights(signal=signal, scale=own))
    scale.observe([sample(own)] * 500)
    scale.observe([sample(wild)])
    assert scale.weights.scale == pytest.approx(own, rel=0.02)
    scale.observe([sample(wild)] * 10_000)
    assert scale.weights.scale == pytest.approx(4 * own)
    scale.observe([sample(own * 1e-9)] * 50_000)
    assert scale.weights.scale == pytest.approx(own / 4)


def test_the_sixteen_models_last_heard_of_have_a_scale_of_their_own():
    own = VoteWeights(signal="logprob", scale=-1.0)
    scales = LiveScales(own)
    scales.observe([sure(-2.0)] * 30, "small")
    scales.observe([sure(-0.5)] * 30, "large")
    assert [scales.weigh(name).scale for name in ("small", "large", "new")] == [-2.0, -0.5, -1.0]
    for number in range(100):
        scales.observe([sure(-3.0)], f"other {number}")
        scales.observe([sure(-2.0)], "small")
        scales.observe([sure(-0.5)], "large")
    assert scales.weigh("other 99") is own  # with one sample
    assert scales.weigh("small").scale == -2.0
    state = json.loads(json.dumps(scales.state()))
    assert len(state) == 16
    again = LiveScales(own)
    assert again.restore(state)
    assert again.state() == state
    assert again.weigh("large") == scales.weigh("large")
    again.observe([sure(-0.7)] * 30, "new")  # the places are not those of the first names for ever
    assert again.weigh("new").scale == pytest.approx(-0.7)
    assert again.weigh("small").scale == -2.0


def test_entropies_have_a_scale_of_their_own():
    scale = ConfidenceScale(VoteWeights(signal="entropy", scale=0.5))
    scale.observe([Sample(answer="4", entropy=0.2)] * 20)
    assert scale.weights.scale == pytest.approx(0.2)


def test_a_new_policy_keeps_the_live_scale_where_its_signal_is_the_same(folder):
    shelf = opened(folder)
    live = 2 * shelf.get("mine").policy.weigh.scale
    shelf.get("mine").observe([sure(live)] * 30)
    StoppingPolicy(longest=8).save(folder)
    reload(shelf)
    weigh = shelf.get("mine").weigh()
    assert weigh is not None
    assert weigh.scale == pytest.approx(live)
    StoppingPolicy(longest=8, weigh=VoteWeights(signal="entropy", scale=0.5)).save(folder)
    reload(shelf)
    assert shelf.get("mine").weigh() == VoteWeights(signal="entropy", scale=0.5)
    StoppingPolicy(longest=8, weigh=None).save(folder)
    reload(shelf)
    shelf.get("mine").observe([sure(-3.0)])
    assert shelf.get("mine").weigh() is None


def test_the_scales_survive_a_restart(folder):
    shelf, again = opened(folder), opened(folder)
    shelf.get("mine").observe([sure(-3.0)] * 30)
    kept = json.loads(json.dumps(shelf.state()))
    assert list(kept) == ["mine"]
    assert again.restore(kept) == []
    assert again.get("mine").weigh() == shelf.get("mine").weigh()


MODEL = SignalModel(
    names=("logprob", "answer_sum", "confidence"),
    centre=(-0.1, 8.0, 13.0),
    spread=(0.05, 3.0, 1.0),
    coefficients=(0.1, 0.4, 1.0),
    bare=(0.8, 0.6, 0.0),
)


def signalled(confidence: float, answer_sum: float = -0.01) -> Sample:
    signals = Signals(confidence=confidence, answer_sum=answer_sum)
    return Sample(answer="4", tokens=10, logprob=-1.0, signals=signals)


def test_the_centre_and_spread_of_signals_follow_live_samples_and_survive_a_restart():
    own = VoteWeights(signal="logprob", scale=-0.1, sharpness=1.0, model=MODEL)
    scales = LiveScales(own)
    scales.observe([signalled(9.0), signalled(11.0)] * 9, "m")
    assert scales.weigh("m") is own  # too few
    scales.observe([signalled(9.0), signalled(11.0)] * 9, "m")
    weigh = scales.weigh("m")
    assert weigh.model.centre[2] == pytest.approx(10.0)
    assert weigh.model.spread[2] == pytest.approx(1.0)
    assert weigh.weight(signalled(10.0)) == pytest.approx(1.0)
    assert scales.weigh("m") is weigh
    scales.observe([signalled(9.0), signalled(11.0), replace(signalled(99.0), answer=None)], "m")
    assert scales.weigh("m") is weigh  # it hasn't moved
    again = LiveScales(own)
    assert again.restore(json.loads(json.dumps(scales.state())))
    assert again.state() == scales.state()
    assert again.weigh("m").model.centre == pytest.approx(weigh.model.centre)


def test_placeholders_move_no_signal_out_of_reach():
    scales = LiveScales(VoteWeights(signal="logprob", scale=-0.1, model=MODEL))
    scales.observe([signalled(-9999.0, -9999.0)] * 1000)
    model = scales.weigh().model
    assert model.centre[2] == pytest.approx(13.0 - 10.0)
    assert min(ours / own for ours, own in zip(model.spread, MODEL.spread, strict=True)) >= 0.25


@pytest.mark.parametrize(
    "signals",
    [3, {"nobody": [1, 0.0, 0.0]}, {"confidence": [1, 13.0]}, {"confidence": [1, NAN, 1.0]},
     {"confidence": [30, 1e9, 1e18]}, {"confidence": [30, 13.0, -1.0]}, {"confidence": [1.5, 13.0, 169.0]}],
)  # fmt: skip
def test_nonsense_in_place_of_a_signals_scale_is_not_continued(signals: object):
    scales = LiveScales(VoteWeights(signal="logprob", scale=-0.1, model=MODEL))
    assert scales.restore({"m": [30, -0.2, signals]})
    assert (scales.weigh("m").scale, scales.weigh("m").model) == (-0.2, MODEL)


def test_another_policys_model_keeps_what_was_seen_of_the_signals_that_both_read():
    scales = LiveScales(VoteWeights(signal="logprob", scale=-0.1, model=MODEL))
    scales.observe([signalled(9.0), signalled(11.0)] * 20, "m")
    smaller = SignalModel(
        names=("confidence",), centre=(13.0,), spread=(1.0,), coefficients=(1.0,), bare=(0.0,)
    )
    again = LiveScales(VoteWeights(signal="logprob", scale=-0.1, model=smaller))
    assert again.restore(scales.state())
    assert again.weigh("m").model.centre == pytest.approx((10.0,))
    bare = LiveScales(VoteWeights(signal="logprob", scale=-0.1))
    assert bare.restore(scales.state())
    assert bare.weigh("m").model is None


def test_signals_that_another_policys_model_cant_have_seen_are_not_kept():
    scales = LiveScales(VoteWeights(signal="logprob", scale=-0.1, model=MODEL))
    scales.observe([signalled(9.0), signalled(11.0)] * 20, "m")
    far = VoteWeights(signal="logprob", scale=-0.1, model=replace(MODEL, centre=(*MODEL.centre[:-1], 99.0)))
    again = LiveScales(far)
    assert again.restore(json.loads(json.dumps(scales.state())))
    assert again.weigh("m").model.centre[-1] == 99.0  # no sample of this model counts as 10


@pytest.mark.parametrize(
    "state",
    [
        None, 3, [], {"m": None}, {"m": {}}, {"m": [0, 0.0]}, {"m": [0, 0.0, {}, 1]},
        {"m": [30, 0.5, {}]}, {"m": [30, NAN, {}]}, {"m": [30, -1e300, {}]}, {"m": [30, "-1", {}]},
        {"m": [-1, -0.1, {}]}, {"m": [2.5, -0.1, {}]}, {"m": [True, -0.1, {}]}, {"m": [2**60, -0.1, {}]},
        {str(n): [0, 0.0, {}] for n in range(17)},
    ],
)  # fmt: skip
def test_nonsense_in_place_of_a_scale_is_refused_and_the_policys_own_stands(state: object):
    shelf = opened()
    (line,) = shelf.restore({"stopping": state})
    assert "not used" in line
    assert shelf.get("stopping").weigh() is shelf.get("stopping").policy.weigh


def test_a_scale_of_a_policy_that_is_gone_is_left_out():
    (line,) = opened().restore({"gone": {"m": [30, -1.0, {}]}})
    assert line.startswith("policy gone:")


def test_a_folder_that_is_no_path_is_refused():
    with pytest.raises((PolicyError, PolicyInvalid)):
        opened("a\0b")


def test_a_policy_in_memory_serves_under_its_kind_and_decides_as_the_same_in_a_folder(tmp_path: Path):
    policy = AdaptiveConsistency()
    policy.save(tmp_path / "mine")
    registry = PolicyRegistry.open(ServeConfig(policies=(f"saved={tmp_path / 'mine'}",)), policy)
    assert (registry.default, registry.names) == ("asc", ("asc", "saved", "single"))
    live, saved = registry.get("asc"), registry.get("saved")
    assert live.policy is policy
    assert live.find_start(3.0) == saved.find_start(3.0)
    assert registry.swap(registry.read()) == []  # reading again changes nothing


@pytest.mark.slow
def test_the_unfitted_policy_in_memory_starts_at_the_chart_of_the_package_and_no_other_does():
    default = PolicyRegistry.open(ServeConfig()).get("stopping")
    same = PolicyRegistry.open(ServeConfig(), StoppingPolicy()).get("stopping")
    assert same.chart == default.chart is not None
    assert same.find_start(3.0) == default.find_start(3.0)
    for other in (StoppingPolicy(longest=8), StoppingPolicy().fit(recorded())):
        assert PolicyRegistry.open(ServeConfig(), other).get("stopping").chart is None


def test_a_policy_in_memory_that_cannot_serve_is_refused():
    with pytest.raises(PolicyError, match="fit another policy"):
        PolicyRegistry.open(ServeConfig(), OraclePolicy())
    with pytest.raises(PolicyError, match="policy curve: can't decide"):
        PolicyRegistry.open(ServeConfig(), CurvePolicy())


def test_starting_dials_are_kept_for_a_bounded_number_of_budgets(monkeypatch):
    monkeypatch.setattr("adacompute.serve.pricing.policy_registry._MAX_GUESSES", 3)
    served = PolicyRegistry.open(ServeConfig(), AdaptiveConsistency()).get("asc")  # has no chart: it guesses
    starts = [served.find_start(1.5 + number / 10) for number in range(6)]
    assert served._guess_start.cache_info().currsize == 3
    assert [served.find_start(1.5 + number / 10) for number in range(6)] == starts
