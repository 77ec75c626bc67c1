"""Ratios side by side, never timed tests. Knows nothing of the package it measures."""

import os

# one core means one: set before numpy is imported, or its matrix products use them all
for _threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
