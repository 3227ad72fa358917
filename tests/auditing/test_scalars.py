"""Scalars of trainers: read from the files that real libraries wrote, named alike, joined with rollouts, judged."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreign_logs as logs
import pytest

from heedful import cli
from heedful.auditing.recognised import open_log
from heedful.auditing.run import audit
from heedful.auditing.scalars import History, Names, files, scalar_kind, scalar_rows
from heedful.auditing.settings import AuditSettings
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.alarms.watch import Alarms
from heedful.types import Metric

LOGS = Path(__file__).parent / "fixtures" / "scalars"
"""One run of TRL, three steps with an evaluation at 2 and 3, as its trackers stored it; and verl's console."""
EVENTS = LOGS / "events.out.tfevents.1.host.1.0"
REWARDS = {1: 0.0875, 2: 0.1, 3: 0.2125}
VALIDATION = {2: 0.2, 3: 0.225}


@pytest.mark.parametrize(
    ("name", "kind", "digits"),
    [
        ("trainer_state.json", "trainer_state", 5),
        ("trl_console.txt", "console", 3),
        ("run-tiny0000.wandb", "W&B", 5),
        (EVENTS.name, "event file", 5),
    ],
)
def test_every_tracker_tells_the_same_of_one_run(name: str, kind: str, digits: int) -> None:
    assert scalar_kind(LOGS / name) == kind
    history = History.of([LOGS / name], {})
    for logged, key in ((REWARDS, "trainer/reward"), (VALIDATION, "trainer/validation")):
        found = {step: values[key] for step, values in history.steps.items() if key in values}
        assert found == pytest.approx(logged, abs=10**-digits)
    assert history.steps[3]["trainer/grad_norm"] == pytest.approx(0.4548, abs=1e-4)


def test_lines_without_a_step_are_counted_and_that_is_told() -> None:
    counted, named = (History.of([LOGS / f"{name}_console.txt"], {}).sentences for name in ("trl", "verl"))
    assert "names no step" in counted[0]
    assert named == []


def test_verl_prints_its_steps_and_nan() -> None:
    rows = list(scalar_rows(LOGS / "verl_console.txt"))
    assert [row.step for row in rows] == [1, 2, 3]
    assert math.isnan(rows[2].values["actor/grad_norm"])
    assert Names().translated(rows[1].values)["trainer/validation"] == 0.375


@pytest.mark.parametrize(
    "name",
    [
        "run-tiny0000.wandb",
        EVENTS.name,
        "trl_console.txt",
        "verl_console.txt",
        "trainer_state.json",
        "a.csv",
        "a.jsonl",
    ],
)
def test_a_file_cut_at_any_byte_gives_a_beginning_of_its_rows(name: str, tmp_path: Path) -> None:
    made = {
        "a.csv": b"step,reward\n" + b"".join(b"%d,0.5\n" % step for step in range(9)),
        "a.jsonl": b"".join(b'{"step": %d, "reward": 0.5}\n' % step for step in range(9)),
    }
    content = made.get(name) or (LOGS / name).read_bytes()
    cut = tmp_path / name
    cut.write_bytes(content)
    whole, kind = [repr(row) for row in scalar_rows(cut)], scalar_kind(cut)
    for size in range(0, len(content), max(1, len(content) // 200)):
        cut.write_bytes(content[:size])
        rows = [repr(row) for row in scalar_rows(cut, kind, ended=False)]
        assert rows == whole[: len(rows)]
        if name not in (*made, "verl_console.txt"):  # whose values stand in one line
            taken = [repr(row) for row in scalar_rows(cut, kind)]
            # Of an event file the last step may lack names.
            assert taken == whole[: len(taken)] or (kind == "event file" and taken[:-1] == whole[: len(taken) - 1])


def test_a_file_that_is_written_anew_keeps_its_values_until_new_ones_are_there(tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    content = (LOGS / state.name).read_bytes()
    state.write_bytes(content)
    history = History.growing([state], {})
    assert history.update()
    before = dict(history.steps)
    state.write_bytes(content[:200])
    assert history.update()
    assert (history.steps, history.changed) == (before, set())
    history.update(ended=True)  # a watch that ends meanwhile has them, too
    assert history.steps == before
    state.write_bytes(json.dumps({"log_history": [{"step": 7, "reward": 0.5}]}).encode())
    assert history.update()
    assert history.steps == {7: {"trainer/reward": 0.5}}


def test_a_file_whose_reading_takes_long_rests_from_its_end_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 400.0, 459.0, 461.0, 461.1])
    monkeypatch.setattr("heedful.auditing.scalars.history.time.monotonic", lambda: next(times))
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "reward": 0.5}\n')
    history = History.growing([log], {})
    assert history.update()  # 300 seconds
    log.write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.5}\n')
    assert not history.update()
    assert history.update()
    assert list(history.steps) == [1, 2]


def test_of_a_file_of_lines_that_grows_new_lines_alone_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f'{{"step": {step}, "reward": 0.{step % 9}, "grad_norm": 1.5}}\n' for step in range(60)]
    log, parsed = tmp_path / "log.jsonl", list[str]()
    parse = files.parse_json
    monkeypatch.setattr(files, "parse_json", lambda line: (parsed.append(line), parse(line))[1])
    log.write_text("".join(lines[:50]) + lines[50][:9])
    history = History.growing([log], {})
    assert history.update()
    parsed.clear()
    log.write_text("".join(lines[:55]) + lines[55][:9])
    assert history.update()
    assert len(parsed) == 6  # five lines, and the first one, which says what the file is
    assert history.changed == set(range(50, 55))
    assert (history.steps, history.read) == ((whole := History.of([log], {})).steps, whole.read)
    log.write_text("".join(lines).replace('"step": 7, "reward": 0.7', '"step": 7, "reward": 0.1'))
    assert history.update()  # an earlier line is another one
    assert history.changed == {7, *range(55, 60)}
    log.write_text("".join(lines[:3]))
    assert history.update()
    assert [*history.steps] == [0, 1, 2]


def test_values_of_either_generation_of_writers_are_read(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("train/reward", 0.25, 7)
        writer.add_scalar("train/loss", math.nan, 7, new_style=True)
        writer.add_scalar("train/kl", 0.5, 7, new_style=True, double_precision=True)
    ((step, values, _),) = scalar_rows(next(tmp_path.iterdir()))
    assert (step, values["train/reward"], values["train/kl"]) == (7, 0.25, 0.5)
    assert math.isnan(values["train/loss"])


def test_trackio_gives_the_run_that_was_logged_last(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    with sqlite3.connect(path) as base:
        base.execute("create table metrics (id integer primary key, run_id text, step integer, metrics text)")
        rows = [("old", 0, {"train/reward": 0.9}), ("new", 3, {"train/reward": 0.1, "train/global_step": 1})]
        rows += [("new", 4, {"train/reward": "NaN", "train/global_step": 2, "table": {"_type": "trackio.table"}})]
        base.executemany("insert into metrics (run_id, step, metrics) values (?, ?, ?)",
            [(run, step, json.dumps(row)) for run, step, row in rows])  # fmt: skip
    base.close()
    first, second = scalar_rows(path)
    assert (first.step, first.values) == (1, {"train/reward": 0.1})
    assert second.step == 2
    assert math.isnan(second.values["train/reward"])


def test_a_table_with_a_step_is_read_and_rows_of_rollouts_are_no_scalars(tmp_path: Path) -> None:
    table, rollouts = tmp_path / "log.csv", tmp_path / "rollouts.jsonl"
    table.write_text("step,reward,entropy\n1,0.5,\n2,nan,0.3\n3,0.")
    rollouts.write_text('{"step": 1, "prompt": "a", "completion": "b", "reward": 1}\n')
    first, second = scalar_rows(table)
    assert first[:2] == (1, {"reward": 0.5})
    assert math.isnan(second.values["reward"])
    assert scalar_kind(rollouts) == ""


def test_a_table_of_rollouts_is_refused_and_no_scalars(tmp_path: Path) -> None:
    table = tmp_path / "completions.csv"
    table.write_text("step,prompt,completion,reward\n1,go,so,1.0\n1,go,no,0.0\n")
    ids = logs.write_lines(tmp_path / "ids.jsonl", [{"step": 1, "prompt": [5, 3], "completion": [8], "reward": 1.0}])
    assert (scalar_kind(table), scalar_kind(ids)) == ("", "")
    with pytest.raises(ValueError, match=r"For a log of your own, write JSON lines with the columns `prompt` and"):
        open_log(table, AuditSettings())


def test_keys_of_evaluations_and_of_other_divergences_are_no_values_of_training() -> None:
    row = {"eval_reward": 0.1, "val/reward": 0.2, "actor/ppo_kl": 9.0, "train/ppo_kl": 9.0, "train/kl": 0.3}
    names = Names()
    assert names.translated(row) == {"trainer/validation": 0.1, "trainer/kl": 0.3}
    assert names.unknown == {"val/reward", "actor/ppo_kl", "train/ppo_kl"}
    of_tinker = {"kl_policy_base": 0.2, "optim/kl_sample_train_v2": 0.1}
    assert Names().translated(of_tinker) == {"trainer/kl": 0.2, "trainer/mismatch": 0.1}


def test_a_pattern_that_fits_two_keys_is_told_and_not_read(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    row = {"step": 1, "val-core/a/acc/mean@1": 0.1, "val-core/b/acc/mean@1": 0.9, "env/all/by_group/frac_mixed": 0.25}
    log.write_text(json.dumps(row) + "\n")
    history = History.of([log], {})
    assert history.steps == {1: {"trainer/zero_std": 0.75}}
    assert "val-core/a/acc/mean@1, val-core/b/acc/mean@1" in history.sentences[0]
    assert "--map validation=KEY" in history.sentences[0]
    chosen = History.of([log], {"trainer/validation": "val-core/b/acc/mean@1"})
    assert chosen.steps[1]["trainer/validation"] == 0.9
    with pytest.raises(ValueError, match="found reward=nothing"):
        History.of([log], {"trainer/reward": "nothing"})


TRL = "{'loss': 0.1, 'reward': np.float64(0.5), 'kl': nan, 'epoch': 0.1}\n"
VERL = "(TaskRunner pid=1) step:1 - critic/score/mean:np.float64(0.5) - actor/kl_loss:nan\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("engines start first", "INFO loading weights {'shard': 1}\n" * 3000 + VERL),
        ("a bar has no line end", " 10%|#         | 1/10 [00:41<1:08, 4.6s/it]" + TRL),
        ("a rank stands before", "[rank0]:" + TRL),
        ("a bar follows", TRL[:-1] + "\r 10%|#         | 1/10 [00:41<1:08, 4.6s/it]"),
        ("W&B's page", '"Step","my - run - train/reward","my - run - train/reward__MIN"\n"1","0.5","0.4"\n'),
        ("a spreadsheet's mark", "\ufeffstep, reward\r\n1, 0.5\r\n"),
        ("semicolons and decimal commas", "Step;reward;entropy\r\n1;0,5;1,2e-1\r\n"),
        ("tabs", "step\treward\r\n1\t0.5\r\n"),
        ("a phase", '{"step": 1, "phase": "train", "reward": 0.5}\n{"step": 1, "phase": "Eval", "reward": 0.1}\n'),
        ("a mark before JSON", '\ufeff{"step": 1, "reward": 0.5}\n'),
        ("names within names", '{"step": 1.0, "time": "2026-01-01", "metrics": {"train": {"reward": 0.5}}}\n'),
    ],
)
def test_scalars_are_read_as_programs_write_them(name: str, text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    table = ";" in text or "\t" in text or '","' in text
    for encoding in ("utf-8", "utf-16") if table else ("utf-8",):
        log.write_text(text, encoding=encoding)
        values = History.of([log], {}).steps[1]
        assert values["trainer/reward"] == 0.5, name
    assert values.get("trainer/validation") == (0.1 if name == "a phase" else None)


def test_scopes_of_areal_and_evaluations_of_openrlhf_are_known(tmp_path: Path) -> None:
    log = tmp_path / "history.csv"
    log.write_text("_step,eval/global_step,eval/eval_math_pass1,ppo_actor/task_reward/avg\n9,,,0.5\n19,2,0.25,\n")
    assert History.of([log], {}).steps == {9: {"trainer/reward": 0.5}, 2: {"trainer/validation": 0.25}}


@pytest.mark.parametrize("tag", ["", "@sum"])
def test_means_of_roll_are_known_with_and_without_its_tag(tag: str) -> None:
    """Its trackers strip the tag, and its console shows it. Either is the mean over the updates of a step."""
    row = {f"actor/{name}{tag}": 0.5 for name in ("pg_loss", "kl_loss", "ppo_ratio_clipfrac")}
    found = Names().translated({**row, "actor_train/grad_norm": 0.5})
    assert found == dict.fromkeys(("trainer/kl", "trainer/clip_share", "trainer/grad_norm", "trainer/loss"), 0.5)


def test_a_percentage_of_openrlhf_is_no_share_of_groups() -> None:
    """Releases differ: it is 100 times the kept groups, or the kept replies, for each prompt."""
    row = {"dynamic_filtering_pass_rate": 66.7, "reward": 0.5}
    assert Names().translated(row) == {"trainer/reward": 0.5}


def test_unknown_keys_are_named_with_the_way_out(tmp_path: Path) -> None:
    log = tmp_path / "exported.csv"
    log.write_text("Wall time,Step,Value\n1.7,1,0.5\n")
    with pytest.raises(ValueError, match=r"found Value, Wall time\. Say which is which: --map reward=KEY"):
        History.of([log], {})
    assert History.of([log], {"trainer/reward": "Value"}).steps == {1: {"trainer/reward": 0.5}}
    watched = History.growing([log], {"trainer/reward": "Value", "trainer/kl": "KL"})
    watched.update(ended=True)
    assert [*watched.found()][1:] == ["No file of scalars holds KL, which --map names for kl."]


def test_a_folder_stands_for_its_event_files(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / EVENTS.name).write_bytes(EVENTS.read_bytes())
    alone = audit(tmp_path / "run", out=tmp_path / "alone", show=False)
    beside = audit(LOGS / "trainer_state.json", scalars=[tmp_path / "run"], out=tmp_path / "beside", show=False)
    for done in (alone, beside):
        assert [line.step for line in done.metrics()] == [1, 2, 3]


@pytest.mark.parametrize("absent", [{}, {"reward": None, "grad_norm": None}])
@pytest.mark.parametrize("rare", ["reward", "grad_norm"])
def test_a_scalar_that_is_logged_now_and_then_or_not_yet_is_no_alarm(
    rare: str, absent: dict[str, None], tmp_path: Path
) -> None:
    log = tmp_path / "metrics.jsonl"
    values = {"loss": 0.1, "reward": 0.5, "grad_norm": 0.3}
    rows: list[dict[str, float | None]] = []
    for step in range(30):
        logged = {key: value for key, value in values.items() if key != rare or step % 4 == 0}
        rows.append({"step": step} | absent | logged)
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not any(math.isnan(value) for values in History.of([log], {}).steps.values() for value in values.values())


def test_a_step_that_one_of_two_processes_has_not_written_yet_is_no_alarm(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    played = (
        '{{"step": {0}, "train/agg/effective/a/reward/mean": 0.5, "train/agg/effective/num_output_tokens/mean": 9}}\n'
    )
    log.write_text(
        "".join(played.format(step) + f'{{"step": {step}, "loss/mean": 1, "optim/lr": 1}}\n' for step in range(9))
        + played.format(9)
    )
    assert "trainer/loss" not in History.of([log], {}).steps[9]


def test_rows_of_single_rollouts_are_told_from_those_of_steps(tmp_path: Path) -> None:
    rows = [{"step": step, "rank": rank, "reward": rank % 2} for step in range(4) for rank in range(8)]
    said = [*History.of([logs.write_lines(tmp_path / "ranks.jsonl", rows)], {}).found()]
    assert "has several rows for most of its steps" in said[1]
    resumed = [{"step": step, "reward": at / 9} for at, step in enumerate((1, 2, 3, 4, 5, 4, 5, 6))]
    parted = [{"step": step, **held} for step in (1, 2) for held in ({"reward": 0.5}, {"loss": 0.1}, {"reward": 0.5})]
    broken = [{"step": step, "reward": 0.5, "loss": math.nan} for step in range(4)]
    for rows in (resumed, parted, broken):
        assert len([*History.of([logs.write_lines(tmp_path / "one.jsonl", rows)], {}).found()]) == 1


@pytest.mark.parametrize(("again", "told"), [(range(4), True), (range(12), False), (range(8, 10), False)])
def test_a_run_behind_an_earlier_one_in_a_file_is_told_while_it_is_shorter(
    again: range, told: bool, tmp_path: Path
) -> None:
    rows = [{"step": step, "reward": step / 20} for step in (*range(10), *again)]
    said = " ".join(History.of([logs.write_lines(tmp_path / "a.jsonl", rows)], {}).found())
    assert ("begins again at step 0 and ends at step 3: the steps after it are those of an earlier" in said) == told


def test_steps_that_are_counted_in_two_ways_are_told(tmp_path: Path) -> None:
    """As slime logs two updates of each rollout."""
    rollouts = [{"rollout/step": at, "rollout/raw_reward": 0.5, "_step": 3 * at} for at in range(3)]
    updates = [{"train/step": at, "train/kl_loss": 0.1, "_step": at} for at in range(6)]
    system = [{"_step": 9, "system/cpu": 0.5}]
    for rows, told in ((rollouts + updates + system, True), (rollouts + system, False)):
        said = " ".join(History.of([logs.write_lines(tmp_path / "a.jsonl", rows)], {}).found())
        assert ("counts steps in several ways (rollout/step, train/step)" in said) == told


def test_the_table_of_completions_that_trl_logs_to_wandb_is_no_step(tmp_path: Path) -> None:
    """transformers names the step in each row of scalars, and W&B counts TRL's call for the table as a step."""
    rows: list[dict[str, Any]] = []
    for step in (5, 10, 15, 20):
        rows.append({"_step": len(rows), "train/global_step": step, "train/reward": step / 40})
        rows.append({"_step": len(rows), "completions": {"_type": "table-file", "nrows": 8}})
    history = History.of([logs.write_lines(tmp_path / "a.jsonl", rows)], {})
    assert len([*history.found()]) == 1  # no run that began again is told
    history = History.growing([logs.write_lines(tmp_path / "b.jsonl", [*rows, {**rows[-1], "_step": 44}])], {})
    history.update()
    assert history.closed == 20


def test_the_later_row_of_a_step_counts_and_files_are_joined(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    one.write_text('{"step": 1, "reward": 0.1}\n{"step": 1, "reward": 0.2}\n')
    other.write_text('{"step": 1, "data": {"actor/entropy": 0.5}}\n{"step": 2, "data": {"actor/entropy": 0.4}}\n')
    steps = History.of([one, other], {}).steps
    assert steps == {1: {"trainer/reward": 0.2, "trainer/entropy": 0.5}, 2: {"trainer/entropy": 0.4}}


@pytest.mark.parametrize("spelling", ["NaN", "null", '"NaN"', None])
def test_a_gradient_that_is_no_number_is_an_alarm_in_every_spelling(spelling: str | None, tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    lines = [f'{{"step": {step}, "reward": 0.5, "grad_norm": 0.3}}' for step in range(8)]
    broken = "" if spelling is None else f', "grad_norm": {spelling}'
    log.write_text("\n".join([*lines, f'{{"step": 8, "reward": 0.5{broken}}}']) + "\n")
    done = audit(log, out=tmp_path / "out", show=False)
    alarms = {line.step: line.metrics.get("alarm/not_finite") for line in done.metrics()}
    assert [step for step, alarm in alarms.items() if alarm and alarm.value] == [8]


@pytest.mark.parametrize("mean", [VALIDATION[2], 0.35], ids=["a whole evaluation", "its last batch, which TRL keeps"])
def test_rows_that_an_evaluation_wrote_over_are_set_aside(mean: float, tmp_path: Path) -> None:
    log = tmp_path / "completions.jsonl"
    rewards = {1: REWARDS[1], 2: mean, 3: REWARDS[3]}
    rows = [
        {"step": step, "prompt": f"p{prompt}", "completion": f"c{member}", "reward": reward}
        for step, reward in rewards.items()
        for prompt in range(3)
        for member in range(2)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = audit(log, scalars=[LOGS / "trainer_state.json"], out=tmp_path / "out", show=False)
    found = {line.step: line.metrics for line in done.metrics()}
    assert [step for step, metrics in found.items() if "reward/mean" in metrics] == [1, 3]
    assert found[2]["trainer/reward"].value == pytest.approx(0.1)
    record = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert any("Steps 2 hold completions of an evaluation" in sentence for sentence in record["found"])


def test_scalars_of_other_steps_have_lines_of_their_own_and_an_audit_goes_on(tmp_path: Path) -> None:
    log, scalars = tmp_path / "rows.jsonl", tmp_path / "scalars.jsonl"
    log.write_text('{"step": 2, "prompt": "p", "completion": "c", "reward": 0.5}\n')
    scalars.write_text("".join(f'{{"step": {step}, "reward": 0.5}}\n' for step in (1, 2, 3)))
    out = tmp_path / "out"
    done = audit(log, scalars=[scalars], out=out, show=False)
    assert [line.step for line in done.metrics()] == [1, 2, 3]
    before = (out / "metrics.jsonl").read_bytes()
    audit(log, scalars=[scalars], out=out, show=False)
    assert (out / "metrics.jsonl").read_bytes() == before
    scalars.write_text(scalars.read_text() + '{"step": 4, "reward": 0.5}\n')
    audit(log, scalars=[scalars], out=out, show=False)
    assert (out / "metrics.jsonl").read_bytes().startswith(before)
    assert [line.step for line in done.metrics()] == [1, 2, 3, 4]


def test_steps_of_scalars_alone_are_not_counted_by_every_and_join(tmp_path: Path) -> None:
    log, scalars = tmp_path / "rows.jsonl", tmp_path / "scalars.jsonl"
    row = '{{"step": {0}, "prompt": "p", "completion": "c{0}", "reward": {1}}}\n'
    log.write_text("".join(row.format(step, step / 10) for step in (2, 4, 6, 8)))
    scalars.write_text("".join(f'{{"step": {step}, "reward": {step / 10}}}\n' for step in range(1, 9)))
    done = audit(log, scalars=[scalars], settings=AuditSettings(every=2), out=tmp_path / "every", show=False)
    assert [line.step for line in done.metrics() if "text/judge_accuracy_8way" in line.metrics] == [2, 6]
    audit(log, scalars=[scalars], settings=AuditSettings(join=2), out=tmp_path / "join", show=False)
    assert "is not the one that the trainer logged" not in (tmp_path / "join" / "audit.json").read_text()


def test_tasks_behind_a_validation_score_give_it_an_interval(tmp_path: Path) -> None:
    for tasks, known in ((None, False), (100, True)):
        chosen = AuditSettings(validation_tasks=tasks)
        done = audit(LOGS / "trainer_state.json", settings=chosen, out=tmp_path / str(tasks), show=False)
        metric = next(line.metrics["trainer/validation"] for line in done.metrics() if line.step == 2)
        assert (metric.low is not None) is known


def raised(series: dict[str, list[float]]) -> dict[str, int]:
    """Alarm -> the step at which it was first raised."""
    alarms, found = Alarms(rules=logged_rules(AlarmConfig())), dict[str, int]()
    for step in range(len(next(iter(series.values())))):
        metrics = [Metric(name, values[step]) for name, values in series.items()]
        for alarm in alarms.observe(step, metrics).raised:
            found.setdefault(alarm.name, step)
        state = json.loads(json.dumps(alarms.state()))
        alarms = Alarms(rules=logged_rules(AlarmConfig()))
        alarms.load_state(state)  # as an audit that goes on
    return found


def waves(level: float, steps: int = 40, size: float = 0.1) -> list[float]:
    return [level * (1 + size * math.sin(1.7 * step * step)) for step in range(steps)]


def cases() -> Iterator[Any]:
    warm = [1e-6 * min(1, (step + 1) / 6) for step in range(40)]
    yield pytest.param({"trainer/learning_rate": warm}, {}, id="a warm-up")
    cosine = [1e-6 * (1.01 + math.cos(step / 3)) for step in range(40)]
    yield pytest.param({"trainer/learning_rate": cosine}, {}, id="warm restarts")
    jump = [*warm[:30], *[2e-5] * 3, *warm[33:]]
    yield pytest.param({"trainer/learning_rate": jump}, {"rate_jump": 30}, id="a jump")
    norms = waves(0.4)
    yield pytest.param({"trainer/grad_norm": norms}, {}, id="usual norms")
    yield pytest.param({"trainer/grad_norm": [*norms[:20], 4.0, *norms[21:]]}, {"gradient_spike": 20}, id="a spike")
    yield pytest.param({"trainer/grad_norm": [*norms[:4], 4.0, *norms[5:]]}, {}, id="a spike at the start")
    yield pytest.param({"trainer/kl": [0.02 * step for step in range(60)]}, {}, id="linear growth")
    growing = [0.01 * 1.12**step for step in range(40)]
    yield pytest.param({"trainer/kl": growing}, {"kl_runaway": 28}, id="a runaway")
    longer = {"trainer/length": [*waves(200, 25), *waves(400, 15)]}
    yield pytest.param({**longer, "trainer/reward": waves(0.4)}, {"length_rise": 26}, id="longer for nothing")
    paid = [*waves(0.4, 25), *waves(0.6, 15)]
    yield pytest.param({**longer, "trainer/reward": paid}, {}, id="longer and better")
    solved = {"success/rate": [*waves(0.6, 10), *[0.97] * 20], "signal/solved": [0.5] * 30}
    yield pytest.param(solved, {"outgrown": 17}, id="solved, and kept apart by the format alone")
    mismatch = [*waves(0.001, 20), *waves(0.02, 20)]
    yield pytest.param({"trainer/mismatch": mismatch}, {"sampler_mismatch": 21}, id="another engine")


@pytest.mark.parametrize(("series", "expected"), cases())
def test_rules_on_scalars(series: dict[str, list[float]], expected: dict[str, int]) -> None:
    assert raised(series) == expected


def test_words_that_tell_less_are_an_alarm() -> None:
    """The collapse that is seen without a model."""
    alarms = Alarms(rules=logged_rules(AlarmConfig()))
    found = {}
    for step, accuracy in enumerate([*waves(0.9, 8, 0.02), *waves(0.4, 4, 0.02)]):
        metric = Metric("text/judge_accuracy_8way", accuracy, low=accuracy - 0.1, high=accuracy + 0.1)
        found |= {alarm.name: step for alarm in alarms.observe(step, [metric]).raised}
    assert found == {"words_uninformed": 8}


def test_a_ci_job_gets_an_exit_code_an_object_and_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log, summary = tmp_path / "metrics.jsonl", tmp_path / "summary.md"
    log.write_text("".join(f'{{"step": {step}, "reward": 0.5, "grad_norm": 0.3}}\n' for step in range(8)))
    words = ["audit", str(log), "--out", "good", "--fail-on", "collapse"]
    assert cli.run(words) == 0
    log.write_text(log.read_text() + '{"step": 8, "reward": 0.5, "grad_norm": NaN}\n')
    capsys.readouterr()
    assert cli.run([*words[:3], "bad", "--fail-on", "collapse", "--json", "--summary", str(summary)]) == 3
    said = capsys.readouterr()
    outcome = json.loads(said.out)
    (alarm,) = outcome["alarms"]
    assert [cause["name"] for cause in outcome["causes"]] == ["overflow", "reward_value", "empty"]
    assert alarm["evidence"].endswith("(last 1): grad_norm")
    assert "--fail-on collapse: alarms raised: not_finite at step 8." in said.err
    assert (alarm["name"], alarm["severity"], alarm["step"]) == ("not_finite", "collapse", 8)
    assert "| not_finite | collapse | 8 to 8 |" in summary.read_text()
    assert "1. not_finite: a number overflows (to know more: the precision" in summary.read_text()
    assert "use bf16 in place of fp16" in Path("bad", "report.html").read_text(), "the page says what to do"
    assert cli.run(["report", "bad"]) == 0
    assert "likely cause: not_finite: a number overflows" in capsys.readouterr().out
    assert cli.run(["report", "bad", "--fail-on", "kl_runaway"]) == 4, "the log holds no divergence"
    assert "--fail-on kl_runaway: none of these alarms could be judged." in capsys.readouterr().err
    assert cli.run(["report", "bad", "--fail-on", "kl_runaway", "--fail-on", "nonsense"]) == 2
    assert "Expected --fail-on never, collapse" in capsys.readouterr().err


def test_values_of_all_episodes_come_before_those_of_the_groups_that_prime_rl_trained_on() -> None:
    """With its default of `filter_zero_advantages` the effective subset holds no solved and no failed group."""
    row = {"train/agg/effective/agent/reward/mean": 0.5, "train/agg/effective/num_output_tokens/mean": 9.0}
    whole = {"train/agg/all/agent/reward/mean": 0.9, "train/agg/all/agent/solved_some": 0.2}
    found = Names().translated({**row, **whole})
    assert found == {"trainer/reward": 0.9, "trainer/zero_std": 0.8, "trainer/length": 9.0}
    assert Names().translated(row)["trainer/reward"] == 0.5
