"""What is to be done with a request, by its headers and the operator's settings. Draws nothing."""

import re
from collections.abc import Collection, Mapping

from adacompute.config import ServeConfig
from adacompute.errors import RequestInvalid
from adacompute.serve.asked import Ask, Mode, Route

__all__ = ["routed"]

_PREFIX = "x-adacompute-"
_KNOWN = tuple(_PREFIX + name for name in ("budget", "policy", "mode", "deadline"))
_STEP = 0.25  # of clients' budgets: each has a dial of its own, which has to see some traffic to be right
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def routed(
    ask: Ask,
    headers: Mapping[str, str],
    *,
    settings: ServeConfig,
    key: str,
    policies: Collection[str],
    default: str,
) -> Route:
    """The route of a request; RequestInvalid where a header of ours can't be followed.

    Names in `headers` are in lower case. `default` is the policy of those that name none of `policies`.
    """
    own = _own(headers)
    notes: list[str] = []
    return Route(
        key=key,
        policy=_policy(own, policies, default),
        budget=_budget(ask, own, settings, notes),
        mode=_mode(own, settings.mode),
        deadline=_deadline(own, settings.deadline, notes),
        notes=tuple(notes),
    )


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are meant for us; one that nobody knows would be dropped in silence."""
    found: dict[str, str] = {}
    for name, text in headers.items():
        if not name.startswith(_PREFIX):
            continue
        if name not in _KNOWN:
            raise RequestInvalid(
                f"the header {name[:60]!r} is not known; known are {', '.join(_KNOWN)}", param=name[:60]
            )
        if name in found:  # some mappings of headers give each that came
            raise RequestInvalid(f"the header {name} is given twice; give it once", param=name)
        found[name] = text.strip()
    return found


def _budget(ask: Ask, own: Mapping[str, str], settings: ServeConfig, notes: list[str]) -> float:
    most = max(1.0, settings.max_budget)
    name = _PREFIX + "budget"
    if name in own:
        wanted = _number(own[name])
        if wanted is None or wanted < 1.0:
            raise RequestInvalid(
                f"{name} is {own[name][:60]!r}; give the samples on average, from 1 to {most:g}", param=name
            )
    elif ask.budget is not None:
        wanted = ask.budget
    else:
        return min(max(1.0, settings.budget), most)
    if wanted > most:
        notes.append(f"budget {wanted:g} is more than may be asked for: it is {most:g}")
        return most
    if wanted in (settings.budget, most):
        return wanted
    served = min(max(1.0, round(wanted / _STEP) * _STEP), most)
    if served != wanted:
        notes.append(f"budget {wanted:g} is served as {served:g}")
    return served


def _policy(own: Mapping[str, str], policies: Collection[str], default: str) -> str:
    name = _PREFIX + "policy"
    wanted = own.get(name, default)
    if name in own and wanted not in policies:
        raise RequestInvalid(
            f"{name} is {wanted[:60]!r}; give one of {', '.join(sorted(policies))}", param=name
        )
    return wanted


def _mode(own: Mapping[str, str], mode: Mode) -> Mode:
    name = _PREFIX + "mode"
    if name not in own:
        return mode
    if own[name] != "pass":  # what the operator has set can't be raised by a client
        raise RequestInvalid(f"{name} is {own[name][:60]!r}; only pass may be asked for", param=name)
    return "pass"


def _deadline(own: Mapping[str, str], most: float, notes: list[str]) -> float:
    name = _PREFIX + "deadline"
    if name not in own:
        return most
    wanted = _number(own[name])
    if not wanted:
        raise RequestInvalid(
            f"{name} is {own[name][:60]!r}; give seconds above 0, at most {most:g}", param=name
        )
    if wanted > most:
        notes.append(f"deadline {wanted:g} s is more than may be asked for: it is {most:g} s")
    return min(wanted, most)


def _number(text: str) -> float | None:
    """A plain decimal number; `float` would also take nan, 1_000 and other scripts' digits."""
    return float(text) if _NUMBER.fullmatch(text) else None
