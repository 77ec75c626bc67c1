"""The import benchmark still runs, on a tiny file; its speed is nobody's test."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent.parent / "benchmarks" / "imports.py"


@pytest.mark.nightly
def test_the_import_benchmark_measures_every_way():
    spec = importlib.util.spec_from_file_location("imports_benchmark", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.run(problems=5, samples=3)
    assert {row["way"] for row in rows} == set(module.WAYS)
    assert all(row["samples_per_second"] > 0 and row["peak_rss_mb"] < 500 for row in rows)
