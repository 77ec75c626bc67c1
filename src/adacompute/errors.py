"""Everything this package raises on purpose, as one tree.

    AdacomputeError
    ├── ConfigError          a setting, in a file, the environment or an option, can't be used
    │   └── BudgetInvalid    a budget that can't be read, or is in the wrong unit
    ├── ExtraMissing         a library that only some commands need isn't installed
    ├── TaskError            a task's way of reading or comparing answers can't be used
    ├── ScoreError           samples can't be scored in the way that was asked for
    │   ├── TooFewSamples    problems with fewer samples than a budget needs
    │   ├── NotRecorded      the score needs grades, answers, tokens or log-probabilities that aren't there
    │   └── PriceInvalid     prices of tokens that can't be paid; also a CollectError
    ├── TableInvalid         an accuracy table with a cell, a cost or a shape that can't be
    ├── BudgetOutOfRange     an average cost that no allocation has
    ├── Infeasible           several limits that no allocation meets together
    ├── PolicyError          a policy can't be made, fitted or asked in this way
    │   ├── NotFitted        it was asked before it had learned
    │   └── PolicyInvalid    what is stored is not a policy, or not the one that was written
    ├── ReportError          a report can't be written to this folder
    ├── ProblemsInvalid      a file, a name or a preset of problems, or a prompt template, can't be used
    ├── EndpointError        one call to an endpoint gave nothing; `kind` names it, `paid` says if it may cost
    │   ├── EndpointRefused      it said no: a wrong request, key or model (a 4xx)
    │   ├── RateLimited          too many requests (429), to the end of the deadline
    │   ├── EndpointTimeout      connecting, the first byte or the whole took too long
    │   ├── EndpointUnreachable  no connection came about
    │   ├── ConnectionLost       it broke off after the request was sent
    │   ├── EndpointFailed       it failed by its own account (a 5xx)
    │   ├── ReplyInvalid         it said 200, but that is not a chat completion
    │   ├── EndpointResting      it failed so often that it is left alone for a while
    │   └── SendingStopped       nothing more is to be sent
    ├── CollectError         samples can't be collected in this way
    │   ├── SourceChanged    the pool was begun with another model, template or parameter
    │   └── PriceInvalid     prices of tokens that can't be paid; also a ScoreError
    ├── LocalModelError      the model on this machine can't be found, started or reached
    ├── ScaleError           a stage can't be run over these files, or on this engine
    │   └── EngineUnavailable  the engine isn't installed, can't be reached, or lost its workers
    ├── ServeError           one request to the gateway isn't served; `status` and `code` are the reply's
    │   ├── RequestInvalid       it asks for what can't be, or isn't supported
    │   ├── Unauthorized         no key, or an unknown one
    │   ├── CapReached           a key's or everybody's hard cap on spending
    │   ├── WeakVote             the vote's winner is too weak to be given out
    │   ├── Overloaded           too many requests at the same time, or it is closing down
    │   ├── NotOpen              its application doesn't run its lifespan, or an Asker is closed
    │   └── LedgerUnavailable    what was spent can't be written down, so nothing is
    └── PoolError
        ├── PoolNotFound     there is no pool, file or recording of that name
        ├── NotAPool         the file is something else, or a pool of a newer version
        ├── PoolLocked       another process is writing to this pool
        ├── PoolDamaged      what is stored is not what was written
        ├── PoolFull         the disk is full or refuses writes
        ├── RecordInvalid    a record has a missing field, a wrong type or a value out of range
        ├── RecordNotFound   no such problem, model or parameters in the pool
        ├── SourceAmbiguous  several models or parameters in the pool, and none was named
        └── DuplicateRecord  a problem or sample that is already there

Each message names the value, the place and the remedy, in one line. The functions at the end of this file
write the parts that many messages share: a value, the known name that may have been meant, and the new name
of something that was renamed.
"""

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


class AdacomputeError(Exception):
    """The root: catch this to catch all that the package raises on purpose."""

    def __str__(self) -> str:
        # a path or a value may hold a line break; the message stays one line whoever writes it
        return _BREAKS.sub(lambda match: repr(match[0])[1:-1], super().__str__())


class ConfigError(AdacomputeError):
    """A setting, in a file, the environment or an option, can't be used."""


class BudgetInvalid(ConfigError):
    """A budget that can't be read, or is in the wrong unit."""


class ExtraMissing(AdacomputeError):
    """A library that only some commands need isn't installed."""


class TaskError(AdacomputeError):
    """A task's way of reading or comparing answers can't be used."""


class ScoreError(AdacomputeError):
    """Samples can't be scored in the way that was asked for."""


class TooFewSamples(ScoreError):
    """Problems with fewer samples than a budget needs."""


class NotRecorded(ScoreError):
    """The score needs grades, answers, tokens or log-probabilities that aren't there."""


class TableInvalid(AdacomputeError):
    """An accuracy table with a cell, a cost or a shape that can't be."""


class BudgetOutOfRange(AdacomputeError):
    """An average cost that no allocation has."""


class Infeasible(AdacomputeError):
    """Several limits that no allocation meets together."""


class PolicyError(AdacomputeError):
    """A policy can't be made, fitted or asked in this way."""


class NotFitted(PolicyError):
    """It was asked before it had learned."""


class PolicyInvalid(PolicyError):
    """What is stored is not a policy, or not the one that was written."""


class ReportError(AdacomputeError):
    """A report can't be written to this folder."""


class ProblemsInvalid(AdacomputeError):
    """A file, a name or a preset of problems, or a prompt template, can't be used."""


class EndpointError(AdacomputeError):
    """One call to an endpoint gave nothing. `kind` is its short name, as failures are counted by."""

    kind = "endpoint"

    def __init__(self, message: str, *, status: int | None = None, paid: bool = False) -> None:
        super().__init__(message)
        self.status = status  # HTTP's, if one came
        self.paid = paid  # True: the endpoint may have worked, and charge for it
        self.calls: tuple[Any, ...] = ()  # the attempts that were made, `records.Call`s
        self.retry_after: float | None = None  # seconds, where the endpoint says when to come again
        self.reply: Any = None  # what the endpoint said, a `client.error_object.ErrorObject`; None: nothing

    def copy_reply(self, error: "EndpointError") -> Self:
        """This error, with what the endpoint said in another one."""
        self.reply, self.retry_after = error.reply, error.retry_after
        return self


class EndpointRefused(EndpointError):
    """It said no: a wrong request, key or model (a 4xx). Asking again would get the same."""

    kind = "refused"


class RateLimited(EndpointError):
    """Too many requests (429), to the end of the deadline."""

    kind = "rate-limit"


class EndpointTimeout(EndpointError):
    """Connecting, the first byte or the whole took too long."""

    kind = "timeout"


class EndpointUnreachable(EndpointError):
    """No connection came about."""

    kind = "unreachable"


class ConnectionLost(EndpointError):
    """It broke off after the request was sent."""

    kind = "reset"


class EndpointFailed(EndpointError):
    """It failed by its own account (a 5xx)."""

    kind = "server-error"


class ReplyInvalid(EndpointError):
    """It said 200, but that is not a chat completion."""

    kind = "garbage"


class EndpointResting(EndpointError):
    """It failed so often that it is left alone for a while."""

    kind = "resting"


class SendingStopped(EndpointError):
    """Nothing more is to be sent."""

    kind = "stopped"


class CollectError(AdacomputeError):
    """Samples can't be collected in this way."""


class SourceChanged(CollectError):
    """The pool was begun with another model, template or parameter."""


class PriceInvalid(ScoreError, CollectError):
    """Prices of tokens that can't be paid, wherever they were to be used."""


class LocalModelError(AdacomputeError):
    """The model on this machine can't be found, started or reached."""


class ScaleError(AdacomputeError):
    """A stage can't be run over these files, or on this engine."""


class EngineUnavailable(ScaleError):
    """The engine isn't installed, can't be reached, or lost its workers."""


class ServeError(AdacomputeError):
    """One request to the gateway isn't served. Status and code are those of the reply, in OpenAI's shape."""

    status = 500
    code = "internal_error"
    kind = "server_error"  # OpenAI's `type`

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
        self.param = param  # the field that it is about
        self.retry_after = retry_after  # seconds; None: trying again is of no use, or nobody knows when


class RequestInvalid(ServeError):
    """It asks for what can't be, or isn't supported."""

    status = 400
    code = "invalid_request"
    kind = "invalid_request_error"


class Unauthorized(ServeError):
    """No key, or an unknown one."""

    status = 401
    code = "invalid_api_key"
    kind = "authentication_error"


class CapReached(ServeError):
    """A key's or everybody's hard cap on spending."""

    status = 429
    code = "insufficient_quota"
    kind = "insufficient_quota"
    left = 0  # whole samples that it still has room for, at what each may take


class WeakVote(ServeError):
    """The vote's winner is too weak to be given out."""

    status = 422
    code = "weak_vote"
    kind = "weak_vote"


class Overloaded(ServeError):
    """Too many requests at the same time, or it is closing down."""

    status = 503
    code = "overloaded"


class NotOpen(ServeError):
    """The gateway is mounted in an application that doesn't run its lifespan, or has ended it.

    Also of an Asker that is closed, or was opened in another process.
    """

    status = 503
    code = "not_open"


class LedgerUnavailable(ServeError):
    """What was spent can't be written down, so nothing is."""

    status = 503
    code = "ledger_unavailable"


class PoolError(AdacomputeError):
    """Something about a pool of recorded samples."""


class PoolNotFound(PoolError):
    """There is no pool, file or recording of that name."""


class NotAPool(PoolError):
    """The file is something else, or a pool of a newer version."""


class PoolLocked(PoolError):
    """Another process is writing to this pool."""


class PoolDamaged(PoolError):
    """What is stored is not what was written."""


class PoolFull(PoolError):
    """The disk is full or refuses writes; what was stored before is intact."""


class RecordInvalid(PoolError):
    """A record has a missing field, a wrong type or a value out of range."""


class RecordNotFound(PoolError):
    """No such problem, model or parameters in the pool."""


class SourceAmbiguous(PoolError):
    """Several models or parameters in the pool, and none was named."""


class DuplicateRecord(PoolError):
    """A problem or sample that is already there."""


_MAX_VALUE = 60  # characters of a value in a message
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = _MAX_VALUE


def to_one_line(exc: Exception) -> str:
    """The message of a foreign error, in one line."""
    return " ".join(str(exc).split()) or type(exc).__name__


def format_value(value: object) -> str:
    """A value as messages show it: its repr on one line, cut to a readable length.

    >>> format_value([1, "two"]), len(format_value("x" * 500))
    ("[1, 'two']", 60)
    """
    try:
        text = _REPR.repr(value)
    except (ValueError, RecursionError):  # such as an integer of more digits than Python writes
        return f"a value of type {type(value).__name__} that is too long to write"
    return shorten(" ".join(text.split()), _MAX_VALUE)


_MISFIT = re.compile(r"(?:field `(.*?)`)?(?: - at `\$\.?([^`]*)`)?\Z", re.DOTALL)  # a field, and its place


def explain_misfit(
    value: Any,  # noqa: ANN401 - plain data
    message: Exception,
    *,
    find_remedy: Callable[[str], str],
    build_error: Callable[[str, str], Exception],
    place: str = "",
    show: Callable[[str, object], str] = lambda _, part: format_value(part),
) -> Exception:
    """The error of a value that msgspec refused: with the place, the value and the remedy.

    msgspec's own messages name neither value nor remedy. `find_remedy` gives the one for a part, such as
    `samples[].text`; `build_error` gets where that part is, and what is wrong with it.
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
    fault = f"is {shown or show(general, part)}; {find_remedy(general)}"
    return build_error(f"{place}.{path}".strip("."), fault)


def shorten(text: str, length: int) -> str:
    """The text, cut to `length` characters where it is longer.

    >>> shorten("a long sentence", 7)
    'a long…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def suggest_name(name: str, known: Iterable[str], *, limit: int = 1, cutoff: float = 0.6) -> str:
    """A question, with a blank after it, after the known names closest to `name`; "" where none is close.

    >>> suggest_name("clasifier", ["classifier", "curve"])
    'did you mean classifier? '
    """
    import difflib  # imported here, because few messages need it

    close = difflib.get_close_matches(name, list(known), n=limit, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}? " if close else ""


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn an import that fails inside the `with` into one line that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ExtraMissing(f'{exc.name} is not installed; pip install "adacompute[{extra}]"') from exc
