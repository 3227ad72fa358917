"""`python -m heedful` and `torchrun -m heedful`, the same as the `heedful` command."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the working directory first, where a file named like a library would be imported in its place.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]
    from heedful.cli import main

    main()
