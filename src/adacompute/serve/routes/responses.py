"""POST /v1/responses: answers a request like a chat if a chat can express it, otherwise forwards it upstream.

An upstream that has this route also gets requests to be stored (`store: true`), and requests for models that
have only this route. Both facts about the upstream are read from its errors, and remembered for five minutes.
"""

import re
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import orjson
from starlette.types import Message, Receive, Scope, Send

from adacompute.client.error_object import unwrap_error
from adacompute.client.response_parser import encode_json
from adacompute.errors import EndpointError, RequestInvalid, ServeError
from adacompute.serve.messages.reply import RequestOutcome, build_completion, build_note_header
from adacompute.serve.messages.request_parser import OPTIONS_FIELD, ChatRequest, split_model
from adacompute.serve.messages.responses import (
    UntranslatableRequest,
    build_response,
    describe_request,
    translate_names,
    translate_request,
)
from adacompute.serve.messages.responses_stream import ResponseStream
from adacompute.serve.routes.chat import ChatEndpoint, ChatShape
from adacompute.serve.routes.forward import ForwardEndpoint
from adacompute.serve.routes.gateway import ActiveRequest, Gateway
from adacompute.serve.spending.ledger import Unit

Body = dict[str, Any]

# seconds for which we remember that the upstream lacks /v1/responses, or that a model has only this route
_MEMORY_SECONDS = 300.0
_MISSING_STATUSES = (404, 405, 501)
_MISSING_CODES = (None, "not_found", "unknown_url")
_ROUTE = re.compile(r"(?:/?\bv1)?/responses\b")
_REQUIRED_STATUSES = (400, 404)
_REQUIRED = re.compile(r"\bonly (?:supported|available) (?:in|on|with|through|via) \S{0,40}v1/responses\b")
_MAX_MODELS = 256  # maximum number of models that are remembered as having only /v1/responses


class ResponsesShape(ChatShape):
    """The format of the Responses API, for one request.

    `find_reason` returns why a request is forwarded although a chat could express it, or None.
    """

    prefix = "resp_"

    def __init__(self, find_reason: Callable[[Body], str | None]) -> None:
        self.body: Body = {}  # the request's body, set once it is read
        self._find_reason = find_reason

    def translate(self, body: Body) -> Body:
        """Like `translate_request`; also raises UntranslatableRequest if the request should be forwarded."""
        self.body = body
        chat = translate_request(body)
        if reason := self._find_reason(body):
            raise UntranslatableRequest(reason, needed=False)
        return chat

    def build_reply(self, outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> dict[str, Any]:
        """Builds a complete response."""
        base = describe_request(request, outcome.id, outcome.at)
        completion = build_completion(outcome, request, unit=unit)
        return build_response(base, completion, outcome.at + outcome.seconds)

    def shape_events(
        self, active: ActiveRequest, events: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """Converts a chat's stream events to those of a response."""
        base = describe_request(active.sampling.request, active.id, active.at)
        return ResponseStream(base).translate(events)


class ResponsesEndpoint:
    """The endpoint /v1/responses as an ASGI app."""

    def __init__(
        self, gateway: Gateway, make_chat: Callable[[ChatShape], ChatEndpoint], forward: ForwardEndpoint
    ) -> None:
        self._gateway = gateway
        self._make_chat = make_chat
        self._forward = forward
        self._missing_until = 0.0  # monotonic time until which we assume that /v1/responses is missing
        # map: name of a model that only has /v1/responses -> monotonic time until which we assume so
        self._models: dict[str, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Raises errors that happen before the reply has begun."""
        try:
            request = await self._complete(scope, receive, send, self._find_reason)
            if request is not None and not await self._pass_on(scope, receive, send, request):
                again = _repeat_body(request.body, receive)
                await self._complete(scope, again, send, lambda _body: None)
        except RequestInvalid as exc:
            raise _translate_refusal(exc) from None
        except EndpointError as exc:
            _translate_reply(exc)
            raise

    async def _complete(
        self, scope: Scope, receive: Receive, send: Send, find_reason: Callable[[Body], str | None]
    ) -> UntranslatableRequest | None:
        """Answers a request as a chat, or sends nothing and returns why the request must be forwarded."""
        shape = ResponsesShape(find_reason)
        try:
            await self._make_chat(shape)(scope, receive, send)
        except UntranslatableRequest as exc:
            request = exc.with_traceback(None)  # the traceback would keep the request in memory
        except EndpointError as exc:
            if not self._has_route or not is_route_required(exc):
                raise
            self._remember_model(self._read_model(shape.body))
            request = UntranslatableRequest("model", refusal=exc.with_traceback(None))
        else:
            return None
        request.body = shape.body
        return request

    @property
    def _has_route(self) -> bool:
        """Whether the upstream has /v1/responses, as far as we know."""
        return self._gateway.settings.forward and time.monotonic() >= self._missing_until

    def _find_reason(self, body: Body) -> str | None:
        """Returns the field that makes us forward a request although a chat could answer it, or None."""
        if not self._has_route:
            return None
        if body.get("store"):
            return "store"
        is_known = self._models and self._models.get(self._read_model(body), 0.0) > time.monotonic()
        return "model" if is_known else None

    def _read_model(self, body: Body) -> str:
        return split_model(body, self._gateway.model, self._gateway.model_list.known)[0]

    def _remember_model(self, name: str) -> None:
        self._models.pop(name, None)
        self._models[name] = time.monotonic() + _MEMORY_SECONDS
        if len(self._models) > _MAX_MODELS:
            del self._models[next(iter(self._models))]

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, request: UntranslatableRequest
    ) -> bool:
        """Forwards a request; returns False if the upstream has no Responses API, only chat completions."""
        gateway, field = self._gateway, request.field

        def check_error(status: int, body: bytes) -> ServeError | None:
            if not is_route_missing(status, body):
                return None
            self._missing_until = time.monotonic() + _MEMORY_SECONDS
            return _make_unsupported(field)

        try:
            if not self._has_route:
                raise _make_unsupported(field)
            body = {name: value for name, value in request.body.items() if name != OPTIONS_FIELD}
            if body.get("model") is not None:  # if null, a stored prompt may name the model
                body["model"] = self._read_model(body)
            await self._forward.forward(scope, receive, _note_field(send, field), body, check_error)
        except ServeError as exc:
            refusal, request.refusal = request.refusal, None
            if refusal is not None and not self._has_route:
                raise refusal from None
            if not request.needed and not self._has_route:
                return False
            gateway.observability.on_refusal(exc.status, exc.code)
            raise
        return True


def _note_field(send: Send, field: str) -> Send:
    """Wraps `send`: adds a note to the reply, which names the request's field that prevents a vote."""
    place = field.partition(" ")[0]
    note = build_note_header([f"no vote: {place} needs the upstream's own /v1/responses"])
    headers = [(name.encode(), value.encode()) for name, value in note.items()]

    async def send_noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [pair for pair in message["headers"] if pair[0].decode("latin-1") not in note]
            message = {**message, "headers": others + headers}
        await send(message)

    return send_noted


def _repeat_body(body: Body, receive: Receive) -> Receive:
    """Returns a `receive` that delivers an already read body once more."""
    message: Message | None = {"type": "http.request", "body": encode_json(body), "more_body": False}

    async def receive_again() -> Message:
        nonlocal message
        if message is None:
            return await receive()
        first, message = message, None
        return first

    return receive_again


def is_route_required(error: EndpointError) -> bool:
    """Whether an upstream refuses a chat because the model only supports /v1/responses."""
    if error.reply is None or error.status not in _REQUIRED_STATUSES:
        return False
    return _REQUIRED.search(str(error.reply.fields.get("message")).lower()) is not None


def _translate_refusal(error: RequestInvalid) -> RequestInvalid:
    """Replaces the names of a chat's fields in an error by the Responses API's names for them."""
    param = error.param and translate_names(error.param)
    return RequestInvalid(translate_names(str(error)), status=error.status, code=error.code, param=param)


def _translate_reply(error: EndpointError) -> None:
    """Replaces the names of a chat's fields in an upstream's error by the Responses API's names for them."""
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
    """Whether an error means a missing route, rather than a missing model or response."""
    if status not in _MISSING_STATUSES:
        return False
    try:
        value = unwrap_error(orjson.loads(body))
    except orjson.JSONDecodeError:
        return True
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):  # some servers put the error's fields or text at the top level
        error = value | {"message": _find_message(value)} if isinstance(value, dict) else {}
    named = error.get("param") or error.get("code") not in (*_MISSING_CODES, status, str(status))
    words = _ROUTE.sub("", str(error.get("message", "")).lower())
    return not (named or "model" in words or "response" in words)


def _find_message(value: Body) -> str:
    texts = (value.get(name) for name in ("error", "message", "detail"))
    return " ".join(text for text in texts if isinstance(text, str))
