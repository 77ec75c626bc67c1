"""Every route keeps to its description: requests of schemathesis, in a pytest that test_schema.py starts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from running import Running, serve_one_answer
from schemathesis.checks import CHECKS, load_all_checks

from adacompute.serve.messages.request_parser import OPTIONS_FIELD

load_all_checks()
schema = schemathesis.openapi.from_dict(
    json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text("utf-8"))
)
UNCHECKED = [  # there are no keys; and a description can't tell 10 from 10.0, nor a text from its decimals
    CHECKS.get_one(name) for name in ("ignored_auth", "negative_data_rejection", "positive_data_acceptance")
]


@pytest.fixture(scope="module")
def gate() -> Iterator[Running]:
    with serve_one_answer() as running:
        yield running


def has_deadline(case: Any) -> bool:
    """Whether a case has a deadline of its own."""
    options = case.body.get(OPTIONS_FIELD) if isinstance(case.body, dict) else None
    return "x-adacompute-deadline" in (case.headers or {}) or bool(options and options.get("deadline"))


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_c10_every_route_keeps_to_its_description(case: Any, gate: Running):
    response = case.call(base_url=gate.base)
    if response.status_code == 504 and has_deadline(case):
        # 128 samples within the second that the client gave may be too many for a busy machine
        assert response.json()["error"]["code"] == "upstream_timeout"
        return
    case.validate_response(response, excluded_checks=UNCHECKED)
