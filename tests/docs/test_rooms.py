"""The tree in docs/design/rooms.md names every file of the package, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "design" / "rooms.md").read_text("utf-8")
SOURCE = ROOT / "src" / "adacompute"
ROOM = re.compile(r"^  (\w+)/ ")
FOLDER = re.compile(r"^    (\w+)/ .*?(?:: (?P<names>[\w, ]+))?$")
FILES = re.compile(r"^    (\w+(?:, \w+)*)(?: |$)")
TOP = re.compile(r"^  (\w+) ")


def named_modules(text: str) -> set[str]:
    """Paths of the modules that the tree names, without suffix: answers/extract."""
    tree = text.partition("```\nsrc/adacompute/\n")[2].partition("```")[0]
    names: set[str] = set()
    room = ""
    for line in tree.splitlines():
        if match := ROOM.match(line):
            room = match[1]
        elif match := FOLDER.match(line):
            names |= {f"{room}/{match[1]}/{name}" for name in (match["names"] or "").split(", ") if name}
        elif match := FILES.match(line):
            names |= {f"{room}/{name}" for name in match[1].split(", ")}
        elif match := TOP.match(line):
            names.add(match[1])
    return names


def test_the_tree_of_rooms_names_every_file():
    there = {str(path.relative_to(SOURCE).with_suffix("")) for path in SOURCE.rglob("*.py")}
    there = {name for name in there if not name.endswith(("__init__", "__main__"))}
    named = named_modules(PAGE)
    assert sorted(there - named) == [], "describe these files in docs/design/rooms.md"
    assert sorted(named - there) == [], "docs/design/rooms.md names files that are not there"


def test_every_path_in_the_text_is_a_file():
    text = PAGE.rpartition("```")[2]
    assert [path for path in re.findall(r"`(\w+/[\w/]+\.py)`", text) if not locate(path)] == []


def locate(path: str) -> bool:
    return (SOURCE / path).is_file() or (ROOT / path).is_file()
