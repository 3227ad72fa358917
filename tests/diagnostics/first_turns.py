"""Made-up first turns and policies with known probabilities, for the tests of what an action follows."""

import math

import numpy as np

from heedful.types import CrossScores, Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

CLOSE, OPEN_ANSWER, SHUT, END = 90, 80, 81, 99
NEVER = math.exp(-700)
"""Not 0, so that its logarithm is a number; nothing is changed by adding it."""


def acted(prompt, thought, action, after=None, name=None, lead=()):
    """One turn: `thought` as ids without its end, `action` as ids. Its name is theirs unless another is given."""
    action = action if isinstance(action, tuple) else (action,)
    thought = thought if isinstance(thought, tuple) else (thought,)
    after = (OPEN_ANSWER, *action, SHUT, END) if after is None else after
    ids = (*lead, *thought, CLOSE, *after)
    start, end = len(lead), len(lead) + len(thought) + 1
    answer = Span(end + after.index(OPEN_ANSWER), end + after.index(SHUT) + 1) if SHUT in after else Span(end, end)
    prompt = prompt if isinstance(prompt, tuple) else (prompt,)
    said = (" ".join(map(str, action)) if name is None else name,)
    reply = Reply(Prompt("", prompt), ids, "", (0.0,) * len(ids), (), Span(start, end), answer, True, False)
    return Turn(reply, {}, said if said[0] else (), True, "", "")


def group(number, *turns):
    task = Task(f"lake-{number:016x}", number, "train")
    return Group(
        task, tuple(Trajectory(task, member, (turn,), Ending.FAILED, 0.0) for member, turn in enumerate(turns))
    )


class Tabular:
    """Gives the action token behind `OPEN_ANSWER` the probability `chance(prompt, thought, action)`, others 1."""

    name = ""

    def __init__(self, chance):
        self.chance = chance
        self.calls = 0

    def cross_score(self, prompts_N, thoughts_M, own_M, temperature, keep="sums"):
        self.calls += 1
        tokens = []
        for ids in thoughts_M:
            logprobs = np.zeros((len(prompts_N), len(ids)))
            at = ids.index(OPEN_ANSWER) + 1
            for column, prompt in enumerate(prompts_N):
                logprobs[column, at] = math.log(max(NEVER, self.chance(prompt[0], ids[0], ids[at])))
            tokens.append(logprobs)
        sums = [kept.sum(axis=1) for kept in tokens]
        return CrossScores(np.array(sums), [len(ids) for ids in thoughts_M], list(own_M), tokens=tokens)
