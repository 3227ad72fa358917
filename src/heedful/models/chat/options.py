"""Options of a chat template: variables that the template reads, and nothing that the call around it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NO_VARIABLES = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "max_length",
        "messages",
        "padding",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""What `apply_chat_template` takes for itself, and what it gives the template."""


def read_options(entries: Sequence[str]) -> dict[str, str | bool]:
    """Options as name=value -> as the chat template takes them; true and false are truth values.

    Raises ValueError for an entry without `=`, a name given twice, and one that is no variable of a template.
    """
    options: dict[str, str | bool] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise ValueError(f"Expected a template option as name=value, found {entry!r}")
        if name in options:
            raise ValueError(f"Expected each template option once, found {name} twice. Remove one of them.")
        options[name] = {"true": True, "false": False}.get(value.lower(), value)
    check_options(options)
    return options


def check_options(options: Mapping[str, object]) -> None:
    """Raise ValueError for an option that is no variable of a template."""
    reserved = sorted(NO_VARIABLES & options.keys())
    if reserved:
        raise ValueError(
            f"Expected template_options to hold variables of the chat template, found {reserved}, which the renderer "
            f"sets itself. Remove them."
        )
