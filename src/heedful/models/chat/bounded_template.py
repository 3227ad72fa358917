"""Chat templates with a budget: a template of a stranger's folder can neither hang the program nor fill its memory.

A template is a program in jinja's sandbox, which forbids access to Python but bounds neither time nor memory. Here the
same template runs with a count: every pass of a loop or a macro, and every text or list that is made, is paid from a
budget before it exists. Everything else, from the messages to the special tokens, stays with transformers.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from types import GeneratorType
from typing import Any, cast

from jinja2 import TemplateError, nodes, pass_context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer
from transformers.utils import chat_template_utils

STEPS = 300_000
"""Passes of loops and macros in one rendering. A long conversation needs about ten per message."""
SIZE = 50_000_000
"""Characters that may be made in one rendering, beside a hundred times the size of the messages."""
ITEM = 50
"""Characters that an item of a list is counted as: it takes as long to visit."""
SECONDS = 5.0
"""CPU time of one rendering."""
DATE = datetime(2024, 7, 26)
"""The date for templates that write one. Llama 3.2 writes it where there is no clock. With the clock's date, a run that
is repeated or resumed on another day would have other prompts."""
LONGEST_SOURCE = 1_000_000
"""Characters of a template."""

_LARGE = 10_000
"""Characters whose making may take a while."""
_LARGEST_POWER = 10_000
"""Bits of a power of whole numbers."""
_WIDTH = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")
_FIELD = re.compile(r"\{[^{}]*(\d{4}|\{)")

_MAKES_BY_NUMBER = {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "to_bytes", "batch", "slice", "round"}
"""Filters and methods whose number decides how much they make."""
_READS_WHOLE = {
    *("string", "join", "tojson", "format", "unique", "sort", "groupby", "sum", "max", "min", "dictsort", "replace"),
    *("urlencode", "xmlattr", "wordwrap"),
}
"""Filters that read all that is inside of a list, not only its length."""
_READS_NOTHING = {"length", "count", "first", "last", "default", "d"}
_REMOVED = {"filters": ("urlize", "pprint", "random"), "globals": ("lipsum",)}
"""What costs too much, and what draws from the shared random generator."""


class TooExpensive(TemplateError):
    """A template that asks for more than its budget."""


class _Budget:
    __slots__ = ("deadline", "size", "steps")

    def __init__(self, given: int) -> None:
        self.steps, self.size = STEPS, SIZE + 100 * given
        self.deadline = time.thread_time() + SECONDS

    def pay(self, size: int, steps: int = 0) -> None:
        self.size -= size
        self.steps -= steps
        slow = (
            bool(steps or size > _LARGE) and time.thread_time() > self.deadline
        )  # asking for the time takes some, too
        if self.size < 0 or self.steps < 0 or slow:
            raise TooExpensive(
                f"it takes more than {STEPS:,} steps, {SIZE:,} characters or {SECONDS:g} seconds for one conversation"
            )


_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)
"""`None` in other threads, which may render at the same time as `render_chat`."""
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
    seam: Any = chat_template_utils
    given = sum(len(str(value)) for message in (*messages, *tools) for value in message.values())
    token = _budget.set(_Budget(given))
    try:
        with _patching:
            seam._compile_jinja_template = compile_bounded
            try:
                asked = {**options, "tools": list(tools)} if tools else options
                return str(
                    tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **asked)
                )
            finally:
                seam._compile_jinja_template = _transformers_compiles
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TemplateError(f"{type(error).__name__}: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise TooExpensive(f"it ends in a {type(error).__name__}") from error
    finally:
        _budget.reset(token)


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

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def _generate(self, source: nodes.Template, *rest: Any, **named: Any) -> Any:
        return super()._generate(_Instrument().visit(source), *rest, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _pay(_LARGEST_POWER * SIZE if left.bit_length() * abs(right) > _LARGEST_POWER else 1)
        elif operator == "*":
            _pay(_product(left, right))
        elif operator == "+":
            _pay(_weight(left) + _weight(right))
        elif operator == "%" and isinstance(left, str | bytes):
            _refuse_widths(left, _WIDTH)
            _pay(len(left) + _weight(right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes | int | list | tuple | dict) or name == "changed":
            args = tuple(map(_listed, args))
            _pay(_weight(owner) + sum(map(_weight, (*args, *named.values()))))
            _pay(_made(name, owner, args, named))
        for text in args:
            if name.startswith("strftime") and isinstance(text, str):
                _refuse_widths(text, _WIDTH)
        return super().call(__context, __obj, *args, **named)

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text: str = value.__self__
        _refuse_widths(text, _FIELD)

        def paid(*args: Any, **named: Any) -> str:
            args = tuple(map(_listed, args))
            _pay(len(text) + text.count("{") * sum(map(_weight, (*args, *named.values()))))
            return str(wrapped(*args, **named))

        return paid

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):
            _pay(_weight(argument))  # its hash is taken
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
    made.globals["strftime_now"] = strftime_now
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


def _pay(size: int, steps: int = 0) -> None:
    budget = _budget.get()
    if budget is not None:
        budget.pay(size, steps)


def strftime_now(form: str) -> str:
    """`DATE` in place of the clock. Has the name that its budget knows."""
    return DATE.strftime(form)


def _step(written: int) -> str:
    _pay(written, 1)
    return ""


def _weight(value: Any) -> int:
    """Characters and items of a value. What it holds twice counts twice, since it is written twice."""
    if isinstance(value, str | bytes):
        return 1 + len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 8
    if not isinstance(value, list | tuple | dict | set | frozenset):
        return 1
    budget = _budget.get()
    most = SIZE if budget is None else budget.size
    total, open_values = 0, [value]
    while open_values and total <= most:
        found = open_values.pop()
        if not isinstance(found, list | tuple | dict | set | frozenset):
            total += _weight(found)
            continue
        total += ITEM * (1 + len(found))
        if total <= most:
            open_values += [*found.keys(), *found.values()] if isinstance(found, dict) else found
    return total


def _product(left: Any, right: Any) -> int:
    for several, number in ((left, right), (right, left)):
        if isinstance(several, str | bytes | list | tuple) and isinstance(number, int):
            return _weight(several) * max(0, number)
    return _weight(left) + _weight(right)


def _made(name: str, owner: Any, args: Sequence[Any], named: Mapping[str, Any]) -> int:
    """At most how much a method or a filter makes of `owner`, beside its size."""
    values = (*args, *named.values())
    if name in _MAKES_BY_NUMBER or (name == "tojson" and values):
        lines = 1 + (owner.count("\n") + owner.count("\t") if isinstance(owner, str) else 0)
        numbers = [abs(value) for value in values if isinstance(value, int)]
        by_line = _weight(owner) if name == "tojson" else lines
        return max(numbers, default=0) * by_line + lines * sum(map(_weight, values))
    if name in ("replace", "translate", "wordwrap") and isinstance(owner, str | bytes):
        return (1 + len(owner)) * max(map(_weight, values), default=0) if _grows(owner, values) else 0
    if name == "join":
        items, between = (
            (values[0], owner) if values and isinstance(owner, str) else (owner, values[0] if values else "")
        )
        return _length(items) * _weight(between)
    return _length(owner) * _weight(owner) if name == "sum" and values else 0


def _grows(owner: Any, values: Sequence[Any]) -> bool:
    """Whether a replacement can make a text longer than a few times its length."""
    if len(values) >= 2 and isinstance(values[0], type(owner)) and isinstance(values[1], type(owner)):
        return (owner.count(values[0])) * len(values[1]) > 4 * len(owner) + 64
    return True


def _length(value: Any) -> int:
    if isinstance(value, list | tuple | dict | set | frozenset | range):
        return ITEM * len(value)
    return len(value) if isinstance(value, str | bytes) else 1


def _listed(value: Any) -> Any:
    """A generator as a list, so that it can be counted. Each item is a step."""
    if not isinstance(value, GeneratorType):
        return value
    items = []
    for item in value:
        _pay(ITEM, 1)
        items.append(item)
    return items


def _refuse_widths(text: str | bytes, pattern: re.Pattern[str]) -> None:
    if pattern.search(text if isinstance(text, str) else text.decode("latin-1")):
        raise TooExpensive("it formats a value with a width of a thousand or more")


def _paid(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for what it reads before it is called, and for what it makes after."""
    place = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def paid(*args: Any, **named: Any) -> Any:
        args = (*args[:place], *map(_listed, args[place:]))
        value, rest = args[place], args[place + 1 :]
        if name not in _READS_NOTHING:
            _pay(_weight(value) if name in _READS_WHOLE or isinstance(value, str) else _length(value))
        _pay(_made(name, value, rest, named))
        if name == "format" and isinstance(value, str):
            _refuse_widths(value, _WIDTH)
            _pay(sum(map(_weight, (*rest, *named.values()))))
        made = function(*args, **named)
        if name not in _READS_NOTHING:
            _pay(_length(made))
        return made

    return paid


def _paid_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def paid(*args: Any) -> Any:
        for value in args:
            _compared(value)
        return function(*args)

    return paid


def _concat(values: Sequence[Any]) -> str:
    _pay(_weight(values))
    return "".join(map(str, values))


def _compared(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        _pay(_weight(value))
    return value


def _cut(value: Any) -> Any:
    _pay(_length(value))
    return value


@pass_context
def _printed(context: Any, value: Any) -> Any:
    _pay(_weight(value))
    return value
