"""GRPO with verl on FrozenLake, filtered and diagnosed, on a CPU in minutes: real Ray, workers, queue and weight sync.

    make verl-env
    PYTHONPATH=src $(.ci/verl-env) examples/verl_on_a_cpu/train.py verl-output 8
    heedful report verl-output/checkpoints/heedful

A small language model that knows FrozenLake a little is grown at the first run, and found in the cache later. Words
after the number of steps are overrides of verl's configuration.
"""

import sys
from pathlib import Path

from cpu_session import composed, prepare, ray_and_queue, trainer_of

from heedful_verl.settings import REGISTER

ENVIRONMENT = prepare([REGISTER])  # before verl is imported


def settings(output: Path, steps: int) -> list[str]:
    """The overrides that a user of verl would write, with a batch of 8 prompts x 4 episodes."""
    return [
        "trainer.v1.trainer_mode=heedful_sync",
        "hydra.searchpath=[pkg://heedful_verl.conf]",
        "+heedful=default",
        "heedful.filter.on=outcome",
        "heedful.play.tokens_per_turn=64",
        f"data.train_files={output}/train.parquet",
        f"data.val_files={output}/val.parquet",
        "data.train_batch_size=8",
        "data.max_response_length=512",
        f"actor_rollout_ref.model.path={output}/model",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.actor.optim.lr=8e-5",
        "algorithm.adv_estimator=grpo",
        "trainer.n_gpus_per_node=1",
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=1000",
        f"trainer.save_freq={steps}",
        f"trainer.test_freq={steps}",
        f"trainer.default_local_dir={output}/checkpoints",
        f"trainer.rollout_data_dir={output}/dumps",
    ]


def write_inputs(output: Path, tasks: int = 64, held_out: int = 16) -> None:
    """The model's folder, unless it is there, and the task files of two splits."""
    import shutil

    from heedful.boundary import to_json
    from heedful.envs.common.tasks import TaskStream
    from heedful.run.presets import preset
    from heedful.seedlings.grow import load_seedling
    from heedful_verl.tasks import task_rows, write_tasks

    config = preset("frozen_lake")
    if not (output / "model").exists():
        print("Growing the model, once. This takes several minutes.")
        knobs = to_json(config.env)
        _, _, model = load_seedling(config.seedling, config.env, knobs, config.tags, lambda *progress: None)
        shutil.copytree(str(model), output / "model")
    for split, count in (("train", tasks), ("val", held_out)):
        drawn = TaskStream(config.env, split, seed=0).next(count)
        write_tasks(output / f"{split}.parquet", task_rows(config.env, drawn))


def main(output: Path, steps: int, overrides: list[str]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    output = output.resolve()
    write_inputs(output)
    config = composed([*settings(output, steps), *overrides])
    with ray_and_queue(config, ENVIRONMENT):
        trainer, manager = trainer_of(config)
        trainer.fit(manager)
    print(f"The page of the record: heedful report {output}/checkpoints/heedful")
    print(f"Measured again from verl's own dumps: heedful audit {output}/dumps")


if __name__ == "__main__":
    words = sys.argv[1:]
    main(Path(words[0] if words else "verl-output"), int(words[1]) if len(words) > 1 else 8, words[2:])
