"""`heedful`, `python -m heedful` and `torchrun -m heedful`: the command line, whose import Ctrl-C may interrupt."""

import os
import sys


def main() -> None:
    """Entry point of the `heedful` command."""
    try:
        from heedful import cli

        cli.main()
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise  # Python 3.11 wraps a Ctrl-C inside of a class body
        os.write(2, b"heedful: interrupted at once; nothing was begun.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
