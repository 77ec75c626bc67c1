"""A report as one page: it asks for nothing from outside, and runs nothing but its own script.

Knows nothing of how numbers come. Markup, style and script lie beside this file as one would edit them.
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

from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.figures.palette import dark_rules
from adacompute.evaluate.report.cells import figure, paragraphs, table
from adacompute.evaluate.report.plain import finite
from adacompute.evaluate.report.record import Part, Report

__all__ = ["page"]

MONEY = "money"  # the table that the page reckons anew when prices are typed in


def page(report: Report) -> str:
    """The whole page."""
    style, script = _asset("page.css") + dark_rules(), f'"use strict";\n{_asset("page.js")}'
    policy = (  # figures carry styles of their own elements; nothing else does, and nothing is fetched
        f"default-src 'none'; style-src {_hash(style)}; style-src-attr 'unsafe-inline'; "
        f"script-src {_hash(script)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    first, *rest = report.parts
    version = f"adacompute {report.facts['adacompute']}"
    return _filled(
        _asset("page.html"),
        policy=escape(policy, quote=True),
        generator=escape(version, quote=True),
        title=escape(f"{report.name}: adacompute report"),
        name=escape(report.name),
        facts=escape(_facts(report.facts)),
        contents=_contents(report.parts),
        parts=_verdict(report, first) + "".join(_part_of_page(part) for part in rest),
        footer=f"{escape(version)}. All numbers: <a href=results.json>results.json</a>; "
        "each table and figure as a file by the link below it.",
        data=_data({"money": report.money}),
        style=style,
        script=script,
    )


def _facts(facts: Mapping[str, Any]) -> str:
    least, most = facts["samples_least"], facts["samples_most"]
    each = f"{most}" if least == most else f"{least} to {most}"
    model = f", {facts['model']}" if facts["model"] else ""
    return f"{facts['problems']:,} problems, {each} samples of each{model}"


def _verdict(report: Report, part: Part) -> str:
    """Its words stand below the headline, and what has to be read first below those."""
    words = [report.below, *(text for section in part.sections for text in section.words)]
    inner = "".join(_body(replace(section, words=()), report) for section in part.sections)
    return (
        f'<section class="part verdict" id="part-{part.key}"><h1>{escape(report.headline)}</h1>'
        f"{paragraphs(words, 'below')}{paragraphs(report.notices, 'notice')}{inner}</section>"
    )


def _part_of_page(part: Part) -> str:
    button = "<button type=button class=all hidden>Open all</button>"
    sections = []
    for section in part.sections:
        sections.append(
            f'<details class=section id="section-{section.key}"{"" if part.folded else " open"}>'
            f"<summary><h3>{escape(section.title)}</h3></summary>{_body(section)}</details>"
        )
    return (
        f'<section class=part id="part-{part.key}"><div class=top><h2>{escape(part.title)}</h2>{button}</div>'
        f"{paragraphs([part.about], 'about')}{''.join(sections)}</section>"
    )


def _body(section: Section, report: Report | None = None) -> str:
    """Words, then pictures, then tables, then what is missing."""
    tables = []
    for one in section.tables:
        if one.key == MONEY and report is not None and report.money is not None:
            tables.append(_asset("money.html"))
        tables.append(table(one))
    pictures = "".join(map(figure, section.pictures))
    words, missing = paragraphs(section.words), paragraphs(section.missing, "missing")
    return f"<div class=body>{words}{pictures}{''.join(tables)}{missing}</div>"


def _contents(parts: Sequence[Part]) -> str:
    found = []
    for at, part in enumerate(parts):
        inner = [
            f'<li><a href="#section-{one.key}">{escape(one.title)}</a></li>'
            for one in part.sections
            if at and len(part.sections) > 1
        ]
        below = f"<ul>{''.join(inner)}</ul>" if inner else ""
        found.append(f'<li><a href="#part-{part.key}">{escape(part.title)}</a>{below}</li>')
    return f"<ul>{''.join(found)}</ul>"


def _filled(text: str, **values: str) -> str:
    """Every mark replaced in one pass, so that no value is read as a mark."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], text)


def _data(value: Any) -> str:  # noqa: ANN401
    """JSON that no parser of HTML takes for the end of a script."""
    return orjson.dumps(finite(value)).decode().replace("<", "\\u003c").replace(">", "\\u003e")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
