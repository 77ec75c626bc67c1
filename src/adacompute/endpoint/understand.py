"""What an answer to a request for completions means: a reply, or its error. Sends nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yarl import URL

from adacompute.endpoint.attempt import Answer
from adacompute.endpoint.manners import Manners, about_n
from adacompute.endpoint.outcome import Reply
from adacompute.endpoint.reply import choices_of, one_line, prompt_tokens, responses_of
from adacompute.endpoint.unwanted import unwanted
from adacompute.endpoint.usage import cached_of, whole
from adacompute.errors import EndpointError, EndpointRefused, ReplyInvalid
from adacompute.records import Call

if TYPE_CHECKING:
    from adacompute.endpoint.line import Line

__all__ = ["Question", "TooMany", "WithoutIt", "understood"]


class TooMany(EndpointRefused):
    """It refused that many choices at once, and may give fewer."""

    kind = "n-limit"

    def __init__(self, message: str, fewer: int, *, status: int) -> None:
        super().__init__(message, status=status)
        self.fewer = fewer  # that may pass


class WithoutIt(EndpointRefused):
    """It refused fields that may be left out, so it can be asked without."""

    def __init__(self, message: str, fields: frozenset[str], *, status: int) -> None:
        super().__init__(message, status=status)
        self.fields = fields
        self.kind = "no-stream-options" if "stream_options" in fields else "no-logprobs"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: the body that was sent, for `n` choices of at most `cap` tokens."""

    body: Mapping[str, Any]
    n: int
    cap: int | None
    at: float  # seconds since 1970, when it was sent
    seconds: float  # until it was answered
    optional: frozenset[str] = frozenset()  # fields that may be left out where they are refused


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
    model = question.body.get("model")
    manners.gave(question.n, came, model)
    if question.body.get("logprobs"):
        given = any(choice.tokens is not None for choice in choices)
        manners.models.told(model, logprobs=given)
    habits = manners.models.remembered(model)
    responses, counted = responses_of(choices, body, asked=question.n, cap=question.cap, habits=habits)
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
    """The error of a status, having learned from it how many choices are too many."""
    error, said, param = line.refusal(url, answer)
    if answer.status in (400, 422):
        fields = unwanted(said, param, question.body, optional=question.optional)
        if fields:
            return WithoutIt(str(error), fields, status=answer.status)
        if about_n(said, param) and (fewer := manners.refused(question.n, said, question.body.get("model"))):
            return TooMany(str(error), fewer, status=answer.status)
    error.retry_after = answer.retry_after
    return error
