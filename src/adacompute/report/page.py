"""Renders a report as one HTML page that loads nothing from outside and runs only its own script.

All texts are escaped. The page's markup, style and script are in the folder's .html, .css and .js files.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any

import orjson

from adacompute.errors import format_count
from adacompute.evaluate.comparison import OTHER_HALF, Evaluation
from adacompute.evaluate.mode_rivals import WITHOUT
from adacompute.pool.groups import count_in_groups
from adacompute.records import format_money
from adacompute.report.canvas import dark_css
from adacompute.report.document import (
    GAIN,
    Column,
    Picture,
    Report,
    ReportPart,
    Section,
    Table,
    format_cell,
    replace_non_finite,
)
from adacompute.report.exhibits.money import REQUESTS_SHOWN, find_saving

_SPREAD_TEXT = re.compile(r"(?<=\S)( \([^()]* to [^()]*\)| ± \S+)$")
# matches references to ids, but only inside tags
_REFERENCED_ID = re.compile(r'(?:href="#|url\(#)([^")<>]+)(?=[^<>]*>)')
_ID = re.compile(r' id="([^"<>]*)"(?=[^<>]*>)')
_FOLD_ROWS = 20  # a table with more rows is collapsed at first
_LONG_TEXT = 30  # table cells with more characters are allowed to wrap
_CODE = re.compile(r"`([^`]+)`")
# style tags are removed from figures, because their rules would apply to the whole page
_STYLE_TAG = re.compile(r"<style\b.*?</style>", re.DOTALL)


def render_table(exhibit: Table) -> str:
    """Renders a table with its title, explanations of its headings, its protocol, and a link to its file."""
    heads = "".join(
        f"<th{_alignment(column)} scope=col>{escape(column.name)}</th>" for column in exhibit.columns
    )
    rows = []
    for at, row in enumerate(exhibit.rows):
        cells = "".join(
            _render_cell(format_cell(cell, column), _alignment(column))
            for cell, column in zip(row, exhibit.columns, strict=True)
        )
        rows.append(f"<tr class=bold>{cells}</tr>" if at in exhibit.bold else f"<tr>{cells}</tr>")
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    title = escape(exhibit.title, quote=True)
    inner = f'<div class=scroll tabindex=0 role=region aria-label="{title}"><table>{body}</table></div>'
    if len(exhibit.rows) > _FOLD_ROWS:
        inner = f"<details class=rows><summary>{len(exhibit.rows)} rows</summary>{inner}</details>"
    return (
        f'<figure class="exhibit" id="table-{exhibit.key}"><figcaption>{title}</figcaption>{inner}'
        f"{render_paragraphs([exhibit.note, _explain_columns(exhibit.columns)], 'note')}"
        f"{_render_footer(exhibit, 'table', f'tables/{exhibit.key}.csv', 'CSV')}</figure>"
    )


def render_figure(picture: Picture) -> str:
    """Renders a picture with its title, caption, protocol, and a link to its file."""
    alt = escape(picture.alt, quote=True)
    svg = _STYLE_TAG.sub("", picture.svg)
    referenced = set(_REFERENCED_ID.findall(svg))
    # remove ids that nothing refers to
    svg = _ID.sub(lambda found: found[0] if found[1] in referenced else "", svg)
    svg = svg.replace("<svg", f'<svg role="img" tabindex="0" aria-label="{alt}"', 1)
    return (
        f'<figure class="exhibit picture" id="figure-{picture.key}">'
        f"<figcaption>{escape(picture.title)}</figcaption>"
        f"<div class=scroll><div class=plot>{svg}</div></div>"
        f"{render_paragraphs([picture.caption], 'note')}"
        f"{_render_footer(picture, 'figure', f'figures/{picture.key}.svg', 'SVG', data=bool(picture.data))}"
        "</figure>"
    )


def render_paragraphs(words: Sequence[str], name: str = "") -> str:
    """Renders paragraphs, with the CSS class `name` if it is given; text between backticks becomes code."""
    start = f'<p class="{name}">' if name else "<p>"
    texts = (_CODE.sub(r"<code>\1</code>", escape(text)) for text in words if text)
    return "".join(f"{start}{text}</p>" for text in texts)


def _alignment(column: Column) -> str:
    return "" if column.kind in ("text", "flag") else " class=n"


def _render_cell(text: str, alignment: str) -> str:
    spread = _SPREAD_TEXT.search(text)
    if spread is not None:
        return f"<td{alignment}>{escape(text[: spread.start()])}<small>{escape(spread[0])}</small></td>"
    return (
        f"<td{' class=long' if not alignment and len(text) > _LONG_TEXT else alignment}>{escape(text)}</td>"
    )


def _explain_columns(columns: Sequence[Column]) -> str:
    """Returns explanations of the headings; headings with the same explanation share it."""
    names: dict[str, list[str]] = {}
    for column in columns:
        if column.about:
            names.setdefault(column.about, []).append(column.name)
    explanations = [
        f"{' … '.join([own[0], own[-1]] if len(own) > 1 else own)}: {about}" for about, own in names.items()
    ]
    return "; ".join(explanations) + "." if explanations else ""


def _render_footer(exhibit: Table | Picture, kind: str, path: str, name: str, *, data: bool = False) -> str:
    numbers = f'<a href="results.json" title="figures, {exhibit.key}">data</a> ' if data else ""
    return (
        f"<p class=protocol>{escape(exhibit.protocol)} "
        f'<span class=links><a href="{path}">{name}</a> {numbers}'
        f'<a href="#{kind}-{exhibit.key}" aria-label="Link to this {kind}">#</a></span></p>'
    )


def render_page(report: Report) -> str:
    """Renders the whole page as HTML."""
    style = _read_asset("page.css") + dark_css()
    script = f'"use strict";\n{_read_asset("page.js")}\n{_read_asset("share.js")}'
    # style attributes are allowed, because figures have them; fetching anything is forbidden
    content_policy = (
        f"default-src 'none'; style-src {_csp_hash(style)}; style-src-attr 'unsafe-inline'; "
        f"script-src {_csp_hash(script)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    first, *rest = report.parts
    version = f"adacompute {report.facts['adacompute']}"
    return _fill_template(
        _read_asset("page.html"),
        policy=escape(content_policy, quote=True),
        generator=escape(version, quote=True),
        title=escape(f"{report.name}: adacompute report"),
        name=escape(report.name),
        facts=escape(_describe_facts(report.facts)),
        contents=_render_contents(report.parts),
        parts=_render_verdict(report, first) + "".join(_render_part(part) for part in rest),
        footer=f"{escape(version)}. All numbers: <a href=results.json>results.json</a>; "
        "each table and figure as a file by the link below it.",
        share=_read_asset("share.html"),
        data=_script_json({"money": report.money, "share": build_share(report)}),
        style=style,
        script=script,
    )


def _describe_facts(facts: Mapping[str, Any]) -> str:
    least, most = facts["samples_least"], facts["samples_most"]
    each = f"{format_count(most, 'sample')}" if least == most else f"{least} to {most} samples"
    model = f", {facts['model']}" if facts["model"] else ""
    return f"{count_in_groups(facts['problems'], facts['groups'])}, {each} of each{model}"


def _render_verdict(report: Report, part: ReportPart) -> str:
    """Renders the first part of the page: headline, text below it, notices, figures and tables."""
    words = [report.below, *(text for section in part.sections for text in section.words)]
    body = "".join(_render_section(replace(section, words=())) for section in part.sections)
    return (
        f'<section class="part verdict" id="part-{part.key}"><h1>{escape(report.headline)}</h1>'
        f"{render_paragraphs(words, 'below')}{render_paragraphs(report.notices, 'notice')}"
        f"{_render_money(report.money)}{body}</section>"
    )


def _render_money(data: Mapping[str, Any] | None) -> str:
    """Renders what a thousand requests cost and save, and a form in which the reader can change prices."""
    if data is None or data["words"] is None:
        return ""
    currency = data["currency"]
    saving = find_saving(data)
    if saving is None:
        return ""
    average = format_count(f"{saving.budget:g}", "sample")
    tiles = [(f"cost at {average} on average", "cost", _tile_value(saving.cost, currency))]
    if data["pays"]:
        more = "> " if saving.is_bound else ""
        needs = f"> {data['most']:g}" if saving.same_as is None else f"{saving.same_as:.1f}"
        share = "" if saving.share is None else f"{more}{saving.share:.0%}"
        tiles += [
            (
                f"cost with uniform sampling, which needs {needs}",
                "same",
                more + _tile_value(saving.same_cost, currency),
            ),
            ("saved, at the same accuracy", "saved", more + _tile_value(saving.amount, currency)),
            ("of the cost saved", "share", share),
        ]
        if saving.amount < 0 and not saving.is_bound:
            extra = f"{format_money(-REQUESTS_SHOWN * saving.amount)} {currency}"
            tiles[-2:] = [
                ("more than uniform sampling, at the same accuracy", "extra", f"costs {extra} more")
            ]
    else:
        tiles.append(("over uniform sampling", "none", "no saving is certain"))
    rendered = "".join(
        f'<div class="tile {key}"><dd>{escape(value)}</dd><dt>{escape(about)}</dt></div>'
        for about, key, value in tiles
    )
    example = (
        "Example prices: type in your own." if data["example"] else "Prices as given; others can be typed in."
    )
    return (
        f"<div class=money id=money><p class=over>{REQUESTS_SHOWN:,} requests</p>"
        f"<dl class=tiles>{rendered}</dl><p class=note>{example}</p>{_read_asset('money.html')}</div>"
    )


def _tile_value(cost: float, currency: str) -> str:
    return f"{format_money(REQUESTS_SHOWN * cost)} {currency}"


def build_share(report: Report) -> dict[str, Any]:
    """Returns the texts, without prices, from which the share button makes a picture and a paragraph."""
    measured, protocol = _describe_facts(report.facts), report.evaluation.verdict.protocol
    protocol = f"{protocol[:1].upper()}{protocol[1:].rstrip('.')}." if protocol else ""
    return {
        "name": report.name,
        "headline": report.headline,
        "numbers": _share_verdict(report.evaluation),
        "protocol": f"{report.name}: {measured}. {protocol}".strip(),
        "figure": _describe_figure(report),
        "words": [
            f"{report.headline} {report.below}".strip(),
            f"Measured on {report.name} ({measured}) with adacompute {report.facts['adacompute']}.",
        ],
    }


def _share_verdict(evaluation: Evaluation) -> list[list[str]]:
    verdict, mode_set = evaluation.verdict, evaluation.mode_set
    row = verdict.row(verdict.budget)
    if row is None:
        return []
    what = "right" if verdict.basis == "accuracy" else f"agreement with {OTHER_HALF}"
    about = f"{what} at {format_count(f'{row.budget:g}', 'sample')} on average; uniform {row.uniform:.1%}"
    if mode_set is not None:
        about = f"{what} at {mode_set.format_cost(row.budget)}; {WITHOUT} {row.uniform:.1%}"
    name, interval = (
        ("95% interval", row.gain) if row.joint.low is None else ("joint 95% interval", row.joint)
    )
    low, mean, high = (format_cell(value, GAIN) for value in (interval.low, row.gain.mean, interval.high))
    return [
        [f"{row.accuracy:.1%}", about],
        [f"{mean} points", f"at the same cost, {name} {low} to {high}"],
    ]


def _describe_figure(report: Report) -> str:
    """Says how the shared picture's figure was measured, because the verdict was measured differently."""
    few = next((picture for picture in report.pictures() if picture.key == "frontier-few"), None)
    return "" if few is None else f"Figure, by a protocol of its own: {few.protocol}."


def _render_part(part: ReportPart) -> str:
    button = "<button type=button class=all hidden>Open all</button>"
    folded = "" if part.folded else " open"
    rendered = [
        f'<details class=section id="section-{section.key}"{folded}>'
        f"<summary><h3>{escape(section.title)}</h3></summary>{_render_section(section)}</details>"
        for section in part.sections
    ]
    return (
        f'<section class=part id="part-{part.key}"><div class=top><h2>{escape(part.title)}</h2>{button}</div>'
        f"{render_paragraphs([part.about], 'about')}{''.join(rendered)}</section>"
    )


def _render_section(section: Section) -> str:
    """Renders a section: its text, then its pictures and tables, then a list of what is missing."""
    tables = map(render_table, section.tables)
    pictures = "".join(map(render_figure, section.pictures))
    words, missing = render_paragraphs(section.words), render_paragraphs(section.missing, "missing")
    return f"<div class=body>{words}{pictures}{''.join(tables)}{missing}</div>"


def _render_contents(parts: Sequence[ReportPart]) -> str:
    items = []
    for index, part in enumerate(parts):
        inner = [
            f'<li><a href="#section-{section.key}">{escape(section.title)}</a></li>'
            for section in part.sections
            if index and len(part.sections) > 1
        ]
        below = f"<ul>{''.join(inner)}</ul>" if inner else ""
        items.append(f'<li><a href="#part-{part.key}">{escape(part.title)}</a>{below}</li>')
    return f"<ul>{''.join(items)}</ul>"


def _fill_template(text: str, **values: str) -> str:
    """Replaces all placeholders in one pass, so that placeholders inside values aren't replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], text)


def _script_json(value: Any) -> str:  # noqa: ANN401
    """Converts a value to JSON that can't end the script tag around it: it never contains `</script>`."""
    return orjson.dumps(replace_non_finite(value)).decode().replace("<", "\\u003c").replace(">", "\\u003e")


def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
