"""A model that a server holds: `heedful eval ENV --server URL` and `heedful play ENV --by URL`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from heedful.boundary import CommandLine, NamesSecret, to_json
from heedful.cli.episode import SampledSettings, drawn_task, named, show_end, table_of_turns
from heedful.console import SafeConsole
from heedful.envs.common.contract import turns_of
from heedful.envs.common.tagged import in_tags
from heedful.run.evaluation.held_out import any_scored, refuse_numbers, write_numbers
from heedful.run.served.settings import ServedSettings, served_settings
from heedful.run.terminal import success_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPlaySettings(SampledSettings):
    """Settings of an episode that a served model plays."""

    api_key_env: Annotated[str, NamesSecret()] = ""
    """The environment variable that holds the server's API key."""


def evaluate_server(line: CommandLine[Any]) -> int:
    """Evaluate as the line says. Returns the exit code."""
    words = line.words
    if words.environment is not None or words.checkpoint is not None:
        raise ValueError(
            "With --server, the server's model plays: give one environment and --model-name, and neither a MODEL nor "
            "--checkpoint."
        )
    if words.model_name is None and not line.helping:
        raise ValueError("--server needs --model-name NAME; `heedful doctor --server URL` lists the names.")
    defaults = served_settings(words.subject, words.model_name or "model")
    settings = line.settings(ServedSettings, defaults, {"sampling.temperature": words.temperature})
    from heedful.run.served import evaluate_served, open_served

    refuse_numbers(settings.json)
    console = SafeConsole(soft_wrap=True)
    with open_served(str(words.server), str(words.model_name), words.tokenizer, settings, console.print) as model:
        said = model.description
        console.print(f"Evaluating {said['model']} at {said['url']} ({said['server']}; {said['dialect']})")
        evaluation = evaluate_served(model, settings, words.out, console, words.take_over)
        about = {
            "subject": f"{said['model']} at {said['url']}",
            "model": said["model"],
            "served": dict(said),
            "settings": {name: value for name, value in to_json(settings).items() if name != "json"},
        }
    console.print(success_table(evaluation.metrics, settings.samples, settings.sampling.temperature))
    if evaluation.sequence:
        console.print(f"best fixed sequence: {' || '.join(evaluation.sequence)}")
    for sentence in evaluation.sentences[2:]:
        console.print(sentence)
    if settings.json is not None:
        write_numbers(settings.json, about, evaluation.metrics, evaluation.sequence)
        console.print(f"written to {settings.json}")
    folder = evaluation.folder.path
    console.print(f"page: {evaluation.folder.report}")
    scorer = "--model MODEL"
    if words.tokenizer is not None and settings.sampling.temperature == 1:  # an audit scores by the same model
        key = f" --api-key-env {settings.api_key_env}" if settings.api_key_env else ""
        scorer = f"--server {words.server} --model-name {words.model_name} --tokenizer {words.tokenizer}{key}"
    console.print(f"does its reasoning heed its input? heedful audit {folder} {scorer}")
    return 0 if any_scored(evaluation.metrics) else 1


def play_server(line: CommandLine[Any]) -> int:
    """Play as the line says. Returns the exit code."""
    words = line.words
    if words.env is None or (words.model_name is None and not line.helping):
        raise ValueError(
            "A served model needs an environment and its name: heedful play ENV --by URL --model-name NAME."
        )
    defaults = served_settings(words.env, words.model_name or "model")
    names = ("env", "context", "sampling", "tags", "template_options", "api_key_env")
    kept = ServedPlaySettings(**{name: getattr(defaults, name) for name in names})
    settings = line.settings(ServedPlaySettings, kept)
    from heedful.policies.served_text import text_alone
    from heedful.rollout.player import Player, made
    from heedful.run.served import open_served
    from heedful.run.terminal import episode_text
    from heedful.seeds import derive
    from heedful.types import Group

    console = SafeConsole()
    shared = {name: getattr(settings, name) for name in names}
    # A greedy episode is played as one, which an evaluation plays besides the sampled ones.
    asked = replace(defaults, **shared | {"sampling": replace(settings.sampling, greedy=False)})
    with open_served(words.by, str(words.model_name), words.tokenizer, asked, console.print) as model:
        env, task = in_tags(settings.env, model.settings.tags), drawn_task(settings)
        name = f"{model.name} at {model.facts.url}"
        console.print(f"{name}: {named(task, settings.member)}", style="bold", soft_wrap=True)
        policy = model.policy(settings.sampling, derive(settings.seed, "play", settings.member))
        player = Player(made(env.episode), task, settings.member, turns_of(env), settings.context)
        while player.ending is None:
            player.advance(policy.answer(player.conversation)[0])
        trajectory = player.trajectory(policy.temperature, policy.version)
        if model.text_only:
            (group,) = text_alone([Group(task, (trajectory,))])
            (trajectory,) = group.trajectories
        console.print(episode_text(trajectory, model.settings.tags))
        if not model.text_only:
            console.print(table_of_turns(trajectory.turns))
        return show_end(trajectory, console)
