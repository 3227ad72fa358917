"""A policy that asks an OpenAI-compatible chat endpoint: messages go out, and text alone comes back.

Ids and log-probabilities of such replies are unknown. While an episode runs, a reply has one placeholder id per
character, so that thought and answer are found as in replies of ids. `text_alone` takes the placeholders away.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from heedful.models.chat.replies import ReplyParser, Tags, unanswered
from heedful.models.sight import refuse_images
from heedful.policies.rows import new_messages
from heedful.policies.sampling import Sampling
from heedful.policies.servers import Client, Draw, OpenAIText, Usage, WindowFull, Written
from heedful.seeds import derive
from heedful.types import Conversation, Group, Prompt, Reply, Span, Trajectory, Turn

_END = 0x110000
"""One past the last code point: the placeholder of the end of a reply."""


class TextPolicy:
    """Replies of one model behind `/v1/chat/completions`.

    A thought that the server gives apart from the text is put before it, between the tags of thoughts. Where the
    opening tag stands in the server's prompt, as with DeepSeek R1, the text gets it back. Where the conversation fills
    the model's window, the reply is empty and cut, as with other policies.
    """

    version = 0

    def __init__(self, client: Client, model: str, sampling: Sampling, tags: Tags, seed: int) -> None:
        """`model`: the name that the server gives it. `seed`: sent with each request, derived per turn."""
        self.temperature = sampling.temperature
        self.parallel = client.limits.connections
        self._client, self._model, self._sampling, self._tags, self._seed = client, model, sampling, tags, seed
        self._dialect = OpenAIText()
        self._parser = ReplyParser(lambda ids: "".join(map(chr, ids)), tags, {_END})

    def keep(self, keys: Collection[str]) -> None:
        """Do nothing: the server has its own cache."""

    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        return [self.answer(conversation)[0] for conversation in conversations]

    def answer(self, conversation: Conversation) -> tuple[Reply, Usage]:
        """One reply, and the tokens that the server counted for it."""
        refuse_images(conversation.messages, "a served model")
        shown = (message.content for message in new_messages(conversation))
        prompt = Prompt("\n".join(shown) + "\n", (), conversation.restarts)
        messages = [(message.role, message.content) for message in conversation.messages]
        seed = derive(self._seed, conversation.key, conversation.turn)
        draw = Draw(self.temperature, self._sampling.greedy, self._sampling.tokens_per_turn, seed)
        call = self._dialect.draw(messages, draw, self._model)
        try:
            written = self._client.ask(call, self._dialect.written, conversation=conversation.key)
        except WindowFull:
            return unanswered(prompt), Usage()
        return self._reply(prompt, written), written.usage

    def _reply(self, prompt: Prompt, written: Written) -> Reply:
        text = written.text
        if written.thought and self._tags.open not in text:
            ended = text or not written.cut  # the server cut the thought where no text follows it
            text = f"{self._tags.open}{written.thought}{self._tags.close if ended else ''}{text}"
        elif self._tags.close in text and self._tags.open not in text:
            text = self._tags.open + text
        characters = tuple(map(ord, text))
        ids = characters if written.cut and text else (*characters, _END)
        return replace(self._parser.parse(prompt, ids, (), (), opening=""), cut=written.cut)


def text_alone(groups: Sequence[Group]) -> list[Group]:
    """The same episodes without placeholders: a reply has its text, and neither ids nor ranges."""

    def bare(turn: Turn) -> Turn:
        no_ids = replace(turn.reply, ids=(), logprobs=(), entropies=(), thought=Span(0, 0), answer=Span(0, 0))
        return replace(turn, reply=no_ids)

    def bare_turns(trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, turns=tuple(map(bare, trajectory.turns)))

    return [replace(group, trajectories=tuple(map(bare_turns, group.trajectories))) for group in groups]
