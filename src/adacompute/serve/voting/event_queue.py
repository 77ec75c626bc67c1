"""Streams a request's samples and decisions as events, for clients that ask for them.

Each event is a chat completion chunk with an empty delta and its own event name, so clients that don't know
the event skip it. After the last event, the chunks of the winning sample follow.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import Any

from adacompute.answers import Tally
from adacompute.client import Response
from adacompute.errors import format_count
from adacompute.policies.base import Criterion, Draw
from adacompute.pool.ballots import count_calls
from adacompute.records import BudgetUnit, Call
from adacompute.serve.messages.reply import RequestOutcome, dump_json
from adacompute.serve.messages.stream import keep_alive
from adacompute.serve.pricing.pacer import MeanCosts
from adacompute.serve.voting.request_votes import GatewayResources, VoteSource
from adacompute.serve.voting.sample_loop import SampleLoop

EVENT_FIELD = "adacompute_event"  # name of the field that holds an event in a streamed chunk
_MAX_TEXT = 20_000  # maximum length of a sample's text in an event, in characters
_STOP_NOTE = "stopped by "


class EventQueue:
    """Makes and queues the events of one request."""

    def __init__(self, sampling: SampleLoop, resources: GatewayResources, *, name: str, at: float) -> None:
        self._sampling = sampling
        model = str(sampling.request.body.get("model", ""))
        self._head = {"id": name, "object": "chat.completion.chunk", "created": int(at), "model": model}
        self._source_rates = {name: source.rates for name, source in resources.sources.items()}
        has_prices = any(rates.input or rates.output for rates in self._source_rates.values())
        self.unit: BudgetUnit = "money" if has_prices else "tokens"  # unit of the costs that events show
        self._came: list[Response] = []  # the responses so far, in order of arrival
        self._began = sampling.now
        # The first decision's event, which waits for the first sample. Sending it fixes the HTTP status, so a
        # later error couldn't change the status.
        self._held = b""
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        sampling.on_decision = self._add_decision
        sampling.drawer.on_samples = self._add_samples

    def follow(self, work: Coroutine[Any, Any, object]) -> AsyncGenerator[bytes, None]:
        """Yields events while `work` runs; raises what `work` raises; cancels it if the client leaves."""
        return keep_alive(work, self._queue)

    def build_end(self, outcome: RequestOutcome, costs: Mapping[str, MeanCosts]) -> bytes:
        """Builds the last event: the request's answer and cost, and what uniform sampling would have cost.

        `costs` maps a mode's name to the mode's mean costs per sample, and "" to the mean costs of all modes.
        """
        fields = {
            "samples": outcome.samples,
            "answer": outcome.answer,
            "agreement": outcome.agreement,
            "tokens": outcome.spent.tokens,
            "cost": outcome.spent.amount_in(self.unit),
            "unit": self.unit,
            "seconds": round(outcome.seconds, 3),
            "notes": list(outcome.notes),
            "uniform": self._describe_uniform(outcome, costs),
        }
        return self._encode("done", fields)

    def _describe_uniform(
        self, outcome: RequestOutcome, costs: Mapping[str, MeanCosts]
    ) -> dict[str, Any] | None:
        """Describes how many samples uniform sampling needs for the same accuracy, and their cost.

        If the number is unknown, uses the policy's maximum. With several modes, uses the number of samples
        drawn, as if all came from the most expensive mode. Returns None if there was no vote.
        """
        served, route = self._sampling.served, self._sampling.route
        if outcome.samples == 0 or outcome.agreement is None:
            return None
        if len(self._source_rates) > 1:
            return self._describe_dearest(outcome, costs)
        cost = costs[""].estimate(route.unit) or outcome.spent.amount_in(route.unit) / outcome.samples
        row = None if served.chart is None or not cost else served.chart.row_at(route.budget / cost)
        if row is None or row.uniform is None:
            number, what = float(served.policy.longest), "the most that this policy draws"
        else:
            number, what = (
                row.uniform,
                "so many for each question are as accurate on average, by calibration",
            )
        prompts = outcome.prompt_cost
        calls = float(count_calls(number, prompts.choices))
        single = (outcome.spent - prompts.every).amount_in(self.unit) / outcome.samples
        cost = number * single + calls * prompts.single.amount_in(self.unit)
        return {"samples": round(number, 2), "cost": cost, "what": what}

    def _describe_dearest(self, outcome: RequestOutcome, costs: Mapping[str, MeanCosts]) -> dict[str, Any]:
        """Describes what as many samples as were drawn would have cost, all from the most expensive mode."""
        *_, dearest = self._source_rates
        use = next((use for use in outcome.modes if use.name == dearest and use.samples), None)
        what = f"as many, all of {dearest}"
        if use is not None:
            cost = use.spent.amount_in(self.unit) * outcome.samples / use.samples
        elif (mean := costs[dearest].estimate(self.unit)) is not None:
            cost = mean * outcome.samples
        else:
            usage, rates = outcome.usage, self._source_rates[dearest]
            cost = rates.price(usage.prompt_tokens, usage.completion_tokens, unit=self.unit)
            what += ", if they are as long as these"
        return {"samples": outcome.samples, "cost": cost, "what": what}

    def _add_samples(self, source: VoteSource, responses: Sequence[Response], calls: Sequence[Call]) -> None:
        self._flush()
        spent = self._source_rates[source.name].compute_spent(calls)
        for response in responses:
            self._came.append(response)
            fields: dict[str, Any] = {
                "index": len(self._came) - 1,
                "mode": source.name or None,
                "text": response.text[:_MAX_TEXT],
                "cut": len(response.text) > _MAX_TEXT,
                "finish_reason": response.finish_reason,
                "tokens": response.tokens,
                "cost": spent.amount_in(self.unit) / len(responses),
                "unit": self.unit,
                "seconds": round(self._sampling.now - self._began, 3),
            }
            self._queue.put_nowait(self._encode("sample", fields))

    def _add_decision(self, draws: Sequence[Draw]) -> None:
        sampling = self._sampling
        tally, criterion = sampling.votes.counted_tally, sampling.find_criterion()
        fields = {
            "round": sampling.waves,
            "samples": len(sampling.votes.responses),
            "answers": self._list_answers(tally),
            "votes": {} if tally is None else tally.votes,
            "leader": None if tally is None else tally.leader,
            "agreement": None if tally is None else tally.support,
            "criterion": None if criterion is None else criterion._asdict(),
            "next": [{"mode": draw.mode, "count": draw.count} for draw in draws],
            "words": describe_decision(sampling, draws, criterion),
        }
        event = self._encode("decision", fields)
        if self._came:
            self._queue.put_nowait(event)
        else:
            self._held = event

    def _flush(self) -> None:
        if self._held:
            self._queue.put_nowait(self._held)
            self._held = b""

    def _list_answers(self, tally: Tally | None) -> list[dict[str, Any]]:
        """Lists each sample's answer, in order of arrival, and a number that equal answers share."""
        votes = self._sampling.votes
        classes = () if tally is None else tally.classes
        places = {id(response): place for place, response in enumerate(votes.responses)}
        answers = []
        for response in self._came:
            place = places.get(id(response), len(classes))
            has_vote = place < len(classes) and classes[place] >= 0
            answer = votes.samples[place].answer if has_vote else None
            answers.append({"answer": answer, "vote": classes[place] if has_vote else None})
        return answers

    def _encode(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        chunk = {
            **self._head,
            "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
            EVENT_FIELD: {"type": kind, **fields},
        }
        return b"event: adacompute.%s\ndata: %s\n\n" % (kind.encode(), dump_json(chunk))


def describe_decision(sampling: SampleLoop, draws: Sequence[Draw], criterion: Criterion | None) -> str:
    """Describes in words why sampling continues or stops."""
    votes, route = sampling.votes, sampling.route
    more = " and ".join(_describe_draw(draw) for draw in draws)
    if not votes.responses:
        return f"it begins with {more}" if draws else "it stops"
    if votes.no_vote_reason:
        end = f"; it asks for {more}" if draws else "; the sample that came is the reply"
        return f"no vote: {votes.no_vote_reason}{end}"
    if route.mode != "adaptive":
        would = "" if sampling.would is None else f"; the policy would draw {sampling.would} more"
        return f"one sample, without a vote ({route.mode} mode){would}"
    agreement = _describe_agreement(votes.tally)
    if draws:
        reason = _describe_criterion(criterion, goes_on=True)
        return "; ".join(filter(None, [agreement, reason])) + f", so it asks for {more} more"
    note = next((note for note in reversed(sampling.notes) if note.startswith(_STOP_NOTE)), "")
    if note:
        return f"{agreement}; {note}"
    if votes.tally.drawn >= sampling.most_samples:
        drawn = format_count(votes.tally.drawn, "sample")
        return f"{agreement}; {drawn} are the most that it may take, so it stops"
    if route.is_single:
        return f"{agreement}; the budget is one sample, so it stops"
    return (
        "; ".join(filter(None, [agreement, _describe_criterion(criterion, goes_on=False)])) + ", so it stops"
    )


def _describe_agreement(tally: Tally) -> str:
    every = "both" if tally.drawn == 2 else f"all {tally.drawn}"
    if not tally.answered:
        return (
            f"none of {format_count(tally.drawn, 'sample')} states an answer"
            if tally.drawn > 1
            else "the sample states no answer"
        )
    if tally.drawn == 1:
        return "one answer so far"
    if tally.first == tally.drawn:
        return f"{every} agree"
    return f"{every} differ" if tally.kinds == tally.drawn else f"{tally.first} of {tally.drawn} agree"


def _describe_criterion(criterion: Criterion | None, *, goes_on: bool) -> str:
    """Describes the comparison (`criterion`) behind a decision; "" if it doesn't explain the decision."""
    if criterion is None:
        return ""
    kind, value, limit, mode = criterion
    if (value < limit if kind == "agreement" else value > limit) is not goes_on:
        return ""
    if kind == "agreement":
        if limit == 1:
            return f"one answer of {mode} is enough" if value else f"{mode} has given no answer"
        return f"it has {min(value, limit):g} of the {limit:g} equal answers that {mode} needs"
    if kind == "doubt":
        left, right = _format_pair(value, limit)
        return f"the doubt that another answer is commoner is {left}, and {right} is tolerated"
    left, right = _format_pair(100 * value, 100 * limit)
    return f"another sample is worth {left} points and costs {right}"


def _format_pair(value: float, limit: float) -> tuple[str, str]:
    """Formats two numbers with enough digits to show which one is greater."""
    pair = (f"{value:.6g}", f"{limit:.6g}")
    for digits in (2, 3, 4):
        shorter = (f"{value:.{digits}g}", f"{limit:.{digits}g}")
        if shorter[0] != shorter[1]:
            return shorter
    return pair


def _describe_draw(draw: Draw) -> str:
    return format_count(draw.count, "sample") + (f" of {draw.mode}" if draw.mode else "")
