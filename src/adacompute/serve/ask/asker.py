"""`ask` and `Asker`: the gateway as a function call, without a server.

An `Asker` has an `Engine` (prompt_engine.py), which runs a gateway in its own thread. Functions, coroutines
in any event loop (such as a notebook's) and several threads can use it at once.
"""

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Never, Self, TypedDict, Unpack

from adacompute.client import BreakerSettings, Endpoint, RateLimits
from adacompute.client.modes import ModeConfigs, apply_menu, read_modes_file
from adacompute.client.settings import build_endpoint
from adacompute.config import (
    Config,
    EndpointConfig,
    ServeConfig,
    VerifierConfig,
    average_budget,
    convert_value,
)
from adacompute.errors import ConfigError, RequestInvalid, suggest_name
from adacompute.policies.base import Policy
from adacompute.records import DEFAULT_CURRENCY, Budget, Secret, names_quality
from adacompute.serve.ask.prompt_engine import (
    Engine,
    Prompt,
    PromptOptions,
    Reply,
    build_all_messages,
    build_messages,
    check_prompts,
    wait_for,
)
from adacompute.serve.pricing.policy_registry import settle_quality
from adacompute.serve.spending.ledger import Spend

DEFAULT_BUDGET = 2.0  # average number of samples per prompt; the gateway has the same default
DEFAULT_CONCURRENCY = 8  # maximum number of prompts in flight; a larger one meets the budget less exactly
_DEFAULT_KEY_ENV = EndpointConfig().key_env
_MAX_MESSAGES = 1_000_000  # maximum number of messages per prompt; so high that it refuses no real prompt
# pauses before the endpoint is called again after 8 failures in a row: 1 second, then 2, 4, and at most 8
_BREAKER = BreakerSettings(seconds=1.0, longest=8.0)
_ENDPOINT_REMEDY = (
    "give its URL with its path, e.g. http://127.0.0.1:8081/v1; `adacompute local` serves a small model on "
    "this machine"
)


class PromptArguments(TypedDict, total=False):
    """The keyword arguments of `Asker.ask`, which apply to one prompt."""

    system: str | None
    temperature: float | None
    max_tokens: int | None
    extract: str | None
    options: Mapping[str, Any] | None


class Asker:
    """A context manager that sends prompts to a model endpoint, and keeps their average cost within a budget.

    It opens when the `with` block or the first prompt begins. Threads and event loops can share it. In a
    forked process, it opens anew with an average of its own, but can't open its parent's `state` file.
    Closing waits for prompts in flight; leaving the `with` block by an exception cancels them.
    """

    def __init__(
        self,
        endpoint: str | Endpoint | None = None,
        *,
        menu: str | Path | None = None,
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
        verifier: str | VerifierConfig | None = None,
        **unknown: Never,
    ) -> None:
        """Checks the settings; raises AdacomputeError with the remedy if one is invalid.

        `endpoint` is an address with its path, such as http://127.0.0.1:8081/v1, or an Endpoint with its own
        key, limits and retries. `model` defaults to the only model that the endpoint lists. `menu` is the
        path of a menu.toml, which lists several modes. It replaces endpoint, model, key and prices, and the
        budget must then be in money or tokens.

        `budget` is the average cost per prompt: a number of samples, an amount such as "0.01 USD", or a
        quality such as "as good as 8" (if the policy's accuracy was measured). `policy` is a folder from
        `adacompute fit`, a policy, or None for the built-in one. The key is `key`, or else is read from the
        file `key_file` or the environment variable `key_env`. Prices are per million tokens in `currency`.
        `concurrency` is the maximum number of prompts, and of calls, in flight; further prompts wait.
        `deadline` is the maximum number of seconds for opening the Asker, and for answering a prompt once it
        is in flight.

        `state` is a file that keeps spending and price across restarts; None keeps them in memory. `verifier`
        is a service whose scores weigh the samples' votes: the address of a scoring endpoint, or a
        VerifierConfig, which can also name a model that judges answers.
        """
        key = _hide_key(key)
        _refuse_unknown(unknown)
        modes = None if menu is None else read_modes_file(Path(_read_path(menu, "menu")))
        prices = {"input_price": input_price, "output_price": output_price}
        if modes is not None:
            single = {"endpoint": endpoint, "model": model, "key": key, "key_file": key_file, **prices}
            single["key_env"] = None if key_env == _DEFAULT_KEY_ENV else key_env
            single["currency"] = None if currency == DEFAULT_CURRENCY else currency
            _check_menu_alone(single)
            upstream, currency = None, modes.currency
        else:
            upstream = _build_upstream(
                endpoint, key=key, key_env=key_env, key_file=key_file, concurrency=concurrency
            )
            currency = convert_value(currency, str, "currency")
        amounts = {
            name: convert_value(price, float, name) for name, price in prices.items() if price is not None
        }
        by_quality = names_quality(budget)
        average = str(budget) if by_quality else write_budget(Budget.parse(budget, currency=currency))
        config = Config(
            endpoint=EndpointConfig(
                url="" if upstream is None else upstream.url,
                model="" if model is None else convert_value(model, str, "model"),
                currency=currency,
                **amounts,
            ),
            serve=ServeConfig(
                menu="" if menu is None else str(menu),
                concurrency=concurrency,
                policy=_read_folder(policy),
                state=ServeConfig().state if state is None else _read_path(state, "state"),
                deadline=convert_value(deadline, float, "deadline"),
                budget=average,
                max_budget=ServeConfig().max_budget if by_quality else average,
            ),
            verifier=_read_verifier(verifier),
        )
        self._prepare(
            config,
            upstream,
            policy=policy if isinstance(policy, Policy) else None,
            in_memory=state is None,
            concurrency=concurrency,
            has_prices=bool(amounts),
            menu=modes,
        )

    @classmethod
    def from_config(cls, config: Config, *, endpoint: Endpoint | None) -> Self:
        """Makes an Asker that decides like a gateway with these settings; it keeps nothing across restarts.

        `endpoint` replaces the one in the settings; None if the settings name a menu.
        """
        asker = cls.__new__(cls)
        asker._prepare(
            config,
            endpoint,
            has_prices=bool(config.endpoint.input_price or config.endpoint.output_price),
            menu=read_modes_file(Path(config.serve.menu)) if endpoint is None else None,
        )
        return asker

    def _prepare(
        self,
        config: Config,
        upstream: Endpoint | None,
        *,
        has_prices: bool,
        menu: ModeConfigs | None,
        policy: Policy | None = None,
        in_memory: bool = True,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> None:
        config = replace(config, serve=replace(config.serve, max_messages=_MAX_MESSAGES))
        if menu is not None:
            config, has_prices = apply_menu(config, menu), menu.has_prices
        self._name = config.serve.menu if upstream is None else upstream.url
        config, _ = settle_quality(config)
        self._budget = average_budget(config)
        self._engine = Engine(
            config,
            endpoint=upstream,
            policy=policy,
            in_memory=in_memory,
            concurrency=concurrency if upstream is None else min(concurrency, upstream.limits.concurrency),
            has_prices=has_prices,
            breaker=_BREAKER if menu is None else _BREAKER.share(len(menu.modes)),
        )
        self._window = 2 * concurrency  # number of prompts that `ask_iter` reads ahead
        finalizer = weakref.finalize(self, self._engine.request_stop, cancel=True)
        finalizer.atexit = False  # not called at exit, because prompt_engine.py saves spending then

    def __repr__(self) -> str:
        return f"Asker({self._name!r}, model={self._engine.model!r}, budget={str(self._budget)!r})"

    def __enter__(self) -> Self:
        try:
            wait_for(self._engine.submit(self._engine.open))
        except BaseException:
            self._engine.request_stop(cancel=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close(wait=kind is None)
        except Exception as exc:
            if error is None:
                raise
            error.add_note(f"closing the Asker failed as well: {exc}")

    async def __aenter__(self) -> Self:
        try:
            await asyncio.wrap_future(self._engine.submit(self._engine.open))
        except BaseException:
            self._engine.request_stop(cancel=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    @property
    def model(self) -> str:
        """The model's name; if none was given, the endpoint is asked for it."""
        if not self._engine.model:
            wait_for(self._engine.submit(self._engine.open))
        return self._engine.model

    @property
    def budget(self) -> Budget:
        """The average cost per prompt that the Asker aims for."""
        return self._budget

    @property
    def average(self) -> float | None:
        """The mean cost per prompt since opening, in the budget's unit; None if no prompt counts yet.

        If the budget is in samples, only prompts that can be voted on count. A `state` file doesn't keep the
        mean.
        """
        return self._engine.read_status().average

    @property
    def price(self) -> float | None:
        """The price or threshold with which the policy decides next; None if there is none or it is fixed."""
        return self._engine.read_status().price

    @property
    def spent(self) -> Spend:
        """The total spent: `samples`, `tokens` and `money`. With a `state` file, it includes earlier runs."""
        return self._engine.read_status().spent

    def ask(
        self,
        prompt: Prompt,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extract: str | None = None,
        options: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> Reply:
        """Answers a prompt, which is a text or a list of messages in OpenAI's format.

        `extract` says how to read answers from responses: auto, boxed, choice, number, json:FIELD,
        regex:PATTERN and others; "none" prevents a vote. `options` are request fields passed to the endpoint
        unchanged, such as seed, stop or response_format. Raises AdacomputeError if there was no response.
        """
        named = PromptArguments(
            system=system, temperature=temperature, max_tokens=max_tokens, extract=extract, options=options
        )
        return _raise_error(wait_for(self._submit(prompt, _build_options(**named, **unknown))))

    async def ask_async(self, prompt: Prompt, **arguments: Unpack[PromptArguments]) -> Reply:
        """Like `ask`, as a coroutine."""
        return _raise_error(await asyncio.wrap_future(self._submit(prompt, _build_options(**arguments))))

    def ask_many(self, prompts: Iterable[Prompt], **arguments: Unpack[PromptArguments]) -> list[Reply]:
        """Answers several prompts; returns the replies in order. The reply to a failed prompt has an `error`.

        `arguments` are those of `ask`. An invalid prompt or option raises RequestInvalid before anything is
        sent. Ctrl-C discards all replies; with `ask_iter`, you keep those it has yielded.
        """
        return wait_for(self._submit_all(prompts, _build_options(**arguments)))

    async def ask_many_async(
        self, prompts: Iterable[Prompt], **arguments: Unpack[PromptArguments]
    ) -> list[Reply]:
        """Like `ask_many`, as a coroutine."""
        return await asyncio.wrap_future(self._submit_all(prompts, _build_options(**arguments)))

    def ask_iter(self, prompts: Iterable[Prompt], **arguments: Unpack[PromptArguments]) -> Iterator[Reply]:
        """Like `ask_many`, but yields replies in order, while later prompts are in flight.

        Reads a prompt only if the oldest reply isn't ready and fewer than `2 * concurrency` prompts are in
        flight, so `prompts` may be endless. An invalid prompt raises RequestInvalid when its turn comes.
        Leaving the loop cancels prompts in flight.
        """
        built = _build_options(**arguments)
        check_prompts(prompts)
        return self._iterate(prompts, built)

    def close(self, *, wait: bool = True) -> None:
        """Closes the Asker: waits for prompts in flight, or cancels them if `wait` is False."""
        self._engine.stop(cancel=not wait)

    def _submit(self, prompt: Prompt, options: PromptOptions) -> "Future[Reply]":
        return self._engine.submit(self._engine.answer_prompt, build_messages(prompt), options)

    def _submit_all(self, prompts: Iterable[Prompt], options: PromptOptions) -> "Future[list[Reply]]":
        return self._engine.submit(self._engine.answer_all, build_all_messages(prompts), options)

    def _iterate(self, prompts: Iterable[Prompt], options: PromptOptions) -> Iterator[Reply]:
        under_way: deque[Future[Reply]] = deque()
        try:
            for prompt in prompts:
                under_way.append(self._submit(prompt, options))
                while under_way and (len(under_way) >= self._window or under_way[0].done()):
                    yield under_way[0].result()
                    under_way.popleft()
            while under_way:
                yield under_way[0].result()
                under_way.popleft()
        finally:
            for future in under_way:
                future.cancel()


def ask(
    prompt: Prompt,
    *,
    endpoint: str | Endpoint | None = None,
    menu: str | Path | None = None,
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
    verifier: str | VerifierConfig | None = None,
    system: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    extract: str | None = None,
    options: Mapping[str, Any] | None = None,
    **unknown: Never,
) -> Reply:
    """Answers one prompt by a vote over as many samples as are worth their cost.

    Arguments are as in `Asker` and `Asker.ask`. Use an `Asker` to keep several prompts' average on budget.
    """
    key = _hide_key(key)
    with Asker(
        endpoint,
        menu=menu,
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
        verifier=verifier,
        **unknown,
    ) as asker:
        return asker.ask(
            prompt,
            system=system,
            temperature=temperature,
            max_tokens=max_tokens,
            extract=extract,
            options=options,
        )


def _list_keywords(function: Callable[..., object]) -> list[str]:
    return [
        name for name, each in inspect.signature(function).parameters.items() if each.kind != each.VAR_KEYWORD
    ]


# map: parameter of OpenAI's clients -> the argument of an Asker with the same meaning
_OPENAI_NAMES = {"base_url": "endpoint", "api_key": "key"}


def _refuse_unknown(unknown: Mapping[str, object]) -> None:
    """Raises RequestInvalid for an unknown keyword argument, and suggests the most similar known one."""
    for name in unknown:
        known = {*_list_keywords(Asker), *_list_keywords(ask)}
        ours = _OPENAI_NAMES.get(name)
        nearest = suggest_name(name, known) if ours is None else f"did you mean {ours}? "
        raise RequestInvalid(
            f"there is no argument {name}; {nearest}A field for the endpoint goes into a prompt's "
            f"options={{{name!r}: …}}",
            param=name,
        )


def _build_options(options: object = None, **arguments: Any) -> PromptOptions:  # noqa: ANN401 - PromptArguments
    """Builds a prompt's options; raises RequestInvalid if an Asker doesn't support one."""
    if options is not None and not isinstance(options, Mapping):
        raise RequestInvalid(f"options is a {type(options).__name__}; give a dict", param="options")
    named = {name: arguments.pop(name) for name in PromptArguments.__annotations__ if name in arguments}
    built = PromptOptions(parameters={**(options or {}), **arguments}, **named)
    for name in built.parameters:
        if name in _list_keywords(Asker):
            raise RequestInvalid(f"{name} is a setting of the Asker as a whole; give it there", param=name)
    _refuse_unknown(arguments)
    return built


def _hide_key(key: str | Secret | None) -> Secret | None:
    """Wraps the key in a Secret before anything can fail: tracebacks with local variables then show `***`."""
    return Secret(key) if isinstance(key, str) else key


def _read_verifier(verifier: object) -> VerifierConfig:
    if isinstance(verifier, VerifierConfig):
        return verifier
    if verifier is None:
        return VerifierConfig()
    if not isinstance(verifier, str) or not verifier:
        raise ConfigError(
            f"verifier {verifier!r} can't be used; give its address, e.g. http://127.0.0.1:9000/score, "
            "or a VerifierConfig"
        )
    return VerifierConfig(url=verifier)


def _build_upstream(
    endpoint: object,
    *,
    key: Secret | None,
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
        raise ConfigError(f"endpoint {endpoint!r} is not an address; {_ENDPOINT_REMEDY}")
    if key is not None:
        if key_file is not None:
            raise ConfigError("key and key_file are both given; give one of them")
        return Endpoint(url=endpoint, key=key, limits=limits, breaker=_BREAKER)
    settings = EndpointConfig(
        url=endpoint,
        key_env=convert_value(key_env, str, "key_env"),
        key_file="" if key_file is None else _read_path(key_file, "key_file"),
    )
    return replace(build_endpoint(settings), limits=limits, breaker=_BREAKER)


def _check_menu_alone(settings: Mapping[str, object]) -> None:
    """Raises ConfigError for a setting given beside a menu, because the menu sets it for each mode."""
    for name, value in settings.items():
        if value is not None:
            raise ConfigError(f"{name} is given beside a menu, which says it for each mode; leave one out")


def _read_folder(policy: object) -> str:
    """Returns the path of a policy's folder; "" if the policy is an object in memory or the built-in one."""
    if policy is None or isinstance(policy, Policy):
        return ""
    if isinstance(policy, str | Path):
        return str(policy)
    raise ConfigError(
        f"policy is a {type(policy).__name__}; give a folder of `adacompute fit`, a policy such as "
        "StoppingPolicy(), or None"
    )


def _read_path(value: object, name: str) -> str:
    if isinstance(value, str | Path):
        return str(value)
    raise ConfigError(f"{name} is a {type(value).__name__}; give the path of a file")


def write_budget(budget: Budget) -> str:
    """Writes a budget as text for a gateway's settings, without rounding."""
    return f"{float(budget.amount)!r} {budget.currency or budget.unit}"


def _raise_error(reply: Reply) -> Reply:
    if reply.error is not None:
        raise reply.error
    return reply
