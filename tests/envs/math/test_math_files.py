"""Math problems from files: MetaMathQA and GSM8K rows, splits by source problem, and sentences for what is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from test_math_problems import answered

from heedful.envs.checking.check import Effort, check
from heedful.envs.common.actions import format_reply
from heedful.envs.common.rows import Faulty, JsonLines
from heedful.envs.math import verifier as math_verifier
from heedful.envs.math.answers import Judgement
from heedful.envs.math.environment import MathProblems
from heedful.envs.math.files import FiledProblem, load_rows, open_problems, read_row
from heedful.run.evaluation.held_out import measure_baselines
from heedful.types import Ending

METAMATH = {
    "query": "Ann has 16 eggs and eats 3. How many are left?",
    "response": "She keeps 16 - 3 = 13 eggs.\n#### 13\nThe answer is: 13",
    "original_question": "Ann's ducks lay 16 eggs. She eats three. How many remain?",
    "type": "GSM_Rephrased",
}
GSM = {"question": "What is 48/2 + 48?", "answer": "48/2 = <<48/2=24>>24\n24 + 48 = <<24+48=72>>72\n#### 72"}
ALGEBRA = {"query": "Simplify $\\sqrt{12}$.", "response": "It is $\\boxed{2\\sqrt{3}}$. The answer is: $2\\sqrt{3}$"}


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def rephrased(sources: int, each: int) -> list[dict[str, Any]]:
    return [
        {
            "query": f"Way {way}: what is {number} and 1?",
            "response": f"{number} + 1 = {number + 1}\nThe answer is: {number + 1}",
            "original_question": f"What is {number} + 1?",
            "type": "SELF",
        }
        for number in range(sources)
        for way in range(each)
    ]


def test_a_row_gives_question_answer_way_source_and_kind() -> None:
    assert read_row(METAMATH) == FiledProblem(
        METAMATH["query"], "13", "She keeps 16 - 3 = 13 eggs.", METAMATH["original_question"], "GSM_Rephrased"
    )
    way = "48/2 = 24\n24 + 48 = 72"  # without the marks of the calculator
    assert read_row(GSM) == FiledProblem(GSM["question"], "72", way, GSM["question"], "")


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("First I thought the answer is 3. The answer is: 4", "4"),
        ("the answer is: 5\nThat is all.", "5"),
        ("so \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}"),
        *(("42", "42"), ("Evelyn", "Evelyn"), ("a\n#### Monday", "Monday"), ("a\n####42", "42"), ("#### **9**", "9")),
        *(("#### 8\n\n**Check**: fine.", "8"), ("a\n#### 42\n#### Conclusion\nGood.", "42"), ("\\boxed 14", "14")),
        *(("\\fbox{11}", "11"), ("$\\boxed 7$", "7"), ("\\boxed14.", "14"), ("\\boxed{\\boxed{5}}", "5")),
        *(("First \\boxed{3}, no: \\boxed{10}", "10"), ("1. \\boxed{2}\n2. \\fbox{9}", "9")),
        ("#### Step 1: add\n2+3=5\n#### Conclusion\nSo the sum is \\boxed{5}.", "5"),
        *(("**Answer:** 12", "12"), ("**Answer**\n\n12", "12"), ("__Answer:__ 12", "12"), ("### Answer: 12", "12")),
        *(("#### Answer\n\n42", "42"), ("**Final answer**\n\n$\\boxed{42}$", "42"), ("Answer: 15\n", "15")),
        *(("The answer is:\n$$\n12\n$$", "12"), ("The answer is **12**.", "12"), ("The correct answer is (B)", "(B)")),
        *(("w\n**Answer.** 19", "19"), ("w\nAns. 81", "81"), ("Answer: .5", ".5"), ("Total: **42**", None)),
        ("w\nFinal Answer: The final answer is $42$. I hope it is correct.", "$42$"),
        ("<think>long\nthought</think>\n\nThe answer is 13", "13"),
        *((text, None) for text in ("So the sum is 5.", "#### Conclusion", "Answer:", "\\boxed{}", "I\ndo not know")),
        *((text, None) for text in ("the answer is clear, we think", "The answer is 5 because 2+3=5", "\\boxed{5")),
        ("#### Step 1: add\n2+3=5\n#### Conclusion\nSo the sum is 5.", None),
        ("#### 1. Add the eggs\n5\n#### 2. Sell\n10", None),
        ("the answer is 3? The answer is blowing in the wind", None),
    ],
)
def test_a_right_answer_is_what_is_marked_as_one_and_never_a_word_of_prose(written: str, answer: str | None) -> None:
    row = {"question": "q", "answer": written}
    if answer is None:
        with pytest.raises(Faulty, match="no answer that can be read"):
            read_row(row)
    else:
        assert read_row(row).answer == answer


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "q", "completion": "a"}, "expected the columns query and response, or question and answer"),
        ({"query": "", "response": "The answer is: 3"}, "query is empty"),
        ({"query": None, "response": "The answer is: 3"}, "query is empty"),
        ({"query": "q", "response": 3}, "response was expected as text, and there is int"),
        ({"query": "q", "response": "I\ndo not know"}, "no answer that can be read in response"),
        ({"question": "q", "answer": "#### "}, "no answer that can be read in answer"),
        ({"question": "q", "answer": "3", "type": "\ud800"}, "type holds half of a surrogate pair"),
        ({"question": "q", "answer": "#### " + "x=" * 10**5 + "5"}, "has 200,001 characters, more than 500"),
    ],
)
def test_a_row_that_lacks_something_says_what(row: dict[str, Any], words: str) -> None:
    with pytest.raises(Faulty, match=words):
        read_row(row)


def test_faulty_rows_are_named_by_number_and_can_be_left_out(tmp_path: Path) -> None:
    faulty = [{"query": "q", "response": ""}] * 7
    path = written(tmp_path / "rows.jsonl", [METAMATH, *faulty, GSM])
    with pytest.raises(ValueError, match=r"line 2: response is empty; line 3: .* and 2 more.*--env.skip-faulty true"):
        MathProblems(path=path).task(0)
    problems = open_problems(path, "", "train", True)
    assert [problems[number].answer for number in range(len(problems))] == ["13", "72"]
    nothing = written(tmp_path / "none.jsonl", faulty)
    with pytest.raises(ValueError, match=r"found none\. line 1: response is empty; .* and 2 more"):
        MathProblems(path=nothing, skip_faulty=True).task(0)


def test_what_is_no_json_is_named_by_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(METAMATH) + "\n\n{broken\n")
    with pytest.raises(ValueError, match=r"row 2 of .*rows\.jsonl"):
        MathProblems(path=str(path)).task(0)
    path.write_text("[1,\n2]\n")
    with pytest.raises(ValueError, match=r"one JSON list must end in \.json"):
        MathProblems(path=str(path)).task(0)
    path.write_text("3\n")
    with pytest.raises(ValueError, match="expected a JSON object in row 1"):
        MathProblems(path=str(path)).task(0)


def test_a_file_that_is_not_there_or_of_another_kind_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        MathProblems(path=str(tmp_path / "none.jsonl"))
    other = tmp_path / "rows.csv"
    other.write_text("query,response\n")
    with pytest.raises(ValueError, match=r"must be a file of \.jsonl or \.parquet or \.json, or a dataset"):
        MathProblems(path=str(other))
    broken = tmp_path / "rows.parquet"
    broken.write_text("no parquet")
    with pytest.raises(ValueError, match=r"Expected a whole parquet file at .* for math, found"):
        MathProblems(path=str(broken)).task(0)


def test_rephrasings_of_one_problem_are_in_one_split(tmp_path: Path) -> None:
    # 600 draws of 150 rows leave about 3 rows out.
    env = MathProblems(path=written(tmp_path / "rows.jsonl", rephrased(30, 5)))
    splits: dict[str, set[str]] = {}
    ids: dict[str, set[str]] = {}
    for seed in range(600):
        task, problem = env.task(seed), env.problem(seed)
        splits.setdefault(problem.source, set()).add(task.split)
        ids.setdefault(task.id, set()).add(problem.question)
        assert task.tags == ("SELF",)
    assert len(splits) == 30
    assert len(ids) > 140
    assert all(len(found) == 1 for found in (*splits.values(), *ids.values()))
    assert {split for found in splits.values() for split in found} == {"train", "val", "test"}


def test_sources_that_ask_the_same_question_are_one(tmp_path: Path) -> None:
    # Of two sources that were kept apart, a third fall into different splits: of the 15 links here, almost surely one.
    rows = rephrased(50, 2)
    # A chain: each tenth problem is also told as a rephrasing of the next one's source.
    rows += [
        rows[2 * number] | {"original_question": f"What is {number + 1} + 1?"}
        for number in range(50)
        if number % 10 < 3
    ]
    for order in (rows, rows[::-1]):
        env = MathProblems(path=written(tmp_path / "rows.jsonl", order))
        splits: dict[str, set[str]] = {}
        chain: set[str] = set()
        for seed in range(700):
            problem = env.problem(seed)
            splits.setdefault(problem.question, set()).add(env.task(seed).split)
            if problem.question.endswith("is 3 and 1?"):
                chain.add(problem.source)
        assert len(splits) > 95
        assert all(len(found) == 1 for found in splits.values())
        assert len(chain) == 1
        found = {question: next(iter(split)) for question, split in splits.items()}
        assert found["Way 0: what is 0 and 1?"] == found["Way 1: what is 3 and 1?"]


def test_parquet_and_json_lines_give_the_same_tasks(tmp_path: Path) -> None:
    rows = rephrased(40, 3)
    lines = MathProblems(path=written(tmp_path / "rows.jsonl", rows))
    table = pyarrow.Table.from_pylist([row | {"unused": "x"} for row in rows])
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=7)
    packed = MathProblems(path=str(tmp_path / "rows.parquet"))
    assert [lines.task(seed) for seed in range(300)] == [packed.task(seed) for seed in range(300)]
    assert [lines.problem(seed) for seed in range(50)] == [packed.problem(seed) for seed in range(50)]


def test_times_that_python_cannot_hold_cost_no_row(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist(rephrased(4, 3))
    times = pyarrow.array([1_700_000_000_000_000_001] * len(table), pyarrow.timestamp("ns"))
    pyarrow.parquet.write_table(
        table.set_column(table.schema.get_field_index("type"), "type", times), tmp_path / "rows.parquet"
    )
    assert len(open_problems(str(tmp_path / "rows.parquet"), "", "train", False)) == len(table)


def test_a_damaged_parquet_file_is_a_sentence_wherever_it_is_damaged(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rephrased(10, 2)), tmp_path / "rows.parquet")
    whole = (tmp_path / "rows.parquet").read_bytes()
    for place in range(0, len(whole), 97):
        damaged = tmp_path / f"damaged-{place}.parquet"
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(ValueError):
            open_problems(str(damaged), "", "train", True)


def test_the_library_datasets_reads_folders_and_json_lists_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason='pip install "heedful[math]"')
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = rephrased(30, 2)
    folder = tmp_path / "folder"
    folder.mkdir()
    lines = MathProblems(path=written(folder / "train.jsonl", rows))
    listed = tmp_path / "rows.json"
    listed.write_text(json.dumps(rows))
    for path in (str(folder), str(listed)):
        env = MathProblems(path=path)
        assert [env.task(seed) for seed in range(100)] == [lines.task(seed) for seed in range(100)]
    with pytest.raises(ValueError, match="the split 'exam', found"):
        MathProblems(path=str(folder), part="exam").task(0)


def test_a_name_that_nothing_answers_to_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason='pip install "heedful[math]"')

    def unreachable(*names: object, **settings: object) -> None:
        raise ConnectionError("Couldn't reach the Hub.\nSee ...")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(
        ValueError, match=r"'somebody/nothing'.*ConnectionError: Couldn't reach the Hub\..*--env\.path FILE"
    ):
        MathProblems(path="somebody/nothing").task(0)


def test_a_library_that_is_missing_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "heedful\[math\]"'):
        load_rows("somebody/something", "", "train")
    monkeypatch.setattr(math_verifier.importlib.util, "find_spec", lambda name: None)
    path = written(tmp_path / "rows.jsonl", [GSM])
    with pytest.raises(ModuleNotFoundError, match=r'pip install "heedful\[math\]".*--env\.algebra false'):
        MathProblems(path=path).task(0)
    assert answered(MathProblems(path=path, algebra=False), 0, "$72")[0].ending is Ending.SOLVED


def test_a_large_file_is_read_one_row_at_a_time(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "rows.jsonl", rephrased(3000, 1)))
    rows = JsonLines(path, "math")
    assert len(rows) == 3000
    assert rows[2999]["original_question"] == "What is 2999 + 1?"
    assert sys.getsizeof(rows._offsets) < 16 * 3000


def test_the_line_of_a_row_is_counted_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes((b'{"a": "' + b"y" * 2**20 + b'"}\n\n') * 12 + b"{}\n")
    rows = JsonLines(path, "math")
    assert [rows.line(row) for row in (0, 1, 12)] == [1, 3, 25]
    tracemalloc.start()
    rows.line(12)
    assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    tracemalloc.stop()


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", [GSM])
    env = MathProblems(path=path)
    first = env.task(0)
    written(tmp_path / "rows.jsonl", [METAMATH])
    assert env.task(0) != first


def test_answers_are_judged_exactly_first_and_by_algebra_then(tmp_path: Path) -> None:
    pytest.importorskip("latex2sympy2_extended", reason='pip install "heedful[math]"')
    env = MathProblems(path=written(tmp_path / "rows.jsonl", [ALGEBRA]), patience=30.0)
    assert answered(env, 0, "$2 \\sqrt{3}$")[0].ending is Ending.SOLVED
    steps = answered(env, 0, "\\sqrt{13}", "not a clue", "\\sqrt{12}")
    assert all(step.valid for step in steps)
    assert [dict(step.rewards) for step in steps] == [{}, {}, {"solved": 0.25}]
    assert steps[-1].outcome == 1.0
    plain = dataclasses.replace(env, algebra=False)
    assert [step.outcome for step in answered(plain, 0, "\\sqrt{12}", "2\\sqrt{3}")] == [None, 1.0]


def test_what_could_not_be_verified_in_time_is_not_right_and_not_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = MathProblems(path=written(tmp_path / "rows.jsonl", [GSM]))
    monkeypatch.setattr("heedful.envs.math.environment.verify", lambda right, answer, seconds: Judgement.UNDECIDED)
    step = answered(env, 0, "9^{9^{9^9}}")[0]
    assert step.valid
    assert not step.rewards
    assert step.effect == "attempt 1: not verified"


def test_a_file_is_demonstrated_by_its_own_solutions_and_has_baselines(tmp_path: Path) -> None:
    env = MathProblems(path=written(tmp_path / "rows.jsonl", [*rephrased(300, 1), METAMATH]), instructions="brief")
    for seed in range(30):
        task = env.task(seed)
        ((_, reply),) = env.demonstrate(task, random.Random(seed))
        assert str(env.problem(seed).solution) in reply
    baselines = measure_baselines(env, "val", 20, search_tasks=20)
    assert baselines.random.value is not None
    assert len(baselines.sequence) == 3


def test_a_number_of_any_length_in_a_question_leaves_the_random_player_an_answer(tmp_path: Path) -> None:
    question = f"What is {'9' * 5000} + {'8' * 4000} + 3 - 2?"
    env = MathProblems(path=written(tmp_path / "rows.jsonl", [{"question": question, "answer": "5"}]), algebra=False)
    players = {env.random_answer(env.task(0), random.Random(seed)) for seed in range(99)}
    assert players <= {"5", "1", "-1", "6", "3/2", "2/3"}


def test_no_observation_shows_the_answer_of_a_file(tmp_path: Path) -> None:
    row = {"query": "What is it?", "response": "It is hidden.\nThe answer is: 90210", "type": "SELF"}
    env = MathProblems(path=written(tmp_path / "rows.jsonl", [row]), show_reward=True)
    episode = env.episode()
    shown = [episode.start(env.task(0), 0)]
    shown += [episode.step(format_reply([answer], "hm")).observation for answer in ("1", "words", "3")]
    assert all("90210" not in text for seen in shown for text in (seen.text, seen.opening))


def test_a_file_keeps_the_contract_of_environments_with_adversarial_replies(tmp_path: Path) -> None:
    pytest.importorskip("latex2sympy2_extended", reason='pip install "heedful[math]"')
    rows = [*rephrased(60, 2), *[ALGEBRA | {"original_question": str(number)} for number in range(5)]]
    env = MathProblems(path=written(tmp_path / "rows.jsonl", rows), patience=1.0)
    report = check(env, Effort(seeds=20, episodes=4))
    assert report.ok, str(report)
