"""Programs that nobody trusts, run where they can do no harm. Standard library only.

    from lockbox import opened

    with opened() as sandbox:                                  # proved against attacks before it is used
        outcome = sandbox.run("print(int(input()) + 1)", "41") # outcome.stdout == b"42\\n"
        sandbox.call("def f(x): return x * 2", "f", [21]).value()

`python -m lockbox FILE` runs one program from the command line. Design: one supervisor process, started with
an empty environment, forks a fresh process for each program. A filter of system calls (seccomp) lets it compute, read
its input and write its output, and nothing else. Where the kernel grants them, namespaces and Landlock come on top.
"""

from lockbox.messages import NotPlain, to_plain
from lockbox.outcome import Limits, Outcome, SandboxError
from lockbox.pool import Sandbox
from lockbox.proof import Wanted, opened

__all__ = ["Limits", "NotPlain", "Outcome", "Sandbox", "SandboxError", "Wanted", "opened", "to_plain"]
