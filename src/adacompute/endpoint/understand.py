"""What an answer to a request for completions means: a reply, or its error. Sends nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yarl import URL

from adacompute.endpoint.attempt import Answer
from adacompute.endpoint.manners import Manners, about_logprobs, about_n, about_options
from adacompute.endpoint.outcome import Reply
from adacompute.endpoint.reply import choices_of, one_line, prompt_tokens, responses_of
from adacompute.endpoint.usage import cached_of, whole
from adacompute.errors import EndpointError, EndpointRefused, ReplyInvalid
from adacompute.records import Call

if TYPE_CHECKING:
    from adacompute.endpoint.line import Line

__all__ = ["Question", "TooMany", "WithoutIt", "understood"]


class TooMany(EndpointRefused):
    """It refused that many choices at once, and may give fewer."""

    kind = "n-limit"


class WithoutIt(EndpointRefused):
    """It refused something that it can be asked without."""


class WithoutLogprobs(WithoutIt):
    """It refused to give log-probabilities."""

    kind = "no-logprobs"


class WithoutUsage(WithoutIt):
    """It refused to tell the usage of a stream."""

    kind = "no-stream-options"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: the body that was sent, for `n` choices of at most `cap` tokens."""

    body: Mapping[str, Any]
    n: int
    cap: int | None
    at: float  # seconds since 1970, when it was sent
    seconds: float  # until it was answered


def understood(question: Question, answer: Answer, *, line: "Line", url: URL, manners: Manners) -> Reply:
    """The reply that an answer is, with its one call; else its error. Learns manners from either.

    Whatever an answer holds, it breaks one call and no more: what nobody thought of is ReplyInvalid.
    """
    try:
        if answer.status == 200:
            return _reply(question, answer, line, manners)
        error = _refusal(question, answer, line, url, manners)
    except EndpointError:
        raise
    except Exception as exc:  # noqa: BLE001 - see above
        why = one_line(line.unsaid(f"{type(exc).__name__}: {exc}"))
        error = ReplyInvalid(
            f"{url}: answered {answer.status} with what can't be read ({why}); try again",
            status=answer.status,
            paid=True,
        )
    raise error


def _reply(question: Question, answer: Answer, line: "Line", manners: Manners) -> Reply:
    choices, came = choices_of(answer.value, unsaid=line.unsaid)
    body: dict[str, Any] = answer.value  # type: ignore[assignment] # choices_of has seen that it is one
    manners.gave(question.n, came)
    if question.body.get("logprobs"):
        manners.told(logprobs=any(choice.tokens is not None for choice in choices))
    responses, counted = responses_of(choices, body, asked=question.n, cap=question.cap, manners=manners)
    usage = body.get("usage")
    prompt = whole(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    call = Call(
        at=question.at,
        seconds=question.seconds,
        asked=question.n,
        got=len(responses),
        surplus=came - len(responses),
        status=200,
        prompt_tokens=prompt_tokens(question.body) if prompt is None else prompt,
        cached_tokens=cached_of(usage, prompt),
        completion_tokens=counted.total,
        estimated=counted.estimated or prompt is None,
    )
    return Reply(responses=responses, calls=(call,), body=body)


def _refusal(question: Question, answer: Answer, line: "Line", url: URL, manners: Manners) -> EndpointError:
    """The error of a status, having learned from it what the endpoint won't do."""
    error, said, param = line.refusal(url, answer)
    if answer.status in (400, 422):
        if about_logprobs(said, param, question.body):
            manners.logprobs, manners.logprobs_refused = False, True
            return WithoutLogprobs(str(error), status=answer.status)
        if about_options(said, param, question.body):
            manners.stream_options_refused = True
            return WithoutUsage(str(error), status=answer.status)
        if about_n(said, param) and manners.refused(question.n, said):
            return TooMany(str(error), status=answer.status)
    error.retry_after = answer.retry_after
    return error
