"""The gateway over a menu: decisions, costs by mode, failures, requests that name modes, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from behaviours import Reply, Status
from crowd import until
from menus import COSTS, MenuUpstreams, fit_policy, list_questions, read_recorded, save_policy, write_menu
from running import Answer, Running

import adacompute as ac
from adacompute.cli.modes import choose_modes_file
from adacompute.config import Config, ServeConfig
from adacompute.errors import AdacomputeError
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.chart import Chart, write_chart
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.quality import QualityCurve
from adacompute.policies.stopping import StoppingPolicy
from adacompute.serve.pricing.policy_registry import LiveScales, guess_start, settle_quality
from adacompute.serve.routes.lifespan import choose_explore
from tiers import leave_to_nightly

BUDGET = "0.00005 USD"  # half a sample of the large mode


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_policy(tmp_path_factory.mktemp("policy")))


def run(menu: MenuUpstreams, folder: Path, policy: str, **settings: Any) -> Running:
    """The gateway over these upstreams; answers of facts are taken as they are."""
    more = settings.pop("more", {})
    options = {"budget": BUDGET, "vote": "always", "answers": {"extract": "line"}, **settings}
    return Running("", folder=folder, menu=str(menu.write(folder, **more)), policy=policy, **options)


def ask(gate: Running, question: str, **more: Any) -> Answer:
    message = {"role": "user", "content": question}
    return gate.ask({"model": "adacompute", "messages": [message], "temperature": 0.7, **more})


def read_extra(answer: Answer) -> dict[str, Any]:
    chunk = next(line for line in answer.raw.splitlines() if b'"adacompute"' in line)
    return json.loads(chunk.removeprefix(b"data: "))["adacompute"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", leave_to_nightly([True, False]))
def test_the_gateway_draws_the_same_modes_as_a_loop_over_next_on_the_same_samples(
    policy: str, tmp_path: Path, stream: bool
):
    price = guess_start(fit_policy(), 5e-5)
    recorded = read_recorded()
    drawn_live, drawn_here, used = [], [], set[str]()
    with MenuUpstreams() as menu, run(menu, tmp_path, policy, price=price) as gate:
        for row in range(20):
            served = gate.gateway.policy_registry.get("menu-policy")  # it has learned from the last request
            question, weigh = recorded["small"][row].problem.question, served.weigh()
            extra = read_extra(ask(gate, question, stream=stream))
            drawn_live.append({name: use["samples"] for name, use in extra["modes"].items()})
            tally, places = ac.Tally(weigh=weigh, task=ac.Task(extract="line")), dict.fromkeys(COSTS, 0)
            while (draw := served.policy.next(question, tally, price)) is not None:
                for _ in range(draw.count):
                    sample = recorded[draw.mode][row].samples[places[draw.mode]]
                    tally.add(ac.Sample(**{**_fields(sample), "mode": draw.mode}))
                    places[draw.mode] += 1
            drawn_here.append({name: count for name, count in places.items() if count})
            assert extra["answer"] == tally.winner
            used |= set(extra["modes"])
        counts = menu.count_samples()
    assert [dict(sorted(each.items())) for each in drawn_live] == [
        dict(sorted(each.items())) for each in drawn_here
    ]
    assert used == {"small", "large"}
    assert counts == {name: sum(each.get(name, 0) for each in drawn_live) for name in COSTS}


def _fields(sample: ac.Sample) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in ("answer", "tokens", "logprob", "finished")}


def test_the_reply_says_samples_tokens_and_money_by_mode_and_the_ledger_agrees(policy: str, tmp_path: Path):
    with MenuUpstreams(seed=1) as menu, run(menu, tmp_path, policy, unit="money") as gate:
        answers = [ask(gate, question) for _, question in list_questions(60)]
        extras = [read_extra(answer) for answer in answers]
        spent = gate.call(_read_spent(gate))
        counts, money = menu.count_samples(), menu.count_money()
    for answer, extra in zip(answers, extras, strict=True):
        uses = extra["modes"]
        assert extra["cost"] == pytest.approx(sum(use["cost"] for use in uses.values()))
        assert extra["samples"] == sum(use["samples"] for use in uses.values())
        assert answer.json["usage"]["completion_tokens"] == 10 * extra["samples"]
        for name, use in uses.items():
            assert use["cost"] == pytest.approx(COSTS[name] * use["samples"])
            assert f"{name}={use['samples']}" in answer.headers["x-adacompute-modes"]
    assert {
        name: sum(e["modes"].get(name, {"samples": 0})["samples"] for e in extras) for name in COSTS
    } == counts
    assert spent == pytest.approx(money)


def test_a_free_mode_beside_one_that_costs_is_served(tmp_path: Path):
    with MenuUpstreams(seed=3) as menu:
        file = menu.write(tmp_path)
        file.write_text(file.read_text().replace("output_price = 0.5", "output_price = 0.0"))
        with Running("", folder=tmp_path, menu=str(file), budget=BUDGET, answers={"extract": "line"}) as gate:
            answers = [ask(gate, question) for _, question in list_questions(20)]
    assert [answer.status for answer in answers] == [200] * 20


async def _read_spent(gate: Running) -> float:
    return gate.gateway.resources.ledger.account().spent.money


def test_the_reply_is_a_sample_of_the_dearest_mode_that_gave_the_winning_answer(policy: str, tmp_path: Path):
    checked = 0
    with MenuUpstreams(seed=2) as menu, run(menu, tmp_path, policy) as gate:
        for _, question in list_questions(60, seed=5):
            answer = ask(gate, question)
            extra = read_extra(answer)
            leaders = {name: use.get("answer") for name, use in extra["modes"].items()}
            if len(leaders) < 2 or extra["answer"] is None:
                continue
            checked += 1
            if leaders["large"] == extra["answer"]:
                assert extra["answered_by"] == "large"
                assert answer.json["model"] == "large-model"
    assert checked >= 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failing", ["small", "large"])
def test_a_mode_that_fails_is_left_out_and_the_vote_goes_on_with_the_other(
    policy: str, tmp_path: Path, failing: str, stream: bool
):
    other = {"small": "large", "large": "small"}[failing]
    with MenuUpstreams(seed=3) as menu, run(menu, tmp_path, policy) as gate:
        menu.scripts[failing].fault = Status(code=400, message="scripted refusal")
        answers = [ask(gate, question, stream=stream) for _, question in list_questions(25, seed=2)]
        extras = [read_extra(answer) for answer in answers]
        menu.scripts[failing].fault = None
        assert menu.count_samples()[failing] == 0
    assert {answer.status for answer in answers} == {200}
    assert {extra["answered_by"] for extra in extras} == {other}
    failed = [extra for extra in extras if failing in extra["modes"]]
    assert failed, "the failing mode was asked for at least once"
    for extra in failed:
        assert extra["modes"][failing]["failed"]
        assert any(f"mode {failing} failed" in note for note in extra["notes"])


def test_with_every_mode_failing_the_request_fails(policy: str, tmp_path: Path):
    with MenuUpstreams() as menu, run(menu, tmp_path, policy) as gate:
        for script in menu.scripts.values():
            script.fault = Status(code=400, message="scripted refusal")
        assert ask(gate, "What is the capital of France?").status == 400


def test_a_request_may_name_modes_and_a_single_one_is_passed_through(policy: str, tmp_path: Path):
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy) as gate:
        question = list_questions(1)[0][1]
        for name in COSTS:
            passed = [
                read_extra(ask(gate, question, adacompute={"modes": [name]})),
                read_extra(ask(gate, question, model=name)),
                read_extra(gate.ask(_build_question(question), {"x-adacompute-modes": name})),
                read_extra(ask(gate, question, model=name, stream=True)),
            ]
            for extra in passed:
                assert (list(extra["modes"]), extra["samples"], extra["mode"]) == ([name], 1, "pass")
        both = read_extra(ask(gate, question, adacompute={"modes": ["large", "small"]}))
        assert "mode" not in both
        refused = ask(gate, question, adacompute={"modes": ["huge"]})
        assert refused.status == 400
        assert refused.error["message"] == "adacompute.modes has 'huge'; give some of small, large"
        other = read_extra(ask(gate, question, model="gpt-4o"))
        assert "model 'gpt-4o' is not a mode; the policy decides" in other["notes"]
        listed = [model["id"] for model in gate.get("/v1/models").json["data"]]
        assert listed == ["adacompute", "small", "large"]


def _build_question(question: str) -> dict[str, Any]:
    return {
        "model": "adacompute",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0.7,
    }


def test_a_budget_in_samples_is_refused_and_one_in_money_is_served(policy: str, tmp_path: Path):
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy) as gate:
        question = list_questions(1)[0][1]
        refused = ask(gate, question, adacompute={"budget": 2})
        assert refused.status == 400
        assert (
            "can't be kept over several modes, which differ in cost; give it in money"
            in (refused.error["message"])
        )
        assert ask(gate, question, adacompute={"budget": "0.0001 USD"}).status == 200


def test_what_cant_be_voted_on_is_answered_by_the_default_mode(policy: str, tmp_path: Path):
    poem = "Write a poem about the sea."
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy, vote="auto", answers={}) as gate:
        for stream in (False, True):
            extra = read_extra(ask(gate, poem, stream=stream))
            assert next(iter(extra["modes"])) == "large", "it isn't asked of a cheaper one first"
            assert extra["answered_by"] == "large"
        greedy = read_extra(ask(gate, list_questions(1)[0][1], temperature=0))
        assert list(greedy["modes"]) == ["large"]
    with (
        MenuUpstreams(seed=4) as menu,
        run(menu, tmp_path, policy, vote="auto", answers={}, more={"small": "default = true"}) as gate,
    ):
        assert read_extra(ask(gate, poem, temperature=0))["answered_by"] == "small"


@pytest.mark.parametrize("stream", [False, True])
def test_a_first_sample_without_an_answer_to_vote_on_is_replaced_by_the_default_modes(
    policy: str, tmp_path: Path, stream: bool
):
    text = "Well, there is a lot to say about that. " * 20
    question = "What do you think of the sea?"
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy, vote="auto", answers={}) as gate:
        for name, script in menu.scripts.items():
            script.fault = Reply(
                texts=[f"{name}: {text}"], usage={"prompt_tokens": 20, "completion_tokens": 10}
            )
        answer = ask(gate, question, stream=stream)
        extra = read_extra(answer)
    assert extra["answered_by"] == "large"
    assert any("no vote" in note for note in extra["notes"])
    assert b"large: Well" in answer.raw
    assert b"small: Well" not in answer.raw


def test_a_cap_in_money_holds_over_all_modes(policy: str, tmp_path: Path):
    cap = 0.004
    with MenuUpstreams(seed=6) as menu, run(menu, tmp_path, policy, unit="money", cap=cap) as gate:
        statuses = [ask(gate, question, max_tokens=10).status for _, question in list_questions(150, seed=1)]
        money = menu.count_money()
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert cap / 2 < money <= cap


def test_options_of_a_mode_reach_its_upstream_and_no_other(policy: str, tmp_path: Path):
    more = {"small": 'options = { reasoning_effort = "low", max_tokens = 7, system_suffix = "Be brief." }'}
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy, more=more) as gate:
        question = list_questions(1)[0][1]
        ask(gate, question, model="small")
        ask(gate, question, model="large")
        small, large = (json.loads(menu.upstreams[name].requests[-1].raw) for name in COSTS)
    assert (small["reasoning_effort"], small["max_tokens"]) == ("low", 7)
    assert small["messages"][0] == {"role": "system", "content": "Be brief."}
    assert small["model"] == "small-model"
    assert "reasoning_effort" not in large
    assert large["messages"][0]["role"] == "user"


def test_a_request_that_explores_draws_every_mode_at_the_same_time_and_is_recorded_to_learn_from(
    policy: str, tmp_path: Path
):
    pool = tmp_path / "traffic.sqlite"
    with (
        MenuUpstreams(seed=4, delays=(0.05, 0.05)) as menu,
        run(menu, tmp_path, policy, explore=1.0, record=str(pool), budget="0.01 USD") as gate,
    ):
        extras = [read_extra(ask(gate, question)) for _, question in list_questions(6)]
        counts = menu.count_samples()
    assert all(
        {name: use["samples"] for name, use in e["modes"].items()} == {"small": 8, "large": 8} for e in extras
    )
    assert counts == {"small": 48, "large": 48}
    with ac.open_pool(pool) as recorded:
        menu_read = ac.Menu.of(recorded, costs=COSTS)
        assert set(menu_read.names) == {"small", "large"}
        assert len(recorded) == 6


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"budget": 2.0}, "budget 2 samples per request can't be kept over the menu of small, large"),
        (
            {"policy": "stopping"},
            "a stopping policy draws samples of one mode, and the menu has small, large",
        ),
        ({"menu": "renamed"}, "needs the mode 'small', and the menu has cheap, large"),
        ({"menu": "missing"}, "can't be read (No such file or directory)"),
    ],
)
def test_settings_that_dont_fit_a_menu_are_refused_in_one_line(
    policy: str, tmp_path: Path, settings: dict[str, Any], line: str
):
    StoppingPolicy().save(tmp_path / "stopping")
    urls = {"small": "http://127.0.0.1:9/v1", "large": "http://127.0.0.1:9/v1"}
    file = write_menu(tmp_path, urls)
    if settings.get("menu") == "renamed":
        file.write_text(file.read_text().replace("[small]", "[cheap]"))
    elif settings.get("menu") == "missing":
        file = tmp_path / "missing.toml"
    chosen = str(tmp_path / "stopping") if settings.get("policy") else policy
    with (
        pytest.raises(AdacomputeError) as caught,
        Running("", menu=str(file), policy=chosen, budget=settings.get("budget", BUDGET), wait=False),
    ):
        pass
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_menu_policy_needs_its_menu(policy: str):
    with (
        pytest.raises(AdacomputeError, match=r"give their menu \(--menu menu.toml\)"),
        Running("http://127.0.0.1:9/v1", policy=policy, wait=False),
    ):
        pass


@pytest.mark.parametrize("fitted", [True, False])
def test_an_asker_over_a_menu_asks_as_the_gateway_does(policy: str, tmp_path: Path, fitted: bool):
    with MenuUpstreams(seed=4) as menu:
        file = menu.write(tmp_path)
        with ac.Asker(menu=file, policy=policy if fitted else None, budget=BUDGET) as asker:
            replies = asker.ask_many([question for _, question in list_questions(20)], extract="line")
            spent = asker.spent
        counts = menu.count_samples()
    assert all(reply.error is None and sum(reply.modes.values()) == reply.samples for reply in replies)
    assert {name: sum(reply.modes.get(name, 0) for reply in replies) for name in COSTS} == counts
    assert sum(reply.cost or 0.0 for reply in replies) == pytest.approx(spent.money)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"endpoint": "http://127.0.0.1:9/v1"}, "endpoint is given beside a menu"),
        ({"model": "m"}, "model is given beside a menu"),
        ({"input_price": 1.0}, "input_price is given beside a menu"),
        ({"budget": 2}, "can't be kept over the menu of small, large"),
    ],
)
def test_an_asker_takes_a_menu_or_one_endpoint(policy: str, tmp_path: Path, more: dict[str, Any], line: str):
    file = write_menu(tmp_path, dict.fromkeys(COSTS, "http://127.0.0.1:9/v1"))
    with pytest.raises(AdacomputeError, match=line):
        ac.Asker(**{"menu": file, "policy": policy, "budget": BUDGET, **more})


@pytest.mark.slow
def test_the_commands_ask_and_serve_check_work_over_a_menu(policy: str, tmp_path: Path, adacompute: Any):
    with MenuUpstreams(seed=4) as menu:
        words = ["--menu", str(menu.write(tmp_path)), "--policy", policy, "--budget", "0.05 USD per 1000"]
        question = list_questions(1)[0][1]
        asked = adacompute("ask", question, *words, "--extract", "line", "--json")
        reply = json.loads(asked.stdout)
        assert sum(reply["modes"].values()) == reply["samples"]
        assert reply["cost"] == pytest.approx(menu.count_money())
        shown = adacompute("ask", question, *words, "--extract", "line")
        assert "USD" in shown.stdout
        checked = adacompute("serve", "--check", *words)
        assert "mode small" in checked.stdout
        assert "large-model" in checked.stdout
        both = adacompute("ask", question, *words, "--endpoint", "http://127.0.0.1:9/v1", code=2)
    assert "--endpoint: --menu says this for each mode" in " ".join(both.stderr.split())


@pytest.mark.slow
def test_without_a_policy_cascades_decide_a_little_is_explored_and_a_policy_is_learned_from_it(
    tmp_path: Path,
):
    pool = tmp_path / "traffic.sqlite"
    more = {"small": "options = { max_tokens = 10 }"}  # so that the first guess of costs is far off
    options = {"record": str(pool), "explore": 0.3, "budget": "0.0005 USD", "more": more}
    with MenuUpstreams(seed=8) as menu, run(menu, tmp_path, "", **options) as gate:
        served = gate.gateway.policy_registry.get("menu")
        assert served.policy.origin_ == "cascades"
        guessed = served.menu.costs.tolist()
        extras = [read_extra(ask(gate, question)) for _, question in list_questions(120, seed=9)]
        until(lambda: gate.gateway.policy_registry.get("menu").menu.costs.tolist() != guessed)
        measured = gate.gateway.policy_registry.get("menu").menu.costs.tolist()
        assert measured == pytest.approx([0.05, 1.0], rel=0.05)
        assert ask(gate, list_questions(1)[0][1]).status == 200
    assert {name for extra in extras for name in extra["modes"]} == {"small", "large"}
    explored = sum(e["samples"] == 16 for e in extras)
    assert 20 <= explored <= 60
    with ac.open_pool(pool) as recorded:
        menu_read = ac.Menu.of(recorded, costs=COSTS)
        policy = ac.MenuPolicy(menu_read, longest=8).fit(recorded)
    assert policy.origin_ == "fitted"
    policy.save(tmp_path / "learned")
    with MenuUpstreams(seed=8) as menu, run(menu, tmp_path, str(tmp_path / "learned")) as gate:
        assert ask(gate, list_questions(1)[0][1]).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("budget", leave_to_nightly([8e-5, 3e-5, 3e-4]))
@pytest.mark.parametrize("repeated", leave_to_nightly([True, False]))
def test_without_a_policy_the_average_cost_is_the_budget(tmp_path: Path, budget: float, repeated: bool):
    count = 300
    questions = [question for _, question in list_questions(count, seed=3)]
    if repeated:  # the hash of one prompt is on one side of every mix, so that the price has to move
        questions = questions[:1] * count
    with (
        MenuUpstreams(seed=8) as menu,
        run(menu, tmp_path, "", explore=0.0, budget=f"{budget} USD") as gate,
    ):
        extras = [read_extra(ask(gate, question)) for question in questions]
        money = menu.count_money()
    assert money / count == pytest.approx(budget, rel=0.1)
    rules = {
        tuple(sorted((name, use["samples"]) for name, use in extra["modes"].items())) for extra in extras
    }
    assert len(rules) > 1


def test_without_a_policy_cheap_samples_that_disagree_go_to_the_dearer_mode(tmp_path: Path):
    with MenuUpstreams() as menu, run(menu, tmp_path, "", explore=0.0, price=0.12) as gate:
        extras = [read_extra(ask(gate, question)) for _, question in list_questions(20)]
    for extra in extras:
        small, large = (extra["modes"].get(name) for name in COSTS)
        assert small is not None
        if large is None:
            assert len(extra["votes"]) == 1
        else:
            assert extra["answer"] == large["answer"]
    assert len({"large" in extra["modes"] for extra in extras}) == 2


def test_a_share_to_explore_is_small_beside_the_budget():
    assert choose_explore(0.5, [0.1, 1.0]) == pytest.approx(0.1 * 0.5 / (8 * 1.1))
    assert choose_explore(100.0, [0.1, 1.0]) == 0.02
    assert choose_explore(1.0, [0.0, 0.0]) == 0.02


def write_modes(folder: Path, text: str) -> str:
    (folder / "menu.toml").write_text(text)
    return str(folder / "menu.toml")


def test_a_policy_that_names_no_mode_asks_the_default_one_and_another_where_that_fails(tmp_path: Path):
    FixedPolicy(2.0).save(tmp_path / "two")
    question = list_questions(1)[0][1]
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, str(tmp_path / "two")) as gate:
        assert read_extra(ask(gate, question))["modes"].keys() == {"large"}
        menu.scripts["large"].fault = Status(code=400, message="scripted refusal")
        extra = read_extra(ask(gate, question))
        calls = menu.upstreams["large"].count.requests
        assert read_extra(ask(gate, question, stream=True))["answered_by"] == "small"
        assert menu.upstreams["large"].count.requests - calls <= 3
    assert (extra["answered_by"], extra["modes"]["small"]["samples"]) == ("small", 2)


def test_a_modes_limit_of_tokens_is_no_higher_than_the_operators(policy: str, tmp_path: Path):
    more = {"large": "options = { max_tokens = 100000 }"}
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy, more=more, max_tokens=1000) as gate:
        ask(gate, list_questions(1)[0][1], model="large")
        assert json.loads(menu.upstreams["large"].requests[-1].raw)["max_tokens"] == 1000


@pytest.mark.parametrize("settings", [{"explore": 1.0}, {"mode": "shadow"}, {}])
def test_modes_that_the_policy_doesnt_know_are_never_voted_on(
    policy: str, tmp_path: Path, settings: dict[str, Any]
):
    with MenuUpstreams(seed=4) as menu:
        text = menu.write(tmp_path).read_text()
        large = menu.upstreams["large"].url
        text += f'[huge]\nupstream = "{large}"\nmodel = "large-model"\n'
        text += "input_price = 1.0\noutput_price = 100.0\n"
        file = write_modes(tmp_path, text)
        options = {"vote": "always", "answers": {"extract": "line"}, "budget": "0.01 USD", **settings}
        with Running("", folder=tmp_path, menu=file, policy=policy, **options) as gate:
            question = list_questions(1)[0][1]
            extra = read_extra(ask(gate, question))
            assert "huge" not in extra["modes"]
            named = ask(gate, question, adacompute={"modes": ["huge", "large"]})
            assert named.status == 200
            assert list(read_extra(named)["modes"]) == ["large"]
            alone = read_extra(ask(gate, question, adacompute={"modes": ["huge"]}))
            assert list(alone["modes"]) == ["huge"]
            poem = read_extra(ask(gate, question, temperature=0))
            assert poem["answered_by"] == ("huge" if not settings.get("mode") else poem["answered_by"])


def test_of_modes_at_one_price_the_later_one_is_the_dearer(tmp_path: Path):
    with MenuUpstreams() as menu:
        url = menu.upstreams["large"].url
        mode = f'upstream = "{url}"\nmodel = "m"\ninput_price = 1.0\noutput_price = 4.0\n'
        file = write_modes(tmp_path, f"[low]\n{mode}[high]\n{mode}")
        with Running("", folder=tmp_path, menu=file, budget=BUDGET) as gate:
            resources, served = gate.gateway.resources, gate.gateway.policy_registry.get("menu")
            assert (resources.modes, resources.default, served.menu.names) == (
                ("low", "high"),
                "high",
                ("low", "high"),
            )


def test_the_average_goes_on_while_it_learns_what_modes_cost_and_over_a_restart(tmp_path: Path):
    questions = [question for _, question in list_questions(60, seed=3)]
    more = {"small": "options = { max_tokens = 10 }"}  # so that the first guess of costs is far off
    options = {"explore": 0.8, "budget": "0.0005 USD", "more": more}
    with MenuUpstreams(seed=8) as menu:
        with run(menu, tmp_path, "", **options) as gate:
            guessed = gate.gateway.policy_registry.get("menu").menu.costs.tolist()
            for question in questions:
                ask(gate, question)
            until(lambda: gate.gateway.policy_registry.get("menu").menu.costs.tolist() != guessed)
            measured = gate.gateway.policy_registry.get("menu").menu.costs.tolist()
            assert gate.gateway.find_pacer().requests == len(questions)
        with run(menu, tmp_path, "", **options) as gate:
            assert gate.gateway.find_pacer().requests == len(questions)
            assert gate.gateway.policy_registry.get("menu").menu.costs.tolist() == pytest.approx(measured)


def test_what_modes_cost_since_the_last_save_is_kept_at_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("adacompute.serve.routes.lifespan._SAVE_SECONDS", 3600.0)
    more = {"small": "options = { max_tokens = 10 }"}
    with MenuUpstreams(seed=8) as menu:
        with run(menu, tmp_path, "", explore=1.0, budget="0.0005 USD", more=more) as gate:
            guessed = gate.gateway.policy_registry.get("menu").menu.costs.tolist()
            for _, question in list_questions(30, seed=3):
                ask(gate, question)
            assert gate.gateway.policy_registry.get("menu").menu.costs.tolist() == guessed
        with run(menu, tmp_path, "", budget="0.0005 USD", more=more) as gate:
            measured = gate.gateway.policy_registry.get("menu").menu.costs.tolist()
            assert measured == pytest.approx([0.05, 1.0], rel=0.05)


def test_a_cap_in_money_over_a_menu_without_prices_is_refused(tmp_path: Path):
    mode = 'upstream = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
    file = write_modes(tmp_path, f"[a]\n{mode}[b]\n{mode}")
    with (
        pytest.raises(AdacomputeError, match="caps in money need prices"),
        Running("", menu=file, budget="500 tokens", unit="money", cap=1.0, wait=False),
    ):
        pass


def test_requests_that_name_modes_are_not_explored(policy: str, tmp_path: Path):
    with MenuUpstreams(seed=4) as menu, run(menu, tmp_path, policy, explore=1.0, budget="0.01 USD") as gate:
        extra = read_extra(ask(gate, list_questions(1)[0][1], adacompute={"modes": ["small", "large"]}))
    assert extra["samples"] < 16


@pytest.mark.slow
def test_confidence_by_mode_is_kept_when_a_policy_takes_anothers_place():
    scales = LiveScales(fit_policy().weigh)
    scales.observe([ac.Sample(answer="a", tokens=10, logprob=-1.0)] * 50, "small")
    again = LiveScales(fit_policy().weigh)
    assert again.restore(scales.state())
    assert again.state() == scales.state()
    assert again.state()["small"][0] == 50


def test_a_configured_menu_is_replaced_by_an_address_alone(tmp_path: Path):
    settings = ServeConfig(menu="menu.toml")
    assert choose_modes_file(None, settings, {"--upstream": None, "--input-price": None}) == "menu.toml"
    assert choose_modes_file(None, settings, {"--upstream": "http://h/v1", "--input-price": 1.0}) == ""
    with pytest.raises(typer.BadParameter, match=r"serve\.menu says this for each mode"):
        choose_modes_file(None, settings, {"--upstream": None, "--input-price": 1.0})


def keep_quality(folder: Path) -> None:
    """Beside the policy: half the cost is as good as a sample of the large mode."""
    curve = QualityCurve(
        samples=1,
        mode="large",
        rival_cost=1e-4,
        accuracy=0.8,
        costs=(2e-5, 5e-5),
        gains=(-0.1, 0.0),
        lows=(-0.2, 0.0),
    )
    kept: dict[str, Any] = {"dial": "price", "unit": "money", "cost_unit": "money", "currency": "USD"}
    write_chart(folder, Chart(problems=300, protocol="made up", rows=(), qualities=(curve,), **kept))


def test_a_quality_of_a_menu_is_served_at_its_cost_in_money(tmp_path: Path):
    folder = save_policy(tmp_path)
    keep_quality(folder)
    with MenuUpstreams() as menu, run(menu, tmp_path, str(folder), budget="as good as large") as gate:
        told = read_extra(ask(gate, list_questions(1)[0][1]))["quality"]
        assert (gate.gateway.budget.amount, gate.gateway.budget.currency) == (5e-5, "USD")
        board = gate.get("/dashboard/data").json["quality"]
    assert board.startswith("as good as large: 0.05 on average for 0.1 USD per 1,000 requests, 50% less")
    assert (told["cost"], told["saved"], told["unit"]) == (5e-5, 0.5, "money")


@pytest.mark.parametrize(
    ("kept", "large", "budget", "words"),
    [
        (True, 10.0, "as good as small", "wasn't measured; give one of large"),
        (False, 10.0, "as good as large", "needs a policy that was measured"),
        (True, 9.0, "as good as large", "other prices of 'large'"),
    ],
)
def test_a_quality_that_was_not_measured_of_this_menu_is_refused(
    kept: bool, large: float, budget: str, words: str, tmp_path: Path
):
    prices = {"small": ac.TokenPrices(output=0.5), "large": ac.TokenPrices(output=large)}
    modes = tuple(ac.Mode(name=name, cost=cost, prices=prices[name]) for name, cost in COSTS.items())
    MenuPolicy(ac.Menu(modes=modes, unit="money", currency="USD")).save(tmp_path / "policy")
    if kept:
        keep_quality(tmp_path / "policy")
    with MenuUpstreams() as menu:
        serve = ServeConfig(menu=str(menu.write(tmp_path)), policy=str(tmp_path / "policy"), budget=budget)
        with pytest.raises(AdacomputeError, match=words):
            settle_quality(Config(serve=serve))
