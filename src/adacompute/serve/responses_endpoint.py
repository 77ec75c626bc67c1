"""POST /v1/responses: voted on like chat where a chat can express it, else passed on to the upstream's own.

Whether the upstream has that route at all is learned from its first answer.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from adacompute.errors import EndpointError, RequestInvalid, ServeError
from adacompute.serve.chat import (
    ActiveRequest,
    Authenticate,
    ChatEndpoint,
    ChatShape,
    Gateway,
    RequestSlots,
)
from adacompute.serve.forward import ForwardEndpoint
from adacompute.serve.ledger import Unit
from adacompute.serve.reply import RequestOutcome, build_completion
from adacompute.serve.request_options import OPTIONS_FIELD
from adacompute.serve.request_parser import ChatRequest, split_model
from adacompute.serve.responses import (
    UntranslatableRequest,
    build_response,
    describe_request,
    translate_names,
    translate_request,
)
from adacompute.serve.responses_stream import ResponseStream

__all__ = ["ResponsesEndpoint", "ResponsesShape", "is_route_missing"]

_MISSING_SECONDS = 300.0  # that it is remembered that the upstream has no such route
_MISSING_STATUSES = (404, 405, 501)


class ResponsesShape(ChatShape):
    """The shape of the Responses API."""

    prefix = "resp_"
    translate = staticmethod(translate_request)

    def build_reply(self, outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> dict[str, Any]:
        """A whole response."""
        base = describe_request(request, outcome.id, outcome.at)
        completion = build_completion(outcome, request, unit=unit)
        return build_response(base, completion, outcome.at + outcome.seconds)

    def shape_events(
        self, active: ActiveRequest, events: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """The events of a response's stream."""
        base = describe_request(active.sampling.request, active.id, active.at)
        return ResponseStream(base).translate(events)


class ResponsesEndpoint:
    """The endpoint as an ASGI app."""

    def __init__(
        self, gateway: Gateway, authenticate: Authenticate, slots: RequestSlots, forward: ForwardEndpoint
    ) -> None:
        self._gateway = gateway
        self._endpoint = ChatEndpoint(gateway, authenticate, slots, ResponsesShape())
        self._forward = forward
        self._missing_until = 0.0  # by the event loop's clock; until then the upstream has no such route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Errors before the reply has begun are raised."""
        try:
            await self._endpoint(scope, receive, send)
        except UntranslatableRequest as exc:
            await self._pass_on(scope, receive, send, exc)
        except RequestInvalid as exc:
            raise _translate_refusal(exc) from None
        except EndpointError as exc:
            _translate_reply(exc)
            raise

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, request: UntranslatableRequest
    ) -> None:
        gateway = self._gateway

        def check_error(status: int, body: bytes) -> ServeError | None:
            if not is_route_missing(status, body):
                return None
            self._missing_until = asyncio.get_running_loop().time() + _MISSING_SECONDS
            return _make_unsupported(request.field)

        try:
            if not gateway.settings.forward or asyncio.get_running_loop().time() < self._missing_until:
                raise _make_unsupported(request.field)
            body = {field: value for field, value in request.body.items() if field != OPTIONS_FIELD}
            if body.get("model") is not None:  # a prompt template may name it
                body["model"], _ = split_model(body, gateway.model, gateway.model_list.known)
            await self._forward.forward_body(scope, receive, send, body, check_error)
        except ServeError as exc:
            gateway.observability.on_refusal(exc.status, exc.code)
            raise


def _translate_refusal(error: RequestInvalid) -> RequestInvalid:
    """An error about a chat's field as one about the field that it was made of."""
    param = error.param and translate_names(error.param)
    return RequestInvalid(translate_names(str(error)), status=error.status, code=error.code, param=param)


def _translate_reply(error: EndpointError) -> None:
    """The same for what the upstream said."""
    if error.reply is not None:
        fields = dict(error.reply.fields)
        for name in ("message", "param"):
            if isinstance(fields.get(name), str):
                fields[name] = translate_names(fields[name])
        error.reply = replace(error.reply, fields=fields)


def _make_unsupported(field: str) -> RequestInvalid:
    return RequestInvalid(
        f"{field} can't be expressed as a chat completion, and the upstream has no /v1/responses of its own; "
        "leave it out, or ask the operator for an upstream that has",
        code="unsupported_parameter",
        param=field.partition(" ")[0],
    )


def is_route_missing(status: int, body: bytes) -> bool:
    """Whether an error says that there is no such route, and not that there is no such model or response."""
    if status not in _MISSING_STATUSES:
        return False
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return True
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return True
    named = error.get("param") or error.get("code") not in (None, status, str(status), "not_found")
    words = re.sub(r"/?v1/responses", "", str(error.get("message", "")).lower())
    return not (named or "model" in words or "response" in words)
