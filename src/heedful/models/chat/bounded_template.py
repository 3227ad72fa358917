"""Chat templates with a budget: a template of a stranger's folder can neither hang the program nor fill its memory.

A template is a program in jinja's sandbox, which forbids access to Python but bounds neither time nor memory. Here the
same template runs with a count: every pass of a loop or a macro, and every text or list that is made, is paid from a
budget before it exists. Everything else, from the messages to the special tokens, stays with transformers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, cast

from jinja2 import TemplateError, nodes, pass_context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer
from transformers.utils import chat_template_utils

from heedful.boundary.foreign_text import cut
from heedful.guarded import Raised, guarded_call
from heedful.models.chat.template_costs import (
    BUDGET,
    FIELD,
    LONGEST_NUMBER,
    SIZE,
    WIDTH,
    Budget,
    TooExpensive,
    formatted,
    inside_of,
    length_of,
    listed,
    made_by,
    pay,
    product,
    refuse_codecs,
    refuse_long_numbers,
    refuse_widths,
    weight,
)

DATE = datetime(2024, 7, 26)
"""The date for templates that write one. Llama 3.2 writes it where there is no clock. With the clock's date, a run that
is repeated or resumed on another day would have other prompts."""
LONGEST_SOURCE = 100_000
"""Characters of a template. The longest published one has 20,000. To compile it may take the square of its length."""

_READS_ITEMS = {
    *("list", "items", "batch", "slice", "reverse", "attr", "map"),
    *("select", "reject", "selectattr", "rejectattr"),
}
"""Filters that read the items of a list, and not what is inside of them. All others may write the whole."""
_READS_NOTHING = {"length", "count", "first", "last", "default", "d"}
_REMOVED = {"filters": ("urlize", "pprint", "random", "wordwrap"), "globals": ("lipsum",)}
"""What costs too much, and what draws from the shared random generator."""


_patching = threading.RLock()
_transformers_compiles: Callable[[str], Any] = chat_template_utils._compile_jinja_template


def render_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, object]],
    options: Mapping[str, object],
    tools: Sequence[Mapping[str, object]] = (),
) -> str:
    """The messages through the tokenizer's chat template, with a generation prompt. `tools`: schemas of functions.

    The same text as `tokenizer.apply_chat_template`, but for the date, which is `DATE`. Raises TemplateError for a
    template that is wrong, that refuses the messages, or that exceeds its budget.
    """
    several = tokenizer.chat_template
    if isinstance(several, dict) and not {"default", "tool_use" if tools else "default"} & several.keys():
        raise TemplateError(
            f"there are several and none is named 'default' ({', '.join(map(repr, several))}): write the one to use "
            "into chat_template.jinja"
        )
    seam: Any = chat_template_utils
    given = sum(len(str(value)) for message in (*messages, *tools) for value in message.values())
    token = BUDGET.set(Budget(given))
    try:
        with _patching:
            seam._compile_jinja_template = compile_bounded
            try:
                asked = {**options, "tools": list(tools)} if tools else options
                named = {"tokenize": False, "add_generation_prompt": True, **asked}
                answer = guarded_call(lambda: str(tokenizer.apply_chat_template(list(messages), **named)))
            finally:
                seam._compile_jinja_template = _transformers_compiles
    finally:
        BUDGET.reset(token)
    if isinstance(answer, Raised):
        raise _refused(answer) from answer.error
    return answer.value


def _refused(raised: Raised) -> TemplateError:
    """The error of a template, whatever it raised, in words that are not too many."""
    error = raised.error
    if isinstance(error, TooExpensive):
        return error
    if isinstance(error, RecursionError | MemoryError):
        return TooExpensive(f"it ends in a {type(error).__name__}")
    return TemplateError(cut(str(error) if isinstance(error, TemplateError) else str(raised), 1000))


@lru_cache(maxsize=32)
def compile_bounded(source: str) -> Any:
    """A compiled template that pays for what it does. Must be rendered through `render_chat`."""
    if len(source) > LONGEST_SOURCE:
        raise TooExpensive(f"it has {len(source):,} characters, and {LONGEST_SOURCE:,} is the most")
    try:
        return _environment().from_string(source)
    except (SyntaxError, ValueError) as error:  # of Python's compiler, such as too many nested blocks
        raise TemplateError(f"it cannot be compiled: {error}") from error


class _Bounded(SandboxedEnvironment):
    """What is added to the environment that transformers makes."""

    intercepted_binops = frozenset(("+", "*", "**", "%", "/", "//"))

    def _generate(self, source: nodes.Template, *rest: Any, **named: Any) -> Any:
        return super()._generate(_Instrument().visit(source), *rest, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        refuse_long_numbers((left, right))
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            pay(LONGEST_NUMBER * SIZE if left.bit_length() * abs(right) > LONGEST_NUMBER else 1)
        elif operator == "*":
            pay(product(left, right))
        elif operator == "+":
            pay(weight(left) + weight(right))
        elif operator == "%" and isinstance(left, str | bytes):
            refuse_widths(left, WIDTH)
            pay(formatted(left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes | int | list | tuple | dict) or name == "changed":
            args = tuple(map(listed, args))
            pay(weight(owner) + sum(map(weight, (*args, *named.values()))))
            pay(made_by(name, owner, args, named))
            if name in ("encode", "decode"):
                refuse_codecs((*args, *named.values()))
        for text in args:
            if name.startswith("strftime") and isinstance(text, str):
                refuse_widths(text, WIDTH)
        return super().call(__context, __obj, *args, **named)

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text: str = value.__self__
        refuse_widths(text, FIELD)

        def paid(*args: Any, **named: Any) -> str:
            args = tuple(map(listed, args))
            pay(len(text) + text.count("{") * sum(map(weight, (*args, *named.values()))))
            return str(wrapped(*args, **named))

        return paid

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):
            pay(weight(argument))  # its hash is taken
        return super().getitem(obj, argument)


@lru_cache(maxsize=1)
def _environment() -> Any:
    """The environment of transformers for chat templates, with the bounds. Nothing is computed at compile time."""
    base = _transformers_compiles("").environment
    made: Any = object.__new__(type("BoundedEnvironment", (_Bounded, type(base)), {}))
    made.__dict__.update(base.__dict__)
    made.overlayed, made.linked_to, made.cache = True, base, None
    made.optimized, made.finalize = False, _printed
    made.extensions = {name: extension.bind(made) for name, extension in base.extensions.items()}
    made.filters = {n: _paid(n, f) for n, f in base.filters.items() if n not in _REMOVED["filters"]}
    made.filters |= {"heedful_concat": _concat, "heedful_compared": _compared, "heedful_cut": _cut}
    made.tests = {name: _paid_test(test) for name, test in base.tests.items()}
    made.globals = {n: value for n, value in base.globals.items() if n not in _REMOVED["globals"]}
    made.globals |= {"strftime_now": strftime_now, "raise_exception": _raise_exception}
    made.heedful_step = _step
    return made


class _Instrument(NodeTransformer):
    """Writes the payments into a template."""

    def _body(self, node: Any) -> Any:
        written = sum(len(each.data) for child in node.body for each in child.find_all(nodes.TemplateData))
        node = self.generic_visit(node)
        amount = nodes.Const(written)
        # An attribute of the environment, since a template could give a name of its own to something else.
        step = nodes.ExprStmt(nodes.Call(nodes.EnvironmentAttribute("heedful_step"), [amount], [], None, None))
        node.body = [step.set_lineno(node.lineno), *node.body]
        return node

    visit_For = visit_Macro = visit_CallBlock = visit_Block = _body

    def visit_Concat(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        return _filtered(nodes.List(node.nodes), "heedful_concat", node.lineno)

    def visit_Compare(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        node.expr = _filtered(node.expr, "heedful_compared", node.lineno)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "heedful_compared", node.lineno)
        return node

    def visit_Pair(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        node.key = _filtered(node.key, "heedful_compared", node.lineno)  # its hash is taken
        return node

    def visit_Getitem(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        cuts = isinstance(node.arg, nodes.Slice)
        return _filtered(node, "heedful_cut", node.lineno) if cuts else node


def _filtered(node: nodes.Expr, name: str, line: int) -> nodes.Expr:
    if isinstance(node, nodes.Const):
        return node
    made: Any = nodes.Filter(node, name, [], [], None, None).set_lineno(line)
    return cast(nodes.Expr, made)


def strftime_now(form: str) -> str:
    """`DATE` in place of the clock. Has the name that its budget knows."""
    return DATE.strftime(form)


def _step(written: int) -> str:
    pay(written, 1)
    return ""


def _raise_exception(message: object) -> None:
    """A template's own refusal of the messages."""
    pay(weight(message))
    raise TemplateError(str(message))


def _paid(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for what it reads before it is called, and for what it makes after."""
    place = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def paid(*args: Any, **named: Any) -> Any:
        args = (*args[:place], *map(listed, args[place:]))
        value, rest = args[place], args[place + 1 :]
        if name not in _READS_NOTHING:
            pay(length_of(value) if name in _READS_ITEMS and not isinstance(value, str) else weight(value))
        pay(made_by(name, value, rest, named))
        if name == "format":
            refuse_widths(str(value), WIDTH)
            pay(formatted(str(value), dict(named) or tuple(rest)))
        made = function(*args, **named)
        if name not in _READS_NOTHING:
            pay(length_of(made))
        return made

    return paid


def _paid_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def paid(*args: Any) -> Any:
        refuse_long_numbers(args)
        for value in args:
            _compared(value)
        return function(*args)

    return paid


def _concat(values: Sequence[Any]) -> str:
    pay(weight(values))
    return "".join(map(str, values))


def _compared(value: Any) -> Any:
    if not isinstance(value, str | bytes) and inside_of(value) is not None:
        pay(weight(value))
    return value


def _cut(value: Any) -> Any:
    pay(length_of(value))
    return value


@pass_context
def _printed(context: Any, value: Any) -> Any:
    pay(weight(value))
    return value
