"""`heedful doctor`: one screen about this installation, and about a model or an inference server that is named.

Nothing is changed, here or on the server. No setting of the server beyond the ones that matter is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from heedful.boundary import CommandLine, Shown, cut, tell

if TYPE_CHECKING:
    from heedful.doctor import Machine, ServerFindings


@dataclass(frozen=True, slots=True)
class DoctorWords:
    """Show what is installed, which extras are missing, and the processors and caches of this machine.

    With --server: whether the server can be reached, its version, the flags that training would miss, and whether
    weights would go out to it. With --model: how sampler, scorer and learner would read it, and at which cost.

      heedful doctor
      heedful doctor --model smollm2
      heedful doctor --server http://127.0.0.1:8000
      heedful doctor --server http://127.0.0.1:8000 --model-name policy --json

    Exit codes: 0 nothing is wrong, 1 something is (the lines that begin with `wrong:`), 2 bad input. Extras that are
    not installed, and flags that only training needs, are not wrong.
    """

    model: Annotated[str | None, Shown("NAME")] = None
    """A model as for `train`. It is loaded on the CPU, and a few tokens are read."""
    server: Annotated[str | None, Shown("URL")] = None
    """An inference server, such as http://127.0.0.1:8000."""
    model_name: Annotated[str | None, Shown("NAME")] = None
    """A model that the server should have."""
    api_key_env: Annotated[str, Shown("VARIABLE")] = ""
    """The environment variable that holds the server's API key. The key is shown nowhere."""
    json: bool = False
    """Print everything as JSON instead."""


def main(argv: list[str]) -> int:
    line = CommandLine(DoctorWords, argv, "heedful doctor")
    line.end()
    words = line.words
    if words.server is None and (words.model_name or words.api_key_env):
        raise ValueError("--model-name and --api-key-env belong to a server; name it with --server URL.")

    from heedful.doctor import examine_machine, examine_model, examine_server

    machine = examine_machine()
    model = [] if words.model is None else examine_model(words.model)
    server = None if words.server is None else examine_server(words.server, words.model_name, words.api_key_env)
    faults = [*machine.faults, *(server.faults if server else ())]
    if words.json:
        tree = _tree(machine, server, faults)
        tell(json.dumps({**tree, "model": model}, indent=1))
    else:
        told = [
            *_of_machine(machine),
            *(f"{'' if line else 'model':10}{found}" for line, found in enumerate(model)),
            *(_of_server(server) if server else ()),
        ]
        # A server may name anything at any length.
        tell("\n".join(map(cut, told)))
        tell("\n".join(cut(f"wrong: {fault}") for fault in faults) or "Nothing is wrong.")
    return 1 if faults else 0


def _tree(machine: Machine, server: ServerFindings | None, faults: Sequence[str]) -> dict[str, Any]:
    from heedful.doctor import how_to_add

    add = how_to_add(machine.absent) if machine.absent else None
    tree: dict[str, Any] = {"machine": asdict(machine), "add": add, "server": None, "faults": list(faults)}
    if server is not None:
        facts = server.facts
        tree["server"] = {
            "url": server.url,
            "reached": facts is not None,
            "facts": None if facts is None else asdict(facts),
            "lacks": [] if facts is None else [asdict(lack) for lack in facts.lacks],
            "ways_out": {} if facts is None else {way: obstacle or None for way, obstacle in facts.ways_out.items()},
        }
    return tree


def _of_machine(machine: Machine) -> Iterator[str]:
    from heedful.doctor import how_to_add

    threads = ", ".join(f"{name}={value}" for name, value in machine.threads.items()) or "not limited by a variable"
    yield f"heedful {machine.heedful}, Python {machine.python}, {machine.system}"
    yield f"CPU       {machine.cores} cores; threads {threads}"
    yield f"GPU       {', '.join(machine.gpus) or 'none that torch sees'} (torch {machine.torch})"
    present = [extra.name for extra in machine.extras if not extra.missing]
    yield f"extras    installed: {', '.join(present) or 'none'}"
    if machine.absent:
        yield f"          missing: {', '.join(machine.absent)}. To add them: {how_to_add(machine.absent)}"
    for cache in machine.caches:
        yield f"cache     {cache.path}: {_size(cache.bytes)} ({cache.holds})"


def _of_server(server: ServerFindings) -> Iterator[str]:
    facts = server.facts
    if facts is None:
        yield f"server    {server.url}: not reached"
        return
    kind = f"vLLM {facts.vllm}" if facts.vllm else "OpenAI-compatible, not vLLM: evaluation as text alone"
    yield f"server    {facts.url}: {kind}"
    models = [f"{name} (window {window or 'unknown'})" for name, window in list(facts.windows.items())[:8]]
    yield f"models    {', '.join(models) or 'not listed'}"
    if facts.settings is not None:
        shown = {name: facts.settings[name] for name in ("dtype", "device", "logprobs_mode", "generation_config")}
        yield f"settings  {', '.join(f'{name} {value}' for name, value in shown.items())}"
    for lack in facts.lacks:
        yield f"lacks     {lack.flag}: {lack.why}"
    if facts.vllm:
        ways = [f"{way} {f'no, {obstacle}' if obstacle else 'yes'}" for way, obstacle in facts.ways_out.items()]
        yield f"weights   would go out by: {'; '.join(ways)}"
    for note in server.notes:
        yield f"note      {note}"


def _size(size: int | None) -> str:
    if size is None:
        return "nothing yet"
    for unit, width in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= width:
            return f"{size / width:.1f} {unit}"
    return f"{size} bytes"
