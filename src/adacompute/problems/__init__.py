"""Reads problems from files, datasets and generators, and builds the prompts for them.

Knows nothing about endpoints, and about samples only how tables store them.
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
