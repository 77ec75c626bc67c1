"""`python -m adacompute`: the command, where its script isn't on the path."""

from adacompute.cli import main

if __name__ == "__main__":
    main()
