"""The import benchmark still runs, on a tiny file; its speed is nobody's test."""

import pytest

from harness import import_script


@pytest.mark.nightly
def test_the_import_benchmark_measures_every_way():
    module = import_script("imports", "benchmarks")
    rows = module.run(problems=5, samples=3)
    assert {row["way"] for row in rows} == set(module.WAYS)
    assert all(row["samples_per_second"] > 0 and row["peak_rss_mb"] < 500 for row in rows)
