"""The reading of an answer in free text.

Every text is read without raising. A reply gives one answer, or a fault that says what is wrong and spends the turn.
The grammar is that of `actions`, with one answer in the place of the actions: an optional `<think>...</think>`, then
`<answer>TEXT</answer>`. What an answer means is the environment's own business. One that it cannot make sense of is a
fault as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.envs.common.actions import answer_text, format_reply, invalid_line
from heedful.models.chat.calls import Fault
from heedful.types import Tool


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The answer of a reply, or what is wrong with the reply."""

    text: str
    """Without the spaces around it. Empty if there is a fault."""
    fault: str = ""
    """A clause for the agent, such as `the answer is empty`. Empty if there is no fault."""
    kind: str = ""
    """The fault in one or two words, for terse observations. Empty if there is no fault."""


def read_answer(reply: str, longest: int, tools: Sequence[Tool] = ()) -> ReadAnswer:
    """Read one reply under the grammar above.

    `reply` holds the opening think tag even where the prompt forced it. `longest`: most characters of an answer.
    `tools`: the answer is a call of one of them (`common.tools`), and is read as the plain answer it stands for.
    """
    found = answer_text(reply, tools)
    if isinstance(found, Fault):
        return ReadAnswer("", found.clause, found.kind)
    text = found.strip()
    if len(text) > longest:
        return ReadAnswer("", f"the answer has {len(text)} characters, more than {longest}", "too long")
    return ReadAnswer(text)


def free_text_rules(form: str, example: str, turns: int, tools: Sequence[Tool] = ()) -> str:
    """The limits and the form of an answer in plain English, as `full` instructions state them.

    `form`: a sentence on what the answer is. `example`: an answer of that form (not a right one). `tools`: the answer
    is a call of one of them. The chat template tells how calls are written.
    """
    if tools:
        have = f"You have {turns} turn{'s' if turns > 1 else ''}, with one tool call in each."
        return f"{have} {form}\nThink first, then call {' or '.join(tool.name for tool in tools)}.\n"
    have = f"You have {turns} turn{'s' if turns > 1 else ''}, with one answer in each."
    return f"{have} {form}\nThink first, then answer in this form: {format_reply([example], 'your reasoning')}\n"


def answer_fault_line(read: ReadAnswer, brief: bool) -> str:
    """One line for the next observation on a reply without an answer. Empty if there was one."""
    return invalid_line(read.fault, read.kind, brief, "The turn is spent.")
