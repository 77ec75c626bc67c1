"""The paper's experiment on recordings of our own: its tables, figures and statements, and what holds here.

Imports the package; no part of the package imports it, and it is not in the wheel. README.md says how to run
it; `reproduce_command` and `paper_report` are its two commands.
"""

__all__ = ["PROGRAM"]

PROGRAM = "python -m studies.paper"  # how its commands are called
