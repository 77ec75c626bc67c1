"""`adacompute serve --check`: everything is opened as it would be, and closed. Leaves no file behind."""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from adacompute.cli.served import facts_of, show_facts, state_of
from adacompute.cli.show import fact, line
from adacompute.config import Config
from adacompute.errors import PolicyError
from adacompute.policies.artefact import DOCUMENT
from adacompute.policies.registry import POLICIES

__all__ = ["check_policy", "checked", "show_checked"]


def checked(config: Config) -> dict[str, Any]:
    """What there is to say of a gateway of these settings; the error where there can't be one."""
    from adacompute.serve import server  # here and below: other commands don't wait for it

    check_policy(config.serve.policy)
    with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
        return runner.run(_checked(config))


def check_policy(folder: str) -> None:
    """Says what to do where a policy's name stands for its folder, or the folder isn't there."""
    if not folder or (Path(folder) / DOCUMENT).exists():
        return
    if folder == "stopping" and not Path(folder).exists():
        raise PolicyError(
            "policy 'stopping' is no folder; leave --policy out for the one in the package, or give a folder "
            "that `adacompute fit` wrote"
        )
    named = f" ({folder} is a kind of policy)" if folder in POLICIES and not Path(folder).exists() else ""
    raise PolicyError(f"policy {folder!r} is no policy's folder{named}; give one that `adacompute fit` wrote")


def show_checked(facts: dict[str, Any]) -> None:
    """That it could be served."""
    line(f"ready to be served at {facts['url'] or 'any free port'}")
    line()
    show_facts(facts)
    models: list[str] = facts["models"]
    more = ", …" if len(models) > 8 else ""
    listed = f"{', '.join(models[:8])}{more}"
    fact("models", f"{len(models)}: {listed}" if models else "none listed")
    if facts["model"] and facts["model"] not in models:
        lists = f"lists {listed}; not" if models else "doesn't list"
        fact("warning", f"the upstream {lists} {facts['model']}: requests may fail with 404; see --model")


async def _checked(config: Config) -> dict[str, Any]:
    from adacompute.serve import server
    from adacompute.serve.opening import opened

    url = server.check(config)
    with _tried(config) as trial:
        async with opened(trial) as gateway:
            listed = await gateway.means.client.models()
            facts = facts_of(gateway, url)
    settings = config.serve
    facts |= {"state": state_of(settings), "record": settings.record or None, "models": listed}
    return facts if settings.port else facts | {"url": None, "dashboard": None}


@contextlib.contextmanager
def _tried(config: Config) -> Iterator[Config]:
    """The settings, with files that aren't there yet made in a folder beside them that goes again."""
    with contextlib.ExitStack() as stack:
        trial = config.serve
        for name in ("record",) if trial.redis else ("state", "record"):
            path = Path(getattr(trial, name) or ".")
            if path.exists():
                continue
            with contextlib.suppress(OSError):  # then it is opened as it is, and says so itself
                beside = stack.enter_context(
                    tempfile.TemporaryDirectory(dir=path.parent, prefix=".adacompute-check-")
                )
                made: dict[str, Any] = {name: str(Path(beside) / path.name)}
                trial = replace(trial, **made)
        yield replace(config, serve=trial)
