"""Chat templates with a budget: a template of a stranger's folder can neither hang the program nor fill its memory.

A template is a program in jinja's sandbox, which forbids access to Python but bounds neither time nor memory. Here the
same template runs with a count: every pass of a loop or a macro, and every text or list that is made, is paid from a
budget before it exists. Everything else, from the messages to the special tokens, stays with transformers.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from types import GeneratorType, MethodType
from typing import Any, cast

from jinja2 import TemplateError, nodes, pass_context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from transformers.utils import chat_template_utils

from heedful.configuration.foreign_text import cut
from heedful.guarded import Raised, guarded_call

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
LONGEST_SOURCE = 100_000
"""Characters of a template. The longest published one has 20,000. To compile it may take the square of its length."""

_LARGE = 10_000
"""Characters whose making may take a while."""
_LONGEST_NUMBER = 10_000
"""Bits of a whole number that is calculated with. To divide takes the square of its length, in one step."""
_MOST_DECIMALS = 300
"""Decimals of a rounded number. A float has no more."""
_LONGEST_SOUGHT = 64
"""Characters of a text that is sought from the end or stripped. A longer one is paid for at every place."""
_CODECS = {"utf-8", "utf8", "ascii", "latin-1", "strict", "ignore", "replace"}
"""Encodings, and what they do with errors. Others may take the square of the length."""
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_WIDTH = re.compile(r"%(?:\([^()]*\))?[^a-zA-Z%(]*(\d{4}|\*)|%\([^()]*\(")
"""A width, or the key of a value that could hide one."""
_FIELD = re.compile(r"\{[^{}]*(\d{4}|\{)")

_MAKES_BY_NUMBER = {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "to_bytes", "batch", "slice"}
"""Filters and methods whose number decides how much they make."""
_READS_ITEMS = {
    *("list", "items", "batch", "slice", "reverse", "attr", "map"),
    *("select", "reject", "selectattr", "rejectattr"),
}
"""Filters that read the items of a list, and not what is inside of them. All others may write the whole."""
_SEEKS = {"rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip", "trim"}
"""Filters and methods that compare a text anew at every place."""
_READS_NOTHING = {"length", "count", "first", "last", "default", "d"}
_REMOVED = {"filters": ("urlize", "pprint", "random", "wordwrap"), "globals": ("lipsum",)}
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
                named = {"tokenize": False, "add_generation_prompt": True, **asked}
                answer = guarded_call(lambda: str(tokenizer.apply_chat_template(list(messages), **named)))
            finally:
                seam._compile_jinja_template = _transformers_compiles
    finally:
        _budget.reset(token)
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
        _refuse_long_numbers((left, right))
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            _pay(_LONGEST_NUMBER * SIZE if left.bit_length() * abs(right) > _LONGEST_NUMBER else 1)
        elif operator == "*":
            _pay(_product(left, right))
        elif operator == "+":
            _pay(_weight(left) + _weight(right))
        elif operator == "%" and isinstance(left, str | bytes):
            _refuse_widths(left, _WIDTH)
            _pay(_formatted(left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **named: Any) -> Any:
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes | int | list | tuple | dict) or name == "changed":
            args = tuple(map(_listed, args))
            _pay(_weight(owner) + sum(map(_weight, (*args, *named.values()))))
            _pay(_made(name, owner, args, named))
            if name in ("encode", "decode"):
                _refuse_codecs((*args, *named.values()))
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


def _raise_exception(message: object) -> None:
    """A template's own refusal of the messages."""
    _pay(_weight(message))
    raise TemplateError(str(message))


def _inside(value: Any) -> Iterable[Any] | None:
    """What is written when the value is written. `None` for what holds nothing."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | AbstractSet | type({}.values())):
        return cast(Iterable[Any], value)
    if isinstance(value, Namespace):
        return [object.__getattribute__(value, "_Namespace__attrs")]
    return [value.__self__] if isinstance(value, MethodType) else None


def _weight(value: Any) -> int:
    """Characters and items of a value. What it holds twice counts twice, since it is written twice."""
    if isinstance(value, str | bytes):
        return 1 + len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 8
    budget = _budget.get()
    most = SIZE if budget is None else budget.size
    total, open_values = 0, [value]
    while open_values and total <= most:
        found = open_values.pop()
        inside = None if isinstance(found, str | bytes | int) else _inside(found)
        if inside is None:
            total += _weight(found) if isinstance(found, str | bytes | int) else 1
            continue
        inside = list(inside)
        total += ITEM * (1 + len(inside))
        if total <= most:
            open_values += inside
    return total


def _product(left: Any, right: Any) -> int:
    for several, number in ((left, right), (right, left)):
        if isinstance(several, str | bytes | list | tuple) and isinstance(number, int):
            return _weight(several) * max(0, number)
    return _weight(left) + _weight(right)


def _made(name: str, owner: Any, args: Sequence[Any], named: Mapping[str, Any]) -> int:
    """At most how much a method or a filter makes of `owner`, beside its size."""
    values = (*args, *named.values())
    numbers = [abs(value) for value in values if isinstance(value, int)]
    if name == "round" and max(numbers, default=0) > _MOST_DECIMALS:
        raise TooExpensive(f"it rounds to more than {_MOST_DECIMALS} decimals")
    if name == "tojson" and values:
        texts = [text for value in values for text in (value if isinstance(value, list | tuple) else [value])]
        return max([*numbers, *map(_weight, texts)]) * _weight(owner)
    if name in _MAKES_BY_NUMBER:
        lines = 1 + (sum(map(owner.count, _LINE_ENDS + "\t")) if isinstance(owner, str) else 0)
        return max(numbers, default=0) * lines + lines * sum(map(_weight, values))
    if name in _SEEKS:
        sought = max((len(value) for value in values if isinstance(value, str | bytes)), default=0)
        return len(owner) * sought if sought > _LONGEST_SOUGHT and isinstance(owner, str | bytes) else 0
    if name in ("replace", "translate") and isinstance(owner, str | bytes):
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


def _formatted(text: str | bytes, values: Any) -> int:
    """At most what a format makes. Named values may be written more than once."""
    signs = text.count("%") if isinstance(text, str) else text.count(b"%")
    places = signs if isinstance(values, dict) else 1
    return len(text) + places * _weight(values)


def _refuse_long_numbers(values: Iterable[Any]) -> None:
    if any(isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER for value in values):
        raise TooExpensive(f"it calculates with a number of more than {_LONGEST_NUMBER:,} bits")


def _refuse_codecs(values: Iterable[Any]) -> None:
    strange = [value for value in values if isinstance(value, str) and value.lower() not in _CODECS]
    if strange:
        raise TooExpensive(f"it encodes text as {strange[0][:40]!r}")


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
            _pay(_length(value) if name in _READS_ITEMS and not isinstance(value, str) else _weight(value))
        _pay(_made(name, value, rest, named))
        if name == "format":
            _refuse_widths(str(value), _WIDTH)
            _pay(_formatted(str(value), dict(named) or tuple(rest)))
        made = function(*args, **named)
        if name not in _READS_NOTHING:
            _pay(_length(made))
        return made

    return paid


def _paid_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def paid(*args: Any) -> Any:
        _refuse_long_numbers(args)
        for value in args:
            _compared(value)
        return function(*args)

    return paid


def _concat(values: Sequence[Any]) -> str:
    _pay(_weight(values))
    return "".join(map(str, values))


def _compared(value: Any) -> Any:
    if not isinstance(value, str | bytes) and _inside(value) is not None:
        _pay(_weight(value))
    return value


def _cut(value: Any) -> Any:
    _pay(_length(value))
    return value


@pass_context
def _printed(context: Any, value: Any) -> Any:
    _pay(_weight(value))
    return value
