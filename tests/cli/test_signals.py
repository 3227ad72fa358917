"""What SIGTERM, SIGUSR1 and SIGHUP do to the commands: they save where they can, and end with all that they started."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful import __main__, cli, stopping  # noqa: E402
from heedful.run.checkpoint import checkpoints  # noqa: E402
from heedful.stopping import STOP_SIGNALS, StoppedBySignal  # noqa: E402
from heedful.storage import RunFolder, read_rollouts  # noqa: E402
from processes import meeting_at, store_of  # noqa: E402
from warm import WarmProcess  # noqa: E402

LIMIT_S = 1800.0
"""Only a test that hangs takes so long."""

TESTS = Path(__file__).parents[1]

SMALL = [
    *("--steps", "3", "--groups", "2", "--group-size", "2", "--checkpoint-every", "10"),
    *("--evaluation.times", "0", "--diagnostics.enabled", "false", "--optimizer.warmup-steps", "0", "--threads", "1"),
    *("--sampling.tokens-per-turn", "24"),
]


Process = subprocess.Popen[str] | WarmProcess


def started(words: Sequence[str], folder: Path, **variables: str) -> WarmProcess:
    """`heedful WORDS...` in a process of its own."""
    return WarmProcess(["-m", "heedful", *words], folder, environment(folder, variables))


def environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    paths = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": paths, "WAITING_ECHO": str(folder)} | variables


def bash(script: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """A script, whose commands start cold."""
    words = ["bash", script]
    output, env = subprocess.PIPE, environment(folder, variables)
    return subprocess.Popen(words, cwd=folder, stdout=output, stderr=subprocess.STDOUT, text=True, env=env)


def wait_for(found: Callable[[], object], process: Process) -> None:
    """Until it is found. A process that has ended, or takes far too long, fails the test with its last words."""
    until = time.monotonic() + LIMIT_S
    while not found():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise AssertionError(f"exit code {process.poll()}: {process.communicate()[0][-3000:]}")
        time.sleep(0.02)


def ended(process: Process) -> tuple[int, str]:
    """Exit code and output."""
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    return process.returncode, said


def children_of(process: int) -> list[int]:
    """The living processes whose parent it is."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == process and words[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(processes: Sequence[int]) -> None:
    until = time.monotonic() + LIMIT_S
    while not all(map(is_gone, processes)):
        assert time.monotonic() < until, f"still running: {processes}"
        time.sleep(0.02)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are listed in /proc")


@pytest.fixture
def model(echo_run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model's folder, outside of any run."""
    checkpoint = next(iter(sorted((echo_run / "checkpoints").iterdir())))
    return str(shutil.copytree(checkpoint, tmp_path_factory.mktemp("model") / "echo"))


@needs_proc
def test_sigterm_lets_train_finish_its_step_with_its_workers_save_and_end_with_143(model: str, tmp_path: Path) -> None:
    words = ["train", "waiting_echo:WaitingEcho", "--model", model, "--out", "run", "--env-workers", "2", *SMALL]
    process = started(words, tmp_path)
    wait_for((tmp_path / "at_work").exists, process)
    workers = children_of(process.pid)
    assert len(workers) >= 2
    for one in (process.pid, *workers):  # as Slurm does it: every process of the job
        os.kill(one, signal.SIGTERM)
    (tmp_path / "go_on").touch()
    code, said = ended(process)
    assert code == 143, said
    assert "interrupted after step 1, saved; go on with: heedful train --resume run" in said
    assert "Traceback" not in said
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].version == 1
    wait_until_gone(workers)
    groups = read_rollouts(RunFolder(tmp_path / "run").rollouts(0)).groups
    assert {member.error for group in groups for member in group.trajectories} == {""}


def test_a_signal_to_one_rank_ends_all_ranks_after_the_step(model: str, tmp_path: Path) -> None:
    store = store_of(2)
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", **meeting_at(store)}
    words = ["train", "waiting_echo:WaitingEcho", "--model", model, "--out", "run", *SMALL]
    ranks = [started(words, tmp_path, **common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
    try:
        wait_for((tmp_path / "at_work").exists, ranks[1])
        ranks[1].send_signal(signal.SIGTERM)
        (tmp_path / "go_on").touch()
        codes, said = zip(*map(ended, ranks), strict=True)
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == (143, 143), said
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].version == 1


@needs_proc
@pytest.mark.parametrize(
    ("words", "numbers", "code"),
    [
        (["train", "waiting_echo:WaitingEcho", "--out", "run", *SMALL], [signal.SIGUSR1, signal.SIGTERM], 143),
        (["eval", "MODEL", "waiting_echo:WaitingEcho", "--tasks", "4", "--json", "found.json"], [signal.SIGUSR1], 138),
    ],
    ids=["a second signal ends train", "eval"],
)
def test_a_command_that_ends_at_once_ends_its_workers(
    words: list[str],
    numbers: list[signal.Signals],
    code: int,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WAITING_ECHO", str(Path.cwd()))
    monkeypatch.syspath_prepend(str(TESTS))
    # Closer signals than those of one request are apart are tried in test_stopping.py.
    monkeypatch.setattr(stopping, "SAME_REQUEST", 0.0)
    workers: list[int] = []
    others = children_of(os.getpid())  # processes of other tests
    over = threading.Event()

    def send_when_at_work() -> None:
        until = time.monotonic() + LIMIT_S
        while not Path("at_work").exists():
            if over.wait(0.02) or time.monotonic() > until:
                return
        workers.extend(each for each in children_of(os.getpid()) if each not in others)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.05)

    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    thread = threading.Thread(target=send_when_at_work)
    thread.start()
    try:
        typed = [model if word == "MODEL" else word for word in words]
        given = ["--model", model] if words[0] == "train" else []
        assert cli.run([*typed, *given, "--env-workers", "1"]) == code
    finally:
        over.set()
        thread.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "heedful: interrupted at once; " in capsys.readouterr().err
    assert workers
    wait_until_gone(workers)
    assert not Path("found.json").exists()


IN_A_TERMINAL = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
os.setsid()
terminal = os.open(sys.argv.pop(1), os.O_RDWR)  # of a session without one: from now on it is this session's
for stream in (0, 1, 2):
    os.dup2(terminal, stream)
from heedful.__main__ import main
main()
"""


@needs_proc
def test_a_closed_terminal_lets_train_finish_its_step_and_save(model: str, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    words = ["train", "waiting_echo:WaitingEcho", "--model", model, "--out", "run", "--env-workers", "1", *SMALL]
    process = WarmProcess(["-c", IN_A_TERMINAL, os.ttyname(theirs), *words], tmp_path, environment(tmp_path, {}))
    over = threading.Event()
    reader = threading.Thread(target=drained, args=[ours, over], daemon=True)
    reader.start()
    wait_for((tmp_path / "at_work").exists, process)
    workers = children_of(process.pid)
    assert workers
    over.set()
    reader.join()  # a terminal that is being read is not closed yet
    os.close(theirs)
    os.close(ours)
    (tmp_path / "go_on").touch()
    assert process.wait(LIMIT_S) == 129
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].version == 1
    assert not list((tmp_path / "run").glob("*lock*"))
    wait_until_gone(workers)


def drained(terminal: int, over: threading.Event) -> None:
    """Read what is printed, so that nobody waits for room."""
    while not over.is_set():
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 4096)


WRITES_TO_A_CLOSED_TERMINAL = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as if it came too late
ours, theirs = os.openpty()
for stream in (1, 2):
    os.dup2(theirs, stream)
os.close(theirs)
from heedful import cli

class Printing:
    @staticmethod
    def main(argv):
        print("seen", flush=True)
        os.read(ours, 100)
        os.close(ours)
        for stream in (sys.stdout, sys.stderr):
            print("seen by nobody", file=stream, flush=True)
        os.write(told, b"went on")
        return 5

told = int(sys.argv.pop())
cli.importlib.import_module = lambda name: Printing
cli.main(["envs"])
"""


def test_a_line_for_a_closed_terminal_is_no_error(tmp_path: Path) -> None:
    hear, told = os.pipe()
    words = [sys.executable, "-c", WRITES_TO_A_CLOSED_TERMINAL, str(told)]
    process = subprocess.Popen(words, pass_fds=[told], start_new_session=True)
    os.close(told)
    with os.fdopen(hear) as heard:
        assert heard.read() == "went on"
    assert process.wait(LIMIT_S) == 5


WITHOUT_A_READER = """
import sys
from heedful import cli
from heedful.console import SafeConsole

say = {"print": print, "console": SafeConsole().print}[sys.argv.pop()]

class Printing:
    @staticmethod
    def main(argv):
        while True:
            say("a line")

cli.importlib.import_module = lambda name: Printing
sys.exit(cli.run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("line", "how"), [("envs", "print"), ("train", "console"), ("eval --server", "print"), ("train --help", "print")]
)
def test_a_command_whose_reader_has_ended_says_what_it_leaves(line: str, how: str) -> None:
    words = [sys.executable, "-u", "-c", WITHOUT_A_READER, *line.split(), how]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "a line\n"
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    kept = cli.KEPT.get(line)
    assert said == (f"heedful: stopped, since what reads its output has ended; {kept}.\n" if kept else "")
    assert process.wait() == 141


class Interrupted:
    """Its class body is interrupted. Python 3.11 makes a RuntimeError of what `__set_name__` raises."""

    def __init__(self, stop: KeyboardInterrupt) -> None:
        self.stop = stop

    def __set_name__(self, owner: type, name: str) -> None:
        raise self.stop


def test_a_signal_inside_of_a_class_body_of_a_library_ends_the_command_as_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def importing(name: str) -> object:
        return type("Library", (), {"part": Interrupted(StoppedBySignal(signal.SIGTERM))})

    monkeypatch.setattr(cli.importlib, "import_module", importing)
    assert cli.run(["envs"]) == 143
    assert capfd.readouterr().err == "heedful: interrupted at once; nothing was kept.\n"


def test_an_end_that_saved_something_says_what(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def importing(name: str) -> object:
        raise StoppedBySignal(signal.SIGTERM, "the seedling is saved after step 2 of 4, and goes on from there")

    monkeypatch.setattr(cli.importlib, "import_module", importing)
    assert cli.run(["envs"]) == 143
    said = capfd.readouterr().err
    assert said == "heedful: interrupted; the seedling is saved after step 2 of 4, and goes on from there.\n"


@pytest.mark.parametrize("inside", [True, False])
def test_ctrl_c_while_the_commands_are_imported_is_a_sentence(
    inside: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        if inside:
            type("Library", (), {"part": Interrupted(KeyboardInterrupt())})
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    assert stopped.value.code == 130
    assert capfd.readouterr().err == "heedful: interrupted at once; nothing was begun.\n"


def logged(step: int, thought: str, reward: float) -> str:
    """One row of a log."""
    prompt = f"Name the colour of thing {step}."
    row = {"step": step, "prompt": prompt, "completion": f"<think>{thought}</think>it", "reward": reward}
    return json.dumps(row) + "\n"


def test_sigterm_ends_an_audit_whose_steps_are_kept_and_the_same_command_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with log.open("w") as lines:
        for step in range(400):
            lines.write(logged(step, "see it", 1.0) + logged(step, f"look at {step}", 0.0))
    process = started(["audit", "log.jsonl", "--out", "audited"], tmp_path)
    metrics = tmp_path / "audited" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 3, process)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 143, said
    assert "heedful: interrupted at once; if a folder is named above, its steps are safe" in said
    assert "Traceback" not in said
    kept = len(metrics.read_text().splitlines())
    assert 3 <= kept < 400
    code, said = ended(started(["audit", "log.jsonl", "--out", "audited"], tmp_path))
    assert code == 0, said
    assert "Going on with audited" in said
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(400))


SRUN = """#!/bin/bash
# Stands in for Slurm's: it runs the job step, and sends SIGUSR1 to it once it is at work, if it is asked to.
"$@" & job=$!
if [ -n "$SIGNAL_WHEN" ]; then
  while [ ! -e "$SIGNAL_WHEN" ] && kill -0 $job 2>/dev/null; do sleep 0.05; done
  kill -USR1 $job; touch go_on
fi
wait $job
"""


def slurm_job(folder: Path, train: str, resume: str) -> dict[str, str]:
    """The script of the docs with these commands in place of heedful's, beside commands of Slurm. Its variables."""
    page = (TESTS.parent / "docs" / "training.md").read_text(encoding="utf-8")
    script = re.search(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", page, flags=re.DOTALL)
    assert script is not None
    text = script[1].replace("heedful train frozen_lake", train).replace("heedful train --resume", resume)
    assert train in text
    assert resume in text
    (folder / "job.sh").write_text(text)
    (folder / "srun").write_text(SRUN)
    (folder / "scontrol").write_text('#!/bin/bash\necho "$@" >> requeued\n')
    for name in ("srun", "scontrol"):
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}


STAND_IN = """#!/bin/bash
# In place of `heedful train`: it writes down what it was told to do, and ends as that does after SIGUSR1.
trap 'exit 138' USR1
echo "$@" >> told
if [ "$1" = new ]; then
  mkdir -p "$3"; touch "$3/config.json" at_work
  while true; do sleep 0.02; done
fi
"""


def test_the_script_for_slurm_in_the_docs_is_requeued_after_its_signal_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "stand_in").write_text(STAND_IN)
    (tmp_path / "stand_in").chmod(0o755)
    variables = slurm_job(tmp_path, "./stand_in new", "./stand_in again")
    code, said = ended(bash("job.sh", tmp_path, **variables, SIGNAL_WHEN="at_work"))
    assert code == 138, said
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    code, said = ended(bash("job.sh", tmp_path, **variables))
    assert code == 0, said
    assert (tmp_path / "told").read_text() == "new --out runs/lake\nagain runs/lake\n"
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"


@pytest.mark.proof
def test_the_script_for_slurm_in_the_docs_saves_is_requeued_and_goes_on(model: str, tmp_path: Path) -> None:
    """With heedful itself, which starts cold twice."""
    heedful = f"{sys.executable} -m heedful"
    train = f"{heedful} train waiting_echo:WaitingEcho --model {model} {' '.join(SMALL)}"
    variables = slurm_job(tmp_path, train, f"{heedful} train --trust waiting_echo --resume")
    code, said = ended(bash("job.sh", tmp_path, **variables, SIGNAL_WHEN="at_work"))
    assert (tmp_path / "requeued").read_text() == "requeue 17\n", said
    assert "interrupted after step 1, saved" in said
    code, said = ended(bash("job.sh", tmp_path, **variables))
    assert code == 0, said
    assert "after step 1 of 3" in said
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    assert checkpoints(next((tmp_path / "runs").iterdir()) / "checkpoints")[-1].version == 3


def test_an_interrupted_command_says_what_it_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        @staticmethod
        def main(argv: list[str]) -> int:
            signal.raise_signal(signal.SIGTERM)
            return 0

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Interrupted)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for name in cli.COMMANDS:
            assert cli.run([name]) == 143
            said = capsys.readouterr().err
            assert said.startswith("heedful: interrupted at once; ")
            assert (cli.KEPT.get(name) or "nothing was kept") in said
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
