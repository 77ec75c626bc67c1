"""docs/gateway.md and the reference name every metric, key of a reply, header, code of an error and route."""

import re
from pathlib import Path

from adacompute.config import ServeConfig
from adacompute.errors import ServeError
from adacompute.serve.messages.reply import ModeUse, RequestOutcome, VerifierUse, build_extra, build_headers
from adacompute.serve.messages.request_parser import RequestOptions, get_header
from adacompute.serve.watching.observability import Observability

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "gateway.md").read_text("utf-8")
REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "adacompute"
TOLD = RequestOutcome(
    id="chatcmpl-1",
    at=0.0,
    seconds=1.0,
    key="k",
    model="m",
    policy="stopping",
    mode="shadow",
    budget=2.0,
    price=0.1,
    samples=2,
    missing=1,
    would=3,
    answer="4",
    votes={"4": 2},
    agreement=1.0,
    agreed=True,
    abstained=1,
    weak=True,
    certified=True,
    verified=VerifierUse(calls=2),
    modes=(ModeUse(name="small", samples=2),),
    answered_by="small",
    notes=("a note",),
)


def section(title: str) -> str:
    return re.split(rf"^## {title}$", PAGE, flags=re.MULTILINE)[1].partition("\n## ")[0]


def named(text: str) -> set[str]:
    """What stands in backquotes in the first column of a page's tables."""
    rows = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def test_c27_every_metric_is_in_the_reference_and_no_other():
    text = Observability(ServeConfig(), modes=("small", "large")).render_metrics().decode()
    kinds = dict(re.findall(r"^# TYPE adacompute_(\S+) (\S+)$", text, re.MULTILINE))
    there = {name for name in kinds if not name.endswith("_created")}
    assert named((REFERENCE / "metrics.md").read_text("utf-8")) == there


def test_every_key_of_a_reply_is_on_the_page_and_no_other():
    assert named(section("Replies")) == set(build_extra(TOLD, unit="samples"))


def test_every_header_is_on_the_page():
    assert named(section("Requests")) == {get_header(name) for name in RequestOptions.__struct_fields__}
    assert all(f"`{name}`" in section("Replies") for name in build_headers(TOLD))


def test_every_code_of_an_error_is_in_the_reference():
    page = (REFERENCE / "errors.md").read_text("utf-8").partition("## Errors of the gateway")[2]
    files = [*sorted((SOURCE / "serve").rglob("*.py")), SOURCE / "errors.py"]
    text = "\n".join(file.read_text("utf-8") for file in files)
    codes = set(re.findall(r'\bcode ?= ?"([a-z_]+)"', text))
    codes |= set(
        re.findall(r'"(upstream_[a-z_]+)"', (SOURCE / "serve" / "messages" / "reply.py").read_text("utf-8"))
    )
    assert ServeError.code in codes
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []


def test_every_route_is_on_the_page():
    routes = set(re.findall(r'\bRoute\("([^"]+)"', (SOURCE / "serve" / "http" / "app.py").read_text("utf-8")))
    shown = section("Routes").replace("NAME", "{name:path}")
    assert {route for route in routes if route not in shown} <= {"/dashboard/data"}
