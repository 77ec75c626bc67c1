"""All exceptions that this package raises on purpose, as a tree.

    AdacomputeError
    ├── ConfigError          a setting in a file, the environment or an option is invalid
    │   └── BudgetInvalid    a budget can't be parsed, or has the wrong unit
    ├── ExtraMissing         a library that only some commands need isn't installed
    ├── TaskError            a task's settings for reading or comparing answers are invalid
    ├── ScoreError           samples can't be scored as requested
    │   ├── TooFewSamples    problems have fewer samples than a budget needs
    │   ├── NotRecorded      grades, answers, tokens or log-probabilities are missing
    │   └── PriceInvalid     token prices are invalid; also a CollectError
    ├── TableInvalid         an accuracy table has an invalid cell, cost or shape
    ├── BudgetOutOfRange     no allocation has this average cost
    ├── Infeasible           no allocation meets all limits together
    ├── PolicyError          a policy can't be made, fitted or called like this
    │   ├── NotFitted        a policy was called before it was fitted
    │   └── PolicyInvalid    a stored policy is damaged, or isn't a policy
    ├── ReportError          a report can't be written to this folder
    ├── ProblemsInvalid      a problem file, dataset name, preset or prompt template is invalid
    ├── EndpointError        a call to an endpoint failed; `kind` says how, `paid` if it may be charged
    │   ├── EndpointRefused      the endpoint refused the call: a wrong request, key or model (a 4xx)
    │   ├── RateLimited          too many requests (429), until the deadline
    │   ├── EndpointTimeout      connecting, the first byte or the whole reply took too long
    │   ├── EndpointUnreachable  connecting failed
    │   ├── ConnectionLost       the connection broke after the request was sent
    │   ├── EndpointFailed       the endpoint reported a failure (a 5xx)
    │   ├── ReplyInvalid         status 200, but the body isn't a chat completion
    │   ├── EndpointResting      the endpoint kept failing and is left alone for a while
    │   └── SendingStopped       the call wasn't sent, because sending was stopped
    ├── CollectError         samples can't be collected like this
    │   ├── SourceChanged    the pool has samples from another model, template or parameter
    │   └── PriceInvalid     token prices are invalid; also a ScoreError
    ├── LocalModelError      the model on this machine can't be found, started or reached
    ├── ScaleError           a stage can't be run over these files, or on this engine
    │   └── EngineUnavailable  the engine isn't installed, can't be reached, or lost its workers
    ├── ServeError           the gateway refuses a request; `status` and `code` are the reply's
    │   ├── RequestInvalid       the request is invalid, or not supported
    │   ├── Unauthorized         the key is missing or unknown
    │   ├── CapReached           a hard cap on spending, for a key or in total, is reached
    │   ├── WeakVote             the vote's winner is too weak to be returned
    │   ├── Overloaded           too many concurrent requests, or the gateway is closing
    │   ├── NotOpen              the application around it doesn't run its lifespan, or an Asker is closed
    │   └── LedgerUnavailable    spending can't be recorded, so nothing is spent
    └── PoolError
        ├── PoolNotFound     there is no pool, file or recording with that name
        ├── NotAPool         the file isn't a pool, or is from a newer version
        ├── PoolLocked       another process is writing to this pool
        ├── PoolDamaged      stored data differs from what was written
        ├── PoolFull         the disk is full or refuses writes
        ├── RecordInvalid    a record has a missing field, a wrong type or a value out of range
        ├── RecordNotFound   the pool has no such problem, model or parameters
        ├── SourceAmbiguous  the pool has several models or parameters, and none was chosen
        └── DuplicateRecord  the problem or sample exists already

Each message names the value, the place and the remedy, in one line. The functions at the end of this file
write parts that many messages share, such as a shortened value or the known name that may have been meant.
"""

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


class AdacomputeError(Exception):
    """Base class: catch this to catch everything that the package raises on purpose."""

    def __str__(self) -> str:
        # escape line breaks that come from paths or values, so that the message is one line
        return _BREAKS.sub(lambda match: repr(match[0])[1:-1], super().__str__())


class ConfigError(AdacomputeError):
    """A setting in a file, the environment or an option is invalid."""


class BudgetInvalid(ConfigError):
    """A budget can't be parsed, or has the wrong unit."""


class ExtraMissing(AdacomputeError):
    """A library that only some commands need isn't installed."""


class TaskError(AdacomputeError):
    """A task's settings for reading or comparing answers are invalid."""


class ScoreError(AdacomputeError):
    """Samples can't be scored as requested."""


class TooFewSamples(ScoreError):
    """Problems have fewer samples than a budget needs."""


class NotRecorded(ScoreError):
    """The score needs grades, answers, tokens or log-probabilities that are missing."""


class TableInvalid(AdacomputeError):
    """An accuracy table has an invalid cell, cost or shape."""


class BudgetOutOfRange(AdacomputeError):
    """No allocation has this average cost."""


class Infeasible(AdacomputeError):
    """No allocation meets all limits together."""


class PolicyError(AdacomputeError):
    """A policy can't be made, fitted or called like this."""


class NotFitted(PolicyError):
    """A policy was called before it was fitted."""


class PolicyInvalid(PolicyError):
    """A stored policy is damaged, or isn't a policy."""


class ReportError(AdacomputeError):
    """A report can't be written to this folder."""


class ProblemsInvalid(AdacomputeError):
    """A problem file, dataset name, preset or prompt template is invalid."""


class EndpointError(AdacomputeError):
    """A call to an endpoint failed. `kind` is a short name for this kind of failure, used to count them."""

    kind = "endpoint"

    def __init__(self, message: str, *, status: int | None = None, paid: bool = False) -> None:
        super().__init__(message)
        self.status = status  # HTTP status code of the reply; None without a reply
        self.paid = paid  # True: the endpoint may charge for the call
        self.calls: tuple[Any, ...] = ()  # all attempts, as `records.Call`
        self.retry_after: float | None = None  # seconds to wait before a retry, if the endpoint says so
        self.reply: Any = None  # error read from its reply (`client.error_object.ErrorObject`), or None

    def copy_reply(self, error: "EndpointError") -> Self:
        """Copies another error's reply to this error, and returns this error."""
        self.reply, self.retry_after = error.reply, error.retry_after
        return self


class EndpointRefused(EndpointError):
    """The endpoint refused the call: a wrong request, key or model (a 4xx). Retrying doesn't help."""

    kind = "refused"


class RateLimited(EndpointError):
    """The endpoint answered "too many requests" (429) until the deadline."""

    kind = "rate-limit"


class EndpointTimeout(EndpointError):
    """Connecting, or waiting for the first byte or the whole reply, took too long."""

    kind = "timeout"


class EndpointUnreachable(EndpointError):
    """No connection to the endpoint could be made."""

    kind = "unreachable"


class ConnectionLost(EndpointError):
    """The connection broke after the request was sent."""

    kind = "reset"


class EndpointFailed(EndpointError):
    """The endpoint reported a failure (a 5xx)."""

    kind = "server-error"


class ReplyInvalid(EndpointError):
    """The reply has status 200, but its body isn't a chat completion."""

    kind = "garbage"


class EndpointResting(EndpointError):
    """The endpoint kept failing and is left alone for a while."""

    kind = "resting"


class SendingStopped(EndpointError):
    """The call wasn't sent, because sending was stopped."""

    kind = "stopped"


class CollectError(AdacomputeError):
    """Samples can't be collected like this."""


class SourceChanged(CollectError):
    """The pool has samples from another model, template or parameter."""


class PriceInvalid(ScoreError, CollectError):
    """Token prices are invalid."""


class LocalModelError(AdacomputeError):
    """The model on this machine can't be found, started or reached."""


class ScaleError(AdacomputeError):
    """A stage can't be run over these files, or on this engine."""


class EngineUnavailable(ScaleError):
    """The engine isn't installed, can't be reached, or lost its workers."""


class ServeError(AdacomputeError):
    """The gateway refuses a request. `status` and `code` go into its reply, in OpenAI's format."""

    status = 500
    code = "internal_error"
    kind = "server_error"  # the field `type` of OpenAI's error format

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = self.status if status is None else status
        self.code = self.code if code is None else code
        self.param = param  # name of the field in the request that is wrong
        # seconds to wait before a retry; None if unknown, or if a retry is useless
        self.retry_after = retry_after


class RequestInvalid(ServeError):
    """The request is invalid, or not supported."""

    status = 400
    code = "invalid_request"
    kind = "invalid_request_error"


class Unauthorized(ServeError):
    """The key is missing or unknown."""

    status = 401
    code = "invalid_api_key"
    kind = "authentication_error"


class CapReached(ServeError):
    """A hard cap on spending, for a key or in total, is reached."""

    status = 429
    code = "insufficient_quota"
    kind = "insufficient_quota"
    left = 0  # how many more samples the cap allows


class WeakVote(ServeError):
    """The vote's winner is too weak to be returned."""

    status = 422
    code = "weak_vote"
    kind = "weak_vote"


class Overloaded(ServeError):
    """Too many concurrent requests, or the gateway is closing."""

    status = 503
    code = "overloaded"


class NotOpen(ServeError):
    """The application around the gateway hasn't started it, or has stopped it (ASGI lifespan).

    Also raised by an Asker that is closed, or was opened in another process.
    """

    status = 503
    code = "not_open"


class LedgerUnavailable(ServeError):
    """Spending can't be recorded, so nothing is spent."""

    status = 503
    code = "ledger_unavailable"


class PoolError(AdacomputeError):
    """Base class of errors about pools."""


class PoolNotFound(PoolError):
    """There is no pool, file or recording with that name."""


class NotAPool(PoolError):
    """The file isn't a pool, or is from a newer version."""


class PoolLocked(PoolError):
    """Another process is writing to this pool."""


class PoolDamaged(PoolError):
    """Stored data differs from what was written."""


class PoolFull(PoolError):
    """The disk is full or refuses writes; what was stored before is intact."""


class RecordInvalid(PoolError):
    """A record has a missing field, a wrong type or a value out of range."""


class RecordNotFound(PoolError):
    """The pool has no such problem, model or parameters."""


class SourceAmbiguous(PoolError):
    """The pool has several models or parameters, and none was chosen."""


class DuplicateRecord(PoolError):
    """The problem or sample exists already."""


_MAX_VALUE = 60  # maximum number of characters of a value in a message
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _MAX_VALUE


def to_one_line(exc: Exception) -> str:
    """Converts another library's error to a one-line message."""
    return " ".join(str(exc).split()) or type(exc).__name__


def format_count(number: int | str, noun: str) -> str:
    """Formats a number, or the text of one, with a noun: `1 problem`, `1,200 problems`, `1.5 samples`."""
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {noun}" + ("" if text == "1" else "s")


def format_value(value: object) -> str:
    """Formats a value for messages: its repr on one line, shortened.

    >>> format_value([1, "two"]), len(format_value("x" * 500))
    ("[1, 'two']", 60)
    """
    try:
        text = _REPR.repr(value)
    # for example, an integer with more digits than Python converts to text
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__} that is too long to write"
    return shorten(" ".join(text.split()), _MAX_VALUE)


# matches a field's name and its place in msgspec's messages
_MISFIT = re.compile(r"(?:field `(.*?)`)?(?: - at `\$\.?([^`]*)`)?\Z", re.DOTALL)


def explain_misfit(
    value: Any,  # noqa: ANN401 - plain data
    message: Exception,
    *,
    find_remedy: Callable[[str], str],
    place: str = "",
    show: Callable[[str, object], str] = lambda _, part: format_value(part),
) -> tuple[str, str]:
    """Returns the path to the part of `value` that msgspec refused, and a text with that part and a remedy.

    `message` is msgspec's error. `find_remedy` returns the remedy for a path, such as `samples[].text`.
    """
    match = _MISFIT.search(str(message))
    assert match is not None
    field, path = match.groups("")
    part, shown = value, ""
    for key in re.findall(r"\w+", path):
        part = part[int(key)] if isinstance(part, list) else part[key]
    if field:
        shown = "" if field in part else "missing"
        part, path = part.get(field), f"{path}.{field}".removeprefix(".")
    general = re.sub(r"\[[0-9]+\]", "[]", path)
    return f"{place}.{path}".strip("."), f"is {shown or show(general, part)}; {find_remedy(general)}"


def shorten(text: str, length: int) -> str:
    """Shortens a text to `length` characters.

    >>> shorten("a long sentence", 7)
    'a long…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def suggest_name(name: str, known: Iterable[str], *, limit: int = 1, cutoff: float = 0.6) -> str:
    """Suggests the known names most similar to `name`, with a trailing space; "" if none is similar.

    >>> suggest_name("clasifier", ["classifier", "curve"])
    'did you mean classifier? '
    """
    import difflib  # imported here, because few messages need it

    close = difflib.get_close_matches(name, list(known), n=limit, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}? " if close else ""


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Converts a failed import in the `with` block to a one-line error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ExtraMissing(f'{exc.name} is not installed; pip install "adacompute[{extra}]"') from exc
