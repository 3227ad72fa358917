"""The chat template of a tokenizer: how it is rendered, the options it takes, and what it does with tools.

A template is a program of a stranger. It runs in jinja's sandbox, as transformers uses it, which forbids access to
Python. Its first rendering has a time limit. Torch-free.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from heedful.boundary.foreign_text import cut
from heedful.guarded import Answered, Raised, guarded_call
from heedful.models.chat.calls import OPEN_CALL, Fault, WrittenCall, find_call, read_call, signature
from heedful.models.chat.forms import FORMS
from heedful.types import Tool

DATE = datetime(2024, 7, 26)
"""The date for templates that write one. Llama 3.2 writes it where there is no clock. With the clock's date, a run that
is repeated or resumed on another day would have other prompts."""

SECONDS = 20.0
"""Time of the first rendering of a template. Published ones take milliseconds."""

_rendered: set[str] = set()
"""The sources of the templates that have rendered once within their time."""

NO_VARIABLES = {
    *("add_generation_prompt", "chat_template", "continue_final_message", "conversation", "max_length", "messages"),
    *("padding", "return_dict", "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation"),
}
"""What `apply_chat_template` takes for itself, and what it gives the template."""


def read_options(entries: Sequence[str]) -> dict[str, str | int]:
    """Options as name=value -> as the chat template takes them; true and false are truth values, digits are numbers.

    Raises ValueError for an entry without `=`, a name given twice, and one that is no variable of a template.
    """
    options: dict[str, str | int] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise ValueError(f"Expected a template option as name=value, found {entry!r}")
        if name in options:
            raise ValueError(f"Expected each template option once, found {name} twice. Remove one of them.")
        is_whole = re.fullmatch(r"-?[0-9]+", value)
        options[name] = int(value) if is_whole else {"true": True, "false": False}.get(value.lower(), value)
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


def render_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, object]],
    options: Mapping[str, object],
    tools: Sequence[Mapping[str, object]] = (),
) -> str:
    """The messages through the tokenizer's chat template, with a generation prompt. `tools`: schemas of functions.

    The same text as `tokenizer.apply_chat_template`, but for the date, which is `DATE`. Raises ValueError for a
    template that is wrong, that refuses the messages, or whose first rendering takes longer than `SECONDS`.
    """
    # Imported here because configuration reads the options and must load fast.
    from jinja2 import TemplateError
    from transformers.utils import chat_template_utils

    def render() -> str:
        source = tokenizer.get_chat_template(tools=list(tools) or None)
        # Renders the same text, and is another template to transformers, so that others keep the clock.
        dated = re.sub(r"(\r\n|\r|\n)\Z", "", source) + "{{ '' }}"
        chat_template_utils._compile_jinja_template(dated).globals["strftime_now"] = DATE.strftime
        named: dict[str, Any] = {"chat_template": dated, "tokenize": False, "add_generation_prompt": True, **options}
        return str(tokenizer.apply_chat_template(list(messages), tools=list(tools) or None, **named))

    source = str(tokenizer.chat_template)
    answer = guarded_call(render) if source in _rendered else _first(render)
    if isinstance(answer, Raised):
        known = isinstance(answer.error, TemplateError | TimeoutError)
        raise ValueError(
            f"The chat template could not render messages with roles {[message['role'] for message in messages]}: "
            f"{cut(str(answer.error) if known else str(answer), 1000)}. Use roles that the template knows (some know "
            "no system message), or another template."
        ) from answer.error
    _rendered.add(source)
    return answer.value


def _first(render: Callable[[], str]) -> Answered[str] | Raised:
    """The answer of a first rendering. One that takes too long is left behind in its thread."""
    answers: list[Answered[str] | Raised] = []
    thread = threading.Thread(target=lambda: answers.append(guarded_call(render)), daemon=True)
    thread.start()
    thread.join(SECONDS)
    return answers[0] if answers else Raised(TimeoutError(f"it takes more than {SECONDS:g} seconds"))


ResultRole = Literal["tool", "user"]

ChatRenderer = Callable[[Sequence[Mapping[str, object]], Sequence[Tool]], str]
"""Messages and tools -> text with a generation prompt. Raises ValueError for what the template refuses."""

_ASKED = {"role": "user", "content": "heedfulquestion"}
_RESULT = "heedfulresult"
_ARGUMENT = "heedfulargument"

_BEFORE_CALL = re.compile(r"(?:</?think>|<\|python_(?:start|end)\|>|\s)*")
"""What a template may write in front of a call: an empty thought, and Llama 4's marks around an empty text. Any other
mark belongs to a call of another form."""

_PLAIN = "play with plain actions (--env.actions plain, if the environment has both)"
_REMEDY = f"Use a model whose chat template has tools, or {_PLAIN}."


def examine_tools(render: ChatRenderer, tools: Sequence[Tool]) -> ResultRole:
    """The role under which the template shows the result of a call: `tool` where it has that role, else `user`.

    Raises ValueError for a template that does not write the tools, or that writes calls in a form that is not read.
    """
    plain, written = render([_ASKED], ()), render([_ASKED], tools)
    if written == plain:
        raise ValueError(
            "Expected a chat template that writes tools, since replies are tool calls, but it "
            f"renders the same text with and without them. {_REMEDY}"
        )
    missing = [name for tool in tools for name in (tool.name, *signature(tool)) if name not in written]
    if missing:
        raise ValueError(
            f"Expected a chat template that writes the name and the arguments of every tool, but {missing[0]!r} is "
            f"missing from what it renders. {_REMEDY}"
        )
    text, call = written_call(render, tools[0])
    if not text and OPEN_CALL not in written:
        raise ValueError(
            f"Expected a chat template that tells how calls are written, but it shows no call of a reply and no "
            f"{OPEN_CALL}. {_REMEDY}"
        )
    # The arguments were written as texts, whatever their types.
    known = replace(tools[0], parameters={"additionalProperties": True})
    is_read = call and not isinstance(read_call(call, [known]), Fault) and _BEFORE_CALL.fullmatch(text, 0, call.start)
    if text and not is_read:
        raise ValueError(
            f"Expected a chat template that writes calls as those of {', '.join(form.families for form in FORMS)}, "
            f"found {text[:120]!r}. Use a model that was taught one of these forms, or {_PLAIN}."
        )
    text, call = written_call(render, tools[0], [{"role": "tool", "content": _RESULT}])
    return "tool" if call is not None and text[call.end :].count(_RESULT) == 1 else "user"


def written_call(
    render: ChatRenderer,
    tool: Tool,
    following: Sequence[Mapping[str, object]] = (),
    arguments: Mapping[str, object] | None = None,
    id: str = "",
) -> tuple[str, WrittenCall | None]:
    """A reply that calls a tool, and the messages after it, as the template writes them. And the call in this text.

    The text begins in the reply's header. It is empty if the template does not show calls, or refuses the messages.
    """
    given = dict.fromkeys(signature(tool), _ARGUMENT) if arguments is None else dict(arguments)
    own = id or f"functions.{tool.name}:0"
    # Some templates take the arguments as JSON, and some of Mistral want an id of nine letters and digits.
    for its, form in ((own, given), (own, json.dumps(given)), ("heedful00", given)):
        named = {"name": tool.name, "tool_call_id": its}
        results = [{**one, **named} if one["role"] == "tool" else one for one in following]
        call = {"id": its, "type": "function", "function": {"name": tool.name, "arguments": form}}
        said = {"role": "assistant", "content": "", "tool_calls": [call]}
        try:
            text, alone = render([_ASKED, said, *results], [tool]), render([_ASKED], [tool])
        except ValueError:
            continue
        shared = next((at for at, (one, two) in enumerate(zip(text, alone, strict=False)) if one != two), len(alone))
        # A prompt that opens the thought ends with <think>, which begins as <tool_call> does.
        part = text[len(re.sub(r"<[^<>\s]*\Z", "", text[:shared])) :]
        if arguments or not given or _ARGUMENT in part:
            return part, find_call(part)
    return "", None
