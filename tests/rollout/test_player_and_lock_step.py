"""Episodes in lock-step: an environment that breaks is its own affair, and groups keep their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from heedful.envs.toys.echo import Echo
from heedful.policies.scripted import ScriptedPolicy
from heedful.rollout import Asynchronous, Collector, LockStep, Request
from heedful.rollout.player import Player, made
from heedful.types import Conversation, Ending, Group, Observation, Prompt, Reply, Span, Step, Task

OK = Step(Observation("more"))
SOLVED = Step(Observation(""), {"solved": 1.0}, Ending.SOLVED, outcome=1.0)


@dataclass
class Scene:
    """Plays a list of answers; an exception among them is raised. `begin` is what `start` does."""

    answers: Sequence[Any]
    begin: Callable[[Task, int], Any] = lambda task, member: Observation(f"{task.id} {member}")
    asked: int = 0

    def start(self, task: Task, member: int) -> Any:
        return self.begin(task, member)

    def step(self, response: str) -> Any:
        answer = self.answers[self.asked]
        self.asked += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


def task(name: str) -> Task:
    return Task(name, 0, "train")


def said(text: str = "<think>so</think>x") -> Reply:
    (reply,) = ScriptedPolicy(lambda conversation: text).respond([Conversation("k", ())])
    return reply


def play(answers: Sequence[Any], max_turns: int = 5, **changes: Any) -> Any:
    """The trajectory of one episode in which `said()` is replied all along."""
    player = Player(Scene(answers, **changes), task("a"), 3, max_turns)
    while player.ending is None:
        player.advance(said())
    return player.trajectory(temperature=0.5, policy_version=9)


def raising(error: Exception) -> Callable[[Task, int], Any]:
    def begin(task: Task, member: int) -> Any:
        raise error

    return begin


def test_an_episode_notes_its_turns_and_what_the_environment_said() -> None:
    moved = Step(Observation("then"), {"format": -0.1}, progress=0.4, actions=("Up",), effect="moved", state="s1")
    trajectory = play([moved, SOLVED])
    assert (trajectory.task.id, trajectory.member, trajectory.temperature, trajectory.policy_version) == (
        "a",
        3,
        0.5,
        9,
    )
    assert (trajectory.ending, trajectory.outcome, trajectory.success) == (Ending.SOLVED, 1.0, True)
    assert trajectory.reward == pytest.approx(0.9)
    assert trajectory.progress == 0.4
    assert [(turn.actions, turn.effect, turn.state) for turn in trajectory.turns] == [
        (("Up",), "moved", "s1"),
        ((), "", ""),
    ]


def test_the_conversation_grows_by_the_sampled_reply_and_the_next_observation() -> None:
    player = Player(Scene([OK, SOLVED]), task("a"), 3, 5)
    first = player.conversation
    assert first.key == "a/3"
    assert [(message.role, message.content) for message in first.messages] == [("user", "a 3")]
    player.advance(said())
    assert player.conversation.messages[:1] == first.messages
    assert [message.role for message in player.conversation.messages] == ["user", "assistant", "user"]
    assert player.conversation.messages[1].ids == said().ids
    assert player.conversation.messages[2].content == "more"


def test_an_environment_that_raises_at_the_start_ends_as_an_error_with_its_text() -> None:
    trajectory = play([], begin=raising(KeyError("lake")))
    assert (trajectory.ending, trajectory.turns, trajectory.error) == (Ending.ERROR, (), "KeyError: 'lake'")
    assert trajectory.outcome is trajectory.reward is trajectory.success is None


def test_an_episode_that_cannot_be_made_ends_as_an_error_with_its_text() -> None:
    def broken() -> Any:
        raise KeyError("no board")

    player = Player(made(broken), task("a"), 0, 5)
    assert player.ending is Ending.ERROR
    assert player.trajectory(temperature=1.0, policy_version=0).error == "KeyError: 'no board'"


def test_an_environment_that_raises_in_a_step_keeps_the_turns_before() -> None:
    trajectory = play([OK, RuntimeError("ice broke")])
    assert (trajectory.ending, trajectory.error) == (Ending.ERROR, "RuntimeError: ice broke")
    assert len(trajectory.turns) == 1
    assert trajectory.outcome is None


def test_an_environment_that_exits_is_an_error_and_ends_no_run() -> None:
    trajectory = play([OK, SystemExit(0)])
    assert (trajectory.ending, trajectory.error) == (Ending.ERROR, "SystemExit: 0")


def test_ctrl_c_in_a_step_is_no_error_of_the_environment() -> None:
    with pytest.raises(KeyboardInterrupt):
        play([KeyboardInterrupt()])


@pytest.mark.parametrize("outcome", [None, 1.5, -0.1, float("nan"), "1", [1.0]])
def test_a_wrong_outcome_at_the_end_is_an_error_and_never_a_score(outcome: Any) -> None:
    trajectory = play([Step(Observation(""), {}, Ending.FAILED, outcome=outcome)])
    assert (trajectory.ending, trajectory.outcome, trajectory.turns) == (Ending.ERROR, None, ())
    assert trajectory.error.endswith(f"ended an episode with outcome {outcome!r}; expected a number in [0, 1]")


@pytest.mark.parametrize("outcome", [0, 1, True, np.float32(0.25), 0.25])
def test_any_number_between_zero_and_one_is_an_outcome(outcome: Any) -> None:
    trajectory = play([Step(Observation(""), {}, Ending.FAILED, outcome=outcome)])
    assert (trajectory.ending, trajectory.outcome) == (Ending.FAILED, float(outcome))
    assert type(trajectory.outcome) is float


@pytest.mark.parametrize(
    "rewards",
    [
        {"a": float("inf")},
        {"a": float("nan")},
        {"a": None},
        {"a": 1.0, "b": "1"},
        {"a": 10**400},
        {"a": np.float32("inf")},
    ],
)
def test_a_reward_that_is_no_finite_number_is_an_error(rewards: Mapping[str, Any]) -> None:
    trajectory = play([OK, Step(Observation("more"), rewards)])
    assert trajectory.ending is Ending.ERROR
    assert "expected a finite number" in trajectory.error
    assert len(trajectory.turns) == 1


@pytest.mark.parametrize("progress", [float("nan"), float("-inf"), "half", -7.0, 1.5])
def test_a_progress_that_is_no_share_is_an_error(progress: Any) -> None:
    """No file could hold some of them, and no audit would read the run."""
    trajectory = play([OK, Step(Observation("more"), {}, progress=progress)])
    assert trajectory.ending is Ending.ERROR
    assert "expected a number in [0, 1] or None" in trajectory.error


def test_rewards_of_numpy_become_plain_numbers() -> None:
    trajectory = play([Step(Observation(""), {"a": np.float32(0.5)}, Ending.FAILED, outcome=0.0)])
    assert trajectory.reward == 0.5
    assert type(trajectory.turns[0].rewards["a"]) is float


@pytest.mark.parametrize("answer", [None, ("text", 1.0, False), Step("text"), Step(Observation(None))])  # type: ignore[arg-type]
def test_an_answer_that_is_no_step_is_an_error(answer: Any) -> None:
    trajectory = play([answer])
    assert trajectory.ending is Ending.ERROR
    assert "the environment was expected to return" in trajectory.error


@pytest.mark.parametrize("observation", [None, "lake", Observation(7)])  # type: ignore[arg-type]
def test_a_start_that_is_no_observation_is_an_error(observation: Any) -> None:
    trajectory = play([], begin=lambda task, member: observation)
    assert trajectory.ending is Ending.ERROR
    assert "expected to return an Observation with a text" in trajectory.error


def test_an_observation_longer_than_any_prompt_is_an_error() -> None:
    trajectory = play([Step(Observation("x" * 4_000_001))])
    assert trajectory.ending is Ending.ERROR
    assert "gave a text of 4,000,001 characters; expected at most 4,000,000" in trajectory.error


def test_an_environment_may_report_an_error_itself() -> None:
    trajectory = play([OK, Step(Observation(""), {"a": 1.0}, Ending.ERROR, effect="server gone")])
    assert (trajectory.ending, trajectory.error, trajectory.outcome) == (Ending.ERROR, "server gone", None)
    assert trajectory.reward is None
    assert play([Step(Observation(""), ending=Ending.ERROR)]).error


def test_the_turn_limit_ends_an_episode_without_success() -> None:
    trajectory = play([OK] * 3, max_turns=3)
    assert (trajectory.ending, trajectory.outcome, len(trajectory.turns)) == (Ending.OUT_OF_TURNS, 0.0, 3)


def test_partial_credit_counts_at_the_turn_limit_and_a_wrong_one_is_an_error() -> None:
    assert play([OK, Step(Observation("more"), outcome=0.5)], max_turns=2).outcome == 0.5
    broken = play([OK, Step(Observation("more"), outcome=7.0)], max_turns=2)
    assert (broken.ending, broken.outcome) == (Ending.ERROR, None)
    assert "answered a reply with outcome 7.0" in broken.error


def test_the_environments_own_end_counts_at_the_turn_limit() -> None:
    assert play([OK, SOLVED], max_turns=2).ending is Ending.SOLVED


def test_a_reply_without_a_token_ends_the_episode_and_the_environment_is_not_asked() -> None:
    scene = Scene([OK, RuntimeError("must not be asked")])
    player = Player(scene, task("a"), 0, 5)
    player.advance(said())
    player.advance(Reply(Prompt("", ()), (), "", (), (), Span(0, 0), Span(0, 0), closed=False, cut=True))
    trajectory = player.trajectory(1.0, 0)
    assert (trajectory.ending, trajectory.outcome, len(trajectory.turns)) == (Ending.OUT_OF_TOKENS, 0.0, 1)
    assert scene.asked == 1


def test_broken_environments_take_no_others_down() -> None:
    made: list[Scene] = []
    bad_start = {1}
    bad_step = {4}

    def make() -> Scene:
        number = len(made)
        begin = raising(ValueError("no start")) if number in bad_start else Scene.begin
        answers = [OK, ValueError("no step")] if number in bad_step else [OK, OK, SOLVED]
        made.append(Scene(answers, begin))
        return made[-1]

    groups = LockStep()(ScriptedPolicy(lambda conversation: "x"), Request(make, [task("a"), task("b")], 3, 5))
    endings = [[trajectory.ending for trajectory in group.trajectories] for group in groups]
    assert endings == [[Ending.SOLVED, Ending.ERROR, Ending.SOLVED], [Ending.SOLVED, Ending.ERROR, Ending.SOLVED]]
    assert [len(trajectory.turns) for trajectory in groups[0].trajectories] == [3, 0, 3]
    assert [len(trajectory.turns) for trajectory in groups[1].trajectories] == [3, 1, 3]


def test_groups_come_back_in_the_order_of_tasks_and_members_of_their_numbers() -> None:
    tasks = [task("c"), task("a"), task("b")]
    seen: list[str] = []

    def answer(conversation: Conversation) -> str:
        seen.append(conversation.key)
        return f"reply to {conversation.messages[0].content}"

    # The episode of task t and member m lasts 1 + (t + m) % 3 turns, so they end in another order.
    lengths = iter([1 + (number + member) % 3 for number in range(3) for member in range(2)])
    groups = LockStep()(
        ScriptedPolicy(answer), Request(lambda: Scene([OK] * (next(lengths) - 1) + [SOLVED]), tasks, 2, 5)
    )
    assert [group.task for group in groups] == tasks
    for group in groups:
        assert [trajectory.member for trajectory in group.trajectories] == [0, 1]
        for trajectory in group.trajectories:
            assert trajectory.task == group.task
            assert trajectory.turns[0].reply.text == f"reply to {group.task.id} {trajectory.member}"
    assert [len(t.turns) for group in groups for t in group.trajectories] == [1, 2, 2, 3, 3, 1]
    first_round = [f"{name}/{member}" for name in "cab" for member in (0, 1)]
    assert seen == [*first_round, "c/1", "a/0", "a/1", "b/0", "a/1", "b/0"]


def test_each_task_gets_its_own_number_of_members_in_either_collector_and_on_either_rank() -> None:
    env = Echo()
    tasks, sizes = [env.task(seed) for seed in range(5)], [1, 4, 2, 6, 3]

    def read(conversation: Conversation) -> str:
        return f"<think>so</think>{conversation.key}"

    def played(collector: Collector, every: slice) -> list[Group]:
        request = Request(env.episode, tasks[every], 9, env.turns, sizes=sizes[every])
        return collector(ScriptedPolicy(read), request)

    whole = played(LockStep(), slice(None))
    assert [group.task for group in whole] == tasks
    assert [[member.member for member in group.trajectories] for group in whole] == [list(range(n)) for n in sizes]
    assert played(Asynchronous(), slice(None)) == whole
    shared: list[Group | None] = [None] * 5
    for rank in range(2):  # as World.scatter and World.merge deal the asks of a round
        shared[rank::2] = played(LockStep(), slice(rank, None, 2))
    assert shared == whole


def test_nothing_is_asked_when_every_environment_breaks_at_its_start() -> None:
    def never(conversation: Conversation) -> str:
        raise AssertionError("no one is there to be answered")

    groups = LockStep()(ScriptedPolicy(never), Request(lambda: Scene([], raising(OSError("x"))), [task("a")], 2, 5))
    assert [trajectory.ending for trajectory in groups[0].trajectories] == [Ending.ERROR] * 2


def test_a_script_that_reads_solves_echo_and_its_rewards_add_up() -> None:
    env = Echo(instructions="brief", turns=2)

    def read(conversation: Conversation) -> str:
        letter = conversation.messages[-1].content.split("echo ")[1][0]
        return f"<think>echo {letter}</think><answer>{letter}</answer>"

    groups = LockStep()(ScriptedPolicy(read), Request(env.episode, [env.task(seed) for seed in range(4)], 2, env.turns))
    assert all(isinstance(group, Group) for group in groups)
    for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
        assert (trajectory.success, trajectory.reward, len(trajectory.turns)) == (True, 1.0, 2)
        assert trajectory.turns[0].reply.closed


def test_a_scripted_reply_has_one_id_per_character_and_spans_over_them() -> None:
    reply = said("<think>a b</think><answer>Up</answer>")
    spelled = "".join(map(chr, reply.ids[:-1]))
    assert spelled == reply.text
    assert spelled[reply.thought.start : reply.thought.end] == "<think>a b</think>"
    assert spelled[reply.answer.start : reply.answer.end] == "<answer>Up</answer>"
    assert (reply.closed, reply.cut, len(reply.logprobs)) == (True, False, len(reply.ids))


def test_a_scripted_thought_without_an_end_is_all_thought_and_a_reply_without_one_all_answer() -> None:
    unclosed = said("<think>a b")
    assert (unclosed.closed, unclosed.thought, len(unclosed.answer)) == (False, Span(0, len(unclosed.ids)), 0)
    bare = said("Up")
    assert (bare.closed, len(bare.thought), bare.answer) == (False, 0, Span(0, 2))
