"""Made-up episodes with pictures, and policies whose log-probabilities are known, for the tests of what is read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from heedful.types import CrossScores, Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

BEGIN, TEXT, THINK, END = 50, 51, 52, 53
"""Ids of the template. What follows `TEXT` is the text of the observation."""
PICTURE_TOKENS = 4

Chance = Callable[[Sequence[int], Sequence[int], int, int], float]
"""p(token number `place` of a thought = `word` | pictures, texts), each in order of appearance."""


def picture(number: int, tokens: int = PICTURE_TOKENS) -> tuple[int, ...]:
    return (-1 - number,) * tokens


def shown(image: int | None, text: int, tokens: int = PICTURE_TOKENS) -> tuple[int, ...]:
    """A prompt with a picture, and a text of one id."""
    return (BEGIN, *(() if image is None else picture(image, tokens)), TEXT, text, THINK)


def seen(ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """The numbers of the pictures, and the texts, of a context made of `shown` and thoughts."""
    pictures = [-1 - one for place, one in enumerate(ids) if one < 0 and ids[place - 1] != one]
    return pictures, [ids[place + 1] for place, one in enumerate(ids) if one == TEXT]


def turn(prompt: tuple[int, ...], words: Sequence[int]) -> Turn:
    ids = (*words, END)
    reply = Reply(
        Prompt("", prompt), ids, "", (0.0,) * len(ids), (), Span(0, len(words)), Span(len(words), len(ids)), True, False
    )
    return Turn(reply, {}, (), True, "", "")


class Policy:
    """A tabular policy: each token of a thought depends on the pictures and texts before it alone.

    `words`: the vocabulary of thoughts. `length`: tokens of a thought. It scores as it samples, and counts what it
    reads.
    """

    name = ""

    def __init__(self, chance: Chance, words: int, length: int = 1) -> None:
        self.chance, self.words, self.length = chance, words, length
        self.read = 0

    def sample(self, context: Sequence[int], rng: random.Random) -> tuple[int, ...]:
        pictures, texts = seen(context)
        return tuple(
            rng.choices(range(self.words), [self.chance(pictures, texts, at, word) for word in range(self.words)])[0]
            for at in range(self.length)
        )

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: str = "sums",
    ) -> CrossScores:
        assert len(set(map(tuple, prompts_N))) == len(prompts_N)
        self.read += sum(map(len, prompts_N)) + len(prompts_N) * sum(len(ids) - 1 for ids in set(thoughts_M))
        tokens = []
        for thought in thoughts_M:
            assert min(thought) >= 0, "a picture in a thought"
            rows = []
            for prompt in prompts_N:
                pictures, texts = seen(prompt)
                rows.append([np.log(self.chance(pictures, texts, at, word)) for at, word in enumerate(thought)])
            tokens.append(np.array(rows))
        sums = np.array([kept.sum(axis=1) for kept in tokens])
        heads = {16: np.array([kept[:, :16].sum(axis=1) for kept in tokens])}
        lengths = [len(thought) for thought in thoughts_M]
        kept = tokens if keep == "tokens" else None
        return CrossScores(sums, lengths, list(own_M), heads, tokens=kept)  # type: ignore[arg-type]


def groups(
    policy: Policy,
    prompts: Sequence[tuple[int | None, int]],
    members: int = 4,
    turns: int = 1,
    seed: int = 0,
    tokens: Sequence[int] = (),
    words: Sequence[Sequence[int | tuple[int, ...]]] = (),
) -> list[Group]:
    """One group for each prompt, a picture and a text. Later turns show other pictures, and the same text.

    `tokens`: of each prompt's pictures, where they differ. `words`: the thoughts, in place of sampled ones.
    """
    rng = random.Random(seed)
    made = []
    for number, (image, text) in enumerate(prompts):
        size = tokens[number] if tokens else PICTURE_TOKENS
        task = Task(f"lake-{number:016x}", number, "train", environment="lake")
        episodes = []
        for member in range(members):
            context: tuple[int, ...] = ()
            found = []
            for at in range(turns):
                prompt = shown(None if image is None else image + 20 * at, text, size)
                context += prompt
                thought = words[number][member] if words else policy.sample(context, rng)
                thought = thought if isinstance(thought, tuple) else (thought,)
                context += (*thought, END)
                found.append(turn(prompt, thought))
            episodes.append(Trajectory(task, member, tuple(found), Ending.FAILED, 0.0))
        made.append(Group(task, tuple(episodes)))
    return made
