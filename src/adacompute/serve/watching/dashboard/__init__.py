"""The dashboard: one page that shows `Observability.dashboard_data()` and reloads it every two seconds.

Markup, style and script lie beside this file and are assembled here: one request, no build step, nothing from
outside.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Final

__all__ = ["CSP", "HEADERS", "PAGE"]


def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE = _read_asset("page.css")
_SCRIPT = f'"use strict";\n{_read_asset("charts.js")}\n{_read_asset("page.js")}'

PAGE: Final[bytes] = (
    _read_asset("page.html").replace("{{style}}", _STYLE).replace("{{script}}", _SCRIPT).encode()
)
CSP: Final = (  # nothing but what is in the page itself runs, and it talks to nobody but the gateway
    f"default-src 'none'; style-src {_hash_source(_STYLE)}; script-src {_hash_source(_SCRIPT)}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
