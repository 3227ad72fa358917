"""The meaning of a line that a person typed, as a reply.

A line has one meaning or is refused with a sentence, and a refused line costs no turn.
"""

from __future__ import annotations

import re

from heedful.envs.common.actions import OPEN_ANSWER, OPEN_THOUGHT, SEPARATOR, actions_of, format_reply, most_actions_of
from heedful.envs.common.tools import call_text
from heedful.models.chat.calls import find_call, signatures, tools_of
from heedful.protocols import AnswersFreely, Environment

LEAVE = ("quit", "exit", "q")
"""Words that leave the episode, unless an action has that name."""


def ways_to_answer(env: Environment) -> str:
    """How a person can answer in this environment."""
    actions, most = _actions(env)
    tools = tools_of(env)
    if tools:
        plain = ", ".join(tool.form.replace("{}", "...") for tool in tools if tool.form)
        return (
            f"What you type becomes a call of {signatures(tools)}: a plain answer{f' ({plain})' if plain else ''}, or "
            "the JSON of a call. `quit` leaves."
        )
    if not actions and isinstance(env, AnswersFreely):
        return "What you type is your answer; a whole reply with its tags is handed on as it is. `quit` leaves."
    if not actions:
        return "What you type is handed to the environment as it is. `quit` leaves."
    several = f"at most {most} in one turn, with spaces, commas or {SEPARATOR} between" if most > 1 else "one per turn"
    return (
        f"Actions: {', '.join(actions)}, {several}. Beginnings of words will do; a whole reply with its tags is handed "
        "on as it is. `quit` leaves."
    )


def reply_of(line: str, env: Environment) -> str | None:
    """The reply that a typed line means. `None` to leave.

    Raises:
        ValueError: the line has a word that is no action or is ambiguous, or too many actions for one turn.
    """
    actions, most = _actions(env)
    if line.lower() in LEAVE and line.lower() not in [action.lower() for action in actions]:
        return None
    tools = tools_of(env)
    if tools:  # a call as it is, else that of the plain answer
        call = line if find_call(line) is not None else call_text(line, tools)
        if not call:
            raise ValueError(f"Expected a call of {signatures(tools)}: a plain answer, JSON, or `quit`.")
        return call
    if OPEN_ANSWER in line or OPEN_THOUGHT in line:
        return line
    if not actions:
        return format_reply([line], "") if isinstance(env, AnswersFreely) else line
    # At spaces, too, unless names of actions have spaces in them.
    between = r"[,;|]+" if any(" " in action for action in actions) else r"[,;|\s]+"
    chosen = [_action(word.strip(), actions) for word in re.split(between, line) if word.strip()]
    if not chosen:
        raise ValueError(f"Expected one of {', '.join(actions)}, or `quit`.")
    if len(chosen) > most:
        raise ValueError(f"Expected at most {most} in one turn, found {len(chosen)}: {', '.join(chosen)}.")
    return format_reply(chosen, "")


def _actions(env: Environment) -> tuple[tuple[str, ...], int]:
    """The names of the actions, and how many a turn may have. None where answers are free text."""
    actions = actions_of(env)
    return actions, most_actions_of(env) if actions else 1


def _action(word: str, actions: tuple[str, ...]) -> str:
    exact = [action for action in actions if action.lower() == word.lower()]
    begun = exact or [action for action in actions if action.lower().startswith(word.lower())]
    if len(begun) > 1:
        raise ValueError(f"{word!r} could be {' or '.join(begun)}.")
    if not begun:
        raise ValueError(f"{word!r:.80} is no action here; expected one of {', '.join(actions)}, or `quit`.")
    return begun[0]
