"""One OpenAI-compatible upstream: asked, counted, paced. Knows nothing of problems, pools or policies."""

from adacompute.endpoint.client import Client
from adacompute.endpoint.events import Event
from adacompute.endpoint.gate import Gate
from adacompute.endpoint.manners import Manners
from adacompute.endpoint.outcome import Answered, Failed, Outcome, Reply, Response
from adacompute.endpoint.settings import Endpoint, Limits, Rest, Retries, Timeouts
from adacompute.endpoint.streaming import Stream
from adacompute.endpoint.totals import Totals
from adacompute.endpoint.unwanted import LOGPROBS

__all__ = [
    "LOGPROBS",
    "Answered",
    "Client",
    "Endpoint",
    "Event",
    "Failed",
    "Gate",
    "Limits",
    "Manners",
    "Outcome",
    "Reply",
    "Response",
    "Rest",
    "Retries",
    "Stream",
    "Timeouts",
    "Totals",
]
