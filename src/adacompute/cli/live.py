"""The demo's live part: the gateway in front of the real model on this machine. Knows no options."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adacompute.cli.gated import gated, show_gated
from adacompute.cli.show import line, paragraph
from adacompute.endpoint.local import local_model
from adacompute.errors import LocalModelError
from adacompute.pool import bundled
from adacompute.problems import Template
from adacompute.records import Problem

__all__ = ["FOLDER", "live", "show_live"]

FOLDER = Path("adacompute-demo")  # ours in it are replaced by each demo, and nothing else
_ASKED = ("facts-003", "facts-027", "facts-120", "facts-200", "facts-216", "facts-280")  # some easy, some not
_TEMPLATE = "answer-line"


def live() -> dict[str, Any]:
    """Starts the model and the gateway, asks, stops both; plain data of what each question took.

    Without the model: why it isn't there.
    """
    try:
        with local_model() as model:
            began = time.monotonic()
            template = Template.named(_TEMPLATE)
            found = gated(model.url, model.name, FOLDER, problems=_problems(_ASKED), template=template)
            return {"model": model.name, "seconds": time.monotonic() - began, "gateway": found}
    except LocalModelError as exc:
        return {"absent": str(exc)}


def show_live(found: dict[str, Any]) -> None:
    """What each question took."""
    if "absent" in found:
        line("a real model on this machine, live")
        paragraph(found["absent"], indent=2)
        return
    show_gated(found["gateway"], model=found["model"])


def _problems(ids: Sequence[str]) -> list[Problem]:
    with bundled("facts") as facts:
        known = {problem.id: problem for problem in facts.problems()}
    return [known[id_] for id_ in ids]
