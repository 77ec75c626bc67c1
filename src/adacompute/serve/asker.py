"""`ask` and `Asker`: the gateway's engine as a function call, without a server.

An `Asker` opens the same `Gateway` that `adacompute serve` opens, in an event loop on a thread of its own,
and hands requests to it directly. So it decides as a gateway with the same settings does: the same policy and
price, the same rules for what is voted on, the same ledger. Callers may be plain functions, coroutines of any
event loop (a notebook's, for example) and several threads at once.

In this order: `Reply`; the `Engine`, which is the thread; `Asker`; `ask`.
"""

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson

from adacompute.client import Endpoint, RateLimits
from adacompute.client.settings import build_endpoint
from adacompute.client.token_limit import LIMIT_NAMES
from adacompute.config import Config, EndpointConfig, ServeConfig, average_budget, convert_scalar
from adacompute.errors import (
    AdacomputeError,
    ConfigError,
    EndpointError,
    EndpointRefused,
    Overloaded,
    ReplyInvalid,
    RequestInvalid,
    ServeError,
)
from adacompute.policies.base import Policy
from adacompute.records import DEFAULT_CURRENCY, Budget, Secret
from adacompute.serve.chat import Gateway
from adacompute.serve.ledger import NO_SPEND, Spend
from adacompute.serve.lifespan import open_gateway
from adacompute.serve.reply import RequestOutcome
from adacompute.serve.request_options import OPTIONS_FIELD
from adacompute.serve.request_parser import ChatRequest, Route, choose_route, parse_request

__all__ = ["Asker", "Reply", "ask"]

Prompt = str | Sequence[Mapping[str, Any]]  # a question, or messages in OpenAI's shape

DEFAULT_BUDGET = 2.0  # samples on average, as of the gateway
DEFAULT_CONCURRENCY = 8  # with more under way, the average of a few hundred prompts is kept less well
_MAX_SAMPLES_BUDGET = 16.0  # as of the gateway
_DEFAULT_KEY_ENV = EndpointConfig().key_env
_KEY_NAME = "anonymous"  # what is spent is counted under this name, as in a gateway without keys
_MAX_MESSAGES = 1_000_000  # of a prompt: the caller is the operator
_MAX_LISTED = 8  # models that a message names
_ENDPOINT_REMEDY = (
    "give its URL with its path, e.g. http://127.0.0.1:8081/v1; `adacompute local` serves a small model on "
    "this machine"
)
_KEY_STATUSES = (401, 403)
# request fields that an Asker sets or that would change what is voted on, and what to do instead
_RESERVED_FIELDS = {
    "messages": "give the messages as the prompt",
    "model": "give model to the Asker",
    "n": "leave it out: the policy decides how many samples are drawn, within the budget",
    "stream": "leave it out: a reply comes whole",
    "stream_options": "leave it out: a reply comes whole",
    OPTIONS_FIELD: "give extract, or settings of the Asker",
}
_ASKER_SETTINGS = frozenset(
    (
        *("endpoint", "budget", "policy", "key", "key_env", "key_file", "input_price", "output_price"),
        *("currency", "concurrency", "deadline", "state"),
    )
)

logging.getLogger("adacompute").addHandler(logging.NullHandler())  # errors are raised, not printed

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of one prompt."""

    text: str | None  # the winner's text, "" where it calls a tool; None: nothing came
    answer: str | None = None  # the winner of the vote; None: there was none
    votes: Mapping[str, int] = field(default_factory=dict, hash=False)  # by answer, the first to come first
    samples: int = 0  # drawn for it
    tokens: int = 0  # of prompts and responses, of all samples
    cost: float | None = None  # money; None: no prices were given
    agreement: float | None = None  # the winner's share of all samples, 0 to 1; None: there was no vote
    notes: tuple[str, ...] = ()  # e.g. why there was no vote
    model: str = ""  # as the endpoint names it
    message: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    # ^ the winner's whole message in OpenAI's shape, with calls of tools
    error: AdacomputeError | None = None  # why nothing came; None: something did

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "text": self.text,
            "answer": self.answer,
            "votes": dict(self.votes),
            "samples": self.samples,
            "tokens": self.tokens,
            "cost": self.cost,
            "agreement": self.agreement,
            "notes": list(self.notes),
            "model": self.model,
            "error": None if self.error is None else str(self.error),
        }


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
        cost=outcome.spent.amount_in("money") if has_prices else None,
        agreement=outcome.agreement,
        notes=notes,
        model=outcome.server_info.get("model") or outcome.model,
        message=response.message,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """Where an Asker stands."""

    spent: Spend = NO_SPEND
    average: float | None = None
    price: float | None = None


class Engine:
    """A gateway on an event loop in a thread of its own. `start` it once, then `submit`; `stop` ends it."""

    gateway: Gateway
    model: str

    def __init__(
        self,
        config: Config,
        *,
        endpoint: Endpoint,
        policy: Policy | None,
        in_memory: bool,
        has_prices: bool,
    ) -> None:
        self._config = config
        self._endpoint = endpoint
        self._policy = policy
        self._in_memory = in_memory
        self._has_prices = has_prices
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="adacompute-asker", daemon=True)
        self._lock = threading.Lock()  # guards `_closed`: nothing is submitted once it is set
        self._closed = False
        self._cancels = False  # whether what is under way is cancelled, and not waited for
        self._failure: BaseException | None = None  # of closing
        self._tasks: set[asyncio.Task[Any]] = set()
        self._count, self._cost = 0, 0.0  # of requests that can be voted on
        self._last_status = _Status()  # once it is closed

    def start(self) -> None:
        """Returns once it is open; raises why it can't be."""
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self.request_stop(cancel=True)
            self._thread.join()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine in the engine's loop. Cancelling the future cancels it."""
        with self._lock:
            if self._closed:
                work.close()
                raise _make_closed_error()
            return asyncio.run_coroutine_threadsafe(self._track(work), self._loop)

    def request_stop(self, *, cancel: bool) -> None:
        """Begins to end it: what is under way is finished, or cancelled. Doesn't wait."""
        with self._lock:
            self._closed = True
            self._cancels = self._cancels or cancel
            with contextlib.suppress(AttributeError, RuntimeError):  # not begun, or ended by itself
                self._loop.call_soon_threadsafe(self._on_stop)

    def stop(self, *, cancel: bool) -> None:
        """Ends it, and waits for that."""
        self.request_stop(cancel=cancel)
        try:
            self._thread.join()
        except BaseException:  # Ctrl-C: what is under way isn't waited for any more
            self.request_stop(cancel=True)
            raise
        if self._failure is not None:
            raise self._failure

    def read_status(self) -> _Status:
        """Where it stands; after its end, where it stood then."""
        try:
            future = self.submit(self._read_status())
        except Overloaded:
            self._thread.join()
            return self._last_status
        return future.result()

    async def answer(self, request: ChatRequest, route: Route) -> Reply:
        """The reply to one request; what the endpoint or a cap does is an error in it."""
        active = self.gateway.begin(request, route)
        try:
            outcome = await self.gateway.complete(active)
        except (EndpointError, ServeError) as exc:
            spent = active.sampling.spent
            cost = spent.amount_in("money") if self._has_prices else None
            return Reply(text=None, samples=spent.samples, tokens=spent.tokens, cost=cost, error=exc)
        if outcome.counts_as_voted:
            self._count += 1
            self._cost += outcome.budget_cost
        return _build_reply(outcome, has_prices=self._has_prices)

    async def answer_all(
        self, requests: Sequence[tuple[ChatRequest, Route]], concurrency: int
    ) -> list[Reply]:
        """The replies to many requests in their order, so many at a time."""
        replies: dict[int, Reply] = {}
        remaining = iter(enumerate(requests))

        async def work() -> None:
            for index, (request, route) in remaining:
                replies[index] = await self.answer(request, route)

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(concurrency, len(requests))):
                workers.create_task(work())
        return [replies[index] for index in range(len(requests))]

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as exc:  # noqa: BLE001 - raised where the caller waits
            if self._ready.done():
                self._failure = exc
            else:
                self._ready.set_exception(exc)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._opening = asyncio.Event(), asyncio.current_task()
        async with open_gateway(
            self._config, endpoint=self._endpoint, policy=self._policy, in_memory=self._in_memory
        ) as gateway:
            self.gateway = gateway
            self.model = await _find_model(gateway)
            self._ready.set_result(None)
            await self._stop.wait()
            while self._tasks:
                await asyncio.wait(self._tasks)
            self._last_status = await self._read_status()

    def _on_stop(self) -> None:
        self._stop.set()
        if self._cancels:
            opening = [] if self._ready.done() or self._opening is None else [self._opening]
            for task in (*opening, *self._tasks):
                task.cancel()

    async def _track(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine as something under way; where closing cancels it, an error says so."""
        task = asyncio.current_task()
        assert task is not None
        if self._cancels:
            work.close()
            raise _make_closed_error()
        self._tasks.add(task)
        task.add_done_callback(_retrieve_error)
        try:
            return await work
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


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Takes a task's error, which asyncio would print where its caller has stopped waiting."""
    if not task.cancelled():
        task.exception()


def _make_closed_error() -> Overloaded:
    return Overloaded("this Asker is closed; open another one")


async def _find_model(gateway: Gateway) -> str:
    """The model that was named, else the only one that the endpoint lists."""
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
    return names[0]


class Asker:
    """Asks one endpoint, and keeps the average cost of what it asks on a budget. A context manager.

    It may be used by several threads and event loops at once. Closing it waits for what is under way; leaving
    its context by an exception cancels that.
    """

    def __init__(
        self,
        endpoint: str | Endpoint,
        *,
        model: str | None = None,
        budget: float | str | Budget = DEFAULT_BUDGET,
        policy: Policy | str | Path | None = None,
        key: str | Secret | None = None,
        key_env: str = _DEFAULT_KEY_ENV,
        key_file: str | Path | None = None,
        input_price: float | None = None,
        output_price: float | None = None,
        currency: str = DEFAULT_CURRENCY,
        concurrency: int = DEFAULT_CONCURRENCY,
        deadline: float = 600.0,
        state: str | Path | None = None,
    ) -> None:
        """Opens it; AdacomputeError with the remedy if one of these can't be used.

        `endpoint` is an address with its path, such as http://127.0.0.1:8081/v1, or an Endpoint, which has
        its own key and limits. `model` is the only one that the endpoint lists, if None. `budget` is what a
        prompt may cost on average: samples, if it is a number. `policy` is a folder of `adacompute fit`, a
        policy, or None for the one in the package. The key is `key`, else in the file `key_file`, else in the
        environment variable `key_env`. Prices are for a million tokens, in `currency`. `concurrency` is how
        many calls, and prompts of `ask_many`, are under way at the same time, at most. `deadline` is in
        seconds for each prompt. `state` is a file that keeps what was spent and the price over restarts;
        without it, both are kept in memory.
        """
        upstream = _build_upstream(
            endpoint, key=key, key_env=key_env, key_file=key_file, concurrency=concurrency
        )
        prices = {"input_price": input_price, "output_price": output_price}
        amounts = {
            name: convert_scalar(price, float, name) for name, price in prices.items() if price is not None
        }
        self._concurrency = min(concurrency, upstream.limits.concurrency)
        average, most = _write_budgets(Budget.parse(budget, currency=currency))
        upstream_settings = EndpointConfig(url=upstream.url, model=model or "", currency=currency, **amounts)
        config = Config(
            endpoint=upstream_settings,
            serve=ServeConfig(
                policy=_read_folder(policy),
                state=ServeConfig().state if state is None else str(state),
                max_messages=_MAX_MESSAGES,
                deadline=convert_scalar(deadline, float, "deadline"),
                budget=average,
                max_budget=most,
            ),
        )
        self._budget = average_budget(config)
        self._engine = Engine(
            config,
            endpoint=upstream,
            policy=policy if isinstance(policy, Policy) else None,
            in_memory=state is None,
            has_prices=bool(amounts),
        )
        self._engine.start()
        self._settings = config.serve
        self._url = upstream.url
        finalizer = weakref.finalize(self, self._engine.request_stop, cancel=True)
        finalizer.atexit = False  # the thread is a daemon

    def __repr__(self) -> str:
        return f"Asker({self._url!r}, model={self.model!r}, budget={str(self._budget)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close, wait=kind is None)

    @property
    def model(self) -> str:
        """The name of the model that is asked."""
        return self._engine.model

    @property
    def budget(self) -> Budget:
        """What a prompt may cost on average."""
        return self._budget

    @property
    def average(self) -> float | None:
        """What prompts cost so far, in the budget's unit, of those that can be voted on; None before any."""
        return self._engine.read_status().average

    @property
    def price(self) -> float | None:
        """The price of a sample that the next prompt is decided at; None: the policy has none."""
        return self._engine.read_status().price

    @property
    def spent(self) -> Spend:
        """What was spent so far: its `samples`, `tokens` and `money`; with `state`, also in earlier runs."""
        return self._engine.read_status().spent

    def ask(
        self,
        prompt: Prompt,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extract: str | None = None,
        **parameters: Any,  # noqa: ANN401 - fields of a request to the endpoint
    ) -> Reply:
        """The reply to a prompt: a text, or a list of messages in OpenAI's shape.

        `extract` says how answers are read out of responses: auto, boxed, choice, number, json:FIELD,
        regex:PATTERN and others, or none. `parameters` go to the endpoint as they are, such as seed, stop or
        response_format. Raises AdacomputeError if nothing came.
        """
        options = _pack_options(system, temperature, max_tokens, extract, parameters)
        return _raise_error(_wait(self._engine.submit(self._begin(prompt, options))))

    async def ask_async(
        self,
        prompt: Prompt,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extract: str | None = None,
        **parameters: Any,  # noqa: ANN401 - fields of a request to the endpoint
    ) -> Reply:
        """As `ask`, for a coroutine."""
        options = _pack_options(system, temperature, max_tokens, extract, parameters)
        return _raise_error(await asyncio.wrap_future(self._engine.submit(self._begin(prompt, options))))

    def ask_many(
        self,
        prompts: Iterable[Prompt],
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extract: str | None = None,
        **parameters: Any,  # noqa: ANN401 - fields of a request to the endpoint
    ) -> list[Reply]:
        """The replies to many prompts, in their order. Where nothing came, a reply has an `error`.

        A prompt or an option that can't be used is raised before anything is sent.
        """
        options = _pack_options(system, temperature, max_tokens, extract, parameters)
        return _wait(self._engine.submit(self._begin_all(prompts, options)))

    async def ask_many_async(
        self,
        prompts: Iterable[Prompt],
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extract: str | None = None,
        **parameters: Any,  # noqa: ANN401 - fields of a request to the endpoint
    ) -> list[Reply]:
        """As `ask_many`, for a coroutine."""
        options = _pack_options(system, temperature, max_tokens, extract, parameters)
        return await asyncio.wrap_future(self._engine.submit(self._begin_all(prompts, options)))

    def close(self, *, wait: bool = True) -> None:
        """Ends it. Waits for what is under way; with `wait=False` that is cancelled."""
        self._engine.stop(cancel=not wait)

    def _begin(self, prompt: Prompt, options: Mapping[str, Any]) -> Coroutine[Any, Any, Reply]:
        return self._engine.answer(*self._parse(prompt, options))

    def _begin_all(
        self, prompts: Iterable[Prompt], options: Mapping[str, Any]
    ) -> Coroutine[Any, Any, list[Reply]]:
        if isinstance(prompts, str | Mapping) or not isinstance(prompts, Iterable):
            raise RequestInvalid(
                f"prompts is a {type(prompts).__name__}; give a list of prompts, or call ask"
            )
        requests = []
        for number, prompt in enumerate(prompts):
            try:
                requests.append(self._parse(prompt, options))
            except RequestInvalid as exc:
                raise RequestInvalid(f"prompts[{number}]: {exc}", param=exc.param) from exc
        return self._engine.answer_all(requests, self._concurrency)

    def _parse(self, prompt: Prompt, options: Mapping[str, Any]) -> tuple[ChatRequest, Route]:
        """The request as the gateway reads it, and its route."""
        body = _build_body(prompt, self.model, options)
        try:
            raw = orjson.dumps(body)
        except TypeError as exc:
            raise RequestInvalid(f"the prompt or a parameter isn't JSON ({exc}); give plain data") from exc
        registry, settings = self._engine.gateway.policy_registry, self._widen_settings(body)
        request = parse_request(raw, settings=settings, known_models=(self.model,))
        route = choose_route(
            request, {}, settings=settings, key=_KEY_NAME, policies=registry.names, default=registry.default
        )
        return request, route

    def _widen_settings(self, body: Mapping[str, Any]) -> ServeConfig:
        """The settings, with room for the tokens that the caller, who is the operator, allows."""
        limits = [value for name in LIMIT_NAMES if type(value := body.get(name)) is int]
        most = max(limits, default=0)
        return (
            replace(self._settings, max_tokens=most) if most > self._settings.max_tokens else self._settings
        )


def ask(
    prompt: Prompt,
    *,
    endpoint: str | Endpoint,
    model: str | None = None,
    budget: float | str | Budget = DEFAULT_BUDGET,
    policy: Policy | str | Path | None = None,
    key: str | Secret | None = None,
    key_env: str = _DEFAULT_KEY_ENV,
    key_file: str | Path | None = None,
    input_price: float | None = None,
    output_price: float | None = None,
    currency: str = DEFAULT_CURRENCY,
    deadline: float = 600.0,
    system: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    extract: str | None = None,
    **parameters: Any,  # noqa: ANN401 - fields of a request to the endpoint
) -> Reply:
    """The reply to one prompt, by a vote over as many samples as it is worth. Arguments as of `Asker`.

    An `Asker` is faster for several prompts, and keeps their average on the budget.
    """
    with Asker(
        endpoint,
        model=model,
        budget=budget,
        policy=policy,
        key=key,
        key_env=key_env,
        key_file=key_file,
        input_price=input_price,
        output_price=output_price,
        currency=currency,
        deadline=deadline,
    ) as asker:
        return asker.ask(
            prompt,
            system=system,
            temperature=temperature,
            max_tokens=max_tokens,
            extract=extract,
            **parameters,
        )


def _build_upstream(
    endpoint: object,
    *,
    key: str | Secret | None,
    key_env: str,
    key_file: str | Path | None,
    concurrency: int,
) -> Endpoint:
    limits = RateLimits(concurrency=concurrency)
    if isinstance(endpoint, Endpoint):
        if key is not None or key_file is not None:
            raise ConfigError("endpoint is an Endpoint, which has its own key; give the key to it alone")
        return endpoint
    if not isinstance(endpoint, str) or not endpoint:
        raise ConfigError(f"endpoint {endpoint!r} is no address; {_ENDPOINT_REMEDY}")
    if key is not None:
        if key_file is not None:
            raise ConfigError("key and key_file are both given; give one of them")
        return Endpoint(url=endpoint, key=Secret(key) if isinstance(key, str) else key, limits=limits)
    file = "" if key_file is None else str(key_file)
    return replace(
        build_endpoint(EndpointConfig(url=endpoint, key_env=key_env, key_file=file)), limits=limits
    )


def _read_folder(policy: object) -> str:
    """The folder of a policy; "" if it is in memory, or the one in the package."""
    if policy is None or isinstance(policy, Policy):
        return ""
    if isinstance(policy, str | Path):
        return str(policy)
    raise ConfigError(
        f"policy is a {type(policy).__name__}; give a folder of `adacompute fit`, a policy such as "
        "StoppingPolicy(), or None"
    )


def _write_budgets(budget: Budget) -> tuple[str, str]:
    """The settings budget and max_budget, which doesn't cut it short."""
    if budget.unit == "samples":
        return f"{budget.amount!r} samples", f"{max(_MAX_SAMPLES_BUDGET, budget.amount)!r} samples"
    text = f"{budget.amount:.12f} {budget.currency or budget.unit}"
    return text, text


def _pack_options(
    system: str | None,
    temperature: float | None,
    max_tokens: int | None,
    extract: str | None,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """The options of a request by name; RequestInvalid for those that an Asker can't follow."""
    for name in parameters:
        if name in _RESERVED_FIELDS:
            raise RequestInvalid(f"{name} can't be given here; {_RESERVED_FIELDS[name]}", param=name)
        if name in _ASKER_SETTINGS:
            raise RequestInvalid(f"{name} is a setting of the Asker as a whole; give it there", param=name)
    if system is not None and not isinstance(system, str):
        raise RequestInvalid(f"system is a {type(system).__name__}; give a text", param="system")
    named = {"system": system, "temperature": temperature, "max_tokens": max_tokens, "extract": extract}
    return {**parameters, **{name: value for name, value in named.items() if value is not None}}


def _build_body(prompt: object, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request to a gateway."""
    body = {"model": model, "messages": _build_messages(prompt), **options}
    if (system := body.pop("system", None)) is not None:
        body["messages"] = [{"role": "system", "content": system}, *body["messages"]]
    if (extract := body.pop("extract", None)) is not None:
        body[OPTIONS_FIELD] = {"extract": extract}
    return body


def _build_messages(prompt: object) -> list[Any]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise RequestInvalid("the prompt is empty; give a question, or a list of messages")
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise RequestInvalid(
            f"the prompt is a {type(prompt).__name__}; give a text, or a list of messages in OpenAI's shape"
        )
    if any(isinstance(message, str) for message in prompt):
        raise RequestInvalid(
            "the prompt is a list of texts; give one text, or messages with role and content; several "
            "prompts are for ask_many"
        )
    return [dict(message) if isinstance(message, Mapping) else message for message in prompt]


def _wait(future: "Future[T]") -> T:
    """The result; what interrupts the wait, such as Ctrl-C, cancels the work."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _raise_error(reply: Reply) -> Reply:
    if reply.error is not None:
        raise reply.error
    return reply
