"""Choice of prompts inside TRL: it is the choice of our own trainer, and TRL's loops and processes do not matter."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import datasets
from test_trl_refill import Counter, by_prompt, every_second_asks
from test_trl_tools import double, with_engine
from tiny_trl import Script, arguments, filtering, lora, recorded, reward_named, trainer_of, written
from trl import GRPOConfig

from heedful.diagnostics.statistics.group_statistics import scored
from heedful.envs.common.tasks import TaskStream
from heedful.envs.toys.echo import Echo
from heedful.filters import DropConstant, KeepAll, Shrunken, Visit, values_on
from heedful.integrations.trl import AsyncGroups, HeedfulConfig, Probe, environment_reward, to_trl_rollout_func
from heedful.integrations.trl.choosing import PromptChoice
from heedful.pixels import decoded, pixels_hash
from heedful.rollout import Chooser
from heedful.rollout.choosers import Offer, SkipSettled, Thompson, Yoked
from heedful.rollout.rounds import Collection
from heedful.run.selection import Selection, TaskMemory
from heedful.seeds import stream
from heedful.storage import RunFolder
from heedful.types import PROBE, Group, Task

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

SOLVED, MIXED, FAILED = [1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]
TASKS = written([SOLVED, FAILED, MIXED, SOLVED, FAILED, SOLVED, MIXED, FAILED, SOLVED, MIXED, SOLVED, FAILED])
PROMPTS, SEED = 4, 3
MIDDLE = Thompson(value="middle")
LEARNING = Shrunken()
WHOLE = {
    "max_steps": 20,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "num_iterations": 1,
    "per_device_train_batch_size": 4,
    "dataloader_num_workers": 1,
    "shuffle_dataset": True,
    "save_strategy": "steps",
    "save_steps": 10,
}
"""Ten generation batches of four prompts, each for two updates of two micro-batches, read ahead by a worker."""
SHORT = WHOLE | {"max_steps": 6, "dataloader_num_workers": 0, "save_strategy": "no"}


def config(choose: Chooser, **changes: Any) -> HeedfulConfig:
    return filtering(KeepAll(on="reward"), record=True, outcome="score", choose=choose, **changes)


def trainer_in(model: Path, folder: Path, heedful: HeedfulConfig, eval_dataset: Any = None, **changes: Any) -> Any:
    args = arguments(folder, num_generations=4, **changes)
    return trainer_of(model, args, Script(TASKS), heedful=heedful, eval_dataset=eval_dataset)


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run with `MIDDLE` and `LEARNING`."""
    folder = tmp_path_factory.mktemp("whole")
    trainer_in(tiny_model, folder, replace(config(MIDDLE), filter=LEARNING), **WHOLE).train()
    return folder


def batches(folder: Path) -> list[Sequence[Group]]:
    steps = RunFolder(folder / "heedful").rollout_steps()
    return [recorded(folder, step)[0].groups for step in steps]


def places(groups: Sequence[Group]) -> list[int]:
    """The rows of the data whose prompts were sampled."""
    texts = [group.trajectories[0].turns[0].reply.prompt.text for group in groups]
    return [next(place for place, task in enumerate(TASKS) if text.endswith(task.prompt)) for text in texts]


def chosen_by_our_trainer(chooser: Chooser, played: Sequence[Sequence[Group]], rounds: Sequence[Sequence[int]]) -> Any:
    """The places, and which are probes, that our own trainer draws in rounds of these sizes, from the same past."""
    tasks = TaskStream(Echo(), "train", 7, len(TASKS))
    pool = list(tasks.pool or ())
    selection, found = Selection(KeepAll(on="outcome"), memory=TaskMemory()), []
    for step, (groups, sizes) in enumerate(zip(played, rounds, strict=True)):
        seen: set[str] = set()
        offer = Offer(tasks, selection.past, step, seen, stream(SEED, "choose", step))
        drawn: list[Task] = []
        for size in sizes:
            drawn += chooser.choose(size, offer)
            seen.update(task.id for task in drawn)
        found.append([(pool.index(replace(task, tags=pool[0].tags)), PROBE in task.tags) for task in drawn])
        known = [replace(group, task=task) for group, task in zip(groups, drawn, strict=True)]
        selection.choose(step, Collection(tuple(known), PROMPTS, "off"), stream(SEED, "filter", step))
    return found


def told(played: Sequence[Sequence[Group]]) -> list[list[tuple[int, bool]]]:
    probes = [[PROBE in group.task.tags for group in groups] for groups in played]
    return [list(zip(places(groups), tags, strict=True)) for groups, tags in zip(played, probes, strict=True)]


def test_the_choice_is_that_of_our_own_trainer_however_trl_cuts_its_batches(whole: Path) -> None:
    played = batches(whole)
    assert len(played) == 10
    assert told(played) == chosen_by_our_trainer(MIDDLE, played, [[PROMPTS]] * 10)


def test_neither_second_passes_nor_evaluations_move_the_choice(tiny_model: Path, tmp_path: Path) -> None:
    passes = {"num_iterations": 2, "max_steps": 8, "eval_strategy": "steps", "eval_steps": 1}
    data = Script(TASKS).dataset().select(range(4))
    trainer_in(tiny_model, tmp_path, config(MIDDLE), eval_dataset=data, **(SHORT | passes)).train()
    played = batches(tmp_path)
    assert told(played) == chosen_by_our_trainer(MIDDLE, played, [[PROMPTS]] * 2)


def test_draws_move_away_from_settled_prompts_and_one_in_four_is_a_probe(whole: Path) -> None:
    late = [each for batch in told(batches(whole))[4:] for each in batch]
    chosen = [place for place, probe in late if not probe]
    assert len(chosen) == len(late) * 3 // 4
    mixed = sum(len(set(map(str, TASKS[place].rewards))) > 1 for place in chosen) / len(chosen)
    assert mixed > 0.6, "uniform draws would give .25"


def test_success_is_read_from_the_probes_and_the_choice_stands_beside_it(whole: Path) -> None:
    for step, groups in enumerate(batches(whole)):
        metrics = recorded(whole, step)[1].metrics
        for name, probe in (("success/rate", True), ("success/chosen", False)):
            members = [one for group in groups if (PROBE in group.task.tags) == probe for one in group.trajectories]
            assert metrics[name].value == pytest.approx(sum(bool(one.success) for one in members) / len(members))


def test_a_resumed_run_chooses_as_the_one_that_was_never_killed(whole: Path, tiny_model: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    learning = replace(config(MIDDLE), filter=LEARNING)
    again = trainer_in(tiny_model, tmp_path, learning, **(WHOLE | {"dataloader_num_workers": 0}))
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert told(batches(tmp_path)) == told(batches(whole))


def test_a_filter_that_uses_earlier_visits_has_those_of_the_chosen_prompts(whole: Path) -> None:
    past: dict[int, list[Visit]] = {place: [] for place in range(len(TASKS))}
    blind = []
    for step, groups in enumerate(batches(whole)):
        values_PG, seen = values_on(groups, "outcome"), places(groups)
        knowing = LEARNING.after([past[place] for place in seen])
        verdicts = list(recorded(whole, step)[0].verdicts or ())
        assert verdicts == knowing(values_PG, stream(SEED, "filter", step))
        blind.append(verdicts == LEARNING(values_PG, stream(SEED, "filter", step)))
        for place, values in zip(seen, map(scored, values_PG), strict=True):
            past[place].append(Visit.of(values))
    assert blind[0]
    assert not all(blind)
    other = PromptChoice(MIDDLE, len(TASKS), SEED)
    other.draw(PROMPTS, 0)
    assert other.earlier("reward") == [], "its memory holds outcomes"


def test_the_yoked_control_follows_the_schedule_of_another_run(whole: Path, tiny_model: Path, tmp_path: Path) -> None:
    yoked = config(Yoked(str(whole / "heedful")))
    with pytest.raises(ValueError, match=r"stored rollouts of 12 steps .* found none of step 10"):
        trainer_in(tiny_model, tmp_path / "long", yoked, **(SHORT | {"max_steps": 24})).train()
    trainer_in(tiny_model, tmp_path, yoked, **SHORT).train()
    met = list(dict.fromkeys(place for batch in told(batches(whole)) for place, _ in batch))
    expected = [[(met.index(place), probe) for place, probe in batch] for batch in told(batches(whole))[:3]]
    assert told(batches(tmp_path)) == expected


def test_a_schedule_is_long_enough_for_a_batch_that_a_resumed_run_samples_anew(
    whole: Path, tiny_model: Path, tmp_path: Path
) -> None:
    yoked = config(Yoked(str(whole / "heedful")))
    half = SHORT | {"save_strategy": "steps", "save_steps": 1}
    trainer_in(tiny_model, tmp_path, yoked, **(half | {"max_steps": 1})).train()
    again = trainer_in(tiny_model, tmp_path, yoked, **(half | {"max_steps": 20}))
    with pytest.raises(ValueError, match=r"stored rollouts of 11 steps .* found none of step 10"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_a_refill_draws_on_by_the_chooser_and_no_prompt_twice(tiny_model: Path, tmp_path: Path) -> None:
    chooser = SkipSettled()
    refilling = replace(config(chooser), filter=DropConstant(on="reward"), sampling_batches=2)
    trainer_in(tiny_model, tmp_path, refilling, max_steps=3, per_device_train_batch_size=16).train()
    played = batches(tmp_path)
    sizes = [len(groups) for groups in played]
    assert max(sizes) > PROMPTS
    assert told(played) == chosen_by_our_trainer(chooser, played, [[PROMPTS, size - PROMPTS] for size in sizes])
    assert all(len(set(places(groups))) == len(groups) for groups in played)


@pytest.mark.parametrize("kind", ["tools", "environment_factory", "heedful's environments", "an adapter"])
def test_whatever_plays_gets_the_prompts_that_were_chosen(
    kind: str, tiny_model: Path, seedling_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heedful, size = replace(config(Thompson()), outcome="by_prompt"), 2
    if kind in ("tools", "environment_factory"):
        user = [{"role": "user", "content": f"Twice {n}?" if kind == "tools" else ""} for n in range(10, 18)]
        data = datasets.Dataset.from_list([{"prompt": [one], "number": n} for n, one in enumerate(user, 10)])
        given = {"tools": [double]} if kind == "tools" else {"environment_factory": Counter}
        others = {"train_dataset": data, "reward_funcs": by_prompt, "heedful": heedful, **given}
        with_engine(monkeypatch, tiny_model, tmp_path, "double" if kind == "tools" else every_second_asks, **others)
        shown = [f"Twice {n}?" for n in data["number"]]
    elif kind == "an adapter":
        args = arguments(tmp_path, num_generations=4, per_device_train_batch_size=8)
        trainer_of(tiny_model, args, Script(TASKS), heedful=config(Thompson()), peft_config=lora()).train()
        shown = [task.prompt for task in TASKS]
    else:
        rollouts = to_trl_rollout_func(Echo(instructions="brief"), tokens_per_turn=2)
        args = arguments(tmp_path, num_generations=4, per_device_train_batch_size=8, max_completion_length=64)
        data = rollouts.dataset(6)
        others = {"reward_funcs": environment_reward, "rollout_func": rollouts, "train_dataset": data}
        trainer_of(seedling_folder, args, heedful=replace(heedful, outcome=None), **others).train()
        shown = [row["prompt"][0]["content"] for row in data]
    expected = PromptChoice(Thompson(), len(shown), SEED).draw(size, 0)
    assert expected != list(range(size)), "the order of TRL"
    texts = [group.trajectories[0].turns[0].reply.prompt.text for group in batches(tmp_path)[0]]
    assert [shown[place] in text for place, text in zip(expected, texts, strict=True)] == [True] * size


def test_a_prompt_that_is_chosen_keeps_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="pictures are read with Pillow: install heedful[vision]")
    from seeing_trl import rows, seeing_trainer

    texts = ("the goal", "plan Left", "plan Right", "Up Down")
    data = rows([[seed] for seed in range(8)], widths=(56, 112), texts=texts)
    others = {"reward_funcs": by_length, "per_device_train_batch_size": 8, "max_steps": 2}
    heedful = replace(config(Thompson()), outcome="by_length")
    seeing_trainer("qwen2_vl", tmp_path, data, heedful=heedful, **others).train()
    expected = PromptChoice(Thompson(), len(data), SEED).draw(4, 0)
    first, second = ([group.trajectories[0].turns[0].reply.prompt for group in groups] for groups in batches(tmp_path))
    for place, prompt in zip(expected, first, strict=True):
        assert texts[place % 4] in prompt.text
        (image,) = prompt.images
        assert pixels_hash(decoded(image.png)) == pixels_hash(data[place]["images"][0])
    assert [len(prompt.images) for prompt in second] == [1] * 4


def by_length(completions: Sequence[Any], **_: Any) -> list[float]:
    return [float(len(completion[0]["content"]) % 2) for completion in completions]


def trainer_for(model: Path, folder: Path, **changes: Any) -> Any:
    args: GRPOConfig = arguments(folder, num_generations=4, per_device_train_batch_size=16)
    return trainer_of(model, args, **{"reward_funcs": [reward_named("score")], **changes})


def test_a_choice_that_cannot_work_is_refused_with_a_sentence(tiny_model: Path, tmp_path: Path) -> None:
    data = Script(TASKS).dataset()
    for heedful, rows, sentence in (
        (config(Thompson()), data.select(range(4)), "more rows of training data than the 4 prompts"),
        (config(Thompson()), data.to_iterable_dataset(), "needs a training dataset of known length"),
        (replace(config(Thompson()), outcome=None), data, "needs success: name its reward function"),
    ):
        with pytest.raises(ValueError, match=sentence):
            trainer_for(tiny_model, tmp_path, heedful=heedful, train_dataset=rows)
    with pytest.raises(ValueError, match="found another choose"):
        AsyncGroups(config(Thompson()))
    probe = Probe(config(Thompson()))
    plain = trainer_for(tiny_model, tmp_path, train_dataset=data, reward_funcs=[reward_named("score"), probe])
    with pytest.raises(ValueError, match="the probe cannot choose them, found choose=Thompson"):
        probe.attach(plain)
