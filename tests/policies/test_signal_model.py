"""Votes by signals of single tokens: the same live and replayed, as before without them, better with them."""

import functools
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import MODEL_SIGNALS, SignalModel, transform_signal
from adacompute.errors import PolicyInvalid, TaskError
from adacompute.evaluate.comparison import match_cost
from adacompute.evaluate.measure import sweep_with_cache
from adacompute.policies import load_policy
from adacompute.policies.paths import build_paths, draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import fit_prior, load_bundled_prior
from adacompute.policies.votes import VoteState
from adacompute.policies.weights import dump_weights, fit_confidence_weights, fit_signal_model, load_weights
from adacompute.pool import Ballots
from adacompute.records import SIGNAL_NAMES, Sample, Signals
from adacompute.replay.matching import PolicyPoints
from adacompute.score.aggregates import compute_log_odds, compute_weight_units, sum_moments
from harness import import_script
from shared import read_votes
from studies.recordings import mean_over_recordings

MODEL = SignalModel(
    names=("logprob", "tail", "answer_sum", "answer_entropy", "confidence"),
    centre=(-0.1, -0.07, 7.5, 6.0, 13.0),
    spread=(0.05, 0.06, 3.5, 3.0, 1.1),
    coefficients=(0.1, 0.15, 0.2, 0.7, 0.9),
    bare=(0.9, 0.2, 0.8, 0.0, 0.0),
)
WEIGH = VoteWeights(signal="logprob", scale=-0.2, sharpness=1.0, model=MODEL)


@functools.cache
def recording() -> Ballots:
    return read_votes("words").only(range(0, 441, 8))


def add_signals(ballots: Ballots, *, seed: int = 0) -> Ballots:
    """Made-up signals: right samples are surer of their answer; some of the samples lack some, or all."""
    rng = np.random.default_rng(seed)
    shape = ballots.classes.shape
    sure = np.nan_to_num(ballots.correct.astype(float)) + rng.normal(size=shape)
    columns = {
        "tail": -np.exp(rng.normal(-3, 1, shape)),
        "answer_sum": -np.exp(-2 * sure - 3),
        "answer_entropy": np.exp(-2 * sure + rng.normal(size=shape) - 3),
        "confidence": 13 + sure / 2,
    }
    signals = np.full((*shape, len(SIGNAL_NAMES)), np.nan)
    for name, values in columns.items():
        signals[:, :, SIGNAL_NAMES.index(name)] = values
    signals[rng.random(signals.shape) < 0.1] = np.nan
    signals[rng.random(shape) < 0.2] = np.nan
    bare = rng.random(shape) < 0.2
    signals[bare, SIGNAL_NAMES.index("answer_entropy") :] = np.nan
    signals[0, 0, SIGNAL_NAMES.index("tail")] = -9999.0
    return replace(ballots, signals=signals)


def to_sample(ballots: Ballots, row: int, column: int, *, signals: bool = True) -> Sample:
    answer = int(ballots.classes[row, column])
    values = None
    if signals and ballots.signals is not None:
        known = {
            name: float(value)
            for name, value in zip(SIGNAL_NAMES, ballots.signals[row, column], strict=True)
            if np.isfinite(value)
        }
        values = Signals(**known)
    return Sample(
        answer=None if answer < 0 else str(answer),
        tokens=int(ballots.tokens[row, column]),
        logprob=float(ballots.logprob[row, column]),
        entropy=float(ballots.entropy[row, column]),
        signals=values,
    )


def test_a_live_vote_weighs_what_the_replayed_one_does_to_the_last_bit():
    ballots = add_signals(recording())
    units = compute_weight_units(ballots, WEIGH)
    live = [
        [WEIGH.units(to_sample(ballots, row, column)) for column in range(units.shape[1])]
        for row in range(len(ballots))
    ]
    assert units.tolist() == live


def test_replayed_tallies_with_signals_equal_live_ones_and_are_decided_alike():
    ballots = add_signals(recording())
    order = np.tile(np.arange(16), (len(ballots), 1, 1))
    paths = build_paths(ballots, order, weigh=WEIGH)
    policy = StoppingPolicy(weigh=WEIGH)
    rows = np.arange(len(ballots))
    for drawn in (1, 2, 5, 16):
        tallies = [Tally.of([to_sample(ballots, row, k) for k in range(drawn)], weigh=WEIGH) for row in rows]
        replayed = paths.state_after(rows, np.full(len(rows), drawn))
        live = VoteState.from_tallies(tallies)
        for name in ("lead", "runner", "total"):
            assert getattr(live, name).tolist() == getattr(replayed, name).tolist()
        decisions = policy.count_draws(np.zeros((len(rows), 0)), replayed, 0.02).tolist()
        assert decisions == [policy.more("", tally, 0.02) for tally in tallies]


def test_samples_without_signals_weigh_what_they_weighed_before():
    ballots = recording()
    before = replace(WEIGH, model=None)
    assert compute_weight_units(ballots, WEIGH).tolist() == compute_weight_units(ballots, before).tolist()
    nothing = replace(ballots, signals=np.full((*ballots.classes.shape, len(SIGNAL_NAMES)), np.nan))
    assert compute_weight_units(nothing, WEIGH).tolist() == compute_weight_units(ballots, before).tolist()
    bare = Sample(answer="4", tokens=10, logprob=-1.0)
    assert WEIGH.units(bare) == WEIGH.units(replace(bare, signals=Signals())) == before.units(bare)


def test_without_signals_a_policy_with_a_model_decides_as_one_without():
    ballots = recording()
    plain, modelled = StoppingPolicy().copy_for(ballots), StoppingPolicy().copy_for(ballots)
    assert modelled.weigh.model is not None
    plain.weigh = replace(modelled.weigh, model=None)
    runs = []
    for policy in (plain, modelled):
        paths = draw_paths(ballots, rng=np.random.default_rng(3), orders=8, weigh=policy.weigh)
        sweep = sweep_with_cache(policy, paths, [0.003, 0.01, 0.03])
        runs.append((sweep.cost.tolist(), sweep.accuracy.tolist()))
    assert runs[0] == runs[1]


def test_a_signal_that_is_missing_counts_as_average():
    centre = Signals(tail=-0.07, confidence=13.0, answer_entropy=np.exp(-6.0) - 1e-5)
    sample = Sample(answer="4", tokens=10, logprob=-1.0, signals=centre)
    assert MODEL.log_odds(sample) == pytest.approx(MODEL.log_odds(replace(sample, tokens=None)), abs=1e-9)
    assert MODEL.probability(sample) == pytest.approx(0.5)
    assert MODEL.log_odds(replace(sample, signals=None)) is None


def test_where_alternatives_are_missing_the_other_coefficients_count():
    bare = Sample(answer="4", signals=Signals(tail=-0.01))
    assert MODEL.log_odds(bare) == pytest.approx(0.2)
    assert MODEL.log_odds(replace(bare, signals=Signals(tail=-0.01, confidence=13.0))) == pytest.approx(0.15)
    assert WEIGH.reads_alternatives
    assert not replace(WEIGH, model=replace(MODEL, coefficients=MODEL.bare)).reads_alternatives
    assert not replace(WEIGH, model=None).reads_alternatives


def test_a_model_is_settled_on_samples_without_labels():
    ballots = add_signals(recording())
    moments = sum_moments(ballots, MODEL)
    settled = MODEL.settle(moments)
    values = ballots.signals[:, :, SIGNAL_NAMES.index("confidence")][ballots.classes >= 0]
    assert settled.centre[4] == pytest.approx(np.nanmean(values))
    assert settled.spread[4] == pytest.approx(np.nanstd(values))
    assert abs(settled.centre[1]) < 1, "the placeholder -9999 counts as an outlier"
    assert settled.coefficients == MODEL.coefficients
    assert MODEL.settle({}) == MODEL


@pytest.mark.parametrize("labels", [True, False])
def test_a_fitted_model_prefers_what_right_samples_have(labels: bool):
    ballots = add_signals(recording())
    model = fit_signal_model([ballots], labels=labels)
    assert model is not None
    coefficients = dict(zip(model.names, model.coefficients, strict=True))
    assert sum(coefficients[name] for name in ("answer_sum", "answer_entropy", "confidence")) > 0.5
    assert dict(zip(model.names, model.bare, strict=True))["answer_sum"] > 0.4
    assert abs(coefficients["tail"]) < 0.2
    assert fit_signal_model([recording()], labels=labels) is None


def test_weights_and_policies_with_a_model_are_the_same_after_saving(tmp_path):
    assert load_weights(json.loads(json.dumps(dump_weights(WEIGH)))) == WEIGH
    ballots = add_signals(recording())
    prior = fit_prior([ballots], longest=4)
    assert prior.signal_model is not None
    policy = StoppingPolicy()
    policy.base_prior_ = policy.prior_ = prior
    policy.weigh = fit_confidence_weights(ballots, prior.signal_model)
    policy.save(tmp_path / "policy")
    restored = load_policy(tmp_path / "policy")
    assert restored.weigh == policy.weigh
    assert restored.prior_.signal_model == prior.signal_model


def test_a_policy_that_was_saved_before_there_were_models_has_none():
    policy = StoppingPolicy()
    settings = json.loads(json.dumps(policy.settings()))
    settings["weigh"].pop("model", None)
    settings["prior"].pop("signals", None)
    restored = StoppingPolicy.restore(settings, policy.arrays())
    assert restored.weigh == replace(policy.weigh, model=None)
    assert restored.prior_.signal_model is None


@pytest.mark.parametrize(
    "part",
    [
        {"names": ["tail"]},
        {"names": ["tail", "tail", "window", "confidence", "score"]},
        {"names": ["tail", "nobody", "window", "confidence", "score"]},
        {"spread": [0.0, 1.0, 1.0, 1.0, 1.0]},
        {"centre": [float("nan"), 1.0, 1.0, 1.0, 1.0]},
        {"bare": 3},
        {"sharpness": -1.0},
    ],
)
def test_a_broken_model_is_refused(part: dict[str, object]):
    with pytest.raises(TaskError):
        SignalModel.load({**MODEL.dump(), **part})
    settings = StoppingPolicy(weigh=WEIGH).settings()
    settings["weigh"]["model"] = {**MODEL.dump(), **part}
    with pytest.raises(PolicyInvalid):
        StoppingPolicy.restore(settings, StoppingPolicy().arrays())


@pytest.mark.slow
def test_a_part_of_a_recording_teaches_the_signal_model_and_nothing_else():
    whole = recording()
    first = {
        name: getattr(whole, name)[:, :16] for name in ("classes", "correct", "tokens", "logprob", "entropy")
    }
    part = add_signals(replace(whole, **first))
    both, alone = fit_prior([whole, part], longest=8), fit_prior([whole], longest=8)
    assert both.signal_model == fit_signal_model([part])
    assert both.table.tolist() == alone.table.tolist()
    assert both.problems == alone.problems


@pytest.mark.parametrize("name", MODEL_SIGNALS)
def test_a_surer_sample_never_weighs_less(name: str):
    low, high = (0.001, 0.5) if name == "answer_entropy" else (-0.001, -0.5)
    better, worse = transform_signal(name, low), transform_signal(name, high)
    assert better > worse


@pytest.mark.nightly
def test_the_probability_is_calibrated_on_a_pool_and_changes_no_vote(recordings: Path):
    script = import_script("recordings")
    gsm8k = script.read_signals("gsm8k", script.read_recordings(recordings)["gsm8k"], recordings)
    taught, judged = gsm8k.only(range(150)), gsm8k.only(range(150, 300))
    policy = StoppingPolicy(features=False).fit(taught, labels=True)
    model = policy.weigh.model
    odds, known = compute_log_odds(judged, model)
    known &= judged.classes >= 0
    expected = 1 / (1 + np.exp(-(model.intercept + model.slope * odds[known])))
    right = judged.correct[known]
    order = np.argsort(expected)
    gaps = [abs(expected[part].mean() - right[part].mean()) for part in np.array_split(order, 5)]
    assert np.mean(gaps) < 0.08  # with 150 problems in all, each fifth's share is known to 0.04
    assert ((expected - right) ** 2).mean() < 0.8 * right.var()  # and it tells right ones from wrong ones
    other = replace(policy.weigh, model=replace(model, slope=3.0, intercept=-1.0))
    units = [compute_weight_units(judged, weigh, partial=True) for weigh in (policy.weigh, other)]
    assert (units[0] == units[1]).all()


def test_a_model_without_a_calibration_is_read_as_before():
    stored = {name: part for name, part in MODEL.dump().items() if name not in ("slope", "intercept")}
    assert SignalModel.load(stored) == MODEL
    with pytest.raises(TaskError, match="slope"):
        SignalModel.load({**MODEL.dump(), "slope": "1"})


@pytest.mark.nightly
def test_signals_add_half_a_point_to_transferred_stopping_on_the_mean_of_gsm8k_and_math(recordings: Path):
    script = import_script("recordings")
    pools = script.read_recordings(recordings)
    signals = {name: script.read_signals(name, pools[name], recordings) for name in ("gsm8k", "math")}
    gains: dict[float, list[np.ndarray]] = {3.0: [], 4.0: []}
    for name, other in (("gsm8k", "math"), ("math", "gsm8k")):
        taught = [ballots for each, ballots in pools.items() if each != name] + [signals[other]]
        prior = StoppingPolicy.pooled(taught, without=pools[name])
        assert prior.prior_.signal_model is not None
        runs = {}
        for judged in (signals[name], replace(signals[name], signals=None)):
            policy = prior.copy_for(judged)
            paths = draw_paths(judged, rng=np.random.default_rng(7), orders=32, weigh=policy.weigh)
            sweep = sweep_with_cache(policy, paths, list(np.geomspace(0.002, 0.1, 24)))
            runs[judged.signals is None] = PolicyPoints(cost=sweep.cost, accuracy=sweep.accuracy)
        for budget, each in gains.items():
            with_signals, without = match_cost(runs[False], budget), match_cost(runs[True], budget)
            assert with_signals is not None
            assert without is not None
            each.append(with_signals.each - without.each)
    means = {budget: mean_over_recordings(each, seed=1) for budget, each in gains.items()}
    assert all(interval.low is not None and interval.low > 0 for interval in means.values()), means
    assert np.mean([interval.mean for interval in means.values()]) >= 0.005, means


@pytest.mark.nightly
def test_a_policy_that_was_settled_elsewhere_is_judged_by_a_signal_model_that_has_not_seen_the_recording(
    recordings: Path,
):
    settled = StoppingPolicy().settle(add_signals(recording()))
    assert settled.weigh is not None
    assert settled.weigh.model is not None
    reader = import_script("recordings")
    gsm8k = reader.read_recordings(recordings)["gsm8k"]
    unseen = load_bundled_prior("without-gsm8k").signal_model
    assert unseen is not None
    for policy in (settled.copy_for(gsm8k), settled.copy_without(gsm8k)):
        assert policy.weigh is not None
        assert policy.weigh.model is not None
        assert policy.weigh.model.coefficients == unseen.coefficients
        assert policy.weigh.model.centre == settled.weigh.model.centre


def test_recordings_of_the_same_problems_by_two_models_without_log_probabilities_both_teach():
    bare = replace(recording(), logprob=np.full(recording().logprob.shape, np.nan))
    short = {name: getattr(bare, name)[:, 8:24] for name in bare.sample_arrays}
    both = fit_prior([replace(bare, **short), bare], longest=4)
    assert not np.array_equal(both.table, fit_prior([bare], longest=4).table)


@pytest.mark.slow
def test_a_problem_with_many_samples_teaches_a_model_by_a_bounded_number_of_pairs():
    ballots = add_signals(recording().only(range(8)))
    many = {name: np.concatenate([getattr(ballots, name)] * 40, axis=1) for name in ballots.sample_arrays}
    wide = replace(ballots, **many)
    tracemalloc.start()
    try:
        assert fit_signal_model([wide]) is not None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * sum(array.nbytes for array in many.values())
