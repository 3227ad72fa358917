"""Where `python -m heedful` imports from: not the working directory, in which files of somebody else may lie.

`-m` puts that folder first. A file there that is named like a library would be imported in the library's place. So the
package calls this before its first import. For that reason there is no `from __future__` here either: it is an import.
"""

import os
import sys


def leave_working_directory() -> None:
    """Take the working directory from the path, if `-m` put it there for a module of heedful.

    Where `-m` names a module of somebody else, which imports heedful, the path stays as it is.
    """
    # While Python looks for the module that -m names, its place among the arguments is taken by "-m".
    if sys.argv[:1] != ["-m"] or sys.flags.safe_path:
        return
    package = sys.orig_argv[-len(sys.argv)].partition(".")[0]  # the word before those of the program
    if package != "heedful" and not (package.startswith("-") and package.endswith("mheedful")):
        return
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the folder was deleted, and Python has put nothing there
        return
    if sys.path[:1] == [here]:
        del sys.path[0]
