"""The data behind a page as tables, for notebooks: `heedful report RUN --export DIR`.

Promise: a table holds what the files of the run hold, and memory holds one step: steps are written one after
another. A missing value is null, and readings keep why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from heedful.boundary.open_files import require_pyarrow
from heedful.report.embedding import finite
from heedful.report.episodes import moved, pieces, tags_of, template_shares
from heedful.report.record import RunRecord, read_run
from heedful.storage import Rollouts, naming_a_full_disk, read_rollouts, read_scores

Kind = Literal["parquet", "json"]
Row = dict[str, Any]

TABLES: Mapping[str, Mapping[str, str]] = {
    "metrics": {
        "step": "int",
        "name": "text",
        "value": "float",
        "label": "text",
        "low": "float",
        "high": "float",
        "n": "int",
        "why": "text",
    },
    "groups": {
        "step": "int",
        "group": "int",
        "task": "text",
        "seed": "int",
        "split": "text",
        "members": "int",
        "reward": "float",
        "weight": "float",
        "reason": "text",
        "spread": "float",
        "moved": "float",
    },
    "episodes": {
        "step": "int",
        "group": "int",
        "member": "int",
        "task": "text",
        "ending": "text",
        "outcome": "float",
        "reward": "float",
        "advantage": "float",
        "progress": "float",
        "template_share": "float",
        "turns": "int",
        "valid": "bool",
        "error": "text",
    },
    "turns": {
        "step": "int",
        "group": "int",
        "member": "int",
        "turn": "int",
        "prompt": "text",
        "thought": "text",
        "answer": "text",
        "reply": "text",
        "actions": "text",
        "valid": "bool",
        "effect": "text",
        "state": "text",
        "reward": "float",
        "components": "text",
        "tokens": "int",
        "thought_tokens": "int",
        "entropy": "float",
    },
    "swaps": {
        "step": "int",
        "thought": "int",
        "own_prompt": "int",
        "prompt": "int",
        "action": "text",
        "chance": "float",
        "right": "float",
        "right_for_own": "float",
        "taken": "bool",
        "thought_text": "text",
        "prompt_text": "text",
    },
}
"""Table -> its columns with their kinds, in order. `docs/report.md` explains them."""


def export(folder: Path, into: Path, kind: Kind = "parquet") -> list[Path]:
    """Write the tables of a run that have a row, as `<table>.parquet` or as JSON lines (`<table>.jsonl`).

    Raises ValueError if the folder holds no measurements, if `into` is a file, or without pyarrow for parquet.
    """
    if into.exists() and not into.is_dir():
        raise ValueError(f"Expected a folder for --export, found the file {into}. Give another one.")
    run = read_run(folder)
    into.mkdir(parents=True, exist_ok=True)
    suffix = {"parquet": ".parquet", "json": ".jsonl"}[kind]
    if kind == "parquet":
        require_pyarrow(into / "metrics.parquet")
    written = []
    for table, rows in (
        ("metrics", _metrics(run)),
        ("groups", (_groups(one) for one in _stored(run))),
        ("episodes", (_episodes(run, one) for one in _stored(run))),
        ("turns", (_turns(run, one) for one in _stored(run))),
        ("swaps", (_swaps(run, step) for step in run.folder.score_steps())),
    ):
        path = into / f"{table}{suffix}"
        with naming_a_full_disk(path, kept="the tables before it"):
            written += [path] if (_parquet if kind == "parquet" else _jsonl)(path, TABLES[table], rows) else []
    return written


def _stored(run: RunRecord) -> Iterator[Rollouts]:
    return (read_rollouts(run.folder.rollouts(step)) for step in run.folder.rollout_steps())


def _metrics(run: RunRecord) -> Iterator[list[Row]]:
    for name, series in run.series.items():
        found = []
        for point in series.points:
            metric = point.metric
            label = metric.value if isinstance(metric.value, str) else None
            rest = {"low": metric.low, "high": metric.high, "n": metric.n, "why": metric.why}
            found.append({"step": point.step, "name": name, "value": point.number, "label": label, **rest})
        yield found


def _groups(stored: Rollouts) -> list[Row]:
    verdicts = stored.verdicts or (None,) * len(stored.groups)
    rows = []
    for number, (group, verdict) in enumerate(zip(stored.groups, verdicts, strict=True)):
        rewards = [one.reward for one in group.trajectories]
        row: Row = {"step": stored.step, "group": number, "task": group.task.id, "seed": group.task.seed}
        row |= {"split": group.task.split, "members": len(rewards), "reward": _mean(rewards)}
        of_filter = {name: getattr(verdict, name, None) for name in ("weight", "reason", "spread")}
        rows.append(row | of_filter | {"moved": moved(rewards, verdict)})
    return rows


def _episodes(run: RunRecord, stored: Rollouts) -> list[Row]:
    shares = template_shares(stored.groups, tags_of(run.config))
    rows = []
    for number, group in enumerate(stored.groups):
        mean = _mean([one.reward for one in group.trajectories])
        for one in group.trajectories:
            row: Row = {"step": stored.step, "group": number, "member": one.member, "task": group.task.id}
            row |= {"ending": one.ending.value, "outcome": one.outcome, "reward": one.reward, "progress": one.progress}
            row["advantage"] = None if one.reward is None or mean is None else one.reward - mean
            row |= {"template_share": next(shares), "turns": len(one.turns), "error": one.error}
            rows.append(row | {"valid": all(turn.valid for turn in one.turns)})
    return rows


def _turns(run: RunRecord, stored: Rollouts) -> list[Row]:
    tags, rows = tags_of(run.config), list[Row]()
    for number, group in enumerate(stored.groups):
        for one in group.trajectories:
            for place, turn in enumerate(one.turns, start=1):
                reply, parts = turn.reply, dict(pieces(turn.reply, tags))
                row: Row = {"step": stored.step, "group": number, "member": one.member, "turn": place}
                row |= {"prompt": reply.prompt.text, "reply": reply.text, "actions": " · ".join(turn.actions)}
                row |= {"thought": parts.get("thought"), "answer": parts.get("answer"), "reward": turn.reward}
                row |= {name: getattr(turn, name) for name in ("valid", "effect", "state")}
                row["components"] = json.dumps(finite(dict(turn.rewards)))
                row |= {"tokens": None, "thought_tokens": None}
                if reply.ids:
                    row |= {"tokens": len(reply.ids), "thought_tokens": len(reply.thought)}
                rows.append(row | {"entropy": fmean(reply.entropies) if reply.entropies else None})
    return rows


def _swaps(run: RunRecord, step: int) -> list[Row]:
    swaps, rows = read_scores(run.folder.scores(step)).swaps, list[Row]()
    if swaps is None:
        return rows
    for thought, (own, taken) in enumerate(zip(swaps.own_M.tolist(), swaps.taken_M.tolist(), strict=True)):
        for prompt, chances_A in enumerate(swaps.chances_MNA[thought].tolist()):
            for action, chance in enumerate(chances_A):
                if chance == chance:  # NaN differs from itself: the pair was not read
                    row: Row = {"step": step, "thought": thought, "own_prompt": own, "prompt": prompt}
                    row |= {"action": swaps.names_A[action], "chance": chance, "taken": action == taken}
                    row |= {"right": float(swaps.right_NA[prompt, action])}
                    row |= {"right_for_own": float(swaps.right_NA[own, action])}
                    texts = {"thought_text": swaps.thoughts_M[thought], "prompt_text": swaps.prompts_N[prompt]}
                    rows.append(row | texts)
    return rows


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and value == value]
    return fmean(known) if known else None


def _jsonl(path: Path, columns: Mapping[str, str], steps: Iterator[list[Row]]) -> int:
    """Write JSON lines, NaN as null, and return how many. A table without a row leaves no file."""
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        for row in (row for rows in steps for row in rows):
            named = {name: row[name] if row[name] == row[name] else None for name in columns}
            stream.write(json.dumps(named, ensure_ascii=True, allow_nan=False) + "\n")
            count += 1
    if not count:
        path.unlink()
    return count


def _parquet(path: Path, columns: Mapping[str, str], steps: Iterator[list[Row]]) -> int:
    """Write a row group for each step, NaN as null, and return the number of rows."""
    import pyarrow
    import pyarrow.parquet

    kinds = {"int": pyarrow.int64(), "float": pyarrow.float64(), "text": pyarrow.string(), "bool": pyarrow.bool_()}
    schema, count = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()]), 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in (rows for rows in steps if rows):
            named = [{name: row[name] if row[name] == row[name] else None for name in columns} for row in rows]
            writer.write_table(pyarrow.Table.from_pylist(named, schema=schema))
            count += len(rows)
    if not count:
        path.unlink()
    return count
