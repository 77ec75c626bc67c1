"""The engine of an `Asker`: a gateway that runs in its own thread, without a server.

It opens the same `Gateway` as `adacompute serve`, so it decides as a gateway with the same settings would.

This file has, in order: `Reply`; `PromptOptions`, given with a prompt; messages; `Engine`.
"""

import asyncio
import atexit
import contextlib
import math
import os
import re
import threading
import traceback
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from adacompute.client import BreakerSettings, Endpoint
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.config import Config
from adacompute.errors import (
    AdacomputeError,
    ConfigError,
    EndpointRefused,
    EndpointResting,
    EndpointTimeout,
    EndpointUnreachable,
    NotOpen,
    ReplyInvalid,
    RequestInvalid,
    ServeError,
    format_count,
    format_value,
    to_one_line,
)
from adacompute.policies.base import Policy
from adacompute.serve.messages.reply import RequestOutcome, build_usage
from adacompute.serve.messages.request_parser import (
    OPTIONS_FIELD,
    ChatRequest,
    Route,
    build_request,
)
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.routes.lifespan import open_gateway
from adacompute.serve.spending.ledger import NO_SPEND, Spend

Prompt = str | Sequence[Mapping[str, Any]]  # a question, or messages in OpenAI's format
Messages = list[Any]  # one prompt's messages, not validated yet

_KEY_NAME = "anonymous"  # spending is recorded under this name, as in a gateway without keys
_MAX_TOKENS = 100_000_000  # maximum number of tokens per response; gateways allow no higher limit
_MAX_LISTED = 8  # maximum number of models named in an error message
_MAX_NESTING = 32  # maximum nesting depth of a message or parameter
_SURROGATE = re.compile("[\ud800-\udfff]")  # unpaired surrogates, which UTF-8 can't encode
_PROMPTS_PER_TURN = 32  # number of prompts parsed before other tasks in the event loop get a turn
_EXIT_SECONDS = 5.0  # seconds that the program's exit waits for spending to be saved
_KEY_STATUSES = (401, 403)
# map: request field that callers can't set -> what the error message tells them to do
_RESERVED_FIELDS = {
    "messages": "give the messages as the prompt",
    "model": "give model to the Asker",
    "n": "leave it out: the policy decides how many samples are drawn, within the budget",
    "stream": "leave it out: a reply comes whole",
    "stream_options": "leave it out: a reply comes whole",
    "system": "give it as an argument of its own",
    "extract": "give it as an argument of its own",
    OPTIONS_FIELD: "give extract, or settings of the Asker",
}

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of one prompt."""

    text: str | None  # the winning sample's text; "" if it calls a tool, None if there was no response
    answer: str | None = None  # the winner of the vote; None if there was no vote
    # number of votes for each answer, in order of first appearance
    votes: Mapping[str, int] = field(default_factory=dict, hash=False)
    samples: int = 0  # number of samples drawn for this prompt
    tokens: int = 0  # prompt and response tokens of all samples
    # usage of all samples in OpenAI's format
    usage: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    cost: float | None = None  # cost in money; None if no prices are set
    agreement: float | None = None  # the winner's share of all samples, 0 to 1; None if there was no vote
    notes: tuple[str, ...] = ()  # remarks for the caller, e.g. why there was no vote
    model: str = ""  # the model's name in the endpoint's replies
    # map: mode -> number of its samples; empty if the Asker has a single endpoint
    modes: Mapping[str, int] = field(default_factory=dict, hash=False)
    # the winner's whole message in OpenAI's format, with tool calls
    message: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    error: AdacomputeError | None = None  # why there is no response; None if there is one

    def to_dict(self) -> dict[str, Any]:
        """Converts the reply to plain data for JSON."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        copies = {"votes": dict(self.votes), "notes": list(self.notes), "modes": dict(self.modes)}
        error = None if self.error is None else str(self.error)
        return {**given, **copies, "message": dict(self.message), "usage": dict(self.usage), "error": error}


def _build_reply(outcome: RequestOutcome, *, has_prices: bool) -> Reply:
    assert outcome.best is not None, "a request that came to its end has a response"
    response = outcome.responses[outcome.best]
    notes = outcome.notes
    if response.finished is False:
        notes = (*notes, "the text was cut off at the limit of tokens; raise max_tokens for all of it")
    return Reply(
        text=response.text,
        answer=outcome.answer,
        votes=dict(outcome.votes),
        samples=outcome.samples,
        tokens=outcome.spent.tokens,
        usage=build_usage(outcome),
        cost=outcome.spent.amount_in("money") if has_prices else None,
        agreement=outcome.agreement,
        notes=notes,
        model=outcome.server_info.get("model") or outcome.model,
        modes={use.name: use.samples for use in outcome.modes},
        message=response.message,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """A caller's options for a prompt. Raises RequestInvalid if an Asker doesn't support one."""

    system: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    extract: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)  # additional request fields

    def __post_init__(self) -> None:
        for name in self.parameters:
            if name in _RESERVED_FIELDS:
                raise RequestInvalid(f"{name} can't be given here; {_RESERVED_FIELDS[name]}", param=name)
        if self.system is not None and not isinstance(self.system, str):
            raise RequestInvalid(f"system is a {type(self.system).__name__}; give a text", param="system")
        if self.parameters.get("logprobs") is False:
            raise RequestInvalid(
                "logprobs can't be False: votes may be weighed by log-probabilities; leave it out",
                param="logprobs",
            )
        for name, value in {"system": self.system, "extract": self.extract}.items():
            _copy_plain(value, name)
        fields = self.fields
        for name in LIMIT_NAMES:
            limit = fields.get(name)
            if type(limit) is int and not 1 <= limit <= _MAX_TOKENS:
                raise RequestInvalid(f"{name} is {limit}; give 1 to {_MAX_TOKENS:,}", param=name)

    @property
    def fields(self) -> dict[str, Any]:
        """Copies of the request fields for the endpoint, other than model and messages."""
        fields = dict(self.parameters)
        if self.temperature is not None:
            fields["temperature"] = self.temperature
        if self.max_tokens is not None:
            fields["max_tokens"] = self.max_tokens
        return {name: _copy_plain(value, name) for name, value in fields.items()}

    def build_body(self, messages: Messages, model: str) -> dict[str, Any]:
        """Builds the body of a request, as a gateway would receive it."""
        if self.system is not None:
            messages = [{"role": "system", "content": self.system}, *messages]
        own = {} if self.extract is None else {OPTIONS_FIELD: {"extract": self.extract}}
        return {"model": model, "messages": messages, **self.fields, **own}


def _copy_plain(value: object, place: str, depth: int = 0) -> Any:  # noqa: ANN401 - JSON data
    """Copies a JSON value; raises RequestInvalid for anything that JSON can't express."""
    if isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value)):
        return value
    if value is None or isinstance(value, bool) or (isinstance(value, int) and -(2**63) <= value < 2**64):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise RequestInvalid(
            f"{place} has the number {value}, which JSON doesn't have; give another", param=place
        )
    if depth < _MAX_NESTING and isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _copy_plain(item, place, depth + 1) for name, item in value.items()}
    if depth < _MAX_NESTING and isinstance(value, list | tuple):
        return [_copy_plain(item, place, depth + 1) for item in value]
    raise RequestInvalid(f"{place} has {format_value(value)}, which isn't JSON; give plain data", param=place)


def build_messages(prompt: object) -> Messages:
    """Builds a prompt's messages; raises RequestInvalid if the prompt is neither text nor messages."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise RequestInvalid("the prompt is empty; give a question, or a list of messages")
        return [{"role": "user", "content": _copy_plain(prompt, "the prompt")}]
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise RequestInvalid(
            f"the prompt is a {type(prompt).__name__}; give a text, or a list of messages in OpenAI's shape"
        )
    if any(isinstance(message, str) for message in prompt):
        raise RequestInvalid(
            "the prompt is a list of texts; give one text, or messages with role and content; several "
            "prompts are for ask_many"
        )
    return [_copy_plain(message, f"messages[{number}]") for number, message in enumerate(prompt)]


def build_all_messages(prompts: Iterable[Prompt]) -> list[Messages]:
    """Builds the messages of several prompts."""
    check_prompts(prompts)
    collected = []
    for number, prompt in enumerate(prompts):
        with _name_prompt(number):
            collected.append(build_messages(prompt))
    return collected


def check_prompts(prompts: object) -> None:
    """Raises RequestInvalid unless `prompts` is an iterable of prompts."""
    if isinstance(prompts, str | Mapping) or not isinstance(prompts, Iterable):
        raise RequestInvalid(f"prompts is a {type(prompts).__name__}; give a list of prompts, or call ask")


@contextlib.contextmanager
def _name_prompt(number: int) -> Iterator[None]:
    """Adds a prompt's number to errors raised inside the `with` block."""
    try:
        yield
    except RequestInvalid as exc:
        raise RequestInvalid(f"prompts[{number}]: {exc}", param=exc.param) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """An Asker's price, average cost and spending at one moment."""

    spent: Spend = NO_SPEND
    average: float | None = None
    price: float | None = None


class Engine:
    """A gateway on an event loop in its own thread.

    The first `submit` starts the thread; submitted work waits until the gateway is open. After `stop`, or a
    failure to open, the engine can't be used again. In a forked process, which lacks the parent's threads,
    the engine starts anew.
    """

    gateway: Gateway
    model: str

    def __init__(
        self,
        config: Config,
        *,
        endpoint: Endpoint | None,
        policy: Policy | None,
        in_memory: bool,
        concurrency: int,
        has_prices: bool,
        breaker: BreakerSettings | None = None,
    ) -> None:
        """`endpoint` is None with several modes; `breaker` says how long a failing mode isn't called."""
        # the model's name; "" before the gateway is open if none is configured
        self.model = config.endpoint.model
        self._open_gateway = partial(
            open_gateway, config, endpoint=endpoint, policy=policy, in_memory=in_memory, breaker=breaker
        )
        self._url = config.endpoint.url
        self._in_memory = in_memory
        self._concurrency = concurrency
        self._has_prices = has_prices
        self._reset()

    def _reset(self) -> None:
        # guards the next four attributes; reentrant, because a finalizer may run in a thread that holds it
        self._lock = threading.RLock()
        # the thread's event loop; None if the thread isn't running
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False  # whether the engine refuses new work
        self._cancels = False  # whether stopping cancels work in flight instead of waiting for it
        self._opening_error: BaseException | None = None
        self._closing_error: BaseException | None = None
        # the task that opens and runs the gateway; only the engine's thread sets it and the attributes below
        self._opening: asyncio.Task[None] | None = None
        self._opened, self._stop = asyncio.Event(), asyncio.Event()
        self._slots = asyncio.Semaphore(self._concurrency)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._outages = 0  # number of consecutive prompts that couldn't reach the endpoint
        self._outage = ""  # error of the latest prompt that couldn't reach the endpoint
        # how many requests count in the average cost, and what they cost together
        self._count, self._cost = 0, 0.0
        self._last_status = _Status()  # the final status, set when the engine ends

    def submit(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Runs a coroutine function in the engine's loop. Cancelling the future cancels the coroutine."""
        with self._lock:
            if self._closed:
                raise self._opening_error or _make_closed_error()
            return self._schedule(work, *args, **kwargs)

    def request_stop(self, *, cancel: bool) -> None:
        """Tells the engine to finish or cancel work in flight and then stop; doesn't wait for that."""
        with self._lock:
            self._closed = True
            self._cancels = self._cancels or cancel
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._on_stop)

    def stop(self, *, cancel: bool) -> None:
        """Stops the engine, and waits until it has ended."""
        self.request_stop(cancel=cancel)
        try:
            self.join()
        except BaseException:  # after Ctrl-C, cancels work in flight
            self.request_stop(cancel=True)
            raise
        error, self._closing_error = self._closing_error, None
        if error is not None:
            raise error

    def join(self, timeout: float | None = None) -> None:
        """Waits until the engine's thread ends, if it is running."""
        if self._thread is not None:
            self._thread.join(timeout)

    def read_status(self) -> _Status:
        """Returns the current status, or the final one if the engine has ended."""
        with self._lock:
            future = None if self._closed else self._schedule(self._read_status)
        if future is not None:
            return wait_for(future)
        self.join()
        return self._last_status

    async def open(self) -> None:
        """Does nothing. Submitting it opens the gateway, because all submitted work waits for that."""

    async def answer_prompt(self, messages: Messages, options: PromptOptions) -> Reply:
        """Answers one prompt; raises RequestInvalid if it is invalid."""
        return await self._answer(*self._parse(messages, options))

    async def answer_all(self, prompts: Sequence[Messages], options: PromptOptions) -> list[Reply]:
        """Answers several prompts; returns the replies in order.

        Raises RequestInvalid before anything is sent if one of the prompts is invalid.
        """
        requests = []
        for number, messages in enumerate(prompts):
            with _name_prompt(number):
                requests.append(self._parse(messages, options))
            if number % _PROMPTS_PER_TURN == 0:
                await asyncio.sleep(0)
        replies: dict[int, Reply] = {}
        remaining = iter(enumerate(requests))

        async def work() -> None:
            for index, (request, route) in remaining:
                replies[index] = await self._answer(request, route, gives_up=True)

        # a few workers, not a task for each prompt: there may be a million prompts
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._concurrency, len(requests))):
                workers.create_task(work())
        return [replies[index] for index in range(len(requests))]

    def _parse(self, messages: Messages, options: PromptOptions) -> tuple[ChatRequest, Route]:
        """Parses a request as a gateway does; also returns its route."""
        body = options.build_body(messages, self.model)
        settings = self.gateway.settings
        limits = [value for name in LIMIT_NAMES if type(value := body.get(name)) is int]
        # a prompt's token limit may be higher than the settings allow, because the caller is the operator
        if (most := max(limits, default=0)) > settings.max_tokens:
            settings = replace(settings, max_tokens=most)
        request = build_request(body, settings=settings, known_models=(self.model,))
        return request, self.gateway.choose_route(request, {}, settings=settings, key=_KEY_NAME)

    async def _answer(self, request: ChatRequest, route: Route, *, gives_up: bool = False) -> Reply:
        """Answers one request; any failure becomes the reply's `error`.

        At most N requests (the engine's `concurrency`) are in flight; further ones wait. A request's price is
        chosen and its deadline starts after the wait. With `gives_up`, a request isn't sent if the last N
        requests couldn't reach the endpoint.
        """
        async with self._slots:
            if gives_up and self._outages >= self._concurrency:
                return Reply(text=None, error=self._make_outage_error())
            active, spent = None, NO_SPEND
            try:
                active = self.gateway.begin(request, route)
                outcome = await self.gateway.complete(active)
            except Exception as exc:  # noqa: BLE001 - one request's failure must not lose the others' replies
                error = exc if isinstance(exc, AdacomputeError) else _make_unforeseen_error(exc)
                _drop_tracebacks(error)
                is_outage = isinstance(error, EndpointUnreachable | EndpointResting)
                is_outage = is_outage or self.gateway.resources.client.is_unreachable
                self._outages, self._outage = (self._outages + 1, str(error)) if is_outage else (0, "")
                spent = NO_SPEND if active is None else active.sampling.drawer.sum_costs()[0]
                cost = spent.amount_in("money") if self._has_prices else None
                return Reply(text=None, samples=spent.samples, tokens=spent.tokens, cost=cost, error=error)
        self._outages = 0
        if outcome.counts_in_average and self.gateway.is_budgeted(outcome):
            self._count += 1
            self._cost += outcome.budget_cost
        return _build_reply(outcome, has_prices=self._has_prices)

    def _make_outage_error(self) -> EndpointResting:
        return EndpointResting(
            f"{self._url}: not asked, because {self._outages} prompts in a row couldn't reach it, "
            f"with all their retries; ask again once it is back; the last: {self._outage}"
        )

    def _schedule(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Like `submit`, for callers that hold the lock and have checked that the engine isn't closed."""
        if self._loop is None:
            self._start()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._track(work, *args, **kwargs), self._loop)

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop,), name="adacompute-asker", daemon=True
        )
        self._thread.start()
        _started_engines.add(self)

    def _forget_parent(self) -> None:
        kept = vars(self).copy()
        # keeps the parent's event loop and sockets alive: closing them here would disturb the parent process
        _kept_of_parent.append(kept)
        self._reset()
        for name in ("_closed", "_opening_error", "_last_status"):
            setattr(self, name, kept[name])

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._serve())
        except BaseException as exc:  # noqa: BLE001 - raised where the caller waits
            self._closing_error = exc

    async def _serve(self) -> None:
        self._opening = asyncio.current_task()
        try:
            if self._cancels:
                raise _make_closed_error()
            async with self._open_gateway() as gateway:
                await self._prepare(gateway)
                self._opened.set()
                await self._stop.wait()
                while self._tasks:
                    await asyncio.wait(self._tasks)
                self._last_status = await self._read_status()
        except BaseException as exc:
            if self._opened.is_set():
                raise
            self._opening_error = exc if isinstance(exc, Exception) else _make_closed_error()
        finally:
            with self._lock:
                self._closed, self._loop = True, None
            self._opened.set()
            await asyncio.sleep(0)  # lets the event loop turn submitted work into tasks
            await asyncio.sleep(0)  # lets the event loop start these tasks
            while self._tasks:
                await asyncio.wait(self._tasks)

    async def _prepare(self, gateway: Gateway) -> None:
        """Finds the model; raises ConfigError if there is none, or if the policy can't spend the budget."""
        self.gateway = gateway
        gateway.logs_failures = False  # callers get failures as exceptions or in replies
        budget, registry = gateway.budget, gateway.policy_registry
        longest = registry.get(registry.default).policy.longest
        if budget.unit == "samples" and budget.amount > longest:
            raise ConfigError(
                f"budget {budget.amount:g} is above {format_count(longest, 'sample')}, the most that the "
                f"policy draws for a prompt; give 1 to {longest}"
            )
        deadline = gateway.settings.deadline
        try:
            async with asyncio.timeout(deadline):
                self.model = await _find_model(gateway)
        except TimeoutError:
            raise EndpointTimeout(
                f"{self._url} didn't list its models within {deadline:g} seconds; name one: model "
                "(--model), or give more time: deadline (--deadline)"
            ) from None

    def _on_stop(self) -> None:
        self._stop.set()
        if self._cancels:
            opening = [] if self._opened.is_set() or self._opening is None else [self._opening]
            for task in (*opening, *self._tasks):
                task.cancel()

    async def _track(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs submitted work once the gateway is open; raises NotOpen if closing the engine cancels it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(_retrieve_error)
        try:
            await self._opened.wait()
            if self._opening_error is not None:
                raise self._opening_error
            if self._cancels:
                raise _make_closed_error()
            return await work(*args, **kwargs)
        except asyncio.CancelledError:
            if self._cancels:
                raise _make_closed_error() from None
            raise
        finally:
            self._tasks.discard(task)

    async def _read_status(self) -> _Status:
        pacer = self.gateway.find_pacer()
        return _Status(
            spent=self.gateway.resources.ledger.account().spent,
            average=self._cost / self._count if self._count else None,
            price=None if pacer is None else pacer.price,
        )


_started_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_kept_of_parent: list[dict[str, Any]] = []


def _reset_engines() -> None:
    for engine in list(_started_engines):
        engine._forget_parent()


os.register_at_fork(after_in_child=_reset_engines)


@atexit.register
def _end_engines() -> None:
    """When the program exits, saves the spending of Askers that weren't closed."""
    engines = [engine for engine in _started_engines if not engine._in_memory]
    for engine in engines:
        engine.request_stop(cancel=True)
    for engine in engines:
        engine.join(_EXIT_SECONDS)


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieves a task's error, because asyncio prints errors that nobody has retrieved."""
    if not task.cancelled():
        task.exception()


def _make_closed_error() -> NotOpen:
    return NotOpen("this Asker is closed; open another one")


def _make_unforeseen_error(cause: Exception) -> ServeError:
    """Makes the error for an unexpected exception: a bug in this package or in the caller's policy."""
    error = ServeError(
        f"the prompt failed by a defect, {type(cause).__name__}: {to_one_line(cause)}; the traceback is in "
        "the error's notes"
    )
    error.add_note("".join(traceback.format_exception(cause)))
    error.__cause__ = cause
    return error


def _drop_tracebacks(error: BaseException) -> None:
    """Removes tracebacks from an error and its causes: they keep the request and the engine in memory."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            current.__traceback__ = None
            pending += [current.__cause__, current.__context__]


async def _find_model(gateway: Gateway) -> str:
    """Returns the configured model, or else the only one that the endpoint lists."""
    configured = gateway.config.endpoint.model
    if configured:
        return configured
    url = gateway.resources.client.endpoint.url
    try:
        names = list(await gateway.list_models(refresh=True))
    except (EndpointRefused, ReplyInvalid) as exc:
        if exc.status in _KEY_STATUSES:
            raise
        raise ConfigError(
            f"no model is named, and {url} doesn't list its models ({exc}); name one: model (--model)"
        ) from exc
    if len(names) != 1:
        listed = ", ".join(names[:_MAX_LISTED]) + (", …" if len(names) > _MAX_LISTED else "")
        raise ConfigError(f"{url} lists {len(names)} models: {listed or 'none'}; name one: model (--model)")
    if not names[0].strip() or not names[0].isprintable():
        raise ConfigError(
            f"{url} lists a model by the name {format_value(names[0])}; name one yourself: model (--model)"
        )
    return names[0]


def wait_for(future: "Future[T]") -> T:
    """Waits for a result; an interruption such as Ctrl-C cancels the work."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
