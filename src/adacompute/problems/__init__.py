"""Reads problems from files, datasets and generators, and builds the prompts for them.

Nothing here depends on endpoints; of samples, only tables of them are read.
"""

from adacompute.problems.presets import PRESETS, Preset
from adacompute.problems.problem_set import ProblemSet, read_problems, read_samples
from adacompute.problems.template import Template, Turn, template_names, template_path

__all__ = [
    "PRESETS",
    "Preset",
    "ProblemSet",
    "Template",
    "Turn",
    "read_problems",
    "read_samples",
    "template_names",
    "template_path",
]
