"""verl's agent loop with heedful's environments: the outputs that verl gets, without Ray and with a fake server.

Runs where verl is installed: make test-verl.
"""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl.trainer", reason="verl is not installed here: make test-verl")
pytestmark = pytest.mark.verl

from omegaconf import OmegaConf  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap, _agent_loop_registry  # noqa: E402
from verl_players import byte_renderer, byte_tokenizer, sampled_after, wander  # noqa: E402

from heedful.boundary import ConfigurationError  # noqa: E402
from heedful.envs.toys.echo import Echo  # noqa: E402
from heedful.types import Ending  # noqa: E402
from heedful_verl.play import agent_loop  # noqa: E402
from heedful_verl.play.agent_loop import HeedfulAgentLoop, stop_ids, window_of  # noqa: E402
from heedful_verl.play.episodes import read_episode  # noqa: E402
from heedful_verl.tasks import task_rows  # noqa: E402


class Servers:
    """verl's client of its inference servers."""

    def __init__(self, stop: str = "completed") -> None:
        self.stop = stop
        self.asked: list[dict[str, Any]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append({"id": request_id, "prompt": prompt_ids, **sampling_params})
        said = sampled_after(prompt_ids, wander, sampling_params["max_tokens"])
        steps = {"min_global_steps": 3 + len(self.asked), "max_global_steps": 3 + len(self.asked)}
        logprobs = list(said.logprobs) if sampling_params.get("logprobs") else None
        return SimpleNamespace(token_ids=list(said.ids), log_probs=logprobs, stop_reason=self.stop, extra_fields=steps)


@pytest.fixture(autouse=True)
def model_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop asks the model's folder for the ids that end a reply. Here there is none."""
    monkeypatch.setattr(agent_loop, "copy_to_local", lambda path: path)
    monkeypatch.setattr(agent_loop, "get_generation_config", lambda path, trust_remote_code: None)


def loop(servers: Servers, heedful: dict[str, Any] | None = None, **rollout: Any) -> HeedfulAgentLoop:
    limits = {"prompt_length": 3000, "response_length": 400, "max_model_len": None, **rollout}
    config = {"actor_rollout_ref": {"rollout": limits, "model": {"path": "tiny"}}, "heedful": heedful}
    data = OmegaConf.create({"apply_chat_template_kwargs": {}})
    return HeedfulAgentLoop(
        trainer_config=DictConfigWrap(OmegaConf.create(config)),
        server_manager=servers,
        tokenizer=byte_tokenizer(),
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(data),
    )


def row(env: Any, seed: int = 2, session: int = 1) -> dict[str, Any]:
    (made,) = task_rows(env, [env.task(seed)])
    return {**made, "uid": "u1", "session_id": session, "global_steps": 9, "index": 0}


def outputs(servers: Servers, env: Any, **settings: Any) -> list[AgentLoopOutput]:
    params = {"temperature": 0.7, "top_p": 1.0, "logprobs": True}
    return asyncio.run(loop(servers, **settings).run(params, **row(env)))


class _Row:
    """A row as the driver reads it from the queue."""

    def __init__(self, output: AgentLoopOutput) -> None:
        self.prompt_ids, self.response_ids = output.prompt_ids, output.response_ids
        self.logprobs = output.response_logprobs


def test_the_loop_is_registered_under_its_name() -> None:
    assert _agent_loop_registry["heedful"]["_target_"].endswith("agent_loop.HeedfulAgentLoop")


def test_an_episode_with_its_full_history_is_one_output() -> None:
    servers = Servers()
    (output,) = outputs(servers, Echo(turns=3))
    assert len(output.response_mask) == len(output.response_ids) == len(output.response_logprobs or [])
    assert {output.response_mask[0], output.response_mask[-1]} == {1}
    assert [asked["id"] for asked in servers.asked] == ["u1-1"] * 3
    assert servers.asked[1]["prompt"][: len(output.prompt_ids)] == output.prompt_ids
    # The context of the last turn and its reply are the whole row: what was sampled is what is trained on.
    assert output.prompt_ids + output.response_ids == servers.asked[2]["prompt"] + list(
        sampled_after(servers.asked[2]["prompt"], wander, 200).ids
    )
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (4, 6)
    assert output.num_turns == 6


def test_the_driver_reads_the_episode_back_with_its_float64_rewards() -> None:
    for context in (None, 0, 1):
        found = outputs(Servers(), Echo(turns=3), heedful={"play": {"context": {"turns": context}}})
        trajectory = read_episode(found[-1].extra_fields["heedful"], [_Row(output) for output in found])
        assert trajectory.reward == found[-1].reward_score
        assert (trajectory.member, trajectory.temperature, trajectory.policy_version) == (1, 0.7, 6)
        assert trajectory.task == Echo(turns=3).task(2)


def test_windows_give_one_output_per_restart_and_the_last_one_has_score_and_measures() -> None:
    found = outputs(Servers(), Echo(turns=3), heedful={"play": {"context": {"turns": 0}}})
    assert len(found) == 3
    assert [output.reward_score is None for output in found] == [True, True, False]
    assert ["reward_extra_info" in output.extra_fields for output in found] == [False, False, True]
    assert all(set(output.response_mask) == {1} for output in found)
    # verl copies both onto the earlier outputs, and needs these in each of them.
    assert all({"min_global_steps", "max_global_steps"} <= output.extra_fields.keys() for output in found)
    assert all(output.as_dict()["responses"].numel() for output in found)


def test_measures_have_constant_names_and_never_the_name_of_verls_own() -> None:
    names = set()
    for env in (Echo(), Echo(turns=3), Echo(symbols=2, decoys=1)):
        names.add(tuple(outputs(Servers(), env)[-1].extra_fields["reward_extra_info"]))
    assert names == {("acc", "valid", "closed", "cut", "turns")}


def test_an_episode_that_breaks_gives_no_output_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "heedful"):
        assert outputs(Servers(stop="aborted"), Echo()) == []
    assert "left out" in caplog.text
    assert "inference server stopped" in caplog.text


def test_no_room_in_the_first_turn_gives_no_output_and_in_a_later_one_a_shorter_episode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = Servers()
    (whole,) = outputs(servers, Echo(turns=3))
    first, second = (len(asked["prompt"]) for asked in servers.asked[:2])
    with caplog.at_level(logging.WARNING, "heedful"):
        assert outputs(Servers(), Echo(turns=3), max_model_len=first) == []
    assert "no room" in caplog.text
    (short,) = outputs(Servers(), Echo(turns=3), max_model_len=second)
    told = json.loads(short.extra_fields["heedful"])
    assert (told["ending"], len(told["turns"])) == (Ending.OUT_OF_TOKENS.value, 1)
    assert short.response_ids == whole.response_ids[: len(short.response_ids)]


def test_a_reply_is_limited_by_the_setting_and_else_by_verls_response_length() -> None:
    servers = Servers()
    outputs(servers, Echo(), heedful={"play": {"tokens_per_turn": 7}})
    outputs(servers, Echo(), response_length=9)
    assert [asked["max_tokens"] for asked in servers.asked] == [7, 9]


def test_a_row_longer_than_verl_expects_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    agent_loop._told.clear()
    with caplog.at_level(logging.WARNING, "heedful"):
        for _ in range(3):
            outputs(Servers(), Echo(turns=3), response_length=60)
    assert caplog.text.count("data.max_response_length=60") == 1


def test_without_log_probabilities_the_output_has_none() -> None:
    params = {"temperature": 1.0, "logprobs": False}
    (output,) = asyncio.run(loop(Servers()).run(params, **row(Echo())))
    assert output.response_logprobs is None


def test_greedy_validation_is_read_at_temperature_one() -> None:
    (output,) = asyncio.run(loop(Servers()).run({"temperature": 0}, **row(Echo())))
    assert json.loads(output.extra_fields["heedful"])["temperature"] == 1.0


def test_the_servers_are_told_of_an_end_of_turn_that_they_do_not_know() -> None:
    renderer, servers = byte_renderer(), Servers()
    outputs(servers, Echo())
    assert "stop_token_ids" not in servers.asked[0]  # the tokenizer's own end
    stranger = SimpleNamespace(eos_token_id=renderer.end_of_turn_id + 1)
    told = agent_loop._with_stops({"top_p": 1.0}, renderer, stranger)
    assert told == {"top_p": 1.0, "stop_token_ids": sorted(renderer.stop_ids)}


def test_the_ends_of_replies_and_the_window_are_those_of_model_and_servers() -> None:
    tokenizer = SimpleNamespace(eos_token_id=2)
    assert stop_ids(SimpleNamespace(eos_token_id=[5, 7]), tokenizer) == [5, 7, 2]
    assert stop_ids(SimpleNamespace(eos_token_id=2), tokenizer) == [2]
    assert stop_ids(None, tokenizer) == [2]
    lengths = {"prompt_length": 3, "response_length": 4}
    assert window_of(SimpleNamespace(max_model_len=None, **lengths)) == 7
    assert window_of(SimpleNamespace(max_model_len=6, **lengths)) == 6


def test_mistakes_are_sentences() -> None:
    with pytest.raises(ConfigurationError, match="turnips"):
        outputs(Servers(), Echo(), heedful={"play": {"turnips": 1}})
    of_v0 = {name: value for name, value in row(Echo()).items() if name != "session_id"}
    with pytest.raises(ValueError, match=r"trainer\.use_v1"):
        asyncio.run(loop(Servers()).run({"temperature": 1.0}, **of_v0))
    with pytest.raises(ValueError, match="Expected a row of a task file"):
        asyncio.run(loop(Servers()).run({"temperature": 1.0}, uid="u", session_id=0, extra_info={"index": 1}))
