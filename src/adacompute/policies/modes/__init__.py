"""A policy over several modes (models or efforts): it stops, asks the same mode again, or asks another."""

from collections.abc import Sequence

from adacompute.errors import PolicyError
from adacompute.policies.base import Policy


def check_modes(policy: Policy, modes: Sequence[str], place: str, *, except_fixed: bool = True) -> None:
    """Raises PolicyError, with `place` in the message, if the policy can't draw from the modes `modes`.

    A policy over several modes needs all of its own modes in `modes`. A policy of one mode can't be used with
    several, unless it is a fixed policy and `except_fixed` is true; then it draws from the first mode.
    """
    names = () if policy.mode_set is None else policy.mode_set.names
    if len(modes) < 2 and len(names) < 2:
        return
    if len(names) < 2 and not (except_fixed and policy.kind == "fixed"):
        raise PolicyError(
            f"{place}: a {policy.kind} policy draws samples of one mode, and the menu has "
            f"{', '.join(modes)}; fit one with `adacompute fit --policy menu`, or give a menu of one mode"
        )
    if not modes:
        raise PolicyError(
            f"{place}: a {policy.kind} policy over {', '.join(names)} chooses among several modes, and "
            "samples of one model are drawn here; give their menu (--menu menu.toml)"
        )
    lacking = [name for name in names if name not in modes]
    if lacking:
        raise PolicyError(
            f"{place}: a {policy.kind} policy over {', '.join(names)} needs the mode {lacking[0]!r}, and the "
            f"menu has {', '.join(modes)}; name its table so, or fit again"
        )
