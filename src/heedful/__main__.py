"""`python -m heedful` and `torchrun -m heedful`, the same as the `heedful` command."""

from heedful.cli import main

if __name__ == "__main__":
    main()
