"""Makes `python -m adacompute` run the command, for use if the script isn't on the path."""

from adacompute.cli import main

if __name__ == "__main__":
    main()
