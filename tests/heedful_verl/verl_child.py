"""A run of verl that is killed in the middle of a step: `python verl_child.py FOLDER STEP`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main(folder: Path, last: int) -> None:
    """Train with a checkpoint after every second step, and die in the update of step `last`."""
    sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples" / "verl_on_a_cpu")]
    from cpu_session import composed, prepare, ray_and_queue, trainer_of

    environment = prepare(["heedful_verl.register"])
    from tiny_verl import overrides

    config = composed(overrides(folder, 1, "heedful_sync", 8, "trainer.save_freq=2", "trainer.resume_mode=auto"))
    with ray_and_queue(config, environment, 1):
        trainer, manager = trainer_of(config)
        update = trainer._update_actor

        def killed(batch: Any, metrics: dict[str, Any]) -> Any:
            if trainer.global_steps == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return update(batch, metrics)

        trainer._update_actor = killed
        trainer.fit(manager)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
