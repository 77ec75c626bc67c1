"""The gateway's pages: the dashboard with statistics, and the playground for asking questions.

Each page is built from the markup, styles and scripts in this folder, and loads no other files.
"""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final, NamedTuple

__all__ = ["DASHBOARD", "PLAYGROUND", "WebPage"]


class WebPage(NamedTuple):
    """A web page with its headers, as it is sent."""

    headers: Mapping[str, str]
    body: bytes


def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _build_page(name: str, *scripts: str) -> WebPage:
    style = _read_asset("base.css") + _read_asset(f"{name}.css")
    sources = [_read_asset(f"{script}.js") for script in ("elements", *scripts, name)]
    script = "\n".join(['"use strict";', *sources])
    policy = (  # lets the page run only its own scripts, and contact only the gateway
        f"default-src 'none'; style-src {_hash_source(style)}; script-src {_hash_source(script)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
    body = _read_asset(f"{name}.html")
    for part in ("head", "brand"):
        body = body.replace(f"{{{{{part}}}}}", _read_asset(f"{part}.html"))
    return WebPage(headers, body.replace("{{style}}", style).replace("{{script}}", script).encode())


DASHBOARD: Final = _build_page("dashboard", "charts")
PLAYGROUND: Final = _build_page("playground")
