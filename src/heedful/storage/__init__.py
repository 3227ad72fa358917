"""The rollout format and the run folder: writing and reading every file of a run.

Reading returns what was written, equal input gives equal bytes, and no reader ever sees an incomplete file.
`docs/formats.md` documents each file.
"""

from heedful.storage.checksums import CHECKSUMS, check_model, demand_unchanged, write_checksums
from heedful.storage.files import (
    DiskFull,
    advising,
    append,
    claim_folder,
    create,
    naming_a_full_disk,
    refuse_typed,
    refuse_unwritable,
    write_whole,
)
from heedful.storage.locks import LOCK, InUse, held
from heedful.storage.measurements import (
    MOST_STEP,
    EarlyAnswer,
    StepMetrics,
    StoredGradients,
    metric_from_json,
    metrics_of_line,
    read_early,
    read_gradients,
    read_metrics,
    write_early,
    write_gradients,
)
from heedful.storage.rollouts import Rollouts, read_rollouts, rollout_rows, write_rollouts
from heedful.storage.run_folder import RunFolder, describe_environment, is_run
from heedful.storage.scores import StoredScores, Swaps, TokenValues, read_scores, write_scores

__all__ = [
    "CHECKSUMS",
    "LOCK",
    "MOST_STEP",
    "DiskFull",
    "EarlyAnswer",
    "InUse",
    "Rollouts",
    "RunFolder",
    "StepMetrics",
    "StoredGradients",
    "StoredScores",
    "Swaps",
    "TokenValues",
    "advising",
    "append",
    "check_model",
    "claim_folder",
    "create",
    "demand_unchanged",
    "describe_environment",
    "held",
    "is_run",
    "metric_from_json",
    "metrics_of_line",
    "naming_a_full_disk",
    "read_early",
    "read_gradients",
    "read_metrics",
    "read_rollouts",
    "read_scores",
    "refuse_typed",
    "refuse_unwritable",
    "rollout_rows",
    "write_checksums",
    "write_early",
    "write_gradients",
    "write_rollouts",
    "write_scores",
    "write_whole",
]
