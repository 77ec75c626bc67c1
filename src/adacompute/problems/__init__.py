"""Reads problems from files, datasets and generators, and builds prompts; also reads tables of samples."""

from adacompute.problems.presets import PRESETS
from adacompute.problems.problem_set import ProblemSet, read_problems, read_samples
from adacompute.problems.template import Template, template_names, template_path

__all__ = [
    "PRESETS",
    "ProblemSet",
    "Template",
    "read_problems",
    "read_samples",
    "template_names",
    "template_path",
]
