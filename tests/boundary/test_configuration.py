"""Configurations as JSON: round trips, partial trees, and a sentence for everything that is wrong."""

import enum
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import pytest
from annotated_types import Interval
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.table import ALGORITHMS
from heedful.auditing import AuditSettings
from heedful.boundary import (
    Choice,
    ConfigurationError,
    Distinct,
    Text,
    from_json,
    settings,
    settings_of,
    to_json,
    trust,
    trusting,
)
from heedful.boundary import Count as AtLeastOne
from heedful.filters import FILTERS
from heedful.rollout import LockStep
from heedful.run.config import TrainConfig


class Chooser(Protocol):
    on: str


class Pace(enum.Enum):
    STEADY = "steady"
    EAGER = "eager"


@settings
class Share:
    """The largest that make up a share."""

    p: Annotated[float, Interval(gt=0, le=1)] = 0.9
    """Share, in (0, 1]."""
    on: str = "outcome"


@dataclass(frozen=True, slots=True)
class Count:
    """The k largest."""

    k: int = 8
    """How many."""
    on: str = "outcome"


@dataclass(frozen=True, slots=True)
class Within:
    """Another one's choice, in part."""

    inner: Annotated[Chooser, Choice(lambda: CHOOSERS)] = field(default_factory=Count)
    """The other one."""
    on: str = "outcome"


@dataclass(frozen=True, slots=True)
class Server:
    """A model behind an address."""

    url: str
    """Its address."""
    retries: int = 3


CHOOSERS: dict[str, type] = {"share": Share, "count": Count, "within": Within}
MODELS: dict[str, type] = {"server": Server}


@dataclass(frozen=True, slots=True)
class Step:
    """How the weights move."""

    lr: float = 1e-3
    """Learning rate."""
    betas: tuple[float, float] = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Run:
    """A run."""

    steps: int = 80
    """Number of updates."""
    name: str = ""
    out: Path | None = None
    """Where to write."""
    greedy: bool = False
    """Take the likeliest token."""
    limit: float = math.inf
    threads: int | Literal["auto"] = "auto"
    pace: Pace = Pace.STEADY
    seeds: tuple[int, ...] = (0,)
    """One run each."""
    step: Step = field(default_factory=Step)
    chooser: Annotated[Chooser, Choice(CHOOSERS)] = field(default_factory=Share)
    """Chooses groups."""
    critic: Annotated[Any | None, Choice({"count": Count})] = None
    """Nothing by default."""
    mixture: tuple[Annotated[Chooser, Choice(CHOOSERS)], ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    model: Annotated[Any, Choice(MODELS)]
    """Whom to ask."""
    times: int


@dataclass(frozen=True, slots=True)
class Mine:
    """A chooser that no table knows."""

    depth: int = 2
    on: str = "outcome"


def problems_of(cls: type, tree: dict[str, Any], base: object | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        from_json(cls, tree, base)
    return [str(problem) for problem in caught.value.problems]


shares = st.floats(0.01, 1.0)
choosers = st.recursive(
    st.builds(Share, p=shares, on=st.text()) | st.builds(Count, k=st.integers()),
    lambda inner: st.builds(Within, inner=inner),
    max_leaves=3,
)
runs = st.builds(
    Run,
    steps=st.integers(),
    name=st.text(),
    out=st.none() | st.just(Path("runs/a")),
    greedy=st.booleans(),
    limit=st.floats(allow_nan=False),
    threads=st.integers() | st.just("auto"),
    pace=st.sampled_from(Pace),
    seeds=st.lists(st.integers(), max_size=3).map(tuple),
    step=st.builds(Step, lr=st.floats(0, 1), betas=st.tuples(st.floats(0, 1), st.floats(0, 1))),
    chooser=choosers,
    critic=st.none() | st.builds(Count),
    mixture=st.lists(choosers, max_size=2).map(tuple),
)


@given(runs)
def test_what_is_written_is_read_back_equal_through_the_strictest_json(run: Run) -> None:
    assert from_json(Run, json.loads(json.dumps(to_json(run), allow_nan=False))) == run


def test_the_tree_names_choices_by_type_and_writes_every_value_plainly() -> None:
    run = Run(out=Path("runs/x"), chooser=Within(inner=Share(p=0.5)), mixture=(Count(k=1),))
    assert to_json(run) == {
        "steps": 80,
        "name": "",
        "out": "runs/x",
        "greedy": False,
        "limit": "inf",
        "threads": "auto",
        "pace": "steady",
        "seeds": [0],
        "step": {"lr": 0.001, "betas": [0.9, 0.95]},
        "chooser": {"type": "within", "inner": {"type": "share", "p": 0.5, "on": "outcome"}, "on": "outcome"},
        "critic": None,
        "mixture": [{"type": "count", "k": 1, "on": "outcome"}],
    }


def test_a_partial_tree_overrides_its_base_and_leaves_the_rest() -> None:
    base = Run(steps=5, step=Step(lr=0.5), chooser=Share(p=0.3, on="reward"))
    run = from_json(Run, {"step": {"betas": [0.1, 0.2]}, "chooser": {"p": 0.4}}, base)
    assert run == Run(steps=5, step=Step(lr=0.5, betas=(0.1, 0.2)), chooser=Share(p=0.4, on="reward"))


def test_another_type_starts_from_its_own_defaults_and_the_same_type_from_the_base() -> None:
    base = Run(chooser=Share(p=0.3, on="reward"))
    assert from_json(Run, {"chooser": {"type": "count", "k": 2}}, base).chooser == Count(k=2, on="outcome")
    assert from_json(Run, {"chooser": {"type": "share"}}, base).chooser == Share(p=0.3, on="reward")


def test_a_choice_inside_a_choice_is_overridden_in_part_too() -> None:
    base = Run(chooser=Within(inner=Share(p=0.3)))
    run = from_json(Run, {"chooser": {"inner": {"p": 0.6}}}, base)
    assert run.chooser == Within(inner=Share(p=0.6))


@pytest.mark.parametrize(
    ("cls", "tree", "said"),
    [
        (Run, {"steps": 2.0}, ["steps: expected a whole number, found 2.0"]),
        (Run, {"steps": True}, ["steps: expected a whole number, found true"]),
        (Run, {"step": {"betass": []}}, ["step.betass: unknown setting; did you mean betas? Step has lr, betas"]),
        (Run, {"chooser": {"type": "share", "k": 3}}, ["chooser.k: share has no setting k; it belongs to count"]),
        (
            Ask,
            {"model": {"type": "server"}},
            ["model.url: is required: expected text", "times: is required: expected a whole number"],
        ),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(cls: type, tree: dict[str, Any], said: list[str]) -> None:
    assert problems_of(cls, tree) == said


def test_a_whole_number_is_a_number() -> None:
    assert from_json(Run, {"step": {"lr": 1}}).step.lr == 1.0


def test_every_problem_is_reported_with_its_path_and_where_a_class_refuses_its_own_words() -> None:
    tree = {
        "steps": "ten",
        "pace": "eagre",
        "threads": "all",
        "seeds": [1, "b"],
        "step": {"betas": [0.1]},
        "chooser": {"type": "within", "inner": {"type": "share", "p": 7}},
        "mixture": [{"type": "count"}, {"k": 1}],
        "critic": "count",
    }
    assert problems_of(Run, tree) == [
        'steps: expected a whole number, found "ten"',
        'threads: expected a whole number or auto, found "all"',
        'pace: expected one of steady, eager, found "eagre"; did you mean eager?',
        'seeds[1]: expected a whole number, found "b"',
        "step.betas: expected a list of 2 items (a number; a number), found [0.1]",
        "chooser.inner.p: expected a number above 0 and at most 1, found 7",
        'critic: expected an object {"type": NAME, ...} with NAME among count, none, found "count"',
        'mixture[1]: expected an object {"type": NAME, ...} with NAME among share, count, within, found {"k": 1}',
    ]


def test_the_message_counts_the_problems_and_gives_each_a_line() -> None:
    with pytest.raises(ValueError, match=r"2 problems in the configuration:\n  steps: .*\n  name: "):
        from_json(Run, {"steps": None, "name": 3})


def test_a_class_outside_the_table_is_written_and_read_by_its_module() -> None:
    run = Run(chooser=Mine(depth=4))
    tree = to_json(run)
    assert tree["chooser"]["type"] == f"{__name__}:Mine"
    assert from_json(Run, tree) == run
    with trusting(["no_such_module", "json"]):
        missing = problems_of(Run, {"chooser": {"type": "no_such_module:Mine"}})[0]
        assert "No module named 'no_such_module'" in missing
        assert "must name a dataclass" in problems_of(Run, {"chooser": {"type": "json:dumps"}})[0]


def test_a_class_outside_the_table_that_only_data_names_is_refused() -> None:
    refused = problems_of(Run, {"chooser": {"type": "json:dumps"}})[0]
    assert refused.startswith("chooser.type: 'json:dumps' names code")
    assert "--trust json " in refused


@given(st.text(max_size=12), st.text(max_size=12), st.sampled_from(["{}:{}", "{}.x:{}", ":{}{}", "{}{}:"]))
def test_no_name_in_data_reaches_an_import(module: str, name: str, form: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust, "import_held", lambda name: pytest.fail(f"{name} was imported"))
        assert problems_of(Run, {"chooser": {"type": form.format(module, name)}})


def test_a_lazy_table_is_only_asked_for_what_is_chosen() -> None:
    asked: list[str] = []

    class Lazy(dict[str, type]):
        def __getitem__(self, name: str) -> type:
            asked.append(name)
            return CHOOSERS[name]

    table = Lazy.fromkeys(["count", "share"], int)

    @dataclass(frozen=True)
    class Config:
        chooser: Annotated[Any, Choice(table)]

    assert from_json(Config, {"chooser": {"type": "share"}}).chooser == Share()
    assert set(asked) == {"share"}


def test_a_choice_whose_module_is_missing_says_so_only_when_it_is_chosen() -> None:
    class Partly(dict[str, type]):
        def __getitem__(self, name: str) -> type:
            if name == "absent":
                raise ImportError("install the extra `absent`")
            return Share

    choice = Choice(Partly.fromkeys(["absent", "share"], int))
    assert choice.name_of(Share) == "share"
    with pytest.raises(LookupError, match="'absent' cannot be loaded: install the extra `absent`"):
        choice.find("absent")


def test_what_can_never_be_configured_is_refused_when_the_class_is_read() -> None:
    @dataclass
    class Loose:
        extras: list[int]

    @dataclass
    class Unnamed:
        critic: Count | None

    with pytest.raises(TypeError, match=r"Loose\.extras has the annotation list\[int\], which cannot be configured"):
        settings_of(Loose)
    with pytest.raises(TypeError, match="Declare a choice"):
        settings_of(Unnamed)


@pytest.mark.parametrize("cls", [*FILTERS.values(), *ALGORITHMS.values()], ids=lambda cls: cls.__name__)
def test_every_filter_and_algorithm_can_be_configured(cls: type) -> None:
    assert from_json(cls, json.loads(json.dumps(to_json(cls())))) == cls()


@pytest.mark.parametrize(
    ("make", "name", "most"),
    [
        (TrainConfig, "threads", 1024),
        (TrainConfig, "env_workers", 1024),
        (AuditSettings, "connections", 1024),
        (LockStep, "threads", 1024),
    ],
)
def test_more_threads_or_processes_than_there_is_room_for_are_refused(make: Any, name: str, most: int) -> None:
    assert getattr(make(**{name: most}), name) == most
    with pytest.raises(ValueError, match=rf"\.{name}: expected .* at most .*, found {most + 1}"):
        make(**{name: most + 1})


@settings(kw_only=True)
class Ranges:
    """Bounds, and a rule between two fields."""

    least: AtLeastOne = 1
    most: AtLeastOne | None = None
    noise: Literal["none", "batch"] = "none"
    name: Text = "a"
    places: tuple[AtLeastOne, ...] = ()
    seeds: Annotated[tuple[int, ...], Distinct(2)] = (1, 2)
    signs: Annotated[tuple[str, ...], Distinct(among=("+", "-"))] = ()
    inner: Share = Share()

    def __post_init__(self) -> None:
        if self.most is not None and self.most < self.least:
            raise ValueError(f"most must be at least {self.least}, found {self.most}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"least": 0}, "least: expected a whole number of at least 1, found 0"),
        ({"least": 1.5}, "least: expected a whole number of at least 1, found 1.5"),
        ({"least": math.nan}, "least: expected a whole number of at least 1, found nan"),
        ({"most": -1}, "most: expected a whole number of at least 1 or none, found -1"),
        ({"noise": "btach"}, "noise: expected one of none, batch, found 'btach'"),
        ({"name": "  "}, "name: expected text of at least 1 letter, found '  '"),
        ({"places": (1, 0)}, r"places: expected a list, each item a whole number of at least 1, found \(1, 0\)"),
        (
            {"seeds": (3, 3)},
            r"seeds: expected a list of 2 or more different items, each a whole number, found \(3, 3",
        ),
        ({"seeds": (3,)}, "seeds: expected a list of 2 or more different items, each a whole number, found"),
        ({"signs": ("+", "x")}, r"signs: expected a list of different items, each one of \+, -, found \('\+', 'x'\)"),
        ({"inner": None}, "inner: expected an object with the settings of Share, found None"),
        ({"least": 3, "most": 2}, "^most must be at least 3, found 2"),
    ],
)
def test_a_class_of_settings_holds_to_its_annotations_in_python_too(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Ranges(**values)


def test_a_list_of_different_items_is_refused_in_a_file_as_it_is_in_python() -> None:
    assert from_json(Ranges, {"seeds": [4, 5]}).seeds == (4, 5)
    with pytest.raises(ConfigurationError, match=r"seeds: expected a list of 2 or more .*, found \[4, 4\]"):
        from_json(Ranges, {"seeds": [4, 4]})
    with pytest.raises(ConfigurationError, match=r"^1 problem .*\n  seeds\[1\]: expected a whole number, found \[\]$"):
        from_json(Ranges, {"seeds": [4, []]})


def test_every_wrong_field_is_named_and_a_subclass_adds_its_own() -> None:
    @settings(kw_only=True)
    class More(Ranges):
        p: Annotated[float, Interval(gt=0, lt=math.inf)] = 1.0

    with pytest.raises(ValueError, match=r"More.least: .*; More.p: expected a number above 0 and below inf, found inf"):
        More(least=0, p=math.inf)
    with pytest.raises(ValueError, match="most must be at least 3"):
        More(least=3, most=2)


def test_whole_numbers_of_numpy_are_taken_and_written() -> None:
    assert to_json(Ranges(least=np.int64(3)))["least"] == 3  # type: ignore[arg-type]
