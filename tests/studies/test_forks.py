"""Forks of a run: each arm changes one thing, the unchanged arm is the run itself, and the run stays as it was."""

import errno
import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful import cli  # noqa: E402
from heedful.algorithms.table import Dapo, Grpo  # noqa: E402
from heedful.boundary import parse  # noqa: E402
from heedful.filters import KeepAll, TopP  # noqa: E402
from heedful.report.outcome import Outcome  # noqa: E402
from heedful.report.record import read_run  # noqa: E402
from heedful.run.config import AttributionConfig, DiagnosticsConfig, EvaluationConfig, TrainConfig  # noqa: E402
from heedful.run.train import Run, train  # noqa: E402
from heedful.storage import RunFolder, read_metrics, write_gradients  # noqa: E402
from heedful.studies import forks  # noqa: E402
from heedful.studies.fork_arms import ForkArm, components_beside_the_task, cures, removals  # noqa: E402
from heedful.studies.forks import Forks, claim, corrected_interval, fork_study  # noqa: E402
from heedful.studies.jobs import ForkJob, parent_of  # noqa: E402
from heedful.studies.running import runner  # noqa: E402
from heedful.studies.running.processes import Child  # noqa: E402
from heedful.studies.running.runner import Request, run_study  # noqa: E402
from heedful.studies.running.warm import Warm, WarmProcess, serve, warm_server  # noqa: E402
from heedful.types import Metric  # noqa: E402
from written_runs import WrittenRuns  # noqa: E402

STEPS = 5


@pytest.fixture(scope="module")
def config(echo_run: TrainConfig) -> TrainConfig:
    return replace(
        echo_run,
        algorithm=Grpo(kl=0.02, entropy=0.05),
        filter=KeepAll(),
        steps=STEPS,
        tasks=12,
        sampling=replace(echo_run.sampling, temperature=2.0),  # some replies have faults, so the format is paid
        evaluation=EvaluationConfig(tasks=8, samples=2, times=2),
        diagnostics=DiagnosticsConfig(share=None, every=1, full_every=STEPS - 1, prompts=2, thoughts=2),
        attribution=AttributionConfig(moments=True),
        checkpoint_every=2,
        keep_checkpoints="all",
    )


@pytest.fixture(scope="module")
def parent(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(config, out=tmp_path_factory.mktemp("forks") / "run", show=False)


@pytest.fixture
def run(parent: Run, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(parent.path, tmp_path / "run"))


def bytes_of(path: Path) -> dict[str, bytes]:
    files = (each for each in path.rglob("*") if each.is_file() and "forks" not in each.relative_to(path).parts)
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def readings(path: Path, steps: range) -> list[dict[str, Any]]:
    return [
        {name: metric for name, metric in line.metrics.items() if not name.startswith(("time/", "eval/"))}
        for line in read_metrics(path)
        if line.step in steps
    ]


def test_the_arm_that_changes_nothing_is_the_run_itself_with_its_seed(
    run: Run, monkeypatch: pytest.MonkeyPatch, shared_cache: Path
) -> None:
    before, grown = bytes_of(run.path), set((shared_cache / "seedlings").iterdir())
    study = fork_study(run, "2", STEPS - 2, (run.config.seed,))
    folder = RunFolder(run.folder.forks / "1" / "none" / f"s{run.config.seed}")
    kept = []
    remove = shutil.rmtree

    def keep(path: Path, **options: Any) -> None:
        if Path(path) == folder.path / "checkpoints":
            kept.append(path)
        else:
            remove(path, **options)

    monkeypatch.setattr("heedful.studies.jobs.shutil.rmtree", keep)
    job = study.arm("none").job
    assert job.run(folder, run.config.seed) == 0
    assert kept
    own, of_run = (each.checkpoint(STEPS) for each in (folder, run.folder))
    assert (own / "model.safetensors").read_bytes() == (of_run / "model.safetensors").read_bytes()
    learned, known = (torch.load(each / "learner.pt") for each in (own, of_run))
    del known["term_moments"]  # for attribution, of which a fork has none
    torch.testing.assert_close(learned, known, rtol=0, atol=0, equal_nan=True)
    until_full = range(2, STEPS - 1)
    assert readings(folder.metrics, until_full) == readings(run.folder.metrics, until_full)
    last, full = (readings(each.metrics, range(STEPS - 1, STEPS))[0] for each in (folder, run.folder))
    assert len(last) < len(full)  # no full measurement
    for name in ("success/rate", "policy/thought_entropy_per_token", "format/valid_rate"):
        assert last[name] == full[name]
    assert last["information/first_turn/gap"].value is not None
    assert bytes_of(run.path) == before
    assert set((shared_cache / "seedlings").iterdir()) == grown
    about = json.loads(folder.fork.read_text())
    assert (about["parent"], about["checkpoint"]) == (str(run.path.resolve()), 2)
    assert "steps" not in about["edits"]
    assert about["edits"]["keep_rollouts"] == ["all", "none"]
    evaluated = [line.step for line in read_metrics(folder.metrics) if "eval/val/sampled/success" in line.metrics]
    assert evaluated == [0, 5]  # at the run's start, and after the fork


def test_a_fork_of_the_command_ends_in_two_tables_and_goes_on_after_an_interruption(
    run: Run, started: list[Child], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bytes_of(run.path)
    words = ["fork", str(run.path), "--before", "2", "--steps", "2", "--seeds", "7,8", "--tasks", "8"]
    words += ["--arms", "no_format,filter", "--processes", "1"]
    assert cli.run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert "Removals: what is the cause?" in shown.err
    assert [row["arm"]["name"] for row in found["removals"]] == ["no_format"]
    assert [row["arm"]["name"] for row in found["cures"]] == ["filter"]
    assert found["sentences"][0].startswith(("Without the reward for format", "No cause is named"))
    assert found["removals"][0]["success"]["n"] == 2
    assert bytes_of(run.path) == before
    place = run.folder.forks / "1"
    page = (place / "study.html").read_text(encoding="utf-8")
    assert "Cures: what would help?" in page
    assert found["sentences"][0][:40] in page
    again = f"heedful fork --before 2 --steps 2 --tasks 8 {run.path} --seeds 7,8 --arms none,no_format,filter"
    assert again in (place / "results.md").read_text()
    trained = readings(place / "no_format/s7/metrics.jsonl", range(4))
    assert [metrics["reward/format"].value == 0.0 for metrics in trained] == [False, False, True, True]
    # A fork is lost: the same command does it alone.
    ended = [child.label for child in started]
    assert sorted(ended) == sorted(f"{arm}/s{seed}" for arm in ("none", "no_format", "filter") for seed in (7, 8))
    shutil.rmtree(place / "filter/s8")
    started.clear()
    assert cli.run([*words, "--json"]) == 0
    assert [child.label for child in started] == ["filter/s8"]
    assert json.loads(capsys.readouterr().out) == found
    # A further seed joins them, and forks of it are all that begins.
    started.clear()
    assert cli.run([*(word.replace("7,8", "9").replace(",filter", "") for word in words), "--json"]) == 0
    assert sorted(child.label for child in started) == ["no_format/s9", "none/s9"]
    assert json.loads(capsys.readouterr().out)["seeds"] == [7, 8, 9]
    assert not (run.folder.forks / "2").exists()


def test_forks_begin_in_processes_that_have_torch_loaded_and_do_not_outlive_their_server(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Child] = []
    start = Child.start
    monkeypatch.setattr(Child, "start", lambda child: (children.append(child), start(child))[1])

    @contextmanager
    def killed_at_the_end(keep_open: tuple[int, ...]) -> Iterator[Warm]:
        with warm_server(keep_open) as warm:
            yield warm
            says_how_a_process_ended_and_is_killed(warm, tmp_path)

    monkeypatch.setattr(runner, "warm_server", killed_at_the_end)
    study = fork_study(run, "2", 1, (7, 8), tasks=8)
    assert run_study(Request(study, run.folder.forks / "1", ("none",), processes=1), Console(quiet=True)) == 0
    assert [type(child.process) for child in children] == [WarmProcess] * 2
    assert len({child.process.pid for child in children}) == 2
    for child, seed in zip(children, (7, 8), strict=True):
        assert child.state == "done"
        assert f"forks/1/none/s{seed}/report.html" in child.log.read_text()
        assert len(readings(run.folder.forks / f"1/none/s{seed}/metrics.jsonl", range(2, 3))) == 1


def says_how_a_process_ended_and_is_killed(warm: Warm, folder: Path) -> None:
    log = folder / "log"
    log.touch()
    told, refused = warm.start(["--version"], log), warm.start(["train", "no_such"], log)
    assert (told.wait(), refused.wait()) == (0, 2)
    stopped = warm.start(["train", "echo", "--steps", "9999", "--out", str(folder / "stopped")], log)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait() in (-signal.SIGTERM, 128 + signal.SIGTERM)
    left = warm.start(["train", "echo", "--steps", "9999", "--out", str(folder / "left")], log)
    shown, until = b"", time.monotonic() + 30
    while b"9999" not in shown and Path("/proc/self/cmdline").exists():  # its own words, and not the server's
        assert time.monotonic() < until, shown
        shown = Path(f"/proc/{left.pid}/cmdline").read_bytes().rstrip(b"\0")
        time.sleep(0.01)
    assert not shown or shown.endswith(b"\0-m\0heedful\0train\0echo\0--steps\x009999\0--out\0" + bytes(folder / "left"))
    warm.process.kill()
    assert left.wait() == -signal.SIGKILL
    with pytest.raises(ChildProcessError, match=r"has ended\. The same command goes on"):
        warm.start(["--version"], log)
    until = time.monotonic() + 30
    while Path(f"/proc/{left.pid}/exe").exists():  # it has none once it is dead, reaped or not
        assert time.monotonic() < until
        time.sleep(0.01)
    assert "heedful" in log.read_text()
    assert "no_such" in log.read_text()


def test_a_run_for_which_there_is_no_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, "no room")

    monkeypatch.setattr("heedful.studies.running.warm.os.fork", full)
    (tmp_path / "requests").write_text('{"arguments": [], "log": "log"}\n')
    with (tmp_path / "requests").open("rb", 0) as requests, (tmp_path / "answers").open("wb", 0) as answers:
        assert serve(requests, answers) is None
    with (tmp_path / "answers").open("rb", 0) as told, (tmp_path / "asked").open("wb", 0) as asked:
        server: Any = SimpleNamespace(stdin=asked, stdout=told, returncode=None, wait=lambda: 0)
        with pytest.raises(BlockingIOError):
            Warm(server).start([], tmp_path / "log")


def test_a_run_that_gets_the_number_of_an_earlier_one_has_not_ended(tmp_path: Path) -> None:
    end, start = os.pipe()
    with (
        os.fdopen(end, "rb", 0) as told,
        os.fdopen(start, "wb", 0) as telling,
        (tmp_path / "asked").open("wb") as asked,
    ):
        server: Any = SimpleNamespace(stdin=asked, stdout=told, returncode=None)
        warm = Warm(server)
        telling.write(b"7\n")
        first = warm.start([], tmp_path / "log")
        telling.write(b"7 0\n")
        assert first.wait() == 0
        telling.write(b"7\n")
        assert warm.start([], tmp_path / "log").poll() is None


def test_a_killed_fork_goes_on_from_its_own_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    study = fork_study(run, "2", 2, (7,), tasks=8)
    job = study.arm("no_bonus").job
    whole, killed = (RunFolder(run.folder.forks / str(number) / "no_bonus" / "s7") for number in (1, 2))
    assert job.run(whole, 7) == 0

    def stopping(*given: Any, **named: Any) -> Any:
        return real(*given, on_step=lambda step, metrics: False, **named)

    from heedful.run import train as module

    real = module.resume
    with monkeypatch.context() as patch:
        patch.setattr(module, "resume", stopping)
        assert job.run(killed, 7) == 130
    assert killed.checkpoint(3).exists()
    assert not job.done(killed)
    assert job.run(killed, 7) == 0
    assert readings(killed.metrics, range(5)) == readings(whole.metrics, range(5))
    coefficients = [metrics["policy/entropy_coefficient"].value for metrics in readings(whole.metrics, range(4))]
    assert coefficients == [0.05, 0.05, 0.0, 0.0]  # from the first update of the fork on


def test_an_edited_parent_is_refused(run: Run) -> None:
    study = fork_study(run, "2", 2, (7,))
    weights = run.folder.checkpoint(2) / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    folder = RunFolder(run.folder.forks / "1" / "none" / "s7")
    with pytest.raises(ValueError, match="has changed since it was written"):
        study.arm("none").job.run(folder, 7)
    weights.write_bytes(content)
    sums = run.folder.checkpoint(2) / "checksums.json"
    sums.write_text(sums.read_text() + " ")
    with pytest.raises(ValueError, match="as it was when its forks began"):
        study.arm("none").job.run(folder, 7)


def test_an_arm_that_changes_nothing_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match=r"Expected an arm that changes something, found '--algorithm.kl 0.02'"):
        fork_study(run, "2", 2, (7,), own="--algorithm.kl 0.02")
    for own in ("--seed 3", "--steps 9", "--evaluation.tasks 4", "--seedling.steps 3"):  # not paired, or too late
        with pytest.raises(ValueError, match=r"Expected a cure in which forks may differ, found '--"):
            fork_study(run, "2", 2, (7,), own=own)
    study = fork_study(run, "2", 2, (7,), own="--algorithm.kl 0.2")
    assert study.arm("own").job.changed(7).algorithm.kl == 0.2
    with pytest.raises(ValueError, match=r"Expected --arms among none, no_format, no_bonus"):
        run_study(Request(study, run.folder.forks / "1", ("no_such",)), Console(quiet=True))


def test_what_a_run_has_is_taken_away_and_what_it_lacks_is_given(config: TrainConfig, run: Run) -> None:
    assert components_beside_the_task(read_run(run.path), STEPS) == ["format"]
    assert [arm.name for arm in removals(config, ["format"])] == ["no_format", "no_bonus", "no_kl", "half_rate"]
    assert [arm.name for arm in cures(config)] == ["filter", "kl"]
    many = [arm.name for arm in removals(config, [f"part {number}" for number in range(9)])]
    assert many == ["no_part_0", "no_part_1", "no_part_2", "no_bonus", "no_kl", "half_rate"]
    alike = {arm.name: arm.words for arm in removals(config, ["bonus", "a b", "a_b"])}
    assert [*alike] == ["no_bonus_", "no_a_b", "no_a_b_", "no_bonus", "no_kl", "half_rate"]
    assert alike["no_bonus_"] == "without the reward for bonus"
    filtered = replace(config, algorithm=Grpo(kl=0.2), filter=TopP(), loss_scale="rho")
    flags = {arm.name: arm.flags for arm in removals(filtered, [])}
    assert flags["no_filter"] == "--filter keep_all --loss-scale kept"
    searching = replace(config, algorithm=Dapo(), filter=TopP(on="reward"))  # its search for groups that vary goes on
    (kept_on,) = (arm.flags for arm in removals(searching, []) if arm.name == "no_filter")
    without = parse(TrainConfig, searching, kept_on.split(), "heedful train", "")
    assert (without.filter, without.rounds) == (KeepAll(on="reward"), searching.rounds)
    assert cures(filtered) == []
    cutting = replace(config, on_collapse="cut")
    (flags_cut,) = (arm.flags for arm in removals(cutting, []) if arm.name == "no_bonus")
    assert parse(TrainConfig, cutting, flags_cut.split(), "heedful train", "").algorithm.entropy == 0


def test_a_component_with_a_slash_in_its_name_is_taken_away_by_its_whole_name(tmp_path: Path) -> None:
    means = {"success/rate": [0.5, 0.6], "reward/solved": [0.5, 0.6], "reward/style/words": [0.2, 0.3]}
    written = WrittenRuns(tmp_path).add("none", 0, means | {"reward/component/mean": [0.1, 0.1]})
    assert components_beside_the_task(read_run(written.folder.path), 1) == ["style/words", "mean"]


def test_the_command_of_forks_can_be_given_again_with_a_cure_of_a_single_word(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = []
    monkeypatch.setattr(
        "heedful.studies.running.runner.run_study", lambda asked, _: programs.append(asked.program) or 1
    )
    words = ["fork", str(run.path), "--before", "2", "--cure=--algorithm.kl=0.01"]
    assert cli.run(words) == cli.run([*shlex.split(programs[0])[1:], str(run.path)]) == 1
    assert programs == ["heedful fork --before 2 --cure=--algorithm.kl=0.01"] * 2


def test_a_run_that_cuts_its_bonus_at_a_collapse_does_so_in_its_forks(run: Run) -> None:
    tree = json.loads((run.folder.checkpoint(2) / "settings.json").read_text())
    (run.folder.checkpoint(2) / "settings.json").write_text(json.dumps(tree | {"on_collapse": "cut"}))
    assert fork_study(run, "2", 2, (7,)).arm("none").job.config.on_collapse == "cut"
    (run.folder.checkpoint(2) / "settings.json").write_text(json.dumps(tree | {"on_collapse": "stop"}))
    assert fork_study(run, "2", 2, (7,)).arm("none").job.config.on_collapse == "warn"


def test_forks_of_a_pool_of_tasks_play_its_tasks_whatever_their_seed(run: Run) -> None:
    from heedful.envs.common.tasks import TaskStream
    from heedful.seeds import derive

    pool = TaskStream(run.config.env, "train", derive(run.config.seed, "tasks"), 12).pool or ()
    job = fork_study(run, "2", 2, (7,)).arm("none").job
    assert (job.config.tasks, job.config.task_seeds) == (None, tuple(task.seed for task in pool))


def test_the_fork_begins_two_steps_before_the_change_that_raised_the_alarm(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raised(words: str) -> None:
        evidence = {"value": 1.0, "why": words}
        row = {"step": 4, "time": 0.0, "metrics": {"alarm/noise_collapse": evidence, "alarm/input_blind": evidence}}
        lines = [line for line in run.folder.metrics.read_text().splitlines() if json.loads(line)["step"] < 4]
        run.folder.metrics.write_text("\n".join([*lines, json.dumps(row)]) + "\n")

    raised("gap fell from 9 to 3 since step 4; entropy rose from 1 to 2 since step 5")
    assert forks.alarm_of(run, None) == ("noise_collapse", 4, 2)
    assert forks.checkpoint_before(run, 2) == 2
    study = fork_study(run, None, 2, (7,))
    assert (study.outcomes[0].checkpoint, study.outcomes[0].alarm) == (2, "noise_collapse")
    raised("gap fell from 9 to 3 since step 3")
    with pytest.raises(ValueError, match=r"at or before step 1, found 2, 4, 5\. Give a later step to --before"):
        fork_study(run, "input_blind", 2, (7,))
    with pytest.raises(ValueError, match=r"Expected the alarm oscillation in .*found .*noise_collapse \(step 4\)"):
        fork_study(run, "oscillation", 2, (7,))


def test_another_length_takes_another_folder_and_further_seeds_join(run: Run) -> None:
    study = fork_study(run, "2", 2, (7,))
    assert claim(run.folder, study).name == "1"
    (run.folder.forks / "1").mkdir(parents=True)
    from heedful.studies.study_folder import StudyFolder

    StudyFolder(run.folder.forks / "1").claim(study, {}, False)
    assert claim(run.folder, study).name == "1"
    assert claim(run.folder, fork_study(run, "2", 2, (7, 9))).name == "1"
    assert claim(run.folder, fork_study(run, "2", 3, (7,))).name == "2"


def test_the_plan_runs_nothing(run: Run, started: list[Child], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["fork", str(run.path), "--before", "4", "--plan"]
    assert cli.run([*line, "--arms", "no_such"]) == 2
    assert "Expected --arms among none, no_format" in capsys.readouterr().err
    assert cli.run([*line, "--cure", "--algorithm.kl 'x"]) == 2
    assert 'found "--algorithm.kl \'x" (No closing quotation)' in capsys.readouterr().err
    assert cli.run([*line, "--cure", "--no-such 1"]) == 2
    assert "See `heedful train --help`" in capsys.readouterr().err
    assert cli.run([*line, "--arms", "ow*", "--cure", "--algorithm.kl 0.01"]) == 0  # as the page writes it
    shown = capsys.readouterr().out
    assert "--algorithm.kl 0.01" in shown
    assert "no_format" not in shown
    assert cli.run(line) == 0
    shown = capsys.readouterr().out
    assert "from the checkpoint of step 4, before step 4" in shown
    assert "--without-rewards format" in shown
    assert cli.run([*line, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["checkpoint"], planned["arms"][0]["name"]) == (4, "none")
    assert started == []
    assert not run.folder.forks.exists()
    assert cli.run(["fork", str(run.path)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "Expected an alarm of a collapse" in told
    assert "found none. Name a step: --before 12" in told


# What the tables say, on written runs ---------------------------------------------------------------------------------

PROSE = ("prose_constant", "prose_varied")
ARMS = (
    ForkArm("none", "none", "nothing"),
    ForkArm("no_prose", "removal", "without the reward for prose", "--without-rewards prose", PROSE),
    ForkArm("half_rate", "removal", "at half the learning rate", "--optimizer.lr 1"),
    ForkArm("filter", "cure", "with the filter", "--filter top_p"),
)


def told(
    tmp_path: Path,
    success: Mapping[str, list[float]],
    attributed: float | None = None,
    arms: Collection[str] = ("none", "no_prose", "half_rate", "filter"),
) -> Any:
    """What the outcome reads of forks with this sampled success after the last step, by arm and seed."""
    from heedful.studies.declaration import Arm, Study, narrowed
    from heedful.studies.outcomes import read_outcomes

    parent = tmp_path / "run"
    written = WrittenRuns(parent / "forks" / "1")
    for arm in ARMS:
        for seed, value in enumerate(success[arm.name]):
            of = {
                "eval/val/sampled/success": [None, None, 0.5, value],
                "eval/val/greedy/success": [None, None, 1.0, 0.9],
            }
            of |= {"success/rate": [0.6, 0.5, value, None], "information/first_turn/gap": [40.0, 41.0, 30.0, 20.0]}
            written.add(arm.name, seed, of)
    if attributed is not None:
        metrics = [
            Metric("attribution/success/prose_constant", attributed, 6, attributed - 0.01, attributed + 0.01),
            Metric("attribution/success/prose_long_varied", -0.5, 6, -0.6, -0.4),  # of another reward
            Metric("attribution/success/solved_varied", 0.02, 6, 0.01, 0.03),
            Metric("attribution/success/total", attributed - 0.48, 6),
        ]
        others = [replace(one, name=one.name.replace("success", "gap")) for one in metrics]
        unread = [Metric("attribution/success/total", None, why="the update changed no weight")]
        for step, found in ((1, metrics), (2, others), (3, unread)):  # nothing says what the later two did to success
            write_gradients(RunFolder(parent).attribution(step), step, {"what": "w", "blocks": 6}, found, [])
    outcome = Forks("run", "noise_collapse", 4, 1, 2, "val", ARMS, 2)
    study = Study("fork", "What?", tuple(Arm(arm.name, ForkJob()) for arm in ARMS), (0, 1, 2, 3), outcomes=(outcome,))
    study = narrowed(study, tuple(arms))
    return read_outcomes(study, written.folder.runs(study)).readings[0]


CAUSED = {
    "none": [0.30, 0.40, 0.35, 0.33],
    "no_prose": [0.50, 0.59, 0.56, 0.53],
    "half_rate": [0.32, 0.41, 0.34, 0.36],
    "filter": [0.60, 0.71, 0.64, 0.64],
}


def test_an_arm_of_which_no_fork_is_over_is_last_and_no_gain_of_zero(tmp_path: Path) -> None:
    found = told(tmp_path, CAUSED | {"no_prose": [], "half_rate": [0.20, 0.31, 0.24, 0.26]})
    assert [row.arm.name for row in found.values.removals] == ["half_rate", "no_prose"]
    assert found.sentences[0].startswith("No cause is named: the largest gain of success 2 steps later is -0.09")


def test_the_removal_that_is_first_and_clear_names_the_cause_and_the_best_cure_does_not(tmp_path: Path) -> None:
    found = told(tmp_path, CAUSED, -0.04)
    first, second, *rest = found.sentences
    assert first == (
        "Without the reward for prose, sampled success 2 steps later is 0.20 higher [+0.19, +0.21]; nothing else that "
        "was taken away changes it by more than 0.01."
    )
    assert second.startswith("Of the cures the best is clear: with the filter success changes by +0.30 [+0.29, +0.32].")
    assert rest[0].endswith(
        "the reward for prose took most of success (−0.0400 [−0.0500, −0.0300]): both name the same."
    )
    assert rest[1].endswith("--checkpoint 1 --filter top_p")
    assert [row.named for row in found.values.removals] == [True, False]
    assert found.values.removals[0].attributed == pytest.approx(-0.04)
    assert found.tables[0].rows[0][5] == "attribution, step 1"
    assert len(found.figures) == 4


def test_a_part_that_is_not_clear_of_zero_took_nothing_and_agrees_with_no_fork(tmp_path: Path) -> None:
    found = told(tmp_path, CAUSED, -0.004)
    assert found.values.removals[0].named
    assert found.sentences[2] == (
        "In the split update of step 1 nothing that was taken away here clearly took success."
    )


def test_nothing_is_named_where_the_gains_are_not_clear_or_do_not_matter(tmp_path: Path) -> None:
    noisy = {**CAUSED, "no_prose": [0.9, 0.1, 0.9, 0.1], "filter": CAUSED["none"]}
    found = told(tmp_path, noisy)
    assert found.sentences[0].startswith("No cause is named: the largest gain of success 2 steps later is +0.16 [")
    assert not any(row.named for row in found.values.removals)
    assert found.values.command == ""
    small = {**CAUSED, "no_prose": [0.32, 0.42, 0.371, 0.35], "half_rate": CAUSED["none"]}
    assert not any(row.named for row in told(tmp_path / "small", small).values.removals)


def test_the_correction_widens_the_interval_as_bonferroni_says() -> None:
    low, high = corrected_interval([0.1, 0.2, 0.3], 1) or (0, 0)
    assert (high - low) / 2 == pytest.approx(4.30265 * 0.1 / 3**0.5, rel=1e-4)  # t of 2 degrees at .975
    low, high = corrected_interval([0.1, 0.2, 0.3], 5) or (0, 0)
    assert (high - low) / 2 == pytest.approx(9.92484 * 0.1 / 3**0.5, rel=1e-4)  # at .995
    assert corrected_interval([0.1], 1) is None
    assert corrected_interval([0.1, 0.1], 1) is None  # equal gains, as of few episodes, are no certainty


def test_equal_gains_name_no_cause_and_the_report_of_a_folder_is_read_from_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    equal = {**CAUSED, "no_prose": [value + 0.25 for value in CAUSED["none"]], "filter": CAUSED["none"]}
    found = told(tmp_path, equal)
    assert found.sentences[0].startswith("No cause is named: the largest gain of success 2 steps later is +0.25 (all")
    fork = RunFolder(Path("none/s0"))
    monkeypatch.chdir(tmp_path / "run" / "forks" / "1")
    assert parent_of(fork) == tmp_path.resolve() / "run"


def test_an_arm_that_was_not_asked_for_counts_in_the_correction_too(tmp_path: Path) -> None:
    def within(arms: Collection[str]) -> Any:
        found = told(tmp_path / str(len(arms)), CAUSED, arms=arms)
        return next(row.corrected for row in found.values.removals if row.arm.name == "no_prose")

    assert within(("none", "no_prose")) == within([arm.name for arm in ARMS])


def test_a_report_tells_of_forks_first_among_the_causes(tmp_path: Path) -> None:
    reading = told(tmp_path, CAUSED)
    folder = RunFolder(tmp_path / "run")
    evidence = {"value": 1.0, "why": "entropy rose since step 2"}
    row = {"step": 4, "time": 0.0, "metrics": {"alarm/noise_collapse": evidence}}
    folder.metrics.write_text(json.dumps(row) + "\n")
    without = Outcome.of(folder.path).told_causes()
    (folder.forks / "1" / "results.json").write_text(json.dumps({"outcomes": []}))  # no unchanged fork was over
    assert Outcome.of(folder.path).told_causes() == without
    results = {"outcomes": [{"checkpoint": 1, "sentences": list(reading.sentences)}]}
    (folder.forks / "1" / "results.json").write_text(json.dumps(results))
    first, *others = Outcome.of(folder.path).told_causes()
    assert first.startswith("Forks from step 1: Without the reward for prose, sampled success")
    assert others == without
