"""`python -m heedful_verl.doctor [OVERRIDES]`: what is installed, registered and missing for verl.

With overrides of verl's configuration it also says what heedful would do with them. Nothing is trained, and no process
of Ray is started. It works without verl, too.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from heedful.boundary import complain, tell
from heedful.command_process import prepare_streams, run_command
from heedful_verl.compatibility import TESTED
from heedful_verl.configured import Finding, findings_of
from heedful_verl.settings import MODES, REGISTER, VARIABLE, HeedfulConfig
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
verl.trainer.main_ppo takes them, also say what heedful would do:

  python -m heedful_verl.doctor
  python -m heedful_verl.doctor trainer.v1.trainer_mode=heedful_sync \\
    'hydra.searchpath=[pkg://heedful_verl.conf]' +heedful=default heedful.outcome=acc

Exit code 0: nothing is missing or wrong. 1: something is. 2: the configuration cannot be read."""


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
    found = [*installed(), *registered(os.environ)]
    if argv:
        try:
            found += configured(argv)
        except ValueError as error:
            _print(found)
            complain(f"heedful: {error}")
            return 2
    _print(found)
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
        elif package == "transformers" and _series(version) >= BEFORE:
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
    """What heedful would do under these overrides. Raises ValueError where they cannot be composed."""
    if _version("verl") is None or _version("hydra-core") is None:
        return [Finding("missing", "The configuration cannot be composed without verl and hydra-core.")]
    return findings_of(composed(overrides))


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


def _print(found: Sequence[Finding]) -> None:
    tell("\n".join(map(str, found)))


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    prepare_streams()
    sys.exit(run_command(lambda: main(sys.argv[1:])))
