"""`heedful`, `python -m heedful` and `torchrun -m heedful`: the command line, whose import Ctrl-C may interrupt."""

import sys


def main() -> None:
    """Entry point of the `heedful` command."""
    try:
        from heedful import cli

        cli.main()
    except KeyboardInterrupt:
        print("heedful: interrupted at once; nothing was begun.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
