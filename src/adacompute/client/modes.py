"""The modes listed in a file (menu.toml), each with its endpoint, options and token prices."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

from adacompute.client.settings import ModeEndpoint, build_endpoint
from adacompute.config import (
    EVERY_MODE,
    Config,
    Count,
    EndpointConfig,
    Price,
    ServeConfig,
    convert_table,
    convert_value,
    parse_serve_budgets,
    read_toml,
)
from adacompute.errors import ConfigError
from adacompute.records import DEFAULT_CURRENCY, BudgetUnit, TokenPrices, names_quality


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeConfig:
    """A mode, one table in menu.toml: how to request a sample, and its price."""

    name: str
    endpoint: EndpointConfig  # settings of the endpoint: upstream, model, key, limits, timeouts and prices
    # price per million cached prompt tokens; None: the price of other prompt tokens
    cached_price: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # fields added to every request
    system_suffix: str = ""  # appended to the system message
    is_default: bool = False  # whether this mode gets the requests that can't be voted on


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeConfigs:
    """All modes of a gateway in the order of menu.toml, and the currency of their prices."""

    modes: tuple[ModeConfig, ...]
    currency: str = DEFAULT_CURRENCY
    budget: str = ""  # average budget per request; "": the modes file sets none

    @property
    def names(self) -> tuple[str, ...]:
        """The modes' names."""
        return tuple(mode.name for mode in self.modes)

    @property
    def has_prices(self) -> bool:
        """Whether any mode has a price."""
        return any(mode.endpoint.input_price or mode.endpoint.output_price for mode in self.modes)

    @property
    def by_cost(self) -> "tuple[ModeConfig, ...]":
        """The modes from the cheapest to the most expensive, by the estimated cost of a sample."""
        return tuple(sorted(self.modes, key=self._guess_cost))

    def _guess_cost(self, mode: ModeConfig) -> float:
        limits = [mode.options.get(name) for name in ("max_tokens", "max_completion_tokens")]
        unit: BudgetUnit = "money" if self.has_prices else "tokens"
        return mode.endpoint.prices.guess_cost(max_tokens=min(filter(None, limits), default=None), unit=unit)

    @property
    def default(self) -> ModeConfig:
        """The mode for requests that can't be voted on: one marked as default, else the most expensive."""
        marked = [mode for mode in self.modes if mode.is_default]
        return marked[0] if marked else self.by_cost[-1]


# each key that may be in a mode's table -> type of its value; includes the settings of [endpoint]
_MODE_KINDS = {
    "upstream": str,
    "cached_price": Price,
    "options": dict,
    "prompt_tokens": Price,  # assumed number of prompt tokens, for computing the cost of recorded samples
    "default": bool,
    **get_type_hints(EndpointConfig, include_extras=True),
}
del _MODE_KINDS["url"]
_SET_OPTIONS = ("messages", "model", "n", "stream", "stream_options", "adacompute", "logprobs")
# options that are refused: with them, adacompute would count too few samples or tokens, or misread answers
_REFUSED_OPTIONS = (
    *("best_of", "n_cmpl", "num_return_sequences", "prompt", "suffix", "echo", "tools", "functions"),
    *("max_new_tokens", "max_output_tokens", "max_gen_len", "n_predict", "num_predict"),
)
# names that no mode may have: as a request's model, they mean that the policy chooses among all modes
_RESERVED_MODES = ("default", EVERY_MODE)
_MODE_REMEDIES = {
    "upstream": "address of its endpoint with its path, e.g. http://127.0.0.1:8081/v1",
    "model": "its name at the upstream",
}
_MAX_MODES = 16
_MODE_NAME = 64  # maximum number of characters in a mode's name


def read_modes_file(file: Path) -> ModeConfigs:
    """Reads a modes file (menu.toml) with one table per mode; a ConfigError says what to change.

    A mode without `key_env` and `key_file` has no key, not even ADACOMPUTE_KEY: modes may have different
    upstreams, and no upstream may get another's key.
    """
    tables = read_toml(file, "menu")
    budget = convert_value(tables.pop("budget", ""), float | str, f"{file}: budget")
    if not tables:
        raise ConfigError(f"menu {str(file)!r} has no mode; add a table such as [small] with upstream = ...")
    if len(tables) > _MAX_MODES:
        raise ConfigError(f"menu {str(file)!r} has {len(tables)} modes; give {_MAX_MODES} at most")
    modes = tuple(_read_mode(f"{file}, [{name}]", name, table) for name, table in tables.items())
    defaults = [mode.name for mode in modes if mode.is_default]
    if len(defaults) > 1:
        raise ConfigError(f"{file}, [{defaults[1]}]: default is true in [{defaults[0]}] too; leave one out")
    currencies = {mode.endpoint.currency: mode.name for mode in modes}
    if len(currencies) > 1:
        (currency, name), (other, other_name) = list(currencies.items())[:2]
        raise ConfigError(
            f"{file}, [{other_name}]: currency is {other!r}, and {currency!r} in [{name}]; "
            "give all prices in one currency, as nothing is converted"
        )
    _check_mode_prices(file, tables)
    return ModeConfigs(modes=modes, currency=next(iter(currencies)), budget=str(budget))


def read_prices(file: Path) -> dict[str, TokenPrices]:
    """Reads token prices of recorded modes from menu.toml, or from a similar file with only prices."""
    tables = read_toml(file, "the prices file")
    tables.pop("budget", None)  # the only top-level key that isn't a mode
    if not tables:
        raise ConfigError(f"{file}: has no mode; give a table for each, e.g. [small]")
    return {name: _read_mode_prices(f"{file}, [{name}]", table) for name, table in tables.items()}


def _read_mode_prices(place: str, table: object) -> TokenPrices:
    if not isinstance(table, dict):
        raise ConfigError(f"{place}: is {table!r:.60}, no table; give input_price and output_price in one")
    values = convert_table(table, _MODE_KINDS, dict.fromkeys(table, place))
    for key in ("input_price", "output_price"):
        if key not in values:
            raise ConfigError(f"{place}: has no {key}; give the money for a million tokens, 0 where free")
    return TokenPrices(
        input=values["input_price"],
        output=values["output_price"],
        prompt_tokens=values.get("prompt_tokens"),
        currency=values.get("currency", DEFAULT_CURRENCY),
    )


def _check_mode_prices(file: Path, tables: Mapping[str, Any]) -> None:
    """Raises unless all modes have both prices or none has any: a mode without a price would look free."""
    names = ("input_price", "output_price")
    priced = [(mode, name) for mode, table in tables.items() for name in names if name in table]
    missing = [(mode, name) for mode, table in tables.items() for name in names if name not in table]
    if priced and missing:
        mode, name = missing[0]
        raise ConfigError(
            f"{file}, [{mode}]: has no {name}, and [{priced[0][0]}] has {priced[0][1]}; give the money for a "
            "million tokens, 0 where it is free"
        )


def _read_mode(place: str, name: str, table: object) -> ModeConfig:
    if not isinstance(table, dict):
        raise ConfigError(f"{place}: is {table!r:.60}, no table; give upstream and model in one")
    is_plain = name.isprintable() and name == name.strip() and "," not in name
    if not 0 < len(name) <= _MODE_NAME or not is_plain or name in _RESERVED_MODES:
        raise ConfigError(
            f"{place}: can't be a mode's name; give 1 to {_MODE_NAME} characters without a comma, "
            f"and not {' or '.join(_RESERVED_MODES)}"
        )
    values = convert_table(table, _MODE_KINDS, dict.fromkeys(table, place))
    values.pop("prompt_tokens", None)
    for key, remedy in _MODE_REMEDIES.items():
        if not values.get(key):
            raise ConfigError(f"{place}: has no {key}; give {remedy}")
    options = _check_mode_options(place, values.pop("options", {}))
    cached, input_price = values.pop("cached_price", None), values.get("input_price", 0.0)
    if cached is not None and cached > input_price:
        raise ConfigError(f"{place}: cached_price is {cached:g}; give 0 to {input_price:g}, the input_price")
    return ModeConfig(
        name=name,
        cached_price=cached,
        system_suffix=convert_value(options.pop("system_suffix", ""), str, f"{place}: options.system_suffix"),
        options=options,
        is_default=values.pop("default", False),
        endpoint=EndpointConfig(url=values.pop("upstream"), **{"key_env": "", **values}),
    )


def _check_mode_options(place: str, options: dict[str, Any]) -> dict[str, Any]:
    extra = options.get("extra_body")
    for key in (*options, *(extra if isinstance(extra, dict) else ())):  # some servers merge the two
        if key.lower() in _SET_OPTIONS:
            raise ConfigError(f"{place}: options.{key} is set by adacompute itself; leave it out")
        if key.lower() in _REFUSED_OPTIONS:
            raise ConfigError(f"{place}: options.{key} is not supported; leave it out, or give max_tokens")
    for key in ("max_tokens", "max_completion_tokens"):
        if key in options:
            options[key] = convert_value(options[key], Count, f"{place}: options.{key}")
    try:
        json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as exc:  # the options contain a date or NaN
        raise ConfigError(f"{place}: options can't be sent as JSON ({exc}); give texts and numbers") from exc
    return options


def apply_menu(config: Config, menu: ModeConfigs) -> Config:
    """Returns the settings with an endpoint for the menu, and with its budget if they set no other.

    The endpoint is the default mode's, with the highest prices of all modes and, for several modes, the model
    name EVERY_MODE. Raises ConfigError for a budget in samples if there are several modes, because their
    samples differ in cost.
    """
    default, endpoints = menu.default, [mode.endpoint for mode in menu.modes]
    if menu.budget and config.serve.budget == ServeConfig().budget:
        config = replace(config, serve=replace(config.serve, budget=menu.budget))
    # a budget that is given as a required quality can't be checked here: only a policy knows its cost
    by_quality = names_quality(config.serve.budget)
    budget = None if by_quality else parse_serve_budgets(config.serve)[0]
    if budget is not None and budget.unit == "samples" and len(menu.modes) > 1:
        remedy = f"'0.1 {menu.currency} per 1,000 requests'" if menu.has_prices else "'500 tokens'"
        raise ConfigError(
            f"budget {budget} can't be kept over the menu of {', '.join(menu.names)}: their samples have "
            f"unlike costs; give it in {'money' if menu.has_prices else 'tokens'}, e.g. --budget {remedy}"
        )
    endpoint = replace(
        default.endpoint,
        model=EVERY_MODE if len(menu.modes) > 1 else default.endpoint.model,
        input_price=max(endpoint.input_price for endpoint in endpoints),
        output_price=max(endpoint.output_price for endpoint in endpoints),
    )
    return replace(config, endpoint=endpoint)


def read_mode_list(config: Config) -> tuple[Config, ModeConfigs | None]:
    """Reads the modes file that the settings name; returns adapted settings, and the modes or None."""
    if not config.serve.menu:
        return config, None
    menu = read_modes_file(Path(config.serve.menu))
    return apply_menu(config, menu), menu


def build_mode_endpoint(mode: ModeConfig) -> ModeEndpoint:
    """Builds a mode's endpoint, with its key; any ConfigError names the mode."""
    settings = mode.endpoint
    try:
        endpoint = build_endpoint(settings)
    except ConfigError as exc:
        raise ConfigError(f"mode {mode.name!r}: {exc}") from exc
    return ModeEndpoint(
        name=mode.name,
        endpoint=endpoint,
        model=settings.model,
        prices=settings.prices,
        cached_price=mode.cached_price,
        options=mode.options,
        system_suffix=mode.system_suffix,
    )


def build_mode_endpoints(menu: ModeConfigs) -> tuple[ModeEndpoint, ...]:
    """Builds the endpoints of all modes, in the order of menu.toml."""
    return tuple(map(build_mode_endpoint, menu.modes))
