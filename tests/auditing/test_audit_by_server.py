"""An audit through a server: what it refuses, and the reason that it gives in place of numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_server import ModelBrain, fake_server
from heedful import cli
from heedful.auditing import AuditSettings
from heedful.storage import read_metrics


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"server": "http://x"}, "server, model_name and tokenizer belong together"),
        ({"server": "", "model_name": ""}, "server, model_name and tokenizer belong together"),
        ({"server": "http://x", "model_name": "", "tokenizer": "t"}, "give all three, none empty, or none"),
        ({"model_name": "m", "tokenizer": "t"}, "server, model_name and tokenizer belong together"),
        ({"server": "http://x", "model_name": "m", "tokenizer": "t", "model": "other"}, "and not both"),
        ({"api_key_env": "KEY"}, "api_key_env belongs to a server"),
        ({"connections": 0}, "connections: expected a whole number of at least 1"),
    ],
)
def test_settings_that_do_not_belong_together_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AuditSettings(**settings)  # type: ignore[arg-type]


def test_a_log_of_another_temperature_gets_a_reason_and_its_other_numbers(
    seedling_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.chdir(tmp_path)
    with fake_server(ModelBrain(AutoModelForCausalLM.from_pretrained(seedling_folder).eval())) as server:
        served = ["--server", server.url, "--model-name", "policy", "--tokenizer", str(seedling_folder)]
        play = "--tasks 4 --samples 2 --search-tasks 0 --no-greedy --sampling.tokens-per-turn 12 --temperature 0.7"
        assert cli.run(["eval", "echo", "--env.instructions", "brief", *served, *play.split(), "--out", "log"]) == 0
        server.calls.clear()
        assert cli.run(["audit", "log", *served, "--out", "audited"]) == 0
        assert server.bodies("/v1/completions") == []  # no pair is asked for
    (line,) = read_metrics(Path("audited/metrics.jsonl"))
    assert line.metrics["success/rate"].value is not None
    scored = [metric for name, metric in line.metrics.items() if name.startswith("information@policy/first_turn/")]
    assert scored
    assert all(metric.value is None and "expects temperature 1, found 0.7" in metric.why for metric in scored)
    assert "--model" in scored[0].why
    assert cli.run(["audit", "log", *served[:4], "--out", "other"]) == 2
    assert "belong together" in capsys.readouterr().err
