"""A table or picture as HTML, every text of it escaped. Knows nothing of the page around it.

A number's spread is set small, and the cell's text is still what `written` gives.
"""

import re
from collections.abc import Sequence
from html import escape

from adacompute.evaluate.exhibits import Column, Picture, Table, written

__all__ = ["figure", "paragraphs", "table"]

_SPREAD = re.compile(r"(?<=\S)( \([^()]* to [^()]*\)| ± \S+)$")
_USED = re.compile(r'(?:href="#|url\(#)([^")<>]+)(?=[^<>]*>)')  # in a tag: a figure's text has no bare >
_ID = re.compile(r' id="([^"<>]*)"(?=[^<>]*>)')
_MANY = 20  # rows: a longer table is folded
_LONG = 30  # characters: such a text may be broken into lines
_CODE = re.compile(r"`([^`]+)`")
_INNER = re.compile(
    r"<style\b.*?</style>", re.DOTALL
)  # it would style the whole page; page.css says the same


def table(one: Table) -> str:
    """A table with its title, what its headings mean, its protocol, and a link to its file."""
    heads = "".join(f"<th{_side(column)} scope=col>{escape(column.name)}</th>" for column in one.columns)
    rows = []
    for at, row in enumerate(one.rows):
        cells = "".join(
            _cell(written(cell, column), _side(column)) for cell, column in zip(row, one.columns, strict=True)
        )
        rows.append(f"<tr class=bold>{cells}</tr>" if at in one.bold else f"<tr>{cells}</tr>")
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    title = escape(one.title, quote=True)
    inner = f'<div class=scroll tabindex=0 role=region aria-label="{title}"><table>{body}</table></div>'
    if len(one.rows) > _MANY:
        inner = f"<details class=rows><summary>{len(one.rows)} rows</summary>{inner}</details>"
    return (
        f'<figure class="exhibit" id="table-{one.key}"><figcaption>{title}</figcaption>{inner}'
        f"{_notes([one.note, _abouts(one.columns)])}"
        f"{_foot(one, 'table', f'tables/{one.key}.csv', 'CSV')}</figure>"
    )


def figure(one: Picture) -> str:
    """A picture with its title, its caption, its protocol, and a link to its file."""
    alt = escape(one.alt, quote=True)
    svg = _INNER.sub("", one.svg)
    used = set(_USED.findall(svg))
    svg = _ID.sub(lambda found: found[0] if found[1] in used else "", svg)  # the others are of no use
    svg = svg.replace("<svg", f'<svg role="img" tabindex="0" aria-label="{alt}"', 1)
    return (
        f'<figure class="exhibit picture" id="figure-{one.key}"><figcaption>{escape(one.title)}</figcaption>'
        f"<div class=scroll><div class=plot>{svg}</div></div>"
        f"{_notes([one.caption])}{_foot(one, 'figure', f'figures/{one.key}.svg', 'SVG', data=bool(one.data))}"
        "</figure>"
    )


def paragraphs(words: Sequence[str], name: str = "") -> str:
    """Paragraphs, of a class where one is named; what stands between backticks is code."""
    start = f'<p class="{name}">' if name else "<p>"
    told = (_CODE.sub(r"<code>\1</code>", escape(text)) for text in words if text)
    return "".join(f"{start}{text}</p>" for text in told)


def _side(column: Column) -> str:
    return "" if column.kind in ("text", "flag") else " class=n"


def _cell(text: str, side: str) -> str:
    found = _SPREAD.search(text)
    if found is not None:
        return f"<td{side}>{escape(text[: found.start()])}<small>{escape(found[0])}</small></td>"
    return f"<td{' class=long' if not side and len(text) > _LONG else side}>{escape(text)}</td>"


def _abouts(columns: Sequence[Column]) -> str:
    """What headings mean; those that mean the same are named together."""
    names: dict[str, list[str]] = {}
    for column in columns:
        if column.about:
            names.setdefault(column.about, []).append(column.name)
    said = [
        f"{' … '.join([own[0], own[-1]] if len(own) > 1 else own)}: {about}" for about, own in names.items()
    ]
    return "; ".join(said) + "." if said else ""


def _notes(notes: Sequence[str]) -> str:
    return paragraphs(notes, "note")


def _foot(one: Table | Picture, kind: str, path: str, name: str, *, data: bool = False) -> str:
    numbers = f'<a href="results.json" title="figures, {one.key}">data</a> ' if data else ""
    return (
        f"<p class=protocol>{escape(one.protocol)} "
        f'<span class=links><a href="{path}">{name}</a> {numbers}'
        f'<a href="#{kind}-{one.key}" aria-label="Link to this {kind}">#</a></span></p>'
    )
