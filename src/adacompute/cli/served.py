"""What the gateway says of itself when it starts. Knows nothing of how it serves."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adacompute.cli.show import counted, fact, line
from adacompute.config import ServeConfig

if TYPE_CHECKING:
    from adacompute.serve.gateway import Gateway

__all__ = ["facts_of", "show_facts", "show_started", "state_of"]

_ASK = '{{"model": "{model}", "messages": [{{"role": "user", "content": "What is 6 times 7?"}}]}}'
_MODES = {
    "adaptive": "",
    "shadow": "shadow: one sample each; what the policy would do is only noted",
    "pass": "pass: one sample each, no votes",
}


def facts_of(gateway: "Gateway", url: str) -> dict[str, Any]:
    """What there is to say of a gateway at that address, which has no path."""
    settings = gateway.settings
    served = gateway.shelf.of(gateway.shelf.default)
    return {
        "url": f"{url}/v1",
        "dashboard": f"{url}/dashboard",
        "upstream": urlsplit(gateway.config.endpoint.url).netloc.rpartition("@")[2],
        "model": gateway.config.endpoint.model or None,
        "only": gateway.model or None,  # the model that requests may leave out
        "policy": served.name,
        "kind": served.policy.kind,
        "version": served.version,
        "policies": list(gateway.shelf.names),
        "budget": settings.budget,
        "mode": settings.mode,
        "caps": _caps(settings),
        "keys": len(gateway.keys),
        "state": state_of(settings),
        "record": settings.record or None,
    }


def show_started(facts: dict[str, Any]) -> None:
    """That it listens, and what it does, for a person."""
    line(f"gateway at {facts['url']}: give that to an OpenAI client as its base_url")
    line()
    show_facts(facts)
    line()
    key = " -H 'authorization: Bearer KEY'" if facts["keys"] else ""
    ask = _ASK.format(model=facts["model"] or facts["only"] or "default")
    line(f"  curl {facts['url']}/chat/completions{key} -H 'content-type: application/json' -d '{ask}'")
    line()
    line("Ctrl-C stops it, once requests under way are done")


def show_facts(facts: dict[str, Any]) -> None:
    """What it is and does, a line each."""
    fact("upstream", facts["upstream"] + (f", model {facts['model']}" if facts["model"] else ""))
    fact("policy", f"{facts['policy']} ({facts['kind']}, version {facts['version']})")
    fact("budget", f"{facts['budget']:g} samples a request on average")
    if how := _MODES[facts["mode"]]:
        fact("mode", how)
    fact("caps", facts["caps"] or "none")
    fact(
        "keys", counted(facts["keys"], "key") if facts["keys"] else "none: open to everybody on this machine"
    )
    fact("state", facts["state"])
    if facts["record"]:
        fact("record", facts["record"])
    if facts["dashboard"]:
        fact("dashboard", facts["dashboard"])


def state_of(settings: ServeConfig) -> str:
    """Where the ledger is kept."""
    return f"{settings.redis}, fleet {settings.fleet}" if settings.redis else settings.state


def _caps(settings: ServeConfig) -> str | None:
    """The caps in words; None where there are none but those of keys of their own."""
    parts = [f"{settings.cap:,g} {settings.unit} in all"] if settings.cap else []
    parts += [f"{settings.key_cap:,g} {settings.unit} a key"] if settings.key_cap else []
    if not parts:
        return None
    return ", ".join(parts) + ("" if settings.window == "ever" else f", each {settings.window}")
