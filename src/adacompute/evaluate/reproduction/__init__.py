"""The paper's experiment on recordings of our own: its tables, its statements, beside what is found here.

Knows nothing of how a recording was made, and of no policy but the paper's own.
"""
