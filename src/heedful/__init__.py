"""heedful: train LLM agents with RL, and see when their reasoning stops depending on the input.

    import heedful

    run = heedful.train("echo")                          # or a TrainConfig; heedful.preset("echo") gives one
    heedful.evaluate(run.path, split="test")
    heedful.audit("logs/completions", model="MODEL")
    heedful.measure(scores)                              # log p(thought i | prompt j) from any model

The packages below are loaded when they are first named: `heedful.filters`, `heedful.algorithms`, `heedful.envs`,
`heedful.diagnostics`, `heedful.rollout`, `heedful.policies`, `heedful.scorers`, `heedful.storage`, `heedful.studies`,
`heedful.integrations`. What a package lists in `__all__` is public; everything else may change without notice.

Importing heedful itself loads neither torch nor numpy.
"""

from heedful.import_path import leave_working_directory

leave_working_directory()  # before any other import; `from __future__` would be one, too

from importlib import import_module  # noqa: E402

from heedful.exports import lazily  # noqa: E402
from heedful.version import __version__ as __version__  # noqa: E402

TYPE_CHECKING = False
"""As type checkers read it. `typing` takes 10 ms to import, in which a Ctrl-C at a command would be a traceback."""

if TYPE_CHECKING:
    from typing import Any

    from heedful.auditing import audit
    from heedful.measuring.measure import measure
    from heedful.run.config import TrainConfig
    from heedful.run.evaluation.evaluate import evaluate
    from heedful.run.presets import preset
    from heedful.run.train import Run, resume, train

__all__ = ["Run", "TrainConfig", "audit", "evaluate", "measure", "preset", "resume", "train"]

_HOMES = {
    "Run": "heedful.run.train",
    "TrainConfig": "heedful.run.config",
    "audit": "heedful.auditing",
    "evaluate": "heedful.run.evaluation.evaluate",
    "measure": "heedful.measuring.measure",
    "preset": "heedful.run.presets",
    "resume": "heedful.run.train",
    "train": "heedful.run.train",
}
"""Public name -> the module that is loaded when the name is first used."""

_PACKAGES = frozenset(
    {
        *("algorithms", "auditing", "diagnostics", "envs", "filters", "integrations"),
        *("measuring", "models", "policies", "report", "rollout", "scorers", "seedlings", "serving"),
        *("storage", "studies", "training", "types", "protocols"),
    }
)


_find = lazily(__name__, _HOMES)


def __getattr__(name: str) -> "Any":
    return import_module(f"heedful.{name}") if name in _PACKAGES else _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
