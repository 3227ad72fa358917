"""Thoughts of a model that TRL samples and logs, for `heedful audit`: GRPOTrainer's own sampling, without any update.

Each step samples further prompts of the training split. TRL writes its log of completions. The loss is zero times a
weight, so that a step costs the sampling alone.

    python benchmarks/trl_thoughts.py --model PATH --env bandit --steps 16 --out trl-thoughts
    heedful audit trl-thoughts/completions --model PATH
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch
import transformers
from training_step import Job, one_turn
from trl import GRPOConfig, GRPOTrainer


class Samples(GRPOTrainer):
    """TRL's trainer whose loss is zero."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return next(model.parameters()).sum() * 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of a model")
    parser.add_argument("--env", default="bandit", help="preset whose tasks are played")
    parser.add_argument("--prompts", type=int, default=16, help="prompts of a step")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of a reply")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", required=True, help="TRL's output folder")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()

    asked = argparse.Namespace(**{**vars(given), "prompts": given.prompts * given.steps})
    job = Job(asked, turns=1)
    options = GRPOConfig(
        output_dir=given.out,
        max_steps=given.steps,
        per_device_train_batch_size=given.prompts * given.members,
        num_generations=given.members,
        max_completion_length=given.tokens,
        beta=0.0,
        temperature=1.0,
        shuffle_dataset=False,
        log_completions=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = Samples(model=str(job.folder), processing_class=job.tokenizer, args=options, **one_turn(job))
    begun = time.perf_counter()
    trainer.train()
    thoughts = given.steps * given.prompts * given.members
    print(f"{thoughts:,} thoughts in {time.perf_counter() - begun:.0f} s, in {given.out}/completions")


if __name__ == "__main__":
    main()
