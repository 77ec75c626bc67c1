"""The table in docs/design/rooms.md names every room of the package, and only files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "design" / "rooms.md").read_text("utf-8")
SOURCE = ROOT / "src" / "adacompute"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.*) \|$", re.MULTILINE)


def list_folders(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}


def test_the_table_names_every_room():
    assert sorted(room for room, _, _ in ROW.findall(PAGE)) == sorted(list_folders(SOURCE))
    (serve,) = [what for room, what, _ in ROW.findall(PAGE) if room == "serve"]
    assert set(re.findall(r"`(\w+)` \(", serve)) == list_folders(SOURCE / "serve")


def test_the_table_begins_with_files_that_are_there():
    rows = [(SOURCE / room, re.findall("`(.+?)`", names)) for room, _, names in ROW.findall(PAGE)]
    places = [folder / name for folder, names in rows for name in names]
    assert len(places) > 20
    assert [place for place in places if not (place.is_dir() or place.with_suffix(".py").is_file())] == []


def test_every_path_in_the_text_is_a_file():
    paths = re.findall(r"`(\w+/[\w/]+\.py)`", PAGE)
    assert len(paths) > 10
    assert [path for path in paths if not ((SOURCE / path).is_file() or (ROOT / path).is_file())] == []
