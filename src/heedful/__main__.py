"""`python -m heedful`, and what `torchrun -m heedful` starts. Promise: the same as the `heedful` command."""

from heedful.cli import main

if __name__ == "__main__":
    main()
