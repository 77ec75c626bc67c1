"""A client for one OpenAI-compatible endpoint: retries, rate limits, token counts.

This package knows nothing about problems, pools or policies.
"""

from adacompute.client.client import Client, ModelList
from adacompute.client.forward import ForwardReply, ForwardRequest
from adacompute.client.response_parser import DrawFailure, DrawSuccess, Response
from adacompute.client.retry import AttemptTracer
from adacompute.client.server_quirks import ADDED_LIMIT, LIMIT_NAME, LOGPROBS
from adacompute.client.settings import BreakerSettings, Endpoint, ModeEndpoint, RateLimits, Retries, Timeouts
from adacompute.client.streaming import Event, Stream
from adacompute.client.verifier import Verifier, VerifierReply

__all__ = [
    "ADDED_LIMIT",
    "LIMIT_NAME",
    "LOGPROBS",
    "AttemptTracer",
    "BreakerSettings",
    "Client",
    "DrawFailure",
    "DrawSuccess",
    "Endpoint",
    "Event",
    "ForwardReply",
    "ForwardRequest",
    "ModeEndpoint",
    "ModelList",
    "RateLimits",
    "Response",
    "Retries",
    "Stream",
    "Timeouts",
    "Verifier",
    "VerifierReply",
]
