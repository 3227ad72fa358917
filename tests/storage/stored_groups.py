"""Small groups with everything that a rollout can hold, for the tests of formats and reports."""

from __future__ import annotations

from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict


def turn(number: int, rewards: dict[str, float], text: str = "<think>go up</think><answer>Up</answer>") -> Turn:
    reply = Reply(
        prompt=Prompt(f"board {number}\n_P_\n<think>", (7, 8, 9 + number)),
        ids=(11, 12, 13, 14),
        text=text,
        logprobs=(-0.5, -0.10000000149011612, -1e-9, -3.25),
        entropies=(0.6931471805599453, 0.1, 0.0, 1.5),
        thought=Span(0, 3),
        answer=Span(3, 4),
        closed=True,
        cut=False,
    )
    return Turn(reply, rewards, ("Up", "Left"), True, "moved up; hit a wall", "P_\n_G")


def group(number: int = 0, members: int = 2) -> Group:
    task = Task(f"lake/{number}", 2**40 + number, "train", ("size=4", "slip=0"), "frozen_lake")
    solved = Trajectory(
        task, 0, (turn(1, {"step": -0.1}), turn(2, {"step": -0.1, "solved": 1.0})), Ending.SOLVED, 1.0, 1.0, 12, 0.7
    )
    others = [
        Trajectory(task, member, (turn(1, {"format": -0.1}),), Ending.OUT_OF_TURNS, 0.0, 0.25, 12, 0.7)
        for member in range(1, members)
    ]
    return Group(task, (solved, *others))


def broken_group(number: int) -> Group:
    """One episode broke before its first turn, one after it; neither was scored."""
    task = Task(f"lake/{number}", -number, "train", environment="frozen_lake")
    return Group(
        task,
        (
            Trajectory(task, 3, (), Ending.ERROR, None, error="no board: käse"),
            Trajectory(task, 1, (turn(1, {}),), Ending.ERROR, None, error="lost the server"),
        ),
    )


KEPT = Verdict(1.0, "kept", 0.5)
DROPPED = Verdict(0.0, "unscored", None)
