"""Configuration from frozen dataclasses: strict JSON both ways, and a command line that explains itself. Torch-free.

Every setting of a tree or a command line is applied, or refused with a sentence that names it.

A field is a nested dataclass, a plain value, or a *choice*: one of several dataclasses, picked by name.

    @settings
    class Train:
        steps: Annotated[int, Interval(ge=1)] = 80
        \"\"\"Number of updates.\"\"\"
        filter: Annotated[Filter, Choice({"top_p": TopP, "top_k": TopK})] = TopP()

    to_json(Train())                                        # {"steps": 80, "filter": {"type": "top_p", "p": 0.9}}
    from_json(Train, {"filter": {"p": 0.5}}, base=Train())  # a partial tree overrides a base
    parse(Train, Train(), ["--filter", "top_k", "--filter.k", "4"], "heedful train", "Trains an agent.")

A command of the command line has words of its own beside its settings, in a dataclass, too. Its docstring and the field
docstrings are the command's help.

    @dataclass(frozen=True)
    class TrainWords:
        \"\"\"Train an agent.\"\"\"
        env: Annotated[str, Positional("ENV")]
        out: Annotated[Path | None, Shown("DIR")] = None

    line = CommandLine(TrainWords, argv, "heedful train")   # heedful train frozen_lake --out runs/a --steps 5
    config = line.settings(Train, preset(line.words.env))

Types of fields: bool, int, float, str, Path, Literal, Enum, None, unions of these, tuples, dataclasses and choices.
Bounds of a value stand in its annotation (`annotated_types`). A class under `@settings` holds to its annotations in
Python, too; any other dataclass can be configured, and is checked when it is read. The string literal under a field is
its documentation.
"""

from heedful.boundary.command import CommandLine
from heedful.boundary.command_line import parse
from heedful.boundary.decorator import settings
from heedful.boundary.foreign_text import clean, complain, cut, encodable, listed, shown, tell
from heedful.boundary.jsontext import expecting, parse_json, read_json
from heedful.boundary.limits import (
    MOST_SECONDS,
    Count,
    LearningRate,
    Natural,
    NotNegative,
    Port,
    PositiveShare,
    Seconds,
    Share,
    Temperature,
    Text,
    Threads,
    Wait,
    Workers,
)
from heedful.boundary.open_files import has_pyarrow, in_home, open_file
from heedful.boundary.schema import Choice, Distinct, Positional, Shown, settings_of
from heedful.boundary.tree import ConfigurationError, Problem, from_json, to_json, trust_flags, trust_needed
from heedful.boundary.trust import GetsSecret, NamesCode, NamesSecret, TakesWallAway, import_held, trusting

__all__ = [
    "MOST_SECONDS",
    "Choice",
    "CommandLine",
    "ConfigurationError",
    "Count",
    "Distinct",
    "GetsSecret",
    "LearningRate",
    "NamesCode",
    "NamesSecret",
    "Natural",
    "NotNegative",
    "Port",
    "Positional",
    "PositiveShare",
    "Problem",
    "Seconds",
    "Share",
    "Shown",
    "TakesWallAway",
    "Temperature",
    "Text",
    "Threads",
    "Wait",
    "Workers",
    "clean",
    "complain",
    "cut",
    "encodable",
    "expecting",
    "from_json",
    "has_pyarrow",
    "import_held",
    "in_home",
    "listed",
    "open_file",
    "parse",
    "parse_json",
    "read_json",
    "settings",
    "settings_of",
    "shown",
    "tell",
    "to_json",
    "trust_flags",
    "trust_needed",
    "trusting",
]
