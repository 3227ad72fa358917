"""`heedful`, `python -m heedful` and `torchrun -m heedful`: the command line, whose import Ctrl-C may interrupt."""

import os
import sys


def main() -> None:
    """Entry point of the `heedful` command."""
    try:
        from heedful import cli

        cli.main()
    except KeyboardInterrupt:
        os.write(2, b"heedful: interrupted at once; nothing was begun.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
