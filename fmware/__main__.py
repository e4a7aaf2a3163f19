"""`python -m fmware` is the command `fmware`."""

from fmware.cli import main

if __name__ == "__main__":
    main()
