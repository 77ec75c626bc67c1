"""Names and arguments of the release before still work for one more, with a warning that says the new one."""

import importlib
import inspect
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest

import adacompute as ac
from adacompute.cli.commands import explain_unknown
from adacompute.errors import CollectError
from adacompute.pool import export_shards
from adacompute.records import Account
from adacompute.scale.stages import replay_shards


@pytest.mark.parametrize(
    ("old", "new"), [("Limit", "Cap"), ("Limits", "RateLimits"), ("Weigh", "VoteWeights")]
)
def test_a_renamed_class_keeps_its_old_name(old: str, new: str):
    with pytest.warns(DeprecationWarning, match=rf"^adacompute\.{old} is now adacompute\.{new}$"):
        assert getattr(ac, old) is getattr(ac, new)
    assert old not in ac.__all__


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("records", "Limit", "Cap"),
        ("pool", "Imported", "ImportResult"),
        ("score", "Estimate", "MeanEstimate"),
        ("evaluate", "uniform", "solve_uniform"),
        ("evaluate", "crossfitted", "cross_fit"),
        ("evaluate", "compared", "compare_with_uniform"),
        ("scale.allocate", "Allotted", "AllocateResult"),
    ],
)
def test_a_subpackage_keeps_its_old_names(module: str, old: str, new: str):
    home = importlib.import_module(f"adacompute.{module}")
    with pytest.warns(DeprecationWarning, match="is now") as seen:
        assert getattr(home, old) is getattr(home, new)
    assert str(seen[0].message) == f"adacompute.{module}.{old} is now adacompute.{module}.{new}"
    assert seen[0].filename == __file__
    assert old not in home.__all__
    with pytest.raises(AttributeError, match=f"module 'adacompute.{module}' has no attribute 'nonsense'"):
        home.nonsense  # noqa: B018 - reading it is what is tested


@pytest.mark.parametrize("module", ["evaluate", "pool", "records", "scale.allocate", "score"])
def test_every_old_name_of_a_subpackage_is_there(module: str):
    home = importlib.import_module(f"adacompute.{module}")
    renamed = inspect.getclosurevars(home.__getattr__).nonlocals["renamed"]
    assert renamed
    for old in renamed:
        with pytest.warns(DeprecationWarning, match=f"{old} is now"):
            assert getattr(home, old) is not None


def test_halved_takes_how():
    from adacompute.evaluate import Scoring, score_halves

    ballots = ac.bundled("facts").ballots().only(range(20))
    table = ac.score(ballots, (1, 2))
    with pytest.warns(DeprecationWarning, match="halved is now adacompute.evaluate.score_halves"):
        from adacompute.evaluate import halved
    old = halved(ballots, table, how=Scoring(), splits=1)
    new = score_halves(ballots, table, scoring=Scoring(), splits=1)
    assert np.array_equal(old[0][0].accuracy, new[0][0].accuracy)


def test_an_account_takes_two_prices():
    account = Account(prompt_tokens=1_000_000, completion_tokens=500_000, maybe_completion_tokens=500_000)
    with pytest.warns(DeprecationWarning, match="is now cost"):
        old = account.cost(input_price=1.0, output_price=2.0, at_most=True)
    assert old == account.cost(ac.TokenPrices(input=1.0, output=2.0), at_most=True) == 3.0
    with pytest.raises(TypeError, match="needs prices"):
        account.cost()


def test_prices_take_their_old_fields_and_are_plain():
    with pytest.warns(DeprecationWarning, match=r"^adacompute\.Price is now adacompute\.TokenPrices$"):
        old_price = ac.Price
    with pytest.warns(DeprecationWarning, match=r"^adacompute\.Prices is now adacompute\.TokenPrices$"):
        old_prices = ac.Prices
    price = old_price(input_per_million=1.0, output_per_million=2.0, prompts="once")
    assert price == ac.TokenPrices(input=1.0, output=2.0, prompts="once")
    assert type(price) is ac.TokenPrices
    assert old_prices(input=1.0) == ac.TokenPrices(input=1.0)
    assert isinstance(price, old_price)
    assert not isinstance(1.0, old_prices)
    assert pickle.loads(pickle.dumps(price)) == replace(price)
    with pytest.warns(DeprecationWarning, match="input_per_million is now input"):
        assert price.input_per_million == 1.0
    with pytest.warns(DeprecationWarning, match="of is now cost"):
        assert price.of(1e6, 1e6) == price.cost(1e6, 1e6) == 3.0
    with pytest.raises(TypeError, match="output_per_million"):
        old_price(input_per_million=1.0)
    with pytest.raises(TypeError, match="prompts"):
        old_prices(prompts="once")
    for make, wrong in (
        (old_price, {"input_per_million": -1.0, "output_per_million": 0.0}),
        (old_prices, {"output": "3"}),
    ):
        with pytest.raises(ac.AdacomputeError, match=r"price .* can't be paid"):
            make(**wrong)


@pytest.mark.parametrize("fields", [{"prompts": "once"}, {"prompt_tokens": 100}])
def test_collecting_refuses_prices_that_only_score_can_use(tmp_path, fields: dict):
    prices = ac.TokenPrices(input=1.0, output=2.0, **fields)
    asking = ac.Asking(model="m", template=ac.Template.named("boxed"))
    endpoint = ac.Endpoint(url="http://127.0.0.1:9/v1")
    problems = [ac.Problem(id="p", question="1 + 1?")]
    with ac.open_pool(tmp_path / "pool.db", create=True) as pool:
        with pytest.raises(CollectError, match="are for score"):
            ac.collect(problems, pool, endpoint=endpoint, asking=asking, prices=prices)
        assert len(pool) == 0


def test_a_policy_of_yours_may_use_the_old_names():
    with pytest.warns(DeprecationWarning, match="which Old defines") as seen:

        class Old(ac.Policy):
            kind = "old"
            beforehand = True

            def decide(self, reading, standing, dial):
                return np.where(standing.drawn < 1, 1, 0)

            def fit(self, pool):
                return self

            def settings(self):
                return {}

            @classmethod
            def restored(cls, settings, arrays):
                return cls()

    assert [str(warning.message) for warning in seen] == [
        "Policy.beforehand, which Old defines, is now Policy.one_shot",
        "Policy.restored, which Old defines, is now Policy.restore",
    ]
    assert {warning.filename for warning in seen} == {__file__}
    policy = Old.restore({}, {})
    assert policy.one_shot
    assert policy.more("1 + 1?", ac.Tally()) == 1


@pytest.mark.slow
def test_shards_warn_once_of_dial(tmp_path):
    export_shards(ac.bundled("facts"), tmp_path / "shards", shards=2)
    with pytest.warns(DeprecationWarning, match="dial=") as seen:
        replay_shards(ac.StoppingPolicy(), tmp_path / "shards", dial=0.1, orders=1, engine="local")
    assert [str(warning.message) for warning in seen] == ["dial= is now price="]
    assert seen[0].filename == __file__


def test_the_command_that_moved_says_where():
    assert "it is now `make reproduction`" in explain_unknown("reproduce")
    assert "studies/paper" in explain_unknown("reproduce")


def test_the_new_names_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ac.__all__:
            getattr(ac, name)
