"""Chat templates: the text of transformers on a fixed day, a time limit at first, and errors as sentences."""

from __future__ import annotations

import time
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

from heedful.models.chat import template  # noqa: E402
from heedful.models.chat.template import read_options, render_chat  # noqa: E402

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


@pytest.fixture
def templated(tokenizer: Any) -> Any:
    """The session's tokenizer, with another template for this test."""
    before = tokenizer.chat_template
    yield tokenizer
    tokenizer.chat_template = before


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n"])
def test_a_plain_template_gives_the_text_of_transformers(name: str, end: str, templated: Any) -> None:
    templated.chat_template = PLAIN[name] + end
    for options in ({}, {"enable_thinking": False}):
        expected = templated.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True, **options)
        assert render_chat(templated, MESSAGES, options) == expected


def test_a_template_that_writes_the_date_gives_the_same_text_on_every_day(templated: Any) -> None:
    templated.chat_template = "{{ strftime_now('%Y-%m-%d %H:%M') }} {{ messages[1].content }}"
    assert render_chat(templated, MESSAGES, {}) == "2024-07-26 00:00 What is 2 + 2?\n"
    assert "2024-07-26" not in templated.apply_chat_template(MESSAGES, tokenize=False), "others keep the clock"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for a in range(4000) %}" * 2 + "{% endfor %}" * 2, "it takes more than 0.2 seconds"),
        ("{{ cycler() }}", "RuntimeError: at least one item"),
        ("{{ raise_exception('no system message, please') }}", "no system message, please. Use roles"),
        ("{{ raise_exception('x' * 100000) }}", "xxxx"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    ],
)
def test_a_template_that_fails_or_does_not_end_is_a_short_sentence(
    source: str, said: str, templated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "SECONDS", 0.2)
    templated.chat_template = source
    began = time.monotonic()
    with pytest.raises(ValueError, match="The chat template could not render messages with roles") as raised:
        render_chat(templated, MESSAGES, {})
    assert said in str(raised.value)
    assert len(str(raised.value)) < 1400
    assert time.monotonic() - began < 10


def test_of_several_templates_the_default_is_taken_and_without_one_they_are_named(templated: Any) -> None:
    templated.chat_template = {"rag": "no", "tool_use": "for tools", "default": CHATML}
    expected = render_chat(templated, MESSAGES, {})
    assert render_chat(templated, MESSAGES, {}, tools=[{"type": "function"}]) == "for tools"
    templated.chat_template = CHATML
    assert render_chat(templated, MESSAGES, {}) == expected
    templated.chat_template = {"rag": CHATML, "tool_use": "for tools"}
    with pytest.raises(ValueError, match=r"multiple chat templates with no default .*'rag', 'tool_use'"):
        render_chat(templated, MESSAGES, {})
    assert render_chat(templated, MESSAGES, {}, tools=[{"type": "function"}]) == "for tools"


def test_options_of_the_command_line_have_the_types_that_templates_compare_them_with() -> None:
    """Seed-OSS asks whether thinking_budget is 0, and writes it into a sentence otherwise."""
    options = read_options(["thinking_budget=0", "enable_thinking=false", "reasoning_effort=high", "date=2024-07"])
    assert options == {"thinking_budget": 0, "enable_thinking": False, "reasoning_effort": "high", "date": "2024-07"}
    assert type(options["thinking_budget"]) is int
