"""Build README, docs/ and the paper's study into a static site that needs no network. Run by `make site`.

The pages are laid out in a temporary folder as they are in the repository, so that their links work in both.
The pages of every public name are made here (scripts/api_reference.py); a file that a page links to and that
is no page becomes one that shows it. MkDocs does the rest, in an environment of its own (`.site`), which is
made from requirements-site.lock when it is first wanted. A broken link is an error.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import api_reference

__all__ = ["EnvironmentMissing", "build_site", "find_pages", "mend_markdown", "prepare_environment"]

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-site.lock"
ENVIRONMENT = ROOT / ".site"
SHOWN = {".svg", ".png", ".json"}  # what a browser shows by itself
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}
LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s:]+)(?=[)#])")
FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.) ")


class EnvironmentMissing(Exception):
    """MkDocs can't be installed on this machine."""


def prepare_environment(place: Path = ENVIRONMENT) -> Path:
    """The Python that has MkDocs; its environment is made where it isn't there, by one process at a time."""
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    place.mkdir(exist_ok=True)
    stamp, python = place / "ready", place / "env" / "bin" / "python"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _call(sys.executable, "-m", "venv", "--clear", str(place / "env"))
            quiet = ("--quiet", "--disable-pip-version-check")
            _call(
                str(python), "-m", "pip", "install", *quiet, "--require-hashes", "--no-deps", "-r", str(LOCK)
            )
            stamp.write_text(wanted)
    return python


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise EnvironmentMissing(f"can't install mkdocs from {LOCK.name}: {said[:300]}")


def find_pages() -> list[Path]:
    """The pages of the site, from the repository's root."""
    folders = ("docs", "examples", "studies")
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))]
    return sorted(page.relative_to(ROOT) for page in pages)


def mend_markdown(text: str) -> str:
    """A page as MkDocs reads it: a list that follows a line of text gets the empty line it needs there."""
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        starts = ITEM.match(line) and before.strip() and not before.startswith((" ", "|", "<!--"))
        if starts and not fenced and not ITEM.match(before):
            lines.append("")
        fenced ^= bool(FENCE.match(line))
        lines.append(line)
    return "\n".join(lines)


def lay_out(folder: Path) -> None:
    """Everything that MkDocs reads, in a folder."""
    pages = find_pages()
    for page in pages:
        text = mend_markdown((ROOT / page).read_text("utf-8"))
        _write(folder / page, _link_files(text, page, folder, pages))
    for name, text in api_reference.write_pages().items():
        _write(folder / "docs/reference/api" / name, text)
    for name in ("iframe-worker.js", "site.css"):
        _write(folder / "assets" / name, (ROOT / "docs/site" / name).read_text("utf-8"))


def write_settings() -> str:
    """MkDocs' settings, with a line of the navigation for the page of each room."""
    text = (ROOT / "docs" / "site" / "mkdocs.yml").read_text("utf-8")
    names = [Path(name).stem for name in api_reference.write_pages() if name != "index.md"]
    line = re.compile(r"^( *- )docs/reference/api/\*\.md.*\n", re.MULTILINE)
    return line.sub(
        lambda m: "".join(f"{m[1]}adacompute.{n}: docs/reference/api/{n}.md\n" for n in names), text
    )


def _link_files(text: str, page: Path, folder: Path, pages: Iterable[Path]) -> str:
    """A page's text; files that it links to and that are no pages are copied, or made into pages."""

    def change(match: "re.Match[str]") -> str:
        target = os.path.normpath(page.parent / match["target"])
        source = ROOT / target
        if Path(target) in pages or target.startswith("..") or not source.is_file():
            return match["target"]
        if source.suffix in SHOWN:
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / target)
            return match["target"]
        language = LANGUAGES.get(source.suffix, "docker" if source.name == "Dockerfile" else "text")
        code = source.read_text("utf-8")
        _write(folder / f"{target}.md", f"# {target}\n\n````{language}\n{code}````\n")
        return f"{match['target']}.md"

    blocks = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(change, part) for part in blocks)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def build_site(out: Path, python: Path) -> str:
    """Builds the site into a folder, replacing what is there; what MkDocs said."""
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        lay_out(Path(folder) / "pages")
        _write(Path(folder) / "mkdocs.yml", write_settings())
        words = [
            str(python),
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--clean",
            "--site-dir",
            str(out.resolve()),
        ]
        environ = os.environ | {"NO_MKDOCS_2_WARNING": "true", "DISABLE_MKDOCS_2_WARNING": "true"}
        done = subprocess.run(
            words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False
        )
    if done.returncode:
        raise RuntimeError(f"the site can't be built:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the docs as a static site.")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "site", help="the folder (site)")
    out: Path = parser.parse_args().out
    try:
        python = prepare_environment()
        build_site(out, python)
    except (EnvironmentMissing, RuntimeError) as exc:
        print(exc, file=sys.stderr)
        return 1
    files = [file for file in out.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / 1e6
    pages = sum(file.suffix == ".html" for file in files)
    print(f"{pages} pages, {size:.1f} MB; open {out / 'index.html'} in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
