"""Chat templates with a budget: hostile ones end in a sentence, and all others give the text of transformers."""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from jinja2 import TemplateError  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

from heedful.models.chat import bounded_template, template_costs  # noqa: E402
from heedful.models.chat.bounded_template import render_chat  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.models.chat.template_costs import TooExpensive  # noqa: E402

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 2 + 2?\n"},
    {"role": "assistant", "content": "<think>\nfour\n</think>\n\n4"},
    {"role": "user", "content": "{{ 7 * 7 }} und {% for %}"},
]

CHATML = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
STRIPPING = (
    "{% set ns = namespace(last=-1) %}"
    "{% for message in messages[::-1] %}{% if ns.last < 0 and message.role == 'user' %}"
    "{% set ns.last = messages|length - 1 - loop.index0 %}{% endif %}{% endfor %}"
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if loop.index0 < ns.last and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "[{{ message.role|upper }}]{{ content|trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[ASSISTANT]"
    "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}{% endif %}"
)
WITH_MACRO = (
    "{% macro line(role, text, pad='.') -%}{{ pad * 3 ~ role ~ ': ' ~ text|replace('2', 'two') }}{%- endmacro %}"
    "{% for message in messages if message.role != 'system' %}{{ line(message.role, message.content) }}"
    "{{ loop.cycle(' a', ' b') }}{{ '%03d|%s' % (loop.index, loop.first) }} {{ '{:>4}'.format(loop.index) }}"
    "{% if not loop.last %}{{ '\n' }}{% else %}{% break %}{% endif %}{% endfor %}"
    "{{ messages|map(attribute='role')|join(', ') }} {{ messages[0]|tojson(indent=2) }}"
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ (2 ** 10) % 7 }} {{ [1, 2] + [3] }}"
    "{% generation %}x{% endgeneration %}"
    "{% macro boxed() %}<{{ caller() }}>{% endmacro %}{% call boxed() %}in{% endcall %}"
    "{{ messages|groupby('role')|length }} {{ 'a,b'.split(',')|last }} {{ {'k': 'v'}.items()|list }}"
    "{{ 'word ' * 3 }}{{ 'mid'|center(9) }}{{ 'x\ny'|indent(2) }}{{ 3.14159|round(2) }}{{ undefined_name }}"
)
PLAIN = {"chatml": CHATML, "stripping": STRIPPING, "macro": WITH_MACRO}

SIXTY = "{% for i in range(60) %}"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
GRAPH = "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
LONG_NUMBER = "{% set a = ('f' * 2000000)|int(base=16) %}"
HOSTILE = {
    "nested loops": f"{LOOPS}{{% endfor %}}{{% endfor %}}{{% endfor %}}",
    "loops that write": f"{LOOPS}aaaaaaaa{{% endfor %}}{{% endfor %}}{{% endfor %}}",
    "a loop that renames the count": "{% set heedful_step = namespace %}" + LOOPS + "{% endfor %}" * 3,
    "a long text": "{{ 'a' * 6000000000 }}",
    "a long text of a variable": "{{ messages[0].content * 6000000000 }}",
    "a long list": "{{ ([0] * 6000000000)|length }}",
    "a list times a number": "{{ (6000000000 * [0])|length }}",
    "a large power": "{{ 10 ** (10 ** 9) }}",
    "powers of powers": "{% set n = 9 ** 999 %}{{ n ** n }}",
    "doubling": "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "doubling with plus": "{% set ns = namespace(s='ab') %}" + SIXTY + "{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "doubling lists": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "doubling in a block": (
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}"
        "{% set ns.s = t %}{% endfor %}"
    ),
    "doubling by replace": (
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}"
    ),
    "doubling by join": (
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}"
    ),
    "doubling by format": (
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}"
    ),
    "doubling by str.format": (
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}"
    ),
    "kept slices": (
        "{% set ns = namespace(l=0, s='a' * 1000000) %}"
        "{% for i in range(99999) %}{% set ns.l = [ns.l, ns.s[1:]] %}{% endfor %}"
    ),
    "a graph printed": (
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"
    ),
    "a graph as JSON": (
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
        "{{ ns.l|tojson }}"
    ),
    "graphs compared": (
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}"
    ),
    "graphs compared by a test": (
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l is eq(ns.m) }}"
    ),
    "a graph as a key": (
        "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}"
        "{{ {}[ns.l] }}{{ {}.get(ns.l) }}"
    ),
    "a graph as a key of a literal": (
        "{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}"
        "{{ {ns.l: 1}|length }}"
    ),
    "center": "{{ 'a'|center(6000000000) }}",
    "ljust": "{{ 'a'.ljust(6000000000) }}",
    "zfill by attr": "{{ ('a'|attr('zfill'))(6000000000) }}",
    "expandtabs": "{{ ('\t' * 10000).expandtabs(1000000) }}",
    "to_bytes": "{{ (5).to_bytes(6000000000, 'big')|length }}",
    "indent": "{{ ('a\n' * 10000)|indent(1000000) }}",
    "indented JSON": "{{ ([[1]] * 10000)|tojson(indent=1000000) }}",
    "slice": "{{ ([1]|slice(6000000000))|list|length }}",
    "round": "{{ 2.5|round(6000000000, 'ceil') }}",
    "replace": "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
    "join": "{{ (range(99999)|list)|join('b' * 100000) }}",
    "str.join": "{{ ('b' * 100000).join('a' * 100000) }}",
    "sum of lists": "{{ ([[1, 2, 3]] * 100000)|sum(start=[])|length }}",
    "a wide format": "{{ '%6000000000d' % 1 }}",
    "a wide format of a filter": "{{ '%6000000000d'|format(1) }}",
    "a star in a format": "{{ '%*d' % (6000000000, 1) }}",
    "a wide str.format": "{{ '{:>6000000000}'.format(1) }}",
    "a wide str.format by a field": "{{ '{:>{}}'.format(1, 6000000000) }}",
    "a wide date": "{{ strftime_now('%6000000000Y') }}",
    "lipsum": "{{ lipsum(n=100000, min=100000, max=200000) }}",
    "a macro that calls itself": "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "macros to the power": (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(80) }}"
    ),
    "a recursive loop": "{% for x in [[1]] recursive %}{{ loop([x, x]) }}{% endfor %}",
    "a block in itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "mapped filters": "{% for a in range(99999) %}{{ range(99999)|map('string')|join }}{% endfor %}",
    "sorted lists": "{% for a in range(99999) %}{{ (range(99999)|list)|sort|length }}{% endfor %}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep loops": "{% for a in [1] %}" * 500 + "{% endfor %}" * 500,
    "a long template": "{{ 1 }}" * 20_000,
    "a graph in capitals": f"{GRAPH}{{{{ ns.l|upper }}}}",
    "a graph as a refusal": f"{GRAPH}{{{{ raise_exception(ns.l) }}}}",
    "a graph of namespaces": (
        "{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = namespace(a=ns.a, b=ns.a) %}{% endfor %}"
        "{{ ns }}"
    ),
    "a graph of views": (
        "{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = {'a': ns.a, 'b': ns.a}.values() %}"
        "{% endfor %}{{ ns.a }}"
    ),
    "a method printed": "{% set m = ('x' * 1000000)|safe %}{{ [m.striptags] * 5000 }}",
    "a wide format of a named value": "{{ '%(a)6000000000d' % {'a': 1} }}",
    "a wide format of an odd name": "{{ '%(a(b))6000000000d' % {'a(b)': 1} }}",
    "a named value many times": "{{ ('%(a)s' * 10000) % {'a': 'x' * 100000} }}",
    "a named value many times by a filter": "{{ ('%(a)s' * 10000)|format(a='x' * 100000) }}",
    "a long division": f"{LONG_NUMBER}{{{{ (a // (a - 1)) > 1 }}}}",
    "a long remainder": f"{LONG_NUMBER}{{{{ (a % (a - 1)) > 1 }}}}",
    "a long division by a test": f"{LONG_NUMBER}{{{{ a is divisibleby(a - 1) }}}}",
    "a power of ten by round": "{{ 2.5|round(4000000, 'ceil') }}",
    "rfind": "{{ ('a' * 1000000).rfind('ab' + 'a' * 500000) }}",
    "rsplit": "{{ ('a' * 1000000).rsplit('ab' + 'a' * 500000) }}",
    "strip": "{{ ('a' * 1000000).strip('b' * 1000000 + 'a') }}",
    "trim": "{{ ('a' * 1000000)|trim('b' * 1000000 + 'a') }}",
    "a slow encoding": "{{ ('中.' * 1000000).encode('idna') }}",
    "JSON indented by a text": "{{ (range(9999)|list)|tojson(indent='x' * 100000) }}",
    "JSON separated by a text": "{{ (range(9999)|list)|tojson(separators=('x' * 100000, ':')) }}",
    "indent after odd line ends": "{{ ('a\\r' * 10000)|indent(1000000) }}",
    "a class walk": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
}


@pytest.fixture
def templated(tokenizer: Any) -> Any:
    """The session's tokenizer, with another template for this test."""
    before = tokenizer.chat_template
    yield tokenizer
    tokenizer.chat_template = before


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends_in_a_sentence_within_its_budget(
    name: str, templated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_costs, "STEPS", 30_000)  # the same bounds, sooner reached
    monkeypatch.setattr(template_costs, "SIZE", 5_000_000)
    templated.chat_template = HOSTILE[name]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    with pytest.raises(TemplateError if name in ("lipsum", "a class walk") else TooExpensive):
        render_chat(templated, MESSAGES, {})
    assert time.thread_time() - began < 2 * template_costs.SECONDS
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 700_000, "kilobytes"


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}])
def test_a_plain_template_gives_the_text_of_transformers(name: str, options: dict[str, Any], templated: Any) -> None:
    templated.chat_template = PLAIN[name]
    expected = templated.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True, **options)
    assert render_chat(templated, MESSAGES, options) == expected
    assert chat_template_utils._compile_jinja_template is bounded_template._transformers_compiles


def test_a_template_that_writes_the_date_gives_the_same_text_on_every_day(templated: Any) -> None:
    templated.chat_template = "{{ strftime_now('%Y-%m-%d %H:%M') }} {{ messages[1].content }}"
    assert render_chat(templated, MESSAGES, {}) == "2024-07-26 00:00 What is 2 + 2?\n"


def test_a_template_that_draws_at_random_is_refused(templated: Any) -> None:
    templated.chat_template = "{{ ['a', 'b']|random }}"
    with pytest.raises(TemplateError, match="No filter named 'random'"):
        render_chat(templated, MESSAGES, {})


def test_any_error_of_a_template_is_a_short_sentence(templated: Any) -> None:
    for template in ("{{ cycler() }}", "{{ raise_exception('x' * 100000) }}"):
        templated.chat_template = template
        with pytest.raises(TemplateError) as raised:
            render_chat(templated, MESSAGES, {})
        assert len(str(raised.value)) < 1200


def test_a_template_with_wordwrap_is_refused(templated: Any) -> None:
    """A long word takes the square of its length."""
    templated.chat_template = "{{ ('x' * 3000000)|wordwrap(1) }}"
    with pytest.raises(TemplateError, match="No filter named 'wordwrap'"):
        render_chat(templated, MESSAGES, {})


def test_a_long_conversation_is_well_within_the_budget(templated: Any) -> None:
    turns = [MESSAGES[1], MESSAGES[2]] * 1000
    long = [*turns, {"role": "user", "content": "word " * 400_000}]
    for template in (CHATML, STRIPPING):
        templated.chat_template = template
        expected = templated.apply_chat_template(long, tokenize=False, add_generation_prompt=True)
        assert render_chat(templated, long, {}) == expected


def test_a_refusal_by_the_template_stays_its_own_sentence(templated: Any) -> None:
    templated.chat_template = "{{ raise_exception('no system message, please') }}"
    with pytest.raises(TemplateError, match="no system message, please"):
        render_chat(templated, MESSAGES, {})


def test_of_several_templates_the_default_is_taken_and_without_one_they_are_named(templated: Any) -> None:
    templated.chat_template = {"rag": "no", "tool_use": "for tools", "default": CHATML}
    expected = render_chat(templated, MESSAGES, {})
    assert render_chat(templated, MESSAGES, {}, tools=[{"type": "function"}]) == "for tools"
    templated.chat_template = CHATML
    assert render_chat(templated, MESSAGES, {}) == expected
    templated.chat_template = {"rag": CHATML, "tool_use": "for tools"}
    with pytest.raises(TemplateError, match=r"none is named 'default' \('rag', 'tool_use'\): write the one to use"):
        render_chat(templated, MESSAGES, {})
    assert render_chat(templated, MESSAGES, {}, tools=[{"type": "function"}]) == "for tools"


def test_the_renderer_refuses_an_expensive_template_with_a_sentence(templated: Any) -> None:
    templated.chat_template = HOSTILE["a long text"]
    with pytest.raises(ValueError, match=r"chat template could not render .* more than 300,000 steps"):
        Renderer(templated)


EXPRESSIONS = st.recursive(
    st.sampled_from(
        ["messages", "messages[0].content", "'ab'", "7", "99999", "6000000000", "x", "ns.s", "[1]", "range(999)"]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "**", "~", "%", "==", "in", "and"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(
            inner,
            st.sampled_from(
                ["list", "string", "length", "tojson", "join", "sum", "sort", "upper", "reverse", "unique"]
            ),
        ).map(lambda parts: f"({parts[0]}|{parts[1]})"),
        st.tuples(inner, st.sampled_from(["center", "indent", "replace", "batch", "slice", "join"]), inner).map(
            lambda parts: f"({parts[0]}|{parts[1]}({parts[2]}))"
        ),
        inner.map(lambda part: f"[{part}, {part}]"),
        inner.map(lambda part: f"{part}[1:]"),
    ),
    max_leaves=6,
)
STATEMENTS = st.recursive(
    EXPRESSIONS.map(lambda expression: "{% set ns.s = " + expression + " %}{{ ns.s }}"),
    lambda inner: st.one_of(
        st.tuples(EXPRESSIONS, inner).map(lambda parts: "{% for x in " + parts[0] + " %}" + parts[1] + "{% endfor %}"),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=4,
)


@given(body=STATEMENTS)
@settings(max_examples=60, deadline=None)
def test_no_template_takes_more_than_its_budget(tokenizer: Any, body: str) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    template = tokenizer.chat_template
    tokenizer.chat_template = "{% set ns = namespace(s='ab') %}{% set x = 3 %}" + body
    try:
        assert isinstance(render_chat(tokenizer, MESSAGES, {}), str)
    except TemplateError:
        pass
    finally:
        tokenizer.chat_template = template
    assert time.thread_time() - began < 2 * template_costs.SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000
