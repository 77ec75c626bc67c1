"""What is voted on and what isn't: the operator's rule, and what the first sample shows."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

import adacompute as ac
from adacompute.answers import Task, extract_answer
from adacompute.client import Response
from adacompute.config import ServeConfig
from adacompute.errors import ConfigError
from adacompute.records import Sample
from adacompute.serve.messages.request_parser import ChatRequest, RequestOptions
from adacompute.serve.voting.request_votes import VoteEligibility, classify_purpose
from timing import find_least, measure_work

CASES = json.loads((Path(__file__).parent.parent / "cases" / "freeform.json").read_text("utf-8"))
AUTO = VoteEligibility(ServeConfig(), Task())


def response(text, finish_reason="stop", **message):
    message = {"role": "assistant", "content": text, **message}
    return Response(text=text, finish_reason=finish_reason, message=message)


def judge(votable, prompt, first, task=None):
    """Why there is no vote after this first sample, read as the gateway reads it; "" if there is one."""
    end = first.text[-4_000:]
    answer = extract_answer(end, task or Task(), finished=first.finished is not False, question=prompt)
    return votable.check_first_sample(prompt, first, Sample(answer=answer))


def share(cases, *, votable):
    """The share of cases that are found votable, or not, and those that aren't."""
    wrong = []
    for case in cases:
        first = response(case["text"], "stop" if case.get("finished", True) else "length")
        if (judge(AUTO, case["prompt"], first) == "") != votable:
            wrong.append(f"{case['kind']}: {case['prompt'][:60]}")
    return 1 - len(wrong) / len(cases), wrong


def test_the_cases_are_enough():
    assert sum(not case["votable"] for case in CASES) >= 60
    assert sum(case["votable"] for case in CASES) >= 40
    assert len({case["prompt"] + case["text"] for case in CASES}) == len(CASES)


def test_free_form_writing_is_not_voted_on():
    found, wrong = share([case for case in CASES if not case["votable"]], votable=False)
    assert found >= 0.95, wrong


def test_what_states_an_answer_is_voted_on():
    found, wrong = share([case for case in CASES if case["votable"]], votable=True)
    assert not wrong, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts", "words"])
def test_first_samples_with_an_answer_are_voted_on_in_the_bundled_recordings(name):
    cases = []
    with ac.bundled(name) as pool:
        for record in pool:
            sample = record.samples[0]
            if sample.text and sample.answer is not None:
                cases.append(case_of(record.problem.question, sample.text, finished=sample.finished))
    assert len(cases) > 300
    found, wrong = share(cases, votable=True)
    assert found >= 0.99, wrong


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["gsm8k", "math", "reasoning-gym"])
def test_first_samples_with_an_answer_are_voted_on_in_other_recordings(name, recordings):
    cases = []
    with gzip.open(recordings / f"{name}-qwen2.5-coder-1.5b.jsonl.gz") as lines:
        for line in lines:
            problem = orjson.loads(line)
            sample = problem["samples"][0]
            if sample["answer"] is not None:
                cases.append(
                    case_of(problem["question"], sample["text"], finished=sample.get("finished") != 0)
                )
    found, wrong = share(cases, votable=True)
    assert len(cases) > 200
    assert found >= 0.99, wrong


@pytest.mark.recordings
def test_worked_solutions_stay_votable_without_their_box(recordings):
    cases = []
    with gzip.open(recordings / "gsm8k-qwen2.5-coder-1.5b.jsonl.gz") as lines:
        for line in lines:
            problem = orjson.loads(line)
            sample = problem["samples"][0]
            text = sample["text"].replace("\\boxed{", "{")
            if sample["answer"] is not None and sample.get("finished") != 0:
                cases.append(case_of(problem["question"], text, finished=True))
    found, wrong = share(cases, votable=True)
    assert found >= 0.98, wrong


def case_of(prompt, text, *, finished):
    return {"kind": "recorded", "prompt": prompt, "text": text, "finished": finished is not False}


def test_the_operator_can_vote_on_nothing():
    assert "operator" in VoteEligibility(ServeConfig(vote="never"), Task()).check_request(ask("What is 2+2?"))


def test_what_is_drawn_alone_is_never_voted_on():
    for vote in ("auto", "always"):
        votable = VoteEligibility(ServeConfig(vote=vote), Task())
        assert (
            votable.check_request(ask("What is 2+2?", no_vote_reason="temperature is 0"))
            == "temperature is 0"
        )


def test_only_prompts_with_the_operators_pattern_are_voted_on():
    votable = VoteEligibility(ServeConfig(vote_pattern=r"(?i)final answer|\\boxed"), Task())
    assert votable.check_request(ask("What is 2+2? Give the Final Answer.")) == ""
    assert votable.check_request(ask("What is 2+2?")) != ""
    assert votable.check_request(ask("x" * 30_000 + "final answer")) != ""  # only the beginning is searched


def test_json_is_voted_on_unless_the_operator_wants_a_field_named():
    wanted = ask("Extract the total.", json=True)
    assert AUTO.check_request(wanted) == ""
    off = ServeConfig(vote_json=False)
    assert "JSON" in VoteEligibility(off, Task()).check_request(wanted)
    assert VoteEligibility(off, Task("json:total")).check_request(wanted) == ""
    named = replace(wanted, options=RequestOptions(fields=("total",)))
    assert VoteEligibility(off, Task()).check_request(named) == ""


def test_tools_are_voted_on_unless_the_operator_switches_that_off():
    wanted = ask("What is the weather?", tools="may")
    assert AUTO.check_request(wanted) == ""
    assert "tools" in VoteEligibility(ServeConfig(vote_tools=False), Task()).check_request(wanted)


def test_a_request_may_ask_for_no_vote():
    for vote in ("auto", "always"):
        votable = VoteEligibility(ServeConfig(vote=vote), Task())
        wanted = ask("What is 2+2?", options=RequestOptions(extract="none"))
        assert votable.check_request(wanted) == "the request asks for none"


@pytest.mark.parametrize("pattern", ["(", "[a", "(?P<a>x)(?P<a>y)", "*"])
def test_a_pattern_that_is_none_is_refused_at_the_start(pattern):
    with pytest.raises(ConfigError, match="vote_pattern"):
        VoteEligibility(ServeConfig(vote_pattern=pattern), Task())


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(\w+\s?)*!$", r"(x|x)*y"])
def test_c12_a_pattern_that_takes_for_ever_is_refused_at_the_start(pattern):
    with pytest.raises(ConfigError, match="takes too long"):
        VoteEligibility(ServeConfig(vote_pattern=pattern), Task())


def test_always_overrides_what_the_first_sample_shows():
    votable = VoteEligibility(ServeConfig(vote="always"), Task())
    assert judge(votable, "Write a poem.", response("Roses are red, violets are blue, and so on.")) == ""


def test_refusals_are_not_voted_on_and_calls_of_tools_unless_that_is_off():
    refused = response("I can't help with that.", content=None, refusal="I can't help with that.")
    assert "refusal" in judge(AUTO, "How many grams?", refused)
    calling = response("", "tool_calls", content=None, tool_calls=[{"id": "1"}])
    assert judge(AUTO, "What is the weather?", calling) == ""
    off = VoteEligibility(ServeConfig(vote_tools=False), Task())
    assert "tool" in judge(off, "What is the weather?", calling)


def test_an_operators_own_extractor_decides():
    boxed = Task("boxed")
    votable = VoteEligibility(ServeConfig(), boxed)
    assert judge(votable, "Write a poem", response("A poem. \\boxed{12}"), boxed) == ""
    assert judge(votable, "What is 2+2?", response("The answer is 4."), boxed) != ""
    assert (
        judge(votable, "What is 2+2?", response("Well,", "length"), boxed) == ""
    )  # it abstains, others may not


def test_c12_an_operators_own_pattern_is_not_run_again():
    votable = VoteEligibility(ServeConfig(), Task("regex:(a+)+$"))
    text = "a" * 5_000 + "!"
    assert votable.check_first_sample("?", response(text), Sample(answer=None)) != ""
    assert votable.check_first_sample("?", response(text), Sample(answer="aa")) == ""


def test_a_pleasantry_is_no_answer_and_a_word_is():
    assert judge(AUTO, "thank you", response("You're welcome!")) != ""
    assert judge(AUTO, "What is the opposite of hot?", response("Cold")) == ""


def test_an_empty_response_is_not_voted_on():
    assert judge(AUTO, "Hello", response("")) != ""
    assert judge(AUTO, "What is 2+2?", response(" \n ")) != ""


def test_the_purpose_of_a_long_prompt_stands_at_its_ends():
    filler = "The committee met and talked at length. " * 5_000
    assert classify_purpose(filler + "How many members met?") == "value"
    assert classify_purpose("Summarize the following text.\n" + filler) == "text"


def test_c12_long_texts_are_judged_in_no_time():
    units = ["a", "1 ", "answer is ", "Answer:\n", "\\boxed{", "(", "how many ", "write a ", ". ", "$", "? "]

    def judge_both(text: str) -> None:
        judge(AUTO, text, response(text))
        judge(AUTO, "How many?", response(text, "length"))

    for unit in units:
        text = (unit * 70_000)[:65_536]
        # milliseconds each; what is quadratic takes minutes
        assert find_least(lambda text=text: measure_work(lambda: judge_both(text)), 0.2) < 0.2


def ask(prompt, **more):
    return ChatRequest(body={"messages": [{"role": "user", "content": prompt}]}, prompt=prompt, **more)
