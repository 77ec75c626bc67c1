"""The benchmark of whole commands runs, on those that take no time; their speed is nobody's test."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
commands = importlib.import_module("benchmarks.commands")


def test_a_command_is_timed_with_its_processor_time(tmp_path: Path):
    listed = {command.name: command for command in commands.list_commands(tmp_path / "pool.jsonl", tmp_path)}
    taken = commands.time_command(listed["adacompute --version"], tmp_path)
    assert taken.wall > 0
    assert taken.processor > 0
    with pytest.raises(RuntimeError, match="evaluate ended with 1"):  # there is no such pool
        commands.time_command(listed["evaluate"], tmp_path)
