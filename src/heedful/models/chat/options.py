"""Options of a chat template: variables that the template reads, and nothing that the call around it takes."""

from __future__ import annotations

from collections.abc import Mapping

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


def check_options(options: Mapping[str, object]) -> None:
    """Raise ValueError for an option that is no variable of a template."""
    reserved = sorted(NO_VARIABLES & options.keys())
    if reserved:
        raise ValueError(
            f"Expected template_options to hold variables of the chat template, found {reserved}, which the renderer "
            f"sets itself. Remove them."
        )
