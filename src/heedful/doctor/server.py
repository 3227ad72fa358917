"""An inference server as `heedful doctor` sees it: reached or not, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from heedful.policies.servers import Client, Failed, ServerRefused, read_key
from heedful.policies.servers.examination import TESTED, ServerFacts, base_of, examine


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
