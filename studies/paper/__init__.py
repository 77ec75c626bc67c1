"""The paper's experiment on recordings of our own: its tables, figures and statements, and what holds here.

Imports the package; no part of the package imports it, and it is not in the wheel.
"""
