"""The paper's classifier: learns the oracle's budgets, serves without its library, copes with few classes."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from every_policy import decide_all

from adacompute import Ballots, Tally, VoteWeights, score, solve
from adacompute.errors import BudgetOutOfRange, PolicyError, PolicyInvalid, TooFewSamples
from adacompute.policies.classifier import ClassifierPolicy, fit_trees, predict_classes
from adacompute.records import Sample
from shared import read_votes


@cache
def words() -> Ballots:
    return read_votes("words").only(range(0, 440, 4))


def predict(policy: ClassifierPolicy, reading: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    """The budgets that a policy gives to prompts that it has read, given their first samples' entropy."""
    return policy.choose_budgets(policy.get_feature_set().build_rows(reading, entropy), None)


def without_entropy(ballots: Ballots) -> Ballots:
    from dataclasses import replace

    return replace(ballots, entropy=np.full(ballots.entropy.shape, np.nan))


@cache
def fitted(features: str = "text+entropy") -> ClassifierPolicy:
    return ClassifierPolicy(features=features).fit(words(), budget=3.0)


def learnable(classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows and labels to learn, and other rows, some features not known."""
    rng = np.random.default_rng(seed)
    rows, others = rng.normal(size=(160, 7)), rng.normal(size=(300, 7))
    labels = np.digitize(rows[:, 0] + 0.5 * rng.normal(size=160), np.linspace(-1, 1, classes + 1)[1:-1])
    labels[:classes] = np.arange(classes)
    for some in (rows, others):
        some[rng.random(some.shape) < 0.1] = np.nan
    return rows, labels, others


def test_a_class_that_is_absent_is_never_predicted_and_the_others_keep_their_names():
    rows, labels, others = learnable(3, seed=1)
    renamed = np.array([1, 4, 16])[labels]
    trees, classes = fit_trees(rows, renamed, seed=0)
    assert classes.tolist() == [1, 4, 16]
    assert set(classes[predict_classes(trees, others)]) <= {1, 4, 16}
    assert (classes[predict_classes(trees, rows)] == renamed).mean() > 0.6


def test_a_single_class_is_given_to_all():
    policy = ClassifierPolicy().fit(words(), budget=1.0)  # nothing but b = 1 costs so little
    assert policy.classes_.tolist() == [1]
    assert policy.predict_budgets(words()).tolist() == [1] * len(words())
    again = ClassifierPolicy.restore(policy.settings(), policy.arrays())
    assert again.predict_budgets(words()).tolist() == [1] * len(words())


def test_forty_problems_are_enough_to_fit_and_to_decide():
    policy = ClassifierPolicy().fit(words().only(range(40)), budget=2.0)
    assert set(policy.predict_budgets(words())) <= {1, 2, 4, 8, 16}


def test_labels_are_the_budgets_that_solving_gives():
    plan = solve(score(words(), budgets=(1, 2, 4, 8, 16)), budget=3.0)
    labels = ClassifierPolicy().compute_labels(words(), 3.0)
    assert labels.tolist() == np.array([1, 2, 4, 8, 16])[plan.choice].tolist()
    assert labels.mean() == pytest.approx(plan.cost)


def test_weighed_votes_are_what_labels_are_of_where_votes_are_weighed():
    weigh = VoteWeights(signal="entropy", scale=float(np.nanmean(words().entropy)))
    few = words().only(range(30))
    labels = ClassifierPolicy(weigh=weigh).compute_labels(few, 2.0)
    table = score(few, budgets=(1, 2, 4, 8, 16), aggregate="weighted", by=weigh)
    assert labels.tolist() == np.array([1, 2, 4, 8, 16])[solve(table, budget=2.0).choice].tolist()


def test_the_training_problems_are_imitated_well_by_trees():
    labels = fitted().compute_labels(words(), 3.0)
    assert (fitted().predict_budgets(words()) == labels).mean() > 0.9


def test_with_the_entropy_one_sample_is_drawn_first_and_then_the_rest():
    policy, prompt = fitted(), words().prompts[0]
    assert policy.more(prompt, Tally()) == 1
    one = Tally.of([Sample(answer="4", entropy=0.4)])
    budget = int(predict(policy, policy.read([prompt]), np.array([0.4]))[0])
    assert policy.more(prompt, one) == budget - 1
    assert policy.more(prompt, Tally.of([Sample(answer="4", entropy=0.4), *["5"] * 15])) == 0
    assert (policy.one_shot, policy.max_waves) == (False, 2)


def test_where_no_entropy_is_recorded_the_text_decides_beforehand():
    policy = ClassifierPolicy().fit(without_entropy(words()), budget=3.0)
    assert (policy.feature_set_.width, policy.one_shot) == (15, True)
    assert (policy.predict_budgets(words()) == fitted("text").predict_budgets(words())).all()
    asked = decide_all(policy, words().prompts, [Tally()] * len(words()))
    assert asked == policy.predict_budgets(words()).tolist()


def test_an_entropy_that_is_not_known_when_serving_is_no_obstacle():
    policy = fitted()
    asked = decide_all(policy, words().prompts[:5], [Tally.of(["4"])] * 5)
    assert all(0 <= more <= 15 for more in asked)


def test_a_restored_policy_decides_the_same():
    policy = fitted()
    again = ClassifierPolicy.restore(policy.settings(), policy.arrays())
    entropy = np.random.default_rng(0).gamma(1.0, 0.5, size=len(words()))
    reading = policy.read(words().prompts)
    assert (predict(again, again.read(words().prompts), entropy) == predict(policy, reading, entropy)).all()


def test_many_requests_at_once_get_what_each_gets_alone():
    policy = fitted()
    rng = np.random.default_rng(0)
    rows = rng.integers(len(words()), size=6000)
    entropy = rng.choice([0.1, 0.3, 0.7, np.nan], size=6000)
    reading = policy.read(words().prompts)[rows]
    large = predict(policy, reading, entropy)
    assert (predict(policy, reading[:5000], entropy[:5000]) == large[:5000]).all()  # from memory
    assert (predict(policy, reading[::7], entropy[::7]) == large[::7]).all()  # too few to remember


@pytest.mark.parametrize("wrong", ["missing", "shape", "type", "infinite"])
def test_stored_arrays_that_no_learner_gave_are_refused(wrong: str):
    policy = fitted()
    for name, array in policy.arrays().items():
        changed = dict(policy.arrays())
        if wrong == "missing":
            del changed[name]
        elif wrong == "shape":
            changed[name] = array[None]
        elif wrong == "type":
            changed[name] = array.astype(np.complex64)
        elif wrong == "infinite" and array.dtype.kind == "f":
            changed[name] = np.full_like(array, np.nan)
        else:
            continue
        with pytest.raises(PolicyInvalid) as error:
            ClassifierPolicy.restore(policy.settings(), changed)
        assert "\n" not in str(error.value)


def test_fitting_needs_a_budget_that_can_be_and_samples_for_it():
    with pytest.raises(PolicyError, match="budget"):
        ClassifierPolicy().fit(words())
    with pytest.raises(BudgetOutOfRange):
        ClassifierPolicy().fit(words(), budget=0.5)
    from dataclasses import replace

    short = {
        name: getattr(words(), name)[:, :8] for name in ("classes", "correct", "tokens", "logprob", "entropy")
    }
    eight = replace(words(), **short)
    with pytest.raises(TooFewSamples, match="smaller budgets"):
        ClassifierPolicy().fit(eight, budget=2.0)
    policy = ClassifierPolicy(budgets=(1, 2, 4, 8)).fit(
        eight, budget=2.0
    )  # of 8 there is one vote: right or wrong
    assert set(policy.predict_budgets(words())) <= {1, 2, 4, 8}
    assert set(ClassifierPolicy(longest=8).fit(eight, budget=2.0).predict_budgets(words())) <= {1, 2, 4, 8}


def test_serving_imports_no_training_library():
    code = (
        "import sys\n"
        "from adacompute.policies.classifier import ClassifierPolicy\n"
        "from adacompute.policies.curve import CurvePolicy\n"
        "assert not {'xgboost', 'sklearn', 'torch'} & set(sys.modules), 'training at serving'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
