"""Configuration from frozen dataclasses: strict JSON both ways, and a command line that explains itself.

Promise: torch-free, and a default is written once, on the dataclass. Whatever a tree or a command line says is either
applied or answered by a sentence that names the setting; nothing is ignored.

A field is a nested dataclass, a plain value, or a *choice*: one of several dataclasses, picked by name.

    @dataclass(frozen=True)
    class Train:
        steps: int = 80
        \"\"\"Number of updates.\"\"\"
        filter: Annotated[Filter, Choice({"top_p": TopP, "top_k": TopK})] = TopP()

    to_json(Train())                                        # {"steps": 80, "filter": {"type": "top_p", "p": 0.9}}
    from_json(Train, {"filter": {"p": 0.5}}, base=Train())  # a partial tree overrides a base
    parse(Train, Train(), ["--filter", "top_k", "--filter.k", "4"], "heedful train", "Trains an agent.")

Types of fields: bool, int, float, str, Path, Literal, Enum, None, unions of these, tuples, dataclasses and choices.
The string literal under a field is its documentation.
"""

from heedful.configuration.command_line import parse
from heedful.configuration.limits import refuse_below
from heedful.configuration.schema import Choice, Setting, settings_of
from heedful.configuration.tree import ConfigurationError, Problem, from_json, to_json

__all__ = [
    "Choice",
    "ConfigurationError",
    "Problem",
    "Setting",
    "from_json",
    "parse",
    "refuse_below",
    "settings_of",
    "to_json",
]
