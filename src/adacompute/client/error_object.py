"""Converts an endpoint's error to OpenAI's format, and masks the endpoint's key and address.

Errors in OpenAI's format keep their extra keys. The formats `{"detail": …}` and `{"message": …}` and plain
text are converted. The end of this module describes connection errors and HTTP statuses.
"""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from adacompute.client.rate_limit import AttemptTimer
from adacompute.client.settings import Endpoint
from adacompute.errors import (
    ConnectionLost,
    EndpointError,
    EndpointFailed,
    EndpointRefused,
    EndpointTimeout,
    EndpointUnreachable,
    RateLimited,
    ReplyInvalid,
    shorten,
)
from adacompute.records import Secret

_MAX_SIZE = 8 * 2**10  # maximum number of characters in all texts of an error together
# number of characters beyond a text's limit in which keys are masked, too, before the text is cut at the
# limit; otherwise part of a key could remain there
_MARGIN = 1000
_MAX_CODE = 200  # maximum number of characters in an error's type, code or parameter
_MAX_KEYS = 32  # maximum number of keys in an object
_MAX_DEPTH = 8  # maximum depth of nested objects
_MAX_HEADERS = 16
_MAX_HEADER = 100  # maximum number of characters in a header value
_SHAPE = ("message", "type", "param", "code")
# keys under which servers send the error message
_MESSAGE_KEYS = ("message", "error", "detail", "msg", "error_message", "title")
_HEADER_PATTERN = re.compile(r"x-ratelimit-[a-z-]{1,40}|retry-after-ms|x-should-retry")
_SECRET_PATTERN = re.compile(
    r"\bsk-[\w*-]{8,}|(?<=\bBearer )[\w.~+/*-]{8,}=*"
    # matches account ids, but not "org-wide"
    r"|(?<![\w-])(?:org-|proj_)(?=[a-zA-Z]{0,40}[0-9])[a-zA-Z0-9]{6,}"
)
# matches an API key after its name, e.g. "api_key=abc"; after a colon and a space, only a word that has a
# digit or at least 20 characters, unlike "api_key: field required"
_NAMED_KEY_PATTERN = re.compile(
    r"""((?:api[_-]?key|access[_-]?token|secret[_-]?key)["']?[ ]{0,3}
        (?:=[ ]{0,3}|:|:[ ]{0,3}(?=["'])|:[ ]{1,3}(?=[^\s0-9]{0,80}[0-9]|[^\s]{20}))["']?)
        (?!(?:none|null|true|false|required|missing)(?![\w-]))[^\s"',;&)\]}]+""",
    re.IGNORECASE | re.VERBOSE,
)
# matches a URL; the length of the scheme ("https") is limited, because long words would take quadratic time
_URL_PATTERN = re.compile(r"(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}://[^\s\"'<>)\],;`]+", re.IGNORECASE)
_PRIVATE_SUFFIXES = (".internal", ".local", ".lan", ".svc", ".corp", ".home", ".localhost", ".arpa", ".test")
# matches a host name or IP address, only at word boundaries so that searching takes linear time
_HOST_PATTERN = re.compile(r"(?<![\w.-])(?:localhost(?=:\d)|[\w-]+(?:\.[\w-]+)+)(?::\d{1,5}(?!\d))?")
_IP6_PATTERN = re.compile(
    r"\[[0-9a-f:.]{2,45}\]:\d{1,5}|(?<![\w:.])(?:f[cd][0-9a-f]{2}|fe80)(?::[0-9a-f]{0,4}){2,7}(?![\w:])",
    re.IGNORECASE,
)
_BARE_SUFFIXES = (".internal", ".local", ".lan", ".svc", ".corp", ".intranet", ".localdomain", ".home.arpa")
_WORDS = ("threading.local",)  # Python names that look like host names
_VERSION_PATTERN = re.compile(r"(?:version|release|cuda|cudnn)\W{1,3}\Z", re.IGNORECASE)
_ADDRESS_MASK = "the upstream"
_SECRET_MASK = "***"  # noqa: S105 - what stands in its place

# an error's code or type -> HTTP status if the error was sent without one; 500 for all others
_STATUS_OF_WORD = {
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "exceed_context_size_error": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "notfounderror": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "overloaded_error": 503,
}
_PAGE_TITLE = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)
_MAX_PAGE = 4096  # number of characters of a web page that are searched for its title
_REMEDIES = {404: "; check the address and the name of the model", 429: "; ask more slowly"}
_ERROR_STATUSES = frozenset(map(str, range(400, 600)))


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """An endpoint's error in OpenAI's format, with keys and addresses masked."""

    fields: Mapping[str, Any]  # the `error` object: message, type, param, code, and other keys
    native: bool  # whether the endpoint sent this error in OpenAI's format
    headers: Mapping[str, str] = field(default_factory=dict)  # the reply's headers about when to retry

    @property
    def code(self) -> str:
        """The error's code as text; "" if it has none."""
        return "" if self.fields.get("code") is None else str(self.fields["code"])


def unwrap_error(value: object) -> object:
    """Unwraps an error that was sent inside a list, as by Gemini's endpoint; returns other JSON unchanged.

    >>> unwrap_error([{"error": {"code": 400}}]), unwrap_error([{"score": 1}])
    ({'error': {'code': 400}}, [{'score': 1}])
    """
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and "error" in value[0]:
        return value[0]
    return value


def build_error_object(
    value: object,
    status: int,
    *,
    key: Secret | None,
    url: str,
    headers: Mapping[str, str] | None = None,
) -> ErrorObject | None:
    """Builds an ErrorObject from a reply's body; None if it has no message, or seems to be a proxy's text.

    >>> error = build_error_object({"detail": "too long for http://h:80/v1"}, 400, key=None, url="http://h:80/v1")
    >>> error.fields["message"], error.fields["type"], error.native
    ('too long for the upstream', 'invalid_request_error', False)
    """
    if isinstance(value, str):
        fields = _shape_text(value, status)
    elif isinstance(value, Mapping):
        fields = _shape_object(value)
    else:
        fields = None
    if fields is None:
        return None
    inner = value.get("error") if isinstance(value, Mapping) else None
    native = isinstance(inner, Mapping) and isinstance(inner.get("message"), str)
    shape = {"type": _find_type(status), "param": None, "code": None}
    return ErrorObject(_Mask(key, url).apply_to_fields(shape | fields), native, headers or {})


def mask_object(value: Mapping[str, Any], *, key: Secret | None, url: str) -> dict[str, Any]:
    """Masks keys and addresses in any JSON object from an endpoint, and shortens it like an error object.

    >>> mask_object({"id": "m", "root": "http://h:80/m"}, key=None, url="http://h:80/v1")
    {'id': 'm', 'root': 'the upstream'}
    """
    return _Mask(key, url).apply_to_object(value, 1)


def _shape_object(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Converts an error body to OpenAI's format; None if it has no message."""
    inner = value.get("error")
    if isinstance(inner, Mapping):
        value = inner
    message = find_message(value)
    if not message:
        return None
    fields = {name: item for name, item in value.items() if name not in ("object", "detail")}
    if isinstance(inner, str) or not isinstance(value.get("message"), str):
        fields = {name: item for name, item in fields.items() if name not in _MESSAGE_KEYS}
    param = _find_place(value.get("detail"))
    return {"message": message} | ({} if param is None else {"param": param}) | fields


def find_message(value: object, depth: int = 0) -> str:
    """Finds the message in an error body, in any of the formats that servers use; "" if there is none."""
    if isinstance(value, str):
        return value.strip()
    if depth >= _MAX_DEPTH:
        return ""
    if isinstance(value, list) and value:  # FastAPI sends a list of errors
        return "; ".join(filter(None, (_describe_fault(item, depth) for item in value[:4])))
    if not isinstance(value, Mapping):
        return ""
    return next(filter(None, (find_message(value.get(name), depth + 1) for name in _MESSAGE_KEYS)), "")


def _describe_fault(item: object, depth: int) -> str:
    message, place = find_message(item, depth + 1), _find_place([item])
    return f"{place}: {message}" if message and place is not None else message


def _find_place(detail: object) -> str | None:
    """Finds the name of the request field that the first error in FastAPI's list is about."""
    first = detail[0] if isinstance(detail, list) and detail else None
    place = first.get("loc") if isinstance(first, Mapping) else None
    return str(place[-1]) if isinstance(place, list) and place else None


def _shape_text(text: str, status: int) -> dict[str, Any] | None:
    text = text.strip()
    # a web page, or a text whose status is 429 or not a 4xx, probably comes from a proxy, not from the API
    if not text or text[0] == "<" or not 400 <= status < 500 or status == 429:
        return None
    return {"message": text, "code": "upstream_refused"}


def _find_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def infer_status(value: Mapping[str, Any]) -> int:
    """Infers an error's HTTP status from its code or type, e.g. for an error in a stream; 500 if unknown.

    >>> infer_status({"error": {"code": "context_length_exceeded"}}), infer_status({"error": {"code": "429"}})
    (400, 429)
    """
    error = value.get("error")
    sources = [source for source in (error, value) if isinstance(source, Mapping)]
    values = [source.get(name) for source in sources for name in ("code", "status", "status_code", "type")]
    words = [str(item) for item in values if isinstance(item, str | int)]
    for word in words:
        if word in _ERROR_STATUSES:
            return int(word)
    return next((_STATUS_OF_WORD[word.lower()] for word in words if word.lower() in _STATUS_OF_WORD), 500)


def pick_error_headers(headers: Mapping[str, str], key: Secret | None = None) -> dict[str, str]:
    """Selects an error's headers that say when to retry, if they are short plain text without the key."""
    picked: dict[str, str] = {}
    for name, text in headers.items():
        if len(picked) < _MAX_HEADERS and _HEADER_PATTERN.fullmatch(name.lower()) and _is_plain(text, key):
            picked[name.lower()] = text
    return picked


def _is_plain(text: str, key: Secret | None) -> bool:
    if key is not None and key.mask_message(text) != text:
        return False
    return len(text) <= _MAX_HEADER and text.isascii() and text.isprintable()


class _Mask:
    """Masks keys and addresses in the texts of one error, and limits their length."""

    def __init__(self, key: Secret | None, url: str) -> None:
        self._key = key
        self._url = url
        self._left = _MAX_SIZE  # how many more characters the error's texts may have

    def apply_to_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Masks an error's four standard fields, and then its other keys until the size limit is reached."""
        head = {name: self._apply_to_field(name, fields[name]) for name in _SHAPE}
        rest = {name: item for name, item in fields.items() if name not in _SHAPE}
        return head | self.apply_to_object(rest, 1)

    def _apply_to_field(self, name: str, value: object) -> object:
        if name == "message":
            return self._apply_to_text(str(value), _MAX_SIZE)
        if isinstance(value, str):
            return self._apply_to_text(value, _MAX_CODE)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def apply_to_object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        """Masks an object's keys and values until the size limit is reached."""
        masked: dict[str, Any] = {}
        for name, item in list(value.items())[:_MAX_KEYS]:
            if self._left <= 0:
                break
            masked[self._apply_to_text(str(name), _MAX_CODE)] = self._apply(item, depth)
        return masked

    def _apply(self, value: object, depth: int) -> object:
        if isinstance(value, str):
            return self._apply_to_text(value, self._left) if self._left > 0 else ""
        if depth >= _MAX_DEPTH:
            return None
        if isinstance(value, Mapping):
            return self.apply_to_object(value, depth + 1)
        if isinstance(value, list | tuple):
            return [self._apply(item, depth + 1) for item in value[:_MAX_KEYS]]
        return value

    def _apply_to_text(self, text: str, limit: int) -> str:
        text = text[: limit + _MARGIN]  # mask before cutting, so that no part of a key remains
        text = text if self._key is None else self._key.mask_message(text)
        text = shorten(_mask_address(_mask_keys(text), self._url), max(1, limit))
        self._left -= len(text)
        return text


def _mask_keys(text: str) -> str:
    """Masks everything that looks like a key or an account id.

    >>> _mask_keys("org-wide limit of org-ABC123, api_key=abcdef; api_key: field required")
    'org-wide limit of ***, api_key=***; api_key: field required'
    """
    return _NAMED_KEY_PATTERN.sub(rf"\1{_SECRET_MASK}", _SECRET_PATTERN.sub(_SECRET_MASK, text))


def _mask_address(text: str, url: str) -> str:
    """Masks the endpoint's address and all private network addresses.

    >>> _mask_address("see http://10.0.0.7:80/x and https://platform.openai.com/docs", "https://h.io/v1")
    'see the upstream and https://platform.openai.com/docs'
    """
    host, pattern = _compile_host(url)

    def mask(match: re.Match[str]) -> str:
        address = match[0].rstrip(".:")
        return match[0] if _is_public(address, host) else _ADDRESS_MASK + match[0][len(address) :]

    text = _URL_PATTERN.sub(mask, text)
    text = text if pattern is None else pattern.sub(_ADDRESS_MASK, text)
    return _mask_hosts(text)


def _mask_hosts(text: str) -> str:
    """Masks host names and IP addresses of private networks, and any IPv4 address that a port follows.

    >>> _mask_hosts("10.0.0.5:8080 and gpu-7.svc.cluster.local refused; see docs.vllm.ai, main.py:12")
    'the upstream and the upstream refused; see docs.vllm.ai, main.py:12'
    """
    return _IP6_PATTERN.sub(_ADDRESS_MASK, _HOST_PATTERN.sub(_mask_host, text))


def _mask_host(match: re.Match[str]) -> str:
    name, _, port = match[0].lower().partition(":")
    if name.count(".") == 3 and name[0].isdigit() and _is_ip_address(name):
        before = match.string[max(0, match.start() - 12) : match.start()]
        is_private = bool(port) or (_is_private_number(name) and not _VERSION_PATTERN.search(before))
    else:
        is_private = name == "localhost" or (name.endswith(_BARE_SUFFIXES) and name not in _WORDS)
    return _ADDRESS_MASK if is_private else match[0]


def _is_private_number(name: str) -> bool:
    """Whether a text is a private IP address. False for 0.x.y.z, which is probably a version number."""
    return not ip_address(name).is_global and not name.startswith("0.")


@lru_cache(maxsize=64)
def _compile_host(url: str) -> tuple[str, re.Pattern[str] | None]:
    """Returns the host in `url`, and a pattern that finds it in a text; "" and None if there is no host.

    If `url` has a port, a host name without a dot (except localhost) is found only if this port follows.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    names = [parts.netloc.rpartition("@")[2]] if parts.netloc else []
    if "." in host or ":" in host or host == "localhost":
        names.append(host)
    choices = "|".join(re.escape(name) for name in names if name)
    pattern = re.compile(rf"(?<![\w.-])(?:{choices})(?::\d+)?(?![\w-])", re.IGNORECASE) if choices else None
    return host, pattern


def _is_public(address: str, host: str) -> bool:
    """Whether a URL is a public page, such as documentation, and not the endpoint."""
    try:
        parts = urlsplit(address)
        name, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or port is not None or "@" in parts.netloc or name == host:
        return False
    return "." in name and not name.endswith(_PRIVATE_SUFFIXES) and not _is_ip_address(name)


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def describe_page(message: str) -> str:
    """Returns the message; if it is a web page, returns a description with the page's title instead."""
    if not message.lstrip().startswith("<"):
        return message
    title = _PAGE_TITLE.search(message[:_MAX_PAGE])
    return f"a web page, no OpenAI-compatible reply{f' ({title[1].strip()})' if title else ''}"


def find_remedy(status: int, key: Secret | None) -> str:
    """Says what the user can do about an HTTP status; "" if unknown."""
    if 300 <= status < 400:
        return "; redirects are not followed: give the address that it leads to"
    return _describe_key(key, status) if status in (401, 403) else _REMEDIES.get(status, "")


def _describe_key(key: Secret | None, status: int) -> str:
    """Says what to do if an endpoint rejects the key, or requires one."""
    if key is None:
        return (
            "; no key was given: set the environment variable ADACOMPUTE_KEY, or give --key-file FILE "
            "(of a mode: key_env in its table; in Python: key or key_file)"
        )
    source = f" in {key.source}" if key.source else ""
    return f"; the key{source} was refused: check it{' and what it allows' if status == 403 else ''}"


def error_from_status(status: int, message: str) -> EndpointError:
    """Builds the error for an HTTP status other than 200."""
    if status == 429:
        return RateLimited(message, status=status)
    if status == 408:  # a proxy may send it although the server has done the work, which may be charged
        return EndpointTimeout(message, status=status, paid=True)
    if status >= 500:
        return EndpointFailed(message, status=status, paid=True)
    if status < 300:
        return ReplyInvalid(message, status=status, paid=True)
    return EndpointRefused(message, status=status)


class ConnectFailed(OSError):
    """The connection couldn't be made."""


class ConnectTimeout(Exception):
    """The connection wasn't made in time."""


class NotHttp(Exception):
    """The reply isn't HTTP/1.1."""


# names of the error "the reply isn't TLS", which differ between versions of OpenSSL
_PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
# beginning of a TLS server's reply to plain HTTP, as aiohttp's error message quotes it
_TLS_ALERT = r"b'\x15\x03"
_QUOTE = re.compile(r":?\s+b['\"]")  # matches where aiohttp's error message begins to quote the reply


def translate_error(exc: Exception) -> Exception:
    """Converts an aiohttp error to NotHttp or an OSError."""
    cause = exc.__cause__ or exc
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return ConnectionResetError("it closed the connection before its reply")
    if isinstance(exc, aiohttp.ClientPayloadError):
        return ConnectionResetError("it closed the connection in the middle of its reply")
    if isinstance(cause, HttpProcessingError):
        return NotHttp(explain_error(cause))
    return ConnectionResetError(explain_error(cause))


def explain_error(exc: BaseException) -> str:
    """Describes a failure in a few words, which are the same with asyncio's event loop and with uvloop."""
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        # "it" is the proxy; only its status is shown, because its reply may repeat the proxy's password
        return f"it answered {exc.status}"
    if isinstance(exc, HttpProcessingError) and _TLS_ALERT in exc.message:
        return "it is TLS; is it https://?"
    if isinstance(exc, HttpProcessingError):
        return _QUOTE.split(exc.message, maxsplit=1)[0] or type(exc).__name__
    if isinstance(exc, ssl.SSLError):  # the errno of an SSLError isn't a system error number
        remedy = "; is it http://?" if exc.reason in _PLAIN_REASONS else ""
        return f"the TLS handshake failed: {(exc.reason or str(exc)).lower().replace('_', ' ')}{remedy}"
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0:
        return os.strerror(exc.errno)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__


def parse_retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Returns how many seconds a reply's headers (with lower-case names) ask to wait; None if they don't.

    >>> parse_retry_after({"retry-after": "2.5"}, now=0.0)
    2.5
    >>> parse_retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=50.0)
    10.0
    """
    exact = _parse_seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    text = headers.get("retry-after", "").strip()
    seconds = _parse_seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _parse_seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None


_CA_REMEDY = "name a file with its CA's certificate (--ca-file, or ca_file of the endpoint)"
# OpenSSL's error code (certificate expired, wrong host name, wrong IP address) -> what the user can do
_CERTIFICATE_REMEDIES = {
    10: "have it renewed",
    62: "check the address",
    64: "check the address",
}


class CertificateUntrusted(EndpointUnreachable):
    """The server's certificate is invalid, so retrying doesn't help."""


def map_error(
    exc: Exception, url: URL, endpoint: Endpoint, timer: AttemptTimer, *, why: str
) -> EndpointError:
    """Converts an error of aiohttp or the system to an EndpointError."""
    if isinstance(exc, NotHttp):
        return ReplyInvalid(f"{url}: its answer is not HTTP ({why}); check the address", paid=True)
    if timer.expired or isinstance(exc, ConnectTimeout):
        return _build_timeout(url, endpoint, timer)
    if isinstance(exc, ssl.SSLCertVerificationError):
        remedy = _CERTIFICATE_REMEDIES.get(exc.verify_code, _CA_REMEDY)
        return CertificateUntrusted(
            f"{url}: its certificate can't be trusted ({exc.verify_message}); {remedy}"
        )
    if timer.sent is None or isinstance(exc, ConnectFailed):
        return EndpointUnreachable(f"{url}: can't be reached ({why}); is it running, and the address right?")
    if isinstance(exc, OSError):
        return ConnectionLost(f"{url}: broke off after the request was sent ({why}); try again", paid=True)
    return ReplyInvalid(
        f"{url}: answered what can't be read ({type(exc).__name__}: {why}); try again", paid=True
    )


def _build_timeout(url: URL, endpoint: Endpoint, timer: AttemptTimer) -> EndpointTimeout:
    timeouts = endpoint.timeouts
    if timer.expired and timer.caller_deadline_first:
        reason = "gave no answer until the deadline of the call; give more time"
    elif timer.sent is None or not timer.expired:
        reason = f"took more than {timeouts.connect:.3g} s to connect; is it reachable from here?"
    elif not timer.headers:
        reason = (
            f"gave no first byte within {timeouts.first_byte:.3g} s; raise the timeout if it is only slow"
        )
    else:
        reason = f"took more than {timeouts.total:.3g} s in all; raise the timeout if it is only slow"
    return EndpointTimeout(f"{url}: {reason}", paid=timer.expired and timer.sent is not None)
