"""Runs the command as `python -m adacompute`, if its script isn't on the path."""

from adacompute.cli import main

if __name__ == "__main__":
    main()
