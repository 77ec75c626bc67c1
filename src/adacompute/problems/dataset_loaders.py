"""Loads the rows of a dataset by its name: from the Hugging Face hub, a local copy, or reasoning-gym.

The libraries `datasets` (slow to import) and reasoning-gym are imported on first use.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from adacompute.errors import ProblemsInvalid, format_value, shorten, suggest_name, to_one_line
from adacompute.problems.presets import HUB_NAMES, Preset, find_preset
from adacompute.problems.row_readers import ProblemRow

Datasets: TypeAlias = Any  # the module `datasets`, imported on first use

_BATCH_ROWS = 1024  # number of rows read at a time
_HUB_SECONDS = 10.0  # maximum time to wait for the hub when checking whether it is reachable
# a folder with one of these files was written by `save_to_disk` of `datasets`
_SAVED_FILES = ("dataset_dict.json", "state.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """The parts of a dataset's name: `openai/gsm8k:main@test` has the config main and the split test."""

    name: str
    config: str | None
    split: str | None
    # (config, split) that are usual for a known dataset; a local copy uses them only if it has them
    usual: tuple[str | None, str | None] = (None, None)

    @classmethod
    def of(cls, text: str, *, split: str | None) -> "HubName":
        """Splits a name into its parts; known datasets get their usual config and split."""
        rest, at, named_split = text.rpartition("@")
        if not at or "/" in named_split or Path(text).exists():  # a folder's name may contain an @
            rest, at, named_split = text, "", ""
        if named_split and split is not None and named_split != split:
            raise ProblemsInvalid(
                f"hf:{text} says split {named_split!r}, and the option {split!r}; give it once"
            )
        name, colon, config = (rest, "", "") if Path(rest).exists() else rest.partition(":")
        if not name or (colon and not config) or (at and not named_split):
            raise ProblemsInvalid(
                f"hf:{text} can't be read; give hf:OWNER/NAME or hf:OWNER/NAME:CONFIG@SPLIT"
            )
        usual = find_usual_preset(name)
        is_local = Path(name).exists()  # a local copy may lack the usual config and split
        return cls(
            name=name,
            config=config or (usual[1] if usual and not is_local else None),
            split=named_split or split or (usual[2] if usual and not is_local else None),
            usual=usual[1:] if usual and is_local else (None, None),
        )

    @property
    def is_local(self) -> bool:
        """Whether the name is a local folder or file."""
        return Path(self.name).exists()


def find_usual_preset(name: str) -> tuple[Preset, str | None, str] | None:
    """Works like `find_preset`, but `name` may also be the path of a local copy, such as `x/OWNER/NAME`."""
    return find_preset(name) or find_preset("/".join(Path(name).parts[-2:]))


def read_hub_rows(dataset: HubName) -> Iterator[ProblemRow]:
    """Yields the rows of one split of a dataset."""
    datasets = _import_datasets()
    loaded = _load_local(datasets, dataset) if dataset.is_local else _load_remote(datasets, dataset)
    # the Arrow format avoids decoding images and audio
    table = _select_split(loaded, dataset).with_format("arrow")
    number = 0
    for batch in table.iter(batch_size=_BATCH_ROWS):
        for value in batch.to_pylist():
            number += 1
            yield ProblemRow(f"row {number}", value)


def _import_datasets() -> Datasets:
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as exc:
        raise ProblemsInvalid(
            f"hf: needs datasets ({to_one_line(exc)}); install it with adacompute[hf]"
        ) from exc
    return datasets


def _load_local(datasets: Datasets, dataset: HubName) -> Any:  # noqa: ANN401
    folder = Path(dataset.name)
    with (
        _wrap_errors(f"hf:{dataset.name}", "check the folder, and give hf:FOLDER[:CONFIG][@SPLIT]"),
        _hide_progress(datasets),
    ):
        if any((folder / name).is_file() for name in _SAVED_FILES):
            return datasets.load_from_disk(str(folder))
        return datasets.load_dataset(str(folder), dataset.config or _find_usual_config(datasets, dataset))


def _find_usual_config(datasets: Datasets, dataset: HubName) -> str | None:
    usual = dataset.usual[0]
    configs = datasets.get_dataset_config_names(dataset.name) if usual else ()
    return usual if usual in configs else None


def _load_remote(datasets: Datasets, dataset: HubName) -> Any:  # noqa: ANN401
    hint = "" if dataset.name in HUB_NAMES else suggest_name(dataset.name, HUB_NAMES, cutoff=0.7)
    reachable = _is_hub_reachable(dataset.name, hint)
    remedy = (
        "check its config and split at the hub"
        if reachable
        else f"{hint}check the connection, or give a file, or hf:./FOLDER of a copy"
    )
    with (
        _wrap_errors(f"hf:{dataset.name}", remedy),
        _hide_progress(datasets),
        _offline_mode(datasets, on=not reachable),
    ):
        return datasets.load_dataset(dataset.name, dataset.config)


def _is_hub_reachable(name: str, hint: str) -> bool:
    """Whether the hub can be reached; `datasets` itself would retry for half a minute.

    Raises ProblemsInvalid if the hub says that the dataset doesn't exist or needs a login.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().dataset_info(name, timeout=_HUB_SECONDS)
    except GatedRepoError as exc:
        raise ProblemsInvalid(
            f"hf:{name}: the hub asks for its terms to be accepted first; do so there, then `hf auth login`"
        ) from exc
    except (RepositoryNotFoundError, HFValidationError) as exc:
        raise ProblemsInvalid(
            f"hf:{name}: the hub has no such dataset, or it is private; {hint}check the name, "
            "or `hf auth login`"
        ) from exc
    except Exception:  # noqa: BLE001 - each version uses another HTTP library with its own errors
        return False
    return True


@contextmanager
def _offline_mode(datasets: Datasets, *, on: bool) -> Iterator[None]:
    """If `on`, makes `datasets` use only data that was downloaded before, without contacting the hub."""
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
def _hide_progress(datasets: Datasets) -> Iterator[None]:
    """Hides the progress bars of `datasets`."""
    were_disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_disabled:
            datasets.enable_progress_bars()


@contextmanager
def _wrap_errors(place: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except Exception as exc:  # `datasets` and its dependencies raise dozens of types of exceptions
        raise ProblemsInvalid(
            f"{place}: can't be loaded ({shorten(to_one_line(exc), 300)}); {remedy}"
        ) from exc


def _select_split(loaded: Any, dataset: HubName) -> Any:  # noqa: ANN401
    if not hasattr(loaded, "keys"):  # it is a single table without splits
        if dataset.split not in (None, str(loaded.split)) or dataset.config:
            raise ProblemsInvalid(f"hf:{dataset.name}: was saved as one table; leave config and split out")
        return loaded
    names = list(loaded.keys())
    candidates = (names[0] if len(names) == 1 else None, dataset.usual[1], "test")
    split = dataset.split or next((name for name in candidates if name in names), None)
    if split not in names:
        problem = f"has no split {format_value(split)}" if split else "has several splits"
        raise ProblemsInvalid(f"hf:{dataset.name}: {problem}; give one with @: {', '.join(map(str, names))}")
    return loaded[split]


Gym: TypeAlias = Any  # `Any`, because reasoning-gym has no type hints

DEFAULT_SIZE = 100  # number of problems generated if no limit is given
_SOLVER = "pycosat"


def generate_rows(names: str, *, size: int, seed: int) -> Iterator[ProblemRow]:
    """Generates `size` problems, spread evenly over the datasets that `names` joins by "+".

    Each problem depends only on its dataset, number and `seed`, so a larger `size` only adds problems.
    """
    gym = _import_gym()
    dataset_names = [name.strip() for name in names.split("+")]
    for name in dataset_names:
        _check_name(name, gym)
    if size < len(dataset_names):
        raise ProblemsInvalid(
            f"gym:{names}: {len(dataset_names)} datasets don't fit into {size} problems; raise the limit"
        )
    for i, name in enumerate(dataset_names):
        share = size // len(dataset_names) + (i < size % len(dataset_names))
        for number, item in enumerate(_generate_items(gym, name, size=share, seed=seed)):
            yield ProblemRow(f"{name} problem {number}", _make_row(name, item, id=f"{name}-{seed}-{number}"))


def _import_gym() -> Gym:
    # Importing reasoning-gym requires pycosat, which must be compiled, but only zebra_puzzles uses it. If
    # pycosat isn't installed, an empty module takes its place.
    use_stub = _SOLVER not in sys.modules and find_spec(_SOLVER) is None
    if use_stub:
        sys.modules[_SOLVER] = ModuleType(_SOLVER)
    try:
        import reasoning_gym  # type: ignore[import-untyped]
    except ImportError as exc:
        raise ProblemsInvalid(
            f"gym: needs reasoning-gym ({to_one_line(exc)}); install it with adacompute[gym]"
        ) from exc
    finally:
        if use_stub:
            del sys.modules[_SOLVER]
    return reasoning_gym


def _check_name(name: str, gym: Gym) -> None:
    known = [known for known in gym.factory.DATASETS if known != "composite"]
    if name in known:
        return
    hint = suggest_name(name, known, limit=3, cutoff=0.5).strip()
    hint = hint or f"there are {len(known)}, e.g. chain_sum, gcd, maze"
    raise ProblemsInvalid(f"gym: there is no dataset {format_value(name)} in reasoning-gym; {hint}")


def _generate_items(gym: Gym, name: str, *, size: int, seed: int) -> Iterator[dict[str, Any]]:
    try:
        yield from gym.create_dataset(name, size=size, seed=seed)
    except Exception as exc:  # any of reasoning-gym's hundred generators may raise any exception
        solver = f" (it needs {_SOLVER}, which isn't installed)" if _SOLVER in str(exc) else ""
        raise ProblemsInvalid(
            f"gym:{name}: reasoning-gym failed with {type(exc).__name__}: {to_one_line(exc)}{solver}; "
            "try another dataset, or another seed"
        ) from exc


def _make_row(name: str, item: dict[str, Any], *, id: str) -> dict[str, Any]:  # noqa: A002 - the record's word
    return {
        "id": id,
        "question": item["question"],
        "gold": item["answer"],
        "subject": name,
        "metadata": item.get("metadata"),  # reasoning-gym needs it to score answers
    }
