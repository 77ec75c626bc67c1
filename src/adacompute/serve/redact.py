"""Texts without secrets: those that are known, and all that looks like one. Knows nothing of logs.

A key may be written in many ways: as it is, quoted for a URL, escaped for JSON or by `repr`, or in Base64 in
an Authorization header.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

from adacompute.records import Secret

__all__ = ["MASK", "Redactor"]

MASK = "***"

_HEADERS = (
    r"(?:proxy-)?authorization|x-api-key|api[-_]?key|access[-_]?token|set-cookie|cookie|passw(?:or)?d|secret"
)
_LOOKS = (
    # the scheme is kept, the credentials are not
    (re.compile(r"\b(bearer|basic)(\s+|%20|\+)[A-Za-z0-9._~+/=\-]{4,}", re.IGNORECASE), rf"\1 {MASK}"),
    # a name, perhaps the end of a quote, what separates, perhaps a quote, and the value to its end
    (
        re.compile(
            rf"\b({_HEADERS})\b(\\?['\"]?\s*(?:[:=]|,)\s*(?:b?\\?['\"])?)(?!(?:bearer|basic)\b)[^\s'\",;&\\)}}\]]{{4,}}",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{6,}"), MASK),
    (re.compile(r"\b(?:hf|gsk|ghp|gho|glpat|xai|xox[abp]|AKIA|AIza)[-_]?[A-Za-z0-9_\-]{12,}"), MASK),
    (re.compile(r"\b(\w{1,20}://)[^/\s:@]{0,99}:[^/\s@]+@"), rf"\1{MASK}@"),
)
_NAME = re.compile(_HEADERS, re.IGNORECASE)
# one of these is in whatever a pattern above finds: looking for them first is a hundred times faster
_HINTS = (
    *("bearer", "basic", "authorization", "api", "access", "cookie", "passw", "secret", "://"),
    *("sk-", "pk-", "rk-", "hf", "gsk", "ghp", "gho", "glpat", "xai", "xox", "akia", "aiza"),
)
_SHORTEST = 8  # what is shorter holds no key


class Redactor:
    """Masks known secrets and what looks like a key.

    >>> Redactor([Secret("opensesame")]).text("key opensesame, header 'Authorization: Bearer abcd1234'")
    "key ***, header 'Authorization: Bearer ***'"
    """

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        held = [secret for secret in dict.fromkeys(secrets) if secret.reveal()]
        forms = {form for secret in held if secret.guarded for form in _forms(secret.reveal())}
        self._forms = sorted(forms, key=len, reverse=True)  # a form may hold another
        self._short = [secret for secret in held if not secret.guarded]
        self.name = lru_cache(maxsize=512)(self.text)  # for names in the code, which come again and again

    def text(self, text: str) -> str:
        """The text, masked."""
        for secret in self._short:
            text = secret.unsaid(text)
        if len(text) < _SHORTEST:
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        low = text.lower()
        for hint in _HINTS:
            if hint in low:
                for pattern, mask in _LOOKS:
                    text = pattern.sub(mask, text)
                break
        return text

    def value(self, value: object, depth: int = 0) -> object:
        """A value as JSON can hold it, every text in it masked."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray):
            return self.text(bytes(value).decode("utf-8", "replace"))
        if depth < 6:
            if isinstance(value, Mapping):
                return {
                    self.text(str(name)): self.named(name, item, depth + 1) for name, item in value.items()
                }
            if isinstance(value, list | tuple | set | frozenset):
                return [self.value(item, depth + 1) for item in value]
        return self.text(str(value))

    def named(self, name: object, item: object, depth: int = 0) -> object:
        """Likewise, by its name: what that says is secret is masked whatever it looks like."""
        if isinstance(item, str | bytes) and _NAME.fullmatch(str(name)):
            return MASK
        return self.value(item, depth)


def _forms(text: str) -> set[str]:
    """The ways in which a text is written."""
    raw = text.encode("utf-8", "surrogatepass")
    forms = {
        text,
        quote(text),
        quote(text, safe=""),
        quote_plus(text),
        json.dumps(text)[1:-1],
        repr(text)[1:-1],
    }
    forms |= {repr(raw)[2:-1], base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    return forms
