"""`heedful play`: one episode in the terminal, played by you, the solver, a random player or a model.

An episode can be left at any point (`quit`, Ctrl-D, Ctrl-C).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from heedful.boundary import Choice, CommandLine, Positional, Shown, shown
from heedful.cli.episode import (
    SampledSettings,
    ScriptedSettings,
    drawn_task,
    named,
    show_end,
    show_pictures,
    table_of_turns,
    write_pictures,
)
from heedful.cli.human_reply import reply_of, ways_to_answer
from heedful.envs.common.contract import checked_observation, checked_step, demonstrated, turns_of
from heedful.envs.common.tagged import in_tags
from heedful.policies import POLICIES, PolicySource
from heedful.protocols import Demonstrates, Environment, Episode
from heedful.run.evaluation.subjects import Subject, find_subject, load, shared_fields, with_settings
from heedful.run.presets import did_you_mean, in_full, preset, starting_points
from heedful.seedlings.recipe import Seedling
from heedful.storage import is_run
from heedful.types import Ending, Image, Observation, Reply, Step, Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from heedful.rollout.player import Player


@dataclass(frozen=True, slots=True)
class PlayWords:
    """Play one episode: see the agent's view, answer, and see the effect of the answer.

    A person types `down right`, `Down, Down`, `d r`, or a reply with its tags. `quit` leaves. A model's prompts,
    thoughts and answers are shown in colour, with its certainty in each turn. Each word of its thoughts shows how much
    it tells about the prompt. The settings below belong to ENV and WHO.

      heedful play frozen_lake --env.slip 0.2
      heedful play frozen_lake --by solver
      heedful play sokoban --env.observation image --picture board.png
      heedful play --by runs/frozen_lake-grpo-s0-1 --seed 3 --sampling.greedy
      heedful play --by runs/frozen_lake-grpo-s0-1 --task 5837263401
      heedful play my_game:Maze --by seedling --seedling.steps 500
      heedful play bandit --by http://127.0.0.1:8000 --model-name policy
    """

    env: Annotated[str | None, Positional("ENV")] = None
    """An environment or preset (heedful envs lists them), or your own as module:Class. Leave it out for a run."""
    by: Annotated[str, Shown("WHO")] = "person"
    """The player: person, solver (a seedling learns from its demonstrations), random, or seedling (the untrained one of
    ENV's preset). Or a run's folder, a checkpoint, a model's folder, a Hugging Face name, or the URL of a server."""
    checkpoint: Annotated[str | None, Shown("WHICH")] = None
    """The checkpoint of a run: last (default), best, or a step."""
    model_name: Annotated[str | None, Shown("NAME")] = None
    """With a server: the name of its model."""
    tokenizer: Annotated[str | None, Shown("DIR")] = None
    """With a server: the tokenizer of its model, so that ids come back, with log-probabilities."""
    picture: Annotated[Path | None, Shown("FILE")] = None
    """Where a person, the solver or a random player plays: write the newest picture to this PNG file after every turn.
    Needs --env.observation image or image_and_text."""

    def __post_init__(self) -> None:
        if self.picture is None:
            return
        if self.picture.suffix.lower() != ".png":
            raise ValueError(f"picture must be a name that ends in .png, found {str(self.picture)!r}")
        if self.by not in SCRIPTED:
            raise ValueError(f"--picture is for --by {', '.join(SCRIPTED)}, but --by is {self.by}. Leave it out.")


SCRIPTED = ("person", "solver", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings(SampledSettings):
    """Settings of an episode that a model plays."""

    references: int = 15
    """Evaluation tasks whose prompts each thought's words are compared with. 0 = no comparison."""
    policy: Annotated[PolicySource, Choice(POLICIES, PolicySource)]
    """The sampler of replies, typed --sampler NAME as well: local = the model in this process, vllm = servers."""
    threads: int
    """CPU threads."""
    device: Literal["auto", "cpu", "cuda", "mps"]
    dtype: Literal["float32", "bfloat16"]
    """Type of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedlingSettings(ModelSettings):
    """Settings of an episode that an untrained seedling plays."""

    seedling: Seedling
    """Recipe of the seedling."""


def main(argv: list[str]) -> int:
    line = CommandLine(PlayWords, argv, "heedful play")
    name, by, checkpoint = line.words.env, line.words.by, line.words.checkpoint
    if name is None and by in (*SCRIPTED, "seedling"):
        if not line.helping:
            known = ", ".join(starting_points())
            raise ValueError(f"Expected an environment after `heedful play`: one of {known}, or module:Class.")
        name = "frozen_lake"
    if by.lower().startswith(("http://", "https://")):
        from heedful.cli.served_model import play_server

        return play_server(line)
    if line.words.model_name or line.words.tokenizer:
        raise ValueError("--model-name and --tokenizer are for a served model; name its server with --by URL.")
    if by not in SCRIPTED:
        players = (*SCRIPTED, "seedling")
        if by not in players and not Path(by).exists() and (hint := did_you_mean(by.lower(), players)):
            raise ValueError(f"--by: expected a player, a run, a checkpoint, a model or a URL, found {by!r}.{hint}")
        subject = find_subject(by, name, checkpoint)
        kind = SeedlingSettings if subject.is_seedling else ModelSettings
        settings = line.settings(kind, kind(**(shared_fields(kind, subject.config) | {"seed": 0})))
        return _play_model(with_settings(subject, settings), settings)
    if checkpoint is not None:
        raise ValueError(f"--checkpoint is for --by RUN, but --by is {by}. Leave it out, or name a run.")
    if is_run(Path(str(name))):
        raise ValueError(f"Expected an environment, found the run {name}. To watch it play: heedful play --by {name}")
    env = in_full(preset(str(name)).env)
    return _play_scripted(by, line.settings(ScriptedSettings, ScriptedSettings(env=env)), line.words.picture)


class _Watched:
    """An episode that remembers its last answer, to be shown."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self.shown = ""
        self.images: tuple[Image, ...] = ()
        self.step_taken: Step | None = None

    def start(self, task: Task, member: int) -> Observation:
        observation = checked_observation(self._episode.start(task, member))
        self.shown, self.images = observation.text, observation.images
        return observation

    def step(self, response: str) -> Step:
        self.step_taken = None
        step = checked_step(self._episode.step(response))
        self.shown, self.images, self.step_taken = step.observation.text, step.observation.images, step
        return step


def _play_scripted(by: str, settings: ScriptedSettings, picture: Path | None) -> int:
    from heedful.console import SafeConsole
    from heedful.rollout.player import Player, made

    console, env, task = SafeConsole(), settings.env, drawn_task(settings)
    answer = _player(by, settings, task, console)
    episode = _Watched(made(env.episode))
    player = Player(episode, task, settings.member, turns_of(env))
    console.print(f"{env.name}, {named(task, settings.member)}", style="bold", soft_wrap=True)
    if picture and player.ending is None and not episode.images:
        raise ValueError(
            f"Expected observations with pictures for --picture {picture}, found text alone. Choose "
            "--env.observation image, or leave --picture out."
        )
    turn = 0
    while player.ending is None:
        turn += 1
        console.print(f"\nturn {turn} of at most {turns_of(env)}", style="bold")
        _show_pictures(episode, picture, console)
        console.print(shown(episode.shown), style="cyan", markup=False, soft_wrap=True)
        reply = answer()
        if reply is None:
            console.print("left before the end", style="bold")
            return 0
        if by != "person":
            console.print(reply, style="yellow", markup=False, soft_wrap=True)
        player.advance(_as_sampled(reply, player))
        if episode.step_taken is not None:
            _show_step(episode.step_taken, console)
    if player.ending is not Ending.ERROR:
        _show_pictures(episode, picture, console)
    console.print()
    return show_end(player.trajectory(temperature=1.0, policy_version=0), console)


def _show_pictures(episode: _Watched, picture: Path | None, console: Console) -> None:
    if picture:
        write_pictures(episode.images, picture)
    show_pictures(episode.images, console)


def _as_sampled(text: str, player: Player) -> Reply:
    from heedful.policies.scripted import ScriptedPolicy

    return ScriptedPolicy(lambda conversation: text).respond([player.conversation])[0]


def _player(by: str, settings: ScriptedSettings, task: Task, console: Console) -> Callable[[], str | None]:
    """The player as a function that gives the next reply, or `None` to leave."""
    from heedful.rollout.baselines import has_random_player, random_reply
    from heedful.seeds import stream

    env, rng = settings.env, stream(settings.seed, "play", by, settings.member)
    if by == "person":
        console.print(ways_to_answer(env), markup=False)
        return lambda: _ask(env, console)
    if by == "random":
        if not has_random_player(env):
            raise ValueError(
                f"A random player needs to know what can be answered, but {env.name} has neither `actions` nor "
                "`random_answer`."
            )
        return lambda: random_reply(env, task, rng)
    if not isinstance(env, Demonstrates):
        raise ValueError(f"{env.name} has no solver (no `demonstrate`). Try --by person or --by random.")
    if settings.member:
        raise ValueError(f"The solver demonstrates under the noise of member 0, found --member {settings.member}.")
    replies = iter([reply for _, reply in demonstrated(env, task, rng)])
    return lambda: next(replies, None)


def _ask(env: Environment, console: Console) -> str | None:
    """Ask until the answer can be read. `None` when the person leaves."""
    while True:
        try:
            if sys.stdin.isatty():
                line = console.input("> ")
            else:  # a file or a pipe
                console.print("> ", end="")
                line = sys.stdin.readline()
                if not line:
                    raise EOFError
        except (EOFError, KeyboardInterrupt):
            console.print()
            return None
        try:
            return reply_of(line.strip(), env)
        except ValueError as problem:
            console.print(str(problem), style="red", markup=False)


def _show_step(step: Step, console: Console) -> None:
    executed = shown(", ".join(step.actions)) or "nothing"
    console.print(f"executed: {executed}{'' if step.valid else ' (not a valid reply)'}", markup=False, soft_wrap=True)
    if step.effect:
        console.print(f"effect:   {shown(step.effect)}", markup=False, soft_wrap=True)
    rewards = ", ".join(f"{name} {value:+g}" for name, value in step.rewards.items())
    console.print(f"reward:   {shown(rewards) or '0'}", markup=False)


def _play_model(subject: Subject, settings: ModelSettings) -> int:
    from heedful.cli.token_information import show_listening
    from heedful.console import SafeConsole
    from heedful.rollout.player import Player, made
    from heedful.run.terminal import episode_text
    from heedful.seeds import derive

    console, task = SafeConsole(), drawn_task(settings)
    console.print(f"{subject.label}: {named(task, settings.member)}", style="bold", soft_wrap=True)
    for note in subject.notes:
        console.print(note, soft_wrap=True)
    with load(subject, console) as loaded:
        env, sampling = in_tags(settings.env, loaded.renderer.tags), settings.policy.sampling(settings.sampling)
        policy = loaded.policy(sampling, derive(settings.seed, "play", settings.member))
        player = Player(made(env.episode), task, settings.member, turns_of(env), settings.context)
        while player.ending is None:
            player.advance(policy.respond([player.conversation])[0])
        trajectory = player.trajectory(policy.temperature, policy.version)
        legend = "cyan: prompt, magenta: forced tag, green: thought, yellow: answer, blue: appended between"
        console.print(legend, soft_wrap=True)
        console.print(episode_text(trajectory, loaded.renderer.tags))
        console.print(table_of_turns(trajectory.turns))
        if settings.references > 0 and trajectory.outcome is not None:
            show_listening(trajectory, loaded, env, sampling, settings.references, console)
        return show_end(trajectory, console)
