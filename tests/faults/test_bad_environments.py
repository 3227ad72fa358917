"""Environments that hang or pay what is no number, a server that comes and goes, and losses that are no numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from folders import differences  # noqa: E402
from running import Runner  # noqa: E402
from subjects import SMALL  # noqa: E402

from heedful import cli  # noqa: E402
from heedful.storage import RunFolder, read_rollouts  # noqa: E402
from heedful.training.optimizer_step import OptimizerStep  # noqa: E402
from heedful.types import Ending, Trajectory  # noqa: E402
from patience import PATIENCE, comes  # noqa: E402
from ports import lasting_port  # noqa: E402
from served import start_server  # noqa: E402

STEPS = 3

WRONG = {
    "Hangs": "this step took longer than 2 s; its process was killed",
    "PaysNan": "gave the reward 'answer' as nan; expected a finite number",
}
"""Class of `bad_environments` -> the error of its episodes that go wrong."""


def episodes(run: Path) -> list[Trajectory]:
    groups = [group for step in range(STEPS) for group in read_rollouts(RunFolder(run).rollouts(step)).groups]
    return [trajectory for group in groups for trajectory in group.trajectories]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "PaysNan" else [pytest.mark.proof]) for name in WRONG]
)
def test_an_environment_that_goes_wrong_now_and_then_costs_these_episodes_only(
    name: str,
    heedful: Runner,
    seedling_folder: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    workers = "--env-workers 2 --env-timeout 2 --collect.threads 2" if name == "Hangs" else ""
    few = "--sampling.tokens-per-turn 24"
    start = f"train bad_environments:{name} --model {seedling_folder} --out out {SMALL} {few} {workers}"
    ended = heedful(start.split(), tmp_path)
    assert ended.code == 0, ended.said
    found = episodes(tmp_path / "out")
    wrong = [trajectory for trajectory in found if trajectory.ending is Ending.ERROR]
    assert 0 < len(wrong) < len(found)
    record_property("cases", len(found))
    assert all(trajectory.outcome is None for trajectory in wrong)
    for trajectory in wrong:
        of_its_process = name == "Hangs" and "the process that held this episode" in trajectory.error
        assert WRONG[name] in trajectory.error or of_its_process, trajectory.error
    learned = torch.load(tmp_path / "out" / "checkpoints" / "step_000003" / "learner.pt", weights_only=True)
    moments = learned["descent"]["optimizer"]["state"].values()
    assert all(bool(moment[key].isfinite().all()) for moment in moments for key in ("exp_avg", "exp_avg_sq"))


@pytest.mark.proof
def test_a_server_that_is_restarted_in_the_middle_of_episodes_costs_these_episodes_only(
    heedful: Runner, seedling_folder: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    port = str(lasting_port())
    servers = [start_server("echo", "--port", port)[0]]

    def restart() -> None:
        comes((tmp_path / "out" / "rollouts" / "step_000000.parquet").exists)
        servers[-1].kill()
        servers[-1].wait(PATIENCE)
        servers.append(start_server("echo", "--port", port)[0])

    thread = threading.Thread(target=restart)
    thread.start()
    start = f"train remote --env.url http://127.0.0.1:{port} --env.wait 600 --model {seedling_folder} --out out {SMALL}"
    ended = heedful(start.split(), tmp_path)
    thread.join(PATIENCE)
    for server in servers:
        server.kill()
        server.wait(PATIENCE)
    assert len(servers) == 2
    assert ended.code == 0, ended.said
    found = episodes(tmp_path / "out")
    record_property("cases", len(found))
    lost = [trajectory.error for trajectory in found if trajectory.ending is Ending.ERROR]
    assert all("There is no session" in error or "server" in error for error in lost), lost


def test_a_loss_that_is_no_number_ends_in_a_sentence_and_the_run_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.run(f"train echo --out {whole} {SMALL}".split()) == 0
    take = OptimizerStep.take

    def second_is_nan(self: OptimizerStep, of: str) -> float:
        if self.steps == 1:
            for parameter in self._optimizer.param_groups[0]["params"]:
                parameter.grad = torch.full_like(parameter, float("nan"))
        return take(self, of)

    with monkeypatch.context() as patch:
        patch.setattr(OptimizerStep, "take", second_is_nan)
        assert cli.run(f"train echo --out {broken} {SMALL}".split()) == 2
    assert "The gradient of optimizer step 2 of the policy is not finite (norm nan)" in capsys.readouterr().err
    assert cli.run(["train", "--resume", str(broken)]) == 0
    assert not differences(whole, broken)


@pytest.mark.proof
def test_a_learning_rate_that_ruins_the_weights_ends_in_a_sentence(heedful: Runner, tmp_path: Path) -> None:
    ended = heedful(f"train echo --out out {SMALL} --optimizer.lr 1e6".split(), tmp_path)
    assert "not finite" in ended.sentence, ended.said
    again = heedful(["train", "--resume", "out"], tmp_path)
    assert again.sentence == ended.sentence, again.said
