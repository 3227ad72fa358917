"""`heedful check-env`: whether any environment keeps the contract, rule by rule.

Each rule ends in a separate line, and an error of the environment is a finding, never a traceback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from heedful import envs
from heedful.boundary import Choice, CommandLine, ConfigurationError, Positional, Seconds, tell
from heedful.envs.checking.check import QUICK, RULES, Effort, check
from heedful.envs.checking.report import Finding, Report
from heedful.envs.common.contract import made_by
from heedful.protocols import Environment
from heedful.run.presets import preset


@dataclass(frozen=True, slots=True)
class CheckWords:
    """Play an environment with all kinds of replies, and say rule by rule whether it keeps the contract.

    The replies are well-formed, empty, huge, broken and adversarial. Nothing is trained, and no model is needed.
    docs/environments.md explains the contract.

      heedful check-env sokoban --env.boxes 2
      heedful check-env my_game:GuessNumber --quick

    Each rule ends as `pass`, `broken`, `not checked` (the environment broke before) or `not applicable` (left out). A
    broken rule says what was expected and found, on which task, member and reply, and what to do. With the library
    Hypothesis (the extra `check`) more texts are tried, and the shortest one that breaks is shown. Exit code 0: no rule
    is broken, and each was looked at. 1: otherwise. 2: the environment could not be found or made. The same in a test
    of your own:

      from heedful.envs.checking.check import QUICK, check

      def test_my_environment_keeps_the_contract():
          report = check(MyEnvironment(), effort=QUICK)
          assert report.ok, str(report)
    """

    env: Annotated[str, Positional("ENV", example="frozen_lake")]
    """An environment or preset (heedful envs lists them), or your own as module:Class or module:factory: any callable
    without arguments that returns an environment. The module is in this folder or on PYTHONPATH."""


STYLES = {"pass": "green", "broken": "bold red", "not checked": "red", "not applicable": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Settings of a check: how much is played, and what is shown."""

    quick: bool = False
    """Fewer seeds and episodes: for a first look, and for test suites."""
    seeds: Annotated[int, Interval(ge=20)] | None = None
    """Tasks that are drawn. none = the number above."""
    episodes: Annotated[int, Interval(ge=4)] | None = None
    """Episodes of well-formed replies. none = the number above."""
    patience: Seconds = 30.0
    """Seconds after which a call counts as hanging."""
    skip: tuple[str, ...] = ()
    """Rules to leave out."""
    json: bool = False
    """Print the findings as JSON."""

    @property
    def effort(self) -> Effort:
        usual = QUICK if self.quick else Effort()
        seeds, episodes = self.seeds or usual.seeds, self.episodes or usual.episodes
        return Effort(seeds=seeds, episodes=episodes, patience=self.patience)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSettings(CheckSettings):
    """Settings of a check, with the environment's knobs."""

    env: Annotated[Any, Choice(envs.ENVIRONMENTS, Environment)]
    """The environment and its knobs."""


def main(argv: list[str]) -> int:
    rules = "\n".join(f"  {rule.name:<15} {rule.says}" for rule in RULES)
    usual, quick = (f"{each.seeds} tasks, {each.episodes} episodes" for each in (Effort(), QUICK))
    amount = f"How much is played: {usual}; with --quick: {quick}."
    line = CommandLine(CheckWords, argv, "heedful check-env", f"{amount}\n\nThe rules:\n\n{rules}")
    settings, env = _settings(line, find_environment(line.words.env))
    return 0 if _checked(env, settings).ok else 1


def find_environment(name: str) -> Any:
    """The environment of this name.

    Raises ValueError where the name is unknown, or its target cannot be imported or made. Raises ImportError where a
    library is missing that a registered environment needs.
    """
    if name in envs.ENVIRONMENTS:
        return envs.ENVIRONMENTS.get_class(name)()
    if ":" not in name:
        return preset(name).env
    return made_by(name)


def _settings(line: CommandLine[CheckWords], env: Any) -> tuple[CheckSettings, Any]:
    """The settings, and the environment with its knobs as they were given."""
    asked = line.helping or line.touches("env", "config", "print_config")
    if not (asked and dataclasses.is_dataclass(env)):
        return line.settings(CheckSettings, CheckSettings()), env
    try:
        settings = line.settings(KnobSettings, KnobSettings(env=env))
    except (TypeError, ConfigurationError) as error:
        raise ValueError(f"The knobs of {line.words.env} cannot be set on a command line: {error}") from error
    return settings, settings.env


def _checked(env: Any, settings: CheckSettings) -> Report:
    if "hypothesis" not in sys.modules:  # it would leave a folder in the working directory
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(tempfile.gettempdir()) / "heedful-hypothesis"))
    if settings.json:
        # Some environments print. Their output must not mix with the JSON.
        with contextlib.redirect_stdout(sys.stderr):
            report = check(env, settings.effort, settings.skip)
        tell(report.write_json())
        return report
    from rich.text import Text

    from heedful.console import SafeConsole

    console = SafeConsole(soft_wrap=True)
    with console.status("") as status:

        def look(what: str, finding: Finding | None) -> None:
            status.update(f"looking at {what}")
            if finding is not None:
                first, *details = finding.lines()
                line = Text(first)
                line.stylize(STYLES[finding.status], 0, len(finding.status))
                console.print(line)
                for detail in details:
                    console.print(detail)

        report = check(env, settings.effort, settings.skip, look)
    console.print(report.total, style="bold")
    return report
