"""GRPO with TRL on one of heedful's environments, filtered and diagnosed, on a CPU in less than a minute.

    pip install torch && pip install 'heedful[trl]'
    python examples/trl_grpo.py

The first run grows a small language model that knows Bandit a little. Every later run finds it in the cache.
"""

import sys
from pathlib import Path

from trl import GRPOConfig

from heedful.boundary import to_json
from heedful.filters import TopP
from heedful.integrations.trl import HeedfulConfig, HeedfulGRPOTrainer, environment_reward, to_trl_rollout_func
from heedful.run.presets import preset
from heedful.seedlings.grow import load_seedling


def main(output: Path, steps: int, name: str = "bandit") -> None:
    config = preset(name)
    env = config.env
    _, tokenizer, model = load_seedling(config.seedling, env, to_json(env), config.tags, lambda *progress: None)
    rollouts = to_trl_rollout_func(env, tokens_per_turn=40)
    trainer = HeedfulGRPOTrainer(
        model=str(model),
        processing_class=tokenizer,
        reward_funcs=environment_reward,
        rollout_func=rollouts,
        train_dataset=rollouts.dataset(256),
        args=GRPOConfig(
            output_dir=str(output),
            max_steps=steps,
            per_device_train_batch_size=32,
            gradient_accumulation_steps=2,  # 64 episodes of a step: 8 prompts x 8
            num_generations=8,
            max_completion_length=env.turns * 200,  # for a whole episode, since heedful limits each turn
            learning_rate=3e-4,
            logging_steps=1,
            save_steps=1,  # the checkpoint before the last update sampled the last batch
            save_total_limit=2,
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
        # Prompts whose episodes differ in success. Diagnostics every 4 steps, in full every 20.
        heedful=HeedfulConfig(filter=TopP(p=0.9, on="outcome")),
    )
    trainer.train()
    print(f"The record: {output}/heedful. The page of it: heedful report {output}/heedful")
    print(f"Measured again: heedful audit {output}/heedful --model {output}/checkpoint-{steps - 1}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "trl-output"), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
