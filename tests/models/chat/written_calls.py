"""Calls as each family writes them, and the tables of forms and tags of the docs.

    python -m tests.models.chat.written_calls docs/models.md

writes the tables anew (with `src` and the repository's root on the path).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from heedful.models.chat.calls import find_call
from heedful.models.chat.replies import FAMILIES, Tags

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
BLOCK = re.compile(r"(<!-- table: (calls|tags) -->\n).*?(<!-- end -->)", re.DOTALL)


def pairs(begin: str, pair: str, end: str) -> Callable[..., str]:
    """A form with one text for each argument."""

    def write(name: str, **arguments: str | int) -> str:
        return begin.replace("NAME", name) + "".join(pair % each for each in arguments.items()) + end

    return write


def in_json(begin: str, end: str, key: str = "") -> Callable[..., str]:
    """A form with JSON."""

    def write(name: str, **arguments: str | int) -> str:
        value = {"name": name, key: arguments} if key else arguments
        return begin.replace("NAME", name) + json.dumps(value, ensure_ascii=False) + end

    return write


def quoting(begin: str, pair: str, string: str, end: str) -> Callable[..., str]:
    """A form with strings between marks, in which nothing is escaped."""

    def write(name: str, **arguments: str | int) -> str:
        values = {key: string % one if isinstance(one, str) else one for key, one in arguments.items()}
        return begin.replace("NAME", name) + ", ".join(pair % each for each in values.items()) + end

    return write


BEGIN, SEP, END = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
)
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>"
INVOKE = '<@calls>\n<@invoke name="NAME">\n', '<@parameter name="%s">%s</@parameter>\n', "</@invoke>\n</@calls>"
DSML = [part.replace("@calls", "｜DSML｜function_calls").replace("@", "｜DSML｜") for part in INVOKE]
MINIMAX = [part.replace("@calls", "minimax:tool_call").replace("@", "") for part in INVOKE]
WRITTEN = {
    "qwen3": in_json("<tool_call>\n", "\n</tool_call>", "arguments"),
    "llama": in_json("", "", "parameters"),
    "llama, tagged": in_json("<|python_tag|>", "", "parameters"),
    "qwen3.5": pairs(
        "<tool_call>\n<function=NAME>\n", "<parameter=%s>\n%s\n</parameter>\n", "</function>\n</tool_call>"
    ),
    "seed-oss": pairs(
        "<seed:tool_call>\n<function=NAME>\n", "<parameter=%s>%s</parameter>\n", "</function>\n</seed:tool_call>"
    ),
    "glm-4.5": pairs("<tool_call>NAME\n", "<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n", "</tool_call>"),
    "glm-4.7": pairs("<tool_call>NAME", "<arg_key>%s</arg_key><arg_value>%s</arg_value>", "</tool_call>"),
    "gemma4": quoting("<|tool_call>call:NAME{", "%s:%s", '<|"|>%s<|"|>', "}<tool_call|>"),
    "lfm2.5": quoting("<|tool_call_start|>[NAME(", "%s=%s", "'%s'", ")]<|tool_call_end|>"),
    "gpt-oss": in_json(" to=functions.NAME<|channel|>commentary json<|message|>", "<|call|>"),
    "gpt-oss, channel first": in_json(
        "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", "<|call|>"
    ),
    "deepseek v3": in_json(f"{BEGIN}function{SEP}NAME\n```json\n", f"\n```{END}"),
    "deepseek v3.1": in_json(f"{BEGIN}NAME{SEP}", END),
    "deepseek v3.2": pairs(*DSML),
    "kimi k2": in_json(KIMI, "<|tool_call_end|><|tool_calls_section_end|>"),
    "minimax m2": pairs(*MINIMAX),
    "mistral": in_json("[TOOL_CALLS]NAME[ARGS]", ""),
}
"""A writer of calls for each form: name and arguments -> text."""


BAR = "\\|"


def code(text: str) -> str:
    """A text as code in a table."""
    mark = "````" if "`" in text else "`"
    return f"{mark}{' ' * (mark != '`')}{text.replace('|', BAR)}{' ' * (mark != '`')}{mark}"


def tags() -> list[str]:
    """One line for each family with tags of its own."""
    lines = []
    for family, _, (begin, end, *answer) in FAMILIES:
        answers = f"{code(answer[0])} to {code(answer[1])}" if answer else code(Tags().answer_open)
        lines.append(f"| {family} | {code(begin)} to {code(end)} | {answers} |")
    return ["| family | thought | answer |", "|---|---|---|", *lines]


def calls() -> list[str]:
    """One line for each form."""
    rows = {}
    for write in WRITTEN.values():
        text = write("submit", program="print(1)")
        call = find_call(text)
        assert call is not None
        shown = " ".join(code(line) for line in text.split("\n"))
        rows.setdefault(call.form.families, []).append(shown)
    lines = [f"| {families} | {', or '.join(shown)} |" for families, shown in rows.items()]
    return ["| families | a call |", "|---|---|", *lines]


def with_table(page: str) -> str:
    """The page with new tables."""
    made = {"calls": calls, "tags": tags}
    return BLOCK.sub(lambda block: f"{block[1]}{chr(10).join(made[block[2]]())}\n{block[3]}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
