"""Logs whose prompts hold pictures: read by a model that sees, and never as text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from audit_watching import read

from heedful.auditing.scoring import model_judge
from heedful.auditing.settings import AuditSettings
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.measuring.diagnostician import Diagnostician
from heedful.measuring.diagnostics_config import DiagnosticsConfig
from heedful.models.chat.render import Renderer
from heedful.models.vision import vision_of
from heedful.models.writing import write_pretrained
from heedful.policies.hf import HFPolicy
from heedful.policies.sampling import Sampling
from heedful.protocols import WindowExceeded
from heedful.scorers.hf import HFScorer
from heedful.storage import write_rollouts
from heedful.storage.rollouts import Rollouts, rollout_rows
from heedful.types import (
    Conversation,
    Ending,
    Group,
    Image,
    Message,
    Metric,
    Prompt,
    Reply,
    Span,
    Task,
    Trajectory,
    Turn,
    Verdict,
)
from seeing_models import picture, seeing


def one_turn(task: Task, member: int, images: tuple[Image, ...]) -> Trajectory:
    prompt = Prompt("look", (1, 2), images=images)
    reply = Reply(prompt, (3, 4), "<think>so</think>Up", (-1.0, -1.0), (), Span(0, 1), Span(1, 2), True, False)
    return Trajectory(task, member, (Turn(reply, {"solved": 1.0}, ("Up",), True, "", ""),), Ending.SOLVED, 1.0)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_episodes_whose_pictures_are_lost_are_left_out_with_the_reason(tmp_path: Path, form: str) -> None:
    task = Task("lake-0123456789abcdef", 1, "train", environment="lake")
    seen = one_turn(task, 1, (Image(b"a file", 8, 8),))
    group = Group(task, (one_turn(task, 0, ()), seen))
    path = tmp_path / f"step_000000.{form}"
    if form == "parquet":
        write_rollouts(path, 0, "train", [group], None, "lake")  # the bytes are no picture
    else:
        rows = rollout_rows(Rollouts(0, "train", "lake", (group,), None))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    _, steps, faults = read(path)
    assert sum(step.episodes for step in steps) == 1
    assert faults.count == 1
    told = str(faults.kept[0])
    assert "each picture that `new_prompt_images` names in `pictures`" in told
    digest = seen.turns[0].reply.prompt.images[0].digest
    # A form of text has no bytes of pictures.
    assert (f"found for {digest} no PNG file" if form == "parquet" else "found") in told
    assert (f"none for {digest}" in told) == (form == "jsonl")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda png: png[: len(png) // 2], "a PNG file that was cut or changed in its chunk b'IDAT'"),
        (lambda png: png[:-12], "a PNG file that was cut before its last chunk"),
        (lambda png: png[:-13] + bytes([png[-13] ^ 1]) + png[-12:], "a PNG file that was cut or changed in its chunk"),
    ],
    ids=["cut", "without its end", "a changed bit"],
)
def test_a_damaged_picture_is_named_with_its_line(tmp_path: Path, change: Callable[[bytes], bytes], said: str) -> None:
    task = Task("lake-0123456789abcdef", 1, "train", environment="lake")
    whole = picture(1)
    damaged = replace(whole, png=change(whole.png))
    group = Group(task, (one_turn(task, 0, (whole,)), one_turn(task, 1, (damaged,))))
    path = tmp_path / "step_000000.parquet"
    write_rollouts(path, 0, "train", [group], None, "lake")
    _, steps, faults = read(path)
    assert sum(step.episodes for step in steps) == 1
    told = str(faults.kept[0])
    assert told.startswith("step_000000.parquet, line 2: ")
    assert f"for {damaged.digest} {said}" in told


def test_a_picture_that_only_a_model_finds_broken_is_named(tmp_path: Path) -> None:
    model, tokenizer = seeing("idefics3_tiles")
    write_pretrained(tmp_path / "seer", model, tokenizer)
    judge = model_judge(str(tmp_path / "seer"), AuditSettings(), ThoughtTags("<think>", "</think>"), 0)
    task = Task("lake-0123456789abcdef", 1, "train", environment="lake")
    png = picture().png
    rows = b"IDAT" + b"no rows"  # with its right checksum, so the file is whole
    middle = len(rows[4:]).to_bytes(4, "big") + rows + zlib.crc32(rows).to_bytes(4, "big")
    broken = replace(picture(), png=png[:33] + middle + png[-12:])
    path = tmp_path / "step_000000.parquet"
    write_rollouts(path, 0, "train", [Group(task, (one_turn(task, 0, (broken,)),))], None, "lake")
    _, steps, _ = read(path)
    with pytest.raises(ValueError, match="Expected a picture in a PNG file that can be read"):
        judge.with_ids(steps[0].groups, {})


def test_a_log_with_pictures_is_read_by_the_model_that_sampled_it_and_by_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = seeing("idefics3", seed=1)
    other, _ = seeing("idefics3_tiles", seed=1)
    write_pretrained(tmp_path / "model", model, tokenizer)
    write_pretrained(tmp_path / "other", other, tokenizer)
    renderer = Renderer(tokenizer, sight=vision_of(model))
    policy = HFPolicy(model, renderer, Sampling(tokens_per_turn=6), seed=0)
    groups = []
    for number in range(4):
        task = Task(f"lake-{number:016x}", number, "train", environment="lake")
        message = Message("user", "look", images=(picture(number),))
        replies = policy.respond([Conversation(str(member), (message,)) for member in range(2)])
        members = [
            Trajectory(task, member, (Turn(reply, {"solved": 1.0}, (), True, "", ""),), Ending.SOLVED, 1.0)
            for member, reply in enumerate(replies)
        ]
        groups.append(Group(task, tuple(members)))
    log = tmp_path / "step_000000.parquet"
    write_rollouts(log, 0, "train", groups, None, "lake")

    def readings(name: str) -> dict[str, Metric]:
        judge = model_judge(str(tmp_path / name), AuditSettings(), ThoughtTags("<think>", "</think>"), 0)
        _, steps, faults = read(log)
        assert faults.count == 0
        asked = judge.with_ids(steps[0].groups, {})
        return {metric.name: metric for metric in judge.measure(0, asked, True).metrics}

    found = readings("model")
    own, foreign = found["information/first_turn/mi"], readings("other")["information/first_turn/mi"]
    assert own.value is not None
    assert float(own.value) > 0.1, "a random model reads every picture otherwise"
    assert foreign.value is None
    assert "other does not read the pictures of this log as the model that sampled it does" in foreign.why

    # The scopes of pictures are those that a run measures on the same groups.
    diagnostician = Diagnostician(
        DiagnosticsConfig(share=None, judge=""), HFScorer(model), 0, ThoughtTags("<think>", "</think>"), str
    )
    kept = [Verdict(1.0, "", 0.0)] * 4
    of_run = {each.name: each for each in diagnostician.measure(0, groups, kept, "outcome").metrics}
    scopes = [name for name in found if name.startswith(("information/image", "information/text", "grounding/image"))]
    assert {"information/image/mi", "information/image_all/mi", "grounding/image_share"} <= set(scopes)
    for name in scopes:
        assert found[name].value == pytest.approx(of_run[name].value, abs=1e-5), name
    assert float(found["information/image/mi"].value or 0) == pytest.approx(float(own.value), abs=1e-5), "one text"

    def too_long(*given: object) -> None:
        raise WindowExceeded("too long for the window")

    monkeypatch.setattr("heedful.measuring.thought_scores.score_exchanged", too_long)
    monkeypatch.setattr("heedful.measuring.thought_scores.one_text", lambda prompts: False)
    missing = readings("model")
    assert missing["information/first_turn/mi"].value is not None
    assert missing["information/image/mi"].why == "too long for the window"

    # Where the stored pictures are not those that the ids name, no figure is given, and the audit goes on.
    judge = model_judge(str(tmp_path / "model"), AuditSettings(), ThoughtTags("<think>", "</think>"), 0)
    changed = [
        replace(group, trajectories=tuple(map(with_another_picture, group.trajectories)))
        for group in read(log)[1][0].groups
    ]
    unread = {metric.name: metric for metric in judge.measure(0, judge.with_ids(changed, {}), True).metrics}
    assert "does not read the pictures of this log" in unread["information/first_turn/mi"].why


def with_another_picture(member: Trajectory) -> Trajectory:
    turn = member.turns[0]
    prompt = replace(turn.reply.prompt, images=(picture(99),))
    return replace(member, turns=(replace(turn, reply=replace(turn.reply, prompt=prompt)),))
