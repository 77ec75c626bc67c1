"""The gateway's own pages: models, health, metrics, dashboard, playground, and the current budget."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
import orjson
from starlette.types import Receive, Scope, Send

from adacompute.config import average_budget
from adacompute.errors import ConfigError, LedgerUnavailable, RequestInvalid, Unauthorized
from adacompute.records import Budget
from adacompute.serve.messages.reply import dump_json
from adacompute.serve.routes.chat import (
    Keys,
    check_content_type,
    check_host,
    read_body,
    read_headers,
    send_reply,
)
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.watching.web_pages import DASHBOARD, PLAYGROUND

BUDGET_PATH = "/admin/budget"
_log = logging.getLogger("adacompute.serve")
_JSON_HEADERS = {"content-type": "application/json", "cache-control": "no-store"}
_METRICS_HEADERS = {"content-type": "text/plain; version=0.0.4; charset=utf-8", "cache-control": "no-store"}
_MAX_PATCH = 4096  # maximum size of a request to change the budget, in bytes

Reply = tuple[int, Mapping[str, str], bytes]  # status, headers, body


class Pages:
    """Builds the reply of each page."""

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway = gateway
        self._authenticate, self._check_operator = keys.authenticate, keys.check_operator

    async def list_models(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """Lists the upstream's models."""
        self._authenticate(headers)
        models = await self._gateway.list_models()
        described = await asyncio.to_thread(self._describe_models, models.values())
        return 200, _JSON_HEADERS, dump_json({"object": "list", "data": described})

    async def describe_model(self, scope: Scope, headers: Mapping[str, str]) -> Reply:
        """Describes one model."""
        self._authenticate(headers)
        name = scope["path_params"]["name"]
        model = (await self._gateway.list_models()).get(name)
        if model is None:
            raise RequestInvalid(
                f"model {name[:100]!r} is not known; /v1/models lists those that are",
                status=404,
                code="model_not_found",
            )
        (described,) = self._describe_models([model])
        return 200, _JSON_HEADERS, dump_json(described)

    def _describe_models(self, models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Describes models as the upstream does, but masks its address and the gateway's key."""
        return [_describe_model(model) for model in self._gateway.resources.client.mask_models(models)]

    async def health(self, _scope: Scope, _headers: Mapping[str, str]) -> Reply:
        """Says that the process is running."""
        return 200, _JSON_HEADERS, b'{"status":"ok"}'

    async def readiness(self, _scope: Scope, _headers: Mapping[str, str]) -> Reply:
        """Says whether the gateway accepts requests."""
        if not self._gateway.ready:
            return 503, _JSON_HEADERS, b'{"status":"closing"}'
        if not self._gateway.resources.ledger.available:
            return 503, _JSON_HEADERS, b'{"status":"ledger unavailable"}'
        if self._gateway.is_upstream_resting:  # a failing upstream doesn't make the gateway unready
            return 200, _JSON_HEADERS, b'{"status":"ready","upstream":"unreachable"}'
        return 200, _JSON_HEADERS, b'{"status":"ready"}'

    async def metrics(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """Returns the metrics in Prometheus's format."""
        self._check_operator(headers)
        summary = await self._gateway.describe_traffic()
        of_workers = self._gateway.add_workers is not None
        return (
            200,
            _METRICS_HEADERS,
            self._gateway.observability.render_metrics(summary, of_workers=of_workers),
        )

    async def dashboard(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The dashboard page."""
        self._check_operator(headers)
        return 200, *DASHBOARD

    async def dashboard_data(self, scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The dashboard's data for the last hour, or with `?span=day` for the last day."""
        self._check_operator(headers)
        span = "day" if scope.get("query_string") == b"span=day" else "hour"
        return 200, _JSON_HEADERS, orjson.dumps(await self._gateway.describe_traffic(span))

    async def playground(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """Returns the playground page. It has no private data, so no key is needed to load it."""
        if not self._gateway.keys:
            check_host(headers.get("host", ""))
        return 200, *PLAYGROUND

    async def playground_data(self, _scope: Scope, headers: Mapping[str, str]) -> Reply:
        """The playground's data about the gateway."""
        self._authenticate(headers)
        return 200, _JSON_HEADERS, dump_json(await self._gateway.describe_playground())


class PageEndpoint:
    """Serves one page, as an ASGI app."""

    def __init__(self, handler: Callable[[Scope, Mapping[str, str]], Awaitable[Reply]]) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Sends the page."""
        await send_reply(send, *await self._handler(scope, read_headers(scope)))


class BudgetEndpoint:
    """An ASGI app that shows the current budget; operators can change it until the next restart."""

    def __init__(self, gateway: Gateway, check_operator: Callable[[Mapping[str, str]], str]) -> None:
        self._gateway, self._check_operator = gateway, check_operator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the current budget; a PATCH request changes it first."""
        gateway, headers = self._gateway, read_headers(scope)
        key = self._check_operator(headers)
        if scope["method"] == "PATCH":
            if not gateway.keys:
                raise Unauthorized(
                    "only an operator's key may change the budget, and there are no keys; give a keys file "
                    "(--keys FILE) with operator = true, or change adacompute.toml and send SIGHUP",
                    status=403,
                    code="not_the_operator",
                )
            check_content_type(headers)
            await self._change(await read_body(receive, headers, limit=_MAX_PATCH), key)
        budget = gateway.budget
        reply = {
            "budget": str(budget),
            "amount": budget.amount,
            "unit": budget.currency or budget.unit,
            "source": f"PATCH {BUDGET_PATH}" if gateway.patched_budget else "settings",
            "settings": str(average_budget(gateway.config)),
        }
        await send_reply(send, 200, _JSON_HEADERS, dump_json(reply))

    async def _change(self, raw: bytes, key: str) -> None:
        gateway = self._gateway
        if not gateway.resources.ledger.available:
            raise LedgerUnavailable("the budget can't be shared while the ledger is closed; try again later")
        before, text = gateway.budget, ""
        try:
            value = _parse_patch(raw)
            if value is not None:
                currency = gateway.config.endpoint.currency
                text = str(Budget.parse(value, unit=gateway.settings.unit, currency=currency))
            gateway.set_budget(text)
        except ConfigError as exc:
            raise RequestInvalid(str(exc), param="budget") from exc
        if gateway.share_budget is not None:
            await gateway.share_budget(text)
        _log.warning("budget %s now, in place of %s: changed by key %s", gateway.budget, before, key)


class _Patch(msgspec.Struct, forbid_unknown_fields=True):
    budget: float | str | None  # the new budget; None restores the one in the settings


def _parse_patch(raw: bytes) -> float | str | None:
    """Reads the new budget from a request's body."""
    try:
        return msgspec.json.decode(raw, type=_Patch).budget
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RequestInvalid(
            'the body is not a budget; send {"budget": 3} or {"budget": "2 USD per 1000"}, or '
            '{"budget": null} for the one in the settings',
            param="budget",
        ) from None


def _describe_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """Completes the upstream's description of a model: adds missing fields that clients rely on."""
    created, owner = model.get("created"), model.get("owned_by")
    return {
        **model,
        "object": "model",
        "created": created if isinstance(created, int) and not isinstance(created, bool) else 0,
        "owned_by": owner if isinstance(owner, str) and owner else "upstream",
    }
