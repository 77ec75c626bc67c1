"""Datasets by their name at the hub, or in a local folder of the same shape, through `datasets`.

Knows nothing of what rows mean. `datasets` takes seconds to import, and is imported only here.
"""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from adacompute.errors import ProblemsInvalid
from adacompute.pool.faults import one_line
from adacompute.pool.flaw import shown
from adacompute.problems.parquet import arrow_rows
from adacompute.problems.presets import HUB_NAMES, Preset, preset_for
from adacompute.problems.rows import Row

__all__ = ["HubName", "hub_rows", "usual_for"]

Datasets: TypeAlias = Any  # loaded when called

_ROWS = 1024  # read at a time
_SECONDS = 10.0  # to hear from the hub whether it is there at all
_SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves in its folder


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """`openai/gsm8k:main@test` in its parts."""

    name: str
    config: str | None
    split: str | None
    usual: tuple[str | None, str | None] = (None, None)  # config and split, where a local copy has them

    @classmethod
    def of(cls, text: str, *, split: str | None) -> "HubName":
        """The parts, with the usual config and split of datasets that we know."""
        rest, at, said = text.rpartition("@")
        if not at or "/" in said or Path(text).exists():  # a folder may have an @ in its name
            rest, at, said = text, "", ""
        if said and split is not None and said != split:
            raise ProblemsInvalid(f"hf:{text} says split {said!r}, and the option {split!r}; give it once")
        name, colon, config = (rest, "", "") if Path(rest).exists() else rest.partition(":")
        if not name or (colon and not config) or (at and not said):
            raise ProblemsInvalid(
                f"hf:{text} can't be read; give hf:OWNER/NAME or hf:OWNER/NAME:CONFIG@SPLIT"
            )
        usual = usual_for(name)
        here = Path(name).exists()  # a copy may have neither that config nor that split
        return cls(
            name=name,
            config=config or (usual[1] if usual and not here else None),
            split=said or split or (usual[2] if usual and not here else None),
            usual=usual[1:] if usual and here else (None, None),
        )

    @property
    def local(self) -> bool:
        """Whether it is a folder or file here."""
        return Path(self.name).exists()


def usual_for(name: str) -> tuple[Preset, str | None, str] | None:
    """As `preset_for`; a local copy is known by the last two parts of its path."""
    return preset_for(name) or preset_for("/".join(Path(name).parts[-2:]))


def hub_rows(wanted: HubName) -> Iterator[Row]:
    """The rows of one split."""
    datasets = _loaded()
    found = _local(datasets, wanted) if wanted.local else _remote(datasets, wanted)
    table = _one_split(found, wanted).with_format("arrow")  # no decoding of images and sounds
    number = 0
    for batch in table.iter(batch_size=_ROWS):
        for value in arrow_rows(batch):
            number += 1
            yield Row(f"row {number}", value)


def _loaded() -> Datasets:
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as exc:
        raise ProblemsInvalid(
            f"hf: needs datasets ({one_line(exc)}); install it with adacompute[hf]"
        ) from exc
    return datasets


def _local(datasets: Datasets, wanted: HubName) -> Any:  # noqa: ANN401
    folder = Path(wanted.name)
    with (
        _refused(f"hf:{wanted.name}", "check the folder, and give hf:FOLDER[:CONFIG][@SPLIT]"),
        _quiet(datasets),
    ):
        if any((folder / name).is_file() for name in _SAVED):
            return datasets.load_from_disk(str(folder))
        return datasets.load_dataset(str(folder), wanted.config or _usual_config(datasets, wanted))


def _usual_config(datasets: Datasets, wanted: HubName) -> str | None:
    usual = wanted.usual[0]
    there = datasets.get_dataset_config_names(wanted.name) if usual else ()
    return usual if usual in there else None


def _remote(datasets: Datasets, wanted: HubName) -> Any:  # noqa: ANN401
    near = difflib.get_close_matches(wanted.name, HUB_NAMES, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}? " if near and near[0] != wanted.name else ""
    reached = _reached(wanted.name, hint)
    remedy = (
        "check its config and split at the hub"
        if reached
        else f"{hint}check the connection, or give a file, or hf:./FOLDER of a copy"
    )
    with _refused(f"hf:{wanted.name}", remedy), _quiet(datasets), _offline(datasets, on=not reached):
        return datasets.load_dataset(wanted.name, wanted.config)


def _reached(name: str, hint: str) -> bool:
    """Whether the hub is there, asked briefly: `datasets` itself retries for half a minute to find out.

    What the hub says it doesn't have is refused here; what was downloaded before is there without it.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().dataset_info(name, timeout=_SECONDS)
    except GatedRepoError as exc:
        raise ProblemsInvalid(
            f"hf:{name}: the hub asks for its terms to be accepted first; do so there, then `hf auth login`"
        ) from exc
    except (RepositoryNotFoundError, HFValidationError) as exc:
        raise ProblemsInvalid(
            f"hf:{name}: the hub has no such dataset, or it is private; {hint}check the name, "
            "or `hf auth login`"
        ) from exc
    except Exception:  # noqa: BLE001 - each version has another HTTP library below it, with its own errors
        return False
    return True


@contextmanager
def _offline(datasets: Datasets, *, on: bool) -> Iterator[None]:
    """What was downloaded before is used, and nothing asked for."""
    from huggingface_hub import constants

    places = [(datasets.config, "HF_HUB_OFFLINE"), (constants, "HF_HUB_OFFLINE")]
    before = [getattr(module, name) for module, name in places]
    try:
        for module, name in places if on else ():
            setattr(module, name, True)
        yield
    finally:
        for (module, name), value in zip(places, before, strict=True):
            setattr(module, name, value)


@contextmanager
def _quiet(datasets: Datasets) -> Iterator[None]:
    """Without its own progress bars."""
    shown_before = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not shown_before:
            datasets.enable_progress_bars()


@contextmanager
def _refused(place: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except Exception as exc:  # the library and those below it raise dozens of kinds
        raise ProblemsInvalid(f"{place}: can't be loaded ({_said(exc)}); {remedy}") from exc


def _said(exc: Exception) -> str:
    said = one_line(exc)
    return said if len(said) <= 300 else f"{said[:297]}..."


def _one_split(found: Any, wanted: HubName) -> Any:  # noqa: ANN401
    if not hasattr(found, "keys"):  # a single Dataset, saved without splits
        if wanted.split not in (None, str(found.split)) or wanted.config:
            raise ProblemsInvalid(f"hf:{wanted.name}: was saved as one table; leave config and split out")
        return found
    names = list(found.keys())
    likely = (names[0] if len(names) == 1 else None, wanted.usual[1], "test")
    split = wanted.split or next((name for name in likely if name in names), None)
    if split not in names:
        asked = f"has no split {shown(split)}" if split else "has several splits"
        raise ProblemsInvalid(f"hf:{wanted.name}: {asked}; give one with @: {', '.join(map(str, names))}")
    return found[split]
