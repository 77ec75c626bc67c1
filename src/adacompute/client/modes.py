"""The modes of a menu, each with its endpoint: what a request to it looks like, and what its tokens cost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.client.settings import Endpoint, build_endpoint
from adacompute.config import MenuConfig, ModeConfig
from adacompute.errors import ConfigError
from adacompute.records import TokenPrices

_MESSAGE_TOKENS = 16  # that a model's template may add for a message
_INSTRUCTION_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeEndpoint:
    """One way to ask for a sample. Two modes may have the same endpoint, with different options."""

    name: str
    endpoint: Endpoint
    model: str
    prices: TokenPrices = field(default_factory=TokenPrices)
    cached_price: float | None = None  # of a million cached prompt tokens; None: as other prompt tokens
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # merged into every request
    system_suffix: str = ""  # added to the system message

    @property
    def max_tokens(self) -> int | None:
        """The limit of one response that the mode itself sets; None: it sets none."""
        return min((self.options[name] for name in LIMIT_NAMES if name in self.options), default=None)

    @property
    def all_options(self) -> dict[str, Any]:
        """What it adds to requests, as it stands in a menu's file."""
        return {**self.options, **({"system_suffix": self.system_suffix} if self.system_suffix else {})}

    @property
    def added_tokens(self) -> int:
        """An upper bound on the tokens that the mode adds to a prompt, for any tokenizer of bytes."""
        options = {name: value for name, value in self.options.items() if name not in LIMIT_NAMES}
        suffix = len(self.system_suffix.encode()) + _MESSAGE_TOKENS if self.system_suffix else 0
        return suffix + (len(json.dumps(options)) if options else 0)

    def build_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request as this mode asks it: with its model, its options and its addition to the system message.

        Of two limits of tokens, the request's and the mode's, the smaller one is kept, under the request's
        name for it.
        """
        built = {**body, "model": self.model}
        for name, value in self.options.items():
            if name not in LIMIT_NAMES:
                built[name] = value
        limit = self.max_tokens
        if limit is not None:
            names = [name for name in LIMIT_NAMES if body.get(name) is not None]
            for name in names or [name for name in LIMIT_NAMES if name in self.options]:
                built[name] = min(limit, built.get(name) or limit)
        if self.system_suffix:
            built["messages"] = add_instruction(body["messages"], self.system_suffix)
        return built


def add_instruction(messages: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]]:
    """Messages with a text at the end of the first instruction; one of its own where there is none.

    >>> add_instruction([{"role": "user", "content": "Hi"}], "Be brief.")
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    """
    extended = [dict(message) for message in messages]
    for message in extended:
        if message.get("role") in _INSTRUCTION_ROLES:
            content = message.get("content")
            if isinstance(content, list):
                message["content"] = [*content, {"type": "text", "text": text}]
            else:
                message["content"] = f"{content}\n{text}" if content else text
            return extended
    return [{"role": "system", "content": text}, *extended]


def build_mode_endpoint(mode: ModeConfig) -> ModeEndpoint:
    """A mode with its endpoint and key; the ConfigError names the mode."""
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


def build_mode_endpoints(menu: MenuConfig) -> tuple[ModeEndpoint, ...]:
    """The modes of a menu, in its order."""
    return tuple(map(build_mode_endpoint, menu.modes))
