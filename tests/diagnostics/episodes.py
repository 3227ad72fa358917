"""Groups of made-up episodes for the tests of the rollout diagnostics."""

from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn


def reply(tokens=6, thought=2, answer=2, closed=True, cut=False, entropies=()):
    """A thought, an answer, then whatever is left of the tokens."""
    spans = Span(0, thought), Span(thought, thought + answer)
    return Reply(Prompt("", (1,)), tuple(range(tokens)), "", (0.0,) * tokens, tuple(entropies), *spans, closed, cut)


def turn(rewards=None, valid=True, **knobs):
    return Turn(reply(**knobs), rewards or {}, (), valid, "", "")


def episode(outcome, *turns, progress=None, task="a", member=0):
    ending = {None: Ending.ERROR, 1.0: Ending.SOLVED}.get(outcome, Ending.FAILED)
    return Trajectory(Task(task, 0, "train"), member, turns, ending, outcome, progress)


def group(task, *episodes):
    return Group(Task(task, 0, "train"), tuple(episodes))


def outcomes(task, *values, progress=None):
    """A group of one-turn episodes with these outcomes (and progress)."""
    progress = progress or [None] * len(values)
    return group(task, *(episode(value, turn(), progress=p) for value, p in zip(values, progress, strict=True)))


def by_name(metrics):
    found = {metric.name: metric for metric in metrics}
    assert len(found) == len(metrics)
    return found
