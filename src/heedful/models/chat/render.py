"""Rendering: from messages to the token ids that a policy reads next.

The stream is append-only. The chat template is rendered as a whole once, for the message that begins a conversation.
After that only glue is appended. Sampled ids are never decoded and tokenised again, in windows of history either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from heedful.boundary.foreign_text import encodable
from heedful.models.chat.calls import Call, find_call, read_call
from heedful.models.chat.replies import ReplyParser, Tags
from heedful.models.chat.template import ResultRole, check_options, examine_tools, render_chat, written_call
from heedful.models.chat.turn_ends import find_turn_ends
from heedful.models.sight import Sight, parts, refuse_images, with_pictures
from heedful.types import Conversation, Image, Message, Prompt, Reply, Tool


class Text(NamedTuple):
    """A message, hashable."""

    role: str
    content: str
    images: tuple[Image, ...] = ()


class Called(NamedTuple):
    """The tool that a reply calls, and what the reply calls this call, if the form has a place for that."""

    name: str
    id: str = ""


Texts = tuple[Text, ...]

_QUESTION = "heedfulquestion"
_MARK = "heedfulmark"
_HARMONY_ENDS = ("<|return|>", "<|call|>")
_CACHED_PROMPTS = 2048
_PLAIN_TAGS = Tags()
_THINKING_OPTIONS = ("enable_thinking", "thinking")


class Renderer:
    """One tokenizer's chat template as an append-only stream of ids.

    A second rendering could strip, move or rewrite text: old thoughts, or a system text that moves to the last message.
    Here such text stays as it was first read. The context of turn t is by definition the ids before the sampled ones.
    Prompts are cached by their text, so equal observations are rendered and tokenised once.

    Raises `ValueError`, at construction, for a tokenizer without a chat template, and for tags that the tokenizer
    cannot write. Also for a template that

    - drops the reply, or rewrites the text before it,
    - has glue that depends on the content or position of a reply,
    - closes the thought before it began, or
    - ends a message with anything but one token of its own.

    With tools, also for a template that does not write them, or that writes calls in a form that is not read.

    With a model that sees, messages may hold pictures. Each becomes the ids that the model reads for it.
    """

    def __init__(
        self,
        tokenizer: Any,
        tags: Tags = _PLAIN_TAGS,
        template_options: Mapping[str, object] | None = None,
        stop_ids: Collection[int] = (),
        tools: Sequence[Tool] = (),
        sight: Sight | None = None,
    ) -> None:
        """`tokenizer`: of transformers. `stop_ids`: every id of the model's `generation_config.eos_token_id`.

        `sight`: of a model that sees.

        `tools`: written into the template, once, where it begins a conversation. Replies are then calls.
        """
        self.tokenizer = tokenizer
        tags = self.tags = tags.known_by(str(tokenizer.chat_template))
        self.template_options = dict(template_options or {})
        self.tools = tuple(tools)
        self.sight = sight
        self.result_role: ResultRole = "user"
        """The role under which the template shows the result of a call."""
        self._start = lru_cache(_CACHED_PROMPTS)(self._make_start)
        self._glue = lru_cache(_CACHED_PROMPTS)(self._make_glue)
        check_options(self.template_options)
        if not tokenizer.chat_template:
            raise ValueError(
                "Expected a tokenizer with a chat template, but its `chat_template` is empty. Use an instruction-tuned "
                "model, or set `tokenizer.chat_template` to the template the model should be trained with."
            )
        self._check_tags()
        if self.tools:
            self.result_role = examine_tools(self._render_messages, self.tools)
        asked = self._render((Text("user", _QUESTION),))
        self._template_opening = self.tags.opening_of(asked)
        self.opening: str = self._template_opening or (tags.open if tags.force else "")
        """The opening tag at the end of every prompt, with the text that the template writes after it. Empty if the
        policy has to sample the tag."""
        self._special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values(), *stop_ids}
        self._channel = ""
        """The header of an answer, where the generation prompt leaves it to the policy."""
        self._header = ""
        """The generation prompt alone, which then begins each message of a reply."""
        glue, reads = self._check_template(), (self._encode, self._decode, self._special)
        self._ends = self._call_ends = find_turn_ends(glue, asked, _QUESTION, *reads)
        if self.result_role == "tool":
            result = self._result_text((Text("tool", _QUESTION),), Called(self.tools[0].name))
            ends = find_turn_ends(result, asked, _QUESTION, *reads)
            self._call_ends = replace(ends, opens_next=ends.token != self._ends.token or self._ends.opens_next)
        # Harmony has a token that ends each message of a reply, and these, which end the reply.
        own = [ids[0] for text in _HARMONY_ENDS if self._channel and len(ids := self._encode(text)) == 1]
        self.end_of_turn_id: int = own[0] if own else self._ends.token
        """The token with which a reply ends."""
        no_ends = {self._ends.token} if own else set()
        self.stop_ids = frozenset({*stop_ids, *own, self.end_of_turn_id, self._call_ends.token} - no_ends)
        """The ids that end a reply: the given ones, and those with which the template ends a reply and a call."""
        shown_ends = self.stop_ids if self._channel else ()
        self._parser = ReplyParser(self._decode, tags, self.stop_ids, bool(self.tools), shown_ends)
        if self.result_role == "tool":
            self._glue((Text("tool", _QUESTION),), 1, Called(self.tools[0].name))

    def start(self, messages: Sequence[Message]) -> Prompt:
        """The whole template with its generation prompt and the forced tag. The last message must not be a reply."""
        return self._start(self._texts(messages))

    def glue(self, messages: Sequence[Message], ended: bool) -> Prompt:
        """The glue: all ids between the sampled ids and the next reply, generation prompt included.

        `ended`: whether the last sampled id is the end of turn. Otherwise the glue begins with that token, which is
        then never trained.
        """
        texts = self._texts(messages)
        return self._glue(texts, int(ended), self._called(texts, ()))

    def next_prompt(self, conversation: Conversation) -> Prompt:
        """The ids to append for this conversation: `start` before the first sampled reply, `glue` after one.

        For a conversation that restarts: everything, that is `start`, the sampled ids and the glue between them.

        Assistant messages without ids are text, such as examples or logs of other trainers. The template renders them
        in `start`. None stands after a sampled reply.
        """
        messages = conversation.messages
        sampled = _sampled_positions(messages)
        if not sampled:
            start = self.start(messages)
            return replace(start, restarts=True) if conversation.restarts else start
        if conversation.restarts:
            return self._window(messages, sampled)
        return self._glues(messages, sampled[-1:])[0][0]

    def context_ids(self, conversation: Conversation) -> tuple[int, ...]:
        """All ids before the next sampled id."""
        messages = conversation.messages
        sampled = _sampled_positions(messages)
        ids = list(self.start(messages[: sampled[0]] if sampled else messages).ids)
        for position, (glue, _) in zip(sampled, self._glues(messages, sampled), strict=True):
            ids += messages[position].ids or ()
            ids += glue.ids
        return tuple(ids)

    def as_sampled(self, text: str) -> tuple[int, ...]:
        """The ids of a demonstration as a policy would have sampled them, end of turn included.

        The opening tag that the prompt already ends with is removed. `ValueError` if the text does not begin with it.
        """
        opening = self.opening if text.startswith(self.opening) else self.opening.rstrip()
        if not text.startswith(opening):
            raise ValueError(
                f"Expected a reply that begins with {opening!r}, which the prompt already ends with, found "
                f"{text[:40]!r}. Write the tag in front of the reply, or set tags.force to false."
            )
        call = find_call(text) if self.tools else None
        if call is not None and isinstance(found := read_call(call, self.tools), Call):
            shown, own = written_call(self._render_messages, found.tool, arguments=found.arguments)
            text = text[: call.start] + (shown[own.start : own.end] if own else text[call.start : call.end])
        text = text[len(opening) :]
        if self._channel:  # each message has a header of its own
            before, close, after = text.partition(self.tags.close)
            text = before + close + (self._header if after else "") + after.removeprefix(self._header)
        ids = self._encode(text)
        end = self._call_ends.token if call else self.end_of_turn_id
        return ids if ids and ids[-1] in self.stop_ids else (*ids, end)

    def parse(
        self, prompt: Prompt, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()
    ) -> Reply:
        """The reply made of `ids` that were sampled after `prompt` (`ReplyParser.parse`)."""
        return self._parser.parse(prompt, ids, logprobs, entropies, opening=self.opening)

    def piece(self, token: int) -> str:
        """The text of one token by itself. A token with part of a character gives a replacement mark."""
        return self._parser.piece(token)

    def _window(self, messages: Sequence[Message], sampled: Sequence[int]) -> Prompt:
        """A conversation with sampled replies as one prompt. All of it but the newest observation is history."""
        start, glues = self.start(messages[: sampled[0]]), self._glues(messages, sampled)
        text, ids, history = start.text, list(start.ids), 0
        for position, (glue, written) in zip(sampled, glues, strict=True):
            reply = messages[position]
            ids += reply.ids or ()
            # After a cut reply the glue begins with the end-of-turn token, which is no part of the observation.
            history = len(ids) + (0 if written else 1)
            ids += glue.ids
            text += self._decode(reply.ids or ()) + glue.text
        images = _images((start, *(glue for glue, _ in glues)))
        return Prompt(text, tuple(ids), restarts=True, history=history, images=images)

    def _glues(self, messages: Sequence[Message], sampled: Sequence[int]) -> list[tuple[Prompt, int]]:
        """The glue after each sampled reply, and how many tokens of its end were sampled."""
        glues = []
        for at, end in zip(sampled, [*sampled, len(messages)][1:], strict=True):
            ids, texts = messages[at].ids or (), self._texts(messages[at + 1 : end])
            called = self._called(texts, ids)
            written = (self._call_ends if called else self._ends).written(ids, self.stop_ids)
            glues.append((self._glue(texts, written, called), written))
        return glues

    def _called(self, texts: Texts, ids: tuple[int, ...]) -> Called | None:
        """The tool that a sampled reply calls, if `texts` are its result. The first one, if the name cannot be read."""
        if not texts or texts[0].role != "tool":
            return None
        answer = self.parse(Prompt("", ()), ids, ()).answer
        call = find_call(self._decode(ids[answer.start : answer.end]))
        if call is None:
            return Called(self.tools[0].name)
        name = call.name or (call.value.get("name") if isinstance(call.value, dict) else None)
        known = isinstance(name, str) and re.fullmatch(r"[\w.-]+", name)
        return Called(str(name) if known else self.tools[0].name, call.id or "")

    def _make_start(self, texts: Texts) -> Prompt:
        text, images = self._open(self._render(texts)), _images(texts)
        return Prompt(text, self._encode(text, images), images=images)

    def _make_glue(self, texts: Texts, written: int, called: Called | None) -> Prompt:
        text = self._open(self._result_text(texts, called) if called else self._glue_text(texts), called)
        ends, images = self._call_ends if called else self._ends, _images(texts)
        ids = self._encode(text, images)
        held = self._decode(ids[: max(1, written)])
        if ids[: max(1, written)] != ends.run[: max(1, written)] or not text.startswith(held):
            raise ValueError(
                f"Expected the text between two replies to begin with {ends.text!r}, found {text[:40]!r}: the "
                f"chat template ends a reply differently before roles {[message.role for message in texts]}. Use a "
                f"template that ends every assistant message with the same token."
            )
        # The end of turn is tokenised with the rest and then dropped. A token that includes the whitespace after it
        # would leave that whitespace in the text if the rest were tokenised alone.
        return Prompt(text[len(held) if written else 0 :], ids[written:], images=images)

    def _glue_text(self, texts: Texts) -> str:
        rendered = self._render((Text("user", _QUESTION), Text("assistant", _MARK), *texts))
        return rendered[rendered.index(_MARK) + len(_MARK) :]

    def _result_text(self, texts: Texts, called: Called) -> str:
        """The text from the end of a call to the next reply."""
        tool = next((one for one in self.tools if one.name == called.name), replace(self.tools[0], name=called.name))
        text, call = written_call(self._render_messages, tool, self._messages(texts), id=called.id)
        shown = len(call.form.mark) if call and self._channel else 0  # in Harmony, that of the call ends a reply, too
        return text[call.end - shown :].lstrip() if call else ""

    def _open(self, text: str, called: Called | None = None) -> str:
        """The rendered text, with the opening tag at its end if the prompt has one."""
        stem = text.rstrip()
        if stem.endswith(self.tags.close):
            source = str(self.tokenizer.chat_template)
            named = next((option for option in _THINKING_OPTIONS if re.search(rf"\b{option}\b", source)), None)
            option = f"`{named}`" if named else "that switches thinking on (often `enable_thinking`)"
            raise ValueError(
                f"Expected a generation prompt that leaves the thought to the policy, but the chat template ends it "
                f"with {text[-len(self.tags.open + self.tags.close) - 4 :]!r}: an empty thought. Set the template "
                f"option {option} in template_options so that the template stops writing it (now: "
                f"{self.template_options}), or choose other tags."
            )
        opening = self.tags.opening_of(text)
        if opening != self._template_opening and not (called and opening and self.opening):
            raise ValueError(
                f"Expected every generation prompt of the chat template to end with {self._template_opening!r} after "
                f"its header, as it does for a plain question, found {text[-40:]!r}: the template opens the thought "
                f"depending on the messages. Fix its mode through template_options."
            )
        return text if opening else text + self.opening

    def _check_template(self) -> str:
        """Refuse a template that cannot be continued append-only. Returns the glue before a dummy question."""
        asked, tags = Text("user", _QUESTION), self.tags
        prompt = self._open(self._render((asked,)))
        plain = self._render((asked, Text("assistant", _MARK), asked))
        if plain.count(_MARK) != 1 or _QUESTION not in prompt:
            raise ValueError(
                f"Expected the chat template to write every message once, but a reply {_MARK!r} appears "
                f"{plain.count(_MARK)} times and a question {prompt.count(_QUESTION)} times in what it renders. Use a "
                f"template that writes the content of user and assistant messages."
            )
        before, _, glue = plain.partition(_MARK)
        stem = prompt[: len(prompt) - len(self.opening)].rstrip()
        added = before[len(stem) :].replace(tags.open, "").replace(tags.close, "")
        word = [one for one in self._encode(added) if one not in self._special]
        if before.startswith(stem) and self._decode(word).isalpha() and len(word) < len(self._encode(added)):
            self._channel, tags = added, _PLAIN_TAGS  # the template may refuse its own tags within a reply
            self._header = glue.partition(_QUESTION)[2].removeprefix(self._decode(self._encode(glue)[:1]))
        elif not before.startswith(stem) or added.strip():
            raise ValueError(
                f"Expected the chat template to keep the text before a reply when the conversation continues, but the "
                f"prompt ends with {stem[-40:]!r} and later the reply follows {before[-40:]!r}. Use a template that "
                f"adds a generation prompt (`add_generation_prompt`) equal to the header of its assistant messages."
            )
        replies = (
            f"{tags.open}\nso\n{tags.close}\n\n{_MARK}",
            f"{tags.open}so{tags.close}{tags.answer_open}{_MARK}",
            f"{tags.open}{_MARK}",
            f"{tags.open}so{tags.close}",
            f"{'so ' * 200}{_MARK}",
        )
        self._check_glue(glue, replies)
        return glue

    def _check_glue(self, glue: str, replies: Sequence[str]) -> None:
        """Refuse a template whose text between a reply and the message after it depends on replies like these."""
        asked = Text("user", _QUESTION)
        later = (asked, Text("assistant", "so"), asked, Text("assistant", _MARK), asked)
        shown = {f"a reply of {reply[:60]!r}": (asked, Text("assistant", reply), asked) for reply in replies}
        for where, texts in (shown | {"the second reply": later}).items():
            rendered = self._render(texts)
            _, _, after = rendered.rpartition(_MARK)
            if not rendered.endswith(glue) or (_MARK in rendered and after != glue):
                raise ValueError(
                    f"Expected the text between two replies to be the same whatever the replies say, but after {where} "
                    f"the chat template writes {after[-80:]!r} and after a plain one {glue[-80:]!r}. Use a template "
                    "whose text after an assistant's content does not depend on that content or its position."
                )

    def _check_tags(self) -> None:
        for name in ("open", "close", "answer_open", "answer_close"):
            tag = getattr(self.tags, name)
            ids = self._encode(tag)
            if tag not in self._decode(ids):
                raise ValueError(
                    f"Expected a tokenizer that can write tags.{name} = {tag!r}, but it reads it back as "
                    f"{self._decode(ids)!r}. Choose a tag from its vocabulary or add the tag as an ordinary token."
                )

    def _texts(self, messages: Sequence[Message]) -> Texts:
        if self.sight is None:
            refuse_images(messages, "a model that reads text")
        else:
            for image in _images(messages):
                self.sight.show(image)  # at every use, since those that were not used for longest are forgotten
        roles = {"tool": self.result_role}
        return tuple(Text(roles.get(one.role, one.role), one.content, one.images) for one in messages)

    def _render(self, texts: Texts) -> str:
        return self._render_messages(self._messages(texts), self.tools)

    def _messages(self, texts: Texts) -> list[dict[str, object]]:
        return [
            {"role": role, "content": parts(content, images) if self.sight else content}
            for role, content, images in texts
        ]

    def _render_messages(self, messages: Sequence[Mapping[str, object]], tools: Sequence[Tool]) -> str:
        return render_chat(self.tokenizer, messages, self.template_options, [tool.schema for tool in tools])

    def _encode(self, text: str, images: Sequence[Image] = ()) -> tuple[int, ...]:
        text = encodable(text)
        ids = tuple(self.tokenizer(text, add_special_tokens=False).input_ids)
        return ids if self.sight is None else with_pictures(ids, images, self.sight, text)

    def _decode(self, ids: Sequence[int]) -> str:
        named = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **named))


def _images(shown: Sequence[Text] | Sequence[Message] | Sequence[Prompt]) -> tuple[Image, ...]:
    return tuple(image for one in shown for image in one.images)


def _sampled_positions(messages: Sequence[Message]) -> list[int]:
    return [at for at, message in enumerate(messages) if message.role == "assistant" and message.ids is not None]
