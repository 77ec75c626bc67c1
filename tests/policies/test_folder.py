"""A policy's folder is whole whoever writes it, and what can't be a folder is refused in one line."""

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from adacompute.errors import PolicyError
from adacompute.policies import artefact as room
from adacompute.policies import load_policy
from adacompute.policies.artefact import publish, read_artefact, write_artefact
from adacompute.policies.baselines import FixedPolicy


def left(folder: Path) -> list[str]:
    """What lies beside a policy, or half-written in it."""
    names = [path.name for path in folder.parent.iterdir() if path != folder]
    return names + [path.name for path in folder.glob("*.part")]


def together(save: Callable[[int], None]) -> None:
    """Four writers at a time, which all begin at once; what goes wrong with one is raised."""
    start = threading.Barrier(4)

    def one(number: int) -> None:
        start.wait()
        save(number)

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(one, range(4)))


def test_writers_that_meet_leave_one_whole_policy(tmp_path):
    policies = [FixedPolicy(budget) for budget in (1, 2, 4, 8)]
    for turn in range(40):
        folder = tmp_path / str(turn) / "policy"
        folder.parent.mkdir()
        together(lambda number, folder=folder: policies[number].save(folder))
        assert load_policy(folder).budget in (1, 2, 4, 8)
        assert left(folder) == []


def test_writers_that_meet_leave_the_arrays_of_one_of_them(tmp_path):
    def write(number: int) -> None:
        array = np.full(1000, number)
        write_artefact(tmp_path / "policy", kind="asc", settings={"n": number}, arrays={"a": array})

    for _ in range(10):
        together(write)
        found = read_artefact(tmp_path / "policy")
        assert (found.arrays["a"] == found.settings["n"]).all()
        assert sorted(path.suffix for path in (tmp_path / "policy").iterdir()) == [".json", ".npz"]


def test_a_folder_that_fills_while_another_is_written_is_replaced_or_left_alone(tmp_path, monkeypatch):
    """The check that nothing is there, and the rename, are two steps: here something comes between them."""
    write, between = room.write_synced, []

    def slow(path, content):
        write(path, content)
        if between:
            between.pop()()

    monkeypatch.setattr(room, "write_synced", slow)
    between.append(lambda: FixedPolicy(1).save(tmp_path / "policy"))
    FixedPolicy(8).save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").budget == 8
    (tmp_path / "other").mkdir()
    between.append(lambda: (tmp_path / "other" / "thesis.txt").write_text("all of it"))
    with pytest.raises(PolicyError, match="holds something else"):
        FixedPolicy(8).save(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "policy"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "write_synced", full)
    with pytest.raises(PolicyError, match="No space left on device"):
        FixedPolicy(2).save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_is_not_replaced_where_its_folder_can_not_be_locked(tmp_path, monkeypatch):
    def flock(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    FixedPolicy(2).save(tmp_path / "policy")
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(PolicyError, match="can't be written: No locks available; give another folder"):
        FixedPolicy(4).save(tmp_path / "policy")
    with pytest.raises(PolicyError, match="can't be written: No locks available; what was there is intact"):
        room.publish_beside(tmp_path / "policy", "chart.json", b"{}", is_current=lambda folder: True)
    assert load_policy(tmp_path / "policy").budget == 2
    assert left(tmp_path / "policy") == []


def test_others_may_read_a_policy_as_far_as_the_umask_lets_them(tmp_path):
    FixedPolicy(2).save(tmp_path / "policy")
    (tmp_path / "plain").mkdir()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("policy", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize(
    "name", ["a\0b", "x" * 300, "\ud800", "\ud800/policy", "a\0b/policy", "x" * 300 + "/y"]
)
def test_a_path_that_can_not_be_is_refused_in_one_line(tmp_path, name):
    with pytest.raises(PolicyError) as error:
        FixedPolicy(2).save(f"{tmp_path}/{name}")
    assert "\n" not in str(error.value)
    str(error.value).encode()  # so that it can be written
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PolicyError) as error:
        load_policy(f"{tmp_path}/{name}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", [None, 3, b"policy", ["policy"]])
def test_what_is_no_path_is_refused_in_one_line(given):
    for ask in (load_policy, FixedPolicy(2).save):
        with pytest.raises(PolicyError, match="not a folder's path; give one") as error:
            ask(given)
        assert repr(given) in str(error.value)


def test_a_name_as_long_as_names_may_be_is_one(tmp_path):
    folder = tmp_path / ("x" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    for budget in (2, 4):
        FixedPolicy(budget).save(folder)
        assert load_policy(folder).budget == budget


def test_a_link_to_a_folder_stays_one_and_its_folder_gets_the_policy(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    for budget in (2, 4):
        FixedPolicy(budget).save(link)
        assert link.is_symlink()
        assert load_policy(link).budget == load_policy(tmp_path / "real").budget == budget
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_a_link_that_leads_to_no_folder_is_refused_and_kept(tmp_path):
    link = tmp_path / "link"
    for target in ("nowhere", "file", "link"):
        (tmp_path / "file").write_text("mine")
        link.symlink_to(target)
        with pytest.raises(PolicyError, match="link"):
            publish(link, {}, last=("policy.json", b"{}"))
        assert link.is_symlink()
        link.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
