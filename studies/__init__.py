"""Studies made with adacompute; not part of the package."""
