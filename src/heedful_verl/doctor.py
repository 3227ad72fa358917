"""`python -m heedful_verl.doctor [OVERRIDES]`: what is installed, registered and missing for verl.

With overrides of verl's configuration it also says what is wrong with them. Nothing is trained, and no process of Ray
is started. It works without verl, too.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from heedful.boundary import ConfigurationError, complain, cut, in_home, tell
from heedful.cli import prepare_streams, run_command
from heedful_verl.batch.limits import why_unreadable
from heedful_verl.batch.watcher import chosen_filter, refusals, warnings_of
from heedful_verl.compatibility import TESTED
from heedful_verl.play.episodes import FIELD
from heedful_verl.play.playing import environment_of
from heedful_verl.settings import MODES, REGISTER, SECTION, VARIABLE, HeedfulConfig, read_section
from heedful_verl.tasks import LOOP

NEEDED = {
    "verl": f'pip install "verl=={TESTED}.*"',
    "torch": "install it first, for this machine",
    "ray": 'pip install "ray[default]>=2.41"',
    "transformers": 'pip install "transformers>=5.5.3,<5.11,!=5.6.0"',
    "tensordict": "pip install tensordict",
    "TransferQueue": 'pip install "TransferQueue>=0.1.10"; the wheel of verl does not ask for it',
    "hydra-core": "pip install hydra-core",
}
"""Package -> how to add it."""

BEFORE = (5, 11)
"""The first series of transformers that verl 0.9 does not accept."""

ENGINES = ("vllm", "sglang")
"""Inference engines of verl. One is needed to train on GPUs."""

CONFIGURATION = ("verl.trainer.config", "ppo_trainer")

USAGE = """usage: python -m heedful_verl.doctor [OVERRIDE ...]

Say what is installed, registered and missing for heedful inside verl. With overrides of verl's configuration, as
verl.trainer.main_ppo takes them, also say what is wrong with them:

  python -m heedful_verl.doctor
  python -m heedful_verl.doctor trainer.v1.trainer_mode=heedful_sync \\
    'hydra.searchpath=[pkg://heedful_verl.conf]' +heedful=default heedful.outcome=acc

Exit code 0: nothing is missing or wrong. 1: something is. 2: the configuration cannot be read."""


_PLAYED = f"extra_info.{FIELD}.environment"
"""Where a row of a task file names its environment."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    status: Literal["ok", "note", "missing", "wrong"]
    """note: works, and is worth knowing. missing and wrong: something has to be done."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.status:<8}{self.sentence}"


def main(argv: Sequence[str]) -> int:
    """Print the findings. Returns the exit code."""
    if {"-h", "--help"} & set(argv):
        tell(USAGE)
        return 0
    flags = [word for word in argv if word.startswith("-")]
    if flags:
        complain(f"heedful: expected overrides such as trainer.nnodes=2, found {flags[0]!r}.\n\n{USAGE}")
        return 2
    tell(f"heedful {_version('heedful') or 'from its source'}, Python {sys.version.split()[0]}")
    found, unread = [*installed(), *registered(os.environ)], ""
    try:
        found += configured(argv) if argv else []
    except ValueError as error:
        unread = str(error)
    tell("\n".join(map(str, found)))
    if unread:
        complain(f"heedful: {unread}")
        return 2
    bad = sum(finding.status in ("missing", "wrong") for finding in found)
    tell(f"{bad} missing or wrong." if bad else "Nothing is missing.")
    return 1 if bad else 0


def installed() -> Iterator[Finding]:
    """The packages that verl needs, asked of the installation and not imported."""
    for package, how in NEEDED.items():
        version = _version(package)
        if version is None:
            yield Finding("missing", f"{package} is not installed: {how}")
        elif package == "verl" and not version.startswith(f"{TESTED}."):
            yield Finding("note", f"verl {version}; heedful was tested with {TESTED}.")
        elif package == "transformers" and tuple(map(int, re.findall(r"\d+", version)[:2])) >= BEFORE:
            limit = ".".join(map(str, BEFORE))
            yield Finding("wrong", f"transformers {version}: verl {TESTED} needs a version below {limit}. {how}")
        else:
            yield Finding("ok", f"{package} {version}")
    engines = [f"{engine} {version}" for engine in ENGINES if (version := _version(engine))]
    yield Finding(
        "ok" if engines else "note", ", ".join(engines) or "neither vllm nor sglang: no training on GPUs here"
    )


def registered(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether verl would find heedful, and what heedful registers."""
    named = [name.strip() for name in environment.get(VARIABLE, "").split(",")]
    if REGISTER in named:
        yield Finding("ok", f"{VARIABLE} names {REGISTER}.")
    else:
        yield Finding("missing", f"{VARIABLE} does not name heedful: export {VARIABLE}={REGISTER}")
    if _version("verl") is None:
        yield Finding("note", "Without verl nothing can be registered. Task files can be written all the same.")
        return
    try:
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as loops
        from verl.trainer.ppo.v1 import get_trainer_cls

        from heedful_verl import register  # noqa: F401  # it registers when it is imported

        found = [get_trainer_cls(mode).__name__ for mode in MODES]
    except (ImportError, ValueError, KeyError, AttributeError) as error:
        yield Finding("wrong", f"{REGISTER} cannot be loaded: {error}")
        return
    yield Finding("ok", f"Trainers: {', '.join(MODES)} ({', '.join(found)}).")
    if LOOP in loops:
        yield Finding("ok", f"Agent loop: {LOOP} ({loops[LOOP]['_target_']}).")
    else:
        yield Finding("wrong", f"The agent loop {LOOP} is not registered.")


def configured(overrides: Sequence[str]) -> list[Finding]:
    """What is wrong with these overrides. Raises ValueError where they cannot be composed."""
    if _version("verl") is None or _version("hydra-core") is None:
        return [Finding("missing", "The configuration cannot be composed without verl and hydra-core.")]
    return list(findings_of(composed(overrides)))


def composed(overrides: Sequence[str]) -> Mapping[str, Any]:
    """verl's configuration with these overrides, as a plain tree. Raises ValueError."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    module, name = CONFIGURATION
    try:
        with initialize_config_module(module, version_base=None):
            config = compose(name, overrides=list(overrides))
        tree: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(refusal(str(error))) from error
    return dict(tree)


def refusal(found: str) -> str:
    """The sentence for overrides that cannot be composed. Hydra advises a `+`, with which `heedful` refuses them."""
    ours = ", ".join(field.name for field in fields(HeedfulConfig))
    known = f" The section heedful has {ours}." if "'heedful." in found else ""
    return f"Expected overrides that verl's configuration takes, found: {found.splitlines()[0]}{known}"


class _Dotted(dict[str, Any]):
    """A tree whose names are attributes as well, as in verl's own configuration. What is missing is `None`."""

    def __getattr__(self, name: str) -> Any:
        found = self.get(name)
        return _Dotted(found) if isinstance(found, Mapping) else found


def findings_of(tree: Mapping[str, Any]) -> Iterator[Finding]:
    """What is missing, wrong or worth knowing under a configuration of verl, a plain tree."""
    config = _Dotted(tree)
    mode = config.trainer.v1.trainer_mode
    if config.trainer.use_v1 is False:
        yield Finding(
            "wrong",
            "trainer.use_v1=false selects verl's older trainer, which heedful does not know. Leave it at true, or read "
            "the dumps of trainer.rollout_data_dir with heedful audit.",
        )
    elif mode in MODES:
        untested = " This mode was not run yet." if mode == "heedful_separate_async" else ""
        yield Finding("ok", f"trainer.v1.trainer_mode={mode}: verl's trainer {MODES[mode]} with heedful.{untested}")
    else:
        yield Finding(
            "note",
            f"trainer.v1.trainer_mode={mode}: verl's own trainer runs, without filter and diagnostics. The agent loop "
            f"{LOOP} works all the same. For the rest, set it to one of {', '.join(MODES)}.",
        )
    try:
        section = read_section(config.get(SECTION))
    except ConfigurationError as error:
        yield from (Finding("wrong", str(problem)) for problem in error.problems)
        return
    place = f"ray_kwargs.ray_init.runtime_env.env_vars.{VARIABLE}"
    forwarded: Any = config
    for name in place.split("."):
        forwarded = getattr(forwarded, name, None)
    if (config.trainer.nnodes or 1) > 1 and REGISTER not in str(forwarded):
        yield Finding(
            "missing",
            f"trainer.nnodes={config.trainer.nnodes}, but verl does not forward {VARIABLE} to other nodes. Set it on "
            f"every node before `ray start`, or add +{place}={REGISTER}",
        )
    for name in ("train_files", "val_files"):
        files = config.data.get(name) or []
        for file in [files] if isinstance(files, str) else files:
            if "://" not in file:
                yield from _of_file(in_home(file), name, section.play.trust)
    if mode not in MODES:
        return
    notes = [chosen_filter(section, config.algorithm)[1], *warnings_of(config)]
    if section.filter.on == "outcome" and section.outcome is None:
        notes.append(f"{SECTION}.outcome names nothing, so outcomes are known for heedful's environments only.")
    why = why_unreadable(config) if section.diagnostics.enabled else "heedful.diagnostics.enabled=false"
    if why:
        notes.append(f"No information/* and retrieval/*: {why}.")
    yield from (Finding("note", sentence) for sentence in notes if sentence)
    yield from (Finding("wrong", sentence) for sentence in refusals(config, section))


def _of_file(path: Path, name: str, trust: tuple[str, ...]) -> Iterator[Finding]:
    """The rows of a task file that heedful plays, and those that it cannot. Each environment is made once."""
    import pyarrow.parquet

    if not path.exists():
        yield Finding("missing", f"data.{name}: there is no file {path}.")
        return
    if path.suffix != ".parquet":  # verl reads other files otherwise
        return
    try:
        with path.open("rb") as file:
            columns = ["agent_name", "data_source", _PLAYED]
            rows = pyarrow.parquet.ParquetFile(file).read(columns=columns).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        yield Finding("wrong", f"data.{name}: {cut(str(path))} cannot be read ({error}).")
        return
    ours = [row for row in rows if row.get("agent_name") == LOOP]
    sources = ", ".join(sorted({cut(str(row.get("data_source"))) for row in rows})[:8])
    played = f"{len(ours)} of them episodes of heedful" if ours else "none of them an episode of heedful"
    yield Finding("ok", f"data.{name}: {path} has {len(rows)} rows, {played} (data_source: {sources}).")
    named = Counter(((row.get("extra_info") or {}).get(FIELD) or {}).get("environment") for row in ours)
    for text, count in named.items():
        try:
            environment_of(text or "", trust)
        except ValueError as error:
            advice = " Write the file with: python -m heedful_verl.tasks" if text is None else ""
            sentence = f"data.{name}: {count} of these rows cannot be played: {cut(' '.join(str(error).split()), 600)}"
            yield Finding("wrong", sentence + advice)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run_command(lambda: main(sys.argv[1:])))
