"""A model that reads a log: text to ids, where the thought lies, and what it cannot score."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import foreign_logs as logs
import pytest
from audit_watching import Witness, by_step, read

from benchmarks.families.models import built
from heedful.auditing import AuditSettings, measure_log, open_log
from heedful.auditing.logs.conversations import text_turn
from heedful.auditing.measure import sampled_groups
from heedful.auditing.readers.reader import prompt_task, text_trajectory
from heedful.auditing.scoring import ModelJudge, model_judge
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.scorers.hf import HFScorer
from heedful.seeds import stream
from heedful.storage import RunFolder
from heedful.types import Group, Reply

TAGS = ThoughtTags()


@pytest.fixture(scope="module")
def judge(own_run: Path) -> ModelJudge:
    return model_judge(str(RunFolder(own_run).checkpoint(3)), AuditSettings(device="cpu"), TAGS, seed=0)


def group(prompt: str, replies: Sequence[str], temperature: float = 1.0) -> Group:
    task = prompt_task(prompt)
    return Group(
        task,
        tuple(
            replace(text_trajectory(task, (text_turn(prompt, reply, TAGS),), False, None, temperature), member=member)
            for member, reply in enumerate(replies)
        ),
    )


def replies(groups: Sequence[Group]) -> list[Reply]:
    return [member.turns[0].reply for group in groups for member in group.trajectories]


def thought(judge: ModelJudge, reply: Reply) -> str:
    return str(judge.tokenizer.decode(list(reply.ids[reply.thought.start : reply.thought.end])))


def test_the_thought_begins_after_its_tag_and_holds_its_end(judge: ModelJudge) -> None:
    said = ["<think>echo A</think><answer>A</answer>", "\n<think>echo B", "no thought"]
    first, second, third = replies(judge.with_ids([group("go", said)], {}))
    assert thought(judge, first) == "echo A</think>"
    assert thought(judge, second) == "echo B"
    assert len(third.thought) == 0
    decoded = judge.tokenizer.decode(list(first.ids))
    assert decoded == said[0]


def test_a_tag_that_stands_in_the_prompt_is_not_read_twice(judge: ModelJudge) -> None:
    prompt = "<|user|>go<|assistant|><think>"
    said = ["echo A</think><answer>A</answer>", "<think>echo A</think><answer>A</answer>", "echo B"]
    first, second, third = replies(judge.with_ids([group(prompt, said)], {}))
    assert first.ids == second.ids
    assert thought(judge, first) == "echo A</think>"
    assert thought(judge, third) == "echo B"
    assert judge.tokenizer.decode(list(first.prompt.ids)) == prompt


def test_the_answer_of_a_log_without_actions_is_the_action(judge: ModelJudge) -> None:
    said = ["<think>echo A</think><answer>A</answer>", "<think>echo B</think><answer> B B </answer> C", "<think>B"]
    said.append("<think>C</think><answer></answer> no: <answer>C</answer>")  # the empty one is no answer
    played = judge.with_ids([group("go", said)], {})
    assert [member.turns[0].actions for member in played[0].trajectories] == [("A",), ("B B",), (), ("C",)]
    first = replies(played)[0]
    assert judge.tokenizer.decode(list(first.ids[first.answer.start : first.answer.end])) == "A"
    agreed = [
        group(f"echo {letter}", [f"<think>echo {letter}</think><answer>{letter}</answer>"] * 4) for letter in "ABCD"
    ]
    metrics = {each.name: each for each in judge.measure(3, judge.with_ids(agreed, {}), sampled_it=True).metrics}
    agreed_by = metrics["grounding/agreed"]
    assert agreed_by.n == 16
    assert 0 < float(agreed_by.value or 0) < 1
    # A log that names actions keeps them: this reply had none that was executed.
    named = [replace(group("go", [said[0], said[0]]), trajectories=played[0].trajectories[:1])]
    (again,) = judge.with_ids([*named, group("do", [said[0]])], {})[1].trajectories
    assert again.turns[0].actions == ()


def test_replies_without_tags_are_thoughts_as_a_whole(judge: ModelJudge) -> None:
    (reply,) = replies(judge.with_ids([group("go", ["just words"])], {}))
    assert thought(judge, reply) == "just words"


def test_messages_are_rendered_with_the_models_template(judge: ModelJudge) -> None:
    messages = ({"role": "user", "content": "echo A"},)
    (reply,) = replies(judge.with_ids([group("user: echo A", ["hm</think>"])], {"user: echo A": messages}))
    rendered = judge.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    assert reply.prompt.text == rendered != "user: echo A"
    assert judge.tokenizer.decode(list(reply.prompt.ids)) == rendered


def test_messages_need_a_model_with_a_chat_template(judge: ModelJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge.tokenizer, "chat_template", None)
    messages = {"user: go": ({"role": "user", "content": "go"},)}
    with pytest.raises(ValueError, match=r"the tokenizer of --model has no chat template\. Give a chat model"):
        judge.with_ids([group("user: go", ["a"])], messages)


def test_logged_ids_are_used_only_by_a_tokenizer_that_reads_them_as_the_logged_text(
    judge: ModelJudge, own_run: Path
) -> None:
    _, steps, _ = read(own_run)
    groups = steps[0].groups
    assert judge.with_ids(groups, {}) == list(groups)
    turn = groups[0].trajectories[0].turns[0]
    for ids in ((3, 4, 5), (10**6,)):
        other = replace(turn, reply=replace(turn.reply, prompt=replace(turn.reply.prompt, ids=ids)))
        strange = Group(groups[0].task, (replace(groups[0].trajectories[0], turns=(other,)),))
        (reply,) = replies(judge.with_ids([strange], {}))
        assert reply.prompt.ids == turn.reply.prompt.ids


def test_what_cannot_be_scored_leaves_its_reason(judge: ModelJudge) -> None:
    long = judge.with_ids([group("word " * 3000, ["<think>a</think>"]), group("b", ["<think>b</think>"])], {})
    measured = {metric.name: metric for metric in judge.measure(0, long, sampled_it=False).metrics}
    mi = measured["information@step_000003/first_turn/mi"]
    assert mi.value is None
    assert "to fit the model's" in mi.why
    mixed = judge.with_ids([group("a", ["<think>a</think>"], 0.5), group("b", ["<think>b</think>"])], {})
    measured = {metric.name: metric for metric in judge.measure(0, mixed, sampled_it=False).metrics}
    assert measured["information@step_000003/first_turn/mi"].why == "sampled at several temperatures: 0.5, 1"
    measured = {metric.name: metric for metric in judge.measure(0, [group("a", [])], sampled_it=False).metrics}
    assert measured["information@step_000003/first_turn/mi"].why == "no thought to score"


def test_a_model_is_doubted_on_text_that_it_would_not_write_and_not_on_its_own(own_run: Path) -> None:
    source = str(RunFolder(own_run).checkpoint(3))
    own = model_judge(source, AuditSettings(device="cpu"), TAGS, seed=0)
    for step in read(own_run)[1]:
        own.measure(step.number, step.groups, sampled_it=False)
    assert own.read_bytes > 500
    assert own.warnings() == []
    again = model_judge(source, AuditSettings(device="cpu"), TAGS, seed=0)
    again.load_state(own.state())
    assert (again.nats, again.read_bytes) == (own.nats, own.read_bytes)
    other = model_judge(source, AuditSettings(device="cpu"), TAGS, seed=0)
    strange = [group(f"prompt {place}", [f"<think>{'zq]%W#' * 5}</think>"]) for place in range(3)]
    other.measure(0, other.with_ids(strange, {}), sampled_it=False)
    (sentence,) = other.warnings()
    assert "wildly improbable" in sentence
    # 100 bytes at ln 2 nats each are 1 bit per character, and three times that are 3. 20 bytes say nothing.
    for read_bytes, bits, told in ((100, 1, []), (100, 3, ["3.0 bits per character, and more than 2.5"]), (20, 3, [])):
        other.read_bytes, other.nats = read_bytes, bits * read_bytes * math.log(2)
        assert [words in sentence for words, sentence in zip(told, other.warnings(), strict=True)] == [True] * len(told)


def test_a_model_that_is_read_pair_by_pair_says_so(judge: ModelJudge) -> None:
    scorer = HFScorer(built("minimax", vocab_size=4096), name="slow")
    slow = ModelJudge(lambda name: scorer, judge.tokenizer, "slow", TAGS, 0)
    groups = slow.with_ids([group(f"prompt {place}", ["<think>a</think>", "<think>b</think>"]) for place in "ab"], {})
    found = slow.measure(0, groups, sampled_it=False)
    assert found.scores is not None
    (sentence,) = slow.warnings()
    assert sentence.startswith("slow reads each pair of prompt and thought whole (plain; not packed: ")
    assert "fewer --prompts and --thoughts" in sentence
    again = ModelJudge(lambda name: scorer, judge.tokenizer, "slow", TAGS, 0)
    again.load_state(slow.state())
    assert again.warnings() == [sentence]


def test_thoughts_that_name_their_prompt_carry_information_and_templates_none(
    own_run: Path, tmp_path: Path, witness: Witness
) -> None:
    """Two steps of one log: thoughts copied from the prompt, then one thought for all."""
    letters = "ABCDEFGH"
    rows = [
        {
            "input": f"<|user|>turns 1 moves 1\necho {letter} not {letters[place - 1]}<|assistant|><think>",
            "output": f"echo {letter if step == 1 else 'A'}</think><answer>{letter}</answer>",
            "score": float(member),
            "step": step,
        }
        for step in (1, 2)
        for place, letter in enumerate(letters)
        for member in range(2)
    ]
    path = logs.write_lines(tmp_path / "log.jsonl", rows)
    settings = AuditSettings(model=str(RunFolder(own_run).checkpoint(3)), device="cpu")
    log = open_log(path, settings)
    measured = by_step(measure_log(log, settings, tmp_path / "out", [witness]))
    scope = "information@step_000003/first_turn"
    assert measured[1][f"{scope}/gap_per_token"].n == 16
    assert measured[1][f"{scope}/gap_per_token"].value > 5 * abs(measured[2][f"{scope}/gap_per_token"].value)
    assert measured[2][f"{scope}/mi"].value == pytest.approx(0.0, abs=0.2)
    assert measured[1]["length/reasoning_tokens"].value == 3.0
    # A log that has grown goes on with the state of the model's measurements, and begins again without it.
    whole = (tmp_path / "out" / "metrics.jsonl").read_bytes()
    for out in (tmp_path / "grown", tmp_path / "lost"):
        for part in (rows[:16], rows):
            logs.write_lines(path, part)
            again = Witness()
            measure_log(open_log(path, settings), settings, out, [again])
            if out.name == "lost" and part != rows:
                (out / "audit-states.json").unlink()
        assert again.steps == ([2] if out.name == "grown" else [1, 2])
        assert (out / "metrics.jsonl").read_bytes() == whole


def test_the_budget_draws_from_foreign_logs_and_takes_the_first_of_our_own() -> None:
    groups = [group(f"p{number}", [f"r{member}" for member in range(8)]) for number in range(20)]
    first = sampled_groups(groups, 4, 2, None)
    assert [one.task for one in first] == [one.task for one in groups[:4]]
    assert all([member.member for member in one.trajectories] == [0, 1] for one in first)
    drawn = sampled_groups(groups, 4, 2, stream(0, "audit", 1))
    assert drawn == sampled_groups(groups, 4, 2, stream(0, "audit", 1))
    places = [groups.index(next(one for one in groups if one.task == chosen.task)) for chosen in drawn]
    assert places == sorted(places) != [0, 1, 2, 3]
    assert all(len(one.trajectories) == 2 for one in drawn)
    assert sampled_groups(groups, 99, 99, stream(0, "audit", 1)) == groups
