"""Scans a multipart form, while it is forwarded, for its field `n`, which determines its cost."""

import re
from email.message import Message
from email.utils import collapse_rfc2231_value

from adacompute.errors import RequestInvalid
from adacompute.serve.messages.request_parser import check_field_names

# servers parse unusual boundaries differently: one might find an `n` where another doesn't
_BOUNDARY_NAME = re.compile(r"(?i)boundary([*\d\s]*)=")
_BOUNDARY = re.compile(r"[A-Za-z0-9._+=:/?-]{1,70}")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEAD_LINE = re.compile(r"([!-9;-~]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_FIELD_PARAMETER = re.compile(r"(?i)(?<!file)name[*\d\s]*=")
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.:/\[\]-]+")
_MAX_PARAMETERS = 100  # per header: parsing time is quadratic
_MAX_DIGITS = 10  # digits in a number of a form
_MAX_FIELD = 8192  # bytes of the field `n`, or of a part's headers


class FormScanner:
    """Finds the field `n` of a multipart form while it passes in pieces of any size.

    Servers parse unusual forms differently. A form in which one of them might find an `n` that this doesn't
    find is refused with RequestInvalid. A file with the name `n` counts as the field.

    >>> scanner = FormScanner('multipart/form-data; boundary=b')
    >>> scanner.feed(b'--b\\r\\nContent-Disposition: form-data; name="n"\\r\\n\\r\\n4\\r\\n--')
    []
    >>> scanner.feed(b'b--')
    [4]
    """

    def __init__(self, content_type: str) -> None:
        self._delimiter = b"--" + _read_boundary(content_type).encode("ascii")
        self._state = "other"  # currently reading a part's headers, a field "n", or anything else
        self._kept = b""  # the beginning of incomplete data
        self.is_closed = False  # whether the final delimiter was passed

    def feed(self, chunk: bytes, *, last: bool = False) -> list[int | str]:
        """The values of `n` completed by this piece; a text if it isn't an integer."""
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
        """Notes the end: a delimiter is followed by a line break, or by two hyphens at the form's end."""
        self.is_closed = self.is_closed or (self._state == "head" and text.startswith(b"--"))

    def _find_end(self, data: bytes, start: int) -> tuple[int, int] | None:
        """The end of what is being read, and the start of what follows; None if not in this piece."""
        if self._state == "head":
            match = _HEAD_END.search(data, start)
            return None if match is None else match.span()
        place = data.find(self._delimiter, start)
        return None if place < 0 else (place, place + len(self._delimiter))

    def _choose_state(self, text: bytes) -> str:
        """What follows `text` in a form: after headers, the field or file that they describe."""
        if self._state != "head":
            return "head"
        _check_field_size(text)
        if self._delimiter in text:
            raise RequestInvalid("the form's boundary is also in the head of a part; choose another")
        name = _read_part_name(text)
        check_field_names([name or ""])
        return "n" if name == "n" else "other"


def _read_boundary(content_type: str) -> str:
    """The boundary of a form; RequestInvalid if it is missing or ambiguous."""
    marks = _BOUNDARY_NAME.findall(content_type)
    if not marks:
        raise RequestInvalid("Content-Type is that of a form, without a boundary; add it: boundary=TEXT")
    boundary = _read_parameter("content-type", content_type, "boundary")
    is_clear = len(marks) == 1 and "*" not in marks[0] and "<" not in content_type  # email reads <b> as b
    if not is_clear or boundary is None or not _BOUNDARY.fullmatch(boundary):
        raise RequestInvalid(
            f"Content-Type is {content_type[:200]!r}; "
            "give one boundary, of 1 to 70 letters, digits and -._+=:/?"
        )
    return boundary


def _read_part_name(head: bytes) -> str | None:
    """The name of a form's part, from its headers after the rest of the delimiter's line."""
    lines = head.decode("latin-1").split("\r\n")
    headers = [_HEAD_LINE.fullmatch(line) for line in lines[1:-2]]
    if lines[0].strip(" \t") not in ("", "--") or lines[-2:] != ["", ""] or None in headers:
        raise RequestInvalid(
            "the head of a part of the form has a line that is no header; send `Name: value`, ended by CRLF"
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
    """A parameter of a header, including RFC 2231 encoding; None if missing."""
    if value.count(";") > _MAX_PARAMETERS:
        raise RequestInvalid(f"{header} of a form has more than {_MAX_PARAMETERS} parameters; send fewer")
    message = Message()
    message[header] = value
    try:
        parameter = message.get_param(name, header=header)
        return collapse_rfc2231_value(parameter) if isinstance(parameter, tuple) else parameter
    except (TypeError, ValueError):  # parts in the wrong order, or an unusable character set
        raise RequestInvalid(
            f"{header} of a form is {value.strip()[:200]!r}; encode it by RFC 2231"
        ) from None


def _check_field_size(text: bytes) -> None:
    if len(text) > _MAX_FIELD:
        raise RequestInvalid(f"a form's n, or the head of a part, is above {_MAX_FIELD} bytes; shorten it")


def _read_field(value: bytes) -> int | str:
    text = value.strip()
    return int(text) if text.isdigit() and len(text) < _MAX_DIGITS else text.decode("latin-1")
