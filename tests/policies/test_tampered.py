"""What is stored is changed, and the hashes made to fit: it is refused, or a policy that keeps its bounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_policy import SAVED, ballots, decide_all, made, some

from adacompute.answers import Tally
from adacompute.errors import NotFitted, PolicyInvalid
from adacompute.policies import load_policy
from adacompute.policies.artefact import write_artefact
from adacompute.policies.base import Policy
from tiers import choose_some

WRONG = (None, True, "x", -1, 0, 1.5, 1e300, [], [1, "x"], {}, {"x": 1})

kinds = pytest.mark.parametrize("kind", SAVED)
Arrays = dict[str, np.ndarray]


def spoiled(array: np.ndarray) -> list[np.ndarray]:
    """Arrays that nobody wrote: of another shape, type or content."""
    found = [array[None], array.astype(np.float32), *(np.full_like(array, value) for value in (0, 1, 100))]
    if array.ndim:
        found += [array[:-1], array[:0], array[::-1]]
    if array.dtype.kind == "f":
        found += [np.full_like(array, value) for value in (np.nan, np.inf, -np.inf, -1e30)]
    elif array.dtype.kind == "i":
        ends = np.iinfo(array.dtype)
        found += [np.full_like(array, value) for value in (-1, ends.max, ends.min)]
    return found


def loaded(folder: Path) -> Policy | None:
    """What is stored there; None: it was refused."""
    try:
        return load_policy(folder)
    except PolicyInvalid as exc:
        said = str(exc)
    assert str(folder) in said
    assert "\n" not in said
    return None


def still_decides(folder: Path, kind: str, settings: dict[str, Any], arrays: Arrays) -> bool:
    """Whether what is stored is taken for a policy; then it has to decide as one, within its bounds."""
    write_artefact(folder, kind=kind, settings=settings, arrays=arrays)
    policy = loaded(folder)
    if policy is None:
        return False
    tallies = [Tally(), Tally.of(["a"]), Tally.of(["a", "b", None])]
    for dial in some(policy):
        try:
            more = decide_all(policy, ballots().prompts[:3], tallies, dial)
        except NotFitted:  # it says that it has learned nothing
            continue
        assert more[0] >= 1
        assert all(0 <= count <= policy.longest for count in more)
    return True


@kinds
def test_c23_settings_that_no_policy_has_are_refused_or_keep_their_bounds(kind, tmp_path):
    folder, policy = tmp_path / "p", made(kind)
    settings, arrays = policy.settings(), dict(policy.arrays())
    tried = refused = 0
    for number, name in enumerate(settings):
        less = {key: value for key, value in settings.items() if key != name}
        assert not still_decides(folder, kind, less, arrays)
        for value in choose_some(WRONG, number):
            tried += 1
            refused += not still_decides(folder, kind, settings | {name: value}, arrays)
    assert refused >= 0.45 * tried
    assert not still_decides(folder, kind, settings | {"more": 1}, arrays)
    assert still_decides(folder, kind, settings, arrays)


@kinds
def test_c23_arrays_that_no_policy_has_are_refused_or_keep_their_bounds(kind, tmp_path):
    folder, policy = tmp_path / "p", made(kind)
    settings, arrays = policy.settings(), dict(policy.arrays())
    for number, (name, array) in enumerate(arrays.items()):
        less = {key: value for key, value in arrays.items() if key != name}
        assert not still_decides(folder, kind, settings, less)
        for other in choose_some(spoiled(array), number):
            still_decides(folder, kind, settings, arrays | {name: other})
    still_decides(folder, kind, settings, arrays | {"more": np.zeros(2)})
    assert still_decides(folder, kind, settings, arrays)


@pytest.mark.parametrize("kind", ["classifier", "curve"])
def test_a_policy_stored_with_embeddings_is_refused_in_one_line_that_says_what_to_do(
    kind: str, tmp_path: Path
):
    policy = made(kind)
    settings = policy.settings() | {"features": "text+embedding+entropy"}
    write_artefact(tmp_path / "policy", kind=kind, settings=settings, arrays=policy.arrays())
    with pytest.raises(PolicyInvalid, match=r"embeddings are no longer supported; fit again with") as refused:
        load_policy(tmp_path / "policy")
    assert "\n" not in str(refused.value)
