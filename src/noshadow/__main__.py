"""`python -m noshadow`: the command where the scripts folder is not on the path."""

from noshadow.cli import main

if __name__ == "__main__":
    main()
