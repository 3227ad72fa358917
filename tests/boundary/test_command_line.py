"""The command line of a configuration: flags are JSON in disguise, help teaches, and what is wrong gets a sentence."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from heedful.boundary import Choice, CommandLine, Positional, Shown, from_json, parse


@dataclass(frozen=True, slots=True)
class Share:
    """The largest that make up
    a share.

    More about it.
    """

    p: float = 0.9
    """Share of the total, in (0, 1]."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"p is a share: expected a number above 0 and at most 1, found {self.p}")


@dataclass(frozen=True, slots=True)
class Count:
    """The k largest."""

    k: int = 8
    """How many."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    """Its address."""


@dataclass(frozen=True, slots=True)
class Within:
    """Another one's choice, in part."""

    inner: Annotated[Any, Choice({"share": Share, "count": Count})] = field(default_factory=Share)
    """The other one."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A frozen lake."""

    slip: float = 0.0
    """Probability of slipping,
    in all directions."""
    shared_noise: bool = False
    """One noise for all."""


@dataclass(frozen=True, slots=True)
class Run:
    steps: int = 80
    """Number of updates."""
    note: str = ""
    out: Path | None = None
    device: Literal["auto", "cpu"] = "auto"
    greedy: bool = True
    """Take the likeliest."""
    seeds: tuple[int, ...] = (0,)
    betas: tuple[float, float] = (0.9, 0.95)
    env: Lake = field(default_factory=Lake)
    """Where it happens."""
    filter: Annotated[Any, Choice({"share": Share, "count": Count, "within": Within, "server": Server})] = field(
        default_factory=Share
    )
    """Chooses prompts."""
    critic: Annotated[Count | None, Choice({"count": Count})] = None
    stops: tuple[Lake, ...] = ()
    mixture: tuple[Annotated[Any, Choice({"share": Share, "count": Count})], ...] = ()


def run(*argv: str, default: Run | None = None) -> Run:
    return parse(Run, default or Run(), argv, "heedful train", "Trains an agent.")


def complaints(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    with pytest.raises(SystemExit) as stopped:
        run(*argv)
    assert stopped.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert lines[-1] == "See `heedful train --help` for all settings."
    assert all(line.startswith("heedful train: ") for line in lines[:-1])
    return [line.removeprefix("heedful train: ") for line in lines[:-1]]


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        run(*argv)
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_without_flags_the_default_comes_back() -> None:
    assert run(default=Run(steps=3)) == Run(steps=3)


def test_flags_mean_the_json_they_look_like() -> None:
    flags = run("--steps", "5", "--env.slip", ".2", "--filter", "count", "--filter.k", "4", "--seeds", "1,2", "3")
    assert flags == from_json(
        Run, {"steps": 5, "env": {"slip": 0.2}, "filter": {"type": "count", "k": 4}, "seeds": [1, 2, 3]}
    )


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--steps=5"], Run(steps=5)),
        (["--env.shared-noise"], Run(env=Lake(shared_noise=True))),
        (["--env.shared_noise"], Run(env=Lake(shared_noise=True))),
        (["--env.shared-noise=true"], Run(env=Lake(shared_noise=True))),
        (["--no-greedy"], Run(greedy=False)),
        (["--greedy", "false"], Run(greedy=False)),
        (["--out", "runs/a"], Run(out=Path("runs/a"))),
        (["--out", "none"], Run(out=None)),
        (["--note", "-1 is no flag"], Run(note="-1 is no flag")),
        (["--note=--steps"], Run(note="--steps")),
        (["--note", "--steps 5 --greedy"], Run(note="--steps 5 --greedy")),
        (["--note=two words"], Run(note="two words")),
        (["--note="], Run(note="")),
        (["--env.slip", "-0.5"], Run(env=Lake(slip=-0.5))),
        (["--seeds"], Run(seeds=())),
        (["--betas", "0.1,0.2"], Run(betas=(0.1, 0.2))),
        (["--device", "cpu"], Run(device="cpu")),
        (["--critic", "count", "--critic.k", "2"], Run(critic=Count(k=2))),
        (["--mixture", "count,share"], Run(mixture=(Count(), Share()))),
        (["--filter", "server", "--filter.url", "http://a"], Run(filter=Server("http://a"))),
        (["--steps", "1", "--steps", "2"], Run(steps=2)),
    ],
    ids=lambda argv: " ".join(argv) if isinstance(argv, list) else "",
)
def test_every_form_of_a_flag_is_understood(argv: list[str], expected: Run) -> None:
    assert run(*argv) == expected


def test_the_order_of_a_choice_and_its_settings_does_not_matter() -> None:
    assert run("--filter.k", "4", "--filter", "count") == run("--filter", "count", "--filter.k", "4")


def test_a_choice_inside_a_choice_is_chosen_by_its_own_flag() -> None:
    chosen = run("--filter.inner.k", "3", "--filter.inner", "count", "--filter", "within")
    assert chosen.filter == Within(inner=Count(k=3))


def test_switching_a_choice_off_and_back_to_its_default() -> None:
    assert run("--critic", "none", default=Run(critic=Count(k=1))).critic is None
    assert run("--filter", "share", default=Run(filter=Count())).filter == Share()


def test_a_file_overrides_the_default_and_flags_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"steps": 7, "filter": {"type": "count", "k": 2}, "env": {"slip": 0.5}}')
    (tmp_path / "b.json").write_text('{"env": {"slip": 0.25}}')
    files = ["--config", str(tmp_path / "a.json"), "--config", str(tmp_path / "b.json")]
    read = run("--filter.k", "6", *files, default=Run(note="kept"))
    assert read == Run(steps=7, note="kept", filter=Count(k=6), env=Lake(slip=0.25))


def test_printed_settings_are_accepted_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--filter", "within", "--filter.inner.p", "0.4", "--seeds", "1", "2"]
    (tmp_path / "run.json").write_text(shown(capsys, *flags, "--print-config"))
    assert run("--config", str(tmp_path / "run.json")) == run(*flags)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--stepz 4", "--stepz: unknown flag; did you mean --steps?"),
        ("--slip 4", "--slip: unknown flag; did you mean --env.slip?"),
        ("--filter.q 4", "--filter.q: unknown flag; did you mean --filter.p?"),
        ("--qqq", "--qqq: unknown flag"),
        ("--filter.k 4", "--filter.k: belongs to --filter count, but --filter is share"),
        ("--critic.k 4", "--critic.k: belongs to --critic count, but --critic is none"),
        ("--filter.p 2", "filter: p is a share: expected a number above 0 and at most 1, found 2.0"),
        ("frozen_lake --steps 3", "unexpected argument 'frozen_lake'; settings are given as --name value"),
        ("--env lake", "--env: is a group of settings; set --env.slip, --env.shared-noise"),
        ("--stops 1", "--stops: is a list of objects; set it in a file given with --config"),
        ("--filter", "--filter: expected one of share, count, within, server, found nothing"),
        ("--no-greedy 5", "--no-greedy: expected no value, found 5"),
        ("--filter server", "filter.url: is required: expected text"),
    ],
)
def test_what_cannot_be_applied_is_told_with_what_could_be(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaints(capsys, *typed.split()) == [said]


def test_all_problems_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--steps", "ten", "--device", "gpu", "--betas", ".1", "--filter", "shares", "--filter.p", "2", "--greedy"]
    assert complaints(capsys, *wrong, "maybe", "--note", "a", "b", "--out") == [
        "--note: expected one value, found a b",
        "--out: expected a path or none, found nothing",
        '--steps: expected a whole number, found "ten"',
        '--device: expected one of auto, cpu, found "gpu"; did you mean cpu?',
        '--greedy: expected true or false, found "maybe"',
        "--betas: expected a list of 2 items (a number; a number), found [0.1]",
        "--filter: expected one of share, count, within, server, found 'shares'; did you mean share?",
    ]


def test_a_bad_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing, broken, listed, stray = (tmp_path / name for name in ("missing", "broken", "listed", "stray"))
    broken.write_text("{")
    listed.write_text("[]")
    stray.write_text('{"env": {"slipp": 1}}')
    assert complaints(capsys, "--config", str(missing)) == [
        f"--config: expected a JSON file, but {missing} cannot be read: No such file or directory"
    ]
    assert complaints(capsys, "--config", str(broken))[0].startswith(
        f"--config: expected JSON in {broken}, but it cannot be parsed: "
    )
    assert complaints(capsys, "--config", str(listed)) == [f"--config: expected a JSON object in {listed}, found list"]
    assert complaints(capsys, "--config", str(stray)) == [
        "env.slipp: unknown setting; did you mean slip? Lake has slip, shared_noise"
    ]


def test_help_gives_every_setting_its_documentation_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "--help").split())
    assert text.startswith("usage: heedful train ")
    assert "Trains an agent." in text
    assert "--steps INT Number of updates. (default: 80)" in text
    assert "--greedy, --no-greedy Take the likeliest. (default: true)" in text
    assert "--device auto|cpu (default: auto)" in text
    assert "--betas FLOAT,FLOAT (default: 0.9,0.95)" in text
    assert "--out PATH|none (default: none)" in text
    assert "--env.slip FLOAT Probability of slipping, in all directions. (default: 0.0)" in text
    assert "--env.shared-noise, --env.no-shared-noise One noise for all. (default: false)" in text


def test_help_lists_all_choices_and_explains_the_one_that_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "-h").split())
    assert "--filter NAME Chooses prompts. (default: share) * share The largest that make up a share. count" in text
    assert "--filter.p FLOAT Share of the total, in (0, 1]. (default: 0.9)" in text
    assert "--filter.k" not in text
    text = " ".join(shown(capsys, "--help", "--filter", "server").split())
    assert "* server --filter.url TEXT Its address. (required)" in text
    assert "--filter.p " not in text


def test_printed_settings_are_plain_json_for_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    printed = shown(capsys, "--env.slip", "inf", "--print-config")
    assert json.loads(printed)["env"] == {"slip": "inf", "shared_noise": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Do a thing with one place.

    A second paragraph that is long enough to be wrapped where the terminal is narrow, whatever its source looks like.

      heedful do frozen_lake   --into here
    """

    place: Annotated[str, Positional("PLACE", example="somewhere")]
    """The place."""
    others: Annotated[tuple[str, ...], Positional("OTHER")] = ()
    """More places."""
    into: Annotated[Path | None, Shown("DIR")] = None
    """The folder."""
    numbers: Annotated[tuple[int, ...], Shown("0,1")] = ()
    by: str = "person"
    """Who does it."""
    loud: bool = False
    """Say it."""

    def __post_init__(self) -> None:
        if self.by == "nobody":
            raise ValueError("by must be somebody")


def command(*argv: str) -> CommandLine[Words]:
    return CommandLine(Words, argv, "heedful do")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["a"], Words(place="a")),
        (["a", "b,c", "d"], Words(place="a", others=("b,c", "d"))),
        (["--into", "x", "a"], Words(place="a", into=Path("x"))),
        (["a", "--steps", "3", "--into=x"], Words(place="a", into=Path("x"))),
        (["--numbers", "1,2", "a", "--loud", "b"], Words(place="a", others=("b",), numbers=(1, 2), loud=True)),
        (["--loud", "a", "--by", "me", "--by", "you"], Words(place="a", by="you", loud=True)),
    ],
    ids=lambda argv: " ".join(argv) if isinstance(argv, list) else "",
)
def test_the_words_of_a_command_are_found_wherever_they_are(argv: list[str], words: Words) -> None:
    assert command(*argv).words == words


def test_the_words_decide_the_defaults_of_the_settings_that_follow() -> None:
    line = command("a", "--seeds", "4", "5", "--into", "x", "--env.slip", "1", "--env.slip", "0.5")
    assert line.settings(Run, Run(note=line.words.place)) == Run(note="a", seeds=(4, 5), env=Lake(slip=0.5))
    assert (line.typed("env.slip"), line.typed("note")) == ("0.5", None)
    assert line.touches("env")
    assert not line.touches("note")
    assert line.besides("into") == ["a", "--seeds", "--env.slip", "--env.slip"]


def test_a_word_may_stand_for_a_setting() -> None:
    line = command("a", "--env.slip", "1")
    assert line.settings(Run, Run(), {"env.slip": 0.25, "note": None}).env.slip == 0.25


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "expected PLACE after `heedful do`. PLACE: The place."),
        (["a", "-x"], "unexpected argument '-x'; settings are given as --name value"),
        (["a", "--into"], "--into: expected DIR, found nothing"),
        (["a", "--by"], "--by: expected text, found nothing"),
        (["a", "--into", ""], "--into: expected DIR, found nothing"),
        (["a", "--numbers="], "--numbers: expected 0,1, found nothing"),
        (["a", "--numbers", " , "], "--numbers: expected 0,1, found nothing"),
        ([""], "expected PLACE, found an empty word"),
        (["a", "b", " "], "expected OTHER, found an empty word"),
        (["a", "--numbers", "1,b"], '--numbers: expected a whole number, found "b"'),
        (["a", "--by", "nobody"], "by must be somebody"),
    ],
    ids=lambda argv: " ".join(argv) if isinstance(argv, list) else "",
)
def test_a_wrong_word_is_told_before_any_setting_is_read(
    capsys: pytest.CaptureFixture[str], argv: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command(*argv, "--stepz", "4")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"heedful do: {problem}",
        "See `heedful do --help` for all settings.",
    ]


def test_a_wrong_setting_names_the_line_whose_help_explains_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("a", "--by", "me", "--stepz", "4").settings(Run, Run())
    assert capsys.readouterr().err.splitlines() == [
        "heedful do a: --stepz: unknown flag; did you mean --steps?",
        "See `heedful do a --by me --help` for all settings.",
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("--int", "--into"), ("--confi", "--config"), ("--trus", "--trust"), ("--print-confi", "--print-config")],
)
def test_an_unknown_flag_may_be_one_of_the_commands_own(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command("a", typed, "x").settings(Run, Run())
    assert f"heedful do a: {typed}: unknown flag; did you mean {meant}?" in capsys.readouterr().err


def test_a_command_without_settings_refuses_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command("a", "--config", "x.json", "--loude").end()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "heedful do: --config: unknown flag",
        "heedful do: --loude: unknown flag; did you mean --loud?",
    ]
    command("a", "--loud").end()


def test_one_help_shows_the_words_first_and_then_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    line = command("--help", "--filter", "count")
    with pytest.raises(SystemExit) as stopped:
        line.settings(Run, Run(note=line.words.place))
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "\n\n  heedful do frozen_lake   --into here\n\n" in text  # an example keeps its form
    together = " ".join(text.split())
    assert together.startswith(
        "usage: heedful do PLACE [OTHER ...] [--into DIR] [--numbers 0,1] [--by TEXT] [--loud] [--config FILE] "
        "[--print-config] [--SETTING VALUE ...] Do a thing with one place. A second paragraph that is"
    )
    assert "PLACE The place. (here: somewhere) OTHER ... More places. --into DIR The folder. --numbers 0,1" in together
    assert "--by TEXT Who does it. (default: person) --loud Say it. --config FILE Settings as JSON" in together
    assert "--note TEXT (default: somewhere)" in together
    assert "--filter.k INT How many. (default: 8)" in together
    assert text.count("--help") == 1
