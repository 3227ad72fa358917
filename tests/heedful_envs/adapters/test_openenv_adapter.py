"""Environments behind an OpenEnv server: a real server of the library, and what happens when it goes."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heedful.envs.common.actions import format_reply
from heedful.rollout.baselines import random_reply
from heedful.types import Ending
from heedful_envs.adapters.openenv.environment import OpenEnv, ServerError
from patience import PATIENCE
from scripted_episodes import play

openenv = pytest.importorskip("openenv.core", reason="the extra openenv is not installed")
uvicorn = pytest.importorskip("uvicorn")
fastapi = pytest.importorskip("fastapi")

websockets = pytest.importorskip("websockets.sync.server")

WORDS = ("yes", "no", "look")


def paying(reward: str, done: str = "false") -> str:
    """An answer of a server, as it is on the wire."""
    return f'{{"type": "observation", "data": {{"observation": {{"text": "a"}}, "reward": {reward}, "done": {done}}}}}'


class Said(openenv.Action):
    message: str


class Heard(openenv.Observation):
    text: str = ""


class Word(openenv.Environment):
    """Say the word of the seed; `crash` raises, `ignore_seed` draws another word each time."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    started = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, ignore_seed: bool = False) -> Heard:
        Word.started += 1
        self._word = random.Random(Word.started if ignore_seed else seed).choice(WORDS)
        self._tries = 0
        return Heard(text=f"Number {Word.started if ignore_seed else seed}: say the word, not {self._word[::-1]}.")

    def step(self, action: Said, timeout_s: float | None = None) -> Heard:
        self._tries += 1
        if action.message == "crash":
            raise RuntimeError("the word is lost")
        right = action.message == self._word
        return Heard(text="Right." if right else "Wrong.", done=right or self._tries == 5, reward=float(right))

    @property
    def state(self) -> Any:
        return openenv.State(step_count=self._tries)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = fastapi.FastAPI()
    openenv.HTTPEnvServer(Word, Said, Heard, max_concurrent_envs=8).register_routes(app)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(PATIENCE)


def served_env(url: str, **knobs: Any) -> OpenEnv:
    return OpenEnv(url=url, words=WORDS, **knobs)


def test_an_episode_is_played_over_the_protocol_to_its_end(url: str) -> None:
    env = served_env(url)
    solved = 0
    for seed in range(6):
        task, rng = env.task(seed), random.Random(seed)
        steps = play(env, task, 0, lambda observation, turn, task=task, rng=rng: random_reply(env, task, rng))
        assert steps[-1].ending in (Ending.SOLVED, Ending.FAILED)
        assert (steps[-1].outcome == 1.0) == (steps[-1].rewards["game"] == 1.0)
        solved += steps[-1].ending is Ending.SOLVED
    assert solved > 0


def test_a_task_is_named_by_what_its_seed_shows_first(url: str) -> None:
    env = served_env(url)
    assert env.task(3) == env.task(3) != env.task(4)
    text = env.episode().start(env.task(3), 0).text
    assert "You have 8 turns" in text
    assert "Turns left: 8.\nNumber 3: say the word" in text


def test_a_server_that_does_not_follow_its_seed_is_found_out(url: str) -> None:
    env = served_env(url, reset="ignore_seed=true")
    task = env.task(0)
    with pytest.raises(ValueError, match=r"does not follow its seed.*--env.identity seed"):
        env.episode().start(task, 0)
    by_seed = served_env(url, reset="ignore_seed=true", identity="seed")
    assert by_seed.episode().start(by_seed.task(0), 0).text


def test_an_action_that_the_schema_refuses_spends_the_turn(url: str) -> None:
    env = served_env(url, action_field="shout", turns=2)
    episode = env.episode()
    episode.start(env.task(0), 0)
    step = episode.step(format_reply(["yes"], ""))
    assert not step.valid
    assert dict(step.rewards) == {"format": -0.1}
    assert "the server refused the answer as an action" in step.observation.text
    assert episode.step("no tags").ending is Ending.OUT_OF_TURNS


def test_an_error_of_the_environment_ends_its_episode_with_a_sentence(url: str) -> None:
    env = served_env(url)
    episode, other = env.episode(), env.episode()
    episode.start(env.task(0), 0)
    other.start(env.task(1), 0)
    with pytest.raises(ServerError, match=r"the server at .* failed: .*the word is lost"):
        episode.step(format_reply(["crash"], ""))
    assert other.step(format_reply(["look"], "")).valid


def test_a_lost_connection_is_never_replaced_by_a_new_session(url: str) -> None:
    env = served_env(url)
    episode = env.episode()
    episode.start(env.task(0), 0)
    client = episode.held._client
    client.disconnect()
    with pytest.raises(ServerError, match="the connection was lost in the middle of an episode"):
        episode.step(format_reply(["yes"], ""))


def test_a_server_that_is_not_there_is_named_with_its_address() -> None:
    with pytest.raises(OSError, match=r"openenv: the server at http://127.0.0.1:9 failed: .*Failed to connect"):
        OpenEnv(url="http://127.0.0.1:9").task(0)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("[]", "failed: AttributeError"),
        ('{"type": "observation", "data": null}', "failed: "),
        ("[" * 100_000, "failed: RecursionError: maximum recursion depth"),
        ("no JSON", "failed: JSONDecodeError: Expecting value"),
        (paying('"much"'), "failed: ValueError: could not convert string to float"),
    ],
)
def test_an_odd_answer_is_named_as_the_servers(answer: str, sentence: str) -> None:
    def answering(connection: Any) -> None:
        for question in connection:
            connection.send(answer if '"step"' in question else paying("null"))

    with websockets.serve(answering, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = OpenEnv(url=f"http://127.0.0.1:{server.socket.getsockname()[1]}", identity="seed")
        episode = env.episode()
        episode.start(env.task(0), 0)
        with pytest.raises(ServerError, match=f"^openenv: the server at .*{sentence}"):
            episode.step(format_reply(["yes"], ""))
        episode.close()


def test_the_outcome_is_a_share_of_the_full_reward(url: str) -> None:
    env = served_env(url, full=4.0, turns=5, identity="seed")
    task = env.task(0)
    answers = {word: play(env, task, 0, lambda o, t, word=word: format_reply([word], ""))[-1] for word in WORDS}
    assert sorted(step.outcome for step in answers.values()) == [0.0, 0.0, 0.25]


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"words": ()}, "words must hold at least one"),
        ({"reset": "x"}, "reset is written as name=value"),
    ],
)
def test_knobs_that_do_not_fit_are_refused(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"(?i)^openenv[:.] ?{sentence}"):
        OpenEnv(**knobs)
