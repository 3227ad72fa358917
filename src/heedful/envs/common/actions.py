"""The reading of a reply: from the text of the agent to the actions that are executed.

Every text is read without raising. The grammar: an optional `<think>...</think>`, then `<answer>A || B</answer>`. Names
of actions are matched without regard to case, spaces around them are trimmed. Only what follows the first closing think
tag is searched for the answer (a reply without any think tag is searched from its start), its first `<answer>` counts,
and what follows `</answer>` is ignored. The valid prefix up to the first fault is executed. docs/environments.md, "How
replies are read", has the table of faults. The penalty is taken once per turn, whatever the number of faults.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.boundary.foreign_text import brief
from heedful.envs.common.contract import whole_member
from heedful.models.chat.calls import Fault, find_call, quoted, read_call, signatures
from heedful.protocols import Environment, ListsActions
from heedful.types import Tool

OPEN_THOUGHT = "<think>"
CLOSE_THOUGHT = "</think>"
OPEN_ANSWER = "<answer>"
CLOSE_ANSWER = "</answer>"
SEPARATOR = "||"


@dataclass(frozen=True, slots=True)
class ReadReply:
    """The actions to execute, and the first fault of the reply."""

    actions: tuple[str, ...]
    """The valid prefix, spelled as the environment spells them."""
    fault: str = ""
    """A clause for the agent, such as `the answer is empty`. Empty if there is no fault."""
    kind: str = ""
    """The fault in one or two words, for terse observations. Empty if there is no fault."""


def actions_of(env: Environment) -> tuple[str, ...]:
    """The names of the actions. Empty if answers are free text. Raises ValueError for what is no list of names."""
    names = env.actions if isinstance(env, ListsActions) else ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"Expected a tuple of names as `actions` of the environment {env.name}, found {brief(names)}. Correct it; "
            "`heedful check-env` names every member that is wrong."
        )
    return tuple(names)


def most_actions_of(env: Environment) -> int:
    """The most actions of one reply. 1 if answers are free text. Raises ValueError for what is no such number."""
    return whole_member(env, "actions_per_turn", env.actions_per_turn) if isinstance(env, ListsActions) else 1


def read_reply(reply: str, names: Sequence[str], most: int) -> ReadReply:
    """Read one reply under the grammar above.

    `reply` holds the opening think tag even where the prompt forced it. `names` are the known actions, `most` the
    number of them allowed in one turn.
    """
    answer = answer_text(reply)
    if isinstance(answer, Fault):
        return ReadReply((), answer.clause, answer.kind)
    known = {name.lower(): name for name in names}
    actions: list[str] = []
    for part in answer.split(SEPARATOR):
        if len(actions) == most:
            fault = f"there are more than {most} action{'s' if most > 1 else ''}"
            return ReadReply(tuple(actions), fault, "too many")
        word = part.strip()
        action = known.get(word.lower())
        if action is None:
            if not word:
                return ReadReply(tuple(actions), f"an action is empty beside a {SEPARATOR}", "empty action")
            fault = f'unknown action "{quoted(word)}" (expected one of {", ".join(names)})'
            return ReadReply(tuple(actions), fault, "unknown action")
        actions.append(action)
    return ReadReply(tuple(actions))


def answer_text(reply: str, tools: Sequence[Tool] = ()) -> str | Fault:
    """The text between the answer tags, not blank, or why there is none.

    `tools`: the answer is a call of one of them, and the text is the plain answer that the call stands for.
    """
    if tools:
        return _called_answer(reply, tools)
    end_of_thought = reply.find(CLOSE_THOUGHT)
    if end_of_thought < 0 and OPEN_THOUGHT in reply:
        return Fault(f"the thought is not closed by {CLOSE_THOUGHT}", "open thought")
    start = reply.find(OPEN_ANSWER, max(end_of_thought, 0))
    if start < 0:
        return Fault(f"there is no {OPEN_ANSWER} block after the thought", "no answer")
    end = reply.find(CLOSE_ANSWER, start)
    if end < 0:
        return Fault(f"the answer is not closed by {CLOSE_ANSWER}", "open answer")
    answer = reply[start + len(OPEN_ANSWER) : end]
    return answer if answer.strip() else Fault("the answer is empty", "empty answer")


def calls_tool(reply: str) -> bool:
    """Whether a reply holds a call after its thought, readable or not."""
    start = _after_thought(reply)
    return not isinstance(start, Fault) and find_call(reply, start) is not None


def thought_of(reply: str) -> str:
    """The text between the think tags of a plain reply. Empty without tags."""
    before, closed, _ = reply.partition(CLOSE_THOUGHT)
    return before.removeprefix(OPEN_THOUGHT) if closed else ""


def _called_answer(reply: str, tools: Sequence[Tool]) -> str | Fault:
    """The plain answer that the first call stands for."""
    start = _after_thought(reply)
    if isinstance(start, Fault):
        return start
    written = find_call(reply, start)
    if written is None:
        return Fault(f"there is no tool call (expected {signatures(tools)})", "no call")
    call = read_call(written, tools)
    if isinstance(call, Fault):
        return call
    argument = " ".join(map(str, call.arguments.values()))
    if not argument.strip():
        return Fault(f"the argument of the tool call is empty (expected {signatures([call.tool])})", "empty argument")
    return call.tool.form.replace("{}", argument, 1)


def _after_thought(reply: str) -> int | Fault:
    """Where the search for a call begins. Tags of thoughts inside of a call are a part of it."""
    opened, closed = reply.find(OPEN_THOUGHT), reply.find(CLOSE_THOUGHT)
    first = find_call(reply)
    if first is not None and not any(0 <= place < first.start for place in (opened, closed)):
        return 0
    if closed < 0 and opened >= 0:
        return Fault(f"the thought is not closed by {CLOSE_THOUGHT}", "open thought")
    return max(closed, 0)


def format_reply(actions: Sequence[str], thought: str) -> str:
    """Write a reply as an agent does: `<think>thought</think><answer>Left || Up</answer>`."""
    return f"{OPEN_THOUGHT}{thought}{CLOSE_THOUGHT}{OPEN_ANSWER}{f' {SEPARATOR} '.join(actions)}{CLOSE_ANSWER}"


def answer_rules(names: Sequence[str], turns: int, actions_per_turn: int) -> str:
    """The limits and the form of an answer in plain English, as `full` instructions state them."""
    example = format_reply([names[number % len(names)] for number in range(min(2, actions_per_turn))], "your reasoning")
    have = f"You have {turns} turn{'s' if turns > 1 else ''}"
    if actions_per_turn == 1:
        limit = f"{have}, with one action in each."
    else:
        limit = f"{have}, with at most {actions_per_turn} actions in each, separated by {SEPARATOR}."
    return (
        f"{limit}\nThink first, then answer in this form: {example}\n"
        "If a part of your answer cannot be read, only the actions before it are executed, and the turn is spent."
    )


def fault_line(read: ReadReply, brief: bool) -> str:
    """One line for the next observation on an invalid reply. Empty if the reply was valid."""
    executed = f"Executed: {', '.join(read.actions)}." if read.actions else "Nothing was executed."
    return invalid_line(read.fault, read.kind, brief, executed)


def invalid_line(fault: str, kind: str, brief: bool, done: str) -> str:
    """The same for any fault. `done`: a sentence on what was carried out all the same."""
    if not fault:
        return ""
    return f"invalid {kind}\n" if brief else f"Your last reply was invalid: {fault}. {done}\n"


_MARKS = re.compile(r"[<>|\[\]{}\uff5c\uff1c\uff1e\u2581]")
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff"
    "\ufff0-\ufffb\U000e0000-\U000e0fff]+"
)


def harmless(text: str) -> str:
    """Foreign text on one line, without marks of chat templates, controls, hidden characters and lone surrogates."""
    return " ".join(_HIDDEN.sub(" ", _MARKS.sub(".", text)).split())


def cut_at_word(text: str, most: int) -> str:
    """The beginning of a text, at most `most` characters, to the end of a word. ` ...` follows where there is more."""
    if len(text) <= most:
        return text
    whole = text[: most + 1].rpartition(" ")[0] or text[:most]
    return f"{whole} ..."
