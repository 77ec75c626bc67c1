"""Every script in `examples/` runs as it is against the local model, and is short.

Those that need FastAPI or LangChain run in the adapters' environment: `integrations/test_integrations.py`.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from adacompute.client.local import LocalModel
from tiers import leave_to_nightly

FOLDER = Path(__file__).resolve().parents[1] / "examples"
ELSEWHERE = {"fastapi_app.py", "langchain_chat.py"}
EXPECTED = {  # what must be in an output
    "one_call.py": "votes {",
    "many_prompts.py": "all together",
    "openai_sdk.py": "'samples': ",
    "menu.py": "average 0.000",
    "own_recordings.py": "samples on average, right:",
}


def find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("name", leave_to_nightly(EXPECTED))
def test_an_example_runs_against_the_local_model(name: str, local_model: LocalModel, tmp_path: Path):
    environ = os.environ | {"ENDPOINT": local_model.url, "PORT": str(find_port()), "PROBLEMS": "8"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert EXPECTED[name] in done.stdout


def test_the_notebook_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]):
    cells = json.loads((FOLDER / "notebook.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), "notebook.ipynb", "exec"), names)
    costs = [cost for cost, _ in names["rows"]]  # type: ignore[attr-defined]
    assert costs == pytest.approx([1.5, 2, 3, 4], rel=0.02)
    assert capsys.readouterr().out.count("samples: ") == len(costs)


def test_every_example_is_listed_tried_and_short():
    scripts = {path.name for path in FOLDER.glob("*.py")}
    assert scripts == EXPECTED.keys() | ELSEWHERE
    readme = (FOLDER / "README.md").read_text("utf-8")
    for path in FOLDER.glob("*.*"):
        assert path.name == "README.md" or f"({path.name})" in readme
        if path.suffix == ".py":
            assert len(path.read_text("utf-8").splitlines()) <= 40
