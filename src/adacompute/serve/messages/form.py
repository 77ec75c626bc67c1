"""Scans a multipart form, while it is forwarded, for its field `n`, which determines its cost."""

import re
from email.message import Message
from email.utils import collapse_rfc2231_value

from adacompute.errors import RequestInvalid
from adacompute.serve.messages.request_parser import check_field_names

# finds every spelling of the boundary parameter, e.g. boundary*0=: servers differ in which ones they accept
_BOUNDARY_NAME = re.compile(r"(?i)boundary([*\d\s]*)=")
_BOUNDARY = re.compile(r"[A-Za-z0-9._+=:/?-]{1,70}")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEAD_LINE = re.compile(r"([!-9;-~]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_FIELD_PARAMETER = re.compile(r"(?i)(?<!file)name[*\d\s]*=")
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.:/\[\]-]+")
_MAX_PARAMETERS = 100  # maximum number of parameters per header; parsing time grows with its square
_MAX_DIGITS = 10  # maximum number of digits of the field `n`
_MAX_FIELD = 8192  # maximum size of the field `n`, or of a part's headers, in bytes


class FormScanner:
    """Finds the field `n` in a multipart form that arrives in pieces of any size.

    Raises RequestInvalid for an unusual form in which some servers might find another `n`. An uploaded file
    with the name `n` counts as the field.

    >>> scanner = FormScanner('multipart/form-data; boundary=b')
    >>> scanner.feed(b'--b\\r\\nContent-Disposition: form-data; name="n"\\r\\n\\r\\n4\\r\\n--')
    []
    >>> scanner.feed(b'b--')
    [4]
    """

    def __init__(self, content_type: str) -> None:
        self._delimiter = b"--" + _read_boundary(content_type).encode("ascii")
        self._state = "other"  # what is being read: "head" (a part's headers), "n" (the field n) or "other"
        self._kept = b""  # data to be scanned together with the next piece
        self.is_closed = False  # whether the form's last delimiter was read

    def feed(self, chunk: bytes, *, last: bool = False) -> list[int | str]:
        """Scans the next piece; returns the values of `n` that end in it, as integers if possible."""
        data, start, values = self._kept + chunk, 0, []
        while (end := self._find_end(data, start)) is not None:
            if self._state == "n":
                values.append(_read_field(data[start : end[0]]))
            self._note_close(data[start:])
            self._state = self._choose_state(data[start : end[1]])
            start = end[1]
        if last and self._state == "n":
            values.append(_read_field(data[start:]))
        if last and self._state == "head" and data[start:].strip() != b"--":
            raise RequestInvalid(
                "the form ends within the head of a part; send all of it, each line ended by CRLF"
            )
        start = max(start, len(data) - len(self._delimiter)) if self._state == "other" else start
        self._kept = data[start:]
        self._note_close(self._kept)
        _check_field_size(self._kept)
        return values

    def _note_close(self, text: bytes) -> None:
        """Sets `is_closed` if the form has ended, which two hyphens after a delimiter show."""
        self.is_closed = self.is_closed or (self._state == "head" and text.startswith(b"--"))

    def _find_end(self, data: bytes, start: int) -> tuple[int, int] | None:
        """Finds the blank line after headers, or the delimiter after content: its start and end, or None."""
        if self._state == "head":
            match = _HEAD_END.search(data, start)
            return None if match is None else match.span()
        place = data.find(self._delimiter, start)
        return None if place < 0 else (place, place + len(self._delimiter))

    def _choose_state(self, text: bytes) -> str:
        """Returns the next `_state`: after a part's content, "head"; after its headers, "n" or "other"."""
        if self._state != "head":
            return "head"
        _check_field_size(text)
        if self._delimiter in text:
            raise RequestInvalid("the form's boundary is also in the head of a part; choose another")
        name = _read_part_name(text)
        check_field_names([name or ""])
        return "n" if name == "n" else "other"


def _read_boundary(content_type: str) -> str:
    """Reads a form's boundary; raises RequestInvalid if it is missing or ambiguous."""
    marks = _BOUNDARY_NAME.findall(content_type)
    if not marks:
        raise RequestInvalid("Content-Type is that of a form, without a boundary; add it: boundary=TEXT")
    boundary = _read_parameter("content-type", content_type, "boundary")
    # refuses `<`, because Python's parser would drop angle brackets, which other servers may keep
    is_clear = len(marks) == 1 and "*" not in marks[0] and "<" not in content_type
    if not is_clear or boundary is None or not _BOUNDARY.fullmatch(boundary):
        raise RequestInvalid(
            f"Content-Type is {content_type[:200]!r}; "
            "give one boundary, of 1 to 70 letters, digits and -._+=:/?"
        )
    return boundary


def _read_part_name(head: bytes) -> str | None:
    """Returns a form part's name. `head` is the rest of the delimiter's line and the part's headers."""
    lines = head.decode("latin-1").split("\r\n")
    headers = [_HEAD_LINE.fullmatch(line) for line in lines[1:-2]]
    if lines[0].strip(" \t") not in ("", "--") or lines[-2:] != ["", ""] or None in headers:
        raise RequestInvalid(
            "the head of a part of the form has a line that isn't a header; send `Name: value`, ended by CRLF"
        )
    dispositions = [match[2] for match in headers if match and match[1].lower() == "content-disposition"]
    if len(dispositions) > 1:
        raise RequestInvalid("a part of the form has several Content-Disposition; send one")
    return _read_disposition(dispositions[0]) if dispositions else None


def _read_disposition(value: str) -> str | None:
    name = _read_parameter("content-disposition", value, "name")
    marks = len(_FIELD_PARAMETER.findall(value))
    if marks != (name is not None) or (name is not None and not _FIELD_NAME.fullmatch(name)):
        raise RequestInvalid(
            f"Content-Disposition of a part of the form is {value.strip()[:200]!r}; "
            "give one name, of letters, digits and _.:/[]-"
        )
    return name


def _read_parameter(header: str, value: str, name: str) -> str | None:
    """Reads a parameter of a header, even if it is encoded as in RFC 2231; None if it is missing."""
    if value.count(";") > _MAX_PARAMETERS:
        raise RequestInvalid(f"{header} of a form has more than {_MAX_PARAMETERS} parameters; send fewer")
    message = Message()
    message[header] = value
    try:
        parameter = message.get_param(name, header=header)
        return collapse_rfc2231_value(parameter) if isinstance(parameter, tuple) else parameter
    except (TypeError, ValueError):  # the value's sections are out of order, or its character set is unknown
        raise RequestInvalid(
            f"{header} of a form is {value.strip()[:200]!r}; encode it by RFC 2231"
        ) from None


def _check_field_size(text: bytes) -> None:
    if len(text) > _MAX_FIELD:
        raise RequestInvalid(f"a form's n, or the head of a part, is above {_MAX_FIELD} bytes; shorten it")


def _read_field(value: bytes) -> int | str:
    text = value.strip()
    return int(text) if text.isdigit() and len(text) < _MAX_DIGITS else text.decode("latin-1")
